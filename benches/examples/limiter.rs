//! Measures the cost of a limit in Redis, with the workload of a published experiment: 5,000 tokens, 5,000 of them
//! refilled evenly per second, and 16 callers that ask without pause, first all for one key, then each for a
//! different key. Four designs are compared: read, compute here and set if the value is unchanged, with retries; one
//! script call per decision; all decisions of a moment in one call, as `Limiter` makes them; and the same with the
//! hints about empty buckets. Each runs with fred, with redis-rs, and with redis-rs and a separate connection (and
//! limiter) for each caller, as if each caller was a server.
//!
//! `cargo run --profile bench -p weir-benches --example limiter [SECONDS]` (3 by default; needs `redis-server`).
#![expect(clippy::print_stdout, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/redis.rs"]
mod redis;

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use limiter::{
    Bandwidth, Limit, Limiter, OnFailure, RedisSettings,
    redis::{Ask, Calls},
};
use redis::Standalone;
use redis_script::{Address, AnyClient, Client as _, Library, Script, Settings, Value};
use tokio::{task::JoinSet, time::Instant};

const CAPACITY: u64 = 5_000;
const CALLERS: usize = 16;
const PREFIX: &str = "bench:";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    CompareAndSet,
    Script,
    Batched,
    Hints,
}

const ARMS: [(Arm, &str); 4] = [
    (Arm::CompareAndSet, "compare and set"),
    (Arm::Script, "script"),
    (Arm::Batched, "script, batched"),
    (Arm::Hints, "script, batched, hints"),
];

/// The clients of Redis.
const CLIENTS: [(&str, Library, bool); 3] = [
    ("fred", Library::Fred, false),
    ("redis-rs", Library::RedisRs, false),
    ("redis-rs, one each", Library::RedisRs, true),
];

/// The connections to one Redis, for each design.
type Connected = (Arc<AnyClient>, Arc<Calls<AnyClient>>, Arc<Limiter>);

/// How a caller gets a decision.
enum Way {
    CompareAndSet(Arc<AnyClient>, Bytes),
    Script(Arc<Calls<AnyClient>>, Ask),
    Limiter(Arc<Limiter>, Limit, String),
}

static GET: LazyLock<Script> = LazyLock::new(|| Script::new("get", "return redis.call('GET', KEYS[1])"));

static SET_IF_UNCHANGED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "set if unchanged",
        "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
         redis.call('SET', KEYS[1], ARGV[2], 'PX', 1000)
         return 1",
    )
});

/// One thread, so that Redis has one of two cores for itself. With more threads the tail latency depends on the
/// scheduler.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(3, |text| text.parse().expect("a number of seconds"));
    for (contended, title) in [(true, "one key"), (false, "a key each")] {
        println!(
            "\n| {title} | client | mean | p50 | p99 | p99.9 | decisions/s | admitted/s | refused/s | CPU time of Redis per \
             decision | calls a refusal |\n|---|---|---|---|---|---|---|---|---|---|---|"
        );
        for (arm, name) in ARMS {
            for (client, library, one_each) in CLIENTS {
                let row = measure(arm, library, one_each, contended, Duration::from_secs(seconds)).await;
                println!("| {name} | {client} | {row} |");
            }
        }
    }
}

/// What one caller measured.
#[derive(Default)]
struct Seen {
    took_ns: Vec<u32>,
    admitted: u64,
    calls: u64,
}

async fn measure(arm: Arm, library: Library, one_each: bool, contended: bool, span: Duration) -> String {
    let server = Standalone::start();
    let address = Address::parse(&server.url()).expect("an address");
    let client = Settings { library, ..Settings::default() };
    let limit = Limit::new("bench", [Bandwidth::per_second(CAPACITY)]).expect("a limit");
    let mut ways = Vec::new();
    let mut limiters = Vec::new();
    let mut shared: Option<Connected> = None;
    for caller in 0..CALLERS {
        if one_each || shared.is_none() {
            let connect = || async { AnyClient::connect(&address, &client).await.expect("Redis runs") };
            let local_keys = if arm == Arm::Hints { 1_000 } else { 0 };
            let settings = RedisSettings { client: client.clone(), prefix: PREFIX.to_owned(), local_keys };
            let limiter = Limiter::in_redis(&address, &settings, OnFailure::Closed).await;
            let limiter = Arc::new(limiter.expect("Redis runs"));
            limiters.push(Arc::clone(&limiter));
            shared =
                Some((Arc::new(connect().await), Arc::new(Calls::new(connect().await, PREFIX)), limiter));
        }
        let (client, calls, limiter) = shared.clone().expect("made just now");
        let key = if contended { "key".to_owned() } else { format!("key-{caller}") };
        ways.push(match arm {
            Arm::CompareAndSet => Way::CompareAndSet(client, Bytes::from(key)),
            Arm::Script => Way::Script(calls, Ask::take(&limit, key.as_bytes(), 1)),
            Arm::Batched | Arm::Hints => Way::Limiter(limiter, limit.clone(), key),
        });
    }
    let (cpu, from) = (server.cpu_time(), Instant::now());
    let mut callers = JoinSet::new();
    for way in ways {
        callers.spawn(async move {
            let mut seen = Seen::default();
            let mut begun = from;
            while begun - from < span {
                let (admitted, calls) = way.decide().await;
                let now = Instant::now();
                seen.took_ns.push(u32::try_from((now - begun).as_nanos()).expect("below four seconds"));
                seen.admitted += u64::from(admitted);
                seen.calls += calls;
                // Yields as a server does between requests.
                tokio::task::yield_now().await;
                begun = Instant::now();
            }
            seen
        });
    }
    let seen = callers.join_all().await;
    let (took, cpu) = (from.elapsed().as_secs_f64(), server.cpu_time() - cpu);
    let mut times: Vec<u32> = seen.iter().flat_map(|seen| seen.took_ns.iter().copied()).collect();
    times.sort_unstable();
    let number = |count: u64| f64::from(u32::try_from(count).expect("few enough"));
    let decisions = number(times.len() as u64);
    let admitted = number(seen.iter().map(|seen| seen.admitted).sum());
    let calls: u64 = seen.iter().map(|seen| seen.calls).sum::<u64>()
        + limiters.iter().map(|limiter| limiter.stats().calls).sum::<u64>();
    let unknown: u64 = limiters.iter().map(|limiter| limiter.stats().unknown).sum();
    assert_eq!(unknown, 0, "Redis decided about all");
    let keys = if contended { 1.0 } else { number(CALLERS as u64) };
    assert!(admitted <= (number(CAPACITY) * (1.0 + took) + 1.0) * keys, "{admitted} in {took} s");
    let refused = decisions - admitted;
    let at = |part: usize| f64::from(times[(times.len() - 1) * part / 1_000]) / 1_000.0;
    let mean = times.iter().map(|time| f64::from(*time)).sum::<f64>() / decisions / 1_000.0;
    let per_refusal = if refused > 0.0 { format!("{:.4}", number(calls) / refused) } else { "-".to_owned() };
    format!(
        "{mean:.1} us | {:.1} us | {:.1} us | {:.1} us | {:.0} | {:.0} | {:.0} | {:.2} us | {per_refusal}",
        at(500),
        at(990),
        at(999),
        decisions / took,
        admitted / took,
        refused / took,
        cpu.as_secs_f64() * 1e6 / decisions,
    )
}

impl Way {
    /// Whether a token was available, and the number of Redis calls that are not counted elsewhere.
    async fn decide(&self) -> (bool, u64) {
        match self {
            Self::CompareAndSet(client, key) => compare_and_set(client, key).await,
            Self::Script(calls, ask) => {
                let answers = calls.decide(std::iter::once(ask)).await.expect("Redis decides");
                (answers[0].decision.is_allowed(), 1)
            }
            Self::Limiter(limiter, limit, key) => (limiter.ask(limit, key, 1).await.is_allowed(), 0),
        }
    }
}

/// The same bucket, computed in this process. A token has 200 parts, and one part comes back each microsecond. A
/// refusal is not written.
async fn compare_and_set(client: &AnyClient, key: &Bytes) -> (bool, u64) {
    const TOKEN: u64 = 1_000_000 / CAPACITY;
    let keys = || vec![key.clone()];
    let mut calls = 0;
    loop {
        let kept = match client.run(&GET, keys(), Vec::new(), None).await.expect("Redis answers") {
            Value::Bytes(kept) => kept,
            _ => Bytes::new(),
        };
        calls += 1;
        let text = std::str::from_utf8(&kept).expect("ours");
        let (at_us, spent) = text.split_once(' ').map_or((0, 0), |(at, spent)| {
            (at.parse().expect("a number"), spent.parse::<u64>().expect("a number"))
        });
        #[expect(clippy::disallowed_methods, reason = "callers of this kind share the wall clock")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        // The clocks of machines differ; the time of a bucket never goes back.
        let now_us = u64::try_from(now.as_micros()).expect("not that late").max(at_us);
        let spent = spent.saturating_sub(now_us - at_us) + TOKEN;
        if spent > CAPACITY * TOKEN {
            return (false, calls);
        }
        let args = vec![kept, Bytes::from(format!("{now_us} {spent}"))];
        let set = client.run(&SET_IF_UNCHANGED, keys(), args, None).await.expect("Redis answers");
        calls += 1;
        if set == Value::Int(1) {
            return (true, calls);
        }
    }
}
