//! The estimator that Weir had before, to compare with: it assumes that people go on leaving as they do now.

use admission::{Policy, Tally};
use wait::Plan;

/// How a line moves, measured over the last minutes.
pub(crate) struct Previous {
    used: f64,
    offered: f64,
    left: f64,
    waited_s: f64,
    line_s: f64,
    last: Option<(u64, Tally, u64)>,
}

impl Previous {
    pub(crate) fn new() -> Self {
        Self { used: 118.0, offered: 120.0, left: 0.0, waited_s: 100.0, line_s: 0.0, last: None }
    }

    pub(crate) fn observe(&mut self, now_ms: u64, tally: Tally) {
        let absent = tally.waiting.saturating_sub(tally.present);
        let Some((then_ms, then, absent_then)) = self.last.replace((now_ms, tally, absent)) else { return };
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let past_s = since(now_ms, then_ms) / 1_000.0;
        let left = since(tally.evicted, then.evicted) + absent as f64 - absent_then as f64;
        let decay = (-past_s / 60.0).exp();
        let offered = since(tally.slots_offered, then.slots_offered);
        if offered > 0.0 {
            self.used = self.used * decay + since(tally.slots_used, then.slots_used);
            self.offered = self.offered * decay + offered;
        }
        if tally.present > 0 {
            self.left = self.left * decay + left;
            self.waited_s = self.waited_s * decay + tally.present as f64 * past_s;
            self.line_s += past_s;
        } else {
            self.line_s = 0.0;
        }
    }

    /// The wait with its range, in seconds.
    pub(crate) fn wait_s(&self, ahead: u64, plan: &Plan, policy: &Policy, now_ms: u64) -> [f64; 3] {
        let slots_used = ((self.used + 20.0) / (self.offered + 20.0)).clamp(0.5, 1.0);
        let leaving_per_s = (self.left / self.waited_s.max(1.0)).clamp(0.0, 0.1);
        let known = self.line_s / (self.line_s + 30.0);
        let ahead = ahead as f64;
        let wait_s = |leaving: f64, usual: f64, slots_used: f64| {
            let used_per_s = f64::from(policy.admit_per_minute) / 60.0 * slots_used;
            let crowd = leaving * leaving_per_s * ahead / used_per_s;
            let seen = if crowd > 1e-6 { crowd.ln_1p() / crowd } else { 1.0 };
            let entering = ahead * (known * seen + (1.0 - known) * usual);
            plan.slot_ms((entering.ceil() / slots_used) as u64).saturating_sub(now_ms) as f64 / 1_000.0
        };
        let wait = wait_s(1.0, 0.94, slots_used);
        let soonest = wait_s(2.0, 0.72, 1.0);
        let latest = wait_s(0.3, 1.0, (slots_used * 0.98).max(0.5));
        let poll_s = f64::from(policy.polling_period_ms) / 1_000.0;
        [wait, (soonest.min(wait) * 0.95 - poll_s / 2.0).max(0.0), latest.max(wait) * 1.05 + poll_s]
    }
}
