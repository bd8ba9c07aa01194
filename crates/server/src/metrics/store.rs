//! Calls to the store, and the state of its cells.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::ZoneId;
use events::{StoreCall, StoreCalled};
use gate::{Trouble, TroubleKind, cells::Health};
use metrics::{Counter, Gauge, Histogram};

use super::{names, registry::Registry};

const CALLS: [(StoreCall, &str); 10] = StoreCall::ALL;

pub(super) struct StoreCalls {
    duration: [Histogram; CALLS.len()],
    tickets: [Histogram; CALLS.len()],
    failed: [Counter; CALLS.len()],
}

impl StoreCalls {
    pub(super) fn new(registry: &Registry) -> Self {
        let histograms = |family| CALLS.map(|(_, call)| registry.histogram(family, &[("call", call)]));
        Self {
            duration: histograms(names::STORE_CALL_DURATION),
            tickets: histograms(names::STORE_CALL_TICKETS),
            failed: CALLS.map(|(_, call)| registry.counter(names::STORE_CALLS_FAILED, &[("call", call)])),
        }
    }

    pub(super) fn ended(&self, called: StoreCalled) {
        let index = called.call as usize;
        self.duration[index].record(Duration::from_micros(called.took_us.into()).as_secs_f64());
        self.tickets[index].record(called.tickets);
        if !called.ok {
            self.failed[index].increment(1);
        }
    }
}

/// The zones whose store is away, by why.
pub(super) struct Away(Vec<(TroubleKind, Gauge)>);

impl Away {
    pub(super) fn new(registry: &Registry) -> Self {
        let shown = |kind: &TroubleKind| (*kind, registry.gauge(names::ZONES_AWAY, &[("kind", kind.name())]));
        Self(TroubleKind::ALL.iter().map(shown).collect())
    }

    pub(super) fn set(&self, troubles: &[(ZoneId, Trouble)]) {
        for (kind, gauge) in &self.0 {
            let count = troubles.iter().filter(|(_, trouble)| trouble.kind == *kind).count();
            gauge.set(count as f64);
        }
    }
}

/// The cells of the store, once they are known.
#[derive(Default)]
pub(super) struct Cells(OnceLock<Vec<(Arc<Health>, Gauge)>>);

impl Cells {
    pub(super) fn watch(&self, registry: &Registry, cells: Vec<Arc<Health>>) {
        let shown = |cell: Arc<Health>| {
            let gauge = registry.gauge(names::STORE_CELL_UP, &[("cell", &cell.name)]);
            (cell, gauge)
        };
        self.0.get_or_init(|| cells.into_iter().map(shown).collect());
    }

    pub(super) fn write(&self) {
        for (cell, up) in self.0.get().into_iter().flatten() {
            up.set(u8::from(cell.is_up()));
        }
    }
}
