//! Measures how busy this server is, and paces polls by that.
//!
//! Invariant: a figure that the system does not give counts as good: a server that cannot measure tells the periods that are wished for.
//! The overflowed accept queues are those of the network namespace.

use std::{sync::Arc, time::Duration};

use edge::kernel::{self, Machine};
use gate::{AnyStore, Gate, pace::Load};
use tokio::time::{Instant, sleep_until};

use crate::metrics::Metrics;

/// How often the lateness is measured.
const SAMPLE: Duration = Duration::from_millis(25);

/// Samples between two updates of the pace.
const SAMPLES: u32 = 10;

/// The updates over which the lateness is averaged, so that a single late task does not count.
const UPDATES: f64 = 4.0;

/// Measures and paces. Never ends.
pub(crate) async fn follow(gate: Arc<Gate<AnyStore>>, metrics: Arc<Metrics>) {
    let (mut before, mut cpu_before) = (Instant::now(), kernel::processor_time());
    let (mut overflows, mut machine_before) = (kernel::listen_overflows(), Machine::read());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lag_s = 0.0;
    loop {
        let mut late = Duration::ZERO;
        for _ in 0..SAMPLES {
            let due = Instant::now() + SAMPLE;
            sleep_until(due).await;
            late += due.elapsed();
        }
        lag_s += (late.as_secs_f64() / f64::from(SAMPLES) - lag_s) / UPDATES;
        let (now, cpu, overflowed) = (Instant::now(), kernel::processor_time(), kernel::listen_overflows());
        let (machine, own) = (Machine::read(), cpu.saturating_sub(cpu_before));
        let elapsed_s = (now - before).as_secs_f64();
        let others_s = machine.zip(machine_before).map_or(0.0, |(now, before)| {
            let all = now.busy.saturating_sub(before.busy);
            in_the_way(
                all.saturating_sub(own).as_secs_f64(),
                now.processors.saturating_sub(processors),
                elapsed_s,
            )
        });
        let load =
            Load { elapsed_s, cpu_s: own.as_secs_f64(), others_s, lag_s, overflowed: overflowed > overflows };
        (before, cpu_before, overflows, machine_before) = (now, cpu, overflowed, machine);
        metrics.paced(&gate.pace().update(load));
    }
}

/// The processor time of others that this server may miss. `beside` is how many processors of the machine it may not use: there, others
/// are not in its way.
fn in_the_way(others_s: f64, beside: usize, elapsed_s: f64) -> f64 {
    (others_s - beside as f64 * elapsed_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_in_the_way_only_where_they_need_the_same_processors() {
        let on_the_same_two = in_the_way(0.3, 0, 0.25);
        assert!((on_the_same_two - 0.3).abs() < 1e-9);
        let on_a_large_machine = in_the_way(10.0, 60, 0.25);
        assert!(on_a_large_machine.abs() < 1e-9, "40 of 64 processors, and 4 are ours");
        let on_a_full_machine = in_the_way(15.5, 60, 0.25);
        assert!((on_a_full_machine - 0.5).abs() < 1e-9, "62 of 64: two of our four");
    }
}
