//! What must hold for the told wait, over many lines. The previous estimator fails the same checks.

use std::collections::BTreeMap;

use crate::{
    law::{Arrivals, Patience},
    line::{Scenario, Told, run},
    table::{base, coverage, errors, say, seeds},
};

/// Lines of 3,000 people at 300 a minute.
fn small(patience: Patience, leaving: f64, lines_before: usize) -> Scenario {
    Scenario { per_minute: 300, people: 3_000, patience, leaving, lines_before, ..base() }
}

/// What was told in many lines about waits of more than two minutes.
fn told_in(scenarios: &[Scenario]) -> Vec<Told> {
    let seeds = seeds(6);
    say(&format!("seeds 1 to {seeds}"));
    let runs = scenarios.iter().flat_map(|scenario| (1..=seeds).flat_map(|seed| run(scenario, seed)));
    runs.filter(|told| told.actual_s > 120.0).collect()
}

/// How many waits are within the range that was told, with a confidence of 95 %. The waits of one run depend on each other, so a run
/// counts as one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covered {
    /// More than nine of ten: the range is wider than it need be.
    More,
    /// Nine of ten, as far as these runs can tell.
    NineOfTen,
    /// Fewer. `docs/promises.md` names each of these.
    Fewer,
}

impl Covered {
    /// Two-sided quantiles of Student's distribution for 95 %, by degrees of freedom from 1 on; the last one for more, too.
    const STUDENT: [f64; 12] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18];

    fn of(told: &[Told], of: impl Fn(&Told) -> [f64; 3]) -> Self {
        let mut runs = BTreeMap::<u64, Vec<Told>>::new();
        told.iter().for_each(|told| runs.entry(told.seed).or_default().push(*told));
        let shares: Vec<f64> = runs.values().map(|told| coverage(told, &of).0).collect();
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let off = Self::STUDENT[shares.len().min(13) - 2] * (variance / count).sqrt();
        say(&format!("{} runs: {mean:.1} % in range, {:.1} to {:.1}", shares.len(), mean - off, mean + off));
        match () {
            () if mean - off > 90.0 => Self::More,
            () if mean + off < 90.0 => Self::Fewer,
            () => Self::NineOfTen,
        }
    }
}

/// What must hold of waits, in percent: the mean error and the bias are at most these, so many are in the range, of which the book says
/// this, and the range is at most so wide.
struct Goal {
    error: f64,
    bias: f64,
    covered: ([f64; 2], Covered),
    width: f64,
}

/// Which parts of the goal are missed.
fn faults(told: &[Told], of: impl Fn(&Told) -> [f64; 3], goal: &Goal) -> Vec<String> {
    let found = errors(told, |told| of(told)[0]);
    let (share, width) = coverage(told, &of);
    say(&format!("{} waits: {found:.1?} %, {share:.1} % in range, width {width:.1} %", told.len()));
    let mut faults = Vec::new();
    if found.absolute > goal.error {
        faults.push(format!("the error is {:.1} % on average", found.absolute));
    }
    if found.bias.abs() > goal.bias {
        faults.push(format!("the bias is {:+.1} %", found.bias));
    }
    let ([least, most], said) = goal.covered;
    if share < least || share > most {
        faults.push(format!("{share:.1} % of the waits are in the range"));
    }
    let covered = Covered::of(told, &of);
    if covered != said {
        faults.push(format!("the range covers {covered:?}, and the book says {said:?}"));
    }
    if width > goal.width {
        faults.push(format!("the range is {width:.1} % wide"));
    }
    faults
}

/// Of lines like those before, the wait is told within a few percent from the first second on.
#[test]
fn waits_of_warm_lines_are_told_right() {
    let lines: Vec<_> = [
        (Patience::Exponential, 0.35),
        (Patience::Weibull(0.6), 0.6),
        (Patience::Even(0.42), 0.35),
        (Patience::TwoClass(0.7), 0.6),
        (Patience::Exponential, 0.0),
    ]
    .map(|(patience, leaving)| small(patience, leaving, 2))
    .into();
    let told = told_in(&lines);
    let later: Vec<_> = told.iter().filter(|told| !told.at_join).copied().collect();
    let goal = Goal { error: 1.4, bias: 0.7, covered: ([91.0, 98.5], Covered::More), width: 8.5 };
    assert_eq!(faults(&later, |told| told.ours, &goal), [] as [&str; 0]);
    for tenth in 0..10 {
        let of: Vec<_> = later.iter().filter(|told| (told.place * 10.0) as usize == tenth).copied().collect();
        let (share, _) = coverage(&of, |told| told.ours);
        assert!(of.len() < 300 || share >= 84.0, "{share:.1} % of tenth {tenth} are in the range");
    }
    let at_join: Vec<_> = told.iter().filter(|told| told.at_join).copied().collect();
    // How much two crowds differ cannot be known after two lines, so these ranges are wide.
    let goal_at_join = Goal { error: 2.5, bias: 1.5, covered: ([93.0, 100.0], Covered::More), width: 26.0 };
    assert_eq!(faults(&at_join, |told| told.ours, &goal_at_join), [] as [&str; 0]);
    let before = faults(&later, |told| told.previous, &goal);
    assert_eq!(before.len(), 4, "the previous estimator must fail: {before:?}");
}

/// Of a line that is the first one, the wait is known when a tenth of the people has gone.
#[test]
fn waits_of_cold_bursts_are_known_after_a_tenth() {
    let lines = [Patience::Exponential, Patience::Weibull(0.6), Patience::Weibull(1.5)]
        .map(|patience| small(patience, 0.35, 0));
    let mut told = told_in(&lines);
    told.retain(|told| !told.at_join && told.gone >= 0.1);
    let goal = Goal { error: 5.0, bias: 3.5, covered: ([91.0, 100.0], Covered::More), width: 42.0 };
    assert_eq!(faults(&told, |told| told.ours, &goal), [] as [&str; 0]);
    let before = faults(&told, |told| told.previous, &goal);
    assert!(before.len() >= 2, "the previous estimator must fail: {before:?}");
}

/// At the join of a first line, nothing is known about its people. The range covers that nobody leaves, and that most do within a minute.
#[test]
fn the_range_of_a_first_line_covers_whatever_share_leaves() {
    let as_loadgen = |share: f64| Scenario { scale_s: Some(60.0), ..small(Patience::Even(share), share, 0) };
    let lines = [
        small(Patience::Exponential, 0.0, 0),
        as_loadgen(0.35),
        as_loadgen(0.6),
        small(Patience::Weibull(0.6), 0.6, 0),
        small(Patience::TwoClass(0.7), 0.6, 0),
    ];
    for line in lines {
        let mut told = told_in(std::slice::from_ref(&line));
        told.retain(|told| told.at_join);
        let (share, width) = coverage(&told, |told| told.ours);
        say(&format!("{:?} {}: {share:.1} % in range, width {width:.1} %", line.patience, line.leaving));
        assert_eq!(
            Covered::of(&told, |told| told.ours),
            Covered::More,
            "{:?} {}",
            line.patience,
            line.leaving
        );
        let (before, _) = coverage(&told, |told| told.previous);
        assert!(line.leaving < 0.5 || before < 50.0, "the previous estimator must fail: {before:.1} %");
    }
}

/// The rate, and a second server, are part of the schedule.
#[test]
fn changes_of_the_rate_and_other_servers_are_known() {
    let halved = Scenario { change: Some((0.4, 0.5)), ..small(Patience::Exponential, 0.35, 1) };
    let doubled =
        Scenario { change: Some((0.3, 2.0)), people: 6_000, ..small(Patience::Exponential, 0.35, 1) };
    let two = Scenario { servers: 2, ..small(Patience::Exponential, 0.35, 1) };
    for (name, scenario, width) in
        [("halved", halved, 24.0), ("doubled", doubled, 8.0), ("two servers", two, 13.0)]
    {
        say(name);
        let mut told = told_in(std::slice::from_ref(&scenario));
        told.retain(|told| !told.at_join && (scenario.change.is_none() || told.after_change));
        let goal = Goal { error: 3.0, bias: 1.8, covered: ([91.0, 100.0], Covered::More), width };
        assert_eq!(faults(&told, |told| told.ours, &goal), [] as [&str; 0], "{name}");
    }
}

/// In a small line, chance decides more. The range knows it.
#[test]
fn ranges_of_small_lines_cover_the_chance() {
    let line = Scenario { people: 600, per_minute: 30, ..small(Patience::Exponential, 0.35, 2) };
    let mut told: Vec<_> = (1..=seeds(12)).flat_map(|seed| run(&line, seed)).collect();
    told.retain(|told| !told.at_join && told.gone >= 0.1 && told.actual_s > 120.0);
    let goal = Goal { error: 3.6, bias: 1.2, covered: ([89.0, 96.0], Covered::NineOfTen), width: 17.0 };
    assert_eq!(faults(&told, |told| told.ours, &goal), [] as [&str; 0]);
}

/// Crowds differ. The range at the join covers one that leaves a quarter more often than those before, and not much more than that.
#[test]
fn the_range_at_the_join_covers_another_crowd() {
    let line = Scenario { leaving_before: Some(0.35), ..small(Patience::Exponential, 0.42, 2) };
    let mut told: Vec<_> = (1..=seeds(24)).flat_map(|seed| run(&line, seed)).collect();
    told.retain(|told| told.at_join && told.actual_s > 120.0);
    let goal = Goal { error: 12.0, bias: 12.0, covered: ([80.0, 100.0], Covered::NineOfTen), width: 25.0 };
    assert_eq!(faults(&told, |told| told.ours, &goal), [] as [&str; 0]);
}

/// A server that starts again goes on with what it had learnt, if somebody keeps it.
#[test]
fn what_was_learnt_survives_a_restart() {
    let line = Scenario { restarts: true, ..small(Patience::Even(0.42), 0.35, 1) };
    let told: Vec<_> = told_in(&[line]).into_iter().filter(|told| told.at_join).collect();
    let goal = Goal { error: 3.0, bias: 2.0, covered: ([93.0, 100.0], Covered::More), width: 32.0 };
    assert_eq!(faults(&told, |told| told.ours, &goal), [] as [&str; 0]);
}

/// What a line teaches holds, though all of its people left at once, as at the end of a rehearsal: their slots were lost.
#[test]
fn a_line_that_vanishes_teaches_no_wrong_pace() {
    let line = Scenario {
        people: 24_000,
        arrivals: Arrivals::Flash(120.0),
        scale_s: Some(60.0),
        vanish_s: Some(150.0),
        per_minute: 2_000,
        ..small(Patience::Even(0.35), 0.35, 1)
    };
    let mut told: Vec<_> = (1..=seeds(8)).flat_map(|seed| run(&line, seed)).collect();
    told.retain(|told| told.at_join && told.actual_s > 5.0);
    // To the server, those who vanished left. So the next crowd is another one.
    let goal = Goal { error: 8.0, bias: 5.0, covered: ([74.0, 100.0], Covered::Fewer), width: 26.0 };
    assert_eq!(faults(&told, |told| told.ours, &goal), [] as [&str; 0]);
}
