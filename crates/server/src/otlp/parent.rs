//! The header `traceparent` of a caller: [W3C Trace Context](https://www.w3.org/TR/trace-context/).
//!
//! Invariant: a header that is not exactly one, and exactly as the document says, is none: the request begins a trace. `tracestate` is not
//! read, because Weir calls nobody on behalf of a request, and an outsider may write anything into it.

use hyper::{HeaderMap, header::HeaderName};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a header of version 00: four fields in hex, and three dashes.
const LEN: usize = 55;

/// The longest header of a later version, which may have more fields.
const MOST: usize = 256;

/// The span of the caller that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// The caller keeps this trace.
    pub(super) is_sampled: bool,
}

impl Parent {
    /// The parent that a request names.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(TRACEPARENT)?;
        // Of two, nobody knows which one counts.
        if headers.get_all(TRACEPARENT).iter().nth(1).is_some() {
            return None;
        }
        Self::parse(value.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(LEN)?;
        let [version] = hex(&known[..2])?;
        let is_whole = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => text.len() <= MOST && more.first().is_none_or(|next| *next == b'-'),
        };
        let has_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        let (trace_id, span_id) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_right = is_whole && has_dashes && trace_id != [0; 16] && span_id != [0; 8];
        is_right.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// Bytes from lower-case hex.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    debug_assert_eq!(text.len(), 2 * N);
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const RIGHT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(lines: &[&[u8]]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TRACEPARENT, HeaderValue::from_bytes(line).expect("a value"));
        }
        Parent::of(&headers)
    }

    #[test]
    fn a_right_one_is_continued() {
        let parent = of(&[RIGHT.as_bytes()]).expect("right");
        assert_eq!(parent.trace_id[..3], [0x4b, 0xf9, 0x2f]);
        assert_eq!((parent.span_id[7], parent.is_sampled), (0xb7, true));
        let unsampled = RIGHT.replace("-01", "-00");
        assert_eq!(of(&[unsampled.as_bytes()]).map(|parent| parent.is_sampled), Some(false));
        // Flags that are not known yet.
        assert!(of(&[RIGHT.replace("-01", "-03").as_bytes()]).is_some_and(|parent| parent.is_sampled));
        let later = format!("cc{}-more", &RIGHT[2..]);
        assert_eq!(of(&[later.as_bytes()]), Some(parent));
    }

    #[test]
    fn wrong_ones_are_none() {
        let upper = RIGHT.to_uppercase();
        let later_without_dash = format!("cc{}x", &RIGHT[2..]);
        let too_long = format!("cc{}-{}", &RIGHT[2..], "x".repeat(MOST));
        let wrong: [&str; 14] = [
            "",
            "00",
            &RIGHT[..54],
            &format!("{RIGHT}-00"),
            &format!("{RIGHT}x"),
            &upper,
            &RIGHT.replace("00-4b", "ff-4b"),
            &RIGHT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            &RIGHT.replace("00f067aa0ba902b7", "0000000000000000"),
            &RIGHT.replace("4bf9", "4bg9"),
            &RIGHT.replacen('-', "_", 1),
            &later_without_dash,
            &too_long,
            &format!(" {RIGHT}"),
        ];
        for wrong in wrong {
            assert_eq!(of(&[wrong.as_bytes()]), None, "{wrong}");
        }
        assert_eq!(of(&[&[0xff; LEN]]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[RIGHT.as_bytes(), RIGHT.as_bytes()]), None, "two of them");
    }
}
