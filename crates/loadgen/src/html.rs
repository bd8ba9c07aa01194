//! The report as one HTML file that can be passed on: no network, no other file, readable without knowing the tool.
//!
//! Invariant: every text that comes from outside (target, zone, profile, failures, notes) goes through `escape`, and
//! every sentence of ours is there in English and in Korean; a switch chooses, the browser's language by default.

mod chart;

#[cfg(test)]
mod tests;

use std::fmt::{Display, Write as _};

use chart::{Chart, Curve, number};

use crate::{
    report::{Bottleneck, Check, Failure, GENERATOR, Judgement, Latency, Report, Second},
    verdict::{float, grouped},
};

/// A sentence in English and in Korean. It holds no text from outside.
type Words = (&'static str, &'static str);

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut page = String::with_capacity(200_000);
    let plan = &report.plan;
    let zone = escape(&plan.zone);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\" data-lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\"><title>{zone} · rehearsal · 리허설</title><style>{}</style></head><body>\
         <a class=\"skip\" href=\"#main\">{}</a><header><div><h1>{}</h1><p><code>{}</code> · <code>{zone}</code> · \
         {}</p></div><div class=\"langs\" role=\"group\" aria-label=\"Language / 언어\">\
         <button type=\"button\" data-speak=\"ko\">한국어</button>\
         <button type=\"button\" data-speak=\"en\">English</button></div></header><main id=\"main\">",
        include_str!("html/style.css"),
        both(&("To the content", "본문으로")),
        both(&("Rehearsal of a waiting room", "대기실 리허설 결과")),
        escape(&plan.target),
        date(plan.start_unix_ms),
    );
    page.push_str(&verdict(report));
    page.push_str(&tiles(report));
    page.push_str(&checks(&report.checks));
    page.push_str(&charts(report));
    page.push_str(&latencies(report));
    page.push_str(&failures(&report.failures));
    page.push_str(&asked(report));
    let _ = write!(
        page,
        "</main><footer><p>{}</p></footer><script>{}</script></body></html>",
        both(&(
            "Judged from what the users of the rehearsal were answered, and from nothing else. A user is named by its \
             worker and its number there; times are since the start.",
            "리허설 사용자들이 받은 응답만으로 판정했습니다. 사용자는 '작업자 번호/사용자 번호'로 표시하며, 시각은 모두 \
             시작 이후 경과 시간입니다."
        )),
        include_str!("html/script.js")
    );
    page
}

/// A sentence in both languages, as HTML.
fn both<E: Display, K: Display>((en, ko): &(E, K)) -> String {
    format!("<span lang=\"en\">{en}</span><span lang=\"ko\">{ko}</span>")
}

/// Text from outside, fit for HTML's text and quoted attributes.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // What is invisible could turn the text around it; show that it is there.
            c if c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                safe.push('\u{fffd}');
            }
            c => safe.push(c),
        }
    }
    safe
}

fn verdict(report: &Report) -> String {
    let count = |judgement, slo: bool| {
        let is = |check: &&Check| check.judgement == judgement && check.name.starts_with("slo:") == slo;
        report.checks.iter().filter(is).count()
    };
    let spoiled = report.checks.iter().any(|check| check.name == GENERATOR);
    // A goal that the run can't tell of is not reached.
    let missed = count(Judgement::Bad, true) + count(Judgement::Open, true);
    let broken = count(Judgement::Bad, false);
    let open = count(Judgement::Open, false);
    let good = count(Judgement::Good, false) + count(Judgement::Good, true);
    let (class, said) = match (broken, missed) {
        _ if spoiled => (
            "bad",
            both(&(
                "The run itself was no good, so it says little about the waiting room.",
                "실행 자체가 제대로 되지 않아, 이 결과로는 대기실을 판단하기 어렵습니다.",
            )),
        ),
        (0, 0) if good == 0 => (
            "open",
            both(&(
                "There was too little to judge the waiting room by.",
                "판정할 만한 결과가 충분하지 않습니다.",
            )),
        ),
        (0, 0) => (
            "good",
            both(&(
                format!("The waiting room kept its promises: nothing wrong in {}.", counted(good, "check")),
                format!("대기실이 약속을 지켰습니다. {good}개 항목에서 아무 문제도 나오지 않았습니다."),
            )),
        ),
        (0, missed) => (
            "bad",
            both(&(
                format!("The waiting room kept its promises, but missed {}.", counted(missed, "goal")),
                format!("대기실이 약속은 지켰지만, 정해 둔 목표 중 {missed}개를 이루지 못했습니다."),
            )),
        ),
        (broken, 0) => (
            "bad",
            both(&(
                format!("The waiting room broke its promises: {} failed.", counted(broken, "check")),
                format!("대기실이 약속을 어겼습니다. {broken}개 항목에서 문제가 나왔습니다."),
            )),
        ),
        (broken, missed) => (
            "bad",
            both(&(
                format!(
                    "The waiting room broke its promises: {} failed, and it missed {}.",
                    counted(broken, "check"),
                    counted(missed, "goal")
                ),
                format!(
                    "대기실이 약속을 어겼습니다. {broken}개 항목에서 문제가 나왔고, 목표 {missed}개를 이루지 못했습니다."
                ),
            )),
        ),
    };
    let mut page = format!(
        "<section class=\"verdict {class}\" aria-label=\"Verdict / 판정\"><p class=\"said\">{said}</p>"
    );
    let mut more = |sentence: String| {
        let _ = write!(page, "<p class=\"more\">{sentence}</p>");
    };
    if open > 0 && good + broken + missed > 0 {
        more(both(&(
            format!("{} could not be judged; the table says why.", counted(open, "check")),
            format!("{open}개 항목은 판정하지 못했습니다. 이유는 아래 표에 있습니다."),
        )));
    }
    if let Some(Bottleneck { from_s, why, why_ko }) = &report.bottleneck {
        let (why, why_ko) = (escape(why), escape(why_ko));
        more(both(&(
            format!("From second {from_s} on the load generator itself was the bottleneck: {why}."),
            format!("{from_s}초부터는 부하 생성기 자체가 병목이었습니다. {why_ko}"),
        )));
    }
    if report.interrupted {
        more(both(&(
            "The run was ended early: this is what was seen until then.",
            "중간에 종료된 실행입니다. 그때까지의 결과만 담았습니다.",
        )));
    }
    page.push_str("</section>");
    page
}

/// Such as `1 check` and `2 checks`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn tiles(report: &Report) -> String {
    let counters = &report.counters;
    let calls = counters.wait_requests_total + counters.entry_requests_total;
    let entered: u64 = report.seconds.iter().map(|second| u64::from(second.entered)).sum();
    let users = report.seconds.iter().map(|second| second.users).max().unwrap_or(0);
    let failed: u64 = report.failures.iter().map(|failure| failure.count).sum();
    let [p50, _, p95, p99, ..] = report.all.percentiles_us;
    let mut page = String::from("<dl class=\"tiles\">");
    let mut tile = |name: Words, value: String| {
        let _ = write!(page, "<div><dt>{}</dt><dd>{value}</dd></div>", both(&name));
    };
    tile(("Users at most", "최대 동시 사용자"), grouped(users.into()));
    tile(("Got in", "입장"), grouped(entered));
    tile(("Calls", "요청"), grouped(calls));
    tile(("Failed calls", "실패한 요청"), grouped(failed));
    tile(("Median latency", "응답 시간 중앙값"), ms(p50));
    tile(("p95 latency", "응답 시간 p95"), ms(p95));
    tile(("p99 latency", "응답 시간 p99"), ms(p99));
    if let Some(part) =
        report.checks.iter().find(|check| check.name == "slot_use").and_then(|check| check.figure)
    {
        tile(("Slots used", "입장 자리 사용률"), format!("{:.1} %", 100.0 * part));
    }
    page.push_str("</dl>");
    page
}

/// A check's title, and what it means that it holds.
fn meaning(name: &str) -> (Words, Words) {
    match name {
        "over_admission_60s" => (
            ("Never too many a minute", "1분 허용 인원"),
            (
                "In any 60 s, no more get in than the policy allows.",
                "어느 60초를 보아도 허용 인원보다 많이 입장하지 않습니다.",
            ),
        ),
        "over_admission_sub_window" => (
            ("Let in evenly", "고른 입장"),
            (
                "While people wait, each part of the minute has its share, so the service behind sees no spikes.",
                "대기자가 있는 동안에는 1분을 나눈 구간마다 제 몫만큼만 입장시켜, 뒤의 서비스에 갑자기 몰리지 않습니다.",
            ),
        ),
        "order" => (
            ("In order", "입장 순서"),
            (
                "Nobody who keeps polling is overtaken by somebody who came later.",
                "계속 확인하는 사람은 더 늦게 온 사람에게 추월당하지 않습니다.",
            ),
        ),
        "rank_rises" => (
            ("Ranks only fall", "순번은 줄기만 함"),
            (
                "The place in line that a user is shown never gets worse.",
                "화면에 보이는 순번이 뒤로 밀리지 않습니다.",
            ),
        ),
        "slot_use" => (
            ("No slot wasted", "입장 자리 사용률"),
            (
                "While people wait, as many get in as may: those who walked away hold nobody up.",
                "대기자가 있는 동안에는 허용된 만큼 모두 입장합니다. 떠난 사람 때문에 자리가 비지 않습니다.",
            ),
        ),
        "entered_once" => (
            ("Entry is once", "입장은 한 번"),
            (
                "Asking again gives the same pass, not a second one.",
                "다시 물어도 같은 입장권을 받으며, 두 번째 입장권은 나오지 않습니다.",
            ),
        ),
        "eta" => (
            ("The told wait", "예상 대기 시간"),
            (
                "How near the wait first told was to the wait had. It is measured; a goal of yours judges it.",
                "처음 안내한 대기 시간이 실제와 얼마나 가까웠는지 잽니다. 합격 여부는 따로 정한 목표로 판정합니다.",
            ),
        ),
        "evictions" => (
            ("Nobody who polls is evicted", "자리 유지"),
            ("Whoever keeps asking keeps the place.", "계속 확인하는 사람은 자리를 잃지 않습니다."),
        ),
        "errors" => (
            ("Everybody is answered", "응답"),
            ("Every user who came got a place or a pass.", "찾아온 사용자는 모두 자리나 입장권을 받습니다."),
        ),
        GENERATOR => (
            ("The run itself", "실행 자체"),
            (
                "The load generator and all of its workers did their part to the end.",
                "부하 생성기와 작업자가 모두 끝까지 정상으로 동작해야 합니다.",
            ),
        ),
        _ => (("", ""), ("A goal set for this run.", "이번 실행에 정해 둔 목표입니다.")),
    }
}

fn checks(checks: &[Check]) -> String {
    let mut page = format!(
        "<h2>{}</h2><div class=\"card\"><table class=\"checks\"><thead><tr><th scope=\"col\">{}</th>\
         <th scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead><tbody>",
        both(&("What was checked", "판정 항목")),
        both(&("Result", "결과")),
        both(&("Promise", "약속")),
        both(&("What was found", "확인한 내용")),
    );
    // What failed comes first.
    for wanted in [Judgement::Bad, Judgement::Open, Judgement::Good] {
        for check in checks.iter().filter(|check| check.judgement == wanted) {
            let (class, mark) = match check.judgement {
                Judgement::Good => ("good", ("✓ holds", "✓ 통과")),
                Judgement::Bad => ("bad", ("✕ fails", "✕ 문제")),
                Judgement::Open => ("open", ("? open", "? 보류")),
            };
            let (title, means) = meaning(&check.name);
            let title = if title.0.is_empty() {
                let goal = escape(check.name.strip_prefix("slo:").unwrap_or(&check.name));
                both(&(format!("Goal: <code>{goal}</code>"), format!("목표: <code>{goal}</code>")))
            } else {
                both(&title)
            };
            let _ = write!(
                page,
                "<tr><td><span class=\"mark {class}\">{}</span></td><th scope=\"row\"><strong>{title}</strong>\
                 <span class=\"means\">{}</span></th><td>{}",
                both(&mark),
                both(&means),
                told(&check.note, &check.note_ko)
            );
            if !check.worst.is_empty() {
                let _ = write!(
                    page,
                    "<span class=\"worst\"><strong>{}</strong> {}</span>",
                    both(&("Worst example:", "가장 심한 예:")),
                    told(&check.worst, &check.worst_ko)
                );
            }
            page.push_str("</td></tr>");
        }
    }
    page.push_str("</tbody></table></div>");
    page
}

/// A check's own words. Where there are none in Korean the English ones stand for them.
fn told(en: &str, ko: &str) -> String {
    let (en, ko) = (escape(en), escape(ko));
    if ko.is_empty() { format!("<span class=\"only\" lang=\"en\">{en}</span>") } else { both(&(en, ko)) }
}

fn charts(report: &Report) -> String {
    let seconds = &report.seconds;
    let curve = |name: Words, dashed: bool, value: &dyn Fn(&Second) -> f64| Curve {
        name,
        values: seconds.iter().map(value).collect(),
        dashed,
    };
    let percentile = |i: usize| move |second: &Second| f64::from(second.latency_us[i]) / 1_000.0;
    let mut entered = vec![Curve {
        name: ("in the last 60 s", "최근 60초 입장"),
        values: a_minute(seconds),
        dashed: false,
    }];
    if let Some(limit) = report.plan.admit_per_minute {
        let values = vec![f64::from(limit); seconds.len()];
        entered.push(Curve { name: ("allowed", "허용 인원"), values, dashed: true });
    }
    let mut calls = vec![
        curve(("answered", "응답"), false, &|s| f64::from(s.wait_calls) + f64::from(s.entry_calls)),
        curve(("due", "예정"), true, &|s| f64::from(s.due)),
    ];
    if seconds.iter().any(|second| second.errors > 0) {
        calls.push(curve(("failed", "실패"), false, &|s| f64::from(s.errors)));
    }
    let charts = [
        Chart {
            id: "users",
            title: ("Users, and the line", "사용자와 대기 줄"),
            says: (
                "All users of the rehearsal, and those of them who have a place and are not in: the line's length.",
                "리허설에 참여 중인 전체 사용자와, 그중 자리를 받고 입장을 기다리는 사람 수(줄의 길이)입니다.",
            ),
            unit: ("users", "명"),
            curves: vec![
                curve(("users", "전체"), false, &|s| f64::from(s.users)),
                curve(("waiting", "대기"), false, &|s| f64::from(s.waiting)),
            ],
            log: false,
            digits: 0,
        },
        Chart {
            id: "entered",
            title: ("Let in within a minute", "1분 동안의 입장"),
            says: (
                "How many got in during the 60 s before each moment, beside how many may.",
                "각 시점 직전 60초 동안 입장한 사람 수와 허용 인원입니다.",
            ),
            unit: ("users in 60 s", "60초당 명"),
            curves: entered,
            log: false,
            digits: 0,
        },
        Chart {
            id: "calls",
            title: ("Calls a second", "초당 요청"),
            says: (
                "Calls answered, beside those that were due had no user been kept waiting for a reply. Where they \
                 part, users asked less often because the replies were slow.",
                "응답한 요청과, 응답이 늦지 않았다면 왔을 요청입니다. 두 선이 벌어지면 응답이 느려 사용자가 덜 물어본 것입니다.",
            ),
            unit: ("calls/s", "요청/초"),
            curves: calls,
            log: false,
            digits: 0,
        },
        Chart {
            id: "latency",
            title: ("Latency", "응답 시간"),
            says: (
                "From when a call was due to its reply. p95 means: 95 of 100 calls were faster. Each line of the grid \
                 is ten times the one below.",
                "요청할 시점부터 응답까지 걸린 시간입니다. p95는 100건 중 95건이 이보다 빨랐다는 뜻이며, 눈금 한 칸은 10배입니다.",
            ),
            unit: ("ms, logarithmic", "밀리초(로그 눈금)"),
            curves: vec![
                curve(("median", "중앙값"), false, &percentile(0)),
                curve(("p90", "p90"), true, &percentile(1)),
                curve(("p95", "p95"), false, &percentile(2)),
                curve(("p99", "p99"), false, &percentile(3)),
                curve(("greatest", "최댓값"), true, &percentile(4)),
            ],
            log: true,
            digits: 2,
        },
        Chart {
            id: "lag",
            title: ("The generator's own lag", "부하 생성기 지연"),
            says: (
                "How late the generator itself sent calls, at most. Much of it means that the machine that makes the \
                 load was too small.",
                "부하 생성기가 요청을 예정보다 늦게 보낸 시간의 최댓값입니다. 크면 부하를 만드는 장비가 부족하다는 뜻입니다.",
            ),
            unit: ("ms", "밀리초"),
            curves: vec![curve(("lag", "지연"), false, &|s| f64::from(s.lag_us) / 1_000.0)],
            log: false,
            digits: 2,
        },
        Chart {
            id: "cpu",
            title: ("The generator's processor time", "부하 생성기 CPU"),
            says: (
                "Cores that the generator kept busy, all of its workers together.",
                "부하 생성기의 모든 작업자가 사용한 CPU 코어 수입니다.",
            ),
            unit: ("cores", "코어"),
            curves: vec![curve(("cores", "코어"), false, &|s| f64::from(s.cpu_millicores) / 1_000.0)],
            log: false,
            digits: 2,
        },
    ];
    let mut page = format!("<h2>{}</h2><div class=\"charts\">", both(&("What happened", "진행 과정")));
    for chart in &charts {
        page.push_str(&chart.render());
    }
    page.push_str(&eta(report));
    page.push_str("</div>");
    page
}

/// How many got in during the 60 s up to each second.
fn a_minute(seconds: &[Second]) -> Vec<f64> {
    let mut sum = 0_u64;
    let mut sums = Vec::with_capacity(seconds.len());
    for (i, second) in seconds.iter().enumerate() {
        sum += u64::from(second.entered);
        if i >= 60 {
            sum -= u64::from(seconds[i - 60].entered);
        }
        sums.push(float(sum));
    }
    sums
}

fn eta(report: &Report) -> String {
    let eta = &report.eta;
    let title = both(&("Wait told against wait had", "안내한 대기와 실제 대기"));
    if eta.users == 0 {
        return format!(
            "<figure><figcaption><h3>{title}</h3><p>{}</p></figcaption></figure>",
            both(&("Nobody was told a wait and got in.", "예상 대기 시간을 듣고 입장한 사용자가 없습니다."))
        );
    }
    let rows = [
        (both(&("Users", "사용자")), grouped(eta.users)),
        (
            both(&("Wait had over wait told: p10, median, p90", "실제 대기 ÷ 안내한 대기: p10, 중앙값, p90")),
            eta.ratio.map(|ratio| number(ratio, 2)).join(" · "),
        ),
        (both(&("In the range told", "안내한 범위 안")), format!("{:.1} %", 100.0 * eta.coverage)),
        (
            both(&("Longer than told, on average", "안내보다 길었던 평균 시간")),
            format!("{:+.1} s", eta.bias_s),
        ),
        (both(&("Wrong by, on average, of the wait", "평균 오차율")), format!("{:.0} %", 100.0 * eta.mape)),
    ];
    let mut page = format!(
        "<figure aria-labelledby=\"eta-t\"><figcaption><h3 id=\"eta-t\">{title}</h3><p>{}</p></figcaption>\
         <p class=\"unit\">{}</p><div class=\"plot\" role=\"img\" aria-labelledby=\"eta-t\">{}</div>\
         <table class=\"numbers\"><tbody>",
        both(&(
            "At 1 people waited as long as they were told; at 2 twice as long. The bar holds eight of ten users, the \
             mark is the median.",
            "1이면 안내한 만큼, 2이면 두 배를 기다린 것입니다. 막대는 사용자 열 명 중 여덟 명이 있는 범위이고, 세로 표시는 중앙값입니다."
        )),
        both(&("wait had ÷ wait told, logarithmic", "실제 대기 ÷ 안내한 대기(로그 눈금)")),
        chart::ratio_bar(eta.ratio)
    );
    for (name, value) in rows {
        let _ = write!(page, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    page.push_str("</tbody></table></figure>");
    page
}

fn latencies(report: &Report) -> String {
    let mut page = format!(
        "<h2>{}</h2><div class=\"card\"><table class=\"numbers\"><thead><tr><th scope=\"col\">{}</th>",
        both(&("Latency of the whole run, ms", "전체 응답 시간(밀리초)")),
        both(&("Call", "요청"))
    );
    for name in [
        ("count", "건수"),
        ("mean", "평균"),
        ("median", "중앙값"),
        ("p90", "p90"),
        ("p95", "p95"),
        ("p99", "p99"),
        ("p99.9", "p99.9"),
        ("greatest", "최댓값"),
    ] {
        let _ = write!(page, "<th scope=\"col\">{}</th>", both(&name));
    }
    page.push_str("</tr></thead><tbody>");
    let mut row = |name: String, latency: &Latency| {
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{name}</th><td>{}</td><td>{}</td>",
            grouped(latency.count),
            number(latency.mean_us / 1_000.0, 2)
        );
        for us in latency.percentiles_us {
            let _ = write!(page, "<td>{}</td>", number(float(us) / 1_000.0, 2));
        }
        page.push_str("</tr>");
    };
    row("<code>wait</code>".into(), &report.wait);
    row("<code>entry</code>".into(), &report.entry);
    row(both(&("both", "합계")), &report.all);
    page.push_str("</tbody></table></div>");
    page
}

fn failures(failures: &[Failure]) -> String {
    let mut page = format!("<h2>{}</h2>", both(&("Failed calls", "실패한 요청")));
    if failures.is_empty() {
        let _ = write!(page, "<p>{}</p>", both(&("None.", "없습니다.")));
        return page;
    }
    let _ = write!(
        page,
        "<div class=\"card\"><table class=\"numbers\"><thead><tr><th scope=\"col\">{}</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">{}</th></tr></thead><tbody>",
        both(&("Kind", "종류")),
        both(&("How often", "횟수")),
        both(&("First at", "처음 발생"))
    );
    for failure in failures.iter().take(50) {
        let _ = write!(
            page,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{}</td></tr>",
            escape(&failure.what),
            grouped(failure.count),
            seconds(failure.first_ms)
        );
    }
    page.push_str("</tbody></table></div>");
    page
}

fn asked(report: &Report) -> String {
    let (plan, counters) = (&report.plan, &report.counters);
    let rows = [
        (both(&("Target", "대상")), format!("<code>{}</code>", escape(&plan.target))),
        (both(&("Zone", "구역")), format!("<code>{}</code>", escape(&plan.zone))),
        (both(&("Profile", "프로필")), format!("<code>{}</code>", escape(&plan.profile))),
        (both(&("Users planned", "계획한 사용자")), grouped(plan.users.into())),
        (both(&("Walk away", "이탈 비율")), format!("{:.0} %", 100.0 * plan.abandon)),
        (
            both(&("May enter a minute", "분당 허용 인원")),
            plan.admit_per_minute.map_or_else(|| both(&("not told", "알 수 없음")), |n| grouped(n.into())),
        ),
        (both(&("Sub-windows of a minute", "1분을 나눈 구간 수")), plan.sub_windows.to_string()),
        (both(&("Began", "시작")), date(plan.start_unix_ms)),
        (
            both(&("Lasted, of what was planned", "실행 시간 / 계획")),
            format!("{} / {}", seconds(report.lasted_ms), seconds(plan.planned_ms)),
        ),
        ("<code>wait_requests_total</code>".into(), grouped(counters.wait_requests_total)),
        ("<code>entry_requests_total</code>".into(), grouped(counters.entry_requests_total)),
        ("<code>can_enter_true_count</code>".into(), grouped(counters.can_enter_true_count)),
        ("<code>can_enter_false_count</code>".into(), grouped(counters.can_enter_false_count)),
    ];
    let mut page = format!(
        "<h2>{}</h2><div class=\"card\"><table><tbody>",
        both(&("What was asked for, and counted", "실행 조건과 집계"))
    );
    for (name, value) in rows {
        let _ = write!(page, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    page.push_str("</tbody></table></div>");
    page
}

fn ms(us: u64) -> String {
    format!("{} ms", number(float(us) / 1_000.0, if us < 100_000 { 2 } else { 0 }))
}

fn seconds(ms: u32) -> String {
    format!("{:.1} s", f64::from(ms) / 1_000.0)
}

/// A moment of the Unix clock, in UTC: civil from days, after Howard Hinnant's `chrono`-compatible algorithms.
fn date(unix_ms: u64) -> String {
    let (days, minutes) = (unix_ms / 86_400_000, unix_ms / 60_000 % 1_440);
    // Days since the first of March of the year 0, in eras of 400 years.
    let since = days + 719_468;
    let (era, day_of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}
