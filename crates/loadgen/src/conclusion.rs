//! What a run shows as a whole: one outcome and one sentence for the page, the terminal, the JSON and the exit code.
//!
//! Invariant: a verdict needs evidence. One failed check makes the whole bad. Otherwise one check that was not observed
//! leaves the whole open, and so does an interruption. A run that failed itself proves nothing, whatever its checks say. Only a complete
//! run in which everything was observed is good.

use serde::{Deserialize, Serialize};

use crate::{
    bilingual::{Bilingual, bilingual},
    exit::Exit,
    format::seconds,
    promise_checks::NO_PLACES,
    report::{Bottleneck, Check, GENERATOR, Judgement, Report},
};

/// The conclusion.
#[derive(Clone, Debug)]
pub(crate) struct Conclusion {
    /// The verdict.
    pub(crate) outcome: Judgement,
    /// How the program ends.
    pub(crate) exit: Exit,
    /// The verdict in a sentence.
    pub(crate) headline: Bilingual,
    /// What a reader has to know about it.
    pub(crate) remarks: Vec<Bilingual>,
}

/// The conclusion in the JSON of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The verdict.
    pub outcome: Judgement,
    /// The exit code of the program.
    pub exit_code: u8,
    /// The run was stopped early.
    pub interrupted: bool,
    /// The verdict in a sentence.
    pub sentence: String,
    /// [`sentence`](Self::sentence) in Korean.
    pub sentence_ko: String,
}

impl From<&Report> for Verdict {
    fn from(report: &Report) -> Self {
        let Conclusion { outcome, exit, headline, .. } = of(report);
        Self {
            outcome,
            exit_code: exit.code(),
            interrupted: report.interrupted,
            sentence: headline.en.into_owned(),
            sentence_ko: headline.ko.into_owned(),
        }
    }
}

/// How many checks and objectives have which outcome.
struct Counts {
    passed: usize,
    /// Checks that failed.
    failed: usize,
    /// Objectives that were missed.
    missed: usize,
    /// What was not observed, and matters.
    open: usize,
}

impl Counts {
    fn of(report: &Report) -> Self {
        let count = |is: &dyn Fn(&Check) -> bool| report.checks.iter().filter(|check| is(check)).count();
        Self {
            passed: count(&|check| check.judgement == Judgement::Good),
            failed: count(&|check| check.judgement == Judgement::Bad && !check.is_objective()),
            missed: count(&|check| check.judgement == Judgement::Bad && check.is_objective()),
            open: count(&Check::leaves_open),
        }
    }
}

/// The verdict of a run: open if the run itself failed; bad if a check is bad; otherwise open if one is open, if the run was interrupted,
/// or if nothing was judged; otherwise good.
#[must_use]
pub fn outcome(report: &Report) -> Judgement {
    let judges = || report.checks.iter().filter(|check| !check.only_measures());
    if failed(report) {
        Judgement::Open
    } else if report.checks.iter().any(|check| check.judgement == Judgement::Bad) {
        Judgement::Bad
    } else if report.interrupted || judges().count() == 0 || judges().any(Check::leaves_open) {
        Judgement::Open
    } else {
        Judgement::Good
    }
}

/// Whether the run itself failed. Then users are missing, and what the others saw may be due to that.
fn failed(report: &Report) -> bool {
    report.checks.iter().any(|check| check.name == GENERATOR)
}

/// The conclusion of a report.
pub(crate) fn of(report: &Report) -> Conclusion {
    let counts = Counts::of(report);
    let generator_failed = failed(report);
    let outcome = outcome(report);
    let exit = match outcome {
        _ if generator_failed => Exit::Failed,
        Judgement::Bad => Exit::Bad,
        Judgement::Open if report.interrupted => Exit::Interrupted,
        Judgement::Open => Exit::Open,
        Judgement::Good => Exit::Good,
    };
    let headline = match outcome {
        _ if generator_failed => Bilingual::fixed(
            "The run itself failed, so its result says little about the waiting room.",
            "실행 자체가 제대로 되지 않아, 이 결과로는 대기실을 판단하기 어렵습니다.",
        ),
        Judgement::Bad => bad(&counts),
        Judgement::Open => open(report, &counts),
        Judgement::Good => {
            let passed = counted(counts.passed, "check");
            let passed_ko = counts.passed;
            bilingual!(
                "The waiting room kept its promises: {passed} passed.",
                "대기실이 약속을 지켰습니다. {passed_ko}개 항목에서 아무 문제도 나오지 않았습니다."
            )
        }
    };
    Conclusion { outcome, exit, headline, remarks: remarks(report, &counts, outcome) }
}

fn bad(&Counts { failed, missed, .. }: &Counts) -> Bilingual {
    let (failed_checks, objectives) = (counted(failed, "check"), counted(missed, "objective"));
    match (failed, missed) {
        (0, _) => bilingual!(
            "The waiting room missed {objectives}.",
            "대기실이 정해 둔 목표 중 {missed}개를 이루지 못했습니다."
        ),
        (_, 0) => bilingual!(
            "The waiting room broke its promises: {failed_checks} failed.",
            "대기실이 약속을 어겼습니다. {failed}개 항목에서 문제가 나왔습니다."
        ),
        _ => bilingual!(
            "The waiting room broke its promises: {failed_checks} failed, and it missed {objectives}.",
            "대기실이 약속을 어겼습니다. {failed}개 항목에서 문제가 나왔고, 목표 {missed}개를 이루지 못했습니다."
        ),
    }
}

fn open(report: &Report, counts: &Counts) -> Bilingual {
    if report.interrupted {
        let (lasted, planned) = (seconds(report.lasted_ms), seconds(report.plan.planned_ms));
        return bilingual!(
            "There is no verdict: the run was interrupted after {lasted} of {planned}.",
            "계획한 {planned} 중 {lasted} 만에 중단된 실행이라 판정하지 않습니다."
        );
    }
    if report.gave_no_places {
        return NO_PLACES;
    }
    let (open, open_ko) = (counted(counts.open, "check"), counts.open);
    bilingual!(
        "There is no verdict: the run did not show enough to judge {open}.",
        "{open_ko}개 항목을 판정할 만큼 관찰하지 못해 결론을 내리지 않습니다."
    )
}

fn remarks(report: &Report, counts: &Counts, outcome: Judgement) -> Vec<Bilingual> {
    let mut remarks = Vec::new();
    if counts.open > 0 && (outcome != Judgement::Open || report.interrupted) {
        let (open, open_ko) = (counted(counts.open, "check"), counts.open);
        remarks.push(bilingual!(
            "{open} could not be judged; the table gives the reason.",
            "{open_ko}개 항목은 판정하지 못했습니다. 이유는 아래 표에 있습니다."
        ));
    } else if outcome == Judgement::Open && report.gave_no_places {
        remarks.push(Bilingual::fixed(
            "So nothing is known of the waiting room. Open the zone, or let more people wait (max_waiting), and rehearse again.",
            "따라서 대기실에 대해서는 알 수 있는 것이 없습니다. 구역을 열거나 더 많은 사람이 기다릴 수 있게 하고(max_waiting) 다시 실행해 주세요.",
        ));
    } else if outcome == Judgement::Open && !failed(report) {
        remarks.push(Bilingual::fixed(
            "Nothing bad was seen. The table says what is missing, and how long or how large a run must be.",
            "관찰한 범위에서는 문제가 없었습니다. 무엇이 부족한지, 얼마나 길게 또는 크게 실행해야 하는지는 표에 있습니다.",
        ));
    }
    if let Some(Bottleneck { from_s, why, why_ko }) = &report.bottleneck {
        remarks.push(bilingual!(
            "From second {from_s} on, the load generator itself was the bottleneck: {why}.",
            "{from_s}초부터는 부하 생성기 자체가 병목이었습니다. {why_ko}"
        ));
    }
    if report.interrupted {
        remarks.push(Bilingual::fixed(
            "The run was interrupted. The results cover the time until then.",
            "중간에 중단된 실행입니다. 그때까지의 결과만 담았습니다.",
        ));
    }
    remarks
}

/// Such as `1 check` and `2 checks`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concluded(checks: &[(&str, Judgement)], interrupted: bool) -> (Judgement, Exit) {
        let mut report = crate::html::tests::report("x", 10);
        report.interrupted = interrupted;
        let check = |&(name, judgement): &(&str, Judgement)| Check {
            name: name.to_owned(),
            judgement,
            ..Check::default()
        };
        report.checks = checks.iter().map(check).collect();
        let verdict = Verdict::from(&report);
        let Conclusion { outcome, exit, .. } = of(&report);
        assert_eq!((verdict.outcome, verdict.exit_code), (outcome, exit.code()));
        assert_eq!(verdict.interrupted, interrupted);
        (outcome, exit)
    }

    #[test]
    fn one_bad_check_is_bad_and_one_open_check_is_open() {
        use Judgement::{Bad, Good, Open};
        assert_eq!(concluded(&[("order", Good), ("slo:p95", Good)], false), (Good, Exit::Good));
        for name in ["order", "slo:p95"] {
            assert_eq!(concluded(&[("errors", Good), (name, Open)], false), (Open, Exit::Open), "{name}");
            assert_eq!(concluded(&[("errors", Open), (name, Bad)], false), (Bad, Exit::Bad), "{name}");
        }
        assert_eq!(
            concluded(&[("order", Good), ("eta", Open)], false),
            (Good, Exit::Good),
            "it only measures"
        );
        assert_eq!(concluded(&[("eta", Good)], false), (Open, Exit::Open), "a measurement proves nothing");
        assert_eq!(concluded(&[], false), (Open, Exit::Open));
        assert_eq!(concluded(&[("order", Good), (GENERATOR, Open)], true), (Open, Exit::Failed));
        assert_eq!(
            concluded(&[("order", Bad), (GENERATOR, Open)], false),
            (Open, Exit::Failed),
            "users are missing"
        );
    }

    #[test]
    fn a_zone_that_gave_no_places_is_neither_good_nor_bad() {
        let mut report = crate::html::tests::report("x", 10);
        report.checks = vec![Check { name: "order".to_owned(), ..Check::default() }];
        (report.gave_no_places, report.interrupted) = (true, false);
        let Conclusion { outcome, exit, headline, remarks } = of(&report);
        assert_eq!((outcome, exit, headline), (Judgement::Open, Exit::Open, NO_PLACES));
        assert!(
            remarks[0].en.contains("Open the zone") && remarks[0].ko.contains("max_waiting"),
            "{remarks:?}"
        );
        assert!(!remarks.iter().any(|remark| remark.en.contains("Nothing bad was seen")), "{remarks:?}");
    }

    #[test]
    fn an_interrupted_run_is_never_good() {
        use Judgement::{Bad, Good, Open};
        for checks in [&[("order", Good)][..], &[("order", Open)], &[]] {
            assert_eq!(concluded(checks, true), (Open, Exit::Interrupted));
        }
        assert_eq!(concluded(&[("order", Bad)], true), (Bad, Exit::Bad), "what was seen is bad");
    }
}
