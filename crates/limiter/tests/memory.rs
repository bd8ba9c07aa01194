//! Buckets in this process: many threads, the bound, and limits that change.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use limiter::{Align, Bandwidth, Bucket, Decision, Limit, Memory, MemorySettings};
use proptest::prelude::*;

const NOW: u64 = 1_790_000_000_000_000;

fn limit(name: &str, bandwidth: Bandwidth) -> Limit {
    Limit::new(name, [bandwidth]).expect("a limit")
}

fn allowed(memory: &Memory, limit: &Limit, key: &[u8], cost: u64, now_us: u64) -> bool {
    memory.ask(limit, key, cost, now_us).expect("there is room").is_allowed()
}

#[test]
fn sixteen_threads_on_one_key_get_what_the_bucket_holds() {
    let memory = Memory::new(MemorySettings::default());
    let limit = limit("a", Bandwidth::greedy(5_000, 1, Duration::from_secs(3_600)));
    let (passed, start) = (AtomicU64::new(0), Barrier::new(16));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..1_000 {
                    passed.fetch_add(u64::from(allowed(&memory, &limit, b"key", 1, NOW)), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 5_000);
}

#[test]
fn threads_whose_clocks_were_read_in_another_order_get_no_more() {
    // One token per microsecond, and asks that are a microsecond late and early in turn: no time counts twice.
    let memory = Memory::new(MemorySettings::default());
    let limit = limit("a", Bandwidth::greedy(1, 1, Duration::from_micros(1)));
    let passed = (0..1_000_u64)
        .flat_map(|us| [us + 1, us])
        .filter(|us| allowed(&memory, &limit, b"key", 1, NOW + us))
        .count();
    assert!(passed <= 1_001, "{passed} in 1,000 us");
}

#[test]
fn no_bucket_in_use_makes_room_for_another() {
    let memory = Memory::new(MemorySettings { max_keys: 64 });
    let limit = limit("a", Bandwidth::per_second(1));
    let ask = |key: u32, now_us| memory.ask(&limit, &key.to_be_bytes(), 1, now_us);
    let mut kept = Vec::new();
    for key in 0..10_000 {
        match ask(key, NOW) {
            Some(decision) if decision.is_allowed() => kept.push(key),
            Some(decision) => panic!("key {key} is new: {decision:?}"),
            None => {}
        }
    }
    assert_eq!((kept.len(), memory.keys()), (64, 64));
    for key in &kept {
        assert!(!ask(*key, NOW).expect("it is known").is_allowed());
    }
    // Full buckets are removed to make room.
    assert!(ask(20_000, NOW + 1_000_000).is_some_and(|decision| decision.is_allowed()));
    assert_eq!(memory.keys(), 64);
}

#[test]
fn asks_that_take_nothing_take_no_room() {
    let memory = Memory::new(MemorySettings { max_keys: 64 });
    let limit = limit("a", Bandwidth::per_second(10));
    assert!(matches!(memory.ask(&limit, b"look", 0, NOW), Some(Decision::Allowed(_))));
    assert!(matches!(memory.ask(&limit, b"never", 11, NOW), Some(Decision::Never(_))));
    memory.reset(&limit, b"reset", NOW);
    assert_eq!((memory.peek(&limit, b"peek", NOW).remaining, memory.keys()), (10, 0));
}

#[test]
fn limits_are_changed_while_they_run_and_keys_reset() {
    let memory = Memory::new(MemorySettings::default());
    let (old, new) = (limit("a", Bandwidth::per_second(10)), limit("a", Bandwidth::per_minute(20)));
    assert!(allowed(&memory, &old, b"key", 8, NOW));
    assert_eq!(memory.peek(&new, b"key", NOW).remaining, 12);
    assert!(allowed(&memory, &new, b"key", 12, NOW));
    assert!(!allowed(&memory, &new, b"key", 1, NOW) && !allowed(&memory, &old, b"key", 1, NOW));
    // A limit with another name has its own buckets, and a reset key gets a new one.
    assert!(allowed(&memory, &limit("b", Bandwidth::per_second(10)), b"key", 10, NOW));
    memory.reset(&new, b"key", NOW);
    assert!(allowed(&memory, &new, b"key", 20, NOW));
}

#[test]
fn threads_that_move_the_clock_get_what_the_bucket_holds_and_what_comes_back() {
    // 50 at once, and one more every 10 us. The threads ask at every instant of 10,000 us and at no later one, so exactly
    // 1,050 are allowed.
    let memory = Memory::new(MemorySettings::default());
    let limit = limit("a", Bandwidth::greedy(50, 1, Duration::from_micros(10)));
    let (passed, now_us, start) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(4));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for ask in 1..=100_000_u64 {
                    let now_us = if ask % 10 == 0 {
                        now_us.fetch_add(1, Ordering::Relaxed) + 1
                    } else {
                        now_us.load(Ordering::Relaxed)
                    };
                    let cost = 1 + ask % 2;
                    if allowed(&memory, &limit, b"key", cost, NOW + now_us.min(10_000)) {
                        passed.fetch_add(cost, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 1_050);
}

#[test]
fn threads_are_told_of_no_other_key() {
    // Each refusal slot has two or more keys with different waits, which replace each other.
    let memory = Memory::new(MemorySettings { max_keys: 256 });
    let limit = limit("a", Bandwidth::greedy(1_000, 1, Duration::from_secs(1)));
    let keys: Vec<u64> = (1..=128_u64)
        .filter(|key| memory.ask(&limit, &key.to_be_bytes(), 1_000, NOW + key).is_some())
        .collect();
    assert!(keys.len() > 100, "{} of 128", keys.len());
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (memory, limit, keys, start) = (&memory, &limit, &keys, &start);
            scope.spawn(move || {
                start.wait();
                for ask in 0..200_000 {
                    let key = keys[ask * (thread + 1) / 3 % keys.len()];
                    let decision =
                        memory.ask(limit, &key.to_be_bytes(), 1, NOW + 1_000).expect("it is known");
                    let Decision::Denied { retry_after_us, budget } = decision else {
                        panic!("{decision:?}")
                    };
                    assert_eq!((retry_after_us, budget.remaining), (1_000_000 - 1_000 + key, 0));
                    assert_eq!(budget.reset_after_us, 1_000_000_000 - 1_000 + key);
                }
            });
        }
    });
}

fn bandwidth() -> impl Strategy<Value = Bandwidth> {
    let refill =
        prop_oneof![3 => Just(None), 1 => Just(Some(Align::Epoch)), 1 => Just(Some(Align::FirstUse))];
    (1..20_u64, 1..20_u64, 1..2_000_u64, refill, 0..40_u64).prop_map(
        |(capacity, tokens, us, refill, initial)| {
            let period = Duration::from_micros(us);
            let bandwidth = match refill {
                None => Bandwidth::greedy(capacity, tokens, period),
                Some(align) => Bandwidth::interval(capacity, tokens, period, align),
            };
            if initial <= capacity { bandwidth.with_initial(initial) } else { bandwidth }
        },
    )
}

proptest! {
    /// Many buckets in memory give the same answers as each bucket alone, for any limits, any changes of limits, and any
    /// reads and resets in between.
    #[test]
    fn memory_says_what_buckets_say(
        limits in prop::collection::vec(prop::collection::vec(bandwidth(), 1..3), 1..4),
        asks in prop::collection::vec((0..4_usize, 0..4_usize, 0..12_u64, 0..40_u64, 0..16_u8), 1..300),
    ) {
        let limits: Vec<Limit> =
            limits.into_iter().map(|bandwidths| Limit::new("a", bandwidths).expect("a limit")).collect();
        // All keys of a shard share one slot.
        let memory = Memory::new(MemorySettings { max_keys: 64 * 4 });
        let keys: [&[u8]; 4] = [b"a", b"2001:db8::1", &[7; 31], &[7; 40]];
        let mut now_us = NOW;
        // All buckets are in use, so none is removed. A bucket that is full under its last limit may be removed, although
        // it would not be full under the limit before.
        let mut buckets = keys.map(|key| {
            let mut bucket = Bucket::new(&limits[0], now_us);
            assert_eq!(memory.ask(&limits[0], key, 1, now_us), Some(bucket.ask(&limits[0], 1, now_us)));
            bucket
        });
        for (place, which, cost, pause_us, what) in asks {
            now_us += pause_us.saturating_sub(20);
            // Limits change sometimes.
            let limit = &limits[if what < 12 { 0 } else { which % limits.len() }];
            let (key, bucket) = (keys[place], &mut buckets[place]);
            match what {
                0 | 12 => prop_assert_eq!(memory.peek(limit, key, now_us), bucket.peek(limit, now_us)),
                1 | 13 => {
                    memory.reset(limit, key, now_us);
                    *bucket = Bucket::new(limit, now_us);
                }
                _ => {
                    let told = bucket.ask(limit, cost, now_us);
                    prop_assert_eq!(memory.ask(limit, key, cost, now_us), Some(told));
                }
            }
        }
    }

    /// If instants come out of order, at most the capacity and the refill up to the latest instant are allowed. After the
    /// wait of a refusal, the ask is allowed.
    #[test]
    fn instants_out_of_order_give_nothing_twice(
        (capacity, tokens, us) in (1..20_u64, 1..20_u64, 1..200_u64),
        asks in prop::collection::vec((0..10_u64, 0..30_u64), 1..300),
    ) {
        let limit = limit("a", Bandwidth::greedy(capacity, tokens, Duration::from_micros(us)));
        let memory = Memory::new(MemorySettings { max_keys: 64 });
        let (mut latest_us, mut taken) = (0, 0);
        for (cost, late_us) in asks {
            let now_us = (latest_us + 10_u64).saturating_sub(late_us);
            latest_us = now_us.max(latest_us);
            match memory.ask(&limit, b"key", cost, NOW + now_us).expect("there is room") {
                Decision::Allowed(_) => taken += cost,
                Decision::Denied { retry_after_us, .. } => {
                    prop_assert!(retry_after_us >= 1);
                    // The wait counts from the latest instant so far, because the bucket decided at that instant.
                    let then_us = latest_us + retry_after_us;
                    prop_assert!(allowed(&memory, &limit, b"key", cost, NOW + then_us));
                    (latest_us, taken) = (then_us, taken + cost);
                }
                _ => {}
            }
            prop_assert!(taken <= capacity + latest_us * tokens / us, "{taken} in {latest_us} us");
        }
    }
}
