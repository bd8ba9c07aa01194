//! The auditor compares what users and stores reported with the promises. It records everything, checks it at the end, and
//! shares no code with the rules.
//!
//! Invariant: it uses only what was reported. An entry or a place that nobody was told about breaks no promise.

use std::collections::BTreeMap;

use admission::{Entry, Policy};

/// How much later than the rules allow an answer may arrive before it counts as out of order.
const HASTE_MS: u64 = 1_000;

/// How much earlier than the true time allows a window may open by a failover: the way of a call. The clock of the node that takes over
/// adds nothing.
pub(crate) const CLOCK_SLACK_MS: u64 = 50;

const MINUTE_MS: u64 = 60_000;

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
    /// When the user left without knowing what the last call decided.
    left_in_doubt_ms: Option<u64>,
}

/// An entry, as a store first reported it.
#[derive(Clone, Copy, Debug)]
struct Told {
    seq: u64,
    entry: Entry,
    by_join: bool,
    /// The server that reported it first.
    server: usize,
    /// When it was reported.
    heard_ms: u64,
    /// When the call was made that decided it; `None` if an earlier call did.
    asked_ms: Option<u64>,
}

/// An answer of a store: which server got it, when the server asked and heard, and the instant of the zone's clock at which
/// it was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) server: usize,
    pub(crate) asked_ms: u64,
    pub(crate) heard_ms: u64,
    pub(crate) at_ms: u64,
}

/// What the users of a whole run met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) entries: usize,
    /// By how much a minute's window opened early, by this machine's clock.
    pub(crate) early_ms: u64,
    /// People who entered although the minute or the sub-window was full.
    pub(crate) over_admissions: usize,
    /// Tickets that entered twice.
    pub(crate) second_passes: usize,
    /// Users whose place was gone, or another one than before.
    pub(crate) lost_places: usize,
    /// Users who were overtaken.
    pub(crate) inversions: usize,
    pub(crate) broken: Vec<String>,
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
    /// How many answers each server got from its store.
    pub(crate) answers: [u64; 2],
    /// The newest epoch in which numbers were given out.
    pub(crate) epoch: u32,
    /// Tickets that entered twice, and how.
    second_passes: BTreeMap<(u32, u64), String>,
    /// How many may enter on top of the minute, or a second time with the same ticket.
    pub(crate) allowed_on_top: usize,
    /// How much earlier than a minute later a slot may be used again.
    pub(crate) early_ms: u64,
    lost_places: usize,
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
            answers: [0; 2],
            epoch: 0,
            second_passes: BTreeMap::new(),
            allowed_on_top: 0,
            early_ms: CLOCK_SLACK_MS,
            lost_places: 0,
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
        self.epoch = self.epoch.max(epoch);
        if let Some(before) = self.given.insert(seq, epoch) {
            self.breaks(format!("number {seq} was given out in epoch {before} and again in {epoch}"));
        }
    }

    /// A store reported an entry.
    pub(crate) fn entered(&mut self, answer: Answer, place: (u32, u64), entry: Entry, by_join: bool) {
        let Answer { server, asked_ms, heard_ms, at_ms } = answer;
        let asked_ms = (entry.at_ms == at_ms).then_some(asked_ms);
        let told = Told { seq: place.1, entry, by_join, server, heard_ms, asked_ms };
        let before = self.entries.entry(place).or_insert(told).entry;
        if before != entry {
            let how = format!("{place:?} entered at {before:?} and at {entry:?}");
            self.second_passes.entry(place).or_insert(how);
        }
    }

    /// A store decided.
    pub(crate) fn decided(&mut self, answer: Answer) {
        let behind = answer.heard_ms.cast_signed() - answer.at_ms.cast_signed();
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
                self.lost_places += 1;
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
            let how = format!("user {user} had the pass {before:?}, and has {pass:?}");
            if (before.0, before.1) == (pass.0, pass.1) {
                self.second_passes.entry((pass.0, pass.1)).or_insert(how);
            } else {
                self.breaks(how);
            }
        }
    }

    /// A user leaves the line.
    pub(crate) fn leaves(&mut self, now_ms: u64, user: usize, is_in_doubt: bool) {
        let user = self.user(user);
        user.left = true;
        user.left_in_doubt_ms = is_in_doubt.then_some(now_ms);
    }

    /// How many users left since `from_ms` without knowing what their last call decided. They may have entered.
    pub(crate) fn left_in_doubt(&self, from_ms: u64) -> usize {
        self.users.values().filter(|user| user.left_in_doubt_ms.is_some_and(|at_ms| at_ms >= from_ms)).count()
    }

    /// A user was told that the ticket is gone.
    pub(crate) fn gone(&mut self, now_ms: u64, user: usize) {
        self.lost_places += 1;
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

    /// How many entries the stores decided, as far as they reported them.
    pub(crate) fn entered_in_all(&self) -> usize {
        self.entries.len() + self.second_passes.len()
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

    /// How many users have a place, and neither entered nor left.
    pub(crate) fn waiting(&self) -> usize {
        let waits = |user: &&User| user.place.is_some() && user.entered_ms.is_none() && !user.left;
        self.users.values().filter(waits).count()
    }

    /// How many entries from the line a server was told since `from_ms`.
    pub(crate) fn entries_of(&self, server: usize, from_ms: u64) -> usize {
        let of = |told: &&Told| told.server == server && !told.by_join && told.heard_ms >= from_ms;
        self.entries.values().filter(of).count()
    }

    /// How many entries were told since `from_ms`.
    pub(crate) fn entries_since(&self, from_ms: u64) -> usize {
        self.entries.values().filter(|told| told.heard_ms >= from_ms).count()
    }

    /// How many more of a minute's slots were unused at the worst moment between two instants than at the first of them.
    pub(crate) fn unused_slots(&self, from_ms: u64, to_ms: u64) -> usize {
        let mut times: Vec<u64> = self.entries.values().map(|told| told.heard_ms).collect();
        times.sort_unstable();
        let used = |at: u64| {
            let is_past = |time: &u64| *time <= at;
            times.partition_point(is_past) - times.partition_point(|time| time + MINUTE_MS <= at)
        };
        // Slots become free meanwhile, so each moment just before an entry may be the worst.
        let before_entries =
            times.iter().filter(|time| **time > from_ms && **time < to_ms).map(|time| time - 1);
        let least = before_entries.chain([to_ms]).map(used).min().expect("at least one moment");
        used(from_ms).saturating_sub(least)
    }

    /// What was promised and not kept.
    pub(crate) fn verdict(mut self) -> Figures {
        let over_admissions = self.check_windows();
        let early_ms = self.check_true_time();
        let inversions = self.check_order();
        Figures {
            early_ms,
            entries: self.entries.len(),
            over_admissions,
            second_passes: self.second_passes.len(),
            lost_places: self.lost_places,
            inversions,
            broken: self.broken,
        }
    }

    /// Checks by the zone's clock that there were never too many entries. Returns how many people should not have entered.
    fn check_windows(&mut self) -> usize {
        let mut times: Vec<(u64, bool)> =
            self.entries.values().map(|told| (told.entry.at_ms, told.by_join)).collect();
        times.sort_unstable();
        let (n, sub) = (self.policy.admit_per_minute as usize, self.policy.admit_per_sub_window() as usize);
        let mut rightful: Vec<u64> = Vec::new();
        let mut faults = Vec::new();
        for &(at, by_join) in &times {
            let within = |ms: u64| rightful.len() - rightful.partition_point(|other| other + ms < at);
            if within(MINUTE_MS) >= n {
                faults.push(format!("{n} had entered in the 60 s before one more entered at {at}"));
            } else if !by_join && within(self.policy.sub_window_ms()) >= sub {
                faults.push(format!("{sub} had entered in the sub-window before one more entered at {at}"));
            } else {
                rightful.push(at);
            }
        }
        let over = faults.len();
        if over + self.second_passes.len() > self.allowed_on_top {
            faults.truncate(5);
            faults.extend(self.second_passes.values().take(5).cloned());
            let twice = self.second_passes.len();
            self.breaks(format!(
                "{over} entered on top and {twice} a second time, and {} may",
                self.allowed_on_top
            ));
            faults.into_iter().for_each(|how| self.breaks(how));
        }
        over
    }

    /// Checks by the clock of this machine that no minute had too many entries. It counts those that began and ended in it
    /// for certain. Returns how much shorter a minute's entries were than a minute, in milliseconds.
    fn check_true_time(&mut self) -> u64 {
        let mut sure: Vec<(u64, u64)> =
            self.entries.values().filter_map(|told| Some((told.asked_ms?, told.heard_ms))).collect();
        sure.sort_unstable();
        let most = self.policy.admit_per_minute as usize + self.allowed_on_top;
        // For each entry, when the last of one too many was certainly over.
        let shortest = (0..sure.len().saturating_sub(most)).map(|i| {
            let mut heard: Vec<u64> = sure[i..].iter().map(|(_, heard)| *heard).collect();
            let (_, last, _) = heard.select_nth_unstable(most);
            (*last - sure[i].0, sure[i].0)
        });
        let Some((length, from)) = shortest.min() else { return 0 };
        let early = MINUTE_MS.saturating_sub(length);
        if early > self.early_ms {
            self.breaks(format!("{} entered in the {length} ms of true time from {from} ms on", most + 1));
        }
        early
    }

    /// Checks the order: a present user is overtaken by at most twice the number of slots that became free together. Returns
    /// how many users were overtaken by more, or by a newcomer.
    fn check_order(&mut self) -> usize {
        let near = 3 * u64::from(self.policy.polling_period_ms);
        let sub = self.policy.admit_per_sub_window() as usize;
        let mut faults = Vec::new();
        for (number, user) in &self.users {
            let Some((_, seq)) = user.place else { continue };
            let was_there = |at: u64| {
                let after = user.fresh_ms.partition_point(|fresh| *fresh < at);
                let next = user.fresh_ms.get(after);
                let last =
                    if next == Some(&at) { next } else { after.checked_sub(1).map(|i| &user.fresh_ms[i]) };
                last.is_some_and(|fresh| fresh + near >= at) && next.is_some_and(|fresh| *fresh <= at + near)
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
        let inversions = faults.len();
        faults.into_iter().for_each(|how| self.breaks(how));
        inversions
    }
}
