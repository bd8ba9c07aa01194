//! Hosts in addresses that browsers open.
//!
//! Invariant: a host that is taken here is, to a browser, the host that is written. Browsers read some names as other addresses (`0x7f.1` as
//! 127.0.0.1) and refuse others (`xn--a.example`); the crate `url` does what the [URL Standard](https://url.spec.whatwg.org/#host-parsing)
//! says.

use std::net::Ipv6Addr;

use url::Host;

/// The longest name of a host, and the longest part of one, in bytes.
const HOST_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Why a text is no host with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAuthority {
    /// No host has this name, or browsers read another one in it.
    Host,
    /// The port is none.
    Port,
}

/// Checks a host with or without a port, as it stands in an address behind `https://`.
///
/// # Errors
/// [`NoAuthority`].
pub fn check_authority(authority: &str) -> Result<(), NoAuthority> {
    // The colons of an IPv6 address are within brackets.
    let port_from = authority.rfind(']').unwrap_or(0);
    let (host, port) = match authority[port_from..].split_once(':') {
        Some((_, port)) => (&authority[..authority.len() - port.len() - 1], Some(port)),
        None => (authority, None),
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse().is_ok_and(|port: u16| port > 0)
    };
    match port {
        _ if !is_host(host) => Err(NoAuthority::Host),
        Some(port) if !is_port(port) => Err(NoAuthority::Port),
        _ => Ok(()),
    }
}

/// Whether browsers ask for this host when an address names it: a name in ASCII, an IPv4 address, or an IPv6 address in brackets.
#[must_use]
pub fn is_asked_for(host: &str) -> bool {
    match Host::parse(host) {
        // A dot may end an address, too.
        Ok(Host::Ipv4(address)) => address.to_string() == host.strip_suffix('.').unwrap_or(host),
        Ok(Host::Domain(name)) => name.eq_ignore_ascii_case(host),
        Ok(Host::Ipv6(_)) => true,
        Err(_) => false,
    }
}

/// Whether a host can have this name or address.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A dot may end a name.
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= HOST_MAX && name.split('.').all(is_label) && is_asked_for(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_the_one_that_browsers_ask_for() {
        for right in [
            "shop.example",
            "Shop.Example",
            "shop.example.",
            "localhost",
            "a_b.example",
            "xn--bcher-kva.example",
            "XN--BCHER-KVA.example",
            "0x.example",
            "1.2.3.4a",
            "192.0.2.7",
            "192.0.2.7.",
            "[2001:db8::7]",
            "[::ffff:192.0.2.7]",
        ] {
            assert_eq!(check_authority(right), Ok(()), "{right}");
        }
        // Addresses that are written in another way, names whose last part is a number, and names that are not in the form of names.
        for wrong in [
            "0x",
            "0x7f.1",
            "0X7F.0.0.1",
            "1.2.3",
            "1",
            "127.1",
            "0177.0.0.1",
            "1.2.3.4.5",
            "999.0.0.1",
            "a.0x7f",
            "shop.1",
            "xn--a.jp",
            "xn--.example",
            "xn--bcher-kva\u{e9}.example",
            "a.xn--0",
            "1..",
            ".",
        ] {
            assert_eq!(check_authority(wrong), Err(NoAuthority::Host), "{wrong}");
        }
    }
}
