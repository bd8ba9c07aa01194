//! Faults of other token buckets, and the invariants of this one.

use std::time::Duration;

use limiter::{Align, Bandwidth, Bucket, Budget, Decision, Limit, MAX_BANDWIDTHS};
use proptest::prelude::*;

const S: u64 = 1_000_000;
/// An instant like those of the wall clock, and not a round number.
const NOW: u64 = 1_790_000_000_123_457;

fn limit(bandwidths: impl IntoIterator<Item = Bandwidth>) -> Limit {
    Limit::new("test", bandwidths).expect("a limit")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The microseconds until the ask is allowed; 0 if it is allowed now.
#[track_caller]
fn wait_us(decision: Decision) -> u64 {
    match decision {
        Decision::Allowed(_) => 0,
        Decision::Denied { retry_after_us, .. } => retry_after_us,
        other => panic!("allowed or denied, not {other:?}"),
    }
}

fn allowed(decision: Decision) -> bool {
    matches!(decision, Decision::Allowed(_))
}

#[test]
fn denied_ask_at_a_full_bucket_does_not_freeze_time() {
    let limit = limit([Bandwidth::per_second(10)]);
    let mut bucket = Bucket::new(&limit, NOW);
    let full = Budget { limit: 10, remaining: 10, reset_after_us: 0 };
    assert_eq!(bucket.ask(&limit, 11, NOW), Decision::Never(full));
    let passed = [10, 10].map(|cost| allowed(bucket.ask(&limit, cost, NOW + S)));
    assert_eq!(passed, [true, false]);
}

#[test]
fn denied_asks_in_a_row_do_not_hold_up_the_refill() {
    let limit = limit([Bandwidth::greedy(10, 1, secs(1))]);
    let mut bucket = Bucket::new(&limit, NOW);
    assert!(allowed(bucket.ask(&limit, 10, NOW)));
    for us in (1..S).step_by(997) {
        assert_eq!(wait_us(bucket.ask(&limit, 1, NOW + us)), S - us);
    }
    assert!(allowed(bucket.ask(&limit, 1, NOW + S)));
}

#[test]
fn bucket_is_forgotten_when_it_is_full_and_no_earlier() {
    let limit = limit([Bandwidth::greedy(1_000, 1, secs(1))]);
    let mut bucket = Bucket::new(&limit, NOW);
    assert!(allowed(bucket.ask(&limit, 1_000, NOW)));
    assert_eq!(bucket.forget_at_us(&limit), NOW + 1_000 * S);
    // While the bucket is kept, it reports what it holds at any time.
    assert_eq!(bucket.peek(&limit, NOW + 2 * S).remaining, 2);
    assert_eq!(bucket.peek(&limit, NOW + 999 * S).remaining, 999);
    assert_eq!(bucket.peek(&limit, bucket.forget_at_us(&limit)), Bucket::new(&limit, 0).peek(&limit, 0));
}

#[test]
fn backward_clock_refills_nothing_and_stops_nothing() {
    let limit = limit([Bandwidth::per_second(10)]);
    let mut bucket = Bucket::new(&limit, NOW);
    assert!(allowed(bucket.ask(&limit, 10, NOW)));
    // The clock goes back an hour. Time counts from there, and that hour is not refilled twice.
    let back = NOW - 3_600 * S;
    assert_eq!(wait_us(bucket.ask(&limit, 1, back)), S / 10);
    assert!(allowed(bucket.ask(&limit, 1, back + S / 10)));
    assert!(!allowed(bucket.ask(&limit, 1, back + S / 10)));
}

#[test]
fn backward_clock_does_not_count_a_stretch_twice() {
    for align in [Align::Epoch, Align::FirstUse] {
        let limit = limit([Bandwidth::interval(10, 10, secs(60), align)]);
        let mut bucket = Bucket::new(&limit, 0);
        let mut passed = 0;
        // Back and forth over the end of a period.
        for now_us in [59 * S, 61 * S, 59 * S, 61 * S, 60 * S - 1, 60 * S, 59 * S, 62 * S] {
            passed += u64::from(allowed(bucket.ask(&limit, 10, now_us)));
        }
        assert!(passed <= 2, "{align:?}: {passed} times the capacity");
        // After a long step back, refills continue.
        let mut bucket = Bucket::new(&limit, 10_000 * S);
        assert!(allowed(bucket.ask(&limit, 10, 10_000 * S)));
        let wait = wait_us(bucket.ask(&limit, 1, 10 * S));
        assert!(wait <= 60 * S, "{align:?}: {wait} us to wait");
        assert!(allowed(bucket.ask(&limit, 1, 10 * S + wait)));
    }
}

#[test]
fn largest_numbers_overflow_nothing() {
    let most = 1 << 51;
    let limits = [
        limit([Bandwidth::greedy(most, 1, Duration::from_micros(1)).with_initial(0)]),
        limit([Bandwidth::greedy(1, most, Duration::from_micros(1))]),
        limit([Bandwidth::interval(most, most, secs(1), Align::FirstUse)]),
        limit([Bandwidth::interval(1, 1, secs(86_400 * 365 * 100), Align::Epoch)]),
        limit([Bandwidth::greedy(50, 1, secs(86_400 * 366))]),
    ];
    for limit in limits {
        for now_us in [0, 1, NOW, u64::MAX - 1, u64::MAX] {
            let mut bucket = Bucket::new(&limit, now_us);
            for cost in [0, 1, limit.bandwidths()[0].capacity(), u64::MAX] {
                for at_us in [now_us, 0, u64::MAX, now_us] {
                    let decision = bucket.ask(&limit, cost, at_us);
                    assert_eq!(decision == Decision::Never(bucket.peek(&limit, at_us)), cost == u64::MAX);
                    assert!(bucket.forget_at_us(&limit) >= bucket.peek(&limit, at_us).reset_after_us);
                }
            }
        }
    }
}

#[test]
fn no_remainder_is_lost() {
    // 7 tokens in 3 s, asked for at odd instants for an hour: exactly 8,400 and the first one.
    let limit = limit([Bandwidth::greedy(1, 7, secs(3))]);
    let mut bucket = Bucket::new(&limit, NOW);
    let (mut now_us, mut passed) = (NOW, 0);
    while now_us < NOW + 3_600 * S {
        let wait = wait_us(bucket.ask(&limit, 1, now_us));
        passed += u64::from(wait == 0);
        now_us += 1 + (now_us * 7_919 % 1_000).min(wait);
    }
    // A full bucket of 1 does not refill, so a late ask loses tokens. Each ask is at most 1 us late.
    assert!((8_395..=8_401).contains(&passed), "{passed}");
    // If the bucket has room for the refill between two asks, nothing is lost.
    let limit = self::limit([Bandwidth::greedy(20, 7, secs(3))]);
    let mut bucket = Bucket::new(&limit, NOW);
    let mut taken = 0;
    for now_us in (NOW..=NOW + 3_600 * S).step_by(333_333) {
        while allowed(bucket.ask(&limit, 1, now_us)) {
            taken += 1;
        }
    }
    let last_us = (3_600 * S) / 333_333 * 333_333;
    assert_eq!(taken, 20 + last_us * 7 / (3 * S));
}

#[test]
fn idling_gives_no_more_than_the_capacity() {
    for idle in [1, 10, 3_600, 86_400 * 400] {
        let limits = [
            limit([Bandwidth::greedy(10, 3, secs(1))]),
            limit([Bandwidth::interval(10, 3, secs(1), Align::FirstUse)]),
            limit([Bandwidth::interval(10, 3, secs(1), Align::Epoch)]),
        ];
        for limit in limits {
            let mut bucket = Bucket::new(&limit, NOW);
            assert!(allowed(bucket.ask(&limit, 10, NOW)));
            let passed = (0..20).filter(|_| allowed(bucket.ask(&limit, 1, NOW + idle * S))).count();
            assert!(passed <= 10 && (idle < 10 || passed == 10), "{passed} after {idle} s");
        }
    }
}

#[test]
fn intervals_end_where_they_are_said_to() {
    let aligned = limit([Bandwidth::interval(2, 2, secs(60), Align::Epoch)]);
    let mut bucket = Bucket::new(&aligned, 50 * S);
    assert!(allowed(bucket.ask(&aligned, 2, 50 * S)));
    assert_eq!(wait_us(bucket.ask(&aligned, 1, 55 * S)), 5 * S);
    assert!(allowed(bucket.ask(&aligned, 1, 60 * S)));

    let own = limit([Bandwidth::interval(2, 2, secs(60), Align::FirstUse)]);
    let mut bucket = Bucket::new(&own, 50 * S);
    assert!(allowed(bucket.ask(&own, 2, 50 * S)));
    assert_eq!(wait_us(bucket.ask(&own, 1, 55 * S)), 55 * S);
    // If the bucket is full, a period starts with the next use.
    assert!(allowed(bucket.ask(&own, 2, 200 * S)));
    assert_eq!(wait_us(bucket.ask(&own, 1, 201 * S)), 59 * S);
}

#[test]
fn with_several_bandwidths_all_allow_or_none_is_charged() {
    let limit = limit([Bandwidth::per_second(5), Bandwidth::greedy(8, 8, secs(60))]);
    let mut bucket = Bucket::new(&limit, NOW);
    assert!(allowed(bucket.ask(&limit, 5, NOW)));
    // The second bandwidth has 3 left, so it refuses, and the first keeps its 5.
    let Decision::Denied { retry_after_us, budget } = bucket.ask(&limit, 5, NOW + S) else {
        panic!("the minute has between 3 and 4 left");
    };
    assert_eq!((retry_after_us, budget.limit, budget.remaining), (14 * S, 8, 3));
    for _ in 0..3 {
        assert!(allowed(bucket.ask(&limit, 1, NOW + S)));
    }
    assert_eq!(bucket.peek(&limit, NOW + S).remaining, 0);
    assert!(matches!(bucket.ask(&limit, 6, NOW + S), Decision::Never(Budget { limit: 5, .. })));
}

#[test]
fn new_key_has_the_initial_tokens_and_so_has_one_that_was_full_for_long() {
    let limit = limit([Bandwidth::greedy(10, 1, secs(1)).with_initial(2)]);
    let mut bucket = Bucket::new(&limit, NOW);
    assert_eq!(bucket.peek(&limit, NOW).remaining, 2);
    assert!(allowed(bucket.ask(&limit, 2, NOW)));
    // It is full after 10 s, and counts as new after another 8 s.
    assert_eq!(bucket.peek(&limit, NOW + 18 * S - 1).remaining, 10);
    assert_eq!(bucket.forget_at_us(&limit), NOW + 18 * S);
    assert_eq!(bucket.peek(&limit, NOW + 18 * S).remaining, 2);
    assert!(!allowed(bucket.ask(&limit, 3, NOW + 18 * S)));
}

#[test]
fn changed_limit_finds_spent_what_was_spent() {
    let of = |capacity, tokens| limit([Bandwidth::greedy(capacity, tokens, secs(1))]);
    let mut bucket = Bucket::new(&of(10, 1), NOW);
    assert!(allowed(bucket.ask(&of(10, 1), 6, NOW)));
    // A raise and a cut work at once. A rate with other parts changes nothing.
    for (capacity, tokens, remaining) in [(20, 1, 14), (10, 3, 4), (8, 7, 2), (5, 1, 0)] {
        assert_eq!(bucket.peek(&of(capacity, tokens), NOW).remaining, remaining, "{capacity} at {tokens}/s");
    }
    // A change of the rate rounds a spent part of a token up to a whole one. 6.5 tokens are spent here.
    assert!(allowed(bucket.ask(&of(10, 1), 1, NOW + S / 2)));
    assert_eq!(bucket.peek(&of(10, 4), NOW + S / 2).remaining, 3);
    // An added bandwidth is new.
    let two = limit([Bandwidth::greedy(10, 1, secs(1)), Bandwidth::per_minute(3)]);
    assert!(allowed(bucket.ask(&two, 3, NOW + S / 2)));
    assert_eq!(bucket.peek(&two, NOW + S / 2).remaining, 0);
    assert_eq!(bucket.peek(&of(10, 1), NOW + S / 2).remaining, 0);
}

#[test]
fn refusal_is_told_in_whole_seconds_rounded_up() {
    let limit = limit([Bandwidth::per_second(1_000)]);
    let mut bucket = Bucket::new(&limit, NOW);
    assert!(allowed(bucket.ask(&limit, 1_000, NOW)));
    let refused = bucket.ask(&limit, 1, NOW);
    assert_eq!((wait_us(refused), refused.retry_after_s()), (1_000, Some(1)));
    assert_eq!(bucket.ask(&limit, 0, NOW).retry_after_s(), None);
}

#[test]
fn faults_say_what_is_wrong() {
    let fault = |bandwidth| Limit::new("f", [bandwidth]).expect_err("a fault").to_string();
    for (bandwidth, says) in [
        (Bandwidth::per_second(0), "1 or more"),
        (Bandwidth::greedy(1, 0, secs(1)), "1 or more"),
        (Bandwidth::greedy(1, 1, secs(0)), "whole number of microseconds"),
        (Bandwidth::greedy(1, 1, Duration::from_nanos(1_500)), "whole number of microseconds"),
        (Bandwidth::greedy(1, 1, secs(86_400 * 365 * 101)), "whole number of microseconds"),
        (Bandwidth::interval(1_000, 1, secs(86_400 * 366), Align::Epoch), "100 years to fill"),
        (Bandwidth::greedy(1 << 52, 999_983, secs(86_400)), "counted exactly"),
        (Bandwidth::per_second(5).with_initial(6), "more than the capacity of 5"),
    ] {
        let text = fault(bandwidth);
        assert!(text.starts_with("limit \"f\": bandwidth 1: ") && text.contains(says), "{text}");
    }
    for name in ["", "a:b", "{a}", "a b", "é", &"n".repeat(81)] {
        assert!(Limit::new(name, [Bandwidth::per_second(1)]).is_err(), "{name}");
    }
    assert!(Limit::new("f", []).is_err());
    assert!(Limit::new("f", [Bandwidth::per_second(1); MAX_BANDWIDTHS + 1]).is_err());
}

fn bandwidth() -> impl Strategy<Value = Bandwidth> {
    let period = prop_oneof![1..5_000_000_u64, Just(1_000_000), Just(60_000_000), Just(3_600_000_000),];
    let refill = prop_oneof![Just(None), Just(Some(Align::Epoch)), Just(Some(Align::FirstUse))];
    (1..60_u64, 1..40_u64, period, refill, 0..=100_u64).prop_map(|(capacity, tokens, us, refill, initial)| {
        let period = Duration::from_micros(us);
        let bandwidth = match refill {
            None => Bandwidth::greedy(capacity, tokens, period),
            Some(align) => Bandwidth::interval(capacity, tokens, period, align),
        };
        // Mostly full at the start.
        if initial <= capacity { bandwidth.with_initial(initial) } else { bandwidth }
    })
}

fn bandwidths() -> impl Strategy<Value = Vec<Bandwidth>> {
    prop::collection::vec(bandwidth(), 1..=3)
}

/// Asks: how much, and how long after the one before, in parts of the first period.
fn asks() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![3 => Just(0), 3 => 1..2_000_u64, 1 => 2_000..100_000_u64];
    prop::collection::vec((0..30_u64, pause), 1..120)
}

fn thousandths(bandwidth: &Bandwidth, pause: u64) -> u64 {
    u64::try_from(bandwidth.period().as_micros()).expect("short") * pause / 1_000
}

/// The most that a bandwidth gives in an interval, both ends included.
fn most(bandwidth: &Bandwidth, from_us: u64, to_us: u64) -> u128 {
    let (tokens, period) = (u128::from(bandwidth.tokens()), bandwidth.period().as_micros());
    let time = u128::from(to_us - from_us);
    u128::from(bandwidth.capacity())
        + match bandwidth.refill() {
            limiter::Refill::Greedy => time * tokens / period,
            limiter::Refill::Interval(Align::FirstUse) => (time / period + 1) * tokens,
            limiter::Refill::Interval(Align::Epoch) => {
                (u128::from(to_us) / period - u128::from(from_us) / period) * tokens
            }
        }
}

proptest! {
    /// No interval allows more than the capacity and the refill.
    #[test]
    fn never_more_than_capacity_and_refill(bandwidths in bandwidths(), asks in asks()) {
        let limit = limit(bandwidths.clone());
        let (mut bucket, mut now_us) = (Bucket::new(&limit, NOW), NOW);
        let mut taken = vec![];
        for (cost, pause) in asks {
            now_us += thousandths(&bandwidths[0], pause);
            if allowed(bucket.ask(&limit, cost, now_us)) {
                taken.push((now_us, u128::from(cost)));
            }
        }
        for bandwidth in &bandwidths {
            for from in 0..taken.len() {
                let mut sum = 0;
                for (at_us, cost) in &taken[from..] {
                    sum += cost;
                    let most = most(bandwidth, taken[from].0, *at_us);
                    prop_assert!(sum <= most, "{sum} of {most} from {} to {at_us}", taken[from].0);
                }
            }
        }
    }

    /// An ask is allowed exactly after the given wait, and not a microsecond earlier.
    #[test]
    fn who_waits_as_told_is_allowed(bandwidths in bandwidths(), asks in asks()) {
        let limit = limit(bandwidths.clone());
        let (mut bucket, mut now_us) = (Bucket::new(&limit, NOW), NOW);
        for (cost, pause) in asks {
            now_us += thousandths(&bandwidths[0], pause);
            if let Decision::Denied { retry_after_us, .. } = bucket.ask(&limit, cost, now_us) {
                prop_assert!(retry_after_us >= 1);
                let mut early = bucket.clone();
                prop_assert!(!allowed(early.ask(&limit, cost, now_us + retry_after_us - 1)));
                now_us += retry_after_us;
                prop_assert!(allowed(bucket.ask(&limit, cost, now_us)), "after {retry_after_us} us");
            }
        }
    }

    /// A bucket that is forgotten as soon as possible gives the same answers as one that is kept. Reading changes nothing.
    #[test]
    fn forgetting_in_time_and_looking_change_nothing(bandwidths in bandwidths(), asks in asks()) {
        let limit = limit(bandwidths.clone());
        let mut now_us = NOW;
        let (mut kept, mut fresh) = (None::<Bucket>, None::<Bucket>);
        for (cost, pause) in asks {
            now_us += thousandths(&bandwidths[0], pause);
            fresh = fresh.filter(|bucket| now_us < bucket.forget_at_us(&limit));
            let new = Bucket::new(&limit, now_us);
            let (was, is) = (kept.as_mut(), fresh.as_mut());
            let mut buckets = [was.map_or(new.clone(), |it| it.clone()), is.map_or(new, |it| it.clone())];
            let [left, right] = buckets.each_mut().map(|bucket| {
                let budget = bucket.peek(&limit, now_us);
                assert_eq!(bucket.ask(&limit, 0, now_us), Decision::Allowed(budget));
                assert!(!bucket.ask(&limit, u64::MAX, now_us).is_allowed());
                bucket.ask(&limit, cost, now_us)
            });
            prop_assert_eq!(left, right);
            if cost > 0 && !matches!(left, Decision::Never(_)) {
                let [left, right] = buckets;
                (kept, fresh) = (Some(left), Some(right));
            }
        }
    }

    /// For any clock and any changes of the limit, nothing panics, and the time by which the clock went forward bounds what
    /// is allowed.
    #[test]
    fn any_clock_and_any_change(
        limits in prop::collection::vec(bandwidths(), 1..4),
        asks in prop::collection::vec((0..60_u64, any::<i32>(), 0..4_usize), 1..200),
    ) {
        let limits: Vec<Limit> = limits.into_iter().map(limit).collect();
        let (mut bucket, mut now_us, mut forward_us, mut taken) = (Bucket::new(&limits[0], NOW), NOW, 0, 0);
        for (cost, step, which) in asks {
            let step = i64::from(step) / 64;
            now_us = now_us.saturating_add_signed(step);
            forward_us += u64::try_from(step).unwrap_or(0);
            let limit = &limits[which % limits.len()];
            match bucket.ask(limit, cost, now_us) {
                Decision::Allowed(_) => taken += u128::from(cost),
                Decision::Denied { retry_after_us, .. } => prop_assert!(retry_after_us >= 1),
                _ => {}
            }
        }
        if limits.len() == 1 {
            for bandwidth in limits[0].bandwidths() {
                // Bandwidths with intervals are left out: each step of such a clock may end a period.
                if bandwidth.refill() == limiter::Refill::Greedy {
                    prop_assert!(taken <= most(bandwidth, 0, forward_us));
                }
            }
        }
    }
}
