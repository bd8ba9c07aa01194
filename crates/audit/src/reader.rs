//! Reads a log's files line by line.
//!
//! Invariant: memory stays bounded, whatever a file contains.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
};

use super::{
    chain::{Head, LINE_MAX, SealedLine},
    fault::{LogFault, io_fault},
};

/// The next part of a file.
pub(super) enum Read {
    /// A line, without its newline.
    Line,
    /// The file's last bytes without a newline; or the first bytes of something longer than any line.
    Fragment,
    /// The end of the file.
    End,
}

/// Reads the next line into `line`, at most [`LINE_MAX`] bytes.
pub(super) fn read_line(reader: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<Read> {
    line.clear();
    let count = reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', line)?;
    Ok(match line.pop_if(|last| *last == b'\n') {
        Some(_) => Read::Line,
        None if count == 0 => Read::End,
        None => Read::Fragment,
    })
}

/// Reads the rest of a file after `fragment`. Returns the length of both together, whether they contain a newline, and
/// their hash.
pub(super) fn read_rest(
    reader: &mut BufReader<File>,
    fragment: &[u8],
) -> io::Result<(u64, bool, blake3::Hash)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(fragment);
    let (mut bytes, mut has_newline) = (fragment.len() as u64, fragment.contains(&b'\n'));
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

/// The beginning of a line, at the end of a file.
pub(super) struct Fragment {
    /// The name of the file.
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) hash: blake3::Hash,
}

/// How a file ends.
pub(super) struct End {
    pub(super) last: Option<Last>,
    /// The bytes after the last line.
    pub(super) fragment: Option<Fragment>,
}

/// The last line of a file that fits the chain.
pub(super) struct Last {
    pub(super) head: Head,
    /// Whether the line says that the server stopped.
    pub(super) is_stop: bool,
    /// If it is a `cut` line: the file whose fragment it names.
    pub(super) names_fragment_of: Option<String>,
}

impl End {
    /// Reads a file to its end.
    ///
    /// # Errors
    /// [`LogFault::Io`].
    pub(super) fn of(path: &Path) -> Result<Self, LogFault> {
        let fault = io_fault(path);
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(&fault)?);
        let (mut line, mut last) = (Vec::new(), None::<SealedLine>);
        let fragment = loop {
            let read = read_line(&mut reader, &mut line).map_err(&fault)?;
            if matches!(read, Read::End) {
                break None;
            }
            let sealed = if matches!(read, Read::Line) { SealedLine::read(&line) } else { None };
            let follows = |line: &SealedLine| last.as_ref().is_none_or(|last| line.follows(last.head));
            let Some(sealed) = sealed.filter(follows) else {
                // A fragment left by a kill has no newline. A line with a newline was damaged in another way; it stays, and
                // `verify` names it.
                if matches!(read, Read::Line) {
                    line.push(b'\n');
                }
                let (bytes, _, hash) = read_rest(&mut reader, &line).map_err(&fault)?;
                break Some(Fragment { file: name_of(path).to_owned(), bytes, hash });
            };
            last = Some(sealed);
        };
        let last = last.map(|SealedLine { head, fields, .. }| Last {
            head,
            is_stop: fields.event == "stopped",
            names_fragment_of: fields.file.filter(|_| fields.event == "cut"),
        });
        Ok(Self { last, fragment })
    }
}

/// The name of a file; empty if it is not UTF-8.
pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}
