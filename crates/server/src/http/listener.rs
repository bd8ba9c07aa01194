//! What the edge reports about a listener's connections: metrics, and the replies to connections that never sent a request.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use edge::{Observer, Refusal};
use hyper::{
    Response,
    header::{CACHE_CONTROL, HeaderValue},
};
use ipnet::IpNet;
use tokio::time::Instant;

use super::{
    cors::Origins,
    counted_addresses::Uncounted,
    problem::{HEAD_TOO_LARGE, MALFORMED_HTTP, Problem, SLOW_HEAD},
};
use crate::metrics::{Connections, Metrics, Route};

/// How often the log names a client that has too many connections, in seconds. It may be a proxy that nobody listed.
const WARN_EVERY_S: u64 = 60;

/// Counts the refusals of a listener and, on the public one, its connections.
pub struct ListenerObserver {
    metrics: Arc<Metrics>,
    connections: Option<Connections>,
    uncounted: Uncounted,
    /// The addresses that a part of the connections is kept for.
    trusted_proxies: Vec<IpNet>,
    /// The origins of pages that may read refusals.
    cors_origins: Origins,
    started: Instant,
    /// When the log named a client that has too many connections, in seconds after `started` and 1.
    warned_s: AtomicU64,
}

impl ListenerObserver {
    /// For the public listener, which may have `most` connections, and does not count those of `uncounted` by client.
    #[must_use]
    pub fn public(metrics: Arc<Metrics>, most: usize, uncounted: Uncounted) -> Self {
        let connections = metrics.connections.clone();
        connections.most.set(most as f64);
        Self { connections: Some(connections), uncounted, ..Self::uncounted(metrics) }
    }

    /// For the listeners of operators and of gRPC, whose connections no metric counts.
    #[must_use]
    pub fn uncounted(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            connections: None,
            uncounted: Uncounted::default(),
            trusted_proxies: Vec::new(),
            cors_origins: Origins::default(),
            started: Instant::now(),
            warned_s: AtomicU64::new(0),
        }
    }

    /// Lets these proxies use the connections that the listener has in reserve.
    #[must_use]
    pub fn with_reserve_for(mut self, trusted_proxies: &[IpNet]) -> Self {
        self.trusted_proxies = trusted_proxies.to_vec();
        self
    }

    /// Lets pages of these origins read the refusals.
    #[must_use]
    pub fn readable_for(mut self, cors_origins: &Origins) -> Self {
        self.cors_origins = cors_origins.clone();
        self
    }

    fn warn(&self, client: IpAddr) {
        let (now_s, before_s) = (self.started.elapsed().as_secs() + 1, self.warned_s.load(Relaxed));
        let due = before_s == 0 || now_s >= before_s + WARN_EVERY_S;
        if due && self.warned_s.compare_exchange(before_s, now_s, Relaxed, Relaxed).is_ok() {
            tracing::warn!(
                %client,
                "this client has max_connections_per_client connections, and further ones are refused; if it is a proxy, \
                 list it in trusted_proxies; if many people share the address, in limit.carrier_nats"
            );
        }
    }
}

impl Observer for ListenerObserver {
    fn opened(&self) {
        if let Some(connections) = &self.connections {
            connections.accepted.increment(1);
            connections.open.inc();
        }
    }

    fn closed(&self) {
        if let Some(connections) = &self.connections {
            connections.open.dec();
        }
    }

    fn handshake_failed(&self) {
        if let Some(connections) = &self.connections {
            connections.handshakes_failed.increment(1);
        }
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        self.uncounted.has(address)
    }

    fn has_reserve(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|net| net.contains(&address))
    }

    fn refused(&self, refusal: Refusal) -> Response<Bytes> {
        if let Some(connections) = &self.connections {
            match refusal {
                Refusal::Overloaded => connections.refused.increment(1),
                Refusal::TooManyOfClient(client) => {
                    connections.refused_of_client.increment(1);
                    self.warn(client);
                }
                Refusal::Plaintext => connections.handshakes_failed.increment(1),
                _ => {}
            }
        }
        let problem = match refusal {
            Refusal::Overloaded => Problem::overloaded(),
            Refusal::TooManyOfClient(_) => Problem::too_many_connections(),
            Refusal::Malformed => MALFORMED_HTTP.into(),
            Refusal::HeadTooLarge => HEAD_TOO_LARGE.into(),
            Refusal::SlowHead => SLOW_HEAD.into(),
            Refusal::Plaintext => Problem::new(MALFORMED_HTTP, "this port is for https://"),
        };
        self.metrics.refused(Route::Other, problem.code.status);
        let body = problem.body().into();
        let mut reply = problem.into_reply().map(|_| body);
        reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.cors_origins.write_for_any(reply.headers_mut());
        reply
    }
}
