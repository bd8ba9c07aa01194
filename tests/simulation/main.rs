//! Simulated users on a virtual clock, over the gate and the engine of the embedded store. An auditor checks every run
//! against the promises.
//!
//! `WEIR_SIM_SEEDS` sets the number of runs (1,000) and `WEIR_SIM_SEED` the first seed. The seed of a run that breaks a
//! promise is printed, and the same seed repeats the run.

mod auditor;
#[path = "../support/judged.rs"]
mod judged;
#[path = "../support/panics.rs"]
#[allow(dead_code, reason = "the chaos suite uses the rest")]
mod panics;
mod scenario;
#[path = "../support/seed.rs"]
#[allow(dead_code, reason = "shared with the HTTP tests, which use the rest")]
mod seed;
mod store;
mod world;

use std::{
    io::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use admission::sabotage::{Rule, break_rule};

use auditor::{Auditor, Judged, Promise};
use scenario::Scenario;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// What a hundred runs judge at least: half of what the first thousand seeds do.
const FLOORS: [(&str, u64); 6] = [
    ("windows", 11_000),
    ("entries with people inside", 2_600),
    ("entries in order", 8_000),
    ("ranks", 118_000),
    ("places followed", 135_000),
    ("passes repeated", 6_000),
];

#[test]
fn every_promise_holds_for_every_seed() {
    let (first, count) = (setting("WEIR_SIM_SEED", 1), setting("WEIR_SIM_SEEDS", 1_000));
    say(&format!("simulation: seeds {first} to {}", first + count - 1));
    let (next, calls) = (AtomicU64::new(first), AtomicU64::new(0));
    let judged = Mutex::new(Judged::default());
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let broken: Vec<_> = thread::scope(|scope| {
        let work = || {
            let mut broken = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return broken;
                }
                let audit = world::run(Scenario::of(seed), seed);
                calls.fetch_add(audit.calls, Ordering::Relaxed);
                judged.lock().expect("nobody panics here").add(&audit.judged);
                broken.extend(audit.broken.into_iter().map(|(promise, how)| (seed, promise, how)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a run panicked")).collect()
    });
    say(&format!("simulation: {count} runs, {} calls", calls.into_inner()));
    let judged = judged.into_inner().expect("nobody panics here").counts();
    say(&format!("simulation: judged {}", judged::words(&judged)));
    let examples: Vec<_> = broken
        .iter()
        .take(20)
        .map(|(seed, promise, how)| format!("seed {seed}: {promise:?}: {how}"))
        .collect();
    assert!(broken.is_empty(), "{} broken promises:\n{}", broken.len(), examples.join("\n"));
    judged::assert_enough(&judged, &FLOORS, (first, count));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let audit = world::run(Scenario::of(seed), seed);
        (audit.calls, format!("{:?}", audit.stories))
    };
    for seed in 1..6 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// Breaks `rule`, and asserts that the auditor reports one of `promises` as broken within 200 seeds.
fn is_caught(rule: Rule, promises: &[Promise]) {
    let caught = thread::spawn({
        let promises = promises.to_vec();
        move || {
            break_rule(Some(rule));
            (1..200).find(|&seed| {
                let audit = world::run(Scenario::of(seed), seed);
                audit.broken.iter().any(|(promise, _)| promises.contains(promise))
            })
        }
    });
    let caught = caught.join().expect("a run panicked");
    say(&format!("{rule:?} broken: caught by seed {caught:?}"));
    assert!(caught.is_some(), "with {rule:?} broken, no run breaks {promises:?}");
}

macro_rules! caught {
    ($($test:ident: $rule:ident breaks $($promise:ident)|+;)+) => {$(
        #[test]
        fn $test() {
            is_caught(Rule::$rule, &[$(Promise::$promise),+]);
        }
    )+};
}

caught! {
    breaking_the_cap_is_caught: Cap breaks TooMany;
    breaking_the_sub_window_is_caught: SubWindow breaks TooManyInASubWindow;
    granting_claims_out_of_order_is_caught: Order breaks OutOfOrder;
    admitting_newcomers_first_is_caught: Newcomer breaks NewcomerFirst;
    entering_twice_is_caught: Twice breaks EnteredTwice;
    evicting_early_is_caught: EarlySweep breaks EvictedWhilePolling;
    evicting_nobody_is_caught: NoSweep breaks NotEvicted;
    accepting_any_seal_is_caught: AnySeal breaks ForgedTokenTaken;
    moving_the_base_past_waiting_people_is_caught: Base breaks EvictedWhilePolling;
    forgetting_entries_at_a_restart_is_caught: Restore breaks TooMany | EnteredTwice | PassDiffers;
    believing_the_wall_clock_is_caught: WallClock breaks TooMany | EvictedWhilePolling | NeverAdmitted;
    reporting_no_poll_to_the_store_is_caught: Silence breaks EvictedWhilePolling | OutOfOrder | PlaceLost;
    telling_a_longer_wait_is_caught: Growth breaks WaitGrew;
    letting_in_more_than_may_be_inside_is_caught: Inside breaks TooManyInside;
    reporting_no_activity_is_caught: Activity breaks TooManyInside;
    leaving_with_tickets_of_another_line_is_caught: LeaveEpoch breaks StrangerLeft;
    keeping_a_place_that_was_given_up_is_caught: GivingUp breaks LeftAndBack | NotEvicted;
    entering_again_after_leaving_is_caught: Replay breaks LeftAndBack;
    beginning_another_visit_with_each_exchange_is_caught: FreshVisit breaks AnotherVisit;
}

/// The share of slots that were used while there was a line, in percent.
fn slots(leaving_percent: u64, network_ms: u64) -> f64 {
    slots_of(Scenario::burst(7, 6_000, leaving_percent, network_ms))
}

fn slots_of(scenario: Scenario) -> f64 {
    let audit = world::run(scenario, 7);
    assert!(audit.broken.is_empty(), "{:?}", audit.broken);
    audit.slots_used()
}

#[test]
fn slots_are_used_however_many_people_leave() {
    for network_ms in [50, 300] {
        for leaving_percent in [0, 35, 60] {
            let used = slots(leaving_percent, network_ms);
            say(&format!("slots used, {leaving_percent} % leave, network {network_ms} ms: {used:.1} %"));
            assert!(used >= 97.0, "{used:.1} % of the slots used, {leaving_percent} % leave");
        }
    }
}

/// Whoever leaves makes room for the next within a second. Where more walk away from the line, a place more often waits up to two
/// seconds for somebody of the front who has just left.
#[test]
fn places_inside_are_used_at_once() {
    for (leaving_percent, floor) in [(0, 97.0), (35, 97.0), (60, 92.0)] {
        let audit = world::run(Scenario::full(7, 1_500, leaving_percent), 7);
        assert!(audit.broken.is_empty(), "{:?}", audit.broken);
        let used = audit.places_used_within(1_000);
        say(&format!("places inside used within a second, {leaving_percent} % leave the line: {used:.1} %"));
        let (ours, _, covered) = wait_errors(&audit);
        say(&format!(
            "actual / expected wait with people inside: {ours:.2?}; {covered:.0} % within the range told"
        ));
        assert!((85.0..=100.0).contains(&covered), "{covered:.0} % of the waits within the range told");
        assert!(
            used >= floor,
            "{used:.1} % of the places used within a second, {leaving_percent} % leave the line"
        );
    }
}

/// People who approach the front are told a shorter period in time, so that the server knows who has left.
#[test]
fn few_slots_are_wasted_with_a_long_period() {
    for (leaving_percent, floor) in [(0, 97.0), (35, 97.0), (60, 97.0)] {
        let mut scenario = Scenario::burst(7, 6_000, leaving_percent, 50);
        scenario.policy.polling_period_ms = 20_000;
        let used = slots_of(scenario);
        say(&format!("slots used, {leaving_percent} % leave, polls every 20 s: {used:.1} %"));
        assert!(used >= floor, "{used:.1} % of the slots used, {leaving_percent} % leave");
    }
}

/// An operator changes the period again and again. Nobody was told anything by that, so whoever has left is still known to have left.
#[test]
fn few_slots_are_wasted_by_changes_of_the_period() {
    for leaving_percent in [0, 35, 60] {
        let mut scenario = Scenario::burst(7, 6_000, leaving_percent, 50);
        let periods = [3_001, 3_000, 20_000, 3_000, 1_000, 10_000, 20_000, 500, 3_000, 2_000];
        scenario.periods = (20_000..600_000).step_by(25_000).zip(periods.into_iter().cycle()).collect();
        let used = slots_of(scenario);
        say(&format!("slots used, {leaving_percent} % leave, with changes of the period: {used:.1} %"));
        assert!(used >= 97.0, "{used:.1} % of the slots used, {leaving_percent} % leave");
    }
}

/// The server is so busy that 6,000 people have to poll every 15 s, and says so by itself. At once after a cold burst, and while
/// somebody else takes half of its processor.
#[test]
fn few_slots_are_wasted_by_a_busy_server() {
    for leaving_percent in [0, 35, 60] {
        let mut scenario = Scenario::burst(7, 6_000, leaving_percent, 50);
        scenario.busy = vec![((0, 120_000), 1.75), ((120_000, 300_000), 3.5), ((300_000, 900_000), 1.75)];
        let audit = world::run(scenario, 7);
        assert!(audit.broken.is_empty(), "{:?}", audit.broken);
        let (used, longest_ms) = (audit.slots_used(), audit.longest_period_ms);
        assert!((14_000..=20_000).contains(&longest_ms), "people were told {longest_ms} ms");
        say(&format!("slots used, {leaving_percent} % leave, by a busy server: {used:.1} %"));
        assert!(used >= 97.0, "{used:.1} % of the slots used, {leaving_percent} % leave");
    }
}

#[test]
fn slots_held_for_absent_people_are_noticed_as_wasted() {
    break_rule(Some(Rule::Presence));
    let used = slots(60, 50);
    break_rule(None);
    say(&format!("slots used if absent people hold theirs, 60 % leave: {used:.1} %"));
    assert!(used < 97.0, "{used:.1} %: the measurement does not notice wasted slots");
}

/// Every tenth user polls too often, so that the server refuses the polls and only reports them. Such a user holds a slot for
/// the time of one appointment.
fn beside_users_who_never_claim() -> Auditor {
    let mut scenario = Scenario::burst(7, 3_000, 0, 50);
    for user in scenario.users.iter_mut().step_by(10) {
        user.never_claims = true;
        user.leaves_after_ms = Some(500_000);
    }
    world::run(scenario, 7)
}

#[test]
fn users_who_never_claim_hold_up_nobody() {
    let audit = beside_users_who_never_claim();
    let used = audit.slots_used();
    say(&format!("slots used, 10 % never claim: {used:.1} %"));
    assert!(audit.broken.is_empty() && used >= 95.0, "{used:.1} % of the slots used; {:?}", audit.broken);
}

#[test]
fn slots_held_by_users_who_never_claim_are_noticed_as_wasted() {
    break_rule(Some(Rule::Presence));
    let used = beside_users_who_never_claim().slots_used();
    break_rule(None);
    say(&format!("slots used if presence needs no claim, 10 % never claim: {used:.1} %"));
    assert!(used < 97.0, "{used:.1} %: the measurement does not notice wasted slots");
}

/// The actual wait divided by the expected wait at the 10th, 50th and 90th percentile, the same for the naive estimate
/// rank x 60 / N, and the percentage of waits within the range that was told.
fn wait_errors(audit: &Auditor) -> ([f64; 3], [f64; 3], f64) {
    let (mut ours, mut naive, mut covered, mut count) = (Vec::new(), Vec::new(), 0.0, 0.0);
    for story in audit.stories.values() {
        let (Some((told_s, low_s, high_s)), Some(entered_ms)) = (story.told_s, story.entered_ms) else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let actual_s = (entered_ms - story.joined_ms) as f64 / 1_000.0;
        ours.push(actual_s / f64::from(told_s));
        naive.push(actual_s / story.naive_s);
        count += 1.0;
        if (f64::from(low_s)..=f64::from(high_s)).contains(&actual_s) {
            covered += 1.0;
        }
    }
    let at = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        [values.len() / 10, values.len() / 2, values.len() * 9 / 10].map(|i| values[i])
    };
    (at(&mut ours), at(&mut naive), 100.0 * covered / count)
}

/// Asserts how many waits are within the range that was told first, over some runs of each scenario, whose seed and percentage of people
/// who leave are given.
fn are_covered(whom: &str, scenario: impl Fn(u64, u64) -> Scenario) {
    const RUNS: u64 = 20;
    for leaving_percent in [0, 35, 60] {
        let share = |seed| wait_errors(&world::run(scenario(seed, leaving_percent), seed)).2;
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let covered = (1..=RUNS).map(share).sum::<f64>() / RUNS as f64;
        say(&format!("{whom}, {leaving_percent} % leave: {covered:.0} % within the range told"));
        assert!(
            covered >= 85.0,
            "{covered:.0} % of the waits within the range told, {leaving_percent} % leave"
        );
    }
}

/// Two may be inside, each stays for 15 s, and nobody knows that before the first of them leaves.
#[test]
fn the_first_in_line_for_a_full_zone_are_told_that_little_is_known() {
    are_covered("first line of a full zone", |seed, leaving_percent| {
        let mut scenario = Scenario::full(seed, 12, leaving_percent);
        // All at once, or one after the other.
        if seed % 2 == 0 {
            (0..).zip(&mut scenario.users).for_each(|(i, user)| user.joins_ms = i * 300);
        }
        scenario.policy.max_active = 2;
        scenario.policy.visit_idle_s = 900;
        scenario.users.iter_mut().for_each(|user| user.stay.for_ms = 15_000);
        scenario
    });
}

/// The people of a small zone's first second, for whom the store knows a slot minutes ahead if nobody before them leaves.
#[test]
fn the_first_second_of_a_line_is_told_a_range() {
    are_covered("first second of a line", |seed, leaving_percent| {
        let mut scenario = Scenario::burst(seed, 26, leaving_percent, 50);
        scenario.policy.admit_per_minute = 6;
        let longest_ms = 200_000;
        for (i, user) in (0..).zip(&mut scenario.users) {
            user.joins_ms = i * 30;
            user.leaves_after_ms = user.leaves_after_ms.map(|at_ms| at_ms * 7_919 % longest_ms);
        }
        scenario
    });
}

#[test]
fn expected_waits_beat_the_naive_estimate() {
    for leaving_percent in [0, 35, 60] {
        let (ours, naive, covered) =
            wait_errors(&world::run(Scenario::burst(11, 6_000, leaving_percent, 50), 11));
        say(&format!(
            "actual / expected wait (p10, p50, p90), {leaving_percent} % leave: {ours:.2?}, by rank x 60 / N \
             {naive:.2?}; {covered:.0} % within the range told"
        ));
        let off = |values: [f64; 3]| values.iter().map(|value| value.ln().abs()).sum::<f64>();
        assert!(off(ours) < off(naive), "no better than rank x 60 / N");
        assert!(covered >= 85.0, "{covered:.0} % within the range told");
        assert!(leaving_percent > 0 || (0.9..1.1).contains(&ours[1]), "{ours:?} although nobody leaves");
    }
}
