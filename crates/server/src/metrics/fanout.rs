//! Messages between servers, by cell.

use super::{
    names,
    readable::{ReadableCounter, ReadableGauge},
    registry::Registry,
};

/// The figures of one cell.
#[derive(Clone, Debug)]
pub struct FanoutMeter {
    /// 1 while messages of the other servers arrive.
    pub connected: ReadableGauge,
    /// Messages sent.
    pub said: ReadableCounter,
    /// Messages received.
    pub heard: ReadableCounter,
    /// Received bytes that are no message, or a message about a zone of another cell.
    pub garbled: ReadableCounter,
    /// Messages that arrived faster than they were read, and were lost.
    pub missed: ReadableCounter,
    /// Messages that could not be sent.
    pub unsaid: ReadableCounter,
}

impl FanoutMeter {
    pub(super) fn new(registry: &Registry, cell: &str) -> Self {
        let counter = |family, labels: &[_]| ReadableCounter::new(registry.counter(family, labels));
        let dropped = |why| counter(names::FANOUT_DROPPED, &[("cell", cell), ("why", why)]);
        let connected = registry.gauge(names::FANOUT_CONNECTED, &[("cell", cell)]);
        Self {
            connected: ReadableGauge::new(connected),
            said: counter(names::FANOUT_SENT, &[("cell", cell)]),
            heard: counter(names::FANOUT_HEARD, &[("cell", cell)]),
            garbled: dropped("garbled"),
            missed: dropped("missed"),
            unsaid: dropped("unsent"),
        }
    }
}
