//! Whether the page that makes a browser send a request may take or leave places for its visitor.
//!
//! A browser sends some requests of any page without asking first (`fetch` with `mode: "no-cors"`, forms, images), and only keeps the reply
//! from the page. So what changes something is refused before it is read. Browsers say whose page it is in `Origin` and
//! `Sec-Fetch-Site`, which no page can change. Invariant: a request that is refused here changes nothing; a request without these two
//! headers, which no browser sends, is never refused here.

use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};

use super::{
    cors::{Origins, foreign},
    problem::Problem,
};

/// How the page's site is related to that of the address: `same-origin`, `same-site`, `cross-site`, or `none` for the user's own act.
/// Browsers send it to addresses with HTTPS, and to this machine
/// ([Fetch metadata](https://www.w3.org/TR/fetch-metadata/)).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The host that a browser asked for, where a proxy has replaced `Host`. A page can send it to another origin only after the browser
/// has asked whether it may, and then it may not.
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Refuses the requests of pages of other origins that are not in `allowed`.
///
/// # Errors
/// [`FOREIGN_ORIGIN`](super::problem::FOREIGN_ORIGIN).
pub(super) fn check(allowed: &Origins, headers: &HeaderMap) -> Result<(), Problem> {
    let hosts = [HOST, X_FORWARDED_HOST].map(|name| headers.get(name)?.to_str().ok());
    check_of(allowed, headers, &hosts)
}

/// The same for an address of one of these hosts.
///
/// # Errors
/// [`FOREIGN_ORIGIN`](super::problem::FOREIGN_ORIGIN).
pub(super) fn check_of(
    allowed: &Origins,
    headers: &HeaderMap,
    hosts: &[Option<&str>],
) -> Result<(), Problem> {
    let (origin, site) = (headers.get(ORIGIN), headers.get(SEC_FETCH_SITE));
    if origin.is_none() && site.is_none() {
        return Ok(());
    }
    let is_own = match site.map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => true,
        Some(_) => false,
        None => origin.is_none_or(|origin| is_of(origin, hosts)),
    };
    if is_own || allowed.allow_any() || allowed.allowed(headers).is_some() {
        return Ok(());
    }
    Err(foreign(origin, "made this request"))
}

/// Whether an origin has one of these hosts. For browsers that do not send `Sec-Fetch-Site`.
fn is_of(origin: &HeaderValue, hosts: &[Option<&str>]) -> bool {
    let Some((_, page)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let (name, port) = name_and_port(page);
    hosts.iter().flatten().map(|host| name_and_port(host.trim())).any(|(host, host_port)| {
        // Some proxies leave the port out of `Host`.
        host.eq_ignore_ascii_case(name)
            && (host_port.is_none() || host_port == port || is_usual(port, host_port))
    })
}

/// Whether an origin without a port and a host with one mean the same.
fn is_usual(port: Option<&str>, host_port: Option<&str>) -> bool {
    port.is_none() && matches!(host_port, Some("80" | "443"))
}

fn name_and_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::problem::FOREIGN_ORIGIN, *};

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        lines.iter().map(line).collect()
    }

    #[test]
    fn pages_of_other_origins_are_refused_unless_they_are_listed() {
        let listed = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
            Origins::new(&texts).expect("right")
        };
        let (none, shop, any) = (listed(&[]), listed(&["https://shop.example"]), listed(&["*"]));
        let (host, evil) = (("host", "weir.example:8443"), ("origin", "https://evil.example"));
        let site = |value| ("sec-fetch-site", value);
        // The headers, and whether nothing listed, a shop listed, and any origin listed lets the request through.
        #[expect(clippy::type_complexity, reason = "a table of cases")]
        let cases: &[(&[(&str, &str)], [bool; 3])] = &[
            (&[host], [true, true, true]),
            (&[host, evil], [false, false, true]),
            (&[host, evil, site("cross-site")], [false, false, true]),
            (&[host, evil, site("same-site")], [false, false, true]),
            (&[host, site("cross-site")], [false, false, true]),
            (&[host, site("same-site")], [false, false, true]),
            (&[host, site("nonsense")], [false, false, true]),
            (&[host, ("origin", "null")], [false, false, true]),
            (&[host, ("origin", "https://shop.example"), site("cross-site")], [false, true, true]),
            (&[host, ("origin", "https://shop.example")], [false, true, true]),
            (&[host, ("origin", "https://shop.example.evil.example")], [false, false, true]),
            (&[host, ("origin", "https://weir.example:8443")], [true, true, true]),
            (&[host, ("origin", "https://Weir.example:8443")], [true, true, true]),
            (&[host, ("origin", "https://weir.example:9999")], [false, false, true]),
            (&[host, ("origin", "https://weir.example:8443"), site("same-site")], [false, false, true]),
            (&[host, ("origin", "null"), site("same-origin")], [true, true, true]),
            (&[host, site("same-origin")], [true, true, true]),
            (&[host, site("none")], [true, true, true]),
            (&[("host", "weir.example"), ("origin", "https://weir.example:8443")], [true, true, true]),
            (&[("host", "weir.example:443"), ("origin", "https://weir.example")], [true, true, true]),
            (&[("host", "weir.example:8443"), ("origin", "https://weir.example")], [false, false, true]),
            (
                &[
                    ("host", "10.0.0.1"),
                    ("x-forwarded-host", "weir.example"),
                    ("origin", "https://weir.example"),
                ],
                [true; 3],
            ),
            (&[("host", "10.0.0.1"), ("x-forwarded-host", "weir.example"), evil], [false, false, true]),
            (&[("host", "[::1]:8080"), ("origin", "http://[::1]:8080")], [true, true, true]),
            (&[evil], [false, false, true]),
        ];
        for (lines, expected) in cases {
            let lines: Vec<(&'static str, &'static str)> = lines.to_vec();
            let headers = headers(&lines);
            let passes = [&none, &shop, &any].map(|allowed| check(allowed, &headers).is_ok());
            assert_eq!(passes, *expected, "{lines:?}");
        }
        let problem = check(&none, &headers(&[host, evil])).expect_err("refused");
        assert_eq!(problem.code, FOREIGN_ORIGIN);
        assert!(problem.detail.contains("https://evil.example"), "{}", problem.detail);
    }
}
