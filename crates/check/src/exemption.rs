//! Requests that do not wait in a zone, although its route fits: static files, health checks, preflights.
//!
//! Invariants: a path exempts a request only if it is plain. A request that asks for another protocol is never exempt: what follows is
//! no file, and Weir does not see it.

use std::fmt;

use crate::{
    path::RoutePath,
    pattern::Pattern,
    request::Request,
    route::{Condition, Route, RouteAction},
};

/// Why a request is not asked to wait, although a zone's route fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// A browser asks whether a page may call.
    Preflight,
    /// A file of a kind that does not change.
    StaticFile,
    /// A load balancer or a crawler asks.
    Health,
}

impl fmt::Display for Exemption {
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

/// Paths that load balancers, crawlers and browsers read without cookies.
const HEALTH: [&str; 10] = [
    "/healthz",
    "/health",
    "/livez",
    "/readyz",
    "/ping",
    "/robots.txt",
    "/sitemap.xml",
    "/favicon.ico",
    "/manifest.json",
    "/.well-known/*",
];

/// Whether a request asks for another protocol, such as WebSocket. A proxy may keep `Upgrade` for itself, so its key counts, too.
fn is_upgrade(request: &Request<'_>) -> bool {
    ["upgrade", "sec-websocket-key"].iter().any(|name| request.headers.contains_key(*name))
}

/// Whether a load balancer, a crawler or a browser asks for one of the paths that they know.
#[must_use]
pub fn is_health(request: &Request<'_>, path: &RoutePath<'_>) -> bool {
    path.is_plain && request.is_safe() && is_health_path(&path.text) && !is_upgrade(request)
}

fn is_health_path(path: &str) -> bool {
    HEALTH.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == *known,
    })
}

/// Why the request does not wait in a zone whose route does not say `everything`.
#[must_use]
pub fn of(request: &Request<'_>, path: &RoutePath<'_>) -> Option<Exemption> {
    let exemption = if request.method == "OPTIONS" {
        let is_preflight = ["origin", "access-control-request-method"]
            .iter()
            .all(|name| request.headers.contains_key(*name));
        is_preflight.then_some(Exemption::Preflight)
    } else if path.is_plain && request.is_safe() {
        of_file(&path.text)
    } else {
        None
    };
    exemption.filter(|_| !is_upgrade(request))
}

/// Whether nobody who follows a link to one of a route's addresses waits there: each is a file or a health check, and the route does not say
/// `everything`.
#[must_use]
pub fn never_waits(route: &Route) -> bool {
    let is_exempt = matches!(&route.action, RouteAction::Zone(gated) if !gated.everything);
    let of_paths = |patterns: &[Pattern]| {
        patterns.iter().all(|pattern| of_file(&pattern.as_str().replace('*', "-")).is_some())
    };
    is_exempt
        && route.conditions.iter().any(|of| matches!(of, Condition::Path(patterns) if of_paths(patterns)))
}

fn of_file(path: &str) -> Option<Exemption> {
    if is_health_path(path) {
        return Some(Exemption::Health);
    }
    let file = path.rsplit('/').next().unwrap_or_default();
    let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| STATIC.contains(&ending.as_str())).then_some(Exemption::StaticFile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_whose_addresses_are_files_never_waits() {
        let route = |text: &str| {
            let fields: serde_json::Map<_, _> = serde_json::from_str(text).expect("JSON");
            crate::written::read(&fields, 1).expect("right")
        };
        for (text, never) in [
            (r#"{"zone": "Z", "path": "/healthz"}"#, true),
            (r#"{"zone": "Z", "path": ["*.css", "/a/b.JS", "/.well-known/*"]}"#, true),
            (r#"{"zone": "Z", "path": "*.css", "everything": true}"#, false),
            (r#"{"zone": "Z", "path": ["*.css", "/sale"]}"#, false),
            (r#"{"zone": "Z", "path": "/*"}"#, false),
            (r#"{"zone": "Z"}"#, false),
            (r#"{"deny": true, "path": "/a.css"}"#, false),
        ] {
            assert_eq!(never_waits(&route(text)), never, "{text}");
        }
    }
}
