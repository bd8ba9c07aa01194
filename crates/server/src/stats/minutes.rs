//! A zone's line by minute: the growth of its totals, and their last values.
//!
//! Invariant: minutes are in order and unique, even if the wall clock steps. If it goes back, the newest minute continues.

use std::collections::VecDeque;

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

/// Entries are counted by second for this many seconds.
const SECONDS: usize = 60;

/// The minutes of a zone.
#[derive(Debug, Default)]
pub(super) struct Minutes {
    minutes: VecDeque<Minute>,
    last: Option<Tallied>,
    /// Entries by second of a monotonic clock; the newest last.
    seconds: VecDeque<(Instant, u32)>,
}

impl Minutes {
    /// Takes in the totals of one instant.
    pub(super) fn take(&mut self, totals: &Tallied, unix_s: u64, now: Instant) {
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
        if entered > 0 {
            if self.seconds.len() == SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back((now, entered));
        }
    }

    /// The last `count` minutes, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<Minute> {
        self.minutes.iter().skip(self.minutes.len().saturating_sub(count)).copied().collect()
    }

    /// The entries in the 60 s before `now`.
    pub(super) fn entered_last_minute(&self, now: Instant) -> u64 {
        let within =
            |(at, _): &&(Instant, u32)| now.saturating_duration_since(*at).as_secs() < SECONDS as u64;
        self.seconds.iter().filter(within).map(|(_, entered)| u64::from(*entered)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            minutes.take(&totals(1_000 + second), 6_000 + second, start + Duration::from_secs(second));
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
        assert_eq!(minutes.entered_last_minute(start + Duration::from_secs(300)), 60);
        assert_eq!(minutes.entered_last_minute(start + Duration::from_secs(345)), 15);
        assert_eq!(minutes.entered_last_minute(start + Duration::from_secs(400)), 0);
    }

    #[test]
    fn the_totals_of_a_restarted_store_count_from_zero() {
        let (mut minutes, now) = (Minutes::default(), Instant::now());
        for entered in [1_000, 1_010, 3, 5] {
            minutes.take(&totals(entered), 6_000, now);
        }
        assert_eq!(minutes.last(1)[0].entered, 10 + 3 + 2);
    }

    #[test]
    fn a_clock_that_steps_keeps_order_and_limit() {
        let (mut minutes, now) = (Minutes::default(), Instant::now());
        for (step, unix_s) in [6_000, 60, 6_001, 9_000].into_iter().enumerate() {
            minutes.take(&totals(step as u64), unix_s, now);
        }
        let shown: Vec<_> = minutes.last(MINUTES).iter().map(|m| (m.at_s, m.entered)).collect();
        assert_eq!(shown, [(6_000, 2), (9_000, 1)], "minutes without totals are left out");
        for minute in 0..2 * MINUTES as u64 {
            minutes.take(&totals(9), 12_000 + 60 * minute, now);
        }
        assert_eq!(minutes.last(usize::MAX).len(), MINUTES);
    }
}
