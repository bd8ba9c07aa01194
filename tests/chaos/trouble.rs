//! The scenarios. Each has a Redis, a world that uses it, and a fault. Scenarios wait for conditions, not for times.

use std::time::Duration;

use libtest_mimic::Trial;
use store::redis::{
    address::Library,
    sabotage::{self, Rule},
};

use crate::{
    redis::{Cluster, Options, Reply, Standalone},
    world::{World, ZONE},
};

type Scenario = fn(&'static str, Library) -> Vec<String>;

/// Faults that a client library notices in its own way: these run with both libraries.
const FOR_EACH_LIBRARY: &[(&str, Scenario)] = &[
    ("a_primary_is_frozen_and_comes_back", frozen),
    ("a_primary_dies_with_what_its_replica_lacks", killed_behind),
    ("a_primary_dies", killed),
    ("a_primary_restarts_empty_before_anybody_takes_over", restarted_in_a_cluster),
    ("a_primary_is_cut_off", cut_off),
    ("a_primary_hears_and_is_not_heard", cut_one_way),
    ("a_slot_moves", moved),
];

/// Faults that are the same for both libraries.
const FOR_ONE_LIBRARY: &[(&str, Scenario)] = &[
    ("the_way_is_long", slow),
    ("a_lone_redis_is_emptied", emptied),
    ("a_lone_redis_restarts_empty", restarted),
    ("scripts_are_forgotten", forgotten),
    ("a_server_of_ours_is_killed", server_killed),
];

/// All scenarios. A test passes if no promise was broken.
pub(crate) fn all() -> Vec<Trial> {
    let trial = |name: &'static str, scenario: Scenario, library| {
        Trial::test(name, move || {
            let broken = scenario(name, library);
            if broken.is_empty() { Ok(()) } else { Err(broken.join("\n").into()) }
        })
        .with_kind(format!("{library:?}"))
    };
    let each = FOR_EACH_LIBRARY.iter().flat_map(|&(name, scenario)| {
        [Library::Fred, Library::RedisRs].map(|library| trial(name, scenario, library))
    });
    let one = FOR_ONE_LIBRARY.iter().map(|&(name, scenario)| trial(name, scenario, Library::default()));
    each.chain(one).collect()
}

/// Each rule is broken on purpose once. The auditor must notice it in the scenario that the rule is for.
pub(crate) fn broken_rules() -> Vec<Trial> {
    let broken = [
        ("without_revisions_the_auditor_complains", Rule::Revision),
        ("without_caps_the_auditor_complains", Rule::Cap),
        ("without_memories_the_auditor_complains", Rule::Restore),
    ];
    let trial = |(name, rule): (&'static str, Rule)| {
        Trial::test(name, move || {
            sabotage::set(Some(rule));
            let broken = killed_behind(name, Library::default());
            sabotage::set(None);
            if broken.is_empty() { Err("nothing was noticed".into()) } else { Ok(()) }
        })
    };
    broken.map(trial).into()
}

/// Three primaries with one replica each.
fn cluster(options: &Options) -> Cluster {
    Cluster::start_with(3, 1, &options.clone().arg(&["--cluster-node-timeout", "1000"]))
}

/// The primary of the zone, and its replica.
fn home(cluster: &Cluster) -> (u16, usize, usize) {
    let slot = cluster.slot(ZONE);
    let primary = cluster.primary_of(slot);
    (slot, primary, primary + 3)
}

/// A zone in another shard.
fn beside(cluster: &Cluster) -> &'static str {
    let (_, primary, _) = home(cluster);
    let elsewhere = |zone: &&&str| cluster.primary_of(cluster.slot(zone)) != primary;
    ["A", "B", "C", "D", "E", "F"].iter().find(elsewhere).expect("six zones in one shard")
}

fn on_cluster(name: &'static str, library: Library, cluster: &Cluster) -> World {
    World::begin(name, library, &cluster.url(), beside(cluster))
}

fn emptied(name: &'static str, library: Library) -> Vec<String> {
    let redis = Standalone::start();
    let mut world = World::begin(name, library, &redis.url(), "B");
    world.enter(10);
    world.trouble();
    redis.command(&["FLUSHALL"]);
    world.end()
}

fn restarted(name: &'static str, library: Library) -> Vec<String> {
    let mut redis = Standalone::start();
    let mut world = World::begin(name, library, &redis.url(), "B");
    world.enter(10);
    world.trouble();
    redis.restart();
    world.end()
}

fn killed_behind(name: &'static str, library: Library) -> Vec<String> {
    let mut cluster = cluster(&Options::new());
    let (_, primary, replica) = home(&cluster);
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    // The replica will still read what is in its sockets. Later writes are lost.
    cluster.stop(replica);
    cluster.command(primary, &["CLIENT", "KILL", "TYPE", "replica"]);
    world.join(2);
    world.enter(8);
    world.trouble();
    cluster.kill(primary);
    cluster.cont(replica);
    world.end()
}

fn killed(name: &'static str, library: Library) -> Vec<String> {
    let mut cluster = cluster(&Options::new());
    let (_, primary, _) = home(&cluster);
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    cluster.kill(primary);
    world.end()
}

fn frozen(name: &'static str, library: Library) -> Vec<String> {
    let cluster = cluster(&Options::new());
    let (slot, primary, _) = home(&cluster);
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    cluster.stop(primary);
    cluster.wait_failover(slot, primary);
    // The servers' calls are in its sockets. It answers them before it learns that it was replaced.
    cluster.cont(primary);
    world.end()
}

/// Its replica copies the empty state.
fn restarted_in_a_cluster(name: &'static str, library: Library) -> Vec<String> {
    let mut cluster = cluster(&Options::new());
    let (_, primary, _) = home(&cluster);
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    cluster.restart(primary);
    world.end()
}

fn cut_off(name: &'static str, library: Library) -> Vec<String> {
    let cluster = cluster(&Options::new().proxied());
    let (_, primary, _) = home(&cluster);
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    cluster.proxy(primary).cut();
    world.wait_away();
    cluster.proxy(primary).pass();
    world.end()
}

fn cut_one_way(name: &'static str, library: Library) -> Vec<String> {
    let cluster = cluster(&Options::new().proxied());
    let (_, primary, _) = home(&cluster);
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    cluster.proxy(primary).cut_replies();
    world.wait_away();
    cluster.proxy(primary).pass();
    world.end()
}

fn moved(name: &'static str, library: Library) -> Vec<String> {
    let cluster = cluster(&Options::new());
    let (slot, primary, _) = home(&cluster);
    let to = (primary + 1) % 3;
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    cluster.begin_move(slot, to);
    let (slot_text, port) = (slot.to_string(), cluster.port(to).to_string());
    loop {
        let keys = cluster.command(primary, &["CLUSTER", "GETKEYSINSLOT", &slot_text, "100"]);
        if keys.parts().is_empty() {
            break;
        }
        let keys: Vec<String> = keys.parts().iter().map(Reply::text).collect();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        let moved = cluster.command(primary, &command).text();
        assert!(moved == "OK" || moved == "NOKEY", "{moved}");
    }
    cluster.end_move(slot, to);
    world.end()
}

fn slow(name: &'static str, library: Library) -> Vec<String> {
    let cluster = cluster(&Options::new().proxied());
    let mut world = on_cluster(name, library, &cluster);
    world.enter(10);
    world.trouble();
    for primary in 0..3 {
        cluster.proxy(primary).delay(Duration::from_millis(100));
    }
    world.end()
}

fn forgotten(name: &'static str, library: Library) -> Vec<String> {
    let redis = Standalone::start();
    let mut world = World::begin(name, library, &redis.url(), "B");
    world.enter(10);
    world.trouble();
    redis.command(&["SCRIPT", "FLUSH"]);
    world.end()
}

fn server_killed(name: &'static str, library: Library) -> Vec<String> {
    let redis = Standalone::start();
    let mut world = World::begin(name, library, &redis.url(), "B");
    world.enter(10);
    world.trouble();
    world.kill_server();
    world.end()
}
