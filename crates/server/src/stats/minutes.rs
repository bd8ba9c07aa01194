//! A zone's line by minute: the growth of its totals, and their last values.
//!
//! Invariants: minutes are in order and unique, even if the wall clock steps. If it goes back, the newest minute continues. The
//! entries of the last minute are those between two reports of the store that are at most 60 s apart by the store's clock, so
//! they never exceed what a zone's limit allows in 60 s.

use std::{collections::VecDeque, time::Duration};

use admission::{Tally, Totals};
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
    /// Places that ended without an entry: the holder was silent, or gave up.
    pub evicted: u32,
    /// Slots offered to a line.
    pub slots_offered: u32,
    /// Entries from the line.
    pub slots_used: u32,
    /// The entries per minute that the policy allows, at the end of the minute.
    pub admit_per_minute: u32,
}

/// How much a total grew. One that decreased belongs to a store that started again, and counts from 0.
pub(super) fn grown(new: u64, old: u64) -> u64 {
    if new < old { new } else { new - old }
}

impl Minute {
    /// Whether anything happened in it, or anybody waits.
    pub(super) fn has_anything(&self) -> bool {
        let Self { waiting, joined, entered, evicted, slots_offered, .. } = *self;
        [waiting, joined, entered, evicted, slots_offered].iter().any(|count| *count > 0)
    }

    /// The minute with what happened besides.
    pub(super) fn with(self, more: Totals) -> Self {
        let sum = |count: u32, more: u64| count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        Self {
            joined: sum(self.joined, more.joined),
            entered: sum(self.entered, more.entered),
            evicted: sum(self.evicted, more.evicted),
            slots_used: sum(self.slots_used, more.slots_used),
            ..self
        }
    }
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
    /// Takes in the totals that the store reported at `at`: an instant of its clock, in milliseconds, and of this server's. `first` are
    /// those of before this server served the zone. Returns the minute that is over, if a new one begins, with the totals at its end.
    pub(super) fn take(
        &mut self,
        totals: &Tallied,
        first: &Tally,
        unix_s: u64,
        at: (u64, Instant),
    ) -> Option<(Minute, Totals)> {
        let at_s = unix_s - unix_s % 60;
        let mut over = None;
        if self.minutes.back().is_none_or(|minute| minute.at_s < at_s) {
            over = self.current();
            if self.minutes.len() == MINUTES {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute { at_s, ..Minute::default() });
        }
        let old = self.last.replace(*totals).unwrap_or(Tallied {
            joined: first.joined,
            entered: first.entered,
            evicted: first.evicted,
            slots_offered: first.slots_offered,
            slots_used: first.slots_used,
            ..*totals
        });
        let grown =
            |total: fn(&Tallied) -> u64| u32::try_from(grown(total(totals), total(&old))).unwrap_or(u32::MAX);
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
        over
    }

    /// The newest minute, with the totals that it has now.
    pub(super) fn current(&self) -> Option<(Minute, Totals)> {
        let (minute, last) = (*self.minutes.back()?, self.last?);
        let totals = Totals {
            joined: last.joined,
            entered: last.entered,
            evicted: last.evicted,
            slots_used: last.slots_used,
        };
        Some((minute, totals))
    }

    /// The first minute that this server saw, if it still has it.
    pub(super) fn first(&self) -> Option<Minute> {
        self.minutes.front().copied()
    }

    /// Puts minutes before the first one that this server saw: those that were kept, in their order. `more` happened before this server
    /// served the zone, and in none of them: it counts for the first minute of this server.
    pub(super) fn put_before(&mut self, earlier: &[Minute], more: Totals) {
        let Some(first) = self.minutes.front_mut() else { return };
        *first = first.with(more);
        let at_s = first.at_s;
        for minute in earlier.iter().rev().filter(|minute| minute.at_s < at_s) {
            if self.minutes.len() == MINUTES {
                break;
            }
            self.minutes.push_front(*minute);
        }
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
    use events::ZoneNumber;

    use super::*;

    /// Takes in totals of which nothing is new at the first time.
    fn take(minutes: &mut Minutes, totals: &Tallied, unix_s: u64, at: (u64, Instant)) {
        let Tallied { joined, entered, evicted, slots_offered, slots_used, .. } = *totals;
        let first = Tally { joined, entered, evicted, slots_offered, slots_used, ..Tally::default() };
        minutes.take(totals, &first, unix_s, at);
    }

    fn totals(entered: u64) -> Tallied {
        Tallied {
            zone: ZoneNumber::NONE,
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
            take(&mut minutes, &totals(1_000 + second), 6_000 + second, at);
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
                take(&mut minutes, &totals(60 * (ms / MINUTE_MS)), 6_000 + ms / 1_000, (ms, at));
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
            take(
                &mut minutes,
                &totals(5_000 + second),
                6_000,
                (1_000 * second, start + Duration::from_secs(second)),
            );
        }
        let shown = minutes.last_minute(start + Duration::from_secs(12));
        assert_eq!(shown, LastMinute { entered: 12, seen_s: 12 });
        take(&mut minutes, &totals(5_013), 6_000, (400, start + Duration::from_secs(13)));
        assert_eq!(minutes.last_minute(start + Duration::from_secs(13)).seen_s, 0, "another clock");
    }

    #[test]
    fn the_totals_of_a_restarted_store_count_from_zero() {
        let (mut minutes, now) = (Minutes::default(), Instant::now());
        for entered in [1_000, 1_010, 3, 5] {
            take(&mut minutes, &totals(entered), 6_000, (0, now));
        }
        assert_eq!(minutes.last(1)[0].entered, 10 + 3 + 2);
    }

    #[test]
    fn a_clock_that_steps_keeps_order_and_limit() {
        let (mut minutes, now) = (Minutes::default(), Instant::now());
        for (step, unix_s) in [6_000, 60, 6_001, 9_000].into_iter().enumerate() {
            take(&mut minutes, &totals(step as u64), unix_s, (step as u64, now));
        }
        let shown: Vec<_> = minutes.last(MINUTES).iter().map(|m| (m.at_s, m.entered)).collect();
        assert_eq!(shown, [(6_000, 2), (9_000, 1)], "minutes without totals are left out");
        for minute in 0..2 * MINUTES as u64 {
            take(&mut minutes, &totals(9), 12_000 + 60 * minute, (60_000 * minute, now));
        }
        assert_eq!(minutes.last(usize::MAX).len(), MINUTES);
    }

    /// What was kept comes before what this server saw, and what happened meanwhile counts for its first minute.
    #[test]
    fn kept_minutes_come_first() {
        let (mut minutes, start) = (Minutes::default(), Instant::now());
        let first = Tally { joined: 20, entered: 10, ..Tally::default() };
        let over = minutes.take(&totals(11), &first, 6_000, (0, start));
        assert_eq!(over, None);
        let kept: Vec<Minute> =
            (0..3).map(|at| Minute { at_s: 5_880 + 60 * at, entered: 5, ..Minute::default() }).collect();
        minutes.put_before(&kept, Totals { entered: 7, ..Totals::default() });
        let shown: Vec<_> = minutes.last(MINUTES).iter().map(|m| (m.at_s, m.entered)).collect();
        assert_eq!(shown, [(5_880, 5), (5_940, 5), (6_000, 8)], "the one of this server counts");
        let over = minutes.take(&totals(12), &first, 6_060, (60_000, start)).expect("a minute is over");
        assert_eq!((over.0.at_s, over.0.entered, over.1.entered), (6_000, 8, 11));
        let many: Vec<Minute> =
            (0..1_000).map(|at| Minute { at_s: 60 * (at % 98), ..Minute::default() }).collect();
        minutes.put_before(&many, Totals::default());
        assert_eq!(minutes.last(usize::MAX).len(), MINUTES);
    }
}
