//! The configuration, and this machine.

use std::fs;

use admission::{Definition, OnStoreFailure, ZoneId};
use ipnet::IpNet;

use super::{
    report::{CONFIG, MACHINE, Report},
    start::writable,
};
use crate::{
    config::{Config, RESERVED_FILES},
    stores::StoreSettings,
    tls::{self, TlsSettings, Validity},
};

/// A server that has room for fewer connections is one that nobody sized. Everybody who waits holds one or two.
const FEW_CONNECTIONS: usize = 4_096;

/// Wider networks hold more than the proxies of one site.
const PROXIES_V4: u8 = 16;
const PROXIES_V6: u8 = 64;

/// Checks what does not depend on the store.
pub(super) fn check(config: &Config, open_files: u64, report: &mut Report) {
    let connections = config.max_connections;
    report.judge(
        connections >= FEW_CONNECTIONS,
        MACHINE,
        format!("{open_files} open files, {RESERVED_FILES} in reserve: max_connections is {connections}"),
        "everybody who waits holds one or two connections, and further people get 503",
        "raise the limit of open files (`ulimit -n`, LimitNOFILE) and max_connections",
    );
    backlog(config, fs::read_to_string("/proc/sys/net/core/somaxconn").ok().as_deref(), report);

    if let Some(tls) = &config.tls {
        certificate(tls, report);
    }
    for danger in &config.dangers {
        report.problem(
            CONFIG,
            danger,
            "whoever reads a secret can use it; the store's password decides everything",
            "do as it says, or move a secret out of a file that others can read, into one of its own (redis.password_file) or a variable",
        );
    }
    let open = config.admin_tokens.is_empty();
    let why = "without tokens, every program on this machine is admin; a proxy could let everybody in";
    if open {
        report.unknown(
            CONFIG,
            "no [[admin_token]]: the admin listener is open to this machine",
            why,
            "make a token with `weir token new`, unless nobody else uses this machine and no proxy forwards to admin_listen",
        );
    } else {
        report.ok(CONFIG, format!("{} [[admin_token]]", config.admin_tokens.len()), why);
    }
    let wide = |net: &&IpNet| match net {
        IpNet::V4(net) => net.prefix_len() < PROXIES_V4,
        IpNet::V6(net) => net.prefix_len() < PROXIES_V6,
    };
    let wide: Vec<String> = config.trusted_proxies.iter().filter(wide).map(ToString::to_string).collect();
    report.judge(
        wide.is_empty(),
        CONFIG,
        match &wide[..] {
            [] => format!("{} trusted proxies", config.trusted_proxies.len()),
            _ => format!("trusted_proxies has {}", wide.join(", ")),
        },
        "a trusted proxy may claim any client's address, so every machine in that network can evade limits",
        "list the addresses of the proxies only",
    );
    let open =
        |(_, definition): &&(ZoneId, Definition)| definition.policy.on_store_failure == OnStoreFailure::Open;
    if let Some((zone, _)) = config.zones.iter().find(open) {
        report.unknown(
            CONFIG,
            format!("on_store_failure is open, in zone {zone}"),
            "while the store is away, everybody enters, also those who have not waited; what you protect gets all of them",
            "keep it only if what you protect can take everybody",
        );
    }
    if config.cors_origins.allow_any() {
        report.unknown(
            CONFIG,
            "cors_origins has *",
            "pages of every site may take places and poll for their visitors, and read the replies",
            "list the origins of your own pages, unless everybody's pages may use this waiting room",
        );
    }
    if matches!(config.store, StoreSettings::Redis(_)) {
        report.judge(
            config.seal.key_file.is_some() && config.pass.key_file.is_some(),
            CONFIG,
            match (&config.seal.key_file, &config.pass.key_file) {
                (Some(_), Some(_)) => "seal.key_file and pass.key_file are set",
                (None, _) => "seal.key_file is not set",
                (_, None) => "pass.key_file is not set",
            },
            "servers of one store need the same keys: a place that one gives is worth nothing at another",
            "copy the same keys to all servers, and name them in seal.key_file and pass.key_file",
        );
    }
}

fn certificate(tls: &TlsSettings, report: &mut Report) {
    let why = "apps and browsers refuse a server whose certificate is not valid";
    let renew = "renew it; the server takes over the new files by itself";
    match tls.read() {
        Ok(read) => match tls::validity(&read.certificate) {
            Validity::Now => report.judge(
                tls::seconds_left(&read.certificate) >= tls::SOON.as_secs(),
                CONFIG,
                match tls::days_left(&read.certificate) {
                    0 => "tls.certificate expires today".to_owned(),
                    days => format!("tls.certificate expires in {days} days"),
                },
                why,
                renew,
            ),
            Validity::Expired => report.problem(CONFIG, "tls.certificate has expired", why, renew),
            Validity::Later => report.problem(
                CONFIG,
                "tls.certificate is not valid yet",
                why,
                "use one that is valid, or correct this machine's clock",
            ),
        },
        Err(fault) => {
            report.problem(CONFIG, fault.to_string(), why, "correct it: a server with it does not start");
        }
    }
}

fn backlog(config: &Config, somaxconn: Option<&str>, report: &mut Report) {
    let why = "the kernel cuts the accept queue to somaxconn; a crowd that finds it full waits for seconds";
    let advice = "raise net.core.somaxconn (deploy/systemd/60-weir.conf), or lower backlog";
    match somaxconn.and_then(|text| text.trim().parse::<u32>().ok()) {
        Some(most) => {
            let found = format!("net.core.somaxconn is {most}, and backlog is {}", config.backlog);
            report.judge(most >= config.backlog, MACHINE, found, why, advice);
        }
        None => report.unknown(MACHINE, "net.core.somaxconn cannot be read", why, advice),
    }
}

/// Checks the store in this process.
pub(super) fn check_embedded(config: &Config, report: &mut Report) {
    let why = "the embedded store has no replica: the lines are on this disk only";
    writable("embedded store", "data_dir", &config.data_dir, why, report);
}
