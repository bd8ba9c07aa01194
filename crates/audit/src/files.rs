//! The log's files: `audit-0000000001.jsonl` and so on. A file that has reached its size is followed by the next one.
//!
//! Invariants: bytes are only added, at the end of the last file; nothing is deleted. A server that opens a log continues
//! its chain. If a crash left a fragment of a line, the log continues in another file, whose first line names the fragment.
//! A lock admits one process at a time.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    chain::Head,
    fault::{LogFault, io_fault},
    reader::{End, Fragment, name_of},
};

/// Digits of a file's number. No log has more files.
const DIGITS: usize = 10;

/// A log that is open for writing.
pub(super) struct Log {
    dir: PathBuf,
    /// After so many bytes the log continues in the next file.
    file_bytes: u64,
    file: File,
    /// Where the file was created, and its identity: it may be moved while it is written.
    path: PathBuf,
    identity: (u64, u64),
    number: u64,
    /// Bytes in the file.
    len: u64,
    head: Head,
    /// Sealed lines that are not all in the file yet. `written` bytes of them are.
    lines: Vec<u8>,
    written: usize,
    synced: bool,
    /// Whether the file's directory entry survives a loss of power.
    listed: bool,
    /// Held for as long as the log is open.
    _lock: File,
}

/// How the log ended before it was opened.
pub(super) struct PreviousEnd {
    /// The log is new, or its last line says that the server stopped.
    pub(super) clean: bool,
    /// The fragments that crashes left and no line names yet, in the order of their files.
    pub(super) fragments: Vec<Fragment>,
}

impl Log {
    /// Opens the log in `dir`, or begins one there.
    ///
    /// # Errors
    /// A [`LogFault`]. The directory may have been created; nothing else has changed.
    pub(super) fn open(dir: &Path, file_bytes: u64) -> Result<(Self, PreviousEnd), LogFault> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_fault(dir))?;
        let lock_path = dir.join("audit.lock");
        let lock = options().open(&lock_path).map_err(io_fault(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LogFault::InUse(dir.to_owned()),
            TryLockError::Error(why) => io_fault(&lock_path)(why),
        })?;
        let files = list(dir)?;
        let (mut head, mut named) = (None, None);
        let mut found = PreviousEnd { clean: true, fragments: Vec::new() };
        for (_, path) in files.iter().rev() {
            if head.is_some() && named.as_deref() == Some(name_of(path)) {
                break;
            }
            let end = End::of(path)?;
            if head.is_some() && end.last.is_some() {
                break;
            }
            found.fragments.extend(end.fragment);
            if let Some(last) = end.last {
                head = Some(last.head);
                found.clean = last.is_stop;
                named = last.names_fragment_of;
                if named.is_none() {
                    break;
                }
                // The server that wrote this line may have been killed before it named later fragments.
            }
        }
        found.fragments.reverse();
        found.clean &= found.fragments.is_empty();
        let number = match (files.last(), found.fragments.last()) {
            (None, _) => 1,
            // A file that ends with a fragment is not continued.
            (Some((number, path)), Some(fragment)) if fragment.file == name_of(path) => number + 1,
            (Some((number, _)), _) => *number,
        };
        let path = path_of(dir, number);
        let file = options().open(&path).map_err(io_fault(&path))?;
        let metadata = file.metadata().map_err(io_fault(&path))?;
        let mut log = Self {
            dir: dir.to_owned(),
            file_bytes,
            file,
            path,
            identity: identity(&metadata),
            number,
            len: metadata.len(),
            head: head.unwrap_or(Head::NONE),
            lines: Vec::new(),
            written: 0,
            synced: false,
            listed: false,
            _lock: lock,
        };
        log.sync()?;
        Ok((log, found))
    }

    /// Adds a line. The next [`Log::write`] writes it.
    pub(super) fn add(&mut self, record: &impl Serialize) {
        self.head.seal(record, &mut self.lines);
    }

    /// Writes the added lines. Returns whether a new file was begun. After an error, call it again: it continues where it
    /// stopped.
    pub(super) fn write(&mut self) -> Result<bool, LogFault> {
        let mut begun = false;
        while self.written < self.lines.len() {
            if self.written == 0 && (self.len >= self.file_bytes || !self.is_there()?) {
                self.begin_next()?;
                begun = true;
            }
            match self.file.write(&self.lines[self.written..]) {
                Ok(0) => return Err(io_fault(&self.path)(io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.synced = false;
                    self.written += count;
                    self.len += count as u64;
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(io_fault(&self.path)(why)),
            }
        }
        self.lines.clear();
        self.written = 0;
        Ok(begun)
    }

    /// Makes the written lines survive a loss of power.
    pub(super) fn sync(&mut self) -> Result<(), LogFault> {
        if !self.synced {
            self.file.sync_data().map_err(io_fault(&self.path))?;
            self.synced = true;
        }
        if !self.listed {
            File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(io_fault(&self.dir))?;
            self.listed = true;
        }
        Ok(())
    }

    /// Whether all written lines survive a loss of power.
    pub(super) fn is_synced(&self) -> bool {
        self.synced && self.listed
    }

    /// The head of the last line that was added.
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// The current file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is still where it was created. Lines in a file that was moved or removed would be lost.
    fn is_there(&self) -> Result<bool, LogFault> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(identity(&metadata) == self.identity),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(io_fault(&self.path)(why)),
        }
    }

    fn begin_next(&mut self) -> Result<(), LogFault> {
        self.sync()?;
        // Files that somebody put there stay as they are.
        let last = list(&self.dir)?.last().map_or(0, |(number, _)| *number);
        let number = last.max(self.number) + 1;
        let path = path_of(&self.dir, number);
        let file = options().create_new(true).open(&path).map_err(io_fault(&path))?;
        self.identity = identity(&file.metadata().map_err(io_fault(&path))?);
        (self.file, self.path, self.number, self.len) = (file, path, number, 0);
        self.listed = false;
        Ok(())
    }
}

/// Identifies a file on this machine: its device and inode.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("audit-{number:0DIGITS$}.jsonl"))
}

/// The log's files in `dir`, with their numbers, in order.
pub(super) fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>, LogFault> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_fault(dir))? {
        let path = entry.map_err(io_fault(dir))?.path();
        if let Some(number) = number_of(&path) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The number of a log's file; `None` for other files.
pub(super) fn number_of(path: &Path) -> Option<u64> {
    let digits = name_of(path).strip_prefix("audit-")?.strip_suffix(".jsonl")?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        os::{fd::OwnedFd, unix::net::UnixStream},
        thread,
    };

    use tempfile::tempdir;

    use serde_json::json;

    use super::*;

    fn log(dir: &Path) -> Log {
        Log::open(dir, 1_000_000).expect("opens").0
    }

    #[test]
    fn lines_refused_by_a_full_disk_are_written_later() {
        let dir = tempdir().expect("a directory");
        let mut log = log(dir.path());
        log.file = options().open("/dev/full").expect("the system has it");
        for n in 0..3 {
            log.add(&json!({"event": "entered", "seq": n}));
            assert!(matches!(log.write(), Err(LogFault::Io { .. })));
        }
        log.file = options().open(&log.path).expect("there is room");
        log.write().expect("written");
        let last = End::of(&log.path).expect("readable").last.expect("lines");
        assert_eq!((last.head, last.head.n), (log.head, 3));
    }

    /// A file that takes only a part of each write: no byte is missing, and none is repeated.
    #[test]
    fn a_write_continues_where_it_was_refused() {
        let dir = tempdir().expect("a directory");
        let mut log = log(dir.path());
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("nonblocking");
        log.file = File::from(OwnedFd::from(ours));
        for n in 0..10_000 {
            log.add(&json!({"event": "entered", "seq": n}));
        }
        let sealed = log.lines.clone();
        assert!(log.write().is_err() && log.written > 0, "the socket took a part");
        let reader = thread::spawn(move || {
            let mut had = Vec::new();
            theirs.read_to_end(&mut had).map(|_| had)
        });
        while log.write().is_err() {
            thread::yield_now();
        }
        drop(log);
        assert!(reader.join().expect("no panic").expect("the whole log") == sealed);
    }

    #[test]
    fn a_file_that_was_moved_is_not_written_any_more() {
        let dir = tempdir().expect("a directory");
        let mut log = log(dir.path());
        let write = |log: &mut Log| {
            log.add(&json!({"event": "entered"}));
            log.write()
        };
        assert!(!write(&mut log).expect("written"));
        let moved = dir.path().join("moved");
        fs::rename(&log.path, &moved).expect("moved");
        assert!(write(&mut log).expect("written"), "a new file is begun");
        fs::write(path_of(dir.path(), 7), "").expect("writable");
        // The first file, moved to the current file's path, is not the current file either.
        fs::rename(&moved, &log.path).expect("moved");
        assert!(write(&mut log).expect("written") && log.number == 8, "after the existing files");
        assert!(!write(&mut log).expect("written"));
        let last = |path: &Path| End::of(path).expect("readable").last.map(|last| last.head.n);
        let numbers = [2, 7, 8].map(|number| last(&path_of(dir.path(), number)));
        assert_eq!(numbers, [Some(1), None, Some(4)]);
        // Without the directory nothing can be written. The lines wait.
        fs::remove_dir_all(dir.path()).expect("gone");
        assert!(write(&mut log).is_err() && write(&mut log).is_err());
        fs::create_dir(dir.path()).expect("created again");
        log.write().expect("written");
        assert_eq!(last(&log.path), Some(6));
    }

    #[test]
    fn files_with_other_names_do_not_belong_to_the_log() {
        let number = |name: &str| number_of(Path::new(name));
        assert_eq!(number("log/audit-0000000017.jsonl"), Some(17));
        for name in ["audit-17.jsonl", "audit-+000000017.jsonl", "audit-00000000017.jsonl", "audit.lock"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
