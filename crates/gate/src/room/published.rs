//! Which entries were published: one bit per ticket.
//!
//! The store reports an entry as often as it is asked, and its first answer may be lost, so its answer does not show
//! whether an entry is new. Invariant: for each entry, `note` returns true exactly once, for as long as the entry can be
//! reported.

use std::collections::HashMap;

use admission::{PAGE_TICKETS, PAGE_WORDS, Words};

/// For how long an entry can be reported again, in milliseconds: the longest life of a pass, and 100 s.
const REPORTED_FOR_MS: u64 = 3_700_000;

/// The published entries of one page.
struct PageEntries {
    bits: Box<Words>,
    /// When an entry was noted last.
    noted_ms: u64,
}

/// The published entries of a zone.
#[derive(Default)]
pub(super) struct PublishedEntries {
    /// By epoch and page.
    pages: HashMap<(u32, u64), PageEntries>,
}

impl PublishedEntries {
    /// Notes an entry at `now_ms` on any clock that only goes forward; returns whether it is new.
    pub(super) fn note(&mut self, epoch: u32, seq: u64, now_ms: u64) -> bool {
        let per_page = PAGE_TICKETS as u64;
        let at = (epoch, seq / per_page);
        if !self.pages.contains_key(&at) {
            self.pages.retain(|_, page| page.noted_ms + REPORTED_FOR_MS >= now_ms);
        }
        let page = self
            .pages
            .entry(at)
            .or_insert_with(|| PageEntries { bits: Box::new([0; PAGE_WORDS]), noted_ms: now_ms });
        page.noted_ms = page.noted_ms.max(now_ms);
        let word = &mut page.bits[(seq % per_page / 64) as usize];
        let bit = 1 << (seq % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_new_once_and_old_pages_are_dropped() {
        let mut published = PublishedEntries::default();
        assert!(published.note(1, 7, 1_000) && published.note(1, 8, 1_000) && published.note(2, 7, 1_000));
        assert!(!published.note(1, 7, 1_000));
        assert!(!published.note(1, 8, 3_000_000) && !published.note(2, 7, 1_000));
        assert!(published.note(2, 100_000, 3_000_000 + REPORTED_FOR_MS));
        assert_eq!(published.pages.len(), 2, "the page of the second epoch is old");
        assert!(!published.note(1, 7, 3_000_000));
    }
}
