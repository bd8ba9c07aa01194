//! The clock of the buckets in this process.
//!
//! Invariant: it never goes back, whatever happens to the wall clock, which only says where it begins.

use std::time::{Instant, SystemTime};

/// A clock.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    began_us: u64,
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: the rules have time as an argument")]
impl Clock {
    pub(crate) fn start() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_us: u64::try_from(wall.as_micros()).unwrap_or(0) }
    }

    /// Microseconds since the Unix epoch, as of when this clock was started.
    pub(crate) fn now_us(&self) -> u64 {
        self.began_us + u64::try_from(self.began.elapsed().as_micros()).unwrap_or(0)
    }
}
