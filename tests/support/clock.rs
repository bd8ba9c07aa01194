//! The time of the tests: deadlines for conditions, and the pauses that the server tells a polling app to make.
//!
//! No test sleeps for a fixed time. A test waits for a condition and fails at a deadline far beyond it.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The time after which an unmet condition fails the test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The current time of the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "these tests run against a real process on the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `ready` returns a value. `what` names the condition in the failure message.
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = now() + DEADLINE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(now() < deadline, "not within {DEADLINE:?}: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Waits until the next poll is due.
pub(crate) fn obey_polling_period(until: Instant) {
    loop {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}
