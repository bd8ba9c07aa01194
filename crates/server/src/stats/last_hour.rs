//! The told waits of the people who entered in the last hour, by minute.
//!
//! Invariant: at most an hour's entries count, and all of the last 59 minutes.

use std::time::Duration;

use events::Entered;
use tokio::time::Instant;

use crate::told_waits::ToldWaits;

const MINUTES: usize = 60;

/// The sums of each of the last minutes.
#[derive(Debug)]
pub(super) struct LastHour {
    since: Instant,
    /// A minute since the start, and its sums, at the place of that minute.
    minutes: [(u64, ToldWaits); MINUTES],
}

impl LastHour {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, minutes: [(0, ToldWaits::default()); MINUTES] }
    }

    pub(super) fn note(&mut self, entered: &Entered, now: Instant) {
        let minute = self.minute(now);
        let (of, sums) = &mut self.minutes[usize::try_from(minute).unwrap_or(0) % MINUTES];
        if *of != minute {
            (*of, *sums) = (minute, ToldWaits::default());
        }
        sums.add(entered);
    }

    pub(super) fn read(&self, now: Instant) -> ToldWaits {
        let minute = self.minute(now);
        let lately = self.minutes.iter().filter(|(of, _)| of + MINUTES as u64 > minute);
        lately.fold(ToldWaits::default(), |sums, (_, of)| sums.with(of))
    }

    fn minute(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs() / Duration::from_mins(1).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use events::ZoneNumber;

    use super::*;

    #[test]
    fn an_entry_counts_for_an_hour() {
        let start = Instant::now();
        let mut hour = LastHour::new(start);
        let at = |minute: u64| start + Duration::from_secs(60 * minute + 30);
        let entered = Entered {
            zone: ZoneNumber::NONE,
            waited_ms: 1,
            told_s: 1,
            told_low_s: 0,
            told_high_s: 1,
            at_ms: 0,
        };
        for minute in 0..200 {
            hour.note(&entered, at(minute));
            assert_eq!(hour.read(at(minute)).people, 60.min(minute + 1), "minute {minute}");
        }
        assert_eq!(hour.read(at(229)).people, 30);
        assert_eq!(hour.read(at(259)).people, 0);
        hour.note(&entered, at(400));
        assert_eq!(hour.read(at(400)).people, 1);
    }
}
