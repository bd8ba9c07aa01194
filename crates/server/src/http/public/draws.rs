//! What is published of draws: the checkpoint at the freeze, the record afterwards, and the receipt of a holder.
//!
//! Invariant: everything here is signed or follows from what is signed, and says nothing of who holds a place.

use std::sync::Arc;

use admission::Event;
use axum::{
    Extension,
    extract::{Request, State},
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response,
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};

use super::{documented, state::PublicState};
use crate::http::{
    JSON, MAX_BODY, Replied, body,
    context::RequestContext,
    draw_path::DrawInPath,
    origin,
    problem::{NO_DRAW, Problem, WRONG_TYPE},
    request,
};

impl PublicState {
    async fn draw_event(&self, path: &DrawInPath) -> Result<Event, Problem> {
        if self.gate.policy(path.zone.as_str()).is_none() {
            return Err(self.no_zone(path.zone.as_str()).await);
        }
        path.event(&self.draws)
    }
}

/// Anybody may read it, on pages of any site, and keep it for so many seconds.
fn published(json: String, age_s: u32) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(json)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    let kept = HeaderValue::from_str(&format!("public, max-age={age_s}"));
    headers.insert(CACHE_CONTROL, kept.unwrap_or(HeaderValue::from_static("no-cache")));
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// A draw of a zone: what it will be decided by, and, once the list is frozen, the signed checkpoint.
#[utoipa::path(
    get, path = "/draws/{zone}/{event}", tag = "draws",
    params(
        ("zone" = String, Path, description = "The zone's id", example = "TEST_ZONE"),
        ("event" = String, Path, description = "The event's id", example = "spring-sale"),
    ),
    responses((status = 200, body = documented::Draw)),
)]
pub(super) async fn draw(State(state): State<PublicState>, path: DrawInPath) -> Replied {
    let event = state.draw_event(&path).await?;
    let shown = state.draws.announcement(&path.zone, &event);
    Ok(published(shown.to_string(), 1))
}

/// The record of a draw that has taken place: the list, the checkpoint and the randomness. Whoever has it can compute the order.
#[utoipa::path(
    get, path = "/draws/{zone}/{event}/record", tag = "draws",
    params(
        ("zone" = String, Path, description = "The zone's id", example = "TEST_ZONE"),
        ("event" = String, Path, description = "The event's id", example = "spring-sale"),
    ),
    responses((status = 200, description = "As described in the page about the draw", content_type = "application/json", body = String)),
)]
pub(super) async fn record(State(state): State<PublicState>, path: DrawInPath) -> Replied {
    let event = state.draw_event(&path).await?;
    let record = state.draws.kept(&path.zone, &event).and_then(|kept| kept.record());
    let record = record.ok_or_else(|| Problem::new(NO_DRAW, "it has not taken place yet"))?;
    Ok(published(record.to_json(), 60))
}

/// The receipt of a token's holder: the place in the list, the position, and the path to the root of the signed checkpoint.
#[utoipa::path(
    post, path = "/draws/{zone}/{event}/receipt", tag = "draws",
    params(
        ("zone" = String, Path, description = "The zone's id", example = "TEST_ZONE"),
        ("event" = String, Path, description = "The event's id", example = "spring-sale"),
    ),
    request_body = documented::Entry,
    responses((status = 200, description = "As described in the page about the draw", content_type = "application/json", body = String)),
)]
pub(super) async fn receipt(
    State(state): State<PublicState>,
    Extension(context): Extension<Arc<RequestContext>>,
    path: DrawInPath,
    request: Request,
) -> Replied {
    let (head, mut body) = request.into_parts();
    let requests = &state.requests;
    origin::check(&requests.cors_origins, &head.headers)?;
    body::check(&head.headers, &body, MAX_BODY)?;
    let body = context.read_body(&mut body, MAX_BODY, requests.body_timeout).await?;
    let request::Ask { zone: named, token, .. } = request::parse(&body, true)?;
    if named != path.zone.as_str() {
        return Err(Problem::new(WRONG_TYPE, "`zoneId` must be the zone in the path"));
    }
    let event = state.draw_event(&path).await?;
    let token = token.as_deref().unwrap_or_default().as_bytes();
    let holder = state.gate.holder(path.zone.as_str(), token).await?;
    requests.obey(holder.ask_limits(&state.limits, context.client.0).await.as_ref())?;
    let receipt = state.draws.receipt(&path.zone, &event, holder.seq()).ok_or_else(|| {
        Problem::new(
            NO_DRAW,
            "it has not taken place yet, or this place is not on its list, because it was taken later",
        )
    })?;
    let mut response = Response::new(Full::new(Bytes::from(receipt.to_json())));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}
