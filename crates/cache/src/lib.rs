//! A cache that refreshes values before they expire, with at most one load per key at a time.
//!
//! A value is served for its *life*. After a part of the life (for example three quarters), the next call starts a load in
//! the background, and all calls are served at once. So a key that is asked for often enough causes no wait after the first
//! load. If loads fail, the last value is served for a bounded time beyond its life.
//!
//! ```
//! use std::{io, sync::Arc, time::Duration};
//!
//! use cache::{Cache, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), cache::LoadError<io::Error>> {
//! let policies: Cache<String, Arc<str>, io::Error> = Cache::new(Settings {
//!     life: Duration::from_secs(20),
//!     refresh_at: 0.75,
//!     stale_for: Duration::from_secs(60),
//!     pause: Duration::from_secs(1),
//!     capacity: 1_000,
//! });
//! let policy = policies.get(&"ZONE".to_owned(), async |zone| Ok(format!("policy of {zone}").into())).await?;
//! assert_eq!(&*policy, "policy of ZONE");
//!
//! // The new value is served from now on, even if an earlier load ends later.
//! policies.put("ZONE".to_owned(), "new policy".into());
//! # Ok(())
//! # }
//! ```
//!
//! # What a caller gets
//!
//! | the value's age | a caller is | and |
//! |---|---|---|
//! | up to `refresh_at` of the life | served | |
//! | up to the life | served | a load starts |
//! | up to `stale_for` beyond the life, and a load failed, or has been running since before the life ended | served | a load starts |
//! | the same, but no load was started during the life | waiting for a load; if it fails, served | |
//! | older, or no value | waiting for a load, and gets its error | |
//!
//! A load starts only if no load of the key is running, and if the last one did not fail within the last `pause`. Until then
//! callers get the value or that error at once.
//!
//! # Invariants
//!
//! - At most one load per key runs. All waiting callers share its value or its error.
//! - A load runs as a separate task, so it continues if its caller leaves. If the loader panics, or is cancelled because the
//!   runtime stops, waiting callers get an error. The next call after the pause loads again.
//! - [`Cache::put`] and [`Cache::invalidate`] make a running load outdated: its value is not stored. A call after an
//!   invalidation waits until the outdated load has ended and another load has been made.
//! - There are at most `capacity` keys, and each of up to 16 shards loads at most 1,024 keys at once.
//!
//! Callers wait as long as the loader runs, so the loader needs a time limit. Time is tokio's, so tests can control it. The
//! life starts when the value arrives. What the loader read is older by the loader's running time.
//!
//! # Why not moka alone
//!
//! [moka](https://docs.rs/moka) shares loads (`try_get_with`). But it does not refresh ahead (its issues 467 and 526 ask for
//! it), drops expired values, so none is left if the loader fails, runs the loader inside the first caller, so a cancelled
//! caller restarts it, lets an older load overwrite a newer `insert`, has no pause after errors, and reads a clock that
//! tests can't control. On top of moka we would still need our own loads, their lock and the ages of values, and moka would
//! be only the table. [quick_cache](https://docs.rs/quick_cache) is enough for a table: it is bounded, many new keys do not
//! evict those in use (S3-FIFO), and its unsynchronised form fits under the lock that the loads need anyway. Tests and
//! benchmarks compare this crate with moka.

mod shard;

use std::{
    fmt,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::time::Instant;

use crate::shard::{Found, Shard};

/// Enough shards that the threads of a large server rarely wait for the same one.
const SHARDS_MAX: usize = 16;
/// The smallest capacity of a shard. Smaller shards would be full long before the cache is.
const SHARD_KEYS_MIN: usize = 64;

/// How long values are served, and how many are stored.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a value is served; above zero.
    pub life: Duration,
    /// The part of the life after which the next call starts a load; above 0, and up to 1, which means never ahead. The rest
    /// of the life should be longer than a load.
    pub refresh_at: f64,
    /// How long beyond its life a value is served while loads fail or run; may be zero.
    pub stale_for: Duration,
    /// How long after a failed load no other load of the key starts; may be zero.
    pub pause: Duration,
    /// The largest number of keys, with their values or last errors; above 0.
    pub capacity: usize,
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E> {
    /// The loader's error, shared by all waiting callers.
    #[error("{0}")]
    Failed(Arc<E>),
    /// The loader panicked.
    #[error("the loader panicked")]
    Panicked,
    /// The runtime stopped while the loader ran.
    #[error("the loader was cancelled")]
    Cancelled,
    /// Too many other keys are being loaded.
    #[error("too many keys are being loaded")]
    Busy,
}

impl<E> Clone for LoadError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::Panicked => Self::Panicked,
            Self::Cancelled => Self::Cancelled,
            Self::Busy => Self::Busy,
        }
    }
}

/// The cache. A clone is a handle to the same cache. Values are cloned under a lock, so they should be cheap to clone, such
/// as an `Arc`.
pub struct Cache<K, V, E> {
    inner: Arc<Inner<K, V, E>>,
}

struct Inner<K, V, E> {
    hasher: RandomState,
    shards: Box<[Mutex<Shard<K, V, E>>]>,
}

impl<K, V, E> Cache<K, V, E>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// An empty cache.
    ///
    /// # Panics
    /// If a setting is out of its range.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { life, refresh_at, capacity, .. } = settings;
        assert!(!life.is_zero(), "a value lives longer than that");
        assert!(refresh_at > 0.0 && refresh_at <= 1.0, "refresh_at is a part of the life, not {refresh_at}");
        assert!(capacity > 0, "the capacity is at least one key");
        let shards = (capacity / SHARD_KEYS_MIN).clamp(1, SHARDS_MAX);
        let shard = || Mutex::new(Shard::new(settings, capacity / shards));
        let inner = Inner { hasher: RandomState::new(), shards: (0..shards).map(|_| shard()).collect() };
        Self { inner: Arc::new(inner) }
    }

    /// The value of `key`. Waits only if no value may be served (see the table above). `loader` runs as a separate task, if
    /// no other load of the key is running, and its value is stored.
    ///
    /// # Errors
    /// Those of the load, if no value may be served.
    ///
    /// # Panics
    /// If a load must start outside of a tokio runtime.
    pub async fn get<F, L>(&self, key: &K, loader: F) -> Result<V, LoadError<E>>
    where
        F: FnOnce(K) -> L + Send + 'static,
        L: Future<Output = Result<V, E>> + Send,
    {
        loop {
            let found = self.inner.shard(key).find(key, Instant::now());
            match found {
                Found::Answer(answer) => return answer,
                Found::Refresh(value) => {
                    self.load(key, loader);
                    return Ok(value);
                }
                Found::Load(answer) => {
                    self.load(key, loader);
                    return wait(answer).await;
                }
                Found::Wait(answer) => return wait(answer).await,
                Found::Outdated(mut load) => {
                    // The load was put or has ended: look again.
                    let _ = load.changed().await;
                }
            }
        }
    }

    /// Stores `value` for `key`. It is served from now on, also to callers that wait for a load. The value of a running load
    /// is dropped.
    pub fn put(&self, key: K, value: V) {
        self.inner.shard(&key).put(key, value, Instant::now());
    }

    /// Removes the value of `key`. The value of a running load goes only to the callers that wait for it already.
    pub fn invalidate(&self, key: &K) {
        self.inner.shard(key).invalidate(key);
    }

    /// The number of keys; at most the capacity.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).kept()).sum()
    }

    /// Starts the load that `find` has noted.
    fn load<F, L>(&self, key: &K, loader: F)
    where
        F: FnOnce(K) -> L + Send + 'static,
        L: Future<Output = Result<V, E>> + Send,
    {
        let mut load = Load { inner: Arc::clone(&self.inner), key: key.clone(), result: None };
        tokio::spawn(async move {
            let result = loader(load.key.clone()).await;
            load.result = Some(result.map_err(|error| LoadError::Failed(Arc::new(error))));
            drop(load);
        });
    }
}

/// A running load. Dropping it ends the load, however its task ends.
struct Load<K: Clone + Eq + Hash, V: Clone, E> {
    inner: Arc<Inner<K, V, E>>,
    key: K,
    result: Option<Result<V, LoadError<E>>>,
}

impl<K: Clone + Eq + Hash, V: Clone, E> Drop for Load<K, V, E> {
    fn drop(&mut self) {
        let unfinished = || Err(if thread::panicking() { LoadError::Panicked } else { LoadError::Cancelled });
        let result = self.result.take().unwrap_or_else(unfinished);
        self.inner.shard(&self.key).ended(&self.key, result, Instant::now());
    }
}

/// The answer of a load. A channel that is closed without an answer means a cancelled load.
async fn wait<V: Clone, E>(mut answer: shard::Answer<V, E>) -> Result<V, LoadError<E>> {
    let Ok(answer) = answer.wait_for(Option::is_some).await else { return Err(LoadError::Cancelled) };
    answer.clone().unwrap_or(Err(LoadError::Cancelled))
}

impl<K: Hash, V, E> Inner<K, V, E> {
    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K, V, E>> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash will do")]
        let shard = self.hasher.hash_one(key) as usize % self.shards.len();
        lock(&self.shards[shard])
    }
}

/// Locks a shard. A poisoned lock can be used: if code of a key or a value panics, the state has not changed yet.
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V, E> Clone for Cache<K, V, E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K, V, E> fmt::Debug for Cache<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
