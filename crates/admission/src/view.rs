//! What a server knows of a zone: enough to answer everybody behind the front without asking the store.
//!
//! A view is a snapshot, at most about a second old; it is immutable and shared. Invariant: a ticket that the view
//! answers is one whose rank can only have fallen since, so an answer from a view is never too good.

use std::sync::Arc;

use crate::{Estimate, Mode, PAGE_TICKETS, Pace, Plan, Policy, Words};

/// The polls of one page's tickets since the last report: one bit a ticket.
#[derive(Clone, Debug)]
pub struct PagePolls {
    /// The page: `seq / PAGE_TICKETS`.
    pub page: u64,
    /// A bit for each of its tickets.
    pub words: Box<Words>,
}

/// Where somebody stands in the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// 1 + the live tickets ahead.
    pub rank: u64,
    /// The present ones among those ahead.
    pub present_ahead: u64,
    /// The wait from now; none while nobody is let in. A zone leaves it to a [`Forecast`](crate::Forecast) to fill in.
    pub estimate: Option<Estimate>,
    /// When to ask again, in milliseconds from now.
    pub poll_in_ms: u32,
    /// When the holder's slot falls free, in milliseconds from now; at the front only.
    pub slot_in_ms: Option<u32>,
}

/// Totals of a zone. All but `waiting` and `present` only grow, from 0 when the store started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Live tickets.
    pub waiting: u64,
    /// Those of them whose holders poll.
    pub present: u64,
    /// Tickets given out, those that entered at once included.
    pub joined: u64,
    /// Entries.
    pub entered: u64,
    /// Evictions.
    pub evicted: u64,
    /// Slots that fell free while a line was there, had each been used the moment it fell free.
    pub slots_offered: u64,
    /// Entries from the line.
    pub slots_used: u64,
}

/// What a store shows of a zone after a beat. [`Forecast::show`](crate::Forecast::show) makes a view of it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When, on the store's clock.
    pub now_ms: u64,
    /// The policy in force.
    pub policy: Policy,
    /// Which life of the line this is.
    pub epoch: u32,
    /// The first ticket number that has bits here; a multiple of [`PAGE_TICKETS`]. All before are gone.
    pub base: u64,
    /// The next ticket number to be given out.
    pub next: u64,
    /// Tickets below this number are the front.
    pub front_end: u64,
    /// The tickets from `base` on; at least one page.
    pub pages: Vec<SnapshotPage>,
    /// Totals; nothing is known here of slots offered.
    pub tally: Tally,
}

/// One page of what a store shows.
#[derive(Clone, Debug)]
pub struct SnapshotPage {
    /// A bit for each ticket that entered or was evicted.
    pub gone: Arc<Words>,
    /// Live tickets here.
    pub live: u32,
    /// Present ones among those.
    pub present: u32,
}

impl SnapshotPage {
    /// The pages of a stretch of the line that begins with a page, as far as tickets were given out there, and at least
    /// one. The present are known for the whole stretch only, and are taken to be spread evenly among the live.
    #[must_use]
    pub fn spread(gone: &[Arc<Words>], given: usize, present: u32) -> Vec<Self> {
        let count = given.div_ceil(PAGE_TICKETS).clamp(1, gone.len());
        let mut left = given;
        let mut pages: Vec<_> = gone[..count]
            .iter()
            .map(|gone| {
                let here = left.min(PAGE_TICKETS);
                left -= here;
                let gone_here: u32 = gone.iter().map(|word| word.count_ones()).sum();
                let live = u32::try_from(here).unwrap_or(u32::MAX).saturating_sub(gone_here);
                Self { gone: Arc::clone(gone), live, present: 0 }
            })
            .collect();
        let live: u64 = pages.iter().map(|page| u64::from(page.live)).sum();
        let mut before = 0;
        for page in &mut pages {
            let present_before = |live_before: u64| u64::from(present) * live_before / live.max(1);
            let here = present_before(before + u64::from(page.live)) - present_before(before);
            page.present = u32::try_from(here).unwrap_or(u32::MAX);
            before += u64::from(page.live);
        }
        pages
    }
}

/// One page of a view.
#[derive(Clone, Debug)]
pub struct ViewPage {
    /// A bit for each ticket that entered or was evicted.
    pub gone: Arc<Words>,
    /// Live tickets in the pages before.
    pub live_before: u64,
    /// Present ones among those.
    pub present_before: u64,
    /// Live tickets here.
    pub live: u32,
    /// Present ones among those.
    pub present: u32,
}

/// A snapshot of a zone.
#[derive(Clone, Debug)]
pub struct View {
    /// When it was taken, on the store's clock.
    pub now_ms: u64,
    /// The policy in force.
    pub policy: Policy,
    /// Which life of the line this is.
    pub epoch: u32,
    /// The first ticket number that has bits here; a multiple of [`PAGE_TICKETS`]. All before are gone.
    pub base: u64,
    /// The next ticket number to be given out.
    pub next: u64,
    /// Tickets below this number are the front: the store decides about them.
    pub front_end: u64,
    /// The tickets from `base` on.
    pub pages: Vec<ViewPage>,
    /// How the line moves.
    pub pace: Pace,
    /// When slots fall free.
    pub plan: Arc<Plan>,
    /// Totals.
    pub tally: Tally,
}

/// What a view knows about a ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup {
    /// It waits behind the front.
    Waiting(Position),
    /// The store has to be asked: the ticket is of the front, gone, newer than the view, or of another epoch.
    Ask,
}

impl View {
    /// What there is to say about ticket `seq` at `now_ms` on the store's clock (a little after the view's).
    #[must_use]
    pub fn look(&self, epoch: u32, seq: u64, now_ms: u64) -> Lookup {
        if epoch != self.epoch || seq < self.front_end || seq >= self.next {
            return Lookup::Ask;
        }
        self.position(seq, now_ms).map_or(Lookup::Ask, Lookup::Waiting)
    }

    /// The place of a live ticket, front or not; none for one that is gone. A ticket newer than the view stands behind
    /// everybody that the view knows.
    #[must_use]
    pub fn position(&self, seq: u64, now_ms: u64) -> Option<Position> {
        if let Some(newer) = seq.checked_sub(self.next) {
            return Some(self.behind(self.tally.waiting + newer, self.tally.present + newer, now_ms));
        }
        let offset = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        let page = self.pages.get(offset / PAGE_TICKETS)?;
        let within = offset % PAGE_TICKETS;
        let (word, bit) = (within / 64, within % 64);
        if page.gone[word] >> bit & 1 == 1 {
            return None;
        }
        let gone_before: u32 = page.gone[..word].iter().map(|w| w.count_ones()).sum::<u32>()
            + (page.gone[word] & ((1 << bit) - 1)).count_ones();
        let live_here = within as u64 - u64::from(gone_before);
        let ahead = page.live_before + live_here;
        // Inside a page the present are taken to be spread evenly among the live.
        let present_here = live_here * u64::from(page.present) / u64::from(page.live.max(1));
        let present_ahead = page.present_before + present_here;
        Some(self.behind(ahead, present_ahead, now_ms))
    }

    /// What somebody is told at `now_ms` who has `present_ahead` people ahead, were `policy` in force from then on; none where
    /// nobody would be let in. Who has nobody ahead because nobody waits is in at once while the minute has room.
    #[must_use]
    pub fn foretell(&self, policy: &Policy, present_ahead: u64, now_ms: u64) -> Option<Estimate> {
        let at_once = Estimate { wait_ms: 0, low_ms: 0, high_ms: 0 };
        if policy.mode == Mode::Auto && self.tally.present == 0 && self.plan.has_room(policy, now_ms) {
            return Some(at_once);
        }
        let other;
        let plan = if *policy == self.policy {
            &*self.plan
        } else {
            other = self.plan.under(policy, now_ms);
            &other
        };
        plan.estimate(present_ahead, &self.pace, policy, now_ms)
    }

    fn behind(&self, ahead: u64, present_ahead: u64, now_ms: u64) -> Position {
        Position {
            rank: 1 + ahead,
            present_ahead,
            estimate: self.plan.tell(1 + ahead, present_ahead, &self.pace, &self.policy, now_ms),
            poll_in_ms: self.policy.polling_period_ms,
            slot_in_ms: None,
        }
    }
}
