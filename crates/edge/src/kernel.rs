//! Counters that the kernel keeps about this process and about accept queues, read from `/proc`.
//!
//! A counter that cannot be read is `None`; no function fails.

use std::{fs, time::Duration};

use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

/// Clock ticks per second in `/proc`. The kernel's interface fixes it; it is the same on all common machines.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the kernel reports about this process and its network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Files that the process has open.
    pub open_files: Option<u64>,
    /// The most files that the process may have open.
    pub max_files: Option<u64>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Processor time since the process started, user and system, in seconds.
    pub cpu_s: Option<f64>,
    /// Connections that found an accept queue full, since the network namespace began.
    pub listen_overflows: Option<u64>,
    /// Connections dropped before they were accepted, since the network namespace began.
    pub listen_drops: Option<u64>,
}

impl Counters {
    /// Reads all of them.
    #[must_use]
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let netstat = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
        Self {
            // The directory itself is open while it is read.
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count().saturating_sub(1) as u64),
            max_files: Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)),
            resident_bytes: resident
                .and_then(|kib| kib.parse::<u64>().ok())
                .map(|kib| kib.saturating_mul(1_024)),
            cpu_s: own_stat(13).zip(own_stat(14)).map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            listen_overflows: tcp_ext(&netstat, "ListenOverflows"),
            listen_drops: tcp_ext(&netstat, "ListenDrops"),
        }
    }
}

/// The processor time that all threads of this process used, user and system.
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// All processors of the machine, also those that this process may not use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// How long they were busy since the machine started, added up.
    pub busy: Duration,
    /// How many there are.
    pub processors: usize,
}

impl Machine {
    /// Reads it; none if it cannot be read.
    #[must_use]
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `/proc/stat`. Busy are all columns but idle, waiting for a disk, and those of guests, which are part of others.
    fn parse(stat: &str) -> Option<Self> {
        let all = stat.lines().next()?.strip_prefix("cpu ")?;
        let columns: Vec<f64> = all.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|column| columns.get(column)).sum::<f64>();
        let processors = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
        Some(Self { busy: Duration::try_from_secs_f64(busy / TICKS_PER_SECOND).ok()?, processors })
    }
}

/// [`Counters::listen_overflows`] alone; 0 if it cannot be read.
#[must_use]
pub fn listen_overflows() -> u64 {
    let netstat = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
    tcp_ext(&netstat, "ListenOverflows").unwrap_or(0)
}

/// When the process started, in seconds since 1970.
#[must_use]
pub fn start_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + own_stat(21)? / TICKS_PER_SECOND)
}

/// A field of `/proc/self/stat`, counted from 0. The field with index 1 is the program's name, in brackets.
fn own_stat(field: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(field - 2)?.parse().ok()
}

/// A counter of the `TcpExt` table, which has one line of names and one line of values.
fn tcp_ext(netstat: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let column = lines.next()?.split(' ').position(|word| word == name)?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_counters_are_found_by_name() {
        let text = "TcpExt: A ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: X\nIpExt: 4\n";
        assert_eq!(tcp_ext(text, "ListenDrops"), Some(333));
        assert_eq!(tcp_ext(text, "ListenOverflows"), Some(22));
        assert_eq!(tcp_ext(text, "X"), None);
    }

    #[test]
    fn idle_time_is_not_busy() {
        let text = "cpu  100 20 300 9999 77 1 2 3 40 50\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5\n";
        let expected = Machine { busy: Duration::from_millis(4_260), processors: 2 };
        assert_eq!(Machine::parse(text), Some(expected));
        assert_eq!((Machine::parse(""), Machine::parse("cpu0 1 2")), (None, None));
        assert!(
            Machine::read().is_some_and(|machine| machine.busy > Duration::ZERO && machine.processors > 0)
        );
    }

    #[test]
    fn this_process_has_counters() {
        let counters = Counters::read();
        assert!(counters.open_files.is_some_and(|n| n >= 3) && counters.max_files > counters.open_files);
        assert!(counters.resident_bytes.is_some_and(|n| n > 100_000));
        assert!(counters.cpu_s.is_some() && processor_time() > Duration::ZERO);
        assert!(start_time_s().is_some_and(|s| s > 1.6e9));
    }
}
