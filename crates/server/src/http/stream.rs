//! Streams of server-sent events ([EventSource](https://html.spec.whatwg.org/multipage/server-sent-events.html)).
//!
//! Here is how events are written, and `waiting` has the streams of waiting users, about their own places. `public::stream` opens
//! one. Operators have streams about all events (`admin::stream`). A stream is the reply to one request, and takes the connection
//! over.
//!
//! Invariant: a waiting user gets only the events `wait`, `enter`, `problem` and `reconnect`. They contain the same data as the
//! reply to a poll, and only about this user's place.

mod waiting;

use std::{fmt::Write as _, time::Duration};

use axum::response::Response;
use edge::{Outlet, Takeover};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::sync::watch;

use super::NO_STORE;

pub use waiting::Streams;

/// Tells nginx to pass events on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A reply whose events `write` sends.
pub(super) fn response(write: impl FnOnce(Outlet) + Send + 'static) -> Response {
    let mut response: Response = Takeover::response(write);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Writes one event. `data` is one line.
pub(super) fn event(out: &mut String, name: &str, data: &str) {
    debug_assert!(!data.contains(['\r', '\n']), "one line");
    let written = write!(out, "event: {name}\ndata: {data}\n\n");
    debug_assert!(written.is_ok(), "writing to a String does not fail");
}

/// Returns when the server stops.
pub(super) async fn stop(stopped: &mut watch::Receiver<bool>) {
    // A dropped sender counts as a stop.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Sent when there is nothing else to send: it shows that the connection is alive.
pub(super) const HEARTBEAT: &str = ":\n\n";

/// The longest time without a message.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// The event that says: this server is about to stop, reconnect by the same address.
pub(super) const RECONNECT: &str = "reconnect";
