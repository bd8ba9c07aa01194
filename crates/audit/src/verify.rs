//! `weir audit verify`: checks whether a log is unchanged.
//!
//! Invariants: if a log was changed, the report names the first line that does not fit. An unchanged log passes, even if a
//! crash cut a line short and the log records that. Only a head from elsewhere can show that the last lines were removed.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{
    chain::{Fields, Head, SealedLine},
    fault::{LogFault, io_fault},
    files::{list, number_of},
    reader::{Read, name_of, read_line, read_rest},
};

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line's content was changed.
    Edited,
    /// Lines were removed, inserted or moved.
    Gap,
    /// A whole file is missing.
    MissingFile,
    /// The last lines are missing.
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

/// The first place where a log does not fit its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The line in that file, from 1.
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

/// The result of [`verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The first fault; `None` if the log is unchanged.
    pub fault: Option<Fault>,
    /// Further facts for an auditor, with or without a fault.
    pub notes: Vec<String>,
    files: usize,
    first: u64,
    /// The last line that fits the chain.
    pub head: Head,
}

/// One line per note, and a line with the result.
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

/// Checks the log in `paths` (files in order, or directories) against its chain, and against a head from elsewhere.
///
/// # Errors
/// A [`LogFault`] if something cannot be read, or a directory contains no log.
pub fn verify(paths: &[PathBuf], known: Option<Head>) -> Result<Report, LogFault> {
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
        known,
        has_first_file: files.first().is_some_and(|file| number_of(file) == Some(1)),
        head: None,
        first: 0,
        fragments: VecDeque::new(),
        is_beginning: true,
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

/// Bytes at the end of a file that are not a line.
struct Fragment {
    file: PathBuf,
    line: u64,
    bytes: u64,
    hash: blake3::Hash,
}

impl Fragment {
    /// Whether a line names a fragment in this file.
    fn is_named_by(&self, fields: &Fields) -> bool {
        fields.event == "cut" && fields.file.as_deref() == Some(name_of(&self.file))
    }
}

struct Walk {
    /// The head from elsewhere.
    known: Option<Head>,
    /// The log's first file is here, so its first line must be, too.
    has_first_file: bool,
    /// The last line, and its number in its file.
    head: Option<(Head, u64)>,
    first: u64,
    /// The fragments that no line has named yet.
    fragments: VecDeque<Fragment>,
    /// All lines so far were `cut` lines. Their fragments may be in files before the first one.
    is_beginning: bool,
    is_stopped: bool,
    notes: Vec<String>,
}

impl Walk {
    /// Checks one file, which comes after `before`.
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
                Read::Fragment => {
                    let (count, has_newline, hash) = read_rest(&mut reader, &bytes).map_err(&io)?;
                    if has_newline {
                        return Ok(fault(Kind::Edited, "it is longer than any line of a log".to_owned()));
                    }
                    self.fragments.push_back(Fragment { file: path.to_owned(), line, bytes: count, hash });
                    break;
                }
            }
            let Some(sealed) = SealedLine::read(&bytes) else {
                let why = "its hash does not fit its content".to_owned();
                return Ok(fault(Kind::Edited, why));
            };
            if let Some(fault) = self.unnamed_fragment(&sealed) {
                return Ok(Some(fault));
            }
            if let Some((kind, why)) = self.misplaced(&sealed, line == 1 && !is_next) {
                return Ok(fault(kind, why));
            }
            self.is_beginning &= sealed.fields.event == "cut";
            if self.fragments.front().is_some_and(|fragment| fragment.is_named_by(&sealed.fields)) {
                self.fragments.pop_front();
            } else if sealed.fields.event == "cut" && !self.is_beginning {
                let why = "it names a fragment of a line that is not there any more".to_owned();
                return Ok(fault(Kind::Gap, why));
            }
            self.head = Some((sealed.head, line));
            self.note(path, line, &sealed);
        }
        Ok(None)
    }

    /// The fault of the first unnamed fragment, if there is one and this line does not name it. At the beginning, a `cut`
    /// line may also name a fragment in a file that is not here.
    fn unnamed_fragment(&self, sealed: &SealedLine) -> Option<Fault> {
        let fragment = self.fragments.front()?;
        let fields = &sealed.fields;
        let is_named = fragment.is_named_by(fields);
        let fits =
            fields.bytes == Some(fragment.bytes) && fields.piece.as_deref() == Some(&*fragment.hash.to_hex());
        if (is_named && fits) || (!is_named && fields.event == "cut" && self.is_beginning) {
            return None;
        }
        let why = "it ends in the middle of a line, and the next file does not record that".to_owned();
        Some(Fault { file: fragment.file.clone(), line: fragment.line, kind: Kind::CutTail, why })
    }

    /// What is wrong with a line at this position.
    fn misplaced(&mut self, sealed: &SealedLine, file_is_missing: bool) -> Option<(Kind, String)> {
        let n = sealed.head.n;
        match self.head {
            None => {
                self.first = n;
                if n > 1 && self.has_first_file {
                    return Some((Kind::Gap, format!("lines 1 to {} are missing before it", n - 1)));
                }
                if n > 1 {
                    self.notes.push(format!(
                        "begins with line {n}: the files with earlier lines are not here; only together with them can it be \
                         seen whether lines were removed before line {n}"
                    ));
                } else if !sealed.follows(Head::NONE) {
                    return Some((
                        Kind::Edited,
                        "it is the first line, but names a line before it".to_owned(),
                    ));
                }
            }
            Some((head, _)) if n > head.n + 1 => {
                let kind = if file_is_missing { Kind::MissingFile } else { Kind::Gap };
                return Some((kind, format!("lines {} to {} are missing before it", head.n + 1, n - 1)));
            }
            Some((head, _)) if n <= head.n => {
                return Some((Kind::Gap, format!("it is line {n}, but comes after line {}", head.n)));
            }
            Some((head, _)) if sealed.prev != head.hash => {
                let why = format!("line {} has changed since this line was written", head.n);
                return Some((Kind::Edited, why));
            }
            Some(_) => {}
        }
        let other = self.known.filter(|known| known.n == n && *known != sealed.head);
        other.map(|_| (Kind::Edited, format!("line {n} had another hash when its head was logged")))
    }

    fn note(&mut self, path: &Path, line: u64, sealed: &SealedLine) {
        let at = format!("{}:{line}", path.display());
        let fields = &sealed.fields;
        match fields.event.as_str() {
            "missing" => {
                let count = fields.count.unwrap_or_default();
                self.notes.push(format!(
                    "{at}: {count} events before this line are missing; they were never written"
                ));
            }
            "cut" => {
                let (bytes, file) =
                    (fields.bytes.unwrap_or_default(), fields.file.as_deref().unwrap_or_default());
                self.notes.push(format!("{at}: a crash left {bytes} bytes of a line at the end of {file}"));
            }
            "started" if fields.clean == Some(false) => {
                self.notes.push(format!(
                    "{at}: the server before did not stop in order; events that it had not written are missing"
                ));
            }
            _ => {}
        }
        self.is_stopped = fields.event == "stopped";
    }

    /// What is wrong with the log's end.
    fn end(&mut self, last_file: &Path) -> Option<Fault> {
        if let Some(Fragment { file, line, .. }) = self.fragments.pop_front() {
            let why = "it ends in the middle of a line (if a server writes it now, verify again)".to_owned();
            return Some(Fault { file, line, kind: Kind::CutTail, why });
        }
        let (head, line) = self.head.unwrap_or((Head::NONE, 0));
        let file = last_file.to_owned();
        match self.known {
            Some(known) if known.n > head.n => {
                let why = format!(
                    "it ends with line {}, but line {} existed when its head was logged",
                    head.n, known.n
                );
                return Some(Fault { file, line, kind: Kind::CutTail, why });
            }
            Some(known) if known.n < self.first => {
                let why = format!("line {}, whose head was given, is not here", known.n);
                return Some(Fault { file, line, kind: Kind::MissingFile, why });
            }
            _ => {}
        }
        if !self.is_stopped {
            self.notes.push(
                "the last line does not say that the server stopped: it runs, it was killed, or the end was removed; compare \
                 with a head from the server's log (--head)"
                    .to_owned(),
            );
        }
        None
    }
}
