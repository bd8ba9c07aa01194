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
//! again then; who does not within two of these periods and a bit is *overdue*: keeps the place, holds no slot.

mod keep;
mod line;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    Mark, Mode, Now, Place, Plan, Policy, SEGMENT_TICKETS, Tally, View, ViewSegment, Window, Words,
    estimate::Watch,
    segment::{GENERATIONS, Segment, Span},
};

pub use keep::{Changes, Header, Image, Inconsistent};

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
    Waiting(Place),
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

/// When somebody of the front was asked to come, and from when on they are overdue.
#[derive(Clone, Copy, Debug)]
struct Appointment {
    asked_ms: u64,
    due_ms: u64,
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
    base_segment: u64,
    /// From `base_segment` on; never empty.
    segments: VecDeque<Segment>,
    /// The generation that is running.
    generation: u64,
    window: Window,
    /// The window as it were, had the line used each slot at once: what the slots offered are counted with.
    ideal: Window,
    /// The instant `ideal` has come to.
    ideal_ms: u64,
    /// Present tickets that `ideal` may still take before the next count.
    ideal_line: u64,
    front: HashMap<u64, Appointment>,
    dues: BinaryHeap<Reverse<(u64, u64)>>,
    /// How late those come who are asked to come, in milliseconds: a moving mean. The network's share of a poll.
    lateness_ms: i64,
    entries: HashMap<u64, Entry>,
    /// The entries in the order in which they are forgotten.
    entered: VecDeque<(u64, u64)>,
    plan: Arc<Plan>,
    plan_is_old: bool,
    watch: Watch,
    /// The last beat: when, the totals then, and how many were absent.
    watched: (u64, Tally, u64),
    tally: Tally,
    kept: keep::Unkept,
}

impl Zone {
    /// An empty line. `epoch` names this life of the line: no two lives of one zone may share it.
    #[must_use]
    pub fn new(policy: Policy, epoch: u32, now: Now) -> Self {
        let mut zone = Self::at(policy, Header { epoch, next: 0, base_segment: 0 }, now.ms);
        zone.segments.push_back(Segment::new());
        zone
    }

    fn at(policy: Policy, header: Header, now_ms: u64) -> Self {
        let window = Window::new(&policy);
        Self {
            policy,
            epoch: header.epoch,
            now_ms,
            next: header.next,
            base_segment: header.base_segment,
            segments: VecDeque::new(),
            generation: now_ms / policy.generation_ms(),
            plan: Arc::new(Plan::new(&window, &policy, now_ms)),
            ideal: window.clone(),
            window,
            ideal_ms: now_ms,
            ideal_line: 0,
            front: HashMap::new(),
            dues: BinaryHeap::new(),
            lateness_ms: 0,
            entries: HashMap::new(),
            entered: VecDeque::new(),
            plan_is_old: false,
            watch: Watch::new(),
            watched: (now_ms, Tally::default(), 0),
            tally: Tally::default(),
            kept: keep::Unkept::new(header.base_segment),
        }
    }

    /// Changes the policy; places, and the entries in the window, stay.
    pub fn set_policy(&mut self, policy: Policy, now: Now) {
        self.advance(now.ms);
        if policy == self.policy {
            return;
        }
        let same_generations = policy.generation_ms() == self.policy.generation_ms();
        self.policy = policy;
        self.window.set_policy(&policy, self.now_ms);
        self.ideal = self.window.clone();
        self.plan_is_old = true;
        if !same_generations {
            self.see_everybody();
        }
    }

    /// Takes in who polled since the last beat, does what is due, and shows the zone as it is.
    pub fn beat(&mut self, marks: &[Mark], now: Now) -> View {
        self.note_polls(marks);
        self.advance(now.ms);
        self.note_polls(marks);
        self.forget();
        self.move_base();
        let span = self.presence();
        for segment in &mut self.segments {
            segment.count(span);
        }
        self.look_back();
        self.plan_is_old = true;
        self.view()
    }

    /// Lets time pass. Every transition begins with this.
    fn advance(&mut self, now_ms: u64) {
        let past_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        self.window.advance(self.now_ms);
        self.offer();
        if past_ms > PAUSE_MS && self.waiting() > 0 {
            if past_ms > LONG_PAUSE_MS {
                return self.see_everybody();
            }
            let later = |(&seq, kept): (&u64, &mut Appointment)| {
                kept.due_ms += past_ms;
                Reverse((kept.due_ms, seq))
            };
            self.dues = self.front.iter_mut().map(later).collect();
        }
        self.turn_generation();
        while let Some(&Reverse((due_ms, seq))) = self.dues.peek()
            && due_ms < self.now_ms
        {
            self.dues.pop();
            if self.front.get(&seq).is_some_and(|kept| kept.due_ms == due_ms)
                && let Some((segment, ticket)) = self.find(seq)
            {
                self.segments[segment].set_overdue(ticket);
            }
        }
    }

    /// Counts the slots that a line which uses each at once would have taken since.
    fn offer(&mut self) {
        let (from_ms, now_ms) = (self.ideal_ms, self.now_ms);
        self.ideal_ms = now_ms;
        let mut taken = Vec::new();
        if self.policy.mode == Mode::Auto && self.ideal_line > 0 {
            for (at_ms, count) in self.ideal.upcoming(from_ms) {
                if at_ms > now_ms || self.ideal_line == 0 {
                    break;
                }
                let count = count.min(u32::try_from(self.ideal_line).unwrap_or(u32::MAX));
                self.ideal_line -= u64::from(count);
                self.tally.slots_offered += u64::from(count);
                taken.push((at_ms, count));
            }
        }
        for (at_ms, count) in taken {
            self.ideal.advance(at_ms);
            self.ideal.record(at_ms, count);
        }
        self.ideal.advance(now_ms);
    }

    fn note_polls(&mut self, marks: &[Mark]) {
        for mark in marks {
            let index = mark.segment.checked_sub(self.base_segment).and_then(|i| usize::try_from(i).ok());
            if let Some(segment) = index.and_then(|i| self.segments.get_mut(i)) {
                segment.see_all(&mark.words, self.generation);
            }
        }
        if !marks.is_empty() && !self.front.is_empty() {
            // Whom a server answered is not of the front any more: the appointment is off.
            let marked: HashMap<u64, &Words> =
                marks.iter().map(|mark| (mark.segment, &*mark.words)).collect();
            self.front.retain(|seq, _| {
                let (segment, ticket) = split(*seq);
                marked.get(&segment).is_none_or(|words| words[ticket / 64] >> (ticket % 64) & 1 == 0)
            });
        }
    }

    /// Starts the generations that are due, and evicts who was not seen in any that is kept.
    fn turn_generation(&mut self) {
        let due = self.now_ms / self.policy.generation_ms();
        if due <= self.generation {
            return;
        }
        for generation in (self.generation + 1..=due).take(GENERATIONS) {
            for segment in &mut self.segments {
                segment.start(generation);
            }
        }
        self.generation = due;
        let Some(idle) = idle_generations() else { return };
        let span = Span { from: due.saturating_sub(idle), to: due };
        let evicted: u64 = self.segments.iter_mut().map(|segment| u64::from(segment.sweep(span))).sum();
        if evicted > 0 {
            self.tally.evicted += evicted;
            let front = std::mem::take(&mut self.front);
            self.front = front.into_iter().filter(|(seq, _)| self.is_live(*seq)).collect();
        }
    }

    /// Takes everybody who waits as just seen.
    fn see_everybody(&mut self) {
        self.generation = self.now_ms / self.policy.generation_ms();
        self.front.clear();
        self.dues.clear();
        for segment in &mut self.segments {
            for past in 0..GENERATIONS as u64 {
                segment.start(self.generation.saturating_sub(past));
            }
            segment.see_all(&[u64::MAX; crate::SEGMENT_WORDS], self.generation);
        }
    }

    /// The generations in which a holder who polls every period has polled: the last two periods and a bit.
    fn presence(&self) -> Span {
        let far_ms = u64::from(self.policy.polling_period_ms) * 2 + line::BIT_MS;
        let back = far_ms.div_ceil(self.policy.generation_ms()).min(GENERATIONS as u64 - 1);
        Span { from: self.generation.saturating_sub(back), to: self.generation }
    }

    fn forget(&mut self) {
        let ttl_ms = u64::from(self.policy.pass_ttl_s) * 1_000;
        while let Some(&(at_ms, seq)) = self.entered.front()
            && at_ms + ttl_ms < self.now_ms
        {
            self.entered.pop_front();
            self.entries.remove(&seq);
            self.kept.forgotten.push(seq);
        }
    }

    fn move_base(&mut self) {
        while let Some(first) = self.segments.front()
            && first.given == SEGMENT_TICKETS
            && (first.live == 0 || sabotaged_base())
        {
            self.segments.pop_front();
            self.base_segment += 1;
            if self.segments.is_empty() {
                self.segments.push_back(Segment::new());
            }
        }
    }

    /// Learns from what happened since the last beat.
    fn look_back(&mut self) {
        let (then_ms, then, absent_then) = self.watched;
        let (present, absent) = (self.present(), self.waiting() - self.present());
        let since = |now: u64, then: u64| Self::number(now - then);
        // Who is evicted was absent before: both together are the people who went, less those who came back.
        let went = since(self.tally.evicted, then.evicted) + Self::number(absent) - Self::number(absent_then);
        self.watch.observe(
            since(self.now_ms, then_ms) / 1_000.0,
            Self::number(present),
            went,
            since(self.tally.slots_used, then.slots_used),
            since(self.tally.slots_offered, then.slots_offered),
        );
        self.watched = (self.now_ms, self.tally, absent);
        self.ideal_line = present;
    }

    fn number(n: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
        let number = n as f64;
        number
    }

    fn view(&mut self) -> View {
        self.renew_plan();
        let (mut live_before, mut present_before) = (0, 0);
        let mut front_end = if self.policy.mode == Mode::Auto { None } else { Some(self.base()) };
        let front_len = u64::from(self.policy.front_len());
        let span = self.presence();
        let mut segments = Vec::with_capacity(self.segments.len());
        for (segment, index) in self.segments.iter().zip(self.base_segment..) {
            if front_end.is_none() && present_before + u64::from(segment.present) >= front_len {
                let before = nth_present(segment, span, front_len - present_before - 1);
                front_end = Some(index * SEGMENT_TICKETS as u64 + before as u64 + 1);
            }
            segments.push(ViewSegment {
                gone: Arc::clone(&segment.gone),
                live_before,
                present_before,
                live: segment.live,
                present: segment.present,
            });
            live_before += u64::from(segment.live);
            present_before += u64::from(segment.present);
        }
        if self.policy.mode == Mode::Open {
            front_end = None;
        }
        View {
            now_ms: self.now_ms,
            policy: self.policy,
            epoch: self.epoch,
            base: self.base(),
            next: self.next,
            front_end: front_end.unwrap_or(self.next),
            segments,
            pace: self.watch.pace(),
            plan: Arc::clone(&self.plan),
            tally: Tally { waiting: live_before, present: present_before, ..self.tally },
        }
    }

    fn renew_plan(&mut self) {
        if self.plan_is_old {
            self.plan_is_old = false;
            self.plan = Arc::new(Plan::new(&self.window, &self.policy, self.now_ms));
        }
    }

    fn base(&self) -> u64 {
        self.base_segment * SEGMENT_TICKETS as u64
    }

    fn waiting(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.live)).sum()
    }

    fn present(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.present)).sum()
    }

    /// The segment (from `base_segment`) and the ticket in it.
    fn find(&self, seq: u64) -> Option<(usize, usize)> {
        let (segment, ticket) = split(seq);
        let index = usize::try_from(segment.checked_sub(self.base_segment)?).ok()?;
        (index < self.segments.len() && seq < self.next).then_some((index, ticket))
    }

    fn is_live(&self, seq: u64) -> bool {
        self.find(seq).is_some_and(|(segment, ticket)| !self.segments[segment].is_gone(ticket))
    }
}

/// The segment a ticket is in, and its number there.
fn split(seq: u64) -> (u64, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "below 8,192")]
    let ticket = (seq % SEGMENT_TICKETS as u64) as usize;
    (seq / SEGMENT_TICKETS as u64, ticket)
}

/// The number, in its segment, of the present ticket that `before` present ones come before.
fn nth_present(segment: &Segment, span: Span, before: u64) -> usize {
    let mut before = before;
    for word in 0..crate::SEGMENT_WORDS {
        let mut present = segment.present_in(word, span);
        while present != 0 {
            if before == 0 {
                return word * 64 + present.trailing_zeros() as usize;
            }
            before -= 1;
            present &= present - 1;
        }
    }
    SEGMENT_TICKETS - 1
}

/// How many generations of silence, beside the running one, evict.
fn idle_generations() -> Option<u64> {
    #[cfg(feature = "sabotage")]
    {
        use crate::sabotage::{Rule, on};
        if on(Rule::EarlySweep) {
            return Some(6);
        }
        if on(Rule::NoSweep) {
            return None;
        }
    }
    Some(GENERATIONS as u64 - 1)
}

#[cfg(feature = "sabotage")]
fn sabotaged_base() -> bool {
    crate::sabotage::on(crate::sabotage::Rule::Base)
}

#[cfg(not(feature = "sabotage"))]
fn sabotaged_base() -> bool {
    false
}
