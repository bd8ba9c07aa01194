//! Metrics as messages of OTLP, made of what `/metrics` says.
//!
//! The text is read, so that both ways have the same series with the same names, labels and numbers. Counters and histograms are cumulative
//! since the start of the server. Names keep `_total` and their units, and no unit is given beside them, so that a collector that
//! writes to Prometheus makes the same names of them again. Invariant: a line that is not understood is left out alone.

use super::message::{
    Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, NumberPoint, Sum, Temporality, attribute,
};

/// The most points of one message. A point takes some 100 bytes, and a collector takes messages of 20 MiB.
const MOST_POINTS: usize = 20_000;

/// When the figures began to count and when they were read, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start_ns: u64,
    pub(super) now_ns: u64,
}

/// The metrics of a text in the Prometheus format, in messages of a limited size.
pub(super) fn read(text: &str, times: Times) -> Vec<Vec<Metric>> {
    let (mut messages, mut points) = (vec![Vec::new()], 0);
    let mut lines = text.lines().peekable();
    let (mut help, mut kind) = ("", ("", ""));
    while let Some(line) = lines.next() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ').map_or("", |(_, help)| help);
            continue;
        }
        if let Some(about) = line.strip_prefix("# TYPE ") {
            kind = about.split_once(' ').unwrap_or_default();
            continue;
        }
        let (name, kind) = kind;
        let mut series = vec![line];
        while let Some(next) = lines.next_if(|next| !next.starts_with('#')) {
            series.push(next);
        }
        let samples: Vec<Sample<'_>> = series.into_iter().filter_map(Sample::read).collect();
        let data = match kind {
            "counter" => Data::Sum(Sum {
                data_points: samples.iter().map(|sample| sample.point(times, true)).collect(),
                aggregation_temporality: Temporality::Cumulative.into(),
                is_monotonic: true,
            }),
            "gauge" => Data::Gauge(Gauge {
                data_points: samples.iter().map(|sample| sample.point(times, false)).collect(),
            }),
            "histogram" => Data::Histogram(Histogram {
                data_points: histograms(name, &samples, times),
                aggregation_temporality: Temporality::Cumulative.into(),
            }),
            _ => continue,
        };
        points += samples.len();
        if points > MOST_POINTS {
            messages.push(Vec::new());
            points = samples.len();
        }
        let metric = Metric { name: name.to_owned(), description: help.to_owned(), data: Some(data) };
        messages.last_mut().expect("there is one").push(metric);
        help = "";
    }
    messages
}

/// One line of a series.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    /// `name{label="value",…} number`.
    fn read(line: &'a str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, rest)) = series.split_once('{') else {
            return Some(Self { name: series, labels: Vec::new(), value });
        };
        let mut rest = rest.strip_suffix('}')?;
        let mut labels = Vec::new();
        while !rest.is_empty() {
            let (label, quoted) = rest.split_once("=\"")?;
            let (text, behind) = unquote(quoted)?;
            labels.push((label, text));
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        Some(Self { name, labels, value })
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let shown = self.labels.iter().filter(|(label, _)| *label != "le");
        shown.map(|(label, value)| attribute(label, value.as_str())).collect()
    }

    fn point(&self, times: Times, counts: bool) -> NumberPoint {
        NumberPoint {
            start_time_unix_nano: if counts { times.start_ns } else { 0 },
            time_unix_nano: times.now_ns,
            as_double: Some(self.value),
            attributes: self.attributes(),
        }
    }
}

/// A quoted value up to its closing quote, and what is behind that.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((text, &quoted[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
    None
}

/// The lines of each histogram are together: its buckets, whose counts include those before, and then its sum and its count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
fn histograms(name: &str, samples: &[Sample<'_>], times: Times) -> Vec<HistogramPoint> {
    let (mut points, mut bounds, mut counts, mut sum, mut so_far) =
        (Vec::new(), Vec::new(), Vec::new(), 0.0, 0);
    for sample in samples {
        match sample.name.strip_prefix(name) {
            Some("_bucket") => {
                let bound = sample.labels.iter().find(|(label, _)| *label == "le");
                let Some(Ok(bound)) = bound.map(|(_, bound)| bound.parse::<f64>()) else { continue };
                let until = sample.value as u64;
                counts.push(until.saturating_sub(so_far));
                so_far = until;
                if bound.is_finite() {
                    bounds.push(bound);
                }
            }
            Some("_sum") => sum = sample.value,
            Some("_count") => {
                points.push(HistogramPoint {
                    start_time_unix_nano: times.start_ns,
                    time_unix_nano: times.now_ns,
                    count: sample.value as u64,
                    sum: Some(sum),
                    bucket_counts: std::mem::take(&mut counts),
                    explicit_bounds: std::mem::take(&mut bounds),
                    attributes: sample.attributes(),
                });
                (sum, so_far) = (0.0, 0);
            }
            _ => {}
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { start_ns: 1, now_ns: 2 };

    #[test]
    fn each_kind_is_read_with_its_labels() {
        let text = "# HELP a_total Help of a.\n# TYPE a_total counter\na_total{route=\"x\\\\\\\"\\n,}\",zone=\"Z\"} 5\n\
                    a_total 0.25\nnot a number x\n# HELP g G.\n# TYPE g gauge\ng -2\n# TYPE h histogram\n\
                    h_bucket{zone=\"A\",le=\"0.5\"} 1\nh_bucket{zone=\"A\",le=\"2\"} 4\nh_bucket{zone=\"A\",le=\"+Inf\"} 9\n\
                    h_sum{zone=\"A\"} 30.5\nh_count{zone=\"A\"} 9\nh_bucket{zone=\"B\",le=\"0.5\"} 0\n\
                    h_bucket{zone=\"B\",le=\"2\"} 0\nh_bucket{zone=\"B\",le=\"+Inf\"} 0\nh_sum{zone=\"B\"} 0\nh_count{zone=\"B\"} 0\n";
        let [metrics] = &read(text, TIMES)[..] else { panic!("one message") };
        let point = |start_time_unix_nano, value, attributes| NumberPoint {
            start_time_unix_nano,
            time_unix_nano: 2,
            as_double: Some(value),
            attributes,
        };
        let labelled = vec![attribute("route", "x\\\"\n,}"), attribute("zone", "Z")];
        let histogram = |zone, count, sum, bucket_counts: [u64; 3]| HistogramPoint {
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            count,
            sum: Some(sum),
            bucket_counts: bucket_counts.to_vec(),
            explicit_bounds: vec![0.5, 2.0],
            attributes: vec![attribute("zone", zone)],
        };
        let metric = |name: &str, description: &str, data| Metric {
            name: name.to_owned(),
            description: description.to_owned(),
            data: Some(data),
        };
        let cumulative = Temporality::Cumulative.into();
        let expected = [
            metric(
                "a_total",
                "Help of a.",
                Data::Sum(Sum {
                    data_points: vec![point(1, 5.0, labelled), point(1, 0.25, vec![])],
                    aggregation_temporality: cumulative,
                    is_monotonic: true,
                }),
            ),
            metric("g", "G.", Data::Gauge(Gauge { data_points: vec![point(0, -2.0, vec![])] })),
            metric(
                "h",
                "",
                Data::Histogram(Histogram {
                    data_points: vec![histogram("A", 9, 30.5, [1, 3, 5]), histogram("B", 0, 0.0, [0; 3])],
                    aggregation_temporality: cumulative,
                }),
            ),
        ];
        assert_eq!(metrics[..], expected);
    }

    #[test]
    fn messages_are_of_a_limited_size() {
        let lines = |name: &str| {
            let series =
                (0..MOST_POINTS / 2 + 1).map(|n| format!("{name}{{n=\"{n}\"}} 1\n")).collect::<String>();
            format!("# TYPE {name} gauge\n{series}")
        };
        let messages = read(&(lines("a") + &lines("b") + &lines("c")), TIMES);
        assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    }
}
