//! `weir audit verify`: whether a log is as it was written.
//!
//! Invariant: of a log that was changed, the first line that does not fit is named; one that is as it was written
//! passes, also where a crash cut a line short and the log says so. Whether the end was taken away shows only against a
//! head that was kept elsewhere.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{
    chain::{Head, Link, Said},
    files::{LogFault, Read, io_fault, list, name_of, number_of, read_line, read_rest},
};

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line's content was changed.
    Edited,
    /// Lines were taken away, put in or moved.
    Gap,
    /// A whole file is gone.
    MissingFile,
    /// The end is gone.
    CutTail,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Gap => "gap",
            Self::MissingFile => "missing file",
            Self::CutTail => "cut tail",
        }
    }
}

/// Where a log stops being as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which file.
    pub file: PathBuf,
    /// Which line of it, from 1.
    pub line: u64,
    /// What is wrong.
    pub kind: Kind,
    why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file.display(), self.line, self.kind.as_str(), self.why)
    }
}

/// What `verify` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The first fault; none in a log that is as it was written.
    pub fault: Option<Fault>,
    /// What an auditor should know, fault or not.
    pub notes: Vec<String>,
    files: usize,
    first: u64,
    /// The last line that is in order.
    pub head: Head,
}

/// One line a note, and one that says how it is.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        match &self.fault {
            Some(fault) => writeln!(f, "{fault}"),
            None if self.head == Head::NONE => writeln!(f, "ok: {} files, no lines", self.files),
            None => {
                writeln!(
                    f,
                    "ok: {} files, lines {} to {}, head {}",
                    self.files, self.first, self.head.n, self.head
                )
            }
        }
    }
}

/// Holds the log in `paths` (files in their order, or directories) against its chain, and against a head that was kept.
///
/// # Errors
/// A [`LogFault`] for what can't be read. A directory without a log is one.
pub fn verify(paths: &[PathBuf], kept: Option<Head>) -> Result<Report, LogFault> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let listed = list(path)?;
            if listed.is_empty() {
                return Err(io_fault(path)(std::io::Error::other("there is no audit log here")));
            }
            files.extend(listed.into_iter().map(|(_, path)| path));
        } else {
            files.push(path.clone());
        }
    }
    let mut walk = Walk {
        kept,
        head: None,
        first: 0,
        pieces: VecDeque::new(),
        begins: true,
        is_stopped: false,
        notes: Vec::new(),
    };
    let mut fault = None;
    for (at, file) in files.iter().enumerate() {
        fault = walk.file(file, at.checked_sub(1).map(|before| files[before].as_path()))?;
        if fault.is_some() {
            break;
        }
    }
    let fault = fault.or_else(|| walk.end(files.last().map_or(Path::new(""), PathBuf::as_path)));
    let head = walk.head.map_or(Head::NONE, |(head, _)| head);
    Ok(Report { fault, notes: walk.notes, files: files.len(), first: walk.first, head })
}

/// Bytes at the end of a file that are no line.
struct Piece {
    file: PathBuf,
    line: u64,
    bytes: u64,
    hash: blake3::Hash,
}

impl Piece {
    /// Whether a line tells of a piece in this file.
    fn is_named_by(&self, said: &Said) -> bool {
        said.event == "cut" && said.file.as_deref() == Some(name_of(&self.file))
    }
}

struct Walk {
    kept: Option<Head>,
    /// The last line, and where in its file it stands.
    head: Option<(Head, u64)>,
    first: u64,
    /// Those that no line has told of yet.
    pieces: VecDeque<Piece>,
    /// Nothing came yet but lines that tell of pieces; they may be in files before the first one.
    begins: bool,
    is_stopped: bool,
    notes: Vec<String>,
}

impl Walk {
    /// Goes over one file, that comes after `before`.
    fn file(&mut self, path: &Path, before: Option<&Path>) -> Result<Option<Fault>, LogFault> {
        let is_next =
            before.is_some_and(|before| number_of(path) == number_of(before).map(|number| number + 1));
        let io = io_fault(path);
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(&io)?);
        let mut bytes = Vec::new();
        for line in 1.. {
            let fault = |kind, why: String| Some(Fault { file: path.to_owned(), line, kind, why });
            match read_line(&mut reader, &mut bytes).map_err(&io)? {
                Read::End => break,
                Read::Line => {}
                Read::Piece => {
                    let (count, has_newline, hash) = read_rest(&mut reader, &bytes).map_err(&io)?;
                    if has_newline {
                        return Ok(fault(Kind::Edited, "it is longer than any line".to_owned()));
                    }
                    self.pieces.push_back(Piece { file: path.to_owned(), line, bytes: count, hash });
                    break;
                }
            }
            let Some(link) = Link::read(&bytes) else {
                let why = "its hash is not that of its content".to_owned();
                return Ok(fault(Kind::Edited, why));
            };
            if let Some(fault) = self.cut(&link) {
                return Ok(Some(fault));
            }
            if let Some((kind, why)) = self.link(&link, line == 1 && !is_next) {
                return Ok(fault(kind, why));
            }
            self.begins &= link.said.event == "cut";
            if self.pieces.front().is_some_and(|piece| piece.is_named_by(&link.said)) {
                self.pieces.pop_front();
            } else if link.said.event == "cut" && !self.begins {
                let why = "it tells of a piece of a line that is not there any more".to_owned();
                return Ok(fault(Kind::Gap, why));
            }
            self.head = Some((link.head, line));
            self.note(path, line, &link);
        }
        Ok(None)
    }

    /// What is wrong with the first piece of a line before this one, which has to tell of it, or of one in a file that is
    /// not here.
    fn cut(&self, link: &Link) -> Option<Fault> {
        let piece = self.pieces.front()?;
        let said = &link.said;
        let is_named = piece.is_named_by(said);
        let told = said.bytes == Some(piece.bytes) && said.piece.as_deref() == Some(&*piece.hash.to_hex());
        if (is_named && told) || (!is_named && said.event == "cut" && self.begins) {
            return None;
        }
        let why = "it ends in the middle of a line, and the next file does not say so".to_owned();
        Some(Fault { file: piece.file.clone(), line: piece.line, kind: Kind::CutTail, why })
    }

    /// What is wrong with a line where it stands.
    fn link(&mut self, link: &Link, file_is_missing: bool) -> Option<(Kind, String)> {
        let n = link.head.n;
        match self.head {
            None => {
                self.first = n;
                if n > 1 {
                    self.notes
                        .push(format!("begins with line {n}: the files with those before are not here"));
                } else if !link.follows(Head::NONE) {
                    return Some((Kind::Edited, "it is the first line, and tells of one before".to_owned()));
                }
            }
            Some((head, _)) if n > head.n + 1 => {
                let kind = if file_is_missing { Kind::MissingFile } else { Kind::Gap };
                return Some((kind, format!("lines {} to {} are missing before it", head.n + 1, n - 1)));
            }
            Some((head, _)) if n <= head.n => {
                return Some((Kind::Gap, format!("it is line {n}, and stands behind line {}", head.n)));
            }
            Some((head, _)) if link.prev != head.hash => {
                let why = format!("line {} is not the one that was there when it was written", head.n);
                return Some((Kind::Edited, why));
            }
            Some(_) => {}
        }
        let other = self.kept.filter(|kept| kept.n == n && *kept != link.head);
        other.map(|_| (Kind::Edited, format!("line {n} had another hash when its head was kept")))
    }

    fn note(&mut self, path: &Path, line: u64, link: &Link) {
        let at = format!("{}:{line}", path.display());
        let said = &link.said;
        match said.event.as_str() {
            "missing" => {
                let count = said.count.unwrap_or_default();
                self.notes.push(format!(
                    "{at}: {count} events before this line are missing, and were never written"
                ));
            }
            "cut" => {
                let (bytes, file) =
                    (said.bytes.unwrap_or_default(), said.file.as_deref().unwrap_or_default());
                self.notes.push(format!("{at}: a crash left {bytes} bytes of a line at the end of {file}"));
            }
            "started" if said.clean == Some(false) => {
                self.notes.push(format!(
                    "{at}: the server before did not stop in order; what it had not written is missing"
                ));
            }
            _ => {}
        }
        self.is_stopped = said.event == "stopped";
    }

    /// What is wrong with the end.
    fn end(&mut self, last_file: &Path) -> Option<Fault> {
        if let Some(Piece { file, line, .. }) = self.pieces.pop_front() {
            let why =
                "it ends in the middle of a line (if a server is writing it now: verify again)".to_owned();
            return Some(Fault { file, line, kind: Kind::CutTail, why });
        }
        let (head, line) = self.head.unwrap_or((Head::NONE, 0));
        let file = last_file.to_owned();
        match self.kept {
            Some(kept) if kept.n > head.n => {
                let why = format!(
                    "it ends with line {}, and line {} was there when its head was kept",
                    head.n, kept.n
                );
                return Some(Fault { file, line, kind: Kind::CutTail, why });
            }
            Some(kept) if kept.n < self.first => {
                let why = format!("line {}, whose head was kept, is not here", kept.n);
                return Some(Fault { file, line, kind: Kind::MissingFile, why });
            }
            _ => {}
        }
        if !self.is_stopped {
            self.notes.push(
                "the last line does not say that the server stopped: it runs, or was killed, or the end was taken away; \
                 hold it against a head from the server's log (--head)"
                    .to_owned(),
            );
        }
        None
    }
}
