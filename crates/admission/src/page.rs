//! The pages of a line: one bit per ticket, and how many people are before each page.
//!
//! Invariant: the counts before a page are the sums of those of the pages before it.

use std::sync::Arc;

use crate::{PAGE_TICKETS, PAGE_WORDS, Words};

/// One page of a snapshot.
#[derive(Clone, Debug)]
pub struct Page {
    /// One bit per ticket: it entered or was evicted.
    pub gone: Arc<Words>,
    /// Live tickets in the pages before this one.
    pub live_before: u64,
    /// Present tickets in the pages before this one.
    pub present_before: u64,
    /// Live tickets in this page.
    pub live: u32,
    /// Present tickets in this page.
    pub present: u32,
    /// The gone tickets before each eighth of the page, so that a poll counts the bits of half an eighth on average.
    gone_before: [u32; EIGHTHS],
}

const EIGHTHS: usize = 8;
const EIGHTH_WORDS: usize = PAGE_WORDS / EIGHTHS;

impl Page {
    /// The first page of a line.
    #[must_use]
    pub fn first(gone: Arc<Words>, live: u32, present: u32) -> Self {
        let (mut gone_before, mut sum) = ([0; EIGHTHS], 0);
        for (before, words) in gone_before.iter_mut().zip(gone.chunks_exact(EIGHTH_WORDS)) {
            *before = sum;
            sum += ones(words);
        }
        Self { gone, live_before: 0, present_before: 0, live, present, gone_before }
    }

    /// The page behind this one.
    fn then(&self, gone: Arc<Words>, live: u32, present: u32) -> Self {
        // Between two lines there may be a thousand segments without tickets, whose pages share their bits, which are counted once.
        let page = if Arc::ptr_eq(&self.gone, &gone) {
            Self { live, present, ..self.clone() }
        } else {
            Self::first(gone, live, present)
        };
        let live_before = self.live_before + u64::from(self.live);
        let present_before = self.present_before + u64::from(self.present);
        Self { live_before, present_before, ..page }
    }

    /// Whether the ticket at `within` is gone.
    #[must_use]
    pub fn is_gone(&self, within: usize) -> bool {
        self.gone[within / 64] >> (within % 64) & 1 == 1
    }

    /// The live and the present tickets of the line before the one at `within`.
    #[must_use]
    pub fn ahead_of(&self, within: usize) -> (u64, u64) {
        let live_here = within as u64 - self.gone_before(within);
        // The present tickets of a page are treated as spread evenly over its live tickets.
        let present_here = live_here * u64::from(self.present) / u64::from(self.live.max(1));
        (self.live_before + live_here, self.present_before + present_here)
    }

    /// The gone tickets of the page before the one at `within`.
    fn gone_before(&self, within: usize) -> u64 {
        let (word, bit) = (within / 64, within % 64);
        let eighth = word / EIGHTH_WORDS;
        let whole = ones(&self.gone[eighth * EIGHTH_WORDS..word]);
        u64::from(self.gone_before[eighth] + whole + (self.gone[word] & ((1 << bit) - 1)).count_ones())
    }
}

/// The bits that are set.
fn ones(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

/// Makes the pages of a line, from its beginning on.
#[derive(Debug)]
pub struct Pages(Vec<Page>);

impl Pages {
    /// No pages yet, and room for some.
    #[must_use]
    pub fn with_capacity(pages: usize) -> Self {
        Self(Vec::with_capacity(pages))
    }

    /// Adds a page in which nobody waits.
    pub fn add_empty(&mut self, gone: &Arc<Words>) {
        self.add(Arc::clone(gone), 0, 0);
    }

    /// Adds the pages of a stretch of `issued` tickets that begins with a page; at least one page.
    ///
    /// The number of present tickets is known for the whole stretch only. They are treated as spread evenly over the live
    /// tickets.
    pub fn add_spread(&mut self, gone: &[Arc<Words>], issued: usize, present: u32) {
        let count = issued.div_ceil(PAGE_TICKETS).clamp(1, gone.len());
        let live_of = |page: usize| {
            let here = (issued - (page * PAGE_TICKETS).min(issued)).min(PAGE_TICKETS);
            u32::try_from(here).unwrap_or(u32::MAX).saturating_sub(ones(&*gone[page]))
        };
        let lives: Vec<u32> = (0..count).map(live_of).collect();
        let live: u64 = lives.iter().copied().map(u64::from).sum();
        let present_before = |live_before: u64| u64::from(present) * live_before / live.max(1);
        let mut before = 0;
        for (gone, live_here) in gone.iter().zip(lives) {
            let here = present_before(before + u64::from(live_here)) - present_before(before);
            self.add(Arc::clone(gone), live_here, u32::try_from(here).unwrap_or(u32::MAX));
            before += u64::from(live_here);
        }
    }

    /// The pages.
    #[must_use]
    pub fn finish(self) -> Vec<Page> {
        self.0
    }

    fn add(&mut self, gone: Arc<Words>, live: u32, present: u32) {
        let page = match self.0.last() {
            Some(last) => last.then(gone, live, present),
            None => Page::first(gone, live, present),
        };
        self.0.push(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_tickets_are_counted_up_to_each_place() {
        // A page whose words have other numbers of bits each (multiples of an odd number).
        let words = std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let page = Page::first(Arc::new(words), 0, 0);
        let mut gone = 0;
        for within in 0..PAGE_TICKETS {
            assert_eq!(page.gone_before(within), gone, "before {within}");
            gone += u64::from(page.is_gone(within));
        }
    }

    #[test]
    fn pages_that_share_their_bits_are_as_if_each_was_counted() {
        let [nobody, some] = [u64::MAX, 5].map(|bits| Arc::new([bits; PAGE_WORDS]));
        let mut pages = Pages::with_capacity(5);
        for (live, gone) in (0..).zip([&some, &nobody, &nobody, &some, &some]) {
            pages.add(Arc::clone(gone), live, live / 2);
        }
        let (mut live_before, mut present_before) = (0, 0);
        for (page, live) in pages.finish().iter().zip(0..) {
            let counted = Page::first(Arc::clone(&page.gone), live, live / 2);
            let counted = Page { live_before, present_before, ..counted };
            assert_eq!(format!("{page:?}"), format!("{counted:?}"));
            (live_before, present_before) =
                (live_before + u64::from(live), present_before + u64::from(live / 2));
        }
    }

    #[test]
    fn present_tickets_of_a_segment_are_spread_over_its_pages() {
        let none = Arc::new([0; PAGE_WORDS]);
        let mut gone = vec![none; 8];
        gone[1] = Arc::new([u64::MAX >> 32; PAGE_WORDS]);
        let spread = |issued, present| {
            let mut pages = Pages::with_capacity(8);
            pages.add_spread(&gone, issued, present);
            pages.finish()
        };
        let pages = spread(2 * PAGE_TICKETS + 100, 1_000);
        let counts: Vec<_> = pages.iter().map(|page| (page.live, page.present)).collect();
        assert_eq!(counts, [(8_192, 661), (4_096, 330), (100, 9)]);
        assert_eq!(spread(0, 0).len(), 1);
    }
}
