//! Measures the cost of the store's decisions, and the memory per waiting person.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use admission::{Claim, Zone};
use criterion::{Criterion, criterion_group, criterion_main};
use weir_benches::{Counting, LINES, NOW, everybody, line};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Times `call` on copies of `zone`, so that its changes do not add up.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn timed<T>(zone: &Zone, calls: u64, mut call: impl FnMut(&mut Zone) -> T) -> Duration {
    let mut took = Duration::ZERO;
    let mut left = calls;
    while left > 0 {
        let mut zone = zone.clone();
        let round = left.min(200);
        left -= round;
        let from = Instant::now();
        for _ in 0..round {
            black_box(call(&mut zone));
        }
        took += from.elapsed();
    }
    took
}

fn decisions(criterion: &mut Criterion) {
    for (people, name) in LINES {
        let before = Counting::bytes();
        let zone = line(people);
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let bytes = (Counting::bytes() - before) as f64 / people as f64;
        println!("memory/{name}: {bytes:.2} bytes per waiting person");
        let mut group = criterion.benchmark_group(name);
        group.sample_size(20).measurement_time(Duration::from_secs(3));
        group.bench_function("join of 64", |bench| {
            bench.iter_custom(|calls| timed(&zone, calls, |zone| zone.join(64, NOW)));
        });
        let claims: Vec<Claim> = (600..664).map(|seq| Claim { epoch: 7, seq }).collect();
        group.bench_function("claim of 64 in the front", |bench| {
            bench.iter_custom(|calls| timed(&zone, calls, |zone| zone.enter(&claims, NOW)));
        });
        group.bench_function("claim of 1", |bench| {
            bench.iter_custom(|calls| timed(&zone, calls, |zone| zone.enter(&claims[..1], NOW)));
        });
        let marks = everybody(people);
        group.bench_function("beat, everybody polled", |bench| {
            bench.iter_custom(|calls| timed(&zone, calls, |zone| zone.beat(&marks, NOW)));
        });
        group.finish();
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
