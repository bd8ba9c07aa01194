//! The clock of the buckets in this process.
//!
//! It starts at the wall clock's time, and then counts by the processor's counter if that is steady: reading a clock is a
//! large part of a decision's cost.
//!
//! Invariant: it never goes back, even if the wall clock does.

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

    /// Microseconds since the Unix epoch. Later changes of the wall clock have no effect.
    pub(crate) fn now_us(&self) -> u64 {
        self.began_us + self.clock.delta_as_nanos(self.began, self.clock.raw()) / 1_000
    }
}
