//! The rules: what a caller gets at an instant, and what becomes of a load. No clock, no task; each call is one step
//! under the shard's lock.
//!
//! Invariant: a key is in `loads` from when a caller is told to start its load until that load has ended, and there
//! once at most; a load that a put or an invalidation has outdated never touches `entries`.

use std::{collections::HashMap, hash::Hash, time::Duration};

use quick_cache::unsync;
use tokio::{sync::watch, time::Instant};

use crate::{LoadError, Settings};

/// How many keys of a shard are being loaded at most: a flood of keys whose loads hang must end somewhere.
const LOADS_MAX: usize = 1_024;

/// Where a load's answer will be.
pub(crate) type Answer<V, E> = watch::Receiver<Option<Result<V, LoadError<E>>>>;

pub(crate) struct Shard<K, V, E> {
    settings: Settings,
    refresh_after: Duration,
    entries: unsync::Cache<K, Entry<V, E>>,
    /// Apart from the entries, so that no eviction forgets a load.
    loads: HashMap<K, Load<V, E>>,
}

/// What is known of a key.
struct Entry<V, E> {
    /// The value, and since when.
    value: Option<(V, Instant)>,
    /// How and when the last load failed, if none has come through since.
    failed: Option<(LoadError<E>, Instant)>,
}

struct Load<V, E> {
    answer: watch::Sender<Option<Result<V, LoadError<E>>>>,
    began: Instant,
    outdated: bool,
}

/// What a caller is to do.
pub(crate) enum Found<V, E> {
    /// Nothing.
    Answer(Result<V, LoadError<E>>),
    /// To start the load, which is noted, and go on with this value.
    Refresh(V),
    /// To start the load, which is noted, and wait for it.
    Load(Answer<V, E>),
    /// To wait for the load that is under way.
    Wait(Answer<V, E>),
    /// To wait for this to change, and ask again.
    Outdated(Answer<V, E>),
}

impl<K: Clone + Eq + Hash, V: Clone, E> Shard<K, V, E> {
    pub(crate) fn find(&mut self, key: &K, now: Instant) -> Found<V, E> {
        let (value, failed) =
            self.entries.get(key).map_or((None, None), |entry| (entry.value.as_ref(), entry.failed.as_ref()));
        // Above all others: the way of nearly every call.
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
            // Past its life, a value is served only where its renewal was tried in time.
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

    /// The load of `key` that `find` noted has ended.
    pub(crate) fn ended(&mut self, key: &K, result: Result<V, LoadError<E>>, now: Instant) {
        let Some(load) = self.loads.remove(key) else { return };
        if load.outdated {
            // Those who were waiting before an invalidation; a put has answered them already.
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
