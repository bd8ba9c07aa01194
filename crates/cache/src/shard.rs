//! The rules of one shard: what a caller gets at an instant, and how a load changes the entries. No clock, no task; each call
//! is one step under the shard's lock.
//!
//! Invariant: a key is in `loads` at most once, from when a caller is told to start its load until that load has ended. A
//! load that was outdated by a put or an invalidation never changes `entries`.

use std::{collections::HashMap, hash::Hash, time::Duration};

use quick_cache::unsync;
use tokio::{sync::watch, time::Instant};

use crate::{LoadError, Settings};

/// How many keys a shard loads at once. This bounds a flood of keys whose loads hang.
const LOADS_MAX: usize = 1_024;

/// The channel for a load's answer.
pub(crate) type Answer<V, E> = watch::Receiver<Option<Result<V, LoadError<E>>>>;

pub(crate) struct Shard<K, V, E> {
    settings: Settings,
    refresh_after: Duration,
    entries: unsync::Cache<K, Entry<V, E>>,
    /// Separate from the entries, so that an eviction does not lose a load.
    loads: HashMap<K, Load<V, E>>,
}

/// What the shard knows about a key.
struct Entry<V, E> {
    /// The value, and when it arrived.
    value: Option<(V, Instant)>,
    /// The last load's error and its instant, if no load succeeded since.
    failed: Option<(LoadError<E>, Instant)>,
}

struct Load<V, E> {
    answer: watch::Sender<Option<Result<V, LoadError<E>>>>,
    began: Instant,
    outdated: bool,
}

/// What a caller has to do.
pub(crate) enum Found<V, E> {
    /// Use this result.
    Answer(Result<V, LoadError<E>>),
    /// Start the load, which is noted already, and use this value.
    Refresh(V),
    /// Start the load, which is noted already, and wait for it.
    Load(Answer<V, E>),
    /// Wait for the running load.
    Wait(Answer<V, E>),
    /// Wait for a change of this channel, and ask again.
    Outdated(Answer<V, E>),
}

impl<K: Clone + Eq + Hash, V: Clone, E> Shard<K, V, E> {
    pub(crate) fn find(&mut self, key: &K, now: Instant) -> Found<V, E> {
        let (value, failed) =
            self.entries.get(key).map_or((None, None), |entry| (entry.value.as_ref(), entry.failed.as_ref()));
        // The path of nearly every call comes first.
        if let Some((value, since)) = value
            && now.duration_since(*since) < self.refresh_after
        {
            return Found::Answer(Ok(value.clone()));
        }
        let Settings { life, stale_for, pause, .. } = self.settings;
        let load = self.loads.get(key);
        let full = load.is_none() && self.loads.len() >= LOADS_MAX;
        let paused = failed.filter(|(_, at)| now.duration_since(*at) < pause);
        if let Some((value, since)) = value {
            let age = now.duration_since(*since);
            // Beyond its life, a value is served only if a load was started in time.
            let tried = failed.is_some() || full || load.is_some_and(|load| load.began < *since + life);
            if age < life || (tried && age < life + stale_for) {
                let value = value.clone();
                if load.is_some() || full || paused.is_some() {
                    return Found::Answer(Ok(value));
                }
                self.begin(key, now);
                return Found::Refresh(value);
            }
        }
        match load {
            Some(load) if load.outdated => Found::Outdated(load.answer.subscribe()),
            Some(load) => Found::Wait(load.answer.subscribe()),
            None => match paused {
                Some((error, _)) => Found::Answer(Err(error.clone())),
                None if full => Found::Answer(Err(LoadError::Busy)),
                None => Found::Load(self.begin(key, now)),
            },
        }
    }

    fn begin(&mut self, key: &K, now: Instant) -> Answer<V, E> {
        let (sender, answer) = watch::channel(None);
        self.loads.insert(key.clone(), Load { answer: sender, began: now, outdated: false });
        answer
    }
}

impl<K: Eq + Hash, V, E> Shard<K, V, E> {
    pub(crate) fn new(settings: Settings, capacity: usize) -> Self {
        Self {
            settings,
            refresh_after: settings.life.mul_f64(settings.refresh_at),
            entries: unsync::Cache::new(capacity),
            loads: HashMap::new(),
        }
    }

    pub(crate) fn kept(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn invalidate(&mut self, key: &K) {
        self.entries.remove(key);
        if let Some(load) = self.loads.get_mut(key) {
            load.outdated = true;
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone, E> Shard<K, V, E> {
    pub(crate) fn put(&mut self, key: K, value: V, now: Instant) {
        if let Some(load) = self.loads.get_mut(&key) {
            load.outdated = true;
            load.answer.send_replace(Some(Ok(value.clone())));
        }
        self.entries.insert(key, Entry { value: Some((value, now)), failed: None });
    }

    /// Ends the load of `key` that `find` noted.
    pub(crate) fn ended(&mut self, key: &K, result: Result<V, LoadError<E>>, now: Instant) {
        let Some(load) = self.loads.remove(key) else { return };
        if load.outdated {
            // Answers callers from before an invalidation. After a put they have their answer already.
            load.answer.send_if_modified(|answer| {
                let unanswered = answer.is_none();
                if unanswered {
                    *answer = Some(result);
                }
                unanswered
            });
            return;
        }
        let Settings { life, stale_for, .. } = self.settings;
        let (entry, answer) = match result {
            Ok(value) => (Entry { value: Some((value.clone(), now)), failed: None }, Ok(value)),
            Err(error) => {
                let usable = |(_, since): &(V, Instant)| now.duration_since(*since) < life + stale_for;
                let last = self.entries.remove(key).and_then(|(_, entry)| entry.value).filter(usable);
                let answer = last.as_ref().map_or(Err(error.clone()), |(value, _)| Ok(value.clone()));
                (Entry { value: last, failed: Some((error, now)) }, answer)
            }
        };
        self.entries.insert(key.clone(), entry);
        load.answer.send_replace(Some(answer));
    }
}
