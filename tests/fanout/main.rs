//! Fan-out between servers over real Redis and NATS servers: messages arrive, faults of the transport affect nothing else,
//! and nothing depends on a message.
//!
//! A test that must show that a change came by a message lets its servers read their store only once an hour.

// The clients' futures are deeply nested.
#![recursion_limit = "256"]

#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/client.rs"]
mod client;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/nats.rs"]
mod nats;
#[path = "../support/redis.rs"]
mod redis;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/weir.rs"]
mod weir;

mod by_nats;
mod by_redis;
mod processes;

use std::{sync::Arc, time::Duration};

use admission::{Mode, Policy, SealKey, Seals, ZoneId};
use clock::{DEADLINE, eventually};
use events::Bus;
use gate::{
    AnyStore, Gate, Watcher,
    cells::Cells,
    definitions::{self, ApplyOptions},
};
use server::{
    config::{self, Config},
    fanout::{self, AnyTransport, Fanout, SenderId},
    metrics::{FanoutMeter, Metrics},
    stores::{self, Connections, StoreSettings},
};
use store::{StoreError, redis::Redis};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Practically never.
const HOURLY: Duration = Duration::from_secs(3_600);

/// The interval of `weir serve`.
const USUAL: Duration = Duration::from_millis(500);

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

fn with(mode: Mode) -> Policy {
    Policy { mode, ..Policy::default() }
}

/// A configuration with one zone `Z` in the store at `store`, and the given fan-out.
fn config(store: &str, fanout: &str) -> Config {
    let text = format!("store = \"{store}\"\nfanout = \"{fanout}\"\n[[zone]]\nid = \"Z\"\n");
    config::from_text("weir.toml", &text).expect("it is right")
}

fn cells(config: &Config) -> Arc<Cells<Redis>> {
    let StoreSettings::Redis(redis) = &config.store else { panic!("it names a Redis") };
    Arc::new(Connections::read(redis).expect("no files to read").cells())
}

/// A server as `weir serve` assembles it, without HTTP.
struct Server {
    gate: Arc<Gate<AnyStore>>,
    meter: FanoutMeter,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(config: &Config, every: Duration) -> Self {
        let (cells, bus) = (cells(config), Arc::new(Bus::new().expect("a thread")));
        let seals = Seals::only(SealKey { id: 1, secret: [1; 32] });
        let meter = Metrics::new(Arc::clone(&bus)).fanout("redis");
        let gate =
            Arc::new(Gate::new(Arc::new(AnyStore::Cells(Arc::clone(&cells))), seals, Arc::clone(&bus)));
        let mut tasks = JoinSet::new();
        let (answers, first) = oneshot::channel();
        let watcher =
            Watcher::new(Arc::clone(&gate), Arc::clone(&cells), 0, &config.zones).asking_every(every);
        let news = watcher.news();
        tasks.spawn(watcher.run(answers, Arc::new(Notify::new())));
        first.await.expect("the cell is asked");
        if let Some(transport) = stores::transports(&config.fanout, &cells).pop() {
            let fanout = Fanout::new("redis", transport, SenderId::new(), meter.clone());
            let (gate, told) = (Arc::clone(&gate), fanout::subscribe(&bus).expect("it may"));
            tasks.spawn(async move { fanout.run(&gate, |_| true, (&bus, told), &news).await });
        }
        Self { gate, meter, _tasks: tasks }
    }

    /// Waits until it hears the others, and has read what it may have missed.
    fn wait_heard(&self) {
        eventually("it listens", || (self.meter.connected.get() == 1).then_some(()));
    }

    fn wait_unheard(&self) {
        eventually("it knows that it hears nobody", || (self.meter.connected.get() == 0).then_some(()));
    }

    fn has(&self, zone: &str, policy: Policy) -> bool {
        self.gate.policy(zone) == Some(policy)
    }
}

async fn servers(count: usize, config: &Config, every: Duration) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::start(config, every).await);
    }
    for server in &servers {
        server.wait_heard();
        eventually("it serves", || server.gate.policy("Z").map(drop));
    }
    servers
}

/// Changes zones, as `weir zones apply` does.
struct Operator {
    cells: Arc<Cells<Redis>>,
    transport: AnyTransport,
    sender: SenderId,
}

impl Operator {
    fn new(config: &Config) -> Self {
        let cells = cells(config);
        let transport =
            stores::transports(&config.fanout, &cells).pop().expect("the configuration has a transport");
        Self { cells, transport, sender: SenderId::new() }
    }

    /// Changes a zone. Returns whether the servers were notified.
    async fn apply(&self, zone: &ZoneId, policy: Policy) -> bool {
        self.try_apply(zone, policy).await.expect("the store takes it")
    }

    /// The same, repeated until the store accepts it.
    async fn apply_at_last(&self, zone: &ZoneId, policy: Policy) -> bool {
        let tries = async {
            loop {
                if let Ok(told) = self.try_apply(zone, policy).await {
                    return told;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(DEADLINE, tries).await.expect("the store accepts it")
    }

    async fn try_apply(&self, zone: &ZoneId, policy: Policy) -> Result<bool, StoreError> {
        let mut told = false;
        let wanted = [(zone.clone(), policy.into())];
        let meant = ApplyOptions { replace: true, ..ApplyOptions::default() };
        let applied = definitions::apply(&self.cells, &wanted, meant, async |_, zone, definition| {
            told = fanout::say(&self.transport, self.sender, zone, Some(definition)).await.is_ok();
        });
        applied.await.failure().cloned().map_or(Ok(told), Err)
    }
}

/// Waits until a policy is in force on all servers.
fn wait_in_force(servers: &[Server], name: &str, policy: Policy) {
    for (i, server) in servers.iter().enumerate() {
        eventually(&format!("{policy:?} is in force at server {i}"), || {
            server.has(name, policy).then_some(())
        });
    }
}

/// Changes zones in every way, with servers that read their store only after a message.
async fn changes_arrive(config: &Config, servers: &[Server]) {
    let operator = Operator::new(config);
    for mode in [Mode::Closed, Mode::Hold, Mode::Open, Mode::Auto] {
        assert!(operator.apply(&zone("Z"), with(mode)).await, "the message was sent");
        wait_in_force(servers, "Z", with(mode));
    }
    assert!(operator.apply(&zone("NEW"), with(Mode::Hold)).await, "the message was sent");
    wait_in_force(servers, "NEW", with(Mode::Hold));
    for server in servers {
        eventually("each message counts", || (server.meter.heard.get() >= 5).then_some(()));
        assert_eq!(server.meter.garbled.get(), 0);
    }
}

/// Invalid messages, and a message of an unknown sender.
fn garbage() -> Vec<Vec<u8>> {
    let long = [b"weir1 00000000000000ab Z ".to_vec(), vec![b'a'; 60_000]].concat();
    vec![
        Vec::new(),
        b"hello".to_vec(),
        vec![0xff; 100],
        long,
        b"weir2 00000000000000ab Z 00000000000000ab".to_vec(),
        b"weir1 00000000000000ab Z 00000000000000ab more".to_vec(),
    ]
}

fn wait_garbled(servers: &[Server], count: usize) {
    for server in servers {
        eventually("what is no message is counted", || {
            (server.meter.garbled.get() == count as u64).then_some(())
        });
        assert_eq!(server.meter.heard.get(), 0);
    }
}
