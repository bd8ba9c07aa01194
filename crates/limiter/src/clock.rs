//! The clock of the buckets in this process.
//!
//! Invariant: it never goes back, whatever happens to the wall clock, which only says where it begins. It is the
//! processor's counter where that runs evenly, since a decision costs little more than reading a clock.

use std::time::SystemTime;

/// A clock.
#[derive(Debug)]
pub(crate) struct Clock {
    clock: quanta::Clock,
    began: u64,
    began_us: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the edge: the rules have time as an argument")]
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let clock = quanta::Clock::new();
        let began = clock.raw();
        Self { clock, began, began_us: u64::try_from(wall.as_micros()).unwrap_or(0) }
    }

    /// Microseconds since the Unix epoch, as of when this clock was started.
    pub(crate) fn now_us(&self) -> u64 {
        self.began_us + self.clock.delta_as_nanos(self.began, self.clock.raw()) / 1_000
    }
}
