//! When slots become free, and which share of them is used.
//!
//! A person with `k` present people ahead needs a slot for everyone ahead who does not give up first, and then one more. The
//! [`Outlook`](crate::Outlook) says how many slots that are, and the [`Plan`] when they become free: the window's own log tells that exactly.

use admission::{MINUTE_MS, Policy, Window};

use crate::turnover::Turnover;

/// Measures which share of the offered slots is used, with sums that decay: an event of three minutes ago counts 1/e.
#[derive(Clone, Debug)]
pub(crate) struct SlotMeter {
    used: f64,
    offered: f64,
    /// The smoothed share of what was measured. Slots come once a sub-window and are used later, so at each instant it is too high or too
    /// low.
    share: f64,
}

impl SlotMeter {
    const MEMORY_S: f64 = 180.0;
    /// Longer than some sub-windows.
    const SMOOTH_S: f64 = 30.0;

    /// The usual share, with a weight in slots.
    const USUAL: f64 = 138.0 / 140.0;
    const USUAL_SLOTS: f64 = 140.0;

    /// Nothing was measured yet.
    pub(crate) fn new() -> Self {
        Self { used: 0.0, offered: 0.0, share: Self::USUAL }
    }

    /// Adds `past_s` seconds in which `used` of `offered` slots were used.
    pub(crate) fn observe(&mut self, past_s: f64, used: f64, offered: f64) {
        let decay = (-past_s / Self::MEMORY_S).exp();
        // Without slots there is nothing to learn and nothing to forget. A slot may be used some seconds after it was offered,
        // when no other one is.
        if offered > 0.0 || used > 0.0 {
            self.used = self.used * decay + used;
            self.offered = self.offered * decay + offered;
        }
        let share = (self.used + 20.0) / (self.offered + 20.0);
        self.share += (share - self.share) * -(-past_s / Self::SMOOTH_S).exp_m1();
    }

    /// The share of the offered slots that is used. 0.5 to 1.
    pub(crate) fn slots_used(&self) -> f64 {
        let measured = self.offered / (self.offered + Self::USUAL_SLOTS);
        (Self::USUAL + (self.share - Self::USUAL) * measured).clamp(0.5, 1.0)
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
    /// Nobody enters before this instant; 0 for none.
    opens_ms: u64,
    /// Where the number of people inside is limited.
    turnover: Option<Turnover>,
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
        Self { steps, used, opens_ms: window.opens_ms(), turnover: None }
    }

    /// Whether anybody entered in the minute before it was made.
    pub(crate) fn has_entries(&self) -> bool {
        !self.used.is_empty()
    }

    /// The same plan where people inside have to leave before others enter.
    #[must_use]
    pub(crate) fn within(self, turnover: Option<Turnover>) -> Self {
        Self { turnover, ..self }
    }

    /// When the zone opens, by its clock; 0 if it does not wait for that.
    #[must_use]
    pub fn opens_ms(&self) -> u64 {
        self.opens_ms
    }

    /// The same plan where the zone opens at another instant.
    #[must_use]
    pub(crate) fn opening_at(self, opens_ms: u64) -> Self {
        Self { opens_ms, ..self }
    }

    /// The window if `policy` came into force at `now_ms`, and opened the zone when this plan does.
    fn window_under(&self, policy: &Policy, now_ms: u64) -> Window {
        let mut window = Window::from_log(policy, self.used.iter().copied(), now_ms);
        window.set_opening(self.opens_ms, now_ms);
        window
    }

    /// The plan if `policy` came into force at `now_ms`, and opened the zone when this plan does. Exact to one step, because used
    /// slots are merged into steps.
    #[must_use]
    pub fn under(&self, policy: &Policy, now_ms: u64) -> Self {
        let window = self.window_under(policy, now_ms);
        Self::new(&window, policy, now_ms).within(self.turnover_under(policy, now_ms))
    }

    /// The people inside if `policy` came into force at `now_ms`.
    fn turnover_under(&self, policy: &Policy, now_ms: u64) -> Option<Turnover> {
        match self.turnover {
            Some(turnover) => turnover.under(policy),
            None => Turnover::beginning(policy, now_ms),
        }
    }

    /// Whether a newcomer at `now_ms` would enter at once under `policy`, if nobody waited.
    #[must_use]
    pub fn has_room(&self, policy: &Policy, now_ms: u64) -> bool {
        let is_full = self.turnover_under(policy, now_ms).is_some_and(|turnover| turnover.is_full(now_ms));
        !is_full && self.window_under(policy, now_ms).free(false) > 0
    }

    /// The instant at which the slot becomes free that follows `before` other slots, in milliseconds on the store's clock.
    #[must_use]
    pub fn slot_ms(&self, before: u64) -> u64 {
        let slot_ms = self.of_window_ms(before);
        self.turnover.map_or(slot_ms, |turnover| turnover.slot_ms(before).max(slot_ms))
    }

    /// The same if the people inside did not count.
    fn of_window_ms(&self, before: u64) -> u64 {
        let Some(&(_, a_minutes)) = self.steps.last() else {
            return 0;
        };
        // A slot becomes free again 60 s and 1 ms after it was used, because the window includes both ends.
        let (minutes, rest) = (before / a_minutes, before % a_minutes);
        let step = self.steps.partition_point(|&(_, slots)| slots <= rest);
        self.steps[step].0 + minutes * (MINUTE_MS + 1)
    }

    /// How much earlier and later that slot may come because of the people inside, in milliseconds.
    pub(crate) fn spread_ms(&self, before: u64) -> (u64, u64) {
        let Some(turnover) = self.turnover else { return (0, 0) };
        let of_window_ms = self.of_window_ms(before);
        let (slot_ms, (low_ms, high_ms)) =
            (turnover.slot_ms(before).max(of_window_ms), turnover.range_ms(before));
        (slot_ms - low_ms.max(of_window_ms), high_ms.saturating_sub(slot_ms))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The plan of a zone 1 s after a burst of entries.
    pub(crate) fn plan_after(n: u32, burst: u32) -> (Plan, Policy) {
        let policy = Policy { admit_per_minute: n, ..Policy::default() };
        let mut window = Window::new(&policy);
        window.record(1_000, burst);
        window.advance(2_000);
        (Plan::new(&window, &policy, 2_000), policy)
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
        let (plan, policy) = plan_after(10, 10);
        assert!(!plan.has_room(&policy, 61_000) && plan.has_room(&policy, 61_001));
        assert!(plan.has_room(&Policy { admit_per_minute: 11, ..policy }, 2_000));
    }

    /// A slot may be used seconds after it was offered. Both are counted, whenever they come.
    #[test]
    fn the_share_of_used_slots_is_right_if_they_are_used_late() {
        let mut meter = SlotMeter::new();
        for second in 0..1_200 {
            let offered = if second % 6 == 0 { 60.0 } else { 0.0 };
            let used = if second % 6 == 2 { 54.0 } else { 0.0 };
            meter.observe(1.0, used, offered);
        }
        let used = meter.slots_used();
        assert!((0.89..0.92).contains(&used), "{used}");
    }
}
