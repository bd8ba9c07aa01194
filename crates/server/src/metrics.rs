//! What an operator can see.
//!
//! Each series is named once, with its help beside the name. What happens to zones and stores comes from the bus, in
//! batches; requests and connections are counted where they end, by handles made beforehand, since an event for each
//! poll would cost more than its counter.
//!
//! Invariants: labels are bounded (zone, route, status, call, cell, subscriber; never a ticket, a token or an address);
//! a zone that is no longer served has no series; a counter that events make either is told as a total by each of them,
//! so that a lost one is made good by the next, or its loss is in `weir_events_lost_total`.

mod fanout;
mod kernel;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use admission::ZoneId;
use events::{
    AdmittedWithoutStore, Batch, Bus, Event, Kind, Kinds, LimitedCall, OfName, Scope, StoreCall, StoreCalled,
    SubscribeError, Subscription, Tallied,
};
use gate::{Gate, ZoneTotals, cells::Health};
use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, MetricVec, MetricVecBuilder},
};
use store::Store;
use tokio::time::sleep;

pub use fanout::FanoutMeter;

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `POST /traffic/wait`
    Wait,
    /// `POST /traffic/entry`
    Entry,
    /// `GET /traffic/stream`
    Stream,
    /// `GET /admin/v1/events`
    Events,
    /// The rest of `/admin/v1/`
    Admin,
    /// `GET /openapi.json`
    OpenApi,
    /// `GET /healthz`
    Health,
    /// `GET /readyz`
    Ready,
    /// `GET /.well-known/jwks.json`
    Jwks,
    /// `GET /traffic/notice`
    Notice,
    /// `GET /wait/{zone}`
    Page,
    /// `GET /weir.js` and `GET /wait-assets/…`
    Asset,
    /// `GET /metrics`
    Metrics,
    /// `GET /admin`: the console
    Console,
    /// Anything else, and what never became a request.
    Other,
}

impl Route {
    /// Whether it is one of apps' calls.
    #[must_use]
    pub fn is_traffic(self) -> bool {
        matches!(self, Self::Wait | Self::Entry | Self::Stream | Self::Notice)
    }
}

const ROUTES: [&str; 15] = [
    "wait", "entry", "stream", "events", "admin", "openapi", "healthz", "readyz", "jwks", "notice", "page",
    "asset", "metrics", "console", "other",
];
const STATUSES: [u16; 22] = [
    200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 421, 422, 428, 429, 431, 500,
    503,
];
const CALLS: [(StoreCall, &str); 5] = StoreCall::ALL;

/// What of the bus is shown.
const KINDS: Kinds = Kinds::of(&[
    Kind::ZoneAdded,
    Kind::ZoneRemoved,
    Kind::ViewShown,
    Kind::Entered,
    Kind::AdmittedWithoutStore,
    Kind::Limited,
    Kind::StoreCalled,
    Kind::Reloaded,
]);

/// How long events gather before they are taken: the fewer wakings, the less of the processor they take, and a thread's
/// ring holds what it publishes meanwhile at 80,000 events a second.
const GATHER: Duration = Duration::from_millis(50);

/// Batches that are taken before events gather again: some hundred events each, so more than the rings of a thread hold.
const BATCHES: usize = 64;

const LIMITED: [(LimitedCall, &str); 2] = LimitedCall::ALL;

const REQUEST_S: &[f64] =
    &[25e-6, 50e-6, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 2.0, 10.0];
const CALL_S: &[f64] = &[1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 5.0];
const BATCH: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
const WAIT_S: &[f64] =
    &[0.5, 2.0, 6.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 3_600.0, 7_200.0];
const ERROR_RATIO: &[f64] = &[0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0];

/// All metrics of the server.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    by_status: [[OnceLock<IntCounter>; STATUSES.len()]; ROUTES.len()],
    latency: [Histogram; ROUTES.len()],
    /// The public listener's connections.
    pub connections: Connections,
    /// Calls that no limiter decided about.
    pub limits_unknown: IntCounter,
    /// Open streams of waiting users.
    pub streams: IntGauge,
    bus: Arc<Bus>,
    calls: Calls,
    reloads: IntCounterVec,
    events: OfEvents,
    cell_up: IntGaugeVec,
    cells: OnceLock<Vec<Arc<Health>>>,
    fanout: fanout::Families,
    families: Families,
    zones: Mutex<HashMap<events::Zone, ZoneSeries>>,
    kernel: Mutex<kernel::Kernel>,
}

/// Counts connections.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Open now.
    pub open: IntGauge,
    /// The most that may be open.
    pub most: IntGauge,
    /// Taken in so far.
    pub accepted: IntCounter,
    /// Turned away so far, because too many were open.
    pub refused: IntCounter,
}

struct Calls {
    seconds: [Histogram; CALLS.len()],
    batch: [Histogram; CALLS.len()],
    failed: [IntCounter; CALLS.len()],
}

/// How the bus's subscribers get on.
struct OfEvents {
    lost: IntCounterVec,
    /// Held while they are brought up to date.
    shown: Mutex<()>,
    lag: IntGaugeVec,
    unheard: IntCounter,
}

struct Families {
    waiting: IntGaugeVec,
    present: IntGaugeVec,
    rate: IntGaugeVec,
    view_age: GaugeVec,
    joined: IntCounterVec,
    entered: IntCounterVec,
    unseen: IntCounterVec,
    evicted: IntCounterVec,
    limited: IntCounterVec,
    slots_offered: IntCounterVec,
    slots_used: IntCounterVec,
    wait: HistogramVec,
    error: HistogramVec,
}

/// The series of one zone.
struct ZoneSeries {
    name: ZoneId,
    waiting: IntGauge,
    present: IntGauge,
    rate: IntGauge,
    view_age: Gauge,
    joined: IntCounter,
    entered: IntCounter,
    unseen: IntCounter,
    evicted: IntCounter,
    limited: [IntCounter; LIMITED.len()],
    slots_offered: IntCounter,
    slots_used: IntCounter,
    wait: Histogram,
    error: Histogram,
    /// What was shown last, once the store has told of the zone.
    last: Option<ZoneTotals>,
    /// Of those who were let in without the store, how many were told.
    unseen_before: u64,
}

/// The names are literals, unique and well formed: a test makes them all.
const SOUND: &str = "names of metrics are unique and well formed";

/// A lock that no panic can leave half changed: what it guards is a number or a map.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    registry.register(Box::new(collector.clone())).expect(SOUND);
    collector
}

fn at<B: MetricVecBuilder>(family: &MetricVec<B>, label: &str) -> B::M {
    family.get_metric_with_label_values(&[label]).expect(SOUND)
}

impl Metrics {
    /// Makes them all, for what is published on `bus`.
    #[must_use]
    pub fn new(bus: Arc<Bus>) -> Self {
        let r = &Registry::new();
        let counter = |name: &str, help: &str| register(r, IntCounter::new(name, help).expect(SOUND));
        let counters = |name: &str, help: &str, label: &str| {
            register(r, IntCounterVec::new(Opts::new(name, help), &[label]).expect(SOUND))
        };
        let gauges = |name: &str, help: &str| {
            register(r, IntGaugeVec::new(Opts::new(name, help), &["zone"]).expect(SOUND))
        };
        let histograms = |name: &str, help: &str, label: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            register(r, HistogramVec::new(opts, &[label]).expect(SOUND))
        };
        let requests = IntCounterVec::new(
            Opts::new("weir_requests_total", "Requests answered, by route and status."),
            &["route", "status"],
        );
        let latency = histograms(
            "weir_request_duration_seconds",
            "From a request's head to its reply, by route.",
            "route",
            REQUEST_S,
        );
        let call_s =
            histograms("weir_store_call_duration_seconds", "Calls to the store, by call.", "call", CALL_S);
        let batch = histograms(
            "weir_store_call_tickets",
            "Tickets gathered into a call to the store.",
            "call",
            BATCH,
        );
        let failed =
            counters("weir_store_calls_failed_total", "Calls that the store did not answer.", "call");
        let build = IntGaugeVec::new(
            Opts::new("weir_build_info", "Always 1; the version is the label."),
            &["version"],
        );
        at(&register(r, build.expect(SOUND)), env!("CARGO_PKG_VERSION")).set(1);
        let reloads = counters(
            "weir_config_reloads_total",
            "Readings of the configuration while serving, by result.",
            "result",
        );
        for result in ["ok", "failed"] {
            let _ = at(&reloads, result);
        }
        Self {
            requests: register(r, requests.expect(SOUND)),
            by_status: Default::default(),
            latency: ROUTES.map(|route| at(&latency, route)),
            connections: Connections {
                open: register(
                    r,
                    IntGauge::new("weir_connections_open", "Public connections open now.").expect(SOUND),
                ),
                most: register(
                    r,
                    IntGauge::new("weir_connections_max", "The most public connections that may be open.")
                        .expect(SOUND),
                ),
                accepted: counter("weir_connections_accepted_total", "Public connections taken in."),
                refused: counter(
                    "weir_connections_refused_total",
                    "Public connections turned away at the cap.",
                ),
            },
            limits_unknown: counter(
                "weir_limits_unknown_total",
                "Calls let through since nobody could say whether their client asks too often.",
            ),
            streams: register(
                r,
                IntGauge::new("weir_streams_open", "Streams of waiting users open now.").expect(SOUND),
            ),
            bus,
            calls: Calls {
                seconds: CALLS.map(|(_, call)| at(&call_s, call)),
                batch: CALLS.map(|(_, call)| at(&batch, call)),
                failed: CALLS.map(|(_, call)| at(&failed, call)),
            },
            reloads,
            events: OfEvents {
                lost: counters(
                    "weir_events_lost_total",
                    "Events that a subscriber did not take in time, and that it will not see.",
                    "subscriber",
                ),
                shown: Mutex::default(),
                lag: {
                    let opts =
                        Opts::new("weir_events_waiting", "Events that a subscriber has not dealt with yet.");
                    register(r, IntGaugeVec::new(opts, &["subscriber"]).expect(SOUND))
                },
                unheard: counter(
                    "weir_events_unheard_total",
                    "Events of threads beyond those that the bus has room for.",
                ),
            },
            cell_up: {
                let help = "Whether a cell answered when it was last asked for its zones.";
                register(r, IntGaugeVec::new(Opts::new("weir_store_cell_up", help), &["cell"]).expect(SOUND))
            },
            cells: OnceLock::new(),
            fanout: fanout::Families::new(r),
            families: Families {
                waiting: gauges("weir_zone_waiting_tickets", "Tickets that wait."),
                present: gauges("weir_zone_present_tickets", "Waiting tickets whose holders poll."),
                rate: gauges("weir_zone_admit_per_minute", "How many the policy lets in a minute."),
                view_age: {
                    let opts =
                        Opts::new("weir_zone_view_age_seconds", "Since the store last showed the zone.");
                    register(r, GaugeVec::new(opts, &["zone"]).expect(SOUND))
                },
                joined: counters(
                    "weir_zone_joined_total",
                    "Tickets given out, entries at once included.",
                    "zone",
                ),
                entered: counters("weir_zone_entered_total", "Entries.", "zone"),
                unseen: counters(
                    "weir_admitted_unseen_total",
                    "Times somebody was let in without the store.",
                    "zone",
                ),
                evicted: counters("weir_zone_evicted_total", "Tickets evicted for silence.", "zone"),
                limited: {
                    let help = "Calls refused since their client asks too often, by route.";
                    let opts = Opts::new("weir_zone_limited_total", help);
                    register(r, IntCounterVec::new(opts, &["zone", "route"]).expect(SOUND))
                },
                slots_offered: counters(
                    "weir_zone_slots_offered_total",
                    "Slots that fell free for a line.",
                    "zone",
                ),
                slots_used: counters("weir_zone_slots_used_total", "Entries from the line.", "zone"),
                wait: histograms(
                    "weir_zone_wait_seconds",
                    "Time in line of those who entered.",
                    "zone",
                    WAIT_S,
                ),
                error: histograms(
                    "weir_zone_wait_error_ratio",
                    "Time in line over the wait told at the start.",
                    "zone",
                    ERROR_RATIO,
                ),
            },
            zones: Mutex::default(),
            kernel: Mutex::new(kernel::Kernel::new(r)),
            registry: r.clone(),
        }
    }

    /// Subscribes to what is shown, from now on.
    ///
    /// # Errors
    /// If the bus has too many subscribers.
    pub fn subscribe(&self) -> Result<Subscription, SubscribeError> {
        self.bus.subscribe("metrics", Scope::Private, KINDS)
    }

    /// Shows what `subscription` hears, of the zones that `gate` serves, until the bus is no more.
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

    /// Shows a batch of events. Which zones there are, and what their totals are, is read from `gate`: events of several
    /// threads are in no order, and a total that comes late would pass for that of a store that started anew.
    fn take_in<S: Store>(&self, batch: &Batch<'_>, gate: &Gate<S>) {
        let zones = &mut *lock(&self.zones);
        // Also where another thread's event of a new zone comes before it is told of.
        let of_zones = |event: &Event| match event {
            Event::ZoneAdded(_) | Event::ZoneRemoved(_) => true,
            Event::Entered(entered) => !zones.contains_key(&entered.zone),
            Event::AdmittedWithoutStore(admitted) => !zones.contains_key(&admitted.zone),
            Event::Limited(limited) => !zones.contains_key(&limited.zone),
            _ => false,
        };
        if batch.lost > 0 || batch.events.iter().any(of_zones) {
            self.keep_zones(zones, &gate.totals());
        }
        for event in batch.events {
            match *event {
                Event::ViewShown(view) => {
                    let series = zones.get_mut(&view.zone);
                    if let Some(series) = series
                        && let Some(shown) = gate.zone_totals(series.name.as_str())
                    {
                        series.show(&shown);
                    }
                }
                Event::Entered(entered) => {
                    if let Some(series) = zones.get(&entered.zone) {
                        series.entered(entered.waited_ms, entered.told_s);
                    }
                }
                Event::AdmittedWithoutStore(admitted) => {
                    if let Some(series) = zones.get_mut(&admitted.zone) {
                        series.admitted_unseen(admitted);
                    }
                }
                Event::Limited(limited) => {
                    if let Some(series) = zones.get(&limited.zone) {
                        let at = LIMITED.iter().position(|(call, _)| *call == limited.call);
                        series.limited[at.expect("both are in the list")].inc_by(limited.count.into());
                    }
                }
                Event::StoreCalled(called) => self.calls.ended(called),
                Event::Reloaded(reloaded) => {
                    at(&self.reloads, if reloaded.ok { "ok" } else { "failed" }).inc();
                }
                _ => {}
            }
        }
    }

    fn show_subscribers(&self) {
        // Who brings a counter up to a total has it alone.
        let _one = lock(&self.events.shown);
        let unheard = &self.events.unheard;
        unheard.inc_by(self.bus.unheard().saturating_sub(unheard.get()));
        // Subscribers of one name are one series.
        for (name, OfName { lost, waiting }) in self.bus.by_name() {
            let counter = at(&self.events.lost, &name);
            counter.inc_by(lost.saturating_sub(counter.get()));
            at(&self.events.lag, &name).set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
    }

    /// Has series for exactly these zones.
    fn keep_zones(&self, zones: &mut HashMap<events::Zone, ZoneSeries>, served: &[ZoneTotals]) {
        let f = &self.families;
        let still: HashSet<events::Zone> = served.iter().map(|shown| shown.tallied.zone).collect();
        zones.retain(|zone, series| {
            let keep = still.contains(zone);
            if !keep {
                let labels = &[series.name.as_str()];
                for family in [&f.waiting, &f.present, &f.rate] {
                    let _ = family.remove_label_values(labels);
                }
                for family in [&f.joined, &f.entered, &f.unseen, &f.evicted, &f.slots_offered, &f.slots_used]
                {
                    let _ = family.remove_label_values(labels);
                }
                for (_, route) in LIMITED {
                    let _ = f.limited.remove_label_values(&[series.name.as_str(), route]);
                }
                for family in [&f.wait, &f.error] {
                    let _ = family.remove_label_values(labels);
                }
                let _ = f.view_age.remove_label_values(labels);
            }
            keep
        });
        for shown in served {
            let series = match zones.entry(shown.tallied.zone) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    // One of more zones than the bus has names for.
                    let Some(name) = self.bus.zone_id(shown.tallied.zone) else { continue };
                    place.insert(ZoneSeries::new(f, name))
                }
            };
            series.show(shown);
        }
    }

    /// A request was answered.
    pub fn answered(&self, route: Route, status: u16, took: Duration) {
        self.latency[route as usize].observe(took.as_secs_f64());
        self.refused(route, status);
    }

    /// Something that never became a whole request was answered.
    pub fn refused(&self, route: Route, status: u16) {
        // 500 stands for what is not in the list; nothing says it today.
        let at = |status| STATUSES.iter().position(|&known| known == status);
        let index = at(status).or(at(500)).expect("500 is in the list");
        let made = || {
            let labels = [ROUTES[route as usize], &STATUSES[index].to_string()];
            self.requests.get_metric_with_label_values(&labels).expect(SOUND)
        };
        self.by_status[route as usize][index].get_or_init(made).inc();
    }

    /// Shows how these cells are, from now on.
    pub fn watch_cells(&self, cells: Vec<Arc<Health>>) {
        self.cells.get_or_init(|| cells);
    }

    /// The figures of what is said and heard in a cell.
    #[must_use]
    pub fn fanout(&self, cell: &str) -> FanoutMeter {
        self.fanout.cell(cell)
    }

    /// All of it, in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        for series in lock(&self.zones).values() {
            if let Some(shown) = &series.last {
                series.view_age.set(shown.at.elapsed().as_secs_f64());
            }
        }
        self.show_subscribers();
        for cell in self.cells.get().into_iter().flatten() {
            at(&self.cell_up, &cell.name).set(cell.is_up().into());
        }
        lock(&self.kernel).read();
        let mut text = Vec::with_capacity(16 << 10);
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes all");
        text
    }
}

impl Calls {
    fn ended(&self, called: StoreCalled) {
        let index = called.call as usize;
        self.seconds[index].observe(Duration::from_micros(called.took_us.into()).as_secs_f64());
        self.batch[index].observe(called.tickets.into());
        if !called.ok {
            self.failed[index].inc();
        }
    }
}

impl ZoneSeries {
    fn new(f: &Families, name: ZoneId) -> Self {
        let label = name.as_str();
        Self {
            waiting: at(&f.waiting, label),
            present: at(&f.present, label),
            rate: at(&f.rate, label),
            view_age: at(&f.view_age, label),
            joined: at(&f.joined, label),
            entered: at(&f.entered, label),
            unseen: at(&f.unseen, label),
            evicted: at(&f.evicted, label),
            limited: LIMITED
                .map(|(_, route)| f.limited.get_metric_with_label_values(&[label, route]).expect(SOUND)),
            slots_offered: at(&f.slots_offered, label),
            slots_used: at(&f.slots_used, label),
            wait: at(&f.wait, label),
            error: at(&f.error, label),
            last: None,
            unseen_before: 0,
            name,
        }
    }

    fn show(&mut self, shown: &ZoneTotals) {
        let now = &shown.tallied;
        self.waiting.set(now.waiting.into());
        self.present.set(now.present.into());
        self.rate.set(now.admit_per_minute.into());
        let old = self.last.as_ref().map(|last| &last.tallied);
        let add = |counter: &IntCounter, total: fn(&Tallied) -> u64| {
            let (new, old) = (total(now), old.map_or(0, total));
            // A total below the last one is that of a store that started anew, and all of it is news.
            counter.inc_by(if new < old { new } else { new - old });
        };
        add(&self.joined, |tallied| tallied.joined);
        add(&self.entered, |tallied| tallied.entered);
        add(&self.evicted, |tallied| tallied.evicted);
        add(&self.slots_offered, |tallied| tallied.slots_offered);
        add(&self.slots_used, |tallied| tallied.slots_used);
        self.last = Some(*shown);
    }

    fn entered(&self, waited_ms: u32, told_s: u32) {
        let waited_s = f64::from(waited_ms) / 1_000.0;
        self.wait.observe(waited_s);
        if told_s > 0 {
            self.error.observe(waited_s / f64::from(told_s));
        }
    }

    fn admitted_unseen(&mut self, AdmittedWithoutStore { total, .. }: AdmittedWithoutStore) {
        // Of several threads the greater total may come first.
        self.unseen.inc_by(total.saturating_sub(self.unseen_before));
        self.unseen_before = self.unseen_before.max(total);
    }
}

#[cfg(test)]
mod tests {
    use admission::{Policy, SealKey, Seals};
    use events::{Entered, Limited, Reloaded};
    use store::Embedded;

    use super::*;

    fn zone(name: &str) -> ZoneId {
        ZoneId::parse(name).expect("a name")
    }

    /// A bus, a gate that publishes on it, and metrics that are shown what `hear` is called for.
    struct Heard {
        bus: Arc<Bus>,
        gate: Gate<Embedded>,
        metrics: Metrics,
        subscription: Subscription,
        runtime: tokio::runtime::Runtime,
        _dir: tempfile::TempDir,
    }

    impl Heard {
        fn new(ring_len: usize) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let bus = Arc::new(Bus::with_rings(move |_| ring_len).expect("a thread"));
            let metrics = Metrics::new(Arc::clone(&bus));
            let subscription = metrics.subscribe().expect("room");
            let seals = Seals { current: SealKey { id: 1, secret: [1; 32] }, previous: None };
            let gate = Gate::new(Embedded::open(dir.path()).expect("empty"), seals, Arc::clone(&bus));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            Self { bus, gate, metrics, subscription, runtime: runtime.expect("a runtime"), _dir: dir }
        }

        fn serve(&self, zones: &[&str]) {
            let zones = zones.iter().map(|name| (zone(name), Policy::default().into())).collect();
            self.runtime.block_on(self.gate.serve_zones(zones)).expect("served");
        }

        fn hear(&mut self) {
            while let Some(batch) = self.subscription.try_next() {
                self.metrics.take_in(&batch, &self.gate);
            }
        }

        fn text(&self) -> String {
            String::from_utf8(self.metrics.render()).expect("text")
        }
    }

    #[test]
    fn what_is_heard_of_a_zone_before_the_zone_counts() {
        let mut heard = Heard::new(64);
        heard.serve(&["A"]);
        let limited =
            Limited { zone: heard.bus.zone(&zone("A")), call: LimitedCall::Wait, count: 1, retry_after_s: 1 };
        let early = Batch { events: &[limited.into()], lost: 0 };
        heard.metrics.take_in(&early, &heard.gate);
        heard.hear();
        let line = "weir_zone_limited_total{route=\"wait\",zone=\"A\"} 1\n";
        assert!(heard.text().contains(line), "{}", heard.text());
    }

    #[test]
    fn what_happened_is_told_and_a_zone_that_goes_takes_its_series_along() {
        let mut heard = Heard::new(64);
        heard.serve(&["A", "B"]);
        let a = heard.bus.zone(&zone("A"));
        heard.bus.publish(Entered { zone: a, waited_ms: 7_000, told_s: 6, at_ms: 0 });
        heard.bus.publish(StoreCalled {
            zone: a,
            call: StoreCall::Join,
            took_us: 3_000,
            tickets: 5,
            ok: false,
        });
        // In the order of another thread.
        heard.bus.publish(AdmittedWithoutStore { zone: a, total: 3 });
        heard.bus.publish(AdmittedWithoutStore { zone: a, total: 2 });
        heard.bus.publish(Limited {
            zone: heard.bus.zone(&zone("B")),
            call: LimitedCall::Entry,
            count: 1,
            retry_after_s: 1,
        });
        heard.bus.publish(Reloaded { ok: false });
        heard.runtime.block_on(heard.gate.wait("B", None)).expect("served");
        // A put shows the zone anew.
        heard.serve(&["A", "B"]);
        heard.hear();
        let metrics = &heard.metrics;
        metrics.answered(Route::Wait, 200, Duration::from_micros(40));
        metrics.refused(Route::Other, 431);
        let text = heard.text();
        for line in [
            "weir_zone_wait_seconds_bucket{zone=\"A\",le=\"15\"} 1",
            "weir_zone_wait_error_ratio_bucket{zone=\"A\",le=\"1\"} 0",
            "weir_zone_joined_total{zone=\"A\"} 0",
            "weir_zone_joined_total{zone=\"B\"} 1",
            "weir_admitted_unseen_total{zone=\"A\"} 3",
            "weir_zone_limited_total{route=\"entry\",zone=\"B\"} 1",
            "weir_requests_total{route=\"wait\",status=\"200\"} 1",
            "weir_requests_total{route=\"other\",status=\"431\"} 1",
            "weir_request_duration_seconds_count{route=\"wait\"} 1",
            "weir_store_calls_failed_total{call=\"join\"} 1",
            "weir_store_call_tickets_bucket{call=\"join\",le=\"8\"} 2",
            "weir_config_reloads_total{result=\"failed\"} 1",
            "weir_config_reloads_total{result=\"ok\"} 0",
            "weir_events_lost_total{subscriber=\"metrics\"} 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        for name in ["process_open_fds ", "process_max_fds ", "weir_kernel_listen_overflows_total "] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name}");
        }
        heard.serve(&["A"]);
        heard.hear();
        let text = heard.text();
        assert!(text.contains("zone=\"A\"") && !text.contains("zone=\"B\""), "{text}");
    }

    /// Rings of two events lose most of what is told here.
    #[test]
    fn what_is_lost_shows_and_no_total_is_wrong() {
        let mut heard = Heard::new(2);
        let names: Vec<_> = (0..20).map(|n| format!("Z{n}")).collect();
        heard.serve(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names {
            heard.runtime.block_on(heard.gate.wait(name, None)).expect("served");
        }
        let unseen = (1..=7).map(|total| AdmittedWithoutStore { zone: heard.bus.zone(&zone("Z3")), total });
        unseen.for_each(|event| heard.bus.publish(event));
        let text = heard.text();
        let series = "weir_events_lost_total{subscriber=\"metrics\"} ";
        let lost = |text: &str| -> u64 {
            let value = text.lines().find_map(|line| line.strip_prefix(series)).expect("a series");
            value.parse().expect("a number")
        };
        assert!(lost(&text) >= 60, "before they are missed\n{text}");
        heard.hear();
        heard.serve(&names.iter().map(String::as_str).collect::<Vec<_>>());
        heard.hear();
        let text = heard.text();
        for name in &names {
            let line = format!("weir_zone_joined_total{{zone=\"{name}\"}} 1\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("weir_admitted_unseen_total{zone=\"Z3\"} 7\n"), "{text}");
    }

    /// What those who left had lost is lost for good, and waits for nobody.
    #[test]
    fn losses_of_those_who_left_stay() {
        let heard = Heard::new(2);
        let operator = || heard.bus.subscribe("operator", Scope::Private, KINDS).expect("room");
        let (one, another) = (operator(), operator());
        let publish = || (0..3).for_each(|_| heard.bus.publish(events::Reloaded { ok: true }));
        let shown = |lost: u64, waiting: u64| {
            let text = heard.text();
            for line in [
                format!("weir_events_lost_total{{subscriber=\"operator\"}} {lost}\n"),
                format!("weir_events_waiting{{subscriber=\"operator\"}} {waiting}\n"),
            ] {
                assert!(text.contains(&line), "{line}{text}");
            }
        };
        publish();
        shown(4, 2);
        drop(one);
        shown(4, 1);
        publish();
        drop(another);
        shown(7, 0);
        drop(operator());
        shown(7, 0);
    }
}
