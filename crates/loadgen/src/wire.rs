//! The requests and replies on the wire.
//!
//! Invariant: unknown fields are ignored. A reply without a field that an app needs, or with an empty pass or a rank of 0, is
//! [`Answer::Invalid`].

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use hyper::header::HeaderName;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::error::Category;

/// The path that takes a place.
pub const WAIT: &str = "/traffic/wait";
/// The path that asks to enter.
pub const ENTRY: &str = "/traffic/entry";

/// The path that gives a place up.
pub const LEAVE: &str = "/traffic/leave";

/// The path of streams of events.
pub const STREAM: &str = "/traffic/stream";
/// The header with the newest token, when a stream is opened again.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    zone_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

/// The body of a request: without a token it takes a place in `zone`, with a token it asks to enter.
#[must_use]
pub fn body(zone: &str, token: Option<&str>) -> Bytes {
    // Two strings always serialize.
    serde_json::to_vec(&Body { zone_id: zone, token }).unwrap_or_default().into()
}

/// The address of a stream at `path`.
#[must_use]
pub fn stream(path: &str, zone: &str, token: &str) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("zone", zone), ("token", token)])
        .finish();
    format!("{path}?{query}")
}

/// The path of the published rule of a zone.
#[must_use]
pub fn rules(zone: &str) -> String {
    format!("/zones/{zone}/rules")
}

/// The path of a draw.
#[must_use]
pub fn draw(zone: &str, event: &str) -> String {
    format!("/draws/{zone}/{event}")
}

/// The content of a reply "not yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// 1 + the number of people ahead.
    #[serde(deserialize_with = "rank")]
    pub rank: u64,
    /// The time until the next call, milliseconds.
    pub polling_period: u32,
    /// The expected wait, seconds; none while nobody is admitted.
    #[serde(default)]
    pub eta_seconds: Option<u32>,
    /// Its range, seconds.
    #[serde(default)]
    pub eta_range: Option<(u32, u32)>,
    /// The store cannot be reached, and the values are the last known ones.
    #[serde(default)]
    pub stale: bool,
    /// The time until the zone opens, milliseconds; none if it is open, or no instant is set.
    #[serde(default)]
    pub opens_in_ms: Option<u32>,
    /// Why the wait is missing or longer than before.
    #[serde(default)]
    pub reason: Option<Reason>,
}

/// What is wrong with a rank of 0.
const RANK_0: &str = "a rank is 0";

/// Reads a rank. The first one is 1.
fn rank<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match u64::deserialize(from)? {
        0 => Err(D::Error::custom(RANK_0)),
        rank => Ok(rank),
    }
}

impl Waiting {
    /// Whether the order is still to be drawn. Then nobody has a rank: it says how many people take part.
    #[must_use]
    pub fn is_undrawn(&self) -> bool {
        self.reason == Some(Reason::Draw)
    }
}

/// Why a wait is missing or longer than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The order is still to be drawn.
    Draw,
    /// Another reason.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    can_enter: bool,
    token: Option<Box<str>>,
    pass: Option<Box<str>>,
    waiting: Option<Waiting>,
}

#[derive(Default, Deserialize)]
struct Problem {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    status: u16,
}

/// The meaning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// "Enter", with the identity of the pass.
    Enter {
        /// The newest token, if the reply has one.
        token: Option<Box<str>>,
        /// The `jti` of the pass; or, if it has none, the pass without its signature, which may differ each time.
        pass: Box<str>,
    },
    /// "Not yet".
    NotYet {
        /// The newest token.
        token: Box<str>,
        /// Rank, wait and time until the next call.
        waiting: Waiting,
    },
    /// The place is gone (410).
    Gone,
    /// Another status.
    Refused {
        /// The status.
        status: u16,
        /// The stable code of the problem; empty if it has none.
        code: String,
        /// The time until a retry, milliseconds (429 and 503 only). That of a reply that is not Weir's counts up to 12 s, as in the clients.
        retry_after_ms: Option<u32>,
        /// Whether it is a problem of Weir. Others come from what is in front of it.
        is_of_weir: bool,
    },
    /// Status 200, but not the reply of a waiting room; with the reason.
    Invalid(String),
}

/// Whoever has a place asks within 15 s again after the error of a proxy, whatever it says; the clients take up to 12 s from it.
const LONGEST_OF_OTHERS_MS: u32 = 12_000;

/// The codes with which a zone gives no place: it is closed, or its line is full.
const NO_PLACE: [&str; 2] = ["zone_closed", "zone_full"];

impl Answer {
    /// The code with which the zone says that it gives no places now, because it is closed or its line is full; none for any other
    /// answer. This is no fault of the server.
    #[must_use]
    pub fn no_place(&self) -> Option<&str> {
        match self {
            Self::Refused { status: 503, code, .. } if NO_PLACE.contains(&code.as_str()) => Some(code),
            _ => None,
        }
    }
}

/// Reads a reply from its status, its `Retry-After` and its body.
#[must_use]
pub fn read(status: u16, retry_after: Option<&str>, body: &[u8]) -> Answer {
    match status {
        200 => read_ok(body).unwrap_or_else(Answer::Invalid),
        410 => Answer::Gone,
        _ => {
            let Problem { mut code, kind, .. } = serde_json::from_slice(body).unwrap_or_default();
            let is_of_weir = kind.starts_with("urn:weir:problem:");
            if !is_code(&code) {
                code.clear();
            }
            let seconds = retry_after.and_then(|value| value.trim().parse::<u32>().ok());
            let retry_after_ms =
                seconds.filter(|_| matches!(status, 429 | 503)).map(|s| s.saturating_mul(1000));
            let most_ms = if is_of_weir { u32::MAX } else { LONGEST_OF_OTHERS_MS };
            Answer::Refused {
                status,
                code,
                retry_after_ms: retry_after_ms.map(|ms| ms.min(most_ms)),
                is_of_weir,
            }
        }
    }
}

/// Reads the problem document of an event.
#[must_use]
pub fn problem(data: &[u8]) -> Answer {
    let status = serde_json::from_slice::<Problem>(data).unwrap_or_default().status;
    match status {
        200 => Answer::Invalid("a problem with status 200".to_owned()),
        status => read(status, None, data),
    }
}

/// Whether a text is a stable code: it is shown on terminals and in reports, and a hostile or faulty server may have written
/// anything there, such as the headers of the call.
fn is_code(text: &str) -> bool {
    text.len() <= 40 && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
}

fn read_ok(body: &[u8]) -> Result<Answer, String> {
    let raw: Raw = serde_json::from_slice(body)
        .map_err(|error| format!("not the reply of a waiting room: {}", fault(&error)))?;
    if raw.can_enter {
        let pass = raw.pass.filter(|pass| !pass.trim().is_empty());
        let pass = pass.ok_or("not the reply of a waiting room: `canEnter` without `pass`")?;
        let identity = pass_number(&pass).unwrap_or_else(|| unsigned(&pass).into());
        return Ok(Answer::Enter { token: raw.token, pass: identity });
    }
    let token = raw.token.ok_or("not the reply of a waiting room: missing field `token`")?;
    let waiting = raw.waiting.ok_or("not the reply of a waiting room: missing field `waiting`")?;
    Ok(Answer::NotYet { token, waiting })
}

/// What is wrong with a reply, without its text (see [`is_code`]), and without the place in it: the same fault is counted together.
fn fault(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => "it ends early".to_owned(),
        Category::Syntax | Category::Io => "it is not JSON".to_owned(),
        Category::Data if error.to_string().starts_with(RANK_0) => RANK_0.to_owned(),
        Category::Data => missing(error).unwrap_or_else(|| "a field is of another type".to_owned()),
    }
}

/// The field that is missing. Serde names only fields of this module there.
fn missing(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let (field, _) = text.strip_prefix("missing field `")?.split_once('`')?;
    Some(format!("missing field `{field}`"))
}

/// The pass without its signature.
fn unsigned(pass: &str) -> &str {
    pass.rsplit_once('.').map_or(pass, |(claims, _)| claims)
}

/// The `jti` of a JWT. The server may sign the same pass again, with another signature but the same `jti`.
fn pass_number(pass: &str) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Claims {
        jti: Box<str>,
    }
    let claims = URL_SAFE_NO_PAD.decode(pass.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok().map(|claims| claims.jti)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_apps_send() {
        assert_eq!(body("a\"b", None), r#"{"zoneId":"a\"b"}"#);
        assert_eq!(body("Z", Some("t")), r#"{"zoneId":"Z","token":"t"}"#);
    }

    #[test]
    fn replies_are_read_and_unknown_fields_ignored() {
        let reply = br#"{"canEnter":false,"token":"t","new":1,"waiting":{"rank":12,"etaSeconds":null,"reason":"held","pollingPeriod":3000}}"#;
        let waiting = Waiting {
            rank: 12,
            polling_period: 3000,
            eta_seconds: None,
            eta_range: None,
            stale: false,
            opens_in_ms: None,
            reason: Some(Reason::Other),
        };
        assert_eq!(read(200, None, reply), Answer::NotYet { token: "t".into(), waiting });
        let undrawn = br#"{"canEnter":false,"token":"t","waiting":{"rank":12,"etaSeconds":null,"reason":"draw","pollingPeriod":3000,"opensInMs":7}}"#;
        let Answer::NotYet { waiting, .. } = read(200, None, undrawn) else { panic!("a place") };
        assert!(waiting.is_undrawn() && waiting.opens_in_ms == Some(7), "{waiting:?}");
        let enter = br#"{"canEnter":true,"token":"t","pass":"p"}"#;
        assert_eq!(read(200, None, enter), Answer::Enter { token: Some("t".into()), pass: "p".into() });
        assert_eq!(read(410, None, b""), Answer::Gone);
    }

    #[test]
    fn a_reply_without_a_needed_field_is_invalid() {
        for body in [
            "<html>",
            "{}",
            r#"{"canEnter":true}"#,
            r#"{"canEnter":false,"token":"t"}"#,
            r#"{"canEnter":false,"waiting":{"rank":1,"pollingPeriod":1}}"#,
            r#"{"canEnter":false,"token":"t","waiting":{"rank":1}}"#,
            // An empty pass lets nobody in, and the first rank is 1.
            r#"{"canEnter":true,"token":"t","pass":""}"#,
            r#"{"canEnter":false,"token":"t","waiting":{"rank":0,"pollingPeriod":1}}"#,
        ] {
            assert!(matches!(read(200, None, body.as_bytes()), Answer::Invalid(_)), "{body}");
        }
    }

    /// Users come back from the error of a proxy as the clients do, whatever it says.
    #[test]
    fn the_retry_after_of_a_proxy_is_bounded() {
        let retry = |status, body: &[u8], after: &str| match read(status, Some(after), body) {
            Answer::Refused { retry_after_ms, is_of_weir, .. } => (retry_after_ms, is_of_weir),
            other => panic!("{other:?}"),
        };
        let problem = br#"{"type":"urn:weir:problem:busy","status":503,"code":"busy"}"#;
        assert_eq!(retry(503, problem, "86400"), (Some(86_400_000), true));
        assert_eq!(retry(503, b"<h1>503</h1>", "86400"), (Some(12_000), false));
        assert_eq!(retry(503, b"<h1>503</h1>", "3"), (Some(3_000), false));
        assert_eq!(retry(502, b"<h1>502</h1>", "3"), (None, false));
    }

    /// A proxy may answer with the head of the call, and anything else.
    #[test]
    fn what_a_server_wrote_is_not_shown_unless_it_is_a_code() {
        let code = |code: &str| match read(500, None, format!(r#"{{"code":{code:?}}}"#).as_bytes()) {
            Answer::Refused { code, .. } => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code("zone_full"), "zone_full");
        for text in ["Authorization: secret", "secret\u{7}", "SECRET", &"s".repeat(41)] {
            assert_eq!(code(text), "", "{text}");
        }
        for body in [r#"{"canEnter":"secret"}"#, "secret", r#"{"secret"#] {
            let Answer::Invalid(why) = read(200, None, body.as_bytes()) else { panic!("{body}") };
            assert!(!why.contains("secret"), "{why}");
        }
    }

    /// The same fault is counted together, whatever else is in the reply. Its field is named if it is missing.
    #[test]
    fn a_fault_of_a_reply_is_the_same_wherever_it_is_in_the_text() {
        let why = |body: String| match read(200, None, body.as_bytes()) {
            Answer::Invalid(why) => why,
            other => panic!("{other:?}"),
        };
        let of = |token: &str, waiting: &str| {
            why(format!(r#"{{"canEnter":false,"token":"{token}","waiting":{waiting}}}"#))
        };
        let [short, long] = ["t", "tttttt"].map(|token| of(token, r#"{"rank":1}"#));
        assert_eq!(short, long);
        assert!(short.ends_with("missing field `pollingPeriod`"), "{short}");
        let [short, long] = ["t", "tttttt"].map(|token| of(token, r#"{"rank":"secret","pollingPeriod":1}"#));
        assert_eq!(short, long);
        assert!(short.ends_with("a field is of another type") && !short.contains("secret"), "{short}");
        assert!(of("t", r#"{"rank":0,"pollingPeriod":1}"#).ends_with(": a rank is 0"));
        assert!(why("{}".to_owned()).ends_with("missing field `canEnter`"));
        assert_eq!(why("<".to_owned()), why(" \n<".to_owned()));
    }

    #[test]
    fn only_429_and_503_have_a_time_until_a_retry() {
        let after = |status, value| match read(status, value, br#"{"code":"busy"}"#) {
            Answer::Refused { code, retry_after_ms, .. } if code == "busy" => retry_after_ms,
            other => panic!("{other:?}"),
        };
        assert_eq!(after(503, Some("2")), Some(2000));
        assert_eq!(after(429, Some("7")), Some(7000));
        assert_eq!(after(500, Some("2")), None);
        assert_eq!(after(503, Some("Wed, 21 Oct 2026 07:28:00 GMT")), None);
    }

    #[test]
    fn a_closed_and_a_full_zone_give_no_place() {
        let no_place = |status, code: &str| {
            read(status, None, format!(r#"{{"code":{code:?}}}"#).as_bytes()).no_place().map(str::to_owned)
        };
        assert_eq!(no_place(503, "zone_closed").as_deref(), Some("zone_closed"));
        assert_eq!(no_place(503, "zone_full").as_deref(), Some("zone_full"));
        for (status, code) in [(503, "store_away"), (500, "zone_full"), (410, "zone_closed")] {
            assert_eq!(no_place(status, code), None, "{status} {code}");
        }
    }

    #[test]
    fn a_pass_signed_again_is_the_same_pass() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"jti":"7"}"#);
        assert_eq!(pass_number(&format!("a.{claims}.b")), pass_number(&format!("a.{claims}.c")));
        assert_eq!(pass_number("x"), None);
    }
}
