//! The client's address: the peer's, or behind proxies the one in `X-Forwarded-For`.
//!
//! Invariant: an entry of a header is trusted only if a proxy that the operator listed wrote it.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

pub use crate::prefixes::{AddressKey, Prefixes};

/// The client's address: the peer's, or, if the peer is a trusted proxy, the last address of `X-Forwarded-For` that is not
/// a trusted proxy. An IPv4-mapped IPv6 address becomes an IPv4 address.
#[must_use]
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |ip: &IpAddr| trusted.iter().any(|net| net.contains(ip));
    let mut client = peer.to_canonical();
    // Each proxy appends the address that it saw. So read the list from its end, and stop at the first untrusted address.
    let values = headers.get_all("x-forwarded-for").iter().rev();
    // A visitor may have sent any bytes before what the proxies appended.
    let hops = values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    for hop in hops {
        if !is_trusted(&client) {
            break;
        }
        let Some(ip) = str::from_utf8(hop).ok().and_then(|hop| address(hop.trim())) else { break };
        client = ip;
    }
    client
}

fn address(text: &str) -> Option<IpAddr> {
    let ip = text.parse().ok().or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip()));
    ip.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_trusted_only_from_listed_proxies() {
        let trusted: Vec<IpNet> =
            ["10.0.0.0/8", "2001:db8::/32"].iter().map(|net| net.parse().expect("a network")).collect();
        let seen = |peer: &str, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = http::HeaderValue::from_bytes(value.as_bytes());
                headers.append("x-forwarded-for", value.expect("a value"));
            }
            client(peer.parse().expect("an address"), &headers, &trusted).to_string()
        };
        assert_eq!(seen("192.0.2.1", &["198.51.100.7"]), "192.0.2.1", "the peer is not trusted");
        assert_eq!(seen("10.1.1.1", &[]), "10.1.1.1");
        assert_eq!(seen("10.1.1.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(
            seen("10.1.1.1", &["6.6.6.6, 198.51.100.7, 10.2.2.2"]),
            "198.51.100.7",
            "earlier entries are not trusted"
        );
        assert_eq!(seen("10.1.1.1", &["6.6.6.6", "198.51.100.7"]), "198.51.100.7");
        assert_eq!(seen("10.1.1.1", &["198.51.100.7, nonsense"]), "10.1.1.1");
        assert_eq!(
            seen("10.1.1.1", &["6.6.6.6\u{e9}, 198.51.100.7"]),
            "198.51.100.7",
            "only what is behind counts"
        );
        assert_eq!(seen("10.1.1.1", &["198.51.100.7, \u{e9}"]), "10.1.1.1");
        assert_eq!(seen("::ffff:10.1.1.1", &["198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(seen("2001:db8::1", &["[2001:db9::7]"]), "2001:db9::7");
    }
}
