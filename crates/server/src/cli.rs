//! The command line: reads what the process was called for, does it, and sets the exit code.
//!
//! | file | concern |
//! |---|---|
//! | `arguments` | the arguments of all commands |
//! | `doctor` | `weir doctor`: what is dangerous in a configuration and a store |
//! | `draw` | `weir draw verify` |
//! | `order` | from arguments to an [`Order`] |
//! | `route` | `weir route explain` and `weir route token` |
//! | `zones` | commands about the zones that a store keeps |
//!
//! Commands that call a running server are in [`remote`]. [`serve`] serves. Invariant: every failure is one line on standard
//! error, and an exit code of [`failure`].

mod arguments;
mod doctor;
mod draw;
mod order;
mod route;
mod zones;

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

use admission::Schedule;
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::{
    access::{AdminToken, Role},
    clock::unix_ms,
    config::{self, Config, ConfigFault, Sources},
    event_report,
    failure::{self, Failure},
    http::waiting_page::Pages,
    otlp::{LogLayer, Otlp, OtlpSettings},
    output::{check_open, print},
    panics, remote, serve,
    stores::{self, StoreSettings},
    tls::TlsSettings,
};
pub use order::{Order, ServerIs, read};

/// The exit code of `weir audit verify` for a log that was changed, and of `weir draw verify` for a file that is wrong.
const CHANGED: u8 = 1;

/// The exit code of these commands for a file that cannot be read.
const UNREADABLE: u8 = 2;

/// Does what the command line says; returns when that is done.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let done = no_text()
        .and_then(|()| read(args, |name| env::var(name).ok(), open_files()).map_err(usage))
        .and_then(|order| if order.only_shows() { check_open().map(|()| order) } else { Ok(order) })
        .and_then(run);
    match done {
        Ok(exit) => exit,
        Err(Failure { exit, line }) => {
            // Without standard error nobody can be told.
            let _ = writeln!(io::stderr(), "weir: {line}");
            ExitCode::from(exit)
        }
    }
}

/// Refuses a variable of Weir's whose value is no text: it would count as not set.
fn no_text() -> Result<(), Failure> {
    let is_no_text = |(name, value): &(OsString, OsString)| {
        name.to_str().is_some_and(|name| name.starts_with("WEIR_")) && value.to_str().is_none()
    };
    match env::vars_os().find(is_no_text) {
        Some((name, _)) => {
            let name = name.to_string_lossy();
            Err(Failure::new(
                failure::USAGE,
                format_args!("{name}: is not UTF-8; write it anew, or take it away"),
            ))
        }
        None => Ok(()),
    }
}

fn run(order: Order) -> Result<ExitCode, Failure> {
    match order {
        Order::Print(text) => print(&text)?,
        Order::Check(sources) => {
            let config = load(&sources)?;
            let pages = Pages::read(&config.wait).map_err(Failure::with(failure::USAGE))?;
            config.tls.as_ref().map(TlsSettings::read).transpose()?;
            config.otlp.as_ref().map(OtlpSettings::read_headers).transpose()?;
            if let StoreSettings::Redis(redis) = &config.store {
                stores::authorities(redis)?;
            }
            let unknown = unknown_variables().into_iter().map(|name| format!("{name} {NO_SETTING}"));
            let unused = unused_templates(&config, &pages);
            for danger in unknown.chain(warnings(&config)).chain(begun_draws(&config)).chain(unused) {
                let _ = writeln!(io::stderr(), "weir: warning: {danger}");
            }
            print(&format!(
                "{}\nthe configuration is right\n",
                serve::describe(&config, &config.zones, unix_ms() / 1_000)
            ))?;
        }
        Order::Doctor(sources) => return doctor::run(&load(&sources)?, open_files()),
        Order::ExplainRoute(sources, question) => print(&route::explain(&load(&sources)?, &question)?)?,
        Order::NewBypass(sources, wanted) => print(&route::new_bypass(&load(&sources)?, &wanted)?)?,
        Order::ApplyZones(sources, options) => zones::apply(&load(&sources)?, options)?,
        Order::ListZones(sources) => zones::list(&load(&sources)?)?,
        Order::Call(call, server, format) => on_this_thread(remote::run(&call, &server, format))?,
        Order::ReportEvent(wanted, sources, mut server, named) => {
            let config = load(&sources)?;
            if named == ServerIs::OfConfiguration {
                server.url = url_here(config.admin_listen);
            }
            on_this_thread(event_report::run(&wanted, &server, config.audit.map(|audit| audit.dir)))?;
        }
        Order::NewToken { name, role } => new_token(&name, role)?,
        Order::Serve(sources) => {
            let reload = serve::ReloadSignal::handle()?;
            let config = load(&sources)?;
            let is_redis = matches!(config.store, StoreSettings::Redis(_));
            let otlp = config.otlp.as_ref().map(|settings| Otlp::new(settings, is_redis)).transpose()?;
            let (otlp, log) = otlp.unzip();
            start_log(&config.log, config.log_is_json, log);
            for name in unknown_variables() {
                tracing::warn!("{name} {NO_SETTING}");
            }
            if !sources.has_file() {
                tracing::warn!(
                    "no configuration file is named (--config, WEIR_CONFIG): there is one zone to try, TEST_ZONE, and every \
                     setting that is not given has its default"
                );
            }
            for danger in warnings(&config) {
                tracing::warn!("{danger}");
            }
            serve::run(config, &sources, reload, otlp)?;
        }
        Order::VerifyAudit(sources, paths, head) => return verify(&sources, paths, head),
        Order::VerifyDraw(wanted) => return draw::run(&wanted),
    }
    Ok(ExitCode::SUCCESS)
}

fn usage(fault: ConfigFault) -> Failure {
    Failure::new(failure::USAGE, fault)
}

fn load(sources: &Sources) -> Result<Config, Failure> {
    sources.load().map_err(usage)
}

/// Where this machine reaches a listener.
fn url_here(listener: SocketAddr) -> String {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, listener.port()))
}

/// Runs a command that does not serve.
fn on_this_thread<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let no_runtime =
        |e: io::Error| Failure::new(failure::UNAVAILABLE, format_args!("the command cannot start: {e}"));
    runtime.map_err(no_runtime)?.block_on(work)
}

fn new_token(name: &str, role: Role) -> Result<(), Failure> {
    let no_random = |_| Failure::new(failure::UNAVAILABLE, "the system gives no random numbers");
    let (token, sha256) = AdminToken::make().map_err(no_random)?;
    let role = role.as_str();
    print(&format!(
        "{token}\n\n\
         This is shown once. In the configuration file of each server:\n\n\
         [[admin_token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n"
    ))
}

/// Prints what the log's verification found.
fn verify(
    sources: &Sources,
    mut paths: Vec<PathBuf>,
    head: Option<audit::Head>,
) -> Result<ExitCode, Failure> {
    if paths.is_empty() {
        let none = "no audit.dir is configured: name the log's directory, or its files in their order";
        let configured = load(sources)?.audit.ok_or_else(|| Failure::new(failure::USAGE, none))?;
        paths.push(configured.dir);
    }
    let report = audit::verify(&paths, head).map_err(Failure::with(UNREADABLE))?;
    print(&report.to_string())?;
    Ok(if report.fault.is_some() { ExitCode::from(CHANGED) } else { ExitCode::SUCCESS })
}

const NO_SETTING: &str = "is not a setting of weir, and changes nothing; see weir serve --help";

/// The variables of the environment that look like settings, and are none.
fn unknown_variables() -> Vec<String> {
    env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_unknown(name)).collect()
}

/// What a start says about a configuration that is right, and `check-config`, too.
fn warnings(config: &Config) -> impl Iterator<Item = String> {
    let dangers = config.dangers.iter().cloned();
    dangers.chain(idle_routes(config)).chain(idle_targets(config)).chain(contradictions(config))
}

/// What is said about routes of zones in which nobody ever waits.
fn idle_routes(config: &Config) -> impl Iterator<Item = String> {
    let idle = config.routes.all().iter().filter(|route| check::exemption::never_waits(route));
    idle.map(|route| {
        format!(
            "route `{}`: its addresses are files or health checks, and nobody waits for those; say everything = true, or remove it",
            route.name
        )
    })
}

/// What is said about targets by which nobody is forwarded. Which zones a Redis has, only `weir doctor` asks.
fn idle_targets(config: &Config) -> impl Iterator<Item = String> {
    let is_known_here = matches!(config.store, StoreSettings::Memory);
    config.targets_without_zone().filter(move |_| is_known_here).map(|zone| {
        format!(
            "a [[wait.target]] is for the zone {zone}, which the configuration does not have, so nobody is forwarded by it; correct the \
             name, unless operators make the zone later"
        )
    })
}

/// What is said about zones whose fields contradict each other.
fn contradictions(config: &Config) -> impl Iterator<Item = String> {
    let now_s = unix_ms() / 1_000;
    config.zones.iter().flat_map(move |(zone, definition)| {
        definition.contradictions(now_s).into_iter().map(move |what| format!("zone {zone}: {what}"))
    })
}

/// What is said about draws whose events have begun.
fn begun_draws(config: &Config) -> impl Iterator<Item = String> {
    let now_s = unix_ms() / 1_000;
    config.zones.iter().flat_map(move |(zone, definition)| {
        let begun = definition.schedule.begun_draws(&Schedule::default(), now_s).into_iter();
        begun.map(move |what| format!("zone {zone}: {what}"))
    })
}

/// What is said about templates for zones and events that the configuration does not have. A store may have the zones, and operators may
/// have changed those of the file.
fn unused_templates(config: &Config, pages: &Pages) -> Vec<String> {
    let elsewhere = match config.store {
        StoreSettings::Memory => "in the configuration; correct the name, unless operators made it since",
        StoreSettings::Redis(_) => {
            "in the configuration; correct the name, unless the store has it (`weir zones list`)"
        }
    };
    pages.unused(&config.zones).into_iter().map(|said| format!("{said} {elsewhere}")).collect()
}

/// Whether this looks like a variable of a setting, but is none.
fn is_unknown(name: &str) -> bool {
    // Kubernetes describes a service called `weir` to every container in variables of these forms.
    let of_kubernetes = name.starts_with("WEIR_SERVICE_") || name.starts_with("WEIR_PORT");
    let is_other = matches!(name, "WEIR_CONFIG" | arguments::TOKEN_VARIABLE);
    name.starts_with("WEIR_") && !is_other && !of_kubernetes && !config::is_variable(name)
}

/// Raises the limit of open files as far as possible without privileges, and returns it.
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

/// Starts the log on standard error, and for a collector, if there is one.
fn start_log(filter: &str, is_json: bool, collector: Option<LogLayer>) {
    // async-nats logs every lost connection and every missed message, at `info` and `error`. The fan-out logs what matters.
    // h2 warns of each connection of a client that misbehaves, so that client would write the log.
    let filter = format!("async_nats=off,h2=error,{filter}");
    let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none();
    // A line that cannot be written is lost. The library would say so on standard error, and panic because that fails, too.
    let lines = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter));
    // Fails where a test has set one already.
    let _ = if is_json {
        tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish().with(collector))
    } else {
        tracing::subscriber::set_global_default(lines.with_ansi(colour).finish().with(collector))
    };
    panics::watch();
}

#[cfg(test)]
mod tests;
