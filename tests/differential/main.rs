//! The scripts against the rules: the same random calls at the same random instants, every reply and the whole state
//! equal.
//!
//! The zone's clock is held at the trace's instants. `WEIR_TRACE_CALLS` says how many calls are made in all,
//! `WEIR_SEED` where the traces begin; a trace that differs is named by its seed, and is made again alone with
//! `WEIR_SEED=… WEIR_TRACE_CALLS=1`.

mod plain;
#[path = "../support/seed.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod seed;
mod state;
mod trace;

use std::{
    env,
    io::{Write as _, stderr},
};

use plain::Plain;

#[test]
fn scripts_and_rules_agree_on_everything() {
    let number = |name, otherwise| {
        env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let (wanted, first) = (number("WEIR_TRACE_CALLS", 100_000), number("WEIR_SEED", 1));
    let plain = Plain::start();
    let (mut calls, mut seed) = (0, first);
    let mut kinds = trace::Kinds::default();
    while calls < wanted {
        calls += trace::run(&plain, seed, &mut kinds);
        seed += 1;
    }
    drop(writeln!(stderr(), "differential: {calls} calls in traces {first} to {}: {kinds:?}", seed - 1));
    kinds.check();
}
