//! The chain of hashes: each line carries the hash of the line before, and its own.
//!
//! A line is `{"n":17,…,"prev":"<hash of line 16>","hash":"<hash of the text before `,"hash"`>"}`; hashes are BLAKE3 in
//! hex. Invariant: if a line is changed, or lines are removed, inserted or moved, then a hash does not fit. Only the
//! removal of the last lines needs a head from elsewhere to be seen.

use std::{fmt, str::FromStr};

use blake3::Hash;
use serde::{Deserialize, Serialize};

/// The longest line, in bytes, including its newline. The longest record is a change of a zone with two notices of
/// 16 KB each.
pub(super) const LINE_MAX: usize = 65_536;

/// The text around a line's hash.
const BEFORE_HASH: &[u8] = br#","hash":""#;
const AFTER_HASH: &[u8] = br#""}"#;
const HEX: usize = 64;

/// The number and the hash of a chain's last line, or of the last line that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The line's number, from 1; 0 if there are no lines.
    pub n: u64,
    /// The line's hash.
    pub hash: Hash,
}

/// The hashed part of a line, with the closing brace.
#[derive(Serialize)]
struct Line<'a, R> {
    n: u64,
    #[serde(flatten)]
    record: &'a R,
    prev: &'a str,
}

impl Head {
    /// The head of an empty chain.
    pub const NONE: Self = Self { n: 0, hash: Hash::from_bytes([0; 32]) };

    /// Appends the next line to `out` and becomes its head. `record` must serialize as a JSON object.
    pub(super) fn seal(&mut self, record: &impl Serialize, out: &mut Vec<u8>) {
        self.n += 1;
        let from = out.len();
        let line = Line { n: self.n, record, prev: &self.hash.to_hex() };
        serde_json::to_writer(&mut *out, &line).expect("records are JSON objects, and memory takes all");
        out.pop(); // The brace follows the hash.
        self.hash = blake3::hash(&out[from..]);
        out.extend_from_slice(BEFORE_HASH);
        out.extend_from_slice(self.hash.to_hex().as_bytes());
        out.extend_from_slice(AFTER_HASH);
        out.push(b'\n');
        debug_assert!(out.len() - from <= LINE_MAX, "a line of {} bytes", out.len() - from);
    }
}

/// The form in which heads are logged, and which `weir audit verify --head` takes.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.n, self.hash.to_hex())
    }
}

impl FromStr for Head {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read =
            |(n, hash): (&str, &str)| Some(Self { n: n.parse().ok()?, hash: Hash::from_hex(hash).ok()? });
        text.split_once(':')
            .and_then(read)
            .ok_or("write it as it was logged: a number, a colon, 64 hex digits")
    }
}

/// A line whose hash fits its content.
#[derive(Debug)]
pub(super) struct SealedLine {
    pub(super) head: Head,
    pub(super) prev: Hash,
    pub(super) fields: Fields,
}

/// The fields of a line that matter to the chain.
#[derive(Debug, Deserialize)]
pub(super) struct Fields {
    n: u64,
    prev: String,
    pub(super) event: String,
    /// In a `missing` line: the number of missing events.
    pub(super) count: Option<u64>,
    /// In a `cut` line: the file that ends in the middle of a line, the length of that fragment, and its hash.
    pub(super) file: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) piece: Option<String>,
    /// In a `started` line: whether the server before had stopped in order.
    pub(super) clean: Option<bool>,
}

impl SealedLine {
    /// Reads a line without its newline. `None` if its hash does not fit, or it is not a line of a log.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let rest = line.strip_suffix(AFTER_HASH)?;
        let (rest, hex) = rest.split_at_checked(rest.len().checked_sub(HEX)?)?;
        let body = rest.strip_suffix(BEFORE_HASH)?;
        let hash = blake3::hash(body);
        if hash.to_hex().as_bytes() != hex {
            return None;
        }
        let fields: Fields = serde_json::from_slice(&[body, b"}"].concat()).ok()?;
        Some(Self { head: Head { n: fields.n, hash }, prev: Hash::from_hex(&fields.prev).ok()?, fields })
    }

    /// Whether this is the line after `head`.
    pub(super) fn follows(&self, head: Head) -> bool {
        self.head.n == head.n + 1 && self.prev == head.hash
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sealed_line_can_be_read_and_no_byte_of_it_can_be_changed() {
        let (mut head, mut out) = (Head::NONE, Vec::new());
        head.seal(&json!({"event": "a"}), &mut out);
        let first = out.split_off(0);
        let one = head;
        head.seal(&json!({"event": "missing", "count": 3}), &mut out);
        let read = |line: &[u8]| SealedLine::read(line.strip_suffix(b"\n").expect("a line"));
        let (a, b) = (read(&first).expect("sealed"), read(&out).expect("sealed"));
        assert!(a.follows(Head::NONE) && b.follows(one) && !b.follows(Head::NONE) && !a.follows(one));
        assert_eq!((b.head, b.fields.count), (head, Some(3)));
        assert_eq!(head.to_string().parse(), Ok(head));
        for at in 0..out.len() - 1 {
            for to in [b'0', b'x', b'"', 0] {
                let mut changed = out.clone();
                changed[at] = if changed[at] == to { b'1' } else { to };
                assert!(read(&changed).is_none(), "{}", String::from_utf8_lossy(&changed));
            }
        }
        assert!(SealedLine::read(b"").is_none() && SealedLine::read(&[b'x'; 80]).is_none());
    }
}
