//! What the page's script says with its questions, in `Weir-Poll`: `page; given=SITE other`.
//!
//! | before `;` | the page |
//! |---|---|
//! | `first` | stands in place of the reply to a form of another site, and Weir has not answered it yet |
//! | `form` | stands in place of the reply to a form |
//! | `page` | is another one |
//!
//! A browser that keeps no cookies must not take a place with each question. But not every page was given a cookie (the zone was closed),
//! the zone may be another one than before, and a cookie that came back may go later: its time is over, or another tab has left. So the
//! page repeats for which zones Weir gave out a cookie that the browser has not sent back yet. For these it takes no place, and for
//! all others it does. Each reply says the zones anew, so the server remembers nothing.
//!
//! The script asks with a `GET` of its own. What counts is the request that the page stands for: a rule for forms is for a page that stands in
//! place of the reply to one, and a rule for what browsers load as pages is for every page. Invariant: no question reaches the site.

use std::collections::BTreeSet;

use check::Routes;
use hyper::{
    HeaderMap,
    header::{ACCEPT, HeaderName, HeaderValue},
};

use super::newcomer::{SEC_FETCH_DEST, SEC_FETCH_MODE};

/// The page's script sends this with its questions. They get no 200, so that they never reach the site.
const POLL: HeaderName = HeaderName::from_static("weir-poll");

/// By which a browser says that it loads a page.
const OF_PAGE: [(HeaderName, &str); 3] = [
    (ACCEPT, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (SEC_FETCH_DEST, "document"),
    (SEC_FETCH_MODE, "navigate"),
];

/// The most zones that are read. More than one are rare: an address that is readable as paths of several zones.
const MOST_GIVEN: usize = 16;

/// What the script says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Poll<'a> {
    /// Whether the page stands in place of the reply to a form.
    pub(super) is_of_form: bool,
    /// Whether Weir has not answered the page yet, which stands in place of the reply to another site's form.
    pub(super) is_first: bool,
    /// The zones whose cookie is on its way; none if the page does not say it.
    given: Option<BTreeSet<&'a [u8]>>,
}

impl<'a> Poll<'a> {
    /// What a request says; none if it is not the script's.
    pub(super) fn of(headers: &'a HeaderMap) -> Option<Self> {
        let said = headers.get(POLL)?.as_bytes();
        let (page, more) = said.split_at(said.iter().position(|b| *b == b';').unwrap_or(said.len()));
        let is_first = page == b"first";
        let given =
            more.strip_prefix(b";").map(<[u8]>::trim_ascii).and_then(|more| more.strip_prefix(b"given="));
        let given = given.map(|zones| {
            zones.split(|b| *b == b' ').filter(|zone| !zone.is_empty()).take(MOST_GIVEN).collect()
        });
        Some(Self { is_of_form: is_first || page == b"form", is_first, given })
    }

    /// The method of the request that the page stands for. Browsers send forms with `POST`.
    pub(super) fn method<'m>(&self, of_question: &'m str) -> &'m str {
        if self.is_of_form { "POST" } else { of_question }
    }

    /// Whether the browser was given a cookie of the zone and has not sent one since. A page that does not say it, of an older version, was
    /// given one, unless it asks for the first time.
    pub(super) fn was_given(&self, zone: &str) -> bool {
        self.given.as_ref().map_or(!self.is_first, |given| given.contains(zone.as_bytes()))
    }

    /// Whether the page names no zone.
    pub(super) fn names_none(&self) -> bool {
        self.given.as_ref().is_none_or(BTreeSet::is_empty)
    }
}

/// The headers of a question, with those by which a browser says that it loads a page. None if no route asks for one of those, so that
/// a crowd's questions copy nothing.
pub(super) fn headers_of_page(headers: &HeaderMap, routes: &Routes) -> Option<HeaderMap> {
    if !OF_PAGE.iter().any(|(name, _)| routes.ask_for_header(name)) {
        return None;
    }
    let mut of_page = headers.clone();
    for (name, value) in OF_PAGE {
        // A browser that says nothing of its requests says nothing of the page's either.
        if of_page.contains_key(&name) {
            of_page.insert(name, HeaderValue::from_static(value));
        }
    }
    Some(of_page)
}

#[cfg(test)]
mod tests {
    use check::written;

    use super::{super::tests::headers, *};

    #[test]
    fn a_question_has_the_headers_of_its_page_where_a_route_asks_for_them() {
        let routes = |text: &str| {
            let fields: serde_json::Map<_, _> = serde_json::from_str(text).expect("JSON");
            Routes::new(vec![written::read(&fields, 1).expect("right")])
        };
        let of_question =
            headers(&[("accept", "application/json"), ("sec-fetch-mode", "cors"), ("x-a", "b")]);
        let of_page = headers(&[("accept", OF_PAGE[0].1), ("sec-fetch-mode", "navigate"), ("x-a", "b")]);
        for (asked, of_page) in [
            (r#""path": "/a""#, None),
            (r#""header": {"x-a": "b"}, "cookie": {"accept": "b"}"#, None),
            (r#""header": {"Accept": "*html*"}"#, Some(&of_page)),
            (r#""header": {"x-a": "b", "sec-fetch-dest": "document"}"#, Some(&of_page)),
        ] {
            let routes = routes(&format!(r#"{{"zone": "Z", {asked}}}"#));
            assert_eq!(headers_of_page(&of_question, &routes).as_ref(), of_page, "{asked}");
        }
    }

    #[test]
    fn a_page_says_what_it_is_and_which_cookies_it_was_given() {
        // Whether it is of a form and asks for the first time, and whether it was given a cookie of A, and one of B.
        for (said, of_form, is_first, given) in [
            ("page", false, false, [true, true]),
            ("1", false, false, [true, true]),
            ("form", true, false, [true, true]),
            ("first", true, true, [false, false]),
            ("page; given=", false, false, [false, false]),
            ("page;given=A", false, false, [true, false]),
            ("form; given=A B", true, false, [true, true]),
            ("first; given=B", true, true, [false, true]),
            ("page; given=AB", false, false, [false, false]),
            ("page; nonsense", false, false, [true, true]),
        ] {
            let headers = headers(&[("weir-poll", said)]);
            let poll = Poll::of(&headers).expect("it asks");
            assert_eq!((poll.is_of_form, poll.is_first), (of_form, is_first), "{said}");
            assert_eq!(["A", "B"].map(|zone| poll.was_given(zone)), given, "{said}");
        }
        assert_eq!(Poll::of(&headers(&[])), None);
        let many = format!("page; given={}", (0..99).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        let headers = HeaderMap::from_iter([(POLL, many.parse().expect("a value"))]);
        assert!(Poll::of(&headers).is_some_and(|poll| poll.was_given("15") && !poll.was_given("16")));
    }
}
