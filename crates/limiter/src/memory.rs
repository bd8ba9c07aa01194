//! Buckets in this process.
//!
//! Invariants: at most as many as were asked for are kept, and none that says anything is forgotten: a key for which
//! there is no room is not decided about. Whatever is done to a bucket is noted among the refusals before its shard's lock
//! is left.

use crate::{
    Bucket, Budget, Decision, Limit,
    key::Shortened,
    refusals::Refusals,
    table::{Hash, Kept, Table},
};

/// How buckets are kept in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Buckets at most. One takes about 80 bytes (and a key of more than 22 bytes its own length), and says something
    /// until it is full again: there should be room for as many keys as come in that time. Beside them, what refuses
    /// without a lock takes 2 MB at most.
    pub max_keys: usize,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { max_keys: 1_000_000 }
    }
}

/// Buckets in this process. The caller has the clock.
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
    /// No buckets yet.
    #[must_use]
    pub fn new(settings: MemorySettings) -> Self {
        let MemorySettings { max_keys } = settings;
        Self { buckets: Table::new(max_keys), refusals: Refusals::new(max_keys) }
    }

    /// Decides about one ask at `now_us`, as [`Bucket::ask`] does. Threads may come with instants out of order.
    ///
    /// Nothing where the key is new, all places are taken, and no idle one is among those looked at. It is left to the
    /// caller what that means: to let everybody in, or to forget a bucket that is in use, would give whoever has enough
    /// addresses as much as they like.
    pub fn ask(&self, limit: &Limit, key: &[u8], cost: u64, now_us: u64) -> Option<Decision> {
        let key = &Shortened::new(key);
        let hash = self.buckets.hash(limit, key);
        let place = self.refusals.place(hash, key);
        if let Some(refusal) = place.as_ref().and_then(|place| place.refusal(limit, cost, now_us)) {
            return Some(refusal);
        }
        let ask = |bucket: &mut Bucket, now_us| {
            let decision = bucket.ask(limit, cost, now_us);
            if let Some(place) = &place {
                place.note(limit, bucket, matches!(decision, Decision::Denied { .. }));
            }
            decision
        };
        // What takes nothing begins no bucket.
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
            // The limit may be another one than before.
            if let Some(place) = self.refusals.place(hash, key) {
                place.note(limit, bucket, false);
            }
            bucket.peek(limit, now_us)
        };
        self.known(hash, limit, key, now_us, peek)
            .unwrap_or_else(|| Bucket::new(limit, now_us).peek(limit, now_us))
    }

    /// Makes a key as good as new.
    pub fn reset(&self, limit: &Limit, key: &[u8], now_us: u64) {
        let key = &Shortened::new(key);
        let hash = self.buckets.hash(limit, key);
        self.known(hash, limit, key, now_us, |bucket, now_us| {
            *bucket = Bucket::new(limit, now_us);
            if let Some(place) = self.refusals.place(hash, key) {
                place.note(limit, bucket, false);
            }
        });
    }

    /// Works on a bucket that is there.
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

    /// Buckets kept now, those that are full again and not yet forgotten too.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.buckets.len()
    }
}
