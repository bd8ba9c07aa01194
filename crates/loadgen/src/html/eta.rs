//! The expected wait compared with the actual wait, as figures and as a bar.

use super::{Fact, chart::Mark};
use crate::{
    format::{decimal, grouped},
    report::Report,
};

/// The width of the drawing, in its own units.
const WIDTH: f64 = 420.0;
/// Space at both ends of the axis.
const MARGIN: f64 = 20.0;
/// The axis reaches from 1/8 to 8.
const OCTAVES: f64 = 3.0;

/// What the template shows.
pub(super) struct Eta {
    pub(super) bar: Bar,
    pub(super) rows: Vec<Fact>,
}

/// The spread of the ratios on a logarithmic axis: where the 10th percentile, the median and the 90th percentile lie.
pub(super) struct Bar {
    pub(super) width: f64,
    pub(super) marks: Vec<Mark>,
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

/// None if no user was told a wait and entered.
pub(super) fn of(report: &Report) -> Option<Eta> {
    let eta = &report.eta;
    let ratios = eta.ratio.map(|ratio| decimal(ratio, 2)).join(" · ");
    let rows = vec![
        Fact::new("Users", "사용자", grouped(eta.users)),
        Fact::new(
            "Actual ÷ expected wait: p10, median, p90",
            "실제 대기 ÷ 안내한 대기: p10, 중앙값, p90",
            ratios,
        ),
        Fact::new("Within the range told", "안내한 범위 안", format!("{:.1} %", 100.0 * eta.coverage)),
        Fact::new(
            "Longer than told, on average",
            "안내보다 길었던 평균 시간",
            format!("{:+.1} s", eta.bias_s),
        ),
        Fact::new(
            "Mean error, as a share of the mean wait",
            "평균 대기 대비 평균 오차",
            format!("{:.1} %", 100.0 * eta.error),
        ),
        Fact::new("Mean of each user's error", "사용자별 오차율 평균", format!("{:.0} %", 100.0 * eta.mape)),
    ];
    (eta.users > 0).then(|| Eta { bar: bar(eta.ratio), rows })
}

fn bar([low, median, high]: [f64; 3]) -> Bar {
    let x = |ratio: f64| {
        let octave = ratio.clamp(0.125, 8.0).log2();
        MARGIN + (octave + OCTAVES) / (2.0 * OCTAVES) * (WIDTH - 2.0 * MARGIN)
    };
    let marks = [(0.125, "⅛"), (0.25, "¼"), (0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4"), (8.0, "8")]
        .map(|(ratio, label)| Mark { at: x(ratio), label: label.to_owned() });
    // A bar without length would not be drawn.
    Bar { width: WIDTH, marks: marks.into(), low: x(low), median: x(median), high: x(high).max(x(low) + 0.1) }
}
