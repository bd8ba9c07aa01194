//! A service that lets in who has a pass of Weir's, as small as it can be and still right: what a service of yours has to do.
//!
//! Invariants: a pass is good if it was signed by a published key, for this service and zone, and has not expired; each is
//! good once, and then its holder has a session. The keys are asked for ahead and when an unknown one is named, never for
//! each pass, so Weir may be away while people come in.

pub mod door;
pub mod http;
pub mod keys;
