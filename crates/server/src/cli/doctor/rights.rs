//! The commands that Weir's user of Redis needs: those of the scripts, and those of the client.
//!
//! Invariant: a test finds every command of `lua/` here, and every one in `deploy/redis/weir.acl`.

use store::redis::{
    address::Topology,
    client::{
        Value,
        inspect::{Inspector, Question},
    },
};

use super::{
    answers::{GIVE_RIGHTS, HostPort, refusal, text},
    report::Report,
};

/// A key that no zone has. It is named in questions, and never touched.
const SCRATCH: &str = "weir:v1:{doctor}:scratch";

/// Commands with plausible arguments. `K` stands for [`SCRATCH`], and `L` for a key of a limit.
const NEEDED: &[&str] = &[
    "APPEND K x",
    "BITCOUNT K",
    "BITFIELD K GET u8 0",
    "BITOP AND K K K",
    "DEL K",
    "EXISTS K",
    "GET K",
    "GETBIT K 0",
    "GETRANGE K 0 1",
    "HDEL K f",
    "HGET K f",
    "HGETALL K",
    "HMGET K f",
    "MGET K",
    "HSET K f v",
    "INFO server",
    "PERSIST K",
    "PEXPIRE K 1",
    "SET K v",
    "SETBIT K 0 1",
    "SETRANGE K 0 x",
    "TIME",
    "UNLINK K",
    "ZADD K 1 m",
    "ZRANGEBYSCORE K 0 1",
    "ZREM K m",
    "ZSCORE K m",
    "GET L",
    "SET L v",
    "PING",
    "EVALSHA x 1 K",
    "ROLE",
    "WAIT 1 1",
];

/// What only a cluster needs.
const IN_A_CLUSTER: &[&str] = &["ASKING", "CLUSTER INFO", "CLUSTER SLOTS"];

/// What messages between servers need, if they go through Redis.
const OF_MESSAGES: &[&str] = &["SPUBLISH weir:v1:{zones}:changed x", "SSUBSCRIBE weir:v1:{zones}:changed"];

/// The commands that are needed, with their arguments.
fn needed(in_a_cluster: bool) -> Vec<String> {
    let more: &[&str] = if in_a_cluster { IN_A_CLUSTER } else { &[] };
    let all = NEEDED.iter().chain(more).chain(OF_MESSAGES);
    let word = |word: &str| match word {
        "K" => SCRATCH.to_owned(),
        "L" => "weir:limit:1:{doctor}:scratch".to_owned(),
        other => other.to_owned(),
    };
    all.map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect()
}

/// Whether the user may run what Weir needs, and whether the server has it.
pub(super) async fn check(
    topology: Topology,
    host: &HostPort,
    place: &str,
    inspector: &Inspector,
    report: &mut Report,
) {
    let why = "without a right, a script fails in the middle of an event";
    let needed = needed(topology == Topology::Cluster);
    match inspector.ask(host, Question::Refused(&needed)).await {
        Ok(Ok(Value::Array(lists))) => {
            let names = |at: usize| match lists.get(at) {
                Some(Value::Array(lines)) => lines.iter().filter_map(text).collect(),
                _ => Vec::new(),
            };
            let (refused, missing) = (names(0), names(1));
            if !missing.is_empty() {
                report.problem(
                    place,
                    format!("the server does not have: {}", missing.join("; ")),
                    "without a command, a script fails in the middle of an event",
                    "take rename-command out of its configuration, or use Redis 7.0 or newer",
                );
            }
            if !refused.is_empty() {
                report.problem(place, format!("the user may not: {}", refused.join("; ")), why, GIVE_RIGHTS);
            } else if missing.is_empty() {
                report.ok(place, format!("the user has the {} rights that it needs", needed.len()), why);
            }
        }
        Ok(Err(reason)) if reason.starts_with("BUSY") => {
            let (why, advice) = refusal(&reason);
            report.problem(place, format!("rights: {reason}"), why, advice);
        }
        Ok(Err(reason)) if reason.contains("unknown command") => {
            report.problem(
                place,
                format!("the server cannot run scripts: {reason}"),
                why,
                "take rename-command out of its configuration",
            );
        }
        Ok(Err(reason)) if reason.starts_with("NOPERM") => {
            report.problem(place, format!("the user may not run scripts: {reason}"), why, GIVE_RIGHTS);
        }
        Ok(Ok(_)) => report.unknown(place, "the answer about rights is unknown", why, GIVE_RIGHTS),
        Ok(Err(reason)) | Err(reason) => report.unknown(place, format!("rights: {reason}"), why, GIVE_RIGHTS),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn the_scripts_and_the_rules_agree() {
        let lua = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua");
        let mut called = BTreeSet::new();
        for file in fs::read_dir(lua).expect("the scripts") {
            let text = fs::read_to_string(file.expect("a file").path()).expect("a script");
            for rest in text.split("call('").skip(1) {
                called.insert(rest.split('\'').next().expect("a name").to_lowercase());
            }
        }
        let needed: BTreeSet<String> =
            needed(true).iter().map(|line| line.split(' ').next().expect("a name").to_lowercase()).collect();
        let missing: Vec<_> = called.difference(&needed).collect();
        assert!(called.len() > 20 && missing.is_empty(), "not asked for: {missing:?}");
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/redis/weir.acl");
        let rules = fs::read_to_string(rules).expect("the rules");
        let granted: BTreeSet<&str> =
            rules.split_whitespace().filter_map(|word| word.strip_prefix('+')?.split('|').next()).collect();
        let missing: Vec<_> = needed.iter().filter(|name| !granted.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "weir.acl does not grant {missing:?}");
    }
}
