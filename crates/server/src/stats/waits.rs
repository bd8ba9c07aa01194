//! How long people waited, and how near that was to what they were told.
//!
//! Histograms with two digits: a few kilobytes for a zone, however many enter. Invariant: what is told of them is within 1 %.

use hdrhistogram::Histogram;

/// Waits, in seconds; none of the percentiles where nobody entered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// How many entered.
    pub count: u64,
    /// Half of them waited so long at most.
    pub p50: Option<f64>,
    /// Nine of ten.
    pub p90: Option<f64>,
    /// 99 of 100.
    pub p99: Option<f64>,
}

/// Waits over the waits told; none of the percentiles where nobody was told one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio {
    /// How many entered who had been told a wait.
    pub count: u64,
    /// One of ten had at most so much of it.
    pub p10: Option<f64>,
    /// Half of them.
    pub p50: Option<f64>,
    /// Nine of ten.
    pub p90: Option<f64>,
}

/// The most that is told apart: a day, in milliseconds; and a ratio of 86,400.
const MOST: u64 = 86_400_000;

/// Digits that are kept.
const DIGITS: u8 = 2;

/// Those whom this server let in.
#[derive(Debug)]
pub(super) struct Here {
    since_ms: u64,
    /// In milliseconds.
    waits: Histogram<u32>,
    /// In thousandths.
    told: Histogram<u32>,
}

impl Here {
    /// Nobody yet.
    pub(super) fn new(since_ms: u64) -> Self {
        // They grow with what they are given.
        let empty = || {
            let mut histogram =
                Histogram::new_with_bounds(1, 2_048, DIGITS).expect("these bounds are in order");
            histogram.auto(true);
            histogram
        };
        Self { since_ms, waits: empty(), told: empty() }
    }

    /// Notes an entry after `waited_ms`, by somebody who was told `told_s`, or nothing (0).
    pub(super) fn note(&mut self, waited_ms: u32, told_s: u32) {
        let waited_ms = u64::from(waited_ms);
        let record = |histogram: &mut Histogram<u32>, value: u64| {
            histogram.record(value.min(MOST)).expect("it grows as far as the most there is");
        };
        record(&mut self.waits, waited_ms);
        if told_s > 0 {
            record(&mut self.told, waited_ms / u64::from(told_s));
        }
    }

    /// What there is to tell.
    pub(super) fn read(&self) -> super::Here {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near() {
        let mut here = Here::new(5);
        let none = here.read();
        assert_eq!((none.waits, none.told), (Waits::default(), Ratio::default()));
        for n in 1..=1_000_u32 {
            here.note(n * 600, if n % 2 == 0 { 300 } else { 0 });
        }
        here.note(u32::MAX, 1);
        let read = here.read();
        let near = |told: Option<f64>, is: f64| told.is_some_and(|told| (told / is - 1.0).abs() < 0.02);
        assert_eq!((read.since_ms, read.waits.count, read.told.count), (5, 1_001, 501));
        assert!(
            near(read.waits.p50, 300.0) && near(read.waits.p90, 540.0) && near(read.waits.p99, 594.0),
            "{read:?}"
        );
        assert!(near(read.told.p10, 0.2) && near(read.told.p50, 1.0) && near(read.told.p90, 1.8), "{read:?}");
    }
}
