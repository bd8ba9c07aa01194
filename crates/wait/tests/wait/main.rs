//! Whether the told wait is right: lines in virtual time, with people whose patience is known to the test only.
//!
//! `cargo test --release -p wait --test wait -- --ignored --nocapture` prints the table of benches/README.md.
//! `WEIR_WAIT_SEEDS` is the number of lines of each row.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of a simulation"
)]

mod asserted;
mod counted;
mod judged;
mod law;
mod line;
mod previous;
mod table;
