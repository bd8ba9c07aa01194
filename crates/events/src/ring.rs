//! Rings that one thread writes and any number of threads read, each with its cursors.
//!
//! The writer overwrites the oldest event and knows nothing about its readers, so that a write costs the same for any
//! number of readers. A slot consists of atomic words. A reader may find a slot half overwritten, but notices it: if it
//! could read any word of event `n + len`, it can also read that `n + len` events were pushed before (release fence in
//! [`Ring::push`], acquire fence in [`Ring::overwritten`]). A reader reads that count again after the slots, and drops
//! the events that the writer may have begun to overwrite by then.
//!
//! A thread has one ring per kind of event. Events of a frequent kind therefore cannot overwrite those of a rare kind, and
//! a reader sees only the kinds it asked for. Each event carries its number among all events of its thread, so that a
//! reader of several rings can restore the order of publication.
//!
//! Invariants: an event that was not overwritten equals the pushed one; events keep their order; missing events can be
//! counted. Once `published` returns `n`, the rings contain all events below `n`.

use std::sync::OnceLock;

use crate::sync::{
    atomic::{AtomicU64, Ordering, fence},
    own,
};

/// A counter that shares no cache line with others, nor the neighbouring line that processors fetch along with it.
#[repr(align(128))]
struct Count(AtomicU64);

/// One event of eight words fits one cache line.
#[repr(align(64))]
struct Slot<const WORDS: usize>([AtomicU64; WORDS]);

/// A range of events in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first event.
    pub(crate) first: u64,
    /// The event after the last one.
    pub(crate) end: u64,
}

/// The events of one kind from one thread.
pub(crate) struct Ring<const WORDS: usize> {
    pushed: Count,
    len: usize,
    /// Made by the first push: many threads never publish a rare kind, and its ring must take one event of each zone.
    slots: OnceLock<Box<[Slot<WORDS>]>>,
}

impl<const WORDS: usize> Ring<WORDS> {
    /// An empty ring of `len` slots, a power of two of at least 2. The first push allocates all its memory at once. One slot is
    /// always the next one to be written, so that `len - 1` events can be read.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= 2, "a ring's length is a power of two, at least 2");
        Self { pushed: Count(AtomicU64::new(0)), len, slots: OnceLock::new() }
    }

    fn slots(&self) -> &[Slot<WORDS>] {
        let slot = || Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        self.slots.get_or_init(|| std::iter::repeat_with(slot).take(self.len).collect())
    }

    /// An event's words. Load them in any order, then call [`Ring::overwritten`].
    #[inline]
    pub(crate) fn slot(&self, event: u64) -> &[AtomicU64; WORDS] {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
        let index = event as usize & (self.len - 1);
        &self.slots()[index].0
    }

    /// Adds an event; overwrites the oldest one if the ring is full. For one thread only.
    #[inline]
    pub(crate) fn push(&self, words: [u64; WORDS]) {
        let pushed = own(&self.pushed.0);
        fence(Ordering::Release);
        for (slot, word) in self.slot(pushed).iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.pushed.0.store(pushed + 1, Ordering::Release);
    }

    /// The number of events pushed so far. A cursor at this number receives only later events.
    #[inline]
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed.0.load(Ordering::Acquire)
    }

    /// How many events from `from` on are overwritten after `pushed` pushes.
    #[inline]
    pub(crate) fn gone(&self, from: u64, pushed: u64) -> u64 {
        (pushed + 1).saturating_sub(self.len as u64).saturating_sub(from)
    }

    /// The events from `from` on that can be read, at most `max`. Events between `from` and the range are overwritten.
    #[inline]
    pub(crate) fn readable(&self, from: u64, max: usize) -> Range {
        let pushed = self.pushed();
        let first = from + self.gone(from, pushed);
        Range { first, end: pushed.min(first + max as u64) }
    }

    /// Call this after reading a range's slots. Returns how many of its first events may have been overwritten meanwhile.
    /// Ignore the words read for those.
    #[inline]
    pub(crate) fn overwritten(&self, range: Range) -> usize {
        fence(Ordering::Acquire);
        let overwritten = self.gone(range.first, self.pushed.0.load(Ordering::Relaxed));
        usize::try_from(overwritten.min(range.end - range.first)).expect("no longer than the ring")
    }
}

/// Events of one kind, copied so that they can be put in order.
pub(crate) struct Copied<const WORDS: usize, const MAX: usize> {
    events: [[u64; WORDS]; MAX],
    /// The events from `next` to `end` are not handed out yet.
    next: usize,
    end: usize,
}

impl<const WORDS: usize, const MAX: usize> Default for Copied<WORDS, MAX> {
    fn default() -> Self {
        Self { events: [[0; WORDS]; MAX], next: 0, end: 0 }
    }
}

impl<const WORDS: usize, const MAX: usize> Copied<WORDS, MAX> {
    /// Copies the readable events from the cursor on, and moves the cursor to the first of them. Returns how many were lost.
    fn fill(&mut self, ring: &Ring<WORDS>, cursor: &mut u64) -> u64 {
        let range = ring.readable(*cursor, MAX);
        for (event, to) in (range.first..range.end).zip(&mut self.events) {
            *to = ring.slot(event).each_ref().map(|word| word.load(Ordering::Relaxed));
        }
        self.next = ring.overwritten(range);
        self.end = usize::try_from(range.end - range.first).expect("no more than were asked for");
        let before = std::mem::replace(cursor, range.first + self.next as u64);
        *cursor - before
    }

    /// The number of the first event.
    fn number(&self) -> Option<u64> {
        self.events[self.next..self.end].first().map(|event| event[0])
    }

    /// The number after the last event's, if the ring may hold more events.
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
    /// Rings of these lengths, one per kind.
    pub(crate) fn new(lens: impl IntoIterator<Item = usize>) -> Self {
        Self { rings: lens.into_iter().map(Ring::new).collect(), published: Count(AtomicU64::new(0)) }
    }

    /// The ring of a kind.
    #[inline]
    pub(crate) fn ring(&self, kind: usize) -> &Ring<WORDS> {
        &self.rings[kind]
    }

    /// Adds an event to a kind's ring; overwrites the oldest one if the ring is full. Replaces the first word by the
    /// event's number. For one thread only: two writers would corrupt each other's events. The store is sequentially
    /// consistent, as [`crate::bell`] requires.
    #[inline]
    pub(crate) fn publish(&self, kind: usize, mut words: [u64; WORDS]) {
        let number = own(&self.published.0);
        words[0] = number;
        self.rings[kind].push(words);
        self.published.0.store(number + 1, Ordering::SeqCst);
    }

    /// The number of events published so far, of all kinds.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.0.load(Ordering::SeqCst)
    }

    /// Takes events of some kinds from the cursors on, in the order of their numbers. Calls `each` with the index in
    /// `kinds` and the event. Returns how many events were lost. If there are many, one call does not take all.
    pub(crate) fn take_in_order<const MAX: usize>(
        &self,
        kinds: impl Iterator<Item = usize>,
        cursors: &mut [u64],
        copied: &mut [Copied<WORDS, MAX>],
        mut each: impl FnMut(usize, &[u64; WORDS]),
    ) -> u64 {
        // Each ring has all its events below this number. Above it, a later event may be visible before an earlier one of another kind.
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
