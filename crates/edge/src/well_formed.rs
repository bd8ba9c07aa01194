//! Which requests reach the service, and how the edge replies to what never becomes a request.

use std::{
    convert::Infallible,
    error::Error,
    task::{Context, Waker},
};

use hyper::{
    HeaderMap, Request, Version,
    body::{Body as _, Incoming},
    header::{CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING},
};
use tower_service::Service;

use crate::{
    Refusal,
    connection::{Connection, Phase},
    received::Received,
};

/// The engine accepts a request that RFC 9112 forbids.
#[derive(Debug, thiserror::Error)]
#[error("a request without one `Host`, or with a transfer coding other than `chunked`")]
pub(crate) struct Malformed;

/// What the engine does not check. RFC 9112, 3.2: a request has one `Host`, and only HTTP/1.0 may have none. Section 6.1: a
/// body in a transfer coding that we do not know cannot be read. Proxies may understand such requests in another way than
/// we do, and so be made to forward a request that they did not check.
pub(crate) fn check(request: &Request<Incoming>) -> Result<(), Malformed> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let is_named = hosts.next().is_some() || request.version() < Version::HTTP_11;
    if !is_named || hosts.next().is_some() {
        return Err(Malformed);
    }
    // With HTTP/1.1, only a body in a transfer coding has no known length.
    if request.version() <= Version::HTTP_11 && request.body().size_hint().exact().is_none() {
        let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
        let is_chunked =
            codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !is_chunked || codings.next().is_some() {
            return Err(Malformed);
        }
    }
    Ok(())
}

/// What to reply after an engine has ended, in place of what the engine wanted to reply.
pub(crate) fn refusal(connection: &Connection, failure: Option<&hyper::Error>) -> Option<Refusal> {
    let parse_failed = failure.is_some_and(hyper::Error::is_parse);
    let cause = failure.and_then(Error::source);
    // A reply that is not out yet must not be followed by a refusal in its middle.
    let is_malformed =
        cause.is_some_and(<dyn Error>::is::<Malformed>) && connection.phase().0 != Phase::Reply;
    match connection.engine_status() {
        Some(431 | 414) => Some(Refusal::HeadTooLarge),
        Some(_) => Some(Refusal::Malformed),
        None if connection.head_is_late() => Some(Refusal::SlowHead),
        None if parse_failed && !connection.service_closes() => Some(Refusal::Malformed),
        None if is_malformed => Some(Refusal::Malformed),
        None => None,
    }
}

/// With HTTP/1.1: notes that the service ends the connection with this reply, or says that a drain does.
pub(crate) fn close_if_last(connection: &Connection, reply: &mut HeaderMap) {
    if reply.contains_key(CONNECTION) {
        connection.close_by_service();
    } else if connection.is_draining() {
        reply.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Calls a service, which is always ready: see [`Edge`](crate::Edge).
pub(crate) fn call<S>(service: &S, request: Request<Received>) -> S::Future
where
    S: Service<Request<Received>, Error = Infallible> + Clone,
{
    let mut service = service.clone();
    // The contract of `Service`.
    let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    debug_assert!(ready.is_ready(), "see `Edge`");
    service.call(request)
}
