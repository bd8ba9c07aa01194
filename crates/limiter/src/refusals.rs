//! Refusals without a lock.
//!
//! A key over its limit is asked for again and again, and nearly all of these asks change nothing. A cell holds a copy of
//! one bucket and names its limit. A thread that finds its key in a cell decides by the same rules as under the lock. Only
//! a refusal counts; an ask that would take tokens goes through the lock.
//!
//! Invariants: as long as a cell names the bucket's limit, the copy equals the bucket. So each change of a bucket updates
//! its cell before the lock of the shard is released. All buckets of a cell are in one shard, so a cell has one writer at
//! a time. A reader ignores a cell that is being written: the version is odd, or differs afterwards. A forgotten bucket
//! was full, so its copy refuses nothing any more.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use crate::{
    Bucket, Decision, Limit,
    bucket::Level,
    table::{Hash, SHARDS},
};

/// The largest number of cells of a shard. All cells together take 2 MB.
const MAX_SHARD_CELLS: usize = 512;

/// A key in a cell: its bytes, zeros, and its length in the last byte.
type Words = [u64; 4];

/// The cells.
#[derive(Debug)]
pub(crate) struct Refusals {
    cells: Box<[Cell]>,
    shard_cells: usize,
}

/// A copy of one bucket, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    /// Odd while the other fields are written.
    version: AtomicU64,
    /// The id of the bucket's limit; 0 if the cell is empty.
    limit_id: AtomicU64,
    at_us: AtomicU64,
    spent: AtomicU64,
    key: [AtomicU64; 4],
}

/// A key and the cell that may hold a copy of its bucket.
#[derive(Debug)]
pub(crate) struct RefusalSlot<'a> {
    key: Words,
    cell: &'a Cell,
}

impl Refusals {
    /// Cells for a table of at most `max_keys` buckets.
    pub(crate) fn new(max_keys: usize) -> Self {
        let shard_cells = max_keys.div_ceil(SHARDS).clamp(1, MAX_SHARD_CELLS).next_power_of_two();
        Self { cells: (0..SHARDS * shard_cells).map(|_| Cell::default()).collect(), shard_cells }
    }

    /// The slot of a key; `None` if the key is too long for a cell.
    pub(crate) fn slot(&self, hash: Hash, key: &[u8]) -> Option<RefusalSlot<'_>> {
        let index = hash.shard() * self.shard_cells + hash.low() as usize % self.shard_cells;
        Some(RefusalSlot { key: words(key)?, cell: &self.cells[index] })
    }
}

impl RefusalSlot<'_> {
    /// The refusal of an ask, if the cell proves one.
    pub(crate) fn refusal(&self, limit: &Limit, cost: u64, now_us: u64) -> Option<Decision> {
        let level = self.cell.read(limit, &self.key)?;
        // If this thread read the clock before the last take, the ask is decided under the lock.
        if now_us < level.at_us {
            return None;
        }
        level.refusal(limit, cost, now_us)
    }

    /// Copies the bucket to the cell if the bucket `refused` or has the cell already. The caller holds the shard's lock.
    pub(crate) fn note(&self, limit: &Limit, bucket: &Bucket, refused: bool) {
        let has = self.cell.has(&self.key);
        match bucket.sole_level(limit) {
            Some(level) if refused || has => self.cell.write(limit.id(), &self.key, level),
            None if has => self.cell.clear(),
            _ => {}
        }
    }
}

impl Cell {
    /// The copy of this key's bucket under this limit, if the cell has it.
    fn read(&self, limit: &Limit, key: &Words) -> Option<Level> {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 || self.limit_id.load(Ordering::Relaxed) != limit.id() || !self.has(key) {
            return None;
        }
        let at_us = self.at_us.load(Ordering::Relaxed);
        let spent = self.spent.load(Ordering::Relaxed);
        // Orders the loads above before the one below. Together with the writer's fence, a reader that saw any part of a
        // later version also sees the later version number.
        fence(Ordering::Acquire);
        let unchanged = self.version.load(Ordering::Relaxed) == version;
        unchanged.then(|| Level { at_us, spent, token: limit.counted()[0].token })
    }

    fn has(&self, key: &Words) -> bool {
        self.key.iter().zip(key).all(|(kept, word)| kept.load(Ordering::Relaxed) == *word)
    }

    /// Called by one thread at a time.
    fn write(&self, limit_id: u64, key: &Words, level: Level) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // Orders the store above before those below.
        fence(Ordering::Release);
        self.limit_id.store(limit_id, Ordering::Relaxed);
        self.at_us.store(level.at_us, Ordering::Relaxed);
        self.spent.store(level.spent, Ordering::Relaxed);
        for (kept, word) in self.key.iter().zip(key) {
            kept.store(*word, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// Called by one thread at a time.
    fn clear(&self) {
        self.write(0, &Words::default(), Level { at_us: 0, spent: 0, token: NonZeroU64::MIN });
    }
}

/// Packs a key of at most 31 bytes; `None` for a longer one.
fn words(key: &[u8]) -> Option<Words> {
    let len = u64::try_from(key.len()).ok().filter(|len| *len < 32)?;
    let (whole, rest) = key.as_chunks::<8>();
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(whole) {
        *word = u64::from_le_bytes(*bytes);
    }
    words[whole.len()] = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    words[3] |= len << 56;
    Some(words)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize},
        thread,
    };

    use super::*;
    use crate::Bandwidth;

    #[test]
    fn different_keys_have_different_words() {
        let mut all: Vec<Words> = (0..32).filter_map(|len| words(&vec![0; len])).collect();
        all.extend((1..32).filter_map(|len| words(&vec![b'a'; len])));
        all.extend([words(b"ab"), words(b"ba"), words(&[1; 31])].into_iter().flatten());
        assert_eq!(all.len(), 32 + 31 + 3);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 32 + 31 + 3);
        assert_eq!(words(&[b'a'; 32]), None);
    }

    /// One thread writes two buckets to the cell in turn, while others read it.
    #[test]
    fn a_reader_never_mixes_two_buckets() {
        let limit = Limit::new("a", [Bandwidth::per_second(1)]).expect("a limit");
        let level = |n: u64| Level { at_us: n, spent: n << 32, token: limit.counted()[0].token };
        let keys = [words(b"one").expect("short"), words(b"other").expect("short")];
        let (cell, over, read) = (Cell::default(), AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for (key, parity) in keys.iter().zip(0..) {
                let (cell, limit, over, read) = (&cell, &limit, &over, &read);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if let Some(Level { at_us, spent, .. }) = cell.read(limit, key) {
                            read.fetch_add(1, Ordering::Relaxed);
                            assert!(
                                at_us % 2 == parity && spent == at_us << 32,
                                "{at_us} {spent:x} {parity}"
                            );
                        }
                    }
                });
            }
            let mut n = 0;
            while n < 5_000_000 || read.load(Ordering::Relaxed) < 1_000 {
                let at = usize::from(n % 2 == 1);
                cell.write(limit.id(), &keys[at], level(n));
                n += 1;
                // A failed reader does not read any more.
                if n > 1_000_000_000 {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(read.into_inner() >= 1_000);
    }
}
