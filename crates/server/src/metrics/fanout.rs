//! What is said and heard between servers, by cell.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::{SOUND, at, register};

pub(super) struct Families {
    connected: IntGaugeVec,
    said: IntCounterVec,
    heard: IntCounterVec,
    dropped: IntCounterVec,
}

/// The figures of one cell.
#[derive(Clone, Debug)]
pub struct FanoutMeter {
    /// 1 while the other servers are heard.
    pub connected: IntGauge,
    /// Messages said.
    pub said: IntCounter,
    /// Messages of others.
    pub heard: IntCounter,
    /// What was heard and is no message, or of no zone of the cell.
    pub garbled: IntCounter,
    /// Messages that came faster than they were taken.
    pub missed: IntCounter,
    /// Messages that could not be said.
    pub unsaid: IntCounter,
}

impl Families {
    pub(super) fn new(r: &Registry) -> Self {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(r, IntCounterVec::new(Opts::new(name, help), labels).expect(SOUND))
        };
        let connected = Opts::new("weir_fanout_connected", "Whether the other servers are heard, by cell.");
        Self {
            connected: register(r, IntGaugeVec::new(connected, &["cell"]).expect(SOUND)),
            said: counters("weir_fanout_sent_total", "Messages to the other servers, by cell.", &["cell"]),
            heard: counters("weir_fanout_heard_total", "Messages of other servers, by cell.", &["cell"]),
            dropped: counters(
                "weir_fanout_dropped_total",
                "Messages lost here: garbled, missed by a slow reader, or unsent; by cell.",
                &["cell", "why"],
            ),
        }
    }

    pub(super) fn cell(&self, cell: &str) -> FanoutMeter {
        let dropped = |why| self.dropped.get_metric_with_label_values(&[cell, why]).expect(SOUND);
        FanoutMeter {
            connected: at(&self.connected, cell),
            said: at(&self.said, cell),
            heard: at(&self.heard, cell),
            garbled: dropped("garbled"),
            missed: dropped("missed"),
            unsaid: dropped("unsent"),
        }
    }
}
