//! Cookies as replies give them out: the one of a zone, which holds a visitor's place or visit, and the one of a bypass token.
//!
//! `check::cookie` reads them. Invariant: a page's script cannot read them. The cookie of a zone comes along with the forms of other
//! sites: a visitor who returns from paying elsewhere keeps the visit. It gives no right but to be inside.

use std::str;

use hyper::header::HeaderValue;

/// How long a browser keeps the cookie of a place, in seconds. A place that is silent is gone sooner; a browser that slept finds that
/// out when it asks.
const PLACE_S: u64 = 3_600;

/// `Set-Cookie` for a place.
pub(super) fn of_place(name: &str, token: &[u8], is_secure: bool) -> HeaderValue {
    set(name, "p", token, PLACE_S, OfSite::Any, is_secure)
}

/// `Set-Cookie` for a visit that ends in `left_s` seconds at the latest.
pub(super) fn of_visit(name: &str, sealed: &[u8], left_s: u64, is_secure: bool) -> HeaderValue {
    set(name, "v", sealed, left_s, OfSite::Any, is_secure)
}

/// `Set-Cookie` that removes the cookie.
pub(super) fn none(name: &str, is_secure: bool) -> HeaderValue {
    set(name, "v", b"", 0, OfSite::Any, is_secure)
}

/// `Set-Cookie` for a bypass token that ends in `left_s` seconds.
pub(super) fn of_token(name: &str, token: &str, left_s: u64, is_secure: bool) -> HeaderValue {
    set(name, "", token.as_bytes(), left_s, OfSite::Own, is_secure)
}

/// Whose pages' forms and scripts bring a cookie along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfSite {
    Own,
    /// Those of any site. Browsers take `SameSite=None` only together with `Secure`. Without HTTPS nothing is said: some browsers then
    /// send the cookie with forms of other sites, and Chromium does for two minutes
    /// ([Lax-allowing-unsafe](https://datatracker.ietf.org/doc/draft-ietf-httpbis-rfc6265bis/)).
    Any,
}

fn set(name: &str, kind: &str, value: &[u8], age_s: u64, of: OfSite, is_secure: bool) -> HeaderValue {
    let value = str::from_utf8(value).expect("seals are base64url");
    let mut line = format!("{name}={kind}{value}; Path=/; Max-Age={age_s}; HttpOnly");
    line.push_str(match (of, is_secure) {
        (OfSite::Own, false) => "; SameSite=Lax",
        (OfSite::Own, true) => "; SameSite=Lax; Secure",
        (OfSite::Any, false) => "",
        (OfSite::Any, true) => "; SameSite=None; Secure",
    });
    HeaderValue::try_from(line).expect("printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_read_no_cookie_and_forms_of_other_sites_bring_places_and_visits() {
        let of = |value: HeaderValue| value.to_str().expect("text").to_owned();
        assert_eq!(of(of_place("weir-x", b"T", false)), "weir-x=pT; Path=/; Max-Age=3600; HttpOnly");
        assert_eq!(
            of(of_visit("__Host-weir-x", b"V", 7, true)),
            "__Host-weir-x=vV; Path=/; Max-Age=7; HttpOnly; SameSite=None; Secure"
        );
        assert_eq!(
            of(of_token("__Host-weir.token", "T", 60, true)),
            "__Host-weir.token=T; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure"
        );
    }
}
