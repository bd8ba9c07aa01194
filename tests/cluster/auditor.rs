//! Watches a run from outside and checks it against the promises.
//!
//! The auditor knows the true time, what each user asked and was answered, and (read on the wire) at which instant the
//! call was decided that let somebody in. It knows nothing of epochs, revisions, witnesses or rules. An entry counts
//! only if its holder received the pass. Invariant: it shares no code with the rules.

use std::collections::BTreeMap;

use admission::Departure;
use gate::{PassClaims, Refusal, Reply};

use crate::{
    inside::Visitors,
    judged::judged,
    plan::{Kind, Plan},
};

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// More than N people entered within 60 s.
    TooMany,
    /// More people than a sub-window allows entered from the line within a sub-window.
    TooManyInASubWindow,
    /// Somebody entered while as many people as may were inside.
    TooManyInside,
    /// Somebody entered long before a person who joined earlier and polled all the time.
    OutOfOrder,
    /// A holder who polled lost the place.
    PlaceLost,
    /// A repeated call returned another pass, or none.
    PassDiffers,
    /// One ticket was let in under two names.
    EnteredTwice,
    /// People waited and polled, nothing was wrong, and slots stayed unused.
    Stalled,
    /// A waiting holder got an error because the store was in trouble.
    StoreTroubleShown,
    /// A ticket counted again whose holder had given up the place or the visit.
    LeftAndBack,
    /// The state in Redis contradicts itself.
    Unsound,
}

/// A ticket's name.
pub(crate) type Ticket = (u32, u64);

/// A decision to let somebody in.
#[derive(Clone, Copy, Debug)]
struct Decision {
    ms: u64,
    unix_s: u64,
    by_join: bool,
    /// The server that made the call, unless it was not told what was decided.
    server: Option<usize>,
}

/// One user as the auditor knows it.
#[derive(Clone, Debug)]
struct Seen {
    kind: Kind,
    ticket: Option<Ticket>,
    /// When the join was sent, and when its answer came.
    joined: (u64, u64),
    /// The times at which polls were sent that were answered with a place, and how long each answer said to wait.
    polls: Vec<(u64, u64)>,
    /// The first pass, and when it came.
    pass: Option<(u64, PassClaims)>,
    /// Which server returned the pass, and when, for each time.
    told: Vec<(usize, u64)>,
    /// No longer waits.
    left: bool,
    /// Said that the place or the visit is given up; and when that was answered.
    said: bool,
    answered: Option<u64>,
    /// The server's process that answered last has answered this user before.
    known_by: Vec<(usize, u64)>,
}

/// The life of a server's process.
#[derive(Clone, Copy, Debug)]
struct Life {
    server: usize,
    from: u64,
    until: u64,
}

/// The auditor.
pub(crate) struct Auditor {
    /// From when on which policy may be in force: N, until when.
    policies: Vec<(u64, u64, u32)>,
    sub_windows: u32,
    idle_ms: u64,
    period_ms: u64,
    /// The shortest life of a pass so far.
    pass_ms: u64,
    /// A configuration file defines the zone.
    from_file: bool,
    /// The most people who may be inside; 0 for no limit.
    max_active: u32,
    visit_idle_ms: u64,
    pub(crate) visitors: Visitors,
    decided: BTreeMap<Ticket, Vec<Decision>>,
    users: Vec<Seen>,
    /// When something was wrong.
    disturbed: Vec<(u64, u64)>,
    /// When nobody may enter because an operator holds the line.
    held: Vec<(u64, u64)>,
    /// When a store without any data came into use.
    wiped: Vec<u64>,
    /// When a node's clock was set.
    clock_set: Vec<u64>,
    /// When the zone's slot was half moved.
    pub(crate) half_moved: Vec<(u64, u64)>,
    /// When a demoted primary answered as a replica.
    pub(crate) demoted: Vec<(u64, u64)>,
    /// When the network was in two parts, each with servers and people.
    divided: Vec<(u64, u64)>,
    /// When which server could not tell the store anything.
    silent: Vec<(u64, u64, usize)>,
    lives: Vec<Life>,
    /// The lines that nodes began: first epoch and first number.
    begun: Vec<Ticket>,
    judged: Judged,
    pub(crate) broken: Vec<(Promise, String)>,
    pub(crate) calls: u64,
}

judged! {
    /// Windows of a minute, and sub-windows, each of which ends with an entry.
    windows = "windows";
    /// Of those, windows in which nothing was wrong, so that no tolerance applies.
    exact_windows = "windows without a fault";
    /// Pairs of people of whom one may not enter before the other.
    pairs = "pairs in order";
    /// Minutes in which the slots must be used.
    minutes = "minutes of slots";
    /// Answers to people who hold a place.
    places = "places followed";
    /// Of those, while the zone's slot was half moved.
    half_moved_places = "places while the slot was half moved";
    /// Of those, while a demoted primary was up that refused writes.
    demoted_places = "places at a demoted primary";
    /// Passes that were asked for again.
    passes = "passes repeated";
    /// Entries while the people inside are limited.
    insides = "entries with people inside";
    /// Tickets that were tried again after their holders had left.
    replays = "tickets tried after leaving";
    /// States of the zone in Redis, each after a script, in runs in which no key vanishes.
    states = "states in Redis";
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) users: u64,
    pub(crate) entries: u64,
    pub(crate) calls: u64,
    pub(crate) judged: Judged,
}

/// How long after a fault a cluster may need: node timeout, election, the way back of a node, and the hold.
const RECOVERY_MS: u64 = 30_000;

/// A server that is silent for longer than this may come too late to tell what it knows.
const SILENCE_MS: u64 = 20_000;

/// By how much a zone's clock may open a window early, for each loss within the window: the 250 ms of a server's bounds, and 50 ms for
/// the way of a call. Seeds 156 and 498 of the operators' zones need 3 ms of these.
const CLOCK_MS: u64 = 300;

/// Every server hears of a decision within so long, if nothing is wrong: a view each second, and the ways of calls.
const VIEW_MS: u64 = 3_000;

/// Two lines whose numbers are nearer than this may have a segment in common.
const CROWDED: u64 = 3 * 65_536;

impl Auditor {
    pub(crate) fn new(plan: &Plan) -> Self {
        let user = |user: &crate::plan::User| Seen {
            kind: user.kind,
            ticket: None,
            joined: (0, 0),
            polls: Vec::new(),
            pass: None,
            told: Vec::new(),
            left: false,
            said: false,
            answered: None,
            known_by: Vec::new(),
        };
        Self {
            policies: vec![(0, u64::MAX, plan.policy.admit_per_minute)],
            sub_windows: plan.policy.sub_windows,
            idle_ms: u64::from(plan.policy.idle_timeout_s) * 1_000,
            period_ms: u64::from(plan.policy.polling_period_ms),
            pass_ms: u64::from(plan.policy.pass_ttl_s) * 1_000,
            from_file: plan.from_file,
            max_active: plan.policy.max_active,
            visit_idle_ms: u64::from(plan.policy.visit_idle_s) * 1_000,
            visitors: Visitors::default(),
            decided: BTreeMap::new(),
            users: plan.users.iter().map(user).collect(),
            disturbed: Vec::new(),
            held: Vec::new(),
            wiped: Vec::new(),
            clock_set: Vec::new(),
            half_moved: Vec::new(),
            demoted: Vec::new(),
            divided: Vec::new(),
            silent: Vec::new(),
            lives: Vec::new(),
            begun: Vec::new(),
            judged: Judged::default(),
            broken: Vec::new(),
            calls: 0,
        }
    }

    fn breaks(&mut self, promise: Promise, how: String) {
        if self.broken.len() < 20 {
            self.broken.push((promise, how));
        }
    }

    /// What is wrong with the state after a script, if anything.
    pub(crate) fn state_after(&mut self, now: u64, script: &str, fault: Option<String>) {
        self.judged.states += 1;
        if let Some(fault) = fault {
            self.breaks(Promise::Unsound, format!("at {now}, after {script}: {fault}"));
        }
    }

    /// Something is wrong during this time.
    pub(crate) fn disturb(&mut self, from: u64, until: u64) {
        self.disturbed.push((from, until + RECOVERY_MS));
    }

    /// A store without any data came into use.
    pub(crate) fn wipe(&mut self, now: u64) {
        self.wiped.push(now);
    }

    /// An operator changes how long passes are valid.
    pub(crate) fn change_pass(&mut self, ttl_s: u32) {
        self.pass_ms = self.pass_ms.min(u64::from(ttl_s) * 1_000);
    }

    /// A node's clock was set.
    pub(crate) fn set_clock(&mut self, now: u64) {
        self.clock_set.push(now);
    }

    /// The network is in two parts during this time.
    pub(crate) fn divide(&mut self, from: u64, until: u64) {
        self.divided.push((from, until));
    }

    /// A server can't reach the store, or does not run, during this time.
    pub(crate) fn silence(&mut self, from: u64, until: u64, server: usize) {
        self.silent.push((from, until, server));
    }

    pub(crate) fn server_starts(&mut self, now: u64, server: usize) {
        self.lives.push(Life { server, from: now, until: u64::MAX });
    }

    pub(crate) fn server_ends(&mut self, now: u64, server: usize) {
        if let Some(life) = self.lives.iter_mut().rev().find(|life| life.server == server) {
            life.until = now;
        }
        // If nobody else was told of an operator's last change, it may be lost with the primary.
        let others_know = self.lives.iter().any(|life| life.until == u64::MAX && life.from + 1_000 < now);
        if let [.., before, last] = &mut self.policies[..]
            && !others_know
            && now < last.0 + 5_000
        {
            before.1 = u64::MAX;
        }
    }

    /// An operator's change was sent at `from`.
    pub(crate) fn change(&mut self, from: u64, n: u32, held: bool) {
        // The old policy may stay in force until every server and every node heard of the change.
        if let Some(last) = self.policies.last_mut() {
            last.1 = from + RECOVERY_MS + 60_000;
        }
        self.policies.push((from, u64::MAX, n));
        if let Some(last) = self.held.last_mut() {
            last.1 = last.1.min(from);
        }
        if held {
            self.held.push((from, u64::MAX));
        }
        self.disturb(from, from);
    }

    /// A call decided to let a ticket's holder in.
    pub(crate) fn decided(&mut self, ms: u64, server: usize, ticket: Ticket, unix_s: u64, by_join: bool) {
        self.decided.entry(ticket).or_default().push(Decision { ms, unix_s, by_join, server: Some(server) });
    }

    /// No replica confirmed the call that a server made at `ms`, so the server was not told what was decided.
    pub(crate) fn unconfirmed(&mut self, ms: u64, server: usize) {
        let of_call = |decision: &&mut Decision| decision.ms == ms && decision.server == Some(server);
        for decision in self.decided.values_mut().flatten().filter(of_call) {
            decision.server = None;
        }
    }

    pub(crate) fn left(&mut self, user: usize) {
        self.users[user].left = true;
    }

    /// A user says that the place or the visit is given up.
    pub(crate) fn gives_up(&mut self, user: usize) {
        self.users[user].said = true;
    }

    /// A server answered that.
    pub(crate) fn gave_up(&mut self, now: u64, user: usize, answer: &Result<Departure, Refusal>) {
        if matches!(answer, Ok(Departure::Place | Departure::Visit | Departure::Gone)) {
            self.users[user].answered.get_or_insert(now);
        }
    }

    /// A ticket was tried again after its holder had left. The other servers hear of that with their next view. A decision may be
    /// lost as any other if something is wrong.
    fn check_replay(&mut self, now: u64, asked: u64, user: usize, answer: &Result<Reply, Refusal>) {
        let Some(at) = self.users[user].answered.filter(|at| at + VIEW_MS < asked) else { return };
        if self.disturbed.iter().any(|&(from, until)| from <= now && at <= until) {
            return;
        }
        self.judged.replays += 1;
        if answer.is_ok() {
            let how = format!("{now} ms: user {user} had left at {at} ms: {answer:?}");
            self.breaks(Promise::LeftAndBack, how);
        }
    }

    /// A server answered a call of `user` that was sent at `asked`. `ticket` is that of the call or, for a join, of the answer.
    #[expect(clippy::too_many_arguments, reason = "all that can be seen of a call")]
    pub(crate) fn answered(
        &mut self,
        now: u64,
        asked: u64,
        user: usize,
        (server, number): (usize, u64),
        ticket: Option<Ticket>,
        is_join: bool,
        answer: &Result<Reply, Refusal>,
    ) {
        self.calls += 1;
        if !is_join {
            self.check_replay(now, asked, user, answer);
        }
        let idle_ms = self.idle_ms;
        let seen = &mut self.users[user];
        let known = seen.known_by.contains(&(server, number));
        if answer.is_ok() && !known {
            seen.known_by.push((server, number));
        }
        if is_join && answer.is_ok() {
            (seen.ticket, seen.joined) = (ticket, (asked, now));
            seen.polls.clear();
            seen.pass = None;
            seen.told.clear();
        }
        match answer {
            Ok(Reply::Waiting { polling_period_ms, .. }) => {
                let during = |times: &[(u64, u64)]| {
                    u64::from(!is_join && times.iter().any(|&(from, until)| from <= asked && now <= until))
                };
                self.judged.places += u64::from(!is_join);
                self.judged.half_moved_places += during(&self.half_moved);
                self.judged.demoted_places += during(&self.demoted);
                let asked_again = seen.pass;
                seen.polls.push((asked, u64::from(*polling_period_ms)));
                // After a loss a holder is told to wait until the servers have said what they remember.
                let is_recovering = self.disturbed.iter().any(|&(from, until)| (from..=until).contains(&now));
                // While a server is missing, this takes a minute. The holder of a pass that has ended may wait so long.
                let is_valid = |at: u64, pass: &PassClaims| now < at + u64::from(pass.ttl_s) * 1_000;
                if let Some((at, pass)) = asked_again
                    && !is_recovering
                    && is_valid(self.decision_of(&pass).map_or(at, |decision| decision.ms), &pass)
                {
                    self.pass_lost(now, at, user, &pass, "the holder waits again");
                }
            }
            Ok(Reply::Entered { pass, .. }) => {
                let before = seen.pass;
                self.judged.passes += u64::from(before.is_some());
                if before.is_none_or(|(_, before)| before == *pass) {
                    seen.told.push((server, now));
                }
                match before {
                    None => seen.pass = Some((now, *pass)),
                    Some((at, before)) if before != *pass => {
                        let (epoch, seq) = (before.epoch, before.seq);
                        if (pass.epoch, pass.seq) != (epoch, seq) {
                            self.breaks(
                                Promise::EnteredTwice,
                                format!("{now} ms: user {user} has {before:?} and {pass:?}"),
                            );
                        } else {
                            self.pass_lost(now, at, user, &before, &format!("now it is {pass:?}"));
                        }
                    }
                    Some(_) => {}
                }
            }
            Err(Refusal::Gone) => {
                let (pass, last, first) =
                    (seen.pass, seen.polls.last().map(|&(sent, _)| sent), seen.joined.1);
                seen.left = true;
                match (pass, last) {
                    _ if seen.said => {}
                    // A node's clock may be wrong, and with it what the pass says. It is valid for as long as it says,
                    // from the decision on, which may be long before the holder hears of it.
                    (Some((at, pass)), _)
                        if now + 2_000
                            < self.decision_of(&pass).map_or(at, |decision| decision.ms)
                                + u64::from(pass.ttl_s) * 1_000
                            && ticket == Some((pass.epoch, pass.seq)) =>
                    {
                        self.pass_lost(now, at, user, &pass, "it is gone");
                    }
                    (None, Some(last))
                        if asked <= last + idle_ms
                            && !self.nobody_knows(first, now)
                            && !self.is_crowded(ticket)
                            && !self.ended_untold(ticket, now) =>
                    {
                        let how = format!(
                            "{now} ms: user {user}'s ticket {ticket:?} is gone; it was last answered a poll sent at {last} ms"
                        );
                        self.breaks(Promise::PlaceLost, how);
                    }
                    _ => {}
                }
            }
            Err(refusal) => {
                // A server that started later may not know the ticket. A holder who was let in meanwhile waits for the pass.
                let knows = self
                    .lives
                    .iter()
                    .any(|life| life.server == server && life.from < seen.joined.1 && life.until == u64::MAX);
                let is_in = ticket.is_some_and(|ticket| self.decided.contains_key(&ticket));
                // Whoever gave up the place holds none.
                if known && knows && !is_in && !is_join && seen.pass.is_none() && !seen.said {
                    self.breaks(
                        Promise::StoreTroubleShown,
                        format!("{now} ms: user {user}, ticket {ticket:?}, server {server}: {refusal:?}"),
                    );
                }
            }
        }
    }

    /// The decision that a pass tells of.
    fn decision_of(&self, pass: &PassClaims) -> Option<Decision> {
        let decisions = self.decided.get(&(pass.epoch, pass.seq))?;
        decisions.iter().rev().find(|decision| decision.unix_s == pass.entered_unix_s).copied()
    }

    /// A pass was not returned again. That can't be helped if the servers that were told have ended or were cut off, and
    /// the only node that knew was lost or cut off, or the store was emptied.
    fn pass_lost(&mut self, now: u64, at: u64, user: usize, pass: &PassClaims, how: &str) {
        let decision = self.decision_of(pass);
        // Whether a process that was told of the decision at `told` could tell the store at all times.
        let knows = |&(server, told): &(usize, u64)| {
            let runs = |life: &Life| life.server == server && life.from <= told && life.until > now;
            let cut = |&(from, until, cut): &(u64, u64, usize)| {
                cut == server && until - from > SILENCE_MS && from <= now && until >= told
            };
            self.lives.iter().any(runs) && !self.silent.iter().any(cut)
        };
        let excused = decision.is_some_and(|decision| {
            let mut told: Vec<_> = decision.server.map(|server| (server, decision.ms)).into_iter().collect();
            told.extend(&self.users[user].told);
            let lost = |&(from, until): &(u64, u64)| {
                decision.ms <= until && decision.ms + 10_000 >= from && from <= now
            };
            !told.iter().any(knows)
                && (self.disturbed.iter().any(lost)
                    || self.wiped.iter().any(|at| (decision.ms..=now).contains(at)))
        });
        // A clock that is set while no server knows the zone's clock makes passes end early or late.
        let is_unknown = |at: u64| self.nobody_knows(at, now) || self.nobody_knows_the_time(at, now);
        if !excused && !decision.is_some_and(|decision| is_unknown(decision.ms)) {
            let how =
                format!("{now} ms: user {user} got {pass:?} at {at} ms, decided by {decision:?}; {how}");
            self.breaks(Promise::PassDiffers, how);
        }
    }

    /// When a server could reach the store from `at` on, if it runs then. This counts only if servers have to tell of the ticket:
    /// in an operator's zone, the ticket itself proves the place.
    fn reaches_at(&self, server: usize, at: u64) -> u64 {
        let mut from = at;
        if !self.from_file {
            return from;
        }
        for &(cut, until, of) in &self.silent {
            if of == server && cut <= from + 1_000 && until > from {
                from = until;
            }
        }
        from
    }

    /// Whether the store was emptied while no server ran that had seen a ticket of `since`. A server that was silent from then on
    /// has not seen it; and one that is silent after the loss, until it ends or for too long, does not tell of it.
    fn nobody_knows(&self, since: u64, now: u64) -> bool {
        let tells = |life: &Life, at: u64| {
            let (seen, from) = (self.reaches_at(life.server, since), self.reaches_at(life.server, at));
            life.from < since && seen < at && life.until > from + 5_000 && from < at + self.idle_ms
        };
        let emptied = |at: u64| !self.lives.iter().any(|life| tells(life, at));
        self.wiped.iter().any(|&at| (since..=now).contains(&at) && emptied(at))
    }

    /// Whether the holder entered by a call that no replica confirmed, so that nobody told so, and the pass has ended since.
    fn ended_untold(&self, ticket: Option<Ticket>, now: u64) -> bool {
        let decisions = ticket.and_then(|ticket| self.decided.get(&ticket));
        let has_ended = |decision: &Decision| decision.server.is_none() && decision.ms + self.pass_ms < now;
        decisions.is_some_and(|decisions| decisions.iter().any(has_ended))
    }

    /// Whether a ticket of another line has nearly the same number, so that one of the lines had to end. Lines begin at random
    /// numbers.
    fn is_crowded(&self, ticket: Option<Ticket>) -> bool {
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

    /// A node began a line with this epoch and number, because it had none.
    pub(crate) fn line_begins(&mut self, epoch: u32, number: u64) {
        if !self.begun.contains(&(epoch, number)) {
            self.begun.push((epoch, number));
        }
    }

    /// Whether one of two people took a ticket of a line that was begun without the other one's. Nobody knows then which line
    /// is the earlier one.
    fn of_two_lines(&self, one: &Seen, other: &Seen) -> bool {
        let epoch = |seen: &Seen| seen.ticket.map(|(epoch, _)| epoch);
        let is_new = |seen: &Seen| self.begun.iter().skip(1).any(|&(begun, _)| epoch(seen) == Some(begun));
        epoch(one) != epoch(other) && (is_new(one) || is_new(other))
    }

    /// Whether the ticket is of a line that no server remembers, and whose numbers another one may have. Only an operator's zone
    /// leaves room for such tickets.
    fn has_no_place(&self, seen: &Seen, now: u64) -> bool {
        self.from_file && (self.nobody_knows(seen.joined.1, now) || self.is_crowded(seen.ticket))
    }

    /// Whether a node's clock was set while no server ran that had seen a ticket of `since`. A server that stands still or is
    /// cut off, from then until now or until it is too late, does not run.
    fn nobody_knows_the_time(&self, since: u64, now: u64) -> bool {
        self.clock_set.iter().any(|&at| {
            let is_silent = |life: &Life| {
                self.silent.iter().any(|&(from, until, server)| {
                    server == life.server && from <= at + 5_000 && until >= now.min(at + self.idle_ms)
                })
            };
            let tells = |life: &Life| life.from < since && life.until > at + 5_000 && !is_silent(life);
            (since..=now).contains(&at) && !self.lives.iter().any(tells)
        })
    }

    fn quiet(&self, from: u64, until: u64) -> bool {
        let apart = |&(a, b): &(u64, u64)| until < a || from > b;
        self.disturbed.iter().all(apart) && self.held.iter().all(apart)
    }

    /// The N of each policy that may be in force at some time from `from` to `until`.
    fn rates(&self, from: u64, until: u64) -> impl Iterator<Item = u32> {
        let in_force = self.policies.iter().filter(move |&&(a, b, _)| a <= until && b >= from);
        in_force.map(|&(_, _, n)| n)
    }

    fn cap(&self, from: u64, until: u64) -> u32 {
        self.rates(from, until).max().unwrap_or(0)
    }

    /// The people who got in: the time of the decision whose pass they got, who, and whether by a join.
    fn entries(&self) -> Vec<(u64, usize, bool)> {
        let mut entries = Vec::new();
        for (user, seen) in self.users.iter().enumerate() {
            if let Some((at, pass)) = seen.pass {
                entries.push(
                    self.decision_of(&pass)
                        .map_or((at, user, false), |decision| (decision.ms, user, decision.by_join)),
                );
            }
        }
        entries.sort_unstable();
        entries
    }

    /// Checks what can only be judged at the end.
    pub(crate) fn finish(&mut self, ends: u64) -> Figures {
        let entries = self.entries();
        self.check_windows(&entries);
        self.check_inside(&entries);
        self.check_order(&entries);
        self.check_progress(&entries, ends);
        let (users, entries) = (self.users.len() as u64, entries.len() as u64);
        Figures { users, entries, calls: self.calls, judged: self.judged }
    }

    /// How often the zone's clock may have changed from `from` to `until`: by the faults that were in force then.
    fn clock_changes(&self, from: u64, until: u64) -> u64 {
        self.disturbed.iter().filter(|&&(begins, ends)| begins <= until && ends >= from).count() as u64
    }

    fn check_windows(&mut self, entries: &[(u64, usize, bool)]) {
        for (length_ms, subs) in [(60_000, 1), (60_000 / u64::from(self.sub_windows), self.sub_windows)] {
            for (last, &(at, _, by_join)) in entries.iter().enumerate() {
                self.judged.windows += 1;
                let changes = self.clock_changes(at.saturating_sub(length_ms), at);
                self.judged.exact_windows += u64::from(changes == 0);
                let within_ms = length_ms.saturating_sub(CLOCK_MS * changes);
                let first = entries.partition_point(|&(entered, ..)| entered + within_ms < at);
                let count = last - first + 1;
                let cap = self.cap(entries[first].0, at).div_ceil(subs) as usize;
                // A burst without a line may use the whole minute at once.
                let burst = subs > 1 && (by_join || entries[first..=last].iter().any(|entry| entry.2));
                if count > cap && !burst {
                    let promise = if subs == 1 { Promise::TooMany } else { Promise::TooManyInASubWindow };
                    let how = format!(
                        "{count} people entered from {} ms to {at} ms, {cap} may; {changes} faults then",
                        entries[first].0
                    );
                    self.breaks(promise, how);
                    return;
                }
            }
        }
    }

    /// Who was inside at `at`, if visits end `idle_ms` after the last activity.
    fn inside<'a>(
        &'a self,
        entries: &'a [(u64, usize, bool)],
        at: u64,
        idle_ms: u64,
    ) -> impl Iterator<Item = usize> {
        let until = entries.partition_point(|&(decided, ..)| decided <= at);
        let inside = move |&&(decided, user, _): &&(u64, usize, bool)| {
            self.visitors.is_inside(user, decided, at, idle_ms)
        };
        entries[..until].iter().filter(inside).map(|&(_, user, _)| user)
    }

    /// Nobody enters while as many people as may are inside.
    fn check_inside(&mut self, entries: &[(u64, usize, bool)]) {
        if self.max_active == 0 {
            return;
        }
        for &(at, user, _) in entries {
            self.judged.insides += 1;
            let inside = self.inside(entries, at, self.visit_idle_ms - 1_000).count();
            if inside > self.max_active as usize {
                let how =
                    format!("{at} ms: user {user} makes it {inside} inside, {} may be", self.max_active);
                self.breaks(Promise::TooManyInside, how);
                return;
            }
        }
    }

    /// Whether more people must be let in at `at`, as far as the limit of those inside goes. After a server fell silent that may have
    /// seen somebody, visits do not grow idle for up to twice the idle time of the line, and a quarter of it until that is
    /// noticed. After a wipe, people who left and whose entries are remembered count until they are idle.
    fn has_room(&self, entries: &[(u64, usize, bool)], at: u64) -> bool {
        let idle_ms = self.visit_idle_ms * 3 / 2;
        let spares =
            |from: u64, until: u64| from <= at && at <= until.saturating_add(self.idle_ms * 9 / 4 + idle_ms);
        let spared = self.lives.iter().any(|life| spares(life.until, life.until.saturating_add(RECOVERY_MS)))
            || self.silent.iter().any(|&(from, until, _)| spares(from, until))
            || self.wiped.iter().any(|&wiped| spares(wiped, wiped));
        self.max_active == 0
            || !spared && self.inside(entries, at, idle_ms).count() < self.max_active as usize
    }

    /// Whether a user polled as told from `from` to `until`.
    fn polled(&self, user: usize, from: u64, until: u64) -> bool {
        let seen = &self.users[user];
        let mut at = from;
        for &(sent, told) in &seen.polls {
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

    fn check_order(&mut self, entries: &[(u64, usize, bool)]) {
        let patience_ms = 4 * self.period_ms + 10_000;
        let mut entered = vec![u64::MAX; self.users.len()];
        for &(at, user, _) in entries {
            entered[user] = at;
        }
        for &(at, user, _) in entries {
            if !self.quiet(at, at + patience_ms) {
                continue;
            }
            let mine = &self.users[user];
            let mut pairs = 0;
            for (other, others) in self.users.iter().enumerate() {
                if others.ticket.is_none()
                    || self.joined_apart(mine, others)
                    || self.of_two_lines(mine, others)
                    || self.has_no_place(others, at)
                    || !matches!(others.kind, Kind::Stays | Kind::Returns)
                    || others.joined.1 >= mine.joined.0
                {
                    continue;
                }
                // Only of two who waited at the same time one could overtake the other.
                pairs += u64::from(entered[other] > mine.joined.1 && other != user);
                if entered[other] > at + patience_ms && self.polled(other, others.joined.0, at + patience_ms)
                {
                    let how = format!(
                        "user {user} joined at {} ms and entered at {at} ms; user {other} joined at {} ms, polled, and entered at {}",
                        mine.joined.0,
                        others.joined.1,
                        entered[other].cast_signed()
                    );
                    self.breaks(Promise::OutOfOrder, how);
                    return;
                }
            }
            self.judged.pairs += pairs;
        }
    }

    /// How long slots were free from `from` to `until`: neither the minute nor the sub-window before had used all of them.
    /// Whoever was let in used a slot, with or without hearing of it.
    fn free_ms(&self, entries: &[(u64, usize, bool)], cap: u32, from: u64, until: u64) -> u64 {
        const STEP_MS: usize = 250;
        let used = |length_ms: u64, at: u64| {
            let decisions = self.decided.values().flatten();
            decisions.filter(|decision| decision.ms <= at && decision.ms + length_ms >= at).count()
        };
        let is_free = |&at: &u64| {
            used(60_000, at) < cap as usize
                && used(60_000 / u64::from(self.sub_windows), at) < cap.div_ceil(self.sub_windows) as usize
                && self.has_room(entries, at)
        };
        (STEP_MS * (from..until).step_by(STEP_MS).filter(is_free).count()) as u64
    }

    /// While people wait and poll, and nothing is wrong, the slots are used. A burst may have used those of the minute at once,
    /// and then few are free in the minute after it.
    fn check_progress(&mut self, entries: &[(u64, usize, bool)], ends: u64) {
        let mut entered = vec![u64::MAX; self.users.len()];
        for &(at, user, _) in entries {
            entered[user] = at;
        }
        // Hold after a loss, presumptions and appointments: the minute before the one that is measured is quiet too.
        // A zone of a file admits nobody in its first minute.
        let first = if self.from_file { 60_000 } else { 0 };
        for from in (first..ends.saturating_sub(60_000)).step_by(5_000) {
            let until = from + 60_000;
            if !self.quiet(from.saturating_sub(60_000), until) {
                continue;
            }
            let cap = self.rates(from, until).min().unwrap_or(0);
            self.judged.minutes += 1;
            let waiting = (0..self.users.len())
                .filter(|&user| {
                    let seen = &self.users[user];
                    matches!(seen.kind, Kind::Stays | Kind::Returns)
                        && seen.ticket.is_some()
                        && seen.joined.1 < from
                        && entered[user] > until
                        && self.polled(user, from.max(seen.joined.0), until)
                })
                .count();
            let within: Vec<_> = entries.iter().filter(|&&(at, ..)| (from..until).contains(&at)).collect();
            // Somebody who never claims holds one slot, once, for two periods and a second.
            let numbers = within.iter().filter_map(|&&(_, user, _)| Some(self.users[user].ticket?.1));
            let passed = numbers.clone().min().zip(numbers.max());
            let held = self.users.iter().filter(|seen| {
                let number = seen.ticket.map(|(_, number)| number);
                let is_passed = number.zip(passed).is_some_and(|(at, (low, high))| low < at && at < high);
                seen.kind == Kind::NeverClaims && is_passed
            });
            let count = within.len() + held.count();
            let least = cap as usize * 8 / 10;
            if waiting > cap.div_ceil(10) as usize + 2
                && count < least
                && self.free_ms(entries, cap, from, until) > 12_000
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
