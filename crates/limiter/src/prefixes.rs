//! The key of a client's address.
//!
//! Invariant: addresses that are usually given to one party share a key.

use std::net::IpAddr;

/// How many leading bits of an address make the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// For IPv4, 0 to 32.
    pub ipv4: u8,
    /// For IPv6, 0 to 128. A household or a machine in a data centre usually has a /64.
    pub ipv6: u8,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

/// An address, or its network, as a key: 4 or 16 bytes.
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
    /// The key of an address. A prefix longer than the address means the whole address.
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
    fn addresses_of_one_party_share_a_key() {
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
        assert_ne!(all("1.2.3.4"), all("2001:db8::1"), "IPv4 and IPv6 have different keys");
        let whole = |ip| key(Prefixes { ipv4: 255, ipv6: 255 }, ip);
        assert_ne!(whole("1.2.3.4"), whole("1.2.3.5"));
        assert_ne!(whole("2001:db8::1"), whole("2001:db8::2"));
    }
}
