//! Verifies a pass: a JWT of RFC 7519, signed by a published key, for this audience and zone, and valid now.
//!
//! Invariant: nothing in a pass is believed before its signature is verified, except which key to use.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use crate::{
    keys::Key,
    refusal::{Code, Refusal},
};

/// The largest difference between Weir's clock and this machine's, in seconds.
pub(crate) const LEEWAY_S: u32 = 5;
/// The longest pass, in bytes. Weir's have less than 1,500.
const MAX_PASS: usize = 8_192;
const MAX_JTI: usize = 256;
const MAX_SECONDS: f64 = 1e12;

/// What a pass says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The zone that the holder entered.
    pub zone: String,
    /// The name of the entry.
    pub jti: String,
    /// When the pass ends.
    pub expires: SystemTime,
}

/// A pass that names its key, and of which nothing else is known.
pub(crate) struct Unverified<'a> {
    pub(crate) kid: String,
    head: Map<String, Value>,
    /// Head and body, as they were signed.
    text: &'a str,
    body: Vec<u8>,
    mark: Vec<u8>,
}

impl<'a> Unverified<'a> {
    /// The parts of a text.
    pub(crate) fn read(text: &'a str) -> Result<Self, Refusal> {
        if text.len() > MAX_PASS || text.matches('.').count() != 2 {
            return Err(Code::Unreadable.into());
        }
        let (text, mark) = text.rsplit_once('.').ok_or(Code::Unreadable)?;
        let (head, body) = text.split_once('.').ok_or(Code::Unreadable)?;
        let (head, body, mark) = (fields(&decode(head)?)?, decode(body)?, decode(mark)?);
        let kid = head.get("kid").and_then(Value::as_str).ok_or(Code::Unreadable)?.to_owned();
        // Nothing critical is known here, so RFC 7515 demands a refusal.
        if head.contains_key("crit") {
            return Err(Code::Unreadable.into());
        }
        Ok(Self { kid, head, text, body, mark })
    }

    /// The pass, if all of it is right at `now_s`, in seconds since 1970.
    pub(crate) fn verify(&self, key: &Key, audience: &str, zone: &str, now_s: f64) -> Result<Pass, Refusal> {
        if self.head.get("alg").and_then(Value::as_str) != Some(key.algorithm)
            || !key.verifies(self.text.as_bytes(), &self.mark)
        {
            return Err(Code::Forged.into());
        }
        let claims = fields(&self.body)?;
        let seconds = |name: &str| {
            claims
                .get(name)
                .and_then(Value::as_f64)
                .filter(|s| s.abs() <= MAX_SECONDS)
                .ok_or(Code::Unreadable)
        };
        let (nbf, exp) = (seconds("nbf")?, seconds("exp")?);
        let jti = claims.get("jti").and_then(Value::as_str).ok_or(Code::Unreadable)?;
        // The name is part of a key in the record of spent passes.
        if jti.is_empty() || jti.len() > MAX_JTI || !jti.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(Code::Unreadable.into());
        }
        if now_s < nbf - f64::from(LEEWAY_S) {
            return Err(Code::NotYetValid.into());
        }
        if now_s >= exp + f64::from(LEEWAY_S) {
            return Err(Code::Expired.into());
        }
        let is_ours = match claims.get("aud") {
            Some(Value::Array(several)) => several.iter().any(|one| one == audience),
            one => one.is_some_and(|one| one == audience),
        };
        if !is_ours || claims.get("zone").is_none_or(|value| value != zone) {
            return Err(Code::OtherService.into());
        }
        let expires = UNIX_EPOCH + Duration::from_secs_f64(exp.max(0.0));
        Ok(Pass { zone: zone.to_owned(), jti: jti.to_owned(), expires })
    }
}

fn decode(part: &str) -> Result<Vec<u8>, Refusal> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|fault| Refusal::because(Code::Unreadable, fault))
}

fn fields(text: &[u8]) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_slice(text).map_err(|fault| Refusal::because(Code::Unreadable, fault))
}
