//! Why the process ends with another exit code than 0.
//!
//! Exit codes are those of `sysexits.h`: 64 for a configuration or command line that is not valid, 69 for an address that
//! cannot be opened or a store that does not answer a command, 73 for keys, a directory or an audit log that cannot be made,
//! 74 for a store that cannot be opened, 77 for keys that other users may read. A command ends with 74 if standard output cannot be
//! written, and with 141 if nobody reads it. A command that calls a running server also ends with 65 if the server refused a
//! change, and 77 if the caller lacks a permission; `weir zones apply` with 65 if a zone stays as it is. 1
//! means that a stop was cut short, or that `weir doctor` found a problem. `weir audit verify` and `weir draw verify` have 1 for
//! a file that was changed, and 2 for one that cannot be read.

use std::fmt::{self, Display};

use shown::{brief, without_quoted_logins};

use crate::keys::KeyFault;

/// A stop was cut short.
pub const CUT_SHORT: u8 = 1;
/// The configuration or the command line is not valid.
pub const USAGE: u8 = 64;
/// An address, a store or a thread is not available.
pub const UNAVAILABLE: u8 = 69;
/// A key, a directory or the audit log cannot be made.
pub const CANNOT_CREATE: u8 = 73;
/// The change that a command asked for was refused.
pub const DATA: u8 = 65;
/// Nobody reads the output of a command, as shells report it.
pub const UNREAD: u8 = 141;
/// The store, the zones' file or standard output cannot be read or written.
pub const IO: u8 = 74;
/// Other users may read a key, or the caller lacks a permission.
pub const NO_PERMISSION: u8 = 77;

/// The exit code, and the line for standard error that says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: u8,
    /// What is wrong, and what to do.
    pub line: String,
}

impl Failure {
    /// The failure that `why` describes.
    pub fn new(exit: u8, why: impl Display) -> Self {
        Self { exit, line: brief(&without_quoted_logins(&why.to_string())) }
    }

    /// Makes failures with this exit code from errors.
    pub fn with<E: Display>(exit: u8) -> impl Fn(E) -> Self {
        move |why| Self::new(exit, why)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<KeyFault> for Failure {
    fn from(fault: KeyFault) -> Self {
        let exit = match fault {
            KeyFault::Unwritable { .. } => CANNOT_CREATE,
            KeyFault::Exposed { .. } => NO_PERMISSION,
            KeyFault::Unreadable { .. } | KeyFault::NotMade(_) | KeyFault::Wrong { .. } => USAGE,
        };
        Self::new(exit, fault)
    }
}
