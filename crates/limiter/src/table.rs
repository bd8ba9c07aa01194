//! A bounded table from limit and key to a small value: buckets, hints, leases.
//!
//! Invariants: the table never has more entries than it was made for. A known key is found without an allocation. A new
//! key replaces an idle entry if one is among those checked, so idle entries do not make the table grow. Time within a
//! shard never goes back, although threads read the clock before they lock the shard.

use std::{
    hash::BuildHasher as _,
    sync::{Mutex, PoisonError},
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::{
    Limit,
    key::{Key, Shortened},
};

/// How many shards there are, each with its own lock.
pub(crate) const SHARDS: usize = 64;

/// How many entries a new key checks for an idle one.
const CHECKED: usize = 4;
/// The same while the shard is full.
const CHECKED_WHEN_FULL: usize = 64;

/// A value of a table.
pub(crate) trait Kept {
    /// Whether the value can be forgotten at this instant.
    fn is_idle(&self, limit: &Limit, now_us: u64) -> bool;

    /// Called when the limit of this name was changed.
    fn limit_changed(&mut self) {}
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table<V> {
    shards: Box<[Padded<V>]>,
    hasher: RandomState,
    shard_max: usize,
}

/// A shard on its own two cache lines: the processor fetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<V>(Mutex<Shard<V>>);

/// Fields that each ask writes come first: they share the cache line of the lock, so threads exchange one line only.
#[derive(Debug)]
#[repr(C)]
struct Shard<V> {
    latest_us: u64,
    index: HashTable<Slot>,
    entries: Vec<Entry<V>>,
    hand: usize,
}

/// The hash of a key under a limit's name. All limits of that name have the same hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) fn shard(self) -> usize {
        usize::try_from(self.0 >> 32).unwrap_or(0) % SHARDS
    }

    /// The half that does not select the shard.
    pub(crate) fn low(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).expect("32 bits of it")
    }
}

/// The index of an entry, and half of its hash, so that the hash table can grow without reading the entries.
#[derive(Debug)]
struct Slot {
    hash: u32,
    entry: u32,
}

/// An entry takes one cache line if its value has at most 24 bytes, as a bucket does.
#[derive(Debug)]
#[repr(align(64))]
struct Entry<V> {
    hash: u32,
    key: Key,
    limit: Limit,
    value: V,
}

/// Makes a hash for the hash table, which uses the low bits for the position and the high bits for the tag.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<V: Kept> Table<V> {
    /// A table for `max` entries, rounded up to a multiple of [`SHARDS`].
    pub(crate) fn new(max: usize) -> Self {
        let shard = || Shard { index: HashTable::new(), entries: Vec::new(), hand: 0, latest_us: 0 };
        let shard_max = max.div_ceil(SHARDS).clamp(1, u32::MAX as usize);
        let shards = (0..SHARDS).map(|_| Padded(Mutex::new(shard()))).collect();
        Self { shards, hasher: RandomState::default(), shard_max }
    }

    pub(crate) fn hash(&self, limit: &Limit, key: &Shortened<'_>) -> Hash {
        Hash(self.hasher.hash_one(&**key) ^ limit.salt())
    }

    /// Works on a key's entry, as [`Table::with_hash`] does.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn with<R>(
        &self,
        limit: &Limit,
        key: &Shortened<'_>,
        now_us: u64,
        new: impl FnOnce(u64) -> Option<V>,
        work: impl FnOnce(&mut V, u64) -> R,
    ) -> Option<R> {
        self.with_hash(self.hash(limit, key), limit, key, now_us, new, work)
    }

    /// Works on the entry of a key. A key without an entry gets one from `new`. Returns `None` and does nothing if `new`
    /// returns `None`, or if there is no room.
    ///
    /// `work` gets `now_us`, or the latest instant that the shard has seen if that is later.
    pub(crate) fn with_hash<R>(
        &self,
        hash: Hash,
        limit: &Limit,
        key: &Shortened<'_>,
        now_us: u64,
        new: impl FnOnce(u64) -> Option<V>,
        work: impl FnOnce(&mut V, u64) -> R,
    ) -> Option<R> {
        let (shard, hash) = (hash.shard(), hash.low());
        let mut shard = self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = &mut *shard;
        shard.latest_us = shard.latest_us.max(now_us);
        let now_us = shard.latest_us;
        let entries = &mut shard.entries;
        let matches = |slot: &Slot| {
            slot.hash == hash && {
                let entry = &entries[slot.entry as usize];
                *entry.key == **key && entry.limit.is_namesake(limit)
            }
        };
        if let Some(slot) = shard.index.find(spread(hash), matches) {
            let entry = &mut entries[slot.entry as usize];
            if !entry.limit.is_same(limit) {
                if entry.limit != *limit {
                    entry.value.limit_changed();
                }
                entry.limit = limit.clone();
            }
            return Some(work(&mut entry.value, now_us));
        }
        let mut value = new(now_us)?;
        let at = shard.room(self.shard_max, now_us)?;
        let worked = work(&mut value, now_us);
        shard.put(at, Entry { hash, key: Key::new(key), limit: limit.clone(), value });
        Some(worked)
    }

    /// The number of entries, including idle ones.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.0.lock().unwrap_or_else(PoisonError::into_inner).entries.len())
            .sum()
    }
}

impl<V: Kept> Shard<V> {
    /// The index for a new entry: that of an idle one, or the end.
    fn room(&mut self, max: usize, now_us: u64) -> Option<usize> {
        let len = self.entries.len();
        let checks = if len < max { CHECKED } else { CHECKED_WHEN_FULL };
        for _ in 0..checks.min(len) {
            self.hand = if self.hand + 1 < len { self.hand + 1 } else { 0 };
            let entry = &self.entries[self.hand];
            if entry.value.is_idle(&entry.limit, now_us) {
                return Some(self.hand);
            }
        }
        (len < max).then_some(len)
    }

    fn put(&mut self, at: usize, entry: Entry<V>) {
        let slot = Slot { hash: entry.hash, entry: u32::try_from(at).expect("below the bound") };
        match self.entries.get_mut(at) {
            Some(old) => {
                let gone = self.index.find_entry(spread(old.hash), |slot| slot.entry as usize == at);
                gone.expect("each entry is in the index").remove();
                *old = entry;
            }
            None => self.entries.push(entry),
        }
        self.index.insert_unique(spread(slot.hash), slot, |slot| spread(slot.hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bandwidth;

    /// A value that is idle from an instant on.
    struct Until(u64);

    impl Kept for Until {
        fn is_idle(&self, _: &Limit, now_us: u64) -> bool {
            now_us >= self.0
        }
    }

    fn limit(name: &str) -> Limit {
        Limit::new(name, [Bandwidth::per_second(1)]).expect("a limit")
    }

    fn put(table: &Table<Until>, limit: &Limit, key: u64, now_us: u64, until_us: u64) -> bool {
        table
            .with(limit, &Shortened::new(&key.to_be_bytes()), now_us, |_| Some(Until(until_us)), |_, _| ())
            .is_some()
    }

    fn get(table: &Table<Until>, limit: &Limit, key: u64) -> Option<u64> {
        table.with(limit, &Shortened::new(&key.to_be_bytes()), 0, |_| None, |until, _| until.0)
    }

    #[test]
    fn the_bound_holds_and_busy_entries_stay() {
        let (table, limit) = (Table::new(640), limit("a"));
        let kept: Vec<u64> = (0..10_000).filter(|key| put(&table, &limit, *key, 0, 10)).collect();
        assert!(table.len() <= 640 && kept.len() == table.len(), "{} of {}", kept.len(), table.len());
        for key in &kept {
            assert_eq!(get(&table, &limit, *key), Some(10));
        }
        // All entries are idle now: new keys replace them.
        for key in 20_000..20_064 {
            assert!(put(&table, &limit, key, 10, 100), "{key}");
            assert_eq!(get(&table, &limit, key), Some(100));
        }
        let stayed = kept.iter().filter(|key| get(&table, &limit, **key).is_some()).count();
        assert_eq!(stayed, kept.len() - 64);
        assert!(table.len() <= 640);
    }

    #[test]
    fn idle_entries_do_not_make_it_grow() {
        let (table, limit) = (Table::new(1_000_000), limit("a"));
        for now_us in 0..100_000 {
            assert!(put(&table, &limit, now_us, now_us, now_us + 1_000));
        }
        assert!(table.len() < 3_000, "{} entries for 1,000 that are busy", table.len());
    }

    #[test]
    fn limits_of_other_names_have_their_own_keys() {
        let (table, one, other) = (Table::new(100), limit("a"), limit("b"));
        assert!(put(&table, &one, 1, 0, 1) && put(&table, &other, 1, 0, 2));
        assert_eq!((get(&table, &one, 1), get(&table, &other, 1)), (Some(1), Some(2)));
        assert_eq!(get(&table, &limit("a"), 1), Some(1));
    }

    #[test]
    fn an_entry_with_a_bucket_takes_one_cache_line() {
        assert_eq!(size_of::<Entry<crate::Bucket>>(), 64);
    }

    #[test]
    fn time_does_not_go_back() {
        let (table, limit) = (Table::new(64), limit("a"));
        let at = |now_us| {
            table.with(&limit, &Shortened::new(b"k"), now_us, |_| Some(Until(1_000)), |_, now_us| now_us)
        };
        assert_eq!([at(5), at(3), at(7)], [Some(5), Some(5), Some(7)]);
    }
}
