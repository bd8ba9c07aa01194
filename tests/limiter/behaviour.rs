//! The behaviour of a limiter over every back end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use limiter::{Align, Bandwidth, Decision, Limit, Limiter};
use tokio::task::JoinSet;

use crate::Backend;

const HOUR: Duration = Duration::from_secs(3_600);

/// A limit that no other test uses. It refills almost nothing during a test.
pub(crate) fn limit(capacity: u64) -> Limit {
    limit_of([Bandwidth::greedy(capacity, 1, HOUR)])
}

pub(crate) fn limit_of(bandwidths: impl IntoIterator<Item = Bandwidth>) -> Limit {
    static USED: AtomicU32 = AtomicU32::new(0);
    let name = format!("limit-{}", USED.fetch_add(1, Ordering::Relaxed));
    Limit::new(&name, bandwidths).expect("a limit")
}

pub(crate) async fn allowed(limiter: &Limiter, limit: &Limit, key: &str, cost: u64) -> bool {
    match limiter.ask(limit, key, cost).await {
        Decision::Allowed(_) => true,
        Decision::Denied { retry_after_us: 1.., .. } => false,
        other => panic!("allowed, or denied for a time, not {other:?}"),
    }
}

/// What a key has left, as the back end reports it.
pub(crate) async fn left(limiter: &Limiter, limit: &Limit, key: &str) -> u64 {
    limiter.peek(limit, key).await.expect("the back end answers").remaining
}

/// How many asks of 16 callers are allowed.
pub(crate) async fn flood(limiters: &[Arc<Limiter>], limit: &Limit, asks_each: u64) -> u64 {
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (limiter, limit) = (Arc::clone(&limiters[caller % limiters.len()]), limit.clone());
        callers.spawn(async move {
            let mut passed = 0;
            for _ in 0..asks_each {
                passed += u64::from(allowed(&limiter, &limit, "key", 1).await);
                tokio::task::yield_now().await;
            }
            passed
        });
    }
    callers.join_all().await.into_iter().sum()
}

pub(crate) async fn sixteen_callers_get_what_the_bucket_holds(backend: &Backend) {
    for limiter in [backend.limiter().await, backend.plain_limiter().await] {
        let limit = limit(100);
        let limiter = Arc::new(limiter);
        assert_eq!(flood(&[Arc::clone(&limiter)], &limit, 10).await, 100);
        assert_eq!(left(&limiter, &limit, "key").await, 0);
    }
}

pub(crate) async fn who_waits_as_told_is_allowed(backend: &Backend) {
    let limiter = backend.limiter().await;
    for refill in [
        Bandwidth::greedy(3, 1, Duration::from_millis(40)),
        Bandwidth::interval(3, 3, Duration::from_millis(90), Align::FirstUse),
        Bandwidth::interval(3, 3, Duration::from_millis(90), Align::Epoch),
    ] {
        let limit = limit_of([refill]);
        let (mut refused, mut cost) = (0, 2);
        while refused < 4 {
            if !allowed(&limiter, &limit, "key", cost).await {
                // The ask before had the other cost, smaller or larger, and may have been refused or allowed.
                cost = 5 - cost;
                let last = limiter.ask(&limit, "key", cost).await;
                let Decision::Denied { retry_after_us, .. } = last else { continue };
                refused += 1;
                tokio::time::sleep(Duration::from_micros(retry_after_us)).await;
                assert!(allowed(&limiter, &limit, "key", cost).await, "after {retry_after_us} us");
            }
        }
    }
}

pub(crate) async fn all_bandwidths_allow_or_none_is_charged(backend: &Backend) {
    let limiter = backend.plain_limiter().await;
    let limit = limit_of([Bandwidth::greedy(5, 1, HOUR), Bandwidth::greedy(8, 1, HOUR * 10)]);
    assert!(allowed(&limiter, &limit, "key", 3).await);
    assert!(!allowed(&limiter, &limit, "key", 3).await);
    // The first has 2, the second 5.
    assert!(allowed(&limiter, &limit, "key", 2).await);
    assert_eq!(left(&limiter, &limit, "key").await, 0);
    let Decision::Denied { budget, .. } = limiter.ask(&limit, "key", 4).await else {
        panic!("nothing is left of the first, and 3 of the second");
    };
    // The budget is that of the longest wait: the second bandwidth needs 10 hours for the missing token.
    assert_eq!((budget.limit, budget.remaining), (8, 3));
}

pub(crate) async fn what_can_never_be_is_told_apart(backend: &Backend) {
    let limiter = backend.limiter().await;
    let limit = limit(10);
    let never = limiter.ask(&limit, "key", 11).await;
    assert!(
        matches!(never, Decision::Never(budget) if (budget.limit, budget.remaining) == (10, 10)),
        "{never:?}"
    );
    assert!(matches!(limiter.ask(&limit, "key", u64::MAX).await, Decision::Never(_)));
    assert!(allowed(&limiter, &limit, "key", 10).await);
    assert!(matches!(limiter.ask(&limit, "key", 11).await, Decision::Never(_)));
    assert_eq!(limiter.stats().unknown, 0);
}

pub(crate) async fn looks_take_nothing_and_a_reset_key_is_new(backend: &Backend) {
    let limiter = backend.limiter().await;
    let limit = limit(10);
    assert_eq!(left(&limiter, &limit, "key").await, 10);
    for _ in 0..3 {
        assert!(allowed(&limiter, &limit, "key", 0).await);
    }
    assert!(allowed(&limiter, &limit, "key", 10).await);
    assert!(allowed(&limiter, &limit, "key", 0).await);
    assert!(!allowed(&limiter, &limit, "key", 1).await);
    assert!(limiter.reset(&limit, "key").await);
    assert_eq!(left(&limiter, &limit, "key").await, 10);
    assert!(allowed(&limiter, &limit, "key", 10).await);
}

pub(crate) async fn limits_change_while_they_run(backend: &Backend) {
    let limiter = backend.limiter().await;
    let old = limit(10);
    let changed = |capacity| Limit::new(old.name(), [Bandwidth::greedy(capacity, 1, HOUR)]).expect("a limit");
    assert!(allowed(&limiter, &old, "key", 10).await);
    assert!(!allowed(&limiter, &old, "key", 1).await);
    // Spent tokens stay spent. A raise works at once, even if a refusal is remembered.
    assert!(allowed(&limiter, &changed(15), "key", 5).await);
    assert!(!allowed(&limiter, &changed(15), "key", 1).await);
    assert!(!allowed(&limiter, &changed(5), "key", 1).await);
    assert_eq!(left(&limiter, &changed(20), "key").await, 5);
}

pub(crate) async fn names_and_keys_of_all_kinds_are_kept_apart(backend: &Backend) {
    let limiter = backend.limiter().await;
    let limits = [limit(1), limit(1)];
    let long = "l".repeat(70);
    let keys: [&[u8]; 8] =
        [b"", b"key", b"key:", b"{key}", b"\0\r\n\xff", &[b'x'; 64], long.as_bytes(), &long.as_bytes()[1..]];
    for limit in &limits {
        for key in keys {
            assert!(limiter.ask(limit, key, 1).await.is_allowed(), "{key:?} of {limit:?} is new");
        }
        for key in keys {
            assert!(!limiter.ask(limit, key, 1).await.is_allowed(), "{key:?} of {limit:?} is known");
        }
    }
}

pub(crate) async fn new_keys_have_their_initial_tokens(backend: &Backend) {
    let limiter = backend.limiter().await;
    let limit = limit_of([Bandwidth::greedy(10, 1, HOUR).with_initial(2)]);
    assert!(!allowed(&limiter, &limit, "key", 3).await);
    assert!(allowed(&limiter, &limit, "key", 2).await);
    assert!(!allowed(&limiter, &limit, "key", 1).await);
    // A key whose first ask is refused starts to refill then. Further asks do not delay the refill.
    let quick = limit_of([Bandwidth::greedy(10, 1, Duration::from_millis(20)).with_initial(0)]);
    let Decision::Denied { retry_after_us, .. } = limiter.ask(&quick, "key", 1).await else {
        panic!("a new key has nothing");
    };
    tokio::time::sleep(Duration::from_micros(retry_after_us)).await;
    assert!(allowed(&limiter, &quick, "key", 1).await);
}
