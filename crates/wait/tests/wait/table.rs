//! The table that compares estimators, over all kinds of lines.

use std::io::Write as _;

use crate::{
    law::{Arrivals, Patience},
    line::{Scenario, Told, run},
};

/// Makes another line of a usual one.
type Change<'a> = &'a dyn Fn(&mut Scenario);

pub(crate) fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

pub(crate) fn seeds(default: u64) -> u64 {
    std::env::var("WEIR_WAIT_SEEDS")
        .map_or(default, |text| text.parse().expect("WEIR_WAIT_SEEDS is a number"))
}

/// Errors of an estimator in percent of the wait.
#[derive(Debug)]
pub(crate) struct Errors {
    pub(crate) absolute: f64,
    pub(crate) bias: f64,
}

pub(crate) fn errors(told: &[Told], of: impl Fn(&Told) -> f64) -> Errors {
    let (mut absolute, mut bias) = (0.0, 0.0);
    for told in told {
        let error = 100.0 * (of(told) / told.actual_s - 1.0);
        absolute += error.abs();
        bias += error;
    }
    let count = told.len().max(1) as f64;
    Errors { absolute: absolute / count, bias: bias / count }
}

/// The percentage of the waits that were within the range, and the mean width of the range in percent of the wait.
pub(crate) fn coverage(told: &[Told], of: impl Fn(&Told) -> [f64; 3]) -> (f64, f64) {
    let (mut covered, mut width) = (0.0, 0.0);
    for told in told {
        let [_, low, high] = of(told);
        covered += f64::from(u8::from((low..=high).contains(&told.actual_s)));
        width += (high - low) / told.actual_s;
    }
    let count = told.len().max(1) as f64;
    (100.0 * covered / count, 100.0 * width / count)
}

pub(crate) fn base() -> Scenario {
    Scenario {
        per_minute: 1_200,
        people: 12_000,
        arrivals: Arrivals::Burst(2.0),
        patience: Patience::Exponential,
        leaving: 0.35,
        leaving_before: None,
        scale_s: None,
        restarts: false,
        balks_s: f64::INFINITY,
        change: None,
        servers: 1,
        vanish_s: None,
        lines_before: 0,
    }
}

fn row(name: &str, told: &[Told]) {
    let told: Vec<Told> = told.iter().filter(|told| told.actual_s > 120.0).copied().collect();
    let ours = errors(&told, |told| told.ours[0]);
    let mut tenths = Vec::new();
    for tenth in 0..10 {
        let of: Vec<_> = told.iter().filter(|told| (told.place * 10.0) as usize == tenth).copied().collect();
        tenths.push(if of.len() < 30 {
            "-".to_owned()
        } else {
            format!("{:.0}", coverage(&of, |told| told.ours).0)
        });
    }
    let far: Vec<_> = told.iter().filter(|told| told.rank >= 10_000).copied().collect();
    let far = if far.is_empty() {
        "-".to_owned()
    } else {
        format!("{:.1}", errors(&far, |told| told.ours[0]).absolute)
    };
    let (covered, width) = coverage(&told, |told| told.ours);
    let (covered_before, width_before) = coverage(&told, |told| told.previous);
    say(&format!(
        "| {name} | {} | {:.0} | {:.0} | {:.1} | **{:.1}** | {:.1} | {far} | {:+.1} | {covered:.0} ({covered_before:.0}) | {width:.0} ({width_before:.0}) | {} |",
        told.len(),
        errors(&told, |told| told.naive_s).absolute,
        errors(&told, |told| told.last_entered_s).absolute,
        errors(&told, |told| told.previous[0]).absolute,
        ours.absolute,
        errors(&told, |told| told.floor_s).absolute,
        ours.bias,
        tenths.join(" "),
    ));
}

fn rows(name: &str, scenario: &Scenario) {
    let only = std::env::var("WEIR_WAIT_ONLY").unwrap_or_default();
    if !name.contains(&only) {
        return;
    }
    let mut told = Vec::new();
    for seed in 1..=seeds(10) {
        told.extend(run(scenario, seed));
    }
    let of = |which: &dyn Fn(&Told) -> bool| -> Vec<Told> {
        told.iter().filter(|told| which(told)).copied().collect()
    };
    if scenario.change.is_some() {
        row(&format!("{name}, after the change"), &of(&|told| told.after_change));
        return;
    }
    row(&format!("{name}, at the join"), &of(&|told| told.at_join));
    row(&format!("{name}, later"), &of(&|told| !told.at_join && told.gone >= 0.1));
}

#[test]
#[ignore = "prints figures"]
fn table() {
    say(
        "| line | told | rank x 60 / N | last to enter | before | **now** | floor | rank >= 10,000 | bias | in range (before) | width (before) | in range by tenth |",
    );
    say("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let laws = [
        ("exponential", Patience::Exponential),
        ("Weibull 0.6", Patience::Weibull(0.6)),
        ("Weibull 1.5", Patience::Weibull(1.5)),
        ("even", Patience::Even(0.0)),
        ("two classes", Patience::TwoClass(0.0)),
    ];
    for (lines_before, cold) in [(0, "cold"), (2, "warm")] {
        for leaving in [0.0, 0.35, 0.6] {
            for (law, patience) in laws {
                if leaving == 0.0 && !matches!(patience, Patience::Exponential) {
                    continue;
                }
                let patience = match patience {
                    Patience::Even(_) => Patience::Even((leaving * 1.2_f64).min(0.9)),
                    Patience::TwoClass(_) => Patience::TwoClass(leaving * 1.2),
                    other => other,
                };
                let scenario = Scenario { leaving, patience, lines_before, ..base() };
                rows(&format!("{cold} burst, {law}, {:.0} %", leaving * 100.0), &scenario);
            }
        }
    }
    let even = Patience::Even(0.42);
    let weibull = Patience::Weibull(0.6);
    for (lines_before, cold) in [(0, "cold"), (2, "warm")] {
        let with = |change: &dyn Fn(&mut Scenario)| {
            let mut scenario = Scenario { lines_before, ..base() };
            change(&mut scenario);
            scenario
        };
        let kinds: [(&str, Change<'_>); 17] = [
            ("120,000, even, 35 %", &|s| (s.people, s.per_minute, s.patience) = (120_000, 6_000, even)),
            ("120,000, Weibull 0.6, 35 %", &|s| {
                (s.people, s.per_minute, s.patience) = (120_000, 6_000, weibull);
            }),
            ("as loadgen plays it, 35 %", &|s| (s.patience, s.scale_s) = (Patience::Even(0.35), Some(60.0))),
            ("as loadgen plays it, 60 %", &|s| (s.patience, s.scale_s) = (Patience::Even(0.6), Some(60.0))),
            ("as loadgen plays it, 35 %, two minutes", &|s| {
                (s.patience, s.scale_s, s.per_minute) = (Patience::Even(0.35), Some(60.0), 3_600);
            }),
            ("1,800, exponential, 35 %", &|s| (s.people, s.per_minute) = (1_800, 120)),
            ("600 at 30 a minute, exponential, 35 %", &|s| (s.people, s.per_minute) = (600, 30)),
            ("flash crowd, 35 %", &|s| (s.people, s.arrivals) = (30_000, Arrivals::Flash(600.0))),
            ("steady, 35 %", &|s| (s.people, s.arrivals) = (60_000, Arrivals::Steady(1_800.0))),
            ("balking, 35 %", &|s| s.balks_s = 2_000.0),
            ("two servers, 35 %", &|s| s.servers = 2),
            ("exponential, 20 %", &|s| s.leaving = 0.2),
            ("Weibull 0.8, 50 %", &|s| (s.patience, s.leaving) = (Patience::Weibull(0.8), 0.5)),
            ("two classes, 50 %", &|s| (s.patience, s.leaving) = (Patience::TwoClass(0.6), 0.5)),
            ("exponential, 42 % after 35 %", &|s| {
                (s.leaving, s.leaving_before) = (0.42, Some(0.35));
            }),
            ("rate halved, 35 %", &|s| s.change = Some((0.4, 0.5))),
            ("rate doubled, 35 %", &|s| (s.change, s.people) = (Some((0.4, 2.0)), 24_000)),
        ];
        for (name, change) in kinds {
            if lines_before == 0 && with(change).leaving_before.is_some() {
                continue;
            }
            rows(&format!("{cold}, {name}"), &with(change));
        }
    }
}
