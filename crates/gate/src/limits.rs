//! How often one client address may call, zone by zone.
//!
//! Joins (`wait` without a token) are counted where the zone's line is: in this process, or in the zone's cell for all
//! servers together. A server that was refused there refuses by itself until the bucket has a token again. Polls are
//! counted in this process only, because counting them in the store would cost it what views save. A token that the zone
//! did not give out is no poll, and is not counted.
//!
//! A zone that sets no limit of joins has [`PUBLIC_JOINS_PER_MINUTE`] for public addresses, at each server. Behind a private one there may be
//! everybody, through a proxy that does not say for whom it asks; so those are limited only where an operator says so.
//!
//! Invariants: a store that does not answer limits nobody, and a call waits no longer than the limiter's command timeout.

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

/// How many joins a minute one public address may make at a server in a zone that sets no limit: far more than people behind one router,
/// or one address of a mobile network, make in practice.
pub const PUBLIC_JOINS_PER_MINUTE: u32 = 3_000;

/// The limits of a zone's clients.
#[derive(Debug)]
pub(crate) struct ZoneLimits {
    /// As the policy has them; 0 for none.
    rates: (u32, u32),
    waits: Option<Limit>,
    entries: Option<Limit>,
}

impl ZoneLimits {
    /// The limits of a policy. `before` is reused where its rates are the same.
    pub(crate) fn new(zone: &ZoneId, policy: &Policy, before: Option<&Arc<Self>>) -> Arc<Self> {
        let rates = (policy.waits_per_minute_per_client, policy.entries_per_minute_per_client);
        if let Some(before) = before.filter(|before| before.rates == rates) {
            return Arc::clone(before);
        }
        // A limit's name may not contain `:`, and a zone's may not contain `/`.
        let zone = zone.as_str().replace(':', "/");
        let limit = |call: LimitedCall, rate: u32| {
            let bandwidth = (rate > 0).then(|| Bandwidth::per_minute(rate.into()))?;
            let limit = Limit::new(&format!("{}/{zone}", limit_name(call)), [bandwidth]);
            Some(limit.expect("a short name, and a rate that a policy may have"))
        };
        let waits = if rates.0 == 0 { PUBLIC_JOINS_PER_MINUTE } else { rates.0 };
        let (waits, entries) = (limit(LimitedCall::Join, waits), limit(LimitedCall::Poll, rates.1));
        Arc::new(Self { rates, waits, entries })
    }

    /// Whether calls of this kind are limited at all.
    pub(crate) fn limits(&self, call: LimitedCall) -> bool {
        self.of(call).is_some()
    }

    fn of(&self, call: LimitedCall) -> Option<&Limit> {
        match call {
            LimitedCall::Join => self.waits.as_ref(),
            LimitedCall::Poll => self.entries.as_ref(),
        }
    }
}

/// The name under which clients are told of a limit.
#[must_use]
fn limit_name(call: LimitedCall) -> &'static str {
    match call {
        LimitedCall::Join => "wait",
        LimitedCall::Poll => "entry",
    }
}

/// The limiter's answer about one call.
#[derive(Debug)]
pub struct LimitAnswer {
    /// The limit that was asked.
    pub limit: Limit,
    /// Its name for clients.
    pub name: &'static str,
    /// The decision.
    pub decision: Decision,
}

impl LimitAnswer {
    /// When to try again, in seconds, if the call is refused. A limiter that could not decide refuses nobody.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u32> {
        if self.is_unknown() || self.decision.is_allowed() {
            return None;
        }
        let seconds = self.decision.retry_after_s().unwrap_or(1);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// Whether the limiter could not decide.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.decision, Decision::Unknown { .. })
    }
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

    /// Whether an address is that of one client, as far as anybody can tell: it is public, and not one of a carrier-grade NAT.
    #[must_use]
    pub fn tells_apart(&self, client: IpAddr) -> bool {
        is_public(client) && !self.is_carrier_nat(client)
    }

    fn is_carrier_nat(&self, client: IpAddr) -> bool {
        self.carrier_nats.iter().any(|net| net.contains(&client))
    }

    /// Asks whether `client` may make a call now. None where the call is not limited.
    pub(crate) async fn ask(
        &self,
        zone: &str,
        limits: &ZoneLimits,
        call: LimitedCall,
        client: IpAddr,
    ) -> Option<LimitAnswer> {
        let limit = limits.of(call)?.clone();
        let is_by_default = call == LimitedCall::Join && limits.rates.0 == 0;
        if self.is_carrier_nat(client) || is_by_default && !is_public(client) {
            return None;
        }
        let key = self.prefixes.key(client);
        // Each server counts for itself what no operator asked for: it is not worth a call of the store for each join.
        let is_shared = call == LimitedCall::Join && !is_by_default;
        let buckets = if is_shared { (self.buckets_of)(zone) } else { None };
        let decision = match buckets {
            Some(buckets) => buckets.ask(&limit, key.as_ref()).await,
            None => self.here.ask(&limit, key, 1).await,
        };
        Some(LimitAnswer { limit, name: limit_name(call), decision })
    }
}

/// Whether the whole internet may have the address: not of this machine, of a private network, or of a carrier's own
/// ([IANA](https://www.iana.org/assignments/iana-ipv4-special-registry/)).
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || is_shared)
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the first join of a client leaves tells exactly how many it has.
    #[tokio::test]
    async fn a_public_address_joins_at_most_so_often_unless_the_zone_says_otherwise() {
        let settings = LimitSettings {
            carrier_nats: vec!["198.51.100.0/24".parse().expect("a network")],
            ipv6_prefix: 64,
        };
        let limits = Limits::new(&settings, Box::new(|_| None));
        let zone = ZoneId::parse("Z").expect("a name");
        let left = async |policy: Policy, client: &str| {
            let of_zone = ZoneLimits::new(&zone, &policy, None);
            let client = client.parse().expect("an address");
            let asked = limits.ask("Z", &of_zone, LimitedCall::Join, client).await?;
            let Decision::Allowed(budget) = asked.decision else { panic!("{client}: {:?}", asked.decision) };
            Some(budget.remaining)
        };
        let default = Policy::default();
        let most = Some(u64::from(PUBLIC_JOINS_PER_MINUTE) - 1);
        assert_eq!(left(default, "203.0.113.7").await, most);
        assert_eq!(left(default, "2001:db8::7").await, most);
        for other in [
            "198.51.100.7",
            "127.0.0.1",
            "10.1.2.3",
            "100.64.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.1.2.3",
        ] {
            assert_eq!(left(default, other).await, None, "{other}");
        }
        let own = Policy { waits_per_minute_per_client: 20, ..default };
        assert_eq!(left(own, "10.1.2.4").await, Some(19));
        assert_eq!(left(own, "203.0.113.8").await, Some(19));

        // Some come back meanwhile, so more than these are allowed before one is refused.
        let of_zone = ZoneLimits::new(&zone, &default, None);
        let client = "203.0.113.9".parse().expect("an address");
        let mut allowed = 0;
        let refused = loop {
            let asked = limits.ask("Z", &of_zone, LimitedCall::Join, client).await.expect("limited");
            if !asked.decision.is_allowed() {
                break asked;
            }
            allowed += 1;
        };
        assert!(allowed >= PUBLIC_JOINS_PER_MINUTE, "{allowed}");
        assert_eq!(refused.retry_after_s(), Some(1));
        let entry = limits.ask("Z", &of_zone, LimitedCall::Poll, client).await;
        assert!(entry.is_none(), "polls are not limited by default");
    }
}
