//! Measures what a poll costs Redis. 600,000 people wait and poll every 3 s, and for 20 s Redis receives what a
//! server sends for them. In a line that does not move (the slots of the minute were used at once) this is one beat
//! per second with all polls, and the claims of the first few people. In a line that moves by 10,000 per minute it is
//! also all newcomers, as many as enter, and the claims of people whose slots become free soon. It is compared with
//! the common design with a full minute: one script call per poll, with the place in a sorted set, the last poll in a
//! hash, and two counters for the windows. The output is the CPU time of Redis per poll and its memory per person.
//!
//! `cargo run --profile bench -p weir-benches --example redis_cost` (needs `redis-server`).
// The futures of a call through a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]
#![expect(clippy::print_stdout, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/redis.rs"]
mod redis;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use admission::{Claim, Mode, Policy, Verdict, ZoneId};
use bytes::Bytes;
use redis::Standalone;
use store::{
    Line as _, MAX_BATCH, Store as _,
    redis::{
        address::{Address, Settings},
        client::{AnyClient, Client as _, Script, Value},
    },
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use weir_benches::{connect, third};

const PEOPLE: u64 = 600_000;
const PERIOD: Duration = Duration::from_secs(3);
const SECONDS: u32 = 20;
/// The number of measured polls of the common design, and how many are in flight at once.
const BASELINE_POLLS: u64 = 100_000;
const CALLERS: u64 = 64;

/// The cost of one design.
struct Cost {
    us_a_poll: f64,
    bytes_a_person: f64,
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let (standing, moving, baseline) = (weir(false).await, weir(true).await, baseline().await);
    println!("\n| {PEOPLE} wait | CPU time of Redis per poll | memory per person |");
    println!("|---|---|---|");
    println!(
        "| one script call per poll | {:.3} us | {:.1} bytes |",
        baseline.us_a_poll, baseline.bytes_a_person
    );
    for (name, cost) in [("standing", &standing), ("moving", &moving)] {
        println!(
            "| weir, a {name} line | {:.3} us, 1/{:.0} | {:.1} bytes, 1/{:.0} |",
            cost.us_a_poll,
            baseline.us_a_poll / cost.us_a_poll,
            cost.bytes_a_person,
            baseline.bytes_a_person / cost.bytes_a_person
        );
    }
}

fn a_person(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes).expect("not that much")) / f64::from(u32::try_from(PEOPLE).expect("small"))
}

/// The calls of one server's lane, and of the people at the front.
async fn weir(moves: bool) -> Cost {
    let server = Standalone::start();
    let line = connect(&server.url()).await.line(&ZoneId::parse("ZONE").expect("a name"));
    let policy = Policy::default();
    let mode = if moves { Mode::Hold } else { Mode::Auto };
    line.put(Policy { mode, ..policy }).await.expect("put");
    let empty = server.used_memory();
    // While nobody waits, newcomers enter until the slots of the minute are used.
    let first = if moves { 0 } else { u64::from(policy.admit_per_minute) };
    let mut next = 0;
    while next < first + PEOPLE {
        let count = u32::try_from(first + PEOPLE - next).map_or(1_000, |left| left.min(1_000));
        next += u64::from(count);
        line.join(count).await.expect("joins");
    }
    let mut view = line.put(policy).await.expect("put");
    let memory = server.used_memory() - empty;

    let (from, before) = (Instant::now(), server.cpu_time());
    let end = from + Duration::from_secs(SECONDS.into());
    // When a person at the front polls next. A person reaches the front at a poll, at any time within a period.
    let mut asks = BinaryHeap::new();
    let mut front = first;
    let come = |asks: &mut BinaryHeap<_>, front: &mut u64, front_end: u64, at: Instant| {
        for seq in *front..front_end {
            asks.push(Reverse((
                at + PERIOD * u32::try_from(seq * 7_919 % 1_000).expect("small") / 1_000,
                seq,
            )));
        }
        *front = front_end.max(*front);
    };
    come(&mut asks, &mut front, view.front_end, from);
    let (mut next_beat, mut second) = (from, 0);
    let (mut entered, mut joined, mut claims, mut calls) = (0_u64, 0_u64, 0, 0_u32);
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        let mut idle = true;
        if now >= next_beat {
            view = line.beat(third(view.base, next, second), 0).await.expect("beats");
            come(&mut asks, &mut front, view.front_end, now);
            (second, next_beat, idle, calls) =
                (second + 1, next_beat + Duration::from_secs(1), false, calls + 1);
        }
        // Newcomers arrive one by one, as many as enter.
        let due = u64::try_from((now - from).as_millis()).expect("short")
            * u64::from(policy.admit_per_minute)
            / 60_000;
        if moves && due > joined {
            let count = u32::try_from(due - joined).expect("few").min(1_000);
            line.join(count).await.expect("joins");
            (joined, next, idle, calls) =
                (joined + u64::from(count), next + u64::from(count), false, calls + 1);
        }
        let mut asking = Vec::new();
        while asking.len() < MAX_BATCH
            && let Some(&Reverse((at, seq))) = asks.peek()
            && at <= now
        {
            asks.pop();
            if seq < view.front_end {
                asking.push(Claim { epoch: view.epoch, seq });
            } else {
                // The server answers these polls itself.
                asks.push(Reverse((at + PERIOD, seq)));
            }
        }
        if !asking.is_empty() {
            let verdicts = line.enter(asking.clone()).await.expect("decided").verdicts;
            (claims, idle, calls) = (claims + asking.len(), false, calls + 1);
            let now = Instant::now();
            for (claim, verdict) in asking.iter().zip(verdicts) {
                match verdict {
                    Verdict::Waiting(place) => {
                        asks.push(Reverse((now + Duration::from_millis(place.poll_in_ms.into()), claim.seq)));
                    }
                    Verdict::Entered(_) => entered += 1,
                    Verdict::Gone => unreachable!("everybody polls"),
                }
            }
        }
        if idle {
            let next_ask = asks.peek().map_or(next_beat, |Reverse((at, _))| *at);
            sleep_until(next_ask.min(next_beat).min(now + Duration::from_millis(6))).await;
        }
    }
    let spent = server.cpu_time() - before;
    let tally = line.beat(Vec::new(), 0).await.expect("beats").tally;
    assert_eq!(tally.evicted, 0, "everybody polls");
    let polls = f64::from(SECONDS) * f64::from(u32::try_from(PEOPLE).expect("small")) / PERIOD.as_secs_f64();
    println!(
        "weir, moving {moves}: {SECONDS} s, {calls} calls, {joined} joined, {claims} claims, {entered} entered, {} of {} present; \
         Redis was busy {:.2} % of a core",
        tally.present,
        tally.waiting,
        spent.as_secs_f64() / f64::from(SECONDS) * 100.0
    );
    Cost {
        us_a_poll: spent.as_secs_f64() * 1e6 / polls,
        bytes_a_person: a_person(memory.max(server.used_memory() - empty)),
    }
}

static POLL: LazyLock<Script> = LazyLock::new(|| Script {
    name: "poll",
    text: "
        if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {-1, 0} end
        local rank = redis.call('ZRANK', KEYS[1], ARGV[1])
        redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
        local minute = tonumber(redis.call('GET', KEYS[3]) or '0')
        local part = tonumber(redis.call('GET', KEYS[4]) or '0')
        if rank < math.min(ARGV[3] - minute, ARGV[4] - part) then
            redis.call('ZREM', KEYS[1], ARGV[1])
            redis.call('HDEL', KEYS[2], ARGV[1])
            redis.call('INCR', KEYS[3])
            redis.call('INCR', KEYS[4])
            return {0, 1}
        end
        return {rank + 1, 0}"
        .to_owned(),
    sha1: "757b2dd9053040ccd37c0edcf687668c2159bc2f".to_owned(),
});

/// The name of a person in the line, as long as a ULID.
fn person(number: u64) -> String {
    format!("{:026X}", u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) >> 24)
}

async fn baseline() -> Cost {
    let server = Standalone::start();
    assert_eq!(server.command(&["SCRIPT", "LOAD", &POLL.text]).text(), POLL.sha1, "the script's digest");
    let empty = server.used_memory();
    for from in (0..PEOPLE).step_by(1_000) {
        let mut line = vec!["ZADD".to_owned(), "{z}line".to_owned()];
        let mut polls = vec!["HSET".to_owned(), "{z}polls".to_owned()];
        for number in from..from + 1_000 {
            line.extend([number.to_string(), person(number)]);
            polls.extend([person(number), "1790000000000".to_owned()]);
        }
        server.command(&line);
        server.command(&polls);
    }
    let memory = server.used_memory() - empty;
    // The minute is full, so nobody enters and all polls cost the same.
    server.command(&["MSET", "{z}minute", "10000", "{z}part", "1000"]);

    let address = Address::parse(&server.url()).expect("an address");
    let client = AnyClient::connect(&address, &Settings::default()).await.expect("Redis runs");
    let client = Arc::new(client);
    let before = server.cpu_time();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let client = Arc::clone(&client);
        callers.spawn(async move {
            let keys =
                ["{z}line", "{z}polls", "{z}minute", "{z}part"].map(|key| Bytes::from_static(key.as_bytes()));
            for poll in 0..BASELINE_POLLS / CALLERS {
                // Everybody in turn, far apart in the line.
                let number = (poll * CALLERS + caller) * 7_919 % PEOPLE;
                let args =
                    [person(number), (1_790_000_000_000 + poll).to_string(), "10000".into(), "1000".into()];
                let answer = client.run(&POLL, keys.to_vec(), args.map(Bytes::from).to_vec(), None).await;
                let rank = i64::try_from(number).expect("small") + 1;
                assert_eq!(answer, Ok(Value::Array(vec![Value::Int(rank), Value::Int(0)])));
            }
        });
    }
    callers.join_all().await;
    let spent = server.cpu_time() - before;
    let polls = u32::try_from(BASELINE_POLLS / CALLERS * CALLERS).expect("few");
    Cost { us_a_poll: spent.as_secs_f64() * 1e6 / f64::from(polls), bytes_a_person: a_person(memory) }
}
