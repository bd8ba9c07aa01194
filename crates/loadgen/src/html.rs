//! The report as one HTML file that can be passed on. It needs no network and no other file, and readers need not know
//! the tool.
//!
//! The page is the template `templates/report.html`; the modules here compute what it shows. Every text is there in
//! English and in Korean; a switch chooses, and the browser's language is the default.
//!
//! Invariants: the template escapes every value, and [`page`] replaces invisible characters in every text that comes
//! from outside (target, zone, profile, failures, notes).

mod chart;
mod checks;
mod eta;
mod figures;

#[cfg(test)]
pub(crate) mod tests;

use askama::Template;

use crate::{
    bilingual::Bilingual,
    conclusion::{self, Conclusion},
    format::{date, decimal, float, grouped, milliseconds, seconds},
    report::{Failure, Latency, Report},
};

/// Kinds of failures that the page lists at most.
const MOST_FAILURES: usize = 50;

/// What the template shows.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    began: String,
    verdict: Conclusion,
    /// The style class of the verdict.
    class: &'static str,
    tiles: Vec<Fact>,
    checks: Vec<checks::Row<'a>>,
    figures: Vec<chart::Figure>,
    eta: Option<eta::Eta>,
    latencies: [LatencyRow; 3],
    failures: Vec<FailureRow<'a>>,
    facts: Vec<Fact>,
    counters: [(&'static str, String); 4],
}

/// A figure with its name.
struct Fact {
    name: Bilingual,
    value: String,
}

impl Fact {
    fn new(en: &'static str, ko: &'static str, value: String) -> Self {
        Self { name: Bilingual::fixed(en, ko), value }
    }
}

/// Latencies of one kind of call; `None` stands for both kinds together.
struct LatencyRow {
    call: Option<&'static str>,
    cells: Vec<String>,
}

/// A kind of failure.
struct FailureRow<'a> {
    what: &'a str,
    count: String,
    first: String,
}

/// The page.
///
/// # Errors
/// Only if formatting fails, which it does not for the types that the page shows.
pub fn page(report: &Report) -> Result<String, askama::Error> {
    let report = &visible_report(report.clone());
    let (counters, verdict) = (&report.counters, conclusion::of(report));
    Page {
        report,
        began: date(report.plan.start_unix_ms),
        class: checks::class(verdict.outcome),
        verdict,
        tiles: tiles(report),
        checks: checks::rows(&report.checks),
        figures: figures::of(report),
        eta: eta::of(report),
        latencies: [
            latency(Some("wait"), &report.wait),
            latency(Some("entry"), &report.entry),
            latency(None, &report.all),
        ],
        failures: report.failures.iter().take(MOST_FAILURES).map(failure).collect(),
        facts: facts(report),
        counters: [
            ("wait_requests_total", grouped(counters.wait_requests_total)),
            ("entry_requests_total", grouped(counters.entry_requests_total)),
            ("can_enter_true_count", grouped(counters.can_enter_true_count)),
            ("can_enter_false_count", grouped(counters.can_enter_false_count)),
        ],
    }
    .render()
}

/// The report with invisible characters replaced in all of its texts.
fn visible_report(mut report: Report) -> Report {
    let plan = &mut report.plan;
    let mut texts = vec![&mut plan.target, &mut plan.zone, &mut plan.profile];
    texts.extend(plan.opening.iter_mut().filter_map(|opening| Some(&mut opening.draw.as_mut()?.event)));
    texts.extend(report.failures.iter_mut().map(|failure| &mut failure.what));
    for check in &mut report.checks {
        texts.extend([
            &mut check.name,
            &mut check.note,
            &mut check.worst,
            &mut check.note_ko,
            &mut check.worst_ko,
        ]);
    }
    if let Some(bottleneck) = &mut report.bottleneck {
        texts.extend([&mut bottleneck.why, &mut bottleneck.why_ko]);
    }
    for text in texts {
        *text = text.chars().map(visible).collect();
    }
    report
}

/// Control characters and marks of direction could disguise the text around them. They become a replacement character,
/// which shows that something was there.
fn visible(c: char) -> char {
    let hides = c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if hides { '\u{fffd}' } else { c }
}

/// The most important figures.
fn tiles(report: &Report) -> Vec<Fact> {
    let counters = &report.counters;
    let calls = counters.wait_requests_total + counters.entry_requests_total;
    let entered: u64 = report.seconds.iter().map(|second| u64::from(second.entered)).sum();
    let users = report.seconds.iter().map(|second| second.users).max().unwrap_or(0);
    let failed: u64 = report.failures.iter().map(|failure| failure.count).sum();
    let [p50, _, p95, p99, ..] = report.all.percentiles_us;
    let mut tiles = vec![
        Fact::new("Peak users", "최대 동시 사용자", grouped(users.into())),
        Fact::new("Entered", "입장", grouped(entered)),
        Fact::new("Calls", "요청", grouped(calls)),
        Fact::new("Failed calls", "실패한 요청", grouped(failed)),
        Fact::new("Median latency", "응답 시간 중앙값", milliseconds(p50)),
        Fact::new("p95 latency", "응답 시간 p95", milliseconds(p95)),
        Fact::new("p99 latency", "응답 시간 p99", milliseconds(p99)),
    ];
    let streams = report.seconds.iter().map(|second| second.streams).max().unwrap_or(0);
    if report.plan.streams > 0 {
        tiles.push(Fact::new("Peak open streams", "최대 동시 스트림", grouped(streams.into())));
    }
    let slot_use = report.checks.iter().find(|check| check.name == "slot_use");
    if let Some(share) = slot_use.and_then(|check| check.figure) {
        tiles.push(Fact::new("Slots used", "입장 자리 사용률", format!("{:.1} %", 100.0 * share)));
    }
    tiles
}

/// The plan of the run, apart from the texts that are shown as code.
fn facts(report: &Report) -> Vec<Fact> {
    let plan = &report.plan;
    let limit = plan
        .admit_per_minute
        .map_or_else(|| "unknown · 알 수 없음".to_owned(), |limit| grouped(limit.into()));
    let streams = &report.streams;
    let opened = format!("{} / {}", grouped(streams.opened), grouped(streams.reconnected));
    let refused = format!("{} / {}", grouped(streams.refused), grouped(streams.events));
    let lasted = format!("{} / {}", seconds(report.lasted_ms), seconds(plan.planned_ms));
    let mut facts = vec![
        Fact::new("Users planned", "계획한 사용자", grouped(plan.users.into())),
        Fact::new("Share that leaves while waiting", "이탈 비율", format!("{:.0} %", 100.0 * plan.abandon)),
        Fact::new("Allowed entries per minute", "분당 허용 인원", limit),
        Fact::new("Sub-windows per minute", "1분을 나눈 구간 수", plan.sub_windows.to_string()),
        Fact::new("Streams planned at most", "계획한 최대 스트림", grouped(plan.streams.into())),
        Fact::new("Streams opened / of them reconnects", "열린 스트림 / 그중 재연결", opened),
        Fact::new("Streams refused / events", "거절된 스트림 / 이벤트", refused),
        Fact::new("Start", "시작", date(plan.start_unix_ms)),
        Fact::new("Duration / planned", "실행 시간 / 계획", lasted),
    ];
    if report.runs.len() > 1 {
        facts.push(Fact::new("Runs merged", "합친 실행", report.runs.len().to_string()));
    }
    if let Some(opening) = &plan.opening {
        facts.push(Fact::new("Opening, since the start", "개시(시작 이후)", seconds(opening.at_ms)));
        facts.extend(
            opening.draw.iter().map(|draw| Fact::new("Event by lot", "추첨 행사", draw.event.clone())),
        );
    }
    facts
}

fn failure(failure: &Failure) -> FailureRow<'_> {
    FailureRow { what: &failure.what, count: grouped(failure.count), first: seconds(failure.first_ms) }
}

fn latency(call: Option<&'static str>, latency: &Latency) -> LatencyRow {
    let mut cells = vec![grouped(latency.count), decimal(latency.mean_us / 1_000.0, 2)];
    cells.extend(latency.percentiles_us.map(|us| decimal(float(us) / 1_000.0, 2)));
    LatencyRow { call, cells }
}
