//! Measures the cost of messages between servers about changes, and how soon a change is in force.
//!
//! 1. The brokers alone, over plain sockets: 8 subscribers, one publisher, messages of 100 bytes, each counted and in
//!    order. The output is messages per second and the CPU time of the broker per delivered message, for Redis with
//!    plain and with sharded channels (standalone, and a cluster of three with the subscribers spread over it), and for
//!    NATS.
//! 2. The time from the store's answer to a change until it is in force, over 8 servers that have everything but
//!    HTTP.
//! 3. Messages and CPU time of the broker while 1,000 to 100,000 people poll, with the same number of zones and
//!    changes each time, and while 2,000 people per second come and go.
//!
//! `cargo run --profile bench -p weir-benches --example fanout` (needs `redis-server` and `nats-server`).
#![expect(clippy::print_stdout, reason = "it prints what it found")]
// The futures of a call through the gate, a cell and a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/nats.rs"]
mod nats;
#[path = "../../tests/support/redis.rs"]
mod redis;

use std::{
    io::{BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use admission::{Mode, Policy, SealKey, Seals, ZoneId};
use clock::{eventually, now};
use events::Bus;
use gate::{
    AnyStore, Gate, Reply, Token, Watcher,
    cells::Cells,
    definitions::{self, ApplyOptions},
};
use nats::Nats;
use redis::{Cluster, Standalone, cpu_time};
use server::{
    config::{self, Config},
    fanout::{self, AnyTransport, Fanout, SenderId},
    metrics::Metrics,
    stores::{self, StoreSettings},
};
use store::redis::Redis;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
};

const SUBSCRIBERS: usize = 8;
const MESSAGES: usize = 100_000;
const ROUNDS: usize = 3;
/// The largest number of messages in flight: a publisher waits for the broker after this many.
const BATCH: usize = 500;
/// Bytes of a message, about as many as our messages have.
const LENGTH: usize = 100;
const CHANNEL: &str = "weir:v1:{zones}:changed";
const ZONES: usize = 100;

fn main() {
    brokers();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(changes());
    runtime.block_on(people());
}

/// A protocol for publishing and subscribing over plain sockets.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Sharded,
    Nats,
}

impl Way {
    fn subscribe(self) -> String {
        match self {
            Self::Plain => format!("SUBSCRIBE {CHANNEL}\r\n"),
            Self::Sharded => format!("SSUBSCRIBE {CHANNEL}\r\n"),
            Self::Nats => "CONNECT {\"verbose\":false}\r\nSUB weir.redis.zones 1\r\nPING\r\n".to_owned(),
        }
    }

    /// The bytes before each message, as a subscriber receives them.
    fn head(self) -> String {
        let of_redis = |kind: &str| {
            format!("*3\r\n${}\r\n{kind}\r\n${}\r\n{CHANNEL}\r\n${LENGTH}\r\n", kind.len(), CHANNEL.len())
        };
        match self {
            Self::Plain => of_redis("message"),
            Self::Sharded => of_redis("smessage"),
            Self::Nats => format!("MSG weir.redis.zones 1 {LENGTH}\r\n"),
        }
    }

    fn publish(self, bytes: &mut Vec<u8>, message: &str) {
        let of_redis = |command: &str| {
            format!(
                "*3\r\n${}\r\n{command}\r\n${}\r\n{CHANNEL}\r\n${LENGTH}\r\n{message}\r\n",
                command.len(),
                CHANNEL.len()
            )
        };
        let text = match self {
            Self::Plain => of_redis("PUBLISH"),
            Self::Sharded => of_redis("SPUBLISH"),
            Self::Nats => format!("PUB weir.redis.zones {LENGTH}\r\n{message}\r\n"),
        };
        bytes.extend(text.bytes());
    }
}

fn message(number: usize) -> String {
    format!("{number:0LENGTH$}")
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the broker answers");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream
}

/// Reads lines up to one with this prefix.
fn await_line(lines: &mut impl std::io::BufRead, begins: &str) {
    let mut line = String::new();
    while !line.starts_with(begins) {
        line.clear();
        assert!(lines.read_line(&mut line).expect("the broker answers") > 0, "no {begins}");
    }
}

fn subscriber(way: Way, port: u16, ready: mpsc::Sender<()>) {
    let mut stream = connect(port);
    stream.write_all(way.subscribe().as_bytes()).expect("the broker takes it");
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    await_line(&mut reader, if way == Way::Nats { "PONG" } else { ":1" });
    ready.send(()).expect("waited for");
    let head = way.head();
    let mut frame = vec![0; head.len() + LENGTH + 2];
    for number in 0..MESSAGES {
        reader.read_exact(&mut frame).expect("every message arrives");
        let text = &frame[head.len()..head.len() + LENGTH];
        assert!(frame.starts_with(head.as_bytes()), "{:?}", String::from_utf8_lossy(&frame));
        let got: usize = std::str::from_utf8(text).expect("text").parse().expect("a number");
        assert_eq!(got, number, "in order, none lost, none twice");
    }
}

fn publisher(way: Way, port: u16) {
    let mut stream = connect(port);
    if way == Way::Nats {
        stream.write_all(b"CONNECT {\"verbose\":false}\r\n").expect("the broker takes it");
    }
    let mut lines = BufReader::new(stream.try_clone().expect("a socket"));
    let mut bytes = Vec::new();
    for first in (0..MESSAGES).step_by(BATCH) {
        bytes.clear();
        (first..first + BATCH).for_each(|number| way.publish(&mut bytes, &message(number)));
        if way == Way::Nats {
            bytes.extend(b"PING\r\n");
        }
        stream.write_all(&bytes).expect("the broker takes it");
        if way == Way::Nats {
            await_line(&mut lines, "PONG");
        } else {
            (0..BATCH).for_each(|_| await_line(&mut lines, ":"));
        }
    }
}

/// One run, with the subscribers at these ports in turn and the publisher at the first. It prints the CPU time of the
/// processes.
fn run(name: &str, way: Way, ports: &[u16], processes: &[u32]) {
    let (ready, readies) = mpsc::channel();
    let subscribers: Vec<_> = (0..SUBSCRIBERS)
        .map(|i| {
            let (port, ready) = (ports[i % ports.len()], ready.clone());
            thread::spawn(move || subscriber(way, port, ready))
        })
        .collect();
    (0..SUBSCRIBERS).for_each(|_| readies.recv().expect("all subscribe"));
    let cpu = || processes.iter().map(|pid| cpu_time(*pid)).sum::<Duration>();
    let (before, from) = (cpu(), now());
    publisher(way, ports[0]);
    for subscriber in subscribers {
        subscriber.join().expect("all arrived");
    }
    let (took, cpu) = (from.elapsed(), cpu() - before);
    let delivered = MESSAGES * SUBSCRIBERS;
    println!(
        "{name:<34} {:>10.0} {:>12.0} {:>10.2} us",
        per(MESSAGES, took.as_secs_f64()),
        per(delivered, took.as_secs_f64()),
        cpu.as_secs_f64() * 1e6 / f64::from(u32::try_from(delivered).expect("few enough")),
    );
}

fn per(count: usize, seconds: f64) -> f64 {
    f64::from(u32::try_from(count).expect("few enough")) / seconds
}

fn brokers() {
    println!("{:<34} {:>10} {:>12} {:>13}", "8 subscribers", "messages/s", "delivered/s", "CPU/delivered");
    let (one, three, nats) = (Standalone::start(), Cluster::start(3, 0), Nats::start());
    let pid = |info: String| info.parse::<u32>().expect("a process id");
    let of_one = [pid(one.info("server", "process_id"))];
    let of_three = [0, 1, 2].map(|i| pid(three.info(i, "server", "process_id")));
    // The node timeout is the default. With a short one, plain messages were lost when servers were too busy to
    // answer each other.
    (0..3).for_each(|i| drop(three.command(i, &["CONFIG", "SET", "cluster-node-timeout", "15000"])));
    let owner = three.primary_of(three.slot(CHANNEL));
    let mut spread = [0, 1, 2].map(|i| three.port(i));
    spread.swap(0, owner);
    for _ in 0..ROUNDS {
        run("Redis, plain", Way::Plain, &[one.port()], &of_one);
        run("Redis, sharded", Way::Sharded, &[one.port()], &of_one);
        run("cluster of three, plain", Way::Plain, &spread, &of_three);
        run("cluster of three, sharded", Way::Sharded, &[three.port(owner)], &of_three);
        run("NATS", Way::Nats, &[nats.port()], &[nats.pid()]);
    }
}

/// A server with everything but HTTP.
struct Server {
    gate: Arc<Gate<AnyStore>>,
    _tasks: JoinSet<()>,
}

fn zone(i: usize) -> ZoneId {
    ZoneId::parse(&format!("ZONE{i}")).expect("a name")
}

fn config(store: &str, fanout: &str) -> Config {
    let text = format!("store = \"{store}\"\nfanout = \"{fanout}\"\n");
    let zones = (0..ZONES).map(|i| format!("[[zone]]\nid = \"{}\"\nmode = \"hold\"\n", zone(i)));
    config::from_text("weir.toml", &(text + &zones.collect::<String>())).expect("it is right")
}

fn cells(config: &Config) -> Arc<Cells<Redis>> {
    let StoreSettings::Redis(redis) = &config.store else { unreachable!("it names a Redis") };
    Arc::new(stores::Connections::read(redis).expect("no files to read").cells())
}

async fn servers(count: usize, config: &Config) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        let (cells, bus) = (cells(config), Arc::new(Bus::new().expect("a thread")));
        let seals = Seals::only(SealKey { id: 1, secret: [1; 32] });
        let meter = Metrics::new(Arc::clone(&bus)).fanout("redis");
        let gate =
            Arc::new(Gate::new(Arc::new(AnyStore::Cells(Arc::clone(&cells))), seals, Arc::clone(&bus)));
        let mut tasks = JoinSet::new();
        let (answers, first) = oneshot::channel();
        let watcher = Watcher::new(Arc::clone(&gate), Arc::clone(&cells), 0, &config.zones);
        let news = watcher.news();
        tasks.spawn(watcher.run(answers, Arc::new(Notify::new())));
        first.await.expect("the cell is asked");
        if let Some(transport) = stores::transports(&config.fanout, &cells).pop() {
            let fanout = Fanout::new("redis", transport, SenderId::new(), meter.clone());
            let (gate, told) = (Arc::clone(&gate), fanout::subscribe(&bus).expect("it may"));
            tasks.spawn(async move { fanout.run(&gate, |_| true, (&bus, told), &news).await });
            eventually("it listens", || (meter.connected.get() == 1).then_some(()));
        }
        eventually("it serves all zones", || {
            (gate.zones().iter().filter(|(_, fresh)| *fresh).count() == ZONES).then_some(())
        });
        servers.push(Server { gate, _tasks: tasks });
    }
    servers
}

/// A client that changes zones as `weir zones apply` does.
struct Operator {
    cells: Arc<Cells<Redis>>,
    transport: Option<AnyTransport>,
    sender: SenderId,
}

impl Operator {
    fn new(config: &Config) -> Self {
        let cells = cells(config);
        let transport = stores::transports(&config.fanout, &cells).pop();
        Self { cells, transport, sender: SenderId::new() }
    }

    /// Changes a zone. Returns when the store has answered.
    async fn change(&self, zone: &ZoneId, policy: Policy) -> Instant {
        let mut done = None;
        let wanted = [(zone.clone(), policy.into())];
        let meant = ApplyOptions { replace: true, ..ApplyOptions::default() };
        let applied = definitions::apply(&self.cells, &wanted, meant, async |_, zone, definition| {
            done = Some(now());
            if let Some(transport) = &self.transport {
                fanout::say(transport, self.sender, zone, Some(definition))
                    .await
                    .expect("the broker is there");
            }
        });
        assert_eq!(applied.await.failure(), None);
        done.expect("it is another policy")
    }
}

/// The `n`th policy.
fn nth(n: u32) -> Policy {
    Policy { mode: Mode::Hold, admit_per_minute: 1 + n, ..Policy::default() }
}

async fn changes() {
    println!("\n{:<34} {:>10} {:>10} {:>10}", "a change is in force after", "p50", "p99", "longest");
    let nats = Nats::start();
    for (name, fanout, count) in [
        ("sharded channel", "redis", 300),
        ("NATS", &*nats.url(), 300),
        ("asking twice a second", "none", 40),
    ] {
        let redis = Standalone::start();
        let config = config(&redis.url(), fanout);
        let servers = servers(8, &config).await;
        let operator = Operator::new(&config);
        let mut took = Vec::new();
        for n in 0..count {
            let (zone, policy) = (zone(usize::try_from(n).expect("few") % ZONES), nth(n));
            let gates: Vec<_> = servers.iter().map(|server| Arc::clone(&server.gate)).collect();
            let name = zone.clone();
            let watched = thread::spawn(move || {
                let mut at = vec![None; gates.len()];
                while at.iter().any(Option::is_none) {
                    for (gate, at) in gates.iter().zip(&mut at) {
                        if at.is_none() && gate.policy(name.as_str()) == Some(policy) {
                            *at = Some(now());
                        }
                    }
                    thread::sleep(Duration::from_micros(100));
                }
                at
            });
            let done = operator.change(&zone, policy).await;
            let at = tokio::task::spawn_blocking(|| watched.join().expect("it is in force at all")).await;
            // A server may ask for the zone just when it is changed.
            took.extend(
                at.expect("joined").into_iter().flatten().map(|at| at.saturating_duration_since(done)),
            );
        }
        took.sort_unstable();
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!("{name:<34} {:>10} {:>10} {:>10}", ms(p50), ms(p99), ms(took[took.len() - 1]));
    }
}

/// A figure from the monitoring of NATS.
fn varz(port: u16, name: &str) -> u64 {
    let mut stream = connect(port);
    stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n").expect("it answers");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (_, after) = text.split_once(&format!("\"{name}\":")).expect("NATS reports it");
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

async fn people() {
    const SECONDS: u64 = 10;
    const CHANGES: u32 = 50;
    println!(
        "\n{:<34} {:>10} {:>10} {:>10} {:>14}",
        "10 s, 100 zones, 2 servers", "calls/s", "changes", "messages", "broker's CPU"
    );
    let redis = Standalone::start();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let monitor = free.expect("a free port").port();
    let nats = Nats::start_with(&["--http_port", &monitor.to_string()]);
    let config = config(&redis.url(), &nats.url());
    let servers = servers(2, &config).await;
    let operator = Operator::new(&config);
    let mut changed = 0;
    let mut waiting: Vec<(usize, Token)> = Vec::new();
    for (count, changes) in [(1_000, CHANGES), (10_000, CHANGES), (100_000, CHANGES), (0, 0)] {
        while waiting.len() < count {
            waiting.extend(join(&servers, 1_000).await);
        }
        let (said, cpu, from) = (varz(monitor, "in_msgs"), cpu_time(nats.pid()), now());
        let mut calls = 0;
        for second in 0..SECONDS * 10 {
            for _ in 0..u64::from(changes) * (second + 1) / (SECONDS * 10)
                - u64::from(changes) * second / (SECONDS * 10)
            {
                changed += 1;
                operator.change(&zone(usize::try_from(changed).expect("few") % ZONES), nth(changed)).await;
            }
            if count > 0 {
                // Everybody polls every three seconds.
                let tenth = count / 30;
                let first = usize::try_from(second).expect("few") * tenth;
                for i in first..first + tenth {
                    let (at, token) = &waiting[i % count];
                    let gate = &servers[i % 2].gate;
                    let reply = gate.poll(zone(*at).as_str(), token).await.expect("served");
                    assert!(matches!(reply, Reply::Waiting { .. }), "{reply:?}");
                }
                calls += tenth;
            } else {
                // 200 people come and never call again.
                calls += join(&servers, 200).await.len();
            }
            let next = from + Duration::from_millis(100 * (second + 1));
            tokio::time::sleep_until(next.into()).await;
        }
        let name = match count {
            0 => "2,000 a second come and go".to_owned(),
            _ => format!("{count} people poll"),
        };
        println!(
            "{name:<34} {:>10.0} {changes:>10} {:>10} {:>11} ms",
            per(calls, from.elapsed().as_secs_f64()),
            varz(monitor, "in_msgs") - said,
            (cpu_time(nats.pid()) - cpu).as_millis(),
        );
    }
}

/// Joins this many people, over all zones and servers.
async fn join(servers: &[Server], count: usize) -> Vec<(usize, Token)> {
    let mut joining = JoinSet::new();
    for i in 0..count {
        let (at, gate) = (i % ZONES, Arc::clone(&servers[i % servers.len()].gate));
        joining.spawn(async move {
            let Reply::Waiting { token, .. } = gate.join(zone(at).as_str()).await.expect("served") else {
                unreachable!("nobody enters a held zone")
            };
            (at, token)
        });
    }
    joining.join_all().await
}
