//! What a store reports about a zone: who waits, how many are present, and who is inside.

use std::sync::Arc;

use crate::{Estimate, LastDeal, Mode, PAGE_TICKETS, Page, Policy, Window, Words};

/// One bit per ticket of a page: its holder polled since the last report.
#[derive(Clone, Debug)]
pub struct PagePolls {
    /// The page's number: `seq / PAGE_TICKETS`.
    pub page: u64,
    /// One bit for each of the page's tickets.
    pub words: Box<Words>,
}

/// The position of one ticket in the line, at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// 1 + the number of live tickets ahead.
    pub rank: u64,
    /// The number of present tickets ahead.
    pub present_ahead: u64,
    /// The wait from now; `None` while nobody is admitted. A forecast of the crate `wait` fills it in.
    pub estimate: Option<Estimate>,
    /// When the holder should poll again, in milliseconds from now.
    pub poll_in_ms: u32,
    /// When the holder's slot becomes free, in milliseconds from now. Set at the front only.
    pub slot_in_ms: Option<u32>,
}

/// Totals of a zone. All except `waiting` and `present` only grow. In a store that keeps totals those go on after a restart; the others begin at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Live tickets.
    pub waiting: u64,
    /// Live tickets whose holders poll.
    pub present: u64,
    /// Issued tickets, including those that entered at once.
    pub joined: u64,
    /// Entries.
    pub entered: u64,
    /// Places that ended without an entry: the holder was silent, or gave up.
    pub evicted: u64,
    /// Slots that became free while people waited, counted as if each had been used at once.
    pub slots_offered: u64,
    /// Entries from the line.
    pub slots_used: u64,
}

/// Which numbers of an earlier epoch are of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierEpoch {
    /// The epoch.
    pub epoch: u32,
    /// Its first number that is of the line.
    pub from: u64,
    /// The first number behind those.
    pub end: u64,
}

impl EarlierEpoch {
    /// Whether a ticket with this epoch and number is one of them.
    #[must_use]
    pub fn has(&self, epoch: u32, seq: u64) -> bool {
        self.epoch == epoch && (self.from..self.end).contains(&seq)
    }
}

/// A store's report about a zone after a beat. A forecast of the crate `wait` makes a view of it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The instant of the beat, in milliseconds on the store's clock.
    pub now_ms: u64,
    /// The same instant by the store's wall clock, in milliseconds since 1970. With an opening, the wall clock is the one that put the
    /// opening on the zone's clock, so it is not set while an event lasts. No rule reads it.
    pub unix_ms: u64,
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
    /// Tickets below this number belong to the front or approach it: their holders are told the near period.
    pub approach_end: u64,
    /// The longest polling period that people may keep to, in milliseconds. Whoever was told a longer one would be taken for absent.
    pub longest_period_ms: u32,
    /// The pages from `base` on; at least one.
    pub pages: Vec<Page>,
    /// Totals. A store does not know `slots_offered`; a forecast fills it in.
    pub tally: Tally,
    /// The people inside; `None` where nobody counts.
    pub occupancy: Option<Occupancy>,
    /// The entries of the last minute.
    pub window: Arc<Window>,
    /// By which draw the line was dealt last.
    pub drawn: LastDeal,
    /// The line's earlier epochs: the state was lost, and came back. `None` while servers or tickets may still say what a lost state knew,
    /// so that the store must hear of each ticket of another epoch.
    pub earlier: Option<Arc<[EarlierEpoch]>>,
    /// Whether what it shows is as safe as the store promises of decisions; otherwise nobody is let in by the store at present.
    pub is_confirmed: bool,
}

impl Snapshot {
    /// The mode in force: a zone whose policy names a draw is held until the line is dealt by it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.policy.mode_after(self.drawn)
    }

    /// Whether a ticket with this epoch and number is of this line, as far as that is known. So it waits if anybody waits with its number.
    #[must_use]
    pub fn is_of_line(&self, epoch: u32, seq: u64) -> bool {
        let is_known =
            |earlier: &[EarlierEpoch]| self.drawn.has(seq) || earlier.iter().any(|of| of.has(epoch, seq));
        seq < self.next && (epoch == self.epoch || self.earlier.as_deref().is_some_and(is_known))
    }

    /// Whether a draw is to decide the order, and has not yet: also while an operator holds or closes the zone. If the zone is open,
    /// nobody waits for the draw.
    #[must_use]
    pub fn is_undrawn(&self) -> bool {
        let draw = self.policy.opens_at.draw;
        draw != 0 && draw != self.drawn.draw && self.policy.mode != Mode::Open
    }

    /// The live and the present tickets ahead of a ticket; `None` if it is gone. A ticket newer than the snapshot stands behind all
    /// tickets of the snapshot.
    #[must_use]
    pub fn ahead_of(&self, seq: u64) -> Option<(u64, u64)> {
        self.ahead(seq, false)
    }

    /// The live and the present tickets ahead of a ticket, also of one that is gone; `None` if it is before the first page.
    #[must_use]
    pub fn ahead_if_waiting(&self, seq: u64) -> Option<(u64, u64)> {
        self.ahead(seq, true)
    }

    fn ahead(&self, seq: u64, even_if_gone: bool) -> Option<(u64, u64)> {
        if let Some(newer) = seq.checked_sub(self.next) {
            return Some((self.tally.waiting + newer, self.tally.present + newer));
        }
        let offset = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        let page = self.pages.get(offset / PAGE_TICKETS)?;
        let within = offset % PAGE_TICKETS;
        (even_if_gone || !page.is_gone(within)).then(|| page.ahead_of(within))
    }

    /// The rank of a live ticket; `None` if it is gone.
    #[must_use]
    pub fn rank(&self, seq: u64) -> Option<u64> {
        self.ahead_of(seq).map(|(live, _)| live + 1)
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

    /// Checks that the ends are in order and within the line. The pages may be newer than the totals where a store fetches them by
    /// several calls.
    ///
    /// # Panics
    /// In builds with debug assertions, if they are not.
    pub fn check(&self) {
        debug_assert!(
            self.base <= self.next && self.front_end <= self.next,
            "the front is a part of the line"
        );
        debug_assert!(self.approach_end >= self.front_end, "who is in the front has approached it");
        debug_assert!(self.tally.present <= self.tally.waiting, "whoever is present waits");
    }
}

/// The people inside a zone that limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// How many are inside and known.
    pub inside: u64,
    /// How many may be inside: also those who have not shown themselves since the state was lost.
    pub most: u64,
    /// Visits that have ended since they are counted.
    pub ended: u64,
    /// How many the policy allows.
    pub max_active: u32,
    /// Nobody enters before this instant, because nobody knows who is inside until then; 0 if it is known. In milliseconds on the
    /// store's clock.
    pub blind_until_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Now, Opening, Zone};

    const NOW: Now = Now { ms: 0, unix_ms: 0 };

    #[test]
    fn a_zone_is_undrawn_until_its_line_is_dealt_or_an_operator_opens_it() {
        let is_undrawn = |mode, draw, dealt_by| {
            let policy = Policy { mode, opens_at: Opening { unix_s: 1, draw }, ..Policy::default() };
            let mut snapshot = Zone::new(policy, 1, NOW).beat(&[], NOW);
            snapshot.drawn = LastDeal { draw: dealt_by, ..LastDeal::default() };
            snapshot.is_undrawn()
        };
        for mode in [Mode::Auto, Mode::Hold, Mode::Closed] {
            assert_eq!(
                [is_undrawn(mode, 7, 0), is_undrawn(mode, 7, 7), is_undrawn(mode, 0, 0)],
                [true, false, false]
            );
        }
        assert!(!is_undrawn(Mode::Open, 7, 0), "everybody enters at once");
    }
}
