//! Compares the script with the rules: the same random asks at the same instants must give the same answers.
//!
//! The script's clock is held at the instants of the trace, which sometimes go back.

use std::{collections::HashMap, time::Duration};

use limiter::{
    Align, Bandwidth, Bucket, Decision, Limit,
    redis::{Answer, Ask, Calls},
};
use redis_script::{Address, AnyClient, Settings};

use crate::{redis::Standalone, seed::Random};

const TRACES: usize = 60;
const CALLS: usize = 40;
const TOGETHER: usize = 24;

/// One ask of a trace.
struct Asked {
    limit: usize,
    key: usize,
    what: What,
    more: u64,
}

enum What {
    Take(u64),
    Reset,
}

pub(crate) async fn run(server: &Standalone) {
    let mut random = Random::seeded("limiter: differential");
    let address = Address::parse(&server.url()).expect("an address");
    let settings = Settings { command_timeout: Duration::from_secs(30), ..Settings::default() };
    let client = AnyClient::connect(&address, &settings).await.expect("Redis answers");
    let calls = Calls::new(client, "differential:");
    // Allowed, denied, never.
    let mut kinds = [0; 3];
    for trace in 0..TRACES {
        let limits: Vec<Limit> = (0..1 + random.below(3)).map(|_| limit(trace, &mut random)).collect();
        let mut now_us = 1_790_000_000_000_000 + random.bits() % 1_000_000_000;
        let mut buckets = HashMap::new();
        for _ in 0..CALLS {
            now_us = step(now_us, &mut random);
            calls.hold_clock(now_us);
            let asked: Vec<Asked> =
                (0..1 + random.below(TOGETHER)).map(|_| asked(limits.len(), &mut random)).collect();
            let asks: Vec<Ask> = asked.iter().map(|asked| ask(&limits, asked)).collect();
            let answers = calls.decide(asks.iter()).await.expect("Redis answers");
            for (asked, answer) in asked.iter().zip(answers) {
                let limit = &limits[asked.limit];
                let expected = decide(&mut buckets, limit, asked, now_us);
                assert_eq!(answer, expected, "trace {trace} at {now_us}: {:?} of key {}", limit, asked.key);
                match answer.decision {
                    Decision::Allowed(_) => kinds[0] += 1,
                    Decision::Denied { .. } => kinds[1] += 1,
                    _ => kinds[2] += 1,
                }
            }
        }
    }
    assert!(kinds.into_iter().all(|count| count > 1_000), "allowed, denied, never: {kinds:?}");
}

/// Several limits with one name. A trace switches between them.
fn limit(trace: usize, random: &mut Random) -> Limit {
    let bandwidth = |random: &mut Random| {
        let capacity = 1 + random.bits() % 40;
        let tokens = 1 + random.bits() % 20;
        let period = Duration::from_micros(match random.below(4) {
            0 => 1 + random.bits() % 50,
            1 => 1_000_000,
            2 => 1 + random.bits() % 3_000_000,
            _ => 60_000_000,
        });
        let bandwidth = match random.below(4) {
            0 => Bandwidth::interval(capacity, tokens, period, Align::Epoch),
            1 => Bandwidth::interval(capacity, tokens, period, Align::FirstUse),
            _ => Bandwidth::greedy(capacity, tokens, period),
        };
        if random.below(3) == 0 { bandwidth.with_initial(random.bits() % (capacity + 1)) } else { bandwidth }
    };
    let count = 1 + random.below(3);
    let bandwidths: Vec<Bandwidth> = (0..count).map(|_| bandwidth(random)).collect();
    Limit::new(&format!("trace-{trace}"), bandwidths).expect("a limit")
}

fn step(now_us: u64, random: &mut Random) -> u64 {
    match random.below(10) {
        0 => now_us - random.bits() % 100,
        1 => now_us - random.bits() % 200_000_000,
        2 => now_us + random.bits() % 1_000_000_000,
        3..6 => now_us + random.bits() % 1_000,
        _ => now_us + random.bits() % 2_000_000,
    }
}

fn asked(limits: usize, random: &mut Random) -> Asked {
    let what = match random.below(30) {
        0 => What::Reset,
        1 => What::Take(random.bits()),
        _ => What::Take(random.bits() % 24),
    };
    let more = if random.below(4) == 0 { random.bits() % 16 } else { 0 };
    // Mostly the first limit; the others are changes of it.
    let limit = if random.below(8) == 0 { random.below(limits) } else { 0 };
    Asked { limit, key: random.below(3), what, more }
}

fn ask(limits: &[Limit], asked: &Asked) -> Ask {
    let (limit, key) = (&limits[asked.limit], asked.key.to_string());
    match asked.what {
        What::Take(cost) => Ask::take(limit, key.as_bytes(), cost).and_more(asked.more),
        What::Reset => Ask::reset(limit, key.as_bytes()),
    }
}

/// The same ask by the rules. A key gets a bucket when tokens are taken or refused for now.
fn decide(buckets: &mut HashMap<usize, Bucket>, limit: &Limit, asked: &Asked, now_us: u64) -> Answer {
    let What::Take(cost) = asked.what else {
        buckets.remove(&asked.key);
        let decision = Bucket::new(limit, now_us).ask(limit, 0, now_us);
        return Answer { decision, more: 0 };
    };
    let mut new = Bucket::new(limit, now_us);
    let known = buckets.contains_key(&asked.key);
    let bucket = buckets.get_mut(&asked.key).unwrap_or(&mut new);
    let decision = bucket.ask(limit, cost, now_us);
    let mut more = 0;
    if cost > 0
        && let Decision::Allowed(budget) = decision
    {
        more = asked.more.min(budget.remaining);
        assert!(bucket.ask(limit, more, now_us).is_allowed(), "so much is left");
    }
    if !known && cost > 0 && !matches!(decision, Decision::Never(_)) {
        buckets.insert(asked.key, new);
    }
    Answer { decision, more }
}
