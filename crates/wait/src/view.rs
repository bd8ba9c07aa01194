//! A server's knowledge of a zone: enough to answer everybody behind the front without the store.
//!
//! A view is immutable, shared, and at most about a second old. Invariant: a view answers only tickets whose rank can only
//! have fallen since it was made, so that its answers are never too optimistic.

use std::sync::Arc;

use admission::{
    Estimate, Mode, Occupancy, PAGE_TICKETS, PAGE_WORDS, Policy, Position, SnapshotPage, Tally, Words,
};

use crate::{Outlook, Plan};

/// One page of a view.
#[derive(Clone, Debug)]
pub struct ViewPage {
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

impl ViewPage {
    /// A page of a snapshot, behind pages with so many live and present tickets.
    #[must_use]
    pub fn new(page: SnapshotPage, live_before: u64, present_before: u64) -> Self {
        let SnapshotPage { gone, live, present } = page;
        let (mut gone_before, mut sum) = ([0; EIGHTHS], 0);
        for (before, words) in gone_before.iter_mut().zip(gone.chunks_exact(EIGHTH_WORDS)) {
            *before = sum;
            sum += ones(words);
        }
        Self { gone, live_before, present_before, live, present, gone_before }
    }

    /// The same behind another page. Between two lines there may be a thousand segments without tickets, whose pages share their
    /// bits, which are counted once.
    pub(crate) fn behind(
        before: Option<&Self>,
        page: SnapshotPage,
        live_before: u64,
        present_before: u64,
    ) -> Self {
        match before.filter(|before| Arc::ptr_eq(&before.gone, &page.gone)) {
            Some(before) => {
                Self { live_before, present_before, live: page.live, present: page.present, ..before.clone() }
            }
            None => Self::new(page, live_before, present_before),
        }
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

/// A snapshot of a zone plus the forecast.
#[derive(Clone, Debug)]
pub struct View {
    /// The instant of the snapshot, in milliseconds on the store's clock.
    pub now_ms: u64,
    /// The policy in force.
    pub policy: Policy,
    /// The line's epoch.
    pub epoch: u32,
    /// The first ticket of the first page, a multiple of [`PAGE_TICKETS`]. All tickets before it are gone.
    pub base: u64,
    /// The next ticket to be issued.
    pub next: u64,
    /// Tickets below this number belong to the front: the store decides about them.
    pub front_end: u64,
    /// Holders of tickets below this number are told the near period.
    pub approach_end: u64,
    /// The longest polling period that people may keep to, in milliseconds. The store would take people for absent who were told
    /// a longer one.
    pub told_ms: u32,
    /// The pages from `base` on.
    pub pages: Vec<ViewPage>,
    /// How many slots the people ahead will need.
    pub outlook: Arc<Outlook>,
    /// When slots become free.
    pub plan: Arc<Plan>,
    /// Totals.
    pub tally: Tally,
    /// The people inside; `None` where nobody counts.
    pub occupancy: Option<Occupancy>,
}

/// The answer of a view for one ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup {
    /// The ticket waits behind the front.
    Waiting(Position),
    /// Ask the store: the ticket belongs to the front, is gone, is newer than the view, or has another epoch.
    Ask,
}

impl View {
    /// Looks up ticket `seq` at `now_ms` on the store's clock (shortly after the view's instant).
    #[must_use]
    pub fn lookup(&self, epoch: u32, seq: u64, now_ms: u64) -> Lookup {
        if epoch != self.epoch || seq < self.front_end || seq >= self.next {
            return Lookup::Ask;
        }
        self.position(seq, now_ms).map_or(Lookup::Ask, Lookup::Waiting)
    }

    /// The position of a live ticket, in the front or behind it; `None` if the ticket is gone. A ticket newer than the view
    /// stands behind all tickets of the view.
    #[must_use]
    pub fn position(&self, seq: u64, now_ms: u64) -> Option<Position> {
        self.place(seq, now_ms, false)
    }

    /// The position that a ticket of an earlier epoch has if it waits. A view that was made while servers still say what they
    /// remember of that epoch does not show all tickets that wait.
    #[must_use]
    pub fn position_if_waiting(&self, seq: u64, now_ms: u64) -> Position {
        // Numbers between two epochs were never given out, so a newer number says nothing about how many people are between.
        self.place(seq.min(self.next), now_ms, true)
            .unwrap_or_else(|| self.behind(0, 0, self.policy.near_period_ms(), now_ms))
    }

    fn place(&self, seq: u64, now_ms: u64, even_if_gone: bool) -> Option<Position> {
        let poll_in_ms = self.period_ms(seq);
        if let Some(newer) = seq.checked_sub(self.next) {
            let (ahead, present_ahead) = (self.tally.waiting + newer, self.tally.present + newer);
            return Some(self.behind(ahead, present_ahead, poll_in_ms, now_ms));
        }
        let offset = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        let page = self.pages.get(offset / PAGE_TICKETS)?;
        let within = offset % PAGE_TICKETS;
        let (word, bit) = (within / 64, within % 64);
        if page.gone[word] >> bit & 1 == 1 && !even_if_gone {
            return None;
        }
        let live_here = within as u64 - page.gone_before(within);
        let ahead = page.live_before + live_here;
        // The present tickets of a page are treated as spread evenly over its live tickets.
        let present_here = live_here * u64::from(page.present) / u64::from(page.live.max(1));
        let present_ahead = page.present_before + present_here;
        Some(self.behind(ahead, present_ahead, poll_in_ms, now_ms))
    }

    /// Whether anybody entered in the minute before the view was made. Until that is past, what a server knows of the zone matters.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        self.plan.has_entries()
    }

    /// Checks that the ends are in order and within the line. The pages may be newer than the totals where a store fetches them by
    /// several calls.
    ///
    /// # Panics
    /// They are not.
    pub(crate) fn check(&self) {
        debug_assert!(
            self.base <= self.next && self.front_end <= self.next,
            "the front is a part of the line"
        );
        debug_assert!(self.approach_end >= self.front_end, "who is in the front has approached it");
        debug_assert!(self.tally.present <= self.tally.waiting, "whoever is present waits");
    }

    /// Whether a ticket approaches the front or belongs to it. If the whole line does, then newcomers do so, too.
    #[must_use]
    pub fn is_near(&self, seq: u64) -> bool {
        seq < self.approach_end || self.approach_end >= self.next
    }

    /// The polling period of a ticket behind the front, in milliseconds, of a server that is not busy.
    #[must_use]
    pub fn period_ms(&self, seq: u64) -> u32 {
        if self.is_near(seq) { self.policy.near_period_ms() } else { self.policy.polling_period_ms }
    }

    /// The wait of a person with `present_ahead` people ahead, if `policy` came into force at `now_ms`. `None` if that
    /// policy admits nobody. A newcomer to an empty line enters at once while the minute has room.
    #[must_use]
    pub fn estimate_under(&self, policy: &Policy, present_ahead: u64, now_ms: u64) -> Option<Estimate> {
        if policy.mode == Mode::Auto && self.tally.present == 0 && self.plan.has_room(policy, now_ms) {
            return Some(Estimate::NONE);
        }
        if *policy == self.policy {
            return self.outlook.estimate(present_ahead, &self.plan, policy, now_ms);
        }
        let plan = self.plan.under(policy, now_ms);
        self.outlook.under(&plan, now_ms).estimate(present_ahead, &plan, policy, now_ms)
    }

    fn behind(&self, ahead: u64, present_ahead: u64, poll_in_ms: u32, now_ms: u64) -> Position {
        Position {
            rank: 1 + ahead,
            present_ahead,
            estimate: self.outlook.estimate(present_ahead, &self.plan, &self.policy, now_ms),
            poll_in_ms,
            slot_in_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_tickets_are_counted_up_to_each_place() {
        // A page whose words have other numbers of bits each (multiples of an odd number).
        let words = std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let page = ViewPage::new(SnapshotPage { gone: Arc::new(words), live: 0, present: 0 }, 0, 0);
        let mut gone = 0;
        for within in 0..PAGE_TICKETS {
            assert_eq!(page.gone_before(within), gone, "before {within}");
            gone += words[within / 64] >> (within % 64) & 1;
        }
    }

    #[test]
    fn pages_that_share_their_bits_are_as_if_each_was_counted() {
        let [nobody, some] = [u64::MAX, 5].map(|bits| Arc::new([bits; PAGE_WORDS]));
        let page = |gone: &Arc<Words>, live| SnapshotPage { gone: Arc::clone(gone), live, present: live / 2 };
        let mut before = None;
        for (live, gone) in (0..).zip([&some, &nobody, &nobody, &some, &some]) {
            let (quick, slow) = (
                ViewPage::behind(before.as_ref(), page(gone, live), 70, 60),
                ViewPage::new(page(gone, live), 70, 60),
            );
            assert_eq!(format!("{quick:?}"), format!("{slow:?}"));
            before = Some(quick);
        }
    }
}
