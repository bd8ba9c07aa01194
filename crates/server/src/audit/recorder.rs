//! Records operators' changes in the audit log.
//!
//! A [`Recorder`] hands each change to the log's thread and does not wait. It also writes the change to the server's log,
//! with or without an audit log. Invariant: each change is in the audit log or, if [`QUEUE`] changes wait already, it is
//! in the server's log and counted by a `missing` line.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use admission::{Definition, ZoneId};
use gate::definitions::{Author, Change, definition_json};
use tokio::sync::mpsc;

use crate::clock::unix_ms;

/// The most changes that wait for the log, for example while its disk is full. Operators make a few changes a minute; one
/// change has at most 33 KB.
const QUEUE: usize = 1_024;

/// Records operators' changes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Sender>);

#[derive(Clone, Debug)]
struct Sender {
    lines: mpsc::Sender<String>,
    missing: Arc<AtomicU64>,
}

/// The changes that wait to be written to the log.
pub(super) struct RecorderQueue {
    lines: mpsc::Receiver<String>,
    missing: Arc<AtomicU64>,
}

impl Recorder {
    /// A recorder that writes to the server's log only.
    #[must_use]
    pub fn without_log() -> Self {
        Self(None)
    }

    pub(super) fn with_log() -> (Self, RecorderQueue) {
        let (sender, lines) = mpsc::channel(QUEUE);
        let missing = Arc::new(AtomicU64::new(0));
        let queue = RecorderQueue { lines, missing: Arc::clone(&missing) };
        (Self(Some(Sender { lines: sender, missing })), queue)
    }

    /// Records a change that was made. Does not wait.
    pub fn write(&self, author: &Author, zone: &ZoneId, change: &Change) {
        let [before, after] = [&change.before, &change.after].map(|of| json(of.as_ref()));
        let from = author.from.map_or_else(String::new, |from| from.to_string());
        let (name, role) = (&author.name, &author.role);
        tracing::info!(target: "audit", %zone, name, role, from, before, after, "a zone was changed");
        let Some(Sender { lines, missing }) = &self.0 else { return };
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

impl RecorderQueue {
    /// Waits for the next change. `None` after the last [`Recorder`] is dropped.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// The next change, if one waits.
    pub(super) fn left(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Returns how many changes did not fit since the last call.
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
