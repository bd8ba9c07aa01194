//! Rings that one thread writes, and that any number of threads read, each at cursors of its own.
//!
//! The writer overwrites the oldest and knows nothing of its readers, so what a write costs does not depend on them.
//! A slot is made of atomic words: a reader may come upon one that is half overwritten, but is not deceived by it.
//! Whoever can read any word of event `n + len` can also read that `n + len` events were pushed before (the release
//! fence in [`Ring::push`], the acquire fence in [`Ring::spoiled`]). A reader asks for that count again after it read,
//! and drops what had begun to be overwritten by then.
//!
//! A thread has several rings, one for each kind of event. A ring of its own keeps a rare kind from being pushed out by a
//! flood of another, and spares a reader what it did not ask for. Events carry their number among all of their
//! thread's, so a reader of several rings can put them into the order in which they were published.
//!
//! Invariants: what is not spoiled was pushed as it is, in that order, and what is missing can be counted.
//! Once `published` gives `n`, the rings have all events below `n`.

use crate::sync::{
    atomic::{AtomicU64, Ordering, fence},
    own,
};

/// On a cache line of its own, and away from the neighbour that is fetched along with it.
#[repr(align(128))]
struct Count(AtomicU64);

/// A line of the cache holds one event of eight words.
#[repr(align(64))]
struct Slot<const WORDS: usize>([AtomicU64; WORDS]);

/// A stretch of a ring that a reader looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The first event of it.
    pub(crate) first: u64,
    /// Where it ends.
    pub(crate) end: u64,
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

    /// An event's words, to be loaded in any order; see [`Ring::spoiled`].
    #[inline]
    pub(crate) fn slot(&self, event: u64) -> &[AtomicU64; WORDS] {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
        let index = event as usize & (self.slots.len() - 1);
        &self.slots[index].0
    }

    /// Adds an event, over the oldest one if the ring is full. One thread only.
    #[inline]
    pub(crate) fn push(&self, words: [u64; WORDS]) {
        let pushed = own(&self.pushed.0);
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

    /// The events from `from` on that are there, `max` at most. Those that the stretch does not begin with are gone.
    #[inline]
    pub(crate) fn look(&self, from: u64, max: usize) -> Look {
        let pushed = self.pushed();
        let first = from + self.gone(from, pushed);
        Look { first, end: pushed.min(first + max as u64) }
    }

    /// To be called after the slots of a stretch were read: how many of its events, the first ones, may have been
    /// overwritten meanwhile. What was read of them is not to be believed.
    #[inline]
    pub(crate) fn spoiled(&self, look: Look) -> usize {
        fence(Ordering::Acquire);
        let spoiled = self.gone(look.first, self.pushed.0.load(Ordering::Relaxed));
        usize::try_from(spoiled.min(look.end - look.first)).expect("no longer than the ring")
    }
}

/// Events of one kind, copied to be put in order.
pub(crate) struct Copied<const WORDS: usize, const MAX: usize> {
    events: [[u64; WORDS]; MAX],
    /// Those from here to the end are not yet in order.
    next: usize,
    end: usize,
}

impl<const WORDS: usize, const MAX: usize> Default for Copied<WORDS, MAX> {
    fn default() -> Self {
        Self { events: [[0; WORDS]; MAX], next: 0, end: 0 }
    }
}

impl<const WORDS: usize, const MAX: usize> Copied<WORDS, MAX> {
    /// Copies what the ring has from the cursor on, and moves the cursor to the first of it. Gives how many were lost.
    fn fill(&mut self, ring: &Ring<WORDS>, cursor: &mut u64) -> u64 {
        let look = ring.look(*cursor, MAX);
        for (event, to) in (look.first..look.end).zip(&mut self.events) {
            *to = ring.slot(event).each_ref().map(|word| word.load(Ordering::Relaxed));
        }
        self.next = ring.spoiled(look);
        self.end = usize::try_from(look.end - look.first).expect("no more than were asked for");
        let before = std::mem::replace(cursor, look.first + self.next as u64);
        *cursor - before
    }

    /// The first one's number.
    fn number(&self) -> Option<u64> {
        self.events[self.next..self.end].first().map(|event| event[0])
    }

    /// Behind the last one's number, if the ring may have more.
    fn known(&self) -> Option<u64> {
        self.events[self.next..].last().filter(|_| self.end == MAX).map(|event| event[0] + 1)
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
        let number = own(&self.published.0);
        words[0] = number;
        self.rings[kind].push(words);
        self.published.0.store(number + 1, Ordering::SeqCst);
    }

    /// Events published so far, of all kinds.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.0.load(Ordering::SeqCst)
    }

    /// Takes what some kinds' rings have from the cursors on, in the order of the numbers; `each` has the kind's place
    /// among those, and the event. Gives how many were lost. Not all at once if there is much.
    pub(crate) fn take_in_order<const MAX: usize>(
        &self,
        kinds: impl Iterator<Item = usize>,
        cursors: &mut [u64],
        copied: &mut [Copied<WORDS, MAX>],
        mut each: impl FnMut(usize, &[u64; WORDS]),
    ) -> u64 {
        // All rings have what is below this. Beyond it a later event may be there before an earlier one of another kind.
        let mut known = self.published();
        let mut lost = 0;
        for ((kind, cursor), copied) in kinds.zip(&mut *cursors).zip(&mut *copied) {
            lost += copied.fill(self.ring(kind), cursor);
            known = known.min(copied.known().unwrap_or(known));
        }
        let due = |copied: &[Copied<WORDS, MAX>]| {
            let first = |(which, of): (usize, &Copied<WORDS, MAX>)| Some((of.number()?, which));
            copied.iter().enumerate().filter_map(first).min().filter(|&(number, _)| number < known)
        };
        while let Some((_, which)) = due(copied) {
            let of = &mut copied[which];
            each(which, &of.events[of.next]);
            of.next += 1;
            cursors[which] += 1;
        }
        lost
    }
}
