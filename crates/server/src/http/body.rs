//! Reading the bodies of requests: media type, size and time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    body::Body,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::time::timeout;

use super::problem::{MALFORMED_HTTP, Problem, SLOW_BODY, UNSUPPORTED_MEDIA_TYPE};

/// A body that a layer has read already.
pub(super) struct Whole(pub(super) Bytes);

impl<S: Sync> FromRequest<S> for Whole {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let body = request.into_body().collect().await;
        Ok(Self(body.map_err(|_| broken())?.to_bytes()))
    }
}

/// Refuses what can be refused before the body is read. A missing content type counts as JSON.
///
/// # Errors
/// A body that is longer than `most` bytes, that is not JSON, or that is compressed.
pub(super) fn check(headers: &HeaderMap, body: &impl Body, most: usize) -> Result<(), Problem> {
    check_kind(headers, body, most, &["application/json"])
}

/// Like [`check`], for operators: a change may say that it is one ([RFC 7396](https://www.rfc-editor.org/rfc/rfc7396)).
///
/// # Errors
/// As [`check`].
pub(super) fn check_change(headers: &HeaderMap, body: &impl Body, most: usize) -> Result<(), Problem> {
    check_kind(headers, body, most, &["application/json", "application/merge-patch+json"])
}

/// Like [`check`], for a call that pages make by `navigator.sendBeacon`, which sends a string as plain text.
///
/// # Errors
/// As [`check`].
pub(super) fn check_beacon(headers: &HeaderMap, body: &impl Body, most: usize) -> Result<(), Problem> {
    check_kind(headers, body, most, &["application/json", "text/plain"])
}

fn check_kind(headers: &HeaderMap, body: &impl Body, most: usize, kinds: &[&str]) -> Result<(), Problem> {
    let is_json = |value: &HeaderValue| {
        let kind = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        kinds.iter().any(|wanted| kind.trim().eq_ignore_ascii_case(wanted))
    };
    let coded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if body.size_hint().lower() > most as u64 {
        Err(Problem::too_large(most))
    } else if headers.get(CONTENT_TYPE).is_some_and(|value| !is_json(value)) {
        Err(UNSUPPORTED_MEDIA_TYPE.into())
    } else if headers.get(CONTENT_ENCODING).is_some_and(coded) {
        Err(Problem::new(UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed"))
    } else {
        Ok(())
    }
}

/// Reads a body of at most `most` bytes within `limit`.
///
/// # Errors
/// A body that is too long, too slow, or incomplete. The connection ends with it.
pub(super) async fn read<B>(body: &mut B, most: usize, limit: Duration) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut reading = pin!(read_all(body, most));
    // Nearly every body has arrived already, and needs no timer.
    let now = poll_fn(|cx| {
        Poll::Ready(match reading.as_mut().poll(cx) {
            Poll::Ready(read) => Some(read),
            Poll::Pending => None,
        })
    });
    match now.await {
        Some(read) => read,
        None => timeout(limit, reading).await.unwrap_or_else(|_| Err(Problem::from(SLOW_BODY).closing())),
    }
}

async fn read_all<B>(body: &mut B, most: usize) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| broken())?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > most {
            return Err(Problem::too_large(most));
        }
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { [&first[..], &rest].concat().into() })
}

fn broken() -> Problem {
    Problem::new(MALFORMED_HTTP, "the body broke off").closing()
}
