//! The outlook of a line: how many slots the people ahead of each place will need.
//!
//! The line is cut into slices. The walk goes over them from the front. For each slice it asks when its slots come, how many of
//! its people will still be there then, and counts so many slots. The walk is done for the rates that are expected and for a slow
//! and a fast guess; their difference, and the chance in who leaves, give the range.
//!
//! Invariants: slots do not fall from one knot to the next; there are at most [`MOST_KNOTS`] knots, so that a poll's search
//! takes a few steps and no allocation.

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
mod tests;

use admission::{Estimate, MINUTE_MS, Mode, Policy};

use crate::{
    NINE_OF_TEN, Plan,
    calibration::{Factors, KINDS, RangeHalf, kind},
    number,
    patience::{Counts, Hazard, Patience, Rates},
};

/// The slices of a line, at most.
pub(crate) const MOST_SLICES: usize = 128;
/// Lines are at most so many people longer than a view knows.
const NEWCOMERS: usize = 22;
const MOST_KNOTS: usize = 1 + MOST_SLICES + NEWCOMERS;

/// The part of the wait by which it may be wrong, however many people are known: the share of the slots that is used changes, and
/// people are counted by classes of ages.
const WAIT_SPREAD: f64 = 0.015;
/// If a smaller share of the slots is used, slots are lost, because people who leave are noticed late. Delays alone, of 3 s, lose so
/// many.
const LEAST_IN_TIME: f64 = 0.95;

/// People who stand next to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Slice {
    /// The ticket behind them.
    pub(crate) end: u64,
    /// The people who count as present, as positions are counted.
    pub(crate) counted: f64,
    /// The people who were still there when they were of the age `seen_s`.
    pub(crate) here: f64,
    /// Until which age it is known who left, in seconds. It is shown only later that somebody left.
    pub(crate) seen_s: f64,
    /// How long they have waited, in seconds.
    pub(crate) age_s: f64,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Knot {
    /// The present people ahead.
    ahead: f64,
    /// The slots that they need.
    slots: f64,
    /// How much earlier and how much later than expected the slot may come, in milliseconds.
    early_ms: f64,
    late_ms: f64,
}

/// How many slots the people ahead of a place will need.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    knots: Vec<Knot>,
    /// Of each knot, how the early and the late end of the range are made.
    halves: Vec<[RangeHalf; 2]>,
    line: Line,
}

/// A line, and how it moves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// The people who wait, from the front on.
    pub(crate) slices: Vec<Slice>,
    /// The share of the slots that is used.
    pub(crate) slots_used: f64,
    pub(crate) rates: Rates,
    /// How much wider the ranges are, by kind of wait.
    pub(crate) factors: [Factors; KINDS],
    /// A holder of the front polls so often, in milliseconds.
    pub(crate) period_ms: f64,
}

/// The slots that a place needs, and the spread of its instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Need {
    /// The slots before the own one.
    pub(crate) slots: f64,
    pub(crate) early_ms: f64,
    pub(crate) late_ms: f64,
}

impl Outlook {
    /// The outlook before a line was seen: nobody is known to leave.
    #[must_use]
    pub fn unknown() -> Self {
        let zero = Knot { ahead: 0.0, slots: 0.0, early_ms: 0.0, late_ms: 0.0 };
        let knots = vec![zero, Knot { ahead: 1.0, slots: 1.0, ..zero }];
        let factors = [Factors { early: 1.0, late: 1.0 }; KINDS];
        let rates = Patience::default().rates(&Counts::default());
        let halves = vec![[RangeHalf::default(); 2]; 2];
        Self {
            knots,
            halves,
            line: Line { slices: Vec::new(), slots_used: 1.0, rates, factors, period_ms: 0.0 },
        }
    }

    /// The outlook if slots come by another plan.
    pub(crate) fn under(&self, plan: &Plan, now_ms: u64) -> Self {
        Self::new(self.line.clone(), plan, now_ms)
    }

    /// Walks over the line's slices, and over people who may come behind them.
    pub(crate) fn new(line: Line, plan: &Plan, now_ms: u64) -> Self {
        let last = line.slices.iter().map(|slice| slice.counted).sum::<f64>();
        let newcomers = (0..NEWCOMERS).map(|i| {
            let count = (last / 64.0).clamp(8.0, 4_096.0) * f64::from(1_u32 << i.min(20));
            Slice { end: u64::MAX, counted: count, here: count, seen_s: 0.0, age_s: 0.0 }
        });
        let slices: Vec<Slice> = line.slices.iter().copied().take(MOST_SLICES).chain(newcomers).collect();
        let schedule = SlotSchedule { plan, slots_used: line.slots_used, now_ms };
        let expected = walk(&slices, &schedule, &line.rates.expected);
        let most = walk(&slices, &schedule, &line.rates.slow);
        let least = walk(&slices, &schedule, &line.rates.fast);
        let mut ahead = 0.0;
        let mut knots = Vec::with_capacity(MOST_KNOTS);
        let wait = |slots: f64| schedule.wait_ms(slots);
        let (early_ms, late_ms) = schedule.spread_ms(0.0);
        knots.push(Knot { ahead, slots: 0.0, early_ms, late_ms });
        let of_first = |fixed_ms| RangeHalf { fixed_ms, scaled_ms: 0.0 };
        let mut halves = vec![[of_first(early_ms), of_first(late_ms)]];
        for (((slice, expected), most), least) in slices.iter().zip(&expected).zip(&most).zip(&least) {
            if slice.counted <= 0.0 {
                continue;
            }
            ahead += slice.counted;
            let chance = NINE_OF_TEN * expected.1.sqrt();
            let centre = wait(expected.0);
            // A place is told a whole slot.
            let (sooner_ms, later_ms) = schedule.spread_ms(expected.0.round());
            let side = |slots: f64, other: f64, of_stays: f64| {
                let (of_rates, of_chance) =
                    (wait(slots) - centre, wait((expected.0 + other).max(0.0)) - centre);
                // Who claims a slot comes some time after it is free.
                let other = of_chance.hypot(line.period_ms / 2.0).hypot(WAIT_SPREAD * centre);
                // While little is known, the guesses are extremes that often come true, as that nobody leaves. A claim may be a period
                // late then, too.
                if line.rates.known {
                    RangeHalf { fixed_ms: of_rates.hypot(of_stays), scaled_ms: other }
                } else {
                    RangeHalf { fixed_ms: of_stays, scaled_ms: of_rates.abs() + other + line.period_ms / 2.0 }
                }
            };
            let [early, late] = [side(least.0, -chance, sooner_ms), side(most.0, chance, later_ms)];
            halves.push([early, late]);
            let factors = line.factors[kind(centre / 1_000.0, line.rates.known)];
            knots.push(Knot {
                ahead,
                slots: expected.0,
                early_ms: early.ms(factors.early),
                late_ms: late.ms(factors.late),
            });
        }
        debug_assert!(knots.len() <= MOST_KNOTS && knots.len() == halves.len(), "{} knots", knots.len());
        debug_assert!(
            knots.is_sorted_by(|one, next| one.slots <= next.slots),
            "nobody behind needs fewer slots"
        );
        debug_assert!(
            knots.iter().all(|knot| knot.early_ms >= 0.0 && knot.late_ms >= 0.0),
            "ranges have two ends"
        );
        Self { knots, halves, line }
    }

    /// How the range of a place with so many present people ahead is made.
    pub(crate) fn halves(&self, ahead: f64) -> [RangeHalf; 2] {
        let after = self.knots.partition_point(|knot| knot.ahead < ahead).min(self.halves.len() - 1);
        self.halves[after]
    }

    /// The people who wait, from the front on.
    pub(crate) fn slices(&self) -> &[Slice] {
        &self.line.slices
    }

    /// The wait of a place with so many present people ahead, in seconds.
    pub(crate) fn wait_s(&self, ahead: f64, plan: &Plan, now_ms: u64) -> f64 {
        self.expected(ahead, plan, now_ms).0
    }

    /// The wait of a place in seconds, and how much earlier and later its slot may come, in milliseconds.
    pub(crate) fn expected(&self, ahead: f64, plan: &Plan, now_ms: u64) -> (f64, f64, f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let need = self.need(ahead as u64);
        let schedule = SlotSchedule { plan, slots_used: self.line.slots_used, now_ms };
        (schedule.wait_ms(need.slots) / 1_000.0, need.early_ms, need.late_ms)
    }

    /// The wait of a person with `present_ahead` present people ahead. `None` in the modes `hold` and `closed`.
    #[must_use]
    pub fn estimate(
        &self,
        present_ahead: u64,
        plan: &Plan,
        policy: &Policy,
        now_ms: u64,
    ) -> Option<Estimate> {
        match policy.mode {
            Mode::Hold | Mode::Closed => return None,
            Mode::Open => return Some(Estimate::NONE),
            Mode::Auto => {}
        }
        let need = self.need(present_ahead);
        let schedule = SlotSchedule { plan, slots_used: self.line.slots_used, now_ms };
        let wait = schedule.wait_ms(need.slots.round());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let (wait_ms, early_ms, late_ms) = (wait as u64, need.early_ms as u64, need.late_ms as u64);
        Some(Estimate { wait_ms, low_ms: wait_ms.saturating_sub(early_ms), high_ms: wait_ms + late_ms })
    }

    /// What a place with so many present people ahead needs.
    pub(crate) fn need(&self, present_ahead: u64) -> Need {
        #[expect(clippy::cast_precision_loss, reason = "lines are shorter than 2^52")]
        let ahead = present_ahead as f64;
        let after = self.knots.partition_point(|knot| knot.ahead <= ahead).clamp(1, self.knots.len() - 1);
        let (from, to) = (self.knots[after - 1], self.knots[after]);
        // Beyond the last knot the last two go on.
        let part = (ahead - from.ahead) / (to.ahead - from.ahead);
        let between = |from: f64, to: f64| (from + (to - from) * part).max(0.0);
        Need {
            slots: between(from.slots, to.slots),
            early_ms: between(from.early_ms, to.early_ms),
            late_ms: between(from.late_ms, to.late_ms),
        }
    }
}

/// When slots come, and which share of them is used.
struct SlotSchedule<'a> {
    plan: &'a Plan,
    slots_used: f64,
    now_ms: u64,
}

impl SlotSchedule<'_> {
    /// When somebody enters who has so many others ahead, in milliseconds from now. A slot is used some time after it becomes
    /// free, and is free again a minute after its use. So the delays of all minutes add up, and half a one on average is of the
    /// minute that has begun. Slots that are lost count as slots of others.
    fn wait_ms(&self, slots: f64) -> f64 {
        let in_time = self.slots_used.max(LEAST_IN_TIME);
        let wait_ms = number(self.plan.slot_ms(self.with_lost(slots)).saturating_sub(self.now_ms));
        wait_ms + (wait_ms + number(MINUTE_MS) / 2.0) * (1.0 / in_time - 1.0)
    }

    /// How much earlier and later than [`SlotSchedule::wait_ms`] somebody may enter because of the people inside, in milliseconds.
    fn spread_ms(&self, slots: f64) -> (f64, f64) {
        let (early_ms, late_ms) = self.plan.spread_ms(self.with_lost(slots));
        (number(early_ms), number(late_ms))
    }

    /// So many slots, and those that are lost meanwhile.
    fn with_lost(&self, slots: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let all = (slots * self.slots_used.max(LEAST_IN_TIME) / self.slots_used) as u64;
        all
    }
}

/// The slots needed after each slice, and the variance of the number of people.
fn walk(slices: &[Slice], schedule: &SlotSchedule<'_>, hazard: &Hazard) -> Vec<(f64, f64)> {
    let (mut slots, mut variance) = (0.0, 0.0);
    let step = |slice: &Slice| {
        if slice.here <= 0.0 {
            return (slots, variance);
        }
        let (mut stay, mut lost) = (1.0, 0.0);
        for _ in 0..3 {
            let wait_s = schedule.wait_ms(slots + slice.here * stay / 2.0) / 1_000.0;
            stay = (-hazard.between(slice.seen_s, slice.age_s + wait_s, slice.age_s + wait_s)).exp();
            lost = hazard.lost(slice.age_s + wait_s);
        }
        slots += slice.here * stay / (1.0 - lost);
        variance += slice.here * stay * (1.0 - stay);
        (slots, variance)
    };
    slices.iter().map(step).collect()
}
