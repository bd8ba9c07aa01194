//! What is kept of a zone by minute, and how the offers of several servers become one row.
//!
//! A store does not read what servers counted. It only compares the weights with which counts begin, and keeps what each server knows
//! alone beside them. `lua/minutes.lua` is the twin of `Row::merge`.
//!
//! Invariants: offering the same again changes nothing. Counts never get lighter. A row has a limit, whatever servers offer.

use std::time::Duration;

/// For how long a minute is kept: 400 days.
pub const MINUTES_KEPT: Duration = Duration::from_hours(400 * 24);

/// The longest counts of a minute, in bytes.
pub const COUNTS_LEN_MAX: usize = 768;

/// The longest part of a server, in bytes.
pub const PART_LEN_MAX: usize = 128;

/// The most servers of which a minute keeps the parts. Those that come later are left out.
pub const PARTS_MAX: usize = 64;

/// The most minutes that one call offers.
pub const OFFERED_MAX: usize = 16;

/// The most minutes that one call reads.
pub const READ_MAX: u32 = 240;

/// The length of the weight with which counts begin: a number, big-endian.
const WEIGHT: usize = 8;

/// One minute of a zone as a server counted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedMinute {
    /// The minute, in minutes since 1970.
    pub minute: u32,
    /// What every server of the store can count: 8 bytes that weigh it, and what it is. Of two, the heavier one is kept, and the first
    /// one of equal weight. 8 to [`COUNTS_LEN_MAX`] bytes.
    pub counts: Vec<u8>,
    /// What this server alone knows, up to [`PART_LEN_MAX`] bytes; empty if it knows nothing. It replaces what this server offered before.
    pub part: Vec<u8>,
}

/// One minute of a zone as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMinute {
    /// The minute, in minutes since 1970.
    pub minute: u32,
    /// The heaviest counts.
    pub counts: Vec<u8>,
    /// The parts of the servers, by their names, at most [`PARTS_MAX`].
    pub parts: Vec<(u64, Vec<u8>)>,
}

/// A kept minute without its instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) counts: Vec<u8>,
    /// By server.
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
}

impl OfferedMinute {
    /// Checks the limits.
    ///
    /// # Panics
    /// A limit is exceeded.
    pub(crate) fn check(&self) {
        let Self { counts, part, .. } = self;
        assert!((WEIGHT..=COUNTS_LEN_MAX).contains(&counts.len()), "counts of {} bytes", counts.len());
        assert!(part.len() <= PART_LEN_MAX, "a part of {} bytes", part.len());
    }
}

impl Row {
    /// Takes in what `server` offers.
    pub(crate) fn merge(&mut self, server: u64, offered: &OfferedMinute) {
        if weight(&offered.counts) > weight(&self.counts) {
            self.counts.clone_from(&offered.counts);
        }
        if offered.part.is_empty() {
            return;
        }
        self.parts.retain(|(of, _)| *of != server);
        if self.parts.len() < PARTS_MAX {
            self.parts.push((server, offered.part.clone()));
        }
    }

    /// The row in the journal: the length of the counts (2 bytes, big-endian), the counts, and the parts as in Redis.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let len = u16::try_from(self.counts.len()).expect("at most 768 bytes");
        let mut bytes = [&len.to_be_bytes(), self.counts.as_slice()].concat();
        for (server, part) in &self.parts {
            bytes.extend(server.to_be_bytes());
            bytes.push(u8::try_from(part.len()).expect("at most 128 bytes"));
            bytes.extend(part);
        }
        bytes
    }

    /// Reads a row of the journal. Bytes that no version wrote are an empty row, or one without some parts.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let Some((len, rest)) = bytes.split_first_chunk() else { return Self::default() };
        let Some((counts, parts)) = rest.split_at_checked(u16::from_be_bytes(*len).into()) else {
            return Self::default();
        };
        Self { counts: counts.to_vec(), parts: read_parts(parts) }
    }

    /// The minute as it is read; none if nobody has counted it.
    pub(crate) fn kept(self, minute: u32) -> Option<KeptMinute> {
        weight(&self.counts)?;
        Some(KeptMinute { minute, counts: self.counts, parts: self.parts })
    }
}

/// Reads the parts of the servers: for each its name (8 bytes), the length of its part (1 byte), and the part. What is cut off is left
/// out.
pub(crate) fn read_parts(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut parts = Vec::new();
    while let Some((server, rest)) = bytes.split_first_chunk()
        && let Some((len, rest)) = rest.split_first()
        && let Some((part, rest)) = rest.split_at_checked(usize::from(*len))
    {
        parts.push((u64::from_be_bytes(*server), part.to_vec()));
        bytes = rest;
    }
    parts
}

/// What counts weigh; nothing if they are none.
fn weight(counts: &[u8]) -> Option<u64> {
    counts.first_chunk::<WEIGHT>().map(|weight| u64::from_be_bytes(*weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(weight: u64, part: &[u8]) -> OfferedMinute {
        OfferedMinute { minute: 7, counts: weight.to_be_bytes().to_vec(), part: part.to_vec() }
    }

    #[test]
    fn a_row_is_the_same_however_often_it_is_offered() {
        let mut row = Row::default();
        assert_eq!(row.clone().kept(7), None, "nobody has counted");
        for _ in 0..2 {
            row.merge(1, &offer(5, b"one"));
            row.merge(2, &offer(9, b"two"));
            row.merge(1, &offer(5, b"one"));
            row.merge(3, &offer(8, b""));
        }
        let kept = row.clone().kept(7).expect("counted");
        assert_eq!(kept.counts, 9_u64.to_be_bytes());
        assert_eq!(kept.parts, [(2, b"two".to_vec()), (1, b"one".to_vec())]);
        assert_eq!(Row::from_bytes(&row.to_bytes()), row);
    }

    #[test]
    fn a_row_is_bounded() {
        let mut row = Row::default();
        for server in 0..1_000 {
            row.merge(server, &offer(1, &[7; PART_LEN_MAX]));
        }
        assert_eq!(row.parts.len(), PARTS_MAX);
        assert_eq!(row.to_bytes().len(), 2 + WEIGHT + PARTS_MAX * (9 + PART_LEN_MAX));
    }

    #[test]
    fn bytes_that_nobody_wrote_are_no_minute() {
        let mut row = Row::default();
        row.merge(1, &offer(5, b"one"));
        let bytes = row.to_bytes();
        for end in 0..bytes.len() {
            let read = Row::from_bytes(&bytes[..end]);
            assert!(read.parts.is_empty() && (read.counts.is_empty() || end >= 10), "{end}: {read:?}");
        }
        assert_eq!(Row::from_bytes(&[0, 3, 1, 2, 3]).kept(7), None, "without a weight");
    }
}
