//! The longest polling period that people may keep to, where that is not the policy's.
//!
//! Servers tell longer periods while they are busy, and an operator may shorten the period. Whoever was told a long one comes back
//! after it, so the line has to know. Invariant: for as long as somebody may keep to a period that was noted,
//! [`LongestPeriod::period_ms`] is at least that period.

use crate::policy::warning_ms;

/// The longest period that was told, and until when people may keep to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongestPeriod {
    period_ms: u32,
    until_ms: u64,
    /// The longest of the shorter periods that were noted since `period_ms` was noted last.
    next_ms: u32,
}

impl LongestPeriod {
    /// A state that another implementation of this rule has: for tests that compare the two.
    #[must_use]
    pub fn from_parts(period_ms: u32, until_ms: u64, next_ms: u32) -> Self {
        Self { period_ms, until_ms, next_ms }
    }

    /// The longest period that people may keep to, in milliseconds; 0 if it is the policy's.
    #[must_use]
    pub fn period_ms(&self) -> u32 {
        self.period_ms
    }

    /// People are told this period until now.
    pub fn note(&mut self, period_ms: u32, now_ms: u64) {
        if period_ms >= self.period_ms {
            let until_ms = now_ms + warning_ms(period_ms);
            *self = Self { period_ms, until_ms, next_ms: 0 };
        } else {
            self.next_ms = self.next_ms.max(period_ms);
        }
    }

    /// Lets time pass. When everybody has heard a shorter period, that one counts.
    pub fn advance(&mut self, now_ms: u64) {
        if self.period_ms > 0 && self.until_ms <= now_ms {
            let period_ms = self.next_ms;
            let until_ms = if period_ms > 0 { now_ms + warning_ms(period_ms) } else { 0 };
            *self = Self { period_ms, until_ms, next_ms: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_counts_until_everybody_has_heard_a_shorter_one() {
        let mut longest = LongestPeriod::default();
        let mut at = |now_ms, noted: Option<u32>| {
            longest.advance(now_ms);
            if let Some(period_ms) = noted {
                longest.note(period_ms, now_ms);
            }
            longest.period_ms()
        };
        assert_eq!(at(0, None), 0);
        assert_eq!(at(1_000, Some(20_000)), 20_000);
        assert_eq!(at(2_000, Some(20_000)), 20_000);
        assert_eq!(at(3_000, Some(10_000)), 20_000);
        assert_eq!(at(44_000, Some(6_000)), 20_000, "somebody lost a poll and comes back now");
        assert_eq!(at(45_500, None), 10_000, "as somebody may keep to who heard it 42.5 s ago");
        assert_eq!(at(68_999, None), 10_000);
        assert_eq!(at(69_000, None), 0);
    }

    #[test]
    fn nobody_keeps_to_a_longer_period_than_the_one_that_counts() {
        // Each second another period is told, by a rule that has no meaning.
        let (mut longest, mut back) = (LongestPeriod::default(), Vec::new());
        for second in 0..600_u64 {
            let now_ms = second * 1_000;
            longest.advance(now_ms);
            let period_ms = 4_000 + u32::try_from(second * second * 7_919 % 16_000).expect("small");
            longest.note(period_ms, now_ms);
            back.push((now_ms + warning_ms(period_ms), period_ms));
            let kept_to =
                back.iter().filter(|(until_ms, _)| *until_ms > now_ms).map(|(_, period_ms)| *period_ms);
            assert!(Some(longest.period_ms()) >= kept_to.max(), "second {second}");
        }
    }
}
