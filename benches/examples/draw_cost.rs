//! Measures what the start of an event by lot costs the stores: 600,000 people are in line, their list is frozen, its record is
//! kept, and the line is dealt anew. While a call runs, the store answers nobody else, so the longest one says how long polls wait.
//! Redis is asked for the time of its own calls; the embedded store is measured from outside, with its disk.
//!
//! `cargo run --release -p weir-benches --example draw_cost` (needs `redis-server`).
#![expect(clippy::print_stdout, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/drawn.rs"]
mod drawn;
#[path = "../../tests/support/redis.rs"]
mod redis;

use std::{sync::Arc, time::Duration};

use admission::{Definition, Lots, Policy, Schedule, ZoneId};
use draw::{Announced, Checkpoint, Fallback, Places, Seed, Terms, Tree, positions};
use drawn::drawn_event;
use redis::{Reply, Standalone};
use store::{Embedded, Expected, Line, Store};
use tokio::time::Instant;
use weir_benches::connect;

const PEOPLE: u32 = 600_000;
/// People who come between the freeze and the draw.
const LATER: u32 = 1_000;
const RUNS: usize = 5;

/// How long each step took, in each run.
#[derive(Default)]
struct Steps(Vec<(&'static str, Vec<Duration>)>);

impl Steps {
    fn note(&mut self, name: &'static str, took: Duration) {
        match self.0.iter_mut().find(|(of, _)| *of == name) {
            Some((_, all)) => all.push(took),
            None => self.0.push((name, vec![took])),
        }
    }

    fn time<T>(&mut self, name: &'static str, act: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let done = act();
        self.note(name, from.elapsed());
        done
    }

    async fn wait<T>(&mut self, name: &'static str, act: impl Future<Output = T>) -> T {
        let from = Instant::now();
        let done = act.await;
        self.note(name, from.elapsed());
        done
    }

    fn print(&mut self, title: &str) {
        println!("\n| {title} | median | longest |\n|---|---|---|");
        for (name, all) in &mut self.0 {
            all.sort_unstable();
            let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
            println!("| {name} | {:.2} ms | {:.2} ms |", ms(all[all.len() / 2]), ms(all[all.len() - 1]));
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let policy = Policy { admit_per_minute: 10_000, ..Policy::default() };
    let (mut embedded, mut by_redis, mut in_redis) = (Steps::default(), Steps::default(), Steps::default());
    for _ in 0..RUNS {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(Embedded::open(dir.path()).expect("a store"));
        let zone = ZoneId::parse("ZONE").expect("a name");
        let of_event = drawn_event("sale").policy(&policy);
        store.line(&zone).put(of_event).await.expect("put");
        hold(&store.line(&zone), of_event.opens_at.draw, &mut embedded).await;

        let server = Standalone::start();
        server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "200"]);
        server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
        let store = connect(&server.url()).await;
        let line = store.line(&zone);
        line.put(policy).await.expect("put");
        let schedule = Schedule::new(vec![drawn_event("sale")], &policy).expect("a schedule");
        let definition = Definition { policy, schedule, ..Definition::default() };
        store.define(&zone, &Expected::Any, Some(&definition)).await.expect("defined");
        line.open(of_event).await.expect("opened");
        hold(&line, of_event.opens_at.draw, &mut by_redis).await;
        in_redis.note("the longest call of Redis", longest(&server));
    }
    embedded.print("embedded store, 600,000 people");
    by_redis.print("Redis, seen by a server");
    in_redis.print("Redis, by its own clock");
}

/// Holds a draw, as a server does.
async fn hold(line: &impl Line, draw: u32, steps: &mut Steps) {
    for _ in 0..PEOPLE / 1_000 {
        steps.wait("join of 1,000", line.join(1_000)).await.expect("joins");
    }
    steps.wait("view before", line.beat(Vec::new(), 0)).await.expect("beats");
    let census = steps.wait("census", line.census()).await.expect("lists");
    let list: Vec<(u64, Vec<u64>)> =
        census.segments.iter().map(|segment| (segment.index, segment.live.clone())).collect();
    let bits: Vec<u8> =
        list.iter().flat_map(|(_, words)| words).flat_map(|word| word.to_le_bytes()).collect();
    let count = u32::try_from(census.next).expect("few");
    let places = Places::from_bytes(count, &bits[..count.div_ceil(8) as usize]).expect("a list");
    let tree = steps.time("tree (beside the threads that serve)", || Tree::new(&places));
    let terms = Terms {
        key_name: "shop.example".to_owned(),
        event: "sale".to_owned(),
        zone: "ZONE".to_owned(),
        frozen_unix_s: 1_692_806_300,
        start_unix_s: 1_692_806_330,
        announced: Announced::Stated { source: "dice".to_owned() },
        fallback: Fallback::Wait,
    };
    let checkpoint = Checkpoint::new(terms, &tree).expect("terms");
    let record = [b"1".as_slice(), &vec![b'x'; bits.len() * 4 / 3]].concat();
    steps.wait("record kept", line.keep_draw(draw, Some(record))).await.expect("kept");
    line.join(LATER).await.expect("joins");
    let order = steps.time("order (beside)", || positions(&Seed::new(&checkpoint, b"3 1 6 6 2 5"), PEOPLE));
    let from_0: Vec<u32> = order.iter().map(|position| position - 1).collect();
    let lots = steps
        .time("numbers (beside)", || Lots::new(draw, census.next, &list, &from_0))
        .expect("the list is right");
    let census = steps.wait("census before the deal", line.census()).await.expect("lists");
    let deal = steps.time("bits of the deal (beside)", || lots.deal(&census));
    assert_eq!(steps.wait("deal", line.deal(deal, false)).await, Ok(admission::Dealt::Done));
    let view = steps.wait("view after", line.beat(Vec::new(), 0)).await.expect("beats");
    assert_eq!(view.tally.waiting, u64::from(PEOPLE + LATER));
}

/// The longest call that Redis noted.
fn longest(server: &Standalone) -> Duration {
    let Reply::Array(calls) = server.command(&["SLOWLOG", "GET", "-1"]) else { panic!("a list of calls") };
    let took = calls.iter().map(|call| match call {
        Reply::Array(fields) => match fields[2] {
            Reply::Int(us) => u64::try_from(us).expect("a time"),
            _ => panic!("a time"),
        },
        _ => panic!("a call"),
    });
    Duration::from_micros(took.max().unwrap_or(0))
}
