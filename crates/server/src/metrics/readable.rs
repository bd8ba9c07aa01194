//! Handles whose value the server also reads.
//!
//! A handle of the crate `metrics` can only be written to. These keep the number beside it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A counter that can be read.
#[derive(Clone, Debug)]
pub struct ReadableCounter {
    value: Arc<AtomicU64>,
    shown: metrics::Counter,
}

impl ReadableCounter {
    pub(super) fn new(shown: metrics::Counter) -> Self {
        Self { value: Arc::default(), shown }
    }

    /// Adds 1.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Adds `count`.
    pub fn inc_by(&self, count: u64) {
        self.value.fetch_add(count, Relaxed);
        self.shown.increment(count);
    }

    /// The total.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }
}

/// A gauge of whole numbers that can be read.
#[derive(Clone, Debug)]
pub struct ReadableGauge {
    value: Arc<AtomicU64>,
    shown: metrics::Gauge,
}

impl ReadableGauge {
    pub(super) fn new(shown: metrics::Gauge) -> Self {
        Self { value: Arc::default(), shown }
    }

    /// Adds 1.
    pub fn inc(&self) {
        self.value.fetch_add(1, Relaxed);
        self.shown.increment(1.0);
    }

    /// Takes 1 away. Not below 0: each call follows one of [`Self::inc`].
    pub fn dec(&self) {
        self.value.fetch_sub(1, Relaxed);
        self.shown.decrement(1.0);
    }

    /// Changes it. Only one task may write it.
    pub fn set(&self, value: u32) {
        self.value.store(value.into(), Relaxed);
        self.shown.set(value);
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }
}
