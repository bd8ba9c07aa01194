//! What the routes decide about a request: for each reading of its path the first one that fits.
//!
//! Servers may read several paths in one target (see [`readings`](crate::readings)). The routes decide about each reading alone, and the
//! strictest decision counts. Some apps let a header choose the method (`X-HTTP-Method-Override`), so the routes decide about each such
//! method, too. Invariants: a request goes on only if it goes on with every reading. It is refused if it is refused with
//! any, and every zone of any reading must be open to its visitor. A request that no route fits goes on, but if all routes name hosts, a
//! host that none of them names is refused, and so is always what is no host.

use admission::ZoneId;
use http::HeaderName;

use crate::{
    exemption::{self, Exemption},
    host,
    path::RoutePath,
    pattern::Pattern,
    readings::Readings,
    request::Request,
    route::{Condition, Gated, Route, RouteAction},
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
    /// It goes on if its visitor has an open visit of the zone, and of each further one.
    Gated {
        /// The index of the route.
        index: usize,
        /// The zone.
        gated: &'r Gated,
        /// Further zones, each with the index of its route: servers may read the path as one of theirs. Almost always there are none.
        further: Vec<(usize, &'r Gated)>,
    },
    /// It is refused: its host is none, or all routes name hosts, and none of them this one.
    Misdirected,
    /// It is refused: servers may read more paths in its target than can be checked.
    Unreadable,
}

impl Decision<'_> {
    /// The index of the route that decides.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Leave | Self::Unrouted | Self::Misdirected | Self::Unreadable => None,
            Self::LetThrough { index, .. } | Self::Denied { index } | Self::Gated { index, .. } => {
                Some(*index)
            }
        }
    }
}

/// All routes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    all: Vec<Route>,
    /// Whether there are routes that let somebody through, and each names hosts. A `deny` for all hosts opens none.
    all_name_hosts: bool,
}

impl Routes {
    /// These routes, in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        let are_all_denied = routes.iter().all(Route::denies);
        let mut counted = routes.iter().filter(|route| are_all_denied || !route.denies()).peekable();
        let all_name_hosts = counted.peek().is_some() && counted.all(|route| route.hosts().is_some());
        Self { all: routes, all_name_hosts }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Route] {
        &self.all
    }

    /// The zones in which visitors wait. A zone comes as often as it has routes.
    pub fn gated(&self) -> impl Iterator<Item = &Gated> {
        self.all.iter().filter_map(|route| match &route.action {
            RouteAction::Zone(gated) => Some(gated),
            RouteAction::Bypass | RouteAction::Deny => None,
        })
    }

    /// The zones in which visitors wait. A zone comes as often as it has routes.
    pub fn zones(&self) -> impl Iterator<Item = &ZoneId> {
        self.gated().map(|gated| &gated.zone)
    }

    /// Whether a route asks for a bypass token.
    #[must_use]
    pub fn ask_for_tokens(&self) -> bool {
        let mut conditions = self.all.iter().flat_map(|route| &route.conditions);
        conditions.any(|condition| matches!(condition, Condition::Token(_)))
    }

    /// Whether a route asks for the value of a header.
    #[must_use]
    pub fn ask_for_header(&self, header: &HeaderName) -> bool {
        let mut conditions = self.all.iter().flat_map(|route| &route.conditions);
        conditions.any(|condition| matches!(condition, Condition::Header(name, _) if name == header))
    }

    /// Decides about a request.
    #[must_use]
    pub fn decide(&self, request: &Request<'_>) -> Decision<'_> {
        let readings = Readings::of(&request.target);
        self.decide_methods(request, &request.overridden(), &readings)
    }

    /// Decides with the written method and with those that an app may take instead.
    fn decide_methods(
        &self,
        request: &Request<'_>,
        overridden: &[Request<'_>],
        readings: &Readings<'_>,
    ) -> Decision<'_> {
        let written = self.decide_readings(request, readings);
        if overridden.is_empty() || written == Decision::Leave {
            return written;
        }
        let others = overridden.iter().map(|other| self.decide_readings(other, readings));
        strictest(std::iter::once(written).chain(others))
    }

    fn decide_readings(&self, request: &Request<'_>, readings: &Readings<'_>) -> Decision<'_> {
        if request.method == "POST" && readings.all().iter().any(|path| path.text == LEAVE) {
            return Decision::Leave;
        }
        if self.is_misdirected(request, readings) {
            return Decision::Misdirected;
        }
        match readings {
            Readings::One(path) => {
                let mut routes = self.all.iter().enumerate();
                decision(routes.find(|(_, route)| route.missing(request, path).is_none()), request, path)
            }
            Readings::Several(paths) => {
                let routes = self.that_may_fit(request);
                strictest(paths.iter().map(|path| first_of(&routes, request, path)))
            }
            Readings::TooMany => {
                let routes = self.that_may_fit(request);
                let any = RoutePath { text: "/".into(), is_plain: false };
                if routes.iter().any(|(_, route)| route.has_path()) {
                    return Decision::Unreadable;
                }
                first_of(&routes, request, &any)
            }
        }
    }

    /// Whether the request's host is none, or all routes name hosts and none of them this one. Health checks come without a host, and go on.
    fn is_misdirected(&self, request: &Request<'_>, readings: &Readings<'_>) -> bool {
        if !request.host.is_empty() && !host::is_name(&request.host) {
            return true;
        }
        let names_it = |route: &Route| {
            let is_named = |host: &Pattern| {
                host.fits(&request.host) && !(route.denies() && host.as_str().bytes().all(|b| b == b'*'))
            };
            route.hosts().is_some_and(|hosts| hosts.iter().any(is_named))
        };
        let is_health = || matches!(readings, Readings::One(path) if exemption::is_health(request, path));
        self.all_name_hosts && !self.all.iter().any(names_it) && !is_health()
    }

    /// The routes that fit the request with some path, with their indexes, up to the first one that fits it with every path. So no other
    /// condition is tried again for each reading.
    fn that_may_fit(&self, request: &Request<'_>) -> Vec<(usize, &Route)> {
        let mut routes = Vec::new();
        for (index, route) in self.all.iter().enumerate().filter(|(_, route)| route.may_fit(request)) {
            routes.push((index, route));
            if !route.has_path() {
                break;
            }
        }
        routes
    }

    /// Says line by line what each route does with a request, up to the one that decides. If servers read several paths, each line says
    /// with which one.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>) -> Vec<String> {
        let readings = Readings::of(&request.target);
        let any = [RoutePath { text: "/".into(), is_plain: false }];
        let paths = if readings == Readings::TooMany { &any } else { readings.all() };
        let overridden = request.overridden();
        let deciding: Vec<usize> = match self.decide_methods(request, &overridden, &readings) {
            Decision::Leave => {
                return vec!["the visits end here: the request never reaches the site".to_owned()];
            }
            Decision::Misdirected => {
                let host = &request.host;
                return vec![if host.is_empty() || host::is_name(host) {
                    format!("all routes name hosts, and none names `{host}`: refused")
                } else {
                    // What is behind a colon may be a part of a password.
                    let shown =
                        host.split_once(':').map_or(host.to_string(), |(name, _)| format!("{name}:…"));
                    format!("`{shown}` is no host: refused")
                }];
            }
            Decision::Unreadable => {
                return vec!["servers may read too many paths in this address: refused".to_owned()];
            }
            Decision::Unrouted | Decision::LetThrough { .. } => return self.explain_path(request, &paths[0]),
            Decision::Denied { index } => vec![index],
            Decision::Gated { index, further, .. } => {
                std::iter::once(index).chain(further.iter().map(|(index, _)| *index)).collect()
            }
        };
        let mut lines = Vec::new();
        for index in deciding {
            let deciding = std::iter::once(request).chain(&overridden).find_map(|request| {
                let routes = self.that_may_fit(request);
                let restricts = |path: &&RoutePath<'_>| match first_of(&routes, request, path) {
                    Decision::LetThrough { .. } => false,
                    decision => decision.index() == Some(index),
                };
                Some((request, paths.iter().find(restricts)?))
            });
            let (asked, path) = deciding.unwrap_or((request, &paths[0]));
            let method = (asked.method != request.method).then_some(&*asked.method);
            let path_read = matches!(readings, Readings::Several(_)).then_some(&*path.text);
            let read: Vec<&str> = method.into_iter().chain(path_read).collect();
            let told = self.explain_path(asked, path);
            if read.is_empty() {
                lines.extend(told);
            } else {
                lines.extend(told.iter().map(|line| format!("read as {}: {line}", read.join(" "))));
            }
        }
        lines
    }

    fn explain_path(&self, request: &Request<'_>, path: &RoutePath<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        for ((index, route), number) in self.all.iter().enumerate().zip(1..) {
            let name = &route.name;
            if let Some(condition) = route.missing(request, path) {
                let missing = if condition.would_hold(path) {
                    "the path is spelled in an unusual way, and this route lets people through".to_owned()
                } else {
                    format!("not its {condition}")
                };
                lines.push(format!("{number}. {name}: does not fit: {missing}"));
                continue;
            }
            let fits = match &route.conditions[..] {
                [] => "fits every request".to_owned(),
                some => {
                    format!("fits: {}", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
                }
            };
            let outcome = match (decision(Some((index, route)), request, path), &route.action) {
                (Decision::LetThrough { exemption: Some(why), .. }, RouteAction::Zone(gated)) => {
                    format!("let through without waiting in {}, because {why}", gated.zone)
                }
                (_, RouteAction::Zone(gated)) => format!("waits in {}", gated.zone),
                (_, RouteAction::Deny) => "refused".to_owned(),
                (_, RouteAction::Bypass) => "let through".to_owned(),
            };
            lines.push(format!("{number}. {name}: {fits}: {outcome}"));
            return lines;
        }
        lines.push("no route fits: let through".to_owned());
        lines
    }
}

/// What the first of these routes that fits decides. All of them may fit.
fn first_of<'r>(routes: &[(usize, &'r Route)], request: &Request<'_>, path: &RoutePath<'_>) -> Decision<'r> {
    decision(routes.iter().copied().find(|(_, route)| route.fits_path(request, path)), request, path)
}

/// What a route decides about a request that fits it; without a route, the request goes on.
fn decision<'r>(
    route: Option<(usize, &'r Route)>,
    request: &Request<'_>,
    path: &RoutePath<'_>,
) -> Decision<'r> {
    let Some((index, route)) = route else { return Decision::Unrouted };
    match &route.action {
        RouteAction::Bypass => Decision::LetThrough { index, exemption: None },
        RouteAction::Deny => Decision::Denied { index },
        RouteAction::Zone(gated) => match exemption::of(request, path) {
            Some(exemption) if !gated.everything => {
                Decision::LetThrough { index, exemption: Some(exemption) }
            }
            _ => Decision::Gated { index, gated, further: Vec::new() },
        },
    }
}

/// The strictest of the decisions about the readings of one target, and about the methods of one request.
fn strictest<'r>(decisions: impl Iterator<Item = Decision<'r>>) -> Decision<'r> {
    let (mut zones, mut other): (Vec<(usize, &Gated)>, _) = (Vec::new(), None);
    for decision in decisions {
        match decision {
            Decision::Denied { .. } | Decision::Misdirected | Decision::Unreadable => return decision,
            Decision::Gated { index, gated, further } => {
                for (index, gated) in std::iter::once((index, gated)).chain(further) {
                    match zones.iter_mut().find(|(_, known)| known.zone == gated.zone) {
                        // The visitor has one visit of a zone, and it has to count for both routes.
                        Some(known) if gated.bind_address && !known.1.bind_address => *known = (index, gated),
                        Some(known) if known.1.bind_address == gated.bind_address => {
                            known.0 = known.0.min(index);
                        }
                        Some(_) => {}
                        None => zones.push((index, gated)),
                    }
                }
            }
            _ => {
                other.get_or_insert(decision);
            }
        }
    }
    zones.sort_by_key(|(index, _)| *index);
    let mut zones = zones.into_iter();
    match zones.next() {
        Some((index, gated)) => Decision::Gated { index, gated, further: zones.collect() },
        None => other.unwrap_or(Decision::Unrouted),
    }
}

#[cfg(test)]
mod tests;
