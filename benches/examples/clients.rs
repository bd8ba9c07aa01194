//! Compares fred and redis-rs as clients of Redis. Each runs a small script (`HINCRBY`) on a separate Redis with 1,
//! 64 and 1,024 calls in flight. The output is calls per second, the duration of a call, and the CPU time of a call
//! in this process and in Redis. The same follows with joins of one place each, as the store makes them, and with
//! joins that a replica confirms (`durability = "replicated"`).
//!
//! `cargo run --profile bench -p weir-benches --example clients` (needs `redis-server`).
#![expect(clippy::print_stdout, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/redis.rs"]
mod redis;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use admission::{Policy, ZoneId};
use bytes::Bytes;
use redis::{Standalone, cpu_time};
use store::{
    Line as _, Store as _,
    redis::{
        Durability, Redis,
        address::{Address, Library, Settings},
        client::{AnyClient, Client as _, Script, Value},
    },
};
use tokio::{task::JoinSet, time::Instant};

static COUNT: LazyLock<Script> = LazyLock::new(|| Script {
    name: "count",
    text: "return redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2])".to_owned(),
    sha1: "9b26a570a6728067e2a54c48bf701f8f6acb418f".to_owned(),
});

const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);

#[tokio::main(worker_threads = 2)]
async fn main() {
    let server = Standalone::start();
    let loaded = server.command(&["SCRIPT", "LOAD", &COUNT.text]).text();
    assert_eq!(loaded, COUNT.sha1, "the script's digest");
    println!(
        "{:<20} {:>6} {:>9} {:>10} {:>10} {:>10} {:>10}",
        "", "calls", "a second", "p50", "p99", "here/call", "Redis/call"
    );
    const LIBRARIES: [(&str, Library); 2] = [("fred", Library::Fred), ("redis-rs", Library::RedisRs)];
    for in_flight in [1, 64, 1_024] {
        for _ in 0..ROUNDS {
            for (name, library) in LIBRARIES {
                let client =
                    AnyClient::connect(&address(&server), &settings(library)).await.expect("Redis runs");
                let client = Arc::new(client);
                measure(name, in_flight, &server, move |caller| {
                    let client = Arc::clone(&client);
                    let field = Bytes::from(format!("field:{}", caller % 100));
                    async move {
                        let args = vec![field, Bytes::from_static(b"1")];
                        let answer = client.run(&COUNT, vec![Bytes::from_static(b"hash")], args, None).await;
                        assert!(matches!(answer, Ok(Value::Int(_))), "{answer:?}");
                    }
                })
                .await;
            }
        }
    }
    let replica = Standalone::start();
    replica.command(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    server.wait_replicas(1);
    for (durability, what) in [(Durability::Async, "joins"), (Durability::Replicated, "confirmed joins")] {
        for in_flight in [1, 64, 1_024] {
            for _ in 0..ROUNDS {
                for (name, library) in LIBRARIES {
                    let store = Redis::connect(&address(&server), &settings(library), durability).await;
                    let store = Arc::new(store.expect("Redis runs"));
                    let line = Arc::new(store.line(&ZoneId::parse("ZONE").expect("a name")));
                    line.put(Policy::default()).await.expect("put");
                    measure(&format!("{name}, {what}"), in_flight, &server, move |_| {
                        let line = Arc::clone(&line);
                        async move { drop(line.join(1).await.expect("joins")) }
                    })
                    .await;
                }
            }
        }
    }
}

fn address(server: &Standalone) -> Address {
    Address::parse(&server.url()).expect("an address")
}

fn settings(library: Library) -> Settings {
    Settings { library, ..Settings::default() }
}

async fn measure<F>(
    name: &str,
    in_flight: usize,
    server: &Standalone,
    call: impl Fn(usize) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let mut callers = JoinSet::new();
    let (here, there, from) = (cpu_time(std::process::id()), server.cpu_time(), Instant::now());
    for caller in 0..in_flight {
        let call = call.clone();
        callers.spawn(async move {
            let mut took = Vec::new();
            while from.elapsed() < ROUND {
                let begun = Instant::now();
                call(caller).await;
                took.push(begun.elapsed());
            }
            took
        });
    }
    let mut took = callers.join_all().await.concat();
    let (wall, here, there) =
        (from.elapsed(), cpu_time(std::process::id()) - here, server.cpu_time() - there);
    took.sort_unstable();
    let calls = u32::try_from(took.len()).expect("few enough");
    let micros = |time: Duration| format!("{:.0} us", time.as_secs_f64() * 1e6);
    println!(
        "{name:<20} {in_flight:>6} {:>9.0} {:>10} {:>10} {:>10} {:>10}",
        f64::from(calls) / wall.as_secs_f64(),
        micros(took[took.len() / 2]),
        micros(took[took.len() * 99 / 100]),
        micros(here / calls),
        micros(there / calls),
    );
}
