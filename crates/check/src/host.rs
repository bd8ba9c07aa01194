//! Hosts and schemes as a proxy names them.
//!
//! Invariant: a host is compared in lower case, without a port and a last dot, and an address in its shortest form. What is left is no
//! host if it has other signs: proxies and apps may read any host in it, so it is refused.

use std::{borrow::Cow, net::Ipv6Addr};

/// A host in lower case, without a port and a last dot. See [`is_name`].
#[must_use]
pub fn bare(host: &[u8]) -> Cow<'_, str> {
    let host = host.trim_ascii();
    let name = match host.iter().rposition(|b| *b == b':') {
        // The colons of an IPv6 address are in brackets.
        Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => &host[..at],
        _ => host,
    };
    let end = name.iter().rposition(|b| *b != b'.').map_or(0, |last| last + 1);
    let name = String::from_utf8_lossy(&name[..end]);
    if let Some(address) = address(&name) {
        return format!("[{address}]").into();
    }
    if name.bytes().any(|b| b.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name }
}

/// The address in brackets.
fn address(name: &str) -> Option<Ipv6Addr> {
    name.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Whether a bare host is one: letters, digits, `-`, `_` and dots, or an address in brackets. Some proxies take `a.example:x`,
/// `x,a.example` and `a.example:80@x` for `a.example`.
#[must_use]
pub fn is_name(host: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !host.is_empty() && host.bytes().all(is_plain) || address(host).is_some()
}

/// Whether the visitor uses HTTPS, by the schemes of the hops. A list of proxies names its first hop first.
#[must_use]
pub fn is_https(schemes: &[u8]) -> bool {
    schemes.split(|b| *b == b',').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(b"https")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_bare() {
        for (given, expected) in [
            ("Shop.Example", "shop.example"),
            ("shop.example.:443", "shop.example"),
            ("[2001:DB8::1]:443", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[0:0::0:1]:80", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(bare(given.as_bytes()), expected, "{given}");
            assert_eq!(is_name(expected), !expected.is_empty(), "{expected}");
        }
        for odd in [
            "shop.example, other.example",
            "x,shop.example",
            "shop.example:x",
            "shop.example:-1",
            "shop.example:80:x",
            "shop.example:80@x",
            "shop.example:80;x",
            "shop.example/x",
            "shop.example x",
            "user@shop.example",
            "shop%2eexample",
            "[::1",
            "[::1]x",
            "::1",
            "\u{c1fc}\u{d551}.example",
        ] {
            assert!(!is_name(&bare(odd.as_bytes())), "{odd}");
        }
    }

    #[test]
    fn the_first_hop_says_whether_the_visitor_uses_https() {
        for (schemes, is) in
            [(&b"https"[..], true), (b"HTTPS, http", true), (b"http, https", false), (b"\xff", false)]
        {
            assert_eq!(is_https(schemes), is, "{schemes:?}");
        }
    }
}
