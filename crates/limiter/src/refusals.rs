//! Refusals without a lock: what the buckets asked for last hold, where any thread may read it.
//!
//! A key that is over its limit is asked for again and again, and nearly all of those asks change nothing. A cell says of
//! one bucket, and of the limit that it was asked under, what is kept; a thread that finds its key there decides by the
//! same rules as under the lock, and only a refusal is the answer: whatever takes something goes by the lock.
//!
//! Invariants: what a cell says of a bucket is what is kept in it, as long as its limit is the one that the cell names.
//! So all that changes a bucket notes it in the cell before it leaves the lock of the bucket's shard, and a cell is
//! written by no one else, since all buckets of a cell lie in one shard. A cell that is being written is not believed:
//! its version is odd, or another one afterwards. A bucket that was forgotten was full, and refuses nothing from then on.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use crate::{
    Bucket, Decision, Limit,
    bucket::Level,
    table::{Hash, SHARDS},
};

/// Cells of a shard, at most: all of them take 2 MB.
const SHARD_CELLS: usize = 512;

/// A key as a cell has it: its bytes, zeros, and in the last byte its length.
type Words = [u64; 4];

/// The cells.
#[derive(Debug)]
pub(crate) struct Refusals {
    cells: Box<[Cell]>,
    shard_cells: usize,
}

/// One bucket, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    /// Odd while the others are written.
    version: AtomicU64,
    /// The limit's; 0 where the cell says nothing.
    limit_id: AtomicU64,
    at_us: AtomicU64,
    spent: AtomicU64,
    key: [AtomicU64; 4],
}

/// A key and the cell that its bucket may have.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    key: Words,
    cell: &'a Cell,
}

impl Refusals {
    /// For a table of at most so many buckets.
    pub(crate) fn new(max_keys: usize) -> Self {
        let shard_cells = max_keys.div_ceil(SHARDS).clamp(1, SHARD_CELLS).next_power_of_two();
        Self { cells: (0..SHARDS * shard_cells).map(|_| Cell::default()).collect(), shard_cells }
    }

    /// Where a key's bucket has its cell; nowhere, where the key is too long for one.
    pub(crate) fn place(&self, hash: Hash, key: &[u8]) -> Option<Place<'_>> {
        let place = hash.shard() * self.shard_cells + hash.low() as usize % self.shard_cells;
        Some(Place { key: words(key)?, cell: &self.cells[place] })
    }
}

impl Place<'_> {
    /// The refusal of an ask, where the cell says that it is refused.
    pub(crate) fn refusal(&self, limit: &Limit, cost: u64, now_us: u64) -> Option<Decision> {
        let level = self.cell.read(limit, &self.key)?;
        // Who read the clock before the last one who took something is decided about under the lock, at that instant.
        if now_us < level.at_us {
            return None;
        }
        level.refusal(limit, cost, now_us)
    }

    /// Notes what is kept in the bucket: where it `refused`, or has the cell already. The lock of its shard is held.
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
    /// What is kept in the bucket of this key under this very limit, where that is what the cell has.
    fn read(&self, limit: &Limit, key: &Words) -> Option<Level> {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 || self.limit_id.load(Ordering::Relaxed) != limit.id() || !self.has(key) {
            return None;
        }
        let at_us = self.at_us.load(Ordering::Relaxed);
        let spent = self.spent.load(Ordering::Relaxed);
        // Orders the loads above before the one below; with the writer's fence, whoever read anything of a later
        // version sees that it is another.
        fence(Ordering::Acquire);
        let unchanged = self.version.load(Ordering::Relaxed) == version;
        unchanged.then(|| Level { at_us, spent, token: limit.counted()[0].token })
    }

    fn has(&self, key: &Words) -> bool {
        self.key.iter().zip(key).all(|(kept, word)| kept.load(Ordering::Relaxed) == *word)
    }

    /// By one thread at a time.
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

    /// By one thread at a time.
    fn clear(&self) {
        self.write(0, &Words::default(), Level { at_us: 0, spent: 0, token: NonZeroU64::MIN });
    }
}

/// A key of at most 31 bytes.
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
    fn keys_are_told_apart() {
        let mut all: Vec<Words> = (0..32).filter_map(|len| words(&vec![0; len])).collect();
        all.extend((1..32).filter_map(|len| words(&vec![b'a'; len])));
        all.extend([words(b"ab"), words(b"ba"), words(&[1; 31])].into_iter().flatten());
        assert_eq!(all.len(), 32 + 31 + 3);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 32 + 31 + 3);
        assert_eq!(words(&[b'a'; 32]), None);
    }

    /// One thread gives the cell to two buckets in turn, others read what it says of them.
    #[test]
    fn what_is_read_is_of_one_bucket() {
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
                // A reader that failed reads no more.
                if n > 1_000_000_000 {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(read.into_inner() >= 1_000);
    }
}
