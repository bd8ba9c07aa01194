//! Every error, as HTTP: the one place where an error gets its status, code and title.
//!
//! An error is a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)). Its `code` is stable; `detail` is for
//! people and may change. Invariant: an error that ends the connection says `Connection: close`, and an error that may go
//! away says when to try again.

use std::{
    borrow::Cow,
    fmt::{Display, Write as _},
};

use admission::{PolicyFault, ScheduleFault};
use axum::{body::Body, response::IntoResponse};
use bytes::Bytes;
use events::SubscribeError;
use gate::{Refusal, definitions::DefineError};
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::{Map, Value};

/// A kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The stable name.
    pub name: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What it means.
    pub title: &'static str,
}

macro_rules! codes {
    ($($ident:ident = $status:literal $name:literal $title:literal;)*) => {
        $(#[doc = $title] pub const $ident: Code = Code { name: $name, status: $status, title: $title };)*
        /// All codes, in the order of their status.
        pub const ALL: &[Code] = &[$($ident),*];
    };
}

codes! {
    MALFORMED_HTTP = 400 "malformed_http" "The request is not valid HTTP";
    MALFORMED_JSON = 400 "malformed_json" "The body is not valid JSON";
    MISSING_FIELD = 400 "missing_field" "A field is missing";
    ODD_TARGET = 400 "odd_target" "Servers could read too many paths in this address";
    UNKNOWN_FIELD = 400 "unknown_field" "There is no such field";
    WRONG_TYPE = 400 "wrong_type" "A field has the wrong type";
    BAD_TOKEN = 401 "bad_token" "The token was not given out for this zone";
    UNAUTHORIZED = 401 "unauthorized" "This call needs an operator's token";
    DENIED = 403 "denied" "A rule of the operators refuses this request";
    FORBIDDEN = 403 "forbidden" "The token's role does not allow this";
    FOREIGN_ORIGIN = 403 "foreign_origin" "Pages of another origin may not call";
    OTHER_ADDRESS = 403 "other_address" "The entry belongs to another client address";
    PROXIED = 403 "proxied" "Without tokens, the admin API answers no request that came through a proxy";
    UNTRUSTED_PROXY = 403 "untrusted_proxy" "Only trusted proxies may ask about their visitors";
    NO_DRAW = 404 "no_draw" "The zone holds no such draw, or this is not published yet";
    NOT_FOUND = 404 "not_found" "There is nothing at this path";
    UNKNOWN_EVENT = 404 "unknown_event" "The zone has no such event";
    UNKNOWN_ZONE = 404 "unknown_zone" "There is no such zone";
    METHOD_NOT_ALLOWED = 405 "method_not_allowed" "The path does not allow this method";
    SLOW_BODY = 408 "slow_body" "The body came too slowly";
    SLOW_HEAD = 408 "slow_head" "The head came too slowly";
    ADMITTED = 409 "admitted" "The visitor may go on now";
    DRAW_DECIDED = 409 "draw_decided" "The draw waits for nothing that an operator states";
    NO_COOKIE = 409 "no_cookie" "The browser does not send the cookie that keeps the place";
    NOT_BEGUN = 409 "not_begun" "Nobody could take a place for this event yet";
    NOTHING_TO_LEAVE = 409 "nothing_to_leave" "There is no visit to end and no place to give up";
    ZONE_EXISTS = 409 "zone_exists" "A zone with this id exists already";
    GONE = 410 "gone" "The place was dropped; take a new ticket";
    LEFT = 410 "left" "The visit has ended, or the place is free; this is what was asked for";
    CHANGED_MEANWHILE = 412 "changed_meanwhile" "Somebody else changed it in the meantime";
    TOO_LARGE = 413 "too_large" "The body is too large";
    UNSUPPORTED_MEDIA_TYPE = 415 "unsupported_media_type" "The body must be application/json";
    FOREIGN_HOST = 421 "foreign_host" "The server does not answer under this host name";
    MISDIRECTED = 421 "misdirected" "No route names this host";
    BAD_ROUTE = 422 "bad_route" "A route cannot be used as it is written";
    NO_CELL = 422 "no_cell" "No store is configured for zones of this tenant";
    OUT_OF_RANGE = 422 "out_of_range" "A value is out of its range";
    TOO_MANY_ZONES = 422 "too_many_zones" "The largest number of zones is reached";
    PRECONDITION_REQUIRED = 428 "precondition_required" "The change must name the state that it changes";
    TOO_MANY_CONNECTIONS = 429 "too_many_connections" "The client has too many open connections";
    TOO_MANY_REQUESTS = 429 "too_many_requests" "The client calls too often";
    TOO_MANY_STREAMS = 429 "too_many_streams" "The client has too many open streams; it can poll";
    HEAD_TOO_LARGE = 431 "head_too_large" "The head is too large";
    BUSY = 503 "busy" "Too many calls are waiting for the store";
    NO_PLACE = 503 "no_place" "A request that shows nothing to anybody takes no place";
    OVERLOADED = 503 "overloaded" "Too many connections are open";
    STOPPING = 503 "stopping" "The server is about to stop";
    STORE_AWAY = 503 "store_away" "The store does not answer; places are kept";
    WAITING = 503 "waiting" "The visitor has to wait";
    ZONE_CLOSED = 503 "zone_closed" "The zone gives out no tickets at the moment";
    ZONE_FULL = 503 "zone_full" "The line takes no more people at the moment";
}

/// An error, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub code: Code,
    /// What exactly is wrong. Empty where the kind says it all.
    pub detail: Cow<'static, str>,
    /// When to try again, in seconds.
    pub retry_after_s: Option<u32>,
    /// The methods that the path allows.
    pub allow: Option<Cow<'static, str>>,
    /// Whether the connection ends with it.
    pub close: bool,
    /// Further members of the document. Only some kinds have them.
    pub more: Option<Box<Map<String, Value>>>,
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self { code, detail: Cow::Borrowed(""), retry_after_s: None, allow: None, close: false, more: None }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let later = |code, s| Self::from(code).retry_after(s);
        match refusal {
            Refusal::Elsewhere => OTHER_ADDRESS.into(),
            Refusal::UnknownZone => UNKNOWN_ZONE.into(),
            Refusal::BadToken => BAD_TOKEN.into(),
            Refusal::Gone => GONE.into(),
            Refusal::Closed { retry_after_s } => later(ZONE_CLOSED, retry_after_s),
            Refusal::Full { retry_after_s } => later(ZONE_FULL, retry_after_s),
            Refusal::StoreAway { retry_after_s } => later(STORE_AWAY, retry_after_s),
            Refusal::Busy { retry_after_s } => later(BUSY, retry_after_s),
        }
    }
}

impl From<DefineError> for Problem {
    fn from(error: DefineError) -> Self {
        match error {
            DefineError::Conflict(_) => CHANGED_MEANWHILE.into(),
            DefineError::Exists(_) => ZONE_EXISTS.into(),
            DefineError::UnknownZone => UNKNOWN_ZONE.into(),
            DefineError::NoCell => Self::new(NO_CELL, error.to_string()),
            DefineError::TooMany => Self::new(TOO_MANY_ZONES, error.to_string()),
            DefineError::Schedule(fault) => Self::schedule_fault(&fault),
            DefineError::OutOfRange(fault) => Self::policy_fault(&fault, fault.value.into()),
            DefineError::Busy => Self::from(BUSY).retry_after(1),
            DefineError::Away(_) => Self::of_unanswered(&error),
            DefineError::Disk(_) => Self::new(STORE_AWAY, error.to_string()).retry_after(3),
        }
    }
}

impl From<SubscribeError> for Problem {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::TooMany => Self::new(BUSY, error.to_string()).retry_after(5),
            SubscribeError::Refused { .. } | SubscribeError::Nothing => {
                Self::new(WRONG_TYPE, error.to_string())
            }
        }
    }
}

/// The reply, for axum. The problem itself goes along as an extension, for the log.
impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        let mut response = self.clone().into_reply().map(Body::new);
        response.extensions_mut().insert(self);
        response
    }
}

impl Problem {
    /// A store did not answer a change. It may have heard of it.
    #[must_use]
    pub fn of_unanswered(error: &impl Display) -> Self {
        let detail = format!("{error}; the change may be made nevertheless, so look before you repeat it");
        Self::new(STORE_AWAY, detail).retry_after(3)
    }

    /// The refusal of a call that leaves. A store that did not answer may have heard of it.
    #[must_use]
    pub fn of_leaving(refusal: Refusal) -> Self {
        match refusal {
            Refusal::StoreAway { retry_after_s } => {
                Self::new(STORE_AWAY, "it is not known whether the place or visit has ended: leave again")
                    .retry_after(retry_after_s)
            }
            refusal => refusal.into(),
        }
    }

    /// An error of this kind; `detail` says what exactly is wrong.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..Self::from(code) }
    }

    /// The same error; it ends the connection.
    #[must_use]
    pub fn closing(self) -> Self {
        Self { close: true, ..self }
    }

    /// The same error; the client may try again after these seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// The same error, with further members.
    #[must_use]
    pub fn with<const N: usize>(mut self, members: [(&str, Value); N]) -> Self {
        let more = self.more.get_or_insert_default();
        more.extend(members.map(|(name, value)| (name.to_owned(), value)));
        self
    }

    /// The server is about to stop, or out of service.
    #[must_use]
    pub fn stopping() -> Self {
        Self::from(STOPPING).retry_after(1)
    }

    /// The path does not allow this method, which allows those of `allow`.
    #[must_use]
    pub fn method_not_allowed(allow: String) -> Self {
        Self { allow: Some(allow.into()), ..METHOD_NOT_ALLOWED.into() }
    }

    /// A number is out of its range. The document says the range, so that a program can use it.
    #[must_use]
    pub fn out_of_range(field: &str, value: Value, low: u32, high: u32, detail: String) -> Self {
        let members = [("field", field.into()), ("value", value), ("low", low.into()), ("high", high.into())];
        Self::new(OUT_OF_RANGE, detail).with(members)
    }

    /// A field of a body is out of its range.
    #[must_use]
    pub fn field_out_of_range(field: &str, value: Value, low: u32, high: u32) -> Self {
        let detail = format!("`{field}` is {value}, and must be {low} to {high}");
        Self::out_of_range(field, value, low, high, detail)
    }

    /// A number of a policy is out of its range. `value` is the number as it was sent.
    #[must_use]
    pub fn policy_fault(fault: &PolicyFault, value: Value) -> Self {
        Self::field_out_of_range(&format!("policy.{}", fault.field), value, fault.low, fault.high)
    }

    /// The events of a zone do not fit each other, or its policy.
    #[must_use]
    pub fn schedule_fault(fault: &ScheduleFault) -> Self {
        Self::new(OUT_OF_RANGE, format!("`events`: {fault}"))
    }

    /// The body has more than `most` bytes. The connection ends, because the rest is not read.
    #[must_use]
    pub fn too_large(most: usize) -> Self {
        Self::new(TOO_LARGE, format!("send at most {most} bytes")).closing()
    }

    /// Too many connections are open.
    #[must_use]
    pub fn overloaded() -> Self {
        Self::from(OVERLOADED).retry_after(5).closing()
    }

    /// The client has too many open connections.
    #[must_use]
    pub fn too_many_connections() -> Self {
        Self::from(TOO_MANY_CONNECTIONS).retry_after(5).closing()
    }

    /// The client calls too often. Its place is kept.
    #[must_use]
    pub fn too_many_requests(retry_after_s: u32) -> Self {
        Self::from(TOO_MANY_REQUESTS).retry_after(retry_after_s)
    }

    /// The document, on one line.
    #[must_use]
    pub fn body(&self) -> String {
        let Code { name, status, title } = self.code;
        let mut body = String::with_capacity(192);
        let written = write!(
            body,
            r#"{{"type":"urn:weir:problem:{name}","title":"{title}","status":{status},"code":"{name}""#
        );
        debug_assert!(written.is_ok(), "writing to a String does not fail");
        if !self.detail.is_empty() {
            body.push_str(r#","detail":"#);
            body.push_str(&Value::from(self.detail.as_ref()).to_string());
        }
        for (member, value) in self.more.iter().flat_map(|more| more.iter()) {
            body.extend([",\"", member, "\":", &value.to_string()]);
        }
        body.push('}');
        body
    }

    /// The reply.
    #[must_use]
    pub fn into_reply(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body())));
        *response.status_mut() = StatusCode::from_u16(self.code.status).expect("the table has real statuses");
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::try_from(allow.as_ref()).expect("methods are plain words"));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        // RFC 9110, 11.6.1: a 401 names the scheme. Tickets are not sent in a header, so their scheme is our own.
        let scheme = if self.code == UNAUTHORIZED { "Bearer realm=\"weir\"" } else { "Ticket" };
        if self.code.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_every_kind_makes_a_document() {
        let mut names: Vec<_> = ALL.iter().map(|code| code.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.is_sorted_by_key(|code| (code.status, code.name)));
        for &code in ALL {
            let problem = Problem::new(code, "a \"quoted\" \u{1} word");
            let body: serde_json::Value = serde_json::from_str(&problem.body()).expect("JSON");
            assert_eq!(body["code"], code.name);
            assert_eq!(body["status"], code.status);
            assert_eq!(body["detail"], "a \"quoted\" \u{1} word");
            assert_eq!(problem.into_reply().status().as_u16(), code.status);
        }
    }

    #[test]
    fn the_last_reply_of_a_connection_says_so() {
        let response = Problem::overloaded().into_reply();
        assert_eq!(response.headers()[RETRY_AFTER], "5");
        assert_eq!(response.headers()[CONNECTION], "close");
    }
}
