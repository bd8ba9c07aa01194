//! Requests that arrive whole in one read, and their replies, without an HTTP engine.
//!
//! Nearly all requests of a waiting room are small and arrive in one piece, and seconds pass until the next one. An engine per
//! connection would hold buffers meanwhile, or be made anew for each request.
//!
//! Invariant: [`parse`] accepts only what the engine reads in the same way. The engine gets everything else, from the first
//! byte on: requests that are not complete, that are followed by further bytes, or that are unusual in any way.

use std::{cell::RefCell, io::Write as _, time::SystemTime};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
    },
    http::response::Parts,
};

use crate::received::Received;

/// The most fields of a head that is parsed here.
const MOST_FIELDS: usize = 32;

/// A request whose head and body are exactly `bytes`. None leaves them to the engine.
pub(crate) fn parse(bytes: &Bytes) -> Option<Request<Received>> {
    // The engine ignores empty lines before a request. They are not usual.
    if bytes.first().is_none_or(u8::is_ascii_whitespace) {
        return None;
    }
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head_len) = head.parse(bytes).ok()? else { return None };
    if head.version != Some(1) {
        return None;
    }
    let method = match head.method? {
        "POST" => Method::POST,
        "GET" => Method::GET,
        _ => return None,
    };
    let path = head.path.filter(|path| path.starts_with('/'))?;
    let uri = Uri::from_maybe_shared(bytes.slice_ref(path.as_bytes())).ok()?;
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    let mut body_len = 0;
    for field in head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        let is_unusual = match name {
            TRANSFER_ENCODING | EXPECT | UPGRADE => true,
            CONNECTION => !field.value.eq_ignore_ascii_case(b"keep-alive"),
            HOST => headers.contains_key(HOST),
            CONTENT_LENGTH => {
                body_len = length(field.value)?;
                headers.contains_key(CONTENT_LENGTH)
            }
            _ => false,
        };
        if is_unusual {
            return None;
        }
        headers.append(name, value);
    }
    if !headers.contains_key(HOST) || bytes.len() - head_len != body_len {
        return None;
    }
    let body = if body_len == 0 { Bytes::new() } else { bytes.slice(head_len..) };
    let mut request = Request::new(Received::Whole(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Some(request)
}

/// A length that is written in the usual way: digits only, and few of them.
fn length(value: &[u8]) -> Option<usize> {
    let is_usual = matches!(value.len(), 1..=6) && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| is_usual)?.parse().ok()
}

/// The bytes of a reply. `tick` is the edge's clock.
pub(crate) fn encode(head: &Parts, body: &[u8], tick: u32) -> Vec<u8> {
    let status = head.status;
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if has_body { body } else { &[] };
    let mut out = begin(status, &head.headers, body.len());
    if has_body {
        write!(out, "content-length: {}\r\n", body.len()).expect("a vector takes everything");
    }
    if !head.headers.contains_key(DATE) {
        out.extend_from_slice(b"date: ");
        push_date(&mut out, tick);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// The first line of a reply and its header fields, but for those about the length of the body: the edge knows it, and a service has
/// no say in it. There is space for a body of so many bytes.
pub(crate) fn begin(status: StatusCode, headers: &HeaderMap, body_len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(512 + body_len);
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        let reason = status.canonical_reason().unwrap_or("Unknown");
        for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    for (name, value) in headers.iter().filter(|(name, _)| !is_framing(name)) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn is_framing(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

/// Appends the time of day as RFC 9110, 5.6.7 writes it. It is formatted once a tick and thread.
fn push_date(out: &mut Vec<u8>, tick: u32) {
    thread_local! {
        static CACHED: RefCell<(Option<u32>, String)> = const { RefCell::new((None, String::new())) };
    }
    CACHED.with_borrow_mut(|(at, text)| {
        if *at != Some(tick) {
            // The field tells clients what time the server believes it is. Nothing here depends on it.
            #[expect(clippy::disallowed_methods, reason = "a reply states the wall clock's time")]
            let now = SystemTime::now();
            *text = httpdate::fmt_http_date(now);
            *at = Some(tick);
        }
        out.extend_from_slice(text.as_bytes());
    });
}
