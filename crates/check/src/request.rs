//! The request of a visitor, as a proxy describes it.
//!
//! The server fills it in from what the proxy sent, over HTTP or gRPC. Invariant: nothing in it is checked yet. A visitor chose the
//! target, the host and most headers.

use std::{borrow::Cow, net::IpAddr};

use http::{HeaderMap, header::HeaderName};

/// The headers by which some apps let a client choose another method than the written one, also for `OPTIONS`.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// Whether some app takes a header of this name for one of [`OVERRIDES`]. To apps over CGI or WSGI `_` is `-`.
fn is_override(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let is_same = |(one, known): (&u8, &u8)| one == known || (*one, *known) == (b'_', b'-');
    OVERRIDES.iter().any(|known| known.len() == name.len() && name.iter().zip(known.as_bytes()).all(is_same))
}

/// The methods that apps take from such a header. This bounds the methods of one request.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The request of a visitor.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The method, as it was written.
    pub method: Cow<'a, str>,
    /// The host in lower case, without a port: see [`crate::host::bare`]. Empty if the request has none.
    pub host: Cow<'a, str>,
    /// The path with the query, as it was written.
    pub target: Cow<'a, [u8]>,
    /// Whether the visitor uses HTTPS.
    pub is_secure: bool,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The client's address, canonical.
    pub address: IpAddr,
    /// The names of the valid bypass tokens that it carries.
    pub tokens: &'a [String],
}

impl Request<'_> {
    /// Whether a method only shows something, so that a browser may repeat it.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(&*self.method, "GET" | "HEAD")
    }

    /// The same request with each other method that an app may take from its headers. Almost always there are none.
    pub(crate) fn overridden(&self) -> Vec<Self> {
        let mut others: Vec<Self> = Vec::new();
        let values = self.headers.iter().filter(|(name, _)| is_override(name)).map(|(_, value)| value);
        for value in values.flat_map(|value| value.as_bytes().split(|b| *b == b',')) {
            let fits = |method: &&&str| value.trim_ascii().eq_ignore_ascii_case(method.as_bytes());
            let Some(method) = METHODS.iter().find(fits) else { continue };
            if *method != self.method && others.iter().all(|other| other.method != *method) {
                others.push(Self { method: Cow::Borrowed(*method), ..self.clone() });
            }
        }
        others
    }
}
