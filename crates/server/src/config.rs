//! Settings: read once, checked as a whole, printed.
//!
//! | file | concern |
//! |---|---|
//! | `settings` | what a setting is; in `settings/table` all of them: names, kinds, help and defaults |
//! | `values` | single values: words, networks, addresses |
//! | `file` | the configuration file |
//! | `checks` | from given values to a [`Config`] |
//! | `print` | the settings in force, and which of them need a restart |
//!
//! Flags override `WEIR_…` variables, which override the file, which overrides the defaults. Invariant: the server can run
//! with every [`Config`] that exists; every fault is one line that says where, what and what to do.

mod checks;
mod file;
mod print;
mod settings;
mod values;

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use admission::{Definition, ZoneId};
use check::{Route, Routes};
use clap::{Arg, ArgMatches};
use gate::limits::LimitSettings;
use ipnet::IpNet;
use shown::{brief, without_quoted_logins};

use crate::{
    access::AdminToken,
    draws::DrawSettings,
    fanout::FanoutSettings,
    http::{
        cors::Origins,
        waiting_page::{WaitSettings, target::Target},
    },
    keys::SealSettings,
    otlp::OtlpSettings,
    output::one_line,
    passes::PassSettings,
    stores::StoreSettings,
    tls::TlsSettings,
};
use checks::check;
use file::FileText;
pub(crate) use settings::{Origin, not_empty};
use settings::{SETTINGS, SettingValue};

/// Open files that a server needs beside its public connections: journal, admin listener, refusals, and a reserve.
pub const RESERVED_FILES: u64 = 256;

/// The most open connections of the listener for gRPC. A proxy has one for each of its threads, or a few if it has many requests.
pub const GRPC_CONNECTIONS: usize = 256;

/// One of so many public connections is for the trusted proxies alone, and at most [`MOST_FOR_PROXIES`]. A proxy has one for
/// each check that is under way, and keeps some idle.
const PROXY_SHARE: usize = 8;
const MOST_FOR_PROXIES: usize = 1_024;

/// Why a configuration is refused: one line with the origin of the value and what to do. A value that it quotes may be an address with a
/// password, also where no address belongs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", one_line(&brief(&without_quoted_logins(.0))))]
pub struct ConfigFault(String);

impl ConfigFault {
    /// The fault that this line describes.
    #[must_use]
    pub fn new(line: String) -> Self {
        Self(line)
    }
}

/// Reads the routes of a file that has nothing else. Each has a name, which no route of a configuration file has by its number.
///
/// # Errors
/// A [`ConfigFault`] with the line of the fault.
pub fn routes_of(path: &Path) -> Result<Vec<Route>, ConfigFault> {
    let found = file::read(path)?;
    if !found.has_only_routes() {
        let what = "has more than [[route]] tables; put the routes into a file of their own";
        return Err(ConfigFault(format!("{}: {what}", path.display())));
    }
    if let Some(unnamed) = &found.unnamed_route {
        return Err(unnamed.fault("has no name; write one that no route of the configuration file has: counts and the audit log need it"));
    }
    Ok(found.routes.into_iter().map(|(route, _)| route).collect())
}

/// Where the configuration comes from. It is kept, so that the configuration can be read again.
#[derive(Clone, Debug)]
pub struct Sources {
    file: Option<PathBuf>,
    /// The file with the zones, if that is not `file`.
    zones_file: Option<PathBuf>,
    outside: Vec<(&'static str, SettingValue)>,
    open_files: u64,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address for apps.
    pub listen: SocketAddr,
    /// The certificate of that address; none for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// The address for proxies that ask over gRPC, if there may be any.
    pub gate_grpc_listen: Option<SocketAddr>,
    /// The address of the admin API, metrics and health.
    pub admin_listen: SocketAddr,
    /// The tokens of the admin API. At least one, unless only this machine reaches the listener.
    pub admin_tokens: Vec<AdminToken>,
    /// Host names of the admin API in lower case, beside addresses and `localhost`.
    pub admin_hosts: Vec<String>,
    /// Where lines are kept.
    pub store: StoreSettings,
    /// How long the store must have been away before zones open whose policy says so.
    pub open_after: Duration,
    /// What carries the messages between servers.
    pub fanout: FanoutSettings,
    /// The directory of the journal and the keys.
    pub data_dir: PathBuf,
    /// The accept queue of the listeners.
    pub backlog: u32,
    /// The most open public connections.
    pub max_connections: usize,
    /// The most open public connections of one client address; none for no cap.
    pub max_connections_per_client: Option<usize>,
    /// The most open streams of one client address; none for no cap.
    pub max_streams_per_client: Option<usize>,
    /// The threads that serve.
    pub worker_threads: usize,
    /// The time limit from a request's first byte to the end of its head.
    pub header_timeout: Duration,
    /// The time limit from the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// How long a write of a reply may make no progress.
    pub write_timeout: Duration,
    /// The time limit between requests of a connection; none where it follows the zones, see [`Config::idle_timeout`].
    pub idle_timeout_given: Option<Duration>,
    /// How long a stopping server goes on with requests under way.
    pub drain_deadline: Duration,
    /// The proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// How clients are told apart for the zones' limits.
    pub limit: LimitSettings,
    /// The origins of web pages that may call.
    pub cors_origins: Origins,
    /// The waiting pages.
    pub wait: WaitSettings,
    /// What happens to the requests that proxies ask about.
    pub routes: Routes,
    /// How passes are signed, and what they say.
    pub pass: PassSettings,
    /// The keys that seal tokens.
    pub seal: SealSettings,
    /// The audit log, if there is one.
    pub audit: Option<audit::Settings>,
    /// How draws are signed, and where their randomness comes from.
    pub draw: DrawSettings,
    /// The collector of OpenTelemetry, if there is one.
    pub otlp: Option<OtlpSettings>,
    /// The log filter.
    pub log: String,
    /// Whether each line of the log is a JSON object.
    pub log_is_json: bool,
    /// The zones of the file. At least one, unless the store keeps the zones.
    pub zones: Vec<(ZoneId, Definition)>,
    /// Whether a file has the zones. Without a file, there is one zone to try.
    pub has_file: bool,
    /// What is dangerous in the files of this configuration: each is a line that says where, what and what to do.
    pub dangers: Vec<String>,
}

impl Sources {
    /// The settings of `file`, which the environment and then `args` override, and the zones of `zones_file` if that is another
    /// file. `args` were parsed with [`arguments`]; `variable` reads the environment. The limit of connections is at most
    /// `open_files`, less a reserve.
    ///
    /// # Errors
    /// A [`ConfigFault`] for an argument or variable that is not valid.
    pub fn new(
        file: Option<PathBuf>,
        zones_file: Option<PathBuf>,
        args: &ArgMatches,
        variable: impl Fn(&str) -> Option<String>,
        open_files: u64,
    ) -> Result<Self, ConfigFault> {
        let outside = settings::outside_the_file(args, variable)?;
        Ok(Self { file, zones_file, outside, open_files })
    }

    /// Whether there is a configuration file.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.file.is_some() || self.zones_file.is_some()
    }

    /// Reads all sources anew.
    ///
    /// # Errors
    /// The first [`ConfigFault`].
    pub fn load(&self) -> Result<Config, ConfigFault> {
        let mut text = FileText::default();
        let mut dangers = Vec::new();
        if let Some(path) = &self.file {
            text = file::read(path)?;
            dangers.extend(exposure(path, &text.secrets));
        } else {
            let id = ZoneId::parse("TEST_ZONE").expect("a valid name");
            text.zones.push((id, Definition::default(), Origin::Default));
        }
        if let Some(path) = &self.zones_file {
            let other = file::read(path)?;
            dangers.extend(exposure(path, &other.secrets));
            text.zones = other.zones;
        }
        text.settings.extend(self.outside.iter().cloned());
        let file = self.zones_file.as_ref().or(self.file.as_ref());
        let name = file.map_or(String::new(), |file| file.display().to_string());
        let checked = check(&name, text, self.open_files)?;
        dangers.extend(checked.dangers.iter().cloned());
        Ok(Config { dangers, has_file: file.is_some(), ..checked })
    }

    /// The configuration file, if one was named.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl Config {
    /// How many of the public connections only the trusted proxies may use, so that a crowd that comes past them keeps no check
    /// out.
    #[must_use]
    pub fn connections_for_proxies(&self) -> usize {
        let share = (self.max_connections / PROXY_SHARE).min(MOST_FOR_PROXIES);
        if self.trusted_proxies.is_empty() { 0 } else { share }
    }

    /// The time limit between requests of a connection: as configured, or long enough to keep connections from poll to
    /// poll where the longest polling period of a zone is `longest_ms`.
    #[must_use]
    pub fn idle_timeout(&self, longest_ms: u32) -> Duration {
        let following = Duration::from_secs(u64::from(longest_ms.div_ceil(1_000) + 30).max(75));
        self.idle_timeout_given.unwrap_or(following)
    }

    /// The zones with a target that the configuration does not have.
    pub fn targets_without_zone(&self) -> impl Iterator<Item = &ZoneId> {
        let is_known = |zone: &&ZoneId| self.zones.iter().any(|(id, _)| id == *zone);
        self.wait.targets.iter().filter_map(Target::zone).filter(move |zone| !is_known(zone))
    }

    /// The longest polling period of the file's zones, in milliseconds.
    #[must_use]
    pub fn longest_polling_ms(&self) -> u32 {
        self.zones.iter().map(|(_, zone)| zone.policy.period_limit_ms()).max().unwrap_or(0)
    }
}

/// Says that users other than the owner and the group may read or change a file that holds `secrets`, if that is so. The files of
/// keys are refused in that case. A configuration of an earlier version must still start, so it only gets a warning.
fn exposure(path: &Path, secrets: &[String]) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    let is_exposed = mode & 0o006 != 0 && !secrets.is_empty();
    let (path, secrets) = (path.display(), secrets.join(", "));
    is_exposed.then(|| {
        format!(
            "{path}: every user of this machine may read or change this file (mode {mode:04o}), and it holds secrets \
             ({secrets}); run: chmod 600 '{path}'"
        )
    })
}

/// The arguments of a command that needs a configuration.
#[must_use]
pub fn arguments() -> Vec<Arg> {
    settings::arguments()
}

/// Whether an environment variable of this name is read as a setting.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.variable() == name)
}

/// Reads a configuration text as if it were a file of that name. For tests and fuzzing.
///
/// # Errors
/// The first [`ConfigFault`].
pub fn from_text(name: &str, text: &str) -> Result<Config, ConfigFault> {
    check(name, file::parse(name, text)?, 20_000)
}

#[cfg(test)]
mod tests;
