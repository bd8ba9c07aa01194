//! The log's files: `audit-0000000001.jsonl` and on, each continued to its size, then the next.
//!
//! Invariants: bytes are only ever added, at the end of the last file; nothing is deleted; whoever opens the log goes on
//! with the chain where it ended, and what a crash left of a line is named by the first line of the next file. One process
//! at a time, by a lock.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::chain::{Head, LINE_MAX, Link};

/// Why the log can't be written.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// Another process has it.
    #[error("{}: another process writes this audit log; give each server a directory of its own", .0.display())]
    InUse(PathBuf),
    /// The system says so.
    #[error("{}: {why}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it says.
        why: io::Error,
    },
}

pub(super) fn io_fault(path: &Path) -> impl Fn(io::Error) -> LogFault + '_ {
    |why| LogFault::Io { path: path.to_owned(), why }
}

/// The log, open to be written.
pub(super) struct Log {
    dir: PathBuf,
    /// Bytes after which the next file is begun.
    file_bytes: u64,
    file: File,
    path: PathBuf,
    number: u64,
    /// Bytes in the file.
    len: u64,
    head: Head,
    /// Lines that are sealed, and of which `written` bytes are in the file.
    lines: Vec<u8>,
    written: usize,
    synced: bool,
    /// Held for as long as the log is open.
    _lock: File,
}

/// What was found when the log was opened.
pub(super) struct Found {
    /// The log had been ended by a server that stopped, or is new.
    pub(super) clean: bool,
    /// What is left of a line at the end of the last file.
    pub(super) piece: Option<Piece>,
}

/// What is left of a line.
pub(super) struct Piece {
    /// The name of its file.
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) hash: blake3::Hash,
}

impl Log {
    /// Opens the log in `dir`, or begins one there.
    ///
    /// # Errors
    /// A [`LogFault`]; nothing was changed but that the directory is there.
    pub(super) fn open(dir: &Path, file_bytes: u64) -> Result<(Self, Found), LogFault> {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_fault(dir))?;
        let lock_path = dir.join("audit.lock");
        let lock = options().open(&lock_path).map_err(io_fault(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LogFault::InUse(dir.to_owned()),
            TryLockError::Error(why) => io_fault(&lock_path)(why),
        })?;
        let files = list(dir)?;
        let mut found = Found { clean: true, piece: None };
        let mut head = Head::NONE;
        for (at, (_, path)) in files.iter().enumerate().rev() {
            let end = End::of(path)?;
            if at + 1 == files.len() {
                found.piece = end.piece;
            }
            if let Some((last, is_stop)) = end.last {
                head = last;
                found.clean = is_stop && found.piece.is_none();
                break;
            }
        }
        let number = match files.last() {
            None => 1,
            // Nothing is added behind a piece of a line.
            Some((number, _)) => number + u64::from(found.piece.is_some()),
        };
        let path = path_of(dir, number);
        let file = options().open(&path).map_err(io_fault(&path))?;
        let len = file.metadata().map_err(io_fault(&path))?.len();
        let (lines, written, synced) = (Vec::new(), 0, true);
        let dir = dir.to_owned();
        let log =
            Self { dir, file_bytes, file, path, number, len, head, lines, written, synced, _lock: lock };
        log.sync_dir()?;
        Ok((log, found))
    }

    /// Takes a line of these fields, to be written by the next [`Log::write`].
    pub(super) fn add(&mut self, fields: &str) {
        self.head.seal(fields, &mut self.lines);
    }

    /// Writes what was added. Where it fails, it is called again, and goes on where it was. Tells whether a file was
    /// begun.
    pub(super) fn write(&mut self) -> Result<bool, LogFault> {
        let mut begun = false;
        while self.written < self.lines.len() {
            if self.written == 0 && self.len >= self.file_bytes {
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

    /// Has what was written survive a loss of power.
    pub(super) fn sync(&mut self) -> Result<(), LogFault> {
        if !self.synced {
            self.file.sync_data().map_err(io_fault(&self.path))?;
            self.synced = true;
        }
        Ok(())
    }

    /// Opens the file anew, to go on in it.
    #[cfg(test)]
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = options().open(&self.path)?;
        Ok(())
    }

    /// Whether all that was written survives a loss of power.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// The last line.
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// The file that is written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn begin_next(&mut self) -> Result<(), LogFault> {
        self.sync()?;
        let path = path_of(&self.dir, self.number + 1);
        let file = options().create_new(true).open(&path).map_err(io_fault(&path))?;
        (self.file, self.path, self.number, self.len) = (file, path, self.number + 1, 0);
        self.sync_dir()
    }

    fn sync_dir(&self) -> Result<(), LogFault> {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(io_fault(&self.dir))
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("audit-{number:010}.jsonl"))
}

/// The files of the log in `dir`, in the order of their numbers.
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

/// The number of a file of a log; none for another file.
pub(super) fn number_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok()
}

/// A line of a file, or what is there in place of one.
pub(super) enum Read {
    /// A line, without its newline.
    Line,
    /// The file's last bytes, without a newline at their end, in full; or more bytes than a line has.
    Piece,
    /// No more.
    End,
}

/// Reads the next line into `line`, and not more than a line has.
pub(super) fn read_line(reader: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<Read> {
    line.clear();
    let count = reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', line)?;
    Ok(match line.pop_if(|last| *last == b'\n') {
        Some(_) => Read::Line,
        None if count == 0 => Read::End,
        None => Read::Piece,
    })
}

/// Reads the rest of a file behind the `piece` that was read of it: how many bytes that are in all, whether there is a
/// newline among them, and their hash.
pub(super) fn read_rest(reader: &mut BufReader<File>, piece: &[u8]) -> io::Result<(u64, bool, blake3::Hash)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(piece);
    let (mut bytes, mut has_newline) = (piece.len() as u64, piece.contains(&b'\n'));
    loop {
        let more = reader.fill_buf()?;
        if more.is_empty() {
            return Ok((bytes, has_newline, hasher.finalize()));
        }
        hasher.update(more);
        has_newline |= more.contains(&b'\n');
        let count = more.len();
        bytes += count as u64;
        reader.consume(count);
    }
}

/// How a file ends.
struct End {
    /// The last line that is in order, and whether it says that the server stopped.
    last: Option<(Head, bool)>,
    /// What comes after it.
    piece: Option<Piece>,
}

impl End {
    fn of(path: &Path) -> Result<Self, LogFault> {
        let fault = io_fault(path);
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(&fault)?);
        let (mut line, mut last) = (Vec::new(), None);
        loop {
            let read = read_line(&mut reader, &mut line).map_err(&fault)?;
            if matches!(read, Read::End) {
                return Ok(Self { last, piece: None });
            }
            let link = if matches!(read, Read::Line) { Link::read(&line) } else { None };
            let Some(link) = link.filter(|link| last.is_none_or(|(head, _)| link.follows(head))) else {
                // What a kill leaves has no end; what has one was damaged otherwise, and stays for `verify` to name.
                if matches!(read, Read::Line) {
                    line.push(b'\n');
                }
                let (bytes, _, hash) = read_rest(&mut reader, &line).map_err(&fault)?;
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                return Ok(Self { last, piece: Some(Piece { file, bytes, hash }) });
            };
            last = Some((link.head, link.said.event == "stopped"));
        }
    }
}
