//! The forecast of one zone: what this server learnt about its people, and the exchange of that with the store.
//!
//! A store knows positions. This makes views of its snapshots, and fills the waits into its verdicts. Invariants: the forecast sees
//! each snapshot before the view of it is in use; the exchange fails nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use admission::{Policy, SlotState, Snapshot, Verdict, ZoneId};
use store::Line;
use wait::{Comparison, Forecast, Learned, View};

/// What this server learnt about one zone.
#[derive(Debug)]
pub struct ZoneForecast(Mutex<Learning>);

#[derive(Debug)]
struct Learning {
    forecast: Forecast,
    comparison: Comparison,
}

impl ZoneForecast {
    /// Nothing was learnt yet.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self(Mutex::new(Learning { forecast: Forecast::new(policy, 0), comparison: Comparison::default() }))
    }

    /// Learns from a snapshot, and makes the view of it.
    pub fn observe(&self, snapshot: Snapshot) -> View {
        self.lock().forecast.observe(snapshot)
    }

    /// Fills the waits into verdicts of the store.
    pub fn estimate(&self, verdicts: &mut [Verdict], slots: &SlotState, at_ms: u64) {
        self.lock().forecast.estimate(verdicts, slots, at_ms);
    }

    /// Compares what this server learnt with what the store keeps, if it is time, and lets the one that knows more replace the other.
    /// The zone works without it, so a failure is not one of the caller's. `now_ms` is on any clock that does not go back.
    pub async fn exchange<L: Line>(&self, line: &L, zone: &ZoneId, now_ms: u64) {
        let due = {
            let known = &mut *self.lock();
            known.comparison.due(&known.forecast, now_ms)
        };
        let Some(learned) = due else { return };
        let kept = match line.exchange_learned(None).await {
            Ok(kept) => kept,
            Err(error) => {
                tracing::debug!(%zone, %error, "what was learnt about the zone's people could not be compared");
                return self.lock().comparison.postpone(now_ms);
            }
        };
        let read = |bytes: Vec<u8>| {
            Learned::from_bytes(&bytes).inspect_err(|error| tracing::warn!(%zone, "{error}")).ok()
        };
        let kept = kept.and_then(read);
        let has_news = {
            let known = &mut *self.lock();
            known.comparison.compare(&mut known.forecast, &learned, kept)
        };
        if has_news && line.exchange_learned(Some(learned.to_bytes().to_vec())).await.is_ok() {
            self.lock().comparison.note(learned);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Learning> {
        // What a panic left half done is learnt again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
