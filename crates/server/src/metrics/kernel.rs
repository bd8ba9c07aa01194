//! What the kernel knows: of this process, and of the accept queues.
//!
//! Read from `/proc` when asked for. What can't be read is left as it was.

use std::fs;

use prometheus::{Gauge, IntCounter, IntGauge, Registry};

use super::{SOUND, register};

/// Clock ticks a second in `/proc`: part of the kernel's interface, the same on all common machines.
const TICKS_PER_SECOND: f64 = 100.0;

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
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // The directory itself is open while it is read.
            self.open_files.set(signed(files.count().saturating_sub(1) as u64));
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.max_files.set(signed(limit.unwrap_or(u64::MAX)));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(kib) = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")) {
            self.resident.set(kib.parse::<i64>().unwrap_or(0).saturating_mul(1_024));
        }
        if let (Some(user), Some(system)) = (own_stat(13), own_stat(14)) {
            let used = (user + system) / TICKS_PER_SECOND;
            self.cpu.inc_by((used - self.cpu.get()).max(0.0));
        }
        let netstat = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
        for (name, counter) in [("ListenOverflows", &self.overflows), ("ListenDrops", &self.drops)] {
            if let Some(now) = tcp_ext(&netstat, name) {
                counter.inc_by(now.saturating_sub(counter.get()));
            }
        }
    }
}

/// A field of `/proc/self/stat`, counted from 0. The second one is the program's name, in brackets.
fn own_stat(field: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(field - 2)?.parse().ok()
}

fn start_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + own_stat(21)? / TICKS_PER_SECOND)
}

/// A counter of the `TcpExt` table: one line of names, one of values.
fn tcp_ext(netstat: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let column = lines.next()?.split(' ').position(|word| word == name)?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_the_kernel_is_read_by_name() {
        let text = "TcpExt: A ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: X\nIpExt: 4\n";
        assert_eq!(super::tcp_ext(text, "ListenDrops"), Some(333));
        assert_eq!(super::tcp_ext(text, "ListenOverflows"), Some(22));
        assert_eq!(super::tcp_ext(text, "X"), None);
    }
}
