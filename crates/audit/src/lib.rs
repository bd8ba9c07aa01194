//! The audit log: who entered when, under which policy, and what operators changed.
//!
//! A thread takes events from the bus through a queue and writes each as a line that carries the hash of the line before.
//! No request waits for it. Lines are handed to the operating system at once and synced within [`SYNC`]; a minute later
//! the server's own log names the last line. Invariants: each event from the bus is written or, if queue and disk could
//! not keep up, counted by a `missing` line. While the log cannot be written, the thread reports the error and tries again
//! until the server stops.

mod chain;
mod changes;
mod fault;
mod files;
mod reader;
mod record;
mod recorder;
mod verify;
mod writer;

use std::{io, path::PathBuf, sync::mpsc, thread, time::Duration};

use admission::{Policy, ZoneId};
use events::{Bus, Kind, Kinds, Scope};

pub use chain::Head;
pub use changes::{CHANGES_MAX, Change, changes};
pub use fault::LogFault;
pub use recorder::{Order, Recorder};
pub use verify::{Fault, Kind as FaultKind, Report, verify};

use files::Log;
use writer::Writer;

/// A loss of power may cost lines that were written within this time.
pub const SYNC: Duration = Duration::from_secs(1);

/// The most events of 64 bytes that wait for a disk. Further events are lost and counted.
const SPILL_EVENTS: usize = 500_000;

/// How long a stopping server waits for the last lines.
const FINISH: Duration = Duration::from_secs(5);

const KINDS: Kinds = Kinds::of(&[
    Kind::Admitted,
    Kind::ZoneAdded,
    Kind::ZoneRemoved,
    Kind::PolicyChanged,
    Kind::Evicted,
    Kind::StoreLost,
    Kind::StoreBack,
    Kind::Reloaded,
]);

/// Where the log is, and how long its files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The log's directory. Only one server may write it.
    pub dir: PathBuf,
    /// After so many bytes the log continues in the next file.
    pub file_bytes: u64,
}

/// Returns the policies in force, by zone; `None` after the zones are gone.
pub type Policies = dyn Fn() -> Option<Vec<(ZoneId, Policy)>> + Send;

/// A log that is being written.
pub struct Audit {
    ended: mpsc::Receiver<()>,
    recorder: Recorder,
}

impl Audit {
    /// Opens the log and starts the thread that writes it. The thread asks `policies` when events may be missing or out of
    /// order.
    ///
    /// # Errors
    /// A [`LogFault`] if the log cannot be opened, the thread cannot be started, or the bus has too many subscribers.
    pub fn start(bus: &Bus, settings: &Settings, policies: Box<Policies>) -> Result<Self, LogFault> {
        let other = |why: io::Error| LogFault::Io { path: settings.dir.clone(), why };
        let (log, found) = Log::open(&settings.dir, settings.file_bytes)?;
        let subscription =
            bus.subscribe("audit", Scope::Root, KINDS).map_err(io::Error::other).map_err(other)?;
        let spill = subscription.spill(SPILL_EVENTS).map_err(other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(other)?;
        let writer = Writer::new(log, bus.names(), policies);
        let (end, ended) = mpsc::channel();
        let (recorder, queue) = Recorder::with_log();
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || {
                runtime.block_on(writer.run(spill, queue, &found));
                drop(end);
            })
            .map_err(other)?;
        Ok(Self { ended, recorder })
    }

    /// The recorder for operators' changes.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Waits, for a limited time, until everything is written that was published before the bus was dropped.
    pub fn finish(self) {
        drop(self.recorder);
        if self.ended.recv_timeout(FINISH) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::error!(
                "the audit log could not be ended within {} s: its last events are missing",
                FINISH.as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests;
