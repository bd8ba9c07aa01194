//! Watches a run from outside and checks it against the promises.
//!
//! The auditor knows the true time, the holder of each ticket, when each holder last called, and each reply. Its windows
//! and its line are simple lists. It shares no code with the rules.

use std::collections::BTreeMap;

use admission::{Departure, Entry, Policy, Visit, ZoneId};
use gate::{PassClaims, Reason, Refusal, Reply, Token, WaitStatus};

use crate::judged::judged;

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    TooMany,
    TooManyInASubWindow,
    OutOfOrder,
    NewcomerFirst,
    EvictedWhilePolling,
    NotEvicted,
    EnteredTwice,
    PassDiffers,
    PlaceLost,
    ForgedTokenTaken,
    StoreTroubleShown,
    WaitGrew,
    RankTooLow,
    NeverAdmitted,
    TooManyInside,
    VisitLost,
    LeftAndBack,
    StrangerLeft,
    AnotherVisit,
}

/// A ticket as the auditor knows it.
#[derive(Clone, Debug)]
struct Held {
    user: usize,
    /// When the holder last called the server, in true milliseconds.
    heard_ms: u64,
    /// When the holder called after more than the idle time, until a later call shows that the ticket is still there. The store
    /// may have evicted it before the server reported that call.
    late_ms: Option<u64>,
    /// When the holder called who had been absent, until the next call.
    back_ms: u64,
    /// Until when the holder is present: two polling periods and half a second after a poll. A poll with a `stale` reply
    /// does not count, because it did not reach the store.
    present_ms: u64,
    /// When the ticket entered.
    entered_ms: Option<u64>,
    /// The entry as the store reported it.
    entry: Option<Entry>,
    evicted: bool,
    left: bool,
    /// Whether the holder said that the place or the visit is given up, and when that was answered.
    said: bool,
    answered_ms: Option<u64>,
    pass: Option<PassClaims>,
    /// When the holder was last active inside, until the holder left.
    active_ms: Option<u64>,
    /// When the last reply expected the entry, and the token of that reply.
    told: Option<(u64, Token)>,
}

/// What a user was told, and what happened: the data for figures.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) joined_ms: u64,
    pub(crate) told_s: Option<(u32, u32, u32)>,
    pub(crate) naive_s: f64,
    pub(crate) entered_ms: Option<u64>,
}

judged! {
    /// Windows of a minute, and sub-windows, each of which ends with an entry.
    windows = "windows";
    /// Entries while the people inside are limited.
    insides = "entries with people inside";
    /// Entries that had to come in the order of those who are present.
    orders = "entries in order";
    /// Ranks.
    ranks = "ranks";
    /// Answers to people who hold a place.
    places = "places followed";
    /// Passes that were asked for again.
    passes = "passes repeated";
}

/// The auditor.
pub(crate) struct Auditor {
    zone: ZoneId,
    policy: Policy,
    held: BTreeMap<u64, Held>,
    /// The time of each entry, and whether it came from the line.
    entries: Vec<(u64, bool)>,
    /// The end of the last trouble in which polls could not reach the store.
    trouble_ms: Option<u64>,
    /// When the last hold ended: from the change to its end. Whoever came back just before it, after having been absent, was not told
    /// to claim, and so is present from the next call on.
    hold_ended: (u64, u64),
    /// The end of the last time without a server.
    down_ms: u64,
    pub(crate) stories: BTreeMap<usize, Story>,
    pub(crate) broken: Vec<(Promise, String)>,
    pub(crate) calls: u64,
    pub(crate) judged: Judged,
    /// The longest polling period that anybody was told.
    pub(crate) longest_period_ms: u32,
    /// When people inside left.
    leaves: Vec<u64>,
}

/// How long a view, a report and two store calls may delay information, beyond the times of the rules.
const DELAY_MS: u64 = 2_500;

impl Auditor {
    pub(crate) fn new(zone: ZoneId, policy: Policy) -> Self {
        Self {
            zone,
            policy,
            held: BTreeMap::new(),
            entries: Vec::new(),
            trouble_ms: None,
            hold_ended: (0, 0),
            down_ms: 0,
            stories: BTreeMap::new(),
            broken: Vec::new(),
            calls: 0,
            judged: Judged::default(),
            longest_period_ms: 0,
            leaves: Vec::new(),
        }
    }

    fn breaks(&mut self, promise: Promise, how: String) {
        if self.broken.len() < 20 {
            self.broken.push((promise, how));
        }
    }

    /// A change of the operator ends a hold, from then until then.
    pub(crate) fn hold_ends(&mut self, from_ms: u64, until_ms: u64) {
        self.hold_ended = (from_ms, until_ms);
    }

    /// Polls cannot reach the store until then.
    pub(crate) fn trouble(&mut self, until_ms: u64) {
        self.trouble_ms = self.trouble_ms.max(Some(until_ms));
    }

    /// The server is down until then.
    pub(crate) fn down(&mut self, until_ms: u64) {
        self.trouble(until_ms);
        self.down_ms = until_ms;
    }

    fn was_trouble(&self, now_ms: u64, within_ms: u64) -> bool {
        self.trouble_ms.is_some_and(|until_ms| now_ms < until_ms + within_ms)
    }

    /// Whether a holder is present: the last poll is at most two polling periods and half a second old.
    fn is_present(held: &Held, now_ms: u64) -> bool {
        Self::waits(held) && now_ms <= held.present_ms
    }

    fn waits(held: &Held) -> bool {
        held.entered_ms.is_none() && !held.evicted && !held.left
    }

    fn entered_within(&self, now_ms: u64, ms: u64) -> usize {
        self.entries.iter().rev().take_while(|&&(at_ms, _)| at_ms + ms >= now_ms).count()
    }

    /// The store admitted a ticket, or reported its entry again.
    pub(crate) fn entered(&mut self, now_ms: u64, zone: &ZoneId, seq: u64, entry: Entry, by_join: bool) {
        if *zone != self.zone {
            return;
        }
        if let Some(told) = self.held.get(&seq).and_then(|held| held.entry) {
            self.judged.passes += 1;
            if told != entry {
                self.breaks(
                    Promise::EnteredTwice,
                    format!("ticket {seq} entered at {told:?} and at {entry:?}"),
                );
            }
            return;
        }
        self.judged.windows += if by_join { 1 } else { 2 };
        self.judged.orders += 1;
        self.judged.insides += u64::from(self.policy.max_active > 0);
        let minute = self.entered_within(now_ms, 60_000);
        let cap = self.policy.admit_per_minute as usize;
        if minute >= cap {
            self.breaks(Promise::TooMany, format!("{now_ms} ms: {minute} had entered within 60 s"));
        }
        let sub_cap = self.policy.admit_per_sub_window() as usize;
        let sub = self.entered_within(now_ms, self.policy.sub_window_ms());
        if !by_join && sub >= sub_cap {
            self.breaks(
                Promise::TooManyInASubWindow,
                format!("{now_ms} ms: {sub} had entered within a sub-window"),
            );
        }
        let inside = self.inside(now_ms);
        if self.policy.max_active > 0 && inside >= self.policy.max_active as usize {
            self.breaks(
                Promise::TooManyInside,
                format!("{now_ms} ms: ticket {seq} enters, and {inside} are inside"),
            );
        }
        // Each present holder ahead has a slot before this one.
        let (from_ms, until_ms) = self.hold_ended;
        let is_present = |held: &Held| {
            Self::is_present(held, now_ms)
                && !(from_ms.saturating_sub(1_200)..=until_ms).contains(&held.back_ms)
        };
        let ahead = self.held.range(..seq).filter(|(_, held)| is_present(held)).count();
        if by_join && ahead > 0 {
            self.breaks(
                Promise::NewcomerFirst,
                format!("{now_ms} ms: newcomer {seq} before {ahead} present"),
            );
        }
        let free = cap.saturating_sub(minute).min(sub_cap.saturating_sub(sub));
        if !by_join && ahead >= free.max(1) {
            let first = self.held.range(..seq).find(|(_, held)| is_present(held));
            let how = format!(
                "{now_ms} ms: ticket {seq} before {ahead} present, {free} slots; the first: {first:?}"
            );
            self.breaks(Promise::OutOfOrder, how);
        }
        self.entries.push((now_ms, !by_join));
        let held = self.hold(seq, usize::MAX, now_ms);
        (held.entered_ms, held.entry, held.active_ms) = (Some(now_ms), Some(entry), Some(now_ms));
    }

    fn idle_ms(&self) -> u64 {
        u64::from(self.policy.idle_timeout_s) * 1_000
    }

    fn hold(&mut self, seq: u64, user: usize, heard_ms: u64) -> &mut Held {
        self.held.entry(seq).or_insert(Held {
            user,
            heard_ms,
            late_ms: None,
            back_ms: 0,
            present_ms: 0,
            entered_ms: None,
            entry: None,
            evicted: false,
            left: false,
            said: false,
            answered_ms: None,
            pass: None,
            active_ms: None,
            told: None,
        })
    }

    /// The people inside: who entered, was active within the idle time, and did not leave.
    fn inside(&self, now_ms: u64) -> usize {
        let idle_ms = u64::from(self.policy.visit_idle_s) * 1_000;
        let is_inside = |held: &&Held| held.active_ms.is_some_and(|at_ms| at_ms + idle_ms >= now_ms);
        self.held.values().filter(is_inside).count()
    }

    /// Somebody inside was active.
    pub(crate) fn active(&mut self, now_ms: u64, seq: u64) {
        if let Some(held) = self.held.get_mut(&seq) {
            held.active_ms = Some(now_ms);
        }
    }

    /// Somebody inside leaves.
    pub(crate) fn leaves(&mut self, now_ms: u64, seq: u64) {
        self.leaves.push(now_ms);
        if let Some(held) = self.held.get_mut(&seq) {
            held.active_ms = None;
        }
    }

    /// Somebody inside was told that the visit has ended.
    pub(crate) fn visit_ended(&mut self, now_ms: u64, seq: u64) {
        let idle_ms = u64::from(self.policy.visit_idle_s) * 1_000;
        if self.held.get(&seq).and_then(|held| held.active_ms).is_some_and(|at_ms| at_ms + idle_ms > now_ms) {
            self.breaks(Promise::VisitLost, format!("{now_ms} ms: ticket {seq} was active inside"));
        }
    }

    /// The share of the places inside that were used within `ms` after somebody left, in percent, while people waited. All people
    /// inside must say that they leave.
    pub(crate) fn places_used_within(&self, ms: u64) -> f64 {
        let mut entries: Vec<u64> = self.entries.iter().map(|entry| entry.0).collect();
        let mut leaves = self.leaves.clone();
        entries.sort_unstable();
        leaves.sort_unstable();
        let used = entries.iter().skip(self.policy.max_active as usize).zip(&leaves);
        let (soon, all) = used.fold((0_u32, 0_u32), |(soon, all), (entry, leave)| {
            (soon + u32::from(*entry <= leave + ms), all + 1)
        });
        100.0 * f64::from(soon) / f64::from(all.max(1))
    }

    /// A user leaves.
    pub(crate) fn left(&mut self, seq: u64) {
        if let Some(held) = self.held.get_mut(&seq) {
            held.left = true;
        }
    }

    /// A user says that the place or the visit is given up.
    pub(crate) fn gives_up(&mut self, seq: u64) {
        if let Some(held) = self.held.get_mut(&seq) {
            held.said = true;
        }
    }

    /// The server answered that. From then on the ticket is worth nothing.
    pub(crate) fn gave_up(&mut self, now_ms: u64, seq: u64, answer: &Result<Departure, Refusal>) {
        self.calls += 1;
        if let (Ok(Departure::Place | Departure::Visit | Departure::Gone), Some(held)) =
            (answer, self.held.get_mut(&seq))
        {
            held.answered_ms = held.answered_ms.or(Some(now_ms));
        }
    }

    /// Somebody who never had this ticket of the line tried to give it up.
    pub(crate) fn stranger_left(&mut self, seq: u64, answer: &Result<Departure, Refusal>) {
        self.calls += 1;
        if let Ok(departure) = answer {
            self.breaks(Promise::StrangerLeft, format!("a ticket {seq} of another line: {departure:?}"));
        }
    }

    /// The visits of two exchanges of one entry.
    pub(crate) fn exchanged(&mut self, seq: u64, first: &Visit, second: Option<&Visit>) {
        self.calls += 1;
        // A visit counts whole seconds.
        let is_same = |second: &Visit| second.began_s.abs_diff(first.began_s) <= 1 && second.seq == first.seq;
        let has_ended = self.held.get(&seq).is_some_and(|held| held.said);
        if !second.map_or(has_ended, is_same) {
            self.breaks(Promise::AnotherVisit, format!("ticket {seq}: {first:?}, then {second:?}"));
        }
    }

    /// The server refused a poll.
    pub(crate) fn refused(&mut self, now_ms: u64, seq: u64) {
        if let Some(held) = self.held.get_mut(&seq) {
            held.heard_ms = now_ms;
        }
    }

    /// The server answered a call of `user` about ticket `seq`, which arrived at `asked_ms`. Without a `token` the call
    /// was a join.
    pub(crate) fn answered(
        &mut self,
        now_ms: u64,
        asked_ms: u64,
        user: usize,
        seq: u64,
        token: Option<Token>,
        answer: &Result<Reply, Refusal>,
    ) {
        self.calls += 1;
        let joined = token.is_none();
        let before = self.held.get(&seq).cloned();
        self.judged.places += u64::from(before.is_some() && answer.is_ok());
        if !joined
            && answer.is_ok()
            && let Some(at_ms) =
                before.as_ref().and_then(|held| held.answered_ms).filter(|at_ms| *at_ms < asked_ms)
        {
            let how = format!("{now_ms} ms: ticket {seq} was given up at {at_ms} ms: {answer:?}");
            self.breaks(Promise::LeftAndBack, how);
        }
        match answer {
            Ok(Reply::Waiting { token: newer, status }) => {
                let WaitStatus { rank, eta, reason, polling_period_ms, stale, .. } = status;
                self.longest_period_ms = self.longest_period_ms.max(*polling_period_ms);
                // In long lines every hundredth reply is checked, to save time.
                if !stale && (self.held.len() < 1_000 || self.calls.is_multiple_of(100)) {
                    self.check_rank(now_ms, seq, *rank);
                }
                let story = self.stories.entry(user).or_insert(Story {
                    joined_ms: now_ms,
                    told_s: None,
                    naive_s: 0.0,
                    entered_ms: None,
                });
                if joined {
                    #[expect(clippy::cast_precision_loss, reason = "small")]
                    let naive_s = *rank as f64 * 60.0 / f64::from(self.policy.admit_per_minute);
                    (story.naive_s, story.told_s) =
                        (naive_s, eta.map(|eta| (eta.seconds, eta.low_s, eta.high_s)));
                }
                let (idle_ms, trouble_ms) = (self.idle_ms(), self.trouble_ms.unwrap_or(0));
                let held = self.hold(seq, user, asked_ms);
                held.user = user;
                if asked_ms > held.heard_ms + idle_ms {
                    held.late_ms = Some(asked_ms);
                } else if !stale && held.late_ms.is_some_and(|at| at.max(trouble_ms) + DELAY_MS < asked_ms) {
                    held.late_ms = None;
                }
                if joined {
                    held.left = false;
                }
                held.heard_ms = held.heard_ms.max(asked_ms);
                if !stale {
                    held.back_ms = if asked_ms > held.present_ms { asked_ms } else { 0 };
                    held.present_ms = asked_ms + 2 * u64::from(*polling_period_ms) + 500;
                }
                let told_ms = eta.map(|eta| now_ms + u64::from(eta.seconds) * 1_000);
                let told_before = std::mem::replace(&mut held.told, told_ms.map(|ms| (ms, *newer)));
                if let Some((before_ms, newest)) = told_before
                    && token == Some(newest)
                    && let Some(told_ms) = told_ms
                    && told_ms > before_ms + 2_100
                    && reason.is_none_or(|reason| reason == Reason::Held)
                    // A user who still waits at the expected time is told one more second, each time.
                    && before_ms > now_ms
                {
                    let how =
                        format!("{now_ms} ms: ticket {seq} was told {before_ms} ms, and now {told_ms} ms");
                    self.breaks(Promise::WaitGrew, how);
                }
                if let Some(Held { entered_ms: Some(at_ms), .. }) = before
                    && at_ms + DELAY_MS < now_ms
                    && !stale
                {
                    self.breaks(
                        Promise::PassDiffers,
                        format!("ticket {seq} entered at {at_ms} ms, and waits again"),
                    );
                }
            }
            Ok(Reply::Entered { pass, .. }) => {
                let held = self.hold(seq, user, asked_ms);
                held.user = user;
                let differs = held.pass.replace(*pass).is_some_and(|before| before != *pass);
                if differs {
                    self.breaks(Promise::PassDiffers, format!("ticket {seq}: another pass than before"));
                }
                let entered_ms = self.held.get(&seq).and_then(|held| held.entered_ms);
                if let Some(story) = self.stories.get_mut(&user) {
                    story.entered_ms = entered_ms;
                }
            }
            Err(Refusal::Gone) => {
                if let Some(held) = before
                    && !held.said
                    && held
                        .entered_ms
                        .is_none_or(|at_ms| now_ms < at_ms + u64::from(self.policy.pass_ttl_s) * 1_000)
                {
                    if held.entered_ms.is_some() {
                        self.breaks(Promise::PassDiffers, format!("ticket {seq} entered, and is gone"));
                    } else if held.late_ms.is_none() && asked_ms <= held.heard_ms + self.idle_ms() {
                        let how = format!(
                            "{now_ms} ms: ticket {seq} is gone, and was heard at {} ms",
                            held.heard_ms
                        );
                        let restarted = now_ms < self.down_ms;
                        self.breaks(
                            if restarted { Promise::PlaceLost } else { Promise::EvictedWhilePolling },
                            how,
                        );
                    }
                }
                if let Some(held) = self.held.get_mut(&seq) {
                    held.evicted = true;
                }
            }
            Err(refusal) => {
                // A place that was shown stays visible, whatever the store does.
                let waited = before.is_some_and(|held| Self::waits(&held));
                if !joined && waited && asked_ms >= self.down_ms {
                    self.breaks(
                        Promise::StoreTroubleShown,
                        format!("{now_ms} ms: ticket {seq}: {refusal:?}"),
                    );
                }
            }
        }
    }

    /// Checks the answer to a token that was never issued.
    pub(crate) fn forged(&mut self, answer: &Result<Reply, Refusal>) {
        self.calls += 1;
        if *answer != Err(Refusal::BadToken) {
            self.breaks(Promise::ForgedTokenTaken, format!("a forged token: {answer:?}"));
        }
    }

    /// A rank counts every holder who waits ahead, and no holder who was silent for 70 s.
    fn check_rank(&mut self, now_ms: u64, seq: u64, rank: u64) {
        self.judged.ranks += 1;
        let idle_ms = self.idle_ms();
        let ahead = |from_ms: u64| {
            let counts =
                |held: &&Held| Self::waits(held) && held.heard_ms >= from_ms && held.late_ms.is_none();
            self.held.range(..seq).map(|(_, held)| held).filter(counts).count() as u64
        };
        let least = ahead(now_ms.saturating_sub(idle_ms));
        if rank < 1 + least {
            let how = format!("{now_ms} ms: ticket {seq} is told rank {rank}, and {least} wait ahead");
            self.breaks(Promise::RankTooLow, how);
        }
        // Tickets whose holders never received a reply are also in the line, until they are evicted.
        let far_ms = idle_ms + idle_ms / 6 + DELAY_MS;
        if !self.was_trouble(now_ms, far_ms) {
            let lately = |held: &&Held| {
                held.heard_ms + far_ms >= now_ms
                    && !held.evicted
                    && held.entered_ms.is_none_or(|at_ms| at_ms + DELAY_MS > now_ms)
            };
            let most = self.held.range(..seq).map(|(_, held)| held).filter(lately).count() as u64;
            if rank > 1 + most {
                let how = format!("{now_ms} ms: ticket {seq} is told rank {rank}, and {most} may be ahead");
                self.breaks(Promise::NotEvicted, how);
            }
        }
    }

    /// Notes a new ticket. Its caller may never receive the reply.
    pub(crate) fn issued(&mut self, now_ms: u64, zone: &ZoneId, seq: u64) {
        if *zone == self.zone {
            self.hold(seq, usize::MAX, now_ms).left = true;
        }
    }

    /// A user who stayed and polled as told was never admitted.
    pub(crate) fn never_admitted(&mut self, user: usize) {
        self.breaks(Promise::NeverAdmitted, format!("user {user} stayed to the end"));
    }

    /// The share of slots that were used while there was a line, in percent of N per minute. It measures the time that
    /// the line took for the entries of whole sub-windows, so that neither end improves the figure. The last 90 entries
    /// are left out, because there is no line behind them.
    pub(crate) fn slots_used(&self) -> f64 {
        let line: Vec<u64> = self.entries.iter().filter(|&&(_, of_line)| of_line).map(|e| e.0).collect();
        let sub = self.policy.admit_per_sub_window() as usize;
        let count = line.len().saturating_sub(90 + sub) / sub * sub;
        if count == 0 {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let (used, minutes) = (count as f64, (line[count] - line[0]) as f64 / 60_000.0);
        100.0 * used / (minutes * f64::from(self.policy.admit_per_minute))
    }
}
