//! Verifies and spends passes, and starts sessions.
//!
//! Invariant: a pass starts at most one session. A spent pass is remembered for longer than it can be accepted. If there is no room to
//! remember another pass, it is refused.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{DecodingKey, Validation, decode, decode_header, errors::ErrorKind};
use serde::Deserialize;

use crate::keys::{Keys, NoKey};

/// The largest difference between Weir's clock and ours, in seconds.
const LEEWAY_S: u64 = 5;

/// How much longer than a pass can be accepted it is remembered, in seconds. Clocks count whole seconds, and those of servers that share a
/// record may differ.
const KEPT_S: u64 = 60;

/// The lifetime of a session, in seconds.
pub const SESSION_S: u64 = 900;

/// The largest number of remembered passes, and of sessions: some minutes' worth of each.
const MOST: usize = 1_000_000;

/// The claims of a pass.
#[derive(Debug, Deserialize)]
struct Claims {
    zone: String,
    jti: String,
    exp: u64,
}

/// Why a pass is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not a pass, or names no key.
    #[error("this is not a pass")]
    Unreadable,
    /// Weir does not publish its key.
    #[error("the pass is signed by an unknown key")]
    UnknownKey,
    /// Weir cannot be asked for its key now.
    #[error("the pass cannot be checked now, reload this page in ten seconds")]
    KeysAway,
    /// The signature does not match the claims.
    #[error("the pass is forged")]
    Forged,
    /// It has expired, or is not valid yet.
    #[error("the pass has expired")]
    Expired,
    /// It is for another audience or zone.
    #[error("the pass is for another service")]
    Elsewhere,
    /// It was used before.
    #[error("the pass was used already")]
    Spent,
    /// There is no room to remember it.
    #[error("too many people enter at once")]
    Full,
}

/// The check of one zone's passes, and its sessions.
pub struct Door {
    keys: Keys,
    audience: String,
    zone: String,
    spent: Until<String>,
    sessions: Until<String>,
}

impl Door {
    /// Accepts passes for `zone` and `audience`.
    #[must_use]
    pub fn new(keys: Keys, audience: &str, zone: &str) -> Self {
        let (audience, zone) = (audience.to_owned(), zone.to_owned());
        Self { keys, audience, zone, spent: Until::default(), sessions: Until::default() }
    }

    /// Spends a pass and starts a session. Returns the name of the session.
    ///
    /// # Errors
    /// [`Refusal`]. The pass is not spent then.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub async fn enter(&self, pass: &str) -> Result<String, Refusal> {
        let claims = self.verify(pass).await?;
        let now = unix_s();
        // Only this step must be atomic, and it comes last. README.md says how several servers share it.
        match self.spent.take(claims.jti, claims.exp.saturating_add(LEEWAY_S + KEPT_S), now) {
            Ok(true) => {}
            Ok(false) => return Err(Refusal::Spent),
            Err(Full) => return Err(Refusal::Full),
        }
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).expect("the system has random numbers");
        let session: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        self.sessions.take(session.clone(), now + SESSION_S, now).map_err(|Full| Refusal::Full)?;
        Ok(session)
    }

    /// Whether the session exists.
    #[must_use]
    pub fn is_in(&self, session: &str) -> bool {
        self.sessions.has(session, unix_s())
    }

    async fn verify(&self, pass: &str) -> Result<Claims, Refusal> {
        let header = decode_header(pass).map_err(|_| Refusal::Unreadable)?;
        let key = self.keys.find(&header.kid.ok_or(Refusal::Unreadable)?).await.map_err(|no| match no {
            NoKey::Unknown => Refusal::UnknownKey,
            NoKey::Away => Refusal::KeysAway,
        })?;
        // The key names the algorithm. If the pass could choose it, a forger would choose a weak one.
        let algorithm = key.common.key_algorithm.and_then(|algorithm| algorithm.to_string().parse().ok());
        let mut rules = Validation::new(algorithm.ok_or(Refusal::UnknownKey)?);
        rules.set_audience(&[&self.audience]);
        rules.set_required_spec_claims(&["aud", "exp", "nbf"]);
        rules.validate_nbf = true;
        rules.leeway = LEEWAY_S;
        let key = DecodingKey::from_jwk(&key).map_err(|_| Refusal::UnknownKey)?;
        let claims = decode::<Claims>(pass, &key, &rules).map_err(|e| match e.kind() {
            ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => Refusal::Expired,
            ErrorKind::InvalidAudience => Refusal::Elsewhere,
            ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => Refusal::Forged,
            _ => Refusal::Unreadable,
        })?;
        if claims.claims.zone == self.zone { Ok(claims.claims) } else { Err(Refusal::Elsewhere) }
    }
}

/// Seconds since 1970.
fn unix_s() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "passes carry dates of the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Keys that are remembered until a time, in seconds since 1970.
struct Until<K>(Mutex<Known<K>>);

struct Known<K> {
    ends: HashMap<K, u64>,
    /// When to look for what has ended, once in a second at most. A look goes through all.
    look: u64,
}

/// There is no room for another key.
struct Full;

impl<K> Default for Until<K> {
    fn default() -> Self {
        Self(Mutex::new(Known { ends: HashMap::new(), look: 0 }))
    }
}

impl<K: Eq + Hash> Until<K> {
    /// Remembers `key` until `until`. Returns whether it is new.
    fn take(&self, key: K, until: u64, now: u64) -> Result<bool, Full> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.ends.len() >= MOST && known.look <= now {
            known.ends.retain(|_, until| *until > now);
            known.look = now + 1;
        }
        if known.ends.get(&key).is_some_and(|until| *until > now) {
            return Ok(false);
        }
        if known.ends.len() >= MOST {
            return Err(Full);
        }
        known.ends.insert(key, until);
        Ok(true)
    }

    fn has<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: u64) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.ends.get(key).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_pass_is_accepted_once_also_in_the_last_second_in_which_it_is_accepted() {
        let keys = json!({ "keys": [{ "kty": "oct", "kid": "a", "alg": "HS256", "k": "AAAA" }] });
        let door = Door::new(Keys::known_already(serde_json::from_value(keys).expect("keys")), "weir", "Z");
        let head = Header { kid: Some("a".to_owned()), ..Header::new(Algorithm::HS256) };
        let key = EncodingKey::from_secret(&[0; 3]);
        // The second may end before the first call. Then the pass has expired, and another one is shown.
        for jti in 0.. {
            let exp = unix_s() - LEEWAY_S;
            let claims =
                json!({ "aud": "weir", "zone": "Z", "jti": jti.to_string(), "nbf": exp - 300, "exp": exp });
            let pass = encode(&head, &claims, &key).expect("a pass");
            match door.enter(&pass).await {
                Err(Refusal::Expired) => {}
                first => {
                    first.expect("it is accepted");
                    let again = door.enter(&pass).await;
                    assert!(matches!(again, Err(Refusal::Spent | Refusal::Expired)), "{again:?}");
                    return;
                }
            }
        }
    }
}
