//! A zone's line: the state machine that a store runs.
//!
//! Calls of people, visitors and servers make six transitions, each atomic. [`Zone::join`] issues tickets, [`Zone::enter`] decides
//! claims, [`Zone::leave`] gives up places and ends visits, [`Zone::beat`] takes in polls and does what is due, [`Zone::visits`] counts the people inside, and
//! [`Zone::deal`] gives numbers by lot. `lua/` has the same transitions as scripts. Most rules have the same function name in both; a helper
//! such as `by_segment` may share its name by chance.
//!
//! Invariants, for any calls at any time:
//!
//! - Nobody enters without a slot: the window is checked and recorded under the same `now`.
//! - A claim is granted only if every present ticket ahead has a free slot too. A newcomer enters at once only if no
//!   present ticket waits.
//! - `gone` bits are only set, never cleared. `next` and `base` only grow.
//! - A ticket is evicted only if its holder gave up the place, or was silent for the whole idle time while the zone received calls.
//! - A ticket begins one visit: a claim returns its entry until its holder leaves, and never again.
//!
//! The front of the line has appointments. The reply to a claim that is not granted says when the slot becomes free and
//! when to ask again; a beat makes appointments for tickets that come into the front. A holder who does not claim within two
//! of these periods and twice [`line::GRACE_MS`] is *overdue*: the holder keeps the place, but is not present any more and
//! holds no slot until the next claim. Only claims count, because a poll that a server refused is reported, too.
//!
//! Time passes for a segment when it is touched. `join` touches the last segment, `enter` those of its claims, `beat` all.
//! The rules use integers only, and only a beat goes over the whole line. A store that runs them in another language is
//! compared with [`Zone::dump`], call by call.

mod bind;
mod draw;
mod dump;
mod durable;
mod invariants;
mod leave;
mod line;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    LastDeal, LongestPeriod, Mode, Now, Occupancy, PagePolls, Pages, Policy, Position, SlotState, Snapshot,
    Tally, Window, Words,
    inside::Inside,
    policy::longest_near_period_ms,
    segment::{Clock, HEARD, PAGES, SEGMENT, SEGMENT_TICKETS, Segment, split},
};

pub use dump::{Dump, DumpSegment, DumpTicket};
pub use durable::{Delta, Header, Image, Inconsistent, Totals};
pub use leave::{Departure, Leaver, Proof};

/// The most numbers that a line spans, from the first kept segment to its end. A store refuses joins beyond it, and an image
/// with more is not the state of any zone: it would need too much memory.
pub const MOST_NUMBERS: u64 = 1 << 28;

/// When a ticket entered, and for how long its pass is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Milliseconds on the store's clock.
    pub at_ms: u64,
    /// Seconds since 1970-01-01 UTC by the wall clock.
    pub unix_s: u64,
    /// The life of the pass in seconds, by the policy of that instant. A later policy does not change it. 0 after the holder left.
    pub life_s: u32,
}

impl Entry {
    /// The last instant, in milliseconds on the store's clock, at which a repeated claim returns this entry.
    #[must_use]
    pub fn expires_ms(&self) -> u64 {
        self.at_ms + u64::from(self.life_s) * 1_000
    }
}

/// A holder's request to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The ticket's epoch.
    pub epoch: u32,
    /// The ticket's number.
    pub seq: u64,
}

/// The store's decision about one ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The holder entered. Repeated claims return the same entry while the pass is valid.
    Entered(Entry),
    /// The holder waits.
    Waiting(Position),
    /// Evicted, entered too long ago, or never issued by this line. The holder needs a new ticket.
    Gone,
}

/// The reply to [`Zone::join`].
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The epoch of the tickets.
    pub epoch: u32,
    /// The number of the first ticket; the others follow it.
    pub first: u64,
    /// The instant of the call, in milliseconds on the store's clock.
    pub at_ms: u64,
    /// The policy by which the store decided. A store without the register knows the fields that the rules use, and has the others'
    /// defaults.
    pub policy: Policy,
    /// One verdict per ticket, without estimates.
    pub verdicts: Vec<Verdict>,
    /// The slots after the call.
    pub slots: SlotState,
}

/// The reply to [`Zone::enter`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The instant of the call, in milliseconds on the store's clock. An entry with this instant is new; an earlier one is repeated.
    pub at_ms: u64,
    /// The policy by which the store decided, as in [`Joined::policy`].
    pub policy: Policy,
    /// One verdict per claim, in the claims' order, without estimates.
    pub verdicts: Vec<Verdict>,
    /// The slots after the call.
    pub slots: SlotState,
    /// By which draw the line was dealt last.
    pub drawn: LastDeal,
}

/// When a holder of the front is overdue, and after how long the holder was asked to come (0 if a beat made the
/// appointment, without an answer to the holder).
#[derive(Clone, Copy, Debug)]
struct Appointment {
    /// Less the zone's `paused_ms` when it was made, so that a pause postpones all appointments at once.
    due_ms: u64,
    poll_in_ms: u64,
}

/// Beats come every second while anybody waits. A longer time without a call, in milliseconds, is a pause of the store or of
/// a server. A pause postpones all appointments.
const PAUSE_MS: u64 = 1_500;
/// After a pause of this length, in milliseconds, all holders are treated as just heard.
const LONG_PAUSE_MS: u64 = 4_000;

/// Beyond two polling periods, how long people have to ask again before eviction goes on, in milliseconds.
const SPARE_MS: u64 = 5_000;

/// One zone's line, window and totals.
#[derive(Clone)]
pub struct Zone {
    policy: Policy,
    epoch: u32,
    /// The latest instant of any call. A call with an earlier instant is treated as if it came now.
    now_ms: u64,
    next: u64,
    /// The number of the first segment.
    base: u64,
    /// The segments from `base` on; never empty.
    segments: VecDeque<Segment>,
    /// See [`Clock::seen_all`].
    seen_all: u64,
    /// Until when nobody is evicted, because people may come back later than a new idle time allows.
    spare_until_ms: u64,
    /// Shared with the replies: a call that changes it while a reply is read copies it.
    window: Arc<Window>,
    /// The longest period that people may keep to beside the policy's.
    longest_period: LongestPeriod,
    /// Where the approach ended lately: instants and tickets. The oldest is the newest that everybody has heard of.
    marks: VecDeque<(u64, u64)>,
    appointments: HashMap<u64, Appointment>,
    /// `due_ms` and ticket of each appointment. May contain cancelled ones.
    dues: BinaryHeap<Reverse<(u64, u64)>>,
    /// The sum of all pauses that postponed appointments.
    paused_ms: u64,
    /// How late holders come after they were asked to, in milliseconds: a moving mean. It measures the network's share of a
    /// poll.
    lateness_ms: i64,
    entries: HashMap<u64, Entry>,
    /// The addresses that entries are bound to, by ticket.
    bound: HashMap<u64, u64>,
    /// When each entry expires, and its ticket.
    expiries: BinaryHeap<Reverse<(u64, u64)>>,
    tally: Tally,
    inside: Inside,
    drawn: LastDeal,
    unsaved: durable::Unsaved,
}

impl Zone {
    /// A zone with an empty line. No two lines of one zone may have the same `epoch`.
    #[must_use]
    pub fn new(policy: Policy, epoch: u32, now: Now) -> Self {
        let mut zone = Self::at(policy, epoch, 0, 0, now);
        zone.segments.push_back(Segment::new(zone.clock()));
        zone
    }

    fn at(policy: Policy, epoch: u32, next: u64, base: u64, now: Now) -> Self {
        let mut window = Window::new(&policy);
        window.set_opening(policy.opens_at.on_clock(now), now.ms);
        Self {
            policy,
            epoch,
            now_ms: now.ms,
            next,
            base,
            segments: VecDeque::new(),
            seen_all: 0,
            spare_until_ms: 0,
            window: Arc::new(window),
            longest_period: LongestPeriod::default(),
            marks: VecDeque::new(),
            appointments: HashMap::new(),
            dues: BinaryHeap::new(),
            paused_ms: 0,
            lateness_ms: 0,
            entries: HashMap::new(),
            bound: HashMap::new(),
            expiries: BinaryHeap::new(),
            tally: Tally::default(),
            inside: Inside::default(),
            drawn: LastDeal::default(),
            unsaved: durable::Unsaved::new(base * PAGES as u64),
        }
    }

    /// The entries of the last minute, as of the last call.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The slots, as of the last call.
    fn slots(&self) -> SlotState {
        SlotState { window: Arc::clone(&self.window), occupancy: self.occupancy(), held_until_ms: 0 }
    }

    /// Totals, as of the last call.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally { waiting: self.waiting(), present: self.present(), ..self.tally }
    }

    /// Whether the line can issue `count` further tickets and still span at most [`MOST_NUMBERS`].
    #[must_use]
    pub fn has_numbers(&self, count: u32) -> bool {
        self.next + u64::from(count) - self.base * SEGMENT <= MOST_NUMBERS
    }

    /// Changes the policy. Tickets and the entries in the window stay.
    pub fn set_policy(&mut self, policy: Policy, now: Now) {
        self.advance(now.ms);
        if policy == self.policy {
            return;
        }
        let old = std::mem::replace(&mut self.policy, policy);
        let longest_period_ms = self.longest_period_ms(&old);
        self.begin_approach(longest_period_ms);
        if policy.polling_period_ms < old.polling_period_ms {
            self.longest_period.note(old.polling_period_ms, self.now_ms);
        }
        let window = Arc::make_mut(&mut self.window);
        window.set_policy(&policy, self.now_ms);
        if old.opens_at != policy.opens_at {
            window.set_opening(policy.opens_at.on_clock(Now { ms: self.now_ms, ..now }), self.now_ms);
        }
        if old.max_active == 0 && policy.max_active > 0 {
            self.inside.begin_blind(&policy, self.now_ms);
        }
        if policy.max_active == 0 {
            self.inside.stop();
        }
        if old.idle_timeout_s != policy.idle_timeout_s {
            // Ages are counted in another unit from now on. Who is present stays as it is: a change tells nobody anything.
            self.seen_all += 1;
        }
        if policy.idle_timeout_s < old.idle_timeout_s {
            // People come back when they were told to, which may be later than the new idle time allows.
            let back_ms = self.now_ms + 2 * u64::from(longest_period_ms) + SPARE_MS;
            self.spare_until_ms = self.spare_until_ms.max(back_ms);
        }
        self.check();
    }

    /// A server tells people polling periods of up to `longest_period_ms`, or may soon do so. It says so before it does, so that nobody is
    /// taken for absent who keeps to such a period.
    pub fn note_longest_period(&mut self, longest_period_ms: u32, now: Now) {
        self.advance(now.ms);
        if longest_period_ms <= self.policy.polling_period_ms {
            return;
        }
        self.begin_approach(self.longest_period_ms(&self.policy));
        self.longest_period.note(longest_period_ms, self.now_ms);
    }

    /// People may be told a longer period than `longest_period_ms` from now on. Where that was no longer than the near period, everybody
    /// has been told the near one.
    fn begin_approach(&mut self, longest_period_ms: u32) {
        if longest_period_ms == longest_near_period_ms(longest_period_ms) {
            self.marks = VecDeque::from([(0, u64::MAX)]);
        }
    }

    /// Takes in the polls since the last beat, does what is due, and reports the zone's state.
    pub fn beat(&mut self, polls: &[PagePolls], now: Now) -> Snapshot {
        self.advance(now.ms);
        self.end_missed_appointments();
        // Apply the polls before time passes as well: a report may be late because a store call stalled, and a holder who
        // polled before a generation ended must not be evicted by its end.
        self.hear_polls(polls);
        for segment in 0..self.segments.len() {
            self.touch(segment);
        }
        self.hear_polls(polls);
        self.expire_entries();
        self.move_base();
        // Somebody at the front may keep the base from moving. What is behind must not cost memory for that.
        self.segments.iter_mut().for_each(Segment::free_bitmaps);
        let front_end = self.front_end();
        // Who comes into the front gets an appointment by the period that the approach told.
        let approach_end = self.move_approach(front_end);
        self.move_front(front_end);
        self.check();
        self.snapshot(front_end, approach_end, now.unix_ms)
    }

    /// Takes in which visitors were active since the last report, and ends the visits that are idle. Returns the pages of tickets whose
    /// holders left: their visits count no more. Without [`Policy::max_active`] nobody is counted.
    pub fn visits(&mut self, seen: &[PagePolls], now: Now) -> Vec<(u64, Arc<Words>)> {
        if seen.is_empty() && self.inside.is_empty() {
            return Vec::new();
        }
        self.advance(now.ms);
        let spares = self.now_ms < self.spare_until_ms;
        self.inside.report(seen, &self.policy, self.now_ms, spares);
        self.check();
        self.inside.left()
    }

    /// The people inside, as of the last call; `None` where nobody counts.
    #[must_use]
    pub fn occupancy(&self) -> Option<Occupancy> {
        (self.policy.max_active > 0).then(|| Occupancy {
            inside: self.inside.count,
            most: self.inside.most_inside(self.now_ms),
            ended: self.inside.ended,
            max_active: self.policy.max_active,
            blind_until_ms: self.inside.blind_until_ms(self.now_ms),
        })
    }

    /// How many more people may be inside now.
    fn room(&self) -> u64 {
        self.inside.room(&self.policy, self.now_ms)
    }

    /// Lets time pass. Every transition starts with this.
    fn advance(&mut self, now_ms: u64) {
        let past_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        if self.window.is_past(self.now_ms) {
            Arc::make_mut(&mut self.window).advance(self.now_ms);
        }
        self.longest_period.advance(self.now_ms);
        if past_ms > PAUSE_MS && self.waiting() > 0 {
            if past_ms > LONG_PAUSE_MS {
                self.hear_everybody();
            } else {
                self.paused_ms += past_ms;
            }
        }
    }

    /// Ends the appointments that are due. A holder of the front who did not claim is not present any more.
    fn end_missed_appointments(&mut self) {
        while let Some(&Reverse((due_ms, seq))) = self.dues.peek()
            && due_ms + self.paused_ms < self.now_ms
        {
            self.dues.pop();
            if self.appointments.get(&seq).is_some_and(|appointment| appointment.due_ms == due_ms) {
                self.appointments.remove(&seq);
                if let Some((segment, ticket)) = self.find(seq) {
                    self.segments[segment].note_overdue(ticket);
                }
            }
        }
    }

    /// Treats all waiting holders as just heard. Each segment applies that when it is touched.
    fn hear_everybody(&mut self) {
        self.seen_all = (self.seen_all / HEARD + 1) * HEARD;
        self.marks.clear();
        self.appointments.clear();
        self.dues.clear();
    }

    /// The longest polling period that people may keep to, under `policy`.
    fn longest_period_ms(&self, policy: &Policy) -> u32 {
        self.longest_period.period_ms().max(policy.polling_period_ms)
    }

    fn clock(&self) -> Clock {
        Clock {
            generation: self.now_ms / self.policy.generation_ms(),
            seen_all: self.seen_all,
            present_age: self.policy.present_age(self.longest_period_ms(&self.policy)),
            near_age: self.policy.present_age(longest_near_period_ms(self.longest_period_ms(&self.policy))),
            spares: self.now_ms < self.spare_until_ms,
        }
    }

    /// Updates a segment to the present instant.
    fn touch(&mut self, segment: usize) {
        let clock = self.clock();
        self.tally.evicted += u64::from(self.segments[segment].touch(clock));
    }

    fn hear_polls(&mut self, polls: &[PagePolls]) {
        for polls in polls {
            let (segment, page) = (polls.page / PAGES as u64, polls.page % PAGES as u64);
            let index = segment.checked_sub(self.base).and_then(|i| usize::try_from(i).ok());
            if let Some(segment) = index.and_then(|i| self.segments.get_mut(i)) {
                #[expect(clippy::cast_possible_truncation, reason = "below 8")]
                segment.hear_polls(page as usize, &polls.words);
            }
        }
    }

    fn expire_entries(&mut self) {
        while let Some(&Reverse((expires_ms, seq))) = self.expiries.peek()
            && expires_ms < self.now_ms
        {
            self.expiries.pop();
            self.entries.remove(&seq);
            self.bound.remove(&seq);
            self.unsaved.forgotten.push(seq);
        }
    }

    /// Whether an entry is still returned to repeated claims.
    fn is_remembered(&self, entry: &Entry) -> bool {
        entry.life_s > 0 && entry.expires_ms() >= self.now_ms
    }

    fn move_base(&mut self) {
        while let Some(first) = self.segments.front()
            && first.issued == SEGMENT_TICKETS
            && (first.live == 0 || sabotaged_base())
        {
            self.segments.pop_front();
            self.base += 1;
            if self.segments.is_empty() {
                self.segments.push_back(Segment::new(self.clock()));
            }
        }
    }

    fn snapshot(&self, front_end: u64, approach_end: u64, unix_ms: u64) -> Snapshot {
        let mut pages = Pages::with_capacity(self.segments.len() * PAGES);
        for segment in &self.segments {
            if segment.is_freed() {
                segment.gone.iter().for_each(|gone| pages.add_empty(gone));
            } else {
                pages.add_spread(&segment.gone, segment.issued, segment.present);
            }
        }
        let pages = pages.finish();
        self.check_pages(&pages);
        Snapshot {
            now_ms: self.now_ms,
            unix_ms: self.policy.opens_at.unix_ms(self.window.opens_ms(), self.now_ms).unwrap_or(unix_ms),
            policy: self.policy,
            epoch: self.epoch,
            base: self.base * SEGMENT,
            next: self.next,
            front_end,
            approach_end,
            longest_period_ms: self.longest_period_ms(&self.policy),
            pages,
            tally: self.tally(),
            occupancy: self.occupancy(),
            window: Arc::clone(&self.window),
            drawn: self.drawn,
            // A journal loses no state and keeps the epoch.
            earlier: Some(Arc::default()),
            is_confirmed: true,
        }
    }

    /// The first ticket behind the front. The front consists of the first present tickets whose slots become free soon.
    fn front_end(&self) -> u64 {
        match self.mode() {
            Mode::Auto => {}
            Mode::Open => return self.next,
            Mode::Hold | Mode::Closed => return self.base * SEGMENT,
        }
        let (soon_ms, longest) = (self.now_ms + self.policy.front_ms(), self.front_limit());
        let mut left = 0_u32;
        for (_, slots) in self.window.upcoming(self.now_ms).take_while(|&(at_ms, _)| at_ms <= soon_ms) {
            left = left.saturating_add(slots);
            if left >= longest {
                break;
            }
        }
        self.behind_present(left.clamp(1, longest).into())
    }

    /// The first ticket behind the first `count` present tickets.
    fn behind_present(&self, count: u64) -> u64 {
        let mut left = count;
        for (segment, number) in self.segments.iter().zip(self.base..) {
            if u64::from(segment.present) >= left {
                let last = u32::try_from(left - 1).unwrap_or(u32::MAX);
                return number * SEGMENT + segment.nth_present(last) as u64 + 1;
            }
            left -= u64::from(segment.present);
        }
        self.next
    }

    fn waiting(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.live)).sum()
    }

    fn present(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.present)).sum()
    }

    /// The index of a ticket's segment (from `base` on) and its number there; `None` if it was not issued or is before `base`.
    fn find(&self, seq: u64) -> Option<(usize, usize)> {
        let (segment, ticket) = split(seq);
        let index = usize::try_from(segment.checked_sub(self.base)?).ok()?;
        (index < self.segments.len() && seq < self.next).then_some((index, ticket))
    }

    fn is_live(&self, seq: u64) -> bool {
        self.find(seq).is_some_and(|(segment, ticket)| self.segments[segment].is_live(ticket))
    }
}

#[cfg(feature = "sabotage")]
fn sabotaged_base() -> bool {
    crate::sabotage::on(crate::sabotage::Rule::Base)
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged_base() -> bool {
    false
}
