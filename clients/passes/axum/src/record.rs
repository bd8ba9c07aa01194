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
    /// Until when each key is kept, in seconds since 1970.
    spent: Mutex<HashMap<String, u64>>,
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
        if spent.len() >= self.most {
            let now_s = std::time::Duration::from_secs_f64(self.clock.now_s()).as_secs();
            spent.retain(|_, end_s| *end_s >= now_s);
        }
        ready(if spent.contains_key(&key) {
            Ok(false)
        } else if spent.len() >= self.most {
            Err(format!("{} passes are remembered already", self.most).into())
        } else {
            spent.insert(key, until_s);
            Ok(true)
        })
    }
}
