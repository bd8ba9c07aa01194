//! What a caller gets, rule by rule, on a clock that only the tests advance.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cache::{Cache, LoadError, Settings};
use tokio::{
    sync::Notify,
    task::{JoinSet, yield_now},
    time::{Instant, advance, sleep, timeout},
};

const LIFE: Duration = Duration::from_secs(20);
const STALE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_secs(1);
const LOAD: Duration = Duration::from_secs(3);

type Numbers = Cache<u32, u64, String>;

fn cache() -> Numbers {
    Cache::new(Settings { life: LIFE, refresh_at: 0.75, stale_for: STALE, pause: PAUSE, capacity: 100 })
}

/// Counts loads. Each takes three seconds and returns its number, from 1.
#[derive(Clone, Default)]
struct Source {
    loads: Arc<AtomicU64>,
}

impl Source {
    fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    async fn good(self, _: u32) -> Result<u64, String> {
        let number = self.loads.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(LOAD).await;
        Ok(number)
    }

    async fn bad(self, _: u32) -> Result<u64, String> {
        let number = self.loads.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(LOAD).await;
        Err(format!("fault {number}"))
    }

    async fn panics(self, _: u32) -> Result<u64, String> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        sleep(LOAD).await;
        panic!("on purpose");
    }
}

/// A cache whose key 1 has just been loaded, as 1.
async fn loaded() -> (Numbers, Source) {
    let (cache, source) = (cache(), Source::default());
    assert_eq!(good(&cache, &source).await, Ok(1));
    (cache, source)
}

/// Asks for key 1. A call that waits for an hour on this clock counts as endless.
async fn ask<L>(
    cache: &Numbers,
    load: impl FnOnce(u32) -> L + Send + 'static,
) -> Result<u64, LoadError<String>>
where
    L: Future<Output = Result<u64, String>> + Send,
{
    let answer = timeout(Duration::from_secs(3_600), cache.get(&1, load)).await;
    answer.expect("a caller was stranded")
}

async fn good(cache: &Numbers, source: &Source) -> Result<u64, String> {
    let source = source.clone();
    ask(cache, move |key| source.good(key)).await.map_err(|error| error.to_string())
}

async fn bad(cache: &Numbers, source: &Source) -> Result<u64, String> {
    let source = source.clone();
    ask(cache, move |key| source.bad(key)).await.map_err(|error| error.to_string())
}

/// Asks, and asserts that the answer came without waiting.
async fn at_once<T>(answer: impl Future<Output = T>) -> T {
    let from = Instant::now();
    let answer = answer.await;
    assert_eq!(from.elapsed(), Duration::ZERO, "somebody waited");
    answer
}

/// Lets all ready tasks run without advancing the clock.
async fn settle() {
    for _ in 0..8 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_share_one_load() {
    let (cache, source) = (cache(), Source::default());
    let from = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..1_000 {
        let (cache, source) = (cache.clone(), source.clone());
        callers.spawn(async move { good(&cache, &source).await });
    }
    assert_eq!(callers.join_all().await, vec![Ok(1); 1_000]);
    assert_eq!((source.loads(), from.elapsed()), (1, LOAD));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_share_one_error_and_a_pause_follows() {
    let (cache, source) = (cache(), Source::default());
    let mut callers = JoinSet::new();
    for _ in 0..1_000 {
        let (cache, source) = (cache.clone(), source.clone());
        callers.spawn(async move { ask(&cache, move |key| source.bad(key)).await });
    }
    let errors = callers.join_all().await;
    let Err(LoadError::Failed(first)) = &errors[0] else { panic!("{:?}", errors[0]) };
    assert!(
        errors.iter().all(|error| matches!(error, Err(LoadError::Failed(own)) if Arc::ptr_eq(own, first)))
    );
    assert_eq!(source.loads(), 1);

    advance(PAUSE - Duration::from_millis(1)).await;
    assert_eq!(at_once(good(&cache, &source)).await, Err("fault 1".to_owned()));
    assert_eq!(source.loads(), 1);
    advance(Duration::from_millis(1)).await;
    assert_eq!(good(&cache, &source).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn one_caller_refreshes_ahead_while_all_are_served() {
    let (cache, source) = loaded().await;
    advance(LIFE.mul_f64(0.75) - Duration::from_millis(1)).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    settle().await;
    assert_eq!(source.loads(), 1, "nothing is loaded before three quarters of the life");

    advance(Duration::from_millis(1)).await;
    for _ in 0..100 {
        assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    }
    sleep(LOAD - Duration::from_millis(1)).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    sleep(Duration::from_millis(1)).await;
    settle().await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(2));
    assert_eq!(source.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_slower_than_the_life_keeps_nobody_waiting() {
    let (cache, source) = loaded().await;
    advance(LIFE - Duration::from_millis(1)).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    sleep(LOAD / 2).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1), "its renewal already runs");
    sleep(LOAD / 2).await;
    settle().await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_value_nobody_asked_for_in_time_is_waited_for() {
    let (cache, source) = loaded().await;
    advance(LIFE).await;
    let from = Instant::now();
    let (first, second) = tokio::join!(good(&cache, &source), good(&cache, &source));
    assert_eq!((first, second), (Ok(2), Ok(2)));
    assert_eq!((source.loads(), from.elapsed()), (2, LOAD));
}

#[tokio::test(start_paused = true)]
async fn stale_values_are_served_while_loads_fail_up_to_the_bound() {
    let (cache, source) = loaded().await;
    let from = Instant::now();
    advance(LIFE).await;
    // The first caller waits for a load that fails, and then gets the stale value.
    assert_eq!(bad(&cache, &source).await, Ok(1));
    let mut asked = 0_u64;
    while from.elapsed() + Duration::from_millis(100) < LIFE + STALE {
        assert_eq!(at_once(bad(&cache, &source)).await, Ok(1), "after {:?}", from.elapsed());
        asked += 1;
        sleep(Duration::from_millis(100)).await;
    }
    // A load and a pause take four seconds, and up to 0.1 s pass until the next call.
    let seconds = STALE.as_secs();
    assert!((seconds / 5..=seconds / 4 + 2).contains(&source.loads()), "{} of {asked}", source.loads());
    sleep(LIFE + STALE - from.elapsed()).await;
    let error = bad(&cache, &source).await.expect_err("too old");
    assert!(error.starts_with("fault"), "{error}");
    sleep(PAUSE).await;
    let loads = source.loads();
    assert_eq!(good(&cache, &source).await, Ok(loads + 1));
}

#[tokio::test(start_paused = true)]
async fn a_bound_of_zero_serves_nothing_stale() {
    let settings =
        Settings { life: LIFE, refresh_at: 0.75, stale_for: Duration::ZERO, pause: PAUSE, capacity: 1 };
    let (cache, source) = (Numbers::new(settings), Source::default());
    assert_eq!(good(&cache, &source).await, Ok(1));
    advance(LIFE.mul_f64(0.75)).await;
    assert_eq!(at_once(bad(&cache, &source)).await, Ok(1));
    advance(LIFE.mul_f64(0.25)).await;
    settle().await;
    assert_eq!(bad(&cache, &source).await, Err("fault 2".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_first_caller_takes_nothing_along() {
    let (cache, source) = (cache(), Source::default());
    let first = tokio::spawn({
        let (cache, source) = (cache.clone(), source.clone());
        async move { good(&cache, &source).await }
    });
    settle().await;
    let waiter = tokio::spawn({
        let (cache, source) = (cache.clone(), source.clone());
        async move { good(&cache, &source).await }
    });
    settle().await;
    first.abort();
    assert!(first.await.expect_err("cancelled").is_cancelled());
    assert_eq!(waiter.await.expect("served"), Ok(1));
    assert_eq!(source.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_cancelled_alone_still_leaves_a_value() {
    let (cache, source) = (cache(), Source::default());
    let first = timeout(LOAD / 2, good(&cache, &source)).await;
    assert!(first.is_err(), "the caller gave up");
    sleep(LOAD).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    assert_eq!(source.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_to_all_and_the_next_caller_loads_again() {
    let (cache, source) = (cache(), Source::default());
    let mut callers = JoinSet::new();
    for _ in 0..10 {
        let (cache, source) = (cache.clone(), source.clone());
        callers.spawn(async move { ask(&cache, move |key| source.panics(key)).await });
    }
    for answer in callers.join_all().await {
        assert!(matches!(answer, Err(LoadError::Panicked)), "{answer:?}");
    }
    assert_eq!(source.loads(), 1);
    advance(PAUSE).await;
    assert_eq!(good(&cache, &source).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_panics_before_its_future_is_a_panic_too() {
    let cache = cache();
    let panics = |_| -> std::future::Ready<Result<u64, String>> { panic!("on purpose") };
    assert!(matches!(ask(&cache, panics).await, Err(LoadError::Panicked)));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_refresh_leaves_the_value() {
    let (cache, source) = loaded().await;
    advance(LIFE.mul_f64(0.75)).await;
    let panics = source.clone();
    assert!(matches!(at_once(ask(&cache, move |key| panics.panics(key))).await, Ok(1)));
    sleep(LOAD).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    assert_eq!(source.loads(), 2, "the pause is not over");
}

#[test]
fn a_runtime_that_stops_cancels_the_load_and_nobody_waits_for_ever() {
    let (cache, source) = (cache(), Source::default());
    let loads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let loads = loads.expect("a runtime");
    let started = Arc::new(Notify::new());
    let first = loads.spawn({
        let (cache, started) = (cache.clone(), Arc::clone(&started));
        async move {
            let begin = move |_| async move {
                started.notify_one();
                std::future::pending::<Result<u64, String>>().await
            };
            cache.get(&1, begin).await
        }
    });
    let waits = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    waits.block_on(started.notified());
    // This call waits already when the other runtime stops.
    let mut waiter = Box::pin(good(&cache, &source));
    let polled = waits.block_on(std::future::poll_fn(|context| {
        std::task::Poll::Ready(waiter.as_mut().poll(context).is_ready())
    }));
    assert!(!polled);
    loads.shutdown_background();
    let bounded = waits.block_on(async { timeout(Duration::from_secs(30), waiter).await });
    assert_eq!(bounded.expect("told in time"), Err("the loader was cancelled".to_owned()));
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_put_during_a_refresh_wins() {
    let (cache, source) = loaded().await;
    advance(LIFE.mul_f64(0.75)).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1));
    sleep(LOAD / 2).await;
    cache.put(1, 100);
    sleep(LOAD).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(100));
    assert_eq!(source.loads(), 2, "the refresh did run");
    // Its life begins when it is stored.
    sleep(LIFE.mul_f64(0.75) - LOAD - Duration::from_millis(1)).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(100));
    settle().await;
    assert_eq!(source.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_put_answers_those_who_wait_for_a_load() {
    let (cache, source) = (cache(), Source::default());
    let waiter = tokio::spawn({
        let (cache, source) = (cache.clone(), source.clone());
        async move { at_once(good(&cache, &source)).await }
    });
    settle().await;
    assert_eq!(source.loads(), 1);
    cache.put(1, 100);
    assert_eq!(waiter.await.expect("served"), Ok(100));
    sleep(LOAD).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(100));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_ends_right_after_a_put_does_not_take_its_answer_back() {
    let cache = cache();
    let end = Arc::new(Notify::new());
    let waiter = tokio::spawn({
        let (cache, end) = (cache.clone(), Arc::clone(&end));
        let load = async move |_| {
            end.notified().await;
            Err("a bad load".to_owned())
        };
        async move { ask(&cache, load).await }
    });
    settle().await;
    // The load's task is woken before the waiting task, so it runs first.
    end.notify_one();
    cache.put(1, 100);
    assert!(matches!(waiter.await.expect("served"), Ok(100)));
}

#[tokio::test(start_paused = true)]
async fn a_failing_refresh_does_not_touch_a_newer_put() {
    let (cache, source) = loaded().await;
    advance(LIFE.mul_f64(0.75)).await;
    assert_eq!(at_once(bad(&cache, &source)).await, Ok(1));
    settle().await;
    cache.put(1, 100);
    sleep(LOAD).await;
    assert_eq!(at_once(good(&cache, &source)).await, Ok(100));
    // The failure of the load does not extend the life of the value that was put.
    advance(LIFE).await;
    assert_eq!(good(&cache, &source).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn who_asks_after_an_invalidation_gets_a_load_that_began_after_it() {
    let (cache, source) = (cache(), Source::default());
    let ask = || {
        let (cache, source) = (cache.clone(), source.clone());
        tokio::spawn(async move { (good(&cache, &source).await, Instant::now()) })
    };
    let from = Instant::now();
    let before = ask();
    settle().await;
    cache.invalidate(&1);
    let after = [ask(), ask()];
    settle().await;
    assert_eq!(source.loads(), 1, "two loads of a key never run at once");
    assert_eq!(before.await.expect("served"), (Ok(1), from + LOAD));
    for after in after {
        assert_eq!(after.await.expect("served"), (Ok(2), from + LOAD + LOAD));
    }
    assert_eq!(source.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_put_also_answers_those_who_ask_after_an_invalidation() {
    let (cache, source) = (cache(), Source::default());
    let ask = || {
        let (cache, source) = (cache.clone(), source.clone());
        tokio::spawn(async move { at_once(good(&cache, &source)).await })
    };
    let before = ask();
    settle().await;
    cache.put(1, 100);
    cache.invalidate(&1);
    let after = ask();
    settle().await;
    cache.put(1, 200);
    settle().await;
    // The caller that the first put answered may receive either value.
    assert!(matches!(before.await.expect("served"), Ok(100 | 200)));
    assert_eq!(after.await.expect("served"), Ok(200));
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_forgets_the_value_and_the_pause() {
    let (cache, source) = loaded().await;
    cache.invalidate(&1);
    assert_eq!(bad(&cache, &source).await, Err("fault 2".to_owned()), "no stale value is left");
    cache.invalidate(&1);
    assert_eq!(good(&cache, &source).await, Ok(3), "no pause is left");
}

#[tokio::test(start_paused = true)]
async fn the_capacity_holds_and_keys_in_use_stay() {
    for capacity in [1, 2, 63, 100, 1_000] {
        let settings = Settings { life: LIFE, refresh_at: 0.75, stale_for: STALE, pause: PAUSE, capacity };
        let cache: Cache<usize, usize, String> = Cache::new(settings);
        for key in 0..20 * capacity {
            // Each value and each error takes one place.
            if key % 2 == 0 {
                cache.put(key, key);
            } else {
                assert!(cache.get(&key, async |_| Err("none".to_owned())).await.is_err());
            }
            assert!(cache.kept() <= capacity, "{} of {capacity}", cache.kept());
            assert!(cache.kept() > 0);
        }
        assert!(cache.kept() > capacity / 2, "{} of {capacity}", cache.kept());
    }
    let (cache, source) = loaded().await;
    for key in 100..10_000 {
        assert!(cache.get(&key, async |_| Err("none".to_owned())).await.is_err());
        assert_eq!(at_once(good(&cache, &source)).await, Ok(1), "a flood of keys evicted a key in use");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_loads_that_hang_ends_somewhere() {
    let (cache, source) = loaded().await;
    let mut hanging = JoinSet::new();
    for key in 2..2_000 {
        let cache = cache.clone();
        hanging.spawn(async move { cache.get(&key, async |_| std::future::pending().await).await });
    }
    for _ in 0..1_998 - 1_024 {
        let answer = timeout(LOAD, hanging.join_next()).await.expect("a load too many");
        let answer = answer.expect("a caller").expect("answered");
        assert!(matches!(answer, Err(LoadError::Busy)), "{answer:?}");
    }
    // The clock advances only when no task can run, so the others are waiting.
    assert!(timeout(LOAD, hanging.join_next()).await.is_err());
    assert_eq!(at_once(good(&cache, &source)).await, Ok(1), "a value that exists is returned");
    hanging.shutdown().await;
}

#[test]
fn settings_out_of_range_are_refused() {
    let fine = Settings { life: LIFE, refresh_at: 1.0, stale_for: STALE, pause: PAUSE, capacity: 1 };
    let refused = |settings| std::panic::catch_unwind(|| Numbers::new(settings)).is_err();
    assert!(!refused(fine));
    assert!(refused(Settings { life: Duration::ZERO, ..fine }));
    assert!(refused(Settings { refresh_at: 0.0, ..fine }));
    assert!(refused(Settings { refresh_at: 1.1, ..fine }));
    assert!(refused(Settings { refresh_at: f64::NAN, ..fine }));
    assert!(refused(Settings { capacity: 0, ..fine }));
}
