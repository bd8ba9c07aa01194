//! What the users of a worker did: counts of each second, and stories.
//!
//! Invariants: a call is counted once, in the second in which its reply arrived. A due call is counted in the second in
//! which it was due, even if it was made later.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    frame::{Latencies, no_latencies},
    paper::Paper,
    report::{Counters, Failure, Second, Streams},
    story::Story,
};

/// The largest number of kinds of failures. Further kinds are counted together.
const FAILURES: usize = 32;
/// The last second of `due`: a day and an hour.
const SECONDS: usize = 90_000;

/// The two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Takes a place.
    Wait,
    /// Asks to enter with it.
    Entry,
}

/// The counts and latencies of one second.
#[derive(Debug)]
pub struct Counts {
    /// The counts, without percentiles and `due`.
    pub second: Second,
    /// Latencies of `wait`.
    pub wait: Latencies,
    /// Latencies of `entry`.
    pub entry: Latencies,
}

impl Counts {
    /// Whether no call was answered, none failed, and no event arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wait.is_empty()
            && self.entry.is_empty()
            && self.second.errors == 0
            && self.second.stream_events == 0
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self { second: Second::default(), wait: no_latencies(), entry: no_latencies() }
    }
}

/// The totals at the end of the run.
#[derive(Debug, Default)]
pub struct Total {
    /// Calls that were due in each second.
    pub due: Vec<u32>,
    /// The counters.
    pub counters: Counters,
    /// What became of the streams.
    pub streams: Streams,
    /// Failures by kind, most frequent first.
    pub failures: Vec<Failure>,
    /// The stories that ended.
    pub stories: Vec<Story>,
    /// What users fetched of a draw.
    pub papers: Vec<Paper>,
}

#[derive(Debug, Default)]
struct Inner {
    now: Counts,
    users: u32,
    waiting: u32,
    due: Vec<u32>,
    counters: Counters,
    open_streams: u32,
    streams: Streams,
    failures: BTreeMap<String, (u64, u32)>,
    stories: Vec<Story>,
    papers: Vec<Paper>,
}

impl Inner {
    fn failed(&mut self, what: &str, at_ms: u32) {
        self.now.second.errors += 1;
        let known = self.failures.contains_key(what) || self.failures.len() < FAILURES;
        let what = if known { what } else { "others" };
        self.failures.entry(what.to_owned()).or_insert((0, at_ms)).0 += 1;
    }
}

/// Records a latency of up to an hour. The histogram resizes; `saturating_record` would cut off at its current range.
fn record(latencies: &mut Latencies, us: u64) {
    let _ = latencies.record(us.clamp(1, 3_600_000_000));
}

/// The counts. Each method holds the lock briefly.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Inner>);

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user started.
    pub fn user_started(&self) {
        self.lock().users += 1;
    }

    /// A user ended.
    pub fn user_ended(&self) {
        let mut inner = self.lock();
        inner.users = inner.users.saturating_sub(1);
    }

    /// A user received a place in line.
    pub fn wait_started(&self) {
        self.lock().waiting += 1;
    }

    /// A user in line entered, left or lost the place.
    pub fn wait_ended(&self) {
        let mut inner = self.lock();
        inner.waiting = inner.waiting.saturating_sub(1);
    }

    /// The generator itself was late by `us` microseconds.
    pub fn lag(&self, us: u64) {
        let mut inner = self.lock();
        let us = u32::try_from(us).unwrap_or(u32::MAX);
        inner.now.second.lag_us = inner.now.second.lag_us.max(us);
    }

    /// A call was due at this time since the start.
    pub fn due(&self, at_us: u64) {
        let second = usize::try_from(at_us / 1_000_000).unwrap_or(usize::MAX).min(SECONDS);
        let mut inner = self.lock();
        if inner.due.len() <= second {
            inner.due.resize(second + 1, 0);
        }
        inner.due[second] += 1;
    }

    /// A call ended `latency_us` after its intended start. `answered` holds the kind of failure, if it failed.
    pub fn called(&self, kind: Kind, latency_us: u64, answered: Result<(), &str>, at_ms: u32) {
        let mut inner = self.lock();
        match kind {
            Kind::Wait => inner.counters.wait_requests_total += 1,
            Kind::Entry => inner.counters.entry_requests_total += 1,
        }
        let now = &mut inner.now;
        match (answered, kind) {
            (Ok(()), Kind::Wait) => {
                now.second.wait_calls += 1;
                record(&mut now.wait, latency_us);
            }
            (Ok(()), Kind::Entry) => {
                now.second.entry_calls += 1;
                record(&mut now.entry, latency_us);
            }
            (Err(what), _) => inner.failed(what, at_ms),
        }
    }

    /// Something failed that is not one of the two calls.
    pub fn failed(&self, what: &str, at_ms: u32) {
        self.lock().failed(what, at_ms);
    }

    /// A stream was opened, `again` if the user had one before.
    pub fn stream_opened(&self, again: bool) {
        let mut inner = self.lock();
        inner.open_streams += 1;
        inner.streams.opened += 1;
        inner.streams.reconnected += u64::from(again);
    }

    /// The server refused a stream.
    pub fn stream_refused(&self) {
        self.lock().streams.refused += 1;
    }

    /// A stream was closed, or it ended.
    pub fn stream_closed(&self) {
        let mut inner = self.lock();
        inner.open_streams = inner.open_streams.saturating_sub(1);
    }

    /// An event arrived on a stream.
    pub fn stream_event(&self) {
        let mut inner = self.lock();
        inner.streams.events += 1;
        inner.now.second.stream_events += 1;
    }

    /// A reply said "enter". `first` if it was the first such reply to this user.
    pub fn entered(&self, first: bool) {
        let mut inner = self.lock();
        inner.counters.can_enter_true_count += 1;
        inner.now.second.entered += u32::from(first);
    }

    /// A reply said "not yet".
    pub fn not_yet(&self, stale: bool) {
        let mut inner = self.lock();
        inner.counters.can_enter_false_count += 1;
        inner.now.second.stale += u32::from(stale);
    }

    /// A story ended.
    pub fn story_ended(&self, story: Story) {
        self.lock().stories.push(story);
    }

    /// A user fetched something of a draw.
    pub fn paper(&self, paper: Paper) {
        self.lock().papers.push(paper);
    }

    /// Returns the counts of the second and starts the next one.
    #[must_use]
    pub fn second(&self) -> Counts {
        let fresh = Counts::default();
        let mut inner = self.lock();
        let mut counts = mem::replace(&mut inner.now, fresh);
        (counts.second.users, counts.second.waiting) = (inner.users, inner.waiting);
        counts.second.streams = inner.open_streams;
        counts
    }

    /// Returns the totals at the end of the run.
    #[must_use]
    pub fn total(&self) -> Total {
        let inner = mem::take(&mut *self.lock());
        let mut failures: Vec<_> = inner
            .failures
            .into_iter()
            .map(|(what, (count, first_ms))| Failure { what, count, first_ms })
            .collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        Total {
            due: inner.due,
            counters: inner.counters,
            streams: inner.streams,
            failures,
            stories: inner.stories,
            papers: inner.papers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_failures_are_counted_by_kind() {
        let tally = Tally::default();
        tally.called(Kind::Wait, 10, Ok(()), 0);
        tally.called(Kind::Entry, 20, Ok(()), 1);
        tally.called(Kind::Entry, 30, Err("503 busy"), 2);
        tally.called(Kind::Entry, 30, Err("503 busy"), 3);
        tally.called(Kind::Wait, 7_000_000, Ok(()), 4);
        let counts = tally.second();
        assert!(counts.wait.equivalent(counts.wait.max(), 7_000_000), "long latencies are not cut off");
        assert_eq!((counts.wait.len(), counts.entry.len(), counts.second.errors), (2, 1, 2));
        assert_eq!(tally.second().entry.len(), 0);
        let total = tally.total();
        assert_eq!(total.counters.entry_requests_total, 3);
        assert_eq!((total.failures[0].count, total.failures[0].first_ms), (2, 2));
    }

    #[test]
    fn kinds_of_failures_are_bounded() {
        let tally = Tally::default();
        for kind in 0..100 {
            tally.called(Kind::Wait, 1, Err(&format!("{kind}")), 0);
        }
        let failures = tally.total().failures;
        assert_eq!(failures.len(), FAILURES + 1);
        assert_eq!(failures.iter().map(|failure| failure.count).sum::<u64>(), 100);
    }
}
