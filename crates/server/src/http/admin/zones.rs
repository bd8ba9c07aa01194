//! Zones: listing, creating, changing and deleting them; their last hours; who changed what.
//!
//! Invariants: a change is a compare-and-set by `If-Match`, all of it or nothing. A dry run makes the same checks, and
//! stops before the editor.

use admission::{Definition, Departure, Leaver as LeavingVisitor, Proof, Schedule, ZoneId};
use audit::Order;
use axum::extract::{RawQuery, State};
use check::{Route, RouteAction};
use gate::{
    OperatorView, Refusal,
    definitions::{DefineError, DefinitionChange, definition_json},
    is_of_a_held_draw,
};
use hyper::StatusCode;
use store::Expected;

use super::{
    Json, body,
    precondition::{Wanted, etag},
    query::{DryRun, NoQuery, Operator, ZoneChange, ZoneInPath, instant, minutes},
    shape::{
        ChangeShape, DefinitionPatch, EtaChange, Leaver, Made, NewDefinition, NewZone, Now, PastChange,
        PastChanges, PastMinutesShape, StatsShape, ZoneShape, Zones,
    },
    state::{AdminState, outcome, to_the_end},
};
use crate::{
    clock::unix_ms,
    http::{
        body::Whole,
        problem::{NOTHING_TO_LEAVE, OUT_OF_RANGE, Problem, STORE_AWAY, UNKNOWN_ZONE},
        query::{Others, fields, needed},
    },
};

/// The minutes of a zone that are returned if the query does not say how many.
const USUAL_MINUTES: usize = 180;

/// The longest time of one page of minutes, in seconds: a day.
const PAGE_S: u32 = 86_400;

/// What is said with a change of a zone of which the store does not say how it is.
const UNSEEN: &str =
    "the store does not answer, so it is not known who waits in the zone, nor what becomes of the waits";

/// How often a change with `If-Match: *` is tried again because another change came first.
const TRIES: usize = 8;

/// All zones; with `trend`, the last minutes of each.
#[utoipa::path(
    get,
    path = "/admin/v1/zones",
    operation_id = "list_zones",
    tag = "zones",
    params(("trend" = Option<u32>, Query, minimum = 1, maximum = 360, description = "How many minutes of each zone's trend")),
    responses((status = 200, body = Zones)),
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Zones>, Problem> {
    let [trend] = fields(query.as_deref(), ["trend"], Others::Refused)?;
    let trend = trend.map(|text| minutes("trend", &text)).transpose()?;
    state.gate.look_again(None).await;
    let zones = state.editor.list().into_iter();
    let zones = zones.map(|(zone, definition)| state.zone_shape(&zone, &definition, trend)).collect();
    Ok(Json::ok(Zones { at: unix_ms(), zones }))
}

/// Creates a zone.
#[utoipa::path(
    post,
    path = "/admin/v1/zones",
    operation_id = "create_zone",
    tag = "zones",
    params(("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would change")),
    request_body = NewZone,
    responses(
        (status = 201, body = ChangeShape, headers(
            ("ETag" = String, description = "For If-Match"),
            ("Location" = String, description = "The address of the zone"),
        )),
        (status = 200, description = "A dry run", body = ChangeShape),
    ),
)]
pub(super) async fn create(
    State(state): State<AdminState>,
    operator: Operator,
    DryRun(dry_run): DryRun,
    Whole(body): Whole,
) -> Result<Json<ChangeShape>, Problem> {
    let (zone, new) = body::create(&body)?;
    state.check_names_of_draws(&zone, &Schedule::default(), &new.schedule).await?;
    if dry_run {
        return match state.editor.get(zone.as_str()) {
            Some(now) => Err(state.problem(&zone, DefineError::Exists(now))),
            None => Ok(state.change_reply(
                &zone,
                &DefinitionChange { before: None, after: Some(new) },
                None,
                true,
            )),
        };
    }
    let change = state.define(operator, &zone, Expected::Absent, Some(new)).await;
    let change = change.map_err(|error| state.problem(&zone, error))?;
    let mut reply = state.change_reply(&zone, &change, None, false);
    reply.status = StatusCode::CREATED;
    reply.location = Some(format!("/admin/v1/zones/{zone}"));
    Ok(reply)
}

/// One zone.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}",
    operation_id = "show_zone",
    tag = "zones",
    params(("id" = String, Path, description = "The zone's id")),
    responses((status = 200, body = ZoneShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    NoQuery: NoQuery,
    ZoneInPath(zone): ZoneInPath,
) -> Result<Json<ZoneShape>, Problem> {
    let definition = state.definition(&zone)?;
    state.gate.look_again(Some(zone.as_str())).await;
    let reply = Json::ok(state.zone_shape(&zone, &definition, None));
    Ok(Json { etag: Some(etag(&definition)), ..reply })
}

/// Replaces the definition of a zone. `policy` must be there, and may be empty. Fields that are missing have their defaults.
#[utoipa::path(
    put,
    path = "/admin/v1/zones/{id}",
    operation_id = "replace_zone",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("If-Match" = Option<String>, Header, description = "The zone's ETag, or * for any state; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would change"),
    ),
    request_body = NewDefinition,
    responses((status = 200, body = ChangeShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn replace(
    State(state): State<AdminState>,
    operator: Operator,
    change: Result<ZoneChange, Problem>,
    Whole(body): Whole,
) -> Result<Json<ChangeShape>, Problem> {
    let new = body::replace(&body)?;
    set(&state, operator, change?, |_| Ok(Some(new.clone()))).await
}

/// Changes the fields of a zone that the body names (a JSON merge patch, RFC 7396).
#[utoipa::path(
    patch,
    path = "/admin/v1/zones/{id}",
    operation_id = "change_zone",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("If-Match" = Option<String>, Header, description = "The zone's ETag, or * for any state; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would change"),
    ),
    request_body = DefinitionPatch,
    responses((status = 200, body = ChangeShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn change(
    State(state): State<AdminState>,
    operator: Operator,
    change: ZoneChange,
    Whole(body): Whole,
) -> Result<Json<ChangeShape>, Problem> {
    set(&state, operator, change, |now| body::merge(&body, now).map(Some)).await
}

/// Deletes a zone. Its line stays in the store, and continues if a zone with that id is created.
#[utoipa::path(
    delete,
    path = "/admin/v1/zones/{id}",
    operation_id = "delete_zone",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("If-Match" = Option<String>, Header, description = "The zone's ETag, or * for any state; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, only return what would change"),
    ),
    responses((status = 200, body = ChangeShape)),
)]
pub(super) async fn delete(
    State(state): State<AdminState>,
    operator: Operator,
    change: ZoneChange,
) -> Result<Json<ChangeShape>, Problem> {
    let (zone, is_real) = (change.zone.clone(), !change.dry_run);
    let deleted = set(&state, operator, change, |_| Ok(None)).await?;
    if is_real {
        state.forget_stock(&zone).await;
    }
    Ok(deleted)
}

/// Ends a visit, where the zone limits the people inside: somebody else may enter. Within a second, the visitor's cookie counts no more.
#[utoipa::path(
    post,
    path = "/admin/v1/zones/{id}/leave",
    operation_id = "end_visit",
    tag = "zones",
    params(("id" = String, Path, description = "The zone's id")),
    request_body = Leaver,
    responses((status = 200, body = Leaver)),
)]
pub(super) async fn leave(
    State(state): State<AdminState>,
    Operator { author, .. }: Operator,
    ZoneInPath(zone): ZoneInPath,
    Whole(body): Whole,
) -> Result<Json<Leaver>, Problem> {
    state.definition(&zone)?;
    let (jti, claim) = body::leaver(&body, &zone)?;
    let nothing = |why| Problem::new(NOTHING_TO_LEAVE, why);
    if state.gate.policy(zone.as_str()).is_some_and(|policy| policy.max_active == 0) {
        return Err(nothing(
            "`max_active` is 0: nobody counts the people inside, and a visit ends by itself",
        ));
    }
    let leaver = Leaver { jti };
    let wanted = serde_json::to_string(&leaver).expect("a text");
    to_the_end(async move {
        match state.gate.leave(&zone, LeavingVisitor { claim, proof: Proof::Name, address: 0 }).await {
            Ok(Departure::Waits) => Err(nothing("its holder waits, and has not entered")),
            Ok(_) => {
                state.recorder.write_left(&author, &zone, claim.epoch, claim.seq);
                Ok(())
            }
            Err(Refusal::Gone) => {
                Err(nothing("no such entry is inside: it ended, is of another epoch, or was never given out"))
            }
            Err(refusal) => {
                if let Refusal::StoreAway { .. } = refusal {
                    state.recorder.write_unanswered(&author, Order::Left, Some(&zone), wanted);
                }
                Err(Problem::of_leaving(refusal))
            }
        }
    })
    .await?;
    Ok(Json::ok(leaver))
}

/// A zone's last hours by minute, and the waits of the people whom this server admitted.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/stats",
    operation_id = "zone_stats",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("minutes" = Option<u32>, Query, minimum = 1, maximum = 360, description = "The number of minutes; 180 if not given"),
    ),
    responses((status = 200, body = StatsShape)),
)]
pub(super) async fn stats(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    ZoneInPath(zone): ZoneInPath,
) -> Result<Json<StatsShape>, Problem> {
    let [count] = fields(query.as_deref(), ["minutes"], Others::Refused)?;
    let count = count.map_or(Ok(USUAL_MINUTES), |text| minutes("minutes", &text))?;
    state.definition(&zone)?;
    state.gate.look_again(Some(zone.as_str())).await;
    let number = state.number_of(&zone);
    let (minutes, here) = (state.stats.minutes(number, count), state.stats.here(number));
    Ok(Json::ok(StatsShape::new(zone.to_string(), state.gate.trouble(zone.as_str()), &minutes, &here)))
}

/// A zone's minutes between two instants, as the store keeps them for 400 days.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/minutes",
    operation_id = "zone_minutes",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("from" = u64, Query, description = "The first instant, in seconds since 1970"),
        ("to" = u64, Query, description = "The end, in seconds since 1970: at most 86,400 s after `from`, which are 1,440 minutes"),
    ),
    responses((status = 200, body = PastMinutesShape)),
)]
pub(super) async fn past_minutes(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    ZoneInPath(zone): ZoneInPath,
) -> Result<Json<PastMinutesShape>, Problem> {
    let [from, to] = fields(query.as_deref(), ["from", "to"], Others::Refused)?;
    let from = instant("from", &needed(from, "from")?)?;
    let to = instant("to", &needed(to, "to")?)?;
    if to < from || to - from > PAGE_S {
        let (low, high) = (from, from.saturating_add(PAGE_S));
        return Err(Problem::out_of_range(
            "to",
            to.into(),
            low,
            high,
            format!("`to` is {to}, and must be {low} to {high}: a page is a day"),
        ));
    }
    state.definition(&zone)?;
    let minutes = (from / 60, to.div_ceil(60));
    let kept = state.stats.kept(&state.gate, (&zone, state.number_of(&zone)), minutes).await;
    let kept = kept.map_err(|why| Problem::new(STORE_AWAY, why.to_string()).retry_after(1))?;
    Ok(Json::ok(PastMinutesShape::new(zone.to_string(), &kept)))
}

/// The last changes of zones that this server made or saw.
#[utoipa::path(
    get,
    path = "/admin/v1/changes",
    operation_id = "list_changes",
    tag = "zones",
    params(("zone" = Option<String>, Query, description = "Only changes of this zone")),
    responses((status = 200, body = PastChanges)),
)]
pub(super) async fn changes(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Json<PastChanges>, Problem> {
    let [zone] = fields(query.as_deref(), ["zone"], Others::Refused)?;
    let changes = state.changes.of(zone.as_deref());
    // A zone that was deleted has changes, too.
    if let Some(zone) = zone.filter(|zone| changes.is_empty() && state.editor.get(zone).is_none()) {
        let shown: String = zone.chars().take(ZoneId::MAX_LEN).collect();
        let what = format!("`{shown}` is no zone, and no change of such a zone is remembered");
        return Err(Problem::new(UNKNOWN_ZONE, what));
    }
    let changes = changes.into_iter().map(|change| PastChange {
        at: change.at_ms,
        who: change.by.as_ref().map(|by| by.name.to_string()),
        role: change.by.as_ref().map(|by| by.role.as_str().to_owned()),
        made: match change.by {
            Some(_) => Made::Here,
            None if state.cells.is_empty() => Made::File,
            None => Made::Store,
        },
        zone: change.zone.to_string(),
        before: change.before.as_ref().map(Into::into),
        after: change.after.as_ref().map(Into::into),
    });
    Ok(Json::ok(PastChanges { changes: changes.collect() }))
}

/// Replaces the definition of an existing zone by the result of `new`; `None` deletes the zone.
async fn set(
    state: &AdminState,
    operator: Operator,
    ZoneChange { dry_run, wanted, zone }: ZoneChange,
    new: impl Fn(&Definition) -> Result<Option<Definition>, Problem>,
) -> Result<Json<ChangeShape>, Problem> {
    let mut now = state.definition(&zone)?;
    // Whoever joined a moment ago counts, too: a view may be a second old.
    let before = state.gate.view_of_now(zone.as_str()).await;
    for tried in 1.. {
        if !wanted.fits(&now.etag()) {
            return Err(state.problem(&zone, DefineError::Conflict(now)));
        }
        let after = new(&now)?;
        state.editor.check(&zone, after.as_ref()).map_err(|error| state.problem(&zone, error))?;
        if let Some(after) = &after {
            state.check_names_of_draws(&zone, &now.schedule, &after.schedule).await?;
        }
        if dry_run {
            let change = DefinitionChange { before: Some(now), after };
            return Ok(state.change_reply(&zone, &change, before.as_ref(), true));
        }
        // The new definition was computed from this one, so it may replace only this one, even if `If-Match` allows others.
        let expected = Expected::Tag(now.etag());
        match state.define(operator.clone(), &zone, expected, after).await {
            Err(DefineError::Conflict(other)) if wanted == Wanted::Any && tried < TRIES => now = other,
            Err(error) => return Err(state.problem(&zone, error)),
            Ok(change) => return Ok(state.change_reply(&zone, &change, before.as_ref(), false)),
        }
    }
    unreachable!("the last try returns")
}

/// Who of the line does not enter before the event that lasts ends at `now_s` (seconds since 1970), if nobody enters afterwards. The told
/// waits are those of a line that goes on.
fn too_late(view: &OperatorView, definition: &Definition, now_s: u64) -> Option<String> {
    let phase = definition.schedule.phase(now_s);
    let event = phase.event()?;
    let ends_s = u64::from(event.ends.unix_s());
    if !definition.policy_at(ends_s).mode.keeps_out() {
        return None;
    }
    let within_ms = ends_s.saturating_sub(now_s) * 1_000;
    let late = view.waiting_beyond(within_ms, &definition.policy_at(now_s)).filter(|late| *late > 0)?;
    Some(format!(
        "event {} ends at {}: about {late} of the {} who wait do not enter before, and nobody enters afterwards",
        event.id,
        event.ends,
        view.tally().waiting
    ))
}

impl AdminState {
    /// The definition of a zone.
    pub(super) fn definition(&self, zone: &ZoneId) -> Result<Definition, Problem> {
        self.editor.get(zone.as_str()).ok_or_else(|| UNKNOWN_ZONE.into())
    }

    /// The zone's number in events. A zone that is not served has none, because numbers are limited.
    pub(super) fn number_of(&self, zone: &ZoneId) -> events::ZoneNumber {
        self.gate.zone_totals(zone.as_str()).map_or(events::ZoneNumber::NONE, |totals| totals.tallied.zone)
    }

    fn zone_shape(&self, zone: &ZoneId, definition: &Definition, trend: Option<usize>) -> ZoneShape {
        let number = self.number_of(zone);
        let view = self.gate.operator_view(zone.as_str());
        ZoneShape {
            id: zone.to_string(),
            etag: definition.etag(),
            definition: definition.into(),
            now: Now::of(view.as_ref(), self.gate.trouble(zone.as_str()), self.stats.last_minute(number)),
            draw: self.draws.progress(zone),
            trend: trend.map(|count| self.stats.minutes(number, count).iter().map(Into::into).collect()),
        }
    }

    /// Refuses an event to come whose name a draw has used.
    async fn check_names_of_draws(
        &self,
        zone: &ZoneId,
        now: &Schedule,
        new: &Schedule,
    ) -> Result<(), Problem> {
        let held = self.gate.event_of_held_draw(zone, now, new).await;
        let held = held.map_err(|why| Problem::new(STORE_AWAY, why.to_string()).retry_after(1))?;
        held.map_or(Ok(()), |event| Err(Problem::new(OUT_OF_RANGE, is_of_a_held_draw(&event))))
    }

    /// Defines a zone. Completes the change even if the client gives up.
    async fn define(
        &self,
        Operator { caller, author }: Operator,
        zone: &ZoneId,
        expected: Expected,
        new: Option<Definition>,
    ) -> Result<DefinitionChange, DefineError> {
        let (state, zone) = (self.clone(), zone.clone());
        to_the_end(async move {
            let wanted = new.clone();
            let define = state.editor.define(author.clone(), &zone, expected, new);
            let made = state.changes.make(caller, &zone, define).await;
            if let Err(DefineError::Away(_)) = made {
                let wanted = wanted.as_ref().map_or_else(|| "null".to_owned(), definition_json);
                state.recorder.write_unanswered(&author, Order::Change, Some(&zone), wanted);
            }
            made
        })
        .await
    }

    /// What becomes of the requests that routes send into a zone that is deleted.
    fn routes_into(&self, zone: &ZoneId) -> Vec<String> {
        let now = self.routes.load();
        let leads = |route: &Route| matches!(&route.action, RouteAction::Zone(gated) if gated.zone == *zone);
        let warning = |(index, _)| {
            let route = index + 1;
            format!(
                "route {route} leads to this zone: its requests are refused (404 unknown_zone) until the route or the zone is another one"
            )
        };
        now.routes.all().iter().enumerate().filter(|(_, route)| leads(route)).map(warning).collect()
    }

    /// The reply to a change. `before_view` is the zone's state before it, if the store said it.
    fn change_reply(
        &self,
        zone: &ZoneId,
        change: &DefinitionChange,
        before_view: Option<&OperatorView>,
        dry_run: bool,
    ) -> Json<ChangeShape> {
        let now_s = self.gate.schedule_s(zone.as_str()).unwrap_or_else(|| store::unix_ms() / 1_000);
        let policy = change.after.as_ref().map(|definition| definition.policy_at(now_s));
        let is_unseen = change.before.is_some() && before_view.is_none();
        let mut warnings: Vec<String> = is_unseen.then(|| UNSEEN.to_owned()).into_iter().collect();
        match &change.after {
            None => warnings.extend(self.routes_into(zone)),
            Some(after) => {
                let before = change.before.as_ref().map(|before| before.schedule.clone()).unwrap_or_default();
                warnings.extend(after.contradictions(now_s));
                warnings.extend(after.schedule.begun_draws(&before, now_s));
                warnings.extend(after.schedule.past_events(&before, now_s));
                warnings.extend(before_view.and_then(|view| too_late(view, after, now_s)));
            }
        }
        let shape = ChangeShape {
            dry_run,
            zone: change.after.as_ref().map(|definition| self.zone_shape(zone, definition, None)),
            before: change.before.as_ref().map(Into::into),
            etas: before_view.map_or_else(Vec::new, |before| EtaChange::all(before, policy.as_ref())),
            warnings,
        };
        // After a dry run there is no new definition to be changed by its tag.
        let tag = change.after.as_ref().filter(|_| !dry_run).map(etag);
        Json { etag: tag, ..Json::ok(shape) }
    }

    /// Why a zone was not defined. A conflict shows the zone as it is now.
    fn problem(&self, zone: &ZoneId, error: DefineError) -> Problem {
        let now = match &error {
            DefineError::Conflict(now) | DefineError::Exists(now) => {
                let shape = serde_json::to_value(self.zone_shape(zone, now, None));
                Some(shape.expect("text keys and finite numbers"))
            }
            _ => None,
        };
        if let DefineError::Away(_) | DefineError::Disk(_) = error {
            let outcome = outcome(&error);
            tracing::warn!(%zone, %error, "an operator's change {outcome}");
        }
        let problem = Problem::from(error);
        match now {
            Some(zone) => problem.with([("zone", zone)]),
            None => problem,
        }
    }
}
