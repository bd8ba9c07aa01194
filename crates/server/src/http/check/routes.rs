//! Routes: what happens to a request that a proxy asks about. The first route that fits decides.
//!
//! Invariants: a route fits if all its conditions hold. A request that no route fits is let through. A route that lets people through
//! because of a path needs the path in its plain spelling (see [`RoutePath`]). Nothing here reads a store or a clock.

use std::{fmt, net::IpAddr};

use admission::ZoneId;
use hyper::{HeaderMap, header::HeaderName};
use ipnet::IpNet;

use super::{cookie, is_safe, path::RoutePath, pattern::Pattern};
use crate::access::TokenDigest;

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
    Secret(TokenDigest),
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

/// The request of a visitor, as a proxy describes it.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// The method.
    pub method: &'a str,
    /// The host in lower case, without a port.
    pub host: &'a str,
    /// The path.
    pub path: &'a RoutePath<'a>,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The client's address, canonical.
    pub address: IpAddr,
    /// The names of the valid bypass tokens that it carries.
    pub tokens: &'a [String],
}

impl Condition {
    fn holds(&self, visitor: &Visitor<'_>) -> bool {
        match self {
            Self::Host(patterns) => patterns.iter().any(|pattern| pattern.fits(visitor.host)),
            Self::Path(patterns) => patterns.iter().any(|pattern| pattern.fits_path(&visitor.path.normal)),
            Self::Method(methods) => methods.iter().any(|method| method == visitor.method),
            Self::Header(name, matcher) => visitor.headers.get_all(name).iter().any(|value| {
                let value = value.as_bytes();
                matcher.fits(value, || String::from_utf8_lossy(value).to_ascii_lowercase())
            }),
            Self::Cookie(name, matcher) => cookie::values(visitor.headers, name)
                .any(|value| matcher.fits(value.as_bytes(), || value.to_owned())),
            Self::Address(networks) => networks.iter().any(|network| network.contains(&visitor.address)),
            Self::Token(names) => names.iter().any(|name| visitor.tokens.contains(name)),
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
    fn missing(&self, visitor: &Visitor<'_>) -> Option<&Condition> {
        let plain_enough = visitor.path.is_plain || self.outcome != Outcome::Bypass;
        self.conditions.iter().find(|condition| {
            let is_path = matches!(condition, Condition::Path(_));
            !condition.holds(visitor) || is_path && !plain_enough
        })
    }
}

impl Route {
    /// Whether it fits requests with a bypass token of this name.
    #[must_use]
    pub fn takes_token(&self, name: &str) -> bool {
        self.conditions.iter().any(|condition| match condition {
            Condition::Token(names) => names.iter().any(|own| own == name),
            _ => false,
        })
    }
}

/// All routes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// The zones in which visitors wait. A zone comes as often as it has routes.
    pub(super) fn zones(&self) -> impl Iterator<Item = &ZoneId> {
        self.0.iter().filter_map(|route| match &route.outcome {
            Outcome::Zone(gated) => Some(&gated.zone),
            Outcome::Bypass | Outcome::Deny => None,
        })
    }
}

/// Why a request is not asked to wait, although a zone's route fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungated {
    /// A browser asks whether a page may call.
    Preflight,
    /// A file of a kind that does not change.
    StaticFile,
    /// A load balancer or a crawler asks.
    Health,
}

impl fmt::Display for Ungated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preflight => "it is a preflight request",
            Self::StaticFile => "it is a static file",
            Self::Health => "it is a health check or a file for crawlers",
        })
    }
}

/// The endings of static files.
const STATIC: [&str; 22] = [
    "avif",
    "bmp",
    "css",
    "eot",
    "gif",
    "ico",
    "jpeg",
    "jpg",
    "js",
    "map",
    "mjs",
    "mp3",
    "mp4",
    "otf",
    "png",
    "svg",
    "ttf",
    "webm",
    "webmanifest",
    "webp",
    "woff",
    "woff2",
];

/// Paths that load balancers and crawlers read.
const HEALTH: [&str; 8] =
    ["/healthz", "/health", "/livez", "/readyz", "/ping", "/robots.txt", "/favicon.ico", "/.well-known/*"];

/// Why the request does not wait in a zone whose route does not say `everything`.
#[must_use]
pub fn ungated(visitor: &Visitor<'_>) -> Option<Ungated> {
    if visitor.method == "OPTIONS" {
        let is_preflight = ["origin", "access-control-request-method"]
            .iter()
            .all(|name| visitor.headers.contains_key(*name));
        return is_preflight.then_some(Ungated::Preflight);
    }
    let path = &visitor.path.normal;
    if !visitor.path.is_plain || !is_safe(visitor.method) {
        return None;
    }
    let is_health = |known: &&str| match known.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == known,
    };
    if HEALTH.iter().any(is_health) {
        return Some(Ungated::Health);
    }
    let file = path.rsplit('/').next().unwrap_or_default();
    let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| STATIC.contains(&ending.as_str())).then_some(Ungated::StaticFile)
}

/// What the routes say about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The index of the route.
    pub index: usize,
    /// The route.
    pub route: &'a Route,
    /// Why it is let through nevertheless.
    pub ungated: Option<Ungated>,
}

impl Routes {
    /// These routes, in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Route] {
        &self.0
    }

    /// Whether a route asks for a bypass token.
    #[must_use]
    pub fn ask_for_tokens(&self) -> bool {
        let mut conditions = self.0.iter().flat_map(|route| &route.conditions);
        conditions.any(|condition| matches!(condition, Condition::Token(_)))
    }

    /// The first route that fits.
    #[must_use]
    pub fn find(&self, visitor: &Visitor<'_>) -> Option<Found<'_>> {
        let (index, route) = self.0.iter().enumerate().find(|(_, route)| route.missing(visitor).is_none())?;
        let ungated = match &route.outcome {
            Outcome::Zone(gated) if !gated.everything => ungated(visitor),
            _ => None,
        };
        Some(Found { index, route, ungated })
    }

    /// Says line by line what each route does with a request, up to the one that decides.
    #[must_use]
    pub fn explain(&self, visitor: &Visitor<'_>) -> Vec<String> {
        let found = self.find(visitor);
        let tried = found.map_or(self.0.len(), |found| found.index);
        let mut lines = Vec::with_capacity(tried + 1);
        for (route, number) in self.0.iter().zip(1..).take(tried) {
            let missing = route.missing(visitor).map_or_else(String::new, |condition| match condition {
                Condition::Path(_) if condition.holds(visitor) => {
                    "the path is spelled in an unusual way, and this route lets people through".to_owned()
                }
                condition => format!("not its {condition}"),
            });
            lines.push(format!("{number}. {}: does not fit: {missing}", route.name));
        }
        let Some(Found { index, route, ungated }) = found else {
            lines.push("no route fits: let through".to_owned());
            return lines;
        };
        let fits = match &route.conditions[..] {
            [] => "fits every request".to_owned(),
            some => {
                format!("fits: {}", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        };
        let outcome = match (&route.outcome, ungated) {
            (Outcome::Zone(gated), Some(why)) => {
                format!("let through without waiting in {}, because {why}", gated.zone)
            }
            (Outcome::Zone(gated), None) => format!("waits in {}", gated.zone),
            (Outcome::Bypass, _) => "let through".to_owned(),
            (Outcome::Deny, _) => "refused".to_owned(),
        };
        lines.push(format!("{}. {}: {fits}: {outcome}", index + 1, route.name));
        lines
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).expect("a pattern")
    }

    fn matcher(text: &str) -> Matcher {
        Matcher::Patterns(vec![pattern(text)])
    }

    fn route(name: &str, conditions: Vec<Condition>, outcome: Outcome) -> Route {
        Route { name: name.to_owned(), conditions, outcome }
    }

    fn zone(name: &str) -> Outcome {
        let zone = ZoneId::parse(name).expect("a zone");
        Outcome::Zone(Gated { zone, everything: false, bind_address: false })
    }

    fn path(text: &str) -> Condition {
        Condition::Path(vec![pattern(text)])
    }

    /// The name of the route that fits a request, with its reason to let it through.
    fn find(routes: &Routes, line: &str, headers: &[(&'static str, &str)]) -> String {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let (host, target) = target.split_once('/').expect("a host and a path");
        let target = format!("/{target}");
        let mut fields = HeaderMap::new();
        for (name, value) in headers {
            fields.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        let path = RoutePath::of(&target);
        let address = [192, 0, 2, 7].into();
        let visitor = Visitor { method, host, path: &path, headers: &fields, address, tokens: &[] };
        match routes.find(&visitor) {
            None => "none".to_owned(),
            Some(Found { route, ungated: Some(why), .. }) => format!("{}: {why:?}", route.name),
            Some(Found { route, .. }) => route.name.clone(),
        }
    }

    #[test]
    fn the_first_route_whose_conditions_all_hold_decides() {
        let routes = Routes::new(vec![
            route(
                "bad",
                vec![Condition::Address(vec!["192.0.2.8/32".parse().expect("a network")])],
                Outcome::Deny,
            ),
            route("staff", vec![Condition::Cookie("staff".to_owned(), matcher("s3cret"))], Outcome::Bypass),
            route(
                "monitor",
                vec![Condition::Header(HeaderName::from_static("x-monitor"), matcher("*"))],
                Outcome::Bypass,
            ),
            route("open", vec![path("/help/*")], Outcome::Bypass),
            route(
                "sale",
                vec![Condition::Host(vec![pattern("*.shop.example")]), path("/sale/*")],
                zone("SALE"),
            ),
            route("orders", vec![path("/order"), Condition::Method(vec!["POST".to_owned()])], zone("ORDERS")),
        ]);
        let find = |line: &str, headers: &[(&'static str, &str)]| find(&routes, line, headers);
        assert_eq!(find("GET www.shop.example/sale/1", &[]), "sale");
        assert_eq!(find("GET www.shop.example/sale", &[]), "sale");
        assert_eq!(find("GET shop.example/sale/1", &[]), "none");
        assert_eq!(find("GET www.shop.example/", &[]), "none");
        assert_eq!(find("POST any/order", &[]), "orders");
        assert_eq!(find("GET any/order", &[]), "none");
        assert_eq!(find("GET www.shop.example/sale/1", &[("x-monitor", "")]), "monitor");
        assert_eq!(find("GET www.shop.example/sale/1", &[("cookie", "a=b; staff=s3cret")]), "staff");
        assert_eq!(find("GET www.shop.example/sale/1", &[("cookie", "staff=s3cre")]), "sale");
        assert_eq!(find("GET www.shop.example/help/x", &[]), "open");
    }

    #[test]
    fn user_agents_countries_and_secrets_are_matched() {
        let secret = Matcher::Secret(TokenDigest::of(b"0123456789abcdef"));
        let header = |name, matcher| Condition::Header(HeaderName::from_static(name), matcher);
        let routes = Routes::new(vec![
            route("staff", vec![header("x-staff", secret.clone())], Outcome::Bypass),
            route("pass", vec![Condition::Cookie("pass".to_owned(), secret)], Outcome::Bypass),
            route(
                "bots",
                vec![header("user-agent", Matcher::Patterns(vec![pattern("*bot*"), pattern("curl/*")]))],
                Outcome::Deny,
            ),
            route(
                "here",
                vec![header("x-country", Matcher::Patterns(vec![pattern("kr"), pattern("jp")]))],
                zone("Z"),
            ),
        ]);
        let find = |headers: &[(&'static str, &str)]| find(&routes, "GET h/", headers);
        assert_eq!(find(&[("x-staff", "0123456789abcdef")]), "staff");
        assert_eq!(find(&[("x-staff", "wrong"), ("x-staff", "0123456789abcdef")]), "staff");
        for wrong in ["", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0", "*"] {
            assert_eq!(find(&[("x-staff", wrong)]), "none", "{wrong}");
        }
        assert_eq!(find(&[("cookie", "a=b; pass=0123456789abcdef")]), "pass");
        assert_eq!(find(&[("cookie", "pass=0123456789abcdeF")]), "none");
        assert_eq!(find(&[("user-agent", "Mozilla/5.0 (compatible; SomeBot/1.0)")]), "bots");
        assert_eq!(find(&[("user-agent", "curl/8")]), "bots");
        assert_eq!(find(&[("user-agent", "Mozilla/5.0"), ("x-country", "KR")]), "here");
        assert_eq!(find(&[("x-country", "US")]), "none");
    }

    #[test]
    fn no_spelling_of_a_path_gets_around_a_line() {
        let routes = Routes::new(vec![
            route("open", vec![path("/help/*")], Outcome::Bypass),
            route("sale", vec![path("/sale/*")], zone("SALE")),
            route("rest", Vec::new(), zone("REST")),
        ]);
        let find = |line: &str| find(&routes, line, &[]);
        for spelling in
            ["/%73ale/x", "//sale/x", "/help/../sale/x", "/sale;a/x", "/a/..%2fsale/x", "/sale%5cx"]
        {
            assert_eq!(find(&format!("GET h{spelling}")), "sale", "{spelling}");
        }
        assert_eq!(find("GET h/help/x"), "open");
        assert_eq!(find("GET h/help/%78"), "rest", "only the plain spelling is let through");
        assert_eq!(find("GET h/sale/x.css"), "sale: StaticFile");
        assert_eq!(find("GET h/sale/x;.css"), "sale");
        assert_eq!(find("GET h/sale/x%2ecss"), "sale");
        assert_eq!(find("POST h/sale/x.css"), "sale");
    }

    #[test]
    fn files_health_checks_and_preflights_do_not_wait_unless_everything_does() {
        let gated = |everything| {
            let zone = ZoneId::parse("Z").expect("a zone");
            let outcome = Outcome::Zone(Gated { zone, everything, bind_address: false });
            Routes::new(vec![route("z", Vec::new(), outcome)])
        };
        let asks: &[(&str, &str)] = &[("origin", "https://a"), ("access-control-request-method", "POST")];
        for (line, headers, reason) in [
            ("GET h/a/b.WOFF2", &[][..], "StaticFile"),
            ("HEAD h/app.js", &[], "StaticFile"),
            ("GET h/healthz", &[], "Health"),
            ("GET h/.well-known/acme-challenge/x", &[], "Health"),
            ("OPTIONS h/api", asks, "Preflight"),
        ] {
            assert_eq!(find(&gated(false), line, headers), format!("z: {reason}"), "{line}");
            assert_eq!(find(&gated(true), line, headers), "z", "{line}");
        }
        for line in ["GET h/", "GET h/js", "GET h/a.css/b", "OPTIONS h/api", "GET h/healthz/x", "PUT h/a.css"]
        {
            assert_eq!(find(&gated(false), line, &[]), "z", "{line}");
        }
    }

    #[test]
    fn an_explanation_shows_no_secret() {
        let routes = Routes::new(vec![
            route("staff", vec![Condition::Cookie("staff".to_owned(), matcher("s3cret"))], Outcome::Bypass),
            route("open", vec![path("/help/*")], Outcome::Bypass),
            route("site", vec![path("/*")], zone("Z")),
        ]);
        let (path, headers) = (RoutePath::of("/help/%78"), HeaderMap::new());
        let visitor = Visitor {
            method: "GET",
            host: "h",
            path: &path,
            headers: &headers,
            address: [192, 0, 2, 7].into(),
            tokens: &[],
        };
        assert_eq!(
            routes.explain(&visitor),
            [
                "1. staff: does not fit: not its cookie staff",
                "2. open: does not fit: the path is spelled in an unusual way, and this route lets people through",
                "3. site: fits: path /*: waits in Z",
            ]
        );
        assert_eq!(Routes::default().explain(&visitor), ["no route fits: let through"]);
    }
}
