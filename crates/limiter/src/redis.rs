//! Buckets in Redis, shared by servers.
//!
//! An ask is answered here where what this server holds or knows is enough (`leases`, `hints`), and goes to Redis with
//! all others of the moment where not (`lane`). Invariant: but for what leases move in time, no ask is allowed that the
//! script did not allow.

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
use lane::{Away, Lanes, Listener};
use leases::Leases;

/// How buckets are kept in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// How Redis is spoken to. An ask is answered within [`Settings::command_timeout`].
    pub client: Settings,
    /// What all keys begin with. Servers that share buckets have the same.
    pub prefix: String,
    /// Keys of which this server remembers, at most, that they are empty, or for which it holds tokens. One takes about 130
    /// bytes; with 0, each ask goes to Redis.
    pub local_keys: usize,
}

impl Default for RedisSettings {
    fn default() -> Self {
        let client = Settings { command_timeout: Duration::from_millis(100), ..Settings::default() };
        Self { client, prefix: "limiter:".to_owned(), local_keys: 100_000 }
    }
}

/// What was counted of Redis.
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

/// What this server knows and holds by itself.
struct Local {
    clock: Clock,
    hints: Hints,
    leases: Leases,
    enabled: bool,
}

impl Listener for Local {
    fn heard(&self, ask: &Ask, answer: Result<&Answer, Away>, sent: Instant) {
        if !self.enabled {
            return;
        }
        let now_us = self.clock.now_us();
        if let Ok(answer) = answer {
            let sent_us = now_us - u64::try_from(sent.elapsed().as_micros()).unwrap_or(0).min(now_us);
            self.hints.note(ask.limit(), &ask.key(), ask.cost(), &answer.decision, sent_us);
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
        // A call's keys lie in one slot; where one server has all of them, that is no reason to divide calls.
        let lanes = if topology == Topology::Cluster { TAGS } else { 1 };
        let patience = settings.client.command_timeout;
        let calls = Calls::new(client, &settings.prefix);
        Self {
            lanes: Lanes::new(lanes, calls, local, patience),
            hinted: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            // An ask waits for its call at most so long, and a call lasts as long again.
            patience_us: u64::try_from(patience.as_micros()).unwrap_or(u64::MAX / 4) * 2,
        }
    }

    /// Nothing where Redis does not say.
    pub(crate) async fn ask(&self, limit: &Limit, key: &[u8], cost: u64) -> Option<Decision> {
        let local = self.lanes.listener();
        let short = &Shortened::new(key);
        let mut more = 0;
        if cost > 0 && local.enabled {
            let now_us = local.clock.now_us();
            // What is held comes first: it may be had though the bucket is empty.
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
        let local = self.lanes.listener();
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
