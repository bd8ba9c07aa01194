//! Asks a running server what is known of an event.
//!
//! Invariants: a bounded number of requests; whatever cannot be had is named in `missing`.

use std::path::Path;

use admission::parse_instant;
use serde_json::Value;

use super::{
    Report, Said, Sums, Wanted,
    changes::{Changes, of_audit, of_server},
    said,
};
use crate::{
    clock::unix_ms,
    failure::{self, Failure},
    remote::{self, Client, in_path, path_of},
};

/// How long behind the end of the event the report goes, in seconds: people who waited then still enter.
const BEHIND_S: u64 = 3_600;

/// A page of minutes, in seconds.
const PAGE_S: u64 = 86_400;

/// The most days that a report has.
const DAYS_MAX: u64 = 31;

pub(super) async fn gather(
    client: &Client,
    wanted: &Wanted,
    audit: Option<&Path>,
) -> Result<Report, Failure> {
    let path = path_of(&wanted.zone);
    let zone = client.get(&path).await?.value;
    let listed = client.get(&remote::changes_of(&wanted.zone)).await?.value;
    let mut missing = Vec::new();
    let now = unix_ms() / 1_000;

    let event = event_of(&zone, &listed, &wanted.event, &mut missing)?;
    let instant = |name: &str| event[name].as_str().and_then(|text| parse_instant(text).ok()).map(u64::from);
    let begins = instant("begins").ok_or_else(|| unreadable("begins"))?;
    let ends = instant("ends").ok_or_else(|| unreadable("ends"))?;
    let from = instant("prequeue_from").unwrap_or(begins) / 60 * 60;
    let mut to = (ends + BEHIND_S).min(now + 60) / 60 * 60;
    if from >= to {
        let what =
            format!("nothing can be said of the event {} yet: its pre-queue has not begun", wanted.event);
        return Err(Failure::new(failure::DATA, what));
    }
    if now < ends {
        missing.push(said!(
            "The event is not over. What happens from now on is missing.",
            "이벤트가 아직 끝나지 않았습니다. 이후의 내용은 없습니다."
        ));
    }
    if to - from > DAYS_MAX * PAGE_S {
        to = from + DAYS_MAX * PAGE_S;
        missing.push(said!(
            "The event is longer than {DAYS_MAX} days. The report has the first {DAYS_MAX}.",
            "이벤트가 {DAYS_MAX}일보다 깁니다. 처음 {DAYS_MAX}일만 있습니다."
        ));
    }
    let mut minutes = Vec::new();
    let mut at = from;
    while at < to {
        let end = to.min(at + PAGE_S);
        let mut page = client.get(&format!("{path}/minutes?from={at}&to={end}")).await?.value;
        minutes.append(page["minutes"].as_array_mut().unwrap_or(&mut Vec::new()));
        at = end;
    }
    let sums = Sums::of(&minutes);
    if minutes.is_empty() {
        missing.push(said!(
            "No minute of this time is kept: nobody came, the event is longer ago than 400 days, or no server ran.",
            "이 시간의 통계가 없습니다. 아무도 오지 않았거나, 400일보다 오래되었거나, 서버가 실행되지 않았습니다."
        ));
    }
    if sums.waits_known < sums.entered {
        let (known, entered) = (sums.waits_known, sums.entered);
        missing.push(said!(
            "The waits of {known} of {entered} people who entered are known. A server that is killed, or that cannot reach the store for \
             long, loses those of its last minutes.",
            "입장한 {entered}명 가운데 {known}명의 대기 시간만 알려져 있습니다. 서버가 강제 종료되거나 저장소에 오래 연결하지 못하면 마지막 몇 분의 대기 시간을 잃습니다."
        ));
    }
    let draw = draw_of(client, &path, &event, wanted, &mut missing).await?;
    let changes = changes_of(audit, &listed, &wanted.zone, to * 1_000, &mut missing);
    let zone = wanted.zone.clone();
    Ok(Report { version: 1, zone, event, from, to, made: now, sums, minutes, draw, changes, missing })
}

/// The event as the zone has it; if it is deleted, as the last change has it that the server remembers.
fn event_of(zone: &Value, listed: &Value, id: &str, missing: &mut Vec<Said>) -> Result<Value, Failure> {
    let of =
        |definition: &Value| definition["events"].as_array()?.iter().find(|event| event["id"] == id).cloned();
    if let Some(event) = of(zone) {
        return Ok(event);
    }
    let changes = listed["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let before = changes.iter().find_map(|change| of(&change["before"]));
    missing.push(said!(
        "The event was deleted from the zone. It is shown as it was before that.",
        "이벤트가 구역에서 삭제되었습니다. 삭제되기 전의 내용을 보여 줍니다."
    ));
    before.ok_or_else(|| {
        let what = format!("the zone has no event {id}, and the server remembers no change of one; `weir zones show` lists the events");
        Failure::new(failure::DATA, what)
    })
}

async fn draw_of(
    client: &Client,
    path: &str,
    event: &Value,
    wanted: &Wanted,
    missing: &mut Vec<Said>,
) -> Result<Value, Failure> {
    if event["order"] != "draw" {
        return Ok(Value::Null);
    }
    match client.get(&format!("{path}/draws/{}", in_path(&wanted.event))).await {
        Ok(reply) => Ok(reply.value),
        Err(fault) if fault.exit == failure::DATA => {
            missing.push(said!(
                "The draw: the server does not hold it any more ({}). Its record is with those who kept it.",
                "추첨: 서버에 더 이상 없습니다({}). 기록은 보관한 사람에게 있습니다.",
                fault.line
            ));
            Ok(Value::Null)
        }
        Err(fault) => Err(fault),
    }
}

fn changes_of(
    audit: Option<&Path>,
    listed: &Value,
    zone: &str,
    until_ms: u64,
    missing: &mut Vec<Said>,
) -> Changes {
    match audit.map(|dir| of_audit(dir, zone, until_ms)) {
        Some(Ok(changes)) => return changes,
        Some(Err(why)) => missing.push(said!(
            "The audit log cannot be read here: {why}. The changes are those that the server remembers.",
            "여기서는 감사 로그를 읽을 수 없습니다: {why}. 서버가 기억하는 변경만 보여 줍니다."
        )),
        None => missing.push(said!(
            "The audit log was not named (--audit-dir, or --config with audit.dir). The changes are those that the server remembers.",
            "감사 로그를 지정하지 않았습니다(--audit-dir 또는 audit.dir가 있는 --config). 서버가 기억하는 변경만 보여 줍니다."
        )),
    }
    of_server(listed, until_ms)
}

fn unreadable(name: &str) -> Failure {
    Failure::new(
        failure::UNAVAILABLE,
        format_args!("the server's reply has no instant `{name}` of the event"),
    )
}
