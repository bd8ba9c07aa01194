//! The two calls that apps poll: `wait` and `entry`.

use axum::{
    Extension,
    extract::{Request, State},
    response::IntoResponse,
};
use bytes::Bytes;
use events::LimitedCall;
use gate::limits::Asked;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Body,
    header::{CONTENT_TYPE, HeaderMap},
};
use limiter::{Decision, layer::Announced};

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
    check_limit(&state, &zone, LimitedCall::Entry, client, Some(token), &mut None).await?;
    state.gate.leave_with(&zone, token, address_digest(client.0)).await?;
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
    let is_entry = poll == Poll::Entry;
    let ask = request::parse(&body, is_entry)?;
    let token = ask.token.as_deref().map(str::as_bytes);
    let call = if token.is_some() { LimitedCall::Entry } else { LimitedCall::Wait };
    check_limit(state, &ask.zone, call, client, token, asked).await?;
    let answer = match token {
        Some(token) if is_entry => state.gate.entry(&ask.zone, token).await?,
        token => state.gate.wait(&ask.zone, token).await?,
    };
    let text = reply::write(&state.passes.load(), &ask.zone, &answer);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

/// Asks the zone's limits whether the client may call, and leaves their decision in `asked`. If a call with a
/// `token` is refused, its holder keeps the place. A call with a token that the zone did not give out is not counted: it is
/// refused for its token.
///
/// The limit depends on the zone and on whether there is a token, and both are in the body. So this cannot be a layer.
///
/// # Errors
/// The client calls too often.
pub(super) async fn check_limit(
    state: &PublicState,
    zone: &str,
    call: LimitedCall,
    client: Client,
    token: Option<&[u8]>,
    asked: &mut Option<Asked>,
) -> Result<(), Problem> {
    if let Some(limits) = state.gate.limits(zone).filter(|limits| limits.limits(call))
        && token.is_none_or(|token| state.gate.gave_out(zone, token))
    {
        *asked = state.limits.ask(zone, &limits, call, client.0).await;
    }
    match asked.as_ref().map(|asked| asked.decision) {
        Some(Decision::Unknown { .. }) => state.intake.metrics.limits_unknown.increment(1),
        Some(refusal) if !refusal.is_allowed() => {
            let seconds = refusal.retry_after_s().unwrap_or(1);
            let retry_after_s = u32::try_from(seconds).unwrap_or(u32::MAX);
            state.gate.limited(zone, call, retry_after_s, token);
            return Err(Problem::too_many_requests(retry_after_s));
        }
        _ => {}
    }
    Ok(())
}

/// Writes the limiter's decision into the headers of the reply.
pub(super) fn write_limit(asked: &Asked, headers: &mut HeaderMap) {
    Announced::new(asked.limit.clone(), asked.name).write(&asked.decision, headers);
}
