//! The wall clock, for instants that people and logs read. Deadlines and durations use `tokio::time::Instant`.

use jiff::Timestamp;
use tokio::time::Instant;

pub use store::unix_ms;

/// An instant of this process in milliseconds since 1970.
#[must_use]
pub fn unix_ms_of(at: Instant) -> u64 {
    unix_ms().saturating_sub(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970 as a date and a time in UTC; `-` for no instant, or one that is none.
#[must_use]
pub fn in_utc(unix_ms: Option<i64>) -> String {
    let at = unix_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// The wall clock in nanoseconds since 1970, for instants that other programs compare with theirs.
#[must_use]
pub fn unix_ns() -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0)
}
