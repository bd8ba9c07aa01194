//! The store in Redis: the rules as scripts, on the zone's own clock, shared by any number of servers.
//!
//! A zone lives in one slot, under its hash tag; zones are spread over a cluster by Redis. Each call is one script (a
//! beat of a very long line several), and asks for the newest revision that this server has seen, so that a state that
//! lost something is noticed before it decides about anybody, and is rebuilt from what the servers remember.
//! Invariant: nothing is answered but what a script decided, and a reply older than the last is never shown.

mod channel;
mod memory;
mod register;
#[cfg(feature = "sabotage")]
pub mod sabotage;
pub mod scripts;
pub mod servers;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use admission::{
    Claim, Decided, Definition, Joined, PAGE_TICKETS, PagePolls, Policy, Position, Verdict, View, ZoneId,
};
use bytes::Bytes;
use tokio::time::Instant;

use crate::{Defined, Expected, Kept, MAX_BATCH, Store, StoreError};
pub use redis_script::{address, client};

use address::{Address, Settings};
use client::{AnyClient, Client, ClientError, Confirm, Script};
use memory::{Memory, Witness, split};
use register::Register;
use wire::{Counts, Garbled, Header, Reply, SEGMENT};

/// Segments that one call passes, at most: what bounds its time at Redis.
const SLICE: usize = 16;

/// Claims that one call decides, at most, for the same reason: one takes up to 15 us.
const CLAIMS_MAX: usize = 64;

/// How often a call is made again that named the wrong keys, or found the state lost.
const TRIES: usize = 4;

/// Bytes of a bitmap's part that is one page.
const PAGE_BYTES: usize = PAGE_TICKETS / 8;

/// When what a call wrote counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the primary has it. What it did not pass on to a replica before it died, the servers remember.
    #[default]
    Async,
    /// When a replica has confirmed it as well. Passes are released only then.
    Replicated,
}

impl Durability {
    fn confirm(self) -> Option<Confirm> {
        (self == Self::Replicated).then_some(Confirm { replicas: 1, timeout_ms: 1_000 })
    }
}

/// One zone, as this server keeps it.
struct Known {
    zone: ZoneId,
    /// What its keys begin with.
    prefix: String,
    memory: Mutex<Option<Memory>>,
}

/// The store in one Redis: a server, or a cluster.
pub struct Redis<C = AnyClient> {
    client: C,
    durability: Durability,
    slice: usize,
    /// What the zones' clocks are held at; 0 for not at all.
    held_ms: AtomicU64,
    zones: Mutex<HashMap<ZoneId, Arc<Known>>>,
    register: Mutex<Register>,
    /// How often the register was asked for.
    asked: AtomicU64,
}

type Result<T> = std::result::Result<T, StoreError>;

/// A call's reply, taken in.
struct Answer {
    header: Header,
    rest: Reply,
    /// The log has records that this server did not have.
    window_changed: bool,
}

/// Why a call has to be made differently.
enum Refused {
    /// The line ends at this number: the keys passed were of another end.
    Keys(u64),
    Other(StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

impl From<Garbled> for StoreError {
    fn from(Garbled(what): Garbled) -> Self {
        Self::Away(format!("Redis answered with something else than {what}"))
    }
}

impl From<Garbled> for Refused {
    fn from(garbled: Garbled) -> Self {
        Self::Other(garbled.into())
    }
}

impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Busy => Self::Busy,
            ClientError::Unconfirmed { .. } => Self::Away(format!("no replica holds it: {error}")),
            ClientError::Away(_) | ClientError::Script(_) => Self::Away(error.to_string()),
        }
    }
}

impl Redis<AnyClient> {
    /// A store over a client of the library that is chosen. Takes about [`Settings::connect_timeout`] at most.
    ///
    /// # Errors
    /// [`StoreError::Away`] where Redis can't be reached now; it may be tried again.
    pub async fn connect(address: &Address, settings: &Settings, durability: Durability) -> Result<Self> {
        Ok(Self::new(AnyClient::connect(address, settings).await?, durability))
    }
}

impl<C: Client> Redis<C> {
    /// A store over `client`. Nothing is asked yet.
    pub fn new(client: C, durability: Durability) -> Self {
        Self {
            client,
            durability,
            slice: SLICE,
            held_ms: AtomicU64::new(0),
            zones: Mutex::default(),
            register: Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// As [`Redis::new`], with another number of segments that one call passes: for tests of long lines.
    #[must_use]
    pub fn with_slice(self, slice: usize) -> Self {
        Self { slice: slice.max(1), ..self }
    }

    /// Holds the zones' clocks at an instant: for tests that hold the scripts against the rules.
    pub fn hold_clock(&self, now_ms: u64) {
        self.held_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The client.
    pub fn client(&self) -> &C {
        &self.client
    }

    fn held(&self) -> u64 {
        self.held_ms.load(Ordering::Relaxed)
    }

    fn known(&self, zone: &ZoneId) -> Result<Arc<Known>> {
        lock(&self.zones).get(zone).cloned().ok_or(StoreError::UnknownZone)
    }

    /// Runs a zone's script, with the arguments that all of them take before its own.
    async fn run(
        &self,
        known: &Known,
        script: &'static Script,
        segments: &[u64],
        own: impl Fn(&Memory) -> Vec<Bytes>,
    ) -> std::result::Result<Answer, Refused> {
        for _ in 0..TRIES {
            let asked = {
                let memory = lock(&known.memory);
                let memory = memory.as_ref().ok_or(StoreError::UnknownZone)?;
                let mut args = common_args(Some(memory), self.held(), segments);
                args.extend(own(memory));
                args
            };
            match self.ask(known, script, segments, asked).await {
                Err(Refused::Other(StoreError::UnknownZone)) => self.restore(known).await?,
                other => return other,
            }
        }
        Err(StoreError::Away(format!("the state of zone {} could not be rebuilt", known.zone)).into())
    }

    /// Asks once. A state that was lost comes back as [`StoreError::UnknownZone`].
    async fn ask(
        &self,
        known: &Known,
        script: &'static Script,
        segments: &[u64],
        args: Vec<Bytes>,
    ) -> std::result::Result<Answer, Refused> {
        let confirm = if is_decision(script) { self.durability.confirm() } else { None };
        #[cfg(feature = "sabotage")]
        let script = sabotage::script(script);
        let sent = Instant::now();
        let value = match self.client.run(script, keys(&known.prefix, segments), args, confirm).await {
            Ok(value) => value,
            Err(ClientError::Script(text)) => return Err(refused(&text)),
            Err(error) => return Err(StoreError::from(error).into()),
        };
        let mut rest = Reply::new(value)?;
        let header = Header::parse(&rest.bytes()?)?;
        let first = rest.number()?;
        let log = rest.bytes()?;
        let (untold, window_changed) = {
            let mut memory = lock(&known.memory);
            match &mut *memory {
                None => {
                    *memory = Some(Memory::new(header, &log, sent)?);
                    (false, true)
                }
                Some(memory) => {
                    // A new epoch was begun by another: it may lack what only this server remembers.
                    if header.epoch > memory.header.epoch {
                        memory.keep_witness();
                    }
                    let changed = memory.take(header, first, &log, sent)?;
                    (!memory.untold.is_empty(), changed)
                }
            }
        };
        // What was decided stands, also where the telling fails; it is tried again with the next call.
        if untold && let Err(error) = self.tell(known).await {
            tracing::warn!(zone = %known.zone, %error, "could not tell Redis yet what is remembered");
        }
        Ok(Answer { header, rest, window_changed })
    }

    /// Has a lost state rebuilt from what this server remembers.
    async fn restore(&self, known: &Known) -> Result<()> {
        {
            let mut memory = lock(&known.memory);
            let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
            tracing::warn!(
                zone = %known.zone, epoch = memory.header.epoch, revision = memory.header.rev,
                "the state in Redis is older than this server has seen; it is rebuilt"
            );
            memory.keep_witness();
        }
        self.tell(known).await
    }

    /// Gives the store all that it was not told yet of earlier epochs.
    async fn tell(&self, known: &Known) -> Result<()> {
        loop {
            let first = lock(&known.memory).as_ref().and_then(|memory| memory.untold.front().cloned());
            let Some(witness) = first else { return Ok(()) };
            self.give(known, &witness).await?;
            if let Some(memory) = &mut *lock(&known.memory) {
                memory.untold.retain(|untold| !Arc::ptr_eq(untold, &witness));
            }
        }
    }

    /// Gives the store what is remembered of an earlier epoch.
    async fn give(&self, known: &Known, witness: &Witness) -> Result<()> {
        #[cfg(feature = "sabotage")]
        let emptied = sabotage::forgetful(witness);
        #[cfg(feature = "sabotage")]
        let witness = &emptied;
        let entries: BTreeSet<u64> = witness.entries.iter().map(|(seq, _)| split(*seq).0).collect();
        let spoken: BTreeSet<u64> = witness.segments.iter().map(|(segment, ..)| *segment).collect();
        let segments: Vec<u64> = spoken.union(&entries).copied().collect();
        let slices: Vec<&[u64]> =
            if segments.is_empty() { vec![&[]] } else { segments.chunks(self.slice).collect() };
        for (i, slice) in slices.into_iter().enumerate() {
            let mut args = common_args(None, self.held(), slice);
            if let Some(memory) = &*lock(&known.memory) {
                let (lo, _) = memory.bounds();
                args[2] = text(lo);
            }
            args.extend([text(witness.epoch), text(witness.rev), text(witness.next), text(witness.base)]);
            args.push(if i == 0 { log_bytes(&witness.log) } else { Bytes::new() });
            let mut out = Vec::new();
            for (seq, entry) in witness.entries.iter().filter(|(seq, _)| slice.contains(&split(*seq).0)) {
                out.extend_from_slice(&seq.to_be_bytes()[2..]);
                out.extend_from_slice(&entry.at_ms.to_be_bytes()[2..]);
                out.extend_from_slice(&u32::try_from(entry.unix_s).unwrap_or(u32::MAX).to_be_bytes());
            }
            args.push(out.into());
            args.extend(wire::policy_numbers(&witness.policy).map(text));
            for segment in slice {
                let bits = witness.segments.iter().find(|(spoken, ..)| spoken == segment);
                let (live, gone) = bits.map_or((&[][..], &[][..]), |(_, live, gone)| (live, gone));
                args.push(Bytes::copy_from_slice(live));
                args.push(Bytes::copy_from_slice(gone));
            }
            let sent = Instant::now();
            let value = self
                .client
                .run(&scripts::RESTORE, keys(&known.prefix, slice), args, None)
                .await
                .map_err(StoreError::from)?;
            let mut reply = Reply::new(value)?;
            let header = Header::parse(&reply.bytes()?)?;
            let (first, log, taken) = (reply.number()?, reply.bytes()?, reply.bytes()?);
            if i == 0 {
                tracing::warn!(
                    zone = %known.zone, of_epoch = witness.epoch, epoch = header.epoch, taken = ?taken,
                    entries = witness.entries.len(), next = witness.next, "told Redis what is remembered"
                );
            }
            if let Some(memory) = &mut *lock(&known.memory) {
                memory.take(header, first, &log, sent)?;
            }
        }
        Ok(())
    }

    /// Makes a zone known here, with the policy given, which Redis takes.
    async fn open(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        let known = Arc::clone(lock(&self.zones).entry(zone.clone()).or_insert_with(|| {
            Arc::new(Known {
                zone: zone.clone(),
                prefix: format!("weir:v1:{{{zone}}}:"),
                memory: Mutex::default(),
            })
        }));
        let numbers = wire::policy_numbers(&policy);
        for _ in 0..TRIES {
            let mut args = common_args(lock(&known.memory).as_ref(), self.held(), &[]);
            args.push(text("1"));
            args.extend(numbers.map(text));
            match self.ask(&known, &scripts::POLICY, &[], args).await {
                Ok(_) => return self.beat_all(&known, &[]).await,
                Err(Refused::Other(StoreError::UnknownZone)) => self.restore(&known).await?,
                Err(Refused::Other(error)) => return Err(error),
                Err(Refused::Keys(_)) => return Err(Garbled("a policy's reply").into()),
            }
        }
        Err(StoreError::Away(format!("the state of zone {zone} could not be rebuilt")))
    }

    /// Tells the store of polls, has it do what is due for the whole line, and makes the view.
    async fn beat_all(&self, known: &Known, marks: &[PagePolls]) -> Result<View> {
        let mut marked: BTreeMap<u64, BTreeMap<usize, &PagePolls>> = BTreeMap::new();
        for mark in marks {
            let (segment, ticket) = split(mark.page * PAGE_TICKETS as u64);
            marked.entry(segment).or_default().insert(ticket / PAGE_TICKETS, mark);
        }
        let (base, last) = {
            let memory = lock(&known.memory);
            let header = memory.as_ref().ok_or(StoreError::UnknownZone)?.header;
            (header.base, split(header.next).0)
        };
        let all: Vec<u64> = (base..=last).collect();
        // The front's segments come last: with them the view is asked for.
        let mut slices = all.chunks(self.slice).rev().peekable();
        while let Some(slice) = slices.next() {
            let with_view = slices.peek().is_none();
            let (answer, counts) = self.beat_slice(known, slice, &marked, with_view).await?;
            if let Some((front_end, counts)) = counts {
                return self.complete(known, front_end, counts, answer).await;
            }
        }
        Err(Garbled("a beat").into())
    }

    /// Fetches what the view still lacks, and makes it.
    async fn complete(&self, known: &Known, front_end: u64, counts: Vec<Counts>, of: Header) -> Result<View> {
        let outdated = {
            let memory = lock(&known.memory);
            memory.as_ref().map(|memory| memory.outdated(of.base, &counts)).unwrap_or_default()
        };
        for slice in outdated.chunks(self.slice) {
            self.beat_slice(known, slice, &BTreeMap::new(), false).await?;
        }
        let mut view = {
            let mut memory = lock(&known.memory);
            memory.as_mut().ok_or(StoreError::UnknownZone)?.show(of.base, front_end, &counts)
        };
        // What no rule reads is not in the zone's state.
        if let Some(Definition { policy, .. }) = lock(&self.register).zones.get(&known.zone) {
            view.policy.waits_per_minute_per_client = policy.waits_per_minute_per_client;
            view.policy.entries_per_minute_per_client = policy.entries_per_minute_per_client;
        }
        Ok(view)
    }

    async fn beat_slice(
        &self,
        known: &Known,
        slice: &[u64],
        marked: &BTreeMap<u64, BTreeMap<usize, &PagePolls>>,
        with_view: bool,
    ) -> Result<(Header, Option<(u64, Vec<Counts>)>)> {
        let own = |memory: &Memory| {
            let mut args = Vec::with_capacity(slice.len() * 3 + 1);
            for segment in slice {
                let (at, bytes) = marked.get(segment).map_or((0, Vec::new()), mark_bytes);
                args.extend([text(memory.rev_of(*segment)), text(at), bytes.into()]);
            }
            args.push(text(u32::from(with_view)));
            args
        };
        let answer = match self.run(known, &scripts::BEAT, slice, own).await {
            Ok(answer) => answer,
            Err(Refused::Other(error)) => return Err(error),
            Err(Refused::Keys(_)) => return Err(Garbled("a beat's reply").into()),
        };
        let Answer { header, mut rest, .. } = answer;
        let front_end = rest.number()?;
        let mut rows = rest.list()?;
        let mut counts = Vec::with_capacity(rows.len());
        while !rows.is_empty() {
            counts.push(Counts::parse(&rows.bytes()?)?);
        }
        let (mut revs, mut bits) = (rest.list()?, rest.list()?);
        let mut memory = lock(&known.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        for segment in slice {
            let (rev, bits) = (revs.number()?, bits.bytes()?);
            if memory.header.epoch == header.epoch && !bits.is_empty() {
                memory.take_bits(*segment, rev, header.next, &bits)?;
            }
        }
        Ok((header, with_view.then_some((front_end, counts))))
    }
}

impl<C: Client> Store for Redis<C> {
    async fn zones(&self) -> Result<Option<Kept>> {
        Ok(Some(self.registered(&[]).await?.kept()))
    }

    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<Kept> {
        Ok(self.registered(zones).await?.kept())
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        self.define_in_register(zone, expected, |_| new.cloned()).await
    }

    async fn open_zone(&self, zone: &ZoneId, _: Policy) -> Result<View> {
        let register = self.registered(&[]).await?;
        let policy = register.zones.get(zone).ok_or(StoreError::UnknownZone)?.policy;
        self.open(zone, policy).await
    }

    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        let with_policy =
            |before: Option<&Definition>| Some(Definition { policy, ..before.cloned().unwrap_or_default() });
        for expected in [Expected::Any, Expected::Absent, Expected::Any] {
            if let Defined::Done(_) = self.define_in_register(zone, &expected, with_policy).await? {
                return self.open_zone(zone, policy).await;
            }
        }
        Err(StoreError::Busy)
    }

    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined> {
        assert!((1..=MAX_BATCH).contains(&(count as usize)), "a join of {count}");
        let known = self.known(zone)?;
        let mut next = lock(&known.memory).as_ref().ok_or(StoreError::UnknownZone)?.header.next;
        for _ in 0..TRIES {
            // Others may have taken numbers meanwhile.
            let segments: BTreeSet<u64> =
                [next, next + u64::from(count) + SEGMENT / 4].into_iter().map(|seq| split(seq).0).collect();
            let segments: Vec<u64> = segments.into_iter().collect();
            match self.run(&known, &scripts::JOIN, &segments, |_| vec![text(count)]).await {
                Ok(answer) => return joined(&known, count, answer),
                Err(Refused::Keys(end)) => next = end,
                Err(Refused::Other(error)) => return Err(error),
            }
        }
        Err(StoreError::Away("the line's end moves faster than it can be followed".to_owned()))
    }

    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided> {
        assert!((1..=MAX_BATCH).contains(&claims.len()), "{} claims", claims.len());
        let known = self.known(zone)?;
        let order: BTreeSet<(u64, u32)> = claims.iter().map(|claim| (claim.seq, claim.epoch)).collect();
        let order: Vec<(u64, u32)> = order.into_iter().collect();
        let mut verdicts = HashMap::with_capacity(order.len());
        let mut at_ms = 0;
        let mut rest = &order[..];
        while !rest.is_empty() {
            let (now_ms, decided) = self.enter_some(&known, rest).await?;
            for (claim, verdict) in rest.iter().zip(&decided) {
                verdicts.insert(*claim, *verdict);
            }
            rest = &rest[decided.len()..];
            at_ms = now_ms;
        }
        let verdict =
            |claim: &Claim| verdicts.get(&(claim.seq, claim.epoch)).copied().unwrap_or(Verdict::Gone);
        Ok(Decided { at_ms, verdicts: claims.iter().map(verdict).collect() })
    }

    async fn beat(&self, zone: &ZoneId, marks: Vec<PagePolls>) -> Result<View> {
        self.beat_all(&*self.known(zone)?, &marks).await
    }
}

impl<C: Client> Redis<C> {
    /// Decides the first of `claims`: as many as take Redis less than two milliseconds, and lie in the segments that one
    /// call passes.
    async fn enter_some(&self, known: &Known, claims: &[(u64, u32)]) -> Result<(u64, Vec<Verdict>)> {
        let mut segments = BTreeSet::new();
        {
            let memory = lock(&known.memory);
            let header = memory.as_ref().ok_or(StoreError::UnknownZone)?.header;
            let front_end = header.appointed.max(1) - 1;
            segments.extend((header.base..=split(front_end).0).take(self.slice / 2));
        }
        let mut count = 0;
        for &(seq, _) in &claims[..claims.len().min(CLAIMS_MAX)] {
            let segment = split(seq).0;
            if segments.len() >= self.slice.max(2) && !segments.contains(&segment) {
                break;
            }
            segments.insert(segment);
            count += 1;
        }
        let mut bytes = Vec::with_capacity(count * 10);
        for (seq, epoch) in &claims[..count] {
            bytes.extend_from_slice(&epoch.to_be_bytes());
            bytes.extend_from_slice(&seq.to_be_bytes()[2..]);
        }
        let (segments, bytes): (Vec<u64>, Bytes) = (segments.into_iter().collect(), bytes.into());
        let mut answer = match self.run(known, &scripts::ENTER, &segments, |_| vec![bytes.clone()]).await {
            Ok(answer) => answer,
            Err(Refused::Other(error)) => return Err(error),
            Err(Refused::Keys(_)) => return Err(Garbled("a claim's reply").into()),
        };
        let mut verdicts = wire::verdicts(&answer.rest.bytes()?)?;
        if verdicts.len() != count {
            return Err(Garbled("the verdicts").into());
        }
        let mut memory = lock(&known.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        memory.note(answer.header.now, claims.iter().map(|(seq, _)| *seq).zip(verdicts.iter().copied()));
        memory.estimate(&mut verdicts, answer.window_changed);
        Ok((answer.header.now, verdicts))
    }
}

/// What a join's reply says.
fn joined(known: &Known, count: u32, mut answer: Answer) -> Result<Joined> {
    let (first, let_in, unix_s) = (answer.rest.number()?, answer.rest.number()?, answer.rest.number()?);
    let (ahead, present_ahead) = (answer.rest.number()?, answer.rest.number()?);
    let of_front = wire::verdicts(&answer.rest.bytes()?)?;
    let at_ms = answer.header.now;
    let entry = admission::Entry { at_ms, unix_s };
    let let_in = usize::try_from(let_in).ok().filter(|&n| n + of_front.len() <= count as usize);
    let mut verdicts = vec![Verdict::Entered(entry); let_in.ok_or(Garbled("a join's reply"))?];
    let waiting = u64::from(count) - verdicts.len() as u64;
    let behind = of_front.len() as u64..waiting;
    verdicts.extend(of_front);
    verdicts.extend(behind.map(|before| {
        Verdict::Waiting(Position {
            rank: 1 + ahead + before,
            present_ahead: present_ahead + before,
            estimate: None,
            poll_in_ms: answer.header.policy.polling_period_ms,
            slot_in_ms: None,
        })
    }));
    let mut memory = lock(&known.memory);
    let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
    memory.note(at_ms, (first..).zip(verdicts.iter().copied()));
    memory.estimate(&mut verdicts, answer.window_changed);
    Ok(Joined { epoch: answer.header.epoch, first, at_ms, verdicts })
}

/// Whether a script may let somebody in.
fn is_decision(script: &'static Script) -> bool {
    script.name == scripts::JOIN.name || script.name == scripts::ENTER.name
}

fn refused(message: &str) -> Refused {
    // Redis puts words of its own before or after a script's.
    let found = |word: &str| message.find(word).map(|at| &message[at + word.len()..]);
    if found("WEIR_LOST").is_some() || found("WEIR_NONE").is_some() {
        return Refused::Other(StoreError::UnknownZone);
    }
    if let Some(rest) = found("WEIR_KEYS ") {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(next) = digits.parse() {
            return Refused::Keys(next);
        }
    }
    Refused::Other(StoreError::Away(message.to_owned()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept under these locks is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(value: impl ToString) -> Bytes {
    value.to_string().into()
}

/// The keys of a zone, and of some of its segments, in the order of `lua/zone.lua`.
fn keys(prefix: &str, segments: &[u64]) -> Vec<Bytes> {
    const FIXED: [&str; 7] = ["z", "log", "due", "seg", "on", "t1", "t2"];
    const OF_SEGMENT: [&str; 9] = ["live", "here", "met", "a0", "a1", "a2", "a3", "out", "lost"];
    let mut keys = Vec::with_capacity(FIXED.len() + segments.len() * OF_SEGMENT.len());
    keys.extend(FIXED.iter().map(|key| format!("{prefix}{key}").into()));
    for segment in segments {
        keys.extend(OF_SEGMENT.iter().map(|key| Bytes::from(format!("{prefix}{segment}:{key}"))));
    }
    keys
}

/// What every script takes first.
fn common_args(memory: Option<&Memory>, held_ms: u64, segments: &[u64]) -> Vec<Bytes> {
    let mut args = Vec::with_capacity(8 + segments.len());
    match memory {
        Some(memory) => {
            let (lo, hi) = if held_ms == 0 { memory.bounds() } else { (held_ms, held_ms) };
            #[cfg(feature = "sabotage")]
            let rev = if sabotage::on(sabotage::Rule::Revision) { 0 } else { memory.header.rev };
            #[cfg(not(feature = "sabotage"))]
            let rev = memory.header.rev;
            args.extend([
                text(memory.header.epoch),
                text(rev),
                text(lo),
                text(hi),
                text(memory.known_record()),
            ]);
        }
        None => args.extend([text(0), text(0), text(held_ms), text(held_ms), text(0)]),
    }
    args.push(text(segments.len()));
    args.extend(segments.iter().map(text));
    args
}

/// The log as it is given back.
fn log_bytes(log: &[(u64, u32)]) -> Bytes {
    let mut bytes = Vec::with_capacity(log.len() * 10);
    for (at_ms, count) in log {
        bytes.extend_from_slice(&at_ms.to_be_bytes()[2..]);
        bytes.extend_from_slice(&count.to_be_bytes());
    }
    bytes.into()
}

/// A segment's marks: where they begin in its bitmap, and their bytes.
fn mark_bytes(pages: &BTreeMap<usize, &PagePolls>) -> (usize, Vec<u8>) {
    let (Some(first), Some(last)) = (pages.keys().next(), pages.keys().next_back()) else {
        return (0, Vec::new());
    };
    let mut bytes = Vec::with_capacity((last - first + 1) * PAGE_BYTES);
    for page in *first..=*last {
        match pages.get(&page) {
            Some(mark) => bytes.extend(wire::turn_back(&*mark.words)),
            None => bytes.resize(bytes.len() + PAGE_BYTES, 0),
        }
    }
    (first * PAGE_BYTES, bytes)
}

const _: () = assert!(SEGMENT == PAGE_TICKETS as u64 * 8);
