//! The auditor compares what users and stores reported with the promises. It records everything, checks it at the end, and
//! shares no code with the rules.
//!
//! Invariant: it uses only what was reported. An entry or a place that nobody was told about breaks no promise.

use std::collections::{BTreeMap, BTreeSet};

use admission::{Entry, Policy};

/// How much later than the rules allow an answer may arrive before it counts as out of order.
const HASTE_MS: u64 = 1_000;

/// What happened to one user, in milliseconds since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    /// The ticket: epoch and number.
    pub(crate) place: Option<(u32, u64)>,
    /// When the user was told that the ticket waits.
    pub(crate) fresh_ms: Vec<u64>,
    pub(crate) entered_ms: Option<u64>,
    /// The entry in the pass, and when it was first shown.
    pass: Option<(u32, u64, u64)>,
    pub(crate) left: bool,
}

/// An entry, as a store first reported it.
#[derive(Clone, Copy, Debug)]
struct Told {
    seq: u64,
    entry: Entry,
    by_join: bool,
    /// When it was reported.
    heard_ms: u64,
}

/// The auditor of one zone.
pub(crate) struct Auditor {
    policy: Policy,
    users: BTreeMap<usize, User>,
    /// The numbers that were given out, with their epochs.
    given: BTreeMap<u64, u32>,
    entries: BTreeMap<(u32, u64), Told>,
    /// The smallest and largest difference between this machine's clock and the zone's, from calls that just decided.
    behind_ms: Option<(i64, i64)>,
    /// Polls that were refused although the ticket waits.
    pub(crate) refused: u64,
    pub(crate) stale: u64,
    /// The errors of stores, and how often each occurred.
    pub(crate) errors: BTreeMap<String, u64>,
    broken: Vec<String>,
}

impl Auditor {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            users: BTreeMap::new(),
            given: BTreeMap::new(),
            entries: BTreeMap::new(),
            behind_ms: None,
            refused: 0,
            stale: 0,
            errors: BTreeMap::new(),
            broken: Vec::new(),
        }
    }

    fn breaks(&mut self, how: String) {
        if self.broken.len() < 20 {
            self.broken.push(how);
        }
    }

    pub(crate) fn user(&mut self, user: usize) -> &mut User {
        self.users.entry(user).or_default()
    }

    /// A store gave out numbers.
    pub(crate) fn given(&mut self, epoch: u32, seq: u64) {
        if let Some(before) = self.given.insert(seq, epoch) {
            self.breaks(format!("number {seq} was given out in epoch {before} and again in {epoch}"));
        }
    }

    /// A store reported an entry.
    pub(crate) fn entered(&mut self, now_ms: u64, place: (u32, u64), entry: Entry, by_join: bool) {
        let told = Told { seq: place.1, entry, by_join, heard_ms: now_ms };
        let before = self.entries.entry(place).or_insert(told).entry;
        if before != entry {
            self.breaks(format!("{place:?} entered at {before:?} and at {entry:?}"));
        }
    }

    /// A store decided at `at_ms` of the zone's clock. The answer arrived then or later.
    pub(crate) fn decided(&mut self, now_ms: u64, at_ms: u64) {
        let behind = now_ms.cast_signed() - at_ms.cast_signed();
        let (least, most) = self.behind_ms.unwrap_or((behind, behind));
        if behind < least - 1_000 {
            self.breaks(format!("the zone's clock ran ahead by {} ms", least - behind));
        }
        self.behind_ms = Some((least.min(behind), most.max(behind)));
    }

    /// A store failed.
    pub(crate) fn failed(&mut self, why: String) {
        *self.errors.entry(why).or_default() += 1;
    }

    /// A user was shown a position.
    pub(crate) fn placed(&mut self, user: usize, place: (u32, u64)) {
        match self.user(user).place.replace(place) {
            Some(before) if before != place => {
                self.breaks(format!("user {user} had place {before:?}, and has {place:?}"));
            }
            Some(_) => {}
            None => {
                let others =
                    self.users.iter().find(|(other, had)| **other != user && had.place == Some(place));
                if let Some((other, _)) = others {
                    let how = format!("users {other} and {user} both have place {place:?}");
                    self.breaks(how);
                }
            }
        }
    }

    /// A user was shown a pass.
    pub(crate) fn passed(&mut self, now_ms: u64, user: usize, pass: (u32, u64, u64)) {
        let known = self.user(user);
        known.entered_ms.get_or_insert(now_ms);
        if let Some(before) = known.pass.replace(pass)
            && before != pass
        {
            self.breaks(format!("user {user} had the pass {before:?}, and has {pass:?}"));
        }
    }

    /// A user was told that the ticket is gone.
    pub(crate) fn gone(&mut self, now_ms: u64, user: usize) {
        let how = format!("{now_ms} ms: the place of user {user} is gone: {:?}", self.user(user));
        self.breaks(how);
    }

    /// A user's call was refused.
    pub(crate) fn baffled(&mut self, user: usize, what: &str) {
        self.breaks(format!("user {user} was answered {what}"));
    }

    /// How many entered from the line.
    pub(crate) fn entries_of_line(&self) -> usize {
        self.entries.values().filter(|told| !told.by_join).count()
    }

    /// How many entered.
    pub(crate) fn entered_in_all(&self) -> usize {
        self.entries.len()
    }

    /// How many users have been shown a position.
    pub(crate) fn places(&self) -> usize {
        self.users.values().filter(|user| user.place.is_some()).count()
    }

    /// The longest time without an entry from the line, in milliseconds, between `from_ms` and the last entry.
    pub(crate) fn longest_pause_ms(&self, from_ms: u64) -> u64 {
        let mut times: Vec<u64> =
            self.entries.values().filter(|told| !told.by_join).map(|told| told.heard_ms).collect();
        times.push(from_ms);
        times.sort_unstable();
        times
            .windows(2)
            .filter(|pair| pair[1] > from_ms)
            .map(|pair| pair[1] - pair[0].max(from_ms))
            .max()
            .unwrap_or(0)
    }

    /// The promises that were broken.
    pub(crate) fn verdict(mut self) -> Vec<String> {
        self.check_windows();
        self.check_order();
        self.broken
    }

    /// Checks that there were never too many entries.
    fn check_windows(&mut self) {
        let mut times: Vec<(u64, bool)> =
            self.entries.values().map(|told| (told.entry.at_ms, told.by_join)).collect();
        times.sort_unstable();
        let (n, sub) = (self.policy.admit_per_minute as usize, self.policy.admit_per_sub_window() as usize);
        let within =
            |at: u64, ms: u64| times.iter().filter(|(other, _)| *other <= at && other + ms >= at).count();
        let mut faults = BTreeSet::new();
        for &(at, by_join) in &times {
            let minute = within(at, 60_000);
            if minute > n {
                faults.insert((at, format!("{minute} had entered in the 60 s before {at}")));
            }
            let here = within(at, self.policy.sub_window_ms());
            if !by_join && here > sub {
                faults.insert((at, format!("{here} had entered in the sub-window before {at}")));
            }
        }
        for (_, how) in faults {
            self.breaks(how);
        }
    }

    /// Checks the order: a present user is overtaken by at most twice the number of slots that became free together.
    fn check_order(&mut self) {
        let near = 3 * u64::from(self.policy.polling_period_ms);
        let sub = self.policy.admit_per_sub_window() as usize;
        let mut faults = Vec::new();
        for (number, user) in &self.users {
            let Some((_, seq)) = user.place else { continue };
            let was_there = |at: u64| {
                let before = user.fresh_ms.iter().any(|fresh| *fresh <= at && fresh + near >= at);
                let after = user.fresh_ms.iter().any(|fresh| *fresh >= at && *fresh <= at + near);
                before && after
            };
            // A report from just before the user's entry may have been decided after it.
            let until = user.entered_ms.unwrap_or(u64::MAX).saturating_sub(HASTE_MS);
            let overtook = self
                .entries
                .values()
                .filter(|told| told.seq > seq && told.heard_ms < until && was_there(told.heard_ms));
            let (newcomers, others): (Vec<&Told>, Vec<&Told>) = overtook.partition(|told| told.by_join);
            if others.len() > 2 * sub || !newcomers.is_empty() {
                faults.push(format!(
                    "user {number}, ticket {seq}, was overtaken by {} of the line and {} newcomers",
                    others.len(),
                    newcomers.len()
                ));
            }
        }
        for how in faults {
            self.breaks(how);
        }
    }
}
