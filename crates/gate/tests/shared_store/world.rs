//! A store in memory that several servers share and that can be made to fail, and the servers over it.

use std::{
    collections::BTreeMap,
    future::{Future, Ready, ready},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use admission::{
    Census, Claim, Deal, Dealt, Decided, Definition, Departure, JoinKey, Leaver, Mode, Now, PagePolls,
    Policy, SealKey, Seals, Snapshot, Ticket, ZoneId,
};
use events::Bus;
use gate::{
    Gate, Refusal, Reply, Token, Watcher,
    cells::{Cell, Cells},
    definitions::ZoneEditor,
};
use store::{
    Defined, Engine, Expected, JoinedOnce, LeftVisits, Line, MemoryJournal, RegisterContents, RoutesDefined,
    Store, StoreError,
};
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
    /// A newer version wrote the state.
    Newer,
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
    /// When it got its first zone, in milliseconds since 1970: an hour before it did, until it is wiped.
    pub(crate) began_ms: Option<u64>,
    pub(crate) age_ms: u64,
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
    /// How long a call is on its way. If that is more than [`NEAR`], the answer takes as long.
    way: Duration,
}

const NEAR: Duration = Duration::from_millis(1);

const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// When the store starts by its clock, in seconds since 1970.
pub(crate) const START_S: u32 = 1_790_000_000;

impl Fake {
    pub(crate) fn new() -> Self {
        let engine = Engine::new(MemoryJournal::default()).expect("memory");
        let zones = BTreeMap::new();
        let state = Held {
            engine,
            zones,
            routes: None,
            began_ms: None,
            age_ms: 3_600_000,
            epoch: 7,
            is: Is::Up,
            calls: 0,
            lists: 0,
            panics: false,
        };
        Self { state: Arc::new(Mutex::new(state)), start: Instant::now(), way: NEAR }
    }

    /// The line of a zone; here and not only in the trait, because a clone shares the state like an `Arc`.
    pub(crate) fn line(&self, zone: &ZoneId) -> FakeLine {
        FakeLine { fake: self.clone(), zone: zone.clone() }
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
        (state.began_ms, state.age_ms) = (None, 0);
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
        sleep(self.way).await;
        let is = self.lock().is;
        match is {
            Is::Up => {}
            Is::Slow => sleep(Duration::from_millis(100)).await,
            Is::Frozen => std::future::pending().await,
            Is::Newer => {
                let why = "a newer version of Weir wrote it: the state of the zone has 70 numbers".to_owned();
                return Err(StoreError::Away(why));
            }
            Is::Hanging | Is::Down => {
                if is == Is::Hanging {
                    sleep(COMMAND_TIMEOUT).await;
                }
                return Err(StoreError::Away("no answer".to_owned()));
            }
        }
        let decided = decide(&mut self.lock(), self.now());
        if self.way > NEAR {
            sleep(self.way).await;
        }
        decided
    }

    /// The same store, as those see it to whom each way takes so long.
    pub(crate) fn seen_from(&self, way: Duration) -> Self {
        Self { way, ..self.clone() }
    }

    /// How long ago the store started, in seconds.
    pub(crate) fn age_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn now(&self) -> Now {
        let ms = u64::try_from(self.start.elapsed().as_millis()).expect("short");
        let ms = u64::from(START_S) * 1_000 + ms;
        Now { ms, unix_ms: ms }
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
    /// It has had a zone from now on. Returns whether it had one before.
    fn begin(&mut self, now: Now) -> bool {
        let had = self.began_ms.is_some();
        self.began_ms.get_or_insert(now.unix_ms - self.age_ms);
        had
    }

    fn kept(&self, now: Now) -> RegisterContents {
        let zones = self.zones.iter().map(|(zone, kept)| (zone.clone(), kept.clone())).collect();
        let (is_new, began_ms) = (self.began_ms.is_none(), self.began_ms.unwrap_or(0));
        RegisterContents { zones, routes: self.routes.clone(), is_new, unix_ms: now.unix_ms, began_ms }
    }
}

impl Store for Fake {
    type Line = FakeLine;

    async fn zones(&self) -> Result<Option<RegisterContents>> {
        self.lock().lists += 1;
        self.answer(|state, now| Ok(Some(state.kept(now)))).await
    }

    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<RegisterContents> {
        self.answer(|state, now| {
            if !state.begin(now) {
                state.zones = zones.iter().cloned().collect();
            }
            Ok(state.kept(now))
        })
        .await
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        self.answer(|state, now| {
            let before = state.zones.get(zone).cloned();
            if !expected.holds(before.as_ref()) {
                return Ok(Defined::Otherwise(before));
            }
            state.begin(now);
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

    fn line(self: &Arc<Self>, zone: &ZoneId) -> FakeLine {
        Fake::line(self, zone)
    }
}

/// The line of one zone.
pub(crate) struct FakeLine {
    fake: Fake,
    zone: ZoneId,
}

impl FakeLine {
    async fn decide<T>(
        &self,
        decide: impl FnOnce(&mut Engine<MemoryJournal>, &ZoneId, Now) -> Result<T>,
    ) -> Result<T> {
        self.fake.decide(&self.zone, |engine, now| decide(engine, &self.zone, now)).await
    }
}

impl Line for FakeLine {
    async fn open(&self, _: Policy) -> Result<Snapshot> {
        let now_s = self.fake.now().unix_ms / 1_000;
        let kept = self.fake.lock().zones.get(&self.zone).map(|kept| kept.policy_at(now_s));
        self.fake.open(&self.zone, kept.ok_or(StoreError::UnknownZone)?).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot> {
        let snapshot = self.fake.open(&self.zone, policy).await?;
        let now = self.fake.now();
        let mut state = self.fake.lock();
        state.begin(now);
        state.zones.entry(self.zone.clone()).or_default().policy = policy;
        Ok(snapshot)
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce> {
        self.decide(|engine, zone, now| engine.join_once(zone, &keys, now)).await
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>> {
        self.decide(|engine, zone, now| engine.joined_before(zone, &keys, now)).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided> {
        self.decide(|engine, zone, now| engine.enter(zone, &claims, now)).await
    }

    async fn beat(&self, polls: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot> {
        self.decide(|engine, zone, now| engine.beat(zone, &polls, longest_period_ms, now)).await
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits> {
        self.decide(|engine, zone, now| engine.visits(zone, &seen, now)).await
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        self.decide(|engine, zone, now| engine.leave(zone, &leavers, now)).await
    }

    async fn census(&self) -> Result<Census> {
        self.decide(Engine::census).await
    }

    async fn deal(&self, deal: Deal, anyway: bool) -> Result<Dealt> {
        self.decide(|engine, zone, now| engine.deal(zone, &deal, anyway, now)).await
    }

    async fn keep_draw(&self, draw: u32, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.decide(|engine, zone, now| engine.keep_draw(zone, draw, new, now)).await
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64> {
        self.decide(|engine, zone, now| engine.bind(zone, claim, address, now)).await
    }
}

/// A server as `weir serve` assembles it. Its watchers end with it.
pub(crate) struct Server {
    pub(crate) gate: Arc<Gate<Cells<Fake>>>,
    pub(crate) editor: Arc<ZoneEditor<Cells<Fake>>>,
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
    let gate = Gate::new(Arc::clone(&cells), seals(), Arc::clone(&bus));
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
        Reply::Waiting { token, status } => (*token, status.stale),
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
