//! A zone's line: the state machine that a store runs.
//!
//! Three transitions, each atomic: [`Zone::join`] gives out tickets, [`Zone::enter`] decides claims, [`Zone::beat`]
//! takes in who polled and does what is due. Invariants, whatever the calls and whenever they come:
//!
//! - No entry without a slot: the window is asked under the same `now` that is recorded.
//! - A claim is granted only if there is a free slot for every present ticket ahead as well; a ticket is given
//!   directly into the zone only if no present ticket waits.
//! - `gone` bits are only ever set, `next` and `base` only grow.
//! - A ticket is evicted only if it was not seen for the whole idle time while the zone was being asked.
//!
//! The front of the line has appointments. A claim that is not granted is told when its slot falls free and to ask
//! again then; who does not within two of these periods and a bit is *overdue*, and not present any more: keeps the
//! place, holds no slot.
//!
//! Time passes for a segment when it is touched: by `join` the last one, by `enter` those of its claims, by `beat` all.
//! The rules use integers only, and no call but the beat goes over the whole line: a store that runs them in another
//! language is held against [`Zone::dump`], call by call.

mod dump;
mod durable;
mod line;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

use crate::{
    Mode, Now, PagePolls, Policy, Position, Snapshot, SnapshotPage, Tally, Window,
    segment::{Clock, IDLE_AGE, PAGES, SEGMENT_TICKETS, Segment},
};

pub use dump::{Dump, DumpSegment, DumpTicket};
pub use durable::{Delta, Header, Image, Inconsistent};

/// When somebody entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// On the store's clock.
    pub at_ms: u64,
    /// By the wall clock.
    pub unix_s: u64,
}

/// What a holder asks the store about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The ticket's epoch.
    pub epoch: u32,
    /// The ticket's number.
    pub seq: u64,
}

/// The store's word on one ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The holder is in, since then. Asked again, the answer is the same for as long as the pass is good.
    Entered(Entry),
    /// The holder waits.
    Waiting(Position),
    /// Evicted, entered too long ago, or never of this line: take a new ticket.
    Gone,
}

/// Tickets given out.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// Their epoch.
    pub epoch: u32,
    /// The first one's number; the others follow.
    pub first: u64,
    /// When, on the store's clock.
    pub at_ms: u64,
    /// What became of each.
    pub verdicts: Vec<Verdict>,
}

/// Claims decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When, on the store's clock. An entry of this very instant is new; an earlier one is told again.
    pub at_ms: u64,
    /// In the claims' order.
    pub verdicts: Vec<Verdict>,
}

/// When somebody of the front is overdue, and after how long they were asked to come.
#[derive(Clone, Copy, Debug)]
struct Appointment {
    /// Less the zone's `paused_ms` when it was made: a pause puts all of them off at once.
    due_ms: u64,
    poll_in_ms: u64,
}

/// Beats come every second while anybody waits, so a pause of this length, in milliseconds, is the store's, or a
/// server's: it can't be held against those who had an appointment in it...
const PAUSE_MS: u64 = 1_500;
/// ...and after one of this length nobody can be called silent.
const LONG_PAUSE_MS: u64 = 4_000;

/// A zone.
#[derive(Clone)]
pub struct Zone {
    policy: Policy,
    epoch: u32,
    /// The last instant seen; calls with an earlier one are taken to come at this one.
    now_ms: u64,
    next: u64,
    /// The number of the first segment.
    base: u64,
    /// From `base` on; never empty.
    segments: VecDeque<Segment>,
    /// How often everybody was taken as just heard.
    seen_all: u64,
    window: Window,
    appointments: HashMap<u64, Appointment>,
    /// `due_ms` and ticket of each appointment, and of some that are off.
    dues: BinaryHeap<Reverse<(u64, u64)>>,
    /// How long pauses have put off appointments, in all.
    paused_ms: u64,
    /// The highest ticket that ever got an appointment.
    appointed_max: Option<u64>,
    /// How late those come who are asked to come, in milliseconds: a moving mean. The network's share of a poll.
    lateness_ms: i64,
    entries: HashMap<u64, Entry>,
    /// The entries in the order in which they are forgotten.
    entered: VecDeque<(u64, u64)>,
    tally: Tally,
    kept: durable::Unsaved,
}

impl Zone {
    /// An empty line. `epoch` names this life of the line: no two lives of one zone may share it.
    #[must_use]
    pub fn new(policy: Policy, epoch: u32, now: Now) -> Self {
        let mut zone = Self::at(policy, epoch, 0, 0, now.ms);
        zone.segments.push_back(Segment::new(zone.clock()));
        zone
    }

    fn at(policy: Policy, epoch: u32, next: u64, base: u64, now_ms: u64) -> Self {
        Self {
            policy,
            epoch,
            now_ms,
            next,
            base,
            segments: VecDeque::new(),
            seen_all: 0,
            window: Window::new(&policy),
            appointments: HashMap::new(),
            dues: BinaryHeap::new(),
            paused_ms: 0,
            appointed_max: None,
            lateness_ms: 0,
            entries: HashMap::new(),
            entered: VecDeque::new(),
            tally: Tally::default(),
            kept: durable::Unsaved::new(base * PAGES as u64),
        }
    }

    /// The entries of the last minute, as of the last call.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Totals, as of the last call.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally { waiting: self.waiting(), present: self.present(), ..self.tally }
    }

    /// Delta the policy; places, and the entries in the window, stay.
    pub fn set_policy(&mut self, policy: Policy, now: Now) {
        self.advance(now.ms);
        if policy == self.policy {
            return;
        }
        let old = std::mem::replace(&mut self.policy, policy);
        self.window.set_policy(&policy, self.now_ms);
        if (old.polling_period_ms, old.idle_timeout_s) != (policy.polling_period_ms, policy.idle_timeout_s) {
            self.see_everybody();
        }
    }

    /// Takes in who polled since the last beat, does what is due, and shows the zone as it is.
    pub fn beat(&mut self, marks: &[PagePolls], now: Now) -> Snapshot {
        self.advance(now.ms);
        self.mind_appointments();
        // Once as of when the segments were last touched: a report may be as late as a call that hung, and who polled
        // before a generation ended is not to be evicted by its end.
        self.note_polls(marks);
        for segment in 0..self.segments.len() {
            self.touch(segment);
        }
        self.note_polls(marks);
        self.forget();
        self.move_base();
        self.sight()
    }

    /// Lets time pass. Every transition begins with this.
    fn advance(&mut self, now_ms: u64) {
        let past_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        self.window.advance(self.now_ms);
        if past_ms > PAUSE_MS && self.waiting() > 0 {
            if past_ms > LONG_PAUSE_MS {
                self.see_everybody();
            } else {
                self.paused_ms += past_ms;
            }
        }
    }

    /// Who did not come when asked to is not present any more.
    fn mind_appointments(&mut self) {
        while let Some(&Reverse((due_ms, seq))) = self.dues.peek()
            && due_ms + self.paused_ms < self.now_ms
        {
            self.dues.pop();
            if self.appointments.get(&seq).is_some_and(|kept| kept.due_ms == due_ms) {
                self.appointments.remove(&seq);
                if let Some((segment, ticket)) = self.find(seq) {
                    self.segments[segment].overdue(ticket);
                }
            }
        }
    }

    /// Takes everybody who waits as just seen; segments hear of it when they are touched.
    fn see_everybody(&mut self) {
        self.seen_all += 1;
        self.appointments.clear();
        self.dues.clear();
    }

    fn clock(&self) -> Clock {
        // A holder who polls every period has polled in the last two periods and a bit.
        let far_ms = u64::from(self.policy.polling_period_ms) * 2 + line::BIT_MS;
        let generation_ms = self.policy.generation_ms();
        Clock {
            generation: self.now_ms / generation_ms,
            seen_all: self.seen_all,
            back: far_ms.div_ceil(generation_ms).min(IDLE_AGE - 1),
        }
    }

    /// Brings a segment up to now.
    fn touch(&mut self, segment: usize) {
        let clock = self.clock();
        self.tally.evicted += u64::from(self.segments[segment].touch(clock));
    }

    fn note_polls(&mut self, marks: &[PagePolls]) {
        for mark in marks {
            let (segment, page) = (mark.page / PAGES as u64, mark.page % PAGES as u64);
            let meets = self.appointed_max.is_some_and(|seq| segment <= split(seq).0);
            let index = segment.checked_sub(self.base).and_then(|i| usize::try_from(i).ok());
            if let Some(segment) = index.and_then(|i| self.segments.get_mut(i)) {
                #[expect(clippy::cast_possible_truncation, reason = "below 8")]
                segment.mark(page as usize, &mark.words, meets);
            }
        }
    }

    fn forget(&mut self) {
        while let Some(&(at_ms, seq)) = self.entered.front()
            && !self.is_remembered(at_ms)
        {
            self.entered.pop_front();
            self.entries.remove(&seq);
            self.kept.forgotten.push(seq);
        }
    }

    /// Whether who entered then may be told so again.
    fn is_remembered(&self, at_ms: u64) -> bool {
        at_ms + u64::from(self.policy.pass_ttl_s) * 1_000 >= self.now_ms
    }

    fn move_base(&mut self) {
        while let Some(first) = self.segments.front()
            && first.given == SEGMENT_TICKETS
            && (first.live == 0 || sabotaged_base())
        {
            self.segments.pop_front();
            self.base += 1;
            if self.segments.is_empty() {
                self.segments.push_back(Segment::new(self.clock()));
            }
        }
    }

    fn sight(&self) -> Snapshot {
        let mut pages = Vec::with_capacity(self.segments.len() * PAGES);
        for segment in &self.segments {
            pages.extend(SnapshotPage::spread(&segment.gone, segment.given, segment.present));
        }
        Snapshot {
            now_ms: self.now_ms,
            policy: self.policy,
            epoch: self.epoch,
            base: self.base * SEGMENT_TICKETS as u64,
            next: self.next,
            front_end: self.front_end(),
            pages,
            tally: self.tally(),
        }
    }

    /// Behind the last ticket of the front: of those present whose slots fall free soon.
    fn front_end(&self) -> u64 {
        match self.policy.mode {
            Mode::Auto => {}
            Mode::Open => return self.next,
            Mode::Hold | Mode::Closed => return self.base * SEGMENT_TICKETS as u64,
        }
        let (soon_ms, longest) = (self.now_ms + self.policy.front_ms(), self.policy.front_len());
        let mut left = 0_u32;
        for (_, slots) in self.window.upcoming(self.now_ms).take_while(|&(at_ms, _)| at_ms <= soon_ms) {
            left = left.saturating_add(slots);
            if left >= longest {
                break;
            }
        }
        left = left.clamp(1, longest);
        for (segment, number) in self.segments.iter().zip(self.base..) {
            if segment.present >= left {
                return number * SEGMENT_TICKETS as u64 + segment.nth_present(left - 1) as u64 + 1;
            }
            left -= segment.present;
        }
        self.next
    }

    fn waiting(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.live)).sum()
    }

    fn present(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.present)).sum()
    }

    /// The segment (from `base` on) and the ticket in it, for one that was given out.
    fn find(&self, seq: u64) -> Option<(usize, usize)> {
        let (segment, ticket) = split(seq);
        let index = usize::try_from(segment.checked_sub(self.base)?).ok()?;
        (index < self.segments.len() && seq < self.next).then_some((index, ticket))
    }

    fn is_live(&self, seq: u64) -> bool {
        self.find(seq).is_some_and(|(segment, ticket)| self.segments[segment].is_live(ticket))
    }
}

/// The segment a ticket is in, and its number there.
fn split(seq: u64) -> (u64, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "below 65,536")]
    let ticket = (seq % SEGMENT_TICKETS as u64) as usize;
    (seq / SEGMENT_TICKETS as u64, ticket)
}

#[cfg(feature = "sabotage")]
fn sabotaged_base() -> bool {
    crate::sabotage::on(crate::sabotage::Rule::Base)
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged_base() -> bool {
    false
}
