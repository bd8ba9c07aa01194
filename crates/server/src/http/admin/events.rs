//! The events of a zone: those that come, those that are over, and the report of each.
//!
//! Invariants: events are only changed with their zone. A report is made from what the store keeps, whichever server is asked; few are
//! made at the same time, because one may read a month of minutes.

use admission::{Event, Stage, ZoneId};
use axum::extract::{RawQuery, State};

use super::{
    Json,
    query::{EventInPath, NoQuery, ZoneInPath, flag},
    shape::{EventOfZone, EventsOfZone, ReportShape},
    state::AdminState,
};
use crate::{
    clock::unix_ms,
    event_report::{Changes, Outline, Span},
    http::{
        problem::{NOT_BEGUN, Problem, STORE_AWAY, UNKNOWN_EVENT},
        query::{Others, fields},
    },
    servers::{Armed, coming, is_near},
};

/// The events of a zone: before, now and over, and those that were deleted.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/events",
    operation_id = "zone_events",
    tag = "zones",
    params(("id" = String, Path, description = "The zone's id")),
    responses((status = 200, body = EventsOfZone)),
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    NoQuery: NoQuery,
    ZoneInPath(zone): ZoneInPath,
) -> Result<Json<EventsOfZone>, Problem> {
    let at = state.gate.schedule_s(zone.as_str()).unwrap_or_else(|| unix_ms() / 1_000);
    let mut events = state.events_of(&zone)?;
    events.sort_by_key(|(event, _)| event.prequeue_from.unix_s());
    let servers = state.servers.list();
    let ahead = coming(&state.gate.definitions(), unix_ms() / 1_000);
    let events = events.into_iter().map(|(event, deleted_at)| {
        let is = if deleted_at.is_some() { OVER } else { word_of(event.stage(at)) };
        let armed =
            (is != OVER).then(|| Armed::of(&servers, &zone, &event, is_near(&ahead, &zone, &event)).into());
        EventOfZone { event: (&event).into(), is, deleted_at, armed }
    });
    Ok(Json::ok(EventsOfZone { at, events: events.collect() }))
}

/// What happened in an event, by minute, with its sums, the draw and the changes of the zone. `weir event report` writes the same.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/events/{event}/report",
    operation_id = "event_report",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("event" = String, Path, description = "The event's id"),
        ("minutes" = Option<bool>, Query, description = "`false`: without the minutes, which may be many"),
    ),
    responses((status = 200, body = ReportShape)),
)]
pub(super) async fn report(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    EventInPath { zone, event: id }: EventInPath,
) -> Result<Json<ReportShape>, Problem> {
    let [minutes] = fields(query.as_deref(), ["minutes"], Others::Refused)?;
    let with_minutes = flag("minutes", minutes.as_deref(), true)?;
    let found = state.events_of(&zone)?.into_iter().find(|(event, _)| event.id.as_str() == id);
    let (event, deleted_at) = found.ok_or_else(|| {
        let shown: String = id.chars().take(ZoneId::MAX_LEN).collect();
        let what = format!(
            "the zone has no event {shown}, and this server remembers no deletion of one whose pre-queue had begun; an event that is added \
             again with its times has its report again"
        );
        Problem::new(UNKNOWN_EVENT, what)
    })?;
    let now_s = unix_ms() / 1_000;
    let span = Span::of(&event, now_s)
        .ok_or_else(|| Problem::new(NOT_BEGUN, format!("its pre-queue begins at {}", event.prequeue_from)))?;
    let minute = |unix_s: u64| u32::try_from(unix_s / 60).unwrap_or(u32::MAX);
    let (minutes, until_ms) = ((minute(span.from_s), minute(span.to_s)), span.to_s * 1_000);
    // The semaphore is never closed.
    let _permit = state.report_permits.acquire().await.ok();
    let kept = state.stats.kept(&state.gate, (&zone, state.number_of(&zone)), minutes).await;
    let kept = kept.map_err(|why| Problem::new(STORE_AWAY, why.to_string()).retry_after(1))?;
    let changes = Changes::of_server(&state.changes.of(Some(zone.as_str())), until_ms);
    let mut outline = Outline::new(zone.to_string(), span, now_s, &kept, changes);
    if deleted_at.is_some() {
        outline.note_deleted();
    }
    let published =
        state.draws.event(zone.as_str(), &id).map(|event| state.draws.announcement(&zone, &event));
    if event.draw.is_some() && published.is_none() {
        outline.note_no_draw();
    }
    Ok(Json::ok(ReportShape::new(outline, (&event).into(), with_minutes.then_some(&kept[..]), published)))
}

const OVER: &str = "over";

/// Where an event is, in a word.
fn word_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Before => "before",
        Stage::Prequeue => "prequeue",
        Stage::Open => "open",
        Stage::Over => OVER,
    }
}

impl AdminState {
    /// The events of a zone, and the deleted ones that this server remembers, with the time of their deletion in milliseconds since 1970.
    fn events_of(&self, zone: &ZoneId) -> Result<Vec<(Event, Option<u64>)>, Problem> {
        let schedule = self.definition(zone)?.schedule;
        let deleted = self.changes.deleted_events(zone.as_str(), &schedule);
        let deleted = deleted.into_iter().map(|(at_ms, event)| (event, Some(at_ms)));
        Ok(schedule.events().iter().map(|event| (event.clone(), None)).chain(deleted).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn an_event_is_before_in_its_prequeue_open_or_over() {
        let event = sample::event(serde_json::json!({
            "id": "sale", "prequeue_from": "2026-12-01T08:30:00Z", "begins": "2026-12-01T09:00:00Z", "ends": "2026-12-01T12:00:00Z",
        }));
        let [from, begins, ends] =
            [&event.prequeue_from, &event.begins, &event.ends].map(|moment| u64::from(moment.unix_s()));
        let at = [from - 1, from, begins, ends].map(|now_s| word_of(event.stage(now_s)));
        assert_eq!(at, ["before", "prequeue", "open", "over"]);
    }
}
