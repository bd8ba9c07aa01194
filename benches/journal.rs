//! Measures the cost of a durable decision. Calls come one at a time, each is a synced transaction, on the file system of
//! the temporary directory.

use std::{sync::Arc, time::Duration};

use admission::{Policy, ZoneId};
use criterion::{Criterion, criterion_group, criterion_main};
use store::{Embedded, Line as _, Store as _};

fn journal(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(Embedded::open(dir.path()).expect("a store"));
    let line = store.line(&ZoneId::parse("ZONE").expect("a name"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(line.put(Policy::default())).expect("put");
    let mut group = criterion.benchmark_group("durable");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    for count in [1, 64, 1_024] {
        group.bench_function(format!("join of {count}"), |bench| {
            bench.iter(|| runtime.block_on(line.join(count)).expect("joined"));
        });
    }
    group.finish();
}

criterion_group!(benches, journal);
criterion_main!(benches);
