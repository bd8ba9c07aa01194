//! The wall clock, for the instants in the log.

use std::time::SystemTime;

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "people read these instants, so they are the wall clock's")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
