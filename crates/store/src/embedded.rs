//! The store inside the process.
//!
//! One thread owns the zones and the journal. It takes the waiting calls, decides them, syncs the changes, and answers.
//! While it syncs, and for a moment after, the next group gathers.
//!
//! Invariant: each call is answered, even if the thread's work fails or panics. Nothing is answered before it is durable.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use admission::{
    Census, Claim, Deal, Dealt, Decided, Departure, JoinKey, Leaver, Now, PagePolls, Policy, Snapshot,
    Ticket, ZoneId,
};
use tokio::sync::oneshot;

use crate::{
    Clock, DiskJournal, Engine, JoinedOnce, JournalError, LeftVisits, Line, MAX_BATCH, RegisterContents,
    Store, StoreError,
    minutes::{KeptMinute, OFFERED_MAX, OfferedMinute, READ_MAX},
};

/// How many calls may wait. Further calls get [`StoreError::Busy`].
const QUEUE: usize = 1_024;

/// How many calls are decided and synced together at most.
const MAX_GROUP: usize = 256;

/// While groups are small, a group begins so long after the one before it at least, in milliseconds. A sync costs as much processor time as a
/// dozen joins, and without a rest a stream of joins had one for each one or two of them. A call after a longer pause does not wait.
const SPACING_MS: u64 = 4;

/// Groups of fewer people on average are small.
const SMALL: f64 = 12.0;

/// The weight of a group in that average: callers who ask again as soon as they are answered come in groups of changing size.
const WEIGHT: f64 = 0.125;

type Result<T> = std::result::Result<T, StoreError>;
/// Decides a call, and returns its held answer.
type Work = Box<dyn FnOnce(&mut Engine<DiskJournal>, Now) -> HeldAnswer + Send>;
/// Sends an answer once it is known whether the group is durable.
type HeldAnswer = Box<dyn FnOnce(&Result<()>)>;

/// A call, on its way to the thread.
struct Call {
    /// Of how many people.
    people: usize,
    work: Work,
}

/// The store inside the process, with its files in one directory.
///
/// Dropping it waits until all sent calls are durable and the files are closed.
pub struct Embedded {
    /// `None` only while it is dropped.
    queue: Option<SyncSender<Call>>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens the journal in `dir`, and creates both if they are missing. Blocks while it reads.
    ///
    /// # Errors
    /// [`JournalError`]: the directory is in use, the files are damaged or not Weir's, or the system refuses.
    pub fn open(dir: &Path) -> std::result::Result<Self, JournalError> {
        let engine = Engine::new(DiskJournal::open(dir)?)?;
        let clock = engine.journal().clock();
        let (queue, calls) = sync_channel(QUEUE);
        let named = thread::Builder::new().name("weir-store".into());
        let thread = named.spawn(move || run(engine, clock, &calls)).map_err(|source: io::Error| {
            JournalError::Io { file: dir.into(), doing: "start the thread for", source }
        })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    async fn ask<T: Send + 'static>(
        &self,
        people: usize,
        decide: impl FnOnce(&mut Engine<DiskJournal>, Now) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |engine, now| {
            let decided = decide(engine, now);
            // If the caller has left, only the answer is lost.
            Box::new(move |durable| drop(reply.send(durable.clone().and(decided))))
        });
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.try_send(Call { people, work }).map_err(|refused| match refused {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => stopped(),
        })?;
        // The work is dropped without an answer only if deciding it panicked.
        answer.await.unwrap_or_else(|_| Err(StoreError::Away("it panicked while deciding this call".into())))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's thread ended in a panic");
        }
    }
}

impl Store for Embedded {
    type Line = EmbeddedLine;

    async fn zones(&self) -> Result<Option<RegisterContents>> {
        Ok(None)
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> EmbeddedLine {
        EmbeddedLine { store: Arc::clone(self), zone: zone.clone() }
    }
}

/// The line of one zone in the embedded store. It has the zone's name, because the engine may drop all zones and load them again.
pub struct EmbeddedLine {
    store: Arc<Embedded>,
    zone: ZoneId,
}

impl EmbeddedLine {
    async fn ask<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Engine<DiskJournal>, &ZoneId, Now) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ask_for(1, decide).await
    }

    /// The same for so many people.
    async fn ask_for<T: Send + 'static>(
        &self,
        people: usize,
        decide: impl FnOnce(&mut Engine<DiskJournal>, &ZoneId, Now) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let zone = self.zone.clone();
        self.store.ask(people, move |engine, now| decide(engine, &zone, now)).await
    }
}

impl Line for EmbeddedLine {
    async fn open(&self, policy: Policy) -> Result<Snapshot> {
        self.put(policy).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot> {
        // The epoch must differ from those of earlier lines of the zone. The hasher's keys are random.
        let [a, b, c, d, ..] = RandomState::new().hash_one(&self.zone).to_ne_bytes();
        let epoch = u32::from_ne_bytes([a, b, c, d]).max(1);
        self.ask(move |engine, zone, now| engine.put_zone(zone, policy, epoch, now)).await
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce> {
        assert!((1..=MAX_BATCH).contains(&keys.len()), "a join of {}", keys.len());
        self.ask_for(keys.len(), move |engine, zone, now| engine.join_once(zone, &keys, now)).await
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>> {
        assert!((1..=MAX_BATCH).contains(&keys.len()), "{} keys", keys.len());
        self.ask_for(keys.len(), move |engine, zone, now| engine.joined_before(zone, &keys, now)).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided> {
        assert!((1..=MAX_BATCH).contains(&claims.len()), "{} claims", claims.len());
        self.ask_for(claims.len(), move |engine, zone, now| engine.enter(zone, &claims, now)).await
    }

    async fn beat(&self, marks: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot> {
        self.ask(move |engine, zone, now| engine.beat(zone, &marks, longest_period_ms, now)).await
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits> {
        self.ask(move |engine, zone, now| engine.visits(zone, &seen, now)).await
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        assert!((1..=MAX_BATCH).contains(&leavers.len()), "{} leavers", leavers.len());
        self.ask_for(leavers.len(), move |engine, zone, now| engine.leave(zone, &leavers, now)).await
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64> {
        self.ask(move |engine, zone, now| engine.bind(zone, claim, address, now)).await
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.ask(move |engine, zone, now| engine.exchange_learned(zone, new, now)).await
    }

    async fn census(&self) -> Result<Census> {
        self.ask(Engine::census).await
    }

    async fn deal(&self, deal: Deal, anyway: bool) -> Result<Dealt> {
        self.ask(move |engine, zone, now| engine.deal(zone, &deal, anyway, now)).await
    }

    async fn keep_draw(&self, draw: u32, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.ask(move |engine, zone, now| engine.keep_draw(zone, draw, new, now)).await
    }

    async fn keep_minutes(&self, server: u64, offered: Vec<OfferedMinute>) -> Result<()> {
        assert!(offered.len() <= OFFERED_MAX, "{} minutes", offered.len());
        offered.iter().for_each(OfferedMinute::check);
        self.ask(move |engine, zone, now| engine.keep_minutes(zone, server, &offered, now)).await
    }

    async fn minutes(&self, from: u32, to: u32) -> Result<Vec<KeptMinute>> {
        assert!(to.saturating_sub(from) <= READ_MAX, "{from} to {to}");
        self.ask(move |engine, zone, now| engine.minutes(zone, from..to, now)).await
    }
}

fn stopped() -> StoreError {
    StoreError::Away("it was stopped".into())
}

/// The thread. It ends when the store is dropped and all calls are answered.
fn run(mut engine: Engine<DiskJournal>, clock: Clock, calls: &Receiver<Call>) {
    let mut was_away = false;
    let (mut mean_people, mut began_ms) = (SMALL, 0);
    while let Ok(first) = calls.recv() {
        let since_ms = clock.now().ms.saturating_sub(began_ms);
        if mean_people < SMALL && since_ms < SPACING_MS {
            thread::sleep(Duration::from_millis(SPACING_MS - since_ms));
        }
        let mut people = 0;
        let group = std::iter::once(first).chain(calls.try_iter()).take(MAX_GROUP);
        let mut held = Vec::new();
        let done = catch_unwind(AssertUnwindSafe(|| {
            let now = clock.now();
            began_ms = now.ms;
            for call in group {
                people += call.people;
                held.push((call.work)(&mut engine, now));
            }
            engine.commit(now)
        }));
        mean_people += (people as f64 - mean_people) * WEIGHT;
        let durable = done.unwrap_or_else(|_| Err(engine.abandon("it panicked while deciding".into())));
        for answer in held {
            answer(&durable);
        }
        match (&durable, was_away) {
            (Err(error), false) => tracing::error!("{error}; calls are refused until it works again"),
            (Ok(()), true) => tracing::info!("the store is back"),
            _ => {}
        }
        was_away = durable.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    /// A store in a directory of its own, and the line of a zone in it.
    fn opened() -> (tempfile::TempDir, Arc<Embedded>, EmbeddedLine) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(Embedded::open(dir.path()).expect("opens"));
        let line = store.line(&ZoneId::parse("Z").expect("a name"));
        (dir, store, line)
    }

    #[test]
    fn a_panic_fails_its_group_and_loses_nothing() {
        let (_dir, store, line) = opened();
        runtime().block_on(async {
            line.put(Policy::default()).await.expect("put");
            assert_eq!(line.join(3).await.expect("joins").first, 0);
            let failed = store.ask::<()>(1, |_, _| panic!("on purpose")).await;
            assert!(matches!(failed, Err(StoreError::Away(_))));
            assert_eq!(line.join(1).await.expect("joins again").first, 3);
        });
    }

    #[test]
    fn a_full_queue_is_busy_and_callers_may_leave() {
        let (_dir, store, line) = opened();
        runtime().block_on(async {
            line.put(Policy::default()).await.expect("put");
            let (release, released) = std::sync::mpsc::channel::<()>();
            let mut stuck = Box::pin(store.ask(1, move |_, _| Ok(released.recv().is_ok())));
            let mut left = 0;
            // Each call is polled once, which sends it, and dropped.
            let busy = loop {
                let mut join = Box::pin(line.join(1));
                tokio::select! {
                    biased;
                    _ = &mut stuck => unreachable!("held until released"),
                    answer = &mut join => break answer,
                    () = std::future::ready(()) => left += 1,
                }
            };
            assert_eq!(busy, Err(StoreError::Busy));
            assert!((QUEUE - 1..=QUEUE).contains(&left), "{left}");
            release.send(()).expect("the thread waits");
            assert_eq!(stuck.await, Ok(true));
            let next = loop {
                match line.join(1).await {
                    Err(StoreError::Busy) => {}
                    other => break other.expect("joins").first,
                }
            };
            assert_eq!(next, left as u64);
        });
    }

    #[test]
    fn a_stream_of_calls_is_not_synced_one_by_one() {
        let (_dir, _store, line) = opened();
        runtime().block_on(async {
            line.put(Policy::default()).await.expect("put");
            let begun = tokio::time::Instant::now();
            for _ in 0..10 {
                line.join(1).await.expect("joins");
            }
            // The clock counts whole milliseconds.
            assert!(begun.elapsed() >= Duration::from_millis(9 * SPACING_MS - 1), "{:?}", begun.elapsed());
        });
    }

    #[test]
    fn dropping_it_frees_the_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        for _ in 0..3 {
            drop(Embedded::open(dir.path()).expect("opens"));
        }
    }
}
