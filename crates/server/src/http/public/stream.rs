//! The call by which a waiting user asks for the stream of a place.

use std::{borrow::Cow, sync::Arc};

use admission::ZoneId;
use axum::{
    Extension,
    extract::{RawQuery, State},
    response::Response,
};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::{documented, state::PublicState};
use crate::http::{
    context::RequestContext,
    origin,
    problem::{Problem, TOO_MANY_STREAMS, UNKNOWN_ZONE},
    query::{Others, fields, needed},
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Follows a place: server-sent events `wait` (what polls have in `waiting`), `enter` (what they are answered), `problem`, and
/// `reconnect`. An event's id is the newest token.
#[utoipa::path(
    get,
    path = "/traffic/stream",
    tag = "waiting",
    params(
        ("zone" = String, Query, description = "The zone's id", example = "TEST_ZONE"),
        ("token" = String, Query, description = "The place's token"),
        ("Last-Event-ID" = Option<String>, Header, description = "A newer token. Browsers send it when they reconnect"),
    ),
    responses((status = 200, content_type = "text/event-stream", body = documented::StreamEvent)),
)]
pub(super) async fn stream(
    State(state): State<PublicState>,
    Extension(context): Extension<Arc<RequestContext>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (requests, client) = (&state.requests, context.client.0);
    origin::check(&requests.cors_origins, &headers)?;
    if state.lifecycle.is_out_of_service() {
        return Err(Problem::stopping());
    }
    let request = StreamRequest::read(query.as_deref(), &headers)?;
    let zone = ZoneId::parse(&request.zone).map_err(|_| Problem::from(UNKNOWN_ZONE))?;
    let holder = state.gate.holder(zone.as_str(), request.token.as_bytes()).await?;
    // However long it lasts, a stream counts as one call.
    let mut watch = context.watch("poll", zone.as_str());
    let limit = watch.limits(holder.ask_limits(&state.limits, client)).await;
    requests.obey(context.show_limit(limit))?;
    let share = state.streams.share(client).ok_or_else(|| {
        requests.metrics.streams_refused.increment(1);
        Problem::from(TOO_MANY_STREAMS).retry_after(5)
    })?;
    let first = holder.poll_for_stream(&mut watch.trips).await?;
    drop(watch);
    Ok(state.streams.open(zone, first, share))
}

/// A request for the stream of a waiting user.
#[derive(Debug, PartialEq, Eq)]
struct StreamRequest<'a> {
    /// The zone's id, as it was sent.
    zone: Cow<'a, str>,
    /// The newest token: the `Last-Event-ID` that browsers send when they reconnect, or `token`.
    token: Cow<'a, str>,
}

impl<'a> StreamRequest<'a> {
    fn read(query: Option<&'a str>, headers: &'a HeaderMap) -> Result<Self, Problem> {
        let [zone, token] = fields(query, ["zone", "token"], Others::Ignored)?;
        // It is newer than the token in the address, which never changes.
        let last = headers.get(LAST_EVENT_ID).map(HeaderValue::as_bytes).filter(|last| !last.is_empty());
        let token = last.map(String::from_utf8_lossy).or(token);
        Ok(Self { zone: needed(zone, "zone")?, token: needed(token, "token")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::{MISSING_FIELD, WRONG_TYPE};

    #[test]
    fn a_place_is_asked_for_by_token_or_by_the_last_event() {
        let none = HeaderMap::new();
        let back = HeaderMap::from_iter([(LAST_EVENT_ID, HeaderValue::from_static("newer"))]);
        let fresh = HeaderMap::from_iter([(LAST_EVENT_ID, HeaderValue::from_static(""))]);
        let at = |zone, token| Ok(StreamRequest { zone: Cow::Borrowed(zone), token: Cow::Borrowed(token) });
        assert_eq!(StreamRequest::read(Some("zone=Z&token=t"), &none), at("Z", "t"));
        assert_eq!(
            StreamRequest::read(Some("token=t&zone=shop%3Acheckout"), &fresh),
            at("shop:checkout", "t")
        );
        assert_eq!(StreamRequest::read(Some("zone=Z&token=t"), &back), at("Z", "newer"));
        assert_eq!(StreamRequest::read(Some("zone=Z"), &back), at("Z", "newer"));
        assert_eq!(StreamRequest::read(Some("zone=Z&token=t&lastEventId=1&_=2&_=3"), &none), at("Z", "t"));
        for (query, code, word) in [
            (None, MISSING_FIELD, "`zone`"),
            (Some("zone=Z"), MISSING_FIELD, "`token`"),
            (Some("token=t"), MISSING_FIELD, "`zone`"),
            (Some("zoneId=Z&token=t"), MISSING_FIELD, "`zone`"),
            (Some("zone=Z&zone=Z&token=t"), WRONG_TYPE, "`zone`"),
        ] {
            let problem = StreamRequest::read(query, &none).expect_err("refused");
            assert_eq!(problem.code, code, "{query:?}");
            assert!(problem.detail.starts_with(word), "{query:?}: {}", problem.detail);
        }
    }
}
