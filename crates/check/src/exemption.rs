//! Requests that do not wait in a zone, although its route fits: static files, health checks, preflights.
//!
//! Invariant: a path exempts a request only in its plain spelling.

use std::fmt;

use crate::{path::RoutePath, request::Request};

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

/// Paths that load balancers and crawlers read.
const HEALTH: [&str; 8] =
    ["/healthz", "/health", "/livez", "/readyz", "/ping", "/robots.txt", "/favicon.ico", "/.well-known/*"];

/// Why the request does not wait in a zone whose route does not say `everything`.
#[must_use]
pub fn of(request: &Request<'_>, path: &RoutePath<'_>) -> Option<Exemption> {
    if request.method == "OPTIONS" {
        let is_preflight = ["origin", "access-control-request-method"]
            .iter()
            .all(|name| request.headers.contains_key(*name));
        return is_preflight.then_some(Exemption::Preflight);
    }
    if !path.is_plain || !request.is_safe() {
        return None;
    }
    let path = &path.normal;
    let is_health = |known: &&str| match known.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == known,
    };
    if HEALTH.iter().any(is_health) {
        return Some(Exemption::Health);
    }
    let file = path.rsplit('/').next().unwrap_or_default();
    let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| STATIC.contains(&ending.as_str())).then_some(Exemption::StaticFile)
}
