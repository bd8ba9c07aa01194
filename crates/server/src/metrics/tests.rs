//! Metrics of a gate over the embedded store, as text.

use ::store::Embedded;
use admission::{Policy, SealKey, Seals, ZoneId};
use events::{
    AdmittedWithoutStore, Entered, Limited, LimitedCall, Refused, Reloaded, StoreCall, StoreCalled,
};

use super::*;

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

/// A bus, a gate that publishes on it, and metrics that follow the bus whenever `hear` is called.
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
        let seals = Seals::only(SealKey { id: 1, secret: [1; 32] });
        let gate = Gate::new(Arc::new(Embedded::open(dir.path()).expect("empty")), seals, Arc::clone(&bus));
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
fn an_event_of_a_zone_counts_before_the_zone_is_announced() {
    let mut heard = Heard::new(64);
    heard.serve(&["A"]);
    let limited =
        Limited { zone: heard.bus.zone(&zone("A")), call: LimitedCall::Join, count: 1, retry_after_s: 1 };
    let early = Batch { events: &[limited.into()], lost: 0 };
    heard.metrics.take_in(&early, &heard.gate);
    heard.hear();
    let line = "weir_zone_limited_total{route=\"wait\",zone=\"A\"} 1\n";
    assert!(heard.text().contains(line), "{}", heard.text());
}

#[test]
fn events_are_shown_and_the_series_of_a_removed_zone_go() {
    let mut heard = Heard::new(64);
    heard.serve(&["A", "B"]);
    let a = heard.bus.zone(&zone("A"));
    heard.bus.publish(Entered {
        zone: a,
        waited_ms: 7_000,
        told_s: 6,
        told_low_s: 5,
        told_high_s: 9,
        at_ms: 0,
    });
    heard.bus.publish(StoreCalled { zone: a, call: StoreCall::Join, took_us: 3_000, tickets: 5, ok: false });
    // In the order of another thread.
    heard.bus.publish(AdmittedWithoutStore { zone: a, total: 3 });
    heard.bus.publish(AdmittedWithoutStore { zone: a, total: 2 });
    heard.bus.publish(Limited {
        zone: heard.bus.zone(&zone("B")),
        call: LimitedCall::Poll,
        count: 1,
        retry_after_s: 1,
    });
    heard.bus.publish(Refused { zone: a, why: RefusalReason::Full, count: 2 });
    heard.bus.publish(Refused { zone: a, why: RefusalReason::Closed, count: 4 });
    heard.bus.publish(Reloaded { ok: false });
    heard.runtime.block_on(heard.gate.join("B")).expect("served");
    // Serving the zones again publishes the zone's totals again.
    heard.serve(&["A", "B"]);
    heard.hear();
    let metrics = &heard.metrics;
    metrics.answered(Route::Wait, 200, Duration::from_micros(40));
    metrics.refused(Route::Other, 431);
    let text = heard.text();
    for line in [
        "weir_zone_wait_seconds_bucket{zone=\"A\",le=\"15\"} 1",
        "weir_zone_wait_error_ratio_bucket{zone=\"A\",le=\"1\"} 0",
        "weir_zone_told_people_total{zone=\"A\"} 1",
        "weir_zone_told_in_range_total{zone=\"A\"} 1",
        "weir_zone_told_waited_seconds_total{zone=\"A\"} 7",
        "weir_zone_told_too_short_seconds_total{zone=\"A\"} 1",
        "weir_zone_told_too_long_seconds_total{zone=\"A\"} 0",
        "weir_zone_told_range_seconds_total{zone=\"A\"} 4",
        "weir_zone_joined_total{zone=\"A\"} 0",
        "weir_zone_joined_total{zone=\"B\"} 1",
        "weir_admitted_unseen_total{zone=\"A\"} 3",
        "weir_zone_full_total{zone=\"A\"} 2",
        "weir_zone_full_total{zone=\"B\"} 0",
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

/// Rings of two events lose most of what is published here.
#[test]
fn lost_events_are_counted_and_no_total_is_wrong() {
    let mut heard = Heard::new(2);
    let names: Vec<_> = (0..20).map(|n| format!("Z{n}")).collect();
    heard.serve(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        heard.runtime.block_on(heard.gate.join(name)).expect("served");
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

/// Losses of subscribers that left still count, and no event waits for them.
#[test]
fn losses_of_subscribers_that_left_stay() {
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

/// The exporter drops what was not written since the last scrape.
#[test]
fn series_of_a_served_zone_stay_however_often_they_are_scraped() {
    let mut heard = Heard::new(64);
    heard.serve(&["A"]);
    heard.bus.publish(Entered {
        zone: heard.bus.zone(&zone("A")),
        waited_ms: 7_000,
        told_s: 6,
        told_low_s: 5,
        told_high_s: 9,
        at_ms: 0,
    });
    heard.hear();
    let names = |text: &str| -> Vec<String> {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
    };
    let first = heard.text();
    assert!(first.contains("weir_zone_wait_seconds_count{zone=\"A\"} 1\n"), "{first}");
    for _ in 0..3 {
        let again = heard.text();
        assert_eq!(names(&again), names(&first));
        assert!(again.contains("weir_zone_wait_seconds_count{zone=\"A\"} 1\n"), "{again}");
    }
}

#[test]
fn a_zone_that_comes_back_has_new_counters() {
    let mut heard = Heard::new(64);
    let line = |count: u32| format!("weir_zone_limited_total{{route=\"wait\",zone=\"B\"}} {count}\n");
    for _ in 0..2 {
        heard.serve(&["A", "B"]);
        let b = heard.bus.zone(&zone("B"));
        heard.bus.publish(Limited { zone: b, call: LimitedCall::Join, count: 5, retry_after_s: 1 });
        heard.hear();
        let text = heard.text();
        assert!(text.contains(&line(5)), "{text}");
        heard.serve(&["A"]);
        heard.hear();
    }
    heard.serve(&["A", "B"]);
    heard.hear();
    let text = heard.text();
    assert!(text.contains(&line(0)), "{text}");
}

/// A family of the table that no series uses, or a type that is not the table's, would go unnoticed otherwise.
#[test]
fn each_family_is_shown_with_its_type_and_help() {
    let mut heard = Heard::new(64);
    heard.serve(&["A"]);
    heard.hear();
    heard.metrics.answered(Route::Wait, 200, Duration::from_micros(40));
    let _ = heard.metrics.fanout("only");
    let _ = heard.metrics.checks("a route", "through");
    assert!(!heard.text().contains("weir_otlp"), "nothing of a collector that is not there");
    heard.metrics.watch_deliveries(Arc::default());
    let text = heard.text();
    let headers: Vec<_> = text.lines().filter(|line| line.starts_with('#')).collect();
    let mut expected: Vec<_> = names::OF_THE_SERVER.iter().chain(names::OF_ZONES).collect();
    // The embedded store has no cells.
    expected.retain(|family| family.name != names::STORE_CELL_UP.name);
    expected.sort_unstable_by_key(|family| family.name);
    let expected = expected.into_iter().flat_map(|family| {
        let kind = match family.kind {
            names::Kind::Counter | names::Kind::FractionCounter => "counter",
            names::Kind::Gauge => "gauge",
            names::Kind::Histogram(_) => "histogram",
        };
        [format!("# HELP {} {}", family.name, family.help), format!("# TYPE {} {kind}", family.name)]
    });
    assert_eq!(headers, expected.collect::<Vec<_>>());
}
