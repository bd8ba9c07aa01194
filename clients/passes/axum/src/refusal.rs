//! Why a pass is not accepted, and what a client is told about it.

use std::{error::Error, fmt, time::Duration};

use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};

/// Why a pass is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request has none.
    NoPass,
    /// It is not a pass of Weir.
    Unreadable,
    /// Weir does not publish its key.
    UnknownKey,
    /// The signature does not match.
    Forged,
    /// By this machine's clock.
    NotYetValid,
    /// By this machine's clock.
    Expired,
    /// It is for another audience or zone.
    OtherService,
    /// It was accepted before.
    Spent,
    /// Whether Weir publishes its key is not known, and cannot be asked now.
    KeysAway,
    /// The record of spent passes does not answer, or is full.
    RecordAway,
}

impl Code {
    /// The name in a reply.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.words().0
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::NoPass => ("no_pass", "A pass is needed"),
            Self::Unreadable => ("unreadable", "This is not a pass"),
            Self::UnknownKey => ("unknown_key", "The pass is signed by an unknown key"),
            Self::Forged => ("forged", "The pass is forged"),
            Self::NotYetValid => ("not_yet_valid", "The pass is not valid yet"),
            Self::Expired => ("expired", "The pass has expired"),
            Self::OtherService => ("other_service", "The pass is for another service"),
            Self::Spent => ("spent", "The pass was used already"),
            Self::KeysAway => ("keys_away", "Passes cannot be checked now"),
            Self::RecordAway => ("record_away", "Passes cannot be accepted now"),
        }
    }
}

/// A pass that is not accepted. Its source, if it has one, is for the log; a client is told nothing but the code.
#[derive(Debug)]
pub struct Refusal {
    code: Code,
    cause: Option<Box<dyn Error + Send + Sync>>,
    after: Duration,
}

impl Refusal {
    pub(crate) fn because(code: Code, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into()), ..code.into() }
    }

    pub(crate) fn again_after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    /// After how many seconds the pass may be shown again, if the status is 503.
    #[must_use]
    pub fn retry_after_s(&self) -> u64 {
        (self.after.as_secs() + u64::from(self.after.subsec_nanos() > 0)).max(1)
    }

    /// Why.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// 401; or 503, if the fault is not the pass.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.code {
            Code::KeysAway | Code::RecordAway => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNAUTHORIZED,
        }
    }

    /// The reply: a problem document (RFC 9457).
    pub fn response<B: From<String>>(&self) -> Response<B> {
        let (code, title) = self.code.words();
        let status = self.status();
        let body = format!(
            r#"{{"type":"about:blank","title":"{title}","status":{},"code":"{code}"}}"#,
            status.as_u16()
        );
        let mut response = Response::new(B::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from(self.retry_after_s()));
        } else {
            // A request without a pass is told no error, as RFC 6750 says.
            let challenge = match self.code {
                Code::NoPass => r#"Bearer realm="weir""#.to_owned(),
                _ => {
                    format!(r#"Bearer realm="weir", error="invalid_token", error_description="{title}""#)
                }
            };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::try_from(challenge).expect("titles are ASCII"));
        }
        response
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, cause: None, after: Duration::from_secs(10) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.words().1)
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
