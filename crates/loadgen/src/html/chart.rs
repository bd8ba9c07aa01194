//! The geometry of a chart over time, and the same figures as rows of a table.
//!
//! Invariant: a chart never hides a peak. Where one point or one row stands for several seconds, it shows their maximum.

use std::fmt::Write as _;

use crate::{
    bilingual::Bilingual,
    format::{decimal, elapsed, float},
};

/// A chart has at most this many points, and its table at most this many rows.
const MOST_POINTS: usize = 400;
const MOST_ROWS: usize = 60;

/// Where the drawing lies, in its own units; the page scales it. `left`, `right`, `top` and `floor` bound the curves.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) floor: f64,
}

const AREA: Area = Area { width: 420.0, height: 210.0, left: 62.0, right: 410.0, top: 10.0, floor: 186.0 };

impl Area {
    /// How far from the left edge the curves begin, as a share of the width.
    pub(super) fn left_share(self) -> f64 {
        self.left / self.width
    }

    /// How wide the curves are, as a share of the width.
    pub(super) fn width_share(self) -> f64 {
        (self.right - self.left) / self.width
    }

    fn x(self, share: f64) -> f64 {
        self.left + share * (self.right - self.left)
    }
}

/// What is to be drawn: a chart over the seconds of the run.
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: Bilingual,
    /// What it shows, and how to read it.
    pub(super) explanation: Bilingual,
    pub(super) unit: Bilingual,
    pub(super) curves: Vec<Curve>,
    pub(super) scale: Scale,
    /// Digits after the decimal point in the table.
    pub(super) digits: usize,
}

/// The scale of the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// One curve: a value for each second.
pub(super) struct Curve {
    pub(super) name: Bilingual,
    pub(super) values: Vec<f64>,
    pub(super) dashed: bool,
}

/// A chart as the template shows it.
pub(super) struct Figure {
    pub(super) id: &'static str,
    pub(super) title: Bilingual,
    pub(super) explanation: Bilingual,
    pub(super) unit: Bilingual,
    /// None if the run has no seconds.
    pub(super) plot: Option<Plot>,
}

/// The drawing and its table.
pub(super) struct Plot {
    pub(super) area: Area,
    /// Marks of the vertical axis.
    pub(super) levels: Vec<Mark>,
    /// Marks of the time axis.
    pub(super) times: Vec<Mark>,
    pub(super) curves: Vec<DrawnCurve>,
    /// How many seconds a row of the table stands for.
    pub(super) row_seconds: usize,
    pub(super) rows: Vec<Row>,
}

/// A label and its position along the axis.
pub(super) struct Mark {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A curve as an SVG path.
pub(super) struct DrawnCurve {
    pub(super) name: Bilingual,
    pub(super) class: String,
    pub(super) path: String,
}

/// A row of the table.
pub(super) struct Row {
    /// Where the row lies on the time axis, 0 to 1.
    pub(super) share: f64,
    pub(super) time: String,
    pub(super) cells: Vec<String>,
}

impl Chart {
    pub(super) fn draw(self) -> Figure {
        let seconds = self.curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
        let plot = (seconds > 0).then(|| self.plot(seconds));
        Figure { id: self.id, title: self.title, explanation: self.explanation, unit: self.unit, plot }
    }

    fn plot(&self, seconds: usize) -> Plot {
        let axis = Axis::new(self.curves.iter().flat_map(|curve| curve.values.iter().copied()), self.scale);
        let times = (0..=seconds)
            .step_by(time_step(seconds))
            .map(|second| Mark { at: AREA.x(share(second, seconds)), label: elapsed(second) })
            .collect();
        let curves = self.curves.iter().enumerate().map(|(i, curve)| {
            let mut path = String::new();
            for (second, value) in maxima(&curve.values, MOST_POINTS) {
                let pen = if path.is_empty() { 'M' } else { 'L' };
                // Writing to a string does not fail.
                let _ = write!(path, "{pen}{:.1} {:.1}", AREA.x(share(second, seconds)), axis.y(value));
            }
            DrawnCurve { name: curve.name.clone(), class: class(i, curve.dashed), path }
        });
        Plot {
            area: AREA,
            levels: axis.marks(),
            times,
            curves: curves.collect(),
            row_seconds: seconds.div_ceil(MOST_ROWS),
            rows: self.rows(seconds),
        }
    }

    fn rows(&self, seconds: usize) -> Vec<Row> {
        let columns: Vec<_> = self.curves.iter().map(|curve| maxima(&curve.values, MOST_ROWS)).collect();
        let cell = |column: &Vec<(usize, f64)>, row: usize| {
            column.get(row).map_or_else(String::new, |&(_, value)| decimal(value, self.digits))
        };
        let row = |(row, &(second, _)): (usize, &(usize, f64))| Row {
            share: share(second, seconds),
            time: elapsed(second),
            cells: columns.iter().map(|column| cell(column, row)).collect(),
        };
        columns[0].iter().enumerate().map(row).collect()
    }
}

/// The vertical axis. On a logarithmic scale `low` and `high` are powers of ten.
struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (mut least, mut greatest) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            greatest = greatest.max(value);
            if value > 0.0 {
                least = least.min(value);
            }
        }
        if scale == Scale::Logarithmic {
            let low = least.min(greatest.max(1.0)).log10().floor().clamp(-3.0, 6.0);
            return Self { low, high: greatest.max(1e-9).log10().ceil().max(low + 1.0), scale };
        }
        let step = round_step(greatest.max(1e-9) / 4.0);
        Self { low: 0.0, high: step * (greatest.max(1e-9) / step - 1e-9).ceil(), scale }
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Logarithmic { value.max(1e-9).log10() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        AREA.floor - share * (AREA.floor - AREA.top)
    }

    fn marks(&self) -> Vec<Mark> {
        let logarithmic = self.scale == Scale::Logarithmic;
        let step = if logarithmic { 1.0 } else { round_step(self.high / 4.0) };
        let mut marks = Vec::new();
        let mut level = self.low;
        while level <= self.high + step * 1e-6 {
            let value = if logarithmic { 10_f64.powf(level) } else { level };
            let digits = if logarithmic { -level } else { (-step.log10()).ceil() };
            marks.push(Mark { at: self.y(value), label: decimal(value, digit_count(digits)) });
            level += step;
        }
        marks
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let times = step / power;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|round| times <= round + 1e-9).unwrap_or(10.0);
    power * rounded
}

/// Seconds between two marks of the time axis, so that there are at most seven.
pub(super) fn time_step(seconds: usize) -> usize {
    let steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200];
    steps.into_iter().find(|step| seconds / step <= 6).unwrap_or_else(|| seconds.div_ceil(6))
}

/// Where a second lies on the time axis, 0 to 1.
fn share(second: usize, seconds: usize) -> f64 {
    (float(second as u64) / float((seconds.max(2) - 1) as u64)).min(1.0)
}

/// At most `most` points: the first second and the maximum of each group of equally many seconds.
fn maxima(values: &[f64], most: usize) -> Vec<(usize, f64)> {
    let group = values.len().div_ceil(most).max(1);
    values
        .chunks(group)
        .enumerate()
        .map(|(i, chunk)| (i * group, chunk.iter().copied().fold(f64::NEG_INFINITY, f64::max)))
        .collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 6")]
fn digit_count(digits: f64) -> usize {
    digits.clamp(0.0, 6.0) as usize
}

fn class(i: usize, dashed: bool) -> String {
    format!("s{}{}", i % 5 + 1, if dashed { " dash" } else { "" })
}
