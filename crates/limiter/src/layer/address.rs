//! Who is asking, behind proxies, and what of the address is the key.
//!
//! Invariants: a header is believed only as far as it was written by a proxy that the operator listed; addresses that
//! one party is usually given together are one key.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

/// The client's address: the peer's, or, where the peer is a trusted proxy, the last address of
/// `X-Forwarded-For` that is not one itself. An IPv4 address that came in IPv6 clothes is taken out of them.
#[must_use]
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |ip: &IpAddr| trusted.iter().any(|net| net.contains(ip));
    let mut client = peer.to_canonical();
    // Each proxy appends the address that it saw, so the list is read from its end, and no further than trust goes.
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let hops = values.flat_map(|value| value.to_str().unwrap_or("?").rsplit(','));
    for hop in hops {
        if !is_trusted(&client) {
            break;
        }
        let Some(ip) = address(hop.trim()) else { break };
        client = ip;
    }
    client
}

fn address(text: &str) -> Option<IpAddr> {
    let ip = text.parse().ok().or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip()));
    ip.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()).map(|ip| ip.to_canonical())
}

/// How much of an address is the key, in leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of an IPv4 address, 0 to 32.
    pub ipv4: u8,
    /// Of an IPv6 address, 0 to 128. A household, or a machine in a data centre, has 64 bits to choose from.
    pub ipv6: u8,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

/// An address, or the network it is of, as a key: 4 or 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey {
    bytes: [u8; 16],
    len: usize,
}

impl AsRef<[u8]> for AddressKey {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Prefixes {
    /// The key of an address. A prefix longer than the address is the whole of it.
    #[must_use]
    pub fn key(self, ip: IpAddr) -> AddressKey {
        let kept = |bits: u32, prefix: u8| u32::from(prefix).min(bits);
        let mut bytes = [0; 16];
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - kept(32, self.ipv4)).unwrap_or(0);
                bytes[..4].copy_from_slice(&(ip.to_bits() & mask).to_be_bytes());
                AddressKey { bytes, len: 4 }
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - kept(128, self.ipv6)).unwrap_or(0);
                bytes = (ip.to_bits() & mask).to_be_bytes();
                AddressKey { bytes, len: 16 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_believed_as_far_as_trust_goes() {
        let trusted: Vec<IpNet> =
            ["10.0.0.0/8", "2001:db8::/32"].iter().map(|net| net.parse().expect("a network")).collect();
        let seen = |peer: &str, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", value.parse().expect("a value"));
            }
            client(peer.parse().expect("an address"), &headers, &trusted).to_string()
        };
        assert_eq!(seen("192.0.2.1", &["198.51.100.7"]), "192.0.2.1", "a stranger's word");
        assert_eq!(seen("10.1.1.1", &[]), "10.1.1.1");
        assert_eq!(seen("10.1.1.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(
            seen("10.1.1.1", &["6.6.6.6, 198.51.100.7, 10.2.2.2"]),
            "198.51.100.7",
            "what came before is hearsay"
        );
        assert_eq!(seen("10.1.1.1", &["6.6.6.6", "198.51.100.7"]), "198.51.100.7");
        assert_eq!(seen("10.1.1.1", &["198.51.100.7, nonsense"]), "10.1.1.1");
        assert_eq!(seen("::ffff:10.1.1.1", &["198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(seen("2001:db8::1", &["[2001:db9::7]"]), "2001:db9::7");
    }

    #[test]
    fn what_one_party_has_is_one_key() {
        let key = |prefixes: Prefixes, ip: &str| prefixes.key(ip.parse().expect("an address"));
        let usual = |ip| key(Prefixes::default(), ip);
        assert_ne!(usual("192.0.2.1"), usual("192.0.2.2"));
        assert_eq!(usual("192.0.2.1"), usual("::ffff:192.0.2.1"));
        assert_eq!(usual("2001:db8:1:2::1"), usual("2001:db8:1:2:ffff::9"));
        assert_ne!(usual("2001:db8:1:2::1"), usual("2001:db8:1:3::1"));
        let wide = |ip| key(Prefixes { ipv4: 24, ipv6: 32 }, ip);
        assert_eq!(wide("192.0.2.1"), wide("192.0.2.255"));
        assert_ne!(wide("192.0.2.1"), wide("192.0.3.1"));
        assert_eq!(wide("2001:db8:1::"), wide("2001:db8:ffff::"));
        let all = |ip| key(Prefixes { ipv4: 0, ipv6: 0 }, ip);
        assert_eq!(all("1.2.3.4"), all("255.255.255.255"));
        assert_ne!(all("1.2.3.4"), all("2001:db8::1"), "the two families stay apart");
        let whole = |ip| key(Prefixes { ipv4: 255, ipv6: 255 }, ip);
        assert_ne!(whole("1.2.3.4"), whole("1.2.3.5"));
        assert_ne!(whole("2001:db8::1"), whole("2001:db8::2"));
    }
}
