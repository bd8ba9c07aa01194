//! Wiring: from a command line to a server, and back down.
//!
//! The order is configuration, keys, store, zones, listeners, and only then a word on standard output: who reads
//! the addresses there can call them. Exit codes are those of `sysexits.h`: 64 for a configuration that is wrong,
//! 69 for an address that can't be had, or a store that does not answer `weir zones`, 73 for keys, a directory or an audit log that can't be made, 74 for a store that can't
//! be opened, 77 for keys that others may read; 1 for a stop that was cut short. `weir audit verify`
//! has 1 for a log that was changed, and 2 for one that can't be read.

use std::{
    env,
    ffi::OsString,
    fmt::{Display, Write as _},
    io::{self, IsTerminal as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use admission::{Definition, ZoneId};
use arc_swap::ArcSwap;
use edge::{Edge, listen};
use events::{Bus, Reloaded};
use gate::{
    AnyStore, Gate, Refresh, Watcher,
    cells::Cells,
    definitions::{self, Applied, DefineError, OnChange, ZoneEditor},
    limits::{BucketsOf, Limits},
    warn_of_differences,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use store::{Embedded, redis::Redis};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, oneshot, watch},
    task::JoinSet,
    time::timeout,
};
use tower::service_fn;

use crate::{
    access::AdminToken,
    audit::{self, Audit, Recorder},
    change_log::ChangeLog,
    config::{self, Config, Order, Sources},
    fanout::{self, Fanout, SenderId},
    http::{
        Lifecycle,
        admin::{Admin, AdminParts, AdminState, Guard},
        layers::Intake,
        listener::ListenerObserver,
        public::{Public, PublicParts, PublicState},
        stream::Streams,
        wait::Pages,
    },
    keys::{self, KeyFault},
    metrics::Metrics,
    remote,
    servers::{Servers, State},
    stats::Stats,
    stores::{self, RedisSettings, StoreSettings},
};

/// The admin listener's connections; they come out of the reserve of open files.
const ADMIN_CONNECTIONS: usize = 64;

/// Zones listed at the start; more are counted.
const ZONES_SHOWN: usize = 20;

/// How long the start waits for a store to tell its zones; it goes on without.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// Why the server did not start, or stopped short.
#[derive(Debug)]
struct Failure {
    exit: u8,
    line: String,
}

fn failure(exit: u8) -> impl Fn(&dyn Display) -> Failure {
    move |what| Failure { exit, line: what.to_string() }
}

impl From<KeyFault> for Failure {
    fn from(fault: KeyFault) -> Self {
        let exit = match fault {
            KeyFault::Unwritable { .. } => 73,
            KeyFault::Exposed(..) => 77,
            KeyFault::Unreadable { .. } | KeyFault::Wrong { .. } => 64,
        };
        Self { exit, line: fault.to_string() }
    }
}

/// Does what the command line says; returns when that is done.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match obey(args) {
        Ok(exit) => exit,
        Err(Failure { exit, line }) => {
            // Where standard error is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "weir: {line}");
            ExitCode::from(exit)
        }
    }
}

fn obey(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let wrong = failure(64);
    let order = config::order(args, |name| env::var(name).ok(), open_files()).map_err(|e| wrong(&e))?;
    match order {
        Order::Print(text) => say(&text),
        Order::Check(sources) => {
            let config = sources.load().map_err(|e| wrong(&e))?;
            Pages::read(&config.wait).map_err(|e| wrong(&e))?;
            say(&format!("{}\nthe configuration is right\n", describe(&config, &config.zones)));
        }
        Order::ApplyZones(sources) => {
            let config = sources.load().map_err(|e| wrong(&e))?;
            let redis = zones_of(&config)?;
            let (applied, untold) = briefly(async {
                let cells = stores::cells(redis)?;
                Ok(apply(&cells, &config).await)
            })?;
            say(&applied.to_string());
            if let Some(why) = untold {
                let _ = writeln!(
                    io::stderr(),
                    "weir: the servers were not told ({why}); they see it within a second"
                );
            }
            if let Some(why) = applied.failure() {
                return Err(failure(69)(&format_args!("{why}; apply the file again")));
            }
        }
        Order::ListZones(sources) => {
            let config = sources.load().map_err(|e| wrong(&e))?;
            let redis = zones_of(&config)?;
            briefly(list(redis))?;
        }
        Order::Ask { call, server } => {
            let asked = briefly(async { Ok(remote::run(&call, &server).await) })?;
            asked.map_err(|fault| failure(fault.exit)(&fault))?;
        }
        Order::NewToken { name, role } => {
            let (token, sha256) =
                AdminToken::make().map_err(|_| failure(69)(&"the system gives no random numbers"))?;
            let role = role.as_str();
            say(&format!(
                "{token}\n\n\
                 This is shown once. In the configuration file of each server:\n\n\
                 [[admin_token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n"
            ));
        }
        Order::Serve(sources) => {
            let config = sources.load().map_err(|e| wrong(&e))?;
            log(&config.log);
            for name in
                config::unknown_variables(env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
            {
                tracing::warn!("{name} is no setting of weir; see weir --help");
            }
            let no_threads = |e| failure(69)(&format_args!("threads can't be started: {e}"));
            let bus = Arc::new(Bus::new().map_err(no_threads)?);
            let publishes = Arc::clone(&bus);
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(config.worker_threads)
                // What a thread's first event needs is made before there are requests.
                .on_thread_start(move || {
                    let _ = publishes.enlist();
                })
                .enable_all()
                .build()
                .map_err(no_threads)?;
            let mut audit = None;
            let served = runtime.block_on(serve(config, sources, bus, &mut audit));
            runtime.shutdown_timeout(Duration::from_secs(1));
            // Nobody has the bus any more: what was published on it is all there is.
            if let Some(audit) = audit {
                audit.finish();
            }
            served?;
        }
        Order::VerifyAudit(sources, mut paths, head) => {
            if paths.is_empty() {
                let config = sources.load().map_err(|e| wrong(&e))?;
                let none =
                    "no audit.dir is configured: name the log's directory, or its files in their order";
                paths.push(config.audit.ok_or_else(|| wrong(&none))?.dir);
            }
            let report = audit::verify(&paths, head).map_err(|e| failure(2)(&e))?;
            say(&report.to_string());
            if report.fault.is_some() {
                return Ok(ExitCode::from(1));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The stores that keep zones.
fn zones_of(config: &Config) -> Result<&RedisSettings, Failure> {
    match &config.store {
        StoreSettings::Redis(redis) => Ok(redis),
        StoreSettings::Memory => Err(failure(64)(
            &"the embedded store keeps no zones: the server reads them from its file; change that, and send the server \
              SIGHUP (or name a store: --store redis://…)",
        )),
    }
}

/// Runs what does not serve.
fn briefly<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| failure(69)(&format_args!("can't start: {e}")))?.block_on(work)
}

/// Puts the zones into the stores, and tells the servers; with what became of the zones comes why servers were not told.
async fn apply(cells: &Cells<Redis>, config: &Config) -> (Applied, Option<String>) {
    let (transports, sender) = (stores::transports(&config.fanout, cells), SenderId::new());
    let mut untold = None;
    let applied = definitions::apply(cells, &config.zones, async |at, zone, definition| {
        // Where one could not be told, the next ones are not waited for.
        if untold.is_none()
            && let Some(transport) = transports.get(at)
        {
            untold = fanout::say(transport, sender, zone, Some(definition)).await.err();
        }
    });
    (applied.await, untold)
}

/// Says what zones the cells keep, those that answer.
async fn list(redis: &RedisSettings) -> Result<(), Failure> {
    let cells = stores::cells(redis)?;
    let mut away = None;
    for cell in cells.all() {
        match cell.zones().await {
            Ok(kept) => say(&kept.zones.iter().map(listed).collect::<String>()),
            Err(error) => away = Some(error),
        }
    }
    away.map_or(Ok(()), |error| Err(failure(69)(&error)))
}

/// A zone, and below it what those who wait are told.
fn listed((zone, definition): &(ZoneId, Definition)) -> String {
    let mut out = format!("{zone}: {}\n", definitions::sentence(definition));
    for (language, text) in definition.notice.iter() {
        let _ = writeln!(out, "  {language}: {}", text.replace('\n', "\n      "));
    }
    out
}

/// Raises the limit of open files as far as it goes without privileges, and says where it is.
fn open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_ok() {
        limit.maximum.unwrap_or(u64::MAX)
    } else {
        soft.unwrap_or(1_024)
    }
}

fn log(filter: &str) {
    // async-nats tells every lost connection and every missed message, at `info` and `error`; the fan-out says what matters.
    let filter = format!("async_nats=off,{filter}");
    let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(colour)
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .finish();
    // Fails where a test has set one already.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

async fn serve(
    config: Config,
    sources: Sources,
    bus: Arc<Bus>,
    audit: &mut Option<Audit>,
) -> Result<(), Failure> {
    let made = keys::make_dir(&config.data_dir);
    made?;
    let seals = keys::seals(&config.seal, &config.data_dir)?;
    let passes = keys::passes(&config.pass, &config.data_dir)?;
    let pages = Pages::read(&config.wait).map_err(|e| failure(64)(&e))?;
    let (store, cells) = match &config.store {
        StoreSettings::Memory => {
            let store = Embedded::open(&config.data_dir).map_err(|e| failure(74)(&e))?;
            (AnyStore::Embedded(store), None)
        }
        StoreSettings::Redis(redis) => {
            let cells = Arc::new(stores::cells(redis)?);
            if config.seal.key_file.is_none() || config.pass.key_file.is_none() {
                tracing::warn!(
                    "seal.key_file and pass.key_file are not both set: several servers of one store need the same keys"
                );
            }
            (AnyStore::Cells(Arc::clone(&cells)), Some(cells))
        }
    };
    let metrics = Arc::new(Metrics::new(Arc::clone(&bus)));
    let gate = Arc::new(Gate::new(store, seals, Arc::clone(&bus)));
    // Subscribers come before anything happens.
    let full = |e| failure(69)(&e);
    let told = metrics.subscribe().map_err(full)?;
    if let Some(settings) = &config.audit {
        let serving = Arc::downgrade(&gate);
        let policies = Box::new(move || Some(serving.upgrade()?.policies()));
        let started = Audit::start(&bus, settings, policies);
        *audit = Some(started.map_err(|e| failure(73)(&format_args!("the audit log: {e}")))?);
    }
    let shown = Streams::subscribe(&bus).map_err(full)?;
    let (entries, definitions) =
        (Stats::subscribe(&bus).map_err(full)?, ChangeLog::subscribe(&bus).map_err(full)?);
    let streams = Arc::new(Streams::new(metrics.streams.clone()));
    let zones_changed = Arc::new(Notify::new());
    // They end with this function.
    let mut watching = JoinSet::new();
    watching.spawn(Arc::clone(&metrics).follow(told, Arc::clone(&gate)));
    watching.spawn(Arc::clone(&metrics).run_upkeep());
    let (following, heard) = (Arc::clone(&streams), Arc::clone(&bus));
    watching.spawn(async move { following.follow(shown, &heard).await });
    let recorder = audit.as_ref().map_or_else(Recorder::without_log, Audit::recorder);
    let on_change: Box<OnChange> = Box::new(move |author, zone, change| recorder.write(author, zone, change));
    let editor;
    let mut health = Vec::new();
    let mut buckets_of: Box<BucketsOf> = Box::new(|_| None);
    match &cells {
        None => {
            let (gate, file) = (Arc::clone(&gate), config.zones.clone());
            editor = ZoneEditor::over_file(gate, &config.data_dir, file, on_change)
                .await
                .map_err(|e| failure(74)(&e))?;
        }
        Some(cells) => {
            health = cells.all().iter().map(|cell| Arc::clone(cell.health())).collect();
            metrics.watch_cells(health.clone());
            let refreshes =
                watch_all(&mut watching, &gate, cells, &config, (&bus, &metrics), &zones_changed).await?;
            let places = Arc::clone(cells);
            let refresh_of = move |zone: &str| places.place_of(zone).map(|at| Arc::clone(&refreshes[at]));
            editor = ZoneEditor::over_store(Arc::clone(&gate), Box::new(refresh_of), on_change);
            if let StoreSettings::Redis(redis) = &config.store {
                let buckets = stores::buckets(redis)?;
                for buckets in &buckets {
                    watching.spawn(Arc::clone(buckets).run());
                }
                let cells = Arc::clone(cells);
                buckets_of = Box::new(move |zone| cells.place_of(zone).map(|at| Arc::clone(&buckets[at])));
            }
        }
    }
    let (stats, changes) = (Stats::new(), ChangeLog::new(gate.definitions()));
    watching.spawn(Arc::clone(&stats).follow(entries, Arc::clone(&gate)));
    watching.spawn(Arc::clone(&changes).follow(definitions, Arc::clone(&gate)));
    let unavailable = failure(69);
    let public = listen(config.listen, config.backlog).map_err(|e| unavailable(&e))?;
    let admin = listen(config.admin_listen, config.backlog).map_err(|e| unavailable(&e))?;
    let at = |listener: &tokio::net::TcpListener, asked| listener.local_addr().unwrap_or(asked);
    let (public_at, admin_at) = (at(&public, config.listen), at(&admin, config.admin_listen));

    let lifecycle = Arc::new(Lifecycle::default());
    let (serves, counts, alive) = (Arc::downgrade(&gate), Arc::clone(&metrics), Arc::clone(&lifecycle));
    let servers = Arc::new(Servers::new(public_at, move || State {
        draining: alive.is_out_of_service(),
        zones: serves.upgrade().map_or(0, |gate| gate.zones().len()),
        connections: usize::try_from(counts.connections.open.get()).unwrap_or(0),
    }));
    for cell in cells.iter().flat_map(|cells| cells.all()) {
        watching.spawn(Arc::clone(&servers).run(Arc::clone(cell)));
    }
    let intake = Arc::new(Intake {
        metrics: Arc::clone(&metrics),
        trusted_proxies: config.trusted_proxies.clone(),
        body_timeout: config.body_timeout,
    });
    let health: Arc<[_]> = health.into();
    let public_state = PublicState::from(PublicParts {
        gate: Arc::clone(&gate),
        limits: Limits::new(&config.limit, buckets_of),
        passes,
        streams: Arc::clone(&streams),
        cors_origins: config.cors_origins.clone(),
        pages: ArcSwap::from_pointee(pages),
        cells: Arc::clone(&health),
        intake: Arc::clone(&intake),
        lifecycle: Arc::clone(&lifecycle),
    });
    let admin_state = AdminState::from(AdminParts {
        gate,
        editor: Arc::new(editor),
        cells: health,
        bus: Arc::clone(&bus),
        streams: Arc::clone(&streams),
        guard: ArcSwap::from_pointee(Guard::new(&config.admin_tokens, &config.admin_hosts)),
        stats,
        changes,
        servers,
        intake,
        lifecycle: Arc::clone(&lifecycle),
    });

    let taken = |e: io::Error| unavailable(&format_args!("signals can't be taken: {e}"));
    let mut hang_up = signal(SignalKind::hangup()).map_err(taken)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(taken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(taken)?;

    let limits = |connections| edge::Limits {
        connections,
        header: config.header_timeout,
        write: config.write_timeout,
        idle: config.idle_timeout(longest_polling_ms(&admin_state.gate)),
    };
    let served = Public::new(public_state.clone());
    let edge = Edge::new(
        move |peer| {
            let public = Arc::clone(&served);
            service_fn(move |request| public.serve(request, peer))
        },
        Arc::new(ListenerObserver::public(Arc::clone(&metrics), config.max_connections)),
        limits(config.max_connections),
    );
    let administered = Admin::new(&admin_state);
    let admin_edge = Edge::new(
        move |peer| {
            let admin = Arc::clone(&administered);
            service_fn(move |request| admin.serve(request, peer))
        },
        Arc::new(ListenerObserver::admin(Arc::clone(&metrics))),
        limits(ADMIN_CONNECTIONS),
    );
    let (stop, stopped) = watch::channel(false);
    let (stop_admin, admin_stopped) = watch::channel(false);
    let serving = tokio::spawn(Arc::clone(&edge).serve(public, stopped, config.drain_deadline));
    let serving_admin = tokio::spawn(admin_edge.serve(admin, admin_stopped, Duration::from_secs(1)));
    say(&greeting(&config, &admin_state.gate.definitions(), public_at, admin_at));

    let mut in_force = config.clone();
    loop {
        tokio::select! {
            _ = hang_up.recv() => {
                let new = reload(&config, &sources, &public_state, &admin_state).await;
                bus.publish(Reloaded { ok: new.is_some() });
                in_force = new.unwrap_or(in_force);
                edge.set_idle(in_force.idle_timeout(longest_polling_ms(&admin_state.gate)));
            }
            () = admin_state.editor.changed() => {
                edge.set_idle(in_force.idle_timeout(longest_polling_ms(&admin_state.gate)));
            }
            () = zones_changed.notified() => {
                edge.set_idle(in_force.idle_timeout(longest_polling_ms(&admin_state.gate)));
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!(
        deadline_s = config.drain_deadline.as_secs(),
        "stopping: requests under way are finished first"
    );
    lifecycle.stop();
    streams.stop();
    // Whoever asks the admin listener meanwhile hears that the server is not ready.
    let _ = stop.send(true);
    let finished = async {
        let _ = serving.await;
        let _ = stop_admin.send(true);
        let _ = serving_admin.await;
    };
    tokio::select! {
        () = finished => {
            tracing::info!("stopped");
            Ok(())
        }
        _ = terminate.recv() => Err(failure(1)(&"stopped at once, on a second signal")),
        _ = interrupt.recv() => Err(failure(1)(&"stopped at once, on a second signal")),
    }
}

/// Follows the zones of each cell from now on, and what other servers say of them. Returns when all cells have answered, or
/// failed to; with the refreshes of each.
async fn watch_all(
    watching: &mut JoinSet<()>,
    gate: &Arc<Gate<AnyStore>>,
    cells: &Arc<Cells<Redis>>,
    config: &Config,
    (bus, metrics): (&Arc<Bus>, &Metrics),
    changed: &Arc<Notify>,
) -> Result<Vec<Arc<Refresh>>, Failure> {
    let (mut firsts, mut news, mut refreshes) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..cells.all().len() {
        let (told, first) = oneshot::channel();
        firsts.push(first);
        let watcher = Watcher::new(Arc::clone(gate), Arc::clone(cells), at, &config.zones);
        news.push(watcher.news());
        refreshes.push(watcher.refresh());
        watching.spawn(watcher.run(told, Arc::clone(changed)));
    }
    let all = async {
        for first in firsts {
            let _ = first.await;
        }
    };
    if timeout(FIRST_ANSWER, all).await.is_err() {
        tracing::warn!("not every store has answered yet; serving what is known");
    }
    // Only now: what a server finds when it starts is no news to the others.
    let (sender, transports) = (SenderId::new(), stores::transports(&config.fanout, cells));
    for (at, (transport, news)) in transports.into_iter().zip(news).enumerate() {
        let name = &cells.all()[at].health().name;
        let fanout = Fanout::new(name, transport, sender, metrics.fanout(name));
        let told = fanout::subscribe(bus).map_err(|e| failure(69)(&e))?;
        let (gate, cells, bus) = (Arc::clone(gate), Arc::clone(cells), Arc::clone(bus));
        watching.spawn(async move {
            let mine = |zone: &ZoneId| cells.place_of(zone.as_str()) == Some(at);
            fanout.run(&gate, mine, (&bus, told), &news).await;
        });
    }
    Ok(refreshes)
}

fn longest_polling_ms(gate: &Gate<AnyStore>) -> u32 {
    gate.policies().iter().map(|(_, policy)| policy.polling_period_ms).max().unwrap_or(0)
}

/// Reads the configuration again. Zones come, go and change, unless the store keeps them; whatever is wrong changes
/// nothing, and none is returned.
async fn reload(
    running: &Config,
    sources: &Sources,
    public: &PublicState,
    admin: &AdminState,
) -> Option<Config> {
    let new = sources
        .load()
        .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
        .ok()?;
    let pages = Pages::read(&new.wait)
        .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
        .ok()?;
    let restart = running.needs_restart(&new);
    if !restart.is_empty() {
        tracing::warn!("changed in the configuration, and needs a restart: {}", restart.join(", "));
    }
    if admin.cells.is_empty() {
        match admin.editor.reload(new.zones.clone()).await {
            Ok(()) => {}
            Err(e @ DefineError::Disk(_)) => {
                tracing::error!("{e} (the zones stay as they were; send SIGHUP again)");
                return None;
            }
            Err(e) => {
                tracing::error!("{e} (not every zone is as defined; send SIGHUP again)");
                return None;
            }
        }
    } else {
        let differ = definitions::differences(&new.zones, &admin.gate.definitions());
        if !differ.is_empty() {
            warn_of_differences(&differ);
        }
    }
    public.pages.store(Arc::new(pages));
    // The listener stays where it is, whatever the file says now.
    if running.admin_listen.ip().is_loopback() || !new.admin_tokens.is_empty() {
        admin.guard.store(Arc::new(Guard::new(&new.admin_tokens, &new.admin_hosts)));
    } else {
        tracing::error!(
            "there is no [[admin_token]] any more, and the admin listener is reached from beyond this machine: those known stay"
        );
    }
    let file = sources.file().map_or_else(|| "(none)".to_owned(), |file| file.display().to_string());
    tracing::info!(file, zones = new.zones.len(), "the configuration was read again");
    Some(new)
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A closed standard output is no reason not to serve.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn greeting(
    config: &Config,
    zones: &[(ZoneId, Definition)],
    public: SocketAddr,
    admin: SocketAddr,
) -> String {
    let about = describe(config, zones);
    let listening = format!("listening on http://{public}\nadmin on http://{admin}\n\n{about}\n");
    let Some((zone, _)) = zones.first() else { return listening };
    let here = match public.ip() {
        ip if !ip.is_unspecified() => public,
        IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), public.port()),
        IpAddr::V6(_) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), public.port()),
    };
    let post = format!("curl -sS -H 'content-type: application/json' http://{here}/traffic");
    let wait = format!(r#"{post}/wait -d '{{"zoneId":"{zone}"}}'"#);
    let token = format!(r#"$({wait} | sed 's/.*"token":"\([^"]*\)".*/\1/')"#);
    format!(
        "{listening}take a ticket, then take one and ask with its token:\n  {wait} -w '\\n'\n  \
         {post}/entry -d \"{{\\\"zoneId\\\":\\\"{zone}\\\",\\\"token\\\":\\\"{token}\\\"}}\" -w '\\n'\n\
         or wait as people do: http://{here}/wait/{zone}\n"
    )
}

fn describe(config: &Config, zones: &[(ZoneId, Definition)]) -> String {
    let mut out = String::new();
    for (name, value) in config.shown() {
        let _ = writeln!(out, "  {name} = {value}");
    }
    for (zone, definition) in zones.iter().take(ZONES_SHOWN) {
        let _ = writeln!(out, "  zone {zone}: {}", definitions::sentence(definition));
    }
    if zones.len() > ZONES_SHOWN {
        let _ = writeln!(out, "  and {} more zones", zones.len() - ZONES_SHOWN);
    }
    out
}
