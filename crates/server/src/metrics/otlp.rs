//! What became of the traces, reports of metrics and log records for the collector.
//!
//! The log is there before the metrics are, so the totals are kept here and shown at each scrape.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use metrics::Counter;

use super::{names, registry::Registry};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A trace: the spans of one request.
    Traces,
    /// A report of all metrics.
    Metrics,
    /// A record of the log.
    Logs,
}

impl Signal {
    /// All of them with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Traces, "traces"), (Self::Metrics, "metrics"), (Self::Logs, "logs")];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// More traces began in a second than may be sent.
    Limit,
    /// Too many waited to be sent.
    Full,
    /// The collector could not be reached, did not answer in time, or answered with an error.
    Failed,
    /// The collector took the message, and said that it refused this part of it.
    Refused,
}

impl Dropped {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Limit, "limit"), (Self::Full, "full"), (Self::Failed, "failed"), (Self::Refused, "refused")];
}

/// The totals since the start.
#[derive(Debug, Default)]
pub struct Deliveries {
    sent: [AtomicU64; Signal::ALL.len()],
    dropped: [[AtomicU64; Dropped::ALL.len()]; Signal::ALL.len()],
}

impl Deliveries {
    /// The collector took `count` of them.
    pub fn sent(&self, signal: Signal, count: u64) {
        self.sent[signal as usize].fetch_add(count, Relaxed);
    }

    /// So many were lost.
    pub fn dropped(&self, signal: Signal, why: Dropped, count: u64) {
        self.dropped[signal as usize][why as usize].fetch_add(count, Relaxed);
    }

    /// How many were lost for this reason.
    #[must_use]
    pub fn lost(&self, signal: Signal, why: Dropped) -> u64 {
        self.dropped[signal as usize][why as usize].load(Relaxed)
    }
}

/// The series. They are there only if there is a collector.
pub(super) struct Shown {
    of: Arc<Deliveries>,
    sent: [Counter; Signal::ALL.len()],
    dropped: [[Counter; Dropped::ALL.len()]; Signal::ALL.len()],
}

impl Shown {
    pub(super) fn new(registry: &Registry, of: Arc<Deliveries>) -> Self {
        let sent = |(_, signal)| registry.counter(names::OTLP_SENT, &[("signal", signal)]);
        let dropped = |(_, signal): (Signal, &str)| {
            Dropped::ALL
                .map(|(_, why)| registry.counter(names::OTLP_DROPPED, &[("signal", signal), ("why", why)]))
        };
        Self { of, sent: Signal::ALL.map(sent), dropped: Signal::ALL.map(dropped) }
    }

    pub(super) fn write(&self) {
        let show = |shown: &Counter, total: &AtomicU64| shown.absolute(total.load(Relaxed));
        self.sent.iter().zip(&self.of.sent).for_each(|(shown, total)| show(shown, total));
        for (shown, totals) in self.dropped.iter().zip(&self.of.dropped) {
            shown.iter().zip(totals).for_each(|(shown, total)| show(shown, total));
        }
    }
}
