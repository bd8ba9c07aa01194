//! How a publisher gets a sleeping subscriber woken, for the price of reading one word.
//!
//! Who is about to wait *arms* the bell with its kinds and looks once more; who publishes makes the event known and then
//! looks at the bell. All four steps are sequentially consistent, so at least one of the two sees the other: no event
//! stays unheard. The first publisher that finds its kind armed takes all of the arms down and has the ringer woken,
//! the only thread that ever runs a subscriber's waker; the others find the bell silent.
//!
//! Invariant: an event that was not seen by a subscriber's last look before it waits rings the bell.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A bit for each kind that somebody waits for.
#[repr(align(128))]
pub(crate) struct Bell(AtomicU64);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// To be called before the last look.
    pub(crate) fn arm(&self, kinds: u64) {
        self.0.fetch_or(kinds, Ordering::SeqCst);
    }

    /// To be called after an event of one of the `kinds` was made known. Tells whether the caller has to wake the
    /// ringer.
    #[inline]
    pub(crate) fn strike(&self, kinds: u64) -> bool {
        self.0.load(Ordering::SeqCst) & kinds != 0 && self.0.swap(0, Ordering::SeqCst) != 0
    }
}
