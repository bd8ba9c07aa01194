//! How often one client address may ask, zone by zone.
//!
//! Joins (`wait` without a token) are counted where the zone's line is: in this process, or in the zone's cell, for all
//! servers together; what is over a limit there is refused here from then on, until the bucket has something again. Polls
//! are counted in this process alone: to count them in the store would cost it what views save it.
//!
//! Invariants: a zone without limits asks nobody; a store that does not answer limits nobody, and is waited for no longer
//! than the limiter's patience.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::{Policy, ZoneId};
use events::LimitedCall;
use hyper::HeaderMap;
use ipnet::IpNet;
use limiter::{
    Bandwidth, Decision, Limit, Limiter, MemorySettings, OnFailure,
    layer::{Announced, address::Prefixes},
};
use tokio::{sync::Notify, time::sleep};

use crate::config::LimitSettings;

/// The limits of a zone's clients.
#[derive(Debug)]
pub struct ZoneLimits {
    rates: (u32, u32),
    waits: Option<Announced>,
    entries: Option<Announced>,
}

impl ZoneLimits {
    /// Those of a policy; `before` is gone on with where it has the same. None where nothing is limited.
    #[must_use]
    pub fn new(zone: &ZoneId, policy: &Policy, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let rates = (policy.waits_per_minute_per_client, policy.entries_per_minute_per_client);
        if rates == (0, 0) {
            return None;
        }
        if let Some(before) = before.filter(|before| before.rates == rates) {
            return Some(Arc::clone(before));
        }
        // A limit's name knows no `:`, a zone's no `/`.
        let zone = zone.as_str().replace(':', "/");
        let limit = |what: &str, rate: u32| {
            let bandwidth = (rate > 0).then(|| Bandwidth::per_minute(rate.into()))?;
            let limit = Limit::new(&format!("{what}/{zone}"), [bandwidth]);
            Some(Announced::new(limit.expect("a short name, and a rate that a policy may have"), what))
        };
        Some(Arc::new(Self { rates, waits: limit("wait", rates.0), entries: limit("entry", rates.1) }))
    }
}

/// What was decided about a call.
#[derive(Debug)]
pub struct Asked {
    announced: Announced,
    /// The decision.
    pub decision: Decision,
}

impl Asked {
    /// Writes what HTTP is told of it.
    pub fn write(&self, headers: &mut HeaderMap) {
        self.announced.write(&self.decision, headers);
    }
}

type Connecting = Pin<Box<dyn Future<Output = Option<Limiter>> + Send>>;

/// How long a cell is left alone that could not be connected to.
const PAUSE: Duration = Duration::from_secs(1);

/// A cell's buckets, connected to when they are first wanted.
pub struct Buckets {
    limiter: OnceLock<Limiter>,
    wanted: Notify,
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
}

impl Buckets {
    /// Buckets behind `connect`, which is called until it gives a limiter.
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

    /// Connects once somebody asks; ends when that is done.
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

/// Which cell's buckets a zone's joins are counted in.
pub type BucketsOf = dyn Fn(&str) -> Option<Arc<Buckets>> + Send + Sync;

/// Asks for all zones.
pub struct Limits {
    here: Limiter,
    buckets_of: Box<BucketsOf>,
    carrier_nats: Vec<IpNet>,
    prefixes: Prefixes,
}

impl Limits {
    /// Counts joins where `buckets_of` says, and in this process where it names nothing.
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
        let announced = match call {
            LimitedCall::Wait => limits.waits.as_ref(),
            LimitedCall::Entry => limits.entries.as_ref(),
        };
        let announced = announced?.clone();
        if self.carrier_nats.iter().any(|net| net.contains(&client)) {
            return None;
        }
        let key = self.prefixes.key(client);
        let buckets = if call == LimitedCall::Wait { (self.buckets_of)(zone) } else { None };
        let decision = match buckets {
            Some(buckets) => buckets.ask(announced.limit(), key.as_ref()).await,
            None => self.here.ask(announced.limit(), key, 1).await,
        };
        Some(Asked { announced, decision })
    }
}
