//! Series, by the crates `metrics` and `metrics-exporter-prometheus`.
//!
//! The recorder is a value and not the process's global one, because one test process runs several servers. For the same
//! reason, and because a macro would look its series up at each call, nothing uses the macros of `metrics`: the handles
//! are made here and kept.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;

use super::names::{Family, Kind};

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// A label and its value. Several are given in the order of their names.
pub(super) type LabelOf<'a> = (&'static str, &'a str);

/// The series of some families.
pub(super) struct Registry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Registry {
    /// Series that stay for as long as the registry.
    pub(super) fn lasting(families: &[Family]) -> Self {
        Self::build(PrometheusBuilder::new(), families)
    }

    /// Counters and gauges stay for as long as they are written to between any two renderings. Histograms stay.
    pub(super) fn forgetting(families: &[Family]) -> Self {
        let mask = MetricKindMask::COUNTER | MetricKindMask::GAUGE;
        Self::build(PrometheusBuilder::new().idle_timeout(mask, Some(Duration::ZERO)), families)
    }

    fn build(mut builder: PrometheusBuilder, families: &[Family]) -> Self {
        for family in families {
            if let Kind::Histogram(buckets) = family.kind {
                let matcher = Matcher::Full(family.name.to_owned());
                builder = builder.set_buckets_for_metric(matcher, buckets).expect("a histogram has buckets");
            }
        }
        let recorder = builder.build_recorder();
        for Family { name, kind, help } in families.iter().copied() {
            match kind {
                Kind::Counter => recorder.describe_counter(name.into(), None, help.into()),
                Kind::Gauge => recorder.describe_gauge(name.into(), None, help.into()),
                Kind::Histogram(_) => recorder.describe_histogram(name.into(), None, help.into()),
                Kind::FractionCounter => {}
            }
        }
        Self { handle: recorder.handle(), recorder }
    }

    pub(super) fn counter(&self, family: Family, labels: &[LabelOf<'_>]) -> Counter {
        debug_assert_eq!(family.kind, Kind::Counter, "{}", family.name);
        self.recorder.register_counter(&key(family, labels), &METADATA)
    }

    pub(super) fn gauge(&self, family: Family, labels: &[LabelOf<'_>]) -> Gauge {
        debug_assert_eq!(family.kind, Kind::Gauge, "{}", family.name);
        self.recorder.register_gauge(&key(family, labels), &METADATA)
    }

    pub(super) fn histogram(&self, family: Family, labels: &[LabelOf<'_>]) -> Histogram {
        debug_assert!(matches!(family.kind, Kind::Histogram(_)), "{}", family.name);
        self.recorder.register_histogram(&key(family, labels), &METADATA)
    }

    /// Moves observed numbers into their buckets. Until then each takes 16 bytes.
    pub(super) fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The series as text, families and series in no order.
    pub(super) fn render(&self) -> String {
        self.handle.render()
    }
}

/// The exporter shows labels in this order, and label order is part of what tests and people read.
fn key(family: Family, labels: &[LabelOf<'_>]) -> Key {
    debug_assert!(labels.is_sorted(), "the labels of {} are in the order of their names", family.name);
    let labels = labels.iter().map(|&(label, value)| Label::new(label, value.to_owned()));
    Key::from_parts(family.name, labels.collect::<Vec<_>>())
}
