//! The scenarios. Each has a Redis, a world that uses it, and a fault. Scenarios wait for conditions, not for times.

use std::time::Duration;

use libtest_mimic::Trial;
use store::redis::{
    Durability,
    address::Library,
    sabotage::{self, Rule},
};

use crate::{
    redis::{Cluster, Options, Reply, Standalone, USERS},
    soak,
    world::{LEFT, Reach, Setting, World, ZONE},
};

/// How long the network is divided: long enough that the larger part would use up the minute if it presumed nothing.
const DIVIDED: Duration = Duration::from_secs(10);

/// The idle time of a zone whose network is divided: longer than that, so that nobody's place ends.
const IDLE_DIVIDED_S: u32 = 20;

/// How far the clock of a wrong server is from the right time, in seconds: more than a minute.
const WRONG_BY_S: i64 = 90;

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
    ("the_network_is_divided", divided),
];

/// Faults that are the same for both libraries.
const FOR_ONE_LIBRARY: &[(&str, Scenario)] = &[
    ("twenty_failovers", soak::twenty),
    ("the_network_is_divided_and_entries_are_replicated", divided_replicated),
    ("a_server_decides_first_in_the_smaller_part", decides_first),
    ("a_server_decides_first_in_the_smaller_part_and_entries_are_replicated", decides_first_replicated),
    ("the_clock_of_the_next_primary_is_ahead", clock_ahead),
    ("the_clock_of_the_next_primary_is_behind", clock_behind),
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
    // The longest one is first.
    one.chain(each).collect()
}

/// Each rule is broken on purpose once. The auditor must notice it in the scenario that the rule is for.
pub(crate) fn broken_rules() -> Vec<Trial> {
    let broken: [(_, _, Scenario); 5] = [
        ("without_revisions_the_auditor_complains", Rule::Revision, killed_behind),
        ("without_caps_the_auditor_complains", Rule::Cap, killed_behind),
        ("without_memories_the_auditor_complains", Rule::Restore, killed_behind),
        ("without_presumptions_the_auditor_complains", Rule::Presumption, divided),
        ("without_clocks_the_auditor_complains", Rule::Clock, clock_ahead_unseen),
    ];
    let trial = |(name, rule, scenario): (&'static str, Rule, Scenario)| {
        Trial::test(name, move || {
            sabotage::set(Some(rule));
            let broken = scenario(name, Library::default());
            sabotage::set(None);
            if broken.is_empty() { Err("nothing was noticed".into()) } else { Ok(()) }
        })
    };
    broken.map(trial).into()
}

/// Three primaries with one replica each.
pub(crate) fn cluster(options: &Options) -> Cluster {
    Cluster::start_with(3, 1, &quick(options))
}

/// Options for a failover that begins after a second.
fn quick(options: &Options) -> Options {
    options.clone().arg(&["--cluster-node-timeout", "1000"])
}

/// The primary of the zone, and its replica.
fn home(cluster: &Cluster) -> (u16, usize, usize) {
    let slot = cluster.slot(ZONE);
    let primary = cluster.primary_of(slot);
    (slot, primary, primary + 3)
}

/// A zone in another shard.
pub(crate) fn beside(cluster: &Cluster) -> &'static str {
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
    kill_behind(Setting::new(name, library), cluster(&Options::new()))
}

fn kill_behind(setting: Setting, mut cluster: Cluster) -> Vec<String> {
    let (_, primary, replica) = home(&cluster);
    let mut world = World::begin_with(setting, |_| cluster.url(), beside(&cluster));
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
    kill(Setting::new(name, library), cluster(&Options::new()))
}

fn kill(setting: Setting, mut cluster: Cluster) -> Vec<String> {
    let (_, primary, _) = home(&cluster);
    let mut world = World::begin_with(setting, |_| cluster.url(), beside(&cluster));
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

fn divided(name: &'static str, library: Library) -> Vec<String> {
    divide(Setting::new(name, library))
}

fn divided_replicated(name: &'static str, library: Library) -> Vec<String> {
    divide(Setting { durability: Durability::Replicated, ..Setting::new(name, library) })
}

fn decides_first(name: &'static str, library: Library) -> Vec<String> {
    divide(Setting { reach: Reach::Only(1), ..Setting::new(name, library) })
}

fn decides_first_replicated(name: &'static str, library: Library) -> Vec<String> {
    let durability = Durability::Replicated;
    divide(Setting { reach: Reach::Only(1), durability, ..Setting::new(name, library) })
}

/// The primary is in the smaller part of the network, with the first server and half of the users: all of them, until the
/// primary notices that it is alone. The others go on with its replica.
///
/// The larger part presumes that the smaller one took all slots, so nobody enters on top. Only if the first server had
/// decided nothing before, and entries are not replicated, the replica knows nothing of it: the people whom it admits come
/// on top, or enter a second time when they ask the other server.
fn divide(setting: Setting) -> Vec<String> {
    let setting = Setting { idle_timeout_s: IDLE_DIVIDED_S, loses_replies: true, ..setting };
    let cluster = cluster(&Options::new().divisible());
    let (_, primary, replica) = home(&cluster);
    let knows_of_both = setting.reach == Reach::Any;
    let is_async = setting.durability == Durability::Async;
    let mut world = World::begin_with(setting, |user| cluster.url_for(user), beside(&cluster));
    world.enter(LEFT - 10);
    let epoch = world.epoch();
    world.trouble();
    cluster.divide(primary, USERS[0]);
    // Everybody asks the first server until its part of the cluster stops; then half of the users find the other one.
    world.reach(Reach::Only(0));
    world.wait_away_at(0);
    world.reach(Reach::Halves);
    cluster.wait_promoted(replica);
    world.wait_answer(1);
    if is_async {
        world.wait_epoch_after(epoch);
    }
    world.last(DIVIDED);
    let in_smaller_part = world.entries_of(0);
    if is_async {
        assert!(in_smaller_part > 0, "nobody entered in the smaller part, so nothing was tested");
    }
    if is_async && !knows_of_both {
        world.allow_on_top(in_smaller_part);
    }
    cluster.heal();
    world.reach(Reach::Any);
    world.end()
}

/// The primary dies with what its replica lacks, and the replica's clock is wrong.
fn clock_ahead(name: &'static str, library: Library) -> Vec<String> {
    kill_behind(Setting::new(name, library), with_wrong_clock(WRONG_BY_S))
}

fn clock_behind(name: &'static str, library: Library) -> Vec<String> {
    kill_behind(Setting::new(name, library), with_wrong_clock(-WRONG_BY_S))
}

/// For a broken rule: by the rules, the entries before the failover count for another minute.
fn clock_ahead_unseen(name: &'static str, library: Library) -> Vec<String> {
    kill(Setting { hides_clock: true, ..Setting::new(name, library) }, with_wrong_clock(WRONG_BY_S))
}

/// A cluster whose replicas have a wrong clock.
fn with_wrong_clock(ahead_s: i64) -> Cluster {
    let right = quick(&Options::new());
    let wrong = right.clone().clock_ahead(ahead_s);
    Cluster::start_each(3, 1, |i| if i < 3 { right.clone() } else { wrong.clone() })
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
