//! How numbers, bytes, instants and names are written.
//!
//! Invariant: each value has exactly one spelling. A text that means the same in another spelling is refused, so that two
//! texts that differ never count as one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;

/// The last second that has a spelling: 9999-12-30T22:00:00Z, the end of jiff's range without its fraction.
const LAST_S: u64 = 253_402_207_200;

/// A number in decimal digits, without a sign and without leading zeros.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_canonical = text == "0" || !text.starts_with('0');
    if text.is_empty() || !is_canonical || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Bytes in the standard alphabet of base64, with padding.
pub(crate) fn to_base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// The inverse of [`to_base64`]. The engine refuses missing padding and bits that are left over.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Bytes in lower-case hex.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is a hex digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The inverse of [`to_hex`]. Upper case is refused.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (digits, mut bytes) = (text.as_bytes(), [0; N]);
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

/// An instant as `2026-11-27T11:00:00Z`: RFC 3339 in UTC, whole seconds.
pub(crate) fn to_instant(unix_s: u64) -> Option<String> {
    let seconds = i64::try_from(unix_s.min(LAST_S + 1)).ok()?;
    Timestamp::from_second(seconds).ok().filter(|_| unix_s <= LAST_S).map(|instant| instant.to_string())
}

/// The inverse of [`to_instant`], in seconds since 1970.
pub(crate) fn from_instant(text: &str) -> Option<u64> {
    let instant: Timestamp = text.parse().ok()?;
    let unix_s = u64::try_from(instant.as_second()).ok()?;
    (to_instant(unix_s).as_deref() == Some(text)).then_some(unix_s)
}

/// The name of an event or a zone: 1 to 64 of `A-Z a-z 0-9 _ . : -`, and neither `.` nor `..`, as zones are named in Weir.
pub(crate) fn is_id(text: &str) -> bool {
    let right = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=64).contains(&text.len()) && !matches!(text, "." | "..") && text.bytes().all(right)
}

/// The name of our key: 1 to 128 visible ASCII characters without `+`.
pub(crate) fn is_key_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'+')
}

/// A text of one line: 1 to 1,024 bytes of UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F), and without
/// a space at its ends.
pub(crate) fn is_line(text: &str) -> bool {
    let has_margin = text.starts_with(' ') || text.ends_with(' ');
    (1..=1_024).contains(&text.len()) && !has_margin && !text.chars().any(char::is_control)
}

/// A text as it is shown: control characters, line separators (U+2028, U+2029) and the characters that change the direction of
/// writing become `\u{…}`. So a source or a value cannot look like another line of a report.
#[must_use]
pub fn shown(text: &str) -> String {
    let is_hidden = |char: char| {
        let is_bidi = matches!(char, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        char.is_control() || is_bidi || matches!(char, '\u{2028}' | '\u{2029}')
    };
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if is_hidden(char) {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_one_spelling() {
        assert_eq!((number("0"), number("600000")), (Some(0), Some(600_000)));
        for wrong in ["", "00", "01", "+1", "-1", "1 ", "1.0", "１", "18446744073709551616"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bytes_have_one_spelling() {
        assert_eq!(from_hex::<2>("0aff"), Some([10, 255]));
        assert_eq!(to_hex(&[10, 255]), "0aff");
        assert!(["0aFF", "0af", "0aff0", "0a f", "0ag0"].iter().all(|wrong| from_hex::<2>(wrong).is_none()));
        assert_eq!(from_base64(&to_base64([1])), Some(vec![1]));
        // Without padding, with bits left over, with a line break.
        assert!(["AQ", "AR==", "AQ==\n", "AQ=", "-_=="].iter().all(|wrong| from_base64(wrong).is_none()));
    }

    #[test]
    fn what_would_change_a_line_is_shown_escaped() {
        assert_eq!(shown("추첨 é 6/45 \\ \""), "추첨 é 6/45 \\ \"");
        assert_eq!(shown("a\u{2028}b\u{202e}c\u{85}\n"), "a\\u{2028}b\\u{202e}c\\u{85}\\u{a}");
        let hidden = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202d}\u{2029}\u{2066}\u{2069}\u{7f}";
        assert!(shown(hidden).is_ascii() && !shown(hidden).contains('\u{7f}'));
    }

    #[test]
    fn instants_have_one_spelling() {
        assert_eq!(to_instant(1_692_803_367).as_deref(), Some("2023-08-23T15:09:27Z"));
        assert_eq!(from_instant("2023-08-23T15:09:27Z"), Some(1_692_803_367));
        assert_eq!(from_instant("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(from_instant(&to_instant(LAST_S).expect("in the range")), Some(LAST_S));
        assert_eq!(to_instant(LAST_S).as_deref(), Some("9999-12-30T22:00:00Z"));
        assert_eq!(to_instant(LAST_S + 1), None);
        for wrong in [
            "2023-08-23T15:09:27+00:00",
            "2023-08-23T15:09:27.0Z",
            "2023-08-23t15:09:27Z",
            "2023-08-23 15:09:27Z",
            "2016-12-31T23:59:60Z",
            "2023-02-30T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2023-08-23T15:09Z",
            "2023-08-23T24:00:00Z",
            "9999-12-30T22:00:01Z",
        ] {
            assert_eq!(from_instant(wrong), None, "{wrong}");
        }
    }
}
