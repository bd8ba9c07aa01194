//! Which pages of other origins may call ([CORS](https://fetch.spec.whatwg.org/#http-cors-protocol)).
//!
//! Invariant: an origin that is not configured is not allowed. A call needs nothing but a token, so credentials are never allowed there.
//! A page that may call may send any header: those that Weir does not know do nothing, and tools add theirs to every call of a page
//! (`traceparent`, `baggage`, `sentry-trace`). A visitor of a proxy has the place in a cookie: only pages of origins that are listed by name read a reply to such a request.

use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
        ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
    },
};

use super::problem::{FOREIGN_ORIGIN, Problem};

/// The origins of pages that may call; see [`Origins::new`].
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<HeaderValue>);

const ANY: &str = "*";

/// The headers of other replies than plain ones that a page may read.
const READABLE: HeaderValue = HeaderValue::from_static("Retry-After, RateLimit, RateLimit-Policy");

/// The longest list of headers that a page may ask for, in bytes.
const MOST_ASKED: usize = 1_024;

impl Origins {
    /// These origins, as browsers send them (`https://shop.example`). `*` allows any.
    ///
    /// # Errors
    /// The first text that no browser sends as an origin.
    pub fn new(origins: &[String]) -> Result<Self, &str> {
        let read = |text: &str| {
            let (_, rest) = text.split_once("://").unwrap_or_default();
            // Browsers leave the usual port out.
            let has_usual_port = text.starts_with("https://") && text.ends_with(":443")
                || text.starts_with("http://") && text.ends_with(":80");
            let is_origin = text == ANY
                || !rest.is_empty()
                    && !has_usual_port
                    && !rest.contains(['/', '?', '#', '@', ',', '*'])
                    && text.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
            HeaderValue::from_str(text).ok().filter(|_| is_origin)
        };
        origins.iter().map(|text| read(text).ok_or(text.as_str())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether pages of every origin may call.
    #[must_use]
    pub fn allow_any(&self) -> bool {
        self.0.iter().any(|origin| origin == ANY)
    }

    /// The origin of the page that calls, if it may.
    #[must_use]
    pub fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let is_allowed = |known: &HeaderValue| known == ANY || known == origin;
        self.0.iter().any(is_allowed).then(|| origin.clone())
    }

    /// The answer to a browser that asks whether its page may use `method`. None where the request asks something else.
    ///
    /// # Errors
    /// [`FOREIGN_ORIGIN`] if the page may not call.
    pub(super) fn preflight(
        &self,
        asked: &Method,
        headers: &HeaderMap,
        method: &Method,
    ) -> Option<Result<Response<Full<Bytes>>, Problem>> {
        let asks = *asked == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let page = headers.get(ORIGIN).filter(|_| asks)?;
        if self.allowed(headers).is_none() {
            return Some(Err(foreign(Some(page), "wants to call")));
        }
        let is_list = |list: &&HeaderValue| {
            let is_of_list = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~, ".contains(byte);
            list.len() <= MOST_ASKED && list.as_bytes().iter().all(is_of_list)
        };
        let asked_for = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).filter(is_list).cloned();
        let usual = HeaderValue::from_static("content-type, last-event-id");
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        let method = HeaderValue::from_str(method.as_str()).expect("a method is a word");
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked_for.unwrap_or(usual));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
        Some(Ok(response))
    }

    /// Tells the browser whether the page may read the response. `allowed` is what [`Origins::allowed`] returned.
    pub fn write(&self, allowed: Option<HeaderValue>, response: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        response.insert(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = allowed {
            response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE);
        }
    }

    /// The same for a refusal that is sent before the request is read, so that nobody knows whose page it is. It says the same to
    /// everybody, so if any page may call, each may read it.
    pub(super) fn write_for_any(&self, response: &mut HeaderMap) {
        if !self.0.is_empty() {
            response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static(ANY));
            response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE);
        }
    }

    /// The same for the reply to a visitor of a proxy, whose cookies the request carries.
    pub(super) fn write_with_cookies(&self, allowed: Option<HeaderValue>, response: &mut HeaderMap) {
        let Some(origin) = allowed.filter(|_| !self.allow_any()) else { return };
        response.append(VARY, HeaderValue::from_static("Origin"));
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After"));
    }
}

/// The refusal of a page whose origin is not listed, and what it did.
pub(super) fn foreign(origin: Option<&HeaderValue>, did: &str) -> Problem {
    let page = origin.map_or("another site".into(), |origin| String::from_utf8_lossy(origin.as_bytes()));
    let page: String = page.chars().take(128).collect();
    let what = format!("a page of {page} {did}; if it is a page of yours, list its origin in `cors_origins`");
    Problem::new(FOREIGN_ORIGIN, what)
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(none)");
        }
        let texts: Vec<_> = self.0.iter().filter_map(|origin| origin.to_str().ok()).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn only_origins_are_accepted() {
        let right =
            origins(&["https://shop.example:80", "http://127.0.0.1:3000", "*", "capacitor://localhost"]);
        assert!(Origins::new(&right).is_ok());
        for wrong in [
            "",
            "shop.example",
            "https://",
            "https://shop.example/",
            "https://*.example",
            "https://Shop.example",
            "https://shop.example:443",
            "http://shop.example:80",
        ] {
            assert_eq!(Origins::new(&origins(&[wrong])).expect_err(wrong), wrong);
        }
    }

    #[test]
    fn only_listed_origins_are_allowed() {
        let from = |origin: &'static str| HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(origin))]);
        let (shop, other) = (from("https://shop.example"), from("https://other.example"));
        let listed = origins(&["https://shop.example"]);
        let [none, some, any] =
            [&[][..], &listed, &origins(&["*"])].map(|list| Origins::new(list).expect("right"));
        assert_eq!(
            [none.allowed(&shop), some.allowed(&other), any.allowed(&HeaderMap::new())],
            [None, None, None]
        );
        assert_eq!(some.allowed(&shop).as_ref(), shop.get(ORIGIN));
        assert_eq!(any.allowed(&other).as_ref(), other.get(ORIGIN));
        let mut said = HeaderMap::new();
        none.write(none.allowed(&shop), &mut said);
        assert!(said.is_empty());
        some.write(some.allowed(&other), &mut said);
        assert_eq!(said.keys().collect::<Vec<_>>(), [VARY], "caches keep origins apart");
    }
}
