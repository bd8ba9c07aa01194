//! Buckets in this process: many threads, a bound, and changes while it runs.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use limiter::{Bandwidth, Decision, Limit, Memory, MemorySettings};

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
    // A token a microsecond, and asks that come a microsecond late and early in turn: time is not given twice.
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
    // Full again, they make room.
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
    // A limit of another name has its own buckets, and a key that is reset a new one.
    assert!(allowed(&memory, &limit("b", Bandwidth::per_second(10)), b"key", 10, NOW));
    memory.reset(&new, b"key", NOW);
    assert!(allowed(&memory, &new, b"key", 20, NOW));
}
