//! The calls of people in line: `wait`, `entry` and `leave`.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Body,
    header::{CONTENT_TYPE, HeaderMap},
};

use super::{documented, state::PublicState};
use crate::{
    http::{
        JSON, MAX_BODY, Replied, body, context::RequestContext, counted_addresses::address_digest, layers,
        origin, problem::Problem, reply, request,
    },
    metrics::Route,
};

// The list of endpoints has `wait` and `entry`, for the document and for other methods: `Public::serve` answers their POST by `answer`, before
// the router.

/// Takes a place in a zone's line, or resumes the token's.
#[utoipa::path(
    post, path = "/traffic/wait", tag = "waiting",
    request_body = documented::Wait, responses((status = 200, body = documented::Answer))
)]
pub(super) async fn wait(
    State(state): State<PublicState>,
    Extension(context): Extension<Arc<RequestContext>>,
    request: Request,
) -> Replied {
    let (head, mut body) = request.into_parts();
    answer(Poll::Wait, &state, &context, &head.headers, &mut body).await
}

/// Asks for a place: whether its holder may enter now.
#[utoipa::path(
    post, path = "/traffic/entry", tag = "waiting",
    request_body = documented::Entry, responses((status = 200, body = documented::Answer))
)]
pub(super) async fn entry(
    State(state): State<PublicState>,
    Extension(context): Extension<Arc<RequestContext>>,
    request: Request,
) -> Replied {
    let (head, mut body) = request.into_parts();
    answer(Poll::Entry, &state, &context, &head.headers, &mut body).await
}

/// The holder leaves: gives up the place, or ends the visit, so that somebody else may enter. The body may also come as `text/plain`,
/// as `navigator.sendBeacon` sends a string.
#[utoipa::path(
    post, path = "/traffic/leave", tag = "waiting",
    request_body = documented::Leave, responses((status = 204, description = "The place is free, or the visit is over"))
)]
pub(super) async fn leave(
    State(state): State<PublicState>,
    Extension(context): Extension<Arc<RequestContext>>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (head, mut body) = request.into_parts();
    let (requests, client) = (&state.requests, context.client.0);
    origin::check(&requests.cors_origins, &head.headers)?;
    body::check_beacon(&head.headers, &body, MAX_BODY)?;
    let body = context.read_body(&mut body, MAX_BODY, requests.body_timeout).await?;
    let request::Ask { zone, token, .. } = request::parse(&body, true)?;
    let token = token.as_deref().unwrap_or_default().as_bytes();
    let holder = state.gate.holder(&zone, token).await?;
    let mut watch = context.watch("leave", &zone);
    requests.obey(watch.limits(holder.ask_limits(&state.limits, client)).await.as_ref())?;
    holder.leave(address_digest(client), &mut watch.trips).await.map_err(Problem::of_leaving)?;
    Ok(StatusCode::NO_CONTENT)
}

/// One of the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poll {
    Wait,
    Entry,
}

impl Poll {
    pub(super) fn route(self) -> Route {
        match self {
            Self::Wait => Route::Wait,
            Self::Entry => Route::Entry,
        }
    }
}

/// Answers a poll.
///
/// The client's limit depends on the zone and on whether there is a token, and both are in the body. So it cannot be a layer.
pub(super) async fn answer<B>(
    poll: Poll,
    state: &PublicState,
    context: &RequestContext,
    headers: &HeaderMap,
    body: &mut B,
) -> Replied
where
    B: Body<Data = Bytes> + Unpin,
{
    let (requests, client) = (&state.requests, context.client.0);
    layers::check_fields(headers)?;
    origin::check(&requests.cors_origins, headers)?;
    body::check(headers, body, MAX_BODY)?;
    let body = context.read_body(body, MAX_BODY, requests.body_timeout).await?;
    let ask = request::parse(&body, poll == Poll::Entry)?;
    let answer = match &ask.token {
        Some(token) => {
            let holder = state.gate.holder(&ask.zone, token.as_bytes()).await?;
            let mut watch = context.watch("poll", &ask.zone);
            let limit = watch.limits(holder.ask_limits(&state.limits, client)).await;
            requests.obey(context.show_limit(limit))?;
            holder.poll(&mut watch.trips).await?
        }
        None => {
            let newcomer = state.gate.newcomer(&ask.zone).await?;
            let mut watch = context.watch("join", &ask.zone);
            let limit = watch.limits(newcomer.ask_limits(&state.limits, client)).await;
            requests.obey(context.show_limit(limit))?;
            // Boxed: otherwise every poll would reserve the space for it, and move it.
            Box::pin(newcomer.join(ask.key, &mut watch.trips))
                .await
                .map_err(|refusal| state.no_place(&ask.zone, refusal))?
        }
    };
    let stock = state.stock.load();
    let text = reply::write(&state.passes.load(), &ask.zone, &answer, stock.get(&*ask.zone).map(|of| &**of));
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}
