//! `weir route explain`: which route decides about a request, and why.

use std::net::IpAddr;

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use crate::{
    config::Config,
    failure::{self, Failure},
    http::check::{asked::bare, path::RoutePath, routes::Visitor},
};

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
}

/// Says what the routes of a configuration do with a request.
///
/// # Errors
/// The address or a header is not valid.
pub(super) fn explain(config: &Config, question: &Question) -> Result<String, Failure> {
    let usage = |what: String| Failure::new(failure::USAGE, what);
    let Question { url, method, headers, address } = question;
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or_else(|| {
        usage(format!("`{url}` is not an address; write one as in https://shop.example/checkout"))
    })?;
    let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let host = bare(host);
    let mut fields = HeaderMap::new();
    for line in headers {
        let read = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::try_from(name.trim()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, value) = read
            .ok_or_else(|| usage(format!("`{line}` is not a header; write one as in 'User-Agent: curl'")))?;
        fields.append(name, value);
    }
    let path = RoutePath::of(url);
    let visitor =
        Visitor { method, host: &host, path: &path, headers: &fields, address: address.to_canonical() };
    let mut text = String::new();
    if !path.is_plain {
        text = format!("the path counts as {}\n", path.normal);
    }
    Ok(text + &config.routes.explain(&visitor).join("\n") + "\n")
}
