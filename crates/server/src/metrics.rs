//! What an operator can see.
//!
//! Each series is named once, with its help beside the name. Invariants: labels are bounded (zone, route, status,
//! call, cell; never a ticket, a token or an address); the request path touches atomics only, through handles made
//! beforehand; a zone that is no longer served has no series.

mod kernel;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use admission::{Tally, View, ZoneId};
use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, MetricVec, MetricVecBuilder},
};
use tokio::time::Instant;

use crate::{
    cells::Health,
    gate::{Call, Meter},
    limits::Limited,
};

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `POST /traffic/wait`
    Wait,
    /// `POST /traffic/entry`
    Entry,
    /// `GET /healthz`
    Health,
    /// `GET /readyz`
    Ready,
    /// `GET /.well-known/jwks.json`
    Jwks,
    /// `GET /metrics`
    Metrics,
    /// Anything else, and what never became a request.
    Other,
}

const ROUTES: [&str; 7] = ["wait", "entry", "healthz", "readyz", "jwks", "metrics", "other"];
const STATUSES: [u16; 13] = [200, 400, 401, 404, 405, 408, 410, 413, 415, 429, 431, 500, 503];
const CALLS: [(Call, &str); 5] = [
    (Call::Put, "put"),
    (Call::Open, "open"),
    (Call::Join, "join"),
    (Call::Enter, "enter"),
    (Call::Beat, "beat"),
];

/// What is limited, as the routes that say it most.
const LIMITED: [(Limited, &str); 2] = [(Limited::Waits, "wait"), (Limited::Entries, "entry")];

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
    calls: Arc<Calls>,
    reloads: IntCounterVec,
    cell_up: IntGaugeVec,
    cells: OnceLock<Vec<Arc<Health>>>,
    families: Families,
    zones: Mutex<HashMap<ZoneId, Arc<ZoneMeter>>>,
    kernel: Mutex<kernel::Kernel>,
}

/// Counts connections.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Open now.
    pub open: IntGauge,
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

/// The meter of one zone.
struct ZoneMeter {
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
    calls: Arc<Calls>,
    last: Mutex<(Option<Instant>, Tally)>,
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
    /// Makes them all.
    #[must_use]
    pub fn new() -> Self {
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
            calls: Arc::new(Calls {
                seconds: CALLS.map(|(_, call)| at(&call_s, call)),
                batch: CALLS.map(|(_, call)| at(&batch, call)),
                failed: CALLS.map(|(_, call)| at(&failed, call)),
            }),
            reloads,
            cell_up: {
                let help = "Whether a cell answered when it was last asked for its zones.";
                register(r, IntGaugeVec::new(Opts::new("weir_store_cell_up", help), &["cell"]).expect(SOUND))
            },
            cells: OnceLock::new(),
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

    /// The meter of a zone.
    #[must_use]
    pub fn zone(&self, zone: &ZoneId) -> Arc<dyn Meter> {
        let (f, name) = (&self.families, zone.as_str());
        let meter = || {
            Arc::new(ZoneMeter {
                waiting: at(&f.waiting, name),
                present: at(&f.present, name),
                rate: at(&f.rate, name),
                view_age: at(&f.view_age, name),
                joined: at(&f.joined, name),
                entered: at(&f.entered, name),
                unseen: at(&f.unseen, name),
                evicted: at(&f.evicted, name),
                limited: LIMITED
                    .map(|(_, route)| f.limited.get_metric_with_label_values(&[name, route]).expect(SOUND)),
                slots_offered: at(&f.slots_offered, name),
                slots_used: at(&f.slots_used, name),
                wait: at(&f.wait, name),
                error: at(&f.error, name),
                calls: Arc::clone(&self.calls),
                last: Mutex::default(),
            })
        };
        Arc::clone(lock(&self.zones).entry(zone.clone()).or_insert_with(meter)) as Arc<dyn Meter>
    }

    /// Drops the series of every zone that is not in `served`.
    pub fn keep_zones(&self, served: &[ZoneId]) {
        let f = &self.families;
        lock(&self.zones).retain(|zone, _| {
            let keep = served.contains(zone);
            if !keep {
                let labels = &[zone.as_str()];
                for family in [&f.waiting, &f.present, &f.rate] {
                    let _ = family.remove_label_values(labels);
                }
                for family in [&f.joined, &f.entered, &f.unseen, &f.evicted, &f.slots_offered, &f.slots_used]
                {
                    let _ = family.remove_label_values(labels);
                }
                for (_, route) in LIMITED {
                    let _ = f.limited.remove_label_values(&[zone.as_str(), route]);
                }
                for family in [&f.wait, &f.error] {
                    let _ = family.remove_label_values(labels);
                }
                let _ = f.view_age.remove_label_values(labels);
            }
            keep
        });
    }

    /// A request was answered.
    pub fn answered(&self, route: Route, status: u16, took: Duration) {
        self.latency[route as usize].observe(took.as_secs_f64());
        self.refused(route, status);
    }

    /// Something that never became a whole request was answered.
    pub fn refused(&self, route: Route, status: u16) {
        // 500 stands for what is not in the list; nothing says it today.
        let index = STATUSES.iter().position(|&known| known == status).unwrap_or(11);
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

    /// The configuration was read again.
    pub fn reloaded(&self, ok: bool) {
        at(&self.reloads, if ok { "ok" } else { "failed" }).inc();
    }

    /// All of it, in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        for meter in lock(&self.zones).values() {
            if let Some(shown) = lock(&meter.last).0 {
                meter.view_age.set(shown.elapsed().as_secs_f64());
            }
        }
        for cell in self.cells.get().into_iter().flatten() {
            at(&self.cell_up, &cell.name).set(cell.is_up().into());
        }
        lock(&self.kernel).read();
        let mut text = Vec::with_capacity(16 << 10);
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes all");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter for ZoneMeter {
    fn shown(&self, view: &View) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let now = &view.tally;
        self.waiting.set(signed(now.waiting));
        self.present.set(signed(now.present));
        self.rate.set(view.policy.admit_per_minute.into());
        let (shown, old) = &mut *lock(&self.last);
        *shown = Some(Instant::now());
        // A total below the last one is that of a store that started anew, and all of it is news.
        let news = |new: u64, old: u64| if new < old { new } else { new - old };
        self.joined.inc_by(news(now.joined, old.joined));
        self.entered.inc_by(news(now.entered, old.entered));
        self.evicted.inc_by(news(now.evicted, old.evicted));
        self.slots_offered.inc_by(news(now.slots_offered, old.slots_offered));
        self.slots_used.inc_by(news(now.slots_used, old.slots_used));
        *old = *now;
    }

    fn entered(&self, waited_s: f64, actual_over_told: Option<f64>) {
        self.wait.observe(waited_s);
        if let Some(ratio) = actual_over_told {
            self.error.observe(ratio);
        }
    }

    fn admitted_unseen(&self) {
        self.unseen.inc();
    }

    fn limited(&self, what: Limited) {
        let index = LIMITED.iter().position(|(known, _)| *known == what).expect("both are in the list");
        self.limited[index].inc();
    }

    fn called(&self, call: Call, took: Duration, batch: usize, ok: bool) {
        let index = CALLS.iter().position(|(known, _)| *known == call).expect("every call is in the list");
        self.calls.seconds[index].observe(took.as_secs_f64());
        self.calls.batch[index].observe(f64::from(u32::try_from(batch).unwrap_or(u32::MAX)));
        if !ok {
            self.calls.failed[index].inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_told_and_a_zone_that_goes_takes_its_series_along() {
        let metrics = Metrics::new();
        let zone = |name| ZoneId::parse(name).expect("a name");
        let (a, b) = (metrics.zone(&zone("A")), metrics.zone(&zone("B")));
        a.entered(7.0, Some(1.05));
        b.limited(Limited::Entries);
        b.called(Call::Join, Duration::from_millis(3), 5, false);
        metrics.answered(Route::Wait, 200, Duration::from_micros(40));
        metrics.refused(Route::Other, 431);
        metrics.reloaded(false);
        let text = || String::from_utf8(metrics.render()).expect("text");
        for line in [
            "weir_zone_wait_seconds_bucket{zone=\"A\",le=\"15\"} 1",
            "weir_zone_wait_error_ratio_bucket{zone=\"A\",le=\"1\"} 0",
            "weir_zone_joined_total{zone=\"B\"} 0",
            "weir_zone_limited_total{route=\"entry\",zone=\"B\"} 1",
            "weir_requests_total{route=\"wait\",status=\"200\"} 1",
            "weir_requests_total{route=\"other\",status=\"431\"} 1",
            "weir_request_duration_seconds_count{route=\"wait\"} 1",
            "weir_store_calls_failed_total{call=\"join\"} 1",
            "weir_store_call_tickets_bucket{call=\"join\",le=\"8\"} 1",
            "weir_config_reloads_total{result=\"failed\"} 1",
            "weir_config_reloads_total{result=\"ok\"} 0",
        ] {
            assert!(text().contains(line), "{line}\n{}", text());
        }
        for name in ["process_open_fds ", "process_max_fds ", "weir_kernel_listen_overflows_total "] {
            assert!(text().lines().any(|line| line.starts_with(name)), "{name}");
        }
        metrics.keep_zones(&[zone("A")]);
        assert!(text().contains("zone=\"A\"") && !text().contains("zone=\"B\""));
    }
}
