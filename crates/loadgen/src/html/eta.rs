//! The expected wait against the actual wait, as a chart and as figures.

use std::fmt::Write as _;

use super::{
    Fact,
    chart::{Mark, time_step},
};
use crate::{
    format::{decimal, elapsed, grouped},
    report::{EtaGroup, Report},
};

/// The drawing, in its own units. Both axes have the same scale, so the diagonal is where the waits were as they were told.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 392.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 410.0;
const TOP: f64 = 10.0;
const FLOOR: f64 = 358.0;

/// What the template shows.
pub(super) struct Eta {
    pub(super) chart: Chart,
    pub(super) rows: Vec<Fact>,
    /// The groups of the chart: users, told, and the percentiles of the actual wait.
    pub(super) groups: Vec<[String; 5]>,
}

/// The drawing.
pub(super) struct Chart {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) floor: f64,
    pub(super) across: Vec<Mark>,
    pub(super) up: Vec<Mark>,
    /// The outline of the range from the 10th to the 90th percentile.
    pub(super) band: String,
    /// The median.
    pub(super) median: String,
}

/// None if no user was told a wait and entered.
pub(super) fn of(report: &Report) -> Option<Eta> {
    let eta = &report.eta;
    let ratios = eta.ratio.map(|ratio| decimal(ratio, 2)).join(" · ");
    let rows = vec![
        Fact::new("Users", "사용자", grouped(eta.users)),
        Fact::new(
            "Mean error, as a share of the mean wait",
            "평균 대기 대비 평균 오차",
            format!("{:.1} %", 100.0 * eta.error),
        ),
        Fact::new(
            "The same for somebody who knows all but whom chance makes leave",
            "누가 우연히 떠날지만 모르는 경우의 오차(하한)",
            format!("{:.1} %", 100.0 * eta.floor),
        ),
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
        Fact::new("Mean of each user's error", "사용자별 오차율 평균", format!("{:.0} %", 100.0 * eta.mape)),
    ];
    let cells = |group: &EtaGroup| {
        let [p10, median, p90] = group.actual_s.map(|s| decimal(s, 1));
        [grouped(group.users), decimal(group.told_s, 1), p10, median, p90]
    };
    let groups = eta.groups.iter().map(cells).collect();
    (eta.users > 0).then(|| Eta { chart: chart(&eta.groups), rows, groups })
}

fn chart(groups: &[EtaGroup]) -> Chart {
    let longest_s = groups.iter().map(|group| group.told_s.max(group.actual_s[2])).fold(1.0, f64::max);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a wait within a run, in seconds"
    )]
    let longest = longest_s.ceil() as usize;
    let share = |seconds: f64| seconds / longest_s.ceil();
    let x = |seconds: f64| LEFT + share(seconds) * (RIGHT - LEFT);
    let y = |seconds: f64| FLOOR - share(seconds) * (FLOOR - TOP);
    let marks = |at: &dyn Fn(f64) -> f64| {
        let mark =
            |second: usize| Mark { at: at(crate::format::float(second as u64)), label: elapsed(second) };
        (0..=longest).step_by(time_step(longest)).map(mark).collect()
    };
    let line = |points: &mut dyn Iterator<Item = (f64, f64)>| {
        let mut path = String::new();
        for (told_s, actual_s) in points {
            let pen = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string does not fail.
            let _ = write!(path, "{pen}{:.1} {:.1}", x(told_s), y(actual_s));
        }
        path
    };
    let upper = groups.iter().map(|group| (group.told_s, group.actual_s[2]));
    let lower = groups.iter().rev().map(|group| (group.told_s, group.actual_s[0]));
    Chart {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: RIGHT,
        top: TOP,
        floor: FLOOR,
        across: marks(&x),
        up: marks(&y),
        band: line(&mut upper.chain(lower)),
        median: line(&mut groups.iter().map(|group| (group.told_s, group.actual_s[1]))),
    }
}
