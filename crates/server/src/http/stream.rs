//! Streams of server-sent events ([EventSource](https://html.spec.whatwg.org/multipage/server-sent-events.html)): what
//! they are asked with, and how they are written.
//!
//! One for each waiting user (`fan`), one for each operator who listens (`told`). A stream is the reply to one request,
//! and ends the connection. Invariant: what is said to a waiting user is one of four events, `wait`, `enter`, `problem`
//! and `reconnect`, and holds what a poll would have been answered, about the own place alone.

mod fan;
mod told;

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use form_urlencoded::parse;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::watch;

use super::problem::{MISSING_FIELD, Problem, UNKNOWN_FIELD, WRONG_TYPE};

pub use fan::Streams;
pub(super) use fan::open as open_place;
pub(super) use told::{RIGHT, kinds, open as open_told};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The place that is to be told of.
#[derive(Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// `zone`
    pub zone: Cow<'a, str>,
    /// The `Last-Event-ID` that browsers send when they come back, or `token`.
    pub token: Cow<'a, str>,
}

/// Reads the target of a request for a user's stream.
///
/// # Errors
/// A [`Problem`] that says what is wrong.
pub fn place<'a>(query: Option<&'a str>, headers: &'a HeaderMap) -> Result<Place<'a>, Problem> {
    let [zone, token] = fields(query, ["zone", "token"])?;
    // It is newer than the one in the address, which stays as it was.
    let last = headers.get(LAST_EVENT_ID).map(HeaderValue::as_bytes).filter(|last| !last.is_empty());
    let token = last.map(String::from_utf8_lossy).or(token);
    let missing = |name| Problem::new(MISSING_FIELD, format!("`{name}`, in the address"));
    Ok(Place { zone: zone.ok_or_else(|| missing("zone"))?, token: token.ok_or_else(|| missing("token"))? })
}

/// The fields of a query, each once.
pub(super) fn fields<'a, const N: usize>(
    query: Option<&'a str>,
    names: [&str; N],
) -> Result<[Option<Cow<'a, str>>; N], Problem> {
    let mut found = [const { None }; N];
    for (name, value) in parse(query.unwrap_or_default().as_bytes()) {
        let Some(at) = names.iter().position(|known| *known == name) else {
            let shown: String = name.chars().take(64).collect();
            return Err(Problem::new(UNKNOWN_FIELD, format!("`{shown}`, in the address")));
        };
        if found[at].replace(value).is_some() {
            return Err(Problem::new(WRONG_TYPE, format!("`{name}` is there twice, in the address")));
        }
    }
    Ok(found)
}

/// The head of a stream, with further fields. Its end is that of the connection.
fn head(said: &HeaderMap) -> String {
    let mut head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n\
        x-accel-buffering: no\r\nconnection: close\r\n"
        .to_owned();
    for (name, value) in said {
        // What is no text has no business here.
        if let Ok(value) = value.to_str() {
            head.extend([name.as_str(), ": ", value, "\r\n"]);
        }
    }
    head.push_str("\r\n");
    head
}

/// Writes one event. `data` is one line.
fn event(out: &mut String, name: &str, data: &str) {
    debug_assert!(!data.contains(['\r', '\n']), "one line");
    let written = write!(out, "event: {name}\ndata: {data}\n\n");
    debug_assert!(written.is_ok(), "a String takes all");
}

/// Returns when the server stops.
async fn stop(stopped: &mut watch::Receiver<bool>) {
    // A sender that is gone stops it, too.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// What is said where there is nothing to say: that the connection is alive.
const HEARTBEAT: &str = ":\n\n";

/// How long a stream may say nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// The event that says: this server is about to stop, come back by the address you have.
const RECONNECT: &str = "reconnect";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_asked_for_by_token_or_by_the_last_event() {
        let none = HeaderMap::new();
        let back = HeaderMap::from_iter([(LAST_EVENT_ID, HeaderValue::from_static("newer"))]);
        let fresh = HeaderMap::from_iter([(LAST_EVENT_ID, HeaderValue::from_static(""))]);
        let at = |zone, token| Ok(Place { zone: Cow::Borrowed(zone), token: Cow::Borrowed(token) });
        assert_eq!(place(Some("zone=Z&token=t"), &none), at("Z", "t"));
        assert_eq!(place(Some("token=t&zone=shop%3Acheckout"), &fresh), at("shop:checkout", "t"));
        assert_eq!(place(Some("zone=Z&token=t"), &back), at("Z", "newer"));
        assert_eq!(place(Some("zone=Z"), &back), at("Z", "newer"));
        for (query, code, word) in [
            (None, MISSING_FIELD, "`zone`"),
            (Some("zone=Z"), MISSING_FIELD, "`token`"),
            (Some("token=t"), MISSING_FIELD, "`zone`"),
            (Some("zoneId=Z&token=t"), UNKNOWN_FIELD, "`zoneId`"),
            (Some("zone=Z&zone=Z&token=t"), WRONG_TYPE, "`zone`"),
        ] {
            let problem = place(query, &none).expect_err("refused");
            assert_eq!(problem.code, code, "{query:?}");
            assert!(problem.detail.starts_with(word), "{query:?}: {}", problem.detail);
        }
    }
}
