//! Service level objectives (SLOs): limits that the operator sets for a run.
//!
//! Invariants: a failed call is slower than any limit of a percentile, so a server that answers few calls does not pass
//! with those. An objective is good only if the run made enough calls to show it; otherwise it is open.

use std::{str::FromStr, time::Duration};

use crate::{
    bilingual::{Bilingual, bilingual},
    frame::{Latencies, unpack},
    report::{Check, Judgement, Latency, Limit, Report, Unit},
};

/// Whose calls are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    All,
    Wait,
    Entry,
}

impl Calls {
    /// The latencies of the calls that were answered, and the number of all of them.
    fn of(self, report: &Report) -> (&Latency, u64) {
        let counters = &report.counters;
        let (wait, entry) = (counters.wait_requests_total, counters.entry_requests_total);
        match self {
            Self::All => (&report.all, wait + entry),
            Self::Wait => (&report.wait, wait),
            Self::Entry => (&report.entry, entry),
        }
    }
}

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

impl Measure {
    fn limit(self) -> Limit {
        let at_most = |most, unit| Limit { at_least: None, at_most: Some(most), unit };
        match self {
            Self::Percentile(_, most) | Self::Mean(most) | Self::Max(most) => {
                at_most(most.as_secs_f64(), Unit::Seconds)
            }
            Self::Errors(most) | Self::EtaMape(most) | Self::EtaError(most) => at_most(most, Unit::Share),
            Self::SlotUse(least) => Limit { at_least: Some(least), at_most: None, unit: Unit::Share },
            Self::EtaCoverage(least, most) => {
                Limit { at_least: Some(least), at_most: Some(most), unit: Unit::Share }
            }
        }
    }

    /// Whether it is measured for one kind of calls, too.
    fn is_of_calls(self) -> bool {
        matches!(self, Self::Percentile(..) | Self::Mean(_) | Self::Max(_) | Self::Errors(_))
    }

    /// The least number of calls that shows it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn least_calls(self) -> u64 {
        let of_share = |share: f64| (1.0 / share.clamp(1e-6, 1.0) - 1e-9).ceil() as u64;
        match self {
            Self::Percentile(part, _) => of_share(1.0 - part),
            Self::Errors(most) if most > 0.0 => of_share(most),
            _ => 1,
        }
    }
}

impl Limit {
    fn holds(self, figure: f64) -> bool {
        self.at_least.is_none_or(|least| figure >= least) && self.at_most.is_none_or(|most| figure <= most)
    }
}

/// An objective, such as `p95=36ms` or `entry:p95=36ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    name: String,
    limit: String,
    calls: Calls,
    measure: Measure,
}

const KNOWN: &str = "p50, p90, p95, p99, p999, max, mean (a duration), errors (a percentage), each also as wait:p95 or entry:p95; \
     slot-use, eta-error, eta-mape (a percentage), eta-coverage (two percentages, such as 88-92%)";

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
        // An error of the told wait may be larger than the wait; a share is of all calls or slots.
        let share = || {
            part().and_then(|share| {
                (share <= 1.0)
                    .then_some(share)
                    .ok_or(format!("{text}: {limit} is more than all; write at most 100%"))
            })
        };
        let (calls, what) = match name.split_once(':') {
            None => (Calls::All, name),
            Some(("wait", what)) => (Calls::Wait, what),
            Some(("entry", what)) => (Calls::Entry, what),
            Some((call, _)) => {
                return Err(format!(
                    "{text}: {call} is not a call; write wait:NAME=LIMIT or entry:NAME=LIMIT"
                ));
            }
        };
        let measure = match what {
            "p50" => Measure::Percentile(0.5, time()?),
            "p90" => Measure::Percentile(0.9, time()?),
            "p95" => Measure::Percentile(0.95, time()?),
            "p99" => Measure::Percentile(0.99, time()?),
            "p999" => Measure::Percentile(0.999, time()?),
            "mean" => Measure::Mean(time()?),
            "max" => Measure::Max(time()?),
            "errors" => Measure::Errors(share()?),
            "slot-use" => Measure::SlotUse(share()?),
            "eta-mape" => Measure::EtaMape(part()?),
            "eta-error" => Measure::EtaError(part()?),
            "eta-coverage" => {
                let (low, high) = between(limit).ok_or(format!(
                    "{text}: {limit} are not two percentages in order; write two such as 88-92%"
                ))?;
                Measure::EtaCoverage(low, high)
            }
            _ => return Err(format!("{text}: {what} is unknown; known are {KNOWN}")),
        };
        if calls != Calls::All && !measure.is_of_calls() {
            return Err(format!("{text}: {what} is not of one call; write {what}={limit}"));
        }
        Ok(Self { name: name.to_owned(), limit: limit.to_owned(), calls, measure })
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

/// What a run shows of an objective.
enum Finding {
    Figure(f64),
    /// More calls failed than the percentile leaves out: this share.
    Failed(f64),
    /// The run does not show it, and what it takes.
    Nothing(Bilingual),
}

impl Slo {
    /// Checks the objective against a report.
    #[must_use]
    pub fn check(&self, report: &Report) -> Check {
        let bounds = self.measure.limit();
        let (judgement, figure, result) = match self.find(report) {
            Finding::Figure(figure) if !bounds.holds(figure) => {
                let is = self.words(figure);
                let is_ko = is.replace(' ', "");
                let result = bilingual!("it is {is}", "실제는 {is_ko}입니다.");
                (Judgement::Bad, Some(figure), result)
            }
            Finding::Figure(figure) => {
                let is = self.words(figure);
                let is_ko = is.replace(' ', "");
                let (calls, least) = (self.calls.of(report).1, self.measure.least_calls());
                if self.measure.is_of_calls() && calls < least {
                    let result = bilingual!(
                        "it is {is}, but {calls} calls do not show it: it takes at least {least}",
                        "실제는 {is_ko}이지만, 요청이 {calls}건뿐이어서 판정할 수 없습니다. {least}건 이상이 필요합니다."
                    );
                    (Judgement::Open, Some(figure), result)
                } else {
                    let result = bilingual!("it is {is}", "실제는 {is_ko}입니다.");
                    (Judgement::Good, Some(figure), result)
                }
            }
            Finding::Failed(share) => {
                let percent = 100.0 * share;
                let result = bilingual!(
                    "{percent:.1} % of the calls failed, so it was missed",
                    "요청의 {percent:.1}%가 실패해 이루지 못했습니다."
                );
                (Judgement::Bad, None, result)
            }
            Finding::Nothing(result) => (Judgement::Open, None, result),
        };
        let (name, limit) = (&self.name, &self.limit);
        let (bound, bound_ko) = match (bounds.at_least, bounds.at_most) {
            (None, _) => ("at most ", " 이하"),
            (Some(_), None) => ("at least ", " 이상"),
            (Some(_), Some(_)) => ("within ", " 이내"),
        };
        Check {
            name: format!("slo:{name}"),
            judgement,
            count: u64::from(judgement == Judgement::Bad),
            figure,
            limit: Some(bounds),
            note: format!("{name} must be {bound}{limit}; {}.", result.en),
            note_ko: format!("{name} 목표는 {limit}{bound_ko}입니다. {}", result.ko),
            ..Check::default()
        }
    }

    fn find(&self, report: &Report) -> Finding {
        let (latency, calls) = self.calls.of(report);
        let answered = unpack(&latency.histogram).filter(|answered| !answered.is_empty());
        let failed = calls.saturating_sub(latency.count);
        let failed_share = ratio(failed, calls);
        let no_call = || {
            Finding::Nothing(Bilingual::fixed(
                "no such call was answered, so this run does not show it",
                "그런 요청이 응답을 받지 못해 이번 실행으로는 알 수 없습니다.",
            ))
        };
        let told = |figure| {
            if report.eta.users > 0 {
                return Finding::Figure(figure);
            }
            Finding::Nothing(Bilingual::fixed(
                "nobody was told a wait and entered: it takes a run in which some of those who wait enter",
                "예상 대기 시간을 듣고 입장한 사용자가 없습니다. 기다리던 사용자가 입장할 때까지 실행해야 합니다.",
            ))
        };
        match self.measure {
            _ if report.gave_no_places => Finding::Nothing(Bilingual::fixed(
                "the zone gave no places, so nothing was rehearsed",
                "구역이 아무에게도 자리를 주지 않아 리허설이 이루어지지 않았습니다.",
            )),
            Measure::Percentile(part, _) if failed_share > 1.0 - part + 1e-9 => Finding::Failed(failed_share),
            Measure::Percentile(part, _) => answered.map_or_else(no_call, |answered| {
                // The failed calls are the slowest, so the place among the answered ones is higher.
                let part = (part / (1.0 - failed_share)).min(1.0);
                Finding::Figure(quantile_s(&answered, part))
            }),
            Measure::Mean(_) => {
                answered.map_or_else(no_call, |answered| Finding::Figure(answered.mean() / 1e6))
            }
            Measure::Max(_) => {
                answered.map_or_else(no_call, |answered| Finding::Figure(quantile_s(&answered, 1.0)))
            }
            Measure::Errors(_) if calls == 0 => no_call(),
            // The failures of streams belong to no call, so each counts as one more.
            Measure::Errors(_) if self.calls == Calls::All => {
                let failures: u64 = report.failures.iter().map(|failure| failure.count).sum();
                Finding::Figure(ratio(failures, latency.count + failures))
            }
            Measure::Errors(_) => Finding::Figure(failed_share),
            Measure::SlotUse(_) => {
                let slot_use = report.checks.iter().find(|check| check.name == "slot_use");
                slot_use.and_then(|check| check.figure).map_or_else(
                    || {
                        Finding::Nothing(Bilingual::fixed(
                            "this run does not show it; the check slot_use says what it takes",
                            "이번 실행으로는 알 수 없습니다. 무엇이 필요한지는 slot_use 항목에 있습니다.",
                        ))
                    },
                    Finding::Figure,
                )
            }
            Measure::EtaMape(_) => told(report.eta.mape),
            Measure::EtaError(_) => told(report.eta.error),
            Measure::EtaCoverage(..) => told(report.eta.coverage),
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
        assert_eq!(measure("errors=100%"), Measure::Errors(1.0));
        assert_eq!(measure("eta-error=150%"), Measure::EtaError(1.5));
        assert_eq!(measure("eta-error=10%"), Measure::EtaError(0.1));
        assert_eq!(measure("eta-coverage=88-92%"), Measure::EtaCoverage(0.88, 0.92));
        assert_eq!(measure("eta-coverage=88%-100%"), Measure::EtaCoverage(0.88, 1.0));
    }

    /// Both figures are of the report's told waits; without any, the objectives stay open.
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
    fn each_call_has_its_objectives() {
        let latencies = |us: &[u64]| {
            let mut latencies = crate::frame::no_latencies();
            for &us in us {
                latencies.record(us).expect("in range");
            }
            Latency {
                count: latencies.len(),
                histogram: crate::frame::pack(&latencies),
                ..Latency::default()
            }
        };
        let mut report = crate::html::tests::report("", 1);
        report.failures.clear();
        report.wait = latencies(&[900_000; 100]);
        report.entry = latencies(&[10_000; 900]);
        report.all = latencies(&[[900_000; 100].as_slice(), &[10_000; 900]].concat());
        (report.counters.wait_requests_total, report.counters.entry_requests_total) = (100, 1_000);
        let check = |text: &str| text.parse::<Slo>().expect("an objective").check(&report);
        for (text, expected) in [
            ("p50=20ms", Judgement::Good),
            ("entry:p50=20ms", Judgement::Good),
            ("wait:p50=20ms", Judgement::Bad),
            ("wait:p99=1s", Judgement::Good),
            ("wait:max=1s", Judgement::Good),
            ("wait:mean=800ms", Judgement::Bad),
            ("wait:errors=0%", Judgement::Good),
            ("entry:errors=9%", Judgement::Bad),
            ("entry:errors=10%", Judgement::Good),
            // A tenth of the calls failed, so nothing is known of the slowest tenth.
            ("entry:p90=20ms", Judgement::Good),
            ("entry:p95=20ms", Judgement::Bad),
            // One call in 1,000 or 10,000 cannot be seen among 100.
            ("wait:p999=1s", Judgement::Open),
            ("wait:errors=0.5%", Judgement::Open),
        ] {
            let check = check(text);
            assert_eq!(check.judgement, expected, "{text}: {check:?}");
            assert!(check.limit.is_some() && !check.note_ko.is_empty(), "{check:?}");
            let name = text.split_once('=').expect("a limit").0;
            assert_eq!(check.name, format!("slo:{name}"));
        }
        assert!(check("wait:p999=1s").note.contains("at least 1000"), "it says how many it takes");
        assert!(check("entry:p95=20ms").note.contains("10.0 % of the calls failed"));
        let no_entry = Report { entry: Latency::default(), ..report.clone() };
        let check = "entry:mean=1s".parse::<Slo>().expect("an objective").check(&no_entry);
        assert_eq!((check.judgement, check.figure), (Judgement::Open, None));
    }

    /// A stream may fail more often than calls are made, as each listener makes one.
    #[test]
    fn the_share_of_failures_is_at_most_all() {
        let mut report = crate::html::tests::report("", 1);
        (report.counters.wait_requests_total, report.counters.entry_requests_total) = (10, 0);
        report.all.count = 10;
        report.failures[0].count = 30;
        let check = "errors=80%".parse::<Slo>().expect("an objective").check(&report);
        assert_eq!((check.judgement, check.figure), (Judgement::Good, Some(0.75)), "{check:?}");
    }

    #[test]
    fn a_zone_that_gave_no_places_misses_no_objective() {
        let mut report = crate::html::tests::report("", 1);
        report.gave_no_places = true;
        for text in ["errors=0%", "p95=1us", "wait:max=1us", "slot-use=97%", "eta-error=1%"] {
            let check = text.parse::<Slo>().expect("an objective").check(&report);
            assert_eq!(check.judgement, Judgement::Open, "{check:?}");
            assert!(
                check.note.contains("nothing was rehearsed") && check.note_ko.contains("리허설"),
                "{check:?}"
            );
        }
    }

    #[test]
    fn invalid_objectives_are_refused_in_a_line() {
        let bad_ranges = ["=90%", "=92-88%", "=88-92", "=88-101%", "=-1-90%", "=NaN-92%", "=88-%", "="];
        let bad_ranges = bad_ranges.map(|limit| format!("eta-coverage{limit}"));
        let others =
            ["p95", "p95=", "p95=36", "p95=-1ms", "p95=0ms", "p96=1ms", "errors=0.1", "errors=x%", "p95=1 h"];
        let others = others.into_iter().chain([
            "eta-error=10",
            "errors=200%",
            "entry:errors=100.1%",
            "slot-use=101%",
            "eta-error=88-92%",
            "join:p95=1s",
            "entry:slot-use=90%",
            "entry:=1s",
        ]);
        for text in others.chain(bad_ranges.iter().map(String::as_str)) {
            let said = text.parse::<Slo>().expect_err("refused");
            assert!(said.starts_with(text) && !said.contains('\n'), "{said}");
        }
    }
}
