//! A request from its head to its reply: who calls, and what the reply says beside the answer.
//!
//! Every request of every listener begins and finishes here, whether it goes through a router (the layer `count` in `layers`) or
//! past it (polls, and the check of a proxy; see [`public`](super::public)). A handler says by its `RequestContext` that it read the
//! body, and which limit the reply shows. Invariants: each request is counted once, under its route and status; a connection whose
//! request has a body that nobody read closes, because the rest would be taken for the next request; a request that is traced is so from
//! here to here.

use std::{
    fmt::Display,
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::extract::FromRequestParts;
use bytes::Bytes;
use gate::limits::LimitAnswer;
use http_body_util::Full;
use hyper::{
    Response,
    body::Body,
    header::{CACHE_CONTROL, CONNECTION, HeaderMap, HeaderValue},
    http::request::Parts,
};
use ipnet::IpNet;
use limiter::layer::{Announced, client_address};
use tokio::time::Instant;

use super::{NO_STORE, Peer, Replied, body, cors::Origins, problem::Problem};
use crate::{
    metrics::{Metrics, Route},
    otlp::{Trace, Traced, Tracer, Watch},
};

/// What all requests share. It begins and finishes them.
pub struct Requests {
    /// Counts requests.
    pub metrics: Arc<Metrics>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The longest time from the end of a head to the end of its body.
    pub body_timeout: Duration,
    /// The pages of other origins that may call.
    pub cors_origins: Origins,
    /// Begins traces, if there is a collector for them.
    pub tracer: Option<Arc<Tracer>>,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// One request that is being answered. An extension of requests that a router gets.
pub(super) struct RequestContext {
    route: Route,
    started: Instant,
    pub(super) client: Client,
    /// The page that may read the reply.
    page: Option<HeaderValue>,
    /// The request has a body, and nobody has read it to its end.
    body_left: AtomicBool,
    /// The limiter's decision that the reply shows.
    limit: OnceLock<LimitAnswer>,
    /// None for a request that is not traced: nearly all of them.
    trace: Option<Box<Trace>>,
}

/// The address of the client: the peer's, or the one that a trusted proxy names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client(pub(super) IpAddr);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let context = parts.extensions.get::<Arc<RequestContext>>();
        Ok(context.expect("`count` surrounds every handler").client)
    }
}

impl Requests {
    /// Whether this peer is a proxy that the operator listed.
    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&peer.to_canonical()))
    }

    pub(super) fn client(&self, peer: Peer, headers: &HeaderMap) -> Client {
        Client(client_address::client(peer.0.ip(), headers, &self.trusted_proxies))
    }

    /// A request whose head has arrived.
    pub(super) fn begin(
        &self,
        route: Route,
        traced: Traced<'_>,
        peer: Peer,
        headers: &HeaderMap,
        body: &impl Body,
    ) -> RequestContext {
        let started = Instant::now();
        RequestContext {
            route,
            started,
            trace: self.tracer.as_ref().and_then(|tracer| tracer.begin(traced, self.scheme, started)),
            client: self.client(peer, headers),
            page: if route.is_traffic() { self.cors_origins.allowed(headers) } else { None },
            body_left: AtomicBool::new(!body.is_end_stream()),
            limit: OnceLock::new(),
        }
    }

    /// Refuses a call that the client's limit refuses, and counts those about which the limiter could not decide.
    ///
    /// # Errors
    /// The client calls too often.
    pub(super) fn obey(&self, asked: Option<&LimitAnswer>) -> Result<(), Problem> {
        let Some(asked) = asked else { return Ok(()) };
        if asked.is_unknown() {
            self.metrics.limits_unknown.increment(1);
        }
        asked.retry_after_s().map_or(Ok(()), |seconds| Err(Problem::too_many_requests(seconds)))
    }

    /// Completes and counts a reply. Caches may not store it, unless the handler named another policy.
    pub(super) fn finish<B>(&self, context: &RequestContext, response: &mut Response<B>) {
        let headers = response.headers_mut();
        if let Some(asked) = context.limit.get() {
            write_limit(asked, headers);
        }
        if context.route.is_traffic() {
            self.cors_origins.write(context.page.clone(), headers);
        }
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        if context.body_left.load(Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let status = response.status().as_u16();
        if let Some(trace) = &context.trace {
            trace.finish(status);
        }
        self.metrics.answered(context.route, status, context.started.elapsed());
    }

    /// The finished reply to a request that went past the router. `what` names the request in the log.
    pub(super) fn reply(
        &self,
        context: &RequestContext,
        replied: Replied,
        what: impl Display,
    ) -> Response<Full<Bytes>> {
        let mut response = replied.unwrap_or_else(|problem| {
            context.log_refusal(&problem, what);
            problem.into_reply()
        });
        self.finish(context, &mut response);
        response
    }
}

impl RequestContext {
    /// Reads the request's body, of at most `most` bytes, within `limit`.
    ///
    /// # Errors
    /// As [`body::read`].
    pub(super) async fn read_body<B>(
        &self,
        body: &mut B,
        most: usize,
        limit: Duration,
    ) -> Result<Bytes, Problem>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let read = body::read(body, most, limit).await?;
        self.body_left.store(false, Relaxed);
        Ok(read)
    }

    /// Shows a limiter's decision in the reply, whatever that is. A request has one.
    pub(super) fn show_limit(&self, asked: Option<LimitAnswer>) -> Option<&LimitAnswer> {
        asked.map(|asked| self.limit.get_or_init(|| asked))
    }

    /// Watches a call of the gate in a zone that is served, if the request is traced.
    pub(super) fn watch<'a>(&'a self, call: &'static str, zone: &'a str) -> Watch<'a> {
        self.trace.as_ref().map_or_else(Watch::default, |trace| trace.watch(call, zone))
    }

    /// Logs why the request is refused. `what` is its method and path.
    pub(super) fn log_refusal(&self, problem: &Problem, what: impl Display) {
        if let Some(trace) = &self.trace {
            trace.note("weir.problem", problem.code.name);
        }
        let (client, route, code, detail) = (self.client.0, self.route, problem.code.name, &problem.detail);
        tracing::debug!(%client, ?route, %what, code, %detail, "refused");
    }
}

/// Writes the limiter's decision into the headers of a reply.
pub(super) fn write_limit(asked: &LimitAnswer, headers: &mut HeaderMap) {
    Announced::new(asked.limit.clone(), asked.name).write(&asked.decision, headers);
}
