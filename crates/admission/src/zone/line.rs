//! Joins and claims: decides who enters, and when the others should ask again.
//!
//! Invariant: all claims of one call are decided on the line as the call finds it, in the line's order.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use super::{Appointment, Claim, Decided, Entry, Joined, Verdict, Zone};
use crate::{
    Mode, Now, Position,
    policy::{GRACE_MS, LAST_STEP_MS, longest_near_period_ms, warning_ms},
    segment::{SEGMENT, SEGMENT_TICKETS, Segment},
    window::Upcoming,
};

/// The shortest time until the next poll, in milliseconds.
const LEAST_POLL_MS: u64 = 100;

/// How many times as many people are next as may be inside. No more can leave at once, and some of those who are next may have left.
const NEXT_IN: u64 = 2;

impl Zone {
    /// Issues `count` tickets at the end of the line. If no present ticket waits and the minute has slots, their holders
    /// enter at once.
    pub fn join(&mut self, count: u32, now: Now) -> Joined {
        self.advance(now.ms);
        self.touch(self.segments.len() - 1);
        let first = self.next;
        let free = match self.mode() {
            Mode::Auto if self.present() > 0 && !sabotaged_newcomer() => 0,
            Mode::Auto => self.window.free(false).min(u32::try_from(self.room()).unwrap_or(u32::MAX)),
            Mode::Open => u32::MAX,
            Mode::Hold | Mode::Closed => 0,
        };
        let free = free.min(count);
        self.check_slots(free, false);
        let entry = self.entry_at(now);
        let mut verdicts = Vec::with_capacity(count as usize);
        for _ in 0..free {
            let seq = self.issue(true);
            self.note_entry(seq, entry);
            verdicts.push(Verdict::Entered(entry));
        }
        if free > 0 {
            Arc::make_mut(&mut self.window).record(self.now_ms, free);
        }
        let (mut ahead, mut present_ahead) = (self.waiting(), self.present());
        let mut standing = Vec::with_capacity((count - free) as usize);
        for _ in free..count {
            standing.push(TicketAhead { seq: self.issue(false), ahead, present_ahead });
            ahead += 1;
            present_ahead += 1;
        }
        verdicts.extend(self.positions_of(&standing).into_iter().map(Verdict::Waiting));
        self.tally.joined += u64::from(count);
        self.check();
        Joined {
            epoch: self.epoch,
            first,
            at_ms: self.now_ms,
            policy: self.policy,
            verdicts,
            slots: self.slots(),
        }
    }

    fn issue(&mut self, gone: bool) -> u64 {
        let seq = self.next;
        self.next += 1;
        if self.segments.back().is_none_or(|last| last.issued == SEGMENT_TICKETS) {
            self.segments.push_back(Segment::new(self.clock()));
        }
        let last = self.segments.len() - 1;
        self.segments[last].issue(gone);
        seq
    }

    /// An entry of this call.
    fn entry_at(&self, now: Now) -> Entry {
        Entry { at_ms: self.now_ms, unix_s: now.unix_s(), life_s: self.policy.pass_ttl_s }
    }

    fn note_entry(&mut self, seq: u64, entry: Entry) {
        self.inside.begin_visit(seq, &self.policy, self.now_ms);
        self.entries.insert(seq, entry);
        self.expiries.push(Reverse((entry.expires_ms(), seq)));
        self.unsaved.entered.push((seq, entry));
        self.tally.entered += 1;
    }

    /// Decides claims, all on the line as the call finds it. A holder who claims is present. The verdicts are in the
    /// claims' order.
    pub fn enter(&mut self, claims: &[Claim], now: Now) -> Decided {
        self.advance(now.ms);
        self.end_missed_appointments();
        let known = |claim: &&Claim| self.is_of_line(**claim);
        let mut asked: Vec<u64> = claims.iter().filter(known).map(|claim| claim.seq).collect();
        asked.sort_unstable();
        asked.dedup();
        let entry = self.entry_at(now);
        let mut decided = Vec::with_capacity(asked.len());
        let mut waiting = Vec::with_capacity(asked.len());
        for seq in asked {
            let found = self.find(seq);
            if let Some((segment, _)) = found {
                self.touch(segment);
            }
            if let Some(&earlier) = self.entries.get(&seq).filter(|entry| self.is_remembered(entry)) {
                let again = sabotaged_twice() && self.window.free(true) > 0;
                if again {
                    Arc::make_mut(&mut self.window).record(self.now_ms, 1);
                    self.note_entry(seq, entry);
                }
                decided.push((seq, Verdict::Entered(if again { entry } else { earlier })));
            } else if let Some((segment, ticket)) = found
                && self.segments[segment].is_live(ticket)
            {
                self.note_lateness(seq);
                self.segments[segment].hear(ticket);
                waiting.push((seq, segment, ticket));
            }
        }
        let (entered, standing) = self.admit(&waiting, entry);
        decided.extend(entered.into_iter().map(|seq| (seq, Verdict::Entered(entry))));
        let seqs = standing.iter().map(|standing| standing.seq);
        decided.extend(seqs.zip(self.positions_of(&standing).into_iter().map(Verdict::Waiting)));
        decided.sort_unstable_by_key(|&(seq, _)| seq);
        self.check();
        let verdict = |claim: &Claim| match decided.binary_search_by_key(&claim.seq, |&(seq, _)| seq) {
            Ok(i) if self.is_of_line(*claim) => decided[i].1,
            _ if self.may_be_dealt(*claim) => Verdict::Waiting(self.not_yet()),
            _ => Verdict::Gone,
        };
        let verdicts = claims.iter().map(verdict).collect();
        Decided { at_ms: self.now_ms, policy: self.policy, verdicts, slots: self.slots(), drawn: self.drawn }
    }

    /// Admits those of `waiting` (ticket, segment, and number there; in the line's order) that have a slot beside one for
    /// every present ticket ahead. Returns the admitted tickets, and where the others stand afterwards.
    fn admit(&mut self, waiting: &[(u64, usize, usize)], entry: Entry) -> (Vec<u64>, Vec<TicketAhead>) {
        let free = match self.mode() {
            Mode::Auto => u64::from(self.window.free(true)).min(self.room()),
            Mode::Open => u64::MAX,
            Mode::Hold | Mode::Closed => 0,
        };
        let in_order = self.mode() == Mode::Auto && !sabotaged_order();
        let (mut entered, mut standing) = (Vec::new(), Vec::new());
        let mut ahead = Ahead::new(&self.segments);
        for &(seq, segment, ticket) in waiting {
            let (live, present) = ahead.of(segment, ticket);
            let count = entered.len() as u64;
            if if in_order { present } else { count } < free {
                entered.push(seq);
            } else {
                standing.push(TicketAhead { seq, ahead: live - count, present_ahead: present - count });
            }
        }
        self.check_slots(u32::try_from(entered.len()).unwrap_or(u32::MAX), true);
        for &seq in &entered {
            if let Some((segment, ticket)) = self.find(seq) {
                self.segments[segment].enter(ticket);
            }
            self.appointments.remove(&seq);
            self.note_entry(seq, entry);
            self.tally.slots_used += 1;
        }
        if let Ok(count @ 1..) = u32::try_from(entered.len()) {
            Arc::make_mut(&mut self.window).record(self.now_ms, count);
        }
        (entered, standing)
    }

    /// Learns from a holder who comes to an appointment that an answer made.
    fn note_lateness(&mut self, seq: u64) {
        if let Some(appointment) = self.appointments.get(&seq).filter(|known| known.poll_in_ms > 0) {
            // A pause since then is not the holder's lateness.
            let asked_ms = appointment.due_ms + self.paused_ms - appointment.poll_in_ms - 2 * GRACE_MS;
            let late_ms = i64::try_from(self.now_ms).unwrap_or(0) - i64::try_from(asked_ms).unwrap_or(0);
            self.lateness_ms = (self.lateness_ms * 15 + late_ms.clamp(-500, 1_500)) / 16;
        }
    }

    /// Makes the positions of tickets, and the appointments of those in the front.
    fn positions_of(&mut self, tickets: &[TicketAhead]) -> Vec<Position> {
        let (front_len, room, now_ms) = (u64::from(self.front_limit()), self.room(), self.now_ms);
        let next_in = room.saturating_add(NEXT_IN * u64::from(self.policy.max_active));
        let mut slots = Slots::new(self.window.upcoming(now_ms));
        let position = |&TicketAhead { ahead, present_ahead, .. }: &TicketAhead| {
            let of_front = self.mode() == Mode::Auto && present_ahead < front_len;
            let has_room = of_front && present_ahead < room;
            let slot_in_ms = has_room.then(|| slots.at(present_ahead).saturating_sub(now_ms));
            let other_ms = match () {
                () if of_front && present_ahead < next_in => self.policy.full_period_ms(),
                () if of_front => self.policy.near_period_ms(),
                () => self.policy.polling_period_ms,
            };
            Position {
                rank: 1 + ahead,
                present_ahead,
                estimate: None,
                poll_in_ms: slot_in_ms.map_or(other_ms, |wait| self.ask_again_in(wait)),
                slot_in_ms: slot_in_ms.map(|wait| u32::try_from(wait).unwrap_or(u32::MAX)),
            }
        };
        let positions: Vec<_> = tickets.iter().map(position).collect();
        for (&TicketAhead { seq, .. }, position) in tickets.iter().zip(&positions) {
            // A ticket of the front keeps an appointment also while many present tickets are ahead: later beats make none.
            let is_near = position.present_ahead < front_len || self.is_in_front(seq);
            if self.mode() == Mode::Auto && is_near {
                self.appoint(seq, position.poll_in_ms.into(), position.poll_in_ms.into());
            } else {
                self.appointments.remove(&seq);
            }
        }
        positions
    }

    /// Moves the end of the front. Present tickets that come into it get appointments: their holders have the time of two
    /// periods for a claim, as they were told them. They replace earlier ones, because polls may have been answered from the view
    /// since those were made.
    pub(super) fn move_front(&mut self, front_end: u64) {
        let is_auto = self.mode() == Mode::Auto;
        for index in 0..self.segments.len() {
            let first = (self.base + index as u64) * SEGMENT;
            let end = if is_auto { front_end.saturating_sub(first).min(SEGMENT) } else { 0 };
            let new = self.segments[index].set_front(usize::try_from(end).unwrap_or(SEGMENT_TICKETS));
            for ticket in new {
                let is_near = ticket < self.segments[index].near;
                let longest_period_ms = self.longest_period_ms(&self.policy);
                let period_ms =
                    if is_near { longest_near_period_ms(longest_period_ms) } else { longest_period_ms };
                self.appoint(first + ticket as u64, 0, period_ms.into());
            }
        }
    }

    /// Moves the end of the approach, and returns it. People there are told the near period from now on. After the warning time
    /// all of them have heard it, and whoever is silent for two near periods is not present any more.
    pub(super) fn move_approach(&mut self, front_end: u64) -> u64 {
        let (mut end, mut near_end) = (front_end, 0);
        let longest_period_ms = self.longest_period_ms(&self.policy);
        if self.mode() == Mode::Auto && self.policy.near_period_ms() < longest_period_ms {
            end = front_end.max(self.behind_present(self.policy.approach_len(longest_period_ms)));
            near_end = self.mark_approach(end, warning_ms(longest_period_ms));
        } else {
            self.marks.clear();
        }
        let near_age = self.clock().near_age;
        for (segment, number) in self.segments.iter_mut().zip(self.base..) {
            let near = near_end.saturating_sub(number * SEGMENT).min(SEGMENT);
            segment.set_near(usize::try_from(near).unwrap_or(SEGMENT_TICKETS), near_age);
        }
        end
    }

    /// Notes where the approach ends. Returns the first ticket whose holder need not have heard the near period yet.
    fn mark_approach(&mut self, end: u64, warning_ms: u64) -> u64 {
        let now_ms = self.now_ms;
        let is_before = |&(at_ms, _): &(u64, u64), ms: u64| at_ms + ms <= now_ms;
        let is_due = self.marks.back().is_none_or(|last| is_before(last, warning_ms / 4));
        if is_due {
            self.marks.push_back((now_ms, end));
        }
        // The newest that is as old as the warning time, or the first one.
        let heard = self.marks.iter().rposition(|mark| is_before(mark, warning_ms));
        if is_due {
            // Older marks are kept until then: the warning time may become longer.
            self.marks.drain(..heard.unwrap_or(0));
        }
        let Some(heard) = heard else { return 0 };
        let since = if is_due { 0 } else { heard };
        // Where the end went back meanwhile, people were told the long period again.
        self.marks.iter().skip(since).fold(end, |least, &(_, end)| least.min(end))
    }

    /// The most present tickets in the front. While nobody more may be inside, it is those whom a second's slots are for, and some
    /// more.
    pub(super) fn front_limit(&self) -> u32 {
        let room = u32::try_from(self.room()).unwrap_or(u32::MAX);
        let seconds = self.policy.admit_per_minute.div_ceil(60).max(16);
        self.policy.front_len().min(room.saturating_add(seconds))
    }

    fn is_in_front(&self, seq: u64) -> bool {
        self.find(seq).is_some_and(|(segment, ticket)| ticket < self.segments[segment].front)
    }

    /// Makes an appointment: the claim is expected after `period_ms`, and its lateness is measured if the holder was asked to
    /// come in `poll_in_ms`.
    fn appoint(&mut self, seq: u64, poll_in_ms: u64, period_ms: u64) {
        // A second grace time, because a claim that arrived may wait for the store as long as a beat takes.
        let due_ms = self.now_ms + 2 * period_ms + 2 * GRACE_MS - self.paused_ms;
        self.appointments.insert(seq, Appointment { due_ms, poll_in_ms });
        self.dues.push(Reverse((due_ms, seq)));
    }

    /// When a holder should ask again whose slot becomes free in `wait_ms`, in milliseconds from now.
    ///
    /// The reply and the next poll take time too, so the period is shorter by that. Apps keep a period only to about a
    /// tenth, so the last step is short.
    fn ask_again_in(&self, wait_ms: u64) -> u32 {
        let period_ms = u64::from(self.policy.near_period_ms());
        let lead_ms = u64::try_from(self.lateness_ms).unwrap_or(0);
        let last_step_ms = LAST_STEP_MS.max(lead_ms + LEAST_POLL_MS);
        if wait_ms > period_ms + last_step_ms {
            return self.policy.near_period_ms();
        }
        let aim_ms = if wait_ms > 2 * last_step_ms { wait_ms - last_step_ms } else { wait_ms };
        let poll_in_ms = aim_ms.saturating_sub(lead_ms).clamp(LEAST_POLL_MS, period_ms);
        u32::try_from(poll_in_ms).unwrap_or(u32::MAX)
    }
}

/// A ticket with the numbers of live and of present tickets ahead.
struct TicketAhead {
    seq: u64,
    ahead: u64,
    present_ahead: u64,
}

/// The next slots, computed as far as they are asked for.
struct Slots<'a> {
    upcoming: Upcoming<'a>,
    /// Instants, each with the number of slots free by then.
    known: Vec<(u64, u64)>,
}

impl<'a> Slots<'a> {
    fn new(upcoming: Upcoming<'a>) -> Self {
        Self { upcoming, known: Vec::new() }
    }

    /// The instant at which the slot becomes free that follows `before` other slots.
    fn at(&mut self, before: u64) -> u64 {
        while self.known.last().is_none_or(|&(_, slots)| slots <= before) {
            // `upcoming` has no end.
            let Some((at_ms, count)) = self.upcoming.next() else { break };
            let slots = self.known.last().map_or(0, |&(_, slots)| slots) + u64::from(count);
            self.known.push((at_ms, slots));
        }
        let step = self.known.partition_point(|&(_, slots)| slots <= before);
        self.known[step].0
    }
}

/// Counts the tickets ahead of given tickets, which must come in the line's order.
struct Ahead<'a> {
    segments: &'a VecDeque<Segment>,
    index: usize,
    word: usize,
    /// The live and the present tickets in the segments before `index`, and in the words before `word` of that segment.
    before: (u64, u64),
    within: (u64, u64),
}

impl<'a> Ahead<'a> {
    fn new(segments: &'a VecDeque<Segment>) -> Self {
        Self { segments, index: 0, word: 0, before: (0, 0), within: (0, 0) }
    }

    /// The live and the present tickets ahead of a ticket, which must not be before the last one asked for. Other segments
    /// are counted as of their last touch.
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
