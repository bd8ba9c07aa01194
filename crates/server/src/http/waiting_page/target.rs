//! Targets: the pages to which people go after they entered.
//!
//! Invariant: only the operator's configuration names targets, by zone. No address, token or request has an influence, so
//! that no link to a waiting room can lead elsewhere.

use std::fmt;

use admission::{ZoneId, check_authority};
use gate::cells::tenant;

/// How the page hands over the pass. Never in a query, because queries are logged and sent as referrers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandOver {
    /// As the field `pass` of a posted form.
    #[default]
    Form,
    /// After the `#`, which browsers do not send. For pages without a server.
    Fragment,
}

impl HandOver {
    /// All values with their names in configuration files.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Form, "form"), (Self::Fragment, "fragment")];

    /// The value's name in configuration files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Fragment => "fragment",
        }
    }
}

/// The zones that a target is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Zones {
    One(ZoneId),
    /// All zones of a tenant.
    Tenant(String),
    All,
}

/// A page to which people go after they entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    zones: Zones,
    url: String,
    by: HandOver,
}

/// Why a target is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// The zones are not valid.
    #[error("`{0}` is not a zone; write a zone's id, `TENANT:*` for a tenant's, or `*` for all")]
    Zones(String),
    /// The address is not valid.
    #[error(
        "`{0}` is not a target address; write one as in https://shop.example/checkout, without user, `#` and spaces"
    )]
    Url(String),
}

impl Target {
    /// A target at `url` for `zones`: a zone's id, `TENANT:*`, or `*`.
    ///
    /// # Errors
    /// A [`TargetFault`].
    pub fn new(zones: &str, url: &str, by: HandOver) -> Result<Self, TargetFault> {
        let wrong = || TargetFault::Zones(zones.to_owned());
        let zones = match (zones, zones.strip_suffix(":*")) {
            ("*", _) => Zones::All,
            (_, Some(name)) if !name.contains(':') && (name.is_empty() || ZoneId::parse(name).is_ok()) => {
                Zones::Tenant(name.to_owned())
            }
            _ => Zones::One(ZoneId::parse(zones).map_err(|_| wrong())?),
        };
        if origin(url).is_none() {
            return Err(TargetFault::Url(url.to_owned()));
        }
        Ok(Self { zones, url: url.to_owned(), by })
    }

    /// The address, as configured.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How the page hands over the pass.
    #[must_use]
    pub fn by(&self) -> HandOver {
        self.by
    }

    /// The scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> &str {
        origin(&self.url).expect("checked by `new`")
    }

    /// Whether both targets are for exactly the same zones.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        self.zones == other.zones
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zones {
            Zones::One(zone) => write!(f, "{zone}")?,
            Zones::Tenant(name) => write!(f, "{name}:*")?,
            Zones::All => f.write_str("*")?,
        }
        write!(f, " -> {} ({})", self.url, self.by.as_str())
    }
}

/// The scheme, host and port of a web address; `None` if the address has other than printable ASCII characters, or browsers would
/// ask for another host, or the host has characters that could change the meaning of a content security policy.
fn origin(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let in_host = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".:-[]".contains(&b);
    let in_path = |b: u8| b.is_ascii_graphic() && !b"\"'<>\\^`{|}#".contains(&b);
    let right = host.bytes().all(in_host)
        && check_authority(host).is_ok()
        && url.len() <= 2_048
        && url.bytes().all(in_path);
    right.then(|| &url[..url.len() - rest.len() + host.len()])
}

impl Target {
    /// The zone that it is for, if it is for one only.
    #[must_use]
    pub fn zone(&self) -> Option<&ZoneId> {
        match &self.zones {
            Zones::One(zone) => Some(zone),
            Zones::Tenant(_) | Zones::All => None,
        }
    }
}

/// The target for a zone: its own, otherwise its tenant's, otherwise the one for all zones.
#[must_use]
pub fn find<'a>(targets: &'a [Target], zone: &str) -> Option<&'a Target> {
    let rank = |target: &Target| match &target.zones {
        Zones::One(id) => (id.as_str() == zone).then_some(0),
        Zones::Tenant(name) => (name == tenant(zone)).then_some(1),
        Zones::All => Some(2),
    };
    targets
        .iter()
        .filter_map(|target| Some((rank(target)?, target)))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, t)| t)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(zones: &str, url: &str) -> Target {
        Target::new(zones, url, HandOver::Form).expect("valid")
    }

    #[test]
    fn the_most_specific_target_is_chosen() {
        let targets = [
            target("*", "https://all.example/"),
            target("shop:*", "https://shop.example/in?from=weir"),
            target("shop:sale", "http://127.0.0.1:3000"),
        ];
        let of = |zone| find(&targets, zone).map(Target::url);
        assert_eq!(of("shop:sale"), Some("http://127.0.0.1:3000"));
        assert_eq!(of("shop:other"), Some("https://shop.example/in?from=weir"));
        assert_eq!(of("shopper:x"), Some("https://all.example/"));
        assert_eq!(of("plain"), Some("https://all.example/"));
        assert_eq!(find(&targets[1..], "plain"), None);
        assert_eq!(targets[1].origin(), "https://shop.example");
        assert_eq!(targets[2].origin(), "http://127.0.0.1:3000");
        assert_eq!(target(":*", "https://[::1]:8443/").origin(), "https://[::1]:8443");
    }

    #[test]
    fn other_than_web_addresses_are_refused() {
        for url in [
            "",
            "https://",
            "//shop.example",
            "/checkout",
            "javascript:alert(1)",
            "data:text/html,x",
            "https://user:word@shop.example/",
            "https://shop.example/#top",
            "https://shop.example/a b",
            "https://shop.example/\"x",
            "https://shop.example;script-src/",
            "https://*.example/",
            "https://shop.example\n/",
            "HTTPS://shop.example/",
            "https://0x7f.1/",
            "https://xn--a.jp/",
            "https://shop..example/",
            "https://shop.example:0/",
            "https://shop.example:x/",
        ] {
            let fault = Target::new("Z", url, HandOver::Form).expect_err(url);
            assert_eq!(fault, TargetFault::Url(url.to_owned()));
        }
        for zones in ["", "a b", "*:x", "a:b:*", "**"] {
            assert!(
                matches!(Target::new(zones, "https://a.example", HandOver::Form), Err(TargetFault::Zones(_))),
                "{zones}"
            );
        }
    }
}
