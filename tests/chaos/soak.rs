//! Many failovers of one cluster, one after another, with users in line all the time; and what each kind of loss costs.
//!
//! A loss begins when the cluster is whole again and people enter. With `--soak` most of the minute's slots are in use then,
//! so a loss that is not noticed lets too many people in. The short run does not wait for that.
//!
//! A loss costs the slots that nobody could use when they became free. Here they are used later, because a second admits
//! more than a sixtieth of the minute; a zone whose sub-windows leave no such room loses them.
//!
//! Invariant: a soak ends by itself, at the latest after [`LIMIT`] for each failover and a minute.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use store::redis::address::Library;

use crate::{
    auditor::{CLOCK_SLACK_MS, Figures},
    clock::{eventually, now},
    redis::{Cluster, Options, USERS},
    trouble,
    world::{Reach, Setting, World, ZONE},
};

/// How many failovers `--soak` makes.
const FAILOVERS: usize = 200;

/// The time for one failover. Usually it takes a third of it.
const LIMIT: Duration = Duration::from_secs(30);

/// From so long after the first entry on, all of a minute's slots can be in use.
const MINUTE_MS: u64 = 60_000;

/// How many slots may be unused when a loss of `--soak` begins, if they are used again within [`LIMIT`].
const UNUSED: usize = 6;

/// Losses of the state, in whole or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// The primary is killed. Its replica has nearly everything.
    Killed,
    /// The primary is killed, and its replica lacks the last entries.
    KilledBehind,
    /// The primary is frozen until its replica was promoted.
    Frozen,
    /// The primary is cut off together with a server and half of the users, until its replica was promoted. The cluster bus
    /// is cut, too.
    BusCut,
    /// The primary and its replica lose everything, and nobody takes over.
    Wiped,
}

impl Loss {
    const ALL: [Self; 5] = [Self::Killed, Self::KilledBehind, Self::Frozen, Self::BusCut, Self::Wiped];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "primary killed",
            Self::KilledBehind => "primary killed with what its replica lacks",
            Self::Frozen => "primary frozen",
            Self::BusCut => "cluster bus cut",
            Self::Wiped => "state wiped, no failover",
        }
    }

    fn is_failover(self) -> bool {
        self != Self::Wiped
    }
}

/// The part that the ordinary run makes.
pub(crate) fn twenty(name: &'static str, library: Library) -> Vec<String> {
    run(name, library, 20, Duration::ZERO).broken
}

/// The command `--soak`.
pub(crate) fn command() -> ExitCode {
    let figures = run("soak", Library::default(), FAILOVERS, LIMIT);
    for how in &figures.broken {
        say(&format!("soak: broken: {how}"));
    }
    if figures.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(line: &str) {
    drop(writeln!(io::stdout(), "{line}"));
}

/// Makes failovers, and says what they cost. After each, it waits at most for `refill` until the minute's slots are used
/// again.
fn run(name: &'static str, library: Library, failovers: usize, refill: Duration) -> Figures {
    let began = now();
    let mut cluster = trouble::cluster(&Options::new().divisible());
    let slot = cluster.slot(ZONE);
    let setting = Setting { soak: true, ..Setting::new(name, library) };
    let mut world = World::begin_with(setting, |user| cluster.url_for(user), trouble::beside(&cluster));
    world.enter(1);
    let first_ms = world.now_ms();
    let limit = LIMIT * u32::try_from(failovers).expect("few") + Duration::from_secs(60);
    let mut costs: BTreeMap<Loss, Vec<usize>> = BTreeMap::new();
    let (mut done, mut kinds, mut is_late) = (0, Vec::new(), false);
    // When the losses of the last minute began, and how many there were in a minute at most.
    let (mut begun, mut most_near) = (VecDeque::new(), 0);
    while done < failovers && !is_late {
        if kinds.is_empty() {
            kinds = Loss::ALL.into();
        }
        let loss = kinds.swap_remove(world.random.below(kinds.len()));
        let is_measured = world.now_ms() > first_ms + MINUTE_MS;
        let from_ms = world.now_ms();
        lose(loss, slot, &mut cluster, &mut world);
        wait_whole(slot, &cluster);
        world.enter(3);
        if world.now_ms() > first_ms + MINUTE_MS {
            world.wait_used(UNUSED, refill);
        }
        done += usize::from(loss.is_failover());
        begun.push_back(from_ms);
        while begun.front().is_some_and(|first| first + MINUTE_MS < from_ms) {
            begun.pop_front();
        }
        most_near = most_near.max(begun.len() as u64);
        let pause = world.longest_pause_ms(from_ms) as f64 / 1_000.0;
        let seconds = (world.now_ms() - from_ms) as f64 / 1_000.0;
        let cost = if is_measured {
            let slots = world.unused_slots(from_ms);
            costs.entry(loss).or_default().push(slots);
            format!("{slots} slots lost")
        } else {
            "not measured in the first minute".to_owned()
        };
        say(&format!(
            "{name}: failover {done} of {failovers}: {}: {seconds:.1} s, nobody entered for {pause:.1} s, {cost}; {} \
             entered so far",
            loss.name(),
            world.entries()
        ));
        is_late = now() - began > limit;
    }
    // Each loss may open a window a little early.
    world.allow_early(CLOCK_SLACK_MS * most_near);
    let (mut figures, errors) = world.stop();
    if is_late {
        figures.broken.push(format!("only {done} failovers within {limit:?}; the stores said {errors:#?}"));
    }
    say(&format!(
        "{name}: {done} failovers in {} s, {} entries: {} over-admissions, {} second passes, {} lost places, {} inversions",
        (now() - began).as_secs(),
        figures.entries,
        figures.over_admissions,
        figures.second_passes,
        figures.lost_places,
        figures.inversions
    ));
    say(&format!("{name}: windows opened up to {} ms early", figures.early_ms));
    for (loss, slots) in &costs {
        let (all, worst) = (slots.iter().sum::<usize>(), slots.iter().max().copied().unwrap_or(0));
        let mean = all as f64 / slots.len() as f64;
        say(&format!(
            "{name}: slots lost: mean {mean:.1}, worst {worst}, of {} times: {}",
            slots.len(),
            loss.name()
        ));
    }
    figures
}

/// Makes the loss, and waits until it is over.
fn lose(loss: Loss, slot: u16, cluster: &mut Cluster, world: &mut World) {
    let primary = cluster.primary_of(slot);
    let replica = (primary + 3) % 6;
    world.trouble();
    match loss {
        Loss::Killed => {
            cluster.kill(primary);
            cluster.wait_failover(slot, primary);
            cluster.restart(primary);
        }
        Loss::KilledBehind => {
            cluster.stop(replica);
            cluster.command(primary, &["CLIENT", "KILL", "TYPE", "replica"]);
            world.join(1);
            world.enter(3);
            cluster.kill(primary);
            cluster.cont(replica);
            cluster.wait_failover(slot, primary);
            cluster.restart(primary);
        }
        Loss::Frozen => {
            cluster.stop(primary);
            cluster.wait_failover(slot, primary);
            cluster.cont(primary);
        }
        Loss::BusCut => {
            let alone = world.random.below(USERS.len());
            world.reach(Reach::Halves);
            cluster.divide(primary, USERS[alone]);
            world.wait_away_at(alone);
            cluster.wait_promoted(replica);
            world.wait_answer(1 - alone);
            cluster.heal();
            world.reach(Reach::Any);
        }
        Loss::Wiped => {
            cluster.command(primary, &["FLUSHALL"]);
        }
    }
}

/// Waits until the zone's primary has a replica that may take over: one that has all, and was not copied just now.
fn wait_whole(slot: u16, cluster: &Cluster) {
    cluster.wait_ok();
    let primary = cluster.primary_of(slot);
    cluster.wait_replicas(primary, 1);
    // A copy has the mark of the process that held the state, for a second and a half: see `docs/what-can-go-wrong.md`.
    let (replica, mark) = ((primary + 3) % 6, format!("weir:v1:{{{ZONE}}}:on"));
    eventually("the mark of the copied process ends", || {
        cluster.command(replica, &["READONLY"]);
        (cluster.command(replica, &["EXISTS", &mark]) == crate::redis::Reply::Int(0)).then_some(())
    });
}
