//! What the server prints when it serves: its addresses, the settings in force, and how to call it.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use admission::{Definition, ZoneId};
use gate::definitions;

use crate::config::Config;

/// The most zones that are listed; more are counted.
const MAX_ZONES: usize = 20;

/// Where the listeners are.
pub(super) struct Addresses {
    pub(super) public: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) grpc: Option<SocketAddr>,
}

/// The text that says that the listeners are open. The first lines hold the addresses.
pub(super) fn greeting(
    config: &Config,
    zones: &[(ZoneId, Definition)],
    Addresses { public, admin, grpc }: Addresses,
) -> String {
    let about = describe(config, zones);
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let grpc = grpc.map_or(String::new(), |at| format!("proxies ask over gRPC on {scheme}://{at}\n"));
    let listening = format!("{grpc}listening on {scheme}://{public}\nadmin on http://{admin}\n\n{about}\n");
    let Some((zone, _)) = zones.first() else { return listening };
    let here = match public.ip() {
        ip if !ip.is_unspecified() => public,
        IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), public.port()),
        IpAddr::V6(_) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), public.port()),
    };
    let post = format!("curl -sS -H 'content-type: application/json' {scheme}://{here}/traffic");
    let wait = format!(r#"{post}/wait -d '{{"zoneId":"{zone}"}}'"#);
    let token = format!(r#"$({wait} | sed 's/.*"token":"\([^"]*\)".*/\1/')"#);
    format!(
        "{listening}take a ticket, then take one and ask with its token:\n  {wait} -w '\\n'\n  \
         {post}/entry -d \"{{\\\"zoneId\\\":\\\"{zone}\\\",\\\"token\\\":\\\"{token}\\\"}}\" -w '\\n'\n\
         or wait as people do: {scheme}://{here}/wait/{zone}\n"
    )
}

/// The settings in force and the zones, one on each line.
#[must_use]
pub fn describe(config: &Config, zones: &[(ZoneId, Definition)]) -> String {
    let mut out = String::new();
    for (name, value) in config.shown() {
        let _ = writeln!(out, "  {name} = {value}");
    }
    for (zone, definition) in zones.iter().take(MAX_ZONES) {
        let _ = writeln!(out, "  zone {zone}: {}", definitions::sentence(definition));
    }
    if zones.len() > MAX_ZONES {
        let _ = writeln!(out, "  and {} more zones", zones.len() - MAX_ZONES);
    }
    out
}
