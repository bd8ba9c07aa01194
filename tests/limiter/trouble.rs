//! Redis is killed, frozen, wiped and failed over. Each ask is answered as configured, and counted.

use std::{sync::Arc, time::Duration};

use limiter::{Decision, Limit, Limiter, OnFailure, RedisSettings};
use redis_script::{Library, Settings};
use tokio::task::JoinSet;

use crate::{
    behaviour::{allowed, left, limit},
    clock::{DEADLINE, now},
    connect,
    redis::{Cluster, Standalone},
};

/// A limiter with a timeout of half a second.
async fn impatient(url: &str, library: Library, on_failure: OnFailure) -> Limiter {
    let client = Settings { library, command_timeout: Duration::from_millis(500), ..Settings::default() };
    connect(url, RedisSettings { client, ..RedisSettings::default() }, on_failure).await
}

/// Makes an ask, which must end in time whatever Redis does.
async fn ask(limiter: &Limiter, limit: &Limit, key: &str) -> Decision {
    tokio::time::timeout(DEADLINE, limiter.ask(limit, key, 1)).await.expect("an ask is answered")
}

/// Repeats an ask until Redis decides again.
async fn decided_at_last(limiter: &Limiter, limit: &Limit, key: &str) -> Decision {
    let deadline = now() + DEADLINE;
    loop {
        match ask(limiter, limit, key).await {
            Decision::Unknown { .. } => {
                assert!(now() < deadline, "not within {DEADLINE:?}: Redis decides again");
            }
            decided => return decided,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn killed_redis_is_answered_for_and_used_again(library: &Library) {
    let mut server = Standalone::start();
    let limit = limit(100);
    for (on_failure, passes) in [(OnFailure::Open, true), (OnFailure::Closed, false)] {
        let limiter = impatient(&server.url(), *library, on_failure).await;
        assert!(allowed(&limiter, &limit, "key", 1).await);
        server.kill();
        for _ in 0..10 {
            assert_eq!(ask(&limiter, &limit, "key").await, Decision::Unknown { allowed: passes });
        }
        assert_eq!(limiter.stats().unknown, 10);
        assert_eq!((limiter.peek(&limit, "key").await, limiter.reset(&limit, "key").await), (None, false));
        // Redis restarts without its buckets, so the key is new.
        server.restart();
        let decision = decided_at_last(&limiter, &limit, "key").await;
        assert!(matches!(decision, Decision::Allowed(budget) if budget.remaining == 99), "{decision:?}");
    }
}

pub(crate) async fn frozen_redis_costs_one_ask_its_patience(library: &Library) {
    let server = Standalone::start();
    let limit = limit(100);
    let limiter = Arc::new(impatient(&server.url(), *library, OnFailure::Open).await);
    assert!(allowed(&limiter, &limit, "key", 1).await);
    server.stop();
    // Asks that come together wait together, no longer than a single ask.
    let mut asks = JoinSet::new();
    for n in 0..500 {
        let (limiter, limit) = (Arc::clone(&limiter), limit.clone());
        asks.spawn(async move { ask(&limiter, &limit, &n.to_string()).await });
    }
    let answers = asks.join_all().await;
    assert!(answers.iter().all(|answer| *answer == Decision::Unknown { allowed: true }));
    let calls = limiter.stats().calls;
    assert!(calls <= 3, "{calls} calls for asks that came together");
    // Right after that no call is made, so no ask waits. The loop is for a machine that was paused in between.
    let mut at_once = false;
    for _ in 0..20 {
        let calls = limiter.stats().calls;
        assert!(ask(&limiter, &limit, "key").await.is_allowed());
        at_once |= limiter.stats().calls == calls;
    }
    assert!(at_once, "each ask made a call of a Redis that is away");
    assert!(limiter.stats().unknown >= 520);
    server.cont();
    assert!(matches!(decided_at_last(&limiter, &limit, "key").await, Decision::Allowed(_)));
}

pub(crate) async fn wiped_redis_begins_anew(library: &Library) {
    let server = Standalone::start();
    let limit = limit(10);
    let limiter = impatient(&server.url(), *library, OnFailure::Closed).await;
    assert!(allowed(&limiter, &limit, "key", 9).await && !allowed(&limiter, &limit, "key", 2).await);
    server.command(&["FLUSHALL"]);
    server.command(&["SCRIPT", "FLUSH"]);
    // A refused key is still refused by the hint for some seconds. All other keys are new.
    assert!(!allowed(&limiter, &limit, "key", 2).await);
    assert!(allowed(&limiter, &limit, "key", 1).await);
    assert_eq!((left(&limiter, &limit, "key").await, limiter.stats().unknown), (9, 0));
}

pub(crate) async fn failed_over_primary_is_replaced(library: &Library) {
    let mut cluster = Cluster::start(3, 1);
    let limit = limit(100);
    let limiter = impatient(&cluster.url(), *library, OnFailure::Closed).await;
    let keys: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    for key in &keys {
        assert!(allowed(&limiter, &limit, key, 40).await);
    }
    // The replica continues with the buckets that it has.
    for primary in 0..3 {
        let confirmed = cluster.command(primary, &["WAIT", "1", "10000"]).int();
        assert_eq!(confirmed, 1);
    }
    cluster.kill(0);
    let mut unknown = 0;
    for key in &keys {
        // Keys on the other servers are decided meanwhile.
        unknown +=
            u64::from(matches!(ask(&limiter, &limit, key).await, Decision::Unknown { allowed: false }));
    }
    assert!((1..60).contains(&unknown), "{unknown} of 60 keys were on the dead server");
    assert_eq!(limiter.stats().unknown, unknown);
    for key in &keys {
        let decision = decided_at_last(&limiter, &limit, key).await;
        assert!(
            matches!(decision, Decision::Allowed(budget) if budget.remaining <= 59),
            "{key}: {decision:?}"
        );
    }
}
