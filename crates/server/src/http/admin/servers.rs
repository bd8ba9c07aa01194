//! Servers: who the caller is, which servers there are, and taking this server out of service.
//!
//! Invariant: a server that an operator took out of service can be put back. A server that is stopping cannot.

use axum::extract::State;
use events::Event;

use super::{
    Json, body,
    query::{NoQuery, Operator},
    shape::{CellShape, Drain, PastEventShape, PastEventsShape, ServerShape, Servers, WhoAmI},
    state::AdminState,
};
use crate::{
    http::{body::Whole, problem::Problem},
    past_events::{Act, What},
};

/// The name of the store in this process in the list of cells.
const EMBEDDED: &str = "embedded";

/// The caller, and the server that answers.
#[utoipa::path(
    get,
    path = "/admin/v1/whoami",
    tag = "servers",
    responses((status = 200, body = WhoAmI)),
)]
pub(super) async fn whoami(
    State(state): State<AdminState>,
    Operator { caller, .. }: Operator,
) -> Json<WhoAmI> {
    Json::ok(WhoAmI {
        name: caller.name.to_string(),
        role: caller.role.as_str().to_owned(),
        server: state.servers.name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        authenticated: caller.authenticated,
    })
}

/// The servers of the store, and the state of its cells.
#[utoipa::path(
    get,
    path = "/admin/v1/servers",
    operation_id = "list_servers",
    tag = "servers",
    responses((status = 200, body = Servers)),
)]
pub(super) async fn list(State(state): State<AdminState>) -> Json<Servers> {
    let servers = state.servers.list().into_iter().map(|server| ServerShape {
        name: server.name,
        version: server.version,
        address: server.address,
        started_at: server.started_at_ms,
        seen_at: server.seen_at_ms,
        here: server.here,
        draining: server.draining,
        zones: server.zones,
        connections: Some(server.connections),
        polling_period_ms: server.polling_period_ms,
        busy: server.busy,
        keys_agree: server.keys_agree,
        zones_away: server.zones_away,
    });
    let mut cells: Vec<_> =
        state.cells.iter().map(|cell| CellShape { name: cell.name.clone(), up: cell.is_up() }).collect();
    if cells.is_empty() {
        // The store in this process does not answer for a zone whose disk fails.
        let zones = state.gate.zones();
        let up = zones.is_empty() || zones.iter().any(|(_, answers)| *answers);
        cells.push(CellShape { name: EMBEDDED.to_owned(), up });
    }
    Json::ok(Servers { servers: servers.collect(), cells })
}

/// Takes this server out of service, or puts it back. A server that is out of service is not ready and starts no
/// new streams of waiting users. It still answers polls.
#[utoipa::path(
    put,
    path = "/admin/v1/drain",
    tag = "servers",
    request_body = Drain,
    responses((status = 200, body = Drain)),
)]
pub(super) async fn drain(
    State(state): State<AdminState>,
    Operator { author, caller }: Operator,
    Whole(body): Whole,
) -> Result<Json<Drain>, Problem> {
    let draining = body::draining(&body)?;
    if state.lifecycle.set_draining(draining) {
        state.recorder.write_drain(&author, draining);
        state.past.note_act(if draining { Act::Drained } else { Act::Undrained }, caller);
        state.servers.announce();
    }
    Ok(Json::ok(Drain { draining }))
}

/// The last rare events of this server: stores that were lost and came back, reloads, drains and changed routes. Changes of zones have
/// their own list.
#[utoipa::path(
    get,
    path = "/admin/v1/events/past",
    operation_id = "list_past_events",
    tag = "servers",
    responses((status = 200, body = PastEventsShape)),
)]
pub(super) async fn past_events(State(state): State<AdminState>, NoQuery: NoQuery) -> Json<PastEventsShape> {
    let events = state.past.all().into_iter().map(|past| {
        let by = match &past.what {
            What::Act(_, by) => Some(by),
            What::Event(_) => None,
        };
        PastEventShape {
            at: past.at_ms,
            kind: past.what.kind(),
            zone: past.zone,
            who: by.map(|by| by.name.to_string()),
            role: by.map(|by| by.role.as_str().to_owned()),
            away_ms: match past.what {
                What::Event(Event::StoreBack(back)) => Some(back.away_ms),
                _ => None,
            },
            ok: match past.what {
                What::Event(Event::Reloaded(reloaded)) => Some(reloaded.ok),
                _ => None,
            },
        }
    });
    Json::ok(PastEventsShape { events: events.collect() })
}
