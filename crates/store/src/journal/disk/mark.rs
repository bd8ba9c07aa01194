//! The mark beside the database: the last commit that was answered. It is also the lock on the directory.
//!
//! Invariant: the mark never names a commit that the database does not have.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{JournalError, io_error, record};

const LEN: usize = 24;

/// `weir.mark`, locked.
pub(super) struct Mark {
    path: PathBuf,
    file: File,
    promised: Option<u64>,
}

impl Mark {
    pub(super) fn open(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join("weir.mark");
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(io_error(&path, "open"))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse { dir: dir.into() },
            TryLockError::Error(error) => io_error(&path, "lock")(error),
        })?;
        let mut bytes = [0; LEN];
        let len = file.metadata().map_err(io_error(&path, "read"))?.len();
        let promised = match file.read_exact_at(&mut bytes, 0) {
            // Created and never written, zeros after a power loss between the file's size and its bytes, or emptied.
            _ if len == 0 => None,
            Ok(()) if bytes == [0; LEN] => None,
            Ok(()) if len == LEN as u64 && bytes == to_bytes(commits(&bytes)) => Some(commits(&bytes)),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(io_error(&path, "read")(error));
            }
            _ => {
                return Err(JournalError::Damaged { file: path, why: "it is not a mark".into() });
            }
        };
        Ok(Self { path, file, promised })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last commit that was answered; `None` if the mark names none.
    pub(super) fn promised(&self) -> Option<u64> {
        self.promised
    }

    /// Notes that the database exists. This is synced: from now on a missing database is a loss.
    pub(super) fn begin(&mut self, commits: u64) -> Result<(), JournalError> {
        let first = self.promised.is_none();
        self.promise(commits)?;
        if first { self.file.sync_all().map_err(io_error(&self.path, "sync")) } else { Ok(()) }
    }

    /// Notes that commits up to this one are answered.
    pub(super) fn promise(&mut self, commits: u64) -> Result<(), JournalError> {
        self.file.write_all_at(&to_bytes(commits), 0).map_err(io_error(&self.path, "write"))?;
        self.promised = Some(commits);
        Ok(())
    }
}

fn commits(bytes: &[u8; LEN]) -> u64 {
    bytes.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
}

fn to_bytes(commits: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&commits.to_le_bytes());
    bytes[8..].copy_from_slice(&record::digest(b'm', (0, commits), &[]).to_le_bytes());
    bytes
}
