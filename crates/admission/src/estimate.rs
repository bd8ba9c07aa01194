//! The wait that is told.
//!
//! Whoever has `k` present people ahead enters with the slot after theirs, once those among them who give up before
//! their turn are taken away. Three things are known: when slots fall free (the window's own log, [`Plan`]), which
//! part of them is really used, and how many of those who wait give up in a second ([`Pace`]).
//!
//! With `mu` slots used a second and each person leaving at rate `lambda`, the people ahead shrink by
//! `dk/dt = -mu - lambda k`, so the front is reached after `ln(1 + lambda k / mu) / lambda`, in which
//! `mu ln(1 + lambda k / mu) / lambda` people enter. That is how many slots lie between; the plan says when. How many
//! leave a line is not known when it forms; until it is, what lines usually do stands in for it.

use crate::{Policy, Window, window::MINUTE_MS};

/// A wait, from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The wait to tell, in milliseconds.
    pub wait_ms: u64,
    /// Nine of ten wait at least about this long.
    pub low_ms: u64,
    /// Nine of ten wait at most about this long.
    pub high_ms: u64,
}

impl Estimate {
    /// What waiting rooms tell that look at rank and rate only: the yardstick that ours is held against.
    #[must_use]
    pub fn naive(rank: u64, policy: &Policy) -> Self {
        let wait_ms = rank * MINUTE_MS / u64::from(policy.admit_per_minute);
        Self { wait_ms, low_ms: wait_ms, high_ms: wait_ms }
    }
}

/// How a line moves, as seen over the last minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The part of the slots offered to the line that is used. 0.5 to 1.
    pub slots_used: f64,
    /// Which part of those who wait gives up in a second. 0 to 0.1.
    pub leaving_per_s: f64,
    /// How far that is known: 0 where a line has just formed, nearly 1 after minutes.
    pub known: f64,
}

/// Sums that forget: what happened a minute ago counts 1/e.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    used: f64,
    offered: f64,
    left: f64,
    waited_s: f64,
    /// How long there has been a line.
    line_s: f64,
}

impl Watch {
    const MEMORY_S: f64 = 60.0;
    /// A line as old as this is half known: who left it is seen to be absent after some polling periods.
    const HALF_KNOWN_S: f64 = 30.0;

    /// Starts from what a line usually does, believed as much as 120 slots.
    pub(crate) fn new() -> Self {
        Self { used: 118.0, offered: 120.0, left: 0.0, waited_s: 100.0, line_s: 0.0 }
    }

    /// Takes in `past_s` seconds in which `present` people waited, `left` gave up, `used` slots of `offered` were
    /// used.
    pub(crate) fn observe(&mut self, past_s: f64, present: f64, left: f64, used: f64, offered: f64) {
        let kept = (-past_s / Self::MEMORY_S).exp();
        // Where nothing is offered there is nothing to learn, and nothing to forget.
        if offered > 0.0 {
            self.used = self.used * kept + used;
            self.offered = self.offered * kept + offered;
        }
        if present > 0.0 {
            self.left = self.left * kept + left;
            self.waited_s = self.waited_s * kept + present * past_s;
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

/// When slots fall free.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// When, and how many have fallen free by then; ends with a whole minute's slots.
    knots: Vec<(u64, u64)>,
    /// The slots used in the minute before, for plans under another policy: when, and how many; the oldest first. Those of
    /// one step are taken together, as late as the last of them.
    used: Vec<(u64, u32)>,
}

impl Plan {
    /// Knots nearer than this are one.
    const STEP_MS: u64 = 50;

    /// The slots of `window` from `now_ms` (to which it was advanced) on.
    #[must_use]
    pub fn new(window: &Window, policy: &Policy, now_ms: u64) -> Self {
        let (mut knots, mut slots) = (Vec::new(), 0);
        let mut upcoming = window.upcoming(now_ms);
        while slots < u64::from(policy.admit_per_minute)
            && let Some((at_ms, count)) = upcoming.next()
        {
            slots += u64::from(count);
            knots.push((at_ms, slots));
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
        Self { knots, used }
    }

    /// When slots would fall free from `now_ms` on, were `policy` in force then. To a step: what was used is known no better.
    #[must_use]
    pub fn under(&self, policy: &Policy, now_ms: u64) -> Self {
        Self::new(&Window::from_log(policy, self.used.iter().copied(), now_ms), policy, now_ms)
    }

    /// Whether somebody who comes at `now_ms` while nobody waits would be in at once under `policy`.
    #[must_use]
    pub fn has_room(&self, policy: &Policy, now_ms: u64) -> bool {
        Window::from_log(policy, self.used.iter().copied(), now_ms).free(false) > 0
    }

    /// When the slot falls free that `before` others come before.
    #[must_use]
    pub fn slot_ms(&self, before: u64) -> u64 {
        let Some(&(_, a_minutes)) = self.knots.last() else {
            return 0;
        };
        // A minute's slots fall free again 60 s (and the millisecond of the closed end) after they were used.
        let (minutes, rest) = (before / a_minutes, before % a_minutes);
        let knot = self.knots.partition_point(|&(_, slots)| slots <= rest);
        self.knots[knot].0 + minutes * (MINUTE_MS + 1)
    }

    /// [`Plan::estimate`], unless the tests want it naive.
    pub(crate) fn tell(
        &self,
        rank: u64,
        present_ahead: u64,
        pace: &Pace,
        policy: &Policy,
        now_ms: u64,
    ) -> Option<Estimate> {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::on(crate::sabotage::Rule::NaiveEta) {
            return Some(Estimate::naive(rank, policy));
        }
        let _ = rank;
        self.estimate(present_ahead, pace, policy, now_ms)
    }

    /// The wait of somebody with `present_ahead` people ahead; none where nobody is let in.
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
            crate::Mode::Open => {
                return Some(Estimate { wait_ms: 0, low_ms: 0, high_ms: 0 });
            }
            crate::Mode::Auto => {}
        }
        #[expect(clippy::cast_precision_loss, reason = "lines are shorter than 2^52")]
        let ahead = present_ahead as f64;
        // `leaving` scales the rate seen; `usual` is which part of those ahead enters in lines not known yet.
        let wait_ms = |leaving: f64, usual: f64, slots_used: f64| {
            let used_per_s = f64::from(policy.admit_per_minute) / 60.0 * slots_used;
            let crowd = leaving * pace.leaving_per_s * ahead / used_per_s;
            // ln(1 + x) / x -> 1; below a millionth the quotient is noise.
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
        // Between nobody and 60 % of a line walk away; of those ahead, who leave later than their turn do not count.
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
    fn a_burst_that_used_the_minute_is_waited_for() {
        for n in [2, 10, 60, 600, 10_000] {
            let (plan, policy) = plan(n, n);
            let wait = |ahead| plan.estimate(ahead, &PACE, &policy, 2_000).expect("auto").wait_ms;
            assert_eq!(wait(0), 59_001, "N = {n}: the burst slides out 60 s after 1 s");
            let sub = u64::from(policy.admit_per_sub_window());
            assert_eq!(wait(sub - 1), 59_001, "N = {n}: and a sub-window's worth enters then");
            assert_eq!(wait(sub), 59_001 + 6_001, "N = {n}: the next one after the sub-window");
            assert_eq!(wait(u64::from(n)), 59_001 + 60_001, "N = {n}: a minute's worth takes a minute");
        }
    }

    #[test]
    fn those_who_give_up_are_not_waited_for() {
        let (plan, policy) = plan(600, 0);
        let wait = |leaving_per_s| {
            let pace = Pace { leaving_per_s, ..PACE };
            plan.estimate(6_000, &pace, &policy, 2_000).expect("auto")
        };
        let stay = wait(0.0).wait_ms;
        assert!((594_000..602_000).contains(&stay), "ten minutes' worth: {stay}");
        // 1 % a second: 600 s of line last ln(1 + 0.01 x 6000 / 10) / 0.01 = 195 s.
        let leave = wait(0.01).wait_ms;
        assert!((190_000..201_000).contains(&leave), "{leave}");
        let told = wait(0.01);
        assert!(told.low_ms < told.wait_ms && told.wait_ms < told.high_ms);
    }

    #[test]
    fn nobody_is_told_a_wait_that_no_one_can_know() {
        let (plan, policy) = plan(600, 0);
        let told = |mode| plan.estimate(5, &PACE, &Policy { mode, ..policy }, 2_000).map(|e| e.wait_ms);
        assert_eq!(told(crate::Mode::Hold), None);
        assert_eq!(told(crate::Mode::Closed), None);
        assert_eq!(told(crate::Mode::Open), Some(0));
    }

    /// A plan under another policy is the one that the store would make with it, to a step.
    #[test]
    fn plans_under_another_policy_are_those_that_come_with_it() {
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
            let mut with_it = window.clone();
            with_it.set_policy(&new, now);
            let (told, comes) = (plan.under(&new, now), Plan::new(&with_it, &new, now));
            for before in [0, 1, 50, 500, 5_000] {
                let (told_ms, comes_ms) = (told.slot_ms(before), comes.slot_ms(before));
                assert!(told_ms.abs_diff(comes_ms) <= 3 * Plan::STEP_MS, "{new:?}: {told_ms} for {comes_ms}");
            }
        }
    }

    #[test]
    fn who_comes_to_an_empty_line_is_in_while_the_minute_has_room() {
        let (plan, policy) = plan(10, 10);
        assert!(!plan.has_room(&policy, 61_000) && plan.has_room(&policy, 61_001));
        assert!(plan.has_room(&Policy { admit_per_minute: 11, ..policy }, 2_000));
    }

    #[test]
    fn the_pace_is_what_was_seen() {
        let mut watch = Watch::new();
        for _ in 0..600 {
            watch.observe(1.0, 1_000.0, 5.0, 8.0, 10.0);
        }
        let pace = watch.pace();
        assert!((0.79..0.82).contains(&pace.slots_used), "{pace:?}");
        assert!((0.004_9..0.005_1).contains(&pace.leaving_per_s), "{pace:?}");
    }
}
