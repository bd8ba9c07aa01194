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
        let host = bare(&rest.as_bytes()[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]);
        let mut fields = HeaderMap::new();
        for line in headers {
            let read = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::try_from(name.trim()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            // The value may be a secret.
            let shown = line.split(':').next().unwrap_or_default();
            let (name, value) =
                read.ok_or_else(|| format!("`{shown}` is not a header; write one as in 'User-Agent: curl'"))?;
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
