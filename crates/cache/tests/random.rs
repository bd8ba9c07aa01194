//! Random runs on a virtual clock, compared with a simple model, and a run on real threads.
//!
//! The model knows what a cache without limits would hold, and which loads run. `PROPTEST_RNG_SEED` selects the runs,
//! `PROPTEST_CASES` sets their number. A run that fails is shortened and printed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cache::{Cache, LoadError, Settings};
use proptest::{
    prelude::*,
    test_runner::{Config, FileFailurePersistence, TestRunner},
};
use tokio::{
    task::{JoinHandle, JoinSet, yield_now},
    time::{Instant, sleep},
};

const SETTINGS: Settings = Settings {
    life: Duration::from_secs(20),
    refresh_at: 0.75,
    stale_for: Duration::from_secs(30),
    pause: Duration::from_secs(1),
    capacity: 100,
};
const KEYS: u8 = 4;

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    /// A call: the result of the load if this call starts one, and when the caller gives up.
    Get {
        key: u8,
        took_ms: u64,
        end: End,
        patience_ms: Option<u64>,
    },
    Put {
        key: u8,
    },
    Invalidate {
        key: u8,
    },
    Pass {
        ms: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum End {
    Good,
    Bad,
    Panic,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![5 => Just(End::Good), 4 => Just(End::Bad), 1 => Just(End::Panic)];
    let took_ms = prop_oneof![1 => Just(0), 4 => 0_u64..4_000, 1 => 4_000_u64..60_000];
    let ms = prop_oneof![4 => 0_u64..2_000, 3 => 0_u64..10_000, 1 => 0_u64..60_000];
    let patience_ms = proptest::option::weighted(0.2, 0_u64..3_000);
    let step = prop_oneof![
        10 => (0..KEYS, took_ms, end, patience_ms)
            .prop_map(|(key, took_ms, end, patience_ms)| Step::Get { key, took_ms, end, patience_ms }),
        1 => (0..KEYS).prop_map(|key| Step::Put { key }),
        1 => (0..KEYS).prop_map(|key| Step::Invalidate { key }),
        6 => ms.prop_map(|ms| Step::Pass { ms }),
    ];
    prop::collection::vec(step, 1..120)
}

/// A value that is put or loaded: its number in the order of all events, from when the value was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    key: u8,
    stamp: u64,
}

/// Which cases the runs have covered. The test fails if one is missing.
#[derive(Debug, Default)]
struct Met {
    fresh: u64,
    stale: u64,
    waited: u64,
    errors: u64,
    panics: u64,
    outdated: u64,
    given_up: u64,
}

#[derive(Default)]
struct Model {
    order: u64,
    keys: HashMap<u8, Key>,
    /// When each value was stored.
    came: HashMap<u64, Instant>,
    met: Met,
}

#[derive(Clone, Copy, Default)]
struct Key {
    /// When the running load began.
    running: Option<Instant>,
    current: Option<(u64, Instant)>,
    failed: Option<Instant>,
    /// The last put or invalidation. Later calls must not return an older value.
    floor: u64,
}

impl Model {
    fn stamp(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn key(&mut self, key: u8) -> &mut Key {
        self.keys.entry(key).or_default()
    }
}

#[derive(Clone)]
struct World {
    cache: Cache<u8, Value, String>,
    model: Arc<Mutex<Model>>,
    /// Whether the cache has room for all keys, so that it must hold what the model holds.
    roomy: bool,
}

/// Ends a load in the model, whatever its result.
struct Running(World, u8);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.model().key(self.1).running = None;
    }
}

impl World {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn put(&self, key: u8) {
        let mut model = self.model();
        let (stamp, now) = (model.stamp(), Instant::now());
        model.came.insert(stamp, now);
        let known = model.key(key);
        *known = Key { running: known.running, current: Some((stamp, now)), failed: None, floor: stamp };
        drop(model);
        self.cache.put(key, Value { key, stamp });
    }

    fn invalidate(&self, key: u8) {
        let mut model = self.model();
        let stamp = model.stamp();
        let known = model.key(key);
        *known = Key { running: known.running, floor: stamp, ..Key::default() };
        drop(model);
        self.cache.invalidate(&key);
    }

    async fn load(self, key: u8, took: Duration, end: End) -> Result<Value, String> {
        let began = Instant::now();
        let stamp = {
            let mut model = self.model();
            let stamp = model.stamp();
            let known = model.key(key);
            assert!(known.running.is_none(), "two loads of {key} at the same time");
            known.running = Some(began);
            if self.roomy {
                let needed = |(_, since)| began - since >= SETTINGS.life.mul_f64(SETTINGS.refresh_at);
                assert!(known.current.is_none_or(needed), "a load of {key} that nobody needs");
                let paused = known.failed.is_some_and(|at| began - at < SETTINGS.pause);
                assert!(!paused, "a load of {key} within the pause");
            }
            stamp
        };
        let running = Running(self.clone(), key);
        sleep(took).await;
        let mut model = self.model();
        let now = Instant::now();
        let known = model.key(key);
        let kept = stamp > known.floor;
        match end {
            End::Good if kept => (known.current, known.failed) = (Some((stamp, now)), None),
            End::Good => {}
            End::Bad | End::Panic if kept => known.failed = Some(now),
            End::Bad | End::Panic => {}
        }
        model.came.insert(stamp, now);
        model.met.outdated += u64::from(!kept);
        model.met.panics += u64::from(matches!(end, End::Panic));
        drop(model);
        drop(running);
        match end {
            End::Good => Ok(Value { key, stamp }),
            End::Bad => Err("a bad load".to_owned()),
            End::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        }
    }

    /// Asks, and compares the answer with the model.
    async fn get(self, key: u8, took: Duration, end: End) {
        let asked = Instant::now();
        let before = *self.model().key(key);
        let world = self.clone();
        let answer = self.cache.get(&key, move |key| world.load(key, took, end)).await;
        let now = Instant::now();
        let mut model = self.model();
        let after = *model.key(key);
        model.met.waited += u64::from(now > asked);
        let alive = before.current.filter(|(_, since)| asked - *since < SETTINGS.life);
        if let Some((stamp, _)) = alive
            && self.roomy
        {
            assert_eq!(now, asked, "a caller waited although there was a value");
            assert_eq!(answer.as_ref().ok(), Some(&Value { key, stamp }));
        }
        match answer {
            Ok(value) => {
                assert_eq!(value.key, key);
                assert!(value.stamp >= before.floor, "{value:?} is older than {}", before.floor);
                let came = model.came[&value.stamp];
                let age = now - came;
                assert!(age < SETTINGS.life + SETTINGS.stale_for, "{value:?} is {age:?} old");
                if age >= SETTINGS.life {
                    let in_time = after.running.is_some_and(|began| began < came + SETTINGS.life);
                    assert!(!self.roomy || after.failed.is_some() || in_time, "stale without a reason");
                    model.met.stale += 1;
                } else {
                    model.met.fresh += 1;
                }
            }
            Err(error) => {
                assert!(matches!(error, LoadError::Failed(_) | LoadError::Panicked), "{error}");
                let usable = |(_, since)| now - since < SETTINGS.life + SETTINGS.stale_for;
                assert!(
                    !self.roomy || !after.current.is_some_and(usable),
                    "an error though there is a value"
                );
                model.met.errors += 1;
            }
        }
    }
}

/// Lets all ready tasks run without advancing the clock.
async fn settle() {
    for _ in 0..16 {
        yield_now().await;
    }
}

async fn run(steps: Vec<Step>, capacity: usize) -> Met {
    let world = World {
        cache: Cache::new(Settings { capacity, ..SETTINGS }),
        model: Arc::default(),
        roomy: capacity > KEYS.into(),
    };
    let mut callers: Vec<JoinHandle<()>> = Vec::new();
    for step in steps {
        match step {
            Step::Get { key, took_ms, end, patience_ms } => {
                let caller = tokio::spawn(world.clone().get(key, Duration::from_millis(took_ms), end));
                if let Some(patience_ms) = patience_ms {
                    let giving_up = caller.abort_handle();
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(patience_ms)).await;
                        giving_up.abort();
                    });
                }
                callers.push(caller);
            }
            Step::Put { key } => world.put(key),
            Step::Invalidate { key } => world.invalidate(key),
            Step::Pass { ms } => sleep(Duration::from_millis(ms)).await,
        }
        settle().await;
        assert!(world.cache.kept() <= capacity);
    }
    // A load takes at most a minute. A caller that waits for an outdated load also waits for the next one.
    sleep(Duration::from_secs(600)).await;
    for caller in callers {
        assert!(caller.is_finished(), "a caller was stranded");
        match caller.await {
            Ok(()) => {}
            Err(error) if error.is_cancelled() => world.model().met.given_up += 1,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    let mut model = world.model();
    assert!(model.keys.values().all(|key| key.running.is_none()));
    std::mem::take(&mut model.met)
}

fn runs(capacity: usize) -> Met {
    let met = Mutex::new(Met::default());
    let regressions = FileFailurePersistence::Direct("tests/random.regressions");
    let config = Config { failure_persistence: Some(Box::new(regressions)), ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let one = runtime.expect("a runtime").block_on(run(steps, capacity));
        let mut met = met.lock().expect("not poisoned");
        met.fresh += one.fresh;
        met.stale += one.stale;
        met.waited += one.waited;
        met.errors += one.errors;
        met.panics += one.panics;
        met.outdated += one.outdated;
        met.given_up += one.given_up;
        Ok(())
    });
    if let Err(fault) = outcome {
        panic!("{fault}");
    }
    met.into_inner().expect("not poisoned")
}

#[test]
fn whatever_happens_the_promises_hold() {
    let met = runs(SETTINGS.capacity);
    let Met { fresh, stale, waited, errors, panics, outdated, given_up } = met;
    let least = [fresh, stale, waited, errors, panics, outdated, given_up].into_iter().min();
    assert!(least > Some(0), "the runs lack something: {met:?}");
}

#[test]
fn they_hold_where_keys_push_each_other_out() {
    let met = runs(2);
    assert!(met.waited > 0 && met.outdated > 0, "the runs lack something: {met:?}");
}

/// On real threads, where callers, writers and loads interleave in any way.
#[test]
fn threads_see_no_older_write_after_a_newer_and_no_two_loads_at_once() {
    const KEYS: usize = 3;
    #[derive(Default)]
    struct Shared {
        order: AtomicU64,
        floors: [AtomicU64; KEYS],
        running: [AtomicU64; KEYS],
        loads: AtomicU64,
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    let shared = Arc::new(Shared::default());
    let cache: Cache<usize, u64, String> = Cache::new(SETTINGS);
    runtime.expect("a runtime").block_on(async {
        let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
        for key in 0..KEYS {
            // One writer a key, so that the order of its writes is known.
            let (cache, shared) = (cache.clone(), Arc::clone(&shared));
            writers.spawn(async move {
                for turn in 0_u64.. {
                    let stamp = shared.order.fetch_add(1, Ordering::SeqCst) + 1;
                    if turn % 4 == 0 {
                        cache.put(key, stamp);
                    } else {
                        cache.invalidate(&key);
                    }
                    shared.floors[key].store(stamp, Ordering::SeqCst);
                    yield_now().await;
                }
            });
        }
        for reader in 0..8 {
            let (cache, shared) = (cache.clone(), Arc::clone(&shared));
            readers.spawn(async move {
                for turn in 0..3_000 {
                    let key = (reader + turn) % KEYS;
                    let floor = shared.floors[key].load(Ordering::SeqCst);
                    let loading = Arc::clone(&shared);
                    let load = async move |key: usize| {
                        assert_eq!(
                            loading.running[key].fetch_add(1, Ordering::SeqCst),
                            0,
                            "two loads at once"
                        );
                        loading.loads.fetch_add(1, Ordering::SeqCst);
                        let stamp = loading.order.fetch_add(1, Ordering::SeqCst) + 1;
                        yield_now().await;
                        loading.running[key].fetch_sub(1, Ordering::SeqCst);
                        Ok(stamp)
                    };
                    let value = cache.get(&key, load).await.expect("loaded");
                    assert!(value >= floor, "{value} is older than {floor}");
                    yield_now().await;
                }
            });
        }
        let all = tokio::time::timeout(Duration::from_secs(60), readers.join_all()).await;
        assert!(all.is_ok(), "a reader was stranded");
        writers.shutdown().await;
    });
    let loads = shared.loads.load(Ordering::SeqCst);
    assert!(loads > 100, "hardly anything was loaded: {loads}");
}
