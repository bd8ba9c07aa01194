//! When a store looks at what was learnt about the patience of a zone's people, and whether it has to be written.
//!
//! Invariant: it looks at most once a minute and when a line ends, and what is no news is not written. So an idle zone writes nothing.

use wait::{Forecast, Learned};

/// The time between two looks, in milliseconds.
const EVERY_MS: u64 = 60_000;

/// What the store has of one zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeper {
    kept: Learned,
    /// When the next look is due.
    next_ms: u64,
}

impl Keeper {
    /// The store has this.
    pub(crate) fn of(kept: Learned) -> Self {
        Self { kept, next_ms: 0 }
    }

    /// What was learnt, if it is time to look at it: once a minute, and when nobody waits any more and there are news. `waiting` people
    /// wait.
    pub(crate) fn look(&mut self, forecast: &Forecast, waiting: u64, now_ms: u64) -> Option<Learned> {
        let is_due = now_ms >= self.next_ms;
        if !is_due && waiting > 0 {
            return None;
        }
        let learned = forecast.learned();
        if !is_due && !self.is_news(&learned) {
            return None;
        }
        self.next_ms = now_ms + EVERY_MS;
        Some(learned)
    }

    /// The next look is due then.
    pub(crate) fn look_at(&mut self, at_ms: u64) {
        self.next_ms = at_ms;
    }

    /// Whether this is worth keeping in place of what the store has.
    pub(crate) fn is_news(&self, learned: &Learned) -> bool {
        learned.has_news(&self.kept)
    }

    /// The store has this.
    pub(crate) fn note(&mut self, kept: Learned) {
        self.kept = kept;
    }
}
