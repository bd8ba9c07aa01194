//! How what operators change comes into the audit log: handed over at once, and written by the log's own thread.
//!
//! Each change is said in the server's log as well, whether there is an audit log or not. Invariant: a change is in the
//! audit log or, where that is [`QUEUE`] changes behind, in the server's log and counted by a `missing` line.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use admission::{Definition, ZoneId};
use tokio::sync::mpsc;

use super::unix_ms;
use crate::zones::{Change, definition_json};

/// Changes that may wait for the log, while its disk is full. Operators make some in a minute; one is 33 KB at most.
const QUEUE: usize = 1_024;

/// Who changes something, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The name.
    pub name: String,
    /// As what.
    pub role: String,
    /// The address that asked; none where nobody did over the network.
    pub from: Option<IpAddr>,
}

/// Writes down what operators change. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Scribe(Option<Handed>);

#[derive(Clone, Debug)]
struct Handed {
    lines: mpsc::Sender<String>,
    missing: Arc<AtomicU64>,
}

/// What was handed over.
pub(super) struct Told {
    lines: mpsc::Receiver<String>,
    missing: Arc<AtomicU64>,
}

impl Scribe {
    /// One that has no audit log.
    #[must_use]
    pub fn without_log() -> Self {
        Self(None)
    }

    pub(super) fn with_log() -> (Self, Told) {
        let (sender, lines) = mpsc::channel(QUEUE);
        let missing = Arc::new(AtomicU64::new(0));
        let told = Told { lines, missing: Arc::clone(&missing) };
        (Self(Some(Handed { lines: sender, missing })), told)
    }

    /// Writes down a change that was made. Waits for nothing.
    pub fn write(&self, by: &By, zone: &ZoneId, change: &Change) {
        let [before, after] = [&change.before, &change.after].map(|of| json(of.as_ref()));
        let from = by.from.map_or_else(String::new, |from| from.to_string());
        let (name, role) = (&by.name, &by.role);
        tracing::info!(target: "audit", %zone, name, role, from, before, after, "a zone was changed");
        let Some(Handed { lines, missing }) = &self.0 else { return };
        let from = if from.is_empty() { "null".to_owned() } else { text(&from) };
        let line = format!(
            r#""at_ms":{},"event":"change","zone":"{zone}","name":{},"role":{},"from":{from},"before":{before},"after":{after}"#,
            unix_ms(),
            text(name),
            text(role),
        );
        if lines.try_send(line).is_err() {
            missing.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%zone, name, "the audit log is too far behind: this change is missing from it");
        }
    }
}

impl Told {
    /// The next change, when it comes; none once nobody can make one any more.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// The next change, if it is there.
    pub(super) fn left(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// How many could not be handed over since this was last asked.
    pub(super) fn take_missing(&self) -> u64 {
        self.missing.swap(0, Ordering::Relaxed)
    }
}

fn json(definition: Option<&Definition>) -> String {
    definition.map_or_else(|| "null".to_owned(), definition_json)
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
