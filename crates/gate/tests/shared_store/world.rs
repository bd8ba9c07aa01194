//! A store in memory that several servers share and that can be made to fail, and the servers over it.

use std::{
    collections::BTreeMap,
    future::{Future, Ready, ready},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use admission::{
    Claim, Decided, Definition, Departure, Joined, Leaver, Mode, Now, PagePolls, Policy, SealKey, Seals,
    Snapshot, ZoneId,
};
use events::Bus;
use gate::{
    Gate, Refusal, Reply, Token, Watcher,
    cells::{Cell, Cells},
    definitions::ZoneEditor,
};
use store::{Defined, Engine, Expected, Kept, Left, MemoryJournal, RoutesDefined, Store, StoreError};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{Instant, sleep},
};

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// How a store behaves.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Is {
    Up,
    /// Calls fail at once.
    Down,
    /// Calls fail after the time that a client gives them.
    Hanging,
    /// Calls are answered after 100 ms.
    Slow,
    /// Calls are never answered.
    Frozen,
}

pub(crate) struct Held {
    pub(crate) engine: Engine<MemoryJournal>,
    pub(crate) zones: BTreeMap<ZoneId, Definition>,
    pub(crate) routes: Option<Arc<str>>,
    /// It kept a zone at some time.
    pub(crate) begun: bool,
    pub(crate) epoch: u32,
    pub(crate) is: Is,
    pub(crate) calls: usize,
    /// How often its zones were read.
    pub(crate) lists: usize,
    /// The next call panics.
    pub(crate) panics: bool,
}

/// A store in memory, shared by all servers that are connected to it.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<Held>>,
    start: Instant,
}

const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

impl Fake {
    pub(crate) fn new() -> Self {
        let engine = Engine::new(MemoryJournal::default()).expect("memory");
        let zones = BTreeMap::new();
        let state = Held {
            engine,
            zones,
            routes: None,
            begun: false,
            epoch: 7,
            is: Is::Up,
            calls: 0,
            lists: 0,
            panics: false,
        };
        Self { state: Arc::new(Mutex::new(state)), start: Instant::now() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.state.lock().expect("no panic")
    }

    pub(crate) fn set(&self, is: Is) {
        self.lock().is = is;
    }

    /// Loses everything.
    pub(crate) fn wipe(&self) {
        let mut state = self.lock();
        state.engine = Engine::new(MemoryJournal::default()).expect("memory");
        state.zones.clear();
        state.begun = false;
        state.epoch += 1;
    }

    pub(crate) fn connect(&self) -> impl Fn() -> Ready<Result<Self>> + Send + Sync + use<> {
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
        match is {
            Is::Up => {}
            Is::Slow => sleep(Duration::from_millis(100)).await,
            Is::Frozen => std::future::pending().await,
            Is::Hanging | Is::Down => {
                if is == Is::Hanging {
                    sleep(COMMAND_TIMEOUT).await;
                }
                return Err(StoreError::Away("no answer".to_owned()));
            }
        }
        let ms = u64::try_from(self.start.elapsed().as_millis()).expect("short");
        let now = Now { ms: 1_790_000_000_000 + ms, unix_ms: 1_790_000_000_000 + ms };
        decide(&mut self.lock(), now)
    }

    async fn decide<T>(
        &self,
        zone: &ZoneId,
        decide: impl FnOnce(&mut Engine<MemoryJournal>, Now) -> Result<T>,
    ) -> Result<T> {
        let panics = std::mem::take(&mut self.lock().panics);
        assert!(!panics, "as the test wants");
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

    /// Puts a policy into the line.
    async fn open(&self, zone: &ZoneId, policy: Policy) -> Result<Snapshot> {
        self.answer(|state, now| {
            state.calls += 1;
            let view = state.engine.put_zone(zone, policy, state.epoch, now);
            state.engine.commit(now)?;
            view
        })
        .await
    }

    /// The zones with their policies.
    pub(crate) fn policies(&self) -> Vec<(ZoneId, Policy)> {
        self.lock().zones.iter().map(|(zone, kept)| (zone.clone(), kept.policy)).collect()
    }
}

impl Held {
    fn kept(&self) -> Kept {
        let zones = self.zones.iter().map(|(zone, kept)| (zone.clone(), kept.clone())).collect();
        Kept { zones, routes: self.routes.clone(), is_new: !self.begun, unix_ms: store::unix_ms() }
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

    async fn define_routes(&self, expected: Option<&str>, new: &str) -> Result<RoutesDefined> {
        self.answer(|state, _| {
            if state.routes.as_deref() != expected {
                return Ok(RoutesDefined::Otherwise(state.routes.clone()));
            }
            state.routes = Some(new.into());
            Ok(RoutesDefined::Done)
        })
        .await
    }

    async fn open_zone(&self, zone: &ZoneId, _: Policy) -> Result<Snapshot> {
        let kept = self.lock().zones.get(zone).map(|kept| kept.policy);
        self.open(zone, kept.ok_or(StoreError::UnknownZone)?).await
    }

    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<Snapshot> {
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

    async fn beat(&self, zone: &ZoneId, polls: Vec<PagePolls>, told_ms: u32) -> Result<Snapshot> {
        self.decide(zone, |engine, now| engine.beat(zone, &polls, told_ms, now)).await
    }

    async fn visits(&self, zone: &ZoneId, seen: Vec<PagePolls>) -> Result<Left> {
        self.decide(zone, |engine, now| engine.visits(zone, &seen, now)).await
    }

    async fn leave(&self, zone: &ZoneId, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        self.decide(zone, |engine, now| engine.leave(zone, &leavers, now)).await
    }

    async fn bind(&self, zone: &ZoneId, claim: Claim, address: u64) -> Result<u64> {
        self.decide(zone, |engine, now| engine.bind(zone, claim, address, now)).await
    }
}

/// The cells of one server: its watchers and its gate share them.
pub(crate) struct Shared(pub Arc<Cells<Fake>>);

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
    async fn define_routes(&self, expected: Option<&str>, new: &str) -> Result<RoutesDefined> {
        self.0.define_routes(expected, new).await
    }

    async fn open_zone(&self, zone: &ZoneId, policy: Policy) -> Result<Snapshot> {
        self.0.open_zone(zone, policy).await
    }
    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<Snapshot> {
        self.0.put_zone(zone, policy).await
    }
    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined> {
        self.0.join(zone, count).await
    }
    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided> {
        self.0.enter(zone, claims).await
    }
    async fn beat(&self, zone: &ZoneId, polls: Vec<PagePolls>, told_ms: u32) -> Result<Snapshot> {
        self.0.beat(zone, polls, told_ms).await
    }
    async fn visits(&self, zone: &ZoneId, seen: Vec<PagePolls>) -> Result<Left> {
        self.0.visits(zone, seen).await
    }

    async fn leave(&self, zone: &ZoneId, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        self.0.leave(zone, leavers).await
    }

    async fn bind(&self, zone: &ZoneId, claim: Claim, address: u64) -> Result<u64> {
        self.0.bind(zone, claim, address).await
    }
}

/// A server as `weir serve` assembles it. Its watchers end with it.
pub(crate) struct Server {
    pub(crate) gate: Arc<Gate<Shared>>,
    pub(crate) editor: Arc<ZoneEditor<Shared>>,
    pub(crate) cells: Arc<Cells<Fake>>,
    pub(crate) bus: Arc<Bus>,
    /// Notify this, and the last cell's watcher refreshes at once.
    pub(crate) news: Arc<Notify>,
    pub(crate) watching: JoinSet<()>,
}

pub(crate) fn seals() -> Seals {
    Seals::only(SealKey { id: 1, secret: [1; 32] })
}

pub(crate) async fn serve(cells: Vec<Cell<Fake>>, file: &[(ZoneId, Definition)]) -> Server {
    let cells = Arc::new(Cells::new(cells));
    let bus = Arc::new(Bus::with_rings(|_| 64).expect("a thread"));
    let gate = Gate::new(Shared(Arc::clone(&cells)), seals(), Arc::clone(&bus));
    let gate = Arc::new(gate);
    let mut watching = JoinSet::new();
    let (mut firsts, mut news, mut refreshes) = (Vec::new(), Arc::default(), Vec::new());
    for at in 0..cells.all().len() {
        let (told, first) = oneshot::channel();
        firsts.push(first);
        let watcher = Watcher::new(Arc::clone(&gate), Arc::clone(&cells), at, file);
        news = watcher.news();
        refreshes.push(watcher.refresh());
        watching.spawn(watcher.run(told, Arc::new(Notify::new())));
    }
    for first in firsts {
        first.await.expect("each cell is asked");
    }
    let places = Arc::clone(&cells);
    let refresh_of = move |zone: &str| places.place_of(zone).map(|at| Arc::clone(&refreshes[at]));
    let editor = ZoneEditor::over_store(Arc::clone(&gate), Box::new(refresh_of), Box::new(|_, _, _| {}));
    Server { gate, editor: Arc::new(editor), cells, bus, news, watching }
}

pub(crate) async fn serve_one(fake: &Fake, file: &[(ZoneId, Definition)]) -> Server {
    serve(vec![Cell::new("only", vec!["*".to_owned()], fake.connect())], file).await
}

pub(crate) fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

pub(crate) fn zones(names: &[&str], policy: Policy) -> Vec<(ZoneId, Definition)> {
    names.iter().map(|name| (zone(name), policy.into())).collect()
}

pub(crate) fn policies(names: &[&str], policy: Policy) -> Vec<(ZoneId, Policy)> {
    names.iter().map(|name| (zone(name), policy)).collect()
}

/// Runs on one thread and a clock that jumps from one event to the next.
pub(crate) fn in_virtual_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

/// Lets so many virtual seconds pass.
pub(crate) async fn pass(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}

pub(crate) const AWAY: Refusal = Refusal::StoreAway { retry_after_s: 3 };

/// The token of a waiting holder, and whether the answer is stale.
pub(crate) fn waits(reply: &Reply) -> (Token, bool) {
    match reply {
        Reply::Waiting { token, stale, .. } => (*token, *stale),
        Reply::Entered { .. } => panic!("is in: {reply:?}"),
    }
}

/// The token, the name of the entry, and when it was.
pub(crate) fn is_in(reply: &Reply) -> (Token, (u32, u64), u64) {
    match reply {
        Reply::Entered { token, pass, .. } => (*token, (pass.epoch, pass.seq), pass.entered_unix_s),
        Reply::Waiting { .. } => panic!("waits: {reply:?}"),
    }
}

pub(crate) fn hold() -> Policy {
    Policy { mode: Mode::Hold, ..Policy::default() }
}

pub(crate) fn closed() -> Policy {
    Policy { mode: Mode::Closed, ..Policy::default() }
}
