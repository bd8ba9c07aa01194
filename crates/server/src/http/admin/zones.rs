//! Zones: seen, made, changed, taken away; their last hours, and who changed what.
//!
//! Invariants: a change is a compare-and-set by `If-Match`, all of it or nothing; a dry run goes the same way up to the editor,
//! and no further.

use std::sync::Arc;

use admission::{Definition, ZoneId};
use axum::{
    Extension,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use bytes::Bytes;
use gate::{
    OperatorView,
    definitions::{Author, Change, DefineError},
};
use hyper::{HeaderMap, StatusCode};
use store::{Expected, Store};

use super::{
    super::{App, stream::fields},
    Json, body,
    precondition::{Wanted, etag},
    shape::{
        ChangeShape, DefinitionPatch, EtaChange, NewDefinition, NewZone, Now, PastChange, PastChanges,
        StatsShape, ZoneShape, Zones,
    },
};
use crate::{
    access::Caller,
    clock::unix_ms,
    http::problem::{
        BUSY, CHANGED_MEANWHILE, Code, NO_CELL, OUT_OF_RANGE, Problem, STORE_AWAY, TOO_MANY_ZONES,
        UNKNOWN_ZONE, WRONG_TYPE, ZONE_EXISTS,
    },
    stats::MINUTES,
};

/// The minutes of a zone that are told where nobody says how many.
const USUAL_MINUTES: usize = 180;

/// How often a change of whatever is there is made anew because somebody else was faster.
const TRIES: usize = 8;

/// A zone of the path.
type InPath = Result<Path<String>, PathRejection>;

/// All zones, with the last minutes of each where they are asked for.
#[utoipa::path(
    get,
    path = "/admin/v1/zones",
    tag = "zones",
    params(("trend" = Option<u32>, Query, minimum = 1, maximum = 360, description = "How many minutes of each zone's trend")),
    responses((status = 200, body = Zones)),
)]
pub(super) async fn list<S: Store>(
    State(app): State<Arc<App<S>>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Zones>, Problem> {
    let [trend] = fields(query.as_deref(), ["trend"])?;
    let trend = trend.map(|text| minutes("trend", &text)).transpose()?;
    let zones = app.editor.list().into_iter();
    let zones = zones.map(|(zone, definition)| app.zone_shape(&zone, &definition, trend)).collect();
    Ok(Json::ok(Zones { at: unix_ms(), zones }))
}

/// Makes a zone.
#[utoipa::path(
    post,
    path = "/admin/v1/zones",
    tag = "zones",
    params(("dry_run" = Option<bool>, Query, description = "Change nothing, and say what would be")),
    request_body = NewZone,
    responses(
        (status = 201, body = ChangeShape, headers(
            ("ETag" = String, description = "For If-Match"),
            ("Location" = String, description = "Where the zone is"),
        )),
        (status = 200, description = "A dry run", body = ChangeShape),
    ),
)]
pub(super) async fn create<S: Store>(
    State(app): State<Arc<App<S>>>,
    Extension(caller): Extension<Caller>,
    Extension(by): Extension<Author>,
    RawQuery(query): RawQuery,
    bytes: Bytes,
) -> Result<Json<ChangeShape>, Problem> {
    let dry_run = is_dry_run(query.as_deref())?;
    let (zone, new) = body::create(&bytes)?;
    if dry_run {
        return match app.editor.get(zone.as_str()) {
            Some(now) => Err(app.problem(&zone, DefineError::Exists(now))),
            None => Ok(app.told(&zone, &Change { before: None, after: Some(new) }, None, true)),
        };
    }
    let change = app.define(caller, by, &zone, Expected::Absent, Some(new)).await;
    let change = change.map_err(|error| app.problem(&zone, error))?;
    let mut reply = app.told(&zone, &change, None, false);
    reply.status = StatusCode::CREATED;
    reply.location = Some(format!("/admin/v1/zones/{zone}"));
    Ok(reply)
}

/// One zone.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}",
    tag = "zones",
    params(("id" = String, Path, description = "The zone's id")),
    responses((status = 200, body = ZoneShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn show<S: Store>(
    State(app): State<Arc<App<S>>>,
    path: InPath,
    RawQuery(query): RawQuery,
) -> Result<Json<ZoneShape>, Problem> {
    let [] = fields(query.as_deref(), [])?;
    let (zone, definition) = app.zone_of(path)?;
    let reply = Json::ok(app.zone_shape(&zone, &definition, None));
    Ok(Json { etag: Some(etag(&definition)), ..reply })
}

/// Defines a zone anew. What the body leaves out is as in a configuration file that leaves it out.
#[utoipa::path(
    put,
    path = "/admin/v1/zones/{id}",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("If-Match" = Option<String>, Header, description = "The zone's ETag, or * for whatever is there; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, and say what would be"),
    ),
    request_body = NewDefinition,
    responses((status = 200, body = ChangeShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn replace<S: Store>(
    state: State<Arc<App<S>>>,
    by: (Extension<Caller>, Extension<Author>),
    path: InPath,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<ChangeShape>, Problem> {
    let new = body::replace(&bytes)?;
    set(state, by, path, query, &headers, |_| Ok(Some(new.clone()))).await
}

/// Changes what the body names of a zone (a JSON merge patch, RFC 7396).
#[utoipa::path(
    patch,
    path = "/admin/v1/zones/{id}",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("If-Match" = Option<String>, Header, description = "The zone's ETag, or * for whatever is there; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, and say what would be"),
    ),
    request_body = DefinitionPatch,
    responses((status = 200, body = ChangeShape, headers(("ETag" = String, description = "For If-Match")))),
)]
pub(super) async fn change<S: Store>(
    state: State<Arc<App<S>>>,
    by: (Extension<Caller>, Extension<Author>),
    path: InPath,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<ChangeShape>, Problem> {
    set(state, by, path, query, &headers, |now| body::merge(&bytes, now).map(Some)).await
}

/// Takes a zone away. Its line stays in the store, for a zone of that name that comes back.
#[utoipa::path(
    delete,
    path = "/admin/v1/zones/{id}",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("If-Match" = Option<String>, Header, description = "The zone's ETag, or * for whatever is there; without it the change is refused"),
        ("dry_run" = Option<bool>, Query, description = "Change nothing, and say what would be"),
    ),
    responses((status = 200, body = ChangeShape)),
)]
pub(super) async fn delete<S: Store>(
    state: State<Arc<App<S>>>,
    by: (Extension<Caller>, Extension<Author>),
    path: InPath,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ChangeShape>, Problem> {
    set(state, by, path, query, &headers, |_| Ok(None)).await
}

/// A zone's last hours by minute, and how those waited whom this server let in.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/stats",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("minutes" = Option<u32>, Query, minimum = 1, maximum = 360, description = "How many; 180 where nobody says"),
    ),
    responses((status = 200, body = StatsShape)),
)]
pub(super) async fn stats<S: Store>(
    State(app): State<Arc<App<S>>>,
    path: InPath,
    RawQuery(query): RawQuery,
) -> Result<Json<StatsShape>, Problem> {
    let [count] = fields(query.as_deref(), ["minutes"])?;
    let count = count.map_or(Ok(USUAL_MINUTES), |text| minutes("minutes", &text))?;
    let (zone, _) = app.zone_of(path)?;
    let number = app.number_of(&zone);
    let (minutes, here) = (app.stats.minutes(number, count), app.stats.here(number));
    Ok(Json::ok(StatsShape::new(zone.to_string(), &minutes, &here)))
}

/// The last changes of zones that this server made or saw.
#[utoipa::path(
    get,
    path = "/admin/v1/changes",
    tag = "zones",
    params(("zone" = Option<String>, Query, description = "Of this zone alone")),
    responses((status = 200, body = PastChanges)),
)]
pub(super) async fn changes<S: Store>(
    State(app): State<Arc<App<S>>>,
    RawQuery(query): RawQuery,
) -> Result<Json<PastChanges>, Problem> {
    let [zone] = fields(query.as_deref(), ["zone"])?;
    let changes = app.changes.of(zone.as_deref()).into_iter().map(|change| PastChange {
        at: change.at_ms,
        who: change.by.as_ref().map(|by| by.name.to_string()),
        role: change.by.as_ref().map(|by| by.role.as_str().to_owned()),
        zone: change.zone.to_string(),
        before: change.before.as_ref().map(Into::into),
        after: change.after.as_ref().map(Into::into),
    });
    Ok(Json::ok(PastChanges { changes: changes.collect() }))
}

/// Sets a zone that is there to what `new` makes of it; none takes it away.
async fn set<S: Store>(
    State(app): State<Arc<App<S>>>,
    (Extension(caller), Extension(by)): (Extension<Caller>, Extension<Author>),
    path: InPath,
    query: Option<String>,
    headers: &HeaderMap,
    new: impl Fn(&Definition) -> Result<Option<Definition>, Problem>,
) -> Result<Json<ChangeShape>, Problem> {
    let dry_run = is_dry_run(query.as_deref())?;
    let wanted = Wanted::read(headers)?;
    let (zone, mut now) = app.zone_of(path)?;
    for tried in 1.. {
        if !wanted.fits(&now) {
            return Err(app.problem(&zone, DefineError::Conflict(now)));
        }
        let after = new(&now)?;
        let before = app.gate.operator_view(zone.as_str());
        if dry_run {
            return Ok(app.told(&zone, &Change { before: Some(now), after }, before.as_ref(), true));
        }
        // What is made of what is there is made of that very definition, whatever `If-Match` allows.
        let expected = Expected::Tag(now.etag());
        match app.define(caller.clone(), by.clone(), &zone, expected, after).await {
            Err(DefineError::Conflict(other)) if wanted == Wanted::Any && tried < TRIES => now = other,
            Err(error) => return Err(app.problem(&zone, error)),
            Ok(change) => return Ok(app.told(&zone, &change, before.as_ref(), false)),
        }
    }
    unreachable!("the last try returns")
}

fn is_dry_run(query: Option<&str>) -> Result<bool, Problem> {
    let [dry_run] = fields(query, ["dry_run"])?;
    match dry_run.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::new(WRONG_TYPE, "`dry_run` must be true or false, in the address")),
    }
}

/// A number of minutes in the address.
fn minutes(name: &str, text: &str) -> Result<usize, Problem> {
    let number: i64 = text
        .parse()
        .map_err(|_| Problem::new(WRONG_TYPE, format!("`{name}` must be a whole number, in the address")))?;
    usize::try_from(number).ok().filter(|number| (1..=MINUTES).contains(number)).ok_or_else(|| {
        let problem = Problem::new(OUT_OF_RANGE, format!("`{name}` is {number}, and must be 1 to {MINUTES}"));
        problem.with([
            ("field", name.into()),
            ("value", number.into()),
            ("low", 1.into()),
            ("high", MINUTES.into()),
        ])
    })
}

impl<S: Store> App<S> {
    /// The zone of a path, and its definition.
    fn zone_of(&self, path: InPath) -> Result<(ZoneId, Definition), Problem> {
        let found = path.ok().and_then(|Path(id)| {
            let zone = ZoneId::parse(&id).ok()?;
            let definition = self.editor.get(zone.as_str())?;
            Some((zone, definition))
        });
        found.ok_or_else(|| UNKNOWN_ZONE.into())
    }

    /// What events call the zone, where it is served: one that is only thought of gets no number, of which there are so many.
    fn number_of(&self, zone: &ZoneId) -> events::Zone {
        self.gate.zone_totals(zone.as_str()).map_or(events::Zone::NONE, |totals| totals.tallied.zone)
    }

    fn zone_shape(&self, zone: &ZoneId, definition: &Definition, trend: Option<usize>) -> ZoneShape {
        let number = self.number_of(zone);
        let view = self.gate.operator_view(zone.as_str());
        ZoneShape {
            id: zone.to_string(),
            etag: definition.etag(),
            definition: definition.into(),
            now: Now::of(view.as_ref(), self.stats.entered_last_minute(number)),
            trend: trend.map(|count| self.stats.minutes(number, count).iter().map(Into::into).collect()),
        }
    }

    /// Defines a zone. Goes on where the request is given up.
    async fn define(
        self: &Arc<Self>,
        caller: Caller,
        by: Author,
        zone: &ZoneId,
        expected: Expected,
        new: Option<Definition>,
    ) -> Result<Change, DefineError> {
        let (app, zone) = (Arc::clone(self), zone.clone());
        let made = tokio::spawn(async move {
            let define = app.editor.define(by, &zone, expected, new);
            app.changes.make(caller, &zone, define).await
        });
        made.await.unwrap_or_else(|_| Err(DefineError::Away("the change broke off".to_owned())))
    }

    /// What is told of a change; `before` is the zone as it was looked at before.
    fn told(
        &self,
        zone: &ZoneId,
        change: &Change,
        before: Option<&OperatorView>,
        dry_run: bool,
    ) -> Json<ChangeShape> {
        let policy = change.after.as_ref().map(|definition| &definition.policy);
        let shape = ChangeShape {
            dry_run,
            zone: change.after.as_ref().map(|definition| self.zone_shape(zone, definition, None)),
            before: change.before.as_ref().map(Into::into),
            etas: before.map_or_else(Vec::new, |before| EtaChange::all(before, policy)),
        };
        // What is not there yet has no tag to be changed with.
        let tag = change.after.as_ref().filter(|_| !dry_run).map(etag);
        Json { etag: tag, ..Json::ok(shape) }
    }

    /// What is told where a zone was not defined.
    fn problem(&self, zone: &ZoneId, error: DefineError) -> Problem {
        let shown = |code: Code, now: &Definition| {
            let zone = serde_json::to_value(self.zone_shape(zone, now, None));
            Problem::from(code).with([("zone", zone.expect("text keys and finite numbers"))])
        };
        let later =
            |code, detail: String, s| Problem { retry_after_s: Some(s), ..Problem::new(code, detail) };
        match error {
            DefineError::Conflict(now) => shown(CHANGED_MEANWHILE, &now),
            DefineError::Exists(now) => shown(ZONE_EXISTS, &now),
            DefineError::UnknownZone => UNKNOWN_ZONE.into(),
            DefineError::NoCell => Problem::new(NO_CELL, error.to_string()),
            DefineError::TooMany => Problem::new(TOO_MANY_ZONES, error.to_string()),
            DefineError::OutOfRange(fault) => body::fault(&fault, fault.value.into()),
            DefineError::Busy => later(BUSY, String::new(), 1),
            DefineError::Away(_) | DefineError::Disk(_) => {
                tracing::warn!(%zone, %error, "an operator's change was not made");
                later(STORE_AWAY, error.to_string(), 3)
            }
        }
    }
}
