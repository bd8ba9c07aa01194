//! What can only be judged at the end of a run: windows, people inside, order and progress.

use std::collections::BTreeSet;

use super::{Auditor, CLOCK_MS, Figures, InForce, Poll, Promise, RECOVERY_MS, Seen, Ticket, WAY_MS};
use crate::plan::Kind;

/// How often people near the front are told to ask at least.
const NEAR_PERIOD_MS: u64 = 3_000;

/// Somebody got in: the decision whose pass reached its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    ms: u64,
    user: usize,
    ticket: Ticket,
    by_join: bool,
    by_cut_off: bool,
}

/// The servers that are there at the start have begun by then.
const FIRST_SERVERS_MS: u64 = 1_000;

/// At which distance instants are looked at that count as free slots.
const STEP_MS: usize = 250;

impl Auditor {
    fn quiet(&self, from: u64, until: u64) -> bool {
        let apart = |&(a, b): &(u64, u64)| until < a || from > b;
        self.disturbed.iter().chain(&self.held).chain(&self.undealt).all(apart)
    }

    /// The policies that may be in force at some time from `from` to `until`.
    pub(super) fn in_force(&self, from: u64, until: u64) -> impl Iterator<Item = &InForce> {
        self.policies.iter().filter(move |of| of.from <= until && of.until >= from)
    }

    /// The most entries that all of them allow in a minute, and the most sub-windows that one of them has.
    fn least(&self, from: u64, until: u64) -> (u32, u32) {
        let n = self.in_force(from, until).map(|of| of.n).min().unwrap_or(0);
        (n, self.in_force(from, until).map(|of| of.sub_windows).max().unwrap_or(1))
    }

    /// The people who got in, in the order of the decisions. A user who took another place may have got in twice.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (user, seen) in self.users.iter().enumerate() {
            let passes = seen.earlier.iter().filter_map(|place| place.pass).chain(seen.pass);
            entries.extend(passes.map(|(at, pass)| {
                let decision = self.decision_of(&pass);
                let (ms, by_join, by_cut_off) =
                    decision.map_or((at, false, false), |of| (of.ms, of.by_join, of.by_cut_off));
                Entry { ms, user, ticket: (pass.epoch, pass.seq), by_join, by_cut_off }
            }));
        }
        entries.sort_unstable();
        entries
    }

    /// When each user got in with the ticket that they have now; `u64::MAX` for those who did not.
    fn entered_with_last(&self, entries: &[Entry]) -> Vec<u64> {
        let mut entered = vec![u64::MAX; self.users.len()];
        for entry in entries.iter().filter(|entry| self.is_last(entry)) {
            entered[entry.user] = entry.ms;
        }
        entered
    }

    /// Whether it is the entry of the last place that its user took.
    fn is_last(&self, entry: &Entry) -> bool {
        self.users[entry.user].ticket == Some(entry.ticket)
    }

    /// Checks what can only be judged at the end.
    pub(crate) fn finish(&mut self, ends: u64) -> Figures {
        let entries = self.entries();
        self.check_windows(&entries);
        self.check_inside(&entries);
        self.check_opening(&entries);
        self.check_order(&entries);
        self.check_progress(&entries, ends);
        self.check_copied_places();
        let (users, entries) = (self.users.len() as u64, entries.len() as u64);
        Figures { users, entries, calls: self.calls, judged: self.judged }
    }

    /// How many faults were in force from `from` to `until`.
    fn faults(&self, from: u64, until: u64) -> u64 {
        self.disturbed.iter().filter(|&&(begins, ends)| begins <= until && ends >= from).count() as u64
    }

    /// By how much the zone's clock may have been moved ahead from `from` to `until`. Only a clock that is set while its node runs does
    /// that: the clock of a process that takes over says nothing.
    fn ahead_ms(&self, from: u64, until: u64) -> u64 {
        let lately = |set: &&u64| **set <= until && **set + RECOVERY_MS >= from;
        CLOCK_MS * self.set_ahead.iter().filter(lately).count() as u64
    }

    fn check_windows(&mut self, entries: &[Entry]) {
        let lengths = self.policies.iter().map(|of| of.sub_windows).chain([1]);
        for subs in lengths.collect::<BTreeSet<_>>() {
            let length_ms = 60_000 / u64::from(subs);
            for (last, &Entry { ms: at, by_join, by_cut_off, .. }) in entries.iter().enumerate() {
                let faults = self.faults(at.saturating_sub(length_ms), at);
                let ahead_ms = self.ahead_ms(at.saturating_sub(length_ms), at);
                let within_ms = length_ms.saturating_sub(ahead_ms + WAY_MS * faults);
                let first = entries.partition_point(|entry| entry.ms + within_ms < at);
                // In a sub-window, what a primary admits that started cut off comes on top (what-can-go-wrong.md): each part is judged alone.
                let of_part = |entry: &&Entry| subs == 1 || entry.by_cut_off == by_cut_off;
                let count = entries[first..=last].iter().filter(of_part).count();
                let in_force = || self.in_force(entries[first].ms, at);
                // Of other lengths nothing follows.
                if subs > 1 && in_force().any(|of| of.sub_windows != subs) {
                    continue;
                }
                let cap = in_force().map(|of| of.n.div_ceil(subs)).max().unwrap_or(0) as usize;
                self.judged.windows += 1;
                self.judged.exact_windows += u64::from(faults == 0);
                // A burst without a line may use the whole minute at once.
                let burst = subs > 1 && (by_join || entries[first..=last].iter().any(|entry| entry.by_join));
                if count > cap && !burst {
                    let promise = if subs == 1 { Promise::TooMany } else { Promise::TooManyInASubWindow };
                    let how = format!(
                        "{count} people entered from {} ms to {at} ms, {cap} may; {faults} faults then",
                        entries[first].ms
                    );
                    self.breaks(promise, how);
                    return;
                }
            }
        }
    }

    /// How many were inside at `at`, if visits end `idle_ms` after the last activity.
    fn inside(&self, entries: &[Entry], at: u64, idle_ms: u64) -> usize {
        let until = entries.partition_point(|entry| entry.ms <= at);
        let inside = move |entry: &&Entry| self.visitors.is_inside(entry.ticket, entry.ms, at, idle_ms);
        entries[..until].iter().filter(inside).count()
    }

    /// Nobody enters before the zone opens, by the clock of the node that began its line. However often the state is lost, only clocks
    /// that are set ahead while their nodes run open it early.
    fn check_opening(&mut self, entries: &[Entry]) {
        if self.policies.iter().all(|of| of.opens_ms == 0) {
            return;
        }
        self.judged.openings += 1;
        let changed_ms = self.policies.get(1).map_or(u64::MAX, |of| of.from);
        // By the policy of the start, until it is changed: by the clock of the node that began the line.
        let opens_ms = |at: u64| {
            let begun = self.openings.iter().filter(|(begun, _)| *begun <= at);
            let first = begun.map(|(_, opens_ms)| *opens_ms).min();
            first.unwrap_or(u64::MAX).saturating_sub(self.ahead_ms(0, at))
        };
        // By all that may be in force after that: by the clock that is ahead of all others.
        let most_ahead_ms = self.clocks_ms.0.max(0) + CLOCK_MS.cast_signed();
        let is_shut = |of: &InForce, at: u64| at.cast_signed() + most_ahead_ms < of.opens_ms;
        let is_early = |&&Entry { ms: at, .. }: &&Entry| {
            if at < changed_ms && self.policies[0].opens_ms != 0 {
                // Where no server was left that knew the zone's clock, the clock of the node counts, whatever it was set to.
                at < opens_ms(at) && !self.nobody_knows_the_time(FIRST_SERVERS_MS, at)
            } else {
                self.in_force(at, at).all(|of| is_shut(of, at))
            }
        };
        if let Some(&Entry { ms: at, user, .. }) = entries.iter().find(is_early) {
            let policies: Vec<_> = self.in_force(at, at).collect();
            let how = format!(
                "user {user} entered at {at} ms, before the zone opens: by the clock of its line at {} ms, by {policies:?}",
                opens_ms(at)
            );
            self.breaks(Promise::TooEarly, how);
        }
    }

    /// Nobody enters while as many people as may are inside.
    fn check_inside(&mut self, entries: &[Entry]) {
        for &Entry { ms: at, user, .. } in entries {
            let limits = || self.in_force(at, at).map(|of| of.max_active);
            if limits().any(|most| most == 0) {
                continue;
            }
            let most = limits().max().unwrap_or(0);
            self.judged.insides += 1;
            let inside = self.inside(entries, at, self.visit_idle_ms - 1_000);
            if inside > most as usize {
                let how = format!("{at} ms: user {user} makes it {inside} inside, {most} may be");
                self.breaks(Promise::TooManyInside, how);
                return;
            }
        }
    }

    /// How many entries count as inside at `at` of which nobody has heard, because the answer was lost.
    fn unheard(&self, entries: &[Entry], at: u64, idle_ms: u64) -> usize {
        let is_heard = |ticket: &Ticket| entries.iter().any(|entry| entry.ticket == *ticket);
        let lately = |ms: u64| ms <= at && at < ms + idle_ms;
        let inside = self.decided.iter().filter(|(ticket, decisions)| {
            decisions.iter().any(|decision| lately(decision.ms)) && !is_heard(ticket)
        });
        inside.count()
    }

    /// Whether more people must be let in at `at`, as far as the limit of those inside goes. After a server fell silent that may have
    /// seen somebody, visits do not grow idle for up to twice the idle time of the line, and a quarter of it until that is
    /// noticed. After a wipe, people who left and whose entries are remembered count until they are idle.
    fn has_room(&self, entries: &[Entry], at: u64) -> bool {
        let idle_ms = self.visit_idle_ms * 3 / 2;
        let spares = |from: u64, until: u64| {
            from <= at && at <= until.saturating_add(self.longest_idle_ms * 9 / 4 + idle_ms)
        };
        let spared = self.lives.iter().any(|life| spares(life.until, life.until.saturating_add(RECOVERY_MS)))
            || self.silent.iter().any(|&(from, until, _)| spares(from, until))
            || self.wiped.iter().any(|&wiped| spares(wiped, wiped));
        let inside = || self.inside(entries, at, idle_ms) + self.unheard(entries, at, idle_ms);
        let limits = self.in_force(at, at).map(|of| of.max_active).filter(|most| *most > 0);
        limits.min().is_none_or(|most| !spared && inside() < most as usize)
    }

    /// Whether a user polled as told from `from` to `until`.
    fn polled(&self, user: usize, from: u64, until: u64) -> bool {
        let seen = &self.users[user];
        let mut at = from;
        for &Poll { sent, told, .. } in &seen.polls {
            if sent > at {
                return false;
            }
            at = at.max(sent + told + told / 10 + 1_500);
            if at >= until {
                return true;
            }
        }
        false
    }

    /// Whether two people joined while the network was divided, or before the parts had one line again, and one of them in
    /// another part or before. The people of one part stand behind those of the other.
    fn joined_apart(&self, one: &Seen, other: &Seen) -> bool {
        let epoch = |seen: &Seen| seen.ticket.map(|(epoch, _)| epoch);
        let within =
            |seen: &Seen, &(from, until): &(u64, u64)| (from..=until + RECOVERY_MS).contains(&seen.joined.1);
        epoch(one) != epoch(other) && self.divided.iter().any(|time| within(one, time) && within(other, time))
    }

    fn check_order(&mut self, entries: &[Entry]) {
        let patience_ms = 4 * self.period_ms + 10_000;
        let entered = self.entered_with_last(entries);
        for entry in entries {
            let &Entry { ms: at, user, .. } = entry;
            if !self.is_last(entry) || !self.quiet(at, at + patience_ms) {
                continue;
            }
            let mine = &self.users[user];
            let (mut pairs, mut drawn_pairs) = (0, 0);
            for (other, others) in self.users.iter().enumerate() {
                if others.ticket.is_none()
                    || self.joined_apart(mine, others)
                    || self.of_two_lines(mine, others)
                    || self.has_no_place(others, at)
                    || !matches!(others.kind, Kind::Stays | Kind::Returns | Kind::Insists)
                    || !self.is_ahead(others, mine)
                {
                    continue;
                }
                // Only of two who waited at the same time one could overtake the other.
                let is_pair = entered[other] > mine.joined.1 && other != user;
                pairs += u64::from(is_pair);
                drawn_pairs += u64::from(is_pair && self.position(others).is_some());
                if entered[other] > at + patience_ms
                    && self.polled(other, others.joined.0, at + patience_ms)
                    && !self.gave_way(entries, others, (at, at + patience_ms))
                {
                    let how = format!(
                        "user {user} joined at {} ms and entered at {at} ms; user {other} joined at {} ms, polled, and entered at {}",
                        mine.tried,
                        others.joined.1,
                        entered[other].cast_signed()
                    );
                    self.breaks(Promise::OutOfOrder, how);
                    return;
                }
            }
            self.judged.pairs += pairs;
            self.judged.drawn_pairs += drawn_pairs;
        }
    }

    /// Whether somebody who waits had no slot from `from` to `until` because people ahead came back who had been silent, and entered as
    /// they may. Where all slots of a minute become free at once, the next ones are far away then.
    fn gave_way(&self, entries: &[Entry], who: &Seen, (from, until): (u64, u64)) -> bool {
        let is_ahead = |entry: &&Entry| {
            (from + 1..=until).contains(&entry.ms)
                && who.ticket.is_some_and(|(epoch, seq)| {
                    entry.ticket.0 == epoch && self.number(entry.ticket.1) < self.number(seq)
                })
        };
        let Some(last) = entries.iter().rev().find(is_ahead) else { return false };
        let cap = self.least(from, until);
        self.free_ms(entries, cap, last.ms, until) <= self.period_ms
    }

    /// How long slots were free from `from` to `until`: neither the minute nor the sub-window before had used all of them.
    /// Whoever was let in used a slot, with or without hearing of it.
    fn free_ms(&self, entries: &[Entry], cap: (u32, u32), from: u64, until: u64) -> u64 {
        (from..until).step_by(STEP_MS).filter(|&at| self.free(entries, cap, at) > 0).count() as u64
            * STEP_MS as u64
    }

    /// How many slots passed unused from `from` to `until`: a slot that is free for a sub-window is one.
    fn unused(&self, entries: &[Entry], cap: (u32, u32), from: u64, until: u64) -> u64 {
        let free: u64 = (from..until).step_by(STEP_MS).map(|at| self.free(entries, cap, at)).sum();
        free * STEP_MS as u64 * u64::from(cap.1) / 60_000
    }

    /// How many slots were free at an instant, of so many a minute in so many sub-windows.
    fn free(&self, entries: &[Entry], (cap, sub_windows): (u32, u32), at: u64) -> u64 {
        let used = |length_ms: u64| {
            let decisions = self.decided.values().flatten();
            decisions.filter(|decision| decision.ms <= at && decision.ms + length_ms >= at).count()
        };
        let of_minute = (cap as usize).saturating_sub(used(60_000));
        let of_sub_window = cap.div_ceil(sub_windows) as usize;
        let free = of_minute.min(of_sub_window.saturating_sub(used(60_000 / u64::from(sub_windows))));
        if free > 0 && self.has_room(entries, at) { free as u64 } else { 0 }
    }

    /// While people wait and poll, and nothing is wrong, the slots are used. A burst may have used those of the minute at once,
    /// and then few are free in the minute after it.
    fn check_progress(&mut self, entries: &[Entry], ends: u64) {
        let entered = self.entered_with_last(entries);
        // Hold after a loss, presumptions and appointments: the minute before the one that is measured is quiet too.
        // A zone of a file admits nobody in its first minute.
        let first = if self.from_file { 60_000 } else { 0 };
        for from in (first..ends.saturating_sub(60_000)).step_by(5_000) {
            let until = from + 60_000;
            if !self.quiet(from.saturating_sub(60_000), until) {
                continue;
            }
            let (cap, sub_windows) = self.least(from, until);
            self.judged.minutes += 1;
            let waiting = (0..self.users.len())
                .filter(|&user| {
                    let seen = &self.users[user];
                    matches!(seen.kind, Kind::Stays | Kind::Returns | Kind::Insists)
                        && seen.ticket.is_some()
                        && seen.joined.1 < from
                        && entered[user] > until
                        && self.polled(user, from.max(seen.joined.0), until)
                })
                .count();
            let within: Vec<_> = entries.iter().filter(|entry| (from..until).contains(&entry.ms)).collect();
            // Somebody who never claims holds one slot, once, for two periods and a second.
            let numbers = within.iter().map(|entry| self.number(entry.ticket.1));
            let passed = numbers.clone().min().zip(numbers.max());
            let held = self.users.iter().filter(|seen| {
                let number = seen.ticket.map(|(_, number)| self.number(number));
                let is_passed = number.zip(passed).is_some_and(|(at, (low, high))| low < at && at < high);
                seen.kind == Kind::NeverClaims && is_passed
            });
            // A device that asks at its own pace, for a place that its holder replaced or left, keeps no appointment, and gets one with each answer.
            let asked = self.lone_polls.iter().filter(|asked| (from..until).contains(asked)).count();
            let held = held.count() + asked;
            let count = within.len() + held;
            // So long these slots were free, and nobody else's. Whoever is next has been told the near period.
            let held_ms = held as u64 * (2 * self.period_ms.min(NEAR_PERIOD_MS) + 1_000);
            let held_slots = (held_ms * u64::from(sub_windows)).div_ceil(60_000);
            let least = cap as usize * 8 / 10;
            if waiting > cap.div_ceil(10) as usize + 2
                && count < least
                && self.unused(entries, (cap, sub_windows), from, until)
                    > (cap as usize - least) as u64 + held_slots
            {
                let how = format!(
                    "{count} of {cap} slots were used from {from} ms to {until} ms while {waiting} people waited"
                );
                self.breaks(Promise::Stalled, how);
                return;
            }
        }
    }
}
