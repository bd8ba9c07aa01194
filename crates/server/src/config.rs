//! What the operator decides, read once, checked whole.
//!
//! Flags win over `WEIR_…` variables, those over the file, those over the defaults. Invariant: a [`Config`] that
//! exists is one the server can run with; every fault is one line that says where, what and what to do.

mod commands;
mod file;
mod settings;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use admission::{Definition, ZoneId};
use gate::{cells, limits::LimitSettings};
use ipnet::IpNet;
use limiter::layer::address::Prefixes;
use store::redis::{
    Durability,
    address::{Address, Library, Settings as ClientSettings},
};

use crate::{
    access::{AdminToken, Role},
    audit,
    fanout::FanoutSettings,
    fanout::nats,
    http::{
        cors::Origins,
        wait::{WaitSettings, target::Target},
    },
    keys::SealSettings,
    passes::{Algorithm, PassSettings},
    remote::{Call, Server},
    secret::Secret,
    stores::{CellSettings, RedisSettings, StoreSettings},
};
use file::FileText;
use settings::{Given, Place, Value};

const LIBRARIES: [(Library, &str); 2] = [(Library::Fred, "fred"), (Library::RedisRs, "redis-rs")];
const DURABILITIES: [(Durability, &str); 2] =
    [(Durability::Async, "async"), (Durability::Replicated, "replicated")];

/// Files a server needs open beside its public connections: journal, admin, refusals being said, and room.
pub const RESERVED_FILES: u64 = 256;

/// Why a configuration is refused: one line with the place and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", one_line(.0))]
pub struct ConfigFault(String);

/// What is quoted of a file may hold line breaks and worse; the fault is one line all the same.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}

/// What the process was called for.
#[derive(Debug)]
pub enum Order {
    /// Serve with these sources of configuration.
    Serve(Sources),
    /// Check them only.
    Check(Sources),
    /// Put the zones into the store.
    ApplyZones(Sources),
    /// List the zones of the store.
    ListZones(Sources),
    /// Hold the audit log in these places, or the configured one where there are none, against its chain and a head.
    VerifyAudit(Sources, Vec<PathBuf>, Option<audit::Head>),
    /// Ask a running server.
    Ask {
        /// For this.
        call: Call,
        /// Which one.
        server: Server,
    },
    /// Make a token for the admin API.
    NewToken {
        /// Whose it is.
        name: String,
        /// What its holder may do.
        role: Role,
    },
    /// Print this and end: help, the version, or a document.
    Print(String),
}

/// Where configuration comes from; kept, so that it can be read again.
#[derive(Clone, Debug)]
pub struct Sources {
    file: Option<PathBuf>,
    /// Where the zones come from, if not from `file`.
    zones_file: Option<PathBuf>,
    outside: Vec<(&'static str, Given)>,
    open_files: u64,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where apps call.
    pub listen: SocketAddr,
    /// The admin API, metrics and health.
    pub admin_listen: SocketAddr,
    /// Who may use the admin API. At least one, unless only this machine reaches it.
    pub admin_tokens: Vec<AdminToken>,
    /// Names, in small letters, under which it may be asked, beside addresses and `localhost`.
    pub admin_hosts: Vec<String>,
    /// Where lines are kept.
    pub store: StoreSettings,
    /// How servers tell each other of changes.
    pub fanout: FanoutSettings,
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
    /// Between requests of a connection; none where it follows the zones, see [`Config::idle_timeout`].
    pub idle_timeout_given: Option<Duration>,
    /// How long a stopping server finishes its requests.
    pub drain_deadline: Duration,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whom the zones' limits are about.
    pub limit: LimitSettings,
    /// The web pages that may call.
    pub cors_origins: Origins,
    /// The waiting pages.
    pub wait: WaitSettings,
    /// The passes.
    pub pass: PassSettings,
    /// The keys that seal tokens.
    pub seal: SealSettings,
    /// The audit log, if there is one.
    pub audit: Option<audit::Settings>,
    /// What is logged.
    pub log: String,
    /// The zones as the file defines them. At least one, unless the store keeps the zones.
    pub zones: Vec<(ZoneId, Definition)>,
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
            let mut lines = text.lines();
            let mut what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            if what.ends_with(':') {
                what = format!("{what} {}", lines.next().unwrap_or_default().trim());
            }
            return Err(ConfigFault(format!("{what}; see weir --help")));
        }
    };
    let (mut word, mut args) = matches.subcommand().unwrap_or(("serve", &matches));
    if matches!(word, "zones" | "audit" | "token")
        && let Some(inner) = args.subcommand()
    {
        (word, args) = inner;
    }
    if let Some(order) = commands::order(word, args, &variable)? {
        return Ok(order);
    }
    let named = |name| args.try_get_one::<String>(name).ok().flatten().cloned();
    let mut file = named("config").or_else(|| variable("WEIR_CONFIG")).map(PathBuf::from);
    let mut zones_file = None;
    let argument = named("file").map(PathBuf::from);
    match word {
        "apply" if file.is_some() => zones_file = argument,
        _ => file = argument.or(file),
    }
    let head = named("head").map(|text| {
        text.parse::<audit::Head>()
            .map_err(|what| ConfigFault(format!("--head: `{text}` is no head; {what}")))
    });
    let outside = settings::outside_the_file(args, variable)?;
    let sources = Sources { file, zones_file, outside, open_files };
    Ok(match word {
        "check-config" => Order::Check(sources),
        "apply" => Order::ApplyZones(sources),
        "list" => Order::ListZones(sources),
        "verify" => {
            let paths = args.get_many::<String>("path").into_iter().flatten().map(PathBuf::from);
            Order::VerifyAudit(sources, paths.collect(), head.transpose()?)
        }
        _ => Order::Serve(sources),
    })
}

/// Of these names of variables, those that look like a setting of ours and are none.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    // Kubernetes tells every container about a service called `weir` in variables of these forms.
    let of_kubernetes = |name: &str| name.starts_with("WEIR_SERVICE_") || name.starts_with("WEIR_PORT");
    let is_other = |name: &str| matches!(name, "WEIR_CONFIG" | commands::TOKEN_VARIABLE);
    let known = |name: &str| is_other(name) || settings::SETTINGS.iter().any(|s| s.variable() == name);
    names.filter(|name| name.starts_with("WEIR_") && !known(name) && !of_kubernetes(name)).collect()
}

impl Sources {
    /// Reads everything, anew each time.
    ///
    /// # Errors
    /// The first [`ConfigFault`].
    pub fn load(&self) -> Result<Config, ConfigFault> {
        let mut text = FileText::default();
        if let Some(path) = &self.file {
            text = file::read(path)?;
        } else {
            let id = ZoneId::parse("TEST_ZONE").expect("nine letters of the alphabet");
            text.zones.push((id, Definition::default(), Place::Default));
        }
        if let Some(path) = &self.zones_file {
            text.zones = file::read(path)?.zones;
        }
        text.settings.extend(self.outside.iter().cloned());
        let file = self.zones_file.as_ref().or(self.file.as_ref());
        check(&file.map_or(String::new(), |file| file.display().to_string()), text, self.open_files)
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

    fn networks(&self, name: &str) -> Result<Vec<IpNet>, ConfigFault> {
        let Some(Given { value: Value::List(texts), place }) = self.0.get(name) else {
            return Ok(Vec::new());
        };
        let network = |text: &String| {
            let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            let what = format!("`{text}` is no network; write one as in 10.0.0.0/8");
            net.map_err(|_| place.fault(what))
        };
        texts.iter().map(network).collect()
    }

    fn hosts(&self, name: &str) -> Result<Vec<String>, ConfigFault> {
        let Some(Given { value: Value::List(texts), place }) = self.0.get(name) else {
            return Ok(Vec::new());
        };
        let host = |text: &String| {
            let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let what = format!("`{text}` is no name of a host; write one as in weir.example, without a port");
            let is_name = (1..=253).contains(&text.len()) && text.bytes().all(right);
            if is_name { Ok(text.to_ascii_lowercase()) } else { Err(place.fault(what)) }
        };
        texts.iter().map(host).collect()
    }

    fn path(&self, name: &str) -> Result<Option<PathBuf>, ConfigFault> {
        match self.text(name) {
            Some(("", place)) => Err(place.fault("is empty; name a path")),
            other => Ok(other.map(|(text, _)| PathBuf::from(text))),
        }
    }

    fn word<T: Default, const N: usize>(
        &self,
        name: &str,
        words: [(T, &'static str); N],
    ) -> Result<T, ConfigFault> {
        self.text(name).map_or_else(|| Ok(T::default()), |(word, place)| file::one_of(words, word, place))
    }

    fn store(&self, cells: Vec<CellSettings>) -> Result<StoreSettings, ConfigFault> {
        // What is wrong is wrong also where it is not used.
        let library = self.word("redis.client", LIBRARIES)?;
        let durability = self.word("redis.durability", DURABILITIES)?;
        let cells = match self.text("store") {
            Some((_, place)) if !cells.is_empty() => {
                return Err(place.fault("the cells have stores of their own; leave this one out"));
            }
            None if cells.is_empty() => return Ok(StoreSettings::Memory),
            Some(("memory", _)) => return Ok(StoreSettings::Memory),
            Some((text, place)) => {
                let tenants = vec![cells::REST.to_owned()];
                vec![CellSettings { name: "redis".to_owned(), address: address(text, place)?, tenants }]
            }
            None => cells,
        };
        let password = self.text("redis.password");
        if let (Some((_, place)), Some(_)) = (password, self.text("redis.password_file")) {
            return Err(place.fault("there is a redis.password_file too; leave one out"));
        }
        let defaults = ClientSettings::default();
        Ok(StoreSettings::Redis(RedisSettings {
            cells,
            library,
            user: self.text("redis.user").map(|(text, _)| text.to_owned()),
            password: password.map(|(text, _)| Secret::new(text.to_owned())),
            password_file: self.path("redis.password_file")?,
            ca_file: self.path("redis.ca_file")?,
            durability,
            max_in_flight: self
                .number("redis.max_in_flight")
                .map_or(defaults.max_in_flight, |(n, _)| usize::try_from(n).unwrap_or(usize::MAX)),
            command_timeout: self
                .number("redis.command_timeout_ms")
                .map_or(defaults.command_timeout, |(n, _)| Duration::from_millis(n.into())),
        }))
    }

    fn fanout(&self, store: &StoreSettings) -> Result<FanoutSettings, ConfigFault> {
        let alone = matches!(store, StoreSettings::Memory);
        match self.text("fanout") {
            None if alone => Ok(FanoutSettings::None),
            None => Ok(FanoutSettings::Redis),
            Some(("none", _)) => Ok(FanoutSettings::None),
            Some((_, place)) if alone => Err(place.fault(
                "the embedded store has no other servers to be told; leave this out, or name a store: redis://…",
            )),
            Some(("redis", _)) => Ok(FanoutSettings::Redis),
            Some((text, place)) if text.starts_with("nats:") || text.starts_with("tls:") => {
                nats::Address::parse(text).map(FanoutSettings::Nats).map_err(|fault| place.fault(fault))
            }
            // It may hold a password.
            Some((_, place)) => Err(place.fault("must be redis, none, or where NATS is: nats://127.0.0.1:4222")),
        }
    }

    fn check(
        &self,
        store: StoreSettings,
        zones: Vec<(ZoneId, Definition)>,
        admin_tokens: Vec<AdminToken>,
        targets: Vec<Target>,
        open_files: u64,
    ) -> Result<Config, ConfigFault> {
        let fanout = self.fanout(&store)?;
        let (listen, admin_listen) =
            (self.address("listen", "127.0.0.1:8080")?, self.address("admin_listen", "127.0.0.1:8081")?);
        if listen == admin_listen && listen.port() != 0 {
            let place = self.text("admin_listen").or(self.text("listen")).map(|(_, place)| place.to_string());
            let place = place.unwrap_or_default();
            return Err(ConfigFault(format!(
                "{place}: {listen} is the address of both listeners; change one"
            )));
        }
        if !admin_listen.ip().is_loopback() && admin_tokens.is_empty() {
            let place = self.text("admin_listen").map(|(_, place)| place).unwrap_or(&Place::Default);
            return Err(place.fault(format!(
                "{admin_listen} is reached from beyond this machine, and there is no [[admin_token]]; `weir token new` \
                 makes one"
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
        let longest_ms = zones.iter().map(|(_, zone)| zone.policy.polling_period_ms).max().unwrap_or(0);
        let idle_timeout_given = match self.number("idle_timeout_s") {
            Some((s, place)) if u64::from(s) * 1_000 <= longest_ms.into() => {
                let what = format!(
                    "is {s} s, and a zone's apps ask every {longest_ms} ms: their connections would be closed \
                     between polls; raise it above that"
                );
                return Err(place.fault(what));
            }
            given => given.map(|(s, _)| Duration::from_secs(s.into())),
        };
        let cors_origins = match self.0.get("cors_origins") {
            Some(Given { value: Value::List(texts), place }) => Origins::new(texts).map_err(|text| {
                place.fault(format!(
                    "`{text}` is no origin; write one as in https://shop.example, or * for any"
                ))
            })?,
            _ => Origins::default(),
        };
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
            admin_tokens,
            admin_hosts: self.hosts("admin_hosts")?,
            store,
            fanout,
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
            idle_timeout_given,
            drain_deadline: self.seconds("drain_deadline_s", 20),
            trusted_proxies: self.networks("trusted_proxies")?,
            limit: LimitSettings {
                carrier_nats: self.networks("limit.carrier_nats")?,
                ipv6_prefix: self
                    .number("limit.ipv6_prefix")
                    .map_or(Prefixes::default().ipv6, |(n, _)| u8::try_from(n).unwrap_or(u8::MAX)),
            },
            cors_origins,
            wait: WaitSettings { templates_dir: self.path("wait.templates_dir")?, targets },
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
            audit: self.path("audit.dir")?.map(|dir| audit::Settings {
                dir,
                file_bytes: u64::from(self.number("audit.file_mb").map_or(100, |(n, _)| n)) * 1_000_000,
            }),
            log,
            zones,
        })
    }
}

/// A Redis, by its address.
fn address(text: &str, place: &Place) -> Result<Address, ConfigFault> {
    if text.starts_with("redis") {
        return Address::parse(text).map_err(|fault| place.fault(fault));
    }
    // What stands before the @ of an address is a password.
    let shown = text.rsplit('@').next().unwrap_or(text);
    Err(place.fault(format!(
        "`{shown}`: there is no such store; say `memory`, or where a Redis is, as in redis://127.0.0.1:6379"
    )))
}

/// Holds everything against everything else. `file` is where the zones are from.
fn check(file: &str, text: FileText, open_files: u64) -> Result<Config, ConfigFault> {
    let settings = Settings(text.settings.into_iter().collect());
    let store = settings.store(text.cells)?;
    match &store {
        StoreSettings::Memory if text.zones.is_empty() => {
            return Err(ConfigFault(format!("{file}: has no zone; add a [[zone]] table with an `id`")));
        }
        StoreSettings::Memory => {}
        StoreSettings::Redis(redis) => {
            let has = |tenant: &str| redis.cells.iter().any(|cell| cell.tenants.iter().any(|t| t == tenant));
            let homeless =
                text.zones.iter().find(|(id, ..)| !has(cells::tenant(id.as_str())) && !has(cells::REST));
            if let Some((id, _, place)) = homeless {
                let tenant = cells::tenant(id.as_str());
                let what =
                    format!("`{id}`: no cell has the tenant `{tenant}`; name it in a cell's `tenants`");
                return Err(place.fault(what));
            }
        }
    }
    let zones = text.zones.into_iter().map(|(id, definition, _)| (id, definition)).collect();
    settings.check(store, zones, text.admin_tokens, text.targets, open_files)
}

impl Config {
    /// How long a connection may idle between requests: as configured, or so that one is kept from poll to poll in
    /// zones whose longest polling period is `longest_ms`.
    #[must_use]
    pub fn idle_timeout(&self, longest_ms: u32) -> Duration {
        let following = Duration::from_secs(u64::from(longest_ms.div_ceil(1_000) + 30).max(75));
        self.idle_timeout_given.unwrap_or(following)
    }

    /// The longest polling period of the file's zones, in milliseconds.
    #[must_use]
    pub fn longest_polling_ms(&self) -> u32 {
        self.zones.iter().map(|(_, zone)| zone.policy.polling_period_ms).max().unwrap_or(0)
    }

    /// Every setting as it is in force, by name. Key files are named, keys are not in here.
    #[must_use]
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let file = |path: &Option<PathBuf>, none: &str| {
            path.as_ref().map_or_else(|| none.to_owned(), |path| path.display().to_string())
        };
        let seconds = |time: Duration| time.as_secs().to_string();
        let networks = |networks: &[IpNet]| match networks {
            [] => "(none)".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let made = "(made in data_dir)";
        let word = |known: Option<&'static str>| known.unwrap_or_default().to_owned();
        let redis = match &self.store {
            StoreSettings::Memory => None,
            StoreSettings::Redis(redis) => Some(redis),
        };
        let of_redis =
            |shown: &dyn Fn(&RedisSettings) -> String| redis.map_or_else(|| "(unused)".to_owned(), shown);
        let cell = |cell: &CellSettings| match &cell.tenants[..] {
            [all] if all == cells::REST => format!("{} = {}", cell.name, cell.address),
            tenants => format!("{} = {} (tenants {tenants:?})", cell.name, cell.address),
        };
        vec![
            ("listen", self.listen.to_string()),
            ("admin_listen", self.admin_listen.to_string()),
            (
                "admin_hosts",
                match &self.admin_hosts[..] {
                    [] => "(none)".to_owned(),
                    hosts => hosts.join(", "),
                },
            ),
            (
                "admin_token",
                match &self.admin_tokens[..] {
                    [] => "(none: whoever reaches the admin listener from this machine is admin)".to_owned(),
                    tokens => {
                        let shown = |token: &AdminToken| format!("{} ({})", token.name, token.role.as_str());
                        tokens.iter().map(shown).collect::<Vec<_>>().join(", ")
                    }
                },
            ),
            (
                "store",
                redis.map_or_else(
                    || "memory".to_owned(),
                    |redis| redis.cells.iter().map(cell).collect::<Vec<_>>().join("; "),
                ),
            ),
            (
                "redis.client",
                of_redis(&|redis| {
                    word(LIBRARIES.iter().find(|(l, _)| *l == redis.library).map(|(_, word)| *word))
                }),
            ),
            ("redis.user", of_redis(&|redis| redis.user.clone().unwrap_or_else(|| "(none)".to_owned()))),
            (
                "redis.password",
                of_redis(&|redis| if redis.password.is_some() { "(set)" } else { "(not set)" }.to_owned()),
            ),
            ("redis.password_file", of_redis(&|redis| file(&redis.password_file, "(none)"))),
            ("redis.ca_file", of_redis(&|redis| file(&redis.ca_file, "(the system's)"))),
            (
                "redis.durability",
                of_redis(&|redis| {
                    word(DURABILITIES.iter().find(|(d, _)| *d == redis.durability).map(|(_, word)| *word))
                }),
            ),
            ("redis.max_in_flight", of_redis(&|redis| redis.max_in_flight.to_string())),
            ("redis.command_timeout_ms", of_redis(&|redis| redis.command_timeout.as_millis().to_string())),
            (
                "fanout",
                match &self.fanout {
                    FanoutSettings::None => "none".to_owned(),
                    FanoutSettings::Redis => "redis".to_owned(),
                    FanoutSettings::Nats(address) => address.to_string(),
                },
            ),
            ("data_dir", self.data_dir.display().to_string()),
            ("backlog", self.backlog.to_string()),
            ("max_connections", self.max_connections.to_string()),
            ("worker_threads", self.worker_threads.to_string()),
            ("header_timeout_s", seconds(self.header_timeout)),
            ("body_timeout_s", seconds(self.body_timeout)),
            ("write_timeout_s", seconds(self.write_timeout)),
            ("idle_timeout_s", seconds(self.idle_timeout(self.longest_polling_ms()))),
            ("drain_deadline_s", seconds(self.drain_deadline)),
            ("trusted_proxies", networks(&self.trusted_proxies)),
            ("limit.carrier_nats", networks(&self.limit.carrier_nats)),
            ("limit.ipv6_prefix", self.limit.ipv6_prefix.to_string()),
            ("cors_origins", self.cors_origins.to_string()),
            ("wait.templates_dir", file(&self.wait.templates_dir, "(none)")),
            (
                "wait.target",
                match &self.wait.targets[..] {
                    [] => "(none)".to_owned(),
                    some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                },
            ),
            ("pass.algorithm", self.pass.algorithm.as_str().to_owned()),
            ("pass.audience", self.pass.audience.clone()),
            ("pass.issuer", self.pass.issuer.clone().unwrap_or_else(|| "(none)".to_owned())),
            ("pass.key_file", file(&self.pass.key_file, made)),
            ("pass.previous_key_file", file(&self.pass.previous_key_file, "(none)")),
            ("seal.key_file", file(&self.seal.key_file, made)),
            ("seal.previous_key_file", file(&self.seal.previous_key_file, "(none)")),
            (
                "audit.dir",
                self.audit.as_ref().map_or("(no audit log)".to_owned(), |a| a.dir.display().to_string()),
            ),
            (
                "audit.file_mb",
                self.audit.as_ref().map_or("(unused)".to_owned(), |a| (a.file_bytes / 1_000_000).to_string()),
            ),
            ("log", self.log.clone()),
        ]
    }

    /// The settings in which `new` differs and that a running server can't change. The idle timeout is not among
    /// them: it follows the zones. Nor are who may use the admin API, under what names, and the waiting pages: that is taken
    /// over.
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        const TAKEN_OVER: [&str; 3] = ["admin_hosts", "admin_token", "idle_timeout_s"];
        let pairs = self.shown().into_iter().zip(new.shown());
        let taken_over = |name: &str| TAKEN_OVER.contains(&name) || name.starts_with("wait.");
        pairs.filter(|(old, new)| old != new && !taken_over(old.0)).map(|(old, _)| old.0).collect()
    }
}

/// Reads a configuration text as a file of that name; for the tests of others and for fuzzing.
///
/// # Errors
/// The first [`ConfigFault`].
pub fn from_text(name: &str, text: &str) -> Result<Config, ConfigFault> {
    check(name, file::parse(name, text)?, 20_000)
}

#[cfg(test)]
mod tests;
