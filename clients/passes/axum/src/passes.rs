//! Accepts passes of one zone, each once.
//!
//! Invariant: a name is first once, until its pass cannot be accepted any more. If the record does not answer, nobody enters.

use std::time::{Duration, UNIX_EPOCH};

use reqwest::Url;
use tokio::time::{Instant, timeout};

use crate::{
    clock::Clock,
    keys::Keys,
    record::{MOST, Memory, Spend},
    refusal::{Code, Refusal},
    verify::{LEEWAY_S, Pass, Unverified},
};

/// How much longer than a pass is accepted its name is kept, in seconds: the clocks of those that share the record may differ.
const KEPT_S: u64 = 60;

/// The time limit of the record: that of the keys.
const SPEND_LIMIT: Duration = Duration::from_secs(5);

/// Why a verifier cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address of Weir is none.
    #[error("the address of Weir must be one such as https://weir.example, not `{0}`")]
    Address(String),
    /// The zone or the audience.
    #[error("the zone and the audience must not be empty")]
    Empty,
    /// There is no HTTP client.
    #[error("the keys of Weir cannot be fetched on this machine")]
    Client(#[from] reqwest::Error),
}

/// Accepts the passes of one zone. Tasks may share it.
pub struct Passes<S = Memory> {
    zone: String,
    audience: String,
    record: S,
    /// The time limit of the record. Tests change it.
    pub(crate) spend_limit: Duration,
    clock: Clock,
    pub(crate) keys: Keys,
}

impl Passes {
    /// Passes of this zone, for the audience `weir`, which is Weir's default. The memory of this process is the record of spent passes.
    /// `weir` is the address of Weir, such as `https://weir.example`.
    ///
    /// # Errors
    /// If `weir` is not an address of http or https, or the zone is empty.
    pub fn new(weir: &str, zone: &str) -> Result<Self, SetupError> {
        Self::on(weir, zone, Clock::Machine { since: Instant::now() })
    }

    /// The same with other clocks.
    pub(crate) fn on(weir: &str, zone: &str, clock: Clock) -> Result<Self, SetupError> {
        let not_an_address = || SetupError::Address(weir.to_owned());
        // Before its end is cut off: `http:/x` is read as `http://x`.
        let address = Url::parse(weir).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        address.ok_or_else(not_an_address)?;
        let address = format!("{}/.well-known/jwks.json", weir.trim_end_matches('/'));
        let address = Url::parse(&address).map_err(|_| not_an_address())?;
        if zone.is_empty() {
            return Err(SetupError::Empty);
        }
        let keys = Keys::new(address, clock.clone())?;
        let record = Memory::new(clock.clone(), MOST);
        let (zone, audience) = (zone.to_owned(), "weir".to_owned());
        Ok(Self { zone, audience, record, spend_limit: SPEND_LIMIT, clock, keys })
    }
}

impl<S: Spend> Passes<S> {
    /// The same for another audience: Weir's `pass.audience`.
    ///
    /// # Errors
    /// If it is empty.
    pub fn with_audience(self, audience: &str) -> Result<Self, SetupError> {
        if audience.is_empty() {
            return Err(SetupError::Empty);
        }
        Ok(Self { audience: audience.to_owned(), ..self })
    }

    /// The same with a record of spent passes that several processes share.
    #[must_use]
    pub fn with_record<T: Spend>(self, record: T) -> Passes<T> {
        let Self { zone, audience, spend_limit, clock, keys, .. } = self;
        Passes { zone, audience, record, spend_limit, clock, keys }
    }

    /// Accepts a pass, for example the field `pass` of a form.
    ///
    /// # Errors
    /// If it is not accepted. The pass is not spent then, except with `record_away`: it may be spent.
    pub async fn accept(&self, text: &str) -> Result<Pass, Refusal> {
        let unverified = Unverified::read(text)?;
        let key = self.keys.find(&unverified.kid).await?;
        let pass = unverified.verify(&key, &self.audience, &self.zone, self.clock.now_s())?;
        let expires = pass.expires.duration_since(UNIX_EPOCH).unwrap_or_default();
        let until_s =
            expires.as_secs() + u64::from(expires.subsec_nanos() > 0) + u64::from(LEEWAY_S) + KEPT_S;
        let spent = self.record.spend(format!("weir:spent:{}", pass.jti), until_s);
        let first = timeout(self.spend_limit, spent).await;
        let first = first.unwrap_or_else(|late| Err(late.into()));
        if !first.map_err(|fault| Refusal::because(Code::RecordAway, fault))? {
            return Err(Code::Spent.into());
        }
        Ok(pass)
    }
}
