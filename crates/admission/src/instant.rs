//! Instants that operators write, in whole seconds.
//!
//! An instant is written as RFC 3339 has it (`2026-12-01T08:00:00Z`), or with the name of a time zone as RFC 9557 has it
//! (`2026-12-01T09:00[Europe/Berlin]`). Invariant: a text that is read without an error means one instant. A time of day that the
//! clocks of its zone skip, or show twice, is refused.

use std::ops::RangeInclusive;

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    fmt::temporal::{DateTimeParser, Pieces},
    tz::{AmbiguousOffset, Disambiguation, OffsetConflict},
};

/// A text is no instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstantFault {
    /// It is written in another way.
    #[error("is not an instant: write a date and a time of day, as in {INSTANTS}")]
    Form,
    /// A space stands before, in or behind it.
    #[error("has a space: write the date, T and the time of day without one, as in {INSTANTS}")]
    Space,
    /// No calendar has its date.
    #[error("has the date {0:?}, which no calendar has: write year, month and day, as in {INSTANTS}")]
    Date(String),
    /// No clock shows its time of day.
    #[error(
        "has the time of day {0:?}, which no clock shows: write 00:00 to 23:59:59, two digits each, as in {INSTANTS}"
    )]
    Time(String),
    /// It is a date.
    #[error("has no time of day: write it behind a T, as in {INSTANTS}")]
    NoTime,
    /// Nothing says where on earth the clocks show it.
    #[error("has neither a time zone nor an offset: write {INSTANTS}")]
    NoZone,
    /// What stands behind the time of day is neither a time zone nor an offset.
    #[error("ends in {0:?}, which is neither a time zone in square brackets nor an offset: write {INSTANTS}")]
    Behind(String),
    /// There is no such time zone.
    #[error(
        "names the time zone {0:?}, which is not known: write its long name, as in 2026-12-01T09:00[Asia/Seoul]"
    )]
    UnknownZone(String),
    /// No place on earth has this offset.
    #[error("has the offset {0}, which no place has: write one from -12:00 to +14:00, or a time zone")]
    Offset(String),
    /// The time zone has another offset.
    #[error("has an offset that is not that of its time zone then: leave the offset out, or correct it")]
    OtherOffset,
    /// The time zone's clocks skip this time of day.
    #[error(
        "is a time of day that the clocks of this time zone skip on that day; write the one that they show then, often an hour later"
    )]
    Skipped,
    /// The time zone's clocks show this time of day twice.
    #[error(
        "is a time of day that the clocks of this time zone show twice on that day; say which by an offset, as in \
         2026-10-25T02:30+01:00[Europe/Berlin]"
    )]
    Twice,
    /// It has a fraction of a second.
    #[error("has a fraction of a second; instants are whole seconds")]
    Fraction,
    /// It is before 1970 or after 2106.
    #[error("is not between 1970 and 2106")]
    Range,
}

/// The ways to write an instant.
const INSTANTS: &str =
    "2026-12-01T09:00[Asia/Seoul], with an offset 2026-12-01T09:00+09:00, or in UTC 2026-12-01T00:00:00Z";

/// The offsets from UTC that places have, in seconds: from twelve hours behind to fourteen hours ahead.
const OFFSETS_S: RangeInclusive<i32> = -12 * 3_600..=14 * 3_600;

/// Reads an instant. Returns the seconds since 1970-01-01 UTC, not 0.
///
/// # Errors
/// An [`InstantFault`].
///
/// # Examples
/// ```
/// use admission::parse_instant;
/// assert_eq!(parse_instant("2026-12-01T08:00:00Z"), parse_instant("2026-12-01T09:00[Europe/Berlin]"));
/// assert!(parse_instant("2026-03-29T02:30[Europe/Berlin]").is_err(), "the clocks skip it");
/// ```
pub fn parse_instant(text: &str) -> Result<u32, InstantFault> {
    const PARSER: DateTimeParser =
        DateTimeParser::new().offset_conflict(OffsetConflict::Reject).disambiguation(Disambiguation::Reject);
    // jiff reads a space between date and time, too. Instants are words of texts.
    if text.contains(char::is_whitespace) {
        let is_dated = date_of(text.trim_start()).is_some();
        return Err(if is_dated { InstantFault::Space } else { InstantFault::Form });
    }
    let read = if text.contains('[') {
        PARSER.parse_zoned(text).map(|zoned| zoned.timestamp())
    } else {
        text.parse::<Timestamp>()
    };
    // jiff's own sentences name parts of its grammar, and no way to write an instant.
    let instant = read.map_err(|_| whole(text).or_else(|| without(text)).unwrap_or(InstantFault::Form))?;
    if let Some(offset) = Pieces::parse(text).ok().and_then(|pieces| pieces.to_numeric_offset())
        && !OFFSETS_S.contains(&offset.seconds())
    {
        return Err(InstantFault::Offset(offset.to_string()));
    }
    if instant.subsec_nanosecond() != 0 {
        return Err(InstantFault::Fraction);
    }
    u32::try_from(instant.as_second()).ok().filter(|&second| second > 0).ok_or(InstantFault::Range)
}

/// The date that a text begins with, as it is written, and the rest.
fn date_of(text: &str) -> Option<(&str, &str)> {
    let (date, rest) = text.split_at_checked("2026-12-01".len())?;
    let is_right = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    date.bytes().enumerate().all(is_right).then_some((date, rest))
}

/// Why a text that begins as an instant, and lacks a part of it, is none.
fn without(text: &str) -> Option<InstantFault> {
    let (date, rest) = date_of(text)?;
    if date.parse::<Date>().is_err() {
        return Some(InstantFault::Date(date.to_owned()));
    }
    let Some(time) = rest.strip_prefix(['T', 't']) else { return Some(InstantFault::NoTime) };
    let digits = time.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(time.len());
    let (time, behind) = time.split_at(digits);
    Some(match behind {
        _ if time.is_empty() => InstantFault::NoTime,
        _ if format!("{date}T{time}").parse::<DateTime>().is_err() => InstantFault::Time(time.to_owned()),
        "" => InstantFault::NoZone,
        _ => InstantFault::Behind(behind.to_owned()),
    })
}

/// Why a text with a date, a time of day, and a time zone or an offset means no instant.
fn whole(text: &str) -> Option<InstantFault> {
    let pieces = Pieces::parse(text).ok()?;
    let Ok(zone) = pieces.to_time_zone() else {
        let name = text.split(['[', ']']).nth(1).unwrap_or_default();
        return Some(InstantFault::UnknownZone(name.to_owned()));
    };
    let (local, has_offset) = (pieces.date().to_datetime(pieces.time()?), pieces.offset().is_some());
    let Some(zone) = zone else {
        // With an offset it is an instant, and only the range is left. A bracket is no time zone then.
        return (has_offset && !text.contains('[')).then_some(InstantFault::Range);
    };
    Some(match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Gap { .. } => InstantFault::Skipped,
        AmbiguousOffset::Fold { .. } if !has_offset => InstantFault::Twice,
        _ if has_offset => InstantFault::OtherOffset,
        _ => InstantFault::Range,
    })
}

/// An instant in UTC, as RFC 3339 has it.
#[must_use]
pub fn instant_text(unix_s: u32) -> String {
    Timestamp::from_second(unix_s.into()).map_or_else(|_| String::new(), |instant| instant.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_with_the_zone_that_they_name() {
        let read = |text| parse_instant(text).map(instant_text);
        for (text, utc) in [
            ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"),
            ("2026-12-01T08:00Z", "2026-12-01T08:00:00Z"),
            ("2026-12-01T17:00:00+09:00", "2026-12-01T08:00:00Z"),
            ("2026-12-01T09:00[Europe/Berlin]", "2026-12-01T08:00:00Z"),
            ("2026-07-01T09:00[Europe/Berlin]", "2026-07-01T07:00:00Z"),
            ("2026-12-01T17:00:00[Asia/Seoul]", "2026-12-01T08:00:00Z"),
            ("2026-10-25T02:30+02:00[Europe/Berlin]", "2026-10-25T00:30:00Z"),
            ("2026-10-25T02:30+01:00[Europe/Berlin]", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(utc), "{text}");
        }
    }

    #[test]
    fn a_time_that_the_clocks_skip_or_show_twice_is_refused() {
        for text in ["2026-03-29T02:30[Europe/Berlin]", "2026-03-29T02:30+01:00[Europe/Berlin]"] {
            assert_eq!(parse_instant(text), Err(InstantFault::Skipped), "{text}");
        }
        assert_eq!(parse_instant("2026-10-25T02:30[Europe/Berlin]"), Err(InstantFault::Twice));
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in ["", "none", "0", "1790000000", "tomorrow"] {
            assert_eq!(parse_instant(text), Err(InstantFault::Form), "{text:?}");
        }
        for (text, fault) in [
            ("2026-12-01", InstantFault::NoTime),
            ("2026-12-01Z", InstantFault::NoTime),
            ("2026-12-01+09:00", InstantFault::NoTime),
            ("2026-12-01+09:00[Asia/Seoul]", InstantFault::NoTime),
            ("2026-12-01T08:00", InstantFault::NoZone),
            ("2026-12-01T08:00:00", InstantFault::NoZone),
            ("2026-12-01T09:00KST", InstantFault::Behind("KST".to_owned())),
            ("2026-12-01T09:00Asia/Seoul", InstantFault::Behind("Asia/Seoul".to_owned())),
            ("2026-12-01T09:00+9", InstantFault::Behind("+9".to_owned())),
            ("2026-12-01T09:00[Europe/Nowhere]", InstantFault::UnknownZone("Europe/Nowhere".to_owned())),
            ("2026-12-01T09:00[KST]", InstantFault::UnknownZone("KST".to_owned())),
            ("2026-12-01T09:00+05:00[Europe/Berlin]", InstantFault::OtherOffset),
            ("2026-12-01T09:00:00+25:00", InstantFault::Offset("+25".to_owned())),
            ("2026-12-01T09:00:00-12:30", InstantFault::Offset("-12:30".to_owned())),
        ] {
            assert_eq!(parse_instant(text), Err(fault.clone()), "{text}");
            let said = fault.to_string();
            assert!(said.contains("write") || said.contains("leave"), "{text} {said}");
        }
        assert_eq!(parse_instant("2026-12-01T08:00:00.5Z"), Err(InstantFault::Fraction));
        for text in
            ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2106-02-07T06:28:16Z", "9999-12-01T00:00:00Z"]
        {
            assert_eq!(parse_instant(text), Err(InstantFault::Range), "{text}");
        }
    }

    #[test]
    fn what_is_no_instant_is_said_in_words_of_ours() {
        for (text, why) in [
            ("", "is not an instant"),
            ("tomorrow", "is not an instant"),
            ("next week", "is not an instant"),
            ("0", "is not an instant"),
            ("1790000000", "is not an instant"),
            ("soon[Asia/Seoul]", "is not an instant"),
            ("26-12-01T09:00Z", "is not an instant"),
            ("곧 시작합니다", "is not an instant"),
            ("2026-12-01 09:00Z", "has a space"),
            ("2026-12-01T09:00Z ", "has a space"),
            ("2026-13-01T09:00Z", "has the date \"2026-13-01\""),
            ("2026-02-29", "has the date \"2026-02-29\""),
            ("2026-12-01T24:00Z", "has the time of day \"24:00\""),
            ("2026-12-01T9:00[Asia/Seoul]", "has the time of day \"9:00\""),
            ("2026-12-01Tnoon", "has no time of day"),
            ("2026-12-01T09:00[Asia/Seoul", "ends in \"[Asia/Seoul\""),
            ("2026-12-01T09:00+26:00", "ends in \"+26:00\""),
            ("2026-12-01T09:00Z[u-ca=iso8601]", "ends in \"Z[u-ca=iso8601]\""),
        ] {
            let said = parse_instant(text).expect_err(text).to_string();
            let is_ours = said.starts_with(why) && said.contains("write") && said.ends_with(INSTANTS);
            assert!(is_ours, "{text}: {said}");
        }
        for text in ["9999-12-31T23:59Z", "9999-12-31T23:59[America/New_York]"] {
            assert_eq!(parse_instant(text), Err(InstantFault::Range), "{text}");
        }
    }
}
