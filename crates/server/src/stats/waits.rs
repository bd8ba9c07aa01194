//! How long people waited, and how that compares to what they were told.
//!
//! Histograms with two digits need a few kilobytes per zone for any number of entries. Invariant: percentiles are exact to
//! 1 %.

use hdrhistogram::Histogram;

use crate::told_waits::ToldWaits;

/// Waits, in seconds. The percentiles are `None` if nobody entered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// The number of people who entered.
    pub count: u64,
    /// Half of them waited at most this long.
    pub p50: Option<f64>,
    /// 90 % of them waited at most this long.
    pub p90: Option<f64>,
    /// 99 % of them waited at most this long.
    pub p99: Option<f64>,
}

/// Waits divided by the waits told. The percentiles are `None` if nobody was told a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio {
    /// The number of people who entered and had been told a wait.
    pub count: u64,
    /// 10 % of them had at most this ratio.
    pub p10: Option<f64>,
    /// 50 % of them had at most this ratio.
    pub p50: Option<f64>,
    /// 90 % of them had at most this ratio.
    pub p90: Option<f64>,
}

/// The largest value: a wait of a day, in milliseconds; or a ratio of 86,400, in thousandths.
pub(super) const MOST: u64 = 86_400_000;

/// The significant digits of a value.
pub(super) const DIGITS: u8 = 2;

/// The people that this server admitted.
#[derive(Debug)]
pub(super) struct HereMeter {
    since_ms: u64,
    /// Waits, in milliseconds.
    waits: Histogram<u32>,
    /// Ratios, in thousandths.
    told: Histogram<u32>,
}

impl HereMeter {
    /// Nobody was admitted yet.
    pub(super) fn new(since_ms: u64) -> Self {
        // The histograms grow with their values.
        let empty = || {
            let mut histogram =
                Histogram::new_with_bounds(1, 2_048, DIGITS).expect("these bounds are in order");
            histogram.auto(true);
            histogram
        };
        Self { since_ms, waits: empty(), told: empty() }
    }

    /// Records an entry after `waited_ms`. `told_s` is the wait told first, or 0.
    pub(super) fn note(&mut self, waited_ms: u32, told_s: u32) {
        let waited_ms = u64::from(waited_ms);
        let record = |histogram: &mut Histogram<u32>, value: u64| {
            histogram.record(value.min(MOST)).expect("the histogram grows up to the largest value");
        };
        record(&mut self.waits, waited_ms);
        if told_s > 0 {
            record(&mut self.told, waited_ms / u64::from(told_s));
        }
    }

    /// The percentiles at this moment.
    pub(super) fn read(&self, last_hour: ToldWaits) -> super::Here {
        let at = |histogram: &Histogram<u32>, quantile| {
            #[expect(clippy::cast_precision_loss, reason = "at most a day in milliseconds")]
            let value = histogram.value_at_quantile(quantile) as f64 / 1_000.0;
            (!histogram.is_empty()).then_some(value)
        };
        let (waits, told) = (&self.waits, &self.told);
        super::Here {
            since_ms: self.since_ms,
            waits: Waits {
                count: waits.len(),
                p50: at(waits, 0.5),
                p90: at(waits, 0.9),
                p99: at(waits, 0.99),
            },
            told: Ratio { count: told.len(), p10: at(told, 0.1), p50: at(told, 0.5), p90: at(told, 0.9) },
            last_hour,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close_to_the_true_values() {
        let mut here = HereMeter::new(5);
        let none = here.read(ToldWaits::default());
        assert_eq!((none.waits, none.told), (Waits::default(), Ratio::default()));
        for n in 1..=1_000_u32 {
            here.note(n * 600, if n % 2 == 0 { 300 } else { 0 });
        }
        here.note(u32::MAX, 1);
        let read = here.read(ToldWaits::default());
        let near = |read: Option<f64>, is: f64| read.is_some_and(|read| (read / is - 1.0).abs() < 0.02);
        assert_eq!((read.since_ms, read.waits.count, read.told.count), (5, 1_001, 501));
        assert!(
            near(read.waits.p50, 300.0) && near(read.waits.p90, 540.0) && near(read.waits.p99, 594.0),
            "{read:?}"
        );
        assert!(near(read.told.p10, 0.2) && near(read.told.p50, 1.0) && near(read.told.p90, 1.8), "{read:?}");
    }
}
