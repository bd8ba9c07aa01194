//! The record: one row that describes and protects the whole file.
//!
//! Invariant: a record that was changed in any bit is refused.

use super::Fault;
use crate::{Clock, clock::Boot};

/// The version of the tables and of this record. A file has the least one that its rows need, so that an earlier version opens it as
/// long as it can, and otherwise says which version it needs.
pub(super) const FORMAT: u32 = 2;

/// The version of a file with lines that a draw dealt: the digest covers these rows, so that an earlier version would take the file for
/// a damaged one.
pub(super) const DEALT: u32 = 3;

const LEN: usize = 76;
const CHECKED: usize = LEN - 16;

/// What each commit writes in addition to the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The version of the file: one from [`FORMAT`] to [`DEALT`].
    pub(super) format: u32,
    /// The number of commits since the file was created.
    pub(super) commits: u64,
    /// The store's clock.
    pub(super) clock: Clock,
    /// The clock's time at the last commit, in milliseconds.
    pub(super) last_ms: u64,
    /// The exclusive or of the digests of all rows, so that a commit only has to add the rows it changes. It finds
    /// accidents. It does not protect against an attacker who can write the file.
    pub(super) digest: u128,
}

impl Record {
    /// Little-endian: format 4, commits 8, boot 16 (zeros for none), offset 8, last 8, digest 16, digest of these 16.
    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&self.format.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.commits.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.clock.boot.unwrap_or_default());
        bytes[28..36].copy_from_slice(&self.clock.offset_ms.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.last_ms.to_le_bytes());
        bytes[44..CHECKED].copy_from_slice(&self.digest.to_le_bytes());
        let check = digest(b'r', (0, 0), &[&bytes[..CHECKED]]);
        bytes[CHECKED..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Fault> {
        let format = bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        if !(FORMAT..=DEALT).contains(&format) {
            return Err(Fault::Format(format));
        }
        let check = digest(b'r', (0, 0), &[bytes.get(..CHECKED).unwrap_or_default()]).to_le_bytes();
        if bytes.len() != LEN || bytes[CHECKED..] != check {
            return Err(Fault::Wrong("its record was changed".into()));
        }
        let boot: Boot = part(bytes, 12);
        Ok(Self {
            format,
            commits: u64::from_le_bytes(part(bytes, 4)),
            clock: Clock {
                boot: Some(boot).filter(|boot| *boot != Boot::default()),
                offset_ms: i64::from_le_bytes(part(bytes, 28)),
            },
            last_ms: u64::from_le_bytes(part(bytes, 36)),
            digest: u128::from_le_bytes(part(bytes, 44)),
        })
    }
}

/// The digest of one row: its table, its key and its value.
pub(super) fn digest(table: u8, (zone, key): (u32, u64), value: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[table]).update(&zone.to_le_bytes()).update(&key.to_le_bytes());
    for bytes in value {
        hasher.update(bytes);
    }
    u128::from_le_bytes(part(hasher.finalize().as_bytes(), 0))
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_a_round_trip_and_a_changed_one_is_refused() {
        for (format, boot) in [(FORMAT, None), (DEALT, Some([7; 16]))] {
            let clock = Clock { boot, offset_ms: -3 };
            let record = Record { format, commits: 5, clock, last_ms: 9, digest: 1 << 100 };
            let bytes = record.to_bytes();
            assert!(Record::from_bytes(&bytes).is_ok_and(|read| read == record));
            for at in 0..LEN {
                let mut flipped = bytes;
                flipped[at] ^= 0x10;
                assert!(Record::from_bytes(&flipped).is_err(), "byte {at}");
                assert!(Record::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
