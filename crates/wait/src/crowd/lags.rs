//! How late a snapshot shows that somebody left.

use admission::{IDLE_AGE, Snapshot};

use crate::number;

/// How late it is known that somebody left, in seconds, when a generation ends. It is known of everybody who left before that,
/// and of nobody who left later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lags {
    pub(super) absent_s: f64,
    pub(super) evicted_s: f64,
    /// In the front, for a claim that did not come.
    pub(super) front_s: f64,
    pub(super) generation_s: f64,
}

impl Lags {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let policy = &snapshot.policy;
        let generation_s = number(policy.generation_ms()) / 1_000.0;
        let period_s = f64::from(snapshot.longest_period_ms) / 1_000.0;
        // People leave in the middle between two polls, and a poll is reported half a second late.
        let after = |generations: f64| (generations * generation_s + 0.5 - period_s / 2.0).max(0.5);
        let evicted_s = after(number(IDLE_AGE - 1));
        let absent_s = after(number(policy.present_age(snapshot.longest_period_ms))).min(evicted_s);
        let near_s = f64::from(policy.near_period_ms()) / 1_000.0;
        let front_s = (2.0 * near_s + 1.5 - near_s / 2.0).min(absent_s);
        Self { absent_s, evicted_s, front_s, generation_s }
    }
}
