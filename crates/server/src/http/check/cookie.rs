//! Cookies as replies give them out: the one of a zone, which holds a visitor's place or visit, and the one of a bypass token.
//!
//! `check::cookie` reads them. Invariant: a page's script cannot read them, and the requests of other sites' forms do not bring them
//! along.

use std::{fmt::Write as _, str};

use hyper::header::HeaderValue;

/// How long a browser keeps the cookie of a place, in seconds. A place that is silent is gone sooner; a browser that slept finds that
/// out when it asks.
const PLACE_S: u64 = 3_600;

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
    use super::*;

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
        assert_eq!(
            of(of_token("weir.token", "T", 60, false)),
            "weir.token=T; Path=/; Max-Age=60; HttpOnly; SameSite=Lax"
        );
    }
}
