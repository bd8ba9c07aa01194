//! The guard of the admin API: it checks the host name, the origin and the token of a request.
//!
//! A web page in an operator's browser must not be able to use the admin API, neither through a host name that points to the
//! listener (DNS rebinding) nor across origins. A proxy must not make callers from outside local ones: without tokens, a
//! request that came through a proxy is refused. Invariant: a request that [`Guard::admit`] refuses looks up, reads and
//! changes nothing.

use std::net::IpAddr;

use hyper::{
    Method, Uri, Version,
    header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN},
};

use crate::{
    access::{Access, AdminToken, Caller},
    fields::shown,
    http::problem::{FOREIGN_HOST, FOREIGN_ORIGIN, PROXIED, Problem, UNSUPPORTED_MEDIA_TYPE},
};

/// Headers that proxies, load balancers and content delivery networks add, beside those of [`PROXY_PREFIXES`].
const PROXY_HEADERS: &[&str] = &[
    "forwarded",
    "via",
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "fastly-client-ip",
    "fly-client-ip",
    "true-client-ip",
    "x-amzn-trace-id",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-real-ip",
];

/// The first letters of further headers of that kind: `X-Forwarded-For`, `X-Envoy-External-Address`.
const PROXY_PREFIXES: &[&str] = &["x-forwarded-", "x-envoy-"];

/// Checks who may use the admin API.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    access: Access,
    /// In lower case.
    hosts: Vec<String>,
}

impl Guard {
    /// Admits requests with one of these tokens, under these host names (in lower case), under addresses and `localhost`.
    #[must_use]
    pub fn new(tokens: &[AdminToken], hosts: &[String]) -> Self {
        Self { access: Access::new(tokens), hosts: hosts.to_vec() }
    }

    /// The same with these tokens and host names. See [`Access::renewed`].
    #[must_use]
    pub fn renewed(&self, tokens: &[AdminToken], hosts: &[String]) -> Self {
        Self { access: self.access.renewed(tokens), hosts: hosts.to_vec() }
    }

    /// Whether nobody is admitted, because the last token was withdrawn.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.access.is_closed()
    }

    /// The caller that sends these headers, in a request of this version to this target.
    ///
    /// # Errors
    /// [`PROXIED`], [`FOREIGN_HOST`], [`FOREIGN_ORIGIN`], [`UNAUTHORIZED`](crate::http::problem::UNAUTHORIZED).
    pub(in crate::http) fn admit(
        &self,
        version: Version,
        target: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, Problem> {
        if self.access.is_open()
            && let Some(sign) = sign_of_proxy(version, headers)
        {
            let what = format!(
                "the request came through a proxy ({sign}), and this server has no tokens: everybody who reaches the proxy \
                 would be admin; add an [[admin_token]] as `weir token new` makes them, or call without a proxy"
            );
            return Err(Problem::new(PROXIED, what));
        }
        let own = self.own_host(target, headers)?;
        if headers.contains_key(ORIGIN) {
            // A proxy may replace `Host`. Then the page's name must be listed.
            let page = only(headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
            let fits = page.is_some_and(|(scheme, page)| {
                matches!(scheme, "http" | "https") && (page.eq_ignore_ascii_case(own) || self.is_listed(page))
            });
            if !fits {
                return Err(Problem::new(FOREIGN_ORIGIN, "only the console's own pages may call"));
            }
        }
        self.access.who(headers)
    }

    /// The host name that a request uses, if the server may be called by it. An absolute target names it, too (RFC 9112,
    /// 3.2.2), and then both must be the same.
    ///
    /// # Errors
    /// [`FOREIGN_HOST`].
    pub(in crate::http) fn own_host<'a>(
        &self,
        target: &Uri,
        headers: &'a HeaderMap,
    ) -> Result<&'a str, Problem> {
        let host =
            only(headers, &HOST).ok_or_else(|| Problem::new(FOREIGN_HOST, "`Host` must be there once"))?;
        if let Some(named) = target.authority()
            && !named.as_str().eq_ignore_ascii_case(host)
        {
            return Err(Problem::new(FOREIGN_HOST, "the request's target and `Host` are not the same"));
        }
        if self.is_own(host) {
            return Ok(host);
        }
        let what = format!(
            "`Host` is `{}`; name it in `admin_hosts`, or ask by address or as localhost",
            shown(host)
        );
        Err(Problem::new(FOREIGN_HOST, what))
    }

    /// Whether the server may be called by this name. Any address is allowed: no host name was looked up, so DNS rebinding is
    /// impossible.
    fn is_own(&self, authority: &str) -> bool {
        let name = name_of(authority);
        let is_address =
            name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name).parse::<IpAddr>();
        is_address.is_ok() || name.eq_ignore_ascii_case("localhost") || self.is_listed(authority)
    }

    fn is_listed(&self, authority: &str) -> bool {
        self.hosts.iter().any(|host| name_of(authority).eq_ignore_ascii_case(host))
    }
}

/// What shows that a request came through a proxy. A proxy may add nothing, so `None` proves nothing.
fn sign_of_proxy(version: Version, headers: &HeaderMap) -> Option<&str> {
    let adds = |name: &str| {
        PROXY_HEADERS.contains(&name) || PROXY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let header = headers.keys().map(HeaderName::as_str).find(|name| adds(name));
    // nginx forwards in HTTP/1.0 unless `proxy_http_version` says otherwise, and adds no header. Browsers, curl and `weir`
    // send HTTP/1.1.
    header.or_else(|| (version < Version::HTTP_11).then_some("HTTP/1.0"))
}

/// The host of an authority, without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => authority,
    }
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let (value, None) = (all.next()?, all.next()) else { return None };
    value.to_str().ok()
}

/// Refuses a body without a content type: pages of other origins can send it without a preflight. A request without a body
/// needs none.
///
/// # Errors
/// [`UNSUPPORTED_MEDIA_TYPE`].
pub(super) fn says_json(method: &Method, headers: &HeaderMap, has_body: bool) -> Result<(), Problem> {
    if method.is_safe() || !has_body || headers.contains_key(CONTENT_TYPE) {
        return Ok(());
    }
    Err(Problem::new(UNSUPPORTED_MEDIA_TYPE, "there is a body, and no `Content-Type`"))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn asked(headers: &[(HeaderName, &'static str)]) -> Result<Caller, Problem> {
        let guard = Guard::new(&[], &["weir.example".to_owned()]);
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(name, value);
        }
        guard.admit(Version::HTTP_11, &Uri::from_static("/"), &all)
    }

    #[test]
    fn requests_through_proxies_are_refused_without_tokens() {
        let token = AdminToken {
            name: "ada".to_owned(),
            role: crate::access::Role::Admin,
            sha256: check::digest::SecretDigest::parse(&"0".repeat(64)).expect("64 digits"),
        };
        let asked = |tokens: &[AdminToken], version, name: &'static str| {
            let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("203.0.113.9"));
            Guard::new(tokens, &[])
                .admit(version, &Uri::from_static("/"), &headers)
                .map_err(|problem| problem.code.name)
        };
        for sign in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-server",
            "x-real-ip",
            "x-envoy-external-address",
            "cf-connecting-ip",
            "true-client-ip",
        ] {
            assert_eq!(asked(&[], Version::HTTP_11, sign), Err("proxied"), "{sign}");
            // With tokens, a proxy is a normal thing, and the token decides.
            let with_tokens = asked(std::slice::from_ref(&token), Version::HTTP_11, sign);
            assert_eq!(with_tokens, Err("unauthorized"), "{sign}");
        }
        assert_eq!(asked(&[], Version::HTTP_10, "accept"), Err("proxied"));
        assert_eq!(asked(&[], Version::HTTP_11, "accept").map(|caller| caller.role.as_str()), Ok("admin"));
    }

    #[test]
    fn unlisted_host_names_are_refused() {
        for allowed in [
            "127.0.0.1",
            "127.0.0.1:8081",
            "[::1]:8081",
            "[::1]",
            "10.0.0.7:1",
            "localhost:80",
            "LOCALHOST",
            "Weir.Example:444",
        ] {
            assert!(asked(&[(HOST, allowed)]).is_ok(), "{allowed}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8081",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "weir.example.evil",
            "",
            ":80",
            "xweir.example",
        ] {
            assert_eq!(asked(&[(HOST, foreign)]).expect_err(foreign).code, FOREIGN_HOST, "{foreign}");
        }
        assert_eq!(asked(&[]).expect_err("no name").code, FOREIGN_HOST);
        assert_eq!(asked(&[(HOST, "localhost"), (HOST, "localhost")]).expect_err("two").code, FOREIGN_HOST);
    }

    #[test]
    fn an_absolute_target_names_the_host() {
        let guard = Guard::new(&[], &[]);
        let asked = |target, host| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            guard.admit(Version::HTTP_11, &Uri::from_static(target), &headers).map_err(|problem| problem.code)
        };
        assert!(asked("http://localhost:8081/admin/v1/zones", "localhost:8081").is_ok());
        for (target, host) in [
            ("http://evil.example/admin/v1/zones", "localhost"),
            ("http://localhost/admin/v1/zones", "127.0.0.1"),
            ("http://evil.example/admin/v1/zones", "evil.example"),
            ("http://evil@localhost/admin/v1/zones", "localhost"),
        ] {
            assert_eq!(asked(target, host).expect_err(target), FOREIGN_HOST, "{target}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let from = |origin| asked(&[(HOST, "127.0.0.1:8081"), (ORIGIN, origin)]);
        for allowed in [
            "http://127.0.0.1:8081",
            "https://127.0.0.1:8081",
            "https://weir.example",
            "https://weir.example:444",
        ] {
            assert!(from(allowed).is_ok(), "{allowed}");
        }
        for foreign in [
            "null",
            "",
            "127.0.0.1:8081",
            "http://127.0.0.1:3000",
            "http://127.0.0.1",
            "http://localhost:8081",
            "https://evil.example",
            "file://127.0.0.1:8081",
            "https://weir.example.evil",
        ] {
            assert_eq!(from(foreign).expect_err(foreign).code, FOREIGN_ORIGIN, "{foreign}");
        }
    }
}
