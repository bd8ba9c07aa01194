//! How often one client address may call, zone by zone.
//!
//! Joins (`wait` without a token) are counted where the zone's line is: in this process, or in the zone's cell for all
//! servers together. A server that was refused there refuses by itself until the bucket has a token again. Polls are
//! counted in this process only, because counting them in the store would cost it what views save. A token that the zone
//! did not give out is no poll, and is not counted.
//!
//! Invariants: a zone without limits asks no limiter; a store that does not answer limits nobody, and a call waits no
//! longer than the limiter's command timeout.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::{Policy, ZoneId};
use events::LimitedCall;
use ipnet::IpNet;
use limiter::{Bandwidth, Decision, Limit, Limiter, MemorySettings, OnFailure, Prefixes};
use tokio::{sync::Notify, time::sleep};

/// How clients are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Networks of carrier-grade NATs, where many clients share one address. They are not limited.
    pub carrier_nats: Vec<IpNet>,
    /// How many leading bits of an IPv6 address are one client.
    pub ipv6_prefix: u8,
}

/// The limits of a zone's clients.
#[derive(Debug)]
pub struct ZoneLimits {
    rates: (u32, u32),
    waits: Option<Limit>,
    entries: Option<Limit>,
}

impl ZoneLimits {
    /// The limits of a policy; none where nothing is limited. `before` is reused where its rates are the same.
    #[must_use]
    pub fn new(zone: &ZoneId, policy: &Policy, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let rates = (policy.waits_per_minute_per_client, policy.entries_per_minute_per_client);
        if rates == (0, 0) {
            return None;
        }
        if let Some(before) = before.filter(|before| before.rates == rates) {
            return Some(Arc::clone(before));
        }
        // A limit's name may not contain `:`, and a zone's may not contain `/`.
        let zone = zone.as_str().replace(':', "/");
        let limit = |call: LimitedCall, rate: u32| {
            let bandwidth = (rate > 0).then(|| Bandwidth::per_minute(rate.into()))?;
            let limit = Limit::new(&format!("{}/{zone}", limit_name(call)), [bandwidth]);
            Some(limit.expect("a short name, and a rate that a policy may have"))
        };
        let (waits, entries) = (limit(LimitedCall::Wait, rates.0), limit(LimitedCall::Entry, rates.1));
        Some(Arc::new(Self { rates, waits, entries }))
    }
}

/// The name under which clients are told of a limit.
#[must_use]
fn limit_name(call: LimitedCall) -> &'static str {
    match call {
        LimitedCall::Wait => "wait",
        LimitedCall::Entry => "entry",
    }
}

/// The limiter's answer about one call.
#[derive(Debug)]
pub struct Asked {
    /// The limit that was asked.
    pub limit: Limit,
    /// Its name for clients.
    pub name: &'static str,
    /// The decision.
    pub decision: Decision,
}

type Connecting = Pin<Box<dyn Future<Output = Option<Limiter>> + Send>>;

/// How long to wait before the next attempt to connect to a cell.
const PAUSE: Duration = Duration::from_secs(1);

/// A cell's buckets. The connection is made when the first call needs it.
pub struct Buckets {
    limiter: OnceLock<Limiter>,
    wanted: Notify,
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
}

impl Buckets {
    /// Buckets behind `connect`, which is called until it returns a limiter.
    pub fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Limiter>> + Send + 'static,
    {
        Self {
            limiter: OnceLock::new(),
            wanted: Notify::new(),
            connect: Box::new(move || Box::pin(connect())),
        }
    }

    /// Waits for the first call, then connects; ends when that succeeded.
    pub async fn run(self: Arc<Self>) {
        self.wanted.notified().await;
        loop {
            if let Some(limiter) = (self.connect)().await {
                self.limiter.get_or_init(|| limiter);
                return;
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask(&self, limit: &Limit, key: &[u8]) -> Decision {
        if let Some(limiter) = self.limiter.get() {
            return limiter.ask(limit, key, 1).await;
        }
        self.wanted.notify_one();
        Decision::Unknown { allowed: true }
    }
}

/// Returns the buckets that count a zone's joins; none where this process counts them.
pub type BucketsOf = dyn Fn(&str) -> Option<Arc<Buckets>> + Send + Sync;

/// Asks the limiters for all zones.
pub struct Limits {
    here: Limiter,
    buckets_of: Box<BucketsOf>,
    carrier_nats: Vec<IpNet>,
    prefixes: Prefixes,
}

impl Limits {
    /// Counts joins where `buckets_of` says, and in this process where it returns none.
    #[must_use]
    pub fn new(settings: &LimitSettings, buckets_of: Box<BucketsOf>) -> Self {
        Self {
            here: Limiter::in_memory(MemorySettings::default(), OnFailure::Open),
            buckets_of,
            carrier_nats: settings.carrier_nats.clone(),
            prefixes: Prefixes { ipv6: settings.ipv6_prefix, ..Prefixes::default() },
        }
    }

    /// Asks whether `client` may make a call now. None where the call is not limited.
    pub async fn ask(
        &self,
        zone: &str,
        limits: &ZoneLimits,
        call: LimitedCall,
        client: IpAddr,
    ) -> Option<Asked> {
        let limit = match call {
            LimitedCall::Wait => limits.waits.as_ref(),
            LimitedCall::Entry => limits.entries.as_ref(),
        };
        let limit = limit?.clone();
        if self.carrier_nats.iter().any(|net| net.contains(&client)) {
            return None;
        }
        let key = self.prefixes.key(client);
        let buckets = if call == LimitedCall::Wait { (self.buckets_of)(zone) } else { None };
        let decision = match buckets {
            Some(buckets) => buckets.ask(&limit, key.as_ref()).await,
            None => self.here.ask(&limit, key, 1).await,
        };
        Some(Asked { limit, name: limit_name(call), decision })
    }
}
