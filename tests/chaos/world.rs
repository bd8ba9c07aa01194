//! Two Weir servers over one Redis, and the people who use them. For each call, a user picks one of the two servers at
//! random, and calls again when told to.
//!
//! All but [`LEFT`] entries of the minute are used before the line forms. So if part of the log is lost, too many people
//! enter, and the auditor notices.
//!
//! Invariant: all tasks end with the world.

use std::{
    io::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admission::{
    Claim, Decided, Definition, Joined, Mode, PagePolls, Policy, SealKey, Sealer, Seals, Verdict, View,
    ZoneId,
};
use events::Bus;
use gate::{Gate, Refusal, Reply, Token};
use store::{
    Kept, Store, StoreError,
    redis::{
        Durability, Redis,
        address::{Address, Library, Settings},
    },
};
use tokio::{
    runtime::Runtime,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    auditor::Auditor,
    clock::{eventually, obey_polling_period},
    seed::Random,
};

/// How many may enter in a minute.
const N: usize = 300;

/// How many entries of the minute are left when the line forms.
pub(crate) const LEFT: usize = 45;

/// How many people are in line at the start.
const CROWD: usize = 180;

/// The time between two newcomers.
const NEWCOMER_EVERY: Duration = Duration::from_millis(250);

/// The audited zone and its policy: five entries a second.
pub(crate) const ZONE: &str = "HOT";

fn policy() -> Policy {
    Policy {
        admit_per_minute: u32::try_from(N).expect("small"),
        sub_windows: 60,
        polling_period_ms: 500,
        idle_timeout_s: 10,
        ..Policy::default()
    }
}

/// Both zones. Everybody enters the other one at once.
fn zones(zone: &ZoneId, beside: &ZoneId, mode: Mode) -> Vec<(ZoneId, Definition)> {
    let quiet = Policy { admit_per_minute: 600_000, ..Policy::default() };
    vec![(zone.clone(), Policy { mode, ..policy() }.into()), (beside.clone(), quiet.into())]
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

/// A store that reports to the auditor.
struct Watched {
    redis: Redis,
    scene: Arc<Scene>,
}

impl Watched {
    fn heard<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &answer {
            self.scene.audit().failed(error.to_string());
        }
        answer
    }
}

impl Store for Watched {
    async fn zones(&self) -> Result<Option<Kept>, StoreError> {
        self.redis.zones().await
    }

    async fn open_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View, StoreError> {
        self.redis.open_zone(zone, policy).await
    }

    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View, StoreError> {
        self.redis.put_zone(zone, policy).await
    }

    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined, StoreError> {
        let joined = self.heard(self.redis.join(zone, count).await)?;
        if *zone == self.scene.zone {
            let now_ms = self.scene.now_ms();
            let mut auditor = self.scene.audit();
            auditor.decided(now_ms, joined.at_ms);
            for (seq, verdict) in (joined.first..).zip(&joined.verdicts) {
                auditor.given(joined.epoch, seq);
                if let &Verdict::Entered(entry) = verdict {
                    auditor.entered(now_ms, (joined.epoch, seq), entry, true);
                }
            }
        }
        Ok(joined)
    }

    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided, StoreError> {
        let decided = self.heard(self.redis.enter(zone, claims.clone()).await)?;
        if *zone == self.scene.zone {
            let now_ms = self.scene.now_ms();
            let mut auditor = self.scene.audit();
            auditor.decided(now_ms, decided.at_ms);
            for (claim, verdict) in claims.iter().zip(&decided.verdicts) {
                if let &Verdict::Entered(entry) = verdict {
                    auditor.entered(now_ms, (claim.epoch, claim.seq), entry, false);
                }
            }
        }
        Ok(decided)
    }

    async fn beat(&self, zone: &ZoneId, marks: Vec<PagePolls>) -> Result<View, StoreError> {
        self.heard(self.redis.beat(zone, marks).await)
    }
}

/// The two servers; `None` for a killed one.
type Servers = [Option<Arc<Gate<Watched>>>; 2];

/// Figures of the other zone.
#[derive(Default)]
struct Beside {
    slowest_ms: AtomicU64,
    refused: AtomicU64,
    joined: AtomicU64,
}

/// The world of one scenario.
pub(crate) struct World {
    name: &'static str,
    library: Library,
    runtime: Runtime,
    scene: Arc<Scene>,
    servers: watch::Sender<Servers>,
    beside_zone: ZoneId,
    beside: Arc<Beside>,
    trouble_ms: u64,
}

impl World {
    /// Starts the world: all but [`LEFT`] entries of the minute are used, and a line forms. `beside` is a zone in another
    /// shard.
    pub(crate) fn begin(name: &'static str, library: Library, url: &str, beside: &str) -> Self {
        let mut random = Random::seeded(name);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
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
            auditor: Mutex::new(Auditor::new(policy())),
            sealer: seals.sealer(&zone),
            zone: zone.clone(),
        });
        let address = Address::parse(url).expect("an address");
        let servers: Servers = runtime.block_on(async {
            let mut servers = [None, None];
            for server in &mut servers {
                let settings = Settings { library, ..Settings::default() };
                let redis =
                    Redis::connect(&address, &settings, Durability::Async).await.expect("Redis is there");
                let store = Watched { redis, scene: Arc::clone(&scene) };
                let bus = Arc::new(Bus::with_rings(|_| 2).expect("a thread"));
                let gate = Gate::new(store, seals.clone(), bus);
                gate.serve_zones(zones(&zone, &beside_zone, Mode::Auto))
                    .await
                    .expect("Redis takes the zones");
                *server = Some(Arc::new(gate));
            }
            servers
        });
        let world = Self {
            name,
            library,
            runtime,
            scene,
            servers: watch::Sender::new(servers),
            beside_zone,
            beside: Arc::default(),
            trouble_ms: 0,
        };
        world.fill(&mut random);
        world.watch_beside(beside.to_owned(), random.bits());
        world
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
        let servers = self.servers.borrow().clone();
        self.runtime.block_on(async {
            for gate in servers.iter().flatten() {
                gate.serve_zones(zones(&self.scene.zone, &self.beside_zone, mode))
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
                    (choose(&servers, &mut random), zone.clone(), Arc::clone(&beside))
                else {
                    return;
                };
                tokio::spawn(async move {
                    let asked = Instant::now();
                    match gate.wait(&zone, None).await {
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
        eventually("the servers notice", || {
            let servers = self.servers.borrow();
            let away = |gate: &Arc<Gate<Watched>>| {
                gate.zones().iter().any(|(zone, answers)| *zone == self.scene.zone && !answers)
            };
            servers.iter().flatten().all(away).then_some(())
        });
    }

    /// Kills a server. Its pending calls are never answered.
    pub(crate) fn kill_server(&self) {
        let left = self.servers.borrow()[1].clone();
        drop(self.servers.send_replace([None, left]));
    }

    /// Waits until the minute is used up, and a little longer for entries beyond it. Returns the promises that were broken.
    pub(crate) fn end(self) -> Vec<String> {
        let deadline = self.runtime.block_on(async { Instant::now() }) + Duration::from_secs(30);
        let full = self.runtime.block_on(async {
            while self.scene.audit().entered_in_all() < N && Instant::now() < deadline {
                sleep(Duration::from_millis(20)).await;
            }
            self.scene.audit().entered_in_all() >= N
        });
        // Ten more people would have entered by then.
        obey_polling_period(crate::clock::now() + Duration::from_millis(2_500));
        let Self { name, library, runtime, scene, servers, beside, trouble_ms, .. } = self;
        runtime.shutdown_timeout(Duration::from_secs(5));
        drop(servers);
        let auditor = std::mem::replace(&mut *scene.audit(), Auditor::new(policy()));
        let figures = format!(
            "{name} ({library:?}): {} entered, longest pause {} ms; {} polls stale, {} refused; other shard: slowest join {} ms, {} of \
             {} refused",
            auditor.entered_in_all(),
            auditor.longest_pause_ms(trouble_ms),
            auditor.stale,
            auditor.refused,
            beside.slowest_ms.load(Ordering::Relaxed),
            beside.refused.load(Ordering::Relaxed),
            beside.joined.load(Ordering::Relaxed) + beside.refused.load(Ordering::Relaxed),
        );
        drop(writeln!(io::stderr(), "{figures}"));
        let (entered, errors) = (auditor.entered_in_all(), auditor.errors.clone());
        let mut broken = auditor.verdict();
        if !full {
            broken.push(format!("only {entered} entered within 30 s"));
            broken.push(format!("the stores said {errors:#?}"));
        }
        broken
    }
}

/// A random running server.
fn choose(servers: &watch::Receiver<Servers>, random: &mut Random) -> Option<Arc<Gate<Watched>>> {
    let servers = servers.borrow();
    let alive: Vec<_> = servers.iter().flatten().collect();
    if alive.is_empty() { None } else { Some(Arc::clone(alive[random.below(alive.len())])) }
}

/// Calls a server; `None` if it was killed meanwhile, or took longer than an app waits.
async fn ask(
    scene: &Scene,
    servers: &watch::Receiver<Servers>,
    random: &mut Random,
    token: Option<&Token>,
) -> Option<Result<Reply, Refusal>> {
    let gate = choose(servers, random)?;
    let mut watching = servers.clone();
    let killed = async {
        let gone = |servers: &Servers| !servers.iter().flatten().any(|other| Arc::ptr_eq(other, &gate));
        let _ = watching.wait_for(gone).await;
    };
    let answered = async {
        match token {
            None => gate.wait(scene.zone.as_str(), None).await,
            Some(token) => gate.entry(scene.zone.as_str(), token).await,
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
        let answer = ask(&scene, &servers, &mut random, token.as_ref()).await;
        let now_ms = scene.now_ms();
        let pause_ms = match answer {
            Some(Ok(Reply::Waiting { token: newer, polling_period_ms, stale, .. })) => {
                let ticket = scene.sealer.open(&newer).expect("the servers' own");
                let mut auditor = scene.audit();
                auditor.placed(user, (ticket.epoch, ticket.seq));
                if stale {
                    auditor.stale += 1;
                } else {
                    auditor.user(user).fresh_ms.push(now_ms);
                }
                token = Some(newer);
                u64::from(polling_period_ms)
            }
            Some(Ok(Reply::Entered { token: newer, pass })) => {
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
                    scene.audit().refused += 1;
                }
                1_000
            }
            Some(Err(refusal)) => return scene.audit().baffled(user, &format!("{refusal:?}")),
        };
        patience -= 1;
        if patience == 0 {
            scene.audit().user(user).left = true;
            return;
        }
        sleep(Duration::from_millis(pause_ms)).await;
    }
}
