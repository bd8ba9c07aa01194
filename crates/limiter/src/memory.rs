//! Buckets in this process.
//!
//! Invariants: there are never more buckets than configured, and no bucket in use is forgotten: a key without room gets no
//! decision. Each change of a bucket is noted in the refusals before the lock of its shard is released.

use crate::{
    Bucket, Budget, Decision, Limit,
    key::Shortened,
    refusals::Refusals,
    table::{Hash, Kept, Table},
};

/// Settings of the buckets in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// The largest number of buckets. A bucket takes about 80 bytes, plus the key if that is longer than 22 bytes. It is in
    /// use until it is full again, so there should be room for all keys that come in that time. The refusals without a
    /// lock take up to 2 MB more.
    pub max_keys: usize,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { max_keys: 1_000_000 }
    }
}

/// Buckets in this process. The caller reads the clock.
#[derive(Debug)]
pub struct Memory {
    buckets: Table<Bucket>,
    refusals: Refusals,
}

impl Kept for Bucket {
    fn is_idle(&self, limit: &Limit, now_us: u64) -> bool {
        now_us >= self.forget_at_us(limit)
    }
}

impl Memory {
    /// An empty set of buckets.
    #[must_use]
    pub fn new(settings: MemorySettings) -> Self {
        let MemorySettings { max_keys } = settings;
        Self { buckets: Table::new(max_keys), refusals: Refusals::new(max_keys) }
    }

    /// Decides one ask at `now_us`, as [`Bucket::ask`] does. Threads may pass instants out of order.
    ///
    /// `None` if the key is new, the table is full, and none of the entries that were checked is idle. The caller decides
    /// what to do then. Forgetting a bucket in use would let a client with many addresses exceed every limit.
    pub fn ask(&self, limit: &Limit, key: &[u8], cost: u64, now_us: u64) -> Option<Decision> {
        let key = &Shortened::new(key);
        let hash = self.buckets.hash(limit, key);
        let slot = self.refusals.slot(hash, key);
        if let Some(refusal) = slot.as_ref().and_then(|slot| slot.refusal(limit, cost, now_us)) {
            return Some(refusal);
        }
        let ask = |bucket: &mut Bucket, now_us| {
            let decision = bucket.ask(limit, cost, now_us);
            if let Some(slot) = &slot {
                slot.note(limit, bucket, matches!(decision, Decision::Denied { .. }));
            }
            decision
        };
        // An ask that takes nothing creates no bucket.
        let counted = limit.counted();
        if cost == 0 || counted.iter().any(|counted| cost > counted.capacity) {
            let new = || Bucket::new(limit, now_us).ask(limit, cost, now_us);
            return Some(self.known(hash, limit, key, now_us, ask).unwrap_or_else(new));
        }
        self.buckets.with_hash(hash, limit, key, now_us, |now_us| Some(Bucket::new(limit, now_us)), ask)
    }

    /// What a key has left.
    #[must_use]
    pub fn peek(&self, limit: &Limit, key: &[u8], now_us: u64) -> Budget {
        let key = &Shortened::new(key);
        let hash = self.buckets.hash(limit, key);
        let peek = |bucket: &mut Bucket, now_us| {
            // The limit may have changed.
            if let Some(slot) = self.refusals.slot(hash, key) {
                slot.note(limit, bucket, false);
            }
            bucket.peek(limit, now_us)
        };
        self.known(hash, limit, key, now_us, peek)
            .unwrap_or_else(|| Bucket::new(limit, now_us).peek(limit, now_us))
    }

    /// Resets a key to a new bucket.
    pub fn reset(&self, limit: &Limit, key: &[u8], now_us: u64) {
        let key = &Shortened::new(key);
        let hash = self.buckets.hash(limit, key);
        self.known(hash, limit, key, now_us, |bucket, now_us| {
            *bucket = Bucket::new(limit, now_us);
            if let Some(slot) = self.refusals.slot(hash, key) {
                slot.note(limit, bucket, false);
            }
        });
    }

    /// Works on an existing bucket.
    fn known<R>(
        &self,
        hash: Hash,
        limit: &Limit,
        key: &Shortened<'_>,
        now_us: u64,
        work: impl FnOnce(&mut Bucket, u64) -> R,
    ) -> Option<R> {
        self.buckets.with_hash(hash, limit, key, now_us, |_| None, work)
    }

    /// The number of buckets, including full ones that have not been forgotten yet.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.buckets.len()
    }
}
