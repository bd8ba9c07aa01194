//! Compares what was told with what happened, and widens or narrows the ranges accordingly.
//!
//! Some places of the line are noted with the instant that was expected and the range around it. When the entries reach such a
//! place, the range was right or wrong. A range that is wrong makes later ones wider, one that is right makes them a little
//! narrower, so that nine of ten are right: online conformal prediction by quantile tracking (Gibbs and Candès, 2021; Angelopoulos,
//! Candès and Tibshirani, 2023). Long and short waits, and lines of which little and much is known, are judged apart.
//!
//! The places of a line are not independent: if one is told rightly, those behind it are, too. So a line that goes well says little
//! about the next one, and ranges of lines of which much is known do not become narrower than the outlook says.
//!
//! Invariants: at most [`MOST_NOTES`] places are noted; factors stay between [`LEAST`] and [`MOST`], and those of lines of which much
//! is known do not fall below [`LEAST_OF_KNOWN`].

use std::collections::VecDeque;

/// The places that are noted, at most.
const MOST_NOTES: usize = 1_024;
/// The bounds of a factor.
pub(crate) const LEAST: f64 = 0.2;
pub(crate) const MOST: f64 = 20.0;
/// The least factor of lines of which much is known. With 0.9, the outlook's ranges cover nine of ten waits on average, but single tenths of
/// a line less.
const LEAST_OF_KNOWN: f64 = 1.1;
/// The factors before anything was compared, of lines of which much is known. The ranges of the others are wide already.
const OF_KNOWN: f64 = 2.0;
/// The share of the waits that may be shorter, and that may be longer than the range.
const OUTSIDE: f64 = 0.05;
/// How much one comparison counts.
const STEP: f64 = 0.03;
/// The kinds of waits that are judged apart.
pub(crate) const KINDS: usize = 8;

/// How far an end of the range is from the expected wait, in milliseconds. The difference of the guesses at the rates is `fixed_ms`, where
/// much is known. The rest is scaled by a factor that is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RangeHalf {
    pub(crate) fixed_ms: f64,
    pub(crate) scaled_ms: f64,
}

impl RangeHalf {
    pub(crate) fn ms(self, factor: f64) -> f64 {
        // A guess that is an extreme may come true, as that nobody leaves any more. The rest comes on top of it then.
        self.fixed_ms.hypot(factor * self.scaled_ms).max(self.fixed_ms + factor.min(0.5) * self.scaled_ms)
    }
}

/// The factors by which the ranges of one kind are wider than the outlook says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factors {
    pub(crate) early: f64,
    pub(crate) late: f64,
}

/// The kind of a wait of `wait_s` seconds. `known` says that the line has shown how patient its people are.
pub(crate) fn kind(wait_s: f64, known: bool) -> usize {
    let length = [120.0, 300.0, 900.0].iter().filter(|&&bound| wait_s >= bound).count();
    length + if known { KINDS / 2 } else { 0 }
}

/// The least factor of a kind.
fn least(kind: usize) -> f64 {
    if kind >= KINDS / 2 { LEAST_OF_KNOWN } else { LEAST }
}

/// A place, and what was expected for it.
#[derive(Clone, Copy, Debug)]
struct Note {
    seq: u64,
    kind: usize,
    expected_ms: f64,
    /// How much earlier and later it was expected to be possible.
    halves: [RangeHalf; 2],
}

/// The factors before anything was compared.
pub(crate) const AT_FIRST: [Factors; KINDS] = {
    let [of_others, of_known] =
        [Factors { early: 1.0, late: 1.0 }, Factors { early: OF_KNOWN, late: OF_KNOWN }];
    [of_others, of_others, of_others, of_others, of_known, of_known, of_known, of_known]
};

/// What was learnt by comparing.
#[derive(Clone, Debug)]
pub(crate) struct Calibration {
    factors: [Factors; KINDS],
    notes: VecDeque<Note>,
    /// Up to which ticket people had entered, and when.
    reached: Option<(f64, f64)>,
}

impl Calibration {
    pub(crate) fn new() -> Self {
        Self { factors: AT_FIRST, notes: VecDeque::new(), reached: None }
    }

    pub(crate) fn factors(&self) -> &[Factors; KINDS] {
        &self.factors
    }

    /// Goes on from the factors of earlier lines.
    pub(crate) fn set_factors(&mut self, factors: [Factors; KINDS]) {
        self.factors = factors;
        for (kind, Factors { early, late }) in self.factors.iter_mut().enumerate() {
            // Earlier versions let them fall further.
            (*early, *late) = (early.max(least(kind)), late.max(least(kind)));
        }
    }

    /// Nothing that was expected so far can be compared any more: the policy is another one, or the line.
    pub(crate) fn forget(&mut self) {
        self.notes.clear();
        self.reached = None;
    }

    /// Notes what is expected for a place. The instant is on the store's clock.
    pub(crate) fn note(&mut self, seq: u64, kind: usize, expected_ms: f64, halves: [RangeHalf; 2]) {
        if self.notes.len() >= MOST_NOTES {
            let mut i = 0;
            self.notes.retain(|_| {
                i += 1;
                i % 2 == 0
            });
        }
        self.notes.push_back(Note { seq, kind, expected_ms, halves });
    }

    /// People up to `seq` had entered by `now_ms`.
    pub(crate) fn reach(&mut self, seq: f64, now_ms: f64) {
        let (seq_then, then_ms) = self.reached.unwrap_or((seq, now_ms));
        if seq <= seq_then {
            self.reached = Some((seq_then, now_ms));
            return;
        }
        self.reached = Some((seq, now_ms));
        let factors = &mut self.factors;
        self.notes.retain(|note| {
            #[expect(clippy::cast_precision_loss, reason = "below 2^48")]
            let of = note.seq as f64;
            if of > seq {
                return true;
            }
            let part = ((of - seq_then) / (seq - seq_then)).clamp(0.0, 1.0);
            let late_ms = then_ms + (now_ms - then_ms) * part - note.expected_ms;
            let Factors { early, late } = &mut factors[note.kind];
            let learn = |factor: &mut f64, outside: bool| {
                let miss = f64::from(u8::from(outside)) - OUTSIDE;
                *factor = (*factor * (STEP * miss / OUTSIDE.sqrt()).exp()).clamp(least(note.kind), MOST);
            };
            let [early_side, late_side] = note.halves;
            learn(early, -late_ms > early_side.ms(*early));
            learn(late, late_ms > late_side.ms(*late));
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that are spread evenly over -60 to 60 s, whatever range the outlook gives: one in twenty may be on each side.
    /// While little is known, ranges may become narrower, too.
    #[test]
    fn nine_of_ten_are_right_in_the_long_run() {
        for (width_ms, known) in [(5_000.0, true), (5_000.0, false), (200_000.0, false)] {
            let mut calibration = Calibration::new();
            let kind = kind(600.0, known);
            let (mut right, mut width, mut seed) = (0.0, 0.0, 7_u64);
            for i in 0..6_000_u32 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let error_ms = 120_000.0 * f64::from((seed >> 40) as u32) / f64::from(1_u32 << 24) - 60_000.0;
                let at_ms = 1e6 * f64::from(i + 1);
                let Factors { early, late } = calibration.factors()[kind];
                if i >= 3_000 {
                    right +=
                        f64::from(u8::from(-early * width_ms <= error_ms && error_ms <= late * width_ms));
                    width += (early + late) * width_ms;
                }
                calibration.reach(f64::from(2 * i), at_ms - 1.0);
                calibration.note(
                    u64::from(2 * i + 1),
                    kind,
                    at_ms - error_ms,
                    [RangeHalf { fixed_ms: 0.0, scaled_ms: width_ms }; 2],
                );
                calibration.reach(f64::from(2 * i + 1), at_ms);
            }
            let (right, width_s) = (right / 30.0, width / 3e6);
            assert!((88.0..92.0).contains(&right), "{right:.1} % are right");
            assert!((100.0..118.0).contains(&width_s), "108 s would be enough: {width_s:.0} s");
        }
    }

    /// The servers of a store that was written by an earlier version start so.
    #[test]
    fn ranges_of_well_known_lines_stay_wide_enough() {
        let mut calibration = Calibration::new();
        calibration.set_factors([Factors { early: LEAST, late: LEAST }; KINDS]);
        assert!(calibration.factors()[0].early <= LEAST);
        let kind = kind(600.0, true);
        for i in 0..10_000_u32 {
            let Factors { early, late } = calibration.factors()[kind];
            assert!(early >= LEAST_OF_KNOWN && late >= LEAST_OF_KNOWN, "{early}, {late}");
            calibration.note(u64::from(i), kind, 1e6, [RangeHalf { fixed_ms: 0.0, scaled_ms: 1_000.0 }; 2]);
            calibration.reach(f64::from(i), 1e6);
        }
    }

    #[test]
    fn notes_are_bounded() {
        let mut calibration = Calibration::new();
        for seq in 0..10_000 {
            calibration.note(seq, 0, 1.0, [RangeHalf { fixed_ms: 0.0, scaled_ms: 1.0 }; 2]);
            assert!(calibration.notes.len() <= MOST_NOTES);
        }
    }
}
