//! Why a log cannot be used.
//!
//! Invariant: each fault names the file or directory.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why the log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// Another process writes the log.
    #[error("{}: another process writes this audit log; give each server its own directory", .0.display())]
    InUse(PathBuf),
    /// The operating system refused.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
}

pub(super) fn io_fault(path: &Path) -> impl Fn(io::Error) -> LogFault + '_ {
    |why| LogFault::Io { path: path.to_owned(), why }
}
