//! The page with good, bad and hostile data.

use crate::{
    promise_checks::judge,
    report::{
        Bottleneck, Check, Counters, Draw, Eta, EtaGroup, Failure, Judgement, Latency, Opening, Plan, Report,
        SCHEMA, Second, Streams,
    },
};

fn page(report: &Report) -> String {
    super::page(report).expect("a page")
}

const HOSTILE: &str = "\"><script>alert(1)</script>'&\u{202e}";

pub(crate) fn report(text: &str, seconds: u32) -> Report {
    let plan = Plan {
        target: text.into(),
        zone: text.into(),
        profile: text.into(),
        users: 12_000,
        planned_ms: 160_000,
        abandon: 0.35,
        streams: 0,
        start_unix_ms: 1_790_000_000_000,
        is_part: false,
        admit_per_minute: Some(2_000),
        sub_windows: 10,
        idle_s: 60,
        inside_at_most: None,
        opening: Some(Opening {
            at_ms: 30_000,
            draw: Some(Draw {
                event: text.into(),
                begins_unix_s: 1_790_000_000,
                opens_unix_s: 1_790_000_030,
            }),
        }),
    };
    let second = |i: u32| Second {
        users: (i * 300).min(12_000).min((seconds - i) * 1_000),
        waiting: (i * 280).min(11_000).min((seconds - i) * 900),
        wait_calls: if i < 40 { 300 } else { 0 },
        entry_calls: (i * 90).min(3_600),
        due: (i * 97).min(3_900),
        entered: if i.is_multiple_of(6) && i > 0 { 200 } else { 0 },
        errors: u32::from(i == 70) * 120,
        stale: 0,
        streams: 0,
        stream_events: 0,
        latency_us: [
            2_700,
            9_000,
            19_000 + (i % 17) * 900,
            40_000 + (i % 23) * 4_000,
            90_000 + (i % 31) * 30_000,
        ],
        lag_us: 300 + (i % 13) * 150,
        cpu_millicores: 400 + (i * 7).min(900),
    };
    let latency = Latency {
        count: 400_000,
        mean_us: 9_940.0,
        percentiles_us: [2_740, 19_400, 36_480, 80_000, 200_000, 1_020_000],
        histogram: String::new(),
    };
    let (mut checks, _) = judge(&plan, seconds * 1_000, &[], &[]);
    if let Some(check) = checks.first_mut() {
        (check.judgement, check.count) = (Judgement::Bad, 3);
        check.note = "At most 2,310 entered within 60 s; the limit is 2,000.".into();
        check.note_ko = "60초 동안 최대 2,310명이 입장했습니다. 허용 인원은 2,000명입니다.".into();
        check.worst = text.into();
        check.worst_ko = text.into();
    }
    let judgement = Judgement::Bad;
    checks.push(Check { name: format!("slo:{text}"), judgement, note: text.into(), ..Check::default() });
    Report {
        schema: SCHEMA,
        plan,
        lasted_ms: seconds * 1_000,
        interrupted: true,
        runs: Vec::new(),
        gave_no_places: false,
        seconds: (0..seconds).map(second).collect(),
        streams: Streams::default(),
        counters: Counters {
            wait_requests_total: 12_000,
            entry_requests_total: 388_000,
            ..Counters::default()
        },
        wait: latency.clone(),
        entry: latency.clone(),
        all: latency,
        failures: vec![Failure { what: text.into(), count: 120, first_ms: 70_100 }],
        bottleneck: Some(Bottleneck { from_s: 43, why: text.into(), why_ko: text.into() }),
        checks,
        eta: Eta {
            users: 3_000,
            bias_s: 4.2,
            mape: 0.12,
            error: 0.09,
            coverage: 0.91,
            ratio: [0.9, 1.05, 1.6],
            floor: 0.004,
            groups: (1..30_u32)
                .map(|i| {
                    let told_s = f64::from(i) * 20.0;
                    EtaGroup { users: 100, told_s, actual_s: [0.9, 1.05, 1.2].map(|of| of * told_s) }
                })
                .collect(),
        },
    }
}

#[test]
fn texts_from_outside_never_become_markup() {
    let page = page(&report(HOSTILE, 160));
    assert_eq!(page.matches("<script>").count(), 1, "only the page's script");
    assert!(!page.contains("alert(1)</script>") && !page.contains('\u{202e}'));
    assert!(page.contains("&#34;&#62;&#60;script&#62;alert(1)&#60;/script&#62;&#39;&#38;"));
}

#[test]
fn the_page_needs_no_other_file_and_has_both_languages() {
    let mut report = report("http://127.0.0.1:8080", 160);
    report.runs = ["a", "b"].map(str::to_owned).to_vec();
    let page = page(&report);
    for reference in ["src=", "url(", "@import", "<link"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("The waiting room broke its promises: 1 check failed, and it missed 1 objective."));
    assert!(page.contains("대기실이 약속을 어겼습니다"));
    assert!(page.contains("Opening, since the start") && page.contains("추첨 행사"));
    assert!(page.contains("Runs merged") && page.contains("합친 실행"));
    let (en, ko) = (page.matches("<span lang=\"en\">").count(), page.matches("<span lang=\"ko\">").count());
    assert_eq!(en, ko);
    assert_eq!(page.matches("<figure").count(), page.matches("<table class=\"numbers\">").count() - 2);
}

/// The colour at the top is that of the verdict: green only for a run that showed everything.
#[test]
fn the_page_is_green_only_for_a_good_verdict() {
    let colour = |judgements: &[Judgement], interrupted| {
        let mut report = report("http://127.0.0.1:8080", 60);
        report.interrupted = interrupted;
        let check = |&judgement: &Judgement| Check { judgement, ..Check::default() };
        report.checks = judgements.iter().map(check).collect();
        let page = page(&report);
        assert_eq!(page.contains("The run was interrupted."), interrupted);
        let classes = ["good", "open", "bad"];
        classes.into_iter().find(|class| page.contains(&format!("<section class=\"verdict {class}\"")))
    };
    use Judgement::{Bad, Good, Open};
    assert_eq!(colour(&[Good, Good], false), Some("good"));
    assert_eq!(colour(&[Good, Open], false), Some("open"));
    assert_eq!(colour(&[Good], true), Some("open"));
    assert_eq!(colour(&[Good, Open, Bad], true), Some("bad"));
}

#[test]
fn runs_of_any_length_have_a_page() {
    for seconds in [0, 1, 2, 59, 601, 20_000] {
        let page = page(&report("x", seconds));
        assert!(
            page.len() < 400_000 && !page.contains("NaN") && !page.contains("inf,"),
            "{seconds}: {}",
            page.len()
        );
    }
}

/// By hand, to look at: writes the page to `HTML_TO`.
#[test]
#[ignore = "writes a file, by hand"]
fn a_page_to_look_at() {
    let Ok(path) = std::env::var("HTML_TO") else { return };
    std::fs::write(path, page(&report("http://waiting.example:8080", 160))).expect("written");
}
