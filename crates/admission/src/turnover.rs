//! How people inside make room for others: how many there are, and how fast they leave.
//!
//! Invariant: what is measured decides about nobody. It only tells when those who wait may expect to enter.

use crate::{Policy, number};

/// What was seen so long ago, in seconds, counts 1/e. Longer where visits last long.
const MEMORY_S: f64 = 180.0;

/// The people inside a zone that limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// How many are inside and known.
    pub inside: u64,
    /// How many may be inside: also those who have not shown themselves since the state was lost.
    pub most: u64,
    /// Visits that have ended since they are counted.
    pub ended: u64,
    /// How many the policy allows.
    pub max_active: u32,
}

/// Measures how fast visits end, with sums that decay.
#[derive(Clone, Debug)]
pub(crate) struct StayMeter {
    ended: f64,
    /// The time that all visitors together were inside, in seconds.
    stayed_s: f64,
    last: Option<(u64, Occupancy)>,
}

impl StayMeter {
    /// Knows nothing yet.
    pub(crate) const fn new() -> Self {
        Self { ended: 0.0, stayed_s: 0.0, last: None }
    }

    /// Takes in the people inside at `now_ms`. Returns how many more could enter since the last time, as far as they are
    /// limited by who is inside.
    pub(crate) fn observe(&mut self, occupancy: Option<Occupancy>, policy: &Policy, now_ms: u64) -> u64 {
        let Some(now) = occupancy else {
            *self = Self::new();
            return u64::MAX;
        };
        let Some((then_ms, then)) = self.last.replace((now_ms, now)) else { return 0 };
        let past_s = number(now_ms.saturating_sub(then_ms)) / 1_000.0;
        // Idle visits end a generation at a time, so the memory is longer than some generations.
        let decay = (-past_s / (f64::from(policy.visit_idle_s) / 2.0).max(MEMORY_S)).exp();
        let ended = now.ended.saturating_sub(then.ended);
        self.ended = self.ended * decay + number(ended);
        self.stayed_s = self.stayed_s * decay + number(then.inside) * past_s;
        u64::from(policy.max_active).saturating_sub(then.most) + ended
    }

    /// How it goes on with these people at `at_ms`. Before much is known, a visit is expected to last for the idle time.
    pub(crate) fn turnover(&self, occupancy: Occupancy, policy: &Policy, at_ms: u64) -> Turnover {
        let idle_s = f64::from(policy.visit_idle_s);
        let weight = f64::from(policy.max_active) * 30.0 / idle_s;
        let hazard = (self.ended + weight) / (self.stayed_s + weight * idle_s).max(1.0);
        Turnover { most: occupancy.most, at_ms, hazard, max_active: occupancy.max_active }
    }
}

/// How people inside make room for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turnover {
    /// How many may be inside at `at_ms`.
    most: u64,
    at_ms: u64,
    /// The chance that a visit ends within a second.
    hazard: f64,
    max_active: u32,
}

impl Turnover {
    /// The same people under another policy; nothing if that does not limit them.
    pub(crate) fn under(self, policy: &Policy) -> Option<Self> {
        (policy.max_active > 0).then_some(Self { max_active: policy.max_active, ..self })
    }

    /// How many more may enter.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.max_active).saturating_sub(self.most)
    }

    /// The instant at which so many others have entered and one more may.
    pub(crate) fn slot_ms(&self, before: u64) -> u64 {
        let Some(leavers) = (before + 1).checked_sub(self.room()).filter(|&leavers| leavers > 0) else {
            return 0;
        };
        let per_s = (self.hazard * f64::from(self.max_active)).max(1e-6);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let wait_ms = (number(leavers) / per_s * 1_000.0) as u64;
        self.at_ms + wait_ms.min(1 << 40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy { max_active: 600, visit_idle_s: 600, ..Policy::default() }
    }

    /// The turnover after an hour in which `per_minute` visits ended in each minute.
    fn after(per_minute: u64) -> Turnover {
        let mut meter = StayMeter::new();
        let people = |ended| Occupancy { inside: 600, most: 600, max_active: 600, ended };
        for second in 0..3_600 {
            meter.observe(Some(people(second * per_minute / 60)), &policy(), second * 1_000);
        }
        meter.turnover(people(0), &policy(), 3_599_000)
    }

    #[test]
    fn the_next_to_enter_waits_until_people_have_left() {
        let turnover = after(120);
        for (before, expected_s) in [(0, 0.5), (119, 60.0), (1_199, 600.0)] {
            let wait_s = number(turnover.slot_ms(before) - 3_599_000) / 1_000.0;
            assert!(
                (wait_s / expected_s - 1.0).abs() < 0.06,
                "{before} before: {wait_s} s for {expected_s} s"
            );
        }
        let more = turnover.under(&Policy { max_active: 650, ..policy() }).expect("limited");
        assert_eq!((more.room(), more.slot_ms(49)), (50, 0), "50 may enter now");
        assert!(turnover.under(&Policy::default()).is_none());
    }

    #[test]
    fn before_anybody_left_a_visit_is_expected_to_last_for_the_idle_time() {
        let mut meter = StayMeter::new();
        let full = Occupancy { inside: 600, most: 600, ended: 0, max_active: 600 };
        assert_eq!(meter.observe(Some(full), &policy(), 1_000), 0);
        let wait_ms = meter.turnover(full, &policy(), 1_000).slot_ms(59) - 1_000;
        assert!(
            (59_000..61_000).contains(&wait_ms),
            "60 of 600 leave in a tenth of the idle time: {wait_ms} ms"
        );
    }

    #[test]
    fn entries_are_limited_by_room_and_by_those_who_leave() {
        let mut meter = StayMeter::new();
        let people = |inside, ended| Some(Occupancy { inside, most: inside, ended, max_active: 600 });
        assert_eq!(meter.observe(people(500, 7), &policy(), 0), 0, "nothing is known before");
        assert_eq!(meter.observe(people(600, 10), &policy(), 1_000), 103);
        assert_eq!(meter.observe(None, &Policy::default(), 2_000), u64::MAX, "no limit");
    }
}
