//! The published experiment: 100 callers on 10 keys, a life of 20 s, loads of 3 s, over ten lives on a virtual clock;
//! and the same callers at moka's `try_get_with`.
#![expect(clippy::print_stdout, reason = "it is there to be read")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cache::{Cache, Settings};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const CALLERS: u32 = 100;
const KEYS: u32 = 10;
const LIFE: Duration = Duration::from_secs(20);
const LOAD: Duration = Duration::from_secs(3);
const LIVES: u32 = 10;
/// Each caller asks this often.
const PERIOD: Duration = Duration::from_millis(100);

/// When loads began, by key, and how long each call waited that was made after the first load had ended.
#[derive(Default)]
struct Seen {
    loads: Mutex<Vec<(u32, Instant)>>,
    waits: Mutex<Vec<Duration>>,
}

impl Seen {
    async fn load(self: Arc<Self>, key: u32) -> Result<u64, String> {
        self.loads.lock().expect("not poisoned").push((key, Instant::now()));
        sleep(LOAD).await;
        Ok(0)
    }

    fn report(&self, name: &str) -> Vec<Duration> {
        let calls = self.waits.lock().expect("not poisoned");
        let waits: Vec<Duration> = calls.iter().copied().filter(|wait| !wait.is_zero()).collect();
        let mean = waits.iter().sum::<Duration>() / u32::try_from(waits.len().max(1)).expect("few");
        println!(
            "{name}: {} loads, {} calls after the first load, {} of them waited, {:.2} s in the mean, {:.2} s at most",
            self.loads.lock().expect("not poisoned").len(),
            calls.len(),
            waits.len(),
            mean.as_secs_f64(),
            waits.iter().max().unwrap_or(&Duration::ZERO).as_secs_f64(),
        );
        waits
    }
}

/// Lets the callers ask for ten lives. Each caller asks for its own key, and the calls are spread over the period.
async fn call<A, G>(seen: &Seen, ask: A) -> Vec<Duration>
where
    A: Fn(u32) -> G + Clone + Send + 'static,
    G: Future<Output = ()> + Send,
{
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let ask = ask.clone();
        callers.spawn(async move {
            let began = Instant::now();
            ask(caller % KEYS).await;
            // Callers of a key are spread over the period.
            sleep(PERIOD * (caller / KEYS) / (CALLERS / KEYS)).await;
            let mut waits = Vec::new();
            while began.elapsed() < LIVES * LIFE {
                let asked = Instant::now();
                ask(caller % KEYS).await;
                waits.push(asked.elapsed());
                sleep(PERIOD).await;
            }
            waits
        });
    }
    let waits = callers.join_all().await.concat();
    seen.waits.lock().expect("not poisoned").clone_from(&waits);
    waits
}

#[tokio::test(start_paused = true)]
async fn one_load_a_key_and_life_and_nobody_waits_after_the_first() {
    let own = Arc::new(Seen::default());
    let cache = Cache::new(Settings {
        life: LIFE,
        refresh_at: 0.75,
        stale_for: LIFE,
        pause: Duration::from_secs(1),
        capacity: 1_000,
    });
    let began = Instant::now();
    call(&own, {
        let own = Arc::clone(&own);
        move |key| {
            let (cache, own) = (cache.clone(), Arc::clone(&own));
            async move {
                cache.get(&key, |key| own.load(key)).await.expect("loaded");
            }
        }
    })
    .await;

    // moka does not use tokio's clock, so this test removes each value when its life is over.
    let other = Arc::new(Seen::default());
    let moka: moka::future::Cache<u32, u64> = moka::future::Cache::new(1_000);
    call(&other, {
        let other = Arc::clone(&other);
        move |key| {
            let (moka, other) = (moka.clone(), Arc::clone(&other));
            let load = {
                let moka = moka.clone();
                async move {
                    let value = other.load(key).await;
                    tokio::spawn(async move {
                        sleep(LIFE).await;
                        moka.invalidate(&key).await;
                    });
                    value
                }
            };
            async move {
                moka.try_get_with(key, load).await.expect("loaded");
            }
        }
    })
    .await;

    let waits = own.report("cache");
    other.report("moka");
    assert_eq!(waits, [], "somebody waited after the first load");
    let loads = own.loads.lock().expect("not poisoned");
    // A value lives until the next comes in: three quarters of the life, up to a hundredth of a second until somebody
    // asks, and the load. (A millisecond is the clock's grain.)
    let least = LIFE.mul_f64(0.75) + LOAD;
    for key in 0..KEYS {
        let begins: Vec<_> = loads.iter().filter(|load| load.0 == key).map(|load| load.1 - began).collect();
        assert!(begins[0] < Duration::from_millis(1), "{:?}", begins[0]);
        for pair in begins.windows(2) {
            let between = pair[1] - pair[0];
            assert!((least..=least + PERIOD).contains(&between), "{between:?} between two loads of {key}");
        }
        assert_eq!(begins.len(), 11 + 1, "{begins:?}");
    }
}
