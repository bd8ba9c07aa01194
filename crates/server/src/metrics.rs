//! Metrics, in the Prometheus text format.
//!
//! What happens to zones and stores comes from the event bus, in batches. Requests and connections are counted where they
//! end, through handles that were made beforehand, because an event for each poll would cost more than its counter.
//!
//! Invariants: labels are bounded (zone, route, status, call, cell, subscriber, what a draw waits for; never a ticket, a token or an address);
//! a zone that is no longer served has no series; a counter that follows events is set to totals, so that the next event
//! corrects a lost one. Where that is impossible, `weir_events_lost_total` counts the loss.

mod connections;
mod exposition;
mod fanout;
mod http;
mod names;
mod otlp;
mod pace;
mod process;
mod readable;
mod registry;
mod store;
mod subscribers;
#[cfg(test)]
mod tests;
mod zones;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use ::metrics::{Counter, Gauge};
use ::store::Store;
use edge::kernel::Counters;
use events::{Batch, Bus, Event, Kind, Kinds, RefusalReason, Scope, SubscribeError, Subscription};
use gate::{Gate, cells::Health, pace::Pacing};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::draws::WaitsFor;
use exposition::Exposition;
use registry::Registry;

pub use connections::Connections;
pub use fanout::FanoutMeter;
pub use http::Route;
pub use otlp::{Deliveries, Dropped, Signal};
pub use readable::{ReadableCounter, ReadableGauge};

/// The events that change a metric.
const KINDS: Kinds = Kinds::of(&[
    Kind::ZoneAdded,
    Kind::ZoneRemoved,
    Kind::ViewShown,
    Kind::Entered,
    Kind::AdmittedWithoutStore,
    Kind::Refused,
    Kind::Limited,
    Kind::StoreCalled,
    Kind::Reloaded,
]);

/// How long events gather before they are read. Fewer wake-ups cost less processor time, and a thread's ring holds what
/// it publishes in this time at 80,000 events a second.
const GATHER: Duration = Duration::from_millis(50);

/// Batches that are read before events gather again. A batch has some hundred events, so this is more than the rings of a
/// thread hold.
const BATCHES: usize = 64;

/// How often observed numbers move into the buckets of their histograms. Each takes 16 bytes until then, so 85,000 polls a
/// second hold less than 2 MB, and moving those takes about 3 ms.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often the zones that are away are read.
const TROUBLES: Duration = Duration::from_millis(250);

/// All metrics of the server.
pub struct Metrics {
    /// Of the server; [`Zones`](zones::Zones) has one for the series of zones.
    registry: Registry,
    /// The public listener's connections.
    pub connections: Connections,
    /// Calls for which no limiter could decide.
    pub limits_unknown: Counter,
    /// Servers of the store that have not read an event.
    pub unarmed_servers: Gauge,
    /// Draws that should have taken place, by what they wait for: in the order of [`WaitsFor::ALL`].
    pub overdue_draws: [Gauge; WaitsFor::ALL.len()],
    /// Open streams of waiting users.
    pub streams: Gauge,
    /// Streams that were refused because their client has too many.
    pub streams_refused: Counter,
    bus: Arc<Bus>,
    requests: http::Requests,
    store_calls: store::StoreCalls,
    away: store::Away,
    cells: store::Cells,
    reloads: [Counter; 2],
    subscribers: subscribers::Subscribers,
    process: process::Process,
    pace: pace::Pace,
    /// Empty if nothing is sent to a collector.
    otlp: OnceLock<otlp::Shown>,
    zones: Mutex<zones::Zones>,
}

/// Locks a mutex. It guards numbers and a map, which a panic can't leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Makes all metrics, for the events of `bus`.
    #[must_use]
    pub fn new(bus: Arc<Bus>) -> Self {
        let registry = Registry::lasting(names::OF_THE_SERVER);
        registry.gauge(names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.gauge(names::TLS_CERTIFICATE_EXPIRES, &[]).set(0.0);
        let reloads = |result| registry.counter(names::CONFIG_RELOADS, &[("result", result)]);
        Self {
            connections: Connections::new(&registry),
            limits_unknown: registry.counter(names::LIMITS_UNKNOWN, &[]),
            unarmed_servers: registry.gauge(names::UNARMED_SERVERS, &[]),
            overdue_draws: WaitsFor::ALL
                .map(|(_, waits_for)| registry.gauge(names::DRAWS_OVERDUE, &[("waits_for", waits_for)])),
            streams: registry.gauge(names::STREAMS_OPEN, &[]),
            streams_refused: registry.counter(names::CLIENT_STREAMS_REFUSED, &[]),
            bus,
            requests: http::Requests::new(&registry),
            store_calls: store::StoreCalls::new(&registry),
            cells: store::Cells::default(),
            away: store::Away::new(&registry),
            reloads: ["failed", "ok"].map(reloads),
            subscribers: subscribers::Subscribers::new(&registry),
            process: process::Process::new(&registry),
            pace: pace::Pace::new(&registry),
            otlp: OnceLock::new(),
            zones: Mutex::new(zones::Zones::new()),
            registry,
        }
    }

    /// Subscribes to the events that change a metric, from now on.
    ///
    /// # Errors
    /// If the bus has too many subscribers.
    pub fn subscribe(&self) -> Result<Subscription, SubscribeError> {
        self.bus.subscribe("metrics", Scope::Private, KINDS)
    }

    /// Follows the events of `subscription`, for the zones that `gate` serves, until the bus ends.
    pub async fn follow<S: Store>(self: Arc<Self>, mut subscription: Subscription, gate: Arc<Gate<S>>) {
        while let Some(batch) = subscription.next().await {
            self.take_in(&batch, &*gate);
            for _ in 1..BATCHES {
                let Some(batch) = subscription.try_next() else { break };
                self.take_in(&batch, &*gate);
            }
            sleep(GATHER).await;
        }
    }

    /// Regularly moves observed numbers into their buckets, so that they need little memory. Never ends.
    pub async fn run_upkeep(self: Arc<Self>) {
        let mut every = interval(UPKEEP);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.registry.run_upkeep();
            lock(&self.zones).run_upkeep();
        }
    }

    /// Regularly shows which zones are away, and why. Never ends.
    pub async fn follow_troubles<S: Store>(self: Arc<Self>, gate: Arc<Gate<S>>) {
        let mut every = interval(TROUBLES);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.away.set(&gate.troubles());
        }
    }

    /// Follows a batch of events. The list of zones and their totals are read from `gate`, because events of several
    /// threads are in no order, and a total that comes late would look like that of a store that lost its data.
    fn take_in<S: Store>(&self, batch: &Batch<'_>, gate: &Gate<S>) {
        let zones = &mut *lock(&self.zones);
        // An event of a new zone may come before the event that adds it, if another thread published it.
        let changes_zones = |event: &Event| match event {
            Event::ZoneAdded(_) | Event::ZoneRemoved(_) => true,
            Event::Entered(entered) => !zones.has(entered.zone),
            Event::AdmittedWithoutStore(admitted) => !zones.has(admitted.zone),
            Event::Refused(refused) => refused.why == RefusalReason::Full && !zones.has(refused.zone),
            Event::Limited(limited) => !zones.has(limited.zone),
            _ => false,
        };
        if batch.lost > 0 || batch.events.iter().any(changes_zones) {
            zones.keep(&gate.totals(), &self.bus);
        }
        for event in batch.events {
            match *event {
                Event::ViewShown(view) => {
                    let shown = zones.name(view.zone).and_then(|name| gate.zone_totals(name.as_str()));
                    if let Some(shown) = shown {
                        zones.show(&shown);
                    }
                }
                Event::Entered(entered) => zones.entered(entered),
                Event::AdmittedWithoutStore(admitted) => zones.admitted_without_store(admitted),
                Event::Refused(refused) => zones.refused(refused),
                Event::Limited(limited) => zones.limited(limited),
                Event::StoreCalled(called) => self.store_calls.ended(called),
                Event::Reloaded(reloaded) => self.reloads[usize::from(reloaded.ok)].increment(1),
                _ => {}
            }
        }
    }

    /// Shows when the certificate of the public listener expires, in seconds since 1970.
    pub fn certificate_expires(&self, at_s: u64) {
        self.registry.gauge(names::TLS_CERTIFICATE_EXPIRES, &[]).set(at_s as f64);
    }

    /// Counts what is said about requests that fit a route.
    #[must_use]
    pub fn checks(&self, route: &str, said: &str) -> ReadableCounter {
        ReadableCounter::new(self.registry.counter(names::CHECKS, &[("route", route), ("said", said)]))
    }

    /// Counts an answered request.
    pub fn answered(&self, route: Route, status: u16, took: Duration) {
        self.requests.took(route, took);
        self.refused(route, status);
    }

    /// Shows how the server paces polls.
    pub fn paced(&self, pacing: &Pacing) {
        self.pace.set(pacing);
    }

    /// Counts an answer to input that never became a whole request.
    pub fn refused(&self, route: Route, status: u16) {
        self.requests.answered(&self.registry, route, status);
    }

    /// Reports the state of these cells from now on.
    pub fn watch_cells(&self, cells: Vec<Arc<Health>>) {
        self.cells.watch(&self.registry, cells);
    }

    /// Shows from now on what becomes of what is sent to a collector.
    pub fn watch_deliveries(&self, deliveries: Arc<Deliveries>) {
        self.otlp.get_or_init(|| otlp::Shown::new(&self.registry, deliveries));
    }

    /// The figures of the messages between servers in a cell.
    #[must_use]
    pub fn fanout(&self, cell: &str) -> FanoutMeter {
        FanoutMeter::new(&self.registry, cell)
    }

    /// All metrics in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        self.subscribers.write(&self.registry, &self.bus);
        self.cells.write();
        if let Some(otlp) = self.otlp.get() {
            otlp.write();
        }
        let now = Counters::read();
        self.process.write(&now);
        let mut exposition = Exposition::default();
        exposition.add_rendered(&self.registry.render(), |_| true);
        process::Process::add_processor_time(&mut exposition, &now);
        lock(&self.zones).render(&mut exposition);
        exposition.into_text().into_bytes()
    }
}
