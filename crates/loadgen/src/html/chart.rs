//! Charts over time as SVG, each with its figures as a table.
//!
//! Invariant: a chart never hides a peak: where seconds are put together, the greatest is drawn and written.

use std::fmt::Write as _;

use super::{Words, both};
use crate::verdict::{float, grouped};

/// The drawing, in its own units; the page scales it.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;

/// So many points are drawn at most, and so many rows written.
const POINTS: usize = 400;
const ROWS: usize = 60;

/// One curve: a value for each second.
pub(super) struct Curve {
    pub(super) name: Words,
    pub(super) values: Vec<f64>,
    pub(super) dashed: bool,
}

/// A chart over the seconds of the run.
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: Words,
    /// What it shows, and how to read it.
    pub(super) says: Words,
    pub(super) unit: Words,
    pub(super) curves: Vec<Curve>,
    pub(super) log: bool,
    /// Digits behind the point in the table.
    pub(super) digits: usize,
}

impl Chart {
    pub(super) fn render(&self) -> String {
        let seconds = self.curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
        let mut page = String::new();
        let (id, title) = (self.id, both(&self.title));
        let _ = write!(
            page,
            "<figure aria-labelledby=\"{id}-t\"><figcaption><h3 id=\"{id}-t\">{title}</h3><p>{}</p></figcaption>",
            both(&self.says)
        );
        if seconds == 0 {
            let _ = write!(page, "<p>{}</p></figure>", both(&("No data.", "데이터가 없습니다.")));
            return page;
        }
        page.push_str("<ul class=\"legend\">");
        for (i, curve) in self.curves.iter().enumerate() {
            let _ = write!(
                page,
                "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"curve {}\" d=\"M0 5H26\"/></svg>{}</li>",
                class(i, curve.dashed),
                both(&curve.name)
            );
        }
        let _ = write!(page, "</ul><p class=\"unit\">{}</p>", both(&self.unit));
        let _ = write!(
            page,
            "<div class=\"plot\" tabindex=\"0\" role=\"img\" aria-labelledby=\"{id}-t\" data-left=\"{:.4}\" \
             data-width=\"{:.4}\">{}</div><p class=\"unit below\">{}</p><output aria-live=\"polite\"></output>",
            LEFT / WIDTH,
            (WIDTH - LEFT - RIGHT) / WIDTH,
            self.svg(seconds),
            both(&("time since the start, min:s", "시작 후 경과 시간(분:초)"))
        );
        page.push_str(&self.table(seconds));
        page.push_str("</figure>");
        page
    }

    fn svg(&self, seconds: usize) -> String {
        let values = || self.curves.iter().flat_map(|curve| curve.values.iter().copied());
        let axis = Axis::new(values(), self.log);
        let mut svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\" focusable=\"false\">");
        for (value, label) in axis.ticks() {
            let y = axis.y(value);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        let floor = HEIGHT - BOTTOM;
        let _ = write!(svg, "<path class=\"axis\" d=\"M{LEFT} {floor}H{:.1}\"/>", WIDTH - RIGHT);
        let step = time_step(seconds);
        for second in (0..=seconds).step_by(step) {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(second, seconds),
                HEIGHT - 6.0,
                clock(second)
            );
        }
        for (i, curve) in self.curves.iter().enumerate() {
            let mut path = String::new();
            for (second, value) in put_together(&curve.values, POINTS) {
                let pen = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{pen}{:.1} {:.1}", x(second, seconds), axis.y(value));
            }
            let _ = write!(svg, "<path class=\"curve {}\" d=\"{path}\"/>", class(i, curve.dashed));
        }
        svg.push_str("</svg>");
        svg
    }

    fn table(&self, seconds: usize) -> String {
        let every = seconds.div_ceil(ROWS);
        let summary = if every == 1 {
            both(&("The figures as a table", "표로 보기"))
        } else {
            both(&(
                format!("The figures as a table: the greatest of each {every} s"),
                format!("표로 보기: {every}초마다 가장 큰 값"),
            ))
        };
        let mut page = format!(
            "<details><summary>{summary}</summary><div><table class=\"numbers\"><thead><tr><th scope=\"col\">{}</th>",
            both(&("Time", "시간"))
        );
        for curve in &self.curves {
            let _ = write!(page, "<th scope=\"col\">{}</th>", both(&curve.name));
        }
        page.push_str("</tr></thead><tbody>");
        let columns: Vec<Vec<(usize, f64)>> =
            self.curves.iter().map(|curve| put_together(&curve.values, ROWS)).collect();
        for (row, &(second, _)) in columns[0].iter().enumerate() {
            let part = (x(second, seconds) - LEFT) / (WIDTH - LEFT - RIGHT);
            let _ = write!(page, "<tr data-x=\"{part:.4}\"><th scope=\"row\">{}</th>", clock(second));
            for column in &columns {
                let cell = column.get(row).map_or_else(String::new, |&(_, value)| number(value, self.digits));
                let _ = write!(page, "<td>{cell}</td>");
            }
            page.push_str("</tr>");
        }
        page.push_str("</tbody></table></div></details>");
        page
    }
}

/// Ratios on a log axis, as a bar from the first to the last with the middle one marked, beside a line at 1.
pub(super) fn ratio_bar([low, middle, high]: [f64; 3]) -> String {
    let at = |ratio: f64| {
        let part = (ratio.clamp(0.125, 8.0).log2() + 3.0) / 6.0;
        20.0 + part * (WIDTH - 40.0)
    };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} 74\" aria-hidden=\"true\" focusable=\"false\">");
    for (ratio, label) in
        [(0.125, "⅛"), (0.25, "¼"), (0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4"), (8.0, "8")]
    {
        let x = at(ratio);
        let class = if (ratio - 1.0).abs() < 1e-9 { "axis" } else { "grid" };
        let _ = write!(
            svg,
            "<path class=\"{class}\" d=\"M{x:.1} 6V50\"/><text x=\"{x:.1}\" y=\"68\" text-anchor=\"middle\">{label}</text>"
        );
    }
    let _ = write!(
        svg,
        "<path class=\"bar s1\" d=\"M{:.1} 28H{:.1}\"/><path class=\"curve s1\" style=\"stroke-width:4\" d=\"M{m:.1} 18V38\"/></svg>",
        at(low),
        at(high).max(at(low) + 0.1),
        m = at(middle)
    );
    svg
}

struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (mut least, mut greatest) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            greatest = greatest.max(value);
            if value > 0.0 {
                least = least.min(value);
            }
        }
        if log {
            let low = least.min(greatest.max(1.0)).log10().floor().clamp(-3.0, 6.0);
            return Self { low, high: greatest.max(1e-9).log10().ceil().max(low + 1.0), log };
        }
        let step = nice(greatest.max(1e-9) / 4.0);
        Self { low: 0.0, high: step * (greatest.max(1e-9) / step - 1e-9).ceil(), log }
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-9).log10() } else { value };
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        let step = if self.log { 1.0 } else { nice(self.high / 4.0) };
        let mut mark = self.low;
        while mark <= self.high + step * 1e-6 {
            let value = if self.log { 10_f64.powf(mark) } else { mark };
            let digits = if self.log {
                if mark < 0.0 { -mark } else { 0.0 }
            } else if step < 1.0 {
                (-step.log10()).ceil()
            } else {
                0.0
            };
            ticks.push((value, number(value, whole(digits))));
            mark += step;
        }
        ticks
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let times = step / power;
    power
        * if times <= 1.0 + 1e-9 {
            1.0
        } else if times <= 2.0 {
            2.0
        } else if times <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn time_step(seconds: usize) -> usize {
    let steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200];
    steps.into_iter().find(|step| seconds / step <= 6).unwrap_or_else(|| seconds.div_ceil(6))
}

fn x(second: usize, seconds: usize) -> f64 {
    let part = float(second as u64) / float((seconds.max(2) - 1) as u64);
    LEFT + part.min(1.0) * (WIDTH - LEFT - RIGHT)
}

/// At most `most` points: the greatest of each so many seconds, at the first of them.
fn put_together(values: &[f64], most: usize) -> Vec<(usize, f64)> {
    let every = values.len().div_ceil(most).max(1);
    values
        .chunks(every)
        .enumerate()
        .map(|(i, chunk)| (i * every, chunk.iter().copied().fold(f64::NEG_INFINITY, f64::max)))
        .collect()
}

fn clock(second: usize) -> String {
    if second >= 3_600 {
        format!("{}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
    } else {
        format!("{}:{:02}", second / 60, second % 60)
    }
}

/// With thousands set apart, and so many digits behind the point.
pub(super) fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (before, behind) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let grouped = before.parse().map_or_else(|_| before.to_owned(), grouped);
    behind.map_or(grouped.clone(), |behind| format!("{grouped}.{behind}"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of digits")]
fn whole(digits: f64) -> usize {
    digits.clamp(0.0, 6.0) as usize
}

fn class(i: usize, dashed: bool) -> String {
    format!("s{}{}", i % 5 + 1, if dashed { " dash" } else { "" })
}
