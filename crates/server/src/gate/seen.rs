//! Who polled here since the last report: one bit a ticket, set without a lock.
//!
//! Invariant: a bit that was set is reported by the next drain, or by a later one if that report was given back.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use admission::{PAGE_TICKETS, PAGE_WORDS, PagePolls, View, Words};

/// The polls of one segment's tickets.
struct Polls([AtomicU64; PAGE_WORDS]);

/// The polls of a view's tickets. Segments are shared between a zone's successive views.
#[derive(Default)]
pub(super) struct SeenMap {
    base_page: u64,
    segments: Vec<Arc<Polls>>,
}

impl SeenMap {
    /// The map for `view`, with what `self` has of it.
    pub(super) fn for_view(&self, view: &View) -> Self {
        let base_page = view.base / PAGE_TICKETS as u64;
        let segments = (base_page..).take(view.pages.len()).map(|segment| {
            let before = self.segment(segment).map(Arc::clone);
            before.unwrap_or_else(|| Arc::new(Polls([const { AtomicU64::new(0) }; PAGE_WORDS])))
        });
        Self { base_page, segments: segments.collect() }
    }

    fn segment(&self, segment: u64) -> Option<&Arc<Polls>> {
        let index = segment.checked_sub(self.base_page)?;
        self.segments.get(usize::try_from(index).ok()?)
    }

    /// Notes that the holder of `seq` polled.
    pub(super) fn note(&self, seq: u64) {
        let per_segment = PAGE_TICKETS as u64;
        if let Some(polls) = self.segment(seq / per_segment) {
            let bit = 1 << (seq % 64);
            let word = &polls.0[(seq % per_segment / 64) as usize];
            // Most polls find their bit unset; those that do not need not fight for the cache line.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Takes what was noted since the last drain.
    pub(super) fn drain(&self) -> Vec<PagePolls> {
        let mut marks = Vec::new();
        for (polls, segment) in self.segments.iter().zip(self.base_page..) {
            if polls.0.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
                let words: Words = std::array::from_fn(|i| polls.0[i].swap(0, Ordering::Relaxed));
                marks.push(PagePolls { page: segment, words: Box::new(words) });
            }
        }
        marks
    }

    /// Notes again what a report that failed had taken.
    pub(super) fn give_back(&self, marks: Vec<PagePolls>) {
        for mark in marks {
            if let Some(polls) = self.segment(mark.page) {
                for (word, bits) in polls.0.iter().zip(*mark.words) {
                    word.fetch_or(bits, Ordering::Relaxed);
                }
            }
        }
    }
}
