//! The clock of a run: time since the moment at which it was to begin, the same for all workers and machines.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

/// Milliseconds of the Unix clock, now.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "machines agree on a beginning by the wall clock")]
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Counts from the run's beginning. The Unix clock is read once; from then on a step of it does no harm.
#[derive(Debug, Default)]
pub struct Clock(OnceLock<Instant>);

impl Clock {
    /// Says when the run is to begin; the first word counts.
    pub fn begin_at(&self, unix: u64) {
        let (now, now_unix) = (Instant::now(), unix_ms());
        let begin = if unix >= now_unix {
            now + Duration::from_millis(unix - now_unix)
        } else {
            now.checked_sub(Duration::from_millis(now_unix - unix)).unwrap_or(now)
        };
        self.0.get_or_init(|| begin);
    }

    /// The moment `us` microseconds after the beginning; now, if that is not known yet.
    #[must_use]
    pub fn at(&self, us: u64) -> Instant {
        self.0.get().map_or_else(Instant::now, |begin| *begin + Duration::from_micros(us))
    }

    /// Microseconds since the beginning, 0 before it.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.0.get().map_or(0, |begin| u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// Whole milliseconds of microseconds.
#[must_use]
pub fn ms(us: u64) -> u32 {
    u32::try_from(us / 1000).unwrap_or(u32::MAX)
}
