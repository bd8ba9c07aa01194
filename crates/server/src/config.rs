//! What the operator decides, read once, checked whole.
//!
//! Flags win over `WEIR_…` variables, those over the file, those over the defaults. Invariant: a [`Config`] that
//! exists is one the server can run with; every fault is one line that says where, what and what to do.

mod file;
mod settings;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use admission::{Policy, ZoneId};
use ipnet::IpNet;

use crate::passes::Algorithm;
use settings::{Given, Place, Value};

/// Files a server needs open beside its public connections: journal, admin, refusals being said, and room.
pub const RESERVED_FILES: u64 = 256;

/// Why a configuration is refused: one line with the place and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigFault(String);

/// What the process was called for.
#[derive(Debug)]
pub enum Order {
    /// Serve with these sources of configuration.
    Serve(Sources),
    /// Check them only.
    Check(Sources),
    /// Print this and end: help or the version.
    Print(String),
}

/// Where configuration comes from; kept, so that it can be read again.
#[derive(Clone, Debug)]
pub struct Sources {
    file: Option<PathBuf>,
    outside: Vec<(&'static str, Given)>,
    open_files: u64,
}

/// The passes.
#[derive(Clone, Debug)]
pub struct PassSettings {
    /// How they are signed.
    pub algorithm: Algorithm,
    /// Claim `aud`.
    pub audience: String,
    /// Claim `iss`.
    pub issuer: Option<String>,
    /// The key's file, where it is not made in the data directory.
    pub key_file: Option<PathBuf>,
    /// The key that signed before.
    pub previous_key_file: Option<PathBuf>,
}

/// The keys that seal tokens.
#[derive(Clone, Debug)]
pub struct SealSettings {
    /// The key's file, where it is not made in the data directory.
    pub key_file: Option<PathBuf>,
    /// The key that sealed before.
    pub previous_key_file: Option<PathBuf>,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where apps call.
    pub listen: SocketAddr,
    /// Metrics and health.
    pub admin_listen: SocketAddr,
    /// Journal and keys.
    pub data_dir: PathBuf,
    /// Accept queue of the listeners.
    pub backlog: u32,
    /// The most open public connections.
    pub max_connections: usize,
    /// Threads that serve.
    pub worker_threads: usize,
    /// From a request's first byte to the end of its head.
    pub header_timeout: Duration,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// How long a reply may be stuck on its way out.
    pub write_timeout: Duration,
    /// Between requests of a connection.
    pub idle_timeout: Duration,
    /// How long a stopping server finishes its requests.
    pub drain_deadline: Duration,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The passes.
    pub pass: PassSettings,
    /// The keys that seal tokens.
    pub seal: SealSettings,
    /// What is logged.
    pub log: String,
    /// The zones and their policies.
    pub zones: Vec<(ZoneId, Policy)>,
}

/// Reads the command line. `variable` gives the environment, `open_files` is the process's limit of open files.
///
/// # Errors
/// A [`ConfigFault`] for arguments and variables that mean nothing.
pub fn order(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
    open_files: u64,
) -> Result<Order, ConfigFault> {
    let matches = match settings::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(e) if !e.use_stderr() => return Ok(Order::Print(e.render().to_string())),
        Err(e) => {
            let text = e.render().to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            return Err(ConfigFault(format!("{first}; see weir --help")));
        }
    };
    let (word, args) = matches.subcommand().unwrap_or(("serve", &matches));
    let named = |name| args.try_get_one::<String>(name).ok().flatten().cloned();
    let file =
        named("file").or_else(|| named("config")).or_else(|| variable("WEIR_CONFIG")).map(PathBuf::from);
    let sources = Sources { file, outside: settings::outside_the_file(args, variable)?, open_files };
    Ok(if word == "check-config" { Order::Check(sources) } else { Order::Serve(sources) })
}

/// Of these names of variables, those that look like a setting of ours and are none.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    // Kubernetes tells every container about a service called `weir` in variables of these forms.
    let of_kubernetes = |name: &str| name.starts_with("WEIR_SERVICE_") || name.starts_with("WEIR_PORT");
    let known = |name: &str| name == "WEIR_CONFIG" || settings::SETTINGS.iter().any(|s| s.variable() == name);
    names.filter(|name| name.starts_with("WEIR_") && !known(name) && !of_kubernetes(name)).collect()
}

impl Sources {
    /// Reads everything, anew each time.
    ///
    /// # Errors
    /// The first [`ConfigFault`].
    pub fn load(&self) -> Result<Config, ConfigFault> {
        let (mut given, mut zones) = (Settings(BTreeMap::new()), Vec::new());
        if let Some(path) = &self.file {
            let text = file::read(path)?;
            zones = text.zones;
            given.0.extend(text.settings);
        }
        given.0.extend(self.outside.iter().cloned());
        if zones.is_empty() {
            let id = ZoneId::parse("TEST_ZONE").expect("nine letters of the alphabet");
            zones.push((id, Policy::default()));
        }
        given.check(zones, self.open_files)
    }

    /// The file, if one was named.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

struct Settings(BTreeMap<&'static str, Given>);

impl Settings {
    fn text(&self, name: &str) -> Option<(&str, &Place)> {
        match self.0.get(name) {
            Some(Given { value: Value::Text(text), place }) => Some((text, place)),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<(u32, &Place)> {
        match self.0.get(name) {
            Some(Given { value: Value::Number(number), place }) => Some((*number, place)),
            _ => None,
        }
    }

    fn seconds(&self, name: &str, default: u32) -> Duration {
        Duration::from_secs(self.number(name).map_or(default, |(n, _)| n).into())
    }

    fn address(&self, name: &str, default: &str) -> Result<SocketAddr, ConfigFault> {
        let default = || default.parse().expect("a literal address");
        self.text(name).map_or_else(
            || Ok(default()),
            |(text, place)| {
                let what = format!("`{text}` is no address and port; write one as in {}", default());
                text.parse().map_err(|_| place.fault(what))
            },
        )
    }

    fn path(&self, name: &str) -> Result<Option<PathBuf>, ConfigFault> {
        match self.text(name) {
            Some(("", place)) => Err(place.fault("is empty; name a path")),
            other => Ok(other.map(|(text, _)| PathBuf::from(text))),
        }
    }

    fn check(&self, zones: Vec<(ZoneId, Policy)>, open_files: u64) -> Result<Config, ConfigFault> {
        if let Some((store, place)) = self.text("store").filter(|(store, _)| *store != "memory") {
            let redis = store.starts_with("redis");
            let why = if redis { "Redis is not served yet" } else { "there is no such store" };
            // What stands before the @ of an address is a password.
            let shown = store.rsplit('@').next().unwrap_or(store);
            return Err(place.fault(format!("`{shown}`: {why}; leave it out, or say `memory`")));
        }
        let (listen, admin_listen) =
            (self.address("listen", "127.0.0.1:8080")?, self.address("admin_listen", "127.0.0.1:8081")?);
        if listen == admin_listen && listen.port() != 0 {
            let place = self.text("admin_listen").or(self.text("listen")).map(|(_, place)| place.to_string());
            let place = place.unwrap_or_default();
            return Err(ConfigFault(format!(
                "{place}: {listen} is the address of both listeners; change one"
            )));
        }
        let room = open_files.saturating_sub(RESERVED_FILES);
        let max_connections = match self.number("max_connections") {
            Some((n, place)) if u64::from(n) > room => {
                let what = format!(
                    "is {n}, and {open_files} open files leave room for {room}; lower it, or raise `ulimit -n` to {}",
                    u64::from(n) + RESERVED_FILES
                );
                return Err(place.fault(what));
            }
            Some((n, _)) => n.into(),
            None if room == 0 => {
                let what =
                    format!("{open_files} open files are too few; raise `ulimit -n` above {RESERVED_FILES}");
                return Err(ConfigFault(what));
            }
            None => room.min(1_000_000),
        };
        let longest_ms = zones.iter().map(|(_, policy)| policy.polling_period_ms).max().unwrap_or(0);
        let idle_timeout = match self.number("idle_timeout_s") {
            Some((s, place)) if u64::from(s) * 1_000 <= longest_ms.into() => {
                let what = format!(
                    "is {s} s, and a zone's apps ask every {longest_ms} ms: their connections would be closed \
                     between polls; raise it above that"
                );
                return Err(place.fault(what));
            }
            Some((s, _)) => Duration::from_secs(s.into()),
            None => Duration::from_secs(u64::from(longest_ms.div_ceil(1_000) + 30).max(75)),
        };
        let mut trusted_proxies = Vec::new();
        if let Some(Given { value: Value::List(texts), place }) = self.0.get("trusted_proxies") {
            for text in texts {
                let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
                let what = format!("`{text}` is no network; write one as in 10.0.0.0/8");
                trusted_proxies.push(net.map_err(|_| place.fault(what))?);
            }
        }
        let algorithm = match self.text("pass.algorithm") {
            Some((text, place)) => {
                Algorithm::ALL.into_iter().find(|a| a.as_str() == text).ok_or_else(|| {
                    place.fault(format!("`{text}` is no algorithm of ours; say ES256, EdDSA or RS256"))
                })?
            }
            None => Algorithm::Es256,
        };
        let log = match self.text("log") {
            Some((text, place)) => {
                let filter = text.parse::<tracing_subscriber::filter::EnvFilter>();
                filter.map_err(|e| {
                    place.fault(format!("`{text}` is no filter ({e}); say info, debug or warn"))
                })?;
                text.to_owned()
            }
            None => "info".to_owned(),
        };
        Ok(Config {
            listen,
            admin_listen,
            data_dir: self.path("data_dir")?.unwrap_or_else(|| PathBuf::from("./weir-data")),
            backlog: self.number("backlog").map_or(4_096, |(n, _)| n),
            max_connections: usize::try_from(max_connections).unwrap_or(usize::MAX),
            worker_threads: match self.number("worker_threads") {
                Some((n, _)) => usize::try_from(n).unwrap_or(1),
                None => std::thread::available_parallelism().map_or(1, Into::into),
            },
            header_timeout: self.seconds("header_timeout_s", 10),
            body_timeout: self.seconds("body_timeout_s", 10),
            write_timeout: self.seconds("write_timeout_s", 10),
            idle_timeout,
            drain_deadline: self.seconds("drain_deadline_s", 20),
            trusted_proxies,
            pass: PassSettings {
                algorithm,
                audience: self.text("pass.audience").map_or("weir", |(text, _)| text).to_owned(),
                issuer: self.text("pass.issuer").map(|(text, _)| text.to_owned()),
                key_file: self.path("pass.key_file")?,
                previous_key_file: self.path("pass.previous_key_file")?,
            },
            seal: SealSettings {
                key_file: self.path("seal.key_file")?,
                previous_key_file: self.path("seal.previous_key_file")?,
            },
            log,
            zones,
        })
    }
}

impl Config {
    /// Every setting as it is in force, by name. Key files are named, keys are not in here.
    #[must_use]
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let file = |path: &Option<PathBuf>, none: &str| {
            path.as_ref().map_or_else(|| none.to_owned(), |path| path.display().to_string())
        };
        let seconds = |time: Duration| time.as_secs().to_string();
        let proxies: Vec<_> = self.trusted_proxies.iter().map(ToString::to_string).collect();
        let made = "(made in data_dir)";
        vec![
            ("listen", self.listen.to_string()),
            ("admin_listen", self.admin_listen.to_string()),
            ("store", "memory".to_owned()),
            ("data_dir", self.data_dir.display().to_string()),
            ("backlog", self.backlog.to_string()),
            ("max_connections", self.max_connections.to_string()),
            ("worker_threads", self.worker_threads.to_string()),
            ("header_timeout_s", seconds(self.header_timeout)),
            ("body_timeout_s", seconds(self.body_timeout)),
            ("write_timeout_s", seconds(self.write_timeout)),
            ("idle_timeout_s", seconds(self.idle_timeout)),
            ("drain_deadline_s", seconds(self.drain_deadline)),
            ("trusted_proxies", if proxies.is_empty() { "(none)".to_owned() } else { proxies.join(", ") }),
            ("pass.algorithm", self.pass.algorithm.as_str().to_owned()),
            ("pass.audience", self.pass.audience.clone()),
            ("pass.issuer", self.pass.issuer.clone().unwrap_or_else(|| "(none)".to_owned())),
            ("pass.key_file", file(&self.pass.key_file, made)),
            ("pass.previous_key_file", file(&self.pass.previous_key_file, "(none)")),
            ("seal.key_file", file(&self.seal.key_file, made)),
            ("seal.previous_key_file", file(&self.seal.previous_key_file, "(none)")),
            ("log", self.log.clone()),
        ]
    }

    /// The settings in which `new` differs and that a running server can't change. The idle timeout is not among
    /// them: it follows the zones.
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let pairs = self.shown().into_iter().zip(new.shown());
        pairs.filter(|(old, new)| old != new && old.0 != "idle_timeout_s").map(|(old, _)| old.0).collect()
    }
}

/// Reads a configuration text as a file of that name; for the tests of others and for fuzzing.
///
/// # Errors
/// The first [`ConfigFault`].
pub fn from_text(name: &str, text: &str) -> Result<Config, ConfigFault> {
    let text = file::parse(name, text)?;
    Settings(text.settings.into_iter().collect()).check(text.zones, 20_000)
}

#[cfg(test)]
mod tests;
