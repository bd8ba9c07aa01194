//! The report as one HTML file that can be passed on: it needs no network and no other file.
//!
//! Invariants: every text is there in English and in Korean, and a switch chooses. Every value from outside is escaped, and its invisible
//! characters are replaced.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;

use super::{
    Bilingual, FieldChange, Report, bilingual,
    chart::{Chart, Curve, Several},
    text::{escaped, instant, spoken},
};

/// The page.
pub(super) fn page(report: &Report) -> String {
    let event = report.event["id"].as_str().unwrap_or_default();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\" data-lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{event} · {zone} · report · 보고서</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         <header><div><h1>{title}</h1><p><code>{zone}</code> · <code>{event}</code> · {from} – {to}</p></div>\n\
         <div role=\"group\" aria-label=\"Language / 언어\"><button type=\"button\" data-speak=\"ko\">한국어</button> \
         <button type=\"button\" data-speak=\"en\">English</button></div></header>\n<main>\n",
        event = escaped(event),
        zone = escaped(&report.outline.zone),
        style = include_str!("page.css"),
        title = spoken(&bilingual!("Report of an event", "이벤트 보고서")),
        from = instant(report.outline.from),
        to = instant(report.outline.to),
    );
    html += &tiles(report);
    html += &missing(report);
    let _ = writeln!(html, "<h2>{}</h2>", spoken(&bilingual!("By minute", "분 단위")));
    for chart in charts(report) {
        html += &chart.html(report.outline.from);
    }
    html += &about_event(report);
    html += &draw(report);
    html += &changes(report);
    let _ = writeln!(
        html,
        "</main>\n<footer><p>{} {}</p></footer>\n<script>\n{}</script>\n</body></html>",
        spoken(&bilingual!("All times are UTC. Made at", "모든 시각은 UTC입니다. 작성 시각:")),
        instant(report.outline.made),
        include_str!("page.js"),
    );
    html
}

fn tiles(report: &Report) -> String {
    let sums = &report.outline.sums;
    let seconds =
        |seconds: f64| if sums.waits_known > 0 { format!("{seconds:.0} s") } else { "–".to_owned() };
    let mut tiles = vec![
        (bilingual!("Came", "온 사람"), sums.joined.to_string()),
        (bilingual!("Entered", "입장"), sums.entered.to_string()),
        (bilingual!("Left the line", "대기 중 이탈"), sums.left.to_string()),
        (
            bilingual!("Most people in line at the end of a minute", "매분 끝의 대기 인원 중 최댓값"),
            sums.most_waiting.to_string(),
        ),
        (bilingual!("Mean wait", "평균 대기"), seconds(sums.mean_wait_s)),
        (bilingual!("Longest wait", "최장 대기"), seconds(sums.longest_wait_s)),
    ];
    if let Some(share) = (100 * sums.told_in_range).checked_div(sums.told) {
        tiles
            .push((bilingual!("Waits within the range told", "안내한 범위 안의 대기"), format!("{share} %")));
    }
    let mut html = "<dl class=\"tiles\">\n".to_owned();
    for (name, value) in tiles {
        let _ = writeln!(html, "<div><dt>{}</dt><dd>{value}</dd></div>", spoken(&name));
    }
    html + "</dl>\n"
}

fn missing(report: &Report) -> String {
    if report.outline.missing.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<section class=\"card missing\"><h2>{}</h2><ul>\n",
        spoken(&bilingual!("What is not in this report", "이 보고서에 없는 것"))
    );
    for missing in &report.outline.missing {
        let _ = writeln!(html, "<li>{}</li>", spoken(missing));
    }
    html + "</ul></section>\n"
}

fn charts(report: &Report) -> Vec<Chart> {
    let count = usize::try_from((report.outline.to - report.outline.from) / 60).unwrap_or(0);
    // The minutes by their place. One that is not kept had nothing.
    let mut by_minute: Vec<&Value> = vec![&Value::Null; count];
    for minute in &report.minutes {
        let at =
            minute["at"].as_u64().and_then(|at| at.checked_sub(report.outline.from)).map(|after| after / 60);
        let place = at.and_then(|at| usize::try_from(at).ok()).and_then(|at| by_minute.get_mut(at));
        place.into_iter().for_each(|place| *place = minute);
    }
    let curve = |name: Bilingual, of: &dyn Fn(&Value) -> Option<f64>| Curve {
        name,
        values: by_minute.iter().map(|minute| of(minute)).collect(),
    };
    let counted = |field: &'static str| move |minute: &Value| Some(minute[field].as_f64().unwrap_or(0.0));
    let within = |of: &'static str, field: &'static str| move |minute: &Value| minute[of][field].as_f64();
    let mut charts = vec![
        Chart {
            title: bilingual!("People by minute", "분당 인원"),
            about: bilingual!(
                "How many took a place, entered, and left the line or were silent for too long.",
                "자리를 받은 사람, 입장한 사람, 대기 중 떠나거나 응답이 없어 빠진 사람의 수입니다."
            ),
            several: Several::Sum,
            curves: vec![
                curve(bilingual!("came", "도착"), &counted("joined")),
                curve(bilingual!("entered", "입장"), &counted("entered")),
                curve(bilingual!("left", "이탈"), &counted("evicted")),
            ],
        },
        Chart {
            title: bilingual!("People in line", "대기 인원"),
            about: bilingual!(
                "At the end of each minute. Present are those whose devices go on asking.",
                "매분 끝의 인원입니다. 접속 중은 기기가 계속 확인하고 있는 사람입니다."
            ),
            several: Several::Highest,
            curves: vec![
                curve(bilingual!("waiting", "대기"), &counted("waiting")),
                curve(bilingual!("present", "접속 중"), &counted("present")),
            ],
        },
        Chart {
            title: bilingual!("Waits had and told, in seconds", "실제 대기와 안내한 대기(초)"),
            about: bilingual!(
                "Of the people who entered in a minute: the waits that they had, and those that they were told first. Of several servers, the median is the mean of theirs, and p95 is the highest.",
                "그 분에 입장한 사람의 실제 대기 시간과, 줄을 설 때 안내한 대기 시간입니다. 서버가 여럿이면 중앙값은 서버별 값의 평균이고 p95는 가장 높은 값입니다."
            ),
            several: Several::Highest,
            curves: vec![
                curve(bilingual!("had, median", "실제, 중앙값"), &within("waits_s", "p50")),
                curve(bilingual!("had, p95", "실제, p95"), &within("waits_s", "p95")),
                curve(bilingual!("told, median", "안내, 중앙값"), &within("told_s", "p50")),
                curve(bilingual!("told, p95", "안내, p95"), &within("told_s", "p95")),
            ],
        },
    ];
    let tiers: BTreeSet<&String> = report
        .minutes
        .iter()
        .filter_map(|minute| minute["left"].as_object())
        .flat_map(|left| left.keys())
        .collect();
    if !tiers.is_empty() {
        charts.push(Chart {
            title: bilingual!("What is left", "남은 수량"),
            about: bilingual!(
                "The pieces of each tier that people were told, at the end of each minute.",
                "매분 끝에 안내한 등급별 남은 수량입니다."
            ),
            several: Several::Last,
            curves: tiers
                .into_iter()
                .map(|tier| curve(bilingual!("{tier}", "{tier}"), &|minute| minute["left"][tier].as_f64()))
                .collect(),
        });
    }
    charts
}

fn about_event(report: &Report) -> String {
    let mut html = format!(
        "<h2>{}</h2>\n<div class=\"card wide\"><table class=\"texts\"><tbody>\n",
        spoken(&bilingual!("The event", "이벤트"))
    );
    for (name, value) in report.event.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
    {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td></tr>",
            escaped(name),
            escaped(&text)
        );
    }
    html + "</tbody></table></div>\n"
}

fn draw(report: &Report) -> String {
    let Some(draw) = report.draw.as_object() else { return String::new() };
    let text = |name: &str| escaped(draw.get(name).and_then(Value::as_str).unwrap_or("–"));
    let event = escaped(report.event["id"].as_str().unwrap_or_default());
    let record = format!("/draws/{}/{event}/record", escaped(&report.outline.zone));
    let key = text("key");
    let how = bilingual!(
        "Fetch the record from the server for visitors, at the path below. Then anybody can compute the order again, with `weir draw verify` and the operator's key, or with the page verify-draw.html.",
        "방문자용 서버의 아래 경로에서 기록을 내려받으면, 누구나 `weir draw verify`와 운영자의 공개 키로, 또는 verify-draw.html 페이지로 순서를 다시 계산할 수 있습니다."
    );
    format!(
        "<h2>{}</h2>\n<div class=\"card\"><p>{}</p>\n<table class=\"texts\"><tbody>\n\
         <tr><th scope=\"row\">{}</th><td>{}</td></tr>\n<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n\
         <tr><th scope=\"row\">{}</th><td><code>{key}</code></td></tr>\n<tr><th scope=\"row\">{}</th><td><code>{record}</code></td></tr>\n\
         </tbody></table>\n<h3>{}</h3><pre>{}</pre>\n<pre>weir draw verify --key '{key}' record.json</pre></div>\n",
        spoken(&bilingual!("The draw", "추첨")),
        spoken(&how),
        spoken(&bilingual!("Stage", "단계")),
        text("stage"),
        spoken(&bilingual!("Decided by", "결정하는 값")),
        text("randomness"),
        spoken(&bilingual!("Key", "공개 키")),
        spoken(&bilingual!("Record", "기록")),
        spoken(&bilingual!("Signed checkpoint", "서명한 확정본")),
        text("checkpoint"),
    )
}

fn changes(report: &Report) -> String {
    let changes = &report.outline.changes;
    let mut html = format!(
        "<h2>{}</h2>\n<div class=\"card wide\"><p>{}</p>\n<table class=\"texts\"><thead><tr><th scope=\"col\">{}</th><th scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead><tbody>\n",
        spoken(&bilingual!("Changes of the zone", "구역 변경")),
        spoken(&changes.source),
        spoken(&bilingual!("When (UTC)", "시각(UTC)")),
        spoken(&bilingual!("Who", "변경한 사람")),
        spoken(&bilingual!("What", "내용"))
    );
    for change in &changes.list {
        let who = change
            .who
            .as_deref()
            .map_or_else(|| spoken(&bilingual!("not known here", "알 수 없음")), escaped);
        let role = change.role.as_deref().map(|role| format!(" ({})", escaped(role))).unwrap_or_default();
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{who}{role}</td><td>",
            instant(change.at_ms / 1_000)
        );
        for FieldChange { field, before, after } in &change.fields {
            let _ =
                write!(html, "<code>{}</code>: {} → {}<br>", escaped(field), escaped(before), escaped(after));
        }
        html += "</td></tr>\n";
    }
    html + "</tbody></table></div>\n"
}
