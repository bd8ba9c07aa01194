//! Who polled here since the last report: one bit per ticket, set without a lock. A page in which nobody waits any more has no
//! bits.
//!
//! Invariant: a bit that was set is reported by the next drain, or by a later one if that report was given back.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use admission::{PAGE_TICKETS, PAGE_WORDS, PagePolls, Words};
use wait::View;

/// One bit for each ticket of a page, set without a lock.
pub(super) struct Page([AtomicU64; PAGE_WORDS]);

impl Default for Page {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; PAGE_WORDS])
    }
}

impl Page {
    /// Sets the bit of ticket `seq`, which is of this page.
    pub(super) fn note(&self, seq: u64) {
        let bit = 1 << (seq % 64);
        let word = &self.0[(seq % PAGE_TICKETS as u64 / 64) as usize];
        // A bit that is set already is not written again, so that the cache line stays shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes the bits, if there are any.
    pub(super) fn take(&self) -> Option<Box<Words>> {
        let has_bits = self.0.iter().any(|word| word.load(Ordering::Relaxed) != 0);
        has_bits.then(|| Box::new(std::array::from_fn(|i| self.0[i].swap(0, Ordering::Relaxed))))
    }
}

/// The polls of a view's tickets. A zone's successive views share pages.
#[derive(Default)]
pub(super) struct PollMap {
    base_page: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl PollMap {
    /// The map for `view`, with the polls that `self` has for it.
    pub(super) fn for_view(&self, view: &View) -> Self {
        let base_page = view.base / PAGE_TICKETS as u64;
        let pages = (base_page..).zip(&view.pages).map(|(number, page)| {
            let is_full = (number + 1) * PAGE_TICKETS as u64 <= view.next;
            if is_full && page.live == 0 {
                return None;
            }
            let before = self.page(number).map(Arc::clone);
            Some(before.unwrap_or_default())
        });
        Self { base_page, pages: pages.collect() }
    }

    fn page(&self, number: u64) -> Option<&Arc<Page>> {
        let index = number.checked_sub(self.base_page)?;
        self.pages.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// Notes that the holder of `seq` polled.
    pub(super) fn note(&self, seq: u64) {
        if let Some(page) = self.page(seq / PAGE_TICKETS as u64) {
            page.note(seq);
        }
    }

    /// Takes what was noted since the last drain.
    pub(super) fn drain(&self) -> Vec<PagePolls> {
        let mut polls = Vec::new();
        for (page, number) in self.pages.iter().zip(self.base_page..) {
            let Some(page) = page else { continue };
            if let Some(words) = page.take() {
                polls.push(PagePolls { page: number, words });
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

#[cfg(test)]
mod tests {
    use admission::{Page, Policy};

    use super::*;
    use crate::room::current_view::before_the_first;

    #[test]
    fn a_page_in_which_nobody_waits_any_more_costs_nothing() {
        let per_page = PAGE_TICKETS as u64;
        let gone = Arc::new([0; PAGE_WORDS]);
        let page = |live| Page::first(Arc::clone(&gone), live, 0);
        let mut view = before_the_first(Policy::default());
        view.snapshot.pages = vec![page(1), page(0), page(0)];
        view.snapshot.next = 3 * per_page - 1;
        let polls = PollMap::default().for_view(&view);
        let has_bits = |polls: &PollMap| polls.pages.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(has_bits(&polls), [true, false, true], "the last page has a ticket to issue");
        for seq in [5, per_page + 5, 2 * per_page + 5] {
            polls.note(seq);
        }
        let pages = |polls: &PollMap| polls.drain().iter().map(|polls| polls.page).collect::<Vec<_>>();
        assert_eq!(pages(&polls), [0, 2]);

        // A state that was lost and rebuilt may have people there again. Polls noted for the view before are kept.
        polls.note(5);
        view.snapshot.pages[1].live = 1;
        let again = polls.for_view(&view);
        again.note(per_page + 5);
        assert_eq!(pages(&again), [0, 1]);
    }
}
