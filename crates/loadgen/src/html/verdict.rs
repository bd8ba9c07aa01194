//! The sentence at the top of the page: whether the waiting room kept its promises and met the objectives.

use crate::{
    bilingual::{Bilingual, bilingual},
    report::{Bottleneck, Check, GENERATOR, Judgement, Report},
};

/// The verdict.
pub(super) struct Verdict {
    /// The style class: `good`, `bad` or `open`.
    pub(super) class: &'static str,
    pub(super) headline: Bilingual,
    pub(super) remarks: Vec<Bilingual>,
}

pub(super) fn of(report: &Report) -> Verdict {
    let count = |judgement, objectives: bool| {
        let is =
            |check: &&Check| check.judgement == judgement && check.name.starts_with("slo:") == objectives;
        report.checks.iter().filter(is).count()
    };
    let generator_failed = report.checks.iter().any(|check| check.name == GENERATOR);
    // An objective that the run cannot decide counts as missed.
    let missed = count(Judgement::Bad, true) + count(Judgement::Open, true);
    let failed = count(Judgement::Bad, false);
    let open = count(Judgement::Open, false);
    let passed = count(Judgement::Good, false) + count(Judgement::Good, true);
    let (class, headline) = if generator_failed {
        (
            "bad",
            Bilingual::fixed(
                "The run itself failed, so its result says little about the waiting room.",
                "실행 자체가 제대로 되지 않아, 이 결과로는 대기실을 판단하기 어렵습니다.",
            ),
        )
    } else if failed == 0 && missed == 0 && passed == 0 {
        (
            "open",
            Bilingual::fixed(
                "There was too little data to judge the waiting room.",
                "판정할 만한 결과가 충분하지 않습니다.",
            ),
        )
    } else {
        (if failed + missed == 0 { "good" } else { "bad" }, headline(passed, failed, missed))
    };
    Verdict { class, headline, remarks: remarks(report, open, passed + failed + missed) }
}

fn headline(passed: usize, failed: usize, missed: usize) -> Bilingual {
    let (passed_checks, failed_checks) = (counted(passed, "check"), counted(failed, "check"));
    let objectives = counted(missed, "objective");
    match (failed, missed) {
        (0, 0) => bilingual!(
            "The waiting room kept its promises: {passed_checks} passed.",
            "대기실이 약속을 지켰습니다. {passed}개 항목에서 아무 문제도 나오지 않았습니다."
        ),
        (0, _) => bilingual!(
            "The waiting room kept its promises, but missed {objectives}.",
            "대기실이 약속은 지켰지만, 정해 둔 목표 중 {missed}개를 이루지 못했습니다."
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

fn remarks(report: &Report, open: usize, decided: usize) -> Vec<Bilingual> {
    let mut remarks = Vec::new();
    if open > 0 && decided > 0 {
        let open_checks = counted(open, "check");
        remarks.push(bilingual!(
            "{open_checks} could not be judged; the table gives the reason.",
            "{open}개 항목은 판정하지 못했습니다. 이유는 아래 표에 있습니다."
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
            "The run was stopped early. The results cover the time until then.",
            "중간에 종료된 실행입니다. 그때까지의 결과만 담았습니다.",
        ));
    }
    remarks
}

/// Such as `1 check` and `2 checks`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
