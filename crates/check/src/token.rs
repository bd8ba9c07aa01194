//! Bypass tokens: what a request carries, and what the keys say about it.
//!
//! A token comes in the header `Weir-Token`, in a cookie, or in the query of the address, as in `?weir-token=…`. One of the query is
//! given to the browser as a cookie, so that it counts for the next pages too. Invariant: a token is written to no log and no reply
//! but that cookie.

use admission::{BypassSealer, BypassToken};
use http::{HeaderMap, header::HeaderName};

use crate::cookie::{self, MOST_TRIED};

/// The header with a token.
const HEADER: HeaderName = HeaderName::from_static("weir-token");

/// The field of the query with a token.
const FIELD: &[u8] = b"weir-token";

/// The most valid tokens of a request that count.
const MOST: usize = 4;

/// The name of the cookie with a bypass token. The cookies of zones begin with `weir-`.
#[must_use]
pub fn cookie_name(is_secure: bool) -> &'static str {
    if is_secure { "__Host-weir.token" } else { "weir.token" }
}

/// A token that came in the query. The browser gets it as a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The token's name.
    pub name: String,
    /// The token.
    pub text: String,
    /// How long it counts, in seconds.
    pub left_s: u64,
}

/// The valid tokens of a request.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Their names.
    pub names: Vec<String>,
    /// The one that came in the query.
    pub given: Option<Given>,
}

impl Tokens {
    /// Reads those of a request to `target`, at `now_s` in seconds since 1970. `client` is the digest of the client's address.
    #[must_use]
    pub fn of(
        sealer: &BypassSealer,
        headers: &HeaderMap,
        target: &[u8],
        (is_secure, client, now_s): (bool, u64, u64),
    ) -> Self {
        let in_query = query_field(target);
        let in_header = headers.get_all(HEADER).iter().map(http::HeaderValue::as_bytes);
        let shown =
            in_query.into_iter().chain(in_header).chain(cookie::values(headers, cookie_name(is_secure)));
        let mut found = Self::default();
        for text in shown.take(MOST_TRIED) {
            let Ok(token) = sealer.open(text) else { continue };
            if !token.counts(now_s, client) {
                continue;
            }
            if in_query == Some(text) && found.given.is_none() {
                let (name, text) = (token.name.clone(), String::from_utf8_lossy(text).into_owned());
                found.given = Some(Given { name, text, left_s: token.expires_s - now_s });
            }
            found.names.push(token.name);
            if found.names.len() == MOST {
                break;
            }
        }
        found
    }
}

/// A token for the client whose address has this digest; 0 for any. For `weir route token`.
#[must_use]
pub fn make(sealer: &BypassSealer, name: &str, expires_s: u64, client: u64) -> String {
    sealer.seal(&BypassToken { name: name.to_owned(), expires_s, address: client })
}

/// The value of the field in a target's query.
fn query_field(target: &[u8]) -> Option<&[u8]> {
    let query = &target[target.iter().position(|b| *b == b'?')? + 1..];
    let query = query.split(|b| *b == b'#').next().unwrap_or_default();
    query.split(|b| *b == b'&').find_map(|pair| pair.strip_prefix(FIELD)?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use admission::{SealKey, Seals};
    use http::{HeaderValue, header::COOKIE};

    use super::*;

    const NOW_S: u64 = 1_790_000_000;

    fn sealer(byte: u8) -> BypassSealer {
        Seals::only(SealKey { id: byte, secret: [byte; 32] }).bypass_sealer()
    }

    fn names(headers: &[(HeaderName, String)], target: &str, client: u64) -> Vec<String> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        Tokens::of(&sealer(1), &all, target.as_bytes(), (false, client, NOW_S)).names
    }

    #[test]
    fn a_token_is_found_wherever_it_may_be() {
        let press = make(&sealer(1), "press", NOW_S + 60, 0);
        assert_eq!(names(&[(HEADER, press.clone())], "/", 1), ["press"]);
        assert_eq!(names(&[(COOKIE, format!("a=b; weir.token={press}"))], "/", 1), ["press"]);
        assert_eq!(names(&[], &format!("/a?b=c&weir-token={press}#x"), 1), ["press"]);
        assert!(names(&[], &format!("/weir-token={press}"), 1).is_empty());
    }

    #[test]
    fn other_cookies_and_garbage_hide_no_token() {
        let press = make(&sealer(1), "press", NOW_S + 60, 0);
        let garbage = format!("weir.token={}; ", make(&sealer(2), "press", NOW_S + 60, 0)).repeat(100);
        assert_eq!(
            names(&[(COOKIE, format!("recent=한글; {garbage}weir.token={press}"))], "/", 1),
            ["press"]
        );
        assert_eq!(names(&[(HEADER, "한글".to_owned()), (HEADER, press)], "/", 1), ["press"]);
    }

    #[test]
    fn a_foreign_late_or_altered_token_is_none() {
        let carried = |text: String, client: u64| names(&[(HEADER, text)], "/", client);
        let bound = make(&sealer(1), "press", NOW_S + 60, 7);
        assert_eq!(carried(bound.clone(), 7), ["press"]);
        assert!(carried(bound, 1).is_empty(), "of another address");
        assert!(carried(make(&sealer(2), "press", NOW_S + 60, 0), 1).is_empty(), "of another key");
        assert!(carried(make(&sealer(1), "press", NOW_S, 0), 1).is_empty(), "ended");
        assert!(carried(make(&sealer(1), "press", NOW_S + 60, 0) + "A", 1).is_empty(), "altered");
    }

    #[test]
    fn only_a_token_of_the_query_is_given_to_the_browser() {
        let press = make(&sealer(1), "press", NOW_S + 60, 0);
        let of = |target: &str, headers: &HeaderMap| {
            Tokens::of(&sealer(1), headers, target.as_bytes(), (true, 1, NOW_S))
        };
        let query = of(&format!("/?weir-token={press}"), &HeaderMap::new());
        assert_eq!(query.given, Some(Given { name: "press".to_owned(), text: press.clone(), left_s: 60 }));
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(&press).expect("text"))]);
        let header = of("/", &headers);
        assert!(header.names == ["press"] && header.given.is_none());
    }
}
