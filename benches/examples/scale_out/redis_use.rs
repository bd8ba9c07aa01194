//! What Redis says that it did, and how busy the machine was.

use std::{collections::BTreeMap, time::Duration};

use edge::kernel::Machine;
use store::redis::scripts;
use tokio::time::Instant;

use crate::redis::{Options, Reply, Standalone};

/// Faster calls are not in the slow log, in microseconds.
const LEAST_US: u32 = 500;

/// A Redis of its own that notes slow calls.
pub(crate) fn start() -> Standalone {
    let least = LEAST_US.to_string();
    let options = Options::new().arg(&["--slowlog-max-len", "5000", "--slowlog-log-slower-than", &least]);
    Standalone::start_with(&options)
}

/// The totals of a Redis at one instant.
pub(crate) struct Totals {
    at: Instant,
    busy_s: f64,
    bytes_in: f64,
    bytes_out: f64,
    calls: f64,
}

/// What a Redis did in a time, a second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Use {
    /// Processor time, in cores.
    pub(crate) busy: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    /// Script calls.
    pub(crate) calls: f64,
}

impl Totals {
    pub(crate) fn of(server: &Standalone) -> Self {
        let number = |section, name| server.info(section, name).parse::<f64>().expect("a number");
        // `cmdstat_evalsha:calls=5,usec=…`
        let scripts = server.info("commandstats", "cmdstat_evalsha");
        let calls = scripts.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
        Self {
            at: Instant::now(),
            busy_s: number("cpu", "used_cpu_sys") + number("cpu", "used_cpu_user"),
            bytes_in: number("stats", "total_net_input_bytes"),
            bytes_out: number("stats", "total_net_output_bytes"),
            calls: calls.and_then(|calls| calls.parse().ok()).expect("scripts were called"),
        }
    }

    /// What was done since.
    pub(crate) fn until_now(&self, server: &Standalone) -> Use {
        let now = Self::of(server);
        let seconds = (now.at - self.at).as_secs_f64();
        Use {
            busy: (now.busy_s - self.busy_s) / seconds,
            bytes_in: (now.bytes_in - self.bytes_in) / seconds,
            bytes_out: (now.bytes_out - self.bytes_out) / seconds,
            calls: (now.calls - self.calls) / seconds,
        }
    }
}

/// Forgets the slow calls so far.
pub(crate) fn forget_slow_calls(server: &Standalone) {
    server.command(&["SLOWLOG", "RESET"]);
}

/// The slowest script call: its name, and how long it held Redis. `None` if none took [`LEAST_US`].
pub(crate) fn slowest_call(server: &Standalone) -> Option<(&'static str, Duration)> {
    let names = BTreeMap::from(
        [&scripts::JOIN, &scripts::ENTER, &scripts::BEAT, &scripts::POLICY]
            .map(|script| (script.sha1.clone(), script.name)),
    );
    let log = server.command(&["SLOWLOG", "GET", "-1"]);
    let calls = log.parts().iter().filter_map(|call| match call.parts() {
        [_, _, us, Reply::Array(args), ..] => {
            let name = *names.get(&args.get(1)?.text())?;
            Some((name, Duration::from_micros(u64::try_from(us.int()).ok()?)))
        }
        _ => None,
    });
    calls.max_by_key(|(_, took)| *took)
}

/// The processor time of everything on this machine, in seconds.
pub(crate) fn machine_s() -> f64 {
    Machine::read().expect("Linux has /proc/stat").busy.as_secs_f64()
}
