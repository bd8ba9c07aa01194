//! What the server prints when it serves: its addresses, the settings in force, and how to call it.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use admission::{Definition, Event, Stage, ZoneId};
use gate::definitions;

use crate::{clock::unix_ms, config::Config, output::one_line};

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
    let about = describe(config, zones, unix_ms() / 1_000);
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

/// The settings in force and the zones with their events, one on each line. `now_s` is the time in seconds since 1970: it says which event
/// is the next one.
#[must_use]
pub fn describe(config: &Config, zones: &[(ZoneId, Definition)], now_s: u64) -> String {
    let mut out = String::new();
    for (name, value) in config.shown() {
        let _ = writeln!(out, "  {name} = {}", one_line(&value));
    }
    for (zone, definition) in zones.iter().take(MAX_ZONES) {
        let _ = writeln!(out, "  zone {zone}: {}", definitions::sentence(definition));
        out.push_str(&events_of(definition, now_s));
    }
    if zones.len() > MAX_ZONES {
        let _ = writeln!(out, "  and {} more zones", zones.len() - MAX_ZONES);
    }
    out
}

/// The events of a zone in the order of time, with the instants as they are written, in the time zones of the operator.
fn events_of(definition: &Definition, now_s: u64) -> String {
    let (mut out, mut has_next) = (String::new(), false);
    for event in definition.schedule.events() {
        let is = match event.stage(now_s) {
            Stage::Over => "over",
            Stage::Open => "now",
            Stage::Before | Stage::Prequeue if has_next => "later",
            Stage::Before | Stage::Prequeue => {
                has_next = true;
                "next"
            }
        };
        let Event { id, prequeue_from, begins, ends, .. } = event;
        let order = event.order_text();
        let _ = writeln!(
            out,
            "    event {id} ({is}): begins {begins}, places from {prequeue_from}, ends {ends}, order {order}"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use admission::Moment;
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn events_are_listed_with_the_next_start_and_the_order() {
        let event = |id: &str, hour: u32, more: serde_json::Value| {
            let at = |minute: u32| format!("2026-12-01T{hour:02}:{minute:02}[Europe/Berlin]");
            let mut json = json!({ "id": id, "prequeue_from": at(0), "begins": at(30), "ends": at(50) });
            json.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            sample::event(json)
        };
        let events = vec![
            event("late", 12, json!({})),
            event("lots", 11, json!({ "order": "draw" })),
            event("running", 10, json!({})),
            event("past", 9, json!({})),
        ];
        let definition = sample::zone_with(events);
        let now_s = u64::from(Moment::parse("2026-12-01T10:40[Europe/Berlin]").expect("an instant").unix_s());
        let listed = events_of(&definition, now_s);
        let lines: Vec<&str> = listed.lines().map(str::trim).collect();
        assert_eq!(
            lines[2],
            "event lots (next): begins 2026-12-01T11:30[Europe/Berlin], places from 2026-12-01T11:00[Europe/Berlin], ends \
             2026-12-01T11:50[Europe/Berlin], order draw by drand, or else wait"
        );
        for (line, begin) in lines.iter().zip([
            "event past (over)",
            "event running (now)",
            "event lots (next)",
            "event late (later)",
        ]) {
            assert!(line.starts_with(begin), "{line}");
        }
        assert!(lines[3].ends_with("order arrival"), "{}", lines[3]);
    }
}
