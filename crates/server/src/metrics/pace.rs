//! How busy the server is, and the polling periods that it tells because of that.

use gate::pace::{Cause, Pacing};
use metrics::Gauge;

use super::{names, registry::Registry};

pub(super) struct Pace {
    period: Gauge,
    room: Gauge,
    lag: Gauge,
    busy: [(Cause, Gauge); Cause::ALL.len()],
}

impl Pace {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            period: registry.gauge(names::POLLING_PERIOD, &[]),
            room: registry.gauge(names::POLL_ROOM, &[]),
            lag: registry.gauge(names::LAG, &[]),
            busy: Cause::ALL.map(|cause| (cause, registry.gauge(names::BUSY, &[("cause", cause.as_str())]))),
        }
    }

    pub(super) fn set(&self, pacing: &Pacing) {
        self.period.set(f64::from(pacing.period_ms) / 1_000.0);
        self.room.set(pacing.room_per_s);
        self.lag.set(pacing.lag_s);
        for (cause, gauge) in &self.busy {
            gauge.set(f64::from(u8::from(pacing.cause == Some(*cause))));
        }
    }
}
