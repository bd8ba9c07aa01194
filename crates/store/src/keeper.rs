//! When a store writes what was learnt about the patience of a zone's people.
//!
//! Invariant: at most once a minute and when a line ends, and only if there are news. So an idle zone writes nothing.

use admission::{Forecast, Learned};

/// The least time between two writings while people wait, in milliseconds.
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

    /// What is to be written now, if anything. `waiting` people wait.
    pub(crate) fn news(&mut self, forecast: &Forecast, waiting: u64, now_ms: u64) -> Option<Learned> {
        if waiting > 0 && now_ms < self.next_ms {
            return None;
        }
        self.next_ms = now_ms + EVERY_MS;
        let learned = forecast.learned();
        learned.has_news(&self.kept).then_some(learned)
    }

    /// It was written, or the store has this.
    pub(crate) fn note(&mut self, kept: Learned) {
        self.kept = kept;
    }
}
