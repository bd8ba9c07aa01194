//! A zone's line by minute: the growth of its totals, and their last values.
//!
//! Invariants: minutes are in order and unique, even if the wall clock steps. If it goes back, the newest minute continues. The
//! entries of the last minute are those between two reports of the store that are at most 60 s apart by the store's clock, so
//! they never exceed what a zone's limit allows in 60 s.

use std::{collections::VecDeque, time::Duration};

use events::Tallied;
use tokio::time::Instant;

use super::MINUTES;

/// One minute of a zone. Counts are of this minute only; the other fields are its last values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// The start of the minute, in seconds since 1970.
    pub at_s: u64,
    /// Live tickets, at the end of the minute.
    pub waiting: u32,
    /// Live tickets whose holders poll, at the end of the minute.
    pub present: u32,
    /// Tickets issued.
    pub joined: u32,
    /// Entries.
    pub entered: u32,
    /// Evictions.
    pub evicted: u32,
    /// Slots offered to a line.
    pub slots_offered: u32,
    /// Entries from the line.
    pub slots_used: u32,
    /// The entries per minute that the policy allows, at the end of the minute.
    pub admit_per_minute: u32,
}

/// The entries of the last 60 s, as far as this server knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastMinute {
    /// How many entered.
    pub entered: u64,
    /// For how many of the 60 s the reports of the store are known here: fewer than 60 only soon after the start.
    pub seen_s: u64,
}

/// What a store reported.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// When, in milliseconds of the store's clock.
    store_ms: u64,
    /// When, by this server's clock.
    at: Instant,
    /// The entries that this server has seen until then.
    entered: u64,
}

const MINUTE_MS: u64 = 60_000;

/// The most reports that are kept. They come once a second.
const MAX_REPORTS: usize = 128;

/// How old the newest report of a zone in use may be.
const FRESH: Duration = Duration::from_secs(2);

/// The minutes of a zone.
#[derive(Debug, Default)]
pub(super) struct Minutes {
    minutes: VecDeque<Minute>,
    last: Option<Tallied>,
    /// The reports of the last minute, and the one before; the newest last.
    reports: VecDeque<Report>,
}

impl Minutes {
    /// Takes in the totals that the store reported at `at`: an instant of its clock, in milliseconds, and of this server's.
    pub(super) fn take(&mut self, totals: &Tallied, unix_s: u64, at: (u64, Instant)) {
        let at_s = unix_s - unix_s % 60;
        if self.minutes.back().is_none_or(|minute| minute.at_s < at_s) {
            if self.minutes.len() == MINUTES {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute { at_s, ..Minute::default() });
        }
        let old = self.last.replace(*totals).unwrap_or(*totals);
        let grown = |total: fn(&Tallied) -> u64| {
            let (new, old) = (total(totals), total(&old));
            u32::try_from(if new < old { new } else { new - old }).unwrap_or(u32::MAX)
        };
        let minute = self.minutes.back_mut().expect("there is one, or it was added above");
        let entered = grown(|totals| totals.entered);
        minute.waiting = totals.waiting;
        minute.present = totals.present;
        minute.admit_per_minute = totals.admit_per_minute;
        minute.joined = minute.joined.saturating_add(grown(|totals| totals.joined));
        minute.entered = minute.entered.saturating_add(entered);
        minute.evicted = minute.evicted.saturating_add(grown(|totals| totals.evicted));
        minute.slots_offered = minute.slots_offered.saturating_add(grown(|totals| totals.slots_offered));
        minute.slots_used = minute.slots_used.saturating_add(grown(|totals| totals.slots_used));
        self.report(u64::from(entered), at);
    }

    fn report(&mut self, entered: u64, (store_ms, at): (u64, Instant)) {
        // Another process has the state, with another clock, or the state began again.
        if self.reports.back().is_some_and(|last| store_ms < last.store_ms) {
            self.reports.clear();
        }
        let before = self.reports.back().map_or(0, |last| last.entered);
        if self.reports.back().is_some_and(|last| last.store_ms == store_ms) {
            self.reports.pop_back();
        }
        self.reports.push_back(Report { store_ms, at, entered: before + entered });
        while self.reports.len() > MAX_REPORTS
            || self.reports.get(1).is_some_and(|second| second.store_ms + MINUTE_MS <= store_ms)
        {
            self.reports.pop_front();
        }
    }

    /// The last `count` minutes, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<Minute> {
        self.minutes.iter().skip(self.minutes.len().saturating_sub(count)).copied().collect()
    }

    /// The entries of the 60 s before the newest report; if that is old, of those before `now`.
    pub(super) fn last_minute(&self, now: Instant) -> LastMinute {
        let (Some(oldest), Some(newest)) = (self.reports.front(), self.reports.back()) else {
            return LastMinute::default();
        };
        let old = now.saturating_duration_since(newest.at).saturating_sub(FRESH);
        let end_ms = newest.store_ms + u64::try_from(old.as_millis()).unwrap_or(u64::MAX / 2);
        let begin_ms = end_ms.saturating_sub(MINUTE_MS);
        let first = self.reports.iter().find(|report| report.store_ms >= begin_ms).unwrap_or(newest);
        let seen_ms = end_ms - oldest.store_ms;
        LastMinute { entered: newest.entered - first.entered, seen_s: seen_ms.min(MINUTE_MS) / 1_000 }
    }
}

#[cfg(test)]
mod tests {
    use events::Zone;

    use super::*;

    fn totals(entered: u64) -> Tallied {
        Tallied {
            zone: Zone::NONE,
            admit_per_minute: 60,
            waiting: 1,
            present: 1,
            joined: 2 * entered,
            entered,
            evicted: 0,
            slots_offered: 0,
            slots_used: 0,
        }
    }

    #[test]
    fn totals_become_minutes() {
        let (mut minutes, start) = (Minutes::default(), Instant::now());
        for second in 0..=300_u64 {
            let at = (1_000 * second, start + Duration::from_secs(second));
            minutes.take(&totals(1_000 + second), 6_000 + second, at);
        }
        let shown: Vec<_> = minutes.last(MINUTES).iter().map(|m| (m.at_s, m.joined, m.entered)).collect();
        assert_eq!(
            shown,
            [
                (6_000, 118, 59),
                (6_060, 120, 60),
                (6_120, 120, 60),
                (6_180, 120, 60),
                (6_240, 120, 60),
                (6_300, 2, 1)
            ]
        );
        assert_eq!(minutes.last(2).len(), 2);
        let entered = |second| minutes.last_minute(start + Duration::from_secs(second)).entered;
        assert_eq!((entered(300), entered(347), entered(400)), (60, 15, 0));
    }

    /// A zone lets in bursts of 60, a minute apart. Whenever the store reports, and however late, no 60 s hold two of them.
    #[test]
    fn the_last_minute_never_shows_more_than_a_minute_holds() {
        for step_ms in [700, 999, 1_000, 1_001, 1_017, 1_500, 3_000] {
            let (mut minutes, start) = (Minutes::default(), Instant::now());
            for ms in (0..400_000).step_by(step_ms) {
                let at = start + Duration::from_millis(ms);
                minutes.take(&totals(60 * (ms / MINUTE_MS)), 6_000 + ms / 1_000, (ms, at));
                for later in [0, 400, 1_900, 2_500] {
                    let shown = minutes.last_minute(at + Duration::from_millis(later));
                    assert!(shown.entered <= 60, "{shown:?} at {ms} ms, a report each {step_ms} ms");
                    assert_eq!(
                        shown.seen_s < 60,
                        ms + later.saturating_sub(2_000) < MINUTE_MS,
                        "{shown:?} at {ms} ms"
                    );
                }
            }
        }
    }

    /// After a start, the store's entries of before are not known. The figure says so.
    #[test]
    fn a_start_says_for_how_long_it_has_counted() {
        let (mut minutes, start) = (Minutes::default(), Instant::now());
        assert_eq!(minutes.last_minute(start), LastMinute { entered: 0, seen_s: 0 });
        for second in [0, 1, 12] {
            minutes.take(
                &totals(5_000 + second),
                6_000,
                (1_000 * second, start + Duration::from_secs(second)),
            );
        }
        let shown = minutes.last_minute(start + Duration::from_secs(12));
        assert_eq!(shown, LastMinute { entered: 12, seen_s: 12 });
        minutes.take(&totals(5_013), 6_000, (400, start + Duration::from_secs(13)));
        assert_eq!(minutes.last_minute(start + Duration::from_secs(13)).seen_s, 0, "another clock");
    }

    #[test]
    fn the_totals_of_a_restarted_store_count_from_zero() {
        let (mut minutes, now) = (Minutes::default(), Instant::now());
        for entered in [1_000, 1_010, 3, 5] {
            minutes.take(&totals(entered), 6_000, (0, now));
        }
        assert_eq!(minutes.last(1)[0].entered, 10 + 3 + 2);
    }

    #[test]
    fn a_clock_that_steps_keeps_order_and_limit() {
        let (mut minutes, now) = (Minutes::default(), Instant::now());
        for (step, unix_s) in [6_000, 60, 6_001, 9_000].into_iter().enumerate() {
            minutes.take(&totals(step as u64), unix_s, (step as u64, now));
        }
        let shown: Vec<_> = minutes.last(MINUTES).iter().map(|m| (m.at_s, m.entered)).collect();
        assert_eq!(shown, [(6_000, 2), (9_000, 1)], "minutes without totals are left out");
        for minute in 0..2 * MINUTES as u64 {
            minutes.take(&totals(9), 12_000 + 60 * minute, (60_000 * minute, now));
        }
        assert_eq!(minutes.last(usize::MAX).len(), MINUTES);
    }
}
