//! The two calls that apps poll: `wait` and `entry`.

use axum::{
    Extension,
    extract::{Request, State},
    response::IntoResponse,
};
use bytes::Bytes;
use gate::limits::Asked;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Body,
    header::{CONTENT_TYPE, HeaderMap},
};
use limiter::layer::Announced;

use super::{shape, state::PublicState};
use crate::{
    http::{
        JSON, MAX_BODY, Replied,
        body::{self, BodyRead},
        boxed,
        clients::address_digest,
        layers::Client,
        origin,
        problem::Problem,
        reply, request,
    },
    metrics::Route,
};

/// Takes a place in a zone's line, or resumes the token's.
#[utoipa::path(
    post, path = "/traffic/wait", tag = "waiting",
    request_body = shape::Wait, responses((status = 200, body = shape::Answer))
)]
pub(super) async fn wait(
    State(state): State<PublicState>,
    client: Client,
    request: Request,
) -> axum::response::Response {
    routed(Poll::Wait, &state, client, request).await
}

/// Asks for a place: whether its holder may enter now.
#[utoipa::path(
    post, path = "/traffic/entry", tag = "waiting",
    request_body = shape::Entry, responses((status = 200, body = shape::Answer))
)]
pub(super) async fn entry(
    State(state): State<PublicState>,
    client: Client,
    request: Request,
) -> axum::response::Response {
    routed(Poll::Entry, &state, client, request).await
}

/// The holder leaves: gives up the place, or ends the visit, so that somebody else may enter. The body may also come as `text/plain`,
/// as `navigator.sendBeacon` sends a string.
#[utoipa::path(
    post, path = "/traffic/leave", tag = "waiting",
    request_body = shape::Leave, responses((status = 204, description = "The place is free, or the visit is over"))
)]
pub(super) async fn leave(
    State(state): State<PublicState>,
    client: Client,
    request: Request,
) -> Result<(StatusCode, Extension<BodyRead>), Problem> {
    let (head, mut body) = request.into_parts();
    origin::check(&state.cors_origins, &head.headers)?;
    body::check_beacon(&head.headers, &body, MAX_BODY)?;
    let body = body::read(&mut body, MAX_BODY, state.intake.body_timeout).await?;
    let request::Ask { zone, token } = request::parse(&body, true)?;
    let token = token.as_deref().unwrap_or_default().as_bytes();
    let holder = state.gate.holder(&zone, token).await?;
    obey_limit(&state, holder.ask_limits(&state.limits, client.0).await.as_ref())?;
    holder.leave(address_digest(client.0)).await?;
    Ok((StatusCode::NO_CONTENT, Extension(BodyRead)))
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

/// Answers a poll that came through the router.
async fn routed(
    poll: Poll,
    state: &PublicState,
    client: Client,
    request: Request,
) -> axum::response::Response {
    let (head, mut body) = request.into_parts();
    let (mut body_left, mut asked) = (true, None);
    let replied = answer(poll, state, client, &head.headers, &mut body, &mut body_left, &mut asked).await;
    let mut response = replied.map_or_else(IntoResponse::into_response, boxed);
    if let Some(asked) = asked {
        write_limit(&asked, response.headers_mut());
    }
    if !body_left {
        response.extensions_mut().insert(BodyRead);
    }
    response
}

/// Answers a poll. `body_left` becomes false when its body was read; `asked` is what the limiter decided, if it was asked.
pub(super) async fn answer<B>(
    poll: Poll,
    state: &PublicState,
    client: Client,
    headers: &HeaderMap,
    body: &mut B,
    body_left: &mut bool,
    asked: &mut Option<Asked>,
) -> Replied
where
    B: Body<Data = Bytes> + Unpin,
{
    origin::check(&state.cors_origins, headers)?;
    body::check(headers, body, MAX_BODY)?;
    let body = body::read(body, MAX_BODY, state.intake.body_timeout).await?;
    *body_left = false;
    let ask = request::parse(&body, poll == Poll::Entry)?;
    let answer = match &ask.token {
        Some(token) => {
            let holder = state.gate.holder(&ask.zone, token.as_bytes()).await?;
            *asked = holder.ask_limits(&state.limits, client.0).await;
            obey_limit(state, asked.as_ref())?;
            holder.poll().await?
        }
        None => {
            let newcomer = state.gate.newcomer(&ask.zone).await?;
            *asked = newcomer.ask_limits(&state.limits, client.0).await;
            obey_limit(state, asked.as_ref())?;
            newcomer.join().await?
        }
    };
    let text = reply::write(&state.passes.load(), &ask.zone, &answer);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

/// Refuses a call that the client's limit refuses, and counts those about which the limiter could not decide.
///
/// The limit depends on the zone and on whether there is a token, and both are in the body. So this cannot be a layer.
///
/// # Errors
/// The client calls too often.
pub(super) fn obey_limit(state: &PublicState, asked: Option<&Asked>) -> Result<(), Problem> {
    let Some(asked) = asked else { return Ok(()) };
    if asked.is_unknown() {
        state.intake.metrics.limits_unknown.increment(1);
    }
    asked.retry_after_s().map_or(Ok(()), |seconds| Err(Problem::too_many_requests(seconds)))
}

/// Writes the limiter's decision into the headers of the reply.
pub(super) fn write_limit(asked: &Asked, headers: &mut HeaderMap) {
    Announced::new(asked.limit.clone(), asked.name).write(&asked.decision, headers);
}
