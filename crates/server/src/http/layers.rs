//! The layers around the handlers of both routers: metrics and logs of each request, caching, the size of heads.
//!
//! The two polling calls do not go through a router (see [`public`](super::public)), so each layer is a function here, and
//! the polls call the same functions. Order, from the outside: `count`, CORS on the public listener, the number of header
//! fields, and then the handler. On the admin API the check of the operator is between the last two.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hyper::{
    body::Body as _,
    header::{CACHE_CONTROL, CONNECTION, HeaderMap, HeaderValue},
    http::request::Parts,
};
use ipnet::IpNet;
use limiter::layer::address;
use tokio::time::Instant;

use super::{
    MAX_FIELDS, NO_STORE, Peer,
    body::BodyRead,
    problem::{HEAD_TOO_LARGE, Problem},
};
use crate::metrics::{Metrics, Route};

/// What every request needs, on both listeners.
pub struct Intake {
    /// Counts requests.
    pub metrics: Arc<Metrics>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The longest time from the end of a head to the end of its body.
    pub body_timeout: Duration,
}

/// The address of the client: the peer's, or the one that a trusted proxy names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client(pub(super) IpAddr);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(*parts.extensions.get::<Self>().expect("`count` surrounds every handler"))
    }
}

impl Intake {
    /// Whether this peer is a proxy that the operator listed.
    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&peer.to_canonical()))
    }

    pub(super) fn client(&self, peer: Peer, headers: &HeaderMap) -> Client {
        Client(address::client(peer.0.ip(), headers, &self.trusted_proxies))
    }

    /// Counts a reply. Caches may not store it, unless the handler named another policy. Where the request has a body that
    /// was not read, the connection closes.
    pub(super) fn finish<B>(
        &self,
        route: Route,
        started: Instant,
        body_left: bool,
        response: &mut hyper::Response<B>,
    ) {
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        if body_left {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.answered(route, response.status().as_u16(), started.elapsed());
    }
}

/// The outermost layer: counts and logs each request of a route.
pub(super) async fn count(
    State((intake, route)): State<(Arc<Intake>, Route)>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let peer = *request.extensions().get::<Peer>().expect("the listener's service puts it there");
    let client = intake.client(peer, request.headers());
    request.extensions_mut().insert(client);
    let has_body = !request.body().is_end_stream();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        log_refusal(route, client, &problem, format_args!("{method} {}", uri.path()));
    }
    let was_read = response.extensions_mut().remove::<BodyRead>().is_some();
    intake.finish(route, started, has_body && !was_read, &mut response);
    response
}

/// Logs why a request was refused. `what` is its method and path.
pub(super) fn log_refusal(route: Route, client: Client, problem: &Problem, what: impl std::fmt::Display) {
    let (client, code, detail) = (client.0, problem.code.name, &problem.detail);
    tracing::debug!(%client, ?route, %what, code, %detail, "refused");
}

/// Refuses heads with too many fields. The edge has already refused heads longer than [`edge::MAX_HEAD`].
pub(super) async fn limit_fields(request: Request, next: Next) -> Response {
    match check_fields(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// # Errors
/// A head with more than [`MAX_FIELDS`] fields. The connection ends with it.
pub(super) fn check_fields(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.len() > MAX_FIELDS {
        return Err(Problem::from(HEAD_TOO_LARGE).closing());
    }
    Ok(())
}
