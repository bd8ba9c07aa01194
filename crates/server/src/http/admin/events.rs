//! The events of a zone: those that come, those that are over, and the report of each.
//!
//! Invariants: events are only changed with their zone. A report is made from what the store keeps, whichever server is asked; few are
//! made at the same time, because one may read a month of minutes.

use std::collections::BTreeSet;

use admission::{Event, Stage, ZoneId};
use axum::extract::{RawQuery, State};

use super::{
    Json,
    query::{EventInPath, NoQuery, ZoneInPath, event_instant, flag},
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

/// The events of a zone: before, now and over, and those that were deleted or moved.
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
        ("begins" = Option<String>, Query, description = "When the event began, if its name was used again: `begins` of the list of events. \
            Without it, the event that the zone has, or the last one of this name that it had"),
        ("minutes" = Option<bool>, Query, description = "`false`: without the minutes, which may be many"),
    ),
    responses((status = 200, body = ReportShape)),
)]
pub(super) async fn report(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    EventInPath { zone, event: id }: EventInPath,
) -> Result<Json<ReportShape>, Problem> {
    let [minutes, begins] = fields(query.as_deref(), ["minutes", "begins"], Others::Refused)?;
    let with_minutes = flag("minutes", minutes.as_deref(), true)?;
    let begins_s = begins.as_deref().map(|text| event_instant("begins", text)).transpose()?;
    let mut named = state.events_of(&zone)?;
    let ids: BTreeSet<_> = named.iter().map(|(event, _)| event.id.to_string()).collect();
    named.retain(|(event, _)| event.id.as_str() == id);
    let of_wanted = |(event, _): &&(Event, _)| begins_s.is_none_or(|at_s| event.begins.unix_s() == at_s);
    let (event, deleted_at) = named.iter().find(of_wanted).cloned().ok_or_else(|| {
        let shown: String = id.chars().take(ZoneId::MAX_LEN).collect();
        let then = begins.map_or(String::new(), |begins| format!(" that begins at {begins}"));
        let ids: Vec<_> = ids.into_iter().collect();
        let known =
            if ids.is_empty() { "it has none".to_owned() } else { format!("its events are {}", ids.join(", ")) };
        let what = format!(
            "the zone has no event {shown}{then}: {known}; this server remembers no deletion of one whose pre-queue had begun, and an event that \
             is added again with its times has its report again"
        );
        Problem::new(UNKNOWN_EVENT, what)
    })?;
    let now_s = unix_ms() / 1_000;
    let span = Span::of(&event, now_s).ok_or_else(|| {
        let mut what = format!("its pre-queue begins at {}", event.prequeue_from);
        if let Some((earlier, _)) = named.iter().find(|(_, deleted_at)| deleted_at.is_some()) {
            what += &format!(
                "; an earlier event of this name began at {0}: ask for it with begins={0}",
                earlier.begins
            );
        }
        Problem::new(NOT_BEGUN, what)
    })?;
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
    let current = state.draws.event(zone.as_str(), &id).filter(|current| current.is_same(&event));
    let published = current.map(|event| state.draws.announcement(&zone, &event));
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
    /// The events of a zone, and those that it has no longer and this server remembers, with the time of their deletion, or of their move
    /// to another beginning, in milliseconds since 1970.
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
