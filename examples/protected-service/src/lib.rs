//! A minimal, correct service that accepts passes of Weir. It shows what a protected service must do.
//!
//! Invariants: a pass is accepted if a published key signed it, for this service and zone, and it has not expired. Each pass
//! is accepted once and starts a session. The keys are fetched when an unknown one is named or a minute has passed, not for each
//! pass, so people can enter while Weir is away.

pub mod door;
pub mod http;
pub mod keys;
