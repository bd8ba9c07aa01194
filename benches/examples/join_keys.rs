//! Measures what the key of a join costs Redis. Batches of 64 and of 1,024 people join a held line, without keys and with one each, in
//! alternating rounds. The output is the CPU time of Redis per join, as medians, and the memory of a key.
//!
//! `cargo run --profile bench -p weir-benches --example join_keys` (needs `redis-server`).
// The futures of a call through a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]
#![expect(clippy::print_stdout, reason = "it prints what it found")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/clock.rs"]
mod clock;
#[path = "../../tests/support/redis.rs"]
mod redis;

use admission::{JoinKey, Mode, Policy, ZoneId};
use redis::Standalone;
use store::{Line as _, Store as _};
use weir_benches::{connect, median};

const ROUNDS: usize = 9;
/// The joins of a round.
const JOINS: usize = 32_768;

#[tokio::main(worker_threads = 2)]
async fn main() {
    for batch in [64, 1_024] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let mut bytes_a_key = Vec::new();
        for round in 0..ROUNDS {
            let (plain, held) = joins(batch, round, false).await;
            let (keyed, held_with_keys) = joins(batch, round, true).await;
            without.push(plain);
            with.push(keyed);
            bytes_a_key.push((held_with_keys - held) / JOINS as f64);
        }
        let [without, with, bytes] = [without, with, bytes_a_key].map(median);
        println!(
            "batches of {batch}: {without:.2} us a join without a key, {with:.2} with one; {bytes:.0} bytes a key"
        );
    }
}

/// The microseconds of Redis's CPU time for each join, and the bytes that Redis holds afterwards.
async fn joins(batch: usize, round: usize, with_keys: bool) -> (f64, f64) {
    let server = Standalone::start();
    let line = connect(&server.url()).await.line(&ZoneId::parse("ZONE").expect("a name"));
    line.put(Policy { mode: Mode::Hold, ..Policy::default() }).await.expect("put");
    let key = |number: usize| JoinKey((number as u128 | (round as u128) << 64).to_le_bytes());
    let before = server.cpu_time();
    for first in (0..JOINS).step_by(batch) {
        let keys = (first..first + batch).map(|number| with_keys.then(|| key(number))).collect();
        line.join_once(keys).await.expect("joins");
    }
    let spent = server.cpu_time() - before;
    (spent.as_secs_f64() * 1e6 / JOINS as f64, server.used_memory() as f64)
}
