//! Buckets in this process.
//!
//! Invariant: at most as many as were asked for are kept, and none that says anything is forgotten: a key for which
//! there is no room is not decided about.

use crate::{
    Bucket, Budget, Decision, Limit,
    key::Shortened,
    table::{Kept, Table},
};

/// How buckets are kept in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Buckets at most. One takes about 110 bytes (and a key of more than 22 bytes its own length), and says something
    /// until it is full again: there should be room for as many keys as come in that time.
    pub max_keys: usize,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { max_keys: 1_000_000 }
    }
}

/// Buckets in this process. The caller has the clock.
#[derive(Debug)]
pub struct Memory(Table<Bucket>);

impl Kept for Bucket {
    fn is_idle(&self, limit: &Limit, now_us: u64) -> bool {
        now_us >= self.forget_at_us(limit)
    }
}

impl Memory {
    /// No buckets yet.
    #[must_use]
    pub fn new(settings: MemorySettings) -> Self {
        Self(Table::new(settings.max_keys))
    }

    /// Decides about one ask at `now_us`, as [`Bucket::ask`] does. Threads may come with instants out of order.
    ///
    /// Nothing where the key is new, all places are taken, and no idle one is among those looked at. It is left to the
    /// caller what that means: to let everybody in, or to forget a bucket that is in use, would give whoever has enough
    /// addresses as much as they like.
    pub fn ask(&self, limit: &Limit, key: &[u8], cost: u64, now_us: u64) -> Option<Decision> {
        let key = &Shortened::new(key);
        // What takes nothing begins no bucket.
        let counted = limit.counted();
        if cost == 0 || counted.iter().any(|counted| cost > counted.capacity) {
            let known = |bucket: &mut Bucket, now_us| bucket.ask(limit, cost, now_us);
            let new = || Bucket::new(limit, now_us).ask(limit, cost, now_us);
            return Some(self.0.with(limit, key, now_us, |_| None, known).unwrap_or_else(new));
        }
        self.0.with(
            limit,
            key,
            now_us,
            |now_us| Some(Bucket::new(limit, now_us)),
            |bucket, now_us| bucket.ask(limit, cost, now_us),
        )
    }

    /// What a key has left.
    #[must_use]
    pub fn peek(&self, limit: &Limit, key: &[u8], now_us: u64) -> Budget {
        self.0
            .with(limit, &Shortened::new(key), now_us, |_| None, |bucket, now_us| bucket.peek(limit, now_us))
            .unwrap_or_else(|| Bucket::new(limit, now_us).peek(limit, now_us))
    }

    /// Makes a key as good as new.
    pub fn reset(&self, limit: &Limit, key: &[u8], now_us: u64) {
        self.0.with(
            limit,
            &Shortened::new(key),
            now_us,
            |_| None,
            |bucket, now_us| *bucket = Bucket::new(limit, now_us),
        );
    }

    /// Buckets kept now, those that are full again and not yet forgotten too.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.0.len()
    }
}
