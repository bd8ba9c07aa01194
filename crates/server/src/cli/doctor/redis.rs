//! A store in Redis: all servers of a cell, its settings and Weir's rights.
//!
//! Everything is asked once, and then judged. Invariant: a question that is refused or not answered is a line of the report,
//! and stops no other question.

use std::{sync::Arc, time::Duration};

use gate::cells::Cell as GateCell;
use store::redis::{
    Durability, Redis,
    address::{Address, Topology, authority},
    client::{
        Value,
        inspect::{Inspector, Question, services},
    },
    servers::RegisteredServer,
};

use super::{
    answers::{HostPort, Link, advice, refusal, text, with_cause},
    report::Report,
    rights,
};
use crate::{clock::unix_ms, servers::strangers};

/// How far clocks may be apart: the time by which a zone's clock tolerates a slow call.
const NODES_APART_MS: i64 = 250;

/// How long a store's answer may take that is near: the way between two regions of one continent, and back.
const FAR_MS: i64 = 50;

/// How far a store's clock may be from this machine's. Passes have whole seconds.
const FROM_HERE_MS: i64 = 1_000;

/// How long the list of servers may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A save that is older does not count.
const OLD_SAVE_S: u64 = 600;

/// From how much of `maxmemory` on it is a problem, in percent. Clients' buffers and a fork for a save take memory at once.
const FULL_PERCENT: u128 = 90;

/// How long nobody enters after a loss, beyond a polling period.
const HOLD_MS: u64 = 1_000;

/// Sentinels that can lose one and still decide.
const SENTINELS: usize = 3;

/// A cell that is looked at.
pub(super) struct Cell<'a> {
    pub(super) cell: &'a Arc<GateCell<Redis>>,
    pub(super) address: &'a Address,
    pub(super) link: Link,
    pub(super) durability: Durability,
    /// Our own, as [`crate::keys::fingerprints`] names them; empty if they cannot be read.
    pub(super) seal_keys: &'a [String],
}

/// A server that answers.
struct Server {
    host: HostPort,
    place: String,
    /// The answer to `INFO`.
    info: String,
}

impl Server {
    /// A field of `INFO`.
    fn field(&self, name: &str) -> Option<&str> {
        field(&self.info, name)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The replicas that it sends changes to, and whether each is in sync.
    fn replicas(&self) -> Vec<(HostPort, bool)> {
        let mut replicas = Vec::new();
        for at in 0..self.number("connected_slaves").unwrap_or(0).min(64) {
            let Some(about) = self.field(&format!("slave{at}")) else { continue };
            let part =
                |name: &str| about.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            if let (Some(ip), Some(port)) = (part("ip"), part("port").and_then(|port| port.parse().ok())) {
                replicas.push(((ip.to_owned(), port), part("state") == Some("online")));
            }
        }
        replicas
    }

    /// The name and version of the program.
    fn version(&self) -> String {
        match self.field("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", self.field("redis_version").unwrap_or("of an unknown version")),
        }
    }
}

/// A field of an answer that has `name:value` on each line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// Checks a cell.
/// Returns the servers that registered with it.
pub(super) async fn check(
    cell: &Cell<'_>,
    inspector: &Inspector,
    report: &mut Report,
) -> Vec<RegisteredServer> {
    let name = format!("cell {}", cell.cell.health().name);
    let primaries = match inspector.primaries().await {
        Ok(primaries) => primaries,
        Err(why) => {
            report.problem(
                &name,
                format!("does not answer: {}", with_cause(&why, cell.link)),
                "nobody enters and nobody gets a place while the store is away",
                advice(&why, "start Redis, or correct store, user and password"),
            );
            return Vec::new();
        }
    };
    if cell.address.topology == Topology::Sentinel {
        check_sentinels(&name, cell.address, inspector, report).await;
    }
    let (mut all, mut primary_count) = (Vec::new(), 0);
    for host in primaries {
        let Some(primary) = look(&name, cell, host, inspector, report).await else { continue };
        primary_count += 1;
        let mut group = vec![primary];
        for (host, _) in group[0].replicas() {
            group.extend(look(&name, cell, host, inspector, report).await);
        }
        check_group(cell, &group, inspector, report).await;
        if group[0].field("redis_mode") == Some("sentinel") {
            // What follows is about servers with data.
            primary_count -= 1;
            continue;
        }
        all.append(&mut group);
    }
    for server in &all {
        check_server(cell, server, inspector, report).await;
    }
    check_versions(&name, &all, report);
    check_clocks(&name, &all, inspector, report).await;
    if primary_count == 0 {
        return Vec::new();
    }
    check_zones(&name, cell, &all, inspector, report).await;
    check_keys(&name, cell, report).await
}

/// Whether the servers that run now have the keys of this configuration. Returns these servers.
async fn check_keys(cell_name: &str, cell: &Cell<'_>, report: &mut Report) -> Vec<RegisteredServer> {
    const WHY: &str = "a place that one server gives is refused by another one with other keys (401), and its holder goes to the back";
    let ask = async { cell.cell.connected().await.who_is_here().await };
    let heard = match tokio::time::timeout(ANSWERS_WITHIN, ask).await {
        Ok(Ok(heard)) if cell.seal_keys.is_empty() && !heard.is_empty() => {
            let found =
                format!("{} servers run, and the keys of this configuration are not known", heard.len());
            report.unknown(cell_name, found, WHY, "run the doctor where it can read the keys");
            return heard;
        }
        Ok(Ok(heard)) => heard,
        Ok(Err(why)) => {
            let found = format!("its servers cannot be listed: {why}");
            report.unknown(cell_name, found, WHY, "see the other lines about this cell");
            return Vec::new();
        }
        Err(_) => {
            let found = "its servers were not listed in time";
            report.unknown(cell_name, found, WHY, "see the other lines about this cell");
            return Vec::new();
        }
    };
    let strangers = strangers(&heard, cell.seal_keys);
    report.judge(
        strangers.is_empty(),
        cell_name,
        match &strangers[..] {
            [] => format!("{} servers run, with these seal keys", heard.len()),
            _ => format!("{} has other seal keys", strangers.join(", ")),
        },
        WHY,
        "copy the same seal.key_file to all servers of the store",
    );
    heard
}

/// Asks a server how it is.
async fn look(
    cell_name: &str,
    cell: &Cell<'_>,
    host: HostPort,
    inspector: &Inspector,
    report: &mut Report,
) -> Option<Server> {
    let place = format!("{cell_name} {}", authority(&host));
    match inspector.ask(&host, Question::Info).await {
        Ok(Ok(answer)) => Some(Server { host, place, info: text(&answer).unwrap_or_default() }),
        Ok(Err(why)) => {
            let (matters, advice) = refusal(&why);
            report.problem(&place, format!("INFO is refused: {why}"), matters, advice);
            if why.starts_with("NOPERM") {
                rights::check(cell.address.topology, &host, &place, inspector, report).await;
            }
            None
        }
        Err(why) => {
            report.problem(
                &place,
                format!("does not answer: {}", with_cause(&why, cell.link)),
                "without this server, the others carry its part, or nobody does",
                advice(&why, "start it, and look at its log"),
            );
            None
        }
    }
}

/// A primary, which comes first, and its replicas.
async fn check_group(cell: &Cell<'_>, group: &[Server], inspector: &Inspector, report: &mut Report) {
    let primary = &group[0];
    let place = &primary.place;
    if primary.field("redis_mode") == Some("sentinel") {
        let services = services(&primary.info);
        let services = if services.is_empty() { "none".to_owned() } else { services.join(", ") };
        report.problem(
            place,
            format!("is a Sentinel, and store names it as a server; it knows these services: {services}"),
            "a Sentinel keeps no data, so nobody enters",
            "write redis-sentinel://HOST:PORT?service=NAME in store (rediss-sentinel:// with TLS), with all Sentinels, separated by commas",
        );
        return;
    }
    if primary.field("role") != Some("master") {
        report.problem(
            place,
            "is a replica",
            "a replica takes no changes, so nobody enters",
            "name the primary in store, or use redis-sentinel:// or redis-cluster://",
        );
        return;
    }
    if cell.address.topology != Topology::Cluster && primary.field("cluster_enabled") == Some("1") {
        report.problem(
            place,
            "belongs to a cluster, and store names it as a single server",
            "zones whose slots another server has are found late, and not at all while this one is away",
            "write redis-cluster://HOST:PORT (rediss-cluster:// with TLS) in store, with more than one of its servers",
        );
    }
    let replicas = primary.replicas();
    let in_sync = replicas.iter().filter(|(_, in_sync)| *in_sync).count();
    report.judge(
        in_sync > 0,
        place,
        match (in_sync, cell.durability) {
            (0, Durability::Replicated) => "no replica in sync, and durability is replicated".to_owned(),
            (0, Durability::Async) => "no replica in sync".to_owned(),
            (1, _) => "1 replica in sync".to_owned(),
            (some, _) => format!("{some} replicas in sync"),
        },
        "if a primary without a replica dies, its zones are away until it is back; with durability = replicated nobody enters",
        "add a replica, and wait until it is in sync",
    );
    check_least_replicas(cell.address.topology, primary, in_sync, inspector, report).await;

    let mut saves = Vec::new();
    for server in group {
        let has_schedule = setting(inspector, &server.host, "save").await.is_ok_and(|save| !save.is_empty());
        let now_s = unix_ms() / 1_000;
        let saved_s = server.number("rdb_last_save_time").unwrap_or(0);
        // A server that has just started reports its start as its last save.
        let began_s = now_s.saturating_sub(server.number("uptime_in_seconds").unwrap_or(0));
        let is_fresh = saved_s > began_s + 1 && saved_s + OLD_SAVE_S > now_s;
        if has_schedule || is_fresh || server.field("aof_enabled") == Some("1") {
            saves.push(authority(&server.host));
        }
    }
    report.judge(
        !saves.is_empty(),
        place,
        match &saves[..] {
            [] => "neither it nor a replica saves to a disk".to_owned(),
            some => format!("saved by {}", some.join(", ")),
        },
        "if these servers and all of Weir's lose their power together, unsaved lines are lost",
        "let the replicas save (deploy/redis/save-replicas), or set appendonly",
    );
    if cell.address.topology == Topology::Cluster {
        let why = "zones in slots that no server has are away";
        let advice = "look at CLUSTER NODES, and start or replace the failed primary";
        match inspector.ask(&primary.host, Question::ClusterInfo).await {
            Ok(Ok(answer)) => {
                let answer = text(&answer).unwrap_or_default();
                let state = field(&answer, "cluster_state").unwrap_or("unknown");
                let slots = field(&answer, "cluster_slots_ok").unwrap_or("0");
                let found = format!("the cluster is {state}, with {slots} of 16384 slots");
                report.judge(state == "ok" && slots == "16384", place, found, why, advice);
            }
            Ok(Err(reason)) | Err(reason) => {
                report.unknown(place, format!("CLUSTER INFO: {reason}"), why, advice);
            }
        }
    }
}

/// `min-replicas-to-write`: it stops a primary that was cut off, and may stop one that was not.
async fn check_least_replicas(
    topology: Topology,
    primary: &Server,
    in_sync: usize,
    inspector: &Inspector,
    report: &mut Report,
) {
    const WHY: &str = "with 0, a primary that is cut off goes on admitting; with as many as there are, the loss of one stops admissions";
    let place = &primary.place;
    let name = "min-replicas-to-write";
    // INFO has this field only where the setting is on.
    let is_on = primary.field("min_slaves_good_slaves").is_some();
    let least = match setting(inspector, &primary.host, name).await {
        Ok(text) => text.parse::<usize>().ok(),
        Err(_) if is_on => None,
        Err(_) => Some(0),
    };
    match least {
        None => report.unknown(place, format!("{name} is on; its value cannot be read"), WHY, AS_ADMIN),
        // A cluster stops such a primary after cluster-node-timeout, which has its own line.
        Some(0) => report.judge(
            topology == Topology::Cluster || in_sync == 0,
            place,
            format!("{name} is 0"),
            WHY,
            "set it to 1, with two replicas",
        ),
        Some(least) if least > in_sync => report.problem(
            place,
            format!("{name} is {least}, and {in_sync} in sync"),
            "the primary refuses every change now, so nobody enters",
            "add replicas, or lower it",
        ),
        Some(least) => report.judge(
            least < in_sync,
            place,
            format!("{name} is {least}, and {in_sync} in sync"),
            WHY,
            "add a replica, or lower it",
        ),
    }
}

/// What to do where a question is refused to Weir's user.
const AS_ADMIN: &str = "run the doctor as a user who may read the configuration: --redis-user default --redis-password-file FILE";

/// A setting of a server.
async fn setting(inspector: &Inspector, server: &HostPort, name: &'static str) -> Result<String, String> {
    match inspector.ask(server, Question::Setting(name)).await?? {
        Value::Array(parts) => {
            parts.get(1).and_then(text).ok_or_else(|| format!("there is no setting {name}"))
        }
        _ => Err("the answer to CONFIG GET is unknown".to_owned()),
    }
}

/// What matters at each server, because each may become primary.
async fn check_server(cell: &Cell<'_>, server: &Server, inspector: &Inspector, report: &mut Report) {
    let place = &server.place;
    let policy = server.field("maxmemory_policy").unwrap_or("unknown");
    report.judge(
        policy == "noeviction",
        place,
        format!("maxmemory-policy is {policy}"),
        "eviction deletes parts of lines, and people lose their places",
        "set maxmemory-policy to noeviction",
    );
    // The field is 0 where there is no limit, and missing in old versions.
    if let Some(most) = server.number("maxmemory").filter(|most| *most > 0) {
        let used = server.number("used_memory").unwrap_or(0);
        let percent = u128::from(used) * 100 / u128::from(most);
        report.judge(
            percent < FULL_PERCENT,
            place,
            format!("{percent} % of maxmemory is used"),
            "a Redis that reaches maxmemory refuses changes (OOM): nobody enters and nobody gets a place",
            "give it more memory and raise maxmemory, or find what else fills it (redis-cli --bigkeys)",
        );
    }
    let failed = |name: &str| server.field(name).is_some_and(|status| status != "ok");
    if failed("rdb_last_bgsave_status") || failed("aof_last_write_status") {
        report.problem(
            place,
            "the last save failed",
            "the data on the disk is old, and Redis may refuse changes (MISCONF)",
            "look at the disk and at the server's log",
        );
    }
    rights::check(cell.address.topology, &server.host, place, inspector, report).await;
}

fn check_versions(cell: &str, all: &[Server], report: &mut Report) {
    let mut versions: Vec<String> = all.iter().map(Server::version).collect();
    versions.sort_unstable();
    versions.dedup();
    let major = |server: &Server| server.field("redis_version")?.split('.').next()?.parse::<u32>().ok();
    let is_old = all.iter().any(|server| major(server).is_some_and(|major| major < 7));
    if !versions.is_empty() {
        report.judge(
            versions.len() == 1 && !is_old,
            cell,
            format!("{} on {} servers", versions.join(" and "), all.len()),
            "the scripts need Redis 7.0; servers of different versions may treat a script differently",
            "bring all servers to one version, 7.0 or newer",
        );
    }
}

/// A zone's clock is Redis's. After a failover it is another machine's.
async fn check_clocks(cell: &str, all: &[Server], inspector: &Inspector, report: &mut Report) {
    const WHY: &str = "slots and passes follow the store's clock; after a failover it is another machine's";
    const ADVICE: &str = "synchronise all clocks by NTP (chrony, systemd-timesyncd)";
    let mut clocks = Vec::new();
    for server in all {
        match inspector.ahead_ms(&server.host, unix_ms).await {
            Ok(clock) => clocks.push(clock),
            Err(reason) => report.unknown(&server.place, format!("its clock: {reason}"), WHY, ADVICE),
        }
    }
    if let Some(error_ms) = clocks.iter().map(|(_, error)| *error).max() {
        check_way(cell, 2 * error_ms, report);
    }
    let Some(apart_ms) = apart_ms(&clocks) else { return };
    let farthest = clocks.iter().map(|(ahead, error)| (ahead.abs() - error).max(0)).max().unwrap_or(0);
    report.judge(
        farthest <= FROM_HERE_MS,
        cell,
        format!("the clocks are at least {farthest} ms from this machine's"),
        WHY,
        ADVICE,
    );
    if clocks.len() > 1 {
        report.judge(
            apart_ms <= NODES_APART_MS,
            cell,
            format!("the clocks are at least {apart_ms} ms from each other"),
            WHY,
            ADVICE,
        );
    }
}

/// Joins and claims pay the way to the store, polls do not.
fn check_way(cell: &str, way_ms: i64, report: &mut Report) {
    const WHY: &str =
        "each join and each entry waits for the store; a person whose turn comes enters that much later";
    let what = format!("an answer of its farthest server takes at most {way_ms} ms");
    if way_ms <= FAR_MS {
        report.ok(cell, what, WHY);
    } else {
        report.unknown(
            cell,
            what,
            WHY,
            "run servers and store in one region, if they can be; polls are answered without the store",
        );
    }
}

/// How far clocks are certainly apart, where each is known with an error.
fn apart_ms(clocks: &[(i64, i64)]) -> Option<i64> {
    let latest_start = clocks.iter().map(|(ahead, error)| ahead - error).max()?;
    let earliest_end = clocks.iter().map(|(ahead, error)| ahead + error).min()?;
    Some((latest_start - earliest_end).max(0))
}

/// What depends on the zones: how long a loss holds them, against how long a lost primary may go on.
async fn check_zones(
    cell_name: &str,
    cell: &Cell<'_>,
    all: &[Server],
    inspector: &Inspector,
    report: &mut Report,
) {
    // This reads, because it brings no zones along.
    let zones = match cell.cell.zones().await {
        Ok(kept) => {
            report.ok(
                cell_name,
                format!("keeps {} zones", kept.zones.len()),
                "the store keeps the zones for all servers",
            );
            kept.zones.iter().map(|(_, zone)| zone.policy.polling_period_ms).min()
        }
        Err(why) => {
            report.problem(
                cell_name,
                format!("its zones cannot be read: {why}"),
                "servers cannot serve zones that they cannot read",
                "see the other lines about this cell; upgrade Weir if a newer version wrote the zones",
            );
            None
        }
    };
    if cell.address.topology != Topology::Cluster {
        return;
    }
    let period_ms = zones.unwrap_or(admission::Policy::default().polling_period_ms);
    let hold_ms = u64::from(period_ms) + HOLD_MS;
    const WHY: &str = "a primary that is cut off admits people until cluster-node-timeout; the others hold the line for that time only";
    const ADVICE: &str = "lower cluster-node-timeout, or raise the polling period";
    let name = "cluster-node-timeout";
    let mut longest = None;
    for server in all {
        match setting(inspector, &server.host, name).await.map(|text| text.parse::<u64>()) {
            Ok(Ok(ms)) => longest = longest.max(Some(ms)),
            Ok(Err(_)) => {}
            Err(reason) => {
                return report.unknown(cell_name, format!("{name} cannot be read: {reason}"), WHY, AS_ADMIN);
            }
        }
    }
    if let Some(ms) = longest {
        let found = format!("{name} is {ms} ms, and a loss holds the shortest zone for {hold_ms} ms");
        report.judge(ms <= hold_ms, cell_name, found, WHY, ADVICE);
    }
}

async fn check_sentinels(cell: &str, address: &Address, inspector: &Inspector, report: &mut Report) {
    let service = address.service.clone().unwrap_or_default();
    let mut known = 0;
    for host in &address.hosts {
        let place = format!("{cell} sentinel {}", authority(host));
        match inspector.ask_sentinel(host, Question::Service(&service)).await {
            Ok(Ok(Value::Array(parts))) => {
                let words: Vec<_> = parts.iter().map(|part| text(part).unwrap_or_default()).collect();
                let others = words.iter().position(|word| word == "num-other-sentinels");
                let others = others.and_then(|at| words.get(at + 1)?.parse::<usize>().ok()).unwrap_or(0);
                known = known.max(others + 1);
            }
            Ok(_) => report.problem(
                &place,
                format!("does not know the service {service}"),
                "Weir finds the primary through the Sentinels",
                "correct the service in store, or configure this Sentinel",
            ),
            Err(why) => report.problem(
                &place,
                format!("does not answer: {why}"),
                "without a majority of Sentinels, no replica takes over",
                "start it",
            ),
        }
    }
    report.judge(
        known >= SENTINELS,
        cell,
        format!("{known} Sentinels know each other"),
        "with fewer than three, the loss of one may leave no majority, and no replica takes over",
        "run three Sentinels on three machines",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_read_from_info() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
            slave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=0\r\n\
            slave1:ip=10.0.0.3,port=6380,state=wait_bgsave,offset=0,lag=0\r\n";
        let server = Server { host: ("h".to_owned(), 1), place: String::new(), info: info.to_owned() };
        assert_eq!(server.field("role"), Some("master"));
        let replica = |ip: &str, port, in_sync| ((ip.to_owned(), port), in_sync);
        assert_eq!(server.replicas(), [replica("10.0.0.2", 6379, true), replica("10.0.0.3", 6380, false)]);
    }

    #[test]
    fn clocks_are_apart_only_beyond_their_errors() {
        assert_eq!(apart_ms(&[]), None);
        assert_eq!(apart_ms(&[(700, 5)]), Some(0));
        assert_eq!(apart_ms(&[(0, 10), (15, 10)]), Some(0));
        assert_eq!(apart_ms(&[(0, 10), (-500, 10), (3, 1)]), Some(492));
    }
}
