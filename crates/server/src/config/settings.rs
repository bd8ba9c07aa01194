//! All settings: their names in the file, flags, variables, kinds, help texts and defaults.
//!
//! Invariant: a setting that is not in [`SETTINGS`] cannot be given anywhere. One that is can be given by flag, by variable
//! and in the file; secrets only by variable and in the file. A default is written here and nowhere else.

use std::fmt;

use clap::{Arg, ArgMatches, Command};

use super::{ConfigFault, commands};

#[cfg(test)]
mod reference;

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    /// Lowest and highest value.
    Number(u32, u32),
    /// Several texts, separated by commas outside the file.
    List,
    /// A text that is never shown. It has no flag, because everybody on the machine can read a command line.
    Secret,
}

/// One setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// The name in the file, with its table before a dot.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    value_name: &'static str,
    help: &'static str,
    default: Default,
}

/// What is in force where a setting is not given.
#[derive(Clone, Copy, Debug)]
enum Default {
    /// This value, as it would be given by flag.
    Value(&'static str),
    /// Something that depends on the machine or on other settings, in words.
    Described(&'static str),
    /// Not mentioned in the help.
    Unmentioned,
}

const fn setting(
    name: &'static str,
    kind: Kind,
    value_name: &'static str,
    help: &'static str,
    default: Default,
) -> Setting {
    Setting { name, kind, value_name, help, default }
}

/// All settings but the zones, which live in the file only.
pub(super) const SETTINGS: &[Setting] = &[
    setting("listen", Kind::Text, "ADDR", "Where apps call", Default::Value("127.0.0.1:8080")),
    setting(
        "admin_listen",
        Kind::Text,
        "ADDR",
        "The admin API, metrics and health; beyond the loopback it needs an [[admin_token]]",
        Default::Value("127.0.0.1:8081"),
    ),
    setting(
        "admin_hosts",
        Kind::List,
        "NAME,…",
        "Names under which the admin API is asked, beside its address and localhost",
        Default::Described("none"),
    ),
    setting(
        "store",
        Kind::Text,
        "STORE",
        "Where lines are kept: memory, redis://H:P, rediss://H:P, redis-cluster://H:P,… or rediss-cluster://H:P,…",
        Default::Described("memory, journaled in the data directory"),
    ),
    setting(
        "data_dir",
        Kind::Text,
        "DIR",
        "Where the journal and the keys are kept",
        Default::Value("./weir-data"),
    ),
    setting(
        "backlog",
        Kind::Number(16, 65_535),
        "N",
        "Accept queue of the listeners",
        Default::Value("4096"),
    ),
    setting(
        "max_connections",
        Kind::Number(1, 1_000_000),
        "N",
        "Open connections",
        Default::Described("the open-file limit less a reserve"),
    ),
    setting(
        "worker_threads",
        Kind::Number(1, 256),
        "N",
        "Threads that serve",
        Default::Described("one a processor"),
    ),
    setting(
        "header_timeout_s",
        Kind::Number(1, 120),
        "S",
        "From a request's first byte to the end of its head",
        Default::Value("10"),
    ),
    setting(
        "body_timeout_s",
        Kind::Number(1, 120),
        "S",
        "From the end of the head to the end of the body",
        Default::Value("10"),
    ),
    setting(
        "write_timeout_s",
        Kind::Number(1, 120),
        "S",
        "How long a reply may be stuck on its way out",
        Default::Value("10"),
    ),
    setting(
        "idle_timeout_s",
        Kind::Number(1, 3_600),
        "S",
        "Between requests of a connection",
        Default::Described("75, or 30 above the longest polling period"),
    ),
    setting(
        "drain_deadline_s",
        Kind::Number(1, 600),
        "S",
        "How long a stopping server finishes its requests",
        Default::Value("20"),
    ),
    setting(
        "trusted_proxies",
        Kind::List,
        "CIDR,…",
        "Whose X-Forwarded-For is believed",
        Default::Described("nobody's"),
    ),
    setting(
        "limit.carrier_nats",
        Kind::List,
        "CIDR,…",
        "Addresses behind which too many people are to be limited as one",
        Default::Described("none"),
    ),
    setting(
        "limit.ipv6_prefix",
        Kind::Number(32, 128),
        "BITS",
        "How much of an IPv6 address is one client",
        Default::Value("64"),
    ),
    setting(
        "cors_origins",
        Kind::List,
        "ORIGIN,…",
        "Origins of web pages that may call, as in https://shop.example, or * for any",
        Default::Described("none"),
    ),
    setting(
        "wait.templates_dir",
        Kind::Text,
        "DIR",
        "Templates of the waiting page, ZONE.html and default.html, and what they show",
        Default::Described("the page of Weir"),
    ),
    setting("pass.algorithm", Kind::Text, "ALG", "ES256, EdDSA or RS256", Default::Value("ES256")),
    setting("pass.audience", Kind::Text, "TEXT", "Claim `aud` of the passes", Default::Value("weir")),
    setting("pass.issuer", Kind::Text, "TEXT", "Claim `iss` of the passes", Default::Described("none")),
    setting(
        "pass.key_file",
        Kind::Text,
        "FILE",
        "Key that signs passes, PKCS#8 PEM",
        Default::Described("made in the data directory"),
    ),
    setting(
        "pass.previous_key_file",
        Kind::Text,
        "FILE",
        "Key that signed before; stays in the JWKS",
        Default::Described("none"),
    ),
    setting(
        "seal.key_file",
        Kind::Text,
        "FILE",
        "Key that seals tokens, 64 hex digits",
        Default::Described("made in the data directory"),
    ),
    setting(
        "seal.previous_key_file",
        Kind::Text,
        "FILE",
        "Key that sealed before; still accepted",
        Default::Described("none"),
    ),
    setting(
        "redis.client",
        Kind::Text,
        "LIBRARY",
        "Which library speaks to Redis: fred or redis-rs",
        Default::Described("fred"),
    ),
    setting("redis.user", Kind::Text, "NAME", "ACL user, where the address names none", Default::Unmentioned),
    setting("redis.password", Kind::Secret, "", "Password, where the address has none", Default::Unmentioned),
    setting("redis.password_file", Kind::Text, "FILE", "File with that password", Default::Unmentioned),
    setting(
        "redis.ca_file",
        Kind::Text,
        "FILE",
        "Certificates that Redis is checked against, PEM",
        Default::Described("the system's"),
    ),
    setting(
        "redis.durability",
        Kind::Text,
        "WHEN",
        "async, or replicated: answer once a replica has it too",
        Default::Described("async"),
    ),
    setting(
        "redis.max_in_flight",
        Kind::Number(1, 65_536),
        "N",
        "Calls under way to a cell, at most",
        Default::Described("4096"),
    ),
    setting(
        "redis.command_timeout_ms",
        Kind::Number(50, 60_000),
        "MS",
        "After how long a call to Redis has failed",
        Default::Described("2000"),
    ),
    setting(
        "audit.dir",
        Kind::Text,
        "DIR",
        "Where the audit log is kept: who entered when, under which policy",
        Default::Described("there is none"),
    ),
    setting(
        "audit.file_mb",
        Kind::Number(1, 1_000_000),
        "MB",
        "Size at which the audit log goes on in another file; none is ever deleted",
        Default::Value("100"),
    ),
    setting(
        "fanout",
        Kind::Text,
        "HOW",
        "How servers of one store tell each other of changes: redis, nats://H:P (tls://H:P), or none",
        Default::Described("redis where the store is one"),
    ),
    setting(
        "log",
        Kind::Text,
        "FILTER",
        "What is logged, as in `info` or `weir=debug`",
        Default::Value("info"),
    ),
];

impl Setting {
    fn has_flag(&self) -> bool {
        !matches!(self.kind, Kind::Secret)
    }

    /// The default in words, if it is mentioned in the help.
    fn default_text(&self) -> Option<&'static str> {
        match self.default {
            Default::Value(text) | Default::Described(text) => Some(text),
            Default::Unmentioned => None,
        }
    }

    fn help_with_default(&self) -> String {
        let default = self.default_text().map(|text| format!(" [default: {text}]"));
        format!("{}{}", self.help, default.unwrap_or_default())
    }

    pub(super) fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    pub(super) fn variable(&self) -> String {
        format!("WEIR_{}", self.name.replace('.', "_").to_uppercase())
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was not given: it is a default.
    Default,
    Flag(String),
    Variable(String),
    /// File, line, field.
    File(String, usize, String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("by default"),
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File(file, line, field) if field.is_empty() => write!(f, "{file}:{line}"),
            Self::File(file, line, field) => write!(f, "{file}:{line}: {field}"),
        }
    }
}

impl Origin {
    pub(super) fn fault(&self, what: impl fmt::Display) -> ConfigFault {
        ConfigFault(format!("{self}: {what}"))
    }
}

/// A value.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u32),
    List(Vec<String>),
}

/// A value and its origin.
#[derive(Clone)]
pub(super) struct SettingValue {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl fmt::Debug for SettingValue {
    /// Only the origin, because some values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "given by {}", self.origin)
    }
}

impl Setting {
    /// Reads a value from the text of a flag or variable.
    pub(super) fn read(&self, text: &str, origin: Origin) -> Result<SettingValue, ConfigFault> {
        let value = match self.kind {
            Kind::Text | Kind::Secret => Value::Text(text.to_owned()),
            Kind::List => Value::List(
                text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            ),
            Kind::Number(low, high) => {
                let number = text.trim().parse().ok().filter(|n| (low..=high).contains(n));
                let number = number.ok_or_else(|| origin.fault(out_of_range(text, low, high)))?;
                Value::Number(number)
            }
        };
        Ok(SettingValue { value, origin })
    }
}

pub(super) fn out_of_range(value: impl fmt::Display, low: u32, high: u32) -> String {
    format!("is {value}, and must be a whole number from {low} to {high}")
}

/// The default of a setting, as text, if it has a fixed one.
pub(super) fn default_of(name: &str) -> Option<&'static str> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
    match setting.default {
        Default::Value(text) => Some(text),
        Default::Described(_) | Default::Unmentioned => None,
    }
}

/// The values of all settings that have a fixed default.
pub(super) fn defaults() -> impl Iterator<Item = (&'static str, SettingValue)> {
    SETTINGS.iter().filter_map(|setting| {
        let text = default_of(setting.name)?;
        Some((setting.name, setting.read(text, Origin::Default).expect("defaults are valid")))
    })
}

/// The command line.
pub(super) fn command() -> Command {
    let mut flags = vec![
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("Settings and zones, TOML [env: WEIR_CONFIG]"),
    ];
    flags.extend(SETTINGS.iter().filter(|s| s.has_flag()).map(|s| {
        let help = format!("{} [env: {}]", s.help_with_default(), s.variable());
        Arg::new(s.name).long(s.flag()).value_name(s.value_name).help(help)
    }));
    let file = |help| Arg::new("file").value_name("FILE").help(help);
    let zones = Command::new("zones")
        .about("See and change zones: those of a running server, or those that a store keeps")
        .subcommand_required(true)
        .subcommand(
            Command::new("apply")
                .about("Put a file's zones into the store, beside those that are there, and say what changed")
                .args(&flags)
                .arg(
                    file("The file with the zones; also with the settings, unless --config names another")
                        .required(true),
                ),
        );
    let zones = commands::zones(zones, &flags);
    let audit = Command::new("audit").about("See to the audit log").subcommand_required(true).subcommand(
        Command::new("verify")
            .about("Say whether an audit log is as it was written; exit code 0 if so, 1 if not, 2 if it can't be read")
            .args(&flags)
            .arg(
                Arg::new("head")
                    .long("head")
                    .value_name("N:HASH")
                    .help("A head that the server logged: line N has to be there, with this hash"),
            )
            .arg(
                Arg::new("path")
                    .value_name("PATH")
                    .num_args(0..)
                    .help("Its directory, or its files in their order [default: the configured audit.dir]"),
            ),
    );
    Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An admission server: a virtual waiting room that apps poll")
        .args_conflicts_with_subcommands(true)
        .args(&flags)
        .subcommand(Command::new("serve").about("Serve (also without the word)").args(&flags))
        .subcommand(
            Command::new("check-config")
                .about("Check a configuration, and say what it means")
                .args(&flags)
                .arg(file("The file to check")),
        )
        .subcommand(zones)
        .subcommand(audit)
        .subcommands(commands::others())
}

/// The values of variables and flags. Later ones override earlier ones.
pub(super) fn outside_the_file(
    args: &ArgMatches,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(&'static str, SettingValue)>, ConfigFault> {
    let mut given = Vec::new();
    for setting in SETTINGS {
        let name = setting.variable();
        if let Some(text) = variable(&name) {
            given.push((setting.name, setting.read(&text, Origin::Variable(name))?));
        }
        if setting.has_flag()
            && let Some(text) = args.get_one::<String>(setting.name)
        {
            given.push((setting.name, setting.read(text, Origin::Flag(setting.flag()))?));
        }
    }
    Ok(given)
}
