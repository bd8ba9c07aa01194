//! The settings in force as text, and which of them need a restart.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use gate::cells;
use ipnet::IpNet;

use super::{
    Config,
    checks::{DURABILITIES, LIBRARIES},
};
use crate::{
    access::AdminToken,
    fanout::FanoutSettings,
    otlp::{self, OtlpSettings},
    stores::{CellSettings, RedisSettings, StoreSettings},
    tls::TlsSettings,
};

impl Config {
    /// Every setting in force, by name. Names of key files are included, keys are not.
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
        let cap = |most: Option<usize>| most.map_or_else(|| "0 (no cap)".to_owned(), |most| most.to_string());
        let made = "(made in data_dir)";
        let word = |known: Option<&'static str>| known.unwrap_or_default().to_owned();
        let redis = match &self.store {
            StoreSettings::Memory => None,
            StoreSettings::Redis(redis) => Some(&**redis),
        };
        let of_pair = |pair: &Option<TlsSettings>, path: &dyn Fn(&TlsSettings) -> &Path| {
            pair.as_ref().map_or_else(|| "(none)".to_owned(), |tls| path(tls).display().to_string())
        };
        let of_redis =
            |shown: &dyn Fn(&RedisSettings) -> String| redis.map_or_else(|| "(unused)".to_owned(), shown);
        let of_otlp = |shown: &dyn Fn(&OtlpSettings) -> String| {
            self.otlp.as_ref().map_or_else(|| "(none)".to_owned(), shown)
        };
        let cell = |cell: &CellSettings| match &cell.tenants[..] {
            [all] if all == cells::REST => format!("{} = {}", cell.name, cell.address),
            tenants => format!("{} = {} (tenants {tenants:?})", cell.name, cell.address),
        };
        vec![
            ("listen", self.listen.to_string()),
            ("tls.certificate", of_pair(&self.tls, &|tls| &tls.certificate)),
            ("tls.key", of_pair(&self.tls, &|tls| &tls.key)),
            ("admin_listen", self.admin_listen.to_string()),
            (
                "gate_grpc_listen",
                self.gate_grpc_listen.map_or_else(|| "(none)".to_owned(), |at| at.to_string()),
            ),
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
            (
                "redis.sentinel_user",
                of_redis(&|redis| redis.sentinel_user.clone().unwrap_or_else(|| "(none)".to_owned())),
            ),
            (
                "redis.sentinel_password_file",
                of_redis(&|redis| file(&redis.sentinel_password_file, "(none)")),
            ),
            ("redis.ca_file", of_redis(&|redis| file(&redis.ca_file, "(the system's)"))),
            ("redis.certificate_file", of_redis(&|redis| of_pair(&redis.identity, &|tls| &tls.certificate))),
            ("redis.key_file", of_redis(&|redis| of_pair(&redis.identity, &|tls| &tls.key))),
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
            ("draw.name", self.draw.name.clone()),
            ("draw.drand", self.draw.drand.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            ("otlp.endpoint", of_otlp(&|otlp| otlp.endpoint.to_string())),
            ("otlp.sample", of_otlp(&|otlp| (f64::from(otlp.sample) / f64::from(otlp::WHOLE)).to_string())),
            ("otlp.max_traces_per_s", of_otlp(&|otlp| otlp.max_traces_per_s.to_string())),
            (
                "otlp.headers",
                of_otlp(&|otlp| if otlp.headers.is_some() { "(set)" } else { "(not set)" }.to_owned()),
            ),
            ("otlp.headers_file", of_otlp(&|otlp| file(&otlp.headers_file, "(none)"))),
            ("open_after_s", seconds(self.open_after)),
            ("data_dir", self.data_dir.display().to_string()),
            ("backlog", self.backlog.to_string()),
            ("max_connections", self.max_connections.to_string()),
            ("max_connections_per_client", cap(self.max_connections_per_client)),
            ("max_streams_per_client", cap(self.max_streams_per_client)),
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
            (
                "route",
                match self.routes.all() {
                    [] => "(none)".to_owned(),
                    some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                },
            ),
            ("pass.algorithm", self.pass.algorithm.as_str().to_owned()),
            ("pass.audience", self.pass.audience.clone()),
            ("pass.issuer", self.pass.issuer.clone().unwrap_or_else(|| "(none)".to_owned())),
            ("pass.key_file", file(&self.pass.key_file, made)),
            ("pass.next_key_file", file(&self.pass.next_key_file, "(none)")),
            ("pass.previous_key_file", file(&self.pass.previous_key_file, "(none)")),
            ("seal.key_file", file(&self.seal.key_file, made)),
            ("seal.next_key_file", file(&self.seal.next_key_file, "(none)")),
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
            ("log_format", if self.log_is_json { "json" } else { "text" }.to_owned()),
        ]
    }

    /// The settings in which `new` differs and that a running server cannot change. A running server takes over the keys and
    /// what passes say, the tokens and host names of the admin API, the waiting pages, and the idle timeout, which follows the
    /// zones. It takes over another certificate, but a listener stays plain or encrypted. It takes over another password of the
    /// store, if it has one.
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        const TAKEN_OVER: [&str; 4] = ["admin_hosts", "admin_token", "idle_timeout_s", "route"];
        const PASSWORDS: [&str; 3] =
            ["redis.password", "redis.password_file", "redis.sentinel_password_file"];
        const TABLES: [&str; 3] = ["pass.", "seal.", "wait."];
        let passwords = |config: &Self| match &config.store {
            StoreSettings::Redis(redis) => [
                redis.password.is_some() || redis.password_file.is_some(),
                redis.sentinel_password_file.is_some(),
            ],
            StoreSettings::Memory => [false; 2],
        };
        let same_logins = passwords(self) == passwords(new);
        let stays_encrypted = self.tls.is_some() && new.tls.is_some();
        let pairs = self.shown().into_iter().zip(new.shown());
        let taken_over = |name: &str| {
            TAKEN_OVER.contains(&name)
                || TABLES.iter().any(|table| name.starts_with(table))
                || stays_encrypted && name.starts_with("tls.")
                || same_logins && PASSWORDS.contains(&name)
        };
        pairs.filter(|(old, new)| old != new && !taken_over(old.0)).map(|(old, _)| old.0).collect()
    }
}
