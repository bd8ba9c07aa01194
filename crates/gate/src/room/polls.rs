//! Who polled here since the last report: one bit per ticket, set without a lock.
//!
//! Invariant: a bit that was set is reported by the next drain, or by a later one if that report was given back.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use admission::{PAGE_TICKETS, PAGE_WORDS, PagePolls, View, Words};

/// The polls of one page.
struct Page([AtomicU64; PAGE_WORDS]);

/// The polls of a view's tickets. A zone's successive views share pages.
#[derive(Default)]
pub(super) struct PollMap {
    base_page: u64,
    pages: Vec<Arc<Page>>,
}

impl PollMap {
    /// The map for `view`, with the polls that `self` has for it.
    pub(super) fn for_view(&self, view: &View) -> Self {
        let base_page = view.base / PAGE_TICKETS as u64;
        let pages = (base_page..).take(view.pages.len()).map(|number| {
            let before = self.page(number).map(Arc::clone);
            before.unwrap_or_else(|| Arc::new(Page([const { AtomicU64::new(0) }; PAGE_WORDS])))
        });
        Self { base_page, pages: pages.collect() }
    }

    fn page(&self, number: u64) -> Option<&Arc<Page>> {
        let index = number.checked_sub(self.base_page)?;
        self.pages.get(usize::try_from(index).ok()?)
    }

    /// Notes that the holder of `seq` polled.
    pub(super) fn note(&self, seq: u64) {
        let per_page = PAGE_TICKETS as u64;
        if let Some(page) = self.page(seq / per_page) {
            let bit = 1 << (seq % 64);
            let word = &page.0[(seq % per_page / 64) as usize];
            // A bit that is set already is not written again, so that the cache line stays shared.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Takes what was noted since the last drain.
    pub(super) fn drain(&self) -> Vec<PagePolls> {
        let mut polls = Vec::new();
        for (page, number) in self.pages.iter().zip(self.base_page..) {
            if page.0.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
                let words: Words = std::array::from_fn(|i| page.0[i].swap(0, Ordering::Relaxed));
                polls.push(PagePolls { page: number, words: Box::new(words) });
            }
        }
        polls
    }

    /// Notes again what a failed report had taken.
    pub(super) fn give_back(&self, polls: Vec<PagePolls>) {
        for of_page in polls {
            if let Some(page) = self.page(of_page.page) {
                for (word, bits) in page.0.iter().zip(*of_page.words) {
                    word.fetch_or(bits, Ordering::Relaxed);
                }
            }
        }
    }
}
