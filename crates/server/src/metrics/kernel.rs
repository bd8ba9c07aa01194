//! Shows what the kernel reports about this process and about accept queues, read at each scrape.
//!
//! A metric keeps its value when the kernel's counter cannot be read.

use edge::kernel::{Counters, start_time_s};
use prometheus::{Gauge, IntCounter, IntGauge, Registry};

use super::{SOUND, register};

pub(super) struct Kernel {
    open_files: IntGauge,
    max_files: IntGauge,
    resident: IntGauge,
    cpu: prometheus::Counter,
    overflows: IntCounter,
    drops: IntCounter,
}

impl Kernel {
    pub(super) fn new(r: &Registry) -> Self {
        let gauge = |name: &str, help: &str| register(r, IntGauge::new(name, help).expect(SOUND));
        let counter = |name: &str, help: &str| register(r, IntCounter::new(name, help).expect(SOUND));
        let started = Gauge::new("process_start_time_seconds", "When the process started, since 1970.");
        register(r, started.expect(SOUND)).set(start_time_s().unwrap_or(0.0));
        let cpu =
            prometheus::Counter::new("process_cpu_seconds_total", "Processor time used, user and system.");
        Self {
            open_files: gauge("process_open_fds", "Open files."),
            max_files: gauge("process_max_fds", "The most files the process may open."),
            resident: gauge("process_resident_memory_bytes", "Memory in use."),
            cpu: register(r, cpu.expect(SOUND)),
            overflows: counter(
                "weir_kernel_listen_overflows_total",
                "Connections that found an accept queue full, in this network namespace since it began.",
            ),
            drops: counter(
                "weir_kernel_listen_drops_total",
                "Connections dropped before they were accepted, in this network namespace since it began.",
            ),
        }
    }

    pub(super) fn read(&mut self) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let now = Counters::read();
        let gauges = [
            (&self.open_files, now.open_files),
            (&self.max_files, now.max_files),
            (&self.resident, now.resident_bytes),
        ];
        for (gauge, value) in gauges {
            if let Some(value) = value {
                gauge.set(signed(value));
            }
        }
        if let Some(used) = now.cpu_s {
            self.cpu.inc_by((used - self.cpu.get()).max(0.0));
        }
        for (counter, value) in [(&self.overflows, now.listen_overflows), (&self.drops, now.listen_drops)] {
            if let Some(value) = value {
                counter.inc_by(value.saturating_sub(counter.get()));
            }
        }
    }
}
