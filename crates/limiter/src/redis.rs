//! Buckets in Redis, shared by servers.
//!
//! An ask is answered locally if the server holds tokens for it (`leases`) or knows that the key is empty (`hints`).
//! Otherwise it goes to Redis, together with all other asks that are waiting (`lane`).
//!
//! Invariant: the script has allowed every token that is given out. Leases only move it in time.

mod call;
mod hints;
mod lane;
mod leases;

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis_script::{Address, AnyClient, Client, ClientError, Settings, Topology};
use tokio::time::Instant;

pub use call::{Answer, Ask, Calls, LIMIT};

use crate::{Budget, Decision, Limit, clock::Clock, key::Shortened};
use call::TAGS;
use hints::Hints;
use lane::{Away, Lanes, Observer};
use leases::Leases;

/// Settings of the buckets in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// The settings of the connection. An ask is answered within [`Settings::command_timeout`].
    pub client: Settings,
    /// The prefix of all keys. Servers that share buckets must have the same.
    pub prefix: String,
    /// The largest number of keys for which this server keeps hints, and the same for leases. A key takes about 130 bytes.
    /// With 0, each ask goes to Redis.
    pub local_keys: usize,
}

impl Default for RedisSettings {
    fn default() -> Self {
        let client = Settings { command_timeout: Duration::from_millis(100), ..Settings::default() };
        Self { client, prefix: "limiter:".to_owned(), local_keys: 100_000 }
    }
}

/// Counts of the calls to Redis and of the asks answered without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) hinted: u64,
    pub(crate) leased: u64,
}

/// Buckets in Redis.
pub(crate) struct Shared<C = AnyClient> {
    lanes: Lanes<C, Local>,
    hinted: AtomicU64,
    leased: AtomicU64,
    patience_us: u64,
}

/// What this server knows without Redis.
struct Local {
    clock: Clock,
    hints: Hints,
    leases: Leases,
    enabled: bool,
}

impl Observer for Local {
    fn answered(&self, ask: &Ask, answer: Result<&Answer, Away>, sent: Instant) {
        if !self.enabled {
            return;
        }
        let now_us = self.clock.now_us();
        if let Ok(answer) = answer {
            let sent_us = now_us - u64::try_from(sent.elapsed().as_micros()).unwrap_or(0).min(now_us);
            self.hints.note(ask.limit(), &ask.key(), ask.cost(), &answer.decision, (sent_us, now_us));
        }
        if ask.wants_more() {
            let (more, budget) = answer.map_or((0, None), |answer| (answer.more, answer.decision.budget()));
            self.leases.put(ask.limit(), &ask.key(), more, budget, now_us);
        }
    }
}

impl Shared<AnyClient> {
    pub(crate) async fn connect(address: &Address, settings: &RedisSettings) -> Result<Self, ClientError> {
        let client = AnyClient::connect(address, &settings.client).await?;
        Ok(Self::new(client, address.topology, settings))
    }
}

impl<C: Client> Shared<C> {
    fn new(client: C, topology: Topology, settings: &RedisSettings) -> Self {
        let local = Local {
            clock: Clock::start(),
            hints: Hints::new(settings.local_keys),
            leases: Leases::new(settings.local_keys),
            enabled: settings.local_keys > 0,
        };
        // In a cluster, the keys of a call must be in one slot. Outside of a cluster one lane is enough.
        let lanes = if topology == Topology::Cluster { TAGS } else { 1 };
        let patience = settings.client.command_timeout;
        let calls = Calls::new(client, &settings.prefix);
        Self {
            lanes: Lanes::new(lanes, calls, local, patience),
            hinted: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            // An ask may wait this long for its call to start, and the call may take as long again.
            patience_us: u64::try_from(patience.as_micros()).unwrap_or(u64::MAX / 4) * 2,
        }
    }

    /// `None` if Redis does not answer.
    pub(crate) async fn ask(&self, limit: &Limit, key: &[u8], cost: u64) -> Option<Decision> {
        let local = self.lanes.observer();
        let short = &Shortened::new(key);
        let mut more = 0;
        if cost > 0 && local.enabled {
            let now_us = local.clock.now_us();
            // The lease comes first: its tokens can be used although the bucket is empty.
            if let Some(budget) = local.leases.take(limit, short, cost, now_us) {
                self.leased.fetch_add(1, Ordering::Relaxed);
                return Some(Decision::Allowed(budget));
            }
            if let Some(refusal) = local.hints.refusal(limit, short, cost, now_us) {
                self.hinted.fetch_add(1, Ordering::Relaxed);
                return Some(refusal);
            }
            more = local.leases.wanted(limit, short, now_us, self.patience_us);
        }
        let answer = self.lanes.ask(Ask::take(limit, key, cost).and_more(more)).await;
        answer.ok().map(|answer| answer.decision)
    }

    pub(crate) async fn peek(&self, limit: &Limit, key: &[u8]) -> Option<Budget> {
        self.lanes.ask(Ask::take(limit, key, 0)).await.ok().and_then(|answer| answer.decision.budget())
    }

    pub(crate) async fn reset(&self, limit: &Limit, key: &[u8]) -> bool {
        let done = self.lanes.ask(Ask::reset(limit, key)).await.is_ok();
        let local = self.lanes.observer();
        let short = &Shortened::new(key);
        local.hints.forget(limit, short);
        local.leases.forget(limit, short);
        done
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            calls: self.lanes.made(),
            hinted: self.hinted.load(Ordering::Relaxed),
            leased: self.leased.load(Ordering::Relaxed),
        }
    }
}

impl<C> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
