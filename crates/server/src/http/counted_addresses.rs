//! Which addresses of clients are counted, where connections and streams are capped per client; and the digest by which a visit or a
//! bypass token names an address.
//!
//! Invariant: an address that many users share by the operator's word is not counted: a trusted proxy, and a carrier's NAT.
//! Neither is this machine itself: behind it is a proxy that nobody listed, or a load test, and no attacker.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use limiter::Prefixes;

/// The addresses that are not counted.
#[derive(Clone, Debug, Default)]
pub struct Uncounted(Vec<IpNet>);

impl Uncounted {
    /// These networks.
    #[must_use]
    pub fn new(trusted_proxies: &[IpNet], carrier_nats: &[IpNet]) -> Self {
        Self([trusted_proxies, carrier_nats].concat())
    }

    /// Whether nothing of this address is counted.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        // Only the usual address of the loopback: programs choose another one on purpose.
        let is_here =
            [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)].contains(&address);
        is_here || self.0.iter().any(|net| net.contains(&address))
    }
}

/// A digest of a client's address, or of its network if that is IPv6. Never 0.
pub(crate) fn address_digest(address: IpAddr) -> u64 {
    // Phones change the rest of an IPv6 address every day.
    let digest = blake3::hash(Prefixes::default().key(address).as_ref());
    let first = digest.as_bytes().first_chunk().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_carriers_and_this_machine_are_not_counted() {
        let nets = |text: &str| vec![text.parse().expect("a network")];
        let uncounted = Uncounted::new(&nets("10.1.0.0/16"), &nets("100.64.0.0/10"));
        let has = |text: &str| uncounted.has(text.parse().expect("an address"));
        for not_counted in
            ["10.1.2.3", "::ffff:10.1.2.3", "100.64.0.1", "127.0.0.1", "::ffff:127.0.0.1", "::1"]
        {
            assert!(has(not_counted), "{not_counted}");
        }
        for counted in ["10.2.0.1", "127.0.0.2", "198.51.100.1", "2001:db8::1"] {
            assert!(!has(counted), "{counted}");
        }
    }
}
