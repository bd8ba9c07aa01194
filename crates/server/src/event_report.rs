//! The report of an event: what a server knows of it, as the admin API returns it, and what `weir event report` writes: one HTML file, and
//! JSON.
//!
//! | file | concern |
//! |---|---|
//! | `outline` | what a server says of an event: the time, the sums, what is not known |
//! | `changes` | the changes of the zone, and what each changed |
//! | `page` | the HTML |
//! | `chart` | a chart, and the same figures as a table |
//! | `text` | escapes, languages and instants |
//!
//! Invariants: the API and both files say the same, and what is not known is in `missing`, with the reason. The page loads nothing, and
//! every text from outside is escaped.

mod changes;
mod chart;
mod outline;
mod page;
mod text;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    failure::{self, Failure},
    output::print,
    remote::{Server, check_zone, client_of, report_of},
};

pub use changes::{Change, Changes, FieldChange};
pub use outline::{Outline, Span, Sums};

/// The name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The zone.
    pub zone: String,
    /// The event.
    pub event: String,
    /// When it began, if its name was used again: an instant, as events have it.
    pub begins: Option<String>,
    /// The HTML file, if there is to be one, or `-`: standard output.
    pub html: Option<PathBuf>,
    /// The JSON file, if there is to be one, or `-`: standard output.
    pub json: Option<PathBuf>,
}

impl Wanted {
    /// Whether a report goes to standard output.
    #[must_use]
    pub fn is_printed(&self) -> bool {
        [&self.html, &self.json].into_iter().flatten().any(|path| path.as_os_str() == STANDARD_OUTPUT)
    }
}

/// A sentence in both languages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct Bilingual {
    /// In English.
    pub en: String,
    /// In Korean.
    pub ko: String,
}

/// Formats the same values into an English and a Korean sentence.
macro_rules! bilingual {
    ($en:literal, $ko:literal $(, $($arg:tt)*)?) => {
        $crate::event_report::Bilingual { en: format!($en $(, $($arg)*)?), ko: format!($ko $(, $($arg)*)?) }
    };
}
use bilingual;

/// The report: the reply of the admin API, and the content of the JSON file.
#[derive(Deserialize, Serialize)]
struct Report {
    #[serde(flatten)]
    outline: Outline,
    /// The event as the zone's definition has it, or had it.
    event: Value,
    /// The minutes, as the admin API has them.
    minutes: Vec<Value>,
    /// The draw, as it is published; null if the order was that of arrival, or the draw is not known any more.
    draw: Value,
}

/// Whether two names are those of one file, which need not exist.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| {
        let in_dir = || {
            let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
            Some(dir.canonicalize().ok()?.join(path.file_name()?))
        };
        path.canonicalize().ok().or_else(in_dir).unwrap_or_else(|| path.to_owned())
    };
    real(one) == real(other)
}

/// Writes the report, and prints what was written: on standard error if the report itself takes standard output. `audit` is the
/// directory of the server's audit log, if this process may read it.
///
/// # Errors
/// The server does not answer, nothing is known of the event, or a file cannot be written.
pub async fn run(wanted: &Wanted, server: &Server, audit: Option<PathBuf>) -> Result<(), Failure> {
    if let (Some(html), Some(json)) = (&wanted.html, &wanted.json)
        && is_one_file(html, json)
    {
        let what = format_args!("--out and --json are both {}: name two files", json.display());
        return Err(Failure::new(failure::USAGE, what));
    }
    check_zone(&wanted.zone)?;
    if wanted.event.is_empty() {
        return Err(Failure::new(
            failure::DATA,
            "the name of the event is empty; `weir zones show` lists the zone's events",
        ));
    }
    let path = report_of(&wanted.zone, &wanted.event, wanted.begins.as_deref());
    let reply = client_of(server)?.get(&path).await?.value;
    let mut report: Report = serde_json::from_value(reply).map_err(|why| {
        let what =
            format!("the server's report cannot be read: {why}; use the command of the server's version");
        Failure::new(failure::UNAVAILABLE, what)
    })?;
    report.outline.take_changes_of(audit.as_deref());
    let (mut written, mut printed) = (String::new(), None);
    let json = wanted.json.as_ref().map(|path| {
        let text = serde_json::to_string_pretty(&report).expect("text keys and finite numbers");
        ("--json", path, text + "\n")
    });
    let html = wanted.html.as_ref().map(|path| ("--out", path, page::page(&report)));
    for (option, path, text) in html.into_iter().chain(json) {
        if path.as_os_str() == STANDARD_OUTPUT {
            printed = Some(text);
            continue;
        }
        fs::write(path, text).map_err(|why| {
            let what = format_args!("{option} {}: cannot be written: {why}", path.display());
            Failure::new(failure::CANNOT_CREATE, what)
        })?;
        written += &format!("{}\n", path.display());
    }
    for missing in &report.outline.missing {
        written += &format!("missing: {}\n", missing.en);
    }
    let Some(printed) = printed else { return print(&written) };
    // Without standard error nobody can be told.
    let _ = io::stderr().lock().write_all(written.as_bytes());
    print(&printed)
}

#[cfg(test)]
mod tests;
