//! What must hold for the told wait, over many lines. The previous estimator fails the same checks.

use crate::{
    law::{Arrivals, Patience},
    line::{Scenario, Told, run},
    table::{coverage, errors, say, seeds},
};

/// Lines of 3,000 people at 300 a minute.
fn small(patience: Patience, leaving: f64, lines_before: usize) -> Scenario {
    Scenario {
        per_minute: 300,
        people: 3_000,
        arrivals: Arrivals::Burst(2.0),
        patience,
        leaving,
        scale_s: None,
        restarts: false,
        balks_s: f64::INFINITY,
        change: None,
        servers: 1,
        vanish_s: None,
        lines_before,
    }
}

/// What was told in many lines about waits of more than two minutes.
fn told_in(scenarios: &[Scenario]) -> Vec<Told> {
    let seeds = seeds(4);
    say(&format!("seeds 1 to {seeds}"));
    let runs = scenarios.iter().flat_map(|scenario| (1..=seeds).flat_map(|seed| run(scenario, seed)));
    runs.filter(|told| told.actual_s > 120.0).collect()
}

/// Which of the checks fail: the mean error and the bias in percent of the wait, and the share of the waits in the range.
fn faults(
    told: &[Told],
    of: impl Fn(&Told) -> [f64; 3],
    most: (f64, f64),
    covered: (f64, f64),
) -> Vec<String> {
    let found = errors(told, |told| of(told)[0]);
    let (share, width) = coverage(told, &of);
    say(&format!("{} waits: {found:.1?} %, {share:.1} % in range, width {width:.1} %", told.len()));
    let mut faults = Vec::new();
    if found.absolute > most.0 {
        faults.push(format!("the error is {:.1} % on average", found.absolute));
    }
    if found.bias.abs() > most.1 {
        faults.push(format!("the bias is {:+.1} %", found.bias));
    }
    if share < covered.0 || share > covered.1 {
        faults.push(format!("{share:.1} % of the waits are in the range"));
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
    assert_eq!(faults(&later, |told| told.ours, (2.0, 1.0), (88.0, 98.5)), [] as [&str; 0]);
    for tenth in 0..10 {
        let of: Vec<_> = later.iter().filter(|told| (told.place * 10.0) as usize == tenth).copied().collect();
        let (share, _) = coverage(&of, |told| told.ours);
        assert!(of.len() < 300 || share >= 84.0, "{share:.1} % of tenth {tenth} are in the range");
    }
    let at_join: Vec<_> = told.iter().filter(|told| told.at_join).copied().collect();
    // How much two crowds differ cannot be known after two lines, so these ranges are wide.
    assert_eq!(faults(&at_join, |told| told.ours, (5.0, 3.0), (88.0, 100.0)), [] as [&str; 0]);
    let before = faults(&later, |told| told.previous, (2.0, 1.0), (88.0, 98.5));
    assert_eq!(before.len(), 3, "the previous estimator must fail: {before:?}");
}

/// Of a line that is the first one, the wait is known when a tenth of the people has gone.
#[test]
fn waits_of_cold_bursts_are_known_after_a_tenth() {
    let lines = [Patience::Exponential, Patience::Weibull(0.6), Patience::Weibull(1.5)]
        .map(|patience| small(patience, 0.35, 0));
    let mut told = told_in(&lines);
    told.retain(|told| !told.at_join && told.gone >= 0.1);
    assert_eq!(faults(&told, |told| told.ours, (6.0, 4.0), (88.0, 100.0)), [] as [&str; 0]);
    let before = faults(&told, |told| told.previous, (10.0, 5.0), (88.0, 100.0));
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
        assert!(share >= 88.0, "{:?} {}: {share:.1} % in range", line.patience, line.leaving);
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
    for (name, scenario) in [("halved", halved), ("doubled", doubled), ("two servers", two)] {
        say(name);
        let mut told = told_in(std::slice::from_ref(&scenario));
        told.retain(|told| !told.at_join && (scenario.change.is_none() || told.after_change));
        assert_eq!(faults(&told, |told| told.ours, (3.0, 2.0), (84.0, 100.0)), [] as [&str; 0], "{name}");
    }
}

/// A server that starts again goes on with what it had learnt, if somebody keeps it.
#[test]
fn what_was_learnt_survives_a_restart() {
    let line = Scenario { restarts: true, ..small(Patience::Even(0.42), 0.35, 1) };
    let told: Vec<_> = told_in(&[line]).into_iter().filter(|told| told.at_join).collect();
    assert_eq!(faults(&told, |told| told.ours, (5.0, 3.0), (88.0, 100.0)), [] as [&str; 0]);
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
    let mut told: Vec<_> = (1..=seeds(4)).flat_map(|seed| run(&line, seed)).collect();
    told.retain(|told| told.at_join && told.actual_s > 5.0);
    assert_eq!(faults(&told, |told| told.ours, (8.0, 5.0), (84.0, 100.0)), [] as [&str; 0]);
}
