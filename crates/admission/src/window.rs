//! The window: an exact sliding log of entries. It says how many people may enter, and when.
//!
//! Invariant: if [`Window::free`] is asked before each [`Window::record`], any 60 s (both ends included) hold at most
//! `minute_cap` entries, and any sub-window holds at most `sub_cap` entries if the sub-window was asked for too. Entries of
//! the same millisecond share a record, so that a log has at most 60,001 records for any N.

use std::collections::VecDeque;

use crate::Policy;

/// The length of the window, in milliseconds.
pub const MINUTE_MS: u64 = 60_000;

/// A zone's log of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    minute_cap: u32,
    sub_cap: u32,
    sub_ms: u64,
    /// The entries of the last minute: instant and count, oldest first.
    log: VecDeque<(u64, u32)>,
    in_minute: u64,
    /// The index of the first record that lies in the sub-window.
    sub_from: usize,
    in_sub: u64,
    /// Nobody enters before this instant; 0 for none.
    opens_ms: u64,
    /// Whether that instant is still to come.
    is_early: bool,
}

impl Window {
    /// A window without entries.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self {
            minute_cap: policy.admit_per_minute,
            sub_cap: policy.admit_per_sub_window(),
            sub_ms: policy.sub_window_ms(),
            log: VecDeque::new(),
            in_minute: 0,
            sub_from: 0,
            in_sub: 0,
            opens_ms: 0,
            is_early: false,
        }
    }

    /// Has slots from `opens_ms` on only; 0 for slots at once.
    pub fn set_opening(&mut self, opens_ms: u64, now_ms: u64) {
        (self.opens_ms, self.is_early) = (opens_ms, now_ms < opens_ms);
    }

    /// The instant before which nobody enters; 0 for none.
    #[must_use]
    pub fn opens_ms(&self) -> u64 {
        self.opens_ms
    }

    /// A window with these entries (instant and count, oldest first), advanced to `now_ms`.
    #[must_use]
    pub fn from_log(policy: &Policy, log: impl IntoIterator<Item = (u64, u32)>, now_ms: u64) -> Self {
        let mut window = Self::new(policy);
        for (at_ms, count) in log {
            window.record(at_ms, count);
        }
        window.advance(now_ms);
        window
    }

    /// The entries of the last minute: instant and count, oldest first.
    pub fn log(&self) -> impl Iterator<Item = (u64, u32)> {
        self.log.iter().copied()
    }

    /// The last record: instant and count.
    #[must_use]
    pub fn last(&self) -> Option<(u64, u32)> {
        self.log.back().copied()
    }

    /// Whether an entry has left the window, or its sub-window, by `now_ms`, or the window opens.
    #[must_use]
    pub(crate) fn is_past(&self, now_ms: u64) -> bool {
        let is_past = |entry: Option<&(u64, u32)>, length_ms| {
            entry.is_some_and(|(at_ms, _)| at_ms + length_ms < now_ms)
        };
        let opens = self.is_early && self.opens_ms <= now_ms;
        opens || is_past(self.log.front(), MINUTE_MS) || is_past(self.log.get(self.sub_from), self.sub_ms)
    }

    /// Applies the caps of another policy. The entries stay.
    pub fn set_policy(&mut self, policy: &Policy, now_ms: u64) {
        let opens_ms = self.opens_ms;
        *self = Self::from_log(policy, std::mem::take(&mut self.log), now_ms);
        self.set_opening(opens_ms, now_ms);
    }

    /// Drops the entries that have left the window by `now_ms`. An entry counts through its 60th second.
    pub fn advance(&mut self, now_ms: u64) {
        self.is_early = now_ms < self.opens_ms;
        while let Some(&(at_ms, count)) = self.log.get(self.sub_from)
            && at_ms + self.sub_ms < now_ms
        {
            self.in_sub -= u64::from(count);
            self.sub_from += 1;
        }
        while let Some(&(at_ms, count)) = self.log.front()
            && at_ms + MINUTE_MS < now_ms
        {
            self.in_minute -= u64::from(count);
            self.sub_from -= 1;
            self.log.pop_front();
        }
    }

    /// How many people may enter now. With `strict`, the sub-window limits them too.
    #[must_use]
    pub fn free(&self, strict: bool) -> u32 {
        if self.is_early && !sabotaged_opening() {
            return 0;
        }
        free(
            u64::from(self.minute_cap).saturating_sub(self.in_minute),
            u64::from(self.sub_cap).saturating_sub(self.in_sub),
            strict,
        )
    }

    /// Records `count` entries at `at_ms`, which must not be before the last record.
    pub fn record(&mut self, at_ms: u64, count: u32) {
        match self.log.back_mut() {
            Some(last) if last.0 == at_ms => last.1 += count,
            _ => self.log.push_back((at_ms, count)),
        }
        self.in_minute += u64::from(count);
        self.in_sub += u64::from(count);
    }

    /// Checks that the sums are those of the log, and that the log has what counts at `now_ms` and nothing else.
    pub(crate) fn check(&self, now_ms: u64) {
        // As many as tests have that look at each of them; a long log is looked at where it is cut.
        const MOST: usize = 256;
        let is_within = |&(at_ms, _): &(u64, u32), ms: u64| at_ms <= now_ms && at_ms + ms >= now_ms;
        let (first, last) = (self.log.front(), self.log.back());
        assert!(
            [first, last].into_iter().flatten().all(|entry| is_within(entry, MINUTE_MS)),
            "of the last minute"
        );
        let sub_first = self.log.get(self.sub_from);
        assert!(sub_first.is_none_or(|entry| is_within(entry, self.sub_ms)), "of the sub-window");
        let before = self.sub_from.checked_sub(1).and_then(|i| self.log.get(i));
        assert!(!before.is_some_and(|entry| is_within(entry, self.sub_ms)), "and no more");
        if self.log.len() > MOST {
            return;
        }
        let sum = |from: usize| self.log.iter().skip(from).map(|&(_, count)| u64::from(count)).sum::<u64>();
        assert_eq!(
            (sum(0), sum(self.sub_from)),
            (self.in_minute, self.in_sub),
            "the sums are those of the log"
        );
        assert!(self.log.iter().zip(self.log.iter().skip(1)).all(|(one, next)| one.0 < next.0), "in order");
    }

    /// The slots that become free from `now_ms` on, if each is used at once. Advance the window to `now_ms` first.
    #[must_use]
    pub fn upcoming(&self, now_ms: u64) -> Upcoming<'_> {
        let mut upcoming = Upcoming {
            window: self,
            now_ms,
            planned: Vec::new(),
            minute_from: 0,
            in_minute: self.in_minute,
            sub_from: self.sub_from,
            in_sub: self.in_sub,
        };
        if self.is_early {
            upcoming.skip_to(self.opens_ms);
        }
        upcoming
    }
}

#[cfg(feature = "sabotage")]
fn sabotaged_opening() -> bool {
    crate::sabotage::on(crate::sabotage::Rule::Opening)
}

#[cfg(not(feature = "sabotage"))]
const fn sabotaged_opening() -> bool {
    false
}

fn free(minute: u64, sub: u64, strict: bool) -> u32 {
    #[cfg(feature = "sabotage")]
    let (minute, sub) = {
        use crate::sabotage::{Rule, on};
        (if on(Rule::Cap) { 1_000_000 } else { minute }, if on(Rule::SubWindow) { minute } else { sub })
    };
    let free = if strict { minute.min(sub) } else { minute };
    u32::try_from(free).unwrap_or(u32::MAX)
}

/// Iterates over future slots: instant and count. Has no end.
pub struct Upcoming<'a> {
    window: &'a Window,
    now_ms: u64,
    planned: Vec<(u64, u32)>,
    minute_from: usize,
    in_minute: u64,
    sub_from: usize,
    in_sub: u64,
}

impl Upcoming<'_> {
    fn get(&self, i: usize) -> Option<(u64, u32)> {
        let recorded = self.window.log.len();
        if i < recorded { self.window.log.get(i).copied() } else { self.planned.get(i - recorded).copied() }
    }

    /// Continues at `at_ms` at the earliest.
    pub fn skip_to(&mut self, at_ms: u64) {
        self.now_ms = self.now_ms.max(at_ms);
        while let Some((entered_ms, count)) = self.get(self.sub_from)
            && entered_ms + self.window.sub_ms < self.now_ms
        {
            self.in_sub -= u64::from(count);
            self.sub_from += 1;
        }
        while let Some((entered_ms, count)) = self.get(self.minute_from)
            && entered_ms + MINUTE_MS < self.now_ms
        {
            self.in_minute -= u64::from(count);
            self.minute_from += 1;
        }
    }
}

impl Iterator for Upcoming<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let minute = u64::from(self.window.minute_cap).saturating_sub(self.in_minute);
            let sub = u64::from(self.window.sub_cap).saturating_sub(self.in_sub);
            let count = free(minute, sub, true);
            if count > 0 {
                self.planned.push((self.now_ms, count));
                self.in_minute += u64::from(count);
                self.in_sub += u64::from(count);
                return Some((self.now_ms, count));
            }
            // Both windows must have room. Each has room again when its oldest entry leaves.
            let opens = |is_full: bool, from: usize, length_ms: u64| {
                self.get(from).filter(|_| is_full).map_or(0, |(entered_ms, _)| entered_ms + length_ms + 1)
            };
            let minute_ms = opens(minute == 0, self.minute_from, MINUTE_MS);
            let sub_ms = opens(sub == 0, self.sub_from, self.window.sub_ms);
            self.skip_to(minute_ms.max(sub_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(n: u32, sub_windows: u32) -> Policy {
        Policy { admit_per_minute: n, sub_windows, ..Policy::default() }
    }

    #[test]
    fn an_entry_counts_through_its_sixtieth_second() {
        let mut window = Window::new(&policy(1, 1));
        window.advance(1_000);
        window.record(1_000, 1);
        window.advance(61_000);
        assert_eq!(window.free(false), 0, "61 s is within 60 s of 1 s, both ends included");
        window.advance(61_001);
        assert_eq!(window.free(false), 1);
    }

    #[test]
    fn entries_under_a_larger_cap_count_under_a_smaller_one() {
        let mut window = Window::new(&policy(100, 10));
        window.record(0, 10);
        window.set_policy(&policy(5, 1), 10_000);
        assert_eq!(window.free(true), 0);
        window.advance(60_001);
        assert_eq!(window.free(true), 5);
    }

    fn most_within(entries: &[(u64, u32)], length_ms: u64) -> u32 {
        let within = |from: u64| entries.iter().filter(move |e| (from..=from + length_ms).contains(&e.0));
        entries.iter().map(|&(from, _)| within(from).map(|e| e.1).sum()).max().unwrap_or(0)
    }

    proptest! {
        /// For any sequence of requests, no 60 s and no sub-window hold too many entries.
        #[test]
        fn no_window_holds_too_many_entries(
            n in 1u32..200, subs in 1u32..12,
            asks in proptest::collection::vec((0u64..9_000, 1u32..80), 1..120),
        ) {
            let policy = policy(n, subs);
            let (mut window, mut now, mut entries) = (Window::new(&policy), 5, Vec::new());
            for (pause, wanted) in asks {
                now += pause;
                window.advance(now);
                let granted = wanted.min(window.free(true));
                if granted > 0 {
                    window.record(now, granted);
                    entries.push((now, granted));
                }
            }
            prop_assert!(most_within(&entries, MINUTE_MS) <= n);
            prop_assert!(most_within(&entries, policy.sub_window_ms()) <= policy.admit_per_sub_window());
        }

        /// The planned slots are exactly those that a request every millisecond receives.
        #[test]
        fn planned_slots_are_exact(
            n in 1u32..30, subs in 1u32..12, past in proptest::collection::vec((0u64..4_000, 1u32..9), 0..20),
        ) {
            let policy = policy(n, subs);
            let (mut window, mut now) = (Window::new(&policy), 5);
            for (pause, wanted) in past {
                now += pause;
                window.advance(now);
                let granted = wanted.min(window.free(false));
                if granted > 0 {
                    window.record(now, granted);
                }
            }
            let planned: Vec<_> = window.upcoming(now).take_while(|&(at, _)| at < now + 130_000).collect();
            let mut received = Vec::new();
            for at in now..now + 130_000 {
                window.advance(at);
                let granted = window.free(true);
                if granted > 0 {
                    window.record(at, granted);
                    received.push((at, granted));
                }
            }
            prop_assert_eq!(planned, received);
        }
    }
}
