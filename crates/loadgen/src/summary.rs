//! The report on the terminal.

use crate::{
    conclusion,
    format::float,
    report::{Judgement, Latency, Report},
};

/// The report as a few lines of text.
pub(crate) fn of(report: &Report) -> String {
    let counters = &report.counters;
    let mut lines = vec![
        format!(
            "{} against {} ({}), {} users at most, {:.0} s{}{}",
            report.plan.profile,
            report.plan.target,
            report.plan.zone,
            report.plan.users,
            f64::from(report.lasted_ms) / 1000.0,
            if report.interrupted { ", interrupted" } else { "" },
            if report.runs.len() > 1 {
                format!(", {} runs merged", report.runs.len())
            } else {
                String::new()
            }
        ),
        format!(
            "wait_requests_total {}  entry_requests_total {}  can_enter_true_count {}  can_enter_false_count {}",
            counters.wait_requests_total,
            counters.entry_requests_total,
            counters.can_enter_true_count,
            counters.can_enter_false_count
        ),
    ];
    for (name, latencies) in [("wait", &report.wait), ("entry", &report.entry), ("all", &report.all)] {
        lines.push(latency(name, latencies));
    }
    let (due, made) = report.seconds.iter().fold((0_u64, 0_u64), |(due, made), second| {
        let calls = second.wait_calls + second.entry_calls + second.errors;
        (due + u64::from(second.due), made + u64::from(calls))
    });
    let streams = &report.streams;
    if report.plan.streams > 0 {
        let open = report.seconds.iter().map(|second| second.streams).max().unwrap_or(0);
        lines.push(format!(
            "streams {open} open at most  {} opened  {} of them reconnects  {} refused  {} events",
            streams.opened, streams.reconnected, streams.refused, streams.events
        ));
    }
    // A few calls are always in flight.
    if due > made + made / 100 {
        lines.push(format!(
            "{made} calls were made; {due} would have been due if every reply had come at once. Users do not ask again \
             while they wait for a reply"
        ));
    }
    lines.extend(report.failures.iter().map(|failure| {
        format!("failed: {} x {}, first at {} ms", failure.count, failure.what, failure.first_ms)
    }));
    lines.extend(
        report.bottleneck.iter().map(|lag| {
            format!("the generator was the bottleneck from second {} on: {}", lag.from_s, lag.why)
        }),
    );
    for check in &report.checks {
        let judged = match check.judgement {
            Judgement::Good => "good",
            Judgement::Bad => "BAD ",
            Judgement::Open => "open",
        };
        lines.push(format!("{judged}  {}: {}", check.name, check.note));
        if !check.worst.is_empty() {
            lines.push(format!("      worst: {}", check.worst));
        }
    }
    let count = |judgement| report.checks.iter().filter(|check| check.judgement == judgement).count();
    let [good, bad, open] = [Judgement::Good, Judgement::Bad, Judgement::Open].map(count);
    let conclusion = conclusion::of(report);
    let verdict = match conclusion.outcome {
        Judgement::Good => "good",
        Judgement::Bad => "BAD",
        Judgement::Open => "open",
    };
    let interrupted = if report.interrupted { ", interrupted" } else { "" };
    lines.push(format!("verdict: {verdict}{interrupted} ({good} good, {bad} bad, {open} open)"));
    lines.push(conclusion.headline.en.into_owned());
    lines.join("\n") + "\n"
}

fn latency(name: &str, latency: &Latency) -> String {
    let [p50, p90, p95, p99, p999, max] = latency.percentiles_us.map(|us| float(us) / 1000.0);
    format!(
        "{name:<6} {:>9} calls  mean {:.2}  p50 {p50:.2}  p90 {p90:.2}  p95 {p95:.2}  p99 {p99:.2}  p99.9 {p999:.2}  \
         max {max:.2} ms",
        latency.count,
        latency.mean_us / 1000.0
    )
}
