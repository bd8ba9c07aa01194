//! How much each client address holds: connections, or anything else that is held for a while.
//!
//! A household or a machine usually has a whole IPv6 network, so the leading bits of an IPv6 address are one client.
//! Invariants: nobody holds more than the cap; an address is in the table only while it holds something, so the table is
//! never longer than the number of things held.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A cap per client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerClient {
    /// The most that one address may hold.
    pub most: usize,
    /// How many leading bits of an IPv6 address are one client.
    pub ipv6_prefix: u8,
}

impl PerClient {
    /// The address that stands for all addresses of the same client.
    #[must_use]
    pub fn client(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.ipv6_prefix.min(128))).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
            ip @ IpAddr::V4(_) => ip,
        }
    }
}

/// Counts what each client address holds.
#[derive(Debug)]
pub struct PerAddress {
    cap: PerClient,
    held: Mutex<HashMap<IpAddr, usize>>,
}

impl PerAddress {
    /// Nobody holds anything yet.
    #[must_use]
    pub fn new(cap: PerClient) -> Arc<Self> {
        Arc::new(Self { cap, held: Mutex::default() })
    }

    /// Counts one more thing for the client at this address, until the returned value is dropped. None if the client holds
    /// as much as it may.
    #[must_use]
    pub fn hold(self: &Arc<Self>, address: IpAddr) -> Option<Held> {
        let client = self.cap.client(address);
        match self.held().entry(client) {
            Entry::Occupied(entry) if *entry.get() >= self.cap.most => return None,
            Entry::Occupied(mut entry) => *entry.get_mut() += 1,
            Entry::Vacant(_) if self.cap.most == 0 => return None,
            Entry::Vacant(entry) => {
                entry.insert(1);
            }
        }
        Some(Held { table: Arc::clone(self), client })
    }

    /// A panic cannot leave a number half changed.
    fn held(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing that a client holds.
pub struct Held {
    table: Arc<PerAddress>,
    client: IpAddr,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.client)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.table.held().entry(self.client) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_holds_no_more_than_its_cap_and_the_table_forgets() {
        let table = PerAddress::new(PerClient { most: 2, ipv6_prefix: 64 });
        let own = [table.hold(ip("192.0.2.1")), table.hold(ip("::ffff:192.0.2.1"))];
        assert!(own.iter().all(Option::is_some));
        assert!(table.hold(ip("192.0.2.1")).is_none());
        let other = table.hold(ip("192.0.2.2")).expect("another client");
        drop(own);
        assert_eq!(table.held().len(), 1, "only what is held is in the table");
        assert!(table.hold(ip("192.0.2.1")).is_some());
        drop(other);
        assert!(table.held().is_empty());
        assert!(PerAddress::new(PerClient { most: 0, ipv6_prefix: 64 }).hold(ip("192.0.2.1")).is_none());
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let table = PerAddress::new(PerClient { most: 1, ipv6_prefix: 64 });
        let _held = table.hold(ip("2001:db8:1:2::1")).expect("the first");
        assert!(table.hold(ip("2001:db8:1:2:ffff::9")).is_none(), "the same network");
        assert!(table.hold(ip("2001:db8:1:3::1")).is_some());
        let client =
            |ipv6_prefix, address| PerClient { most: 1, ipv6_prefix }.client(ip(address)).to_string();
        assert_eq!(client(56, "2001:db8:1:2ff::1"), "2001:db8:1:200::");
        assert_eq!([client(0, "2001:db8::1"), client(128, "2001:db8::1")], ["::", "2001:db8::1"]);
    }
}
