//! Joins and claims: who is next, and when the others shall ask again.

use std::cmp::Reverse;

use super::{Appointment, Claim, Decided, Entry, Joined, Verdict, Zone};
use crate::{
    Estimate, Mode, Now, Place, SEGMENT_TICKETS, SEGMENT_WORDS, estimate::estimate, segment::Segment,
    window::Upcoming,
};

/// The bit in "two polling periods and a bit", in milliseconds.
pub(super) const BIT_MS: u64 = 500;

/// The least time between two polls that is asked for, in milliseconds.
const LEAST_POLL_MS: u64 = 100;

/// How long before the slot the last but one poll of the front is meant to come, in milliseconds.
const LAST_STEP_MS: u64 = 700;

impl Zone {
    /// Gives out `count` tickets at the end of the line. While nobody is present in the line, and the minute has
    /// slots, their holders are in at once.
    pub fn join(&mut self, count: u32, now: Now) -> Joined {
        self.advance(now.ms);
        let first = self.next;
        let mut free = match self.policy.mode {
            Mode::Auto if self.anybody_present() && !sabotaged_newcomer() => 0,
            Mode::Auto => self.window.free(false),
            Mode::Open => u32::MAX,
            Mode::Hold | Mode::Closed => 0,
        };
        free = free.min(count);
        let entry = Entry { at_ms: self.now_ms, unix_s: now.unix_s };
        let mut verdicts = Vec::with_capacity(count as usize);
        for _ in 0..free {
            let seq = self.give(true);
            self.note_entry(seq, entry);
            verdicts.push(Verdict::Entered(entry));
        }
        if free > 0 {
            self.window.record(self.now_ms, free);
            self.ideal.record(self.now_ms, free);
            self.plan_is_old = true;
        }
        if free < count {
            self.renew_plan();
            let (mut ahead, mut present_ahead) = (self.waiting(), self.present());
            let mut places = Vec::with_capacity((count - free) as usize);
            for _ in free..count {
                places.push((self.give(false), ahead, present_ahead));
                ahead += 1;
                present_ahead += 1;
            }
            verdicts.extend(self.places(&places).into_iter().map(Verdict::Waiting));
        }
        self.tally.joined += u64::from(count);
        Joined { epoch: self.epoch, first, at_ms: self.now_ms, verdicts }
    }

    fn give(&mut self, gone: bool) -> u64 {
        let seq = self.next;
        self.next += 1;
        if self.segments.back().is_none_or(|last| last.given == SEGMENT_TICKETS) {
            self.segments.push_back(Segment::new());
        }
        let last = self.segments.len() - 1;
        self.segments[last].give(self.generation, gone);
        seq
    }

    fn note_entry(&mut self, seq: u64, entry: Entry) {
        self.entries.insert(seq, entry);
        self.entered.push_back((entry.at_ms, seq));
        self.kept.entered.push((seq, entry));
        self.tally.entered += 1;
    }

    /// Decides claims. Who asks counts as present; the verdicts come in the claims' order.
    pub fn enter(&mut self, claims: &[Claim], now: Now) -> Decided {
        self.advance(now.ms);
        let mut verdicts = vec![Verdict::Gone; claims.len()];
        let mut waiting = Vec::with_capacity(claims.len());
        for (i, claim) in claims.iter().enumerate() {
            if claim.epoch != self.epoch || claim.seq >= self.next {
                continue;
            }
            if let Some(&(mut entry)) = self.entries.get(&claim.seq) {
                if sabotaged_twice() && self.window.free(true) > 0 {
                    entry = Entry { at_ms: self.now_ms, unix_s: now.unix_s };
                    self.window.record(self.now_ms, 1);
                    self.note_entry(claim.seq, entry);
                }
                verdicts[i] = Verdict::Entered(entry);
            } else if let Some((segment, ticket)) = self.find(claim.seq)
                && !self.segments[segment].is_gone(ticket)
            {
                self.segments[segment].see(ticket, self.generation);
                self.note_lateness(claim.seq);
                waiting.push((claim.seq, i));
            }
        }
        waiting.sort_unstable();
        let entered = self.let_in(&waiting, now);
        let mut places = Vec::new();
        let mut asking = Vec::new();
        let mut claimed = entered.iter().copied().peekable();
        let mut last = None;
        for &(seq, i) in &waiting {
            while claimed.next_if(|&(entered, _)| entered < seq).is_some() {}
            if let Some(&(_, entry)) = claimed.peek().filter(|&&(entered, _)| entered == seq) {
                verdicts[i] = Verdict::Entered(entry);
            } else {
                // The same ticket may be asked about twice in one call.
                if last != Some(seq) {
                    let (ahead, present_ahead) = self.ahead(seq);
                    places.push((seq, ahead, present_ahead));
                    last = Some(seq);
                }
                asking.push((i, places.len() - 1));
            }
        }
        if !places.is_empty() {
            self.renew_plan();
            let places = self.places(&places);
            for (i, place) in asking {
                verdicts[i] = Verdict::Waiting(places[place]);
            }
        }
        Decided { at_ms: self.now_ms, verdicts }
    }

    /// Lets in those of `waiting` (in the order of the line) for whom there is a slot beside one for every present
    /// ticket ahead.
    fn let_in(&mut self, waiting: &[(u64, usize)], now: Now) -> Vec<(u64, Entry)> {
        let entry = Entry { at_ms: self.now_ms, unix_s: now.unix_s };
        let free = match self.policy.mode {
            Mode::Auto => self.window.free(true) as usize,
            Mode::Open => usize::MAX,
            Mode::Hold | Mode::Closed => 0,
        };
        if free == 0 || waiting.is_empty() {
            return Vec::new();
        }
        let mut entered = Vec::new();
        if sabotaged_order() || free == usize::MAX {
            entered.extend(waiting.iter().map(|&(seq, _)| (seq, entry)).take(free));
            entered.dedup_by_key(|&mut (seq, _)| seq);
        } else {
            // The first `free` present tickets have a slot each; those of them who ask take theirs.
            let mut asking = waiting.iter().map(|&(seq, _)| seq).peekable();
            for seq in self.first_present(free) {
                while asking.next_if(|&asked| asked < seq).is_some() {}
                match asking.peek() {
                    Some(&asked) if asked == seq => entered.push((seq, entry)),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        for &(seq, entry) in &entered {
            if let Some((segment, ticket)) = self.find(seq) {
                self.segments[segment].leave(ticket);
            }
            self.front.remove(&seq);
            self.note_entry(seq, entry);
            self.tally.slots_used += 1;
        }
        if let Ok(count @ 1..) = u32::try_from(entered.len()) {
            self.window.record(self.now_ms, count);
            self.plan_is_old = true;
        }
        entered
    }

    /// The first `count` present tickets, in the order of the line.
    fn first_present(&self, count: usize) -> Vec<u64> {
        let span = self.presence();
        let mut first = Vec::with_capacity(count.min(4_096));
        for (segment, index) in self.segments.iter().zip(self.base_segment..) {
            if segment.live == 0 {
                continue;
            }
            for word in 0..SEGMENT_WORDS {
                let mut present = segment.present_in(word, span);
                while present != 0 {
                    if first.len() == count {
                        return first;
                    }
                    let ticket = word * 64 + present.trailing_zeros() as usize;
                    first.push(index * SEGMENT_TICKETS as u64 + ticket as u64);
                    present &= present - 1;
                }
            }
        }
        first
    }

    fn anybody_present(&self) -> bool {
        !self.first_present(1).is_empty()
    }

    /// The live and the present tickets ahead of a ticket of the line.
    fn ahead(&self, seq: u64) -> (u64, u64) {
        let Some((segment, ticket)) = self.find(seq) else {
            return (0, 0);
        };
        let (mut live, mut present) = (0, 0);
        let span = self.presence();
        for (i, before) in self.segments.iter().take(segment).enumerate() {
            live += u64::from(before.live);
            // Counted at the last beat, and exactly where the front is.
            present += if i == 0 {
                Self::present_before(before, SEGMENT_TICKETS, span)
            } else {
                before.present.into()
            };
        }
        let here = &self.segments[segment];
        (live + u64::from(here.live_before(ticket)), present + Self::present_before(here, ticket, span))
    }

    fn present_before(segment: &Segment, ticket: usize, span: crate::segment::Span) -> u64 {
        if segment.live == 0 {
            return 0;
        }
        let (word, bit) = (ticket / 64, ticket % 64);
        let whole: u32 = (0..word).map(|w| segment.present_in(w, span).count_ones()).sum();
        let rest =
            if bit == 0 { 0 } else { (segment.present_in(word, span) & ((1 << bit) - 1)).count_ones() };
        u64::from(whole + rest)
    }

    /// Learns how late those come who were asked to come.
    fn note_lateness(&mut self, seq: u64) {
        if let Some(kept) = self.front.get(&seq) {
            let late_ms = i64::try_from(self.now_ms).unwrap_or(0) - i64::try_from(kept.asked_ms).unwrap_or(0);
            self.lateness_ms = (self.lateness_ms * 15 + late_ms.clamp(-500, 1_500)) / 16;
        }
    }

    /// Says where tickets stand, given each one's `(seq, live ahead, present ahead)`, and makes the front its
    /// appointments.
    fn places(&mut self, tickets: &[(u64, u64, u64)]) -> Vec<Place> {
        let front_len = u64::from(self.policy.front_len());
        let (pace, policy, now_ms) = (self.watch.pace(), self.policy, self.now_ms);
        let mut slots = Slots::new(self.window.upcoming(now_ms), 2 * front_len);
        let mut places = Vec::with_capacity(tickets.len());
        let (mut appointments, mut cancelled) = (Vec::new(), Vec::new());
        let period_ms = u64::from(policy.polling_period_ms);
        for &(seq, ahead, present_ahead) in tickets {
            let told = estimate(present_ahead, &pace, &policy, now_ms, |n| {
                slots.at(n).unwrap_or_else(|| self.plan.slot_ms(n))
            });
            let (mut poll_in_ms, mut slot_in_ms) = (period_ms, None);
            if policy.mode == Mode::Auto && present_ahead < front_len {
                if let Some(slot_ms) = slots.at(present_ahead) {
                    let wait_ms = slot_ms.saturating_sub(now_ms);
                    poll_in_ms = self.ask_again_in(wait_ms);
                    slot_in_ms = u32::try_from(wait_ms).ok();
                }
                appointments.push((seq, poll_in_ms));
            } else {
                cancelled.push(seq);
            }
            places.push(Place {
                rank: 1 + ahead,
                estimate: sabotaged_estimate(1 + ahead, &policy).or(told),
                poll_in_ms: u32::try_from(poll_in_ms).unwrap_or(u32::MAX),
                slot_in_ms,
            });
        }
        for seq in cancelled {
            self.front.remove(&seq);
        }
        for (seq, poll_in_ms) in appointments {
            let asked_ms = now_ms + poll_in_ms;
            // A poll that came may have to wait for the store as long as a beat does.
            let due_ms = asked_ms + poll_in_ms + 2 * BIT_MS;
            self.front.insert(seq, Appointment { asked_ms, due_ms });
            self.dues.push(Reverse((due_ms, seq)));
        }
        places
    }

    /// When the holder whose slot falls free in `wait_ms` shall ask again, in milliseconds from now.
    ///
    /// The reply and the next poll take their time too, so it asks for as much less. Apps keep a period to about a
    /// tenth; the last step is therefore a short one.
    fn ask_again_in(&self, wait_ms: u64) -> u64 {
        let period_ms = u64::from(self.policy.polling_period_ms);
        let lead_ms = u64::try_from(self.lateness_ms).unwrap_or(0);
        let last_step_ms = LAST_STEP_MS.max(lead_ms + LEAST_POLL_MS);
        if wait_ms > period_ms + last_step_ms {
            return period_ms;
        }
        let aim_ms = if wait_ms > 2 * last_step_ms { wait_ms - last_step_ms } else { wait_ms };
        aim_ms.saturating_sub(lead_ms).clamp(LEAST_POLL_MS, period_ms)
    }
}

/// The next slots, as far as somebody asked.
struct Slots<'a> {
    upcoming: Upcoming<'a>,
    /// When, and how many have fallen free by then.
    known: Vec<(u64, u64)>,
    most: u64,
}

impl<'a> Slots<'a> {
    fn new(upcoming: Upcoming<'a>, most: u64) -> Self {
        Self { upcoming, known: Vec::new(), most }
    }

    /// When the slot falls free that `before` others come before; none where that is too far ahead.
    fn at(&mut self, before: u64) -> Option<u64> {
        if before >= self.most {
            return None;
        }
        while self.known.last().is_none_or(|&(_, slots)| slots <= before) {
            let (at_ms, count) = self.upcoming.next()?;
            let slots = self.known.last().map_or(0, |&(_, slots)| slots) + u64::from(count);
            self.known.push((at_ms, slots));
        }
        let knot = self.known.partition_point(|&(_, slots)| slots <= before);
        self.known.get(knot).map(|&(at_ms, _)| at_ms)
    }
}

#[cfg(feature = "sabotage")]
mod sabotaged {
    use crate::sabotage::{Rule, on};

    pub(super) fn newcomer() -> bool {
        on(Rule::Newcomer)
    }
    pub(super) fn twice() -> bool {
        on(Rule::Twice)
    }
    pub(super) fn order() -> bool {
        on(Rule::Order)
    }
    pub(super) fn naive_eta() -> bool {
        on(Rule::NaiveEta)
    }
}

#[cfg(not(feature = "sabotage"))]
mod sabotaged {
    pub(super) const fn newcomer() -> bool {
        false
    }
    pub(super) const fn twice() -> bool {
        false
    }
    pub(super) const fn order() -> bool {
        false
    }
    pub(super) const fn naive_eta() -> bool {
        false
    }
}

use sabotaged::{newcomer as sabotaged_newcomer, order as sabotaged_order, twice as sabotaged_twice};

fn sabotaged_estimate(rank: u64, policy: &crate::Policy) -> Option<Estimate> {
    sabotaged::naive_eta().then(|| Estimate::naive(rank, policy))
}
