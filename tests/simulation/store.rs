//! The engine of the embedded store on a virtual clock. Calls take time, the disk may be full, the process may be killed.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::{
    Claim, Decided, Delta, Departure, Entry, Header, JoinKey, Leaver, Now, PagePolls, Policy, Snapshot,
    Ticket, Verdict, ZoneId,
    sabotage::{Rule, on},
};
use store::{
    Batch, Engine, JoinedOnce, Journal, JournalError, LeftVisits, Line, Loaded, MemoryJournal,
    RegisterContents, Store, StoreError,
};
use tokio::time::Instant;

use crate::{
    auditor::Auditor,
    scenario::{Interval, Scenario},
    seed::Random,
};

/// A journal that fails while the disk is full. It outlives the process.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<(MemoryJournal, bool)>>);

impl Disk {
    /// A disk on which `zone` has issued some tickets, which are all gone.
    pub(crate) fn with_line(zone: &ZoneId, tickets: u64) -> Self {
        let disk = Self::default();
        if tickets > 0 {
            let per_page = admission::PAGE_TICKETS as u64;
            let base_page = tickets / per_page;
            let mut gone = [0; admission::PAGE_WORDS];
            for ticket in 0..usize::try_from(tickets % per_page).expect("small") {
                gone[ticket / 64] |= 1 << (ticket % 64);
            }
            let changes = Delta {
                header: Header {
                    epoch: 77,
                    next: tickets,
                    base_page,
                    inside: None,
                    drawn: Default::default(),
                    totals: Default::default(),
                },
                pages: vec![(base_page, Arc::new(gone))],
                dropped: 0..0,
                entered: Vec::new(),
                bound: Vec::new(),
                forgotten: Vec::new(),
            };
            let batch = Batch { at_ms: 0, zones: vec![(zone.clone(), changes)], ..Batch::default() };
            disk.lock().0.commit(&batch).expect("memory");
        }
        disk
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.lock().1 = full;
    }

    fn lock(&self) -> MutexGuard<'_, (MemoryJournal, bool)> {
        self.0.lock().expect("nobody panics here")
    }
}

impl Journal for Disk {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.lock().0.load()
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        let mut inner = self.lock();
        if inner.1 {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            return Err(JournalError::Io { file: "simulated".into(), doing: "write", source });
        }
        inner.0.commit(batch)
    }

    fn minutes(&mut self, zone: &ZoneId, minutes: Range<u32>) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        self.lock().0.minutes(zone, minutes)
    }
}

/// The clocks of the machine.
pub(crate) struct Clocks {
    start: Instant,
    /// How far the wall clock was stepped, in seconds.
    pub(crate) stepped_s: Mutex<i64>,
}

impl Clocks {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), stepped_s: Mutex::new(0) }
    }

    /// The true time: virtual milliseconds since the start of the run.
    pub(crate) fn true_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).expect("short")
    }

    fn now(&self) -> Now {
        let true_ms = self.true_ms();
        let stepped_s = *self.stepped_s.lock().expect("nobody panics here");
        let unix_ms = 1_790_000_000_000 + i64::try_from(true_ms).expect("short") + stepped_s * 1_000;
        let unix_ms = u64::try_from(unix_ms).expect("after 1970");
        let believed = if on(Rule::WallClock) { unix_ms } else { 1_790_000_000_000 + true_ms };
        Now { ms: believed, unix_ms }
    }
}

struct Inner {
    engine: Engine<Disk>,
    random: Random,
}

/// The simulated store.
pub(crate) struct SimStore {
    inner: Mutex<Inner>,
    clocks: Arc<Clocks>,
    auditor: Arc<Mutex<Auditor>>,
    slowest_ms: u64,
    stalls: Vec<Interval>,
    /// Set when the process is killed. The store decides nothing after that.
    killed: Arc<AtomicBool>,
}

impl SimStore {
    pub(crate) fn open(
        disk: Disk,
        clocks: Arc<Clocks>,
        auditor: Arc<Mutex<Auditor>>,
        scenario: &Scenario,
        seed: u64,
        killed: Arc<AtomicBool>,
    ) -> Self {
        let engine = Engine::new(disk).expect("memory");
        let inner = Inner { engine, random: Random::of(seed) };
        Self {
            inner: Mutex::new(inner),
            clocks,
            auditor,
            slowest_ms: scenario.store_ms,
            stalls: scenario.stalls.clone(),
            killed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics here")
    }

    async fn delay(&self) {
        let mut ms = self.lock().random.bits() % (self.slowest_ms + 1);
        let now_ms = self.clocks.true_ms();
        if let Some((_, until_ms)) =
            self.stalls.iter().find(|(from_ms, until_ms)| (*from_ms..*until_ms).contains(&now_ms))
        {
            ms += until_ms - now_ms;
        }
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn decide<T>(
        &self,
        zone: &ZoneId,
        decision: impl FnOnce(&mut Engine<Disk>, Now) -> Result<T, StoreError>,
        tickets: impl FnOnce(&T) -> Vec<(u64, Option<Entry>, bool)>,
    ) -> Result<T, StoreError> {
        self.delay().await;
        if self.killed.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let decided = {
            let mut inner = self.lock();
            let now = self.clocks.now();
            let decided = decision(&mut inner.engine, now);
            let decided = inner.engine.commit(now).and(decided);
            if let Ok(decided) = &decided {
                let mut auditor = self.auditor.lock().expect("nobody panics here");
                for (seq, entry, joined) in tickets(decided) {
                    match entry {
                        Some(entry) => auditor.entered(self.clocks.true_ms(), zone, seq, entry, joined),
                        None => auditor.issued(self.clocks.true_ms(), zone, seq),
                    }
                }
            }
            decided
        };
        self.delay().await;
        decided
    }
}

fn tickets(
    verdicts: &[Verdict],
    seqs: impl Iterator<Item = u64>,
    joined: bool,
) -> Vec<(u64, Option<Entry>, bool)> {
    let told = verdicts.iter().zip(seqs).filter_map(|(verdict, seq)| match verdict {
        Verdict::Entered(entry) => Some((seq, Some(*entry), joined)),
        Verdict::Waiting(_) if joined => Some((seq, None, joined)),
        _ => None,
    });
    told.collect()
}

impl Store for SimStore {
    type Line = SimLine;

    async fn zones(&self) -> Result<Option<RegisterContents>, StoreError> {
        Ok(None)
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> SimLine {
        SimLine { store: Arc::clone(self), zone: zone.clone() }
    }
}

/// The line of one zone.
pub(crate) struct SimLine {
    store: Arc<SimStore>,
    zone: ZoneId,
}

impl SimLine {
    /// A decision that shows no ticket.
    async fn decide<T>(
        &self,
        decision: impl FnOnce(&mut Engine<Disk>, &ZoneId, Now) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let zone = &self.zone;
        self.store.decide(zone, |engine, now| decision(engine, zone, now), |_| Vec::new()).await
    }
}

impl Line for SimLine {
    async fn open(&self, policy: Policy) -> Result<Snapshot, StoreError> {
        self.put(policy).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot, StoreError> {
        self.decide(|engine, zone, now| engine.put_zone(zone, policy, 77, now)).await
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce, StoreError> {
        let decision = |engine: &mut Engine<Disk>, now| engine.join_once(&self.zone, &keys, now);
        let tickets =
            |JoinedOnce { joined, .. }: &JoinedOnce| tickets(&joined.verdicts, joined.first.., true);
        self.store.decide(&self.zone, decision, tickets).await
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>, StoreError> {
        self.decide(|engine, zone, now| engine.joined_before(zone, &keys, now)).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided, StoreError> {
        let decision = |engine: &mut Engine<Disk>, now| engine.enter(&self.zone, &claims, now);
        let seqs = claims.iter().map(|claim| claim.seq);
        let tickets = |decided: &Decided| tickets(&decided.verdicts, seqs, false);
        self.store.decide(&self.zone, decision, tickets).await
    }

    async fn beat(&self, marks: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot, StoreError> {
        self.decide(|engine, zone, now| engine.beat(zone, &marks, longest_period_ms, now)).await
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits, StoreError> {
        self.decide(|engine, zone, now| engine.visits(zone, &seen, now)).await
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>, StoreError> {
        self.decide(|engine, zone, now| engine.leave(zone, &leavers, now)).await
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64, StoreError> {
        self.decide(|engine, zone, now| engine.bind(zone, claim, address, now)).await
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        self.decide(|engine, zone, now| engine.exchange_learned(zone, new, now)).await
    }
}
