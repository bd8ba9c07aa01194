//! Why Weir keeps its own map of slots over one fred connection per node, and does not use fred's cluster client.
//!
//! One primary of a real cluster is killed or frozen. Three clients go on calling a healthy shard and the affected one
//! at the same time: fred's own cluster client, our map of slots with fred, and our map with redis-rs. The tests print
//! a table; `docs/decisions/fred-cluster-client.md` holds one.
//!
//! Invariant: the clients see the same outage of the same cluster, so their figures are compared with each other and
//! with the length of that outage as they saw it, not with fixed times.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fred::{
    clients::Client as FredClient,
    interfaces::ClientLike as _,
    types::{
        Builder, ClusterHash, CustomCommand,
        config::{
            ClusterDiscoveryPolicy, Config, ReconnectPolicy, ServerConfig, TcpConfig, UnresponsiveConfig,
        },
    },
};
use redis_script::{
    address::{Library, Settings},
    client::AnyClient,
};
use tokio::task::JoinHandle;

use crate::{
    COUNT, Cluster, DEADLINE,
    clock::{eventually, now},
    connect, count, keys,
    redis::Options,
    settings,
};

/// How long a primary must be silent before the others declare it failed, in milliseconds.
const NODE_TIMEOUT_MS: &str = "5000";

/// The pause between two calls of a probe.
const PACE: Duration = Duration::from_millis(20);

/// A client under test.
enum Subject {
    /// fred's own cluster client.
    FredCluster(FredClient),
    /// Our map of slots over one connection per node.
    Ours(AnyClient),
}

impl Subject {
    /// Adds 1 to the counter `key` with the script [`COUNT`]; says whether there was an answer.
    async fn count(&self, key: &str) -> bool {
        match self {
            Self::FredCluster(client) => {
                let command = CustomCommand::new_static("EVAL", fred_slot(key), false);
                let args = vec![COUNT.text.as_str(), "1", key, "1"];
                client.custom::<i64, _>(command, args).await.is_ok()
            }
            Self::Ours(client) => count(client, key).await.is_ok(),
        }
    }
}

fn fred_slot(key: &str) -> ClusterHash {
    ClusterHash::Custom(fred::util::redis_keyslot(key.as_bytes()))
}

/// fred's cluster client with the settings that help it most: it asks every node that it knows for the map, reconnects
/// after 100 ms, closes connections that do not answer, and has the timeouts of our client.
async fn fred_cluster(cluster: &Cluster) -> FredClient {
    let Settings { connect_timeout, command_timeout, .. } = Settings::default();
    let hosts = (0..3).map(|i| ("127.0.0.1", cluster.port(i))).collect();
    let mut server = ServerConfig::new_clustered(hosts);
    if let ServerConfig::Clustered { policy, .. } = &mut server {
        *policy = ClusterDiscoveryPolicy::UseCache;
    }
    let mut builder = Builder::from_config(Config { server, ..Config::default() });
    builder
        .with_connection_config(|connection| {
            connection.connection_timeout = connect_timeout;
            connection.internal_command_timeout = command_timeout;
            connection.unresponsive = UnresponsiveConfig {
                max_timeout: Some(command_timeout),
                interval: Duration::from_millis(200),
            };
            connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
        })
        .with_performance_config(|performance| performance.default_command_timeout = command_timeout)
        .set_policy(ReconnectPolicy::new_constant(0, 100));
    let client = builder.build().expect("the configuration is valid");
    drop(client.connect());
    client.wait_for_connect().await.expect("the cluster runs");
    client
}

/// Calls one key of one client, one call after the other, until it is told to stop.
struct Probe {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    task: JoinHandle<Figures>,
}

/// What a probe saw.
struct Figures {
    /// The longest call, whether it was answered or failed.
    slowest: Duration,
    /// The longest time from one answer to the next, or to the end.
    silence: Duration,
    /// Calls that failed.
    failed: u64,
}

impl Probe {
    fn start(subject: &Arc<Subject>, key: &str) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task =
            tokio::spawn(probe(Arc::clone(subject), key.to_owned(), Arc::clone(&stop), Arc::clone(&answers)));
        Self { stop, answers, task }
    }

    /// Waits for calls that started after this moment and were answered.
    fn wait_answered(&self, what: &str) {
        let before = self.answers.load(Ordering::Relaxed);
        // The first of the two may have started earlier.
        eventually(what, || (self.answers.load(Ordering::Relaxed) >= before + 2).then_some(()));
    }

    async fn end(self) -> Figures {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("a probe does not panic")
    }
}

async fn probe(
    subject: Arc<Subject>,
    key: String,
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
) -> Figures {
    let mut figures = Figures { slowest: Duration::ZERO, silence: Duration::ZERO, failed: 0 };
    let mut answered = now();
    while !stop.load(Ordering::Relaxed) {
        let begun = now();
        let ok = tokio::time::timeout(DEADLINE, subject.count(&key)).await.expect("a call ends in time");
        let ended = now();
        figures.slowest = figures.slowest.max(ended - begun);
        if ok {
            figures.silence = figures.silence.max(ended - answered);
            answered = ended;
            answers.fetch_add(1, Ordering::Relaxed);
        } else {
            figures.failed += 1;
        }
        tokio::time::sleep(PACE).await;
    }
    figures.silence = figures.silence.max(now() - answered);
    figures
}

/// What all clients saw of one outage.
struct Outage {
    /// From the fault until a replica has taken over.
    failover: Duration,
    /// In the order of [`NAMES`]: the healthy shard, and the one whose primary failed.
    seen: Vec<(Figures, Figures)>,
}

const NAMES: [&str; 3] = ["fred's cluster client", "our map, fred", "our map, redis-rs"];

/// Lets primary 0 fail by `fault` while all clients call it and primary 1.
async fn outage(fault: impl FnOnce(&mut Cluster)) -> Outage {
    let options = Options::new().arg(&["--cluster-node-timeout", NODE_TIMEOUT_MS]);
    let mut cluster = Cluster::start_with(3, 1, &options);
    let keys = keys(&cluster, 3);
    let slot = cluster.slot(&keys[0]);
    let subjects = [
        Subject::FredCluster(fred_cluster(&cluster).await),
        Subject::Ours(connect(&cluster.url(), &settings(Library::Fred)).await),
        Subject::Ours(connect(&cluster.url(), &settings(Library::RedisRs)).await),
    ]
    .map(Arc::new);
    let probes: Vec<_> = subjects
        .iter()
        .map(|subject| (Probe::start(subject, &keys[1]), Probe::start(subject, &keys[0])))
        .collect();
    for (healthy, affected) in &probes {
        healthy.wait_answered("the healthy shard answers before the fault");
        affected.wait_answered("the other shard answers before the fault");
    }
    let from: Instant = now();
    fault(&mut cluster);
    cluster.wait_failover(slot, 0);
    let failover = now() - from;
    for ((healthy, affected), name) in probes.iter().zip(NAMES) {
        healthy.wait_answered(&format!("{name}: the healthy shard answers after the failover"));
        affected.wait_answered(&format!("{name}: the affected shard answers after the failover"));
    }
    let mut seen = Vec::new();
    for (healthy, affected) in probes {
        seen.push((healthy.end().await, affected.end().await));
    }
    Outage { failover, seen }
}

impl Outage {
    /// Prints the table of the decision page.
    fn print(&self, title: &str) {
        let mut table = format!(
            "{title}; the failover took {} ms\n\
             | client | healthy shard: slowest call | longest time without an answer | failed calls | \
             affected shard: longest time without an answer |\n|---|---|---|---|---|\n",
            self.failover.as_millis()
        );
        for (name, (healthy, affected)) in NAMES.iter().zip(&self.seen) {
            let ms = |time: Duration| time.as_millis();
            writeln!(
                table,
                "| {name} | {} ms | {} ms | {} | {} ms |",
                ms(healthy.slowest),
                ms(healthy.silence),
                healthy.failed,
                ms(affected.silence)
            )
            .expect("a text takes everything");
        }
        drop(writeln!(io::stderr(), "{table}"));
    }

    /// How long the affected shard had no primary: the shortest time without an answer that a client saw there. The
    /// time of the failover is no measure, because it includes how long this test takes to see it.
    fn length(&self) -> Duration {
        self.seen.iter().map(|(_, affected)| affected.silence).min().expect("there are clients")
    }

    /// Our map: the healthy shard is never silent for a quarter of the outage, and no call to it fails.
    fn assert_ours_goes_on(&self) {
        let length = self.length();
        for (name, (healthy, _)) in NAMES.iter().zip(&self.seen).skip(1) {
            assert_eq!(healthy.failed, 0, "{name}: calls to the healthy shard failed");
            let silence = healthy.silence;
            assert!(silence < length / 4, "{name}: silent for {silence:?} of {length:?}");
        }
    }

    /// fred's cluster client: the healthy shard is silent for at least half of the outage.
    fn assert_fred_cluster_stalls(&self) {
        let (silence, length) = (self.seen[0].0.silence, self.length());
        assert!(
            silence > length / 2,
            "fred's cluster client left the healthy shard silent for only {silence:?} of {length:?}; if that is not by \
             chance, docs/decisions/fred-cluster-client.md should be decided anew"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_stalls_fred_cluster_client_but_not_ours() {
    let outage = outage(|cluster| cluster.kill(0)).await;
    outage.print("primary killed");
    outage.assert_ours_goes_on();
    outage.assert_fred_cluster_stalls();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_stalls_fred_cluster_client_but_not_ours() {
    let outage = outage(|cluster| cluster.stop(0)).await;
    outage.print("primary frozen");
    outage.assert_ours_goes_on();
    outage.assert_fred_cluster_stalls();
}
