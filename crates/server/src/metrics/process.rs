//! This process, and the kernel's accept queues, read at each scrape.
//!
//! A metric keeps its value when the kernel's counter cannot be read.

use edge::kernel::{Counters, start_time_s};
use metrics::{Counter, Gauge};

use super::{exposition::Exposition, names, registry::Registry};
use crate::panics;

pub(super) struct Process {
    open_files: Gauge,
    max_files: Gauge,
    resident: Gauge,
    overflows: Counter,
    drops: Counter,
    panics: Counter,
}

impl Process {
    pub(super) fn new(registry: &Registry) -> Self {
        registry.gauge(names::PROCESS_START, &[]).set(start_time_s().unwrap_or(0.0));
        Self {
            open_files: registry.gauge(names::PROCESS_OPEN_FILES, &[]),
            max_files: registry.gauge(names::PROCESS_MAX_FILES, &[]),
            resident: registry.gauge(names::PROCESS_RESIDENT, &[]),
            overflows: registry.counter(names::LISTEN_OVERFLOWS, &[]),
            drops: registry.counter(names::LISTEN_DROPS, &[]),
            panics: registry.counter(names::PANICS, &[]),
        }
    }

    /// Reads all but the processor time.
    pub(super) fn write(&self, now: &Counters) {
        let gauges = [
            (&self.open_files, now.open_files),
            (&self.max_files, now.max_files),
            (&self.resident, now.resident_bytes),
        ];
        for (gauge, value) in gauges {
            if let Some(value) = value {
                gauge.set(value as f64);
            }
        }
        self.panics.absolute(panics::count());
        for (counter, total) in [(&self.overflows, now.listen_overflows), (&self.drops, now.listen_drops)] {
            if let Some(total) = total {
                counter.absolute(total);
            }
        }
    }

    /// The processor time is a counter of fractions: see [`super::exposition`].
    pub(super) fn add_processor_time(exposition: &mut Exposition, now: &Counters) {
        if let Some(used_s) = now.cpu_s {
            exposition.add_fraction(names::PROCESS_CPU, used_s);
        }
    }
}
