//! Checks the given values, and makes a [`Config`] of them.
//!
//! Invariant: a value that is not valid is refused even if it is not used.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use admission::{Definition, ZoneId};
use check::{Gated, Route, RouteAction, Routes};
use gate::{cells, limits::LimitSettings};
use ipnet::IpNet;
use shown::without_secrets;
use store::redis::{
    Durability,
    address::{Address, Library, Settings as ClientSettings, Topology},
};

use super::{
    Config, ConfigFault, GRPC_CONNECTIONS, RESERVED_FILES,
    file::FileText,
    settings::{self, Origin, SettingValue, Value},
    values::{network, one_of, socket_address, store_address},
};
use crate::{
    access::AdminToken,
    draws::{DrawSettings, Relay},
    fanout::{FanoutSettings, nats},
    http::{
        cors::Origins,
        waiting_page::{WaitSettings, target::Target},
    },
    keys::SealSettings,
    otlp::{self, OtlpSettings},
    passes::{Algorithm, PassSettings},
    secret::Secret,
    stores::{CellSettings, RedisSettings, StoreSettings},
    tls::TlsSettings,
};

pub(super) const LIBRARIES: [(Library, &str); 2] = [(Library::Fred, "fred"), (Library::RedisRs, "redis-rs")];
pub(super) const DURABILITIES: [(Durability, &str); 2] =
    [(Durability::Async, "async"), (Durability::Replicated, "replicated")];

/// The relays that are asked by default.
const DRAND: [&str; 2] = ["https://api.drand.sh", "https://drand.cloudflare.com"];

/// The connections and the streams that one client address may have by default. A carrier's NAT puts up to about a thousand
/// people behind one address (an address has 64,512 ports, and a person gets some dozens), and a person has one or two
/// connections. So a crowd behind one address fits, and one address takes a tenth of a server with 20,000 open files.
const PER_CLIENT: u64 = 2_048;

/// The values in force, by setting. Settings without a value and without a default are missing.
struct Settings(BTreeMap<&'static str, SettingValue>);

impl Settings {
    fn text(&self, name: &str) -> Option<(&str, &Origin)> {
        match self.0.get(name) {
            Some(SettingValue { value: Value::Text(text), origin }) => Some((text, origin)),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<(u32, &Origin)> {
        match self.0.get(name) {
            Some(SettingValue { value: Value::Number(number), origin }) => Some((*number, origin)),
            _ => None,
        }
    }

    /// A number that has a default.
    fn number_or_default(&self, name: &str) -> u32 {
        self.number(name).expect("it has a default").0
    }

    /// A text that has a default.
    fn text_or_default(&self, name: &str) -> (&str, &Origin) {
        self.text(name).expect("it has a default")
    }

    fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(self.number_or_default(name).into())
    }

    fn address(&self, name: &str) -> Result<SocketAddr, ConfigFault> {
        let (text, origin) = self.text_or_default(name);
        socket_address(text, origin, settings::default_of(name).unwrap_or_default())
    }

    /// The address for proxies that ask over gRPC. `others` are those of the other listeners.
    fn gate_grpc_listen(&self, others: &[SocketAddr]) -> Result<Option<SocketAddr>, ConfigFault> {
        let Some((text, origin)) = self.text("gate_grpc_listen") else { return Ok(None) };
        let at = socket_address(text, origin, "127.0.0.1:8082")?;
        if others.iter().any(|other| is_same(*other, at)) {
            return Err(origin.fault(format!("{at} is the address of another listener; change one")));
        }
        if self.networks("trusted_proxies")?.is_empty() {
            let what =
                "there are no `trusted_proxies`, so nobody may ask there; list the addresses of the proxies";
            return Err(origin.fault(what));
        }
        Ok(Some(at))
    }

    fn networks(&self, name: &str) -> Result<Vec<IpNet>, ConfigFault> {
        let Some(SettingValue { value: Value::List(texts), origin }) = self.0.get(name) else {
            return Ok(Vec::new());
        };
        texts.iter().map(|text| network(text, origin)).collect()
    }

    fn hosts(&self, name: &str) -> Result<Vec<String>, ConfigFault> {
        let Some(SettingValue { value: Value::List(texts), origin }) = self.0.get(name) else {
            return Ok(Vec::new());
        };
        let host = |text: &String| {
            let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let what = format!("`{text}` is not a host name; write one as in weir.example, without a port");
            let is_name = (1..=253).contains(&text.len()) && text.bytes().all(right);
            if is_name { Ok(text.to_ascii_lowercase()) } else { Err(origin.fault(what)) }
        };
        texts.iter().map(host).collect()
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(|(text, _)| PathBuf::from(text))
    }

    fn word<T: Default, const N: usize>(
        &self,
        name: &str,
        words: [(T, &'static str); N],
    ) -> Result<T, ConfigFault> {
        self.text(name).map_or_else(|| Ok(T::default()), |(word, origin)| one_of(words, word, origin))
    }

    fn store(&self, cells: Vec<CellSettings>) -> Result<StoreSettings, ConfigFault> {
        let library = self.word("redis.client", LIBRARIES)?;
        let durability = self.word("redis.durability", DURABILITIES)?;
        let cells = match self.text("store") {
            Some((_, origin)) if !cells.is_empty() => {
                return Err(origin.fault("each cell has its own store; remove this setting"));
            }
            None if cells.is_empty() => return Ok(StoreSettings::Memory),
            Some(("memory", _)) => return Ok(StoreSettings::Memory),
            Some((text, origin)) => {
                let tenants = vec![cells::REST.to_owned()];
                vec![CellSettings {
                    name: "redis".to_owned(),
                    address: store_address(text, origin)?,
                    tenants,
                }]
            }
            None => cells,
        };
        let password = self.text("redis.password");
        if let (Some((_, origin)), Some(_)) = (password, self.text("redis.password_file")) {
            return Err(origin.fault("redis.password_file is set, too; remove one of the two"));
        }
        let sentinel_password_file = self.path("redis.sentinel_password_file");
        for name in ["redis.sentinel_user", "redis.sentinel_password_file"] {
            let Some((_, origin)) = self.text(name) else { continue };
            if sentinel_password_file.is_none() {
                let what = "redis.sentinel_password_file is not set; the Sentinels' user needs it, or leave both out";
                return Err(origin.fault(what));
            }
            if cells.iter().all(|cell| cell.address.topology != Topology::Sentinel) {
                let what = "no store is found by Sentinels; write its address as redis-sentinel://…, or leave this out";
                return Err(origin.fault(what));
            }
        }
        // With several cells, one of them may be plain.
        if let Some(plain) = cells.first().filter(|_| cells.iter().all(|cell| !cell.address.tls)) {
            let of_tls = ["redis.ca_file", "redis.certificate_file", "redis.key_file"];
            if let Some((_, origin)) = of_tls.into_iter().find_map(|name| self.text(name)) {
                let with_tls = Address { tls: true, ..plain.address.clone() };
                let what = format!(
                    "files of TLS change nothing here, because connections to {} have none; write {with_tls} in store, or leave \
                     this out",
                    plain.address
                );
                return Err(origin.fault(what));
            }
        }
        let defaults = ClientSettings::default();
        Ok(StoreSettings::Redis(Box::new(RedisSettings {
            cells,
            library,
            user: self.text("redis.user").map(|(text, _)| text.to_owned()),
            password: password.map(|(text, _)| Secret::new(text.to_owned())),
            password_file: self.path("redis.password_file"),
            sentinel_user: self.text("redis.sentinel_user").map(|(text, _)| text.to_owned()),
            sentinel_password_file,
            ca_file: self.path("redis.ca_file"),
            identity: self.pair(["redis.certificate_file", "redis.key_file"])?,
            durability,
            max_in_flight: self
                .number("redis.max_in_flight")
                .map_or(defaults.max_in_flight, |(n, _)| usize::try_from(n).unwrap_or(usize::MAX)),
            command_timeout: self
                .number("redis.command_timeout_ms")
                .map_or(defaults.command_timeout, |(n, _)| Duration::from_millis(n.into())),
        })))
    }

    /// The files of a certificate and of its key.
    fn pair(&self, both: [&str; 2]) -> Result<Option<TlsSettings>, ConfigFault> {
        match (self.path(both[0]), self.path(both[1])) {
            (Some(certificate), Some(key)) => Ok(Some(TlsSettings { certificate, key })),
            (None, None) => Ok(None),
            (given, _) => {
                let (given, missing) = if given.is_some() { (both[0], both[1]) } else { (both[1], both[0]) };
                let origin = self.text(given).expect("it is given").1;
                Err(origin.fault(format!("{missing} is not set; TLS needs both, or leave both out")))
            }
        }
    }

    fn draw(&self) -> Result<DrawSettings, ConfigFault> {
        let (name, origin) = self.text_or_default("draw.name");
        if draw::Signer::new(name, &[0; 32]).is_err() {
            return Err(
                origin.fault(format!("`{name}` is not 1 to 128 visible ASCII characters without `+`"))
            );
        }
        let relay = |text: &str, origin: &Origin| {
            let shown = without_secrets(text);
            let what = format!("`{shown}` is no address of a relay; write one as in https://api.drand.sh");
            Relay::parse(text).ok_or_else(|| origin.fault(what))
        };
        let drand = match self.0.get("draw.drand") {
            Some(SettingValue { value: Value::List(texts), origin }) if texts.is_empty() => {
                let what =
                    "has no relay, so no draw with drand would ever be decided; name one, or take it away";
                return Err(origin.fault(what));
            }
            Some(SettingValue { value: Value::List(texts), origin }) => {
                texts.iter().map(|text| relay(text, origin)).collect::<Result<_, _>>()?
            }
            _ => DRAND.into_iter().filter_map(Relay::parse).collect(),
        };
        Ok(DrawSettings { name: name.to_owned(), drand })
    }

    /// What is sent to a collector, and what is dangerous about that.
    fn otlp(&self) -> Result<(Option<OtlpSettings>, Option<String>), ConfigFault> {
        let headers = self.text("otlp.headers");
        if let Some((text, origin)) = headers {
            otlp::headers(text).map_err(|what| origin.fault(what))?;
            if self.text("otlp.headers_file").is_some() {
                return Err(origin.fault("otlp.headers_file is set, too; remove one of the two"));
            }
        }
        let Some((text, origin)) = self.text("otlp.endpoint") else {
            let of_none = self
                .0
                .iter()
                .find(|(name, given)| name.starts_with("otlp.") && given.origin != Origin::Default);
            return match of_none {
                Some((_, given)) => Err(given
                    .origin
                    .fault("changes nothing, because otlp.endpoint is not set; set it, or leave this out")),
                None => Ok((None, None)),
            };
        };
        let endpoint = otlp::Address::parse(text).filter(|endpoint| !endpoint.path().contains("/v1/"));
        // What is refused may hold a password.
        let what = "is not the address of a collector; write one as in http://127.0.0.1:4318 or https://otlp.example/base, \
                    without /v1/traces, a query, or a user";
        let endpoint = endpoint.ok_or_else(|| origin.fault(what))?;
        let is_local = endpoint.host() == "localhost"
            || endpoint.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let has_secret = headers.is_some() || self.text("otlp.headers_file").is_some();
        let danger = (has_secret && !endpoint.is_encrypted() && !is_local).then(|| {
            format!("{origin}: the headers for {endpoint} cross the network as plain text; write https:// if the collector has it")
        });
        let sample = match self.0.get("otlp.sample") {
            Some(SettingValue { value: Value::Share(share), .. }) => *share,
            _ => unreachable!("it has a default"),
        };
        let settings = OtlpSettings {
            endpoint,
            sample,
            max_traces_per_s: self.number_or_default("otlp.max_traces_per_s"),
            headers: headers.map(|(text, _)| Secret::new(text.to_owned())),
            headers_file: self.path("otlp.headers_file"),
        };
        Ok((Some(settings), danger))
    }

    fn fanout(&self, store: &StoreSettings) -> Result<FanoutSettings, ConfigFault> {
        let alone = matches!(store, StoreSettings::Memory);
        match self.text("fanout") {
            None if alone => Ok(FanoutSettings::None),
            None => Ok(FanoutSettings::Redis),
            Some(("none", _)) => Ok(FanoutSettings::None),
            Some((_, origin)) if alone => Err(origin.fault(
                "the embedded store has no other servers to tell; remove this setting, or name a store: redis://…",
            )),
            Some(("redis", _)) => Ok(FanoutSettings::Redis),
            Some((text, origin)) if text.starts_with("nats:") || text.starts_with("tls:") => {
                nats::Address::parse(text).map(FanoutSettings::Nats).map_err(|fault| origin.fault(fault))
            }
            // The text is not shown, because it may hold a password.
            Some((_, origin)) => Err(origin.fault("must be redis, none, or the address of NATS, as in nats://127.0.0.1:4222")),
        }
    }

    fn check(
        &self,
        store: StoreSettings,
        zones: Vec<(ZoneId, Definition)>,
        admin_tokens: Vec<AdminToken>,
        (targets, routes): (Vec<Target>, Vec<Route>),
        open_files: u64,
    ) -> Result<Config, ConfigFault> {
        let fanout = self.fanout(&store)?;
        let (listen, admin_listen) = (self.address("listen")?, self.address("admin_listen")?);
        if is_same(listen, admin_listen) {
            let origins = ["admin_listen", "listen"].map(|name| self.text_or_default(name).1);
            let given = origins.into_iter().find(|origin| **origin != Origin::Default).unwrap_or(origins[0]);
            return Err(given.fault(format!("{listen} is the address of both listeners; change one")));
        }
        if !admin_listen.ip().is_loopback() && admin_tokens.is_empty() {
            let origin = self.text_or_default("admin_listen").1;
            return Err(origin.fault(format!(
                "{admin_listen} is reachable from beyond this machine, and there is no [[admin_token]]; `weir token new` \
                 makes one"
            )));
        }
        let gate_grpc_listen = self.gate_grpc_listen(&[listen, admin_listen])?;
        let of_grpc = gate_grpc_listen.map_or(0, |_| GRPC_CONNECTIONS as u64);
        let reserved = RESERVED_FILES + of_grpc;
        let room = open_files.saturating_sub(reserved);
        let max_connections = match self.number("max_connections") {
            Some((n, origin)) if u64::from(n) > room => {
                let what = format!(
                    "is {n}, and {open_files} open files leave room for {room}; lower it, or raise `ulimit -n` to {}",
                    u64::from(n) + reserved
                );
                return Err(origin.fault(what));
            }
            Some((n, _)) => n.into(),
            None if room == 0 => {
                let what = format!("{open_files} open files are too few; raise `ulimit -n` above {reserved}");
                return Err(ConfigFault(what));
            }
            None => room.min(1_000_000),
        };
        let per_client = |name| match self.number(name) {
            Some((0, _)) => None,
            Some((n, _)) => usize::try_from(n).ok(),
            None => usize::try_from(PER_CLIENT.min(max_connections / 4).max(1)).ok(),
        };
        let longest_ms = zones.iter().map(|(_, zone)| zone.policy.polling_period_ms).max().unwrap_or(0);
        let idle_timeout_given = match self.number("idle_timeout_s") {
            Some((s, origin)) if u64::from(s) * 1_000 <= longest_ms.into() => {
                let what = format!(
                    "is {s} s, and a zone's apps ask every {longest_ms} ms: their connections would be closed \
                     between polls; raise it above that"
                );
                return Err(origin.fault(what));
            }
            given => given.map(|(s, _)| Duration::from_secs(s.into())),
        };
        let cors_origins = match self.0.get("cors_origins") {
            Some(SettingValue { value: Value::List(texts), origin }) => {
                Origins::new(texts).map_err(|text| {
                    origin.fault(format!(
                        "`{text}` is not an origin as browsers send it; write one as in https://shop.example, without a path and \
                         without the usual port, or * for any"
                    ))
                })?
            }
            _ => Origins::default(),
        };
        let (text, origin) = self.text_or_default("pass.algorithm");
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.as_str() == text);
        let algorithm = algorithm.ok_or_else(|| {
            origin.fault(format!("`{text}` is not a supported algorithm; use ES256, EdDSA or RS256"))
        })?;
        let (log, origin) = self.text_or_default("log");
        log.parse::<tracing_subscriber::filter::EnvFilter>().map_err(|e| {
            origin.fault(format!("`{log}` is not a log filter ({e}); use info, debug or warn"))
        })?;
        // A word alone that is no level would be the name of a module, and silence all others.
        if let Some(word) = log.split(',').map(str::trim).find(|part| is_no_level(part)) {
            let what = format!(
                "`{word}` is not a level; use error, warn, info, debug or trace, for all or for one module (`edge=debug`)"
            );
            return Err(origin.fault(what));
        }
        let log_is_json = match self.text_or_default("log_format") {
            ("text", _) => false,
            ("json", _) => true,
            (word, origin) => {
                return Err(origin.fault(format!("`{word}` is no form of the log; use text or json")));
            }
        };
        let (otlp, danger) = self.otlp()?;
        Ok(Config {
            listen,
            tls: self.pair(["tls.certificate", "tls.key"])?,
            gate_grpc_listen,
            admin_listen,
            admin_tokens,
            admin_hosts: self.hosts("admin_hosts")?,
            store,
            fanout,
            open_after: self.seconds("open_after_s"),
            data_dir: self.path("data_dir").expect("it has a default"),
            backlog: self.number_or_default("backlog"),
            max_connections: usize::try_from(max_connections).unwrap_or(usize::MAX),
            max_connections_per_client: per_client("max_connections_per_client"),
            max_streams_per_client: per_client("max_streams_per_client"),
            worker_threads: match self.number("worker_threads") {
                Some((n, _)) => usize::try_from(n).unwrap_or(1),
                None => std::thread::available_parallelism().map_or(1, Into::into),
            },
            header_timeout: self.seconds("header_timeout_s"),
            body_timeout: self.seconds("body_timeout_s"),
            write_timeout: self.seconds("write_timeout_s"),
            idle_timeout_given,
            drain_deadline: self.seconds("drain_deadline_s"),
            trusted_proxies: self.networks("trusted_proxies")?,
            limit: LimitSettings {
                carrier_nats: self.networks("limit.carrier_nats")?,
                ipv6_prefix: u8::try_from(self.number_or_default("limit.ipv6_prefix")).unwrap_or(u8::MAX),
            },
            cors_origins,
            wait: WaitSettings { templates_dir: self.path("wait.templates_dir"), targets },
            routes: Routes::new(routes),
            pass: PassSettings {
                algorithm,
                audience: printable(self.text_or_default("pass.audience"))?,
                issuer: self.text("pass.issuer").map(printable).transpose()?,
                key_file: self.path("pass.key_file"),
                next_key_file: self.path("pass.next_key_file"),
                previous_key_file: self.path("pass.previous_key_file"),
            },
            seal: SealSettings {
                key_file: self.path("seal.key_file"),
                next_key_file: self.path("seal.next_key_file"),
                previous_key_file: self.path("seal.previous_key_file"),
            },
            audit: self.path("audit.dir").map(|dir| audit::Settings {
                dir,
                file_bytes: u64::from(self.number_or_default("audit.file_mb")) * 1_000_000,
            }),
            draw: self.draw()?,
            otlp,
            log: log.to_owned(),
            log_is_json,
            zones,
            has_file: true,
            dangers: danger.into_iter().collect(),
        })
    }
}

/// Checks all values together. `file` is the name of the file with the zones.
pub(super) fn check(file: &str, text: FileText, open_files: u64) -> Result<Config, ConfigFault> {
    let settings = Settings(settings::defaults().chain(text.settings).collect());
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
            if let Some((id, _, origin)) = homeless {
                let tenant = cells::tenant(id.as_str());
                let what =
                    format!("`{id}`: no cell has the tenant `{tenant}`; name it in a cell's `tenants`");
                return Err(origin.fault(what));
            }
        }
    }
    let zones: Vec<_> = text.zones.into_iter().map(|(id, definition, _)| (id, definition)).collect();
    if let Some((_, origin)) = text.routes.first()
        && settings.networks("trusted_proxies")?.is_empty()
    {
        let what = "no proxy may ask about its visitors; name the proxies' addresses in trusted_proxies";
        return Err(origin.fault(what));
    }
    for (route, origin) in &text.routes {
        if let RouteAction::Zone(Gated { zone, .. }) = &route.action
            && matches!(store, StoreSettings::Memory)
            && zones.iter().all(|(id, _)| id != zone)
        {
            return Err(origin
                .fault(format!("there is no zone `{zone}`; add a [[zone]] with this id, or correct it")));
        }
    }
    let routes = text.routes.into_iter().map(|(route, _)| route).collect();
    settings.check(store, zones, text.admin_tokens, (text.targets, routes), open_files)
}

/// Whether two listeners cannot both have their address: an address of all interfaces has each one's.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (all || one.ip() == other.ip())
}

/// Whether a part of a log filter is a word that is no level.
fn is_no_level(part: &str) -> bool {
    let is_word = !part.is_empty() && !part.contains(['=', '[']);
    is_word && part.parse::<tracing_subscriber::filter::LevelFilter>().is_err()
}
/// A text that services compare, so that it may have no character that nobody sees.
fn printable((text, origin): (&str, &Origin)) -> Result<String, ConfigFault> {
    match text.chars().find(|c| c.is_control()) {
        None => Ok(text.to_owned()),
        Some(control) => Err(origin.fault(format!("has the control character {control:?}; take it away"))),
    }
}
