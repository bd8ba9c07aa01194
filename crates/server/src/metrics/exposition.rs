//! Sorts and completes the text that the exporter renders, in the Prometheus text format.
//!
//! The exporter shows families and series in the order of its hash maps. Here they are put in the order of their names,
//! so that two answers can be compared. It also has no counter of fractions: `process_cpu_seconds_total` would have to be
//! a gauge, which is the wrong type, or whole seconds, which is too coarse. So such a family is added to the text here.
//!
//! Invariant: each family's `# HELP` and `# TYPE` are there once, before its series.

use std::fmt::Write as _;

use super::names::{Family, Kind};

/// Some families in text.
#[derive(Default)]
pub(super) struct Exposition {
    /// Each with its headers and its series, in order. The first line of a block names the family.
    blocks: Vec<String>,
}

impl Exposition {
    /// Adds families that the exporter rendered, without the series that `keep` refuses. A family without series is dropped.
    pub(super) fn add_rendered(&mut self, text: &str, keep: impl Fn(&str) -> bool) {
        // The exporter ends each family by an empty line; line ends within values and help texts are escaped.
        for family in text.split_terminator("\n\n") {
            let (headers, mut series): (Vec<_>, Vec<_>) =
                family.lines().partition(|line| line.starts_with('#'));
            series.retain(|line| keep(line));
            // Stable, so that a histogram's lines stay in their order.
            series.sort_by_key(|line| labels(line));
            if !series.is_empty() {
                let lines = headers.into_iter().chain(series);
                self.blocks.push(lines.fold(String::new(), |block, line| block + line + "\n"));
            }
        }
    }

    /// Adds a counter of fractions without labels.
    pub(super) fn add_fraction(&mut self, family: Family, value: f64) {
        debug_assert_eq!(family.kind, Kind::FractionCounter, "{}", family.name);
        let Family { name, help, .. } = family;
        let mut block = String::new();
        write!(block, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n")
            .expect("text takes it");
        self.blocks.push(block);
    }

    /// The whole text.
    pub(super) fn into_text(mut self) -> String {
        self.blocks.sort_unstable();
        self.blocks.concat()
    }
}

/// The labels of a series' line, without a histogram's bucket.
fn labels(line: &str) -> &str {
    let labels =
        line.split_once('{').and_then(|(_, rest)| Some(rest.rsplit_once('}')?.0)).unwrap_or_default();
    labels.rsplit_once(",le=\"").map_or(labels, |(labels, _)| labels)
}

/// The value of the label `zone` of a series' line. Zone names have no character that is escaped.
pub(super) fn zone_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("zone=\"")?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::names::PROCESS_CPU;

    #[test]
    fn families_and_series_are_in_order_and_a_family_without_series_is_not_there() {
        let mut exposition = Exposition::default();
        let histogram = "# HELP z Z.\n# TYPE z histogram\nz_bucket{zone=\"B\",le=\"2\"} 1\n\
                         z_bucket{zone=\"B\",le=\"10\"} 1\nz_sum{zone=\"B\"} 1\nz_count{zone=\"B\"} 1\n\
                         z_bucket{zone=\"A\",le=\"2\"} 0\nz_sum{zone=\"A\"} 0\nz_count{zone=\"A\"} 0\n\n";
        exposition.add_rendered(histogram, |_| true);
        exposition.add_fraction(PROCESS_CPU, 1.25);
        let counters =
            "# TYPE b counter\nb{zone=\"A\"} 1\nb{zone=\"C\"} 1\n\n# TYPE a counter\na{zone=\"C\"} 1\n\n";
        exposition.add_rendered(counters, |line| zone_of(line) != Some("C"));
        let expected = "# HELP process_cpu_seconds_total Processor time used, user and system.\n\
                        # TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.25\n\
                        # HELP z Z.\n# TYPE z histogram\nz_bucket{zone=\"A\",le=\"2\"} 0\nz_sum{zone=\"A\"} 0\n\
                        z_count{zone=\"A\"} 0\nz_bucket{zone=\"B\",le=\"2\"} 1\nz_bucket{zone=\"B\",le=\"10\"} 1\n\
                        z_sum{zone=\"B\"} 1\nz_count{zone=\"B\"} 1\n# TYPE b counter\nb{zone=\"A\"} 1\n";
        assert_eq!(exposition.into_text(), expected);
    }
}
