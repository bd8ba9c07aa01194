//! Rings that one thread writes, and that any number of threads read, each at cursors of its own.
//!
//! The writer overwrites the oldest and knows nothing of its readers, so what a write costs does not depend on them.
//! A slot is made of atomic words: a reader may come upon one that is half overwritten, but is not deceived by it.
//! Whoever can read any word of event `n + len` can also read that `n + len` events were pushed before (the release
//! fence in [`Ring::push`], the acquire fence in [`Ring::read`]). A reader asks for that count again after it copied,
//! and drops what had begun to be overwritten by then.
//!
//! A thread has several rings, one for each kind of event. A ring of its own keeps a rare kind from being pushed out by a
//! flood of another, and spares a reader what it did not ask for. Events carry their number among all of their
//! thread's, so a reader of several rings can put them into the order in which they were published.
//!
//! Invariants: what `read` gives was pushed as it is, in that order, each at most once, and what is missing is counted.
//! Once `published` gives `n`, the rings have all events below `n`.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// On a cache line of its own, and away from the neighbour that is fetched along with it.
#[repr(align(128))]
struct Count(AtomicU64);

/// A line of the cache holds one event of eight words.
#[repr(align(64))]
struct Slot<const WORDS: usize>([AtomicU64; WORDS]);

/// What one reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Copied, from the start of the reader's buffer on.
    pub(crate) copied: usize,
    /// How many of those, the first ones, were overwritten meanwhile: they are lost, and counted in `lost`.
    pub(crate) spoiled: usize,
    /// Events from the cursor on that are gone.
    pub(crate) lost: u64,
}

/// The events of one kind that one thread publishes.
pub(crate) struct Ring<const WORDS: usize> {
    pushed: Count,
    slots: Box<[Slot<WORDS>]>,
}

impl<const WORDS: usize> Ring<WORDS> {
    /// An empty ring of `len` slots, a power of two from 2 on; its memory is all there from the start. One slot is
    /// always the next to be written, so `len - 1` events can be read back.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= 2, "a ring's length is a power of two from 2 on");
        let slot = || Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { pushed: Count(AtomicU64::new(0)), slots: std::iter::repeat_with(slot).take(len).collect() }
    }

    #[inline]
    fn slot(&self, event: u64) -> &[AtomicU64; WORDS] {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
        let index = event as usize & (self.slots.len() - 1);
        &self.slots[index].0
    }

    #[inline]
    fn push(&self, words: [u64; WORDS]) {
        let pushed = self.pushed.0.load(Ordering::Relaxed);
        fence(Ordering::Release);
        for (slot, word) in self.slot(pushed).iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.pushed.0.store(pushed + 1, Ordering::Release);
    }

    /// How many events were pushed so far: the cursor of a reader who wants only what comes.
    #[inline]
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed.0.load(Ordering::Acquire)
    }

    /// How many of the events from `from` on are gone, if `pushed` were pushed.
    #[inline]
    pub(crate) fn gone(&self, from: u64, pushed: u64) -> u64 {
        (pushed + 1).saturating_sub(self.slots.len() as u64).saturating_sub(from)
    }

    /// Copies the events from `from` on, as many as there are and `into` holds.
    #[inline]
    pub(crate) fn read(&self, from: u64, into: &mut [[u64; WORDS]]) -> Read {
        let pushed = self.pushed();
        let gone = self.gone(from, pushed);
        let first = from + gone;
        let copied = into.len().min(usize::try_from(pushed - first).unwrap_or(usize::MAX));
        for (event, to) in (first..).zip(&mut into[..copied]) {
            for (word, slot) in to.iter_mut().zip(self.slot(event)) {
                *word = slot.load(Ordering::Relaxed);
            }
        }
        fence(Ordering::Acquire);
        let spoiled = self.gone(first, self.pushed.0.load(Ordering::Relaxed));
        let spoiled = copied.min(usize::try_from(spoiled).unwrap_or(usize::MAX));
        Read { copied, spoiled, lost: gone + spoiled as u64 }
    }
}

/// All rings of one thread.
pub(crate) struct Rings<const WORDS: usize> {
    rings: Box<[Ring<WORDS>]>,
    published: Count,
}

impl<const WORDS: usize> Rings<WORDS> {
    /// Rings of these lengths.
    pub(crate) fn new(lens: impl IntoIterator<Item = usize>) -> Self {
        Self { rings: lens.into_iter().map(Ring::new).collect(), published: Count(AtomicU64::new(0)) }
    }

    /// The ring of a kind.
    #[inline]
    pub(crate) fn ring(&self, kind: usize) -> &Ring<WORDS> {
        &self.rings[kind]
    }

    /// Adds an event to a kind's ring, over the oldest one if the ring is full. The first word is replaced by the
    /// event's number. One thread only: two at once would spoil each other's events. What is loaded sequentially
    /// consistently after this call was not known to whoever does not see the event, see [`crate::bell`].
    #[inline]
    pub(crate) fn publish(&self, kind: usize, mut words: [u64; WORDS]) {
        let number = self.published.0.load(Ordering::Relaxed);
        words[0] = number;
        self.rings[kind].push(words);
        self.published.0.store(number + 1, Ordering::SeqCst);
    }

    /// Events published so far, of all kinds.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.0.load(Ordering::SeqCst)
    }
}
