//! Serves the listeners: gives each its service and its limits, and accepts connections.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use edge::{Edge, PerClient, Protocol};
use gate::{AnyStore, Gate};
use tokio::net::TcpListener;
use tower::service_fn;

use super::{assembly::Sockets, greeting::Addresses, shutdown::Serving};
use crate::{
    config::{Config, GRPC_CONNECTIONS},
    http::{
        admin::{Admin, AdminState},
        counted_addresses::Uncounted,
        grpc::Grpc,
        listener::ListenerObserver,
        openapi::Document,
        public::{Public, PublicState},
    },
    metrics::Metrics,
    tls::Certificates,
};

/// The most connections of the admin listener. They come out of the reserve of open files.
pub(super) const ADMIN_CONNECTIONS: usize = 64;

/// The most connections of the listener for gRPC that addresses other than `trusted_proxies` have. They only get told that they are not
/// trusted.
const GRPC_STRANGERS: usize = 32;

/// How long a connection of the listeners of operators and of gRPC may be idle before a request of it was admitted. Whoever
/// connects sends a request at once; a scraper that loses an idle connection opens another one.
const UNKNOWN: Duration = Duration::from_secs(5);

/// How long the admin listener finishes requests after the public listener has stopped.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// The listeners, which accept connections.
pub(super) struct Listeners {
    /// That of clients, and that of proxies over gRPC if there is one.
    pub(super) public: Vec<Serving>,
    pub(super) admin: Serving,
    pub(super) at: Addresses,
    /// Changes how long a client's connection may be idle.
    pub(super) set_idle: Box<dyn Fn(Duration)>,
}

impl Listeners {
    /// Serves `sockets` from now on. Must be called on a tokio runtime.
    pub(super) fn serve(
        config: &Config,
        (public, admin): (&PublicState, &AdminState),
        sockets: Sockets,
        metrics: &Arc<Metrics>,
        certificates: Option<&Certificates>,
    ) -> Self {
        let at = |listener: &TcpListener, asked: SocketAddr| listener.local_addr().unwrap_or(asked);
        let (public_at, admin_at) =
            (at(&sockets.public, config.listen), at(&sockets.admin, config.admin_listen));

        let limits = |connections, reserved, per_client: Option<usize>, unknown_client| edge::Limits {
            connections,
            reserved,
            unknown_client,
            per_client: per_client.map(|most| PerClient { most, ipv6_prefix: config.limit.ipv6_prefix }),
            header: config.header_timeout,
            write: config.write_timeout,
            idle: config.idle_timeout(longest_polling_ms(&public.gate)),
        };
        let protocol = |plain| certificates.map_or(plain, |certificates| Protocol::Tls(certificates.tls()));
        let service = Public::new(public.clone(), || Document::Public.text());
        let public_edge = Edge::new(
            move |peer| {
                let public = Arc::clone(&service);
                service_fn(move |request| public.serve(request, peer))
            },
            Arc::new(
                ListenerObserver::public(
                    Arc::clone(metrics),
                    config.max_connections,
                    Uncounted::new(&config.trusted_proxies, &config.limit.carrier_nats),
                )
                .with_reserve_for(&config.trusted_proxies)
                .readable_for(&config.cors_origins),
            ),
            limits(
                config.max_connections,
                config.connections_for_proxies(),
                config.max_connections_per_client,
                None,
            ),
            protocol(Protocol::Http1),
        );
        let service = Admin::new(admin, || Document::Admin.text());
        let admin_edge = Edge::new(
            move |peer| {
                let admin = Arc::clone(&service);
                service_fn(move |request| admin.serve(request, peer))
            },
            Arc::new(ListenerObserver::uncounted(Arc::clone(metrics))),
            limits(ADMIN_CONNECTIONS, 0, None, Some(UNKNOWN)),
            Protocol::Http1,
        );
        let service = Grpc::new(public.clone());
        let grpc_edge = Edge::new(
            move |peer| {
                let grpc = Arc::clone(&service);
                service_fn(move |request| Arc::clone(&grpc).serve(request, peer))
            },
            Arc::new(
                ListenerObserver::uncounted(Arc::clone(metrics)).with_reserve_for(&config.trusted_proxies),
            ),
            limits(GRPC_CONNECTIONS, GRPC_CONNECTIONS - GRPC_STRANGERS, None, Some(UNKNOWN)),
            protocol(Protocol::Http2),
        );
        let grpc_at = sockets.grpc.as_ref().and_then(|listener| listener.local_addr().ok());
        let drain = config.drain_deadline;
        let serve_public = Arc::clone(&public_edge);
        let mut serving_public =
            vec![Serving::start(|stopped| serve_public.serve(sockets.public, stopped, drain))];
        if let Some(listener) = sockets.grpc {
            serving_public.push(Serving::start(|stopped| grpc_edge.serve(listener, stopped, drain)));
        }
        let serving_admin = Serving::start(|stopped| admin_edge.serve(sockets.admin, stopped, ADMIN_DRAIN));
        let at = Addresses { public: public_at, admin: admin_at, grpc: grpc_at };
        let set_idle = Box::new(move |idle| public_edge.set_idle(idle));
        Self { public: serving_public, admin: serving_admin, at, set_idle }
    }
}

/// The longest polling period of the zones that are served, in milliseconds.
pub(super) fn longest_polling_ms(gate: &Gate<AnyStore>) -> u32 {
    gate.policies().iter().map(|(_, policy)| policy.period_limit_ms()).max().unwrap_or(0)
}
