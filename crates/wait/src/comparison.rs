//! When what was learnt about the patience of a zone's people is compared with what the store keeps, and which of the two replaces the
//! other.
//!
//! All servers that watch a line learn nearly the same of it. Each compares once a minute: it takes over what is kept if it has learnt
//! less, and replaces it if it has news. Invariant: it compares at most once a minute and when a line ends, and what is no news is not
//! written. So an idle zone writes nothing.

use crate::{Forecast, Learned};

/// The time between two comparisons, in milliseconds.
const EVERY_MS: u64 = 60_000;

/// After what time the next one comes if the store did not answer, in milliseconds.
const AGAIN_MS: u64 = 5_000;

/// Servers that saw the same line know so nearly the same.
const ABOUT: f64 = 0.95;

/// Compares what a server learnt about one zone with what the store keeps.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// What the store keeps, as far as this server knows.
    kept: Learned,
    /// When the next comparison is due.
    next_ms: u64,
}

impl Comparison {
    /// What was learnt, if it is time to compare it: at first, once a minute, and when nobody waits any more and there are news.
    /// `now_ms` is on any clock that does not go back.
    pub fn due(&mut self, forecast: &Forecast, now_ms: u64) -> Option<Learned> {
        let is_due = now_ms >= self.next_ms;
        if !is_due && forecast.waiting() > 0 {
            return None;
        }
        let known = forecast.learned();
        if !is_due && !known.has_news(&self.kept) {
            return None;
        }
        self.next_ms = now_ms + EVERY_MS;
        Some(known)
    }

    /// The store did not answer. The next comparison comes soon.
    pub fn postpone(&mut self, now_ms: u64) {
        self.next_ms = now_ms + AGAIN_MS;
    }

    /// Compares what is known with what the store keeps. Either the forecast goes on from what is kept, or both are about the same, or
    /// the result is true: what is known is to replace what is kept.
    #[must_use]
    pub fn compare(&mut self, forecast: &mut Forecast, known: &Learned, kept: Option<Learned>) -> bool {
        // The store lost it, or never had it.
        let Some(kept) = kept else { return known.has_news(&Learned::default()) };
        if !known.has_news(&kept) {
            self.kept = kept;
            return false;
        }
        let has_news = known.has_news(&self.kept);
        let knows_less = !has_news || known.weight() < ABOUT * kept.weight();
        if knows_less && kept.has_news(&self.kept) {
            forecast.relearn(&kept);
            self.kept = kept;
            return false;
        }
        has_news
    }

    /// The store keeps this now.
    pub fn note(&mut self, kept: Learned) {
        self.kept = kept;
    }
}
