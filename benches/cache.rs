//! Compares the cost of a cache hit with that of moka.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokio::{runtime::Runtime, task::JoinSet};

const TASKS: usize = 100;
const KEYS: u32 = 10;
/// The published experiment of the cache uses these times, 20 times longer.
const LIFE: Duration = Duration::from_secs(1);
const LOAD: Duration = Duration::from_millis(150);
const LIVES: u32 = 10;

type Value = Arc<str>;

/// The two caches.
#[derive(Clone)]
enum Table {
    Own(cache::Cache<u32, Value, io::Error>),
    Moka(moka::future::Cache<u32, Value>),
}

impl Table {
    fn both(life: Duration) -> [(&'static str, Self); 2] {
        let settings =
            cache::Settings { life, refresh_at: 0.75, stale_for: life, pause: life / 20, capacity: 1_000 };
        let moka = moka::future::Cache::builder().max_capacity(1_000).time_to_live(life).build();
        [("cache", Self::Own(cache::Cache::new(settings))), ("moka", Self::Moka(moka))]
    }

    async fn get<L>(&self, key: u32, loader: impl FnOnce(u32) -> L + Send + 'static) -> Value
    where
        L: Future<Output = io::Result<Value>> + Send,
    {
        match self {
            Self::Own(cache) => cache.get(&key, loader).await.expect("loaded"),
            Self::Moka(cache) => cache.try_get_with(key, loader(key)).await.expect("loaded"),
        }
    }
}

async fn value(_: u32) -> io::Result<Value> {
    Ok("value".into())
}

fn hits(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("hits of 100 tasks on 10 keys");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    group.throughput(Throughput::Elements(TASKS as u64));
    for (name, table) in Table::both(Duration::from_secs(3_600)) {
        group.bench_function(name, |bench| {
            bench.iter_custom(|rounds| runtime.block_on(timed(&table, rounds)));
        });
    }
    group.finish();
}

/// Each task asks `rounds` times for one key.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn timed(table: &Table, rounds: u64) -> Duration {
    let from = Instant::now();
    let mut tasks = JoinSet::new();
    for key in (0..KEYS).cycle().take(TASKS) {
        let table = table.clone();
        tasks.spawn(async move {
            for _ in 0..rounds {
                std::hint::black_box(table.get(key, value).await);
            }
        });
    }
    tasks.join_all().await;
    from.elapsed()
}

/// Counts the callers that wait after the first load, and for how long, over several lives of the values in real time.
fn waits(_: &mut Criterion) {
    let runtime = runtime();
    for (name, table) in Table::both(LIFE) {
        let loads = Arc::new(AtomicU64::new(0));
        let durations = runtime.block_on(asked(&table, &loads));
        let waited: Vec<_> = durations.iter().filter(|took| **took > LOAD / 30).collect();
        let mean =
            waited.iter().copied().sum::<Duration>() / u32::try_from(waited.len().max(1)).expect("few");
        println!(
            "waits/{name}: {} loads, {} calls after the first load, {} waited, mean {mean:?}, longest {:?}",
            loads.load(Ordering::Relaxed),
            durations.len(),
            waited.len(),
            durations.iter().max().expect("calls"),
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn asked(table: &Table, loads: &Arc<AtomicU64>) -> Vec<Duration> {
    let mut tasks = JoinSet::new();
    let from = Instant::now();
    for key in (0..KEYS).cycle().take(TASKS) {
        let (table, loads) = (table.clone(), Arc::clone(loads));
        tasks.spawn(async move {
            let load = move |_| {
                let loads = Arc::clone(&loads);
                async move {
                    loads.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(LOAD).await;
                    Ok("value".into())
                }
            };
            table.get(key, load.clone()).await;
            let mut durations = Vec::new();
            while from.elapsed() < LIVES * LIFE {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let asked = Instant::now();
                table.get(key, load.clone()).await;
                durations.push(asked.elapsed());
            }
            durations
        });
    }
    tasks.join_all().await.concat()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

criterion_group!(benches, hits, waits);
criterion_main!(benches);
