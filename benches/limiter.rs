//! Compares the cost of a decision in this process with that of governor. Both get the same limit, keys and order: one hot
//! key, of which nearly all calls are refused, then 1,000 and a million keys, with one and with two threads. Both read the
//! clock themselves.

use std::{
    hint::black_box,
    num::NonZeroU32,
    pin::pin,
    sync::Barrier,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limiter::{Bandwidth, Limit, Limiter, MemorySettings, OnFailure};

/// Tokens per second.
const RATE: u32 = 5_000;

/// A key as large as an IPv6 address.
type Key = [u8; 16];

trait Subject: Sync {
    fn ask(&self, key: &Key) -> bool;
}

struct Own(Limiter, Limit);

impl Subject for Own {
    fn ask(&self, key: &Key) -> bool {
        let mut asking = pin!(self.0.ask(&self.1, key, 1));
        match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => decision.is_allowed(),
            Poll::Pending => unreachable!("the limiter in memory never waits"),
        }
    }
}

struct Governor(DefaultKeyedRateLimiter<Key>);

impl Subject for Governor {
    fn ask(&self, key: &Key) -> bool {
        self.0.check_key(key).is_ok()
    }
}

fn subjects() -> [(&'static str, Box<dyn Subject>); 2] {
    let limit = Limit::new("bench", [Bandwidth::per_second(RATE.into())]).expect("a limit");
    let own = Limiter::in_memory(MemorySettings { max_keys: 2_000_000 }, OnFailure::Closed);
    let quota = Quota::per_second(NonZeroU32::new(RATE).expect("not zero"));
    [("limiter", Box::new(Own(own, limit))), ("governor", Box::new(Governor(RateLimiter::keyed(quota))))]
}

/// Keys in an order that a CPU cannot predict.
fn keys(count: u64) -> Vec<Key> {
    let spread = |n: u64| u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let mut keys: Vec<Key> = (1..=count).map(|n| spread(n).to_be_bytes()).collect();
    keys.sort_unstable();
    let len = keys.len();
    for place in 0..len {
        let other = usize::try_from(spread(place as u64) >> 64 & 0xFFFF_FFFF).expect("32 bits") % len;
        keys.swap(place, other);
    }
    keys
}

/// The time that `threads` take for `asks` calls each, over all keys.
fn time(subject: &dyn Subject, keys: &[Key], threads: usize, asks: u64) -> Duration {
    let start = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    let order = keys.iter().cycle().skip(keys.len() * thread / threads);
                    start.wait();
                    for (key, _) in order.zip(0..asks) {
                        black_box(subject.ask(key));
                    }
                })
            })
            .collect();
        start.wait();
        #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
        let from = Instant::now();
        for worker in workers {
            worker.join().expect("no ask panics");
        }
        from.elapsed()
    })
}

fn decisions(criterion: &mut Criterion) {
    for count in [1, 1_000, 1_000_000] {
        let keys = keys(count);
        for threads in [1, 2] {
            let mut group = criterion.benchmark_group(format!("keys: {count}, threads: {threads}"));
            group.sample_size(20).measurement_time(Duration::from_secs(3));
            group.throughput(Throughput::Elements(threads as u64));
            for (name, subject) in subjects() {
                // All keys are known, as in a server that has run for a while.
                time(&*subject, &keys, 1, count);
                group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                    bencher.iter_custom(|asks| time(&*subject, &keys, threads, asks));
                });
            }
        }
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
