//! Files that are served unchanged: those in the binary, and those of operators.
//!
//! Invariant: each has a strong tag of its bytes, and a browser that has these bytes already gets a 304 without them.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
    },
};

/// A file that is served unchanged.
#[derive(Clone, Debug)]
pub(super) struct Asset {
    kind: &'static str,
    pub(super) body: Bytes,
    pub(super) tag: HeaderValue,
}

impl Asset {
    /// `body`, of the media type `kind`.
    pub(super) fn new(kind: &'static str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let tag = HeaderValue::try_from(format!("\"{}\"", &blake3::hash(&body).to_hex()[..32]));
        Self { kind, body, tag: tag.expect("hex digits in quotes are plain text") }
    }

    /// The file, or a 304 where the browser has it already.
    pub(super) fn reply(&self, caching: HeaderValue, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let is_there = headers.get_all(IF_NONE_MATCH).iter().any(|known| {
            let tags = known.to_str().unwrap_or_default().split(',').map(str::trim);
            let mut tags = tags.map(|tag| tag.strip_prefix("W/").unwrap_or(tag).as_bytes());
            tags.any(|tag| tag == self.tag.as_bytes() || tag == b"*")
        });
        let mut response = Response::new(Full::new(if is_there { Bytes::new() } else { self.body.clone() }));
        if is_there {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let said = response.headers_mut();
        said.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        said.insert(CACHE_CONTROL, caching);
        said.insert(ETAG, self.tag.clone());
        said.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}
