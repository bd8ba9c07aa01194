//! A waiting room of several gates over one Redis, and the people whom its gates send to the store: newcomers, and those at
//! the front.
//!
//! Invariant: each person asks one gate, when due or as told, and is counted once.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use admission::{Definition, Mode, Policy, SealKey, Seals, Ticket, ZoneId};
use events::Bus;
use gate::{Gate, Listing, Reply};
use store::{
    Line as _, Store as _,
    redis::{
        Durability, Redis,
        address::{Address, Settings},
    },
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use weir_benches::everybody;

use crate::{
    crowd::{Crowd, Ear, PERIOD_S},
    redis::Standalone,
};

/// Joins that are under way at once while the line forms.
const FORMING: usize = 8;

/// How long a connection, and a call of the operator, may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long people may be silent while the line forms.
const HEARD: Duration = Duration::from_secs(10);

/// More people than this are at the front only if the line takes the others for absent. They are not played.
const FRONT_MAX: u64 = 20_000;

static BUS: LazyLock<Arc<Bus>> = LazyLock::new(|| Arc::new(Bus::with_rings(|_| 2).expect("a thread")));

/// The policy of the line: the defaults, for as many people as a zone may have.
pub(crate) fn policy(mode: Mode) -> Policy {
    Policy { mode, max_waiting: 100_000_000, ..Policy::default() }
}

/// Connects as a server does, but waits longer for the connection, so that a busy moment does not end a long run.
async fn connect(server: &Standalone, command_timeout: Duration) -> Arc<Redis> {
    let address = Address::parse(&server.url()).expect("an address");
    let settings = Settings { connect_timeout: PATIENCE, command_timeout, ..Settings::default() };
    let redis = Redis::connect(&address, &settings, Durability::Async).await;
    Arc::new(redis.expect("Redis runs"))
}

/// Reports a poll of everybody.
async fn hear_all(redis: &Arc<Redis>, zone: &ZoneId, people: u64) {
    redis.line(zone).beat(everybody(people), 0).await.expect("beats");
}

/// The gates, and what their people did.
pub(crate) struct Room {
    zone: ZoneId,
    operator: Arc<Redis>,
    gates: Vec<Arc<Gate<Crowd>>>,
    pub(crate) ears: Vec<Ear>,
    /// People at the front who entered, and calls for the store that were refused, or answered from a view that is stale.
    pub(crate) entered: Arc<AtomicU64>,
    pub(crate) refused: Arc<AtomicU64>,
    /// What servers do beside their zones, and the people at the front. Ends with the room.
    tasks: JoinSet<()>,
}

impl Room {
    /// Lets a line of `people` form in an empty Redis, on hold, and opens `gates` gates on it, one after the other within a second.
    pub(crate) async fn open(server: &Standalone, people: u64, gates: u64) -> Self {
        let zone = ZoneId::parse("ZONE").expect("a name");
        let operator = connect(server, PATIENCE).await;
        let hold = policy(Mode::Hold);
        operator.line(&zone).put(hold).await.expect("put");
        let (mut joins, mut heard) = (JoinSet::new(), Instant::now());
        for joined in 0..people.div_ceil(1_024) {
            if heard.elapsed() > HEARD {
                // Whoever joined must not seem to have left.
                hear_all(&operator, &zone, joined * 1_024).await;
                heard = Instant::now();
            }
            if joins.len() == FORMING {
                joins.join_next().await.expect("there are some").expect("no panic");
            }
            let (store, zone) = (Arc::clone(&operator), zone.clone());
            joins.spawn(async move { drop(store.line(&zone).join(1_024).await.expect("joins")) });
        }
        joins.join_all().await;
        hear_all(&operator, &zone, people).await;

        let from = Instant::now();
        let mut room = Self {
            zone,
            operator,
            gates: Vec::new(),
            ears: Vec::new(),
            entered: Arc::default(),
            refused: Arc::default(),
            tasks: JoinSet::new(),
        };
        for gate in 0..gates {
            let (redis, ear) = (connect(server, Settings::default().command_timeout).await, Ear::default());
            let crowd = Crowd { redis: Arc::clone(&redis), ear: ear.clone(), gate, gates, from };
            let seals = Seals::only(SealKey { id: 1, secret: [1; 32] });
            let served = Arc::new(Gate::new(Arc::new(crowd), seals, Arc::clone(&BUS)));
            let listed = vec![(room.zone.clone(), Definition::from(hold), Listing::Listed)];
            served.follow_zones(|_| true, listed, (store::unix_ms(), Instant::now())).await;
            while !served.zone_totals(room.zone.as_str()).is_some_and(|totals| totals.known) {
                sleep(Duration::from_millis(1)).await;
            }
            room.tasks.spawn(beside_the_zones(redis, gate));
            room.gates.push(served);
            room.ears.push(ear);
            // Servers do not start at the same instant, so their beats do not coincide.
            sleep(Duration::from_secs(1) / u32::try_from(gates).expect("few")).await;
        }
        hear_all(&room.operator, &room.zone, people).await;
        room
    }

    /// Lets the line move from now on: people come to the front, and enter.
    pub(crate) async fn release(&mut self) {
        self.operator.line(&self.zone).put(policy(Mode::Auto)).await.expect("put");
        let (ears, gates, zone) = (self.ears.clone(), self.gates.clone(), self.zone.clone());
        let (entered, refused) = (Arc::clone(&self.entered), Arc::clone(&self.refused));
        self.tasks.spawn(async move {
            let (mut people, mut front) = (JoinSet::new(), 0);
            let mut looks = interval(Duration::from_millis(50));
            loop {
                looks.tick().await;
                let (end, epoch) = ears
                    .iter()
                    .map(Ear::lock)
                    .map(|beats| (beats.front_end, beats.epoch))
                    .max()
                    .unwrap_or_default();
                for seq in front..end.min(front + FRONT_MAX) {
                    let gate = Arc::clone(&gates[usize::try_from(seq).expect("64 bits") % gates.len()]);
                    let (zone, entered, refused) = (zone.clone(), Arc::clone(&entered), Arc::clone(&refused));
                    // Somebody comes to the front at any time within a period.
                    let first = Duration::from_millis(seq * 7_919 % (PERIOD_S * 1_000));
                    people.spawn(async move {
                        sleep(first).await;
                        ask(&gate, &zone, epoch, seq, &entered, &refused).await;
                    });
                }
                front = end.max(front);
                while people.try_join_next().is_some() {}
            }
        });
    }

    /// Newcomers for this time, evenly, as many as enter: each asks the next gate. Returns how long each took from when it
    /// was due, sorted.
    pub(crate) async fn newcomers(&self, time: Duration) -> Vec<Duration> {
        let from = Instant::now();
        let every = Duration::from_secs(60) / policy(Mode::Auto).admit_per_minute;
        let mut calls = JoinSet::new();
        for (number, gate) in (0_u32..).zip(self.gates.iter().cycle()) {
            let due = from + every * number;
            if due >= from + time {
                break;
            }
            sleep_until(due).await;
            let (gate, zone) = (Arc::clone(gate), self.zone.clone());
            calls.spawn(async move {
                let joined = gate.join(zone.as_str()).await;
                joined.is_ok().then(|| due.elapsed())
            });
        }
        let took = calls.join_all().await;
        self.refused.fetch_add(took.iter().filter(|took| took.is_none()).count() as u64, Relaxed);
        let mut took: Vec<Duration> = took.into_iter().flatten().collect();
        took.sort_unstable();
        took
    }
}

/// A person at the front asks as often as told, until the gate lets the person in.
async fn ask(
    gate: &Gate<Crowd>,
    zone: &ZoneId,
    epoch: u32,
    seq: u64,
    entered: &AtomicU64,
    refused: &AtomicU64,
) {
    let mut ticket = Ticket::new(epoch, seq, 0);
    loop {
        match gate.poll_for_stream(zone.as_str(), ticket).await {
            Ok((Reply::Waiting { status, .. }, newer)) => {
                refused.fetch_add(u64::from(status.stale), Relaxed);
                ticket = newer;
                sleep(Duration::from_millis(status.polling_period_ms.into())).await;
            }
            Ok((Reply::Entered { .. }, _)) => {
                entered.fetch_add(1, Relaxed);
                return;
            }
            Err(_) => {
                refused.fetch_add(1, Relaxed);
                sleep(Duration::from_secs(PERIOD_S)).await;
            }
        }
    }
}

/// What a server asks of Redis beside its zones: the register twice a second, and the list of servers every 5 s.
async fn beside_the_zones(redis: Arc<Redis>, number: u64) {
    let mut looks = interval(Duration::from_millis(500));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (id, about) = (format!("server-{number}"), "x".repeat(200));
    for look in 0_u64.. {
        looks.tick().await;
        drop(redis.zones().await);
        if look % 10 == 0 {
            drop(redis.say_here(&id, &about).await);
        }
    }
}
