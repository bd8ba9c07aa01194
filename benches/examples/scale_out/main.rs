//! Measures what Redis does for many servers of one long line: 1 to 32 gates in this process, over one Redis that is started for
//! each row, with 0.6, 6 and 60 million people. In a standing line (on hold) nobody enters; in a moving line 10,000 a minute
//! enter, and as many come. Each person polls every 3 s at one of the gates. Polls from behind the front are added to the gates'
//! beats; joins, and the claims of people at the front, are calls of real gates.
//!
//! Prints for each row the processor time of Redis, its bytes, its script calls, how long a join takes, and the slowest call.
//! With enough rows it also fits a formula, and says how well that predicts the rows that it was not fitted to.
//!
//! `cargo run --profile bench -p weir-benches --example scale_out -- 600000 8` takes about a minute (two rows). Without
//! arguments all 36 rows are measured, in about 30 minutes (needs `redis-server` and 4 GB; the machine should be idle).
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../tests/support/clock.rs"]
mod clock;
mod crowd;
mod fit;
#[path = "../../../tests/support/redis.rs"]
mod redis;
mod redis_use;
mod room;

use std::{io::Write as _, process::ExitCode, sync::atomic::Ordering::Relaxed, time::Duration};

use admission::Mode;
use fit::{Formula, Known};
use redis_use::{Totals, Use};
use room::Room;
use tokio::time::{Instant, sleep};

/// The people and the gates of all rows, unless the arguments say others.
const PEOPLE: [u64; 3] = [600_000, 6_000_000, 60_000_000];
const GATES: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// How long a row is measured: three sub-windows.
const MEASURED: Duration = Duration::from_secs(18);
/// How long newcomers come to a standing line after that.
const PROBED: Duration = Duration::from_secs(6);
/// How long a row runs before that: longer than a sub-window and a polling period.
const WARM: Duration = Duration::from_secs(8);

/// What was measured with one line and so many gates.
struct Row {
    people: u64,
    gates: u64,
    moves: bool,
    redis: Use,
    /// Processor time of this process (all gates, and their people), and of all others on the machine but Redis. In cores.
    own: f64,
    others: f64,
    /// The part of the due beats that were made.
    beaten: f64,
    /// How long a beat takes, all of its calls, sorted.
    beats: Vec<Duration>,
    /// How long a join takes, sorted.
    joins: Vec<Duration>,
    slowest: Option<(&'static str, Duration)>,
    polls_per_s: f64,
    /// The part of the people who counted as present at the end.
    present: f64,
    entered_per_s: f64,
    /// Beats that failed, and calls for the store that were refused or answered from a stale view.
    failed: u64,
    refused: u64,
}

impl Row {
    /// Whether the line was served as it should be: no beat failed, beats took less than a second, hardly any
    /// call was refused, everybody counted as present, and a moving line moved.
    fn is_served(&self) -> bool {
        let refused = self.refused as f64 > 0.01 * self.redis.calls * MEASURED.as_secs_f64();
        self.failed == 0
            && !refused
            && self.beaten > 0.5
            && self.present > 0.95
            && (!self.moves || self.entered_per_s > 0.95 * self.known().newcomers)
    }

    fn known(&self) -> Known {
        let newcomers =
            if self.moves { f64::from(room::policy(Mode::Auto).admit_per_minute) / 60.0 } else { 0.0 };
        Known { beats: self.gates as f64 * self.beaten, people: self.people as f64, newcomers }
    }

    fn name(&self) -> String {
        let line = if self.moves { "moving" } else { "standing" };
        format!("{} people, {} gates, {line}", self.people, self.gates)
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let people = numbers(args.next(), &PEOPLE, 1_024..=90_000_000);
    let gates = numbers(args.next(), &GATES, 1..=256);
    let (Some(people), Some(gates), None) = (people, gates, args.next()) else {
        eprintln!(
            "scale_out: the arguments are numbers of people, 1024 to 90000000, and of gates, 1 to 256; separate several by commas"
        );
        return ExitCode::from(64);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut rows = Vec::new();
        let lines = people.len() * gates.len() * 2;
        for &people in &people {
            for &gates in &gates {
                for moves in [false, true] {
                    let row = measure(people, gates, moves).await;
                    rows.push(row);
                    print_row(rows.len(), lines, rows.last().expect("just pushed"));
                }
            }
        }
        print_table(&rows);
        print_formulas(&rows);
    });
    ExitCode::SUCCESS
}

/// The numbers of an argument; without it, the usual ones.
fn numbers(arg: Option<String>, usual: &[u64], range: std::ops::RangeInclusive<u64>) -> Option<Vec<u64>> {
    let Some(arg) = arg else { return Some(usual.to_vec()) };
    arg.split(',').map(|number| number.parse().ok().filter(|number| range.contains(number))).collect()
}

async fn measure(people: u64, gates: u64, moves: bool) -> Row {
    let server = redis_use::start();
    let mut room = Room::open(&server, people, gates).await;
    let cost = async |room: &Room, joins: bool| {
        room.ears.iter().for_each(|ear| drop(ear.take()));
        let (from, before, own) = (Instant::now(), Totals::of(&server), redis::cpu_time(std::process::id()));
        let (machine, entered) = (redis_use::machine_s(), room.entered.load(Relaxed));
        room.refused.store(0, Relaxed);
        let joins = if joins {
            room.newcomers(MEASURED).await
        } else {
            sleep(MEASURED).await;
            Vec::new()
        };
        let redis = before.until_now(&server);
        let seconds = from.elapsed().as_secs_f64();
        let own = (redis::cpu_time(std::process::id()) - own).as_secs_f64() / seconds;
        let others = (redis_use::machine_s() - machine) / seconds - own - redis.busy;
        let mut beats = Vec::new();
        let (mut polls, mut failed, mut present) = (0, 0, 1.0_f64);
        for heard in room.ears.iter().map(crowd::Ear::take) {
            beats.extend(heard.took);
            polls += heard.polls;
            failed += u64::from(heard.failed);
            present = present.min(heard.present);
        }
        beats.sort_unstable();
        Row {
            people,
            gates,
            moves,
            redis,
            own,
            others: others.max(0.0),
            beaten: beats.len() as f64 / (seconds * gates as f64),
            beats,
            joins,
            slowest: None,
            polls_per_s: polls as f64 / seconds,
            present,
            entered_per_s: (room.entered.load(Relaxed) - entered) as f64 / seconds,
            failed,
            refused: 0,
        }
    };
    let mut row = if moves {
        room.release().await;
        drop(room.newcomers(WARM).await);
        redis_use::forget_slow_calls(&server);
        cost(&room, true).await
    } else {
        sleep(WARM).await;
        redis_use::forget_slow_calls(&server);
        let row = cost(&room, false).await;
        Row { joins: room.newcomers(PROBED).await, ..row }
    };
    row.slowest = redis_use::slowest_call(&server);
    row.refused = room.refused.load(Relaxed);
    row
}

/// A part of sorted times, in milliseconds.
fn at(sorted: &[Duration], part: usize) -> f64 {
    sorted
        .get(sorted.len().saturating_sub(1) * part / 1_000)
        .map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}

fn print_row(number: usize, of: usize, row: &Row) {
    println!(
        "{number} of {of}: {}: Redis {:.2} % of a core, {:.2} MB/s in, {:.2} out, {:.0} calls/s; \
         joins p50 {:.1}, p99 {:.1} ms; beats p50 {:.1}, p99 {:.1} ms, {:.0} % made; here {:.2} cores, \
         others {:.2}; {:.0} polls/s, {:.1} % present, {:.0} entered/s, {} beats failed, {} refused",
        row.name(),
        row.redis.busy * 100.0,
        row.redis.bytes_in / 1e6,
        row.redis.bytes_out / 1e6,
        row.redis.calls,
        at(&row.joins, 500),
        at(&row.joins, 990),
        at(&row.beats, 500),
        at(&row.beats, 990),
        row.beaten * 100.0,
        row.own,
        row.others,
        row.polls_per_s,
        row.present * 100.0,
        row.entered_per_s,
        row.failed,
        row.refused
    );
    std::io::stdout().flush().expect("standard output takes text");
}

fn print_table(rows: &[Row]) {
    for moves in [false, true] {
        println!("\nA {} line:\n", if moves { "moving" } else { "standing" });
        println!(
            "| people | gates | Redis, % of a core | MB/s in | MB/s out | calls/s | join p50, p99 ms | beat p50, p99 ms | beats made | \
             slowest call | others, cores |\n|---|---|---|---|---|---|---|---|---|---|---|"
        );
        for row in rows.iter().filter(|row| row.moves == moves) {
            let slowest = row.slowest.map_or("< 0.5 ms".to_owned(), |(name, took)| {
                format!("{name} {:.1} ms", took.as_secs_f64() * 1e3)
            });
            println!(
                "| {} | {} | {:.2} | {:.2} | {:.2} | {:.0} | {:.1}, {:.1} | {:.1}, {:.1} | {:.0} % | {slowest} | {:.1} |{}",
                row.people,
                row.gates,
                row.redis.busy * 100.0,
                row.redis.bytes_in / 1e6,
                row.redis.bytes_out / 1e6,
                row.redis.calls,
                at(&row.joins, 500),
                at(&row.joins, 990),
                at(&row.beats, 500),
                at(&row.beats, 990),
                row.beaten * 100.0,
                row.others,
                if row.is_served() { "" } else { " *not served*" }
            );
        }
    }
}

/// What a formula is for, of one row.
type Value = fn(&Row) -> f64;

/// Fits the formula to every second number of gates, and compares it with the others. Lines that were not served do not count.
fn print_formulas(rows: &[Row]) {
    let mut gates: Vec<u64> = rows.iter().map(|row| row.gates).collect();
    gates.sort_unstable();
    gates.dedup();
    let rows: Vec<&Row> = rows.iter().filter(|row| row.is_served()).collect();
    let is_fitted = |row: &Row| gates.iter().step_by(2).any(|gates| *gates == row.gates);
    let values: [(&str, f64, Value); 3] = [
        ("processor time, us", 1e6, |row| row.redis.busy),
        ("bytes in", 1.0, |row| row.redis.bytes_in),
        ("bytes out", 1.0, |row| row.redis.bytes_out),
    ];
    println!("\nIn a second: a + b x beats + c x beats x people + d x newcomers\n");
    for (what, unit, value) in values {
        let fitted = rows.iter().filter(|row| is_fitted(row));
        let fitted: Vec<_> = fitted.map(|row| (row.known(), value(row) * unit)).collect();
        let Some(formula) = Formula::fit(&fitted) else {
            println!("{what}: too few rows for a formula");
            continue;
        };
        let [a, b, c, d] = formula.0;
        println!("{what}: a {a:.1}, b {b:.1}, c {c:.6}, d {d:.1}");
        for fitted in [true, false] {
            let of = rows.iter().filter(|row| is_fitted(row) == fitted);
            let mut errors: Vec<(f64, String)> =
                of.map(|row| (formula.of(row.known()) / (value(row) * unit) - 1.0, row.name())).collect();
            errors.sort_unstable_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs()));
            if let (Some((middle, _)), Some((worst, name))) = (errors.get(errors.len() / 2), errors.last()) {
                println!(
                    "  {} rows {}: median error {:.0} %, worst {:+.0} % ({name})",
                    errors.len(),
                    if fitted { "of the fit" } else { "that were not used" },
                    middle.abs() * 100.0,
                    worst * 100.0
                );
            }
        }
    }
}
