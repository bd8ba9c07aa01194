//! What the routes decide about a request: the first one that fits.
//!
//! Invariant: a request that no route fits goes on. Whatever else goes on does so by a route, which is named.

use admission::ZoneId;

use crate::{
    exemption::{self, Exemption},
    path::RoutePath,
    request::Request,
    route::{Condition, Gated, Outcome, Route},
};

/// A visitor's `POST` to this path of the site ends the visits. It never reaches the site.
pub const LEAVE: &str = "/.weir/leave";

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'r> {
    /// Its visitor leaves: the visits end here.
    Leave,
    /// No route fits, so it goes on.
    Unrouted,
    /// It goes on by the route with this index.
    LetThrough {
        /// The index of the route.
        index: usize,
        /// Why it does not wait, if the route is one of a zone.
        exemption: Option<Exemption>,
    },
    /// The route with this index refuses it.
    Denied {
        /// The index of the route.
        index: usize,
    },
    /// It goes on if its visitor has an open visit of the zone.
    Gated {
        /// The index of the route.
        index: usize,
        /// The zone.
        gated: &'r Gated,
    },
}

impl Decision<'_> {
    /// The index of the route that decides.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Leave | Self::Unrouted => None,
            Self::LetThrough { index, .. } | Self::Denied { index } | Self::Gated { index, .. } => {
                Some(*index)
            }
        }
    }
}

/// All routes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

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

    /// The zones in which visitors wait. A zone comes as often as it has routes.
    pub fn gated(&self) -> impl Iterator<Item = &Gated> {
        self.0.iter().filter_map(|route| match &route.outcome {
            Outcome::Zone(gated) => Some(gated),
            Outcome::Bypass | Outcome::Deny => None,
        })
    }

    /// The zones in which visitors wait. A zone comes as often as it has routes.
    pub fn zones(&self) -> impl Iterator<Item = &ZoneId> {
        self.gated().map(|gated| &gated.zone)
    }

    /// Whether a route asks for a bypass token.
    #[must_use]
    pub fn ask_for_tokens(&self) -> bool {
        let mut conditions = self.0.iter().flat_map(|route| &route.conditions);
        conditions.any(|condition| matches!(condition, Condition::Token(_)))
    }

    /// Decides about a request.
    #[must_use]
    pub fn decide(&self, request: &Request<'_>) -> Decision<'_> {
        let target = String::from_utf8_lossy(&request.target);
        let path = RoutePath::of(&target);
        if request.method == "POST" && path.normal == LEAVE {
            return Decision::Leave;
        }
        self.decide_path(request, &path)
    }

    fn decide_path(&self, request: &Request<'_>, path: &RoutePath<'_>) -> Decision<'_> {
        let mut routes = self.0.iter().enumerate();
        let Some((index, route)) = routes.find(|(_, route)| route.missing(request, path).is_none()) else {
            return Decision::Unrouted;
        };
        match &route.outcome {
            Outcome::Bypass => Decision::LetThrough { index, exemption: None },
            Outcome::Deny => Decision::Denied { index },
            Outcome::Zone(gated) => match exemption::of(request, path) {
                Some(exemption) if !gated.everything => {
                    Decision::LetThrough { index, exemption: Some(exemption) }
                }
                _ => Decision::Gated { index, gated },
            },
        }
    }

    /// Says line by line what each route does with a request, up to the one that decides.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>) -> Vec<String> {
        let target = String::from_utf8_lossy(&request.target);
        let path = RoutePath::of(&target);
        let decision = self.decide_path(request, &path);
        let tried = decision.index().unwrap_or(self.0.len());
        let mut lines = Vec::with_capacity(tried + 1);
        for (route, number) in self.0.iter().zip(1..).take(tried) {
            let missing =
                route.missing(request, &path).map_or_else(String::new, |condition| match condition {
                    Condition::Path(_) if condition.holds(request, &path) => {
                        "the path is spelled in an unusual way, and this route lets people through".to_owned()
                    }
                    condition => format!("not its {condition}"),
                });
            lines.push(format!("{number}. {}: does not fit: {missing}", route.name));
        }
        let outcome = match &decision {
            Decision::Leave | Decision::Unrouted => {
                lines.push("no route fits: let through".to_owned());
                return lines;
            }
            Decision::Gated { gated, .. } => format!("waits in {}", gated.zone),
            Decision::Denied { .. } => "refused".to_owned(),
            Decision::LetThrough { index, exemption } => match (&self.0[*index].outcome, exemption) {
                (Outcome::Zone(gated), Some(why)) => {
                    format!("let through without waiting in {}, because {why}", gated.zone)
                }
                _ => "let through".to_owned(),
            },
        };
        let route = &self.0[tried];
        let fits = match &route.conditions[..] {
            [] => "fits every request".to_owned(),
            some => {
                format!("fits: {}", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        };
        lines.push(format!("{}. {}: {fits}: {outcome}", tried + 1, route.name));
        lines
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::HeaderName};

    use super::*;
    use crate::{digest::SecretDigest, pattern::Pattern, route::Matcher};

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
        Outcome::Zone(Gated::new(zone))
    }

    fn path(text: &str) -> Condition {
        Condition::Path(vec![pattern(text)])
    }

    fn request<'a>(method: &'a str, host: &'a str, target: &'a str, headers: &'a HeaderMap) -> Request<'a> {
        Request {
            method: method.into(),
            host: host.into(),
            target: target.as_bytes().into(),
            is_secure: false,
            headers,
            address: [192, 0, 2, 7].into(),
            tokens: &[],
        }
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
        let name = |index: usize| routes.all()[index].name.clone();
        match routes.decide(&request(method, host, &target, &fields)) {
            Decision::Leave => "leave".to_owned(),
            Decision::Unrouted => "none".to_owned(),
            Decision::LetThrough { index, exemption: Some(why) } => format!("{}: {why:?}", name(index)),
            Decision::LetThrough { index, .. }
            | Decision::Denied { index }
            | Decision::Gated { index, .. } => name(index),
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
        let secret = Matcher::Secret(SecretDigest::of(b"0123456789abcdef"));
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
            let outcome = Outcome::Zone(Gated { everything, ..Gated::new(zone) });
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
        let headers = HeaderMap::new();
        let request = request("GET", "h", "/help/%78", &headers);
        assert_eq!(
            routes.explain(&request),
            [
                "1. staff: does not fit: not its cookie staff",
                "2. open: does not fit: the path is spelled in an unusual way, and this route lets people through",
                "3. site: fits: path /*: waits in Z",
            ]
        );
        assert_eq!(Routes::default().explain(&request), ["no route fits: let through"]);
    }
}
