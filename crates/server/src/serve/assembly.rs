//! Puts the parts of a server together, from a configuration.
//!
//! The order is keys, store, subscribers, zones, listeners. Invariant: everything that follows the bus subscribes before the
//! first event is published.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use audit::{Audit, Recorder};
use edge::{PerClient, listen};
use events::Bus;
use gate::{AnyStore, Gate, definitions::OnChange, limits::Limits};
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::timeout,
};

use super::zones::{self, Followers};
use crate::{
    change_log::ChangeLog,
    clock::unix_ms,
    config::Config,
    draws::Draws,
    failure::{self, Failure},
    http::{
        Lifecycle,
        admin::{AdminParts, AdminState, Guard, Refusals},
        context::Requests,
        counted_addresses::Uncounted,
        public::{PublicParts, PublicState, UnusedVisits},
        routes_in_force::ServedRoutes,
        rules::{Followed, SeenRules},
        stream::Streams,
        waiting_page::Pages,
    },
    keys::{self, IfMissing, Keys, fingerprints},
    load_meter,
    metrics::Metrics,
    otlp::Tracer,
    past_events::PastEvents,
    servers::{AllAway, Servers, State, coming},
    stats::Stats,
    stock::Stocks,
    stores::{Connections, Logins, StoreSettings},
    tls::{Certificates, TlsSettings},
};

/// How long the start waits until the stores have said what is left.
const FIRST_STOCK: Duration = Duration::from_secs(2);

/// The sockets that listen.
pub(super) struct Sockets {
    pub(super) public: TcpListener,
    pub(super) admin: TcpListener,
    /// For proxies that ask over gRPC, if there may be any.
    pub(super) grpc: Option<TcpListener>,
}

/// A server whose parts run, and whose listeners do not accept yet.
pub(super) struct Assembled {
    pub(super) public: PublicState,
    pub(super) admin: AdminState,
    pub(super) sockets: Sockets,
    pub(super) metrics: Arc<Metrics>,
    /// The certificate of the public listener, if that is encrypted.
    pub(super) certificates: Option<Arc<Certificates>>,
    /// The logins at the store, if it is in Redis.
    pub(super) logins: Option<Logins>,
    /// Is notified when zones or policies changed elsewhere.
    pub(super) zones_changed: Arc<Notify>,
    /// The tasks of all parts. They end when this is dropped.
    pub(super) tasks: JoinSet<()>,
}

/// Makes the parts. The audit log is left in `audit`, because it must outlive the runtime: it ends when everything that
/// publishes events is gone. `tracer` begins the traces of requests, if there is a collector.
pub(super) async fn assemble(
    config: &Config,
    bus: &Arc<Bus>,
    audit: &mut Option<Audit>,
    tracer: Option<Arc<Tracer>>,
) -> Result<Assembled, Failure> {
    // Before anything is made.
    let certificate = config.tls.as_ref().map(TlsSettings::read).transpose()?;
    let connections = match &config.store {
        StoreSettings::Memory => None,
        StoreSettings::Redis(redis) => Some(Connections::read(redis)?),
    };
    keys::make_dir(&config.data_dir)?;
    let Keys { seals, passes } = Keys::read(&config.seal, &config.pass, &config.data_dir, IfMissing::Make)?;
    let mut pages = Pages::read(&config.wait).map_err(Failure::with(failure::USAGE))?;
    let (store, cells) = zones::open_store(config, connections.as_ref())?;
    let metrics = Arc::new(Metrics::new(Arc::clone(bus)));
    let certificates = config.tls.as_ref().zip(certificate.as_ref());
    let certificates = certificates
        .map(|(settings, read)| Certificates::new(settings, read, Arc::clone(&metrics)))
        .transpose()?;
    let gate = Arc::new(Gate::new(Arc::new(store), seals, Arc::clone(bus)).open_after(config.open_after));
    let pace = Arc::clone(gate.pace());

    let counted = metrics.subscribe().map_err(Failure::with(failure::UNAVAILABLE))?;
    *audit = start_audit(config, bus, &gate)?;
    let streamed = Streams::subscribe(bus).map_err(Failure::with(failure::UNAVAILABLE))?;
    let entries = Stats::subscribe(bus).map_err(Failure::with(failure::UNAVAILABLE))?;
    let definitions = ChangeLog::subscribe(bus).map_err(Failure::with(failure::UNAVAILABLE))?;
    let rare = PastEvents::subscribe(bus).map_err(Failure::with(failure::UNAVAILABLE))?;

    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&metrics).follow(counted, Arc::clone(&gate)));
    tasks.spawn(Arc::clone(&metrics).run_upkeep());
    tasks.spawn(Arc::clone(&metrics).follow_troubles(Arc::clone(&gate)));
    tasks.spawn(load_meter::follow(Arc::clone(&gate), Arc::clone(&metrics)));
    if let Some(certificates) = &certificates {
        tasks.spawn(Arc::clone(certificates).follow(Arc::clone(bus)));
    }
    let passes = Arc::new(ArcSwap::from_pointee(passes));
    let stock = match &cells {
        None => Stocks::in_dir(&config.data_dir).map_err(Failure::with(failure::IO))?,
        Some(cells) => Stocks::in_cells(Arc::clone(cells)),
    };
    let stock = Arc::new(stock);
    let streams = Arc::new(Streams::new(
        (Arc::clone(&gate), Arc::clone(&passes), Arc::clone(&stock)),
        metrics.streams.clone(),
        config.max_streams_per_client.map(|most| PerClient { most, ipv6_prefix: config.limit.ipv6_prefix }),
        Uncounted::new(&config.trusted_proxies, &config.limit.carrier_nats),
    ));
    let (following, of) = (Arc::clone(&streams), Arc::clone(bus));
    tasks.spawn(async move { following.follow(streamed, &of).await });

    let recorder = audit.as_ref().map_or_else(Recorder::without_log, Audit::recorder);
    let of_zones = recorder.clone();
    let on_change: Box<OnChange> = Box::new(move |author, zone, change| of_zones.write(author, zone, change));
    let zones_changed = Arc::new(Notify::new());
    let zones = match cells.as_ref().zip(connections.as_ref()) {
        None => zones::of_file(config, &gate, on_change, &mut tasks).await?,
        Some(cells) => {
            let followers = Followers { tasks: &mut tasks, bus, metrics: &metrics, changed: &zones_changed };
            zones::of_cells(config, &gate, cells, on_change, followers).await?
        }
    };
    for said in pages.note_unused(&zones.editor.list(), None) {
        tracing::warn!("{said}");
    }
    // The stores have listed their zones.
    if timeout(FIRST_STOCK, stock.look()).await.is_err() {
        tracing::warn!("not every store has said in time what is left; it is told as soon as it does");
    }
    for at in 0..cells.as_ref().map_or(0, |cells| cells.all().len()) {
        tasks.spawn(Arc::clone(&stock).follow(at));
    }
    let routes = Arc::new(ServedRoutes::new(config.routes.clone(), Arc::clone(&metrics)));
    match (routes.take_in(gate.routes()), &cells) {
        // The list is a file, which nobody replaces by itself.
        (Err(fault), None) => {
            let what = format_args!(
                "routes.json in {} cannot be used: {fault}; restore it from a copy, or move it away: then the routes are those \
                 of the configuration",
                config.data_dir.display()
            );
            return Err(Failure::new(failure::IO, what));
        }
        _ => drop(tasks.spawn(Arc::clone(&routes).follow(gate.routes().clone()))),
    }
    let draws = Draws::new(Arc::clone(&gate), config.draw.clone(), metrics.overdue_draws.clone());
    tasks.spawn(Arc::clone(&draws).follow());
    let rules = SeenRules::read(&config.data_dir, config.audit.as_ref().map(|audit| &*audit.dir));
    let (of_gate, of_routes) = (Arc::clone(&gate), Arc::clone(&routes));
    let followed = Followed { gate: of_gate, routes: of_routes, recorder: recorder.clone() };
    tasks.spawn(Arc::clone(&rules).follow(followed));
    let (stats, changes) = (Stats::new(), ChangeLog::new(gate.definitions()));
    tasks.spawn(Arc::clone(&stats).follow(entries, Arc::clone(&gate), Arc::clone(&stock)));
    tasks.spawn(Arc::clone(&changes).follow(definitions, Arc::clone(&gate)));

    let past = Arc::new(PastEvents::default());
    tasks.spawn(Arc::clone(&past).follow(rare, Arc::clone(bus)));

    let public_listener =
        listen(config.listen, config.backlog).map_err(Failure::with(failure::UNAVAILABLE))?;
    let admin_listener =
        listen(config.admin_listen, config.backlog).map_err(Failure::with(failure::UNAVAILABLE))?;
    let grpc_listener = config.gate_grpc_listen.map(|at| listen(at, config.backlog)).transpose();
    let grpc_listener = grpc_listener.map_err(Failure::with(failure::UNAVAILABLE))?;
    let lifecycle = Arc::new(Lifecycle::default());
    let servers = {
        let address = public_listener.local_addr().unwrap_or(config.listen);
        let (gate, metrics, lifecycle) =
            (Arc::downgrade(&gate), Arc::clone(&metrics), Arc::clone(&lifecycle));
        let unarmed = metrics.unarmed_servers.clone();
        Arc::new(Servers::new(address, unarmed, move || State {
            draining: lifecycle.is_out_of_service(),
            zones: gate.upgrade().map_or(0, |gate| gate.zones().len()),
            connections: usize::try_from(metrics.connections.open.get()).unwrap_or(0),
            pacing: pace.pacing(),
            seal_keys: gate.upgrade().map_or_else(Vec::new, |gate| fingerprints(&gate.seals())),
            away: gate.upgrade().map_or_else(AllAway::default, |gate| AllAway::of(&gate.troubles())),
            coming: gate
                .upgrade()
                .map_or_else(Vec::new, |gate| coming(&gate.definitions(), unix_ms() / 1_000)),
        }))
    };
    for cell in cells.iter().flat_map(|cells| cells.all()) {
        tasks.spawn(Arc::clone(&servers).run(Arc::clone(cell)));
    }
    let requests = |scheme| {
        Arc::new(Requests {
            metrics: Arc::clone(&metrics),
            trusted_proxies: config.trusted_proxies.clone(),
            body_timeout: config.body_timeout,
            cors_origins: config.cors_origins.clone(),
            tracer: tracer.clone(),
            scheme,
        })
    };
    let public = PublicState::from(PublicParts {
        gate: Arc::clone(&gate),
        limits: Limits::new(&config.limit, zones.buckets_of),
        passes,
        draws: Arc::clone(&draws),
        stock: Arc::clone(&stock),
        streams: Arc::clone(&streams),
        pages: ArcSwap::from_pointee(pages),
        routes: Arc::clone(&routes),
        rules,
        unused_visits: UnusedVisits::default(),
        cells: Arc::clone(&zones.cells),
        requests: requests(if config.tls.is_some() { "https" } else { "http" }),
        lifecycle: Arc::clone(&lifecycle),
    });
    let admin = AdminState::from(AdminParts {
        gate,
        editor: Arc::new(zones.editor),
        cells: zones.cells,
        bus: Arc::clone(bus),
        draws,
        streams,
        report_permits: Semaphore::new(super::REPORTS),
        stream_permits: Arc::new(Semaphore::new(super::ADMIN_STREAMS)),
        guard: ArcSwap::from_pointee(Guard::new(&config.admin_tokens, &config.admin_hosts)),
        refusals: Refusals::default(),
        stats,
        changes,
        stock,
        past,
        routes,
        recorder,
        servers,
        requests: requests("http"),
        lifecycle,
    });
    Ok(Assembled {
        public,
        admin,
        sockets: Sockets { public: public_listener, admin: admin_listener, grpc: grpc_listener },
        metrics,
        certificates,
        logins: connections.as_ref().map(Connections::logins),
        zones_changed,
        tasks,
    })
}

fn start_audit(config: &Config, bus: &Bus, gate: &Arc<Gate<AnyStore>>) -> Result<Option<Audit>, Failure> {
    let Some(settings) = &config.audit else { return Ok(None) };
    let gate = Arc::downgrade(gate);
    let policies = Box::new(move || Some(gate.upgrade()?.policies()));
    let started = Audit::start(bus, settings, policies);
    started.map(Some).map_err(|e| Failure::new(failure::CANNOT_CREATE, format_args!("the audit log: {e}")))
}
