//! Two Weir servers over one Redis, and the people who use them. For each call, a user picks one of the two servers at
//! random, and calls again when told to.
//!
//! All but [`LEFT`] entries of the minute are used before the line forms. So if part of the log is lost, too many people
//! enter, and the auditor notices. A [soak](Setting::soak) begins with a line instead, and keeps it long.
//!
//! Invariant: all tasks end with the world.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admission::{
    Claim, Decided, Definition, Departure, JoinKey, Leaver, Mode, PagePolls, Policy, SealKey, Sealer, Seals,
    Snapshot, Ticket, Verdict, ZoneId,
};
use bytes::Bytes;
use events::Bus;
use gate::{Gate, Refusal, Reply, Token, WaitStatus};
use store::{
    JoinedOnce, LeftVisits, Line, RegisterContents, Store, StoreError,
    redis::{
        Durability, Redis, RedisLine,
        address::{Address, Library, Settings},
        client::{AnyClient, Client, ClientError, Confirm, Script, Value},
        scripts::{BEAT, ENTER, JOIN},
    },
};
use tokio::{
    runtime::Runtime,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    auditor::{Answer, Auditor, Figures},
    clock::{eventually, obey_polling_period},
    redis::USERS,
    seed::Random,
};

/// How many may enter in a minute.
const N: usize = 300;

/// How many entries of the minute are left when the line forms.
pub(crate) const LEFT: usize = 45;

/// How many entries may take a slot and not be told at most, if they are told only after a replica has confirmed them, or if a division
/// of the network cuts calls that were decided. Whoever goes on asking is told, so it is no more than holders left in doubt.
const UNTOLD: usize = 3;

/// How many people are in line at the start.
const CROWD: usize = 180;

/// The time between two newcomers.
const NEWCOMER_EVERY: Duration = Duration::from_millis(250);

/// How many people are kept in line in a soak: so few that nobody waits through more losses than the scripts remember epochs
/// (eight).
const SOAK_CROWD: usize = 20;

/// How many may enter in a minute of a soak. A second admits two, so that a line makes up for a pause, and the minute is the
/// limit that counts.
const SOAK_N: u32 = 64;

/// The audited zone.
pub(crate) const ZONE: &str = "HOT";

/// How a world differs from others.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    pub(crate) durability: Durability,
    pub(crate) reach: Reach,
    pub(crate) idle_timeout_s: u32,
    /// Whether the servers do not tell Redis what they know of the zone's clock.
    pub(crate) hides_clock: bool,
    /// Whether the trouble cuts calls whose replies are on their way.
    pub(crate) loses_replies: bool,
    /// Whether the world has no end, and a line at all times.
    pub(crate) soak: bool,
}

impl Setting {
    pub(crate) fn new(name: &'static str, library: Library) -> Self {
        Self {
            name,
            library,
            durability: Durability::Async,
            reach: Reach::Any,
            idle_timeout_s: 10,
            hides_clock: false,
            loses_replies: false,
            soak: false,
        }
    }

    /// Five entries a second, or two in a soak.
    fn policy(&self) -> Policy {
        Policy {
            admit_per_minute: if self.soak { SOAK_N } else { u32::try_from(N).expect("small") },
            sub_windows: 60,
            polling_period_ms: 500,
            idle_timeout_s: self.idle_timeout_s,
            ..Policy::default()
        }
    }

    /// Both zones. Everybody enters the other one at once.
    fn zones(&self, zone: &ZoneId, beside: &ZoneId, mode: Mode) -> Vec<(ZoneId, Definition)> {
        let quiet = Policy { admit_per_minute: 600_000, ..Policy::default() };
        vec![(zone.clone(), Policy { mode, ..self.policy() }.into()), (beside.clone(), quiet.into())]
    }
}

/// Which servers the users reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each user reaches both.
    Any,
    /// Half of the users reach each.
    Halves,
    /// All users reach this one.
    Only(usize),
}

/// What all users share.
struct Scene {
    start: Instant,
    auditor: Mutex<Auditor>,
    zone: ZoneId,
    sealer: Sealer,
}

impl Scene {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).expect("short")
    }

    fn audit(&self) -> MutexGuard<'_, Auditor> {
        self.auditor.lock().expect("nobody panics with it")
    }
}

/// A client that may hide what the server knows of the zone's clock.
struct Caller {
    client: AnyClient,
    hides_clock: bool,
}

impl Client for Caller {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        mut args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        if self.hides_clock && [&JOIN, &ENTER, &BEAT].iter().any(|of_zone| of_zone.name == script.name) {
            // The third and fourth are the bounds of the zone's clock: see `lua/zone.lua`.
            args[2..4].fill(Bytes::from_static(b"0"));
        }
        self.client.run(script, keys, args, confirm).await
    }
}

/// A store that reports to the auditor.
struct Watched {
    redis: Arc<Redis<Caller>>,
    scene: Arc<Scene>,
    /// The number of the server whose store it is.
    server: usize,
}

impl Store for Watched {
    type Line = WatchedLine;

    async fn zones(&self) -> Result<Option<RegisterContents>, StoreError> {
        self.redis.zones().await
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> WatchedLine {
        WatchedLine {
            line: self.redis.line(zone),
            is_watched: *zone == self.scene.zone,
            scene: Arc::clone(&self.scene),
            server: self.server,
        }
    }
}

/// The line of a zone. That of the scene's zone reports to the auditor.
struct WatchedLine {
    line: RedisLine<Caller>,
    is_watched: bool,
    scene: Arc<Scene>,
    server: usize,
}

impl WatchedLine {
    fn heard<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        match &answer {
            Err(error) => self.scene.audit().failed(error.to_string()),
            Ok(_) if self.is_watched => self.scene.audit().answers[self.server] += 1,
            Ok(_) => {}
        }
        answer
    }
}

impl Line for WatchedLine {
    async fn open(&self, policy: Policy) -> Result<Snapshot, StoreError> {
        self.line.open(policy).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot, StoreError> {
        self.line.put(policy).await
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce, StoreError> {
        let asked_ms = self.scene.now_ms();
        let once = self.heard(self.line.join_once(keys).await)?;
        let joined = &once.joined;
        if self.is_watched {
            let mut auditor = self.scene.audit();
            let heard_ms = self.scene.now_ms();
            let answer = Answer { server: self.server, asked_ms, heard_ms, at_ms: joined.at_ms };
            auditor.decided(answer);
            for (seq, verdict) in (joined.first..).zip(&joined.verdicts) {
                auditor.given(joined.epoch, seq);
                if let &Verdict::Entered(entry) = verdict {
                    auditor.entered(answer, (joined.epoch, seq), entry, true);
                }
            }
        }
        Ok(once)
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>, StoreError> {
        self.line.joined_before(keys).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided, StoreError> {
        let asked_ms = self.scene.now_ms();
        let decided = self.heard(self.line.enter(claims.clone()).await)?;
        if self.is_watched {
            let mut auditor = self.scene.audit();
            let heard_ms = self.scene.now_ms();
            let answer = Answer { server: self.server, asked_ms, heard_ms, at_ms: decided.at_ms };
            auditor.decided(answer);
            for (claim, verdict) in claims.iter().zip(&decided.verdicts) {
                if let &Verdict::Entered(entry) = verdict {
                    auditor.entered(answer, (claim.epoch, claim.seq), entry, false);
                }
            }
        }
        Ok(decided)
    }

    async fn beat(&self, polls: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot, StoreError> {
        self.heard(self.line.beat(polls, longest_period_ms).await)
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits, StoreError> {
        self.heard(self.line.visits(seen).await)
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>, StoreError> {
        self.heard(self.line.leave(leavers).await)
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64, StoreError> {
        self.heard(self.line.bind(claim, address).await)
    }

    async fn retire(&self) -> Result<(), StoreError> {
        self.heard(self.line.retire().await)
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        self.line.exchange_learned(new).await
    }
}

/// The two servers.
#[derive(Clone)]
struct Servers {
    /// `None` for a killed one.
    gates: [Option<Arc<Gate<Watched>>>; 2],
    reach: Reach,
}

/// Figures of the other zone.
#[derive(Default)]
struct Beside {
    slowest_ms: AtomicU64,
    refused: AtomicU64,
    joined: AtomicU64,
}

/// The world of one scenario.
pub(crate) struct World {
    setting: Setting,
    runtime: Runtime,
    scene: Arc<Scene>,
    servers: watch::Sender<Servers>,
    beside_zone: ZoneId,
    beside: Arc<Beside>,
    trouble_ms: u64,
    /// For choices of the scenario.
    pub(crate) random: Random,
}

impl World {
    /// Starts the world: all but [`LEFT`] entries of the minute are used, and a line forms. `beside` is a zone in another
    /// shard.
    pub(crate) fn begin(name: &'static str, library: Library, url: &str, beside: &str) -> Self {
        Self::begin_with(Setting::new(name, library), |_| url.to_owned(), beside)
    }

    /// Starts a world. `url` is the address of Redis for the server of one of [`USERS`].
    pub(crate) fn begin_with(setting: Setting, url: impl Fn(&str) -> String, beside: &str) -> Self {
        let mut random = Random::seeded(setting.name);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(server::serve::STACK_BYTES)
            .enable_all()
            .build()
            .expect("a runtime");
        let mut secret = [0; 32];
        secret.copy_from_slice(&random.bytes(32));
        let seals = Seals::only(SealKey { id: 1, secret });
        let zone = ZoneId::parse(ZONE).expect("a name");
        let beside_zone = ZoneId::parse(beside).expect("a name");
        let scene = Arc::new(Scene {
            start: runtime.block_on(async { Instant::now() }),
            auditor: Mutex::new(Auditor::new(setting.policy())),
            sealer: seals.sealer(&zone),
            zone: zone.clone(),
        });
        // A soak begins with a line.
        let mode = if setting.soak { Mode::Hold } else { Mode::Auto };
        let gates = runtime.block_on(async {
            let mut gates = [None, None];
            for (server, gate) in gates.iter_mut().enumerate() {
                let settings = Settings { library: setting.library, ..Settings::default() };
                let address = Address::parse(&url(USERS[server])).expect("an address");
                let client = AnyClient::connect(&address, &settings).await.expect("Redis is there");
                let caller = Caller { client, hides_clock: setting.hides_clock };
                let redis = Arc::new(Redis::new(caller, setting.durability));
                let store = Watched { redis, scene: Arc::clone(&scene), server };
                let bus = Arc::new(Bus::with_rings(|_| 2).expect("a thread"));
                let started = Gate::new(Arc::new(store), seals.clone(), bus);
                started
                    .serve_zones(setting.zones(&zone, &beside_zone, mode))
                    .await
                    .expect("Redis takes the zones");
                *gate = Some(Arc::new(started));
            }
            gates
        });
        let mut world = Self {
            runtime,
            scene,
            servers: watch::Sender::new(Servers { gates, reach: setting.reach }),
            beside_zone,
            beside: Arc::default(),
            trouble_ms: 0,
            random: Random::of(0),
            setting,
        };
        if world.setting.soak {
            world.keep_a_line(&mut random);
        } else {
            world.fill(&mut random);
        }
        world.watch_beside(beside.to_owned(), random.bits());
        world.random = random;
        world
    }

    /// Starts a line, and a newcomer whenever fewer than [`SOAK_CROWD`] people wait.
    fn keep_a_line(&self, random: &mut Random) {
        let (scene, servers, mut random) =
            (Arc::clone(&self.scene), self.servers.subscribe(), Random::of(random.bits()));
        self.runtime.spawn(async move {
            let mut joining: Vec<usize> = Vec::new();
            let mut user = N;
            loop {
                let waiting = {
                    let mut auditor = scene.audit();
                    joining.retain(|user| {
                        let user = auditor.user(*user);
                        user.place.is_none() && !user.left
                    });
                    auditor.waiting() + joining.len()
                };
                for _ in waiting..SOAK_CROWD {
                    joining.push(user);
                    tokio::spawn(live(Arc::clone(&scene), servers.clone(), user, Random::of(random.bits())));
                    user += 1;
                }
                sleep(NEWCOMER_EVERY).await;
            }
        });
        eventually("the line has formed", || (self.scene.audit().places() >= SOAK_CROWD).then_some(()));
        self.serve(Mode::Auto);
    }

    /// Starts the people who use up the minute, then the crowd, then newcomers.
    fn fill(&self, random: &mut Random) {
        for user in 0..N - LEFT {
            self.user(user, random.bits());
        }
        eventually("the minute is nearly used", || {
            (self.scene.audit().entered_in_all() >= N - LEFT).then_some(())
        });
        // The rest of the minute is for the line.
        self.serve(Mode::Hold);
        for user in 0..CROWD {
            self.user(N + user, random.bits());
        }
        eventually("the line has formed", || (self.scene.audit().places() >= N - LEFT + CROWD).then_some(()));
        self.serve(Mode::Auto);
        let (scene, servers, mut random) =
            (Arc::clone(&self.scene), self.servers.subscribe(), Random::of(random.bits()));
        self.runtime.spawn(async move {
            for user in N + CROWD.. {
                sleep(NEWCOMER_EVERY).await;
                tokio::spawn(live(Arc::clone(&scene), servers.clone(), user, Random::of(random.bits())));
            }
        });
    }

    fn serve(&self, mode: Mode) {
        let gates = self.servers.borrow().gates.clone();
        self.runtime.block_on(async {
            for gate in gates.iter().flatten() {
                gate.serve_zones(self.setting.zones(&self.scene.zone, &self.beside_zone, mode))
                    .await
                    .expect("Redis takes the zones");
            }
        });
    }

    fn user(&self, user: usize, seed: u64) {
        let (scene, servers) = (Arc::clone(&self.scene), self.servers.subscribe());
        self.runtime.spawn(live(scene, servers, user, Random::of(seed)));
    }

    /// Joins the other zone every 50 ms, whether or not earlier joins have ended.
    fn watch_beside(&self, zone: String, seed: u64) {
        let (servers, beside, mut random) =
            (self.servers.subscribe(), Arc::clone(&self.beside), Random::of(seed));
        self.runtime.spawn(async move {
            loop {
                let (Some(gate), zone, beside) =
                    (choose_any(&servers, &mut random), zone.clone(), Arc::clone(&beside))
                else {
                    return;
                };
                tokio::spawn(async move {
                    let asked = Instant::now();
                    match gate.join(&zone).await {
                        Ok(_) => beside.joined.fetch_add(1, Ordering::Relaxed),
                        Err(_) => beside.refused.fetch_add(1, Ordering::Relaxed),
                    };
                    let took = u64::try_from(asked.elapsed().as_millis()).expect("short");
                    beside.slowest_ms.fetch_max(took, Ordering::Relaxed);
                });
                sleep(Duration::from_millis(50)).await;
            }
        });
    }

    /// Waits until so many more people entered from the line.
    pub(crate) fn enter(&self, more: usize) {
        let wanted = self.scene.audit().entries_of_line() + more;
        eventually("people enter", || (self.scene.audit().entries_of_line() >= wanted).then_some(()));
    }

    /// Waits until so many more people were shown a position.
    pub(crate) fn join(&self, more: usize) {
        let wanted = self.scene.audit().places() + more;
        eventually("people join", || (self.scene.audit().places() >= wanted).then_some(()));
    }

    /// Notes that the fault begins now.
    pub(crate) fn trouble(&mut self) {
        self.trouble_ms = self.scene.now_ms();
    }

    /// Waits until no server gets answers from its store any more.
    pub(crate) fn wait_away(&self) {
        (0..USERS.len()).for_each(|server| self.wait_away_at(server));
    }

    /// Waits until a server gets no answers from its store any more.
    pub(crate) fn wait_away_at(&self, server: usize) {
        eventually("the server notices", || {
            let gate = self.servers.borrow().gates[server].clone().expect("the server runs");
            let away = gate.zones().iter().any(|(zone, answers)| *zone == self.scene.zone && !answers);
            away.then_some(())
        });
    }

    /// Waits until a server gets one more answer from its store, to a call that it makes from now on.
    pub(crate) fn wait_answer(&self, server: usize) {
        // One call may be under way, and a beat another.
        let before = self.scene.audit().answers[server];
        eventually("the store answers", || (self.scene.audit().answers[server] > before + 2).then_some(()));
    }

    /// Waits until numbers are given out in a newer epoch than `before`.
    pub(crate) fn wait_epoch_after(&self, before: u32) {
        eventually("a new epoch begins", || (self.epoch() > before).then_some(()));
    }

    /// The newest epoch in which numbers were given out.
    pub(crate) fn epoch(&self) -> u32 {
        self.scene.audit().epoch
    }

    /// Lets the trouble last until so long after its beginning.
    pub(crate) fn last(&self, whole: Duration) {
        let left = whole.saturating_sub(Duration::from_millis(self.scene.now_ms() - self.trouble_ms));
        obey_polling_period(crate::clock::now() + left);
    }

    /// From now on users reach these servers.
    pub(crate) fn reach(&self, reach: Reach) {
        self.servers.send_modify(|servers| servers.reach = reach);
    }

    /// How many a server admitted from the line since the trouble began.
    pub(crate) fn entries_of(&self, server: usize) -> usize {
        self.scene.audit().entries_of(server, self.trouble_ms)
    }

    /// So many may enter on top of the minute.
    pub(crate) fn allow_on_top(&self, count: usize) {
        assert!(count <= N, "the book allows a minute's worth at most");
        self.scene.audit().allowed_on_top = count;
    }

    /// Kills a server. Its pending calls are never answered.
    pub(crate) fn kill_server(&self) {
        self.servers.send_modify(|servers| servers.gates[0] = None);
    }

    /// How many more of the minute's slots were unused at the worst moment since `from_ms` than then.
    pub(crate) fn unused_slots(&self, from_ms: u64) -> usize {
        self.scene.audit().unused_slots(from_ms, self.now_ms())
    }

    /// The longest time since `from_ms` in which nobody entered, up to the last entry.
    pub(crate) fn longest_pause_ms(&self, from_ms: u64) -> u64 {
        self.scene.audit().longest_pause_ms(from_ms)
    }

    /// From now on, slots may be used again so much earlier than a minute later.
    pub(crate) fn allow_early(&self, early_ms: u64) {
        self.scene.audit().early_ms = early_ms;
    }

    /// How many have entered.
    pub(crate) fn entries(&self) -> usize {
        self.scene.audit().entered_in_all()
    }

    /// Waits until at most so many of the minute's slots are unused, but not longer than `limit`.
    pub(crate) fn wait_used(&self, unused: usize, limit: Duration) {
        let n = self.setting.policy().admit_per_minute as usize;
        let deadline_ms = self.now_ms() + u64::try_from(limit.as_millis()).expect("short");
        eventually("the minute is used", || {
            let used = self.scene.audit().entries_since(self.now_ms().saturating_sub(60_000));
            (used + unused >= n || self.now_ms() >= deadline_ms).then_some(())
        });
    }

    /// The time of this world.
    pub(crate) fn now_ms(&self) -> u64 {
        self.scene.now_ms()
    }

    /// Waits until the minute is used up, and a little longer for entries beyond it. Returns the promises that were broken.
    pub(crate) fn end(self) -> Vec<String> {
        let deadline = self.runtime.block_on(async { Instant::now() }) + Duration::from_secs(30);
        let Setting { durability, loses_replies, .. } = self.setting;
        let most = if loses_replies || durability == Durability::Replicated { UNTOLD } else { 0 };
        let is_full = || {
            let auditor = self.scene.audit();
            auditor.entered_in_all() + auditor.left_in_doubt(self.trouble_ms).min(most) >= N
        };
        let full = self.runtime.block_on(async {
            while !is_full() && Instant::now() < deadline {
                sleep(Duration::from_millis(20)).await;
            }
            is_full()
        });
        // Ten more people would have entered by then.
        obey_polling_period(crate::clock::now() + Duration::from_millis(2_500));
        let (figures, errors) = self.stop();
        let mut broken = figures.broken;
        if !full {
            broken.push(format!("only {} entered within 30 s", figures.entries));
            broken.push(format!("the stores said {errors:#?}"));
        }
        broken
    }

    /// Ends everything, and returns what the auditor found, and the errors of the stores.
    pub(crate) fn stop(self) -> (Figures, BTreeMap<String, u64>) {
        let Self { setting, runtime, scene, servers, beside, trouble_ms, .. } = self;
        runtime.shutdown_timeout(Duration::from_secs(5));
        drop(servers);
        let auditor = std::mem::replace(&mut *scene.audit(), Auditor::new(setting.policy()));
        let (entered, pause_ms) = (auditor.entered_in_all(), auditor.longest_pause_ms(trouble_ms));
        let (stale, refused, errors) = (auditor.stale, auditor.refused, auditor.errors.clone());
        let allowed = auditor.allowed_on_top;
        let found = auditor.verdict();
        let figures = format!(
            "{} ({:?}): {entered} entered, {} on top and {} twice of {allowed} allowed; windows {} ms early; longest pause \
             {pause_ms} ms; {stale} polls stale, {refused} refused; other shard: slowest join {} ms, {} of {} refused",
            setting.name,
            setting.library,
            found.over_admissions,
            found.second_passes,
            found.early_ms,
            beside.slowest_ms.load(Ordering::Relaxed),
            beside.refused.load(Ordering::Relaxed),
            beside.joined.load(Ordering::Relaxed) + beside.refused.load(Ordering::Relaxed),
        );
        drop(writeln!(io::stderr(), "{figures}"));
        (found, errors)
    }
}

/// A random running server.
fn choose_any(servers: &watch::Receiver<Servers>, random: &mut Random) -> Option<Arc<Gate<Watched>>> {
    let servers = servers.borrow();
    let alive: Vec<_> = servers.gates.iter().flatten().collect();
    if alive.is_empty() { None } else { Some(Arc::clone(alive[random.below(alive.len())])) }
}

/// A random running server that a user reaches.
fn choose(
    servers: &watch::Receiver<Servers>,
    random: &mut Random,
    user: usize,
) -> Option<Arc<Gate<Watched>>> {
    let servers = servers.borrow();
    let reached = |server: usize| match servers.reach {
        Reach::Any => true,
        Reach::Halves => server == user % 2,
        Reach::Only(only) => server == only,
    };
    let reached = servers.gates.iter().enumerate().filter(|(server, _)| reached(*server));
    let alive: Vec<_> = reached.filter_map(|(_, gate)| gate.as_ref()).collect();
    if alive.is_empty() { None } else { Some(Arc::clone(alive[random.below(alive.len())])) }
}

/// Calls a server; `None` if none is reached, it was killed meanwhile, or took longer than an app waits.
async fn ask(
    scene: &Scene,
    servers: &watch::Receiver<Servers>,
    user: usize,
    random: &mut Random,
    token: Option<&Token>,
) -> Option<Result<Reply, Refusal>> {
    let gate = choose(servers, random, user)?;
    let mut watching = servers.clone();
    let killed = async {
        let gone = |servers: &Servers| !servers.gates.iter().flatten().any(|other| Arc::ptr_eq(other, &gate));
        let _ = watching.wait_for(gone).await;
    };
    let answered = async {
        match token {
            None => gate.join(scene.zone.as_str()).await,
            Some(token) => gate.poll(scene.zone.as_str(), token).await,
        }
    };
    tokio::select! {
        answer = timeout(Duration::from_secs(6), answered) => answer.ok(),
        () = killed => None,
    }
}

/// One user, from the first call to the last.
async fn live(scene: Arc<Scene>, servers: watch::Receiver<Servers>, user: usize, mut random: Random) {
    // One user in five leaves at some time.
    let mut patience = if random.below(5) == 0 && user >= N { 2 + random.below(20) } else { usize::MAX };
    let mut token: Option<Token> = None;
    let mut again = 3;
    loop {
        // Without an answer, or with one that may be old, the user does not know what the store decided.
        let mut is_in_doubt = false;
        let answer = ask(&scene, &servers, user, &mut random, token.as_ref()).await;
        let now_ms = scene.now_ms();
        let pause_ms = match answer {
            Some(Ok(Reply::Waiting {
                token: newer,
                status: WaitStatus { polling_period_ms, stale, .. },
            })) => {
                let ticket = scene.sealer.open(&newer).expect("the servers' own");
                let mut auditor = scene.audit();
                auditor.placed(user, (ticket.epoch, ticket.seq));
                if stale {
                    is_in_doubt = true;
                    auditor.stale += 1;
                } else {
                    let fresh_ms = &mut auditor.user(user).fresh_ms;
                    // They stay sorted: the clock was read before the auditor was free.
                    fresh_ms.push(now_ms.max(fresh_ms.last().copied().unwrap_or(0)));
                }
                token = Some(newer);
                u64::from(polling_period_ms)
            }
            Some(Ok(Reply::Entered { token: newer, pass, .. })) => {
                let mut auditor = scene.audit();
                auditor.placed(user, (pass.epoch, pass.seq));
                auditor.passed(now_ms, user, (pass.epoch, pass.seq, pass.entered_unix_s));
                drop(auditor);
                // Some repeat the call, as after a lost reply.
                if again == 0 {
                    return;
                }
                again -= 1;
                token = Some(newer);
                1_000 + random.bits() % 2_000
            }
            Some(Err(Refusal::Gone)) => return scene.audit().gone(now_ms, user),
            Some(Err(Refusal::StoreAway { .. } | Refusal::Busy { .. })) | None => {
                if token.is_some() {
                    is_in_doubt = true;
                    scene.audit().refused += 1;
                }
                1_000
            }
            Some(Err(refusal)) => return scene.audit().baffled(user, &format!("{refusal:?}")),
        };
        patience -= 1;
        if patience == 0 {
            scene.audit().leaves(now_ms, user, is_in_doubt);
            return;
        }
        sleep(Duration::from_millis(pause_ms)).await;
    }
}
