//! A cache that is refreshed ahead of its expiry, by one load a key at a time.
//!
//! A value is served for its *life*. From a part of the life on (three quarters, say), the next caller has it
//! loaded again in the background while everybody, that caller too, is served at once: whoever asks often enough
//! never waits after the first load. When loads fail, the last value is served for a bounded time beyond its life.
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
//! // An operator's write is served from now on, whatever a load that began before may bring.
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
//! | up to the life | served | a load begins |
//! | up to `stale_for` beyond the life, and its renewal fails or is under way since before the life ended | served | a load begins |
//! | the same, but nobody had asked for its renewal | waiting for a load; if it fails, served | |
//! | older, or no value | waiting for a load, and told its error | |
//!
//! A load begins only where none is under way for the key, and where the last one did not fail within the last
//! `pause`: until then callers are served, or told that error, at once.
//!
//! # What always holds
//!
//! - No two loads of a key run at once. Whoever needs a load's result shares it, its error too.
//! - A load belongs to no caller: it runs as a task of its own, so a caller that goes away takes nothing along. A
//!   loader that panics, or is cancelled as the runtime stops, is an error to those who wait, and the next caller
//!   after the pause loads again.
//! - [`Cache::put`] and [`Cache::invalidate`] outdate a load that is under way: what it brings is not kept. Who asks
//!   after an invalidation waits until the outdated load has ended and another has been made.
//! - At most `capacity` keys are kept, and at most 1,024 keys of each of up to 16 shards are being loaded.
//!
//! A loader that never ends keeps those who wait for it waiting: give it a time limit of its own. Time is tokio's, so
//! that tests can own it. The life counts from when the value came in, as it does elsewhere; add the loader's time
//! for the age of what it read.
//!
//! # Why not moka alone
//!
//! [moka](https://docs.rs/moka) shares loads (`try_get_with`), but refreshes nothing ahead (its issues 467 and 526
//! ask for it), drops values at their expiry, so none is left to serve when the loader fails, runs the loader inside
//! the first caller, so that a cancelled one makes another start anew, lets an older load overwrite a newer
//! `insert`, keeps no pause after errors, and reads a clock that tests can't turn. Built on it, the loads, their
//! lock, and the values' ages would all be ours, and what is left to it is the table. For that
//! [quick_cache](https://docs.rs/quick_cache) is enough: it is bounded, a flood of new keys does not push out those
//! in use (S3-FIFO), and its unsynchronised form lies under the lock that the loads need anyway, so that each
//! promise above is kept in one step. moka stands beside this crate in its tests and benches.

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

/// Enough that the threads of a large server rarely meet at one.
const SHARDS_MAX: usize = 16;
/// A smaller shard would fill up long before the cache does.
const SHARD_KEYS_MIN: usize = 64;

/// How long values are served, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a value is served without a reason; above zero.
    pub life: Duration,
    /// The part of the life from which on the next caller has the value loaded again; above 0, and up to 1 (never
    /// ahead). The rest of the life should be longer than a load takes.
    pub refresh_at: f64,
    /// For how long beyond its life a value is served while its renewal fails or is under way; may be zero.
    pub stale_for: Duration,
    /// For how long after a failed load of a key no other is begun; may be zero.
    pub pause: Duration,
    /// How many keys are kept at most, with their values or last errors; above 0.
    pub capacity: usize,
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E> {
    /// The loader's own error, shared by all who waited.
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

/// The cache; a clone is a handle to the same one. Values should be cheap to clone, such as `Arc`s: they are cloned
/// under a lock.
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

    /// The value of `key`. Waits only where there is none to be served (see the table above); what `loader` brings
    /// is then kept. It runs as a task of its own, and only if no other load of the key is under way.
    ///
    /// # Errors
    /// Those of the load, where no value is left that may be served.
    ///
    /// # Panics
    /// Outside a tokio runtime, when there is something to load.
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
                    // A put or its end: either way there is something new to be found.
                    let _ = load.changed().await;
                }
            }
        }
    }

    /// Keeps `value` for `key`, and serves it from now on, to those who wait for a load too. What a load that is
    /// under way brings is dropped.
    pub fn put(&self, key: K, value: V) {
        self.inner.shard(&key).put(key, value, Instant::now());
    }

    /// Forgets the value of `key`. What a load that is under way brings goes to those who wait for it already, and
    /// to nobody else.
    pub fn invalidate(&self, key: &K) {
        self.inner.shard(key).invalidate(key);
    }

    /// How many keys are kept; at most the capacity.
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

/// A load that is under way. However its task ends, its being dropped is its end.
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

/// The answer of a load. Its end always leaves one; a channel closed without is a cancelled load all the same.
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

/// Nothing is left half done where a key's or a value's own code panics: the state changes after it has run.
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
