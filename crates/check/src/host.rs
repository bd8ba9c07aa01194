//! Hosts and schemes as a proxy names them.
//!
//! Invariant: a host is compared in lower case, without a port and a last dot.

use std::borrow::Cow;

/// A host in lower case, without a port and a last dot. Of a list, the first.
#[must_use]
pub fn bare(host: &[u8]) -> Cow<'_, str> {
    let host = host.split(|b| *b == b',').next().unwrap_or_default().trim_ascii();
    let name = match host.iter().rposition(|b| *b == b':') {
        // The colons of an IPv6 address are in brackets.
        Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => &host[..at],
        _ => host,
    };
    let end = name.iter().rposition(|b| *b != b'.').map_or(0, |last| last + 1);
    let name = String::from_utf8_lossy(&name[..end]);
    if name.bytes().any(|b| b.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name }
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
            ("shop.example, other.example", "shop.example"),
            ("", ""),
        ] {
            assert_eq!(bare(given.as_bytes()), expected, "{given}");
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
