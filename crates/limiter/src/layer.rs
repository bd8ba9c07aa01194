//! A [tower](https://docs.rs/tower) layer that asks the limiter about each request.
//!
//! A [`KeyOf`] chooses the key of a request: the client's address ([`ByAddress`]), a header ([`ByHeader`]), or a function.
//! Each reply has `RateLimit-Policy` and `RateLimit` ([`Announced`]). A refused request does not reach the service. The
//! reply is a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)):
//!
//! - 429 with `Retry-After` if the request may be repeated then;
//! - 429 without it if the request costs more than the limit's capacity, so that waiting does not help;
//! - 503 with `Retry-After` if the back end does not answer and the configuration refuses.
//!
//! Invariant: each request causes one ask, and waits only for the limiter.

pub mod client_address;
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
use client_address::Prefixes;

/// The `Retry-After` of a 503, in seconds.
const UNKNOWN_RETRY_S: u64 = 1;

/// Chooses the key of a request.
pub trait KeyOf: Send + Sync + 'static {
    /// The key; with `None`, the request is not limited.
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

/// The value of a header. All requests without the header share one key, so leaving it out does not avoid the limit. Use it
/// only for headers that a client cannot choose, or that were checked before.
#[derive(Clone, Debug)]
pub struct ByHeader(pub HeaderName);

impl KeyOf for ByHeader {
    fn key(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(head.headers.get(&self.0).map_or_else(Vec::new, |value| value.as_bytes().to_vec()))
    }
}

/// The client's address, or its network.
pub struct ByAddress {
    /// Returns the peer's address; with axum, from the extension `ConnectInfo<SocketAddr>`. All requests without one share
    /// one key.
    pub peer: fn(&Parts) -> Option<IpAddr>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// How many bits of an address make the key.
    pub prefixes: Prefixes,
}

impl ByAddress {
    /// Uses the peer's address, /32 or /64. No proxy is trusted.
    #[must_use]
    pub fn new(peer: fn(&Parts) -> Option<IpAddr>) -> Self {
        Self { peer, trusted_proxies: Vec::new(), prefixes: Prefixes::default() }
    }
}

impl KeyOf for ByAddress {
    fn key(&self, head: &Parts) -> Option<Vec<u8>> {
        let client = |peer| client_address::client(peer, &head.headers, &self.trusted_proxies);
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
    /// Each request costs 1 token of its key under `limit`. Clients see the limit's name.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>, limit: Limit, key: K) -> Self {
        Self::with_cost(limiter, limit, key, |_| 1)
    }

    /// The same, with a function for the cost of each request.
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
        // The request takes the service that is ready; the clone that stays must become ready first.
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
        // The type comes from the draft. The document names the policy that decided.
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
