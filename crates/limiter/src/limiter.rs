//! One type for all back ends.
//!
//! Invariant: each ask is answered within the time limit of the back end. If the back end does not answer, the
//! configuration does, and that is counted.

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "redis")]
use redis_script::{Address, ClientError};

use crate::{Budget, Decision, Limit, Memory, MemorySettings, clock::Clock};
#[cfg(feature = "redis")]
use crate::{RedisSettings, redis::Shared};

/// The answer if the back end gives none: Redis does not answer, or there is no room in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Allow.
    #[default]
    Open,
    /// Refuse.
    Closed,
}

/// Counts since the limiter was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Asks that the configuration decided.
    pub unknown: u64,
    /// Calls to Redis.
    pub calls: u64,
    /// Asks that were refused without a call.
    pub hinted: u64,
    /// Asks that were allowed without a call, from a lease.
    pub leased: u64,
}

/// Decides asks. A process needs one; share it by reference or `Arc`.
#[derive(Debug)]
pub struct Limiter {
    back: Back,
    on_failure: OnFailure,
    unknown: AtomicU64,
}

/// The back end. It is an enum and not a trait object, because it is on the hot path.
#[derive(Debug)]
enum Back {
    Memory(Memory, Clock),
    #[cfg(feature = "redis")]
    Redis(Shared),
}

impl Limiter {
    /// A limiter with buckets in this process.
    #[must_use]
    pub fn in_memory(settings: MemorySettings, on_failure: OnFailure) -> Self {
        Self::new(Back::Memory(Memory::new(settings), Clock::start()), on_failure)
    }

    /// A limiter with buckets in Redis, which other servers may share. Takes at most about the connect timeout. Later it
    /// reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] if Redis can't be reached now. May be tried again.
    #[cfg(feature = "redis")]
    pub async fn in_redis(
        address: &Address,
        settings: &RedisSettings,
        on_failure: OnFailure,
    ) -> Result<Self, ClientError> {
        Ok(Self::new(Back::Redis(Shared::connect(address, settings).await?), on_failure))
    }

    fn new(back: Back, on_failure: OnFailure) -> Self {
        Self { back, on_failure, unknown: AtomicU64::new(0) }
    }

    /// Asks for `cost` tokens of `key` under `limit`. A cost of 0 takes nothing and is allowed.
    ///
    /// If the future is dropped before it is ready, the cost may have been taken.
    pub async fn ask(&self, limit: &Limit, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        let key = key.as_ref();
        let decision = match &self.back {
            Back::Memory(memory, clock) => memory.ask(limit, key, cost, clock.now_us()),
            #[cfg(feature = "redis")]
            Back::Redis(shared) => shared.ask(limit, key, cost).await,
        };
        decision.unwrap_or_else(|| self.undecided())
    }

    /// What `key` has left, without taking anything. `None` if the back end does not answer.
    pub async fn peek(&self, limit: &Limit, key: impl AsRef<[u8]>) -> Option<Budget> {
        let key = key.as_ref();
        match &self.back {
            Back::Memory(memory, clock) => Some(memory.peek(limit, key, clock.now_us())),
            #[cfg(feature = "redis")]
            Back::Redis(shared) => shared.peek(limit, key).await,
        }
    }

    /// Resets `key` to a new bucket. Returns whether the back end confirmed it.
    pub async fn reset(&self, limit: &Limit, key: impl AsRef<[u8]>) -> bool {
        let key = key.as_ref();
        match &self.back {
            Back::Memory(memory, clock) => {
                memory.reset(limit, key, clock.now_us());
                true
            }
            #[cfg(feature = "redis")]
            Back::Redis(shared) => shared.reset(limit, key).await,
        }
    }

    /// The counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let stats = Stats { unknown: self.unknown.load(Ordering::Relaxed), ..Stats::default() };
        match &self.back {
            Back::Memory(..) => stats,
            #[cfg(feature = "redis")]
            Back::Redis(shared) => {
                let counts = shared.counts();
                Stats { calls: counts.calls, hinted: counts.hinted, leased: counts.leased, ..stats }
            }
        }
    }

    fn undecided(&self) -> Decision {
        self.unknown.fetch_add(1, Ordering::Relaxed);
        Decision::Unknown { allowed: self.on_failure == OnFailure::Open }
    }
}
