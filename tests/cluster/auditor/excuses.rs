//! What no store could help: who knew of a ticket, an entry or the time, and whether all of them were gone.
//!
//! Invariant: an excuse names the fault that is its cause, and the people whom that fault reached.

use gate::PassClaims;

use super::{Auditor, CROWDED, Decision, HEARD_MS, Life, Promise, SEGMENT, SILENCE, Seen, Ticket};

/// How long a server that stood still runs before its calls set a clock right: it calls once a second, and late calls do so after 0.7 s.
const TOLD_MS: u64 = 2_000;

impl Auditor {
    /// The decision that a pass tells of.
    pub(super) fn decision_of(&self, pass: &PassClaims) -> Option<Decision> {
        let decisions = self.decided.get(&(pass.epoch, pass.seq))?;
        decisions.iter().rev().find(|decision| decision.unix_s == pass.entered_unix_s).copied()
    }

    /// The servers that know from their views who entered or gave up the place at `at`, and since when: nothing was wrong for so long that
    /// each has looked. A server looks at a zone from when somebody asks there, for a minute after each entry.
    fn heard_by_views(&self, at: u64) -> impl Iterator<Item = (usize, u64)> {
        self.lives.iter().filter_map(move |life| {
            let answers = &self.answers[life.server];
            let asked = answers[answers.partition_point(|&ms| ms < at.max(life.from))..].first()?;
            let heard = asked + HEARD_MS;
            (life.until > heard && !self.is_disturbed(at, heard)).then_some((life.server, heard))
        })
    }

    /// Whether a server's process that knew of a decision at `told` runs until `now`, and could tell the store at all times until it was
    /// decided `again`.
    fn still_knows(&self, (server, told): (usize, u64), again: u64, now: u64) -> bool {
        let runs = |life: &Life| life.server == server && life.from <= told && life.until > now;
        let cut = |&(from, until, cut): &(u64, u64, usize)| {
            cut == server && until - from > self.idle_ms / SILENCE && from <= now && until >= told
        };
        // It tells once a second, when the network is whole again.
        let is_apart = |&(from, until): &(u64, u64)| from <= told && until + 2_000 >= again;
        self.lives.iter().any(runs) && !self.silent.iter().any(cut) && !self.divided.iter().any(is_apart)
    }

    /// Whether a server knows that the holder of a ticket gave up the place at `at`, so that it does not enter at `now`, whatever happened
    /// to the store.
    pub(super) fn knows_that_left(&self, ticket: Ticket, at: u64, now: u64) -> bool {
        let was_in =
            self.decided.get(&ticket).is_some_and(|all| all.iter().any(|decision| decision.ms <= at));
        !was_in && self.heard_by_views(at).any(|heard| self.still_knows(heard, now, now))
    }

    /// Whether a server knows that the holder of a ticket entered by this decision, so that nobody enters with it at `now`, whatever happened
    /// to the store, and also if the pass has ended.
    pub(super) fn knows_that_entered(&self, decision: Decision, now: u64) -> bool {
        let by = decision.server.map(|server| (server, decision.ms));
        by.into_iter().chain(self.heard_by_views(decision.ms)).any(|heard| self.still_knows(heard, now, now))
    }

    /// Whether a decision may be lost by `now`, of which the servers in `told` were told, and others by their views: those have ended or
    /// were cut off, and the only node that knew was lost or cut off, or the store was emptied.
    pub(super) fn may_be_lost(
        &self,
        decision: Decision,
        pass: &PassClaims,
        told: &[(usize, u64)],
        now: u64,
    ) -> bool {
        // When it was decided again.
        let decisions = self.decided.get(&(pass.epoch, pass.seq)).into_iter().flatten();
        let again = decisions.map(|other| other.ms).filter(|&ms| ms > decision.ms).min().unwrap_or(now);
        let by = decision.server.map(|server| (server, decision.ms));
        let heard = self.heard_by_views(decision.ms);
        let is_known = by
            .into_iter()
            // Who was told later knows of both.
            .chain(told.iter().copied().filter(|(_, ms)| *ms <= again))
            .chain(heard)
            .any(|told| self.still_knows(told, again, now));
        let lost =
            |&(from, until): &(u64, u64)| decision.ms <= until && decision.ms + 10_000 >= from && from <= now;
        // What a replica confirmed is not lost with its primary, if there is no other replica.
        !is_known
            && (self.disturbed.iter().any(lost) && !self.keeps_told
                || self.wiped.iter().any(|at| (decision.ms..=now).contains(at)))
    }

    /// A pass that was told at `at` was not returned again at `now`. `told` are the servers that returned it before.
    pub(super) fn pass_lost(
        &mut self,
        (now, at): (u64, u64),
        user: usize,
        told: &[(usize, u64)],
        pass: &PassClaims,
        how: &str,
    ) {
        let decision = self.decision_of(pass);
        // Of two lines whose numbers are too near, one ends, with its entries.
        let excused = decision.is_some_and(|decision| self.may_be_lost(decision, pass, told, now))
            || self.from_file && self.is_crowded(Some((pass.epoch, pass.seq)));
        // A clock that is set while no server knows the zone's clock makes passes end early or late.
        let is_unknown = |at: u64| self.nobody_knows(at, now) || self.nobody_knows_the_time(at, now);
        if !excused && !decision.is_some_and(|decision| is_unknown(decision.ms)) {
            let how =
                format!("{now} ms: user {user} got {pass:?} at {at} ms, decided by {decision:?}; {how}");
            self.breaks(Promise::PassDiffers, how);
        }
    }

    /// When a server could reach the store from `at` on, if it runs then.
    fn reaches_at(&self, server: usize, at: u64) -> u64 {
        let mut from = at;
        for &(cut, until, of) in &self.silent {
            if of == server && cut <= from + 1_000 && until > from {
                from = until;
            }
        }
        from
    }

    /// Whether the store was emptied while no server ran that had seen a ticket of `since`. In a zone of a file servers have to tell of the
    /// ticket; in an operator's zone, the ticket itself proves the place, so that silence does not count.
    pub(super) fn nobody_knows(&self, since: u64, now: u64) -> bool {
        self.emptied(since, now, self.from_file)
    }

    /// Whether the store was emptied from `since` to `now`, and no server could tell of `since`.
    fn emptied(&self, since: u64, now: u64, silence_counts: bool) -> bool {
        self.wiped
            .iter()
            .any(|&at| (since..=now).contains(&at) && self.is_forgotten(since, at, silence_counts))
    }

    /// Whether no server could tell of `since` when the store lost that at `at`. If silence counts, a server that reaches the store only
    /// later has not seen it; nor does one tell of it that reaches it after the loss when it ends, or too late.
    fn is_forgotten(&self, since: u64, at: u64, silence_counts: bool) -> bool {
        let reaches = |server, at| if silence_counts { self.reaches_at(server, at) } else { at };
        let tells = |life: &Life| {
            let (seen, from) = (reaches(life.server, since), reaches(life.server, at));
            life.from < since && seen < at && life.until > from + 5_000 && from < at + self.idle_ms
        };
        !self.lives.iter().any(tells)
    }

    /// Whether a ticket of `since` is of an epoch of which no server told after a loss, and somebody of another epoch has a ticket of the
    /// same segment: that epoch has the segment then.
    pub(super) fn is_displaced(&self, ticket: Option<Ticket>, since: u64, now: u64) -> bool {
        let Some((epoch, seq)) = ticket else { return false };
        let of_segment = |(of, number): Ticket| of != epoch && number / SEGMENT == seq / SEGMENT;
        self.emptied(since, now, true) && self.users.iter().filter_map(|seen| seen.ticket).any(of_segment)
    }

    /// Whether a ticket of `since` was taken after a deal that the store lost with all servers that knew of it.
    pub(super) fn is_of_lost_deal(&self, since: u64, now: u64) -> bool {
        self.undealt.windows(2).any(|pair| {
            let ((_, dealt), (lost, _)) = (pair[0], pair[1]);
            dealt <= since && since <= lost && lost <= now && self.is_forgotten(dealt, lost, true)
        })
    }

    /// Whether the holder entered by a call that no replica confirmed, so that nobody told so, and the pass has ended or the entries of a
    /// segment were deleted since.
    pub(super) fn ended_untold(&self, ticket: Option<Ticket>, now: u64) -> bool {
        let decisions = ticket.and_then(|ticket| self.decided.get(&ticket));
        let is_lost = |since: u64| self.entries_lost.iter().any(|at| (since..=now).contains(at));
        let has_ended = |decision: &Decision| {
            decision.server.is_none() && (decision.ms + self.pass_ms < now || is_lost(decision.ms))
        };
        decisions.is_some_and(|decisions| decisions.iter().any(has_ended))
    }

    /// Whether a ticket of another line has nearly the same number, so that one of the lines had to end. Lines begin at random
    /// numbers.
    pub(super) fn is_crowded(&self, ticket: Option<Ticket>) -> bool {
        let Some((epoch, seq)) = ticket else { return false };
        let near = |other: &Seen| {
            other.ticket.is_some_and(|(of, number)| of != epoch && number.abs_diff(seq) < CROWDED)
        };
        let begun = self.begun.iter().filter(|&&(of, number)| of != epoch && number.abs_diff(seq) < CROWDED);
        // Chance does not give two lines the same first number.
        let is_same =
            |&(of, number): &Ticket| self.begun.iter().any(|&(o, n)| (o, n) != (of, number) && n == number);
        if self.begun.iter().any(is_same) {
            return false;
        }
        self.begun.len() > 1 && (begun.count() > 0 || self.users.iter().any(near))
    }

    /// The policy before an operator's last change may stay in force: no server said that the change is made, or it may be lost.
    pub(crate) fn keep_policy_before(&mut self) {
        if let [.., before, last] = &mut self.policies[..] {
            before.until = u64::MAX;
            let (from, before) = (last.from, *before);
            self.hold(from, before);
        }
    }

    /// A server read the register.
    pub(crate) fn reads_register(&mut self, now: u64, server: usize) {
        self.read_register.insert(server, now);
    }

    /// An operator was told that the last change is made. It may be lost all the same, if the store was emptied, a server that remembers
    /// nothing made the register anew, and one that remembers the earlier register has not read it since: it writes that one back later.
    pub(crate) fn changed(&mut self, now: u64) {
        let remembers = |server: usize, wiped: u64| {
            self.lives
                .iter()
                .any(|life| life.server == server && life.from + 1_000 < wiped && life.until > wiped)
        };
        let comes_later = |server: &usize| {
            let read = self.read_register_ms(*server);
            self.wiped.iter().any(|&wiped| read <= wiped && wiped <= now && remembers(*server, wiped))
        };
        if (0..self.server_sides.len()).any(|server| comes_later(&server)) {
            self.keep_policy_before();
        }
    }

    /// A node began a line with this epoch and number, because it had none. Its clock is ahead by this much.
    pub(crate) fn line_begins(&mut self, now: u64, (epoch, number): Ticket, ahead_ms: i64) {
        let opens_ms = self.policies[0].opens_ms;
        if opens_ms != 0 {
            self.openings.push((now, u64::try_from(opens_ms - ahead_ms).unwrap_or(0)));
        }
        if !self.begun.contains(&(epoch, number)) {
            self.begun.push((epoch, number));
        }
    }

    /// An epoch began in the line that is named after its first epoch.
    pub(crate) fn epoch_begins(&mut self, epoch: u32, line: u32) {
        // An earlier line may be put in front of this one, and names the state from then on.
        self.lines.entry(epoch).or_insert(line);
    }

    /// Whether one of two people took a ticket of a line that was begun without the other one's. Nobody knows then which line
    /// is the earlier one.
    pub(super) fn of_two_lines(&self, one: &Seen, other: &Seen) -> bool {
        let line = |seen: &Seen| {
            let (epoch, _) = seen.ticket?;
            Some(self.lines.get(&epoch).copied().unwrap_or(epoch))
        };
        let is_new = |seen: &Seen| self.begun.iter().skip(1).any(|&(begun, _)| line(seen) == Some(begun));
        line(one) != line(other) && (is_new(one) || is_new(other))
    }

    /// Whether the ticket is of a line that no server remembers, and whose numbers another one may have. Only an operator's zone
    /// leaves room for such tickets.
    pub(super) fn has_no_place(&self, seen: &Seen, now: u64) -> bool {
        self.from_file && (self.nobody_knows(seen.joined.1, now) || self.is_crowded(seen.ticket))
    }

    /// Whether a node's clock was set while no server ran that had seen a ticket of `since`. A server that stands still or is
    /// cut off, from then until now or until it is too late, does not run; nor does one that nobody asks; nor does one in the other part of a
    /// divided network, because it is too late once one in the node's part has called. A server that starts may be the first to call: the
    /// others call once a second, and while a slot is half moved none reaches the zone.
    pub(super) fn nobody_knows_the_time(&self, since: u64, now: u64) -> bool {
        self.clock_set.iter().any(|&at| {
            let is_silent = |life: &Life| {
                self.silent.iter().any(|&(from, until, server)| {
                    let end = now.min(at + self.idle_ms).min(life.until);
                    server == life.server && from <= at + 5_000 && until + TOLD_MS >= end
                })
            };
            let is_divided = self.divided.iter().any(|&(from, until)| from <= at && until > at + 1_000);
            // A server looks at a zone for a minute after somebody asked there.
            let looks = |life: &Life| {
                let answers = &self.answers[life.server];
                let from = answers.partition_point(|&ms| ms < life.from.max(at.saturating_sub(60_000)));
                answers.get(from).is_some_and(|&ms| ms <= at + 5_000)
            };
            let tells = |life: &Life, side: usize| {
                let is_near = !is_divided || self.server_sides[life.server] == side;
                life.from < since && life.until > at + 5_000 && is_near && !is_silent(life) && looks(life)
            };
            let nobody = |side: &usize| !self.lives.iter().any(|life| tells(life, *side));
            let begins = |until: u64| self.lives.iter().any(|life| (at..until).contains(&life.from));
            let half_moved = self.half_moved.iter().filter(|&&(from, until)| from <= at && at <= until);
            let is_beginner_first =
                half_moved.map(|&(_, until)| until + 5_000).chain([at + 1_500]).any(begins);
            (since..=now).contains(&at) && (is_beginner_first || self.server_sides.iter().any(nobody))
        })
    }
}
