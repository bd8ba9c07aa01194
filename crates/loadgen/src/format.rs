//! Numbers, durations and dates as text.

use jiff::Timestamp;

/// An integer with commas between its thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with commas between its thousands and `digits` digits after the decimal point.
pub(crate) fn decimal(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    fraction.map_or(whole.clone(), |fraction| format!("{whole}.{fraction}"))
}

/// An integer as a float. Exact below 2^53, which no count here reaches.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

/// Microseconds as milliseconds, with fewer digits from 100 ms on.
pub(crate) fn milliseconds(us: u64) -> String {
    format!("{} ms", decimal(float(us) / 1_000.0, if us < 100_000 { 2 } else { 0 }))
}

/// Milliseconds as seconds with one digit after the decimal point.
pub(crate) fn seconds(ms: u32) -> String {
    format!("{:.1} s", f64::from(ms) / 1_000.0)
}

/// Seconds since the start as `m:ss`, or `h:mm:ss` from an hour on.
pub(crate) fn elapsed(second: usize) -> String {
    if second >= 3_600 {
        format!("{}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
    } else {
        format!("{}:{:02}", second / 60, second % 60)
    }
}

/// A time of the Unix clock in UTC, to the minute; `?` outside the years that the calendar covers.
pub(crate) fn date(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| "?".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_calendar_dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_790_000_000_000), "2026-09-21 14:13 UTC");
        assert_eq!(date(u64::MAX), "?");
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!((grouped(999), grouped(1_000)), ("999".to_owned(), "1,000".to_owned()));
        assert_eq!(decimal(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(decimal(12.0, 0), "12");
    }
}
