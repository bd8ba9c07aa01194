//! Which passes were accepted.

use std::{
    collections::HashMap,
    error::Error,
    future::{Future, ready},
    sync::{Mutex, PoisonError},
};

use crate::clock::Clock;

/// How many passes one process remembers: some minutes' worth.
pub(crate) const MOST: usize = 1_000_000;

/// The record of spent passes, which all processes of a service must share. A closure of two arguments is one, too.
pub trait Spend: Send + Sync + 'static {
    /// Records that the pass of this key was accepted, and returns whether it is the first time. It must be atomic among all that share
    /// the record, and the key must be kept until `until_s`, in seconds since 1970.
    ///
    /// # Errors
    /// If the record does not answer. Then nobody enters. The same happens after 5 s.
    fn spend(
        &self,
        key: String,
        until_s: u64,
    ) -> impl Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send;
}

impl<F, R> Spend for F
where
    F: Fn(String, u64) -> R + Send + Sync + 'static,
    R: Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send,
{
    fn spend(
        &self,
        key: String,
        until_s: u64,
    ) -> impl Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send {
        self(key, until_s)
    }
}

/// A record in this process. It knows nothing of other processes, and forgets all when the process ends.
pub struct Memory {
    clock: Clock,
    most: usize,
    spent: Mutex<Spent>,
}

#[derive(Default)]
struct Spent {
    /// Until when each key is kept, in seconds since 1970.
    ends_s: HashMap<String, u64>,
    /// When to look for what has expired: not before something has, and once in a second at most. A look goes through all.
    look_s: u64,
}

impl Memory {
    pub(crate) fn new(clock: Clock, most: usize) -> Self {
        Self { clock, most, spent: Mutex::default() }
    }
}

impl Spend for Memory {
    fn spend(
        &self,
        key: String,
        until_s: u64,
    ) -> impl Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let Spent { ends_s, look_s } = &mut *spent;
        let now_s = std::time::Duration::from_secs_f64(self.clock.now_s()).as_secs();
        if ends_s.len() >= self.most && *look_s < now_s {
            ends_s.retain(|_, end_s| *end_s >= now_s);
            *look_s = ends_s.values().copied().min().unwrap_or(u64::MAX).max(now_s + 1);
        }
        ready(if ends_s.contains_key(&key) {
            Ok(false)
        } else if ends_s.len() >= self.most {
            Err(format!("{} passes are remembered already", self.most).into())
        } else {
            *look_s = if ends_s.is_empty() { until_s } else { until_s.min(*look_s) };
            ends_s.insert(key, until_s);
            Ok(true)
        })
    }
}
