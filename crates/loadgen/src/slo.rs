//! Service level objectives (SLOs): limits that the operator sets for a run.

use std::{str::FromStr, time::Duration};

use crate::{
    frame::{Latencies, unpack},
    report::{Check, Judgement, Report},
};

/// What is measured, and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    /// A percentile (0 to 1) of the latency from the intended start, at most this long.
    Percentile(f64, Duration),
    Mean(Duration),
    Max(Duration),
    /// The share of calls that failed, at most.
    Errors(f64),
    /// The share of slots that were used, at least.
    SlotUse(f64),
    /// The mean of each user's error of the expected wait, as a share of that user's wait, at most.
    EtaMape(f64),
    /// The mean error of the expected wait as a share of the mean wait, at most.
    EtaError(f64),
    /// The share of the waits within the range told: at least and at most.
    EtaCoverage(f64, f64),
}

/// What a figure may be.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Between(f64, f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
            Self::Between(least, most) => (least..=most).contains(&figure),
        }
    }
}

/// An objective, such as `p95=36ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    name: String,
    limit: String,
    measure: Measure,
}

const KNOWN: &str = "p50, p90, p95, p99, p999, max, mean (a duration), errors, slot-use, eta-error, eta-mape (a percentage), \
     eta-coverage (two percentages, such as 88-92%)";

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, limit) =
            text.split_once('=').ok_or(format!("{text}: write NAME=LIMIT, such as p95=36ms"))?;
        let time = || {
            duration(limit)
                .ok_or(format!("{text}: {limit} is not a duration; write one such as 36ms, 1.5s, 800us"))
        };
        let part = || {
            let number = limit.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
            let number = number.filter(|percent| (0.0..=1000.0).contains(percent));
            number
                .map(|percent| percent / 100.0)
                .ok_or(format!("{text}: {limit} is not a percentage; write one such as 0.1%"))
        };
        let measure = match name {
            "p50" => Measure::Percentile(0.5, time()?),
            "p90" => Measure::Percentile(0.9, time()?),
            "p95" => Measure::Percentile(0.95, time()?),
            "p99" => Measure::Percentile(0.99, time()?),
            "p999" => Measure::Percentile(0.999, time()?),
            "mean" => Measure::Mean(time()?),
            "max" => Measure::Max(time()?),
            "errors" => Measure::Errors(part()?),
            "slot-use" => Measure::SlotUse(part()?),
            "eta-mape" => Measure::EtaMape(part()?),
            "eta-error" => Measure::EtaError(part()?),
            "eta-coverage" => {
                let (low, high) = between(limit).ok_or(format!(
                    "{text}: {limit} are not two percentages in order; write two such as 88-92%"
                ))?;
                Measure::EtaCoverage(low, high)
            }
            _ => return Err(format!("{text}: {name} is unknown; known are {KNOWN}")),
        };
        Ok(Self { name: name.to_owned(), limit: limit.to_owned(), measure })
    }
}

/// Two percentages in order, of at most 100.
fn between(text: &str) -> Option<(f64, f64)> {
    let (low, high) = text.strip_suffix('%')?.split_once('-')?;
    let part = |text: &str| {
        let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok()?;
        (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
    };
    Some((part(low)?, part(high)?)).filter(|(low, high)| low <= high)
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let seconds = number.parse::<f64>().ok()?
        * match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return None,
        };
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero())
}

#[allow(clippy::cast_precision_loss)]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

impl Slo {
    /// Checks the objective against a report.
    #[must_use]
    pub fn check(&self, report: &Report) -> Check {
        let all = unpack(&report.all.histogram).filter(|all| !all.is_empty());
        let slot_use =
            report.checks.iter().find(|check| check.name == "slot_use").and_then(|check| check.figure);
        let calls = report.counters.wait_requests_total + report.counters.entry_requests_total;
        let told = |figure| (report.eta.users > 0).then_some(figure);
        let errors = report.failures.iter().map(|failure| failure.count).sum();
        let (figure, bound) = match self.measure {
            Measure::Percentile(part, limit) => {
                (all.map(|all| quantile_s(&all, part)), Bound::AtMost(limit.as_secs_f64()))
            }
            Measure::Mean(limit) => (all.map(|all| all.mean() / 1e6), Bound::AtMost(limit.as_secs_f64())),
            Measure::Max(limit) => (all.map(|all| quantile_s(&all, 1.0)), Bound::AtMost(limit.as_secs_f64())),
            Measure::Errors(limit) => ((calls > 0).then(|| ratio(errors, calls)), Bound::AtMost(limit)),
            Measure::SlotUse(limit) => (slot_use, Bound::AtLeast(limit)),
            Measure::EtaMape(limit) => (told(report.eta.mape), Bound::AtMost(limit)),
            Measure::EtaError(limit) => (told(report.eta.error), Bound::AtMost(limit)),
            Measure::EtaCoverage(low, high) => (told(report.eta.coverage), Bound::Between(low, high)),
        };
        let holds = figure.map(|figure| bound.holds(figure));
        let (name, limit) = (&self.name, &self.limit);
        let (judgement, result, result_ko) = match (holds, figure) {
            (Some(holds), Some(figure)) => {
                let is = self.words(figure);
                let judgement = if holds { Judgement::Good } else { Judgement::Bad };
                (judgement, format!("it is {is}"), format!("실제는 {}입니다.", is.replace(' ', "")))
            }
            _ => (
                Judgement::Open,
                "this run does not show it, so the objective counts as missed".to_owned(),
                "이번 실행으로는 알 수 없어 지킨 것으로 보지 않습니다.".to_owned(),
            ),
        };
        let (bound, bound_ko) = match bound {
            Bound::AtMost(_) => ("at most ", " 이하"),
            Bound::AtLeast(_) => ("at least ", " 이상"),
            Bound::Between(..) => ("within ", " 이내"),
        };
        Check {
            name: format!("slo:{name}"),
            judgement,
            count: u64::from(judgement != Judgement::Good),
            figure,
            note: format!("{name} must be {bound}{limit}; {result}."),
            note_ko: format!("{name} 목표는 {limit}{bound_ko}입니다. {result_ko}"),
            ..Check::default()
        }
    }

    fn words(&self, figure: f64) -> String {
        match self.measure {
            Measure::Percentile(..) | Measure::Mean(_) | Measure::Max(_) => {
                format!("{:.2} ms", figure * 1000.0)
            }
            _ => format!("{:.2} %", figure * 100.0),
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn quantile_s(latencies: &Latencies, part: f64) -> f64 {
    latencies.value_at_quantile(part) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Eta;

    #[test]
    fn objectives_are_read() {
        let measure = |text: &str| text.parse::<Slo>().expect("an objective").measure;
        assert_eq!(measure("p95=36ms"), Measure::Percentile(0.95, Duration::from_millis(36)));
        assert_eq!(measure("max=1.5s"), Measure::Max(Duration::from_millis(1500)));
        assert_eq!(measure("mean=800us"), Measure::Mean(Duration::from_micros(800)));
        assert_eq!(measure("errors=0.1%"), Measure::Errors(0.001));
        assert_eq!(measure("slot-use=97%"), Measure::SlotUse(0.97));
        assert_eq!(measure("eta-error=10%"), Measure::EtaError(0.1));
        assert_eq!(measure("eta-coverage=88-92%"), Measure::EtaCoverage(0.88, 0.92));
        assert_eq!(measure("eta-coverage=88%-100%"), Measure::EtaCoverage(0.88, 1.0));
    }

    /// Both figures are of the report's told waits; without any, the objectives count as missed.
    #[test]
    fn told_waits_are_held_to_their_objectives() {
        let judgement = |text: &str, users| {
            let mut report = crate::html::tests::report("", 1);
            report.eta = Eta { users, mape: 0.3, error: 0.1, coverage: 0.9, ..Eta::default() };
            text.parse::<Slo>().expect("an objective").check(&report).judgement
        };
        for text in ["eta-error=10%", "eta-coverage=88-92%", "eta-coverage=90-90%", "eta-mape=30%"] {
            assert_eq!(judgement(text, 5), Judgement::Good, "{text}");
            assert_eq!(judgement(text, 0), Judgement::Open, "{text}");
        }
        for text in ["eta-error=9.9%", "eta-coverage=91-100%", "eta-coverage=0-89%", "eta-mape=29%"] {
            assert_eq!(judgement(text, 5), Judgement::Bad, "{text}");
        }
    }

    #[test]
    fn invalid_objectives_are_refused_in_a_line() {
        let bad_ranges = ["=90%", "=92-88%", "=88-92", "=88-101%", "=-1-90%", "=NaN-92%", "=88-%", "="];
        let bad_ranges = bad_ranges.map(|limit| format!("eta-coverage{limit}"));
        let others =
            ["p95", "p95=", "p95=36", "p95=-1ms", "p95=0ms", "p96=1ms", "errors=0.1", "errors=x%", "p95=1 h"];
        let others = others.into_iter().chain(["eta-error=10", "eta-error=88-92%"]);
        for text in others.chain(bad_ranges.iter().map(String::as_str)) {
            let said = text.parse::<Slo>().expect_err("refused");
            assert!(said.starts_with(text) && !said.contains('\n'), "{said}");
        }
    }
}
