//! The polling periods that this server tells in a zone, and how it announces them to the store.
//!
//! Invariant: the store knows a period before anybody is told it, and for as long as somebody may keep to it. If the store forgets a period,
//! because its state was lost, the next beat announces it again.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use admission::LongestPeriod;
use store::Line;
use wait::View;

use super::Room;

/// The periods that this server told lately.
#[derive(Default)]
pub(super) struct AnnouncedPeriods {
    /// The longest period told since the last beat beyond the policy's, in milliseconds; 0 if none was.
    lately_ms: AtomicU32,
    /// A beat was ordered before its time, so that the store hears of a longer period.
    early_beat_requested: AtomicBool,
    /// By the time since the room was made.
    memory: Mutex<LongestPeriod>,
}

impl<L: Line> Room<L> {
    /// A holder was told this period by `view`.
    pub(super) fn note_told(&self, period_ms: u32, view: &View) {
        // In a sudden crowd each tenth of a second counts.
        if view.longest_period_ms < self.pace.wanted_ms().min(view.policy.period_limit_ms()) / 2
            && !self.announced.early_beat_requested.load(Relaxed)
            && !self.is_away()
            && !self.announced.early_beat_requested.swap(true, Relaxed)
        {
            self.order_renewal();
        }
        if period_ms > view.policy.polling_period_ms && self.announced.lately_ms.load(Relaxed) < period_ms {
            self.announced.lately_ms.fetch_max(period_ms, Relaxed);
        }
    }

    /// The longest period that this server told lately or may tell until the next beat, beyond the policy's, in milliseconds; 0 if
    /// there is none. `view` is the view in use.
    pub(super) fn period_to_announce(&self, view: &View) -> u32 {
        self.announced.early_beat_requested.store(false, Relaxed);
        let policy = &view.policy;
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(0);
        let told_ms = self.announced.lately_ms.swap(0, Relaxed).max(policy.polling_period_ms);
        let mut memory = self.announced.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.advance(now_ms);
        memory.note(told_ms, now_ms);
        let wanted_ms = self.pace.wanted_ms().min(policy.period_limit_ms());
        let forgotten_ms = if view.longest_period_ms < memory.period_ms() { memory.period_ms() } else { 0 };
        let period_ms = told_ms.max(wanted_ms).max(forgotten_ms);
        if period_ms > policy.polling_period_ms { period_ms } else { 0 }
    }

    /// The store did not hear of this period. The next beat announces it again.
    pub(super) fn restore_unannounced(&self, period_ms: u32) {
        self.announced.lately_ms.fetch_max(period_ms, Relaxed);
    }
}
