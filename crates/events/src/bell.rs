//! Wakes sleeping subscribers. A publisher pays one read of one word for it.
//!
//! A subscriber that is about to sleep *arms* the bell with its kinds, and then looks for events once more. A publisher
//! first publishes its event, and then reads the bell. All four steps are sequentially consistent, so that at least one of
//! the two sees the other and no event is missed. The first publisher that finds its kind armed clears the bell and wakes
//! the ringer thread. Only the ringer runs the subscribers' wakers. Other publishers find the bell clear.
//!
//! Invariant: an event that a subscriber did not see when it last looked before it sleeps rings the bell.

use crate::sync::atomic::{AtomicU64, Ordering};

/// One bit per kind that a sleeping subscriber waits for.
#[repr(align(128))]
pub(crate) struct Bell(AtomicU64);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Arms the bell for some kinds. Look for events once more after this call.
    pub(crate) fn arm(&self, kinds: u64) {
        self.0.fetch_or(kinds, Ordering::SeqCst);
    }

    /// Call this after an event of one of the `kinds` was published. Returns whether the caller must wake the ringer.
    #[inline]
    pub(crate) fn strike(&self, kinds: u64) -> bool {
        self.0.load(Ordering::SeqCst) & kinds != 0 && self.0.swap(0, Ordering::SeqCst) != 0
    }
}
