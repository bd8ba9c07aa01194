//! Requests, by route and status.
//!
//! Invariant: an answer to a poll writes to two handles that were made before, and looks nothing up in a map.

use std::{sync::OnceLock, time::Duration};

use metrics::{Counter, Histogram};

use super::{names, registry::Registry};

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `POST /traffic/wait`
    Wait,
    /// `POST /traffic/entry`
    Entry,
    /// `POST /traffic/leave`
    Leave,
    /// `GET /traffic/stream`
    Stream,
    /// `GET /admin/v1/events`
    Events,
    /// The rest of `/admin/v1/`
    Admin,
    /// `GET /openapi.json`
    OpenApi,
    /// `GET /healthz`
    Health,
    /// `GET /readyz`
    Ready,
    /// `GET /.well-known/jwks.json`
    Jwks,
    /// `GET /traffic/notice`
    Notice,
    /// `GET /draws/{zone}/{event}` and its record
    Draw,
    /// `POST /draws/{zone}/{event}/receipt`
    Receipt,
    /// `GET /traffic/stock`
    Stock,
    /// `GET /zones/{zone}/rules`
    Rules,
    /// `GET /wait/{zone}`
    Page,
    /// `GET /weir.js` and `GET /wait-assets/…`
    Asset,
    /// `/gate/check`
    Check,
    /// `GET /metrics`
    Metrics,
    /// `GET /admin`: the console
    Console,
    /// Any other path, and input that never became a request.
    Other,
}

impl Route {
    /// Whether apps call it.
    #[must_use]
    pub fn is_traffic(self) -> bool {
        matches!(
            self,
            Self::Wait
                | Self::Entry
                | Self::Leave
                | Self::Stream
                | Self::Notice
                | Self::Stock
                | Self::Receipt
        )
    }
}

/// The label of each route, in the order of [`Route`].
const ROUTES: [&str; 21] = [
    "wait", "entry", "leave", "stream", "events", "admin", "openapi", "healthz", "readyz", "jwks", "notice",
    "draw", "receipt", "stock", "rules", "page", "asset", "check", "metrics", "console", "other",
];

/// Every status that the server answers with.
const STATUSES: [u16; 24] = [
    200, 201, 204, 303, 304, 307, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 421, 422, 428, 429,
    431, 500, 503,
];

pub(super) struct Requests {
    /// Made when a route first answers with a status, so that pairs that never happen are not shown.
    by_status: [[OnceLock<Counter>; STATUSES.len()]; ROUTES.len()],
    duration: [Histogram; ROUTES.len()],
}

impl Requests {
    pub(super) fn new(registry: &Registry) -> Self {
        let duration = |route| registry.histogram(names::REQUEST_DURATION, &[("route", route)]);
        Self { by_status: Default::default(), duration: ROUTES.map(duration) }
    }

    pub(super) fn took(&self, route: Route, took: Duration) {
        self.duration[route as usize].record(took.as_secs_f64());
    }

    pub(super) fn answered(&self, registry: &Registry, route: Route, status: u16) {
        // 500 stands for a status that is not in the list. There is none today.
        let at = |status| STATUSES.iter().position(|&known| known == status);
        let index = at(status).or(at(500)).expect("500 is in the list");
        let made = || {
            let status = STATUSES[index].to_string();
            registry.counter(names::REQUESTS, &[("route", ROUTES[route as usize]), ("status", &status)])
        };
        self.by_status[route as usize][index].get_or_init(made).increment(1);
    }
}
