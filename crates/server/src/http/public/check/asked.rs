//! What a proxy asks: the request of a visitor, as its headers describe it, and whether the visitor wants a page or JSON.
//!
//! | how | who | method, host and target are in |
//! |---|---|---|
//! | `/gate/check` | Traefik, Caddy, nginx | `X-Forwarded-Method`, `X-Forwarded-Host`, `X-Forwarded-Uri` |
//! | `/gate/check/…` | Envoy | the request itself; its target comes behind `/gate/check` |
//! | gRPC, see `envoy` | Envoy | the message |
//!
//! Invariant: only one of them is read, so that a header which a visitor sent cannot take the place of what the proxy says.

use std::borrow::Cow;

use check::host::{bare, is_https};
use hyper::{
    HeaderMap, Method, Uri,
    header::{ACCEPT, HOST},
};

use crate::http::problem::{MISSING_FIELD, Problem};

/// The path of the calls.
pub(in crate::http) const PATH: &str = "/gate/check";

/// What the proxy does with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It sends every reply but 200 on to the visitor.
    Reply,
    /// It takes a status from 500 on for a failure of Weir, and drops the reply: Envoy.
    Below500,
    /// It understands 200, 401 and 403 only, and drops the body: nginx, which then asks for [`Wanted::Page`].
    Status,
    /// It sends every reply on to the visitor, also 200.
    Page,
}

/// The request of a visitor, in the fields of [`check::Request`], and what the proxy does with the reply.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) wanted: Wanted,
    pub(super) method: Cow<'a, str>,
    pub(super) host: Cow<'a, str>,
    pub(super) target: &'a [u8],
    pub(super) is_secure: bool,
}

impl<'a> Asked<'a> {
    /// Reads what the proxy says.
    ///
    /// # Errors
    /// A header is missing.
    pub(super) fn of(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap) -> Result<Self, Problem> {
        let bytes = |name: &str| headers.get(name).map(hyper::header::HeaderValue::as_bytes);
        let is_secure = bytes("x-forwarded-proto").is_some_and(is_https);
        let given = uri.path_and_query().map_or("", |given| given.as_str());
        let behind = given.strip_prefix(PATH).unwrap_or_default();
        if behind.starts_with('/') {
            let host = bytes(HOST.as_str()).or_else(|| Some(uri.host()?.as_bytes())).unwrap_or_default();
            let (method, target) = (method.as_str().into(), behind.as_bytes());
            return Ok(Self { wanted: Wanted::Below500, method, host: bare(host), target, is_secure });
        }
        let wanted = match uri.query() {
            Some("answer=status") => Wanted::Status,
            Some("answer=page") => Wanted::Page,
            _ => Wanted::Reply,
        };
        let needed = |name: &str| {
            let missing = || {
                format!(
                    "`{name}`: the proxy must say in it what its visitor asks for; see docs/operate/proxies.md"
                )
            };
            bytes(name).ok_or_else(|| Problem::new(MISSING_FIELD, missing()))
        };
        let method = String::from_utf8_lossy(bytes("x-forwarded-method").unwrap_or(b"GET"));
        let target = needed("x-forwarded-uri")?;
        let host = bare(needed("x-forwarded-host")?);
        Ok(Self { wanted, method, host, target, is_secure })
    }
}

/// Whether the browser shows the reply as a page.
pub(super) fn accepts_page(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|accepted| {
        let accepted = String::from_utf8_lossy(accepted.as_bytes());
        accepted
            .split(',')
            .any(|kind| kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/html"))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::headers, *};

    const FORWARDED: &[(&str, &str)] = &[
        ("host", "weir:8080"),
        ("x-forwarded-method", "POST"),
        ("x-forwarded-host", "Shop.Example:8443"),
        ("x-forwarded-uri", "/sale?x=1"),
        ("x-forwarded-proto", "https"),
    ];

    #[test]
    fn a_proxy_describes_the_request_in_headers() {
        let (method, headers) = (Method::GET, headers(FORWARDED));
        for (uri, wanted) in [
            ("/gate/check", Wanted::Reply),
            ("/gate/check?answer=status", Wanted::Status),
            ("/gate/check?answer=page", Wanted::Page),
        ] {
            let uri = Uri::from_static(uri);
            let asked = Asked::of(&method, &uri, &headers).expect("all is there");
            assert_eq!((asked.wanted, &*asked.method, &*asked.host), (wanted, "POST", "shop.example"));
            assert_eq!((asked.target, asked.is_secure), (&b"/sale?x=1"[..], true));
        }
    }

    #[test]
    fn behind_the_path_the_request_is_the_visitors_own() {
        let (method, headers) = (Method::DELETE, headers(FORWARDED));
        let uri = Uri::from_static("/gate/check/a/b?answer=status");
        let asked = Asked::of(&method, &uri, &headers).expect("all is there");
        assert_eq!((asked.wanted, &*asked.method, &*asked.host), (Wanted::Below500, "DELETE", "weir"));
        assert_eq!(asked.target, b"/a/b?answer=status");
    }

    #[test]
    fn a_missing_header_is_named() {
        let (method, uri) = (Method::GET, Uri::from_static("/gate/check"));
        let problem = Asked::of(&method, &uri, &headers(&FORWARDED[..3])).expect_err("no target");
        assert_eq!(problem.code, MISSING_FIELD);
        assert!(problem.detail.starts_with("`x-forwarded-uri`"), "{}", problem.detail);
    }
}
