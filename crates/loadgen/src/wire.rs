//! What is said on the wire, and how a reply is understood.
//!
//! Invariant: fields not known here are ignored; without those that an app needs, a reply is [`Answer::Nonsense`].

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Where places are taken.
pub const WAIT: &str = "/traffic/wait";
/// Where they are asked for.
pub const ENTRY: &str = "/traffic/entry";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ask<'a> {
    zone_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

/// The body that takes a place in `zone`, or asks for the one of `token`.
#[must_use]
pub fn ask(zone: &str, token: Option<&str>) -> Bytes {
    // Two strings always become JSON.
    serde_json::to_vec(&Ask { zone_id: zone, token }).unwrap_or_default().into()
}

/// What "not yet" comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// 1 + those ahead.
    pub rank: u64,
    /// When to ask again, milliseconds.
    pub polling_period: u32,
    /// The wait expected, seconds; none while nobody is let in.
    #[serde(default)]
    pub eta_seconds: Option<u32>,
    /// The range it lies in, seconds.
    #[serde(default)]
    pub eta_range: Option<(u32, u32)>,
    /// The store is away; this is what was last known.
    #[serde(default)]
    pub stale: bool,
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
    #[serde(default)]
    code: String,
}

/// A reply, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// "Enter", with what tells one pass from another.
    Enter {
        /// The newest token, if one came.
        token: Option<Box<str>>,
        /// The pass's number, or the pass itself where it has none.
        pass: Box<str>,
    },
    /// "Not yet".
    NotYet {
        /// The newest token.
        token: Box<str>,
        /// Rank, wait and when to ask again.
        waiting: Waiting,
    },
    /// The place is gone (410).
    Gone,
    /// Another status.
    Refused {
        /// The status.
        status: u16,
        /// The problem's stable code; empty if it has none.
        code: String,
        /// When to come back, milliseconds (429 and 503 only).
        retry_after_ms: Option<u32>,
    },
    /// Status 200, but not the reply of a waiting room: what is wrong with it.
    Nonsense(String),
}

/// Understands a reply: its status, its `Retry-After` and its body.
#[must_use]
pub fn read(status: u16, retry_after: Option<&str>, body: &[u8]) -> Answer {
    match status {
        200 => read_ok(body).unwrap_or_else(Answer::Nonsense),
        410 => Answer::Gone,
        _ => {
            let code = serde_json::from_slice::<Problem>(body).unwrap_or_default().code;
            let seconds = retry_after.and_then(|value| value.trim().parse::<u32>().ok());
            let retry_after_ms =
                seconds.filter(|_| matches!(status, 429 | 503)).map(|s| s.saturating_mul(1000));
            Answer::Refused { status, code, retry_after_ms }
        }
    }
}

fn read_ok(body: &[u8]) -> Result<Answer, String> {
    let raw: Raw =
        serde_json::from_slice(body).map_err(|error| format!("not a waiting room's reply: {error}"))?;
    if raw.can_enter {
        let pass = raw.pass.ok_or("not a waiting room's reply: `canEnter` without `pass`")?;
        return Ok(Answer::Enter { token: raw.token, pass: pass_number(&pass).unwrap_or(pass) });
    }
    let token = raw.token.ok_or("not a waiting room's reply: missing field `token`")?;
    let waiting = raw.waiting.ok_or("not a waiting room's reply: missing field `waiting`")?;
    Ok(Answer::NotYet { token, waiting })
}

/// The `jti` of a JWT: a pass that is asked for again may be signed anew, and is still the same one.
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
        assert_eq!(ask("a\"b", None), r#"{"zoneId":"a\"b"}"#);
        assert_eq!(ask("Z", Some("t")), r#"{"zoneId":"Z","token":"t"}"#);
    }

    #[test]
    fn replies_are_understood_and_unknown_fields_ignored() {
        let body = br#"{"canEnter":false,"token":"t","new":1,"waiting":{"rank":12,"etaSeconds":null,"reason":"held","pollingPeriod":3000}}"#;
        let waiting =
            Waiting { rank: 12, polling_period: 3000, eta_seconds: None, eta_range: None, stale: false };
        assert_eq!(read(200, None, body), Answer::NotYet { token: "t".into(), waiting });
        let enter = br#"{"canEnter":true,"token":"t","pass":"p"}"#;
        assert_eq!(read(200, None, enter), Answer::Enter { token: Some("t".into()), pass: "p".into() });
        assert_eq!(read(410, None, b""), Answer::Gone);
    }

    #[test]
    fn what_an_app_needs_must_be_there() {
        for body in [
            "<html>",
            "{}",
            r#"{"canEnter":true}"#,
            r#"{"canEnter":false,"token":"t"}"#,
            r#"{"canEnter":false,"waiting":{"rank":1,"pollingPeriod":1}}"#,
            r#"{"canEnter":false,"token":"t","waiting":{"rank":1}}"#,
        ] {
            assert!(matches!(read(200, None, body.as_bytes()), Answer::Nonsense(_)), "{body}");
        }
    }

    #[test]
    fn only_429_and_503_say_when_to_come_back() {
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
    fn a_pass_signed_anew_is_the_same_pass() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"jti":"7"}"#);
        assert_eq!(pass_number(&format!("a.{claims}.b")), pass_number(&format!("a.{claims}.c")));
        assert_eq!(pass_number("x"), None);
    }
}
