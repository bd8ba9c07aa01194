//! A route: what must be true of a request, and what happens to it then.
//!
//! Invariants: a route fits if all its conditions hold. A route that lets people through because of a path needs the path in its plain
//! spelling (see [`RoutePath`]).

use std::fmt;

use admission::ZoneId;
use http::header::HeaderName;
use ipnet::IpNet;

use crate::{
    cookie::{self, CookieNames},
    digest::SecretDigest,
    path::RoutePath,
    pattern::Pattern,
    request::Request,
};

/// What a route does with the requests that fit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Visitors wait in the line of a zone.
    Zone(Gated),
    /// The request is let through.
    Bypass,
    /// The request is refused.
    Deny,
}

/// A zone, and what of a site is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gated {
    /// The zone.
    pub zone: ZoneId,
    /// Whether static files, health checks and preflight requests wait, too.
    pub everything: bool,
    /// Whether a visit counts only for the address that began it.
    pub bind_address: bool,
    /// The names of the zone's cookie.
    pub cookie: CookieNames,
}

impl Gated {
    /// A zone from which static files and the like are exempt, and whose visits are bound to no address.
    #[must_use]
    pub fn new(zone: ZoneId) -> Self {
        Self { cookie: CookieNames::of(&zone), zone, everything: false, bind_address: false }
    }
}

/// What must be true of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// One of these hosts, in lower case.
    Host(Vec<Pattern>),
    /// One of these paths.
    Path(Vec<Pattern>),
    /// One of these methods.
    Method(Vec<String>),
    /// A header field of this name has a value that fits. Patterns are in lower case.
    Header(HeaderName, Matcher),
    /// A cookie of this name has a value that fits.
    Cookie(String, Matcher),
    /// The client's address is in one of these networks.
    Address(Vec<IpNet>),
    /// The request carries a valid bypass token of one of these names.
    Token(Vec<String>),
}

/// What the value of a header or cookie must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// One of these patterns.
    Patterns(Vec<Pattern>),
    /// The secret with this digest. Digests are compared in constant time.
    Secret(SecretDigest),
}

impl Matcher {
    /// Whether a value fits. `plain` is the value as patterns see it.
    fn fits(&self, value: &[u8], plain: impl FnOnce() -> String) -> bool {
        match self {
            Self::Patterns(patterns) => {
                let plain = plain();
                patterns.iter().any(|pattern| pattern.fits(&plain))
            }
            Self::Secret(digest) => digest.is_of(value),
        }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its name in metrics and messages.
    pub name: String,
    /// All of them hold for a request that fits.
    pub conditions: Vec<Condition>,
    /// What happens to it.
    pub outcome: Outcome,
}

impl Condition {
    pub(crate) fn holds(&self, request: &Request<'_>, path: &RoutePath<'_>) -> bool {
        match self {
            Self::Host(patterns) => patterns.iter().any(|pattern| pattern.fits(&request.host)),
            Self::Path(patterns) => patterns.iter().any(|pattern| pattern.fits_path(&path.normal)),
            Self::Method(methods) => methods.iter().any(|method| *method == request.method),
            Self::Header(name, matcher) => request.headers.get_all(name).iter().any(|value| {
                let value = value.as_bytes();
                matcher.fits(value, || String::from_utf8_lossy(value).to_ascii_lowercase())
            }),
            Self::Cookie(name, matcher) => cookie::values(request.headers, name)
                .any(|value| matcher.fits(value, || String::from_utf8_lossy(value).into_owned())),
            Self::Address(networks) => networks.iter().any(|network| network.contains(&request.address)),
            Self::Token(names) => names.iter().any(|name| request.tokens.contains(name)),
        }
    }
}

/// The values of headers and cookies are not shown: this is for logs.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: ToString>(all: &[T]) -> String {
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
        }
        match self {
            Self::Host(patterns) => write!(f, "host {}", list(patterns)),
            Self::Path(patterns) => write!(f, "path {}", list(patterns)),
            Self::Method(methods) => write!(f, "method {}", list(methods)),
            Self::Header(name, _) => write!(f, "header {name}"),
            Self::Cookie(name, _) => write!(f, "cookie {name}"),
            Self::Address(networks) => write!(f, "address {}", list(networks)),
            Self::Token(names) => write!(f, "token {}", list(names)),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        for condition in &self.conditions {
            write!(f, "{condition}, ")?;
        }
        match &self.outcome {
            Outcome::Zone(gated) => write!(f, "waits in {}", gated.zone)?,
            Outcome::Bypass => f.write_str("let through")?,
            Outcome::Deny => f.write_str("refused")?,
        }
        match &self.outcome {
            Outcome::Zone(Gated { everything: true, .. }) => f.write_str(", everything"),
            _ => Ok(()),
        }
    }
}

impl Route {
    /// The condition that does not hold, or nothing if the request fits.
    pub(crate) fn missing(&self, request: &Request<'_>, path: &RoutePath<'_>) -> Option<&Condition> {
        let plain_enough = path.is_plain || self.outcome != Outcome::Bypass;
        self.conditions.iter().find(|condition| {
            let is_path = matches!(condition, Condition::Path(_));
            !condition.holds(request, path) || is_path && !plain_enough
        })
    }

    /// Whether it fits requests with a bypass token of this name.
    #[must_use]
    pub fn takes_token(&self, name: &str) -> bool {
        self.conditions.iter().any(|condition| match condition {
            Condition::Token(names) => names.iter().any(|own| own == name),
            _ => false,
        })
    }
}
