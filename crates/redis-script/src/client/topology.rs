//! Asks servers which server has which slots: in a cluster, behind Sentinel, or among several hosts.
//!
//! Invariant: one answer describes one moment. It is never mixed with another server's answer.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    Value,
    link::{Command, Link},
    server::{Access, HostPort},
};
use crate::address::{Address, Topology, authority};

/// A server's answer: which server has which slots.
pub(super) struct Layout {
    /// First slot, last slot, primary.
    pub(super) ranges: Vec<(u16, u16, HostPort)>,
    /// All servers of the cluster, replicas included.
    pub(super) known: BTreeSet<HostPort>,
    /// Whether the server that answered is in touch with its cluster.
    pub(super) certain: bool,
}

/// Asks a server over a separate connection, as one of so organised servers.
///
/// # Errors
/// Why its answer can't be used.
pub(super) async fn ask<L: Link>(
    access: &Access,
    topology: Topology,
    asked: HostPort,
) -> Result<Layout, String> {
    let error = |what: &str| format!("{}: {what}", authority(&asked));
    let all_slots = |primary: HostPort| Layout {
        ranges: vec![(0, u16::MAX, primary)],
        known: BTreeSet::new(),
        certain: true,
    };
    match topology {
        Topology::Standalone => {
            let link: L = access.open(&asked).await?;
            let role = link.send(vec![Command::new("ROLE", [])]).await?.pop();
            match role {
                Some(Ok(Value::Array(parts)))
                    if parts.first().and_then(text).as_deref() == Some("master") =>
                {
                    Ok(all_slots(asked))
                }
                Some(Ok(Value::Array(parts)))
                    if parts.first().and_then(text).as_deref() == Some("sentinel") =>
                {
                    Err(error(&is_sentinel(&access.address)))
                }
                Some(Err(text)) => Err(error(&text)),
                _ => Err(error("is not the primary")),
            }
        }
        Topology::Sentinel => {
            let link: L = access.open_sentinel(&asked).await?;
            let service = access.address.service.clone().unwrap_or_default();
            let args = vec![Bytes::from_static(b"GET-MASTER-ADDR-BY-NAME"), Bytes::from(service.clone())];
            match link.send(vec![Command { name: "SENTINEL", args }]).await?.pop() {
                Some(Ok(Value::Array(parts))) => {
                    match parts.iter().map(text).collect::<Option<Vec<_>>>().as_deref() {
                        Some([host, port]) => {
                            Ok(all_slots((host.clone(), port.parse().map_err(|_| error("names no port"))?)))
                        }
                        _ => Err(error("names no primary")),
                    }
                }
                Some(Err(text)) if is_unknown_command(&text) => {
                    let is = match info(&link).await.as_deref().and_then(kind_in) {
                        Some(Kind::Cluster) => Some(Topology::Cluster),
                        Some(Kind::Alone) => Some(Topology::Standalone),
                        Some(Kind::Sentinel) | None => None,
                    };
                    let is = is.map(|topology| Address { topology, service: None, ..access.address.clone() });
                    Err(error(&match is {
                        Some(written) => format!("is no Sentinel ({text}); write store = \"{written}\""),
                        None => format!("is no Sentinel ({text})"),
                    }))
                }
                Some(Err(text)) => Err(error(&text)),
                _ => Err(error(&unknown_service(&link, &access.address, &service).await)),
            }
        }
        Topology::Cluster => {
            let link: L = access.open(&asked).await?;
            let commands = vec![Command::new("CLUSTER", ["INFO"]), Command::new("CLUSTER", ["SLOTS"])];
            let answers = link.send(commands).await?.into_iter().collect::<Result<Vec<_>, _>>();
            let answers = match answers {
                Ok(answers) => answers,
                Err(text) if text.contains("cluster support disabled") => {
                    let written = Address { topology: Topology::Standalone, ..access.address.clone() };
                    return Err(error(&format!(
                        "belongs to no cluster ({text}); write store = \"{written}\""
                    )));
                }
                Err(text)
                    if is_unknown_command(&text)
                        && info(&link).await.as_deref().and_then(kind_in) == Some(Kind::Sentinel) =>
                {
                    return Err(error(&is_sentinel(&access.address)));
                }
                Err(text) => return Err(error(&text)),
            };
            let [info, Value::Array(ranges)] = answers.as_slice() else { return Err(error("no answer")) };
            let certain = text(info).is_some_and(|info| info.contains("cluster_state:ok"));
            let layout = layout(ranges, &asked, certain)
                .ok_or_else(|| error("the answer to CLUSTER SLOTS is unknown"))?;
            if layout.ranges.is_empty() { Err(error("its cluster has no slots")) } else { Ok(layout) }
        }
    }
}

/// What a server is, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Alone,
    Cluster,
    Sentinel,
}

/// What a server says that it is; none if it does not say it, or may not be asked.
pub(super) async fn kind<L: Link>(access: &Access, asked: &HostPort) -> Option<Kind> {
    let link: L = access.open(asked).await.ok()?;
    kind_in(&info(&link).await?)
}

/// What a server says about itself; none if it may not be asked.
async fn info<L: Link>(link: &L) -> Option<String> {
    let answer = link.send(vec![Command::new("INFO", [])]).await.ok()?.pop()?.ok()?;
    text(&answer)
}

/// What the server is that answered this to `INFO`.
fn kind_in(info: &str) -> Option<Kind> {
    match info.lines().find_map(|line| line.trim_end().strip_prefix("redis_mode:"))? {
        "standalone" => Some(Kind::Alone),
        "cluster" => Some(Kind::Cluster),
        "sentinel" => Some(Kind::Sentinel),
        _ => None,
    }
}

fn is_unknown_command(error: &str) -> bool {
    error.to_lowercase().contains("unknown command")
}

/// What is wrong with an address that leads to a Sentinel as if it were a server.
fn is_sentinel(address: &Address) -> String {
    format!("is a Sentinel, which keeps no data; write store = \"{}\"", sentinel_form(address))
}

/// What is wrong with an address that names a service which a Sentinel does not know.
async fn unknown_service<L: Link>(link: &L, address: &Address, service: &str) -> String {
    let fault = format!("does not know the service {service}");
    let Some(info) = info(link).await else { return format!("{fault}; look at SENTINEL MASTERS") };
    match &services(&info)[..] {
        [] => format!("{fault}, nor any other; write sentinel monitor into its configuration"),
        [only] => {
            let written = Address { service: Some(only.clone()), ..address.clone() };
            format!("{fault}; it knows {only}: write store = \"{written}\"")
        }
        all => {
            let written = Address { service: Some("NAME".to_owned()), ..address.clone() };
            format!(
                "{fault}; it knows {}: write store = \"{written}\" with one of these names",
                all.join(", ")
            )
        }
    }
}

/// The services that a Sentinel names in its answer to `INFO`, on lines like `master0:name=weir,status=ok,…`.
#[must_use]
pub fn services(info: &str) -> Vec<String> {
    let service = |line: &str| {
        let (number, about) = line.strip_prefix("master")?.split_once(':')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let name = about.split(',').find_map(|part| part.trim_end().strip_prefix("name="))?;
        is_number.then(|| name.to_owned())
    };
    info.lines().filter_map(service).collect()
}

/// How the address of these hosts is written if they are Sentinels.
pub(super) fn sentinel_form(address: &Address) -> Address {
    let service = address.service.clone().or_else(|| Some("NAME".to_owned()));
    Address { topology: Topology::Sentinel, service, ..address.clone() }
}

/// Parses the answer to `CLUSTER SLOTS`: `[first, last, [host, port, id…], replicas…]` for each range.
fn layout(ranges: &[Value], by: &HostPort, certain: bool) -> Option<Layout> {
    let mut layout = Layout { ranges: Vec::with_capacity(ranges.len()), known: BTreeSet::new(), certain };
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = parts.as_slice() else { return None };
        let servers = servers.iter().map(|server| host_port(server, by)).collect::<Option<Vec<_>>>()?;
        let primary = servers.first()?.clone();
        layout.ranges.push((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, primary));
        layout.known.extend(servers);
    }
    Some(layout)
}

/// Parses a server in `CLUSTER SLOTS`. If the host is missing, it is the host of the server that was asked.
fn host_port(server: &Value, by: &HostPort) -> Option<HostPort> {
    let Value::Array(parts) = server else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = text(host).filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| by.0.clone());
    Some((host, u16::try_from(*port).ok()?))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}
