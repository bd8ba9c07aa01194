//! The streams of operators: every event of the private scope, as it happens, as JSON.
//!
//! Invariants: no event of the scope `root` can be asked for; a slow listener loses its own oldest events, gets the number of
//! lost events, and slows nobody down; at most one batch is kept for it; whoever is not admitted any more hears nothing more.

use std::{net::IpAddr, sync::Arc, time::Duration};

use admission::{Mode, Policy, ZoneId};
use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use edge::{KnownClient, Outlet};
use events::{Event, Kind, Kinds, LimitedCall, RefusalReason, Scope, StoreCall, Subscription, ZoneNumber};
use gate::definitions::PolicyJson;
use hyper::{Uri, Version, header::HeaderMap};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{guard::Guard, state::AdminState};
use crate::{
    access::Role,
    fields::shown,
    http::{
        context::Client,
        problem::{OVERLOADED, Problem, WRONG_TYPE},
        query::{Others, fields},
        stream::{HEARTBEAT, RECONNECT, SILENCE, event, response, stop},
    },
};

/// The scope whose events operators may see.
const SCOPE: Scope = Scope::Private;

/// What the system buffers for an operator who does not read, in bytes: some thousand events. Later events wait in the bus,
/// as long as its ring holds them.
const UNREAD: usize = 65_536;

/// How long the operator's system may take no bytes before the operator counts as gone. A person who reads a screen full of
/// events may be slow.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// What happens from now on, as server-sent events. Each has the name of its kind in `kind`, and its own fields; `lost` says how many
/// events a slow reader lost, and `reconnect` that the server stops.
#[utoipa::path(
    get,
    path = "/admin/v1/events",
    operation_id = "follow_events",
    tag = "servers",
    params(("kinds" = Option<String>, Query, description = "The kinds, separated by commas; all if it is missing", example = "StoreLost,StoreBack")),
    responses((status = 200, description = "The stream", content_type = "text/event-stream", body = String)),
)]
pub(super) async fn events(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    version: Version,
    target: Uri,
    headers: HeaderMap,
    Client(from): Client,
) -> Result<Response, Problem> {
    // An operator who took the server out of service can still watch it.
    if state.lifecycle.is_stopping() {
        return Err(Problem::stopping());
    }
    let operator = Operator { guard: state.guard.load_full(), state, version, target, headers, from };
    operator.admit_by(&operator.guard)?;
    let state = &operator.state;
    let kinds = kinds(query.as_deref())?;
    let permit = Arc::clone(&state.stream_permits).try_acquire_owned().map_err(|_| {
        let what =
            "as many streams of events are open as this listener allows; close one, or ask again later";
        Problem::new(OVERLOADED, what).retry_after(5)
    })?;
    let subscription = state.bus.subscribe("operator", SCOPE, kinds)?;
    let mut response = open(operator, subscription, permit);
    response.extensions_mut().insert(KnownClient);
    Ok(response)
}

/// Who opened a stream.
struct Operator {
    state: AdminState,
    /// What admitted it.
    guard: Arc<Guard>,
    version: Version,
    target: Uri,
    headers: HeaderMap,
    from: IpAddr,
}

impl Operator {
    fn admit_by(&self, guard: &Guard) -> Result<(), Problem> {
        let caller = guard.admit(self.version, &self.target, &self.headers);
        caller
            .inspect_err(|problem| self.state.refusals.by_the_guard(self.from, problem))?
            .needs(Role::Viewer)
    }

    /// Whether the tokens and names in force admit it still.
    fn is_admitted(&mut self) -> bool {
        let now = self.state.guard.load_full();
        if Arc::ptr_eq(&now, &self.guard) {
            return true;
        }
        let admitted = self.admit_by(&now);
        self.guard = now;
        admitted.is_ok()
    }
}

/// The kinds that a query selects. If it names none, all kinds that operators may see.
///
/// # Errors
/// A [`Problem`] that lists the kinds.
fn kinds(query: Option<&str>) -> Result<Kinds, Problem> {
    let [named] = fields(query, ["kinds"], Others::Refused)?;
    let all = Kinds::within(SCOPE);
    let Some(named) = named else { return Ok(all) };
    let kind = |name: &str| {
        let found = all.iter().find(|kind| kind.as_str() == name);
        found.ok_or_else(|| {
            let known: Vec<_> = all.iter().map(Kind::as_str).collect();
            let what = format!("`kinds`: there is no `{}`; there are {}", shown(name), known.join(", "));
            Problem::new(WRONG_TYPE, what)
        })
    };
    let kinds: Vec<Kind> = named.split(',').map(kind).collect::<Result<_, _>>()?;
    Ok(Kinds::of(&kinds))
}

/// A stream of the events of `subscription`, until the server stops. It holds `permit` for as long as its connection is open.
fn open(operator: Operator, subscription: Subscription, permit: OwnedSemaphorePermit) -> Response {
    response(move |mut outlet| {
        outlet.limit(UNREAD, LOST_AFTER);
        tokio::spawn(async move {
            run(operator, subscription, outlet).await;
            drop(permit);
        });
    })
}

async fn run(mut operator: Operator, mut subscription: Subscription, mut outlet: Outlet) {
    let (bus, mut stopped) = (Arc::clone(&operator.state.bus), operator.state.streams.stopped());
    let mut text = HEARTBEAT.to_owned();
    while outlet.is_open() {
        outlet.send(text.as_bytes());
        outlet.flushed().await;
        text.clear();
        tokio::select! {
            biased;
            () = stop(&mut stopped) => {
                event(&mut text, RECONNECT, "{}");
                outlet.send(text.as_bytes());
                return outlet.flushed().await;
            }
            heard = timeout(SILENCE, subscription.next()) => match heard {
                _ if !operator.is_admitted() => return,
                Ok(Some(batch)) => {
                    if batch.lost > 0 {
                        event(&mut text, "lost", &format!(r#"{{"count":{}}}"#, batch.lost));
                    }
                    for event in batch.events {
                        text.push_str("data: ");
                        write(&mut text, event, |zone| bus.zone_id(zone));
                        text.push_str("\n\n");
                    }
                }
                Ok(None) => return,
                Err(_) => text.push_str(HEARTBEAT),
            },
        }
    }
}

/// An event in JSON: an object with its kind and its fields.
struct BusEventJson<'a, N> {
    event: &'a Event,
    /// The ids of zones, by the numbers that events have.
    zone_id: N,
}

/// Serializes the fields that are named. Their names in JSON are those of the crate `events`.
macro_rules! fields {
    ($map:ident, $zone_id:expr, $event:ident, $($field:ident)*) => {{
        $($map.serialize_entry(stringify!($field), &$event.$field.json($zone_id))?;)*
    }};
}

impl<N: Fn(ZoneNumber) -> Option<ZoneId>> Serialize for BusEventJson<'_, N> {
    /// The match is exhaustive, so a new kind of event must be added here.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let id = &self.zone_id;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.event.kind().as_str())?;
        match self.event {
            Event::ViewShown(e) => fields!(map, id, e, zone epoch at_ms),
            Event::ModeChanged(e) => fields!(map, id, e, zone mode),
            Event::PolicyChanged(e) => fields!(map, id, e, zone policy),
            Event::NoticeChanged(e) => fields!(map, id, e, zone),
            Event::DefinitionChanged(e) => fields!(map, id, e, zone),
            Event::ZoneAdded(e) => fields!(map, id, e, zone policy),
            Event::ZoneRemoved(e) => fields!(map, id, e, zone),
            Event::Joined(e) => fields!(map, id, e, zone epoch first count entered at_ms),
            Event::Entered(e) => fields!(map, id, e, zone waited_ms told_s told_low_s told_high_s at_ms),
            Event::Evicted(e) => fields!(map, id, e, zone count at_ms),
            Event::Refused(e) => fields!(map, id, e, zone why count),
            Event::Limited(e) => fields!(map, id, e, zone call count retry_after_s),
            Event::Tallied(e) => fields!(
                map, id, e,
                zone admit_per_minute waiting present joined entered evicted slots_offered slots_used
            ),
            Event::StoreCalled(e) => fields!(map, id, e, zone call took_us tickets ok),
            Event::StoreLost(e) => fields!(map, id, e, zone),
            Event::StoreBack(e) => fields!(map, id, e, zone away_ms),
            Event::AdmittedWithoutStore(e) => fields!(map, id, e, zone total),
            Event::Reloaded(e) => fields!(map, id, e, ok),
            Event::Admitted(_) => {
                debug_assert!(false, "this kind is of another scope, and not subscribed to");
            }
        }
        map.end()
    }
}

/// How a field's value is written.
trait FieldJson {
    fn json(&self, zone_id: impl Fn(ZoneNumber) -> Option<ZoneId>) -> impl Serialize;
}

macro_rules! field_json {
    ($($type:ty: $json:expr;)*) => {$(
        impl FieldJson for $type {
            fn json(&self, _: impl Fn(ZoneNumber) -> Option<ZoneId>) -> impl Serialize {
                let json: fn(&Self) -> _ = $json;
                json(self)
            }
        }
    )*};
}

/// The name of a value in the list of all values.
fn name<T: Copy + PartialEq, const N: usize>(all: &[(T, &'static str); N], value: T) -> &'static str {
    all.iter().find(|(known, _)| *known == value).map_or("", |(_, name)| name)
}

field_json! {
    bool: |value| *value;
    u32: |value| *value;
    u64: |value| *value;
    Mode: |mode| name(&Mode::ALL, *mode);
    RefusalReason: |why| name(&RefusalReason::ALL, *why);
    StoreCall: |call| name(&StoreCall::ALL, *call);
    LimitedCall: |call| name(&LimitedCall::ALL, *call);
}

impl FieldJson for Policy {
    fn json(&self, _: impl Fn(ZoneNumber) -> Option<ZoneId>) -> impl Serialize {
        PolicyJson(self)
    }
}

impl FieldJson for ZoneNumber {
    fn json(&self, zone_id: impl Fn(ZoneNumber) -> Option<ZoneId>) -> impl Serialize {
        zone_id(*self).map(|zone| zone.to_string())
    }
}

fn write(out: &mut String, event: &Event, zone_id: impl Fn(ZoneNumber) -> Option<ZoneId>) {
    let json = serde_json::to_string(&BusEventJson { event, zone_id });
    out.push_str(&json.expect("names and numbers are JSON"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use events::{
        AdmittedWithoutStore, Bus, DefinitionChanged, Entered, Evicted, Joined, Limited, ModeChanged,
        NoticeChanged, PolicyChanged, Refused, Reloaded, StoreBack, StoreCalled, StoreLost, Tallied,
        ViewShown, ZoneAdded, ZoneRemoved,
    };

    use super::*;

    /// One event of each kind that operators may see.
    fn all(zone: ZoneNumber) -> Vec<Event> {
        let policy = Policy::default();
        vec![
            ViewShown { zone, epoch: 1, at_ms: 2 }.into(),
            ModeChanged { zone, mode: Mode::Hold }.into(),
            PolicyChanged { zone, policy }.into(),
            NoticeChanged { zone }.into(),
            DefinitionChanged { zone }.into(),
            ZoneAdded { zone, policy }.into(),
            ZoneRemoved { zone: ZoneNumber::NONE }.into(),
            Joined { zone, epoch: 1, first: 2, count: 3, entered: 4, at_ms: 5 }.into(),
            Entered { zone, waited_ms: 1, told_s: 2, told_low_s: 1, told_high_s: 3, at_ms: 3 }.into(),
            Evicted { zone, count: 1, at_ms: 2 }.into(),
            Refused { zone, why: RefusalReason::Gone, count: 1 }.into(),
            Limited { zone, call: LimitedCall::Join, count: 2, retry_after_s: 3 }.into(),
            Tallied {
                zone,
                admit_per_minute: 1,
                waiting: 2,
                present: 3,
                joined: 4,
                entered: 5,
                evicted: 6,
                slots_offered: 7,
                slots_used: u64::MAX,
            }
            .into(),
            StoreCalled { zone, call: StoreCall::Beat, took_us: 1, tickets: 2, ok: false }.into(),
            StoreLost { zone }.into(),
            StoreBack { zone, away_ms: 1 }.into(),
            AdmittedWithoutStore { zone, total: 1 }.into(),
            Reloaded { ok: true }.into(),
        ]
    }

    /// The names of an event's own fields, as `Debug` has them: `Kind(Kind { a: 1, b: Of { c: 2 } })`.
    fn fields(event: &Event) -> BTreeSet<String> {
        let (text, mut depth) = (format!("{event:?}"), 0);
        let outer = text.split(['{', ',']).map(str::trim).filter_map(|part| {
            let field = part.split_once(':').map(|(name, _)| name.to_owned());
            let is_own = depth == 0;
            depth += usize::from(part.ends_with("Policy"));
            depth -= part.matches('}').count().min(depth);
            field.filter(|_| is_own)
        });
        outer.collect()
    }

    #[test]
    fn every_field_of_every_kind_is_written_as_json() {
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let zone = bus.zone(&ZoneId::parse("shop:checkout").expect("a name"));
        let events = all(zone);
        let kinds: Vec<_> = events.iter().map(Event::kind).collect();
        assert_eq!(Kinds::of(&kinds), Kinds::within(SCOPE));
        for event in &events {
            let mut text = String::new();
            write(&mut text, event, |zone| bus.zone_id(zone));
            let json: serde_json::Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let mut written: BTreeSet<String> =
                json.as_object().expect("an object").keys().cloned().collect();
            assert!(written.remove("kind") && json["kind"] == event.kind().as_str(), "{text}");
            assert_eq!(written, fields(event), "{text}");
        }
        let mut text = String::new();
        write(&mut text, &events[1], |zone| bus.zone_id(zone));
        assert_eq!(text, r#"{"kind":"ModeChanged","zone":"shop:checkout","mode":"hold"}"#);
    }

    #[test]
    fn only_kinds_that_operators_may_see_can_be_asked_for() {
        assert_eq!(kinds(None).expect("all"), Kinds::within(Scope::Private));
        let two = kinds(Some("kinds=Joined%2CStoreLost")).expect("two");
        assert_eq!(two, Kinds::of(&[Kind::Joined, Kind::StoreLost]));
        for (query, shown) in
            [("kinds=Admitted", "`Admitted`"), ("kinds=Joined,", "``"), ("kinds=joined", "`joined`")]
        {
            let problem = kinds(Some(query)).expect_err(query);
            assert!(
                problem.code == WRONG_TYPE && problem.detail.contains(shown),
                "{query}: {}",
                problem.detail
            );
        }
    }
}
