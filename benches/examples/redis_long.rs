//! Measures for how long a script call blocks Redis. It prints the slowest calls from Redis' slow log, in a line of
//! 600,000 (goal: 2 ms) or of the number given (goal at 60 million: 5 ms): joins of 1,024, beats in which everybody
//! polled within 3 s, ends of generations, claims of the front in batches of a thousand, and the eviction of a third
//! of the line. Then it measures the duration of a join of 64 beside the beats, and the cost of 600,000 newcomers
//! within 10 s in joins of 64.
//!
//! `cargo run --profile bench -p weir-benches --example redis_long -- 60000000` (needs `redis-server`; the machine
//! should be idle, because a call that waits for a core counts as slow).
// The futures of a call through a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/redis.rs"]
mod redis;

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};

use admission::{Claim, Mode, Policy, ZoneId};
use redis::{Options, Reply, Standalone};
use store::{
    Line as _, Store as _,
    redis::{Redis, scripts},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use weir_benches::{connect, third};

const SECOND: Duration = Duration::from_secs(1);

/// Faster calls are ignored, microseconds: the slow log also contains the commands within scripts.
const LEAST_US: u32 = 200;

/// The number of calls that the slow log keeps in a phase.
const KEPT: u32 = 20_000;

fn main() -> ExitCode {
    let Ok(people @ 100_000..=100_000_000) = std::env::args().nth(1).map_or(Ok(600_000), |arg| arg.parse())
    else {
        eprintln!("redis_long: the argument is the number of waiting people, 100000 to 100000000");
        return ExitCode::from(64);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(measure(people));
    ExitCode::SUCCESS
}

struct Line {
    server: Standalone,
    store: Arc<Redis>,
    zone: ZoneId,
    /// The third of the line that polls next.
    second: u64,
}

impl Line {
    /// A beat with the polls of the next third, for those of whom `polls` is true.
    async fn beat(&mut self, polls: impl Fn(u64) -> bool) {
        let view = self.store.line(&self.zone).beat(Vec::new(), 0).await.expect("beats");
        let mut marks = third(view.base, view.next, self.second);
        marks.retain(|mark| polls(mark.page));
        self.store.line(&self.zone).beat(marks, 0).await.expect("beats");
        self.second += 1;
    }

    /// Beats for this many seconds, one per second.
    async fn beats(&mut self, seconds: u32, polls: impl Fn(u64) -> bool + Copy) {
        let from = Instant::now();
        for second in 0..seconds {
            sleep_until(from + SECOND * second).await;
            self.beat(polls).await;
        }
    }

    /// Prints the slowest calls since the last call of this function.
    fn tell(&self, phase: &str) {
        let names = BTreeMap::from(
            [&scripts::JOIN, &scripts::ENTER, &scripts::BEAT, &scripts::POLICY]
                .map(|script| (script.sha1.clone(), script.name)),
        );
        let mut calls: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for call in self.server.command(&["SLOWLOG", "GET", "-1"]).parts() {
            if let [_, _, us, Reply::Array(args), ..] = call.parts()
                && let Some(name) = args.get(1).and_then(|sha1| names.get(&sha1.text()))
            {
                calls.entry(name).or_default().push(us.int());
            }
        }
        for (name, mut calls) in calls {
            calls.sort_unstable();
            let at = |part: usize| calls[(calls.len() - 1) * part / 1_000];
            println!("| {phase} | {name} | {} | {} | {} | {} |", calls.len(), at(500), at(990), at(1_000));
        }
        self.server.command(&["SLOWLOG", "RESET"]);
    }
}

async fn measure(people: u64) {
    let kept = KEPT.to_string();
    let least = LEAST_US.to_string();
    let options = Options::new().arg(&["--slowlog-max-len", &kept, "--slowlog-log-slower-than", &least]);
    let server = Standalone::start_with(&options);
    let store = connect(&server.url()).await;
    let zone = ZoneId::parse("ZONE").expect("a name");
    let mut line = Line { server, store, zone, second: 0 };
    let policy = Policy::default();
    let store = Arc::clone(&line.store);
    let zone = line.zone.clone();
    store.line(&zone).put(Policy { mode: Mode::Hold, ..policy }).await.expect("put");
    println!("{people} wait; calls of {LEAST_US} us and more, durations in microseconds");
    println!("\n| phase | script | calls | median | p99 | max |\n|---|---|---|---|---|---|");
    let mut next_beat = Instant::now() + SECOND;
    for _ in 0..people.div_ceil(1_024) {
        store.line(&zone).join(1_024).await.expect("joins");
        if Instant::now() >= next_beat {
            line.beat(|_| true).await;
            next_beat = Instant::now() + SECOND;
        }
    }
    line.tell("the line forms");
    line.beats(12, |_| true).await;
    line.tell("everybody polls");
    let view = store.line(&zone).put(policy).await.expect("put");
    for at in 0..6 {
        for half in 0..2 {
            // The whole front, in full batches.
            let claims =
                (half * 1_024..(half + 1) * 1_024).map(|seq| Claim { epoch: view.epoch, seq }).collect();
            store.line(&zone).enter(claims).await.expect("decided");
        }
        for count in [1, 64, 1_024] {
            store.line(&zone).join(count).await.expect("joins");
        }
        // Some claims at the far end of the line as well.
        let seqs = (0..64).map(|i| people / 64 * i + at);
        let claims = seqs.map(|seq| Claim { epoch: view.epoch, seq }).collect();
        store.line(&zone).enter(claims).await.expect("decided");
        line.beats(1, |_| true).await;
    }
    line.tell("claims by the thousand");

    // The front is wider at a higher limit.
    store.line(&zone).put(Policy { admit_per_minute: 600_000, ..policy }).await.expect("put");
    for batch in 2..40 {
        let claims =
            (batch * 1_024..(batch + 1) * 1_024).map(|seq| Claim { epoch: view.epoch, seq }).collect();
        store.line(&zone).enter(claims).await.expect("decided");
    }
    line.tell("thousands enter");
    store.line(&zone).put(Policy { mode: Mode::Hold, idle_timeout_s: 10, ..policy }).await.expect("put");
    line.beats(14, |page| page % 3 > 0).await;
    line.tell("a third is swept");
    let tally = store.line(&zone).beat(Vec::new(), 0).await.expect("beats").tally;
    println!("\nafter the sweep {} wait, {} were evicted", tally.waiting, tally.evicted);

    store.line(&zone).put(Policy { mode: Mode::Hold, ..policy }).await.expect("put");
    newcomers(&mut line, 94, "a join of 64 about every 0.1 s").await;
    newcomers(&mut line, 9_375, "600,000 in 10 s").await;
}

/// This many joins of 64 within 10 s, beside the beats. Each is timed from the time at which it was due.
async fn newcomers(line: &mut Line, joins: u32, what: &str) {
    let (from, before) = (Instant::now(), line.server.cpu_time());
    let (store, zone) = (Arc::clone(&line.store), line.zone.clone());
    let sender = tokio::spawn(async move {
        let mut calls = JoinSet::new();
        for join in 0..joins {
            let due = from + SECOND * 10 * join / joins;
            sleep_until(due).await;
            let (store, zone) = (Arc::clone(&store), zone.clone());
            calls.spawn(async move {
                store.line(&zone).join(64).await.expect("joins");
                due.elapsed()
            });
        }
        calls.join_all().await
    });
    line.beats(10, |_| true).await;
    let mut took = sender.await.expect("no panic");
    let busy = (line.server.cpu_time() - before).as_secs_f64() / from.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 1_000].as_secs_f64() * 1e3;
    println!(
        "{what}: p50 {:.1} ms, p99 {:.1} ms, the slowest {:.1} ms; Redis was busy {:.0} % of a core",
        at(500),
        at(990),
        at(1_000),
        busy * 100.0
    );
}
