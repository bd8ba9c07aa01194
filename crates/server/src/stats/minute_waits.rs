//! The waits of the people who entered in one minute: those that they had, and those that they were told first.
//!
//! Invariant: percentiles of one server are exact to 1 %. Those of several servers are not known exactly: the median is the mean of theirs,
//! weighted with people, and the other ones are the highest of theirs, so the true ones are not higher.

use events::Entered;
use hdrhistogram::Histogram;

use super::waits::{DIGITS, MOST};

/// Waits of one minute. All numbers are 0 if nobody entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteWaits {
    /// The number of people who entered.
    pub people: u32,
    /// The sum of their waits, in milliseconds.
    pub waited_ms: u64,
    /// Half of them waited at most this long.
    pub p50_ms: u32,
    /// 95 % of them waited at most this long.
    pub p95_ms: u32,
    /// The longest wait.
    pub longest_ms: u32,
    /// How many of them were told a wait. The others were told none: most of them entered at once.
    pub told: u32,
    /// Half of these were told at most this wait, in seconds.
    pub told_p50_s: u32,
    /// 95 % of these were told at most this wait, in seconds.
    pub told_p95_s: u32,
    /// How many of these waited within the range that they were told.
    pub in_range: u32,
}

impl MinuteWaits {
    /// These waits and others.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mean = |(one, people): (u32, u32), (two, others): (u32, u32)| {
            let all = u64::from(people) + u64::from(others);
            let sum = u64::from(one) * u64::from(people) + u64::from(two) * u64::from(others);
            u32::try_from(sum.checked_div(all).unwrap_or(0)).unwrap_or(u32::MAX)
        };
        Self {
            people: self.people.saturating_add(other.people),
            waited_ms: self.waited_ms.saturating_add(other.waited_ms),
            p50_ms: mean((self.p50_ms, self.people), (other.p50_ms, other.people)),
            p95_ms: self.p95_ms.max(other.p95_ms),
            longest_ms: self.longest_ms.max(other.longest_ms),
            told: self.told.saturating_add(other.told),
            told_p50_s: mean((self.told_p50_s, self.told), (other.told_p50_s, other.told)),
            told_p95_s: self.told_p95_s.max(other.told_p95_s),
            in_range: self.in_range.saturating_add(other.in_range),
        }
    }
}

/// The people whom this server admitted in the current minute.
#[derive(Debug)]
pub(super) struct OfMinute {
    /// Waits, in milliseconds.
    waits: Histogram<u32>,
    /// Told waits, in seconds.
    told: Histogram<u32>,
    waited_ms: u64,
    longest_ms: u32,
    in_range: u32,
}

impl OfMinute {
    pub(super) fn new() -> Self {
        let empty = || {
            let mut histogram =
                Histogram::new_with_bounds(1, 2_048, DIGITS).expect("these bounds are in order");
            histogram.auto(true);
            histogram
        };
        Self { waits: empty(), told: empty(), waited_ms: 0, longest_ms: 0, in_range: 0 }
    }

    pub(super) fn note(&mut self, entered: &Entered) {
        let record = |histogram: &mut Histogram<u32>, value: u32| {
            histogram.record(u64::from(value).min(MOST)).expect("it grows up to the largest value");
        };
        record(&mut self.waits, entered.waited_ms);
        self.waited_ms += u64::from(entered.waited_ms);
        self.longest_ms = self.longest_ms.max(entered.waited_ms);
        let told = crate::told_waits::ToldWaits::of(entered);
        if told.people > 0 {
            record(&mut self.told, entered.told_s);
            self.in_range += u32::from(told.in_range > 0);
        }
    }

    pub(super) fn read(&self) -> MinuteWaits {
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let at = |histogram: &Histogram<u32>, quantile| number(histogram.value_at_quantile(quantile));
        MinuteWaits {
            people: number(self.waits.len()),
            waited_ms: self.waited_ms,
            p50_ms: at(&self.waits, 0.5).min(self.longest_ms),
            p95_ms: at(&self.waits, 0.95).min(self.longest_ms),
            longest_ms: self.longest_ms,
            told: number(self.told.len()),
            told_p50_s: at(&self.told, 0.5),
            told_p95_s: at(&self.told, 0.95),
            in_range: self.in_range,
        }
    }
}

#[cfg(test)]
mod tests {
    use events::ZoneNumber;

    use super::*;

    fn of(range: std::ops::RangeInclusive<u32>) -> MinuteWaits {
        let mut minute = OfMinute::new();
        for second in range {
            let (told_s, told_low_s) = (second, second.saturating_sub(1));
            let entered = Entered {
                zone: ZoneNumber::NONE,
                waited_ms: 1_000 * second,
                told_s,
                told_low_s,
                told_high_s: told_s,
                at_ms: 0,
            };
            minute.note(&entered);
        }
        minute.read()
    }

    #[test]
    fn waits_of_a_minute_are_read() {
        let read = of(0..=100);
        assert_eq!((read.people, read.told, read.in_range, read.longest_ms), (101, 100, 100, 100_000));
        assert_eq!(read.waited_ms, 5_050_000);
        let near = |read: u32, is: u32| read.abs_diff(is) <= is / 100 + 1;
        assert!(near(read.p50_ms, 50_000) && near(read.p95_ms, 95_000), "{read:?}");
        assert!(near(read.told_p50_s, 50) && near(read.told_p95_s, 95), "{read:?}");
        assert_eq!(OfMinute::new().read(), MinuteWaits::default());
    }

    #[test]
    fn waits_of_two_servers_are_never_higher_than_those_that_are_told() {
        let (one, two, both) = (of(1..=50), of(51..=100), of(1..=100));
        let sum = one.with(&two);
        assert_eq!(
            (sum.people, sum.waited_ms, sum.longest_ms),
            (both.people, both.waited_ms, both.longest_ms)
        );
        assert!(sum.p95_ms >= both.p95_ms && sum.told_p95_s >= both.told_p95_s, "{sum:?}");
        assert!(sum.p50_ms.abs_diff(both.p50_ms) < 1_500, "{sum:?}");
        assert_eq!(one.with(&MinuteWaits::default()), one);
    }
}
