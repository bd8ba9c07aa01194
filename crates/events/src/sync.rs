//! The atomics of the rings and the bell. Their tests put others in this place, which try all that memory may do.

pub(crate) use std::sync::atomic;

/// The value, for the only thread that stores any.
#[inline]
pub(crate) fn own(count: &atomic::AtomicU64) -> u64 {
    count.load(atomic::Ordering::Relaxed)
}
