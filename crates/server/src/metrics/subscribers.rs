//! How far the subscribers of the event bus are behind, and what they lost.

use events::{Bus, OfName};
use metrics::Counter;

use super::{names, registry::Registry};

pub(super) struct Subscribers {
    unheard: Counter,
}

impl Subscribers {
    pub(super) fn new(registry: &Registry) -> Self {
        Self { unheard: registry.counter(names::EVENTS_UNHEARD, &[]) }
    }

    /// Subscribers of one name share a series, and names are few: so their handles are not kept.
    pub(super) fn write(&self, registry: &Registry, bus: &Bus) {
        self.unheard.absolute(bus.unheard());
        for (name, OfName { lost, waiting }) in bus.by_name() {
            let labels = &[("subscriber", &*name)];
            registry.counter(names::EVENTS_LOST, labels).absolute(lost);
            registry.gauge(names::EVENTS_WAITING, labels).set(waiting as f64);
        }
    }
}
