//! The clients of `redis-script` on real servers: both libraries, standalone and in a cluster, with failing servers. Each
//! test starts its own servers.

#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/redis.rs"]
mod redis;

mod access;
mod cluster_clients;
mod confirm;
mod moves;
mod runs;
mod trouble;

use std::{
    sync::LazyLock,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use clock::{DEADLINE, now};
use redis::{Cluster, Standalone};
use redis_script::{
    address::{Address, Library, Settings},
    client::{AnyClient, Client as _, ClientError, Confirm, Script, Value},
};

/// Adds to a counter, and returns it.
static COUNT: LazyLock<Script> = LazyLock::new(|| Script {
    name: "count",
    text: "return redis.call('INCRBY', KEYS[1], ARGV[1])".to_owned(),
    sha1: "8cd00688c05c46bde4a2e60658ef20a2e5c0b248".to_owned(),
});

/// One replica must confirm.
const ONE: Option<Confirm> = Some(Confirm { replicas: 1, timeout_ms: 10_000 });

/// Runs each test with both libraries. Clients run on a second thread: a test blocks its own thread while it waits for a
/// server, and that must not delay connections that are being opened.
macro_rules! with_both {
    ($($test:ident),* $(,)?) => {
        mod fred {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn $test() {
                super::$test(redis_script::address::Library::Fred).await;
            })*
        }
        mod redis_rs {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
            async fn $test() {
                super::$test(redis_script::address::Library::RedisRs).await;
            })*
        }
    };
}
use with_both;

fn settings(library: Library) -> Settings {
    Settings { library, ..Settings::default() }
}

/// Settings with timeouts of half a second in place of two.
fn impatient(library: Library) -> Settings {
    let short = Duration::from_millis(500);
    Settings { library, connect_timeout: short, command_timeout: short, ..Settings::default() }
}

/// Settings with timeouts that a busy machine does not reach either: for calls that are refused at once.
fn patient(library: Library) -> Settings {
    let long = DEADLINE / 2;
    Settings { library, connect_timeout: long, command_timeout: long, ..Settings::default() }
}

async fn try_connect(url: &str, settings: &Settings) -> Result<AnyClient, ClientError> {
    let address = Address::parse(url).expect("an address");
    // Connecting has its own time limit. This one is for a client that ignores it.
    let connecting = AnyClient::connect(&address, settings);
    tokio::time::timeout(DEADLINE, connecting).await.expect("connecting ends in time")
}

async fn connect(url: &str, settings: &Settings) -> AnyClient {
    match try_connect(url, settings).await {
        Ok(client) => client,
        Err(error) => panic!("no connection to {url}: {error}"),
    }
}

async fn run(
    client: &AnyClient,
    script: &'static Script,
    key: &str,
    confirm: Option<Confirm>,
) -> Result<Value, ClientError> {
    let running =
        client.run(script, vec![Bytes::from(key.to_owned())], vec![Bytes::from_static(b"1")], confirm);
    tokio::time::timeout(DEADLINE, running).await.expect("a run ends in time")
}

/// Adds 1 to the counter `key`.
async fn count(client: &AnyClient, key: &str) -> Result<Value, ClientError> {
    run(client, &COUNT, key, None).await
}

/// Counts until it works. Until then, each error must be that the server is away.
async fn count_at_last(client: &AnyClient, key: &str) -> Value {
    let deadline = now() + DEADLINE;
    loop {
        match count(client, key).await {
            Ok(value) => return value,
            Err(ClientError::Away(reason)) => {
                assert!(now() < deadline, "not within {DEADLINE:?}: the client works again; {reason}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Polls a future once. It must be pending.
fn begin<F: Future>(future: std::pin::Pin<&mut F>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(future.poll(&mut context), Poll::Pending), "the call is over at once");
}

/// One key for each primary of the cluster, in order.
fn keys(cluster: &Cluster, primaries: usize) -> Vec<String> {
    let key = |i| {
        let names = (0..).map(|n| format!("key:{n}"));
        names.into_iter().find(|key| cluster.primary_of(cluster.slot(key)) == i).expect("names don't end")
    };
    (0..primaries).map(key).collect()
}

/// Asserts that a run failed because Redis is away, with a reason that contains `text`.
#[track_caller]
fn assert_away<T: std::fmt::Debug>(result: &Result<T, ClientError>, text: &str) {
    match result {
        Err(ClientError::Away(reason)) if reason.contains(text) => {}
        other => panic!("away was expected, because of {text:?}, not {other:?}"),
    }
}

/// Starts a replica of a server.
fn replica_of(primary: &Standalone) -> Standalone {
    let port = primary.port().to_string();
    let replica =
        Standalone::start_with(&redis::Options::new().arg(&["--replicaof", &format!("127.0.0.1 {port}")]));
    primary.wait_replicas(1);
    replica
}
