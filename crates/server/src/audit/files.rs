//! The log's files: `audit-0000000001.jsonl` and on, each continued to its size, then the next.
//!
//! Invariants: bytes are only ever added, at the end of the last file; nothing is deleted; whoever opens the log goes on
//! with the chain where it ended, and what a crash left of a line is named by the first line that is written after it, in
//! another file. One process at a time, by a lock.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::chain::{Head, LINE_MAX, Link};

/// Digits of a file's number: more files than any log has.
const DIGITS: usize = 10;

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
    /// Where it was made, and what it is: somebody may move it.
    path: PathBuf,
    identity: (u64, u64),
    number: u64,
    /// Bytes in the file.
    len: u64,
    head: Head,
    /// Lines that are sealed, and of which `written` bytes are in the file.
    lines: Vec<u8>,
    written: usize,
    synced: bool,
    /// Whether the file's name survives a loss of power.
    listed: bool,
    /// Held for as long as the log is open.
    _lock: File,
}

/// What was found when the log was opened.
pub(super) struct Found {
    /// The log had been ended by a server that stopped, or is new.
    pub(super) clean: bool,
    /// What crashes left of lines and no line tells of, in the order of their files.
    pub(super) pieces: Vec<Piece>,
}

/// What is left of a line, at the end of a file.
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
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_fault(dir))?;
        let lock_path = dir.join("audit.lock");
        let lock = options().open(&lock_path).map_err(io_fault(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LogFault::InUse(dir.to_owned()),
            TryLockError::Error(why) => io_fault(&lock_path)(why),
        })?;
        let files = list(dir)?;
        let (mut head, mut found, mut told) = (None, Found { clean: true, pieces: Vec::new() }, None);
        for (_, path) in files.iter().rev() {
            if head.is_some() && told.as_deref() == Some(name_of(path)) {
                break;
            }
            let end = End::of(path)?;
            if head.is_some() && end.last.is_some() {
                break;
            }
            found.pieces.extend(end.piece);
            if let Some(last) = end.last {
                head = Some(last.head);
                found.clean = last.is_stop;
                told = last.tells_of;
                if told.is_none() {
                    break;
                }
                // Whoever wrote that may have been killed before it told of the pieces behind that one.
            }
        }
        found.pieces.reverse();
        found.clean &= found.pieces.is_empty();
        let number = match (files.last(), found.pieces.last()) {
            (None, _) => 1,
            // Nothing is added behind a piece of a line.
            (Some((number, path)), Some(piece)) if piece.file == name_of(path) => number + 1,
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

    /// Takes a line of these fields, to be written by the next [`Log::write`].
    pub(super) fn add(&mut self, fields: &str) {
        self.head.seal(fields, &mut self.lines);
    }

    /// Writes what was added. Where it fails, it is called again, and goes on where it was. Tells whether a file was
    /// begun.
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

    /// Has what was written survive a loss of power.
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

    /// Whether all that was written survives a loss of power.
    pub(super) fn is_synced(&self) -> bool {
        self.synced && self.listed
    }

    /// The last line.
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// The file that is written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is where it was made. What is written to one that was moved or removed, nobody finds.
    fn is_there(&self) -> Result<bool, LogFault> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(identity(&metadata) == self.identity),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(io_fault(&self.path)(why)),
        }
    }

    fn begin_next(&mut self) -> Result<(), LogFault> {
        self.sync()?;
        // A file that somebody put there stays as it is.
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

/// What tells a file from all others there are.
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
    let digits = name_of(path).strip_prefix("audit-")?.strip_suffix(".jsonl")?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The name of a file of a log; empty for what can't be one.
pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
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
    last: Option<Last>,
    /// What comes after it.
    piece: Option<Piece>,
}

/// The last line of a file that is in order.
struct Last {
    head: Head,
    /// It says that the server stopped.
    is_stop: bool,
    /// It tells of a piece at the end of this file.
    tells_of: Option<String>,
}

impl End {
    fn of(path: &Path) -> Result<Self, LogFault> {
        let fault = io_fault(path);
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(&fault)?);
        let (mut line, mut last) = (Vec::new(), None::<Link>);
        let piece = loop {
            let read = read_line(&mut reader, &mut line).map_err(&fault)?;
            if matches!(read, Read::End) {
                break None;
            }
            let link = if matches!(read, Read::Line) { Link::read(&line) } else { None };
            let follows = |link: &Link| last.as_ref().is_none_or(|last| link.follows(last.head));
            let Some(link) = link.filter(follows) else {
                // What a kill leaves has no end; what has one was damaged otherwise, and stays for `verify` to name.
                if matches!(read, Read::Line) {
                    line.push(b'\n');
                }
                let (bytes, _, hash) = read_rest(&mut reader, &line).map_err(&fault)?;
                break Some(Piece { file: name_of(path).to_owned(), bytes, hash });
            };
            last = Some(link);
        };
        let last = last.map(|Link { head, said, .. }| Last {
            head,
            is_stop: said.event == "stopped",
            tells_of: said.file.filter(|_| said.event == "cut"),
        });
        Ok(Self { last, piece })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::OwnedFd, unix::net::UnixStream},
        thread,
    };

    use tempfile::tempdir;

    use super::*;

    fn log(dir: &Path) -> Log {
        Log::open(dir, 1_000_000).expect("opens").0
    }

    #[test]
    fn what_a_full_disk_refuses_is_written_when_there_is_room() {
        let dir = tempdir().expect("a directory");
        let mut log = log(dir.path());
        log.file = options().open("/dev/full").expect("the system has it");
        for n in 0..3 {
            log.add(&format!(r#""event":"entered","seq":{n}"#));
            assert!(matches!(log.write(), Err(LogFault::Io { .. })));
        }
        log.file = options().open(&log.path).expect("there is room");
        log.write().expect("written");
        let last = End::of(&log.path).expect("readable").last.expect("lines");
        assert_eq!((last.head, last.head.n), (log.head, 3));
    }

    /// A file that takes a part of what is written, again and again: no byte is missing, and none is there twice.
    #[test]
    fn a_write_goes_on_where_it_was_refused() {
        let dir = tempdir().expect("a directory");
        let mut log = log(dir.path());
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("it can refuse");
        log.file = File::from(OwnedFd::from(ours));
        for n in 0..10_000 {
            log.add(&format!(r#""event":"entered","seq":{n}"#));
        }
        let sealed = log.lines.clone();
        assert!(log.write().is_err() && log.written > 0, "it takes a part");
        let reader = thread::spawn(move || {
            let mut had = Vec::new();
            theirs.read_to_end(&mut had).map(|_| had)
        });
        while log.write().is_err() {
            thread::yield_now();
        }
        drop(log);
        assert!(reader.join().expect("it reads").expect("all of it") == sealed);
    }

    #[test]
    fn a_file_that_is_moved_away_is_not_written_any_more() {
        let dir = tempdir().expect("a directory");
        let mut log = log(dir.path());
        let write = |log: &mut Log| {
            log.add(r#""event":"entered""#);
            log.write()
        };
        assert!(!write(&mut log).expect("written"));
        let moved = dir.path().join("moved");
        fs::rename(&log.path, &moved).expect("moved");
        assert!(write(&mut log).expect("written"), "another one is begun");
        fs::write(path_of(dir.path(), 7), "").expect("writable");
        // Another file in its place is not its own either.
        fs::rename(&moved, &log.path).expect("moved");
        assert!(write(&mut log).expect("written") && log.number == 8, "behind what is there");
        assert!(!write(&mut log).expect("written"));
        let last = |path: &Path| End::of(path).expect("readable").last.map(|last| last.head.n);
        let numbers = [2, 7, 8].map(|number| last(&path_of(dir.path(), number)));
        assert_eq!(numbers, [Some(1), None, Some(4)]);
        // Without the directory there is nowhere to write; what was to be written waits.
        fs::remove_dir_all(dir.path()).expect("gone");
        assert!(write(&mut log).is_err() && write(&mut log).is_err());
        fs::create_dir(dir.path()).expect("it is back");
        log.write().expect("written");
        assert_eq!(last(&log.path), Some(6));
    }

    #[test]
    fn files_of_other_names_are_none_of_the_log() {
        let number = |name: &str| number_of(Path::new(name));
        assert_eq!(number("log/audit-0000000017.jsonl"), Some(17));
        for name in ["audit-17.jsonl", "audit-+000000017.jsonl", "audit-00000000017.jsonl", "audit.lock"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
