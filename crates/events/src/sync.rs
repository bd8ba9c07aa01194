//! The atomics of the rings and the bell. The loom tests replace them to try every behaviour that memory allows.

pub(crate) use std::sync::atomic;

/// Reads a value that only this thread stores.
#[inline]
pub(crate) fn own(count: &atomic::AtomicU64) -> u64 {
    count.load(atomic::Ordering::Relaxed)
}
