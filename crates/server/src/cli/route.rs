//! `weir route explain`: which route decides about a request, and why. `weir route token`: a bypass token.

use std::net::IpAddr;

use admission::BypassToken;
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use crate::{
    clock,
    config::{Config, ConfigFault},
    failure::{self, Failure},
    http::check::{asked::bare, path::RoutePath, routes::Visitor, token},
    keys::{IfMissing, Keys},
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
    /// The names of the valid bypass tokens that it carries.
    pub tokens: Vec<String>,
}

/// The longest time for which a bypass token is made, in seconds.
const MAX_VALID_S: u64 = 400 * 86_400;

/// A bypass token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBypass {
    name: String,
    valid_s: u64,
    only_from: Option<IpAddr>,
}

impl NewBypass {
    /// Reads what is wanted. `valid` is a time as in `12h`.
    ///
    /// # Errors
    /// The name or the time is not valid.
    pub(super) fn new(name: String, valid: &str, only_from: Option<IpAddr>) -> Result<Self, ConfigFault> {
        if !BypassToken::is_name(&name) {
            return Err(ConfigFault::new(format!(
                "--name: `{name}` is not a valid name; use 1 to 64 of A-Z a-z 0-9 _ . : -"
            )));
        }
        let unit_s = match valid.chars().last() {
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            _ => 0,
        };
        let number = valid.get(..valid.len().saturating_sub(1)).and_then(|number| number.parse::<u64>().ok());
        let valid_s =
            number.and_then(|number| number.checked_mul(unit_s)).filter(|s| (1..=MAX_VALID_S).contains(s));
        let valid_s = valid_s.ok_or_else(|| {
            ConfigFault::new(format!(
                "--valid: `{valid}` is not a time up to 400d; write one as in 30m, 12h or 7d"
            ))
        })?;
        Ok(Self { name, valid_s, only_from })
    }
}

/// Makes a bypass token, and says how it is used.
///
/// # Errors
/// The sealing key cannot be read.
pub(super) fn new_bypass(config: &Config, wanted: &NewBypass) -> Result<String, Failure> {
    let Keys { seals, .. } = Keys::read(&config.seal, &config.pass, &config.data_dir, IfMissing::Refuse)?;
    let expires_s = clock::unix_ms() / 1_000 + wanted.valid_s;
    let token = token::make(&seals, &wanted.name, expires_s, wanted.only_from);
    let name = &wanted.name;
    Ok(format!(
        "{token}\n\n\
         This is shown once, and counts until {expires_s} (seconds since 1970). A route takes it:\n\n\
         [[route]]\nname = \"{name}\"\nbypass = true\ntoken = \"{name}\"\n\n\
         Send it in the header Weir-Token, or open a page with ?weir-token=TOKEN behind its address.\n"
    ))
}

/// Says what the routes of a configuration do with a request.
///
/// # Errors
/// The address or a header is not valid.
pub(super) fn explain(config: &Config, question: &Question) -> Result<String, Failure> {
    let usage = |what: String| Failure::new(failure::USAGE, what);
    let Question { url, method, headers, address, tokens } = question;
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
    let address = address.to_canonical();
    let visitor = Visitor { method, host: &host, path: &path, headers: &fields, address, tokens };
    let mut text = String::new();
    if !path.is_plain {
        text = format!("the path counts as {}\n", path.normal);
    }
    Ok(text + &config.routes.explain(&visitor).join("\n") + "\n")
}
