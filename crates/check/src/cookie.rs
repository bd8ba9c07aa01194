//! The cookie that holds a visitor's place or visit, one for each zone, as a request carries it.
//!
//! A page of the site may set other cookies, also some of the same name, and a browser sends whatever bytes they have. Invariant: what
//! is no cookie of Weir hides none that is. Cookies are compared as bytes; of several of one name each is tried, in their order.

use admission::{SEALED_LEN, VISIT_LEN, ZoneId};
use http::{
    HeaderMap,
    header::{COOKIE, HeaderName},
};

/// The header in which a proxy repeats a cookie that Weir gave out for this very request, in the form of `Set-Cookie`.
pub const GIVEN: HeaderName = HeaderName::from_static("weir-cookie");

/// The most cookies of one name that are tried. A browser keeps at most 180 cookies of a site.
pub const MOST_TRIED: usize = 192;

/// What a cookie may hold. Its seal is still to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// The token of a place.
    Place(&'a [u8]),
    /// A sealed visit.
    Visit(&'a [u8]),
}

impl<'a> Held<'a> {
    /// What the value of a zone's cookie holds; none if it is no value that Weir gives out.
    #[must_use]
    pub fn of(value: &'a [u8]) -> Option<Self> {
        match value.split_first()? {
            (b'p', token) if token.len() == SEALED_LEN => Some(Self::Place(token)),
            (b'v', sealed) if sealed.len() == VISIT_LEN => Some(Self::Visit(sealed)),
            _ => None,
        }
    }
}

/// The names of a zone's cookie. Operators write them into the configuration of some proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieNames {
    plain: String,
    secure: String,
}

impl CookieNames {
    /// Those of a zone.
    #[must_use]
    pub fn of(zone: &ZoneId) -> Self {
        // A cookie's name has no colon, and a zone's no tilde.
        let plain = format!("weir-{}", zone.as_str().replace(':', "~"));
        Self { secure: format!("__Host-{plain}"), plain }
    }

    /// The name. Over HTTPS it begins with `__Host-`
    /// ([RFC 6265bis](https://datatracker.ietf.org/doc/draft-ietf-httpbis-rfc6265bis/)), so that neither another host nor a page without
    /// TLS can plant one.
    #[must_use]
    pub fn get(&self, is_secure: bool) -> &str {
        if is_secure { &self.secure } else { &self.plain }
    }
}

/// The values of the cookies of this name.
pub fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(COOKIE).into_iter().flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    pairs.filter_map(move |pair| value_of(pair, name))
}

/// What the zone's cookies hold: what the proxy has just been given, then what the browser sent.
pub fn held<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = Held<'a>> {
    let given = headers.get_all(GIVEN).into_iter();
    let given = given.filter_map(|line| line.as_bytes().split(|b| *b == b';').next());
    let given = given.filter_map(move |pair| value_of(pair, name));
    given.chain(values(headers, name)).filter_map(Held::of).take(MOST_TRIED)
}

fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (of, value) = pair.trim_ascii().split_at_checked(name.len())?;
    let value = value.strip_prefix(b"=")?;
    (of == name.as_bytes()).then_some(value)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NAME: &str = "weir-x";

    fn place(byte: u8) -> [u8; SEALED_LEN] {
        [byte; SEALED_LEN]
    }

    fn visit(byte: u8) -> [u8; VISIT_LEN] {
        [byte; VISIT_LEN]
    }

    fn cookie(kind: &[u8], value: &[u8]) -> Vec<u8> {
        [NAME.as_bytes(), b"=", kind, value].concat()
    }

    fn headers(lines: &[(HeaderName, Vec<u8>)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value).expect("a value")))
            .collect()
    }

    #[test]
    fn each_zone_has_its_own_cookie_and_https_its_own_name() {
        let names = CookieNames::of(&ZoneId::parse("shop:a.b").expect("a zone"));
        assert_eq!((names.get(false), names.get(true)), ("weir-shop~a.b", "__Host-weir-shop~a.b"));
    }

    #[test]
    fn all_cookies_of_the_name_are_found_among_others() {
        let lines = [
            b"a=1; weir-x; weir-x=; weir-x=q; weir-xy=v; weir-x=vSHORT".to_vec(),
            [
                &b"recent=\xed\x95\x9c;"[..],
                &cookie(b"p", &place(b'A')),
                b";b=2; ",
                &cookie(b"v", &visit(b'B')),
            ]
            .concat(),
            cookie(b"v", &visit(b'C')),
        ];
        let headers = headers(&lines.map(|line| (COOKIE, line)));
        let found: Vec<_> = held(&headers, NAME).collect();
        let (a, b, c) = (place(b'A'), visit(b'B'), visit(b'C'));
        assert_eq!(found, [Held::Place(&a), Held::Visit(&b), Held::Visit(&c)]);
        assert_eq!(held(&headers, "weir-y").count(), 0);
    }

    #[test]
    fn what_the_proxy_was_given_counts_before_what_the_browser_sent() {
        let given = [&cookie(b"v", &visit(b'N')), &b"; Path=/; HttpOnly"[..]].concat();
        let headers = headers(&[(COOKIE, cookie(b"p", &place(b'O'))), (GIVEN, given)]);
        let (new, old) = (visit(b'N'), place(b'O'));
        assert_eq!(held(&headers, NAME).collect::<Vec<_>>(), [Held::Visit(&new), Held::Place(&old)]);
    }

    #[test]
    fn a_crowd_of_cookies_is_tried_up_to_a_limit() {
        let garbage = [cookie(b"p", &place(b'A')), b"; ".to_vec()].concat().repeat(500);
        let headers = headers(&[(COOKIE, garbage)]);
        assert_eq!(held(&headers, NAME).count(), MOST_TRIED);
    }
}
