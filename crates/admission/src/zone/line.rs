//! Joins and claims: who is next, and when the others shall ask again.

use std::{cmp::Reverse, collections::VecDeque};

use super::{Appointment, Claim, Decided, Entry, Joined, Verdict, Zone};
use crate::{
    Mode, Now, Position,
    segment::{SEGMENT_TICKETS, Segment},
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
        self.touch(self.segments.len() - 1);
        let first = self.next;
        let free = match self.policy.mode {
            Mode::Auto if self.present() > 0 && !sabotaged_newcomer() => 0,
            Mode::Auto => self.window.free(false),
            Mode::Open => u32::MAX,
            Mode::Hold | Mode::Closed => 0,
        };
        let free = free.min(count);
        let entry = Entry { at_ms: self.now_ms, unix_s: now.unix_s };
        let mut verdicts = Vec::with_capacity(count as usize);
        for _ in 0..free {
            let seq = self.give(true);
            self.note_entry(seq, entry);
            verdicts.push(Verdict::Entered(entry));
        }
        if free > 0 {
            self.window.record(self.now_ms, free);
        }
        let (mut ahead, mut present_ahead) = (self.waiting(), self.present());
        let mut places = Vec::with_capacity((count - free) as usize);
        for _ in free..count {
            places.push((self.give(false), ahead, present_ahead));
            ahead += 1;
            present_ahead += 1;
        }
        verdicts.extend(self.places(&places).into_iter().map(Verdict::Waiting));
        self.tally.joined += u64::from(count);
        Joined { epoch: self.epoch, first, at_ms: self.now_ms, verdicts }
    }

    fn give(&mut self, gone: bool) -> u64 {
        let seq = self.next;
        self.next += 1;
        if self.segments.back().is_none_or(|last| last.given == SEGMENT_TICKETS) {
            self.segments.push_back(Segment::new(self.clock()));
        }
        let last = self.segments.len() - 1;
        self.segments[last].give(gone);
        seq
    }

    fn note_entry(&mut self, seq: u64, entry: Entry) {
        self.entries.insert(seq, entry);
        self.entered.push_back((entry.at_ms, seq));
        self.kept.entered.push((seq, entry));
        self.tally.entered += 1;
    }

    /// Decides claims, all of them on the line as the call finds it. Who asks counts as present; the verdicts come in
    /// the claims' order.
    pub fn enter(&mut self, claims: &[Claim], now: Now) -> Decided {
        self.advance(now.ms);
        self.mind_appointments();
        let known = |claim: &&Claim| claim.epoch == self.epoch && claim.seq < self.next;
        let mut asked: Vec<u64> = claims.iter().filter(known).map(|claim| claim.seq).collect();
        asked.sort_unstable();
        asked.dedup();
        let entry = Entry { at_ms: self.now_ms, unix_s: now.unix_s };
        let mut decided = Vec::with_capacity(asked.len());
        let mut waiting = Vec::with_capacity(asked.len());
        for seq in asked {
            let found = self.find(seq);
            if let Some((segment, _)) = found {
                self.touch(segment);
            }
            if let Some(&kept) = self.entries.get(&seq).filter(|kept| self.is_remembered(kept.at_ms)) {
                let again = sabotaged_twice() && self.window.free(true) > 0;
                if again {
                    self.window.record(self.now_ms, 1);
                    self.note_entry(seq, entry);
                }
                decided.push((seq, Verdict::Entered(if again { entry } else { kept })));
            } else if let Some((segment, ticket)) = found
                && self.segments[segment].is_live(ticket)
            {
                self.note_lateness(seq, self.segments[segment].has_met(ticket));
                self.segments[segment].see(ticket);
                waiting.push((seq, segment, ticket));
            }
        }
        let (entered, places) = self.let_in(&waiting, entry);
        decided.extend(entered.into_iter().map(|seq| (seq, Verdict::Entered(entry))));
        let seqs = places.iter().map(|&(seq, ..)| seq);
        decided.extend(seqs.zip(self.places(&places).into_iter().map(Verdict::Waiting)));
        decided.sort_unstable_by_key(|&(seq, _)| seq);
        let verdict = |claim: &Claim| match decided.binary_search_by_key(&claim.seq, |&(seq, _)| seq) {
            Ok(i) if claim.epoch == self.epoch => decided[i].1,
            _ => Verdict::Gone,
        };
        Decided { at_ms: self.now_ms, verdicts: claims.iter().map(verdict).collect() }
    }

    /// Lets in those of `waiting` (ticket and where it is, in the order of the line) for whom there is a slot beside one
    /// for every present ticket ahead. Returns them, and where the others stand then: ticket, live ahead, present ahead.
    fn let_in(&mut self, waiting: &[(u64, usize, usize)], entry: Entry) -> (Vec<u64>, Vec<(u64, u64, u64)>) {
        let free = match self.policy.mode {
            Mode::Auto => u64::from(self.window.free(true)),
            Mode::Open => u64::MAX,
            Mode::Hold | Mode::Closed => 0,
        };
        let by_turn = self.policy.mode == Mode::Auto && !sabotaged_order();
        let (mut entered, mut places) = (Vec::new(), Vec::new());
        let mut ahead = Ahead::new(&self.segments);
        for &(seq, segment, ticket) in waiting {
            let (live, present) = ahead.of(segment, ticket);
            let count = entered.len() as u64;
            if if by_turn { present } else { count } < free {
                entered.push(seq);
            } else {
                places.push((seq, live - count, present - count));
            }
        }
        for &seq in &entered {
            if let Some((segment, ticket)) = self.find(seq) {
                self.segments[segment].leave(ticket);
            }
            self.appointments.remove(&seq);
            self.note_entry(seq, entry);
            self.tally.slots_used += 1;
        }
        if let Ok(count @ 1..) = u32::try_from(entered.len()) {
            self.window.record(self.now_ms, count);
        }
        (entered, places)
    }

    /// Learns how late those come who were asked to come, and did not poll since.
    fn note_lateness(&mut self, seq: u64, met: bool) {
        if let Some(kept) = self.appointments.get(&seq).filter(|_| !met) {
            // Pauses since then were nobody's lateness.
            let asked_ms = kept.due_ms + self.paused_ms - kept.poll_in_ms - 2 * BIT_MS;
            let late_ms = i64::try_from(self.now_ms).unwrap_or(0) - i64::try_from(asked_ms).unwrap_or(0);
            self.lateness_ms = (self.lateness_ms * 15 + late_ms.clamp(-500, 1_500)) / 16;
        }
    }

    /// Says where tickets stand, given each one's `(seq, live ahead, present ahead)`, and makes the front its
    /// appointments.
    fn places(&mut self, tickets: &[(u64, u64, u64)]) -> Vec<Position> {
        let (front_len, now_ms) = (u64::from(self.policy.front_len()), self.now_ms);
        let mut slots = Slots::new(self.window.upcoming(now_ms));
        let place = |&(_, ahead, present_ahead): &(u64, u64, u64)| {
            let of_front = self.policy.mode == Mode::Auto && present_ahead < front_len;
            let slot_in_ms = of_front.then(|| slots.at(present_ahead).saturating_sub(now_ms));
            Position {
                rank: 1 + ahead,
                present_ahead,
                estimate: None,
                poll_in_ms: slot_in_ms.map_or(self.policy.polling_period_ms, |wait| self.ask_again_in(wait)),
                slot_in_ms: slot_in_ms.map(|wait| u32::try_from(wait).unwrap_or(u32::MAX)),
            }
        };
        let places: Vec<_> = tickets.iter().map(place).collect();
        for (&(seq, ..), place) in tickets.iter().zip(&places) {
            if place.slot_in_ms.is_some() {
                self.appoint(seq, place.poll_in_ms.into());
            } else {
                self.appointments.remove(&seq);
            }
        }
        places
    }

    fn appoint(&mut self, seq: u64, poll_in_ms: u64) {
        let Some((segment, ticket)) = self.find(seq) else { return };
        self.segments[segment].appoint(ticket);
        self.appointed_max = self.appointed_max.max(Some(seq));
        // A poll that came may have to wait for the store as long as a beat does.
        let due_ms = self.now_ms + 2 * poll_in_ms + 2 * BIT_MS - self.paused_ms;
        self.appointments.insert(seq, Appointment { due_ms, poll_in_ms });
        self.dues.push(Reverse((due_ms, seq)));
    }

    /// When the holder whose slot falls free in `wait_ms` shall ask again, in milliseconds from now.
    ///
    /// The reply and the next poll take their time too, so it asks for as much less. Apps keep a period to about a
    /// tenth; the last step is therefore a short one.
    fn ask_again_in(&self, wait_ms: u64) -> u32 {
        let period_ms = u64::from(self.policy.polling_period_ms);
        let lead_ms = u64::try_from(self.lateness_ms).unwrap_or(0);
        let last_step_ms = LAST_STEP_MS.max(lead_ms + LEAST_POLL_MS);
        if wait_ms > period_ms + last_step_ms {
            return self.policy.polling_period_ms;
        }
        let aim_ms = if wait_ms > 2 * last_step_ms { wait_ms - last_step_ms } else { wait_ms };
        let poll_in_ms = aim_ms.saturating_sub(lead_ms).clamp(LEAST_POLL_MS, period_ms);
        u32::try_from(poll_in_ms).unwrap_or(u32::MAX)
    }
}

/// The next slots, as far as somebody asked.
struct Slots<'a> {
    upcoming: Upcoming<'a>,
    /// When, and how many have fallen free by then.
    known: Vec<(u64, u64)>,
}

impl<'a> Slots<'a> {
    fn new(upcoming: Upcoming<'a>) -> Self {
        Self { upcoming, known: Vec::new() }
    }

    /// When the slot falls free that `before` others come before.
    fn at(&mut self, before: u64) -> u64 {
        while self.known.last().is_none_or(|&(_, slots)| slots <= before) {
            // The walk has no end.
            let Some((at_ms, count)) = self.upcoming.next() else { break };
            let slots = self.known.last().map_or(0, |&(_, slots)| slots) + u64::from(count);
            self.known.push((at_ms, slots));
        }
        let knot = self.known.partition_point(|&(_, slots)| slots <= before);
        self.known[knot].0
    }
}

/// Counts who is ahead of tickets that are asked about in the order of the line.
struct Ahead<'a> {
    segments: &'a VecDeque<Segment>,
    index: usize,
    word: usize,
    /// The live and the present in the segments before `index`, and there in the words before `word`.
    before: (u64, u64),
    within: (u64, u64),
}

impl<'a> Ahead<'a> {
    fn new(segments: &'a VecDeque<Segment>) -> Self {
        Self { segments, index: 0, word: 0, before: (0, 0), within: (0, 0) }
    }

    /// The live and the present tickets ahead of a ticket, which is not ahead of the one asked about before. Those in
    /// other segments are counted as of when these were last touched.
    fn of(&mut self, index: usize, ticket: usize) -> (u64, u64) {
        let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
        while self.index < index {
            let passed = &self.segments[self.index];
            self.before = add(self.before, (passed.live.into(), passed.present.into()));
            (self.index, self.word, self.within) = (self.index + 1, 0, (0, 0));
        }
        let here = &self.segments[index];
        while self.word < ticket / 64 {
            self.within = add(self.within, here.count(self.word, u64::MAX));
            self.word += 1;
        }
        let last = here.count(self.word, (1 << (ticket % 64)) - 1);
        add(self.before, add(self.within, last))
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
}

use sabotaged::{newcomer as sabotaged_newcomer, order as sabotaged_order, twice as sabotaged_twice};
