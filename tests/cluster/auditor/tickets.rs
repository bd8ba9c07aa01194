//! What must hold for tickets that are refused, copied, tried again and exchanged.
//!
//! A ticket is whoever's who shows it. So a copy may enter, and then it is the same entry: one place gives one pass, whoever asks, where
//! and how often. A server whose keys did not seal a ticket refuses it, and the place is not touched by that. Invariant: the keys
//! that a server has are known here before it answers with them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use admission::Visit;
use gate::{Refusal, Reply};

use super::{Auditor, Call, Promise, Ticket};
use crate::plan::Kind;

/// What the auditor knows of keys and copies.
#[derive(Debug)]
pub(super) struct Tickets {
    /// For each server, the keys that it has, and from when on. It seals with the first one.
    keys: Vec<Vec<(u64, Vec<usize>)>>,
    /// When servers went from one key to the next.
    rotations: Vec<(u64, u64)>,
    /// The tickets that were refused and not taken since.
    refused: BTreeSet<Ticket>,
    copied: BTreeSet<Ticket>,
}

/// A ticket was exchanged for a visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) asked: u64,
    pub(crate) now: u64,
    pub(crate) at: (usize, u64),
    pub(crate) ticket: Ticket,
    /// Nothing if the visit has ended.
    pub(crate) visit: Option<Visit>,
}

/// How long the entry may be decided before the visit of a call begins: seconds are cut, and messages take time.
const SECONDS_MS: u64 = 2_000;

impl Tickets {
    pub(super) fn new(servers: usize) -> Self {
        Self {
            keys: vec![Vec::new(); servers],
            rotations: Vec::new(),
            refused: BTreeSet::new(),
            copied: BTreeSet::new(),
        }
    }

    /// The keys that a server had from `from` to `until`; nothing if they changed meanwhile.
    fn keys_of(&self, server: usize, from: u64, until: u64) -> Option<&[usize]> {
        let (since, keys) = self.keys[server].iter().rev().find(|(since, _)| *since <= until)?;
        (*since < from).then_some(keys)
    }
}

impl Auditor {
    /// A server has these keys from now on, and seals with the first one.
    pub(crate) fn set_keys(&mut self, now: u64, server: usize, keys: Vec<usize>) {
        self.tickets.keys[server].push((now, keys));
    }

    /// The servers begin to go from one key to the next.
    pub(crate) fn keys_change(&mut self, now: u64) {
        self.tickets.rotations.push((now, u64::MAX));
    }

    /// They all have the next one.
    pub(crate) fn keys_changed(&mut self, now: u64) {
        if let Some(last) = self.tickets.rotations.last_mut() {
            last.1 = now;
        }
    }

    /// Whether the server was right to take or to refuse the ticket. After a refusal there is nothing else to judge.
    pub(super) fn check_seal(&mut self, call: &Call, answer: &Result<Reply, Refusal>) -> ControlFlow<()> {
        let &Call { asked, now, user, at: (server, _), .. } = call;
        let is_refused = matches!(answer, Err(Refusal::BadToken));
        let Some(keys) = self.tickets.keys_of(server, asked, now) else {
            // Both are right while the keys change.
            return if is_refused { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        };
        let (has, seals) = (|key| keys.contains(&key), keys[0]);
        let (is_known, sealed_by_other) = (call.key.map(has), call.sealed.filter(|key| *key != seals));
        let how = || format!("{now} ms: user {user}, {call:?}, keys {keys:?}: {answer:?}");
        match (is_known, answer) {
            (Some(true), Err(Refusal::BadToken)) => {
                self.breaks(Promise::SealRefused, how());
                return ControlFlow::Break(());
            }
            (Some(false), Ok(_) | Err(Refusal::Gone)) => {
                self.breaks(Promise::ForeignTaken, how());
                return ControlFlow::Break(());
            }
            (Some(false), Err(_)) => {
                self.judged.refused += u64::from(is_refused);
                self.tickets.refused.extend(call.ticket);
                return ControlFlow::Break(());
            }
            (Some(true), Ok(_)) => {
                let within = |&(from, until): &(u64, u64)| from <= now && now <= until;
                self.judged.rotated += u64::from(self.tickets.rotations.iter().any(within));
                let was_refused = call.ticket.is_some_and(|ticket| self.tickets.refused.remove(&ticket));
                self.judged.kept += u64::from(was_refused);
            }
            _ => {}
        }
        if let Some(sealed) = sealed_by_other {
            let how = format!("{now} ms: server {server} sealed with key {sealed} for user {user}");
            self.breaks(Promise::SealRefused, how);
        }
        ControlFlow::Continue(())
    }

    /// A copy of a ticket was answered.
    pub(super) fn count_copy(&mut self, call: &Call, answer: &Result<Reply, Refusal>) {
        self.judged.copies += 1;
        self.judged.copied_passes += u64::from(matches!(answer, Ok(Reply::Entered { .. })));
        self.tickets.copied.extend(call.ticket);
        let seen = &self.users[call.user];
        let is_left = matches!(seen.kind, Kind::Leaves(after) if seen.joined.1 + after <= call.asked);
        if is_left && seen.ticket == call.ticket && matches!(answer, Ok(Reply::Waiting { .. })) {
            self.lone_polls.push(call.asked);
        }
    }

    /// A copy was answered of a ticket whose holder has taken another place since. It may have ended: nobody has to poll for it. If it
    /// entered, it is the same entry each time.
    pub(super) fn answered_earlier(&mut self, call: &Call, answer: &Result<Reply, Refusal>) {
        let &Call { asked, now, user, at: (server, _), ticket, .. } = call;
        if matches!(answer, Ok(Reply::Waiting { .. })) {
            self.lone_polls.push(asked);
        }
        let Some(place) = self.users[user].earlier.iter_mut().find(|place| Some(place.ticket) == ticket)
        else {
            return;
        };
        let before = place.pass;
        match answer {
            Ok(Reply::Entered { pass, .. }) if before.is_none_or(|(_, before)| before == *pass) => {
                self.judged.passes += u64::from(before.is_some());
                place.pass.get_or_insert((now, *pass));
                place.told.push((server, now));
            }
            Ok(Reply::Entered { .. }) | Err(Refusal::Gone) => {
                let said = self.given_up.contains_key(&place.ticket);
                let told = place.told.clone();
                let Some((at, pass)) = before.filter(|_| !said) else { return };
                let decided = self.decision_of(&pass).map_or(at, |decision| decision.ms);
                // Whoever gets another pass after the first one has ended entered twice, too.
                if answer.is_ok() || now + 2_000 < decided + u64::from(pass.ttl_s) * 1_000 {
                    self.pass_lost((now, at), user, &told, &pass, &format!("a copy got {answer:?}"));
                }
            }
            _ => {}
        }
    }

    /// A ticket was exchanged for a visit, which is judged where nothing was wrong since the entry. The visit is always the same one: it
    /// began with the entry, and ends when its holder leaves, or is idle. So nobody has a visit longer by an exchange.
    pub(crate) fn exchanged(&mut self, exchange: &Exchange) {
        let &Exchange { asked, now, at, ticket, visit } = exchange;
        let last = self.decided.get(&ticket).and_then(|decisions| decisions.last());
        let Some(decided) = last.map(|decision| decision.ms) else { return };
        let left = self.left_before(ticket, asked, now);
        if visit.is_some() && left.is_none() {
            self.visitors.active(now, ticket, at);
        }
        if self.is_disturbed(decided, now) {
            return;
        }
        self.judged.exchanges += 1;
        let Some(visit) = visit else { return };
        // A visit may be renewed an eighth of its idle time after its holder's last activity.
        let idle_at = decided + self.visit_idle_ms * 9 / 8 + SECONDS_MS;
        if left.is_some() || asked > idle_at || visit.began_s * 1_000 > decided + SECONDS_MS {
            let how = format!(
                "{now} ms: ticket {ticket:?}, which entered at {decided} ms and left at {left:?}, was exchanged for {visit:?}"
            );
            self.breaks(Promise::VisitAgain, how);
        }
    }

    /// A place enters once. Where something was wrong in between, the decision may have been lost, and those who heard of both say so.
    pub(super) fn check_copied_places(&mut self) {
        let copied = self.decided.keys().filter(|ticket| self.tickets.copied.contains(ticket));
        self.judged.entered_once += copied.count() as u64;
        let mut twice: BTreeMap<Ticket, (u64, u64)> = BTreeMap::new();
        for (ticket, decisions) in &self.decided {
            for pair in decisions.windows(2) {
                // Two calls of one millisecond may both hear of an entry that is decided in it.
                let (first, second) = (pair[0].ms, pair[1].ms);
                if first != second && !self.is_disturbed(first, second) {
                    twice.insert(*ticket, (first, second));
                }
            }
        }
        for (ticket, (first, second)) in twice {
            let how = format!("ticket {ticket:?} entered at {first} ms and at {second} ms");
            self.breaks(Promise::EnteredTwice, how);
        }
    }
}
