//! A draw as it is published, and what an operator says about it: the value that decides it, or that the announced randomness did not come.

use audit::Order;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    body,
    json::Json,
    query::{NoQuery, Operator},
    state::{AdminState, to_the_end},
};
use crate::{
    draws::NotStated,
    http::{
        body::Whole,
        draw_path::DrawInPath,
        problem::{DRAW_DECIDED, NO_DRAW, OUT_OF_RANGE, Problem},
        public::documented::Draw,
    },
};

/// What decides a draw. One of the two fields.
#[derive(Serialize, ToSchema)]
#[schema(as = Stated)]
pub(super) struct StatedShape {
    /// The value that the announced source gave: 1 to 1,024 bytes on one line.
    #[schema(example = "3 1 6 6 2 5", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// `true`: the announced randomness did not come, and the order is that of arrival. Only if the event says `fallback = arrival`.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<bool>,
}

/// A draw, as the server for visitors publishes it, too.
#[utoipa::path(
    get,
    path = "/admin/v1/zones/{id}/draws/{event}",
    operation_id = "show_draw",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("event" = String, Path, description = "The event's id"),
    ),
    responses((status = 200, body = Draw)),
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    NoQuery: NoQuery,
    path: DrawInPath,
) -> Result<Json<Value>, Problem> {
    state.definition(&path.zone)?;
    let event = path.event(&state.draws)?;
    Ok(Json::ok(state.draws.announcement(&path.zone, &event)))
}

/// States what decides a draw whose list is frozen. It is signed and published, and cannot be changed.
#[utoipa::path(
    post,
    path = "/admin/v1/zones/{id}/draws/{event}",
    operation_id = "state_draw",
    tag = "zones",
    params(
        ("id" = String, Path, description = "The zone's id"),
        ("event" = String, Path, description = "The event's id"),
    ),
    request_body = StatedShape,
    responses((status = 200, body = StatedShape)),
)]
pub(super) async fn state(
    State(state): State<AdminState>,
    Operator { author, .. }: Operator,
    path: DrawInPath,
    Whole(body): Whole,
) -> Result<Json<StatedShape>, Problem> {
    let zone = &path.zone;
    state.definition(zone)?;
    let value = body::stated(&body)?;
    let event = path.event(&state.draws)?;
    let missing = value.is_none().then_some(true);
    let stated = StatedShape { value, missing };
    let wanted = serde_json::to_string(&stated).expect("a text");
    let (zone, value) = (zone.clone(), stated.value.clone());
    to_the_end(async move {
        let made = state.draws.state(&zone, &event, value.as_deref()).await;
        match made {
            Ok(()) => {
                state.recorder.write_stated(&author, &zone, event.id.as_str(), value.as_deref());
            }
            Err(NotStated::Away(_)) => {
                state.recorder.write_unanswered(&author, Order::Stated, Some(&zone), wanted);
            }
            Err(_) => {}
        }
        made.map_err(problem)
    })
    .await?;
    Ok(Json::ok(stated))
}

/// Why a draw is not decided by what an operator stated.
fn problem(why: NotStated) -> Problem {
    match why {
        NotStated::NotFrozen => Problem::new(
            NO_DRAW,
            "its list is not frozen yet: that happens when the event begins, or, if the store lost the state, when everybody had the time to show the own place",
        ),
        NotStated::NotAsked => Problem::new(
            DRAW_DECIDED,
            "what decides it is there already, or the event asks for no such statement: `value` belongs to randomness = stated, and `missing` \
             to fallback = arrival",
        ),
        NotStated::Over => Problem::new(
            DRAW_DECIDED,
            "the event has ended without its draw, and people enter as its `after` says; move its `ends` first to hold the draw nevertheless",
        ),
        NotStated::Wrong(why) => Problem::new(OUT_OF_RANGE, why),
        NotStated::Away(why) => Problem::of_unanswered(&why),
    }
}
