//! Time, as the tests know it: deadlines for conditions, and the pauses that a polling app owes the server.
//!
//! Nothing here waits for "long enough": a test waits for a condition and fails at a deadline far beyond it.

use std::{
    thread,
    time::{Duration, Instant},
};

/// When a condition that should long be true makes the test fail.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The present moment on the machine's monotone clock.
#[expect(clippy::disallowed_methods, reason = "these tests run against a real process on the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `ready` has something; `what` names it where the deadline passes first.
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

/// The pause between two polls, which the protocol asks for.
pub(crate) fn obey_polling_period(until: Instant) {
    loop {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}
