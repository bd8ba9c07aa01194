//! The chain: a line carries the hash of the line before it, and ends with its own.
//!
//! `{"n":17,…,"prev":"<hash of line 16>","hash":"<hash of all that stands before `,"hash"`>"}`, BLAKE3, in hex. Invariant: a
//! line that was sealed can't be changed, nor the lines around it taken away, put in, or moved, without a hash that does
//! not fit, up to the last line.

use std::{fmt, str::FromStr};

use blake3::Hash;
use serde::Deserialize;

/// The longest line, in bytes, its newline included; those that are written have less than a quarter.
pub(super) const LINE_MAX: usize = 4_096;

/// What a line ends with, around its hash.
const BEFORE_HASH: &[u8] = br#","hash":""#;
const AFTER_HASH: &[u8] = br#""}"#;
const HEX: usize = 64;

/// The last line of a chain, or any line as the last one that is known: its number and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Lines are numbered from 1; 0 is the head of a chain that has none.
    pub n: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Head {
    /// Where a chain begins.
    pub const NONE: Self = Self { n: 0, hash: Hash::from_bytes([0; 32]) };

    /// Appends a line to `out` that has these fields, and is the head from now on. `fields` is the inside of a JSON
    /// object, not empty.
    pub(super) fn seal(&mut self, fields: &str, out: &mut Vec<u8>) {
        self.n += 1;
        let from = out.len();
        out.extend_from_slice(
            format!(r#"{{"n":{},{fields},"prev":"{}""#, self.n, self.hash.to_hex()).as_bytes(),
        );
        self.hash = blake3::hash(&out[from..]);
        out.extend_from_slice(BEFORE_HASH);
        out.extend_from_slice(self.hash.to_hex().as_bytes());
        out.extend_from_slice(AFTER_HASH);
        out.push(b'\n');
        debug_assert!(out.len() - from <= LINE_MAX, "a line of {} bytes", out.len() - from);
    }
}

/// As it is logged, and as `weir audit verify --head` takes it.
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

/// A line whose hash is that of its content.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) head: Head,
    pub(super) prev: Hash,
    pub(super) said: Said,
}

/// What of a line's fields matters to the chain.
#[derive(Debug, Deserialize)]
pub(super) struct Said {
    n: u64,
    prev: String,
    pub(super) event: String,
    /// Of `missing`: how many events.
    pub(super) count: Option<u64>,
    /// Of `cut`: which file ends in the middle of a line, how long that piece is, and its hash.
    pub(super) file: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) piece: Option<String>,
    /// Of `started`: whether the log was ended when the server stopped before.
    pub(super) clean: Option<bool>,
}

impl Link {
    /// Reads a line without its newline; none where it is not one that was sealed.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let rest = line.strip_suffix(AFTER_HASH)?;
        let (rest, hex) = rest.split_at_checked(rest.len().checked_sub(HEX)?)?;
        let body = rest.strip_suffix(BEFORE_HASH)?;
        let hash = blake3::hash(body);
        if hash.to_hex().as_bytes() != hex {
            return None;
        }
        let said: Said = serde_json::from_slice(&[body, b"}"].concat()).ok()?;
        Some(Self { head: Head { n: said.n, hash }, prev: Hash::from_hex(&said.prev).ok()?, said })
    }

    /// Whether it is the line after `head`.
    pub(super) fn follows(&self, head: Head) -> bool {
        self.head.n == head.n + 1 && self.prev == head.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_sealed_and_no_byte_of_it_may_change() {
        let (mut head, mut out) = (Head::NONE, Vec::new());
        head.seal(r#""event":"a""#, &mut out);
        let first = out.split_off(0);
        let one = head;
        head.seal(r#""event":"missing","count":3"#, &mut out);
        let read = |line: &[u8]| Link::read(line.strip_suffix(b"\n").expect("a line"));
        let (a, b) = (read(&first).expect("sealed"), read(&out).expect("sealed"));
        assert!(a.follows(Head::NONE) && b.follows(one) && !b.follows(Head::NONE) && !a.follows(one));
        assert_eq!((b.head, b.said.count), (head, Some(3)));
        assert_eq!(head.to_string().parse(), Ok(head));
        for at in 0..out.len() - 1 {
            for to in [b'0', b'x', b'"', 0] {
                let mut changed = out.clone();
                changed[at] = if changed[at] == to { b'1' } else { to };
                assert!(read(&changed).is_none(), "{}", String::from_utf8_lossy(&changed));
            }
        }
        assert!(Link::read(b"").is_none() && Link::read(&[b'x'; 80]).is_none());
    }
}
