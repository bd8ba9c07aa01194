//! The line as clients see it: its order, its speed, the waits it tells, and evictions.

use std::time::Duration;

use crate::{
    app::{self, Answer, App, Between, body, most_within},
    clock::{eventually, now},
    weir::{Setup, zone},
};

const MINUTE: Duration = Duration::from_secs(60);
const SUB_WINDOW: Duration = Duration::from_secs(6);

/// 60 users use the minute at once. Those after them enter in order of arrival as slots become free: at most six in
/// six seconds.
pub(crate) fn moves_in_order_and_at_the_windows_speed() {
    let weir = Setup::zone(60, "").start();
    let mut apps: Vec<App> = (0..74).map(|_| App::new("Z")).collect();
    for (n, app) in apps.iter_mut().enumerate() {
        app.step(weir.public);
        assert_eq!(app.pass().is_some(), n < 60, "{n}");
    }
    let mut line = apps.split_off(60);
    let mut ranks: Vec<u64> = (1..=14).collect();
    let mut seen_ranks = |line: &[App]| {
        for (app, best) in line.iter().zip(&mut ranks) {
            if let Some(waiting) = app.last.as_ref().and_then(|answer| answer.waiting.as_ref()) {
                assert!(waiting.rank <= *best, "a rank grew from {best} to {}", waiting.rank);
                *best = waiting.rank;
            }
        }
        line.iter().all(|app| app.entered.is_some())
    };
    app::run(&mut line, || weir.public, &mut seen_ranks, Duration::from_secs(140));

    let entered = |app: &App| app.entered.expect("everybody is in");
    // The six slots of a sub-window become free together, one for each of the first six users, who may enter in any
    // order. The slots of the seventh and later users become free later.
    for (n, earlier) in line.iter().enumerate() {
        for later in line.iter().skip(n + 6) {
            assert!(entered(earlier).from < entered(later).to, "overtaken");
        }
    }
    let in_line: Vec<Between> = line.iter().map(entered).collect();
    let all: Vec<Between> = apps.iter().map(entered).chain(in_line.iter().copied()).collect();
    assert!(most_within(MINUTE, &all) <= 60, "more than the minute's slots");
    assert!(most_within(SUB_WINDOW, &in_line) <= 6, "more than the sub-window's slots");
    app::assert_each_in_once(&apps);
    app::assert_each_in_once(&line);
}

/// When the slot of each place becomes free, in a line behind a burst that used the whole minute at 0 s. Both windows
/// slide.
fn free_after_burst_s(per_minute: usize, places: usize) -> Vec<u64> {
    let per_sub_window = per_minute.div_ceil(10);
    let mut at = vec![0; per_minute];
    for n in per_minute..per_minute + places {
        at.push((at[n - per_minute] + 60).max(at[n - per_sub_window] + 6).max(at[n - 1]));
    }
    at.split_off(per_minute)
}

/// The wait that newcomers are told after a burst ends when their slot becomes free by both windows.
pub(crate) fn told_wait_knows_the_windows() {
    assert_eq!(free_after_burst_s(2, 5), [60, 66, 120, 126, 180]);
    let sizes = [2, 10, 60, 600];
    let config: String = sizes.iter().map(|n| zone(&format!("N{n}"), *n, "")).collect();
    let weir = Setup::new(&config).start();
    let mut client = weir.connect();
    for per_minute in sizes {
        let places = usize::try_from(per_minute).expect("small");
        let zone = format!("N{per_minute}");
        let mut join = || Answer::of(&client.post("/traffic/wait", &body(&zone, None)).expect("a reply"));
        let start = now();
        for n in 0..per_minute {
            assert!(join().can_enter, "{zone}: user {n} of a burst did not enter, although nobody waits");
        }
        let burst_over = now();
        for (n, free_s) in free_after_burst_s(places, places.div_ceil(10) * 3).into_iter().enumerate() {
            let (answer, asked) = (join(), now());
            let waiting = answer.waiting();
            assert_eq!(waiting.rank, 1 + u64::try_from(n).expect("small"));
            let told = Duration::from_secs(waiting.eta_seconds.expect("the windows are known"));
            let (low, high) = waiting.eta_range.expect("with its range");
            assert!(low <= high, "{waiting:?}");
            let free = Duration::from_secs(free_s);
            let slack = Duration::from_secs(free_s / 10);
            // Each slot becomes free 60 s after a slot of the burst was used, which was between its start and its
            // end.
            let latest = free + slack - (asked - burst_over).min(free);
            let earliest = (free - slack).saturating_sub(asked - start);
            assert!(
                told + Duration::from_secs(1) >= earliest && told <= latest + Duration::from_secs(4),
                "{zone}, rank {}: told {told:?}, free between {earliest:?} and {latest:?}",
                waiting.rank
            );
        }
    }
}

/// A user who is silent for the idle time is evicted; a user who polls as told stays for much longer.
pub(crate) fn silent_one_is_evicted_and_poller_is_not() {
    let idle = Duration::from_secs(10);
    let weir = Setup::zone(60, "mode = \"hold\"\nidle_timeout_s = 10\npolling_period_ms = 500").start();
    let silent_since = now();
    let silent = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let mut poller = [App::new("Z")];
    poller[0].step(weir.public);
    let second = |poller: &[App]| poller[0].last.as_ref().is_none_or(|a| a.waiting().rank == 2);
    assert!(second(&poller));
    app::run(&mut poller, || weir.public, |p| !second(p), Duration::from_secs(60));
    let after = now() - silent_since;
    assert!(after >= idle, "evicted after {after:?}");

    for path in ["/traffic/entry", "/traffic/wait"] {
        let gone = weir.post(path, &body("Z", Some(&silent.token)));
        assert_eq!((gone.status, gone.problem().as_str()), (410, "gone"), "{path}");
    }
    let anew = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    assert_eq!(anew.waiting().rank, 2, "a new ticket is behind those who stayed");
    let stays_until = now() + 2 * idle;
    app::run(&mut poller, || weir.public, |_| now() >= stays_until, Duration::from_secs(60));
    assert_eq!(poller[0].last.as_ref().expect("an answer").waiting().rank, 1);
    eventually("the second silent one is gone too", || {
        let gone = weir.admin_get("/metrics").text().contains("weir_zone_evicted_total{zone=\"Z\"} 2");
        poller[0].step(weir.public);
        gone.then_some(())
    });
}
