//! What the commands of `weir` and `loadgen` show: short errors that tell no secret, and whether anybody can see the output.
//!
//! | module | concern |
//! |---|---|
//! | `address` | addresses without their passwords, also where the parser of the command line or an error quotes them |
//! | `brief` | errors that quote little of a long text |
//! | [`mod@file`] | files of which no more is read than they may have |
//! | [`stdout`] | whether standard output was closed when the process began |
//! | [`utf8`] | texts that people write into files, or the place of the first bad byte |
//!
//! Invariant: each module is for both programs, and nothing of it knows what a waiting room is. So `loadgen` still judges Weir by what a
//! server says, and by no code of Weir.

mod address;
mod brief;
pub mod file;
pub mod stdout;
pub mod utf8;

pub use address::{value, without_quoted_logins, without_quoted_secrets, without_secrets};
pub use brief::{brief, ends};
