//! Wiring: from a command line to a server, and back down.
//!
//! The order is configuration, keys, store, zones, listeners, and only then a word on standard output: who reads
//! the addresses there can call them. Exit codes are those of `sysexits.h`: 64 for a configuration that is wrong,
//! 69 for an address that can't be had, 73 for keys or a directory that can't be made, 74 for a store that can't
//! be opened, 77 for keys that others may read; 1 for a stop that was cut short.

use std::{
    env,
    ffi::OsString,
    fmt::{Display, Write as _},
    io::{self, IsTerminal as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use admission::{Mode, Policy, ZoneId};
use rustix::process::{Resource, getrlimit, setrlimit};
use store::Embedded;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    config::{self, Config, Order, Sources},
    edge::{Edge, Limits, listen},
    gate::Gate,
    http::{Admin, App, Public},
    keys::{self, KeyFault},
    metrics::Metrics,
};

/// The admin listener's connections; they come out of the reserve of open files.
const ADMIN_CONNECTIONS: usize = 64;

/// Zones listed at the start; more are counted.
const ZONES_SHOWN: usize = 20;

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
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit, line }) => {
            // Where standard error is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "weir: {line}");
            ExitCode::from(exit)
        }
    }
}

fn obey(args: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let wrong = failure(64);
    let order = config::order(args, |name| env::var(name).ok(), open_files()).map_err(|e| wrong(&e))?;
    match order {
        Order::Print(text) => say(&text),
        Order::Check(sources) => {
            let config = sources.load().map_err(|e| wrong(&e))?;
            say(&format!("{}\nthe configuration is right\n", describe(&config)));
        }
        Order::Serve(sources) => {
            let config = sources.load().map_err(|e| wrong(&e))?;
            log(&config.log);
            for name in
                config::unknown_variables(env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
            {
                tracing::warn!("{name} is no setting of weir; see weir --help");
            }
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(config.worker_threads)
                .enable_all()
                .build()
                .map_err(|e| failure(69)(&format_args!("threads can't be started: {e}")))?;
            let served = runtime.block_on(serve(config, sources));
            runtime.shutdown_timeout(Duration::from_secs(1));
            served?;
        }
    }
    Ok(())
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
    let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(colour)
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .finish();
    // Fails where a test has set one already.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

async fn serve(config: Config, sources: Sources) -> Result<(), Failure> {
    let made = keys::make_dir(&config.data_dir);
    made?;
    let seals = keys::seals(&config.seal, &config.data_dir)?;
    let passes = keys::passes(&config.pass, &config.data_dir)?;
    let store = Embedded::open(&config.data_dir).map_err(|e| failure(74)(&e))?;
    let metrics = Arc::new(Metrics::new());
    let meters = Arc::clone(&metrics);
    let gate = Gate::new(store, seals, move |zone| meters.zone(zone));
    gate.serve_zones(config.zones.clone()).await.map_err(|e| failure(74)(&e))?;
    let app = Arc::new(App {
        gate,
        passes,
        metrics: Arc::clone(&metrics),
        trusted_proxies: config.trusted_proxies.clone(),
        body_timeout: config.body_timeout,
        draining: false.into(),
    });

    let unavailable = failure(69);
    let public = listen(config.listen, config.backlog).map_err(|e| unavailable(&e))?;
    let admin = listen(config.admin_listen, config.backlog).map_err(|e| unavailable(&e))?;
    let at = |listener: &tokio::net::TcpListener, asked| listener.local_addr().unwrap_or(asked);
    let (public_at, admin_at) = (at(&public, config.listen), at(&admin, config.admin_listen));

    let taken = |e: io::Error| unavailable(&format_args!("signals can't be taken: {e}"));
    let mut hang_up = signal(SignalKind::hangup()).map_err(taken)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(taken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(taken)?;

    let limits = |connections| Limits {
        connections,
        header: config.header_timeout,
        write: config.write_timeout,
        idle: config.idle_timeout,
    };
    let edge = Edge::new(
        Public(Arc::clone(&app)),
        limits(config.max_connections),
        Some(metrics.connections.clone()),
    );
    let admin_edge = Edge::new(Admin(Arc::clone(&app)), limits(ADMIN_CONNECTIONS), None);
    let (stop, stopped) = watch::channel(false);
    let (stop_admin, admin_stopped) = watch::channel(false);
    let serving = tokio::spawn(Arc::clone(&edge).serve(public, stopped, config.drain_deadline));
    let serving_admin = tokio::spawn(admin_edge.serve(admin, admin_stopped, Duration::from_secs(1)));
    say(&greeting(&config, public_at, admin_at));

    loop {
        tokio::select! {
            _ = hang_up.recv() => reload(&config, &sources, &app, &edge).await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!(
        deadline_s = config.drain_deadline.as_secs(),
        "stopping: requests under way are finished first"
    );
    app.draining.store(true, Relaxed);
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

/// Reads the configuration again. Zones come, go and change; whatever is wrong changes nothing.
async fn reload(running: &Config, sources: &Sources, app: &App<Embedded>, edge: &Edge<Public<Embedded>>) {
    let new = match sources.load() {
        Ok(new) => new,
        Err(fault) => {
            tracing::error!("{fault} (the configuration stays as it was)");
            return app.metrics.reloaded(false);
        }
    };
    let restart = running.needs_restart(&new);
    if !restart.is_empty() {
        tracing::warn!("changed in the configuration, and needs a restart: {}", restart.join(", "));
    }
    let names: Vec<ZoneId> = new.zones.iter().map(|(zone, _)| zone.clone()).collect();
    if let Err(e) = app.gate.serve_zones(new.zones).await {
        tracing::error!("{e} (not every zone has its new policy; send SIGHUP again)");
        return app.metrics.reloaded(false);
    }
    app.metrics.keep_zones(&names);
    edge.set_idle(new.idle_timeout);
    app.metrics.reloaded(true);
    let file = sources.file().map_or_else(|| "(none)".to_owned(), |file| file.display().to_string());
    tracing::info!(file, zones = names.len(), "the configuration was read again");
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A closed standard output is no reason not to serve.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn greeting(config: &Config, public: SocketAddr, admin: SocketAddr) -> String {
    let here = match public.ip() {
        ip if !ip.is_unspecified() => public,
        IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), public.port()),
        IpAddr::V6(_) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), public.port()),
    };
    let zone = &config.zones[0].0;
    let post = format!("curl -sS -H 'content-type: application/json' http://{here}/traffic");
    let wait = format!(r#"{post}/wait -d '{{"zoneId":"{zone}"}}'"#);
    let token = format!(r#"$({wait} | sed 's/.*"token":"\([^"]*\)".*/\1/')"#);
    format!(
        "listening on http://{public}\nadmin on http://{admin}\n\n{}\ntake a ticket, then take one and ask with its \
         token:\n  {wait} -w '\\n'\n  {post}/entry -d \"{{\\\"zoneId\\\":\\\"{zone}\\\",\\\"token\\\":\\\"{token}\\\"}}\" -w '\\n'\n",
        describe(config)
    )
}

fn describe(config: &Config) -> String {
    let mut out = String::new();
    for (name, value) in config.shown() {
        let _ = writeln!(out, "  {name} = {value}");
    }
    for (zone, policy) in config.zones.iter().take(ZONES_SHOWN) {
        let Policy { mode, admit_per_minute, sub_windows, polling_period_ms, idle_timeout_s, pass_ttl_s } =
            policy;
        let mode = Mode::ALL.iter().find(|(known, _)| known == mode).map_or("", |(_, word)| word);
        let _ = writeln!(
            out,
            "  zone {zone}: {mode}, {admit_per_minute} a minute in {sub_windows} sub-windows, asked every \
             {polling_period_ms} ms, idle after {idle_timeout_s} s, passes for {pass_ttl_s} s"
        );
    }
    if config.zones.len() > ZONES_SHOWN {
        let _ = writeln!(out, "  and {} more zones", config.zones.len() - ZONES_SHOWN);
    }
    out
}
