//! Adds up what workers or machines measured, and makes the report.
//!
//! Invariant: the result is exact. Counts and histograms are added, stories are appended, and everything that is not a
//! sum (percentiles, verdict, objectives) is computed from them.

use std::collections::BTreeMap;

use crate::{
    format::grouped,
    frame::{Latencies, no_latencies, pack},
    lag,
    paper::Paper,
    promise_checks, report,
    report::{Check, Counters, Failure, GENERATOR, Judgement, Latency, Plan, Report, Second, Streams},
    slo::Slo,
    story::Story,
};

/// The measurements so far.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// Each second with the latencies of its calls.
    pub seconds: Vec<(Second, Latencies)>,
    /// Latencies of `wait`.
    pub wait: Latencies,
    /// Latencies of `entry`.
    pub entry: Latencies,
    /// The counters.
    pub counters: Counters,
    /// What became of the streams.
    pub streams: Streams,
    /// Failures by kind: their number, and the time of the first.
    pub failures: BTreeMap<String, (u64, u32)>,
    /// The stories.
    pub stories: Vec<Story>,
    /// What users fetched of a draw.
    pub papers: Vec<Paper>,
    /// A random number of each run.
    pub runs: Vec<String>,
    /// The duration, milliseconds.
    pub lasted_ms: u32,
    /// The run was stopped early.
    pub interrupted: bool,
    /// What failed in the generator itself.
    pub broken: Vec<String>,
}

impl Default for Gathered {
    fn default() -> Self {
        Self {
            seconds: Vec::new(),
            wait: no_latencies(),
            entry: no_latencies(),
            counters: Counters::default(),
            streams: Streams::default(),
            failures: BTreeMap::new(),
            stories: Vec::new(),
            papers: Vec::new(),
            runs: Vec::new(),
            lasted_ms: 0,
            interrupted: false,
            broken: Vec::new(),
        }
    }
}

/// Adds a histogram. Both resize, so no value is out of range.
pub fn add(to: &mut Latencies, from: &Latencies) {
    let _ = to.add(from);
}

impl Gathered {
    fn at(&mut self, at: usize) -> &mut (Second, Latencies) {
        if self.seconds.len() <= at {
            self.seconds.resize_with(at + 1, || (Second::default(), no_latencies()));
        }
        &mut self.seconds[at]
    }

    /// Adds the counts and latencies of a second.
    pub fn add_second(&mut self, at: usize, more: &Second, latencies: &Latencies) {
        let (second, all) = self.at(at);
        second.users += more.users;
        second.waiting += more.waiting;
        second.wait_calls += more.wait_calls;
        second.entry_calls += more.entry_calls;
        second.due += more.due;
        second.entered += more.entered;
        second.errors += more.errors;
        second.stale += more.stale;
        second.streams += more.streams;
        second.stream_events += more.stream_events;
        second.lag_us = second.lag_us.max(more.lag_us);
        second.cpu_millicores += more.cpu_millicores;
        add(all, latencies);
    }

    /// Adds the calls that were due in each second.
    pub fn add_due(&mut self, due: &[u32]) {
        for (at, due) in due.iter().enumerate() {
            self.at(at).0.due += due;
        }
    }

    /// Adds counters.
    pub fn add_counters(&mut self, more: &Counters) {
        self.counters.wait_requests_total += more.wait_requests_total;
        self.counters.entry_requests_total += more.entry_requests_total;
        self.counters.can_enter_true_count += more.can_enter_true_count;
        self.counters.can_enter_false_count += more.can_enter_false_count;
    }

    /// Adds what became of streams.
    pub fn add_streams(&mut self, more: &Streams) {
        self.streams.opened += more.opened;
        self.streams.reconnected += more.reconnected;
        self.streams.refused += more.refused;
        self.streams.events += more.events;
    }

    /// Adds failures.
    pub fn add_failures(&mut self, more: &[Failure]) {
        for failure in more {
            let known = self.failures.entry(failure.what.clone()).or_insert((0, failure.first_ms));
            *known = (known.0 + failure.count, known.1.min(failure.first_ms));
        }
    }

    /// The report.
    #[must_use]
    pub fn report(&self, plan: Plan, slos: &[Slo]) -> Report {
        let mut all = self.wait.clone();
        add(&mut all, &self.entry);
        let seconds: Vec<_> = self
            .seconds
            .iter()
            .map(|(second, latencies)| Second { latency_us: percentiles(latencies), ..second.clone() })
            .collect();
        let mut failures: Vec<_> = self
            .failures
            .iter()
            .map(|(what, &(count, first_ms))| Failure { what: what.clone(), count, first_ms })
            .collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        let (mut checks, eta) = promise_checks::judge(&plan, self.lasted_ms, &self.stories, &self.papers);
        let gave_no_places = promise_checks::gave_no_places(&self.stories);
        let bottleneck = lag::bottleneck(&seconds);
        if bottleneck.is_some() {
            checks.iter_mut().for_each(leave_slot_use_open);
        }
        let mut report = Report {
            schema: report::SCHEMA,
            plan,
            lasted_ms: self.lasted_ms,
            interrupted: self.interrupted,
            runs: self.runs.clone(),
            gave_no_places,
            bottleneck,
            seconds,
            counters: self.counters,
            streams: self.streams,
            wait: latency(&self.wait),
            entry: latency(&self.entry),
            all: latency(&all),
            failures,
            checks,
            eta,
        };
        let errors = report.checks.iter_mut().find(|check| check.name == "errors");
        if let Some(errors) = errors.filter(|_| !gave_no_places) {
            name_failed_calls(errors, report.all.count, &report.failures);
        }
        let slos: Vec<_> = slos.iter().map(|slo| slo.check(&report)).collect();
        report.checks.extend(slos);
        if !self.broken.is_empty() {
            report.checks.push(Check {
                name: GENERATOR.to_owned(),
                judgement: Judgement::Open,
                count: self.broken.len() as u64,
                note: format!("The run itself failed: {}.", self.broken.join("; ")),
                note_ko: format!("실행 자체에 문제가 있었습니다: {}.", self.broken.join("; ")),
                ..Check::default()
            });
        }
        report
    }
}

/// Users may all be answered in the end although many of their calls failed, so both are said. `answered` is the number of calls that
/// were answered.
fn name_failed_calls(check: &mut Check, answered: u64, failures: &[Failure]) {
    let failed: u64 = failures.iter().map(|failure| failure.count).sum();
    if failed == 0 {
        return;
    }
    let (failed, calls) = (grouped(failed), grouped(answered + failed));
    check.note.push_str(&format!(" Of {calls} calls, {failed} failed (streams included); an objective can limit them (--slo errors=0.1%)."));
    check.note_ko.push_str(&format!(
        " 요청 {calls}건 중 {failed}건이 실패했습니다(스트림 포함). 목표로 제한할 수 있습니다(--slo errors=0.1%)."
    ));
}

/// Users of a slow generator ask late for their slots, so the server is not to blame for unused slots.
fn leave_slot_use_open(check: &mut Check) {
    if check.name == "slot_use" && check.judgement == Judgement::Bad {
        check.judgement = Judgement::Open;
        check.note.push_str(" The generator was the bottleneck, so its users may have asked too late.");
        check.note_ko.push_str(" 부하 생성기가 병목이어서 사용자가 제때 요청하지 못한 탓일 수 있습니다.");
    }
}

fn percentiles(latencies: &Latencies) -> [u32; 5] {
    if latencies.is_empty() {
        return [0; 5];
    }
    [0.5, 0.9, 0.95, 0.99, 1.0]
        .map(|part| u32::try_from(latencies.value_at_quantile(part)).unwrap_or(u32::MAX))
}

fn latency(latencies: &Latencies) -> Latency {
    if latencies.is_empty() {
        return Latency::default();
    }
    Latency {
        count: latencies.len(),
        mean_us: latencies.mean(),
        percentiles_us: [0.5, 0.9, 0.95, 0.99, 0.999, 1.0].map(|part| latencies.value_at_quantile(part)),
        histogram: pack(latencies),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_generator_leaves_slot_use_undecided() {
        let bad = |name: &str| Check {
            name: name.to_owned(),
            judgement: Judgement::Bad,
            figure: Some(0.5),
            ..Check::default()
        };
        let (mut slots, mut order) = (bad("slot_use"), bad("order"));
        leave_slot_use_open(&mut slots);
        leave_slot_use_open(&mut order);
        assert_eq!((slots.judgement, slots.figure), (Judgement::Open, Some(0.5)));
        assert!(slots.note.contains("bottleneck") && slots.note_ko.contains("병목"), "{slots:?}");
        assert_eq!(order.judgement, Judgement::Bad);
    }
}
