//! The clocks of a verifier. Tests own them.

#[cfg(test)]
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Where the time comes from.
#[derive(Clone)]
pub(crate) enum Clock {
    /// This machine. The steady clock counts from here.
    Machine { since: Instant },
    /// Both clocks show this, in seconds.
    #[cfg(test)]
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// The wall clock, in seconds since 1970. It may jump.
    pub(crate) fn now_s(&self) -> f64 {
        match self {
            #[expect(clippy::disallowed_methods, reason = "passes are valid by the wall clock")]
            Self::Machine { .. } => {
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
            }
            #[cfg(test)]
            Self::Set(now_s) => {
                Duration::from_secs(now_s.load(Ordering::SeqCst).unsigned_abs()).as_secs_f64()
            }
        }
    }

    /// A clock that never jumps.
    pub(crate) fn steady(&self) -> Duration {
        match self {
            Self::Machine { since } => since.elapsed(),
            #[cfg(test)]
            Self::Set(now_s) => Duration::from_secs(now_s.load(Ordering::SeqCst).unsigned_abs()),
        }
    }
}
