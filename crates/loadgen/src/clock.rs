//! The clock of a run. It counts from the agreed start, which is the same for all workers and machines.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use tokio::time::Instant;

/// The current time, milliseconds of the Unix clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "machines agree on a start by the wall clock")]
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A time of the Unix clock in milliseconds, to show and to compare.
#[must_use]
pub(crate) fn instant(unix_ms: u64) -> Timestamp {
    i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

/// How often both clocks are read.
const READINGS: usize = 32;

/// Both clocks at the same instant. A busy machine may stop the process between the two, for as long as a second, so the closest of several
/// readings counts.
fn both() -> (Instant, u64) {
    let read = |_| {
        let (now, now_unix) = (Instant::now(), unix_ms());
        (now.elapsed(), now, now_unix)
    };
    let (_, now, now_unix) = (0..READINGS).map(read).min().expect("there are several");
    (now, now_unix)
}

/// Time since the start of the run. The Unix clock is read once, so later steps of it have no effect.
#[derive(Debug, Default)]
pub struct Clock(OnceLock<Instant>);

impl Clock {
    /// Sets the start, milliseconds of the Unix clock. Later calls have no effect.
    pub fn begin_at(&self, start_unix_ms: u64) {
        let (now, now_unix) = both();
        let start = if start_unix_ms >= now_unix {
            now + Duration::from_millis(start_unix_ms - now_unix)
        } else {
            now.checked_sub(Duration::from_millis(now_unix - start_unix_ms)).unwrap_or(now)
        };
        self.0.get_or_init(|| start);
    }

    /// The moment `us` microseconds after the start; now, if the start is not known yet.
    #[must_use]
    pub fn at(&self, us: u64) -> Instant {
        self.0.get().map_or_else(Instant::now, |start| *start + Duration::from_micros(us))
    }

    /// Microseconds since the start, 0 before it.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.0.get().map_or(0, |start| u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// Microseconds as whole milliseconds.
#[must_use]
pub fn ms(us: u64) -> u32 {
    u32::try_from(us / 1000).unwrap_or(u32::MAX)
}
