//! Which route decides about a request that somebody describes, and why: for `weir route explain` and the admin API.

use std::{borrow::Cow, net::IpAddr};

use http::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use crate::{decision::Routes, host::bare, readings::Readings, request::Request, written};

/// The request that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its address, as in `https://shop.example/checkout`.
    pub url: String,
    /// Its method.
    pub method: String,
    /// Its header fields, as `NAME: VALUE`.
    pub headers: Vec<String>,
    /// The client's address.
    pub address: IpAddr,
    /// The names of the valid bypass tokens that it carries.
    pub tokens: Vec<String>,
}

/// What the routes do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The path as routes see it, if that is not how it was written, and all servers read it so.
    pub path: Option<String>,
    /// The index of the route that decides; none if no route does. If the visitor needs visits of several zones, the first one's.
    pub index: Option<usize>,
    /// What each route says, up to the one that decides; if servers read several paths in the address, for each deciding one.
    pub lines: Vec<String>,
}

impl Question {
    /// The client's address of a question that does not say it: one that is in no network.
    pub const ANY_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// Asks these routes.
    ///
    /// # Errors
    /// What is wrong with the address or a header.
    pub fn ask(&self, routes: &Routes) -> Result<Explanation, String> {
        let Self { url, method, headers, address, tokens } = self;
        let url = &as_sent(url);
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let rest = rest.ok_or_else(|| {
            // It may have a password or a token.
            "the request's address must begin with https:// or http://; write one as in https://shop.example/checkout".to_owned()
        })?;
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        if authority.is_empty() {
            return Err(
                "the request's address has no host; write one as in https://shop.example/checkout".to_owned()
            );
        }
        if authority.contains('@') {
            return Err("the request's address has a user or a password, which browsers do not send; leave out what is before the @".to_owned());
        }
        let host = bare(authority.as_bytes());
        let mut fields = HeaderMap::new();
        for (line, number) in headers.iter().zip(1..) {
            // The value may be a secret, and so may all of a text that is not written as a header.
            let wrong = |what: &str| format!("header {number} {what}; write one as in 'User-Agent: curl'");
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("has no colon behind its name"))?;
            let name = HeaderName::try_from(name.trim());
            let name = name.map_err(|_| wrong("has a name that no header has"))?;
            let value = HeaderValue::from_str(value.trim());
            let value =
                value.map_err(|_| wrong(&format!("(`{name}`) has a value with control characters")))?;
            fields.append(name, value);
        }
        let request = Request {
            method: method.as_str().into(),
            host,
            target: url.as_bytes().into(),
            is_secure: url.starts_with("https"),
            headers: &fields,
            address: address.to_canonical(),
            tokens,
        };
        let path = match Readings::of(url.as_bytes()) {
            // The path behind the host, as it was written.
            Readings::One(path) => (!url.contains(&*path.text)).then(|| path.text.to_string()),
            Readings::Several(_) | Readings::TooMany => None,
        };
        Ok(Explanation { path, index: routes.decide(&request).index(), lines: routes.explain(&request) })
    }
}

/// An address with its host in the form in which browsers send it.
fn as_sent(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    let (host, behind) = rest.split_at(rest.find(['/', '?', '#', ':']).unwrap_or(rest.len()));
    match host.is_ascii() {
        true => url.into(),
        false => written::host(host).map_or(url.into(), |host| format!("{scheme}://{host}{behind}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(url: &str, headers: &[&str]) -> Result<Explanation, String> {
        let question = Question {
            url: url.to_owned(),
            method: "GET".to_owned(),
            headers: headers.iter().map(|&header| header.to_owned()).collect(),
            address: Question::ANY_ADDRESS,
            tokens: Vec::new(),
        };
        question.ask(&Routes::new(Vec::new()))
    }

    #[test]
    fn an_address_that_no_browser_asks_for_is_refused_and_not_shown() {
        for url in ["http:///x", "https://", "http://?s3cret", "https://#s3cret"] {
            let said = ask(url, &[]).expect_err(url);
            assert!(said.contains("has no host") && !said.contains("s3cret"), "{said}");
        }
        for url in ["http://u:s3cret@shop.example/", "https://s3cret@shop.example", "http://u:s3cret@"] {
            let said = ask(url, &[]).expect_err(url);
            assert!(said.contains("has a user or a password") && !said.contains("s3cret"), "{said}");
        }
        // A password may have a slash.
        let odd = ask("http://u:s3cret/x@shop.example/", &[]).expect("it is asked");
        assert_eq!(odd.lines, ["`u:…` is no host: refused"]);
        assert_eq!(ask("http://shop.example/@x", &[]).expect("right").lines, ["no route fits: let through"]);
    }

    #[test]
    fn a_text_that_is_no_header_is_not_shown() {
        for (header, wanted) in [
            ("X-Staff s3cret", "header 2 has no colon behind its name"),
            ("s3cret", "header 2 has no colon behind its name"),
            ("X-Staff s3cret: x", "header 2 has a name that no header has"),
            ("X-Staff: s3cret\n", "right"),
            ("X-Staff: s3\ncret", "header 2 (`x-staff`) has a value with control characters"),
        ] {
            let said = ask("https://shop.example/", &["A: b", header])
                .map_or_else(|said| said, |_| "right".to_owned());
            assert!(said.starts_with(wanted) && !said.contains("cret"), "{said}");
        }
    }
}
