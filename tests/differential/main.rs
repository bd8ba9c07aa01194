//! Compares the scripts with the rules: the same random calls at the same random instants must give the same replies and the
//! same state.
//!
//! The zone's clock is held at the instants of the trace. `WEIR_TRACE_CALLS` sets the number of calls, `WEIR_SEED` the first
//! seed. A trace that differs is reported with its seed; `WEIR_SEED=… WEIR_TRACE_CALLS=1` runs it alone.

#[path = "../support/drawn.rs"]
mod drawn;
#[path = "../support/header.rs"]
mod header;
#[path = "../support/plain.rs"]
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
