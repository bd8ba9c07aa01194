//! A chart over the minutes of an event, and the same figures as a table.
//!
//! Invariant: a chart hides no peak. Where one point stands for several minutes, it shows their sum or their highest value.

use std::fmt::Write as _;

use super::{
    Bilingual,
    text::{clock, escaped, spoken},
};

/// The most points of a chart, and rows of its table.
const POINTS_MAX: usize = 240;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 710.0;
const TOP: f64 = 12.0;
const FLOOR: f64 = 190.0;

/// What a point shows that stands for several minutes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Several {
    /// The sum, for counts.
    Sum,
    /// The highest value.
    Highest,
    /// The last value, for what is left.
    Last,
}

/// One curve: a value for each minute, where one is known.
pub(super) struct Curve {
    pub(super) name: Bilingual,
    pub(super) values: Vec<Option<f64>>,
}

/// A chart, with a sentence about what it shows.
pub(super) struct Chart {
    pub(super) title: Bilingual,
    pub(super) about: Bilingual,
    pub(super) several: Several,
    pub(super) curves: Vec<Curve>,
}

impl Chart {
    /// The section of the page. `from` is the first minute, in seconds since 1970.
    pub(super) fn html(&self, from: u64) -> String {
        let minutes = self.curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
        let each = minutes.div_ceil(POINTS_MAX).max(1);
        let curves: Vec<Vec<Option<f64>>> = self
            .curves
            .iter()
            .map(|curve| curve.values.chunks(each).map(|some| self.point(some)).collect())
            .collect();
        let points = minutes.div_ceil(each);
        let most = curves.iter().flatten().flatten().fold(0.0, |most: f64, value| most.max(*value));
        let mut html = format!(
            "<section class=\"card\"><h3>{}</h3>\n<p>{}</p>\n",
            spoken(&self.title),
            spoken(&self.about)
        );
        html += "<ul class=\"legend\">";
        for (at, curve) in self.curves.iter().enumerate() {
            let _ = write!(html, "<li class=\"c{}\">{}</li>", at % 6, spoken(&curve.name));
        }
        html += "</ul>\n";
        let _ = write!(
            html,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} / {}\">",
            escaped(&self.title.en),
            escaped(&self.title.ko)
        );
        let top = nice(most);
        for part in 0..=4_u8 {
            let share = f64::from(part) / 4.0;
            let y = FLOOR - share * (FLOOR - TOP);
            let _ = write!(
                html,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                number(top * share)
            );
        }
        for at in (0..points).step_by(points.div_ceil(6).max(1)) {
            let time = clock(from + 60 * (at * each) as u64);
            // A time at the edge would be cut there.
            let anchor = if x(at, points) > RIGHT - 20.0 { "end" } else { "middle" };
            let _ = write!(
                html,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{time}</text>",
                x(at, points),
                FLOOR + 20.0
            );
        }
        for (at, values) in curves.iter().enumerate() {
            let _ = write!(html, "<path class=\"line c{}\" d=\"{}\"/>", at % 6, path(values, top));
        }
        html += "</svg>\n";
        html + &self.table(&curves, from, each)
    }

    fn point(&self, some: &[Option<f64>]) -> Option<f64> {
        let known = some.iter().flatten().copied();
        match self.several {
            Several::Sum => known.reduce(|sum, value| sum + value),
            Several::Highest => known.reduce(f64::max),
            Several::Last => known.last(),
        }
    }

    fn table(&self, curves: &[Vec<Option<f64>>], from: u64, each: usize) -> String {
        let mut html = format!(
            "<details><summary>{}</summary><div class=\"wide\"><table><thead><tr><th scope=\"col\">{}</th>",
            spoken(&super::bilingual!("The figures", "수치")),
            spoken(&super::bilingual!("From (UTC), {each} min each", "시작(UTC), {each}분 단위"))
        );
        for curve in &self.curves {
            let _ = write!(html, "<th scope=\"col\">{}</th>", spoken(&curve.name));
        }
        html += "</tr></thead><tbody>\n";
        let rows = curves.iter().map(Vec::len).max().unwrap_or(0);
        for row in 0..rows {
            let values: Vec<Option<f64>> =
                curves.iter().map(|curve| curve.get(row).copied().flatten()).collect();
            // A minute in which nothing happened needs no row.
            if values.iter().flatten().all(|value| *value == 0.0) {
                continue;
            }
            let _ = write!(html, "<tr><th scope=\"row\">{}</th>", clock(from + 60 * (row * each) as u64));
            for value in values {
                let _ = write!(html, "<td>{}</td>", value.map_or_else(|| "–".to_owned(), number));
            }
            html += "</tr>\n";
        }
        html + "</tbody></table></div></details></section>\n"
    }
}

/// The curve as an SVG path, interrupted where nothing is known.
fn path(values: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    let mut is_open = false;
    for (at, value) in values.iter().enumerate() {
        if let Some(value) = value {
            let y = FLOOR - value / top * (FLOOR - TOP);
            let _ = write!(path, "{}{:.1},{y:.1}", if is_open { 'L' } else { 'M' }, x(at, values.len()));
            if !is_open {
                // A value between two unknown ones is seen, too.
                path += "h0.1";
            }
        }
        is_open = value.is_some();
    }
    path
}

#[expect(clippy::cast_precision_loss, reason = "some hundred points")]
fn x(at: usize, points: usize) -> f64 {
    LEFT + at as f64 / (points.saturating_sub(1).max(1)) as f64 * (RIGHT - LEFT)
}

/// The end of a scale that holds `most`: 1, 2 or 5 times a power of ten, and at least 4.
fn nice(most: f64) -> f64 {
    let mut step = 1.0;
    loop {
        for factor in [4.0, 8.0, 20.0] {
            if factor * step >= most {
                return factor * step;
            }
        }
        step *= 10.0;
    }
}

/// A number with at most one digit behind the point.
fn number(value: f64) -> String {
    if value.fract().abs() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") }
}
