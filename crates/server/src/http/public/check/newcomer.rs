//! Whether a request may take a new place.
//!
//! A browser sends requests that its user did not ask for: images and scripts of other sites' pages, frames, pages that it loads ahead.
//! Often it leaves the site's cookies out of them. Each would take a place that nobody uses, and its reply would replace the visitor's
//! cookie. Browsers say who makes a request in `Sec-Fetch-…`
//! ([Fetch metadata](https://www.w3.org/TR/fetch-metadata/)), which no page can change; those of addresses without HTTPS say `Origin` at
//! best. Invariant: a request that may take no place gets a reply without a cookie.

use hyper::{
    HeaderMap,
    header::{HeaderName, ORIGIN},
};

use super::{
    asked::{Asked, accepts_page},
    is_safe,
};
use crate::http::{
    cors::Origins,
    origin,
    problem::{NO_PLACE, Problem},
};

pub(super) const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
pub(super) const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// What browsers say when they load a page ahead: of today, and of yesterday.
const AHEAD: [HeaderName; 3] = [
    HeaderName::from_static("sec-purpose"),
    HeaderName::from_static("purpose"),
    HeaderName::from_static("x-moz"),
];

/// What a request gets instead of a new place.
#[derive(Debug)]
pub(super) enum NoPlace {
    /// A refusal.
    Refused(Problem),
    /// The page that stands in place of the reply to another site's form. Its script asks from the site itself, and so with the cookie, if
    /// there is one.
    PageOfForm,
}

/// Why this request takes no new place; none if it may take one. A cookie whose place or visit is over gives no right to one.
pub(super) fn no_place(asked: &Asked<'_>, headers: &HeaderMap, allowed: &Origins) -> Option<NoPlace> {
    let says = |name: &HeaderName, what: &[u8]| {
        headers.get(name).is_some_and(|value| value.as_bytes().windows(what.len()).any(|part| part == what))
    };
    if AHEAD.iter().any(|name| says(name, b"prefetch")) {
        return Some(NoPlace::Refused(NO_PLACE.into()));
    }
    let foreign = origin::check_of(allowed, headers, &[Some(&asked.host)]).err()?;
    // A page that the browser shows in place of the one before.
    let is_page = match (headers.get(&SEC_FETCH_MODE), headers.get(&SEC_FETCH_DEST)) {
        // Browsers send no `Origin` when they follow a link.
        (None, None) if is_safe(&asked.method) => !headers.contains_key(ORIGIN),
        (None, None) => accepts_page(headers),
        (mode, dest) => {
            mode.is_none_or(|mode| mode == "navigate") && dest.is_none_or(|dest| dest == "document")
        }
    };
    match (is_page, is_safe(&asked.method)) {
        // A link of another site. Browsers send the cookie along.
        (true, true) => None,
        (true, false) => Some(NoPlace::PageOfForm),
        (false, _) => Some(NoPlace::Refused(foreign)),
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Method, Uri};

    use super::{super::tests::headers, *};
    use crate::http::problem::FOREIGN_ORIGIN;

    #[test]
    fn what_nobody_asked_for_takes_no_place() {
        let allowed = Origins::new(&["https://app.example".to_owned()]).expect("an origin");
        let site =
            |site, mode, dest| [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
        let html = ("accept", "text/html,*/*;q=0.8");
        // The method, the headers, and what it gets.
        #[expect(clippy::type_complexity, reason = "a table of cases")]
        let cases: &[(&'static str, Vec<(&'static str, &'static str)>, &str)] = &[
            ("GET", vec![], "a place"),
            ("GET", vec![html], "a place"),
            ("POST", vec![], "a place"),
            ("GET", site("none", "navigate", "document").to_vec(), "a place"),
            ("GET", site("same-origin", "cors", "empty").to_vec(), "a place"),
            ("POST", site("same-origin", "navigate", "document").to_vec(), "a place"),
            ("GET", site("cross-site", "navigate", "document").to_vec(), "a place"),
            ("POST", site("cross-site", "navigate", "document").to_vec(), "the page"),
            ("POST", site("same-site", "navigate", "document").to_vec(), "the page"),
            ("GET", site("cross-site", "navigate", "iframe").to_vec(), "foreign_origin"),
            ("GET", site("cross-site", "no-cors", "image").to_vec(), "foreign_origin"),
            ("GET", site("same-site", "no-cors", "script").to_vec(), "foreign_origin"),
            ("POST", site("cross-site", "no-cors", "empty").to_vec(), "foreign_origin"),
            (
                "GET",
                vec![
                    ("origin", "https://evil.example"),
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "cors"),
                ],
                "foreign_origin",
            ),
            (
                "GET",
                vec![
                    ("origin", "https://app.example"),
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "cors"),
                ],
                "a place",
            ),
            ("POST", vec![("origin", "http://pay.example"), html], "the page"),
            ("POST", vec![("origin", "null"), html], "the page"),
            ("POST", vec![("origin", "http://pay.example")], "foreign_origin"),
            ("POST", vec![("origin", "http://shop.example"), html], "a place"),
            ("POST", vec![("origin", "http://shop.example:8000"), html], "a place"),
            ("GET", vec![html, ("sec-purpose", "prefetch;prerender")], "no_place"),
            ("GET", vec![html, ("purpose", "prefetch")], "no_place"),
            ("GET", vec![html, ("x-moz", "prefetch")], "no_place"),
            ("GET", vec![("weir-poll", "page; given=")], "a place"),
            (
                "GET",
                vec![
                    ("weir-poll", "page; given="),
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "cors"),
                ],
                "foreign_origin",
            ),
            ("GET", vec![("origin", "http://evil.example")], "foreign_origin"),
        ];
        let uri = Uri::from_static("/gate/check");
        for (method, lines, gets) in cases {
            let mut lines = lines.clone();
            lines.extend([
                ("host", "weir:8080"),
                ("x-forwarded-method", *method),
                ("x-forwarded-host", "shop.example"),
                ("x-forwarded-uri", "/"),
            ]);
            let headers = headers(&lines);
            let asked = Asked::of(&Method::GET, &uri, &headers).expect("all is there");
            let got = match no_place(&asked, &headers, &allowed) {
                None => "a place",
                Some(NoPlace::PageOfForm) => "the page",
                Some(NoPlace::Refused(problem)) if problem.code == FOREIGN_ORIGIN => "foreign_origin",
                Some(NoPlace::Refused(problem)) if problem.code == NO_PLACE => "no_place",
                Some(NoPlace::Refused(problem)) => panic!("{problem:?}"),
            };
            assert_eq!(got, *gets, "{method} {lines:?}");
        }
    }
}
