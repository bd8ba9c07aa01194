//! The keys that Weir publishes.
//!
//! Invariants: they are fetched at most once in 10 s, however many passes name unknown keys. A key that is not published any more is used
//! for a minute at most, unless Weir does not answer: then for an hour, which is as long as any pass is valid. Whoever shows a pass of a
//! known key waits for a fetch during its first second only. A text of keys that is wrong in any way replaces nothing. A key is unknown only
//! if the last fetch succeeded without it, and began after its name was asked for or the key was withdrawn. Otherwise, a later fetch may
//! bring it.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use reqwest::{
    Client, StatusCode, Url,
    header::{ACCEPT, CACHE_CONTROL},
    redirect::Policy,
};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    clock::Clock,
    refusal::{Code, Refusal},
};

/// After this time the keys are fetched again, because one may have been withdrawn.
const FRESH: Duration = Duration::from_secs(60);
/// The shortest time between two fetches.
const PAUSE: Duration = Duration::from_secs(10);
/// Older keys are not used.
const OLDEST: Duration = Duration::from_secs(3_600);
const MAX_BYTES: usize = 65_536;
const MAX_KEYS: usize = 32;
/// The shortest and the longest modulus of RSA, in bits.
const MODULUS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
const MAX_EXPONENT: usize = 4;
/// The length of a coordinate of P-256, and of a key of Ed25519, in bytes.
const COORDINATE: usize = 32;

/// A published key. It names its algorithm: if a pass could choose it, a forger would choose a weak one.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) algorithm: &'static str,
    public: Public,
}

#[derive(Clone)]
enum Public {
    Curve(Box<ParsedPublicKey>),
    Rsa(Arc<RsaPublicKeyComponents<Vec<u8>>>),
}

impl Key {
    /// Whether `mark` is this key's signature of `text`.
    pub(crate) fn verifies(&self, text: &[u8], mark: &[u8]) -> bool {
        match &self.public {
            Public::Curve(key) => key.verify_sig(text, mark).is_ok(),
            Public::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, text, mark).is_ok(),
        }
    }

    /// The key of a JWK, or nothing if passes cannot be signed with it.
    fn of(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name| BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if jwk.get("use").is_some_and(|r#use| r#use != "sig") {
            return None;
        }
        let (algorithm, public) = match (text("kty")?, text("crv"), text("alg")?) {
            ("EC", Some("P-256"), "ES256") => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != COORDINATE || y.len() != COORDINATE {
                    return None;
                }
                // The uncompressed form of a point.
                let point = [&[4], &x[..], &y].concat();
                let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).ok()?;
                ("ES256", Public::Curve(Box::new(key)))
            }
            ("OKP", Some("Ed25519"), "EdDSA") => {
                let key = bytes("x").filter(|x| x.len() == COORDINATE)?;
                ("EdDSA", Public::Curve(Box::new(ParsedPublicKey::new(&ED25519, key).ok()?)))
            }
            ("RSA", _, "RS256") => {
                let (n, e) = (number(bytes("n")?), number(bytes("e")?));
                let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
                let is_odd = e.last().is_some_and(|last| last % 2 == 1);
                if !MODULUS.contains(&bits) || e.len() > MAX_EXPONENT || !is_odd || e == [1] {
                    return None;
                }
                ("RS256", Public::Rsa(Arc::new(RsaPublicKeyComponents { n, e })))
            }
            _ => return None,
        };
        Some(Self { algorithm, public })
    }
}

/// A number without zeros before it: aws-lc-rs takes none.
fn number(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.drain(..bytes.iter().take_while(|byte| **byte == 0).count());
    bytes
}

/// What was fetched last.
#[derive(Default)]
struct Known {
    keys: HashMap<String, Key>,
    /// By the steady clock; `None`: never.
    fetched: Option<Duration>,
    /// Names that the last fetch did not bring.
    missed: HashSet<String>,
    /// Why the last fetch says nothing about a key.
    fault: String,
}

/// The last fetch.
struct Asked {
    /// Names that were asked for since it began, at most [`MAX_KEYS`].
    wanted: HashSet<String>,
    asking: Asking,
}

#[derive(Clone)]
struct Asking {
    /// When it began, by the steady clock.
    at: Duration,
    /// It is closed when the fetch has ended.
    over: watch::Receiver<()>,
    /// When a fifth of the time limit has passed. Then Weir is taken to be away wherever a known key will do.
    late: Instant,
}

/// The keys at an address.
pub(crate) struct Keys(Arc<Inner>);

struct Inner {
    client: Client,
    address: Url,
    clock: Clock,
    /// The time limit of a fetch.
    limit: RwLock<Duration>,
    known: RwLock<Known>,
    asked: Mutex<Option<Asked>>,
}

impl Keys {
    /// # Errors
    /// If there can be no HTTP client, for example because the machine has no certificate authorities.
    pub(crate) fn new(address: Url, clock: Clock) -> Result<Self, reqwest::Error> {
        // A redirect would let somebody else say which keys there are.
        let client = Client::builder().redirect(Policy::none()).build()?;
        let limit = RwLock::new(Duration::from_secs(5));
        Ok(Self(Arc::new(Inner {
            client,
            address,
            clock,
            limit,
            known: RwLock::default(),
            asked: Mutex::default(),
        })))
    }

    /// The key of this name.
    ///
    /// # Errors
    /// `unknown_key` or `keys_away`.
    pub(crate) async fn find(&self, kid: &str) -> Result<Key, Refusal> {
        if let (Some(key), true) = self.0.look(kid) {
            return Ok(key);
        }
        let Asking { mut over, late, at } = self.refresh(kid);
        // Nothing is ever sent, so both fail when the fetch has ended.
        if self.0.read(kid, at).is_ok() {
            let _ = timeout_at(late, over.changed()).await;
        } else {
            let _ = over.changed().await;
        }
        self.0.read(kid, at)
    }

    /// Begins to fetch the keys, once for all who ask meanwhile, unless the last fetch was a moment ago. Returns the last fetch.
    fn refresh(&self, kid: &str) -> Asking {
        let mut last = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.steady();
        // Another caller may have fetched them meanwhile.
        let is_needed = !matches!(self.0.look(kid), (Some(_), true));
        match &mut *last {
            Some(Asked { wanted, asking }) if !is_needed || now - asking.at < PAUSE => {
                if wanted.len() < MAX_KEYS {
                    wanted.insert(kid.to_owned());
                }
                asking.clone()
            }
            _ => {
                let mut missed = last.take().map(|asked| asked.wanted).unwrap_or_default();
                missed.insert(kid.to_owned());
                let (end, over) = watch::channel(());
                let limit = *self.0.limit.read().unwrap_or_else(PoisonError::into_inner);
                let inner = Arc::clone(&self.0);
                // It goes on if its caller goes away, because others wait for the keys, too.
                tokio::spawn(async move {
                    inner.take(inner.fetch(limit).await, missed);
                    drop(end);
                });
                let asking = Asking { at: now, over, late: Instant::now() + limit / 5 };
                last.insert(Asked { wanted: HashSet::new(), asking }).asking.clone()
            }
        }
    }

    /// Changes the time limit of a fetch.
    #[cfg(test)]
    pub(crate) fn limit(&self, limit: Duration) {
        *self.0.limit.write().expect("no holder panics") = limit;
    }
}

impl Inner {
    /// The key of this name, and whether the keys are fresh.
    fn look(&self, kid: &str) -> (Option<Key>, bool) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = known.fetched.is_some_and(|at| self.clock.steady() - at < FRESH);
        (known.keys.get(kid).cloned(), is_fresh)
    }

    /// The key of this name, if it is known and may be used. `asked` is when the last fetch began.
    fn read(&self, kid: &str, asked: Duration) -> Result<Key, Refusal> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.steady();
        if known.fetched.is_some_and(|at| now - at < OLDEST) {
            if let Some(key) = known.keys.get(kid) {
                return Ok(key.clone());
            }
            if known.missed.contains(kid) {
                return Err(Code::UnknownKey.into());
            }
        }
        let after = (asked + PAUSE).saturating_sub(now);
        Err(Refusal::because(Code::KeysAway, known.fault.clone()).again_after(after))
    }

    /// Takes what was fetched, or the fault. `missed` are the names that were asked for before.
    fn take(
        &self,
        fetched: Result<HashMap<String, Key>, Box<dyn Error + Send + Sync>>,
        mut missed: HashSet<String>,
    ) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match fetched {
            Ok(keys) => {
                missed.extend(known.keys.drain().map(|(kid, _)| kid));
                let fault = "the keys were fetched a moment ago, without the key of this pass".to_owned();
                *known = Known { keys, fetched: Some(self.clock.steady()), missed, fault };
            }
            Err(fault) => {
                known.missed.clear();
                known.fault = fault.to_string();
            }
        }
    }

    async fn fetch(&self, limit: Duration) -> Result<HashMap<String, Key>, Box<dyn Error + Send + Sync>> {
        let request = self.client.get(self.address.clone()).header(ACCEPT, "application/jwk-set+json");
        // A cache in between would keep a withdrawn key for its own time, and a new one away.
        let request = request.header(CACHE_CONTROL, "no-cache");
        let mut reply = request.timeout(limit).send().await?;
        if reply.status() != StatusCode::OK {
            return Err(format!("Weir answers {} at {}", reply.status(), self.address).into());
        }
        let mut text = Vec::new();
        while let Some(piece) = reply.chunk().await? {
            if text.len() + piece.len() > MAX_BYTES {
                return Err(format!("the keys have more than {MAX_BYTES} bytes").into());
            }
            text.extend_from_slice(&piece);
        }
        keys_of(&text)
    }
}

fn keys_of(text: &[u8]) -> Result<HashMap<String, Key>, Box<dyn Error + Send + Sync>> {
    let set: Value = serde_json::from_slice(text)?;
    let jwks = set.get("keys").and_then(Value::as_array).ok_or("the text of keys has no list of keys")?;
    if jwks.len() > MAX_KEYS {
        return Err(format!("there are more than {MAX_KEYS} keys").into());
    }
    let mut keys = HashMap::new();
    for jwk in jwks {
        if let (Some(kid), Some(key)) = (jwk.get("kid").and_then(Value::as_str), Key::of(jwk)) {
            // The first of two keys with one name counts.
            keys.entry(kid.to_owned()).or_insert(key);
        }
    }
    Ok(keys)
}
