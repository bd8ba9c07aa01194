//! Estimates waits.
//!
//! A person with `k` present people ahead needs a slot for everyone ahead who does not give up first, and then one more.
//! Three quantities are known: when slots become free (the window's own log, [`Plan`]), which share of them is used, and
//! which share of the people who wait gives up per second ([`Pace`]).
//!
//! Let `mu` be the slots used per second and `lambda` the rate at which each person gives up. The people ahead then shrink
//! by `dk/dt = -mu - lambda k`. The front is reached after `ln(1 + lambda k / mu) / lambda` seconds, and
//! `mu ln(1 + lambda k / mu) / lambda` people enter meanwhile. That is the number of slots needed; the plan says when that
//! slot becomes free. `lambda` is not known when a line forms. Until it is, the estimate assumes the usual share.
//!
//! Invariant: an estimate exists in the modes `auto` and `open` only, and `low_ms <= wait_ms <= high_ms`.

use crate::{Policy, Window, window::MINUTE_MS};

/// The expected wait from now, with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The expected wait, in milliseconds.
    pub wait_ms: u64,
    /// Nine of ten people wait at least about this long, in milliseconds.
    pub low_ms: u64,
    /// Nine of ten people wait at most about this long, in milliseconds.
    pub high_ms: u64,
}

impl Estimate {
    /// No wait at all.
    pub(crate) const NONE: Self = Self { wait_ms: 0, low_ms: 0, high_ms: 0 };
}

/// How a line moves, measured over the last minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The share of the offered slots that is used. 0.5 to 1.
    pub slots_used: f64,
    /// The share of the people who wait that gives up per second. 0 to 0.1.
    pub leaving_per_s: f64,
    /// How reliable `leaving_per_s` is: 0 when a line has just formed, close to 1 after some minutes.
    pub known: f64,
}

/// Measures the pace with sums that decay: an event of a minute ago counts 1/e.
#[derive(Clone, Debug)]
pub(crate) struct PaceMeter {
    used: f64,
    offered: f64,
    left: f64,
    waited_s: f64,
    /// How long the line has existed, in seconds.
    line_s: f64,
}

impl PaceMeter {
    const MEMORY_S: f64 = 60.0;
    /// The age of a line at which `known` is one half. People who left are seen as absent only after some polling periods.
    const HALF_KNOWN_S: f64 = 30.0;

    /// Starts from the usual behaviour of a line, with the weight of 120 slots.
    pub(crate) fn new() -> Self {
        Self { used: 118.0, offered: 120.0, left: 0.0, waited_s: 100.0, line_s: 0.0 }
    }

    /// Adds `past_s` seconds in which `present` people waited, `left` people gave up, and `used` of `offered` slots were
    /// used.
    pub(crate) fn observe(&mut self, past_s: f64, present: f64, left: f64, used: f64, offered: f64) {
        let decay = (-past_s / Self::MEMORY_S).exp();
        // Without offered slots there is nothing to learn and nothing to forget.
        if offered > 0.0 {
            self.used = self.used * decay + used;
            self.offered = self.offered * decay + offered;
        }
        if present > 0.0 {
            self.left = self.left * decay + left;
            self.waited_s = self.waited_s * decay + present * past_s;
            self.line_s += past_s;
        } else {
            self.line_s = 0.0;
        }
    }

    pub(crate) fn pace(&self) -> Pace {
        Pace {
            slots_used: ((self.used + 20.0) / (self.offered + 20.0)).clamp(0.5, 1.0),
            leaving_per_s: (self.left / self.waited_s.max(1.0)).clamp(0.0, 0.1),
            known: self.line_s / (self.line_s + Self::HALF_KNOWN_S),
        }
    }
}

/// When slots become free.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Each step is an instant and the number of slots free by then. The last step covers a whole minute's slots.
    steps: Vec<(u64, u64)>,
    /// The slots used in the last minute (instant and count, oldest first), for plans under another policy. Entries of one
    /// step are merged at the instant of the last one.
    used: Vec<(u64, u32)>,
}

impl Plan {
    /// Steps closer together than this are merged, in milliseconds.
    const STEP_MS: u64 = 50;

    /// The slots of `window` from `now_ms` on. The window must have been advanced to `now_ms`.
    #[must_use]
    pub fn new(window: &Window, policy: &Policy, now_ms: u64) -> Self {
        let (mut steps, mut slots) = (Vec::new(), 0);
        let mut upcoming = window.upcoming(now_ms);
        while slots < u64::from(policy.admit_per_minute)
            && let Some((at_ms, count)) = upcoming.next()
        {
            slots += u64::from(count);
            steps.push((at_ms, slots));
            upcoming.skip_to(at_ms + Self::STEP_MS);
        }
        let mut used: Vec<(u64, u32)> = Vec::new();
        for (at_ms, count) in window.log() {
            match used.last_mut() {
                Some(step) if step.0 / Self::STEP_MS == at_ms / Self::STEP_MS => {
                    *step = (at_ms, step.1 + count);
                }
                _ => used.push((at_ms, count)),
            }
        }
        Self { steps, used }
    }

    /// The plan if `policy` came into force at `now_ms`. Exact to one step, because used slots are merged into steps.
    #[must_use]
    pub fn under(&self, policy: &Policy, now_ms: u64) -> Self {
        Self::new(&Window::from_log(policy, self.used.iter().copied(), now_ms), policy, now_ms)
    }

    /// Whether a newcomer at `now_ms` would enter at once under `policy`, if nobody waited.
    #[must_use]
    pub fn has_room(&self, policy: &Policy, now_ms: u64) -> bool {
        Window::from_log(policy, self.used.iter().copied(), now_ms).free(false) > 0
    }

    /// The instant at which the slot becomes free that follows `before` other slots, in milliseconds on the store's clock.
    #[must_use]
    pub fn slot_ms(&self, before: u64) -> u64 {
        let Some(&(_, a_minutes)) = self.steps.last() else {
            return 0;
        };
        // A slot becomes free again 60 s and 1 ms after it was used, because the window includes both ends.
        let (minutes, rest) = (before / a_minutes, before % a_minutes);
        let step = self.steps.partition_point(|&(_, slots)| slots <= rest);
        self.steps[step].0 + minutes * (MINUTE_MS + 1)
    }

    /// The wait of a person with `present_ahead` present people ahead. `None` in the modes `hold` and `closed`.
    #[must_use]
    pub fn estimate(
        &self,
        present_ahead: u64,
        pace: &Pace,
        policy: &Policy,
        now_ms: u64,
    ) -> Option<Estimate> {
        match policy.mode {
            crate::Mode::Hold | crate::Mode::Closed => return None,
            crate::Mode::Open => return Some(Estimate::NONE),
            crate::Mode::Auto => {}
        }
        #[expect(clippy::cast_precision_loss, reason = "lines are shorter than 2^52")]
        let ahead = present_ahead as f64;
        // `leaving` scales the measured rate. `usual` is the share of the people ahead that enters in a line whose rate is
        // not known yet.
        let wait_ms = |leaving: f64, usual: f64, slots_used: f64| {
            let used_per_s = f64::from(policy.admit_per_minute) / 60.0 * slots_used;
            let crowd = leaving * pace.leaving_per_s * ahead / used_per_s;
            // ln(1 + x) / x tends to 1. Below a millionth the quotient is only noise.
            let seen = if crowd > 1e-6 { crowd.ln_1p() / crowd } else { 1.0 };
            let entering = ahead * (pace.known * seen + (1.0 - pace.known) * usual);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and `as` saturates"
            )]
            let slots = (entering.ceil() / slots_used) as u64;
            self.slot_ms(slots).saturating_sub(now_ms)
        };
        // Between 0 and 60 % of a line gives up. A person ahead who gives up after the own turn has used a slot.
        let wait = wait_ms(1.0, 0.94, pace.slots_used);
        let soonest = wait_ms(2.0, 0.72, 1.0);
        let latest = wait_ms(0.3, 1.0, (pace.slots_used * 0.98).max(0.5));
        let poll = u64::from(policy.polling_period_ms);
        Some(Estimate {
            wait_ms: wait,
            low_ms: (soonest.min(wait) * 19 / 20).saturating_sub(poll / 2),
            high_ms: latest.max(wait) * 21 / 20 + poll,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { slots_used: 1.0, leaving_per_s: 0.0, known: 1.0 };

    fn plan(n: u32, burst: u32) -> (Plan, Policy) {
        let policy = Policy { admit_per_minute: n, ..Policy::default() };
        let mut window = Window::new(&policy);
        window.record(1_000, burst);
        window.advance(2_000);
        (Plan::new(&window, &policy, 2_000), policy)
    }

    #[test]
    fn people_wait_until_a_burst_has_left_the_window() {
        for n in [2, 10, 60, 600, 10_000] {
            let (plan, policy) = plan(n, n);
            let wait = |ahead| plan.estimate(ahead, &PACE, &policy, 2_000).expect("auto").wait_ms;
            assert_eq!(wait(0), 59_001, "N = {n}: the burst slides out 60 s after 1 s");
            let sub = u64::from(policy.admit_per_sub_window());
            assert_eq!(wait(sub - 1), 59_001, "N = {n}: one sub-window's worth enters then");
            assert_eq!(wait(sub), 59_001 + 6_001, "N = {n}: the next one enters a sub-window later");
            assert_eq!(wait(u64::from(n)), 59_001 + 60_001, "N = {n}: a minute's worth takes a minute");
        }
    }

    #[test]
    fn people_who_give_up_shorten_the_wait() {
        let (plan, policy) = plan(600, 0);
        let wait = |leaving_per_s| {
            let pace = Pace { leaving_per_s, ..PACE };
            plan.estimate(6_000, &pace, &policy, 2_000).expect("auto")
        };
        let stay = wait(0.0).wait_ms;
        assert!((594_000..602_000).contains(&stay), "600 slots a minute for 6,000 people: {stay}");
        // At 1 % per second, 6,000 people last ln(1 + 0.01 x 6000 / 10) / 0.01 = 195 s.
        let leave = wait(0.01).wait_ms;
        assert!((190_000..201_000).contains(&leave), "{leave}");
        let estimate = wait(0.01);
        assert!(estimate.low_ms < estimate.wait_ms && estimate.wait_ms < estimate.high_ms);
    }

    #[test]
    fn there_is_no_estimate_while_nobody_is_admitted() {
        let (plan, policy) = plan(600, 0);
        let wait = |mode| plan.estimate(5, &PACE, &Policy { mode, ..policy }, 2_000).map(|e| e.wait_ms);
        assert_eq!(wait(crate::Mode::Hold), None);
        assert_eq!(wait(crate::Mode::Closed), None);
        assert_eq!(wait(crate::Mode::Open), Some(0));
    }

    /// A plan under another policy equals the plan that the store makes after the change, to one step.
    #[test]
    fn a_plan_under_another_policy_matches_the_one_after_the_change() {
        let now = 100_000;
        let mut window = Window::new(&Policy { admit_per_minute: 600, ..Policy::default() });
        for at in 0..400 {
            window.record(50_000 + at * 113, 1 + u32::from(at % 7 == 0));
        }
        window.advance(now);
        let old = Policy { admit_per_minute: 600, ..Policy::default() };
        let plan = Plan::new(&window, &old, now);
        assert_eq!(plan.under(&old, now).slot_ms(0), plan.slot_ms(0));
        for (admit_per_minute, sub_windows) in [(300, 10), (1_200, 10), (600, 1), (100, 60)] {
            let new = Policy { admit_per_minute, sub_windows, ..old };
            let mut changed = window.clone();
            changed.set_policy(&new, now);
            let (under, after) = (plan.under(&new, now), Plan::new(&changed, &new, now));
            for before in [0, 1, 50, 500, 5_000] {
                let (under_ms, after_ms) = (under.slot_ms(before), after.slot_ms(before));
                assert!(
                    under_ms.abs_diff(after_ms) <= 3 * Plan::STEP_MS,
                    "{new:?}: {under_ms} for {after_ms}"
                );
            }
        }
    }

    #[test]
    fn a_newcomer_to_an_empty_line_enters_while_the_minute_has_room() {
        let (plan, policy) = plan(10, 10);
        assert!(!plan.has_room(&policy, 61_000) && plan.has_room(&policy, 61_001));
        assert!(plan.has_room(&Policy { admit_per_minute: 11, ..policy }, 2_000));
    }

    #[test]
    fn the_pace_follows_what_was_observed() {
        let mut meter = PaceMeter::new();
        for _ in 0..600 {
            meter.observe(1.0, 1_000.0, 5.0, 8.0, 10.0);
        }
        let pace = meter.pace();
        assert!((0.79..0.82).contains(&pace.slots_used), "{pace:?}");
        assert!((0.004_9..0.005_1).contains(&pace.leaving_per_s), "{pace:?}");
    }
}
