//! `weir event report`: what happened in an event of a zone, as one HTML file and as JSON.
//!
//! | file | concern |
//! |---|---|
//! | `gather` | asks a running server, and reads its audit log |
//! | `changes` | the changes of the zone, and what each changed |
//! | `page` | the HTML |
//! | `chart` | a chart, and the same figures as a table |
//! | `text` | escapes, languages and instants |
//!
//! Invariants: both files say the same, and what is not known is in `missing`, with the reason. The page loads nothing, and every text
//! from outside is escaped.

mod changes;
mod chart;
mod gather;
mod page;
mod text;

use std::{fs, path::PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::{
    failure::{self, Failure},
    output::print,
    remote::{Server, client_of},
};

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The zone.
    pub zone: String,
    /// The event.
    pub event: String,
    /// The HTML file, if there is to be one.
    pub html: Option<PathBuf>,
    /// The JSON file, if there is to be one.
    pub json: Option<PathBuf>,
}

/// A sentence in both languages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Said {
    en: String,
    ko: String,
}

/// Formats the same values into an English and a Korean sentence.
macro_rules! said {
    ($en:literal, $ko:literal $(, $($arg:tt)*)?) => {
        $crate::event_report::Said { en: format!($en $(, $($arg)*)?), ko: format!($ko $(, $($arg)*)?) }
    };
}
use said;

/// The report: the content of the JSON file.
#[derive(Serialize)]
struct Report {
    /// The version of this layout.
    version: u32,
    zone: String,
    /// The event as the zone's definition has it, or had it.
    event: Value,
    /// The first minute, in seconds since 1970.
    from: u64,
    /// The end, in seconds since 1970.
    to: u64,
    /// When the report was made, in seconds since 1970.
    made: u64,
    sums: Sums,
    /// The minutes, as the admin API has them.
    minutes: Vec<Value>,
    /// The draw, as it is published; null if the order was that of arrival, or the draw is not known any more.
    draw: Value,
    changes: changes::Changes,
    /// What is not in the report, and why.
    missing: Vec<Said>,
}

/// Sums over the minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Sums {
    joined: u64,
    entered: u64,
    /// Those who left the line, or were silent for too long.
    left: u64,
    most_waiting: u64,
    /// Of how many people who entered the waits are known.
    waits_known: u64,
    mean_wait_s: f64,
    longest_wait_s: f64,
    /// How many were told a wait.
    told: u64,
    /// How many of these waited within the range that they were told.
    told_in_range: u64,
}

impl Sums {
    fn of(minutes: &[Value]) -> Self {
        let mut sums = Self::default();
        let mut waited_s = 0.0;
        for minute in minutes {
            let number = |name: &str| minute[name].as_u64().unwrap_or(0);
            sums.joined += number("joined");
            sums.entered += number("entered");
            sums.left += number("evicted");
            sums.most_waiting = sums.most_waiting.max(number("waiting"));
            let (waits, told) = (&minute["waits_s"], &minute["told_s"]);
            let count = waits["count"].as_u64().unwrap_or(0);
            sums.waits_known += count;
            #[expect(clippy::cast_precision_loss, reason = "people")]
            let people = count as f64;
            waited_s += people * waits["mean"].as_f64().unwrap_or(0.0);
            sums.longest_wait_s = sums.longest_wait_s.max(waits["longest"].as_f64().unwrap_or(0.0));
            sums.told += told["count"].as_u64().unwrap_or(0);
            sums.told_in_range += told["in_range"].as_u64().unwrap_or(0);
        }
        #[expect(clippy::cast_precision_loss, reason = "people")]
        let people = sums.waits_known.max(1) as f64;
        sums.mean_wait_s = waited_s / people;
        sums
    }
}

/// Writes the report, and prints what was written. `audit` is the directory of the server's audit log, if this process may read it.
///
/// # Errors
/// The server does not answer, nothing is known of the event, or a file cannot be written.
pub async fn run(wanted: &Wanted, server: &Server, audit: Option<PathBuf>) -> Result<(), Failure> {
    let client = client_of(server)?;
    let report = gather::gather(&client, wanted, audit.as_deref()).await?;
    let mut written = String::new();
    let json = wanted.json.as_ref().map(|path| {
        let text = serde_json::to_string_pretty(&report).expect("text keys and finite numbers");
        (path, text + "\n")
    });
    let html = wanted.html.as_ref().map(|path| (path, page::page(&report)));
    for (path, text) in html.into_iter().chain(json) {
        fs::write(path, text).map_err(|why| {
            let what = format_args!("{} cannot be written: {why}", path.display());
            Failure::new(failure::CANNOT_CREATE, what)
        })?;
        written += &format!("{}\n", path.display());
    }
    for missing in &report.missing {
        written += &format!("missing: {}\n", missing.en);
    }
    print(&written)
}

#[cfg(test)]
mod tests;
