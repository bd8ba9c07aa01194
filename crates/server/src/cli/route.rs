//! `weir route explain`: which route decides about a request, and why. `weir route token`: a bypass token.

use std::net::IpAddr;

use admission::BypassToken;
use check::{question::Question, token};

use crate::{
    clock,
    config::{Config, ConfigFault},
    failure::{self, Failure},
    http::counted_addresses::address_digest,
    keys::{IfMissing, Keys},
};

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
    let client = wanted.only_from.map_or(0, address_digest);
    let token = token::make(&seals.bypass_sealer(), &wanted.name, expires_s, client);
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
    let explained = question.ask(&config.routes).map_err(|what| Failure::new(failure::USAGE, what))?;
    let path = explained.path.map_or_else(String::new, |path| format!("the path counts as {path}\n"));
    Ok(path + &explained.lines.join("\n") + "\n")
}
