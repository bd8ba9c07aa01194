//! A [tower](https://docs.rs/tower) layer: asks before a request goes on, and tells in HTTP what was decided.
//!
//! What a request is counted under is for a [`KeyOf`] to say: the client's address ([`ByAddress`]), a header
//! ([`ByHeader`]), or a function. Each reply has `RateLimit-Policy` and `RateLimit` ([`Announced`]). A request that is
//! refused does not reach the service: the reply is a problem document
//! ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)),
//!
//! - 429 with `Retry-After` where it may be made again then;
//! - 429 without, where it costs more than the limit ever holds: to wait does not help;
//! - 503 with `Retry-After` where nobody could say, and the limiter is closed then.
//!
//! Invariant: each request is asked about once, and waits for nothing but the limiter.

pub mod address;
mod fields;

use std::{
    fmt,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    HeaderName, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    request::Parts,
};
use ipnet::IpNet;
use tower_layer::Layer;
use tower_service::Service;

pub use self::fields::Announced;
use crate::{Decision, Limit, Limiter};
use address::Prefixes;

/// After how long to come again where nobody could say, in seconds.
const UNKNOWN_RETRY_S: u64 = 1;

/// What a request is counted under.
pub trait KeyOf: Send + Sync + 'static {
    /// The key; with none, the request is not limited.
    fn key(&self, head: &Parts) -> Option<Vec<u8>>;
}

impl<F> KeyOf for F
where
    F: Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    fn key(&self, head: &Parts) -> Option<Vec<u8>> {
        self(head)
    }
}

/// By a header's value. Those who do not send it are counted as one: leaving it out lifts no limit. Only for headers that
/// a client can't choose, or that are checked before.
#[derive(Clone, Debug)]
pub struct ByHeader(pub HeaderName);

impl KeyOf for ByHeader {
    fn key(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(head.headers.get(&self.0).map_or_else(Vec::new, |value| value.as_bytes().to_vec()))
    }
}

/// By the client's address, or the network that it is of.
pub struct ByAddress {
    /// Where the peer's address is; with axum, in the extension `ConnectInfo<SocketAddr>`. Requests without one are
    /// counted as one.
    pub peer: fn(&Parts) -> Option<IpAddr>,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// How much of an address counts.
    pub prefixes: Prefixes,
}

impl ByAddress {
    /// By the peer's address, /32 or /64; no proxy is trusted.
    #[must_use]
    pub fn new(peer: fn(&Parts) -> Option<IpAddr>) -> Self {
        Self { peer, trusted_proxies: Vec::new(), prefixes: Prefixes::default() }
    }
}

impl KeyOf for ByAddress {
    fn key(&self, head: &Parts) -> Option<Vec<u8>> {
        let client = |peer| address::client(peer, &head.headers, &self.trusted_proxies);
        let key = |peer| self.prefixes.key(client(peer)).as_ref().to_vec();
        Some((self.peer)(head).map_or_else(Vec::new, key))
    }
}

/// The layer. Cheap to clone.
pub struct LimitLayer<K>(Arc<Inner<K>>);

struct Inner<K> {
    limiter: Arc<Limiter>,
    announced: Announced,
    key: K,
    cost: fn(&Parts) -> u64,
}

impl<K: KeyOf> LimitLayer<K> {
    /// Lets a request through, at a cost of 1, where `limiter` says so for its key under `limit`, whose name is told to
    /// clients.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>, limit: Limit, key: K) -> Self {
        Self::with_cost(limiter, limit, key, |_| 1)
    }

    /// The same, with the cost of each request.
    #[must_use]
    pub fn with_cost(limiter: Arc<Limiter>, limit: Limit, key: K, cost: fn(&Parts) -> u64) -> Self {
        let name = limit.name().to_owned();
        Self(Arc::new(Inner { limiter, announced: Announced::new(limit, &name), key, cost }))
    }
}

impl<K> Clone for LimitLayer<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for LimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitLayer").field(self.0.announced.limit()).finish()
    }
}

impl<K, S> Layer<S> for LimitLayer<K> {
    type Service = Limited<K, S>;

    fn layer(&self, service: S) -> Self::Service {
        Limited { layer: self.clone(), service }
    }
}

/// A service behind a [`LimitLayer`].
#[derive(Debug)]
pub struct Limited<K, S> {
    layer: LimitLayer<K>,
    service: S,
}

impl<K, S: Clone> Clone for Limited<K, S> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), service: self.service.clone() }
    }
}

impl<K, S, In, Out> Service<Request<In>> for Limited<K, S>
where
    K: KeyOf,
    S: Service<Request<In>, Response = Response<Out>> + Clone + Send + 'static,
    S::Future: Send,
    In: Send + 'static,
    Out: From<String>,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Out>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        // The one that said it was ready goes along; its clone has to say so first.
        let clone = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, clone);
        let layer = Arc::clone(&self.layer.0);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let asked = layer.key.key(&head).map(|key| (key, (layer.cost)(&head)));
            let request = Request::from_parts(head, body);
            let Some((key, cost)) = asked else { return service.call(request).await };
            let decision = layer.limiter.ask(layer.announced.limit(), key, cost).await;
            let mut response =
                if decision.is_allowed() { service.call(request).await? } else { layer.refusal(&decision) };
            layer.announced.write(&decision, response.headers_mut());
            Ok(response)
        })
    }
}

impl<K> Inner<K> {
    fn refusal<Out: From<String>>(&self, decision: &Decision) -> Response<Out> {
        let policy = self.announced.policy_of(decision);
        // The type is the draft's; of the policies, it is the one that decided.
        let (status, body) = match (decision, policy) {
            (Decision::Denied { .. } | Decision::Never(_), Some(policy)) => {
                let detail = match decision {
                    Decision::Never(_) => "it costs more than the limit ever holds; to wait does not help",
                    _ => "come back after the time in Retry-After",
                };
                let body = format!(
                    r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"detail":"{detail}","violated-policies":[{policy}]}}"#
                );
                (StatusCode::TOO_MANY_REQUESTS, body)
            }
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the limit can't be asked about at present"}"#.to_owned(),
            ),
        };
        let mut response = Response::new(Out::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, UNKNOWN_RETRY_S.into());
        }
        response
    }
}
