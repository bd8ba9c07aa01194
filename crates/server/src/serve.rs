//! Serves: from a configuration to a running server, and to its end.
//!
//! | file | concern |
//! |---|---|
//! | `assembly` | puts the parts together |
//! | `zones` | opens the store, and follows changes of zones |
//! | `greeting` | what is printed when the server serves |
//! | `reload` | takes over a changed configuration |
//! | `shutdown` | signals, and the end |
//!
//! Invariant: the addresses are printed only when both listeners are open, so a caller that reads them can connect.

mod assembly;
mod greeting;
mod reload;
mod shutdown;
mod zones;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use audit::Audit;
use edge::{Edge, PerClient, Protocol};
use events::{Bus, Reloaded};
use gate::{AnyStore, Gate};
use tokio::{net::TcpListener, runtime, sync::watch, time::timeout};
use tower::service_fn;

use crate::{
    config::{Config, GRPC_CONNECTIONS, Sources},
    failure::{self, Failure},
    http::{
        admin::Admin, counted_addresses::Uncounted, grpc::Grpc, listener::ListenerObserver,
        openapi::Document, public::Public,
    },
    otlp::Otlp,
    output,
};
use assembly::{Assembled, assemble};
use greeting::Addresses;
pub use greeting::describe;
use reload::reload;
use shutdown::{Serving, Signals, shut_down};

/// The most connections of the admin listener. They come out of the reserve of open files.
const ADMIN_CONNECTIONS: usize = 64;

/// The most connections of the listener for gRPC that addresses other than `trusted_proxies` have. They only get told that they are not
/// trusted.
const GRPC_STRANGERS: usize = 32;

/// The most streams of events on the admin listener. A stream keeps its connection, so without this bound a single viewer
/// could take all connections.
const ADMIN_STREAMS: usize = ADMIN_CONNECTIONS / 2;

/// The most reports of events that are made at the same time. Each may hold a month of minutes, some 10 MB.
const REPORTS: usize = 2;

/// How long a connection of the listeners of operators and of gRPC may be idle before a request of it was admitted. Whoever
/// connects sends a request at once; a scraper that loses an idle connection opens another one.
const UNKNOWN: Duration = Duration::from_secs(5);

/// How long the admin listener finishes requests after the public listener has stopped.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// The stack of a thread. Address space only, which costs nothing: without optimisation, a lane that calls Redis takes more than the usual
/// 2 MiB.
pub const STACK_BYTES: usize = 8 << 20;

/// How long the stores may take to keep the statistics of the last minute.
const LAST_MINUTES: Duration = Duration::from_secs(1);

/// How long threads may take to end after the server has stopped.
const END_OF_THREADS: Duration = Duration::from_secs(1);

/// Serves until a signal stops the server. SIGHUP reads `sources` again. `otlp` is what a collector gets, if there is one.
///
/// # Errors
/// The server cannot start, or a second signal cut its end short.
pub fn run(config: Config, sources: &Sources, otlp: Option<Otlp>) -> Result<(), Failure> {
    let no_threads =
        |e: io::Error| Failure::new(failure::UNAVAILABLE, format_args!("threads cannot be started: {e}"));
    let bus = Arc::new(Bus::new().map_err(no_threads)?);
    let publisher = Arc::clone(&bus);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(config.worker_threads)
        .thread_stack_size(STACK_BYTES)
        // A thread's ring of events is made before there are requests.
        .on_thread_start(move || {
            let _ = publisher.enlist();
        })
        .enable_all()
        .build()
        .map_err(no_threads)?;
    let mut audit = None;
    let served = runtime.block_on(serve(config, sources, bus, &mut audit, otlp));
    runtime.shutdown_timeout(END_OF_THREADS);
    // The bus is gone with the runtime, so the log is complete when it has written what it received.
    if let Some(audit) = audit {
        audit.finish();
    }
    served
}

async fn serve(
    config: Config,
    sources: &Sources,
    bus: Arc<Bus>,
    audit: &mut Option<Audit>,
    otlp: Option<Otlp>,
) -> Result<(), Failure> {
    let Assembled {
        public,
        admin,
        public_listener,
        admin_listener,
        grpc_listener,
        metrics,
        certificates,
        logins,
        zones_changed,
        tasks,
    } = assemble(&config, &bus, audit, otlp.as_ref().map(Otlp::tracer)).await?;
    let sending = otlp.map(|otlp| otlp.start(Arc::clone(&metrics)));
    let mut signals = Signals::handle()?;
    let at = |listener: &TcpListener, asked: SocketAddr| listener.local_addr().unwrap_or(asked);
    let (public_at, admin_at) =
        (at(&public_listener, config.listen), at(&admin_listener, config.admin_listen));

    let limits = |connections, reserved, per_client: Option<usize>, unknown_client| edge::Limits {
        connections,
        reserved,
        unknown_client,
        per_client: per_client.map(|most| PerClient { most, ipv6_prefix: config.limit.ipv6_prefix }),
        header: config.header_timeout,
        write: config.write_timeout,
        idle: config.idle_timeout(longest_polling_ms(&public.gate)),
    };
    let protocol =
        |plain| certificates.as_ref().map_or(plain, |certificates| Protocol::Tls(certificates.tls()));
    let service = Public::new(public.clone(), || Document::Public.text());
    let public_edge = Edge::new(
        move |peer| {
            let public = Arc::clone(&service);
            service_fn(move |request| public.serve(request, peer))
        },
        Arc::new(
            ListenerObserver::public(
                Arc::clone(&metrics),
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
    let service = Admin::new(&admin, || Document::Admin.text());
    let admin_edge = Edge::new(
        move |peer| {
            let admin = Arc::clone(&service);
            service_fn(move |request| admin.serve(request, peer))
        },
        Arc::new(ListenerObserver::uncounted(Arc::clone(&metrics))),
        limits(ADMIN_CONNECTIONS, 0, None, Some(UNKNOWN)),
        Protocol::Http1,
    );
    let service = Grpc::new(public.clone());
    let grpc_edge = Edge::new(
        move |peer| {
            let grpc = Arc::clone(&service);
            service_fn(move |request| Arc::clone(&grpc).serve(request, peer))
        },
        Arc::new(ListenerObserver::uncounted(metrics).with_reserve_for(&config.trusted_proxies)),
        limits(GRPC_CONNECTIONS, GRPC_CONNECTIONS - GRPC_STRANGERS, None, Some(UNKNOWN)),
        protocol(Protocol::Http2),
    );
    let grpc_at = grpc_listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let mut serving_public = Vec::new();
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(Arc::clone(&public_edge).serve(public_listener, stopped, config.drain_deadline));
    serving_public.push(Serving { stop, task });
    if let Some(listener) = grpc_listener {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(grpc_edge.serve(listener, stopped, config.drain_deadline));
        serving_public.push(Serving { stop, task });
    }
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(admin_edge.serve(admin_listener, stopped, ADMIN_DRAIN));
    let serving_admin = Serving { stop, task };
    let at = Addresses { public: public_at, admin: admin_at, grpc: grpc_at };
    // A server serves also where nobody can read its greeting.
    if let Err(unwritten) = output::print(&greeting::greeting(&config, &public.gate.definitions(), at)) {
        tracing::warn!("{unwritten}");
    }

    let mut in_force = config.clone();
    loop {
        tokio::select! {
            _ = signals.reload.recv() => {
                let new = reload(&config, sources, &public, &admin, (certificates.as_deref(), logins.as_ref())).await;
                bus.publish(Reloaded { ok: new.is_some() });
                in_force = new.unwrap_or(in_force);
            }
            () = admin.editor.changed() => {}
            () = zones_changed.notified() => {}
            () = signals.stop.recv() => break,
        }
        public_edge.set_idle(in_force.idle_timeout(longest_polling_ms(&public.gate)));
    }
    tracing::info!(
        deadline_s = config.drain_deadline.as_secs(),
        "stopping: requests under way are finished first"
    );
    let ended = shut_down(&public, &admin.servers, serving_public, serving_admin, &mut signals.stop).await;
    if timeout(LAST_MINUTES, admin.stats.finish(&admin.gate)).await.is_err() {
        tracing::warn!("the store did not take the statistics of the last minute in time");
    }
    drop(tasks);
    // A second signal ends the process at once.
    if let (Ok(()), Some(sending)) = (&ended, sending) {
        sending.finish().await;
    }
    ended
}

/// The longest polling period of the zones that are served, in milliseconds.
fn longest_polling_ms(gate: &Gate<AnyStore>) -> u32 {
    gate.policies().iter().map(|(_, policy)| policy.period_limit_ms()).max().unwrap_or(0)
}
