//! Measures the cost of a durable decision. Calls come one at a time, each is a synced transaction, on the file system of
//! the temporary directory.

use std::time::Duration;

use admission::{Policy, ZoneId};
use criterion::{Criterion, criterion_group, criterion_main};
use store::{Embedded, Store as _};

fn journal(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Embedded::open(dir.path()).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let zone = ZoneId::parse("ZONE").expect("a name");
    runtime.block_on(store.put_zone(&zone, Policy::default())).expect("put");
    let mut group = criterion.benchmark_group("durable");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    for count in [1, 64, 1_024] {
        group.bench_function(format!("join of {count}"), |bench| {
            bench.iter(|| runtime.block_on(store.join(&zone, count)).expect("joined"));
        });
    }
    group.finish();
}

criterion_group!(benches, journal);
criterion_main!(benches);
