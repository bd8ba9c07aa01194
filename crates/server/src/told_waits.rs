//! The waits and ranges that people were told first, compared with the waits that they had.
//!
//! The token of a holder carries both (`admission::FirstTold`), so each entry is compared with what this very person was told.
//! People who entered at once were told nothing. Invariant: sums only grow.

use events::Entered;

/// Sums over people who entered and had been told a wait with its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldWaits {
    /// The number of people.
    pub people: u64,
    /// How many of them waited within the range.
    pub in_range: u64,
    /// Their waits.
    pub waited_ms: u64,
    /// By how much they waited longer than told.
    pub too_short_ms: u64,
    /// By how much they waited shorter than told.
    pub too_long_ms: u64,
    /// The widths of the ranges.
    pub range_ms: u64,
}

impl ToldWaits {
    /// Adds an entry.
    pub fn add(&mut self, entered: &Entered) {
        *self = self.with(&Self::of(entered));
    }

    /// The sums over one entry. They are 0 if this person was told nothing.
    #[must_use]
    pub fn of(entered: &Entered) -> Self {
        let Entered { waited_ms, told_s, told_low_s, told_high_s, .. } = *entered;
        if told_high_s == 0 {
            return Self::default();
        }
        let [waited_ms, told_ms] = [u64::from(waited_ms), 1_000 * u64::from(told_s)];
        // The ends of a range are whole seconds, so a part of a second does not count.
        let is_in =
            u64::from(told_low_s) <= waited_ms.div_ceil(1_000) && waited_ms / 1_000 <= u64::from(told_high_s);
        Self {
            people: 1,
            in_range: u64::from(is_in),
            waited_ms,
            too_short_ms: waited_ms.saturating_sub(told_ms),
            too_long_ms: told_ms.saturating_sub(waited_ms),
            range_ms: 1_000 * u64::from(told_high_s.saturating_sub(told_low_s)),
        }
    }

    /// The sums over these people and over others.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            people: self.people + other.people,
            in_range: self.in_range + other.in_range,
            waited_ms: self.waited_ms + other.waited_ms,
            too_short_ms: self.too_short_ms + other.too_short_ms,
            too_long_ms: self.too_long_ms + other.too_long_ms,
            range_ms: self.range_ms + other.range_ms,
        }
    }

    /// The figures, if there is anybody.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "sums below 2^52")]
    pub fn figures(&self) -> Option<ToldFigures> {
        let people = (self.people > 0).then_some(self.people as f64)?;
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        let (too_short_s, too_long_s) = (seconds(self.too_short_ms), seconds(self.too_long_ms));
        let waited_s = seconds(self.waited_ms);
        Some(ToldFigures {
            bias_s: (too_short_s - too_long_s) / people,
            error_s: (too_short_s + too_long_s) / people,
            error_share: (waited_s > 0.0).then(|| (too_short_s + too_long_s) / waited_s),
            in_range: self.in_range as f64 / people,
            range_s: seconds(self.range_ms) / people,
        })
    }
}

/// How right the told waits were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToldFigures {
    /// The mean of the waits less the told waits, in seconds: above 0 if people were told too short waits.
    pub bias_s: f64,
    /// The mean absolute error, in seconds.
    pub error_s: f64,
    /// The mean absolute error as a share of the mean wait. `None` if nobody waited.
    pub error_share: Option<f64>,
    /// The share of the waits within their ranges.
    pub in_range: f64,
    /// The mean width of the ranges, in seconds.
    pub range_s: f64,
}

#[cfg(test)]
mod tests {
    use events::ZoneNumber;

    use super::*;

    fn entered(waited_ms: u32, [told_s, told_low_s, told_high_s]: [u32; 3]) -> Entered {
        Entered { zone: ZoneNumber::NONE, waited_ms, told_s, told_low_s, told_high_s, at_ms: 0 }
    }

    #[test]
    fn the_figures_are_those_of_the_people() {
        let mut waits = ToldWaits::default();
        assert_eq!(waits.figures(), None);
        waits.add(&entered(0, [0, 0, 0]));
        waits.add(&entered(90_000, [80, 0, 0]));
        assert_eq!(waits.people, 0, "who entered at once, and who was told no range");
        waits.add(&entered(110_000, [100, 90, 130]));
        waits.add(&entered(170_000, [200, 180, 230]));
        waits.add(&entered(130_900, [100, 90, 130]));
        waits.add(&entered(89_100, [100, 90, 130]));
        let figures = waits.figures().expect("four people");
        assert_eq!((waits.people, waits.in_range), (4, 3), "parts of a second do not count");
        let near = |found: f64, is: f64| assert!((found - is).abs() < 1e-9, "{found} is {is}: {figures:?}");
        near(figures.bias_s, (10.0 - 30.0 + 30.9 - 10.9) / 4.0);
        near(figures.error_s, (10.0 + 30.0 + 30.9 + 10.9) / 4.0);
        near(figures.error_share.expect("they waited"), 81.8 / 500.0);
        near(figures.in_range, 0.75);
        near(figures.range_s, (40.0 + 50.0 + 40.0 + 40.0) / 4.0);
    }
}
