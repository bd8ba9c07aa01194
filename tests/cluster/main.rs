//! A whole cluster on one virtual clock: real gates and real scripts over simulated nodes, networks and clocks.
//!
//! `WEIR_CLUSTER_SEEDS` makes so many runs, from `WEIR_CLUSTER_SEED` on. The first run that breaks a promise is reduced to the
//! fewest events that still break it, by `WEIR_CLUSTER_TRIES` runs at most (200), and tells its story. The same seed repeats it. `mended/` has lists of the events of
//! faults that were found, some of which show that a guard of the store is needed.

mod against_redis;
mod auditor;
mod client;
mod cluster;
#[path = "../support/drawn.rs"]
mod drawn;
mod follow;
#[path = "../support/header.rs"]
mod header;
mod inside;
#[path = "../support/judged.rs"]
mod judged;
mod list;
#[path = "../support/panics.rs"]
#[allow(dead_code, reason = "the chaos suite uses the rest")]
mod panics;
#[path = "../support/plain.rs"]
mod plain;
mod plan;
mod redis;
#[path = "../support/seed.rs"]
mod seed;
mod sound;
mod world;

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::Command,
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use admission::sabotage::{Rule as RuleOfTickets, break_rule};
use auditor::{Judged, Promise};
use list::List;
use plan::Plan;
use seed::Random;
use store::redis::sabotage::{self, RULES, Rule};

/// Half of a run's time is Lua's and the model's, which allocate all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// The first broken promise of a plan's run, if there is one.
fn broken(plan: &Plan) -> Option<Promise> {
    world::run(plan).broken.first().map(|(promise, _)| *promise)
}

/// The plan with the fewest faults and users that still breaks the same promise, as `breaks` says.
fn reduce(mut plan: Plan, breaks: impl Fn(&Plan) -> bool) -> Plan {
    let (mut tries, most) = (0, setting("WEIR_CLUSTER_TRIES", 200));
    let mut still = |plan: &Plan| {
        tries += 1;
        tries < most && breaks(plan)
    };
    let mut i = 0;
    while i < plan.faults.len() {
        let mut fewer = plan.clone();
        fewer.faults.remove(i);
        if still(&fewer) { plan = fewer } else { i += 1 }
    }
    let mut step = plan.users.len() / 2;
    while step > 0 {
        let mut from = 0;
        while from < plan.users.len() {
            let mut fewer = plan.clone();
            fewer.users.drain(from..(from + step).min(plan.users.len()));
            if still(&fewer) { plan = fewer } else { from += step }
        }
        step /= 2;
    }
    while plan.servers > 1 {
        let mut fewer = plan.clone();
        fewer.servers -= 1;
        let names = |fault: &plan::Fault| fault.server().is_some_and(|server| server >= fewer.servers);
        if fewer.faults.iter().any(|(_, fault)| names(fault)) || !still(&fewer) {
            break;
        }
        plan = fewer;
    }
    plan
}

/// What happened in a run, in lines.
fn story(plan: &Plan) -> String {
    let run = world::run(plan);
    let mut lines = vec![format!(
        "N {} a minute, {} sub-windows, period {} ms; {} data nodes, {} voters, {} servers, {}, {}; {} users",
        plan.policy.admit_per_minute,
        plan.policy.sub_windows,
        plan.policy.polling_period_ms,
        plan.data_nodes,
        plan.voters,
        plan.servers,
        if plan.persistent { "on disk" } else { "in memory only" },
        if plan.replicated { "replicated" } else { "async" },
        plan.users.len(),
    )];
    lines.extend(run.story.iter().map(|(at, what)| format!("{:>8.1} s  {what}", *at as f64 / 1_000.0)));
    lines.extend(run.broken.iter().map(|(promise, how)| format!("broken: {promise:?}: {how}")));
    lines.join("\n")
}

/// The lists of faults that were found, by the names of their files. Each is in `mended/`, and [`list`] explains the form.
fn mended() -> Vec<(String, List)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/mended");
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut lists: Vec<_> = files
        .map(|file| {
            let path = file.expect("a file").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, list::read(&fs::read_to_string(&path).expect("it is text")))
        })
        .collect();
    lists.sort_by(|a, b| a.0.cmp(&b.0));
    lists
}

#[test]
fn lists_of_mended_faults_hold() {
    let broken: Vec<_> =
        mended().into_iter().filter_map(|(name, list)| Some((name, broken(&list.plan)?))).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

/// What a hundred runs judge at least: about half of what those do of which the fewest are judged. The numbers differ by what the
/// runs do.
const FLOORS: [(&str, u64); 11] = [
    ("windows", 4_500),
    ("windows without a fault", 1_400),
    ("pairs in order", 25_000),
    ("minutes of slots", 29),
    ("places followed", 50_000),
    ("ranks", 7_000),
    ("passes repeated", 7_000),
    ("tickets tried after leaving", 47),
    ("tickets tried after leaving and a fault", 5),
    ("states in Redis", 10_000),
    ("joins repeated with their key", 8),
];

/// The same where slots and primaries move.
const FLOORS_OF_MOVES: [(&str, u64); 4] = [
    ("states in Redis", 0),
    ("minutes of slots", 6),
    ("places while the slot was half moved", 2_000),
    ("places at a demoted primary", 1_800),
];

/// The same where tickets are copied, and servers have different seal keys.
const FLOORS_OF_TICKETS: [(&str, u64); 10] = [
    ("windows without a fault", 3_200),
    ("minutes of slots", 240),
    ("tickets refused by other keys", 7_000),
    ("tickets taken after a refusal", 1_600),
    ("answers in a change of keys", 2_600),
    ("answers to copied tickets", 46_000),
    ("passes for copied tickets", 15_000),
    ("copied places that entered once", 880),
    ("tickets exchanged again", 5_300),
    ("tickets tried after leaving", 3_000),
];

/// The same where the zone opens later. Most of a run is over then; and where clocks differ by more than the time until then, nothing is
/// early.
const FLOORS_OF_OPENINGS: [(&str, u64); 2] = [("openings", 50), ("minutes of slots", 30)];

/// The same where the people inside are limited.
const FLOOR_INSIDE: (&str, u64) = ("entries with people inside", 2_400);

/// The same near the faults that were mended: many lists have few people.
const FLOORS_OF_NEAR: [(&str, u64); 5] = [
    ("windows", 2_200),
    ("pairs in order", 1_700),
    ("minutes of slots", 150),
    ("places followed", 20_000),
    ("ranks", 5_000),
];

/// The same where an operator changes everything. Few minutes have no change.
const FLOORS_OF_CHANGES: [(&str, u64); 4] = [
    ("pairs in order", 11_000),
    ("minutes of slots", 8),
    ("openings", 12),
    ("entries with people inside", 500),
];

/// The same where several of these come together.
const FLOORS_OF_MIXED: [(&str, u64); 8] = [
    ("windows", 3_500),
    ("pairs in order", 7_000),
    ("minutes of slots", 30),
    ("states in Redis", 0),
    ("openings", 8),
    ("entries with people inside", 600),
    ("tickets refused by other keys", 1_000),
    ("numbers of a draw", 5_000),
];

/// `WEIR_CLUSTER_SEED` and `WEIR_CLUSTER_SEEDS` choose other runs.
#[test]
fn every_promise_holds_whatever_happens_to_the_cluster() {
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 100), Plan::of, &[]);
}

/// The same, while people are told 20 s, and near the front 3 s, and an operator changes that.
#[test]
fn every_promise_holds_with_long_periods() {
    let plan = |seed| Plan::of(seed).with_long_periods();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &[]);
}

/// The same, while servers are busy at times and tell up to 20 s.
#[test]
fn every_promise_holds_with_busy_servers() {
    let plan = |seed| Plan::of(seed).with_busy_servers();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &[]);
}

/// The same, while the zone is defined by a configuration file, and servers that remember nothing are the first in a store that was
/// emptied.
#[test]
fn every_promise_holds_with_zones_of_a_file() {
    let plan = |seed| Plan::of(seed).with_a_file();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 60), plan, &[]);
}

/// The same, while single keys of the zone vanish. Few minutes stay without a fault for long: 26 in a hundred runs of one range.
#[test]
fn every_promise_holds_when_keys_vanish() {
    let plan = |seed| Plan::of(seed).with_keys_lost();
    let floors = [("states in Redis", 0), ("minutes of slots", 13)];
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &floors);
}

/// The same, while all users ask one server, so that the others know little.
#[test]
fn every_promise_holds_when_one_server_is_asked() {
    let plan = |seed| Plan::of(seed).with_one_asked();
    // More faults leave fewer quiet minutes.
    let floors = [("minutes of slots", 3)];
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &floors);
}

/// The same, while one fault comes soon after the other. No minute is quiet.
#[test]
fn every_promise_holds_in_storms() {
    let plan = |seed| Plan::of(seed).with_storms();
    let floors =
        [("minutes of slots", 0), ("pairs in order", 12_000), ("ranks", 45_000), ("passes repeated", 28_000)];
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &floors);
}

/// The same, while the people inside are limited.
#[test]
fn every_promise_holds_with_people_inside() {
    let plan = |seed| Plan::of(seed).with_people_inside();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 50), plan, &[FLOOR_INSIDE]);
}

/// The same, while the zone opens at an instant that is still to come.
#[test]
fn every_promise_holds_when_a_zone_opens() {
    let plan = |seed| Plan::of(seed).with_an_opening();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &FLOORS_OF_OPENINGS);
}

/// The same, while the zone's slot is left half moved, and primaries are demoted and stay up.
#[test]
fn every_promise_holds_when_slots_and_primaries_move() {
    let plan = |seed| Plan::of(seed).with_moves();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &FLOORS_OF_MOVES);
}

/// What a hundred runs with a draw judge at least. Most of a run is over when people enter.
const FLOORS_OF_DRAWS: [(&str, u64); 4] = [
    ("openings", 50),
    ("numbers of a draw", 100_000),
    ("pairs in the order of a draw", 37_000),
    ("ranks after a draw", 8_000),
];

/// The same, while an event draws the order: the list is frozen when it begins, and the line is dealt anew.
#[test]
fn every_promise_holds_when_the_order_is_drawn() {
    let plan = |seed| Plan::of(seed).with_a_draw();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &FLOORS_OF_DRAWS);
}

/// The same, while an operator changes the policy again and again.
#[test]
fn every_promise_holds_while_an_operator_changes_everything() {
    let plan = |seed| Plan::of(seed).with_changes();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &FLOORS_OF_CHANGES);
}

/// The same, while two to four of these come together.
#[test]
fn every_promise_holds_with_several_of_these() {
    let plan = |seed| Plan::of(seed).mixed();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &FLOORS_OF_MIXED);
}

/// The list that a seed chooses: the one whose name gives the lowest number with it. So another list changes few runs.
fn chosen(lists: &[(String, List)], seed: u64) -> &Plan {
    let number =
        |name: &str| name.bytes().fold(seed, |so_far, byte| Random::of(so_far ^ u64::from(byte)).bits());
    let (_, list) = lists.iter().min_by_key(|(name, _)| number(name)).expect("there are lists");
    &list.plan
}

/// The runs near the faults that were found and mended.
#[test]
fn every_promise_holds_near_mended_faults() {
    static LISTS: LazyLock<Vec<(String, List)>> = LazyLock::new(mended);
    let plan = |seed: u64| chosen(&LISTS, seed).clone().varied(seed, chosen(&LISTS, !seed));
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 90), plan, &FLOORS_OF_NEAR);
}

/// The same, while tickets are copied, tried again and exchanged, and servers have different seal keys for a while.
#[test]
fn every_promise_holds_with_tickets_misused() {
    let plan = |seed| Plan::of(seed).with_tickets_misused();
    explore(setting("WEIR_CLUSTER_SEED", 1), setting("WEIR_CLUSTER_SEEDS", 30), plan, &FLOORS_OF_TICKETS);
}

/// Rules of tickets that are broken on purpose are caught: a server takes tickets that others sealed, and each exchange of a ticket
/// begins another visit. The rules are broken for one thread.
#[test]
fn broken_rules_of_tickets_are_caught() {
    let is_caught = |rule: RuleOfTickets, promise: Promise| {
        break_rule(Some(rule));
        let caught = (1..30).find(|&seed| broken(&Plan::of(seed).with_tickets_misused()) == Some(promise));
        assert!(caught.is_some(), "with {rule:?} broken, no run breaks {promise:?} first");
    };
    thread::scope(|scope| {
        scope.spawn(|| is_caught(RuleOfTickets::AnySeal, Promise::ForeignTaken));
        scope.spawn(|| is_caught(RuleOfTickets::FreshVisit, Promise::VisitAgain));
    });
}

/// The guard that a process of this program breaks, by its name in [`RULES`].
const BREAK: &str = "WEIR_CLUSTER_BREAK";

/// The list that a process of this program runs, by its name in `mended/`.
const LIST: &str = "WEIR_CLUSTER_LIST";

fn name_of(rule: Rule) -> String {
    format!("{rule:?}")
}

/// Each guard that is removed on purpose is caught: the list of a fault that needs the guard still breaks its promise. A process
/// breaks a guard for all of its threads, so each list has one of its own.
#[test]
fn each_guard_is_needed() {
    let program = std::env::current_exe().expect("this program");
    let lists: Vec<_> = mended().into_iter().filter_map(|(name, list)| Some((name, list.without?))).collect();
    for rule in RULES {
        let has_list = lists.iter().any(|(_, (of, _))| *of == name_of(rule));
        assert!(has_list, "no list in `mended/` needs {rule:?}");
    }
    for (name, (rule, promise)) in lists {
        let ran = Command::new(&program)
            .args(["--exact", "without_a_guard", "--ignored"])
            .envs([(BREAK, &rule), (LIST, &name)])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&ran.stdout);
        let found = text.lines().find_map(|line| line.strip_prefix("first broken: "));
        let found = found.unwrap_or_else(|| panic!("the run of {name} without {rule} did not end:\n{text}"));
        assert_eq!(found, promise, "the first promise that {name} breaks without {rule}");
    }
}

/// Breaks the guard that `WEIR_CLUSTER_BREAK` names, and prints the first promise that the list that `WEIR_CLUSTER_LIST` names breaks
/// then.
/// Without a list it looks for the first seed that breaks one, and prints its reduced list.
#[test]
#[ignore = "each_guard_is_needed runs it"]
fn without_a_guard() {
    let name = std::env::var(BREAK).expect("a guard");
    let rule = RULES.into_iter().find(|rule| name_of(*rule) == name).expect("a rule");
    sabotage::set(Some(rule));
    let mut out = std::io::stdout();
    if let Ok(name) = std::env::var(LIST) {
        let (_, list) = mended().into_iter().find(|(of, _)| *of == name).expect("a list");
        let found = broken(&list.plan).map_or("none".to_owned(), |promise| format!("{promise:?}"));
        drop(writeln!(out, "\nfirst broken: {found}"));
        return;
    }
    let first = setting("WEIR_CLUSTER_SEED", 1);
    let mut seeds = first..first + setting("WEIR_CLUSTER_SEEDS", 2_000);
    let plan = |seed| match rule {
        Rule::Apart => Plan::of(seed).with_a_file(),
        Rule::Once => Plan::of(seed).with_one_asked(),
        Rule::Earlier => Plan::of(seed).with_storms(),
        Rule::Opening => Plan::of(seed).with_an_opening(),
        Rule::Dealt | Rule::Undrawn => Plan::of(seed).with_a_draw(),
        Rule::Inside | Rule::Unseen => Plan::of(seed).with_people_inside(),
        Rule::Kept | Rule::Gone => Plan::of(seed).with_keys_lost(),
        _ if setting("WEIR_CLUSTER_OF_A_FILE", 0) == 1 => Plan::of(seed).with_a_file(),
        _ => Plan::of(seed),
    };
    let found = seeds.find_map(|seed| Some((plan(seed), broken(&plan(seed))?)));
    let (plan, promise) = found.expect("a seed that notices it");
    // With fewer events, the plan could break the promise for another reason.
    let breaks = |plan: &Plan| {
        sabotage::set(None);
        let holds = broken(plan).is_none();
        sabotage::set(Some(rule));
        holds && broken(plan) == Some(promise)
    };
    let list = list::written(&reduce(plan, breaks));
    drop(writeln!(out, "\nlist:\nwithout {rule:?} {promise:?}\n{list}end of the list"));
}

/// Makes `count` runs. Prints which of them broke a promise, and tells the story of the first one. `floors` are added to
/// [`FLOORS`], or are there instead of those with the same names.
#[expect(clippy::disallowed_methods, reason = "it says how long the runs took")]
fn explore(first: u64, count: u64, plan_of: fn(u64) -> Plan, floors: &[(&'static str, u64)]) {
    say(&format!("cluster: seeds {first} to {}", first + count - 1));
    let began = Instant::now();
    let (next, entries, calls, failovers, hours) =
        (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let judged = Mutex::new(Judged::default());
    let mut broken: Vec<(u64, Promise, String)> = thread::scope(|scope| {
        let work = || {
            let mut broken = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return broken;
                }
                let plan = plan_of(seed);
                let run = world::run(&plan);
                judged.lock().expect("nobody panics here").add(&run.figures.judged);
                entries.fetch_add(run.figures.entries, Ordering::Relaxed);
                calls.fetch_add(run.figures.calls, Ordering::Relaxed);
                failovers.fetch_add(run.failovers, Ordering::Relaxed);
                hours.fetch_add(plan.ends_ms, Ordering::Relaxed);
                broken.extend(run.broken.into_iter().take(1).map(|(promise, how)| (seed, promise, how)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a run panicked")).collect()
    });
    let hours = hours.into_inner() as f64 / 3_600_000.0;
    say(&format!(
        "cluster: {count} runs, {hours:.1} simulated hours in {:.0} s, {} calls, {} entries, {} failovers",
        began.elapsed().as_secs_f64(),
        calls.into_inner(),
        entries.into_inner(),
        failovers.into_inner(),
    ));
    let judged = judged.into_inner().expect("nobody panics here").counts();
    say(&format!("cluster: judged {}", judged::words(&judged)));
    broken.sort_unstable_by_key(|(seed, ..)| *seed);
    let examples: Vec<_> = broken
        .iter()
        .take(60)
        .map(|(seed, promise, how)| format!("seed {seed}: {promise:?}: {how}"))
        .collect();
    if let Some((seed, promise, _)) = broken.first() {
        say(&examples.join("\n"));
        let plan = reduce(plan_of(*seed), |plan| crate::broken(plan) == Some(*promise));
        let (story, list) = (story(&plan), list::written(&plan));
        panic!(
            "{} of {count} runs broke a promise; seed {seed}, reduced:\n{story}\nlist:\n{list}",
            broken.len()
        );
    }
    let is_own = |name| floors.iter().any(|(of, _)| *of == name);
    let floors: Vec<_> = FLOORS.iter().filter(|(name, _)| !is_own(*name)).chain(floors).copied().collect();
    judged::assert_enough(&judged, &floors, (first, count));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..6 {
        let run = || {
            let run = world::run(&Plan::of(seed));
            (run.story, run.figures, run.scripts)
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Tells the story of the list that `WEIR_CLUSTER_LIST` names, and of the place that `WEIR_CLUSTER_FOLLOW` names.
#[test]
#[ignore = "for a person who looks into a list"]
fn story_of_a_list() {
    let name = std::env::var(LIST).expect("a list");
    let (_, list) = mended().into_iter().find(|(of, _)| *of == name).expect("a list");
    say(&story(&list.plan));
}
