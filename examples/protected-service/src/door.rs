//! Who comes in: passes are verified and spent, and sessions begin.
//!
//! Invariant: a pass begins one session at most. A pass that was spent is remembered until it has expired; where there is no room
//! to remember another, nobody comes in.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{DecodingKey, Validation, decode, decode_header, errors::ErrorKind};
use serde::Deserialize;

use crate::keys::Keys;

/// How far Weir's clock and ours may be apart, in seconds.
const LEEWAY_S: u64 = 5;

/// A session's life, in seconds.
pub const SESSION_S: u64 = 900;

/// Passes and sessions that are remembered, at most: of each some minutes' worth.
const MOST: usize = 1_000_000;

/// What a pass says.
#[derive(Debug, Deserialize)]
struct Claims {
    zone: String,
    jti: String,
    exp: u64,
}

/// Why a pass lets nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no pass, or names no key.
    #[error("this is no pass")]
    Unreadable,
    /// It names a key that Weir does not publish (or can't be asked for).
    #[error("the pass is signed by an unknown key")]
    UnknownKey,
    /// The signature is not that of what it says.
    #[error("the pass is forged")]
    Forged,
    /// Its time is over, or has not come.
    #[error("the pass has expired")]
    Expired,
    /// It is for another audience or zone.
    #[error("the pass is for another service")]
    Elsewhere,
    /// It let somebody in already.
    #[error("the pass was used already")]
    Spent,
    /// There is no room to remember it.
    #[error("too many people come in at once")]
    Full,
}

/// The door of one zone.
pub struct Door {
    keys: Keys,
    audience: String,
    zone: String,
    spent: Until<String>,
    sessions: Until<String>,
}

impl Door {
    /// Lets in who has a pass for `zone` and `audience`.
    #[must_use]
    pub fn new(keys: Keys, audience: &str, zone: &str) -> Self {
        let (audience, zone) = (audience.to_owned(), zone.to_owned());
        Self { keys, audience, zone, spent: Until::default(), sessions: Until::default() }
    }

    /// Spends a pass, and begins a session, whose name it returns.
    ///
    /// # Errors
    /// [`Refusal`]; the pass is as good as before, then.
    ///
    /// # Panics
    /// Where the system has no random numbers.
    pub async fn enter(&self, pass: &str) -> Result<String, Refusal> {
        let claims = self.verify(pass).await?;
        let now = unix_s();
        // The one step that has to be atomic, and comes last. With several servers: SET weir:spent:JTI 1 NX EXAT EXP in Redis.
        match self.spent.take(claims.jti, claims.exp + LEEWAY_S, now) {
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

    /// Whether there is such a session.
    #[must_use]
    pub fn is_in(&self, session: &str) -> bool {
        self.sessions.has(session, unix_s())
    }

    async fn verify(&self, pass: &str) -> Result<Claims, Refusal> {
        let header = decode_header(pass).map_err(|_| Refusal::Unreadable)?;
        let key = self.keys.find(&header.kid.ok_or(Refusal::Unreadable)?).await.ok_or(Refusal::UnknownKey)?;
        // The key says how it signs, and not the pass: who could choose would choose what is easy to forge.
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
    #[expect(clippy::disallowed_methods, reason = "the dates of passes are dates")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What is remembered, and until when.
struct Until<K>(Mutex<HashMap<K, u64>>);

/// No room.
struct Full;

impl<K> Default for Until<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Until<K> {
    /// Whether `key` is new; it is remembered `until`, in seconds since 1970.
    fn take(&self, key: K, until: u64, now: u64) -> Result<bool, Full> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, until| *until > now);
        }
        if known.get(&key).is_some_and(|until| *until > now) {
            return Ok(false);
        }
        if known.len() >= MOST {
            return Err(Full);
        }
        known.insert(key, until);
        Ok(true)
    }

    fn has<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: u64) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).is_some_and(|until| *until > now)
    }
}
