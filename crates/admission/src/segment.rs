//! Sets of tickets as bitmaps, 8,192 tickets a segment.
//!
//! A ticket costs 15 bits: one for *gone* (entered or evicted), one for each of the presence *generations* (a
//! generation is a twelfth of the idle time; thirteen cover it whole), one for *overdue* (was of the front and did
//! not come when asked to). Invariant: `live` is the number of tickets given out here that are not gone.

use std::sync::Arc;

/// Tickets a segment holds.
pub const SEGMENT_TICKETS: usize = 8_192;
/// Words of a segment's bitmap.
pub const SEGMENT_WORDS: usize = SEGMENT_TICKETS / 64;
/// A bitmap over a segment's tickets: ticket `i` is bit `i % 64` of word `i / 64`.
pub type Words = [u64; SEGMENT_WORDS];

/// Generations kept: the twelve of the idle time, and the one that is running.
pub(crate) const GENERATIONS: usize = 13;

/// Which generations count: from `from` up to and including `to`, on the zone's generation clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) gone: Arc<Words>,
    seen: Box<[Words; GENERATIONS]>,
    overdue: Box<Words>,
    /// Tickets given out here; only the last segment has fewer than [`SEGMENT_TICKETS`].
    pub(crate) given: usize,
    pub(crate) live: u32,
    /// Present tickets, as of the last count.
    pub(crate) present: u32,
    /// Whether `gone` changed since it was last kept.
    pub(crate) dirty: bool,
}

fn slot(generation: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below 13")]
    let slot = (generation % GENERATIONS as u64) as usize;
    slot
}

impl Segment {
    pub(crate) fn new() -> Self {
        Self {
            gone: Arc::new([0; SEGMENT_WORDS]),
            seen: Box::new([[0; SEGMENT_WORDS]; GENERATIONS]),
            overdue: Box::new([0; SEGMENT_WORDS]),
            given: 0,
            live: 0,
            present: 0,
            dirty: false,
        }
    }

    /// A segment as it was kept, with `given` tickets given out.
    ///
    /// # Errors
    /// Where a ticket is gone that was never given out.
    pub(crate) fn restore(gone: Words, given: usize) -> Result<Self, &'static str> {
        let mut segment = Self { gone: Arc::new(gone), given, ..Self::new() };
        if (0..SEGMENT_WORDS).any(|w| gone[w] & !segment.given_in(w) != 0) {
            return Err("a ticket is gone that was never given out");
        }
        segment.live = (0..SEGMENT_WORDS).map(|w| segment.live_in(w).count_ones()).sum();
        Ok(segment)
    }

    fn given_in(&self, word: usize) -> u64 {
        match self.given.saturating_sub(word * 64) {
            64.. => u64::MAX,
            some => (1 << some) - 1,
        }
    }

    pub(crate) fn live_in(&self, word: usize) -> u64 {
        self.given_in(word) & !self.gone[word]
    }

    /// The live tickets of a word whose holders polled within `span` and are not overdue.
    pub(crate) fn present_in(&self, word: usize, span: Span) -> u64 {
        let live = self.live_in(word);
        #[cfg(feature = "sabotage")]
        if crate::sabotage::on(crate::sabotage::Rule::Presence) {
            return live;
        }
        if live == 0 { 0 } else { live & !self.overdue[word] & self.seen_in(word, span) }
    }

    fn seen_in(&self, word: usize, span: Span) -> u64 {
        (span.from..=span.to).fold(0, |seen, generation| seen | self.seen[slot(generation)][word])
    }

    pub(crate) fn is_gone(&self, ticket: usize) -> bool {
        self.gone[ticket / 64] >> (ticket % 64) & 1 == 1
    }

    /// Gives out the next ticket; its holder is present, or gone at once.
    pub(crate) fn give(&mut self, generation: u64, gone: bool) {
        let ticket = self.given;
        self.given += 1;
        if gone {
            self.set_gone(ticket);
        } else {
            self.live += 1;
            self.present += 1;
            self.see(ticket, generation);
        }
    }

    /// The holder polled.
    pub(crate) fn see(&mut self, ticket: usize, generation: u64) {
        self.seen[slot(generation)][ticket / 64] |= 1 << (ticket % 64);
        self.overdue[ticket / 64] &= !(1 << (ticket % 64));
    }

    /// All holders polled whose bits are set.
    pub(crate) fn see_all(&mut self, marks: &Words, generation: u64) {
        for ((seen, overdue), mark) in
            self.seen[slot(generation)].iter_mut().zip(&mut *self.overdue).zip(marks)
        {
            *seen |= mark;
            *overdue &= !mark;
        }
    }

    /// The holder did not come when asked to.
    pub(crate) fn set_overdue(&mut self, ticket: usize) {
        self.overdue[ticket / 64] |= 1 << (ticket % 64);
    }

    fn set_gone(&mut self, ticket: usize) {
        Arc::make_mut(&mut self.gone)[ticket / 64] |= 1 << (ticket % 64);
        self.dirty = true;
    }

    /// A live ticket entered.
    pub(crate) fn leave(&mut self, ticket: usize) {
        if !self.is_gone(ticket) {
            self.set_gone(ticket);
            self.live -= 1;
            self.present = self.present.saturating_sub(1);
        }
    }

    /// Starts a generation: nobody was seen in it yet.
    pub(crate) fn start(&mut self, generation: u64) {
        self.seen[slot(generation)] = [0; SEGMENT_WORDS];
    }

    /// Evicts the live tickets not seen within `span`, and says how many those were.
    pub(crate) fn sweep(&mut self, span: Span) -> u32 {
        if self.live == 0 {
            return 0;
        }
        let mut evicted = 0;
        for word in 0..SEGMENT_WORDS {
            let silent = self.live_in(word) & !self.seen_in(word, span);
            if silent != 0 {
                evicted += silent.count_ones();
                Arc::make_mut(&mut self.gone)[word] |= silent;
            }
        }
        self.dirty |= evicted > 0;
        self.live -= evicted;
        evicted
    }

    /// Counts the present.
    pub(crate) fn count(&mut self, span: Span) {
        self.present = if self.live == 0 {
            0
        } else {
            (0..SEGMENT_WORDS).map(|w| self.present_in(w, span).count_ones()).sum()
        };
    }

    /// The live tickets before `ticket`.
    pub(crate) fn live_before(&self, ticket: usize) -> u32 {
        let (word, bit) = (ticket / 64, ticket % 64);
        (0..word).map(|w| self.live_in(w).count_ones()).sum::<u32>()
            + (self.live_in(word) & ((1 << bit) - 1)).count_ones()
    }
}
