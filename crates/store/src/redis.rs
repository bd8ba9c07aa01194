//! The store in Redis: the rules run as Lua scripts on the zone's own clock, shared by any number of servers.
//!
//! A zone lives in one slot, under its hash tag; Redis spreads the zones over a cluster. Each decision is one script call
//! (a beat of a very long line takes several).
//! - `call` makes a call and parses its reply; `decide`, `leave`, `beat`, `visits` and `draw` are the calls; `restore` rebuilds a lost state,
//!   `mend` one that lacks a part, and `loss_limit` limits how many losses are mended in a row.
//! - `zone_memory` is what this server remembers of a zone; `wire` converts bytes.
//! - `learned` keeps what servers learnt about the people who wait, `minutes` what they counted.
//! - `register` keeps the zones' definitions, `channel` announces changes, `servers` lists the servers, `stock` keeps what is
//!   left in the zones.
//!
//! Invariant: every answer was decided by a script, and a reply older than the last one is never shown.

mod beat;
mod call;
mod channel;
mod decide;
mod draw;
mod learned;
mod leave;
mod loss_limit;
mod mend;
mod minutes;
mod register;
mod restore;
#[cfg(feature = "sabotage")]
pub mod sabotage;
pub mod scripts;
pub mod servers;
pub mod stock;
mod visits;
mod wire;
mod zone_memory;

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use admission::{
    Census, Claim, Deal, Dealt, Decided, Definition, Departure, JoinKey, Leaver, Mode, PAGE_TICKETS,
    PagePolls, Policy, Snapshot, Ticket, ZoneId,
};
use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::{
    Defined, Expected, JoinedOnce, LeftVisits, Line, MAX_BATCH, RegisterContents, RememberedEntry,
    RoutesDefined, Store, StoreError,
    minutes::{KeptMinute, OFFERED_MAX, OfferedMinute, READ_MAX},
};
pub use redis_script::{address, client};

use address::{Address, Settings};
use call::{ATTEMPTS, Refused, common_args};
use client::{AnyClient, Client, Confirm};
use mend::Mended;
use register::Register;
use wire::{Reply, SEGMENT};
use zone_memory::ZoneMemory;

/// How many segments one call passes at most. This bounds how long a call blocks Redis.
const MAX_SEGMENTS: usize = 16;

/// Bytes of one page's bitmap.
const PAGE_BYTES: usize = PAGE_TICKETS / 8;

const _: () = assert!(SEGMENT == PAGE_TICKETS as u64 * 8);

/// When a call's changes count as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the primary has them. If it dies before it replicates them, the servers' memories restore them.
    #[default]
    Async,
    /// When a replica has confirmed them, too. Passes are released only then.
    Replicated,
}

impl Durability {
    fn confirm(self) -> Option<Confirm> {
        (self == Self::Replicated).then_some(Confirm { replicas: 1, timeout_ms: 1_000 })
    }
}

/// When a policy counts that a server gives to a zone, as `lua/policy.lua` reads it.
#[derive(Clone, Copy)]
enum Counts {
    Always = 0,
    /// Only where the zone has no state: this server has not seen the zone.
    WithoutState = 1,
}

/// One zone, as this server knows it.
struct Zone {
    id: ZoneId,
    /// The first part of its keys.
    prefix: String,
    /// `None` before the first reply.
    memory: Mutex<Option<ZoneMemory>>,
    /// Whether this server has made a decision here, or is about to. Its calls have its name from then on.
    decides: AtomicBool,
    /// Set once Redis has this server on the zone's list. Decisions wait for it.
    is_listed: OnceCell<()>,
    /// When this server last began the state anew, and how often in a short time.
    mended: Mutex<Mended>,
    /// The records of draws, as Redis kept them last: of the draw by which the line is dealt, and of the one that was kept last.
    records: Mutex<HashMap<u32, Bytes>>,
}

/// The store in one Redis: a server, or a cluster.
pub struct Redis<C = AnyClient> {
    client: C,
    durability: Durability,
    /// Tells this server's calls apart from those of others: random, so that a restarted server is another one.
    name: Bytes,
    /// How many segments one call passes at most.
    max_segments: usize,
    /// The instant at which the zones' clocks are held; 0 if they run.
    held_clock_ms: AtomicU64,
    zones: Mutex<HashMap<ZoneId, Arc<Zone>>>,
    register: Mutex<Register>,
    /// How often the register was read.
    register_reads: AtomicU64,
}

type Result<T> = std::result::Result<T, StoreError>;

impl Redis<AnyClient> {
    /// Connects with the library that the settings select. Takes at most about [`Settings::connect_timeout`].
    ///
    /// # Errors
    /// [`StoreError::Away`] if Redis can't be reached now. May be tried again.
    pub async fn connect(address: &Address, settings: &Settings, durability: Durability) -> Result<Self> {
        Ok(Self::new(AnyClient::connect(address, settings).await?, durability))
    }
}

impl<C: Client> Redis<C> {
    /// A store over `client`. This calls nothing yet.
    pub fn new(client: C, durability: Durability) -> Self {
        Self {
            client,
            durability,
            name: random_text(),
            max_segments: MAX_SEGMENTS,
            held_clock_ms: AtomicU64::new(0),
            zones: Mutex::default(),
            register: Mutex::default(),
            register_reads: AtomicU64::new(0),
        }
    }

    /// Sets how many segments one call passes at most: for tests of long lines.
    #[must_use]
    pub fn with_max_segments(self, max_segments: usize) -> Self {
        Self { max_segments: max_segments.max(1), ..self }
    }

    /// Sets the name under which this server calls: for runs that can be repeated.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: text(name), ..self }
    }

    /// Holds the zones' clocks at an instant: for tests that compare the scripts with the rules.
    pub fn hold_clock(&self, now_ms: u64) {
        self.held_clock_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The client.
    pub fn client(&self) -> &C {
        &self.client
    }

    fn held_clock_ms(&self) -> u64 {
        self.held_clock_ms.load(Ordering::Relaxed)
    }

    /// A zone as this server knows it; it knows nothing of it before it is opened. This outlives the lines, so that a zone that is
    /// served again is still known.
    fn zone(&self, id: &ZoneId) -> Arc<Zone> {
        Arc::clone(lock(&self.zones).entry(id.clone()).or_insert_with(|| {
            Arc::new(Zone {
                id: id.clone(),
                prefix: format!("weir:v1:{{{id}}}:"),
                memory: Mutex::default(),
                decides: AtomicBool::new(false),
                is_listed: OnceCell::new(),
                mended: Mutex::default(),
                records: Mutex::default(),
            })
        }))
    }

    /// The policy of a zone that is in force now by its schedule; none if the register does not have the zone. The zone's own clock
    /// counts while it has an opening, and otherwise that of the register.
    fn policy_of(&self, zone: &Zone) -> Option<Policy> {
        let of_zone = lock(&zone.memory).as_ref().and_then(ZoneMemory::unix_ms);
        let register = lock(&self.register);
        let unix_ms = of_zone.unwrap_or_else(|| register.unix_ms());
        Some(register.zones.get(&zone.id)?.policy_at(unix_ms / 1_000))
    }

    /// Makes a zone known to this server, and gives Redis the policy that the register has for it.
    async fn open(&self, zone: &Zone) -> Result<Snapshot> {
        for _ in 0..ATTEMPTS {
            let is_unknown = lock(&zone.memory).is_none();
            let policy = self.policy_of(zone).ok_or(StoreError::UnknownZone)?;
            let counts = if is_unknown { Counts::WithoutState } else { Counts::Always };
            match self.give_policy(zone, &policy, counts).await {
                // What the zone's clock says, this server knows only now.
                Ok(()) if is_unknown && !self.has_policy(zone) => {}
                Ok(()) => return self.beat(zone, &[], 0).await,
                Err(Refused::Other(StoreError::UnknownZone)) => self.recover(zone).await?,
                Err(Refused::Torn(torn)) => self.mend(zone, torn).await?,
                Err(refused) => return Err(refused.without("a policy's reply")),
            }
        }
        Err(StoreError::Away(format!("the state of zone {} could not be rebuilt", zone.id)))
    }

    /// Creates the state of a zone that is new: neither the register nor this server knows it. See `lua/new.lua`.
    ///
    /// # Errors
    /// As a call; [`StoreError::Busy`] if each mark was lost before the state was created.
    async fn create(&self, zone: &Zone, definition: &Definition) -> Result<()> {
        let is_known = || lock(&zone.memory).is_some() || lock(&self.register).zones.contains_key(&zone.id);
        let run = async |own: Vec<Bytes>| {
            let mut keys = call::keys(&zone.prefix, &[]);
            keys.push(format!("{}new", zone.prefix).into());
            let mut args = common_args(None, self.held_clock_ms(), &Bytes::new(), &[]);
            args.extend(own);
            Ok::<_, StoreError>(Reply::new(self.client.run(&scripts::NEW, keys, args, None).await?)?.bytes()?)
        };
        for _ in 0..ATTEMPTS {
            if is_known() {
                return Ok(());
            }
            let mark = run(vec![random_text()]).await?;
            let unix_ms = self.registered(&[]).await?.unix_ms();
            if mark.is_empty() || is_known() {
                return Ok(());
            }
            let policy = definition.policy_at(unix_ms / 1_000);
            let own = [mark].into_iter().chain(wire::policy_numbers(&policy).map(text));
            if &*run(own.collect()).await? == b"1" {
                return Ok(());
            }
        }
        Err(StoreError::Busy)
    }

    /// Notes that this server calls no more.
    async fn retire(&self, zone: &Zone) -> Result<()> {
        if !zone.decides.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answer = self.run(zone, &scripts::RETIRE, (&[], &[]), |_| Vec::new()).await;
        answer.map(drop).map_err(|refused| refused.without("a retirement's reply"))
    }

    /// Changes a zone's definition in the register, creates the state of a zone that is new, and closes the zone if it is deleted.
    async fn define_zone(
        &self,
        zone: &ZoneId,
        expected: &Expected,
        new: impl Fn(Option<&Definition>) -> Option<Definition>,
    ) -> Result<Defined> {
        // A server that finds a zone without a state can't know that it is new, and lets nobody in for a minute. So there is no zone before
        // there is a state.
        if expected.holds(None)
            && let Some(definition) = new(None)
        {
            self.create(&self.zone(zone), &definition).await?;
        }
        let defined = self.define_in_register(zone, expected, &new).await?;
        // So that this server can give the change back if Redis loses it now.
        if let Err(error) = self.registered(&[]).await {
            tracing::warn!(%zone, %error, "the change of a zone is stored, and Redis stopped to answer right after");
        }
        if let Defined::Done(Some(before)) = &defined
            && new(Some(before)).is_none()
            && let Err(why) = self.close(&self.zone(zone), before).await
        {
            tracing::warn!(
                %zone, %why,
                "a deleted zone could not be closed; a server that has not heard of the deletion may let people in until it does"
            );
        }
        Ok(defined)
    }

    /// Closes a zone that is deleted, so that a server that has not heard of it yet lets nobody in. Its line stays.
    /// `before` is its last definition.
    async fn close(&self, zone: &Zone, before: &Definition) -> std::result::Result<(), Refused> {
        let known = lock(&zone.memory).as_ref().map(|memory| memory.header.policy);
        let unix_ms = lock(&self.register).unix_ms();
        let policy = known.unwrap_or_else(|| before.policy_at(unix_ms / 1_000));
        let closed = Policy { mode: Mode::Closed, ..policy };
        match self.give_policy(zone, &closed, Counts::Always).await {
            // Without a state nobody enters.
            Err(Refused::Other(StoreError::UnknownZone)) => Ok(()),
            given => given,
        }
    }

    /// Whether the zone has the policy that is in force now by its schedule, as this server last saw it.
    fn has_policy(&self, zone: &Zone) -> bool {
        let wanted = self.policy_of(zone).as_ref().map(wire::policy_numbers);
        let has = lock(&zone.memory).as_ref().map(|memory| wire::policy_numbers(&memory.header.policy));
        has == wanted
    }

    /// Gives a zone's policy to Redis, and creates the zone if it does not exist.
    async fn give_policy(
        &self,
        zone: &Zone,
        policy: &Policy,
        counts: Counts,
    ) -> std::result::Result<(), Refused> {
        let name = self.name_at(zone);
        let mut args = common_args(lock(&zone.memory).as_ref(), self.held_clock_ms(), &name, &[]);
        args.push(text(counts as u32));
        args.extend(wire::policy_numbers(policy).map(text));
        self.call(zone, &scripts::POLICY, call::keys(&zone.prefix, &[]), args).await.map(drop)
    }
}

impl<C: Client> Store for Redis<C> {
    type Line = RedisLine<C>;

    async fn zones(&self) -> Result<Option<RegisterContents>> {
        Ok(Some(self.registered(&[]).await?.kept()))
    }

    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<RegisterContents> {
        Ok(self.registered(zones).await?.kept())
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        self.define_zone(zone, expected, |_| new.cloned()).await
    }

    async fn define_routes(&self, expected: Option<&str>, new: &str) -> Result<RoutesDefined> {
        let defined = self.define_routes_in_register(expected, new).await?;
        // So that this server can give the change back if Redis loses it now.
        if let Err(error) = self.registered(&[]).await {
            tracing::warn!(%error, "the routes are stored, and Redis stopped to answer right after");
        }
        Ok(defined)
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> RedisLine<C> {
        RedisLine { redis: Arc::clone(self), zone: self.zone(zone) }
    }
}

/// The line of one zone in Redis.
pub struct RedisLine<C = AnyClient> {
    redis: Arc<Redis<C>>,
    zone: Arc<Zone>,
}

impl<C: Client> Line for RedisLine<C> {
    async fn open(&self, _: Policy) -> Result<Snapshot> {
        // So that the register is as of now.
        self.redis.registered(&[]).await?;
        self.redis.open(&self.zone).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot> {
        let with_policy =
            |before: Option<&Definition>| Some(Definition { policy, ..before.cloned().unwrap_or_default() });
        // The futures are boxed, because the compiler limits how deeply they are nested.
        for expected in [Expected::Any, Expected::Absent, Expected::Any] {
            let defined = Box::pin(self.redis.define_zone(&self.zone.id, &expected, with_policy)).await?;
            if let Defined::Done(_) = defined {
                return Box::pin(self.open(policy)).await;
            }
        }
        Err(StoreError::Busy)
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce> {
        assert!((1..=MAX_BATCH).contains(&keys.len()), "a join of {}", keys.len());
        let count = u32::try_from(keys.len()).expect("checked");
        let with_keys: Vec<_> = (0..).zip(keys).filter_map(|(place, key)| Some((place, key?))).collect();
        self.redis.join_once(&self.zone, count, &with_keys).await
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>> {
        assert!((1..=MAX_BATCH).contains(&keys.len()), "{} keys", keys.len());
        self.redis.joined_before(&self.zone, &keys).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided> {
        assert!((1..=MAX_BATCH).contains(&claims.len()), "{} claims", claims.len());
        self.redis.enter(&self.zone, &claims).await
    }

    async fn beat(&self, marks: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot> {
        self.redis.beat(&self.zone, &marks, longest_period_ms).await
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits> {
        self.redis.report_visits(&self.zone, &seen).await
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        assert!((1..=MAX_BATCH).contains(&leavers.len()), "{} leavers", leavers.len());
        self.redis.leave(&self.zone, &leavers).await
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64> {
        self.redis.bind(&self.zone, claim, address).await
    }

    fn remembered_entry(&self, claim: Claim) -> Option<RememberedEntry> {
        lock(&self.zone.memory).as_ref()?.entry_of(claim)
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.redis.exchange_learned(&self.zone, new).await
    }

    async fn census(&self) -> Result<Census> {
        self.redis.census(&self.zone).await
    }

    async fn deal(&self, deal: Deal, anyway: bool) -> Result<Dealt> {
        self.redis.deal(&self.zone, &deal, anyway).await
    }

    async fn keep_draw(&self, draw: u32, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.redis.keep_draw(&self.zone, draw, new).await
    }

    async fn keep_minutes(&self, server: u64, offered: Vec<OfferedMinute>) -> Result<()> {
        assert!(offered.len() <= OFFERED_MAX, "{} minutes", offered.len());
        offered.iter().for_each(OfferedMinute::check);
        self.redis.keep_minutes(&self.zone, server, offered).await
    }

    async fn minutes(&self, from: u32, to: u32) -> Result<Vec<KeptMinute>> {
        assert!(to.saturating_sub(from) <= READ_MAX, "{from} to {to}");
        self.redis.minutes(&self.zone, from, to).await
    }

    async fn retire(&self) -> Result<()> {
        self.redis.retire(&self.zone).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each statement under these locks leaves the data consistent, so a poisoned lock can be used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(value: impl ToString) -> Bytes {
    value.to_string().into()
}

/// 16 hexadecimal digits that nobody else has.
fn random_text() -> Bytes {
    text(format_args!("{:016x}", RandomState::new().hash_one(0)))
}
