//! When the tickets of a line were issued.
//!
//! Invariant: at most [`MOST_TIMES`] instants are kept, however long the line and its life are. Recent ones are exact.

use crate::number;

/// The instants that are kept, at most.
const MOST_TIMES: usize = 256;

/// When tickets were issued: pairs of a ticket and an instant; tickets between two pairs came evenly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    known: Vec<(u64, u64)>,
}

impl Arrivals {
    /// Notes that the line spans `base` to `next` at `now_ms`.
    pub(crate) fn note(&mut self, base: u64, next: u64, now_ms: u64) {
        let count = self.known.len();
        // While nobody comes, only the end of the pause is kept.
        if count >= 2 && self.known[count - 1].0 == next && self.known[count - 2].0 == next {
            self.known[count - 1].1 = now_ms;
        } else {
            self.known.push((next, now_ms));
        }
        if self.known.len() > MOST_TIMES {
            let passed = self.known.partition_point(|&(seq, _)| seq <= base).saturating_sub(1);
            self.known.drain(..passed);
        }
        if self.known.len() > MOST_TIMES {
            // The older an arrival is, the less its exact instant matters.
            let (mut i, old) = (0, MOST_TIMES * 3 / 4);
            self.known.retain(|_| {
                i += 1;
                i % 2 == 1 || i > old
            });
        }
    }

    /// When `seq` was issued, in milliseconds on the store's clock.
    pub(crate) fn of(&self, seq: u64) -> f64 {
        let after = self.known.partition_point(|&(known, _)| known <= seq);
        let at = |i: usize| (number(self.known[i].0), number(self.known[i].1));
        match after {
            0 => self.known.first().map_or(0.0, |&(_, at_ms)| number(at_ms)),
            _ if after == self.known.len() => at(after - 1).1,
            _ => {
                let (from, to) = (at(after - 1), at(after));
                from.1 + (to.1 - from.1) * (number(seq) - from.0) / (to.0 - from.0)
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_known_within_a_second_and_old_ones_nearly() {
        let mut arrivals = Arrivals::default();
        for second in 0..3_000_u64 {
            arrivals.note(0, second * 10, second * 1_000);
            assert!(arrivals.known.len() <= MOST_TIMES);
        }
        for (second, within_ms) in [(2_995.0, 1.0), (2_500.0, 60_000.0), (100.0, 120_000.0)] {
            let off_ms = arrivals.of((second * 10.0) as u64) - second * 1_000.0;
            assert!(off_ms.abs() <= within_ms, "second {second}: {off_ms} ms");
        }
    }

    #[test]
    fn who_comes_after_a_pause_is_not_taken_for_old() {
        let mut arrivals = Arrivals::default();
        for (next, at_ms) in [(0, 1_000), (10, 2_000), (10, 3_000), (10, 60_000), (20, 61_000)] {
            arrivals.note(0, next, at_ms);
        }
        assert!((60_000.0..=61_000.0).contains(&arrivals.of(12)));
        assert!((1_000.0..=2_000.0).contains(&arrivals.of(3)));
    }
}
