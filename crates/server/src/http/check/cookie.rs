//! The cookie that holds a visitor's place or visit: one for each zone.
//!
//! Over HTTPS its name begins with `__Host-` ([RFC 6265bis](https://datatracker.ietf.org/doc/draft-ietf-httpbis-rfc6265bis/)), so
//! that neither another host nor a page without TLS can plant one. Invariant: a page's script cannot read it, and the requests of other
//! sites' forms do not bring it along.

use std::{fmt::Write as _, str};

use admission::ZoneId;
use hyper::{
    HeaderMap,
    header::{COOKIE, HeaderName, HeaderValue},
};

/// The header in which a proxy repeats a cookie that Weir gave out for this very request, in the form of `Set-Cookie`.
pub(super) const GIVEN: HeaderName = HeaderName::from_static("weir-cookie");

/// How long a browser keeps the cookie of a place, in seconds. A place that is silent is gone sooner; a browser that slept finds that
/// out when it asks.
const PLACE_S: u64 = 3_600;

/// What a cookie holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held<'a> {
    /// The token of a place.
    Place(&'a str),
    /// A sealed visit.
    Visit(&'a str),
}

/// The name of a zone's cookie: operators write it into the configuration of some proxies. `is_secure` says whether the visitor uses
/// HTTPS.
pub(super) fn name(zone: &ZoneId, is_secure: bool) -> String {
    let prefix = if is_secure { "__Host-" } else { "" };
    // A cookie's name has no colon, and a zone's no tilde.
    format!("{prefix}weir-{}", zone.as_str().replace(':', "~"))
}

/// The values of the cookies of this name.
pub(super) fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(move |pair| {
        let (of, value) = pair.trim().split_once('=')?;
        (of == name).then_some(value)
    })
}

/// What the zone's cookie holds: what the proxy has just been given, otherwise what the browser sent. If there are several, the first.
pub(super) fn held<'a>(headers: &'a HeaderMap, name: &'a str) -> Option<Held<'a>> {
    let given = headers.get(GIVEN).and_then(|line| line.to_str().ok());
    let given = given.and_then(|line| line.split(';').next()?.trim().split_once('='));
    let given = given.and_then(|(of, value)| (of == name).then_some(value));
    given.into_iter().chain(values(headers, name)).find_map(|value| {
        if let Some(token) = value.strip_prefix('p') {
            Some(Held::Place(token))
        } else {
            value.strip_prefix('v').map(Held::Visit)
        }
    })
}

/// `Set-Cookie` for a place.
pub(super) fn of_place(name: &str, token: &[u8], is_secure: bool) -> HeaderValue {
    set(name, "p", token, PLACE_S, is_secure)
}

/// `Set-Cookie` for a visit that ends in `left_s` seconds at the latest.
pub(super) fn of_visit(name: &str, sealed: &[u8], left_s: u64, is_secure: bool) -> HeaderValue {
    set(name, "v", sealed, left_s, is_secure)
}

/// `Set-Cookie` that removes the cookie.
pub(super) fn none(name: &str, is_secure: bool) -> HeaderValue {
    set(name, "v", b"", 0, is_secure)
}

/// The name of the cookie with a bypass token. The cookies of zones begin with `weir-`.
pub(super) fn of_token_name(is_secure: bool) -> &'static str {
    if is_secure { "__Host-weir.token" } else { "weir.token" }
}

/// `Set-Cookie` for a bypass token that ends in `left_s` seconds.
pub(super) fn of_token(name: &str, token: &str, left_s: u64, is_secure: bool) -> HeaderValue {
    set(name, "", token.as_bytes(), left_s, is_secure)
}

fn set(name: &str, kind: &str, value: &[u8], age_s: u64, is_secure: bool) -> HeaderValue {
    let value = str::from_utf8(value).expect("seals are base64url");
    let mut line = format!("{name}={kind}{value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax");
    if is_secure {
        let written = line.write_str("; Secure");
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    }
    HeaderValue::try_from(line).expect("printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::{super::tests::headers, *};

    #[test]
    fn each_zone_has_its_own_cookie_and_https_its_own_name() {
        let zone = |id| ZoneId::parse(id).expect("a zone");
        assert_eq!(name(&zone("shop:a.b"), false), "weir-shop~a.b");
        assert_eq!(name(&zone("shop:a.b"), true), "__Host-weir-shop~a.b");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let found =
            headers(&[("cookie", "a=1; weir-x=pTOKEN"), ("cookie", "weir-y=vVISIT;b=2; weir-x=pOTHER")]);
        assert_eq!(held(&found, "weir-x"), Some(Held::Place("TOKEN")));
        assert_eq!(held(&found, "weir-y"), Some(Held::Visit("VISIT")));
        assert_eq!(held(&found, "weir-z"), None);
        assert_eq!(
            held(&headers(&[("cookie", "weir-x; weir-x=; weir-x=q1; weir-x=pA")]), "weir-x"),
            Some(Held::Place("A"))
        );
    }

    #[test]
    fn what_the_proxy_was_given_counts_before_what_the_browser_sent() {
        let found = headers(&[("cookie", "weir-x=pOLD"), ("weir-cookie", "weir-x=vNEW; Path=/; HttpOnly")]);
        assert_eq!(held(&found, "weir-x"), Some(Held::Visit("NEW")));
        assert_eq!(held(&found, "weir-y"), None);
    }

    #[test]
    fn cookies_are_closed_to_scripts_and_other_sites() {
        let of = |value: HeaderValue| value.to_str().expect("text").to_owned();
        assert_eq!(
            of(of_place("weir-x", b"T", false)),
            "weir-x=pT; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"
        );
        assert_eq!(
            of(of_visit("__Host-weir-x", b"V", 7, true)),
            "__Host-weir-x=vV; Path=/; Max-Age=7; HttpOnly; SameSite=Lax; Secure"
        );
    }
}
