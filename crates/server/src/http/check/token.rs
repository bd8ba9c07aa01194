//! Bypass tokens: what a request carries, and what the keys say about it.
//!
//! A token comes in the header `Weir-Token`, in a cookie, or in the query of the address, as in `?weir-token=…`. One of the query is
//! given to the browser as a cookie, so that it counts for the next pages too. Invariant: a token is written to no log and no reply
//! but that cookie.

use admission::{BypassToken, Seals};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use super::cookie;

/// The header with a token.
const HEADER: HeaderName = HeaderName::from_static("weir-token");

/// The field of the query with a token.
const FIELD: &str = "weir-token";

/// The most tokens of a request that are looked at.
const MOST: usize = 4;

/// The valid tokens of a request.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Their names.
    pub(super) names: Vec<String>,
    /// The cookie for a token that came in the query, and its name.
    given: Option<(String, HeaderValue)>,
}

impl Tokens {
    /// Reads those of a request to `target`, at `now_s` in seconds since 1970. `address` is the digest of the client's.
    pub(super) fn of(
        seals: &Seals,
        headers: &HeaderMap,
        target: &str,
        (is_secure, address, now_s): (bool, u64, u64),
    ) -> Self {
        let cookie_name = cookie::of_token_name(is_secure);
        let in_query = query_field(target);
        let in_header = headers.get_all(HEADER).iter().filter_map(|value| value.to_str().ok());
        let shown = in_query.into_iter().chain(in_header).chain(cookie::values(headers, cookie_name));
        let sealer = seals.bypass_sealer();
        let mut found = Self::default();
        for text in shown.take(MOST) {
            let Ok(token) = sealer.open(text.as_bytes()) else { continue };
            if !token.counts(now_s, address) {
                continue;
            }
            if in_query == Some(text) && found.given.is_none() {
                let cookie = cookie::of_token(cookie_name, text, token.expires_s - now_s, is_secure);
                found.given = Some((token.name.clone(), cookie));
            }
            found.names.push(token.name);
        }
        found
    }

    /// The cookie with which the next requests carry a token of one of these names, if this one came in the query.
    pub(super) fn cookie_for(self, wanted: impl Fn(&str) -> bool) -> Option<HeaderValue> {
        self.given.and_then(|(name, cookie)| wanted(&name).then_some(cookie))
    }
}

/// A token for a client at `address`, if it is bound to one. For `weir route token`.
#[must_use]
pub fn make(seals: &Seals, name: &str, expires_s: u64, address: Option<std::net::IpAddr>) -> String {
    let address = address.map_or(0, super::address_digest);
    seals.bypass_sealer().seal(&BypassToken { name: name.to_owned(), expires_s, address })
}

/// The value of the field in a target's query.
fn query_field(target: &str) -> Option<&str> {
    let (_, query) = target.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(name, value)| (name == FIELD).then_some(value))
}

#[cfg(test)]
mod tests {
    use admission::SealKey;

    use super::*;

    const NOW_S: u64 = 1_790_000_000;

    fn seals(byte: u8) -> Seals {
        Seals::only(SealKey { id: byte, secret: [byte; 32] })
    }

    fn names(headers: &[(&'static str, String)], target: &str, address: u64) -> Vec<String> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        Tokens::of(&seals(1), &all, target, (false, address, NOW_S)).names
    }

    #[test]
    fn a_token_is_found_wherever_it_may_be() {
        let press = make(&seals(1), "press", NOW_S + 60, None);
        assert_eq!(names(&[("weir-token", press.clone())], "/", 1), ["press"]);
        assert_eq!(names(&[("cookie", format!("a=b; weir.token={press}"))], "/", 1), ["press"]);
        assert_eq!(names(&[], &format!("/a?b=c&weir-token={press}#x"), 1), ["press"]);
        assert!(names(&[], &format!("/weir-token={press}"), 1).is_empty());
    }

    #[test]
    fn a_foreign_late_or_altered_token_is_none() {
        let carried = |text: String, address: u64| names(&[("weir-token", text)], "/", address);
        let here: std::net::IpAddr = [203, 0, 113, 7].into();
        let bound = make(&seals(1), "press", NOW_S + 60, Some(here));
        assert_eq!(carried(bound.clone(), super::super::address_digest(here)), ["press"]);
        assert!(carried(bound, 1).is_empty(), "of another address");
        assert!(carried(make(&seals(2), "press", NOW_S + 60, None), 1).is_empty(), "of another key");
        assert!(carried(make(&seals(1), "press", NOW_S, None), 1).is_empty(), "ended");
        assert!(carried(make(&seals(1), "press", NOW_S + 60, None) + "A", 1).is_empty(), "altered");
    }

    #[test]
    fn only_a_token_of_the_query_is_given_as_a_cookie() {
        let press = make(&seals(1), "press", NOW_S + 60, None);
        let of = |target: &str, headers: &HeaderMap| Tokens::of(&seals(1), headers, target, (true, 1, NOW_S));
        let query = of(&format!("/?weir-token={press}"), &HeaderMap::new());
        let cookie = query.cookie_for(|name| name == "press").expect("a cookie");
        let expected =
            format!("__Host-weir.token={press}; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure");
        assert_eq!(cookie.to_str().expect("text"), expected);
        let other = of(&format!("/?weir-token={press}"), &HeaderMap::new());
        assert!(other.cookie_for(|name| name == "other").is_none());
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(&press).expect("text"))]);
        let header = of("/", &headers);
        assert!(header.names == ["press"] && header.cookie_for(|_| true).is_none());
    }
}
