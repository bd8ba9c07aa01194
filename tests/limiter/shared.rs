//! Buckets in Redis that several servers share: calls, hints, leases, expiry.

use std::{sync::Arc, time::Duration};

use limiter::{
    Decision,
    redis::{Ask, Calls},
};
use redis_script::{Client, ClientError, Confirm, Script, Value};

use crate::{
    Backend,
    behaviour::{allowed, flood, left, limit},
    redis::Reply,
};

pub(crate) async fn two_servers_share_what_the_bucket_holds(backend: &Backend) {
    let limit = limit(200);
    let servers = [Arc::new(backend.limiter().await), Arc::new(backend.limiter().await)];
    assert_eq!(flood(&servers, &limit, 20).await, 200);
}

pub(crate) async fn asks_of_a_moment_are_one_call(backend: &Backend) {
    let limiter = Arc::new(backend.plain_limiter().await);
    let limit = limit(5);
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (limiter, limit) = (Arc::clone(&limiter), limit.clone());
        asks.spawn(async move { allowed(&limiter, &limit, "key", 1).await });
    }
    let passed = asks.join_all().await.into_iter().filter(|passed| *passed).count();
    assert_eq!((passed, limiter.stats().calls), (5, 1));
}

pub(crate) async fn refusals_that_are_known_cost_no_call(backend: &Backend) {
    let limiter = backend.limiter().await;
    let limit = limit(10);
    assert!(allowed(&limiter, &limit, "key", 8).await);
    assert!(!allowed(&limiter, &limit, "key", 3).await);
    let before = limiter.stats();
    for cost in [3, 4, 10] {
        for _ in 0..100 {
            let Decision::Denied { retry_after_us, budget } = limiter.ask(&limit, "key", cost).await else {
                panic!("2 are left");
            };
            assert!(retry_after_us > 3_500_000_000 && budget.remaining == 2, "{retry_after_us} {budget:?}");
        }
    }
    let after = limiter.stats();
    assert_eq!((after.calls, after.hinted), (before.calls, before.hinted + 300));
    // A lower cost and another key are not covered by the hint.
    assert!(allowed(&limiter, &limit, "key", 2).await && allowed(&limiter, &limit, "other", 3).await);
}

pub(crate) async fn leases_save_calls_and_give_nothing_twice(backend: &Backend) {
    let limit = limit(1_000).with_lease(50, Duration::from_secs(60)).expect("it fits");
    let servers = [Arc::new(backend.limiter().await), Arc::new(backend.limiter().await)];
    assert_eq!(flood(&servers, &limit, 150).await, 1_000);
    let stats = servers.map(|server| server.stats());
    let (calls, leased) = (stats[0].calls + stats[1].calls, stats[0].leased + stats[1].leased);
    assert!(leased > 500 && calls < 500, "{calls} calls, {leased} out of leases");
}

pub(crate) async fn leases_move_no_more_than_their_tokens(backend: &Backend) {
    let limit = limit(100).with_lease(10, Duration::from_secs(60)).expect("it fits");
    let (holder, other) = (backend.limiter().await, backend.plain_limiter().await);
    // The second ask takes ten more, the third is one of them.
    for _ in 0..3 {
        assert!(allowed(&holder, &limit, "key", 1).await);
    }
    assert_eq!((left(&other, &limit, "key").await, holder.stats().leased), (88, 1));
    // The bucket's time passes and it is full again. The server still holds nine tokens from before.
    assert!(other.reset(&limit, "key").await);
    let mut passed = 0;
    while allowed(&holder, &limit, "key", 1).await {
        passed += 1;
    }
    assert_eq!(passed, 109);
    assert!(!allowed(&other, &limit, "key", 1).await);
}

/// A client that records the keys of script calls.
struct Keys;

impl Client for Keys {
    async fn run(
        &self,
        _: &'static Script,
        _: Vec<bytes::Bytes>,
        _: Vec<bytes::Bytes>,
        _: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        unreachable!("nothing is run")
    }
}

pub(crate) async fn keys_expire_when_they_are_full(backend: &Backend) {
    let limiter = backend.plain_limiter().await;
    let limit = limit(1_000);
    let key = Calls::new(Keys, "limiter:").key(&Ask::take(&limit, b"key", 1));
    let key = String::from_utf8(key.to_vec()).expect("text");
    let command = |parts: &[&str]| match backend {
        Backend::Memory => unreachable!("it has no keys"),
        Backend::One(server, _) => server.command(parts),
        Backend::Three(cluster, _) => cluster.command(cluster.primary_of(cluster.slot(&key)), parts),
    };
    assert!(allowed(&limiter, &limit, "key", 0).await);
    assert_eq!(command(&["EXISTS", &key]), Reply::Int(0));
    assert!(allowed(&limiter, &limit, "key", 1).await && allowed(&limiter, &limit, "key", 999).await);
    // The key expires after 1,000 hours, not after one period, and not after a day.
    let left_ms = command(&["PTTL", &key]).int();
    assert!((999 * 3_600_000..=1_000 * 3_600_000).contains(&left_ms), "{left_ms} ms left of {key}");
    assert!(limiter.reset(&limit, "key").await);
    assert_eq!(command(&["EXISTS", &key]), Reply::Int(0));
}
