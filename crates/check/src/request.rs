//! The request of a visitor, as a proxy describes it.
//!
//! The server fills it in from what the proxy sent, over HTTP or gRPC. Invariant: nothing in it is checked yet. A visitor chose the
//! target, the host and most headers.

use std::{borrow::Cow, net::IpAddr};

use http::HeaderMap;

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
}
