//! Servers over stores that keep the zones: cells, watchers, open zones and `weir zones apply`, in virtual time over a
//! store in memory that several servers share, and that can be made to fail.

#[path = "shared_store/desk.rs"]
mod desk;

use std::{
    collections::{BTreeMap, HashSet},
    future::{Future, Ready, ready},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use admission::{
    Claim, Decided, Definition, Joined, Mode, Now, OnStoreFailure, PagePolls, Policy, SealKey, Seals, View,
    ZoneId,
};
use bytes::Bytes;
use events::{Bus, Kind, LimitedCall};
use store::{Defined, Engine, Expected, Kept, MemoryJournal, Store, StoreError};
use tokio::{
    sync::{Notify, broadcast, mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep},
};
use weir::{
    audit::Recorder,
    cells::{Cell, Cells},
    fanout::{
        self, Carrier, Fanout, Heard, Speaker,
        message::{Message, State},
    },
    gate::{Gate, Refusal, Reply, Token, Wait},
    metrics::{FanoutMeter, Metrics},
    watch::Watcher,
    zones::{Desk, Outcome, apply},
};

type Result<T> = std::result::Result<T, StoreError>;

/// How a store behaves.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Up,
    /// Calls fail at once.
    Down,
    /// Calls fail after the time that a client gives them.
    Hanging,
}

struct Held {
    engine: Engine<MemoryJournal>,
    zones: BTreeMap<ZoneId, Definition>,
    /// There was a zone.
    begun: bool,
    epoch: u32,
    is: Is,
    calls: usize,
    /// How often it was asked for its zones.
    lists: usize,
}

/// What is in a store, shared by everybody who is connected to it.
#[derive(Clone)]
struct Fake {
    state: Arc<Mutex<Held>>,
    start: Instant,
}

const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

impl Fake {
    fn new() -> Self {
        let engine = Engine::new(MemoryJournal::default()).expect("memory");
        let zones = BTreeMap::new();
        let state = Held { engine, zones, begun: false, epoch: 7, is: Is::Up, calls: 0, lists: 0 };
        Self { state: Arc::new(Mutex::new(state)), start: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.state.lock().expect("nobody panics here")
    }

    fn set(&self, is: Is) {
        self.lock().is = is;
    }

    /// Everything is lost.
    fn wipe(&self) {
        let mut state = self.lock();
        state.engine = Engine::new(MemoryJournal::default()).expect("memory");
        state.zones.clear();
        state.begun = false;
        state.epoch += 1;
    }

    fn connect(&self) -> impl Fn() -> Ready<Result<Self>> + Send + Sync + use<> {
        let fake = self.clone();
        move || {
            let is = fake.lock().is;
            ready(match is {
                Is::Up => Ok(fake.clone()),
                _ => Err(StoreError::Away("refused".to_owned())),
            })
        }
    }

    async fn answer<T>(&self, decide: impl FnOnce(&mut Held, Now) -> Result<T>) -> Result<T> {
        sleep(Duration::from_millis(1)).await;
        let is = self.lock().is;
        if is == Is::Hanging {
            sleep(COMMAND_TIMEOUT).await;
        }
        if is != Is::Up {
            return Err(StoreError::Away("no answer".to_owned()));
        }
        let ms = u64::try_from(self.start.elapsed().as_millis()).expect("short");
        let now = Now { ms: 1_790_000_000_000 + ms, unix_s: 1_790_000_000 + ms / 1_000 };
        decide(&mut self.lock(), now)
    }

    async fn decide<T>(
        &self,
        zone: &ZoneId,
        decide: impl FnOnce(&mut Engine<MemoryJournal>, Now) -> Result<T>,
    ) -> Result<T> {
        self.answer(|state, now| {
            state.calls += 1;
            if !state.zones.contains_key(zone) {
                return Err(StoreError::UnknownZone);
            }
            let decided = decide(&mut state.engine, now);
            state.engine.commit(now)?;
            decided
        })
        .await
    }

    /// Has the line go by a policy.
    async fn open(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        self.answer(|state, now| {
            state.calls += 1;
            let view = state.engine.put_zone(zone, policy, state.epoch, now);
            state.engine.commit(now)?;
            view
        })
        .await
    }

    /// The zones with their policies.
    fn policies(&self) -> Vec<(ZoneId, Policy)> {
        self.lock().zones.iter().map(|(zone, kept)| (zone.clone(), kept.policy)).collect()
    }
}

impl Held {
    fn kept(&self) -> Kept {
        let zones = self.zones.iter().map(|(zone, kept)| (zone.clone(), kept.clone())).collect();
        Kept { zones, is_new: !self.begun }
    }
}

impl Store for Fake {
    async fn zones(&self) -> Result<Option<Kept>> {
        self.lock().lists += 1;
        self.answer(|state, _| Ok(Some(state.kept()))).await
    }

    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<Kept> {
        self.answer(|state, _| {
            if !std::mem::replace(&mut state.begun, true) {
                state.zones = zones.iter().cloned().collect();
            }
            Ok(state.kept())
        })
        .await
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        self.answer(|state, _| {
            let before = state.zones.get(zone).cloned();
            if !expected.holds(before.as_ref()) {
                return Ok(Defined::Otherwise(before));
            }
            state.begun = true;
            match new {
                Some(new) => drop(state.zones.insert(zone.clone(), new.clone())),
                None => drop(state.zones.remove(zone)),
            }
            Ok(Defined::Done(before))
        })
        .await
    }

    async fn open_zone(&self, zone: &ZoneId, _: Policy) -> Result<View> {
        let kept = self.lock().zones.get(zone).map(|kept| kept.policy);
        self.open(zone, kept.ok_or(StoreError::UnknownZone)?).await
    }

    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        let view = self.open(zone, policy).await?;
        let mut state = self.lock();
        state.begun = true;
        state.zones.entry(zone.clone()).or_default().policy = policy;
        Ok(view)
    }

    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined> {
        self.decide(zone, |engine, now| engine.join(zone, count, now)).await
    }

    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided> {
        self.decide(zone, |engine, now| engine.enter(zone, &claims, now)).await
    }

    async fn beat(&self, zone: &ZoneId, marks: Vec<PagePolls>) -> Result<View> {
        self.decide(zone, |engine, now| engine.beat(zone, &marks, now)).await
    }
}

/// The cells of one server: its watchers and its gate share them.
struct Shared(Arc<Cells<Fake>>);

impl Store for Shared {
    async fn zones(&self) -> Result<Option<Kept>> {
        self.0.zones().await
    }
    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        self.0.define(zone, expected, new).await
    }
    async fn may_keep(&self, zone: &str) -> bool {
        self.0.may_keep(zone).await
    }
    async fn open_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        self.0.open_zone(zone, policy).await
    }
    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        self.0.put_zone(zone, policy).await
    }
    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined> {
        self.0.join(zone, count).await
    }
    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided> {
        self.0.enter(zone, claims).await
    }
    async fn beat(&self, zone: &ZoneId, marks: Vec<PagePolls>) -> Result<View> {
        self.0.beat(zone, marks).await
    }
}

/// What carries messages, and may not.
#[derive(Clone)]
struct Air {
    said: broadcast::Sender<Bytes>,
    /// Nothing said arrives anywhere.
    still: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl Air {
    fn new() -> Self {
        Self { said: broadcast::Sender::new(1_024), still: Arc::default(), count: Arc::default() }
    }

    fn say(&self, message: Bytes) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.still.load(Ordering::Relaxed) {
            // Nobody may be there.
            let _ = self.said.send(message);
        }
    }

    /// What was said so far, by whomever.
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Carrier for Air {
    async fn say(&self, message: Bytes) -> std::result::Result<(), String> {
        Air::say(self, message);
        Ok(())
    }

    async fn listen(&self, hears: mpsc::Sender<Heard>) {
        let mut said = self.said.subscribe();
        let mut heard = Heard::Listening;
        while hears.send(heard).await.is_ok() {
            heard = match said.recv().await {
                Ok(message) => Heard::Message(message),
                Err(broadcast::error::RecvError::Lagged(count)) => Heard::Missed(count),
                Err(broadcast::error::RecvError::Closed) => return,
            };
        }
    }
}

/// A server as `weir serve` puts it together. Its watchers end with it.
struct Server {
    gate: Arc<Gate<Shared>>,
    desk: Arc<Desk<Shared>>,
    cells: Arc<Cells<Fake>>,
    bus: Arc<Bus>,
    heard: FanoutMeter,
    _watching: JoinSet<()>,
}

fn seals() -> Seals {
    Seals { current: SealKey { id: 1, secret: [1; 32] }, previous: None }
}

async fn serve(cells: Vec<Cell<Fake>>, file: &[(ZoneId, Definition)]) -> Server {
    serve_hearing(cells, file, None).await
}

/// A server that hears what is said in the air, if there is any.
async fn serve_hearing(cells: Vec<Cell<Fake>>, file: &[(ZoneId, Definition)], air: Option<&Air>) -> Server {
    let cells = Arc::new(Cells::new(cells));
    let bus = Arc::new(Bus::with_rings(|_| 64).expect("a thread"));
    let gate = Gate::new(Shared(Arc::clone(&cells)), seals(), Arc::clone(&bus));
    let gate = Arc::new(gate);
    let mut watching = JoinSet::new();
    let (mut firsts, mut news, mut looks) = (Vec::new(), Arc::default(), Vec::new());
    for at in 0..cells.all().len() {
        let (told, first) = oneshot::channel();
        firsts.push(first);
        let watcher = Watcher::new(Arc::clone(&gate), Arc::clone(&cells), at, file);
        news = watcher.news();
        looks.push(watcher.looks());
        watching.spawn(watcher.run(told, Arc::new(Notify::new())));
    }
    for first in firsts {
        first.await.expect("each cell is asked");
    }
    let heard = Metrics::new(Arc::clone(&bus)).fanout("only");
    if let Some(air) = air {
        let fanout = Fanout::new("only", air.clone(), Speaker::new(), heard.clone());
        let (gate, bus) = (Arc::clone(&gate), Arc::clone(&bus));
        let told = fanout::subscribe(&bus).expect("it may");
        watching.spawn(async move { fanout.run(&gate, |_| true, (&bus, told), &news).await });
    }
    let places = Arc::clone(&cells);
    let looks_of = move |zone: &str| places.place_of(zone).map(|at| Arc::clone(&looks[at]));
    let desk = Desk::over_store(Arc::clone(&gate), Box::new(looks_of), Recorder::without_log());
    Server { gate, desk: Arc::new(desk), cells, bus, heard, _watching: watching }
}

async fn serve_one(fake: &Fake, file: &[(ZoneId, Definition)]) -> Server {
    serve(vec![Cell::new("only", vec!["*".to_owned()], fake.connect())], file).await
}

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

fn zones(names: &[&str], policy: Policy) -> Vec<(ZoneId, Definition)> {
    names.iter().map(|name| (zone(name), policy.into())).collect()
}

fn policies(names: &[&str], policy: Policy) -> Vec<(ZoneId, Policy)> {
    names.iter().map(|name| (zone(name), policy)).collect()
}

/// Runs on one thread and a clock that jumps from one event to the next.
fn in_virtual_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

/// Lets so many virtual seconds pass.
async fn pass(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}

const AWAY: Refusal = Refusal::StoreAway { retry_after_s: 3 };

/// The token of one who waits, and whether what is told is stale.
fn waits(reply: &Reply) -> (Token, bool) {
    match reply {
        Reply::Waiting { token, stale, .. } => (*token, *stale),
        Reply::Entered { .. } => panic!("is in: {reply:?}"),
    }
}

/// The token, the name of the entry, and when it was.
fn is_in(reply: &Reply) -> (Token, (u32, u64), u64) {
    match reply {
        Reply::Entered { token, pass } => (*token, (pass.epoch, pass.seq), pass.entered_unix_s),
        Reply::Waiting { .. } => panic!("waits: {reply:?}"),
    }
}

fn hold() -> Policy {
    Policy { mode: Mode::Hold, ..Policy::default() }
}

#[test]
fn a_cell_that_is_away_is_no_other_cells_trouble() {
    in_virtual_time(async {
        let (shop, gov) = (Fake::new(), Fake::new());
        gov.set(Is::Down);
        let cells = vec![
            Cell::new("shop", vec!["shop".to_owned(), String::new()], shop.connect()),
            Cell::new("gov", vec!["gov".to_owned()], gov.connect()),
        ];
        let server = serve(cells, &zones(&["shop:a", "plain", "gov:a"], hold())).await;
        let gate = &server.gate;
        let up = || server.cells.all().iter().map(|cell| cell.health().is_up()).collect::<Vec<_>>();
        let shopper = waits(&gate.wait("shop:a", None).await.expect("served")).0;
        waits(&gate.wait("plain", None).await.expect("no tenant is a tenant too"));
        assert_eq!(gate.wait("gov:a", None).await, Err(AWAY));
        assert_eq!(gate.wait("gov:in_the_store_only", None).await, Err(AWAY), "nobody knows yet");
        assert_eq!(gate.wait("elsewhere:a", None).await, Err(Refusal::UnknownZone));
        assert_eq!(up(), [true, false]);
        pass(0.2).await;
        let told = server.cells.zones().await.expect("one answers").expect("kept");
        assert_eq!(told.zones.len(), 2, "{told:?}");

        pass(7.0).await;
        gov.set(Is::Up);
        pass(3.0).await;
        let official = waits(&gate.wait("gov:a", None).await.expect("served")).0;
        assert_eq!(gate.wait("gov:in_the_store_only", None).await, Err(Refusal::UnknownZone));
        assert_eq!(up(), [true, true]);

        for is in [Is::Down, Is::Hanging] {
            pass(2.0).await;
            gov.set(is);
            for round in 0..40 {
                let asked = Instant::now();
                assert!(!waits(&gate.entry("shop:a", &shopper).await.expect("served")).1);
                assert!(asked.elapsed() < Duration::from_millis(200), "another cell's trouble");
                let (_, stale) = waits(&gate.entry("gov:a", &official).await.expect("polls are answered"));
                assert!(asked.elapsed() < Duration::from_millis(1_200));
                assert!(stale || round <= 6, "3 s old, and passes for fresh");
                pass(0.5).await;
            }
            assert_eq!(up(), [true, false]);
            assert_eq!(gate.zones().iter().filter(|(_, answers)| !answers).count(), 1);
            gov.set(Is::Up);
            pass(4.0).await;
            assert!(!waits(&gate.entry("gov:a", &official).await.expect("served")).1, "fresh again");
        }
    });
}

#[test]
fn the_file_fills_an_empty_store_once() {
    in_virtual_time(async {
        let fake = Fake::new();
        let one = serve_one(&fake, &zones(&["A", "B"], hold())).await;
        pass(1.0).await;
        assert_eq!(fake.lock().zones.keys().map(ZoneId::as_str).collect::<Vec<_>>(), ["A", "B"]);
        let other = Policy { admit_per_minute: 5, ..hold() };
        let two = serve_one(&fake, &zones(&["B", "C"], other)).await;
        pass(3.0).await;
        for server in [&one, &two] {
            assert_eq!(server.gate.policies(), policies(&["A", "B"], hold()));
        }
        assert_eq!(fake.lock().zones.len(), 2, "a file does not add to a store that has zones");
        let first = waits(&one.gate.wait("A", None).await.expect("served")).0;
        let Reply::Waiting { rank, .. } = two.gate.wait("A", None).await.expect("served") else {
            panic!("nobody enters a held zone")
        };
        assert_eq!(rank, 2, "one line for both servers");
        waits(&two.gate.entry("A", &first).await.expect("a place that the other server gave out"));
    });
}

#[test]
fn a_file_does_not_add_to_a_store_that_was_away_at_the_start() {
    in_virtual_time(async {
        let fake = Fake::new();
        fake.put_zone(&zone("KEPT"), hold()).await.expect("put");
        fake.set(Is::Down);
        let server = serve_one(&fake, &zones(&["FILE"], hold())).await;
        assert_eq!(server.gate.wait("FILE", None).await, Err(AWAY));
        pass(10.0).await;
        fake.set(Is::Up);
        pass(3.0).await;
        assert_eq!(server.gate.policies(), policies(&["KEPT"], hold()));
        assert_eq!(fake.lock().zones.len(), 1);
    });
}

#[test]
fn a_change_in_the_store_is_in_force_within_a_second() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A", "B"], hold())).await;
        // Other moments of the watcher's round each time.
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            let closed = Policy { mode: Mode::Closed, ..Policy::default() };
            fake.put_zone(&zone("A"), closed).await.expect("put");
            fake.put_zone(&zone("NEW"), hold()).await.expect("put");
            fake.lock().zones.remove(&zone("B"));
            pass(1.0).await;
            let refused = server.gate.wait("A", None).await;
            assert_eq!(refused, Err(Refusal::Closed { retry_after_s: 60 }), "round {round}");
            waits(&server.gate.wait("NEW", None).await.expect("served"));
            assert_eq!(server.gate.wait("B", None).await, Err(Refusal::UnknownZone), "round {round}");
            assert!(!fake.lock().zones.contains_key(&zone("B")), "what was taken away stays away");
            fake.put_zone(&zone("A"), hold()).await.expect("put");
            fake.put_zone(&zone("B"), hold()).await.expect("put");
            fake.lock().zones.remove(&zone("NEW"));
            pass(1.0).await;
            waits(&server.gate.wait("A", None).await.expect("open again"));
            waits(&server.gate.wait("B", None).await.expect("back"));
        }
    });
}

#[test]
fn a_zone_that_was_just_put_is_not_called_unknown() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        // Other moments of the watcher's round each time.
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            let new = format!("NEW{round}");
            fake.put_zone(&zone(&new), hold()).await.expect("put");
            // What a server knows is as old as this at most.
            pass(0.15).await;
            match server.gate.wait(&new, None).await {
                refused @ Err(_) => assert_eq!(refused, Err(AWAY)),
                answer => drop(waits(&answer.expect("served already"))),
            }
            pass(1.0).await;
            waits(&server.gate.wait(&new, None).await.expect("served"));
            assert_eq!(server.gate.wait("OTHER", None).await, Err(Refusal::UnknownZone));
        }
    });
}

#[test]
fn unknown_names_cost_the_store_little() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        let (before, start) = (fake.lock().lists, Instant::now());
        while start.elapsed() < Duration::from_secs(3) {
            let mut asking = JoinSet::new();
            for name in 0..100 {
                let gate = Arc::clone(&server.gate);
                asking.spawn(async move { gate.wait(&format!("NO{name}"), None).await });
            }
            while let Some(answer) = asking.join_next().await {
                assert_eq!(answer.expect("no panic"), Err(Refusal::UnknownZone));
            }
            pass(0.01).await;
        }
        let asked = fake.lock().lists - before;
        assert!((10..=21).contains(&asked), "30,000 names, and the store was asked {asked} times");
        // While it can't say, nothing is called unknown.
        fake.set(Is::Down);
        pass(1.0).await;
        assert_eq!(server.gate.wait("NO", None).await, Err(AWAY));
    });
}

#[test]
fn an_emptied_store_is_given_its_zones_back() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { admit_per_minute: 1, ..Policy::default() };
        fake.put_zone(&zone("KEPT"), policy).await.expect("put");
        let servers = [serve_one(&fake, &[]).await, serve_one(&fake, &[]).await];
        pass(0.3).await;
        is_in(&servers[0].gate.wait("KEPT", None).await.expect("the minute's only slot"));
        fake.wipe();
        for _ in 0..100 {
            for server in &servers {
                let answer = server.gate.wait("KEPT", None).await;
                assert_ne!(answer, Err(Refusal::UnknownZone));
            }
            pass(0.03).await;
        }
        assert_eq!(fake.policies(), [(zone("KEPT"), policy)]);
        assert!(servers[1].gate.wait("KEPT", None).await.is_ok());
    });
}

#[test]
fn idle_zones_cost_nothing() {
    in_virtual_time(async {
        let fake = Fake::new();
        let names: Vec<String> = (0..300).map(|n| format!("Z{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let server = serve_one(&fake, &zones(&names, Policy::default())).await;
        pass(5.0).await;
        let before = fake.lock().calls;
        pass(600.0).await;
        assert_eq!(fake.lock().calls, before, "not a call about a zone that nobody uses");
        is_in(&server.gate.wait("Z7", None).await.expect("served all the same"));
    });
}

#[test]
fn who_asks_too_often_keeps_the_place_and_costs_the_store_nothing() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { idle_timeout_s: 10, ..hold() };
        let server = serve_one(&fake, &zones(&["a"], policy)).await;
        let gate = &server.gate;
        let silent = waits(&gate.wait("a", None).await.expect("served")).0;
        let eager = waits(&gate.wait("a", None).await.expect("served")).0;
        let calls = || fake.lock().calls;
        let before = calls();
        // Three idle times long, no poll is answered.
        for _ in 0..3_000 {
            gate.limited("a", LimitedCall::Entry, 1, Some(&eager));
            pass(0.01).await;
        }
        assert!(calls() - before <= 32, "{} calls: more than a beat a second", calls() - before);
        assert_eq!(gate.entry("a", &silent).await, Err(Refusal::Gone));
        let Ok(Reply::Waiting { rank, .. }) = gate.entry("a", &eager).await else { panic!("is gone") };
        assert_eq!(rank, 1);
        // What is no token of the zone is nobody's presence.
        let before = calls();
        gate.limited("a", LimitedCall::Wait, 1, None);
        gate.limited("a", LimitedCall::Entry, 1, Some(b"nonsense"));
        gate.limited("nowhere", LimitedCall::Entry, 1, Some(&eager));
        assert_eq!(calls(), before);
    });
}

/// What a stream is told is what a poll of the same instant hears, and counts as one: whoever is looked at stays.
#[test]
fn a_look_is_a_poll() {
    in_virtual_time(async {
        let fake = Fake::new();
        let policy = Policy { admit_per_minute: 60, polling_period_ms: 20_000, ..Policy::default() };
        let held = Policy { mode: Mode::Hold, idle_timeout_s: 60, ..policy };
        let server = serve_one(&fake, &[(zone("MOVES"), policy.into()), (zone("HELD"), held.into())]).await;
        let gate = &server.gate;
        let join = async |name: &str| {
            let joined = gate.wait(name, None).await.expect("served");
            let (Reply::Waiting { token, .. } | Reply::Entered { token, .. }) = joined;
            seals().sealer(&zone(name)).open(&token).expect("ours")
        };
        let mut tickets = Vec::new();
        for _ in 0..400 {
            tickets.push(join("MOVES").await);
        }
        let (mut looked, mut periods) = (0, HashSet::new());
        for _ in 0..15 {
            pass(1.0).await;
            let glance = gate.glance("MOVES").expect("served");
            for ticket in &tickets {
                let Some((told, newer)) = glance.look(*ticket) else { continue };
                let polled = gate.claim("MOVES", *ticket).await.expect("served");
                let token = glance.seal(&newer);
                let Wait { rank, told, reason, polling_period_ms, stale } = told;
                let wanted = Reply::Waiting { token, rank, told, reason, polling_period_ms, stale };
                assert_eq!(polled, (wanted, newer));
                looked += 1;
                periods.insert(polling_period_ms);
            }
        }
        assert!(looked >= 1_000 && periods.len() >= 100, "{looked} looks, {} periods", periods.len());

        let [looked_at, silent] = [join("HELD").await, join("HELD").await];
        for _ in 0..90 {
            pass(1.0).await;
            let glance = gate.glance("HELD").expect("served");
            assert!(glance.look(looked_at).is_some());
        }
        assert!(gate.claim("HELD", looked_at).await.is_ok());
        assert_eq!(gate.claim("HELD", silent).await, Err(Refusal::Gone));
    });
}

#[test]
fn an_open_zone_lets_people_in_while_the_store_is_away() {
    in_virtual_time(async {
        let fake = Fake::new();
        let slow = Policy { admit_per_minute: 1, ..Policy::default() };
        let open = Policy { on_store_failure: OnStoreFailure::Open, ..slow };
        let held = Policy { mode: Mode::Hold, ..open };
        let file =
            [("OPEN", open), ("SHUT", slow), ("HELD", held)].map(|(name, policy)| (zone(name), policy));
        let server = serve_one(&fake, &file.map(|(zone, policy)| (zone, policy.into()))).await;
        let (gate, unseen) = (&server.gate, || server.bus.published(Kind::AdmittedUnseen));
        let mut holders = Vec::new();
        for name in ["OPEN", "SHUT", "HELD"] {
            gate.wait(name, None).await.expect("the first takes the slot, or waits");
            holders.push(waits(&gate.wait(name, None).await.expect("served")).0);
        }
        pass(2.0).await;
        let mine = seals().sealer(&zone("OPEN")).open(&holders[0]).expect("ours");

        // A single failing call opens nothing.
        fake.set(Is::Down);
        assert_eq!(gate.wait("OPEN", None).await, Err(AWAY));
        assert!(waits(&gate.entry("OPEN", &holders[0]).await.expect("stale")).1);
        fake.set(Is::Up);
        pass(1.5).await;
        assert!(!waits(&gate.entry("OPEN", &holders[0]).await.expect("fresh")).1);
        assert_eq!(unseen(), 0);

        fake.set(Is::Hanging);
        pass(5.0).await;
        let newcomers = [gate.wait("OPEN", None).await, gate.wait("OPEN", None).await];
        let newcomers = newcomers.map(|reply| is_in(&reply.expect("open")));
        assert!(newcomers[0].1.0 == 0 && newcomers[1].1.0 == 0 && newcomers[0].1 != newcomers[1].1);
        let (token, entry, _) = is_in(&gate.entry("OPEN", &holders[0]).await.expect("open"));
        assert_eq!(entry, (mine.epoch, mine.seq));
        assert_eq!(unseen(), 3);
        let again = gate.wait("OPEN", Some(&newcomers[0].0)).await.map(|reply| is_in(&reply));
        assert_eq!(again, Ok(newcomers[0]));
        assert_eq!(unseen(), 3, "told again is not let in again");
        assert_eq!(gate.entry("OPEN", &holders[1]).await, Err(Refusal::BadToken), "of another zone");
        for (name, holder) in [("SHUT", &holders[1]), ("HELD", &holders[2])] {
            assert!(waits(&gate.entry(name, holder).await.expect("polls are answered")).1, "{name}");
            assert_eq!(gate.wait(name, None).await, Err(AWAY), "{name}");
        }

        fake.set(Is::Up);
        pass(5.0).await;
        let again = gate.entry("OPEN", &newcomers[0].0).await.map(|reply| is_in(&reply));
        assert_eq!(again, Ok(newcomers[0]), "the same pass, with the store back");
        let mut later = gate.entry("OPEN", &token).await.expect("served");
        waits(&later);
        while let Reply::Waiting { polling_period_ms, .. } = later {
            sleep(Duration::from_millis(polling_period_ms.into())).await;
            later = gate.entry("OPEN", &token).await.expect("served");
        }
        assert_eq!(is_in(&later).1, entry, "by either way, one entry");
        assert_eq!(unseen(), 3);
    });
}

#[test]
fn a_hanging_store_holds_a_bounded_number_for_a_bounded_time() {
    in_virtual_time(async {
        let fake = Fake::new();
        let server = serve_one(&fake, &zones(&["A"], hold())).await;
        let holder = waits(&server.gate.wait("A", None).await.expect("served")).0;
        pass(1.5).await;
        fake.set(Is::Hanging);
        let started = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..20_000 {
            let gate = Arc::clone(&server.gate);
            asking.spawn(async move { gate.wait("A", None).await });
        }
        let (mut busy, mut away) = (0, 0);
        while let Some(answer) = asking.join_next().await {
            match answer.expect("no panic") {
                Err(Refusal::Busy { .. }) => busy += 1,
                Err(Refusal::StoreAway { .. }) => away += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(busy > 1_000 && busy + away == 20_000, "{busy} busy, {away} away");
        assert!(started.elapsed() < Duration::from_millis(5_100), "{:?}", started.elapsed());
        let asked = Instant::now();
        assert!(waits(&server.gate.entry("A", &holder).await.expect("answered")).1);
        assert_eq!(server.gate.wait("A", None).await, Err(AWAY));
        assert!(asked.elapsed() < Duration::from_millis(10), "known to be away: nobody waits to hear it");

        fake.set(Is::Up);
        pass(4.5).await;
        assert!(!waits(&server.gate.entry("A", &holder).await.expect("answered")).1);
        assert!(server.gate.wait("A", None).await.is_ok());
    });
}

fn closed() -> Policy {
    Policy { mode: Mode::Closed, ..Policy::default() }
}

/// Servers of one store that hear each other.
async fn hearing(fake: &Fake, air: &Air, count: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        let cell = Cell::new("only", vec!["*".to_owned()], fake.connect());
        servers.push(serve_hearing(vec![cell], &zones(&["A", "B"], hold()), Some(air)).await);
    }
    pass(5.0).await;
    servers
}

fn in_force(servers: &[Server], name: &str, policy: Policy) -> usize {
    servers.iter().filter(|server| server.gate.policy(name) == Some(policy)).count()
}

#[test]
fn what_is_said_is_asked_for_at_once_and_nobody_repeats_it() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 8).await;
        assert_eq!(air.count(), 0, "what a server finds when it starts is no news");
        for (round, policy) in (1..).zip([closed(), hold(), closed()]) {
            fake.put_zone(&zone("A"), policy).await.expect("put");
            fanout::say(&air, Speaker::new(), &zone("A"), Some(&policy.into())).await.expect("said");
            pass(0.03).await;
            assert_eq!(in_force(&servers, "A", policy), 8, "round {round}");
            pass(5.0).await;
            assert_eq!(air.count(), round, "who heard it does not say it again");
            assert!(servers.iter().all(|server| server.heard.heard.get() == round as u64));
        }
        fake.put_zone(&zone("NEW"), hold()).await.expect("put");
        fanout::say(&air, Speaker::new(), &zone("NEW"), Some(&hold().into())).await.expect("said");
        pass(0.03).await;
        assert_eq!(in_force(&servers, "NEW", hold()), 8);
    });
}

#[test]
fn who_finds_a_change_that_nobody_said_says_so() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 8).await;
        // They ask at different times of the half second.
        let policies = (1..=10).map(|n| Policy { admit_per_minute: n, ..hold() });
        for policy in policies {
            let said = air.count();
            fake.put_zone(&zone("A"), policy).await.expect("put");
            while in_force(&servers, "A", policy) == 0 {
                pass(0.001).await;
            }
            // The bus wakes those who speak from a thread of its own, which has no part in this clock.
            let mut waits = 0..1_000_000;
            while air.count() == said {
                assert!(waits.next().is_some(), "nobody says it");
                std::thread::yield_now();
                pass(0.001).await;
            }
            pass(0.03).await;
            assert_eq!(in_force(&servers, "A", policy), 8);
            pass(5.0).await;
        }
        assert!(air.count() <= 8 * 10, "each says each change once at most: {} times", air.count());
    });
}

#[test]
fn nothing_depends_on_what_is_said() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 3).await;
        air.still.store(true, Ordering::Relaxed);
        for round in 0..10 {
            pass(3.0 + 0.07 * f64::from(round)).await;
            for policy in [closed(), hold()] {
                fake.put_zone(&zone("A"), policy).await.expect("put");
                pass(1.0).await;
                assert_eq!(in_force(&servers, "A", policy), 3, "round {round}");
            }
        }
    });
}

#[test]
fn a_flood_costs_the_store_little_and_changes_nothing() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 2).await;
        let (lists, before) = (fake.lock().lists, servers[0].gate.policies());
        let flooded = Instant::now();
        // Each is news: another state, of zones that are there and of such that are not.
        for digest in 0..20_000 {
            let name = if digest % 2 == 0 { "A" } else { "NONE" };
            let state = if digest % 3 == 0 { State::Gone } else { State::Has(digest) };
            air.say(Message { speaker: Speaker::new(), zone: zone(name), state }.to_bytes());
            if digest % 10 == 0 {
                pass(0.001).await;
            }
        }
        // Ten milliseconds apart, and the usual two a second; of each server.
        let most = 2 * (flooded.elapsed().as_millis() / 10 + flooded.elapsed().as_millis() / 500 + 2);
        let asked = fake.lock().lists - lists;
        assert!(asked as u128 <= most, "asked {asked} times, {most} are the most");
        assert!(asked as u128 > most / 4, "it was a flood: asked {asked} times");
        assert_eq!(servers[0].gate.policies(), before);
        // The last of them are still on their way.
        pass(0.1).await;
        assert_eq!(servers[0].heard.heard.get() + servers[0].heard.missed.get(), 20_000);

        // What is in force already is not asked for.
        pass(10.0).await;
        let lists = fake.lock().lists;
        for _ in 0..1_000 {
            fanout::say(&air, Speaker::new(), &zone("A"), Some(&hold().into())).await.expect("said");
            pass(0.001).await;
        }
        assert!(fake.lock().lists - lists <= 2 * 3, "the usual two a second");
    });
}

#[test]
fn a_cell_that_is_away_is_not_asked_more_often_for_being_talked_of() {
    in_virtual_time(async {
        let (fake, air) = (Fake::new(), Air::new());
        let servers = hearing(&fake, &air, 1).await;
        fake.set(Is::Down);
        pass(2.0).await;
        let lists = fake.lock().lists;
        for digest in 0..1_000 {
            let message = Message { speaker: Speaker::new(), zone: zone("A"), state: State::Has(digest) };
            air.say(message.to_bytes());
            pass(0.001).await;
        }
        assert!(fake.lock().lists - lists <= 4, "asked {} times", fake.lock().lists - lists);
        fake.set(Is::Up);
        fake.put_zone(&zone("A"), closed()).await.expect("put");
        pass(1.0).await;
        assert_eq!(in_force(&servers, "A", closed()), 1);
    });
}

#[test]
fn zones_are_applied_and_what_was_there_stays() {
    in_virtual_time(async {
        let (one, two) = (Fake::new(), Fake::new());
        two.set(Is::Down);
        let cells = Cells::new(vec![
            Cell::new("one", vec!["*".to_owned()], one.connect()),
            Cell::new("two", vec!["two".to_owned()], two.connect()),
        ]);
        let other = Policy { admit_per_minute: 60, ..Policy::default() };
        for (name, policy) in [("same", other), ("changed", Policy::default()), ("mine", hold())] {
            one.put_zone(&zone(name), policy).await.expect("put");
        }
        let wanted = zones(&["same", "changed", "new", "two:a"], other);
        let applied = apply(&cells, &wanted, async |_, _, _| {}).await;
        let away = StoreError::Away("two: refused".to_owned());
        let outcomes = [
            ("same", Outcome::Unchanged),
            ("changed", Outcome::Changed(vec!["admit_per_minute 10000 -> 60".to_owned()])),
            ("new", Outcome::Created(other.into())),
            ("two:a", Outcome::Failed(away.clone())),
        ];
        assert_eq!(applied.zones, outcomes.map(|(name, outcome)| (zone(name), outcome)));
        assert_eq!((applied.others, applied.failure()), (1, Some(&away)));
        let text = applied.to_string();
        assert!(
            text.starts_with("unchanged  same\nchanged    changed  admit_per_minute 10000 -> 60\n"),
            "{text}"
        );
        let sum = "1 created, 1 changed, 1 unchanged, 1 failed; 1 more in the store stay as they are\n";
        assert!(text.ends_with(sum), "{text}");
        two.set(Is::Up);
        assert_eq!(
            apply(&cells, &wanted, async |_, _, _| {}).await.zones[3].1,
            Outcome::Created(other.into())
        );
        let again = apply(&cells, &wanted, async |_, _, _| {}).await;
        assert!(again.zones.iter().all(|(_, outcome)| *outcome == Outcome::Unchanged), "{again}");
        assert_eq!(one.lock().zones[&zone("mine")], hold().into());
    });
}
