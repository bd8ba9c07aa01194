//! A route: what must be true of a request, and what happens to it then.
//!
//! Invariants: a route fits if all its conditions hold. A route that restricts (a zone, or `deny`) is generous: it ignores the case of a
//! path and its last slash, and `GET` stands for `HEAD`, because many apps do so. A route that lets people through takes a path
//! literally, and only if it is plain (see [`RoutePath`]).

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
pub enum RouteAction {
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
    pub action: RouteAction,
}

impl Condition {
    /// Whether it holds. `restricts` says whether its route restricts.
    fn holds(&self, request: &Request<'_>, path: &RoutePath<'_>, restricts: bool) -> bool {
        match self {
            Self::Path(patterns) if restricts => {
                patterns.iter().any(|pattern| pattern.fits_path_generously(&path.text))
            }
            Self::Path(_) => path.is_plain && self.would_hold(path),
            _ => self.holds_for_all_paths(request, restricts),
        }
    }

    /// Whether it would hold if the path were plain.
    pub(crate) fn would_hold(&self, path: &RoutePath<'_>) -> bool {
        matches!(self, Self::Path(patterns) if patterns.iter().any(|pattern| pattern.fits_path(&path.text)))
    }

    fn is_path(&self) -> bool {
        matches!(self, Self::Path(_))
    }

    /// Whether it holds for a request whatever its path is. A condition about the path does not count.
    fn holds_for_all_paths(&self, request: &Request<'_>, restricts: bool) -> bool {
        match self {
            Self::Path(_) => true,
            Self::Host(patterns) => patterns.iter().any(|pattern| pattern.fits(&request.host)),
            Self::Method(methods) => methods.iter().any(|method| {
                // Some apps take `get` for `GET`, and most answer `HEAD` where they answer `GET`.
                let is_same = method.eq_ignore_ascii_case(&request.method);
                let is_head = method == "GET" && request.method.eq_ignore_ascii_case("HEAD");
                *method == request.method || restricts && (is_same || is_head)
            }),
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
        match &self.action {
            RouteAction::Zone(gated) => write!(f, "waits in {}", gated.zone)?,
            RouteAction::Bypass => f.write_str("let through")?,
            RouteAction::Deny => f.write_str("refused")?,
        }
        match &self.action {
            RouteAction::Zone(Gated { everything: true, .. }) => f.write_str(", everything"),
            _ => Ok(()),
        }
    }
}

impl Route {
    /// Whether it makes visitors wait or refuses them, and so must not be got around.
    fn restricts(&self) -> bool {
        self.action != RouteAction::Bypass
    }

    /// The condition that does not hold, or nothing if the request fits with this reading of its path.
    pub(crate) fn missing(&self, request: &Request<'_>, path: &RoutePath<'_>) -> Option<&Condition> {
        self.conditions.iter().find(|condition| !condition.holds(request, path, self.restricts()))
    }

    /// Whether the request fits with some path.
    pub(crate) fn may_fit(&self, request: &Request<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds_for_all_paths(request, self.restricts()))
    }

    /// Whether a request that may fit does so with this reading of its path.
    pub(crate) fn fits_path(&self, request: &Request<'_>, path: &RoutePath<'_>) -> bool {
        let mut conditions = self.conditions.iter().filter(|condition| condition.is_path());
        conditions.all(|condition| condition.holds(request, path, self.restricts()))
    }

    /// Whether it has a condition about the path.
    pub(crate) fn has_path(&self) -> bool {
        self.conditions.iter().any(Condition::is_path)
    }

    pub(crate) fn denies(&self) -> bool {
        self.action == RouteAction::Deny
    }

    /// Its condition about the host.
    pub(crate) fn hosts(&self) -> Option<&[Pattern]> {
        self.conditions.iter().find_map(|condition| match condition {
            Condition::Host(patterns) => Some(&patterns[..]),
            _ => None,
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
