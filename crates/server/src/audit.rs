//! The audit log: who entered when, under which policy, and what else bears on it.
//!
//! A thread of its own takes events from the bus through a queue, and writes them as lines, each with the hash of the one
//! before; no request waits for it. What is written is handed to the system at once, synced within [`SYNC`], and named by a
//! head in the server's log a minute later. Invariants: an event that was heard is written or, where queue and disk could
//! not keep up, counted by a `missing` line; a log that can't be written is tried again for as long as the server runs, and
//! the error told.

mod chain;
mod files;
mod recorder;
mod verify;

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use admission::{Policy, ZoneId};
use events::{Bus, Event, Kind, Kinds, Scope, Spill, ZoneNames};
use gate::definitions::policy_json;
use tokio::time::{Instant, sleep_until};

pub use chain::Head;
pub use files::LogFault;
pub use recorder::Recorder;
pub use verify::{Fault, Kind as FaultKind, Report, verify};

use crate::clock::unix_ms;
use files::{Found, Log};
use recorder::RecorderQueue;

/// How long what was written may be lost with the machine's power.
pub const SYNC: Duration = Duration::from_secs(1);

/// Events that wait for a disk, of 64 bytes each; beyond that they are lost, and counted.
const SPILL_EVENTS: usize = 500_000;

/// How long until a write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long after a head the next one is logged, if there are lines behind it; so that it is kept elsewhere.
const HEAD_EVERY: Duration = Duration::from_secs(60);

/// How long a stopping server waits for the log's last lines.
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

/// Where the log is, and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes after which the next file is begun.
    pub file_bytes: u64,
}

/// What is in force, zone by zone; none once nobody serves any more.
pub type Policies = dyn Fn() -> Option<Vec<(ZoneId, Policy)>> + Send;

/// A log that is being written.
pub struct Audit {
    ended: mpsc::Receiver<()>,
    recorder: Recorder,
}

impl Audit {
    /// Opens the log and writes what happens on `bus` from now on. `policies` is asked where the events may not tell all.
    ///
    /// # Errors
    /// A [`LogFault`] where the log can't be opened; also where there is no thread or no room on the bus for it.
    pub fn start(bus: &Bus, settings: &Settings, policies: Box<Policies>) -> Result<Self, LogFault> {
        let other = |why: io::Error| LogFault::Io { path: settings.dir.clone(), why };
        let (log, found) = Log::open(&settings.dir, settings.file_bytes)?;
        let subscription =
            bus.subscribe("audit", Scope::Root, KINDS).map_err(io::Error::other).map_err(other)?;
        let spill = subscription.spill(SPILL_EVENTS).map_err(other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(other)?;
        let writer =
            Writer { log, names: bus.names(), known: HashMap::new(), policies, failing: false, kept: None };
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

    /// What operators change is written by this.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Waits until all is written that was published before the bus was dropped; not for ever.
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

struct Writer {
    log: Log,
    names: ZoneNames,
    /// The policies that were written last.
    known: HashMap<ZoneId, Policy>,
    policies: Box<Policies>,
    failing: bool,
    /// The head that was logged last, and when; none where the next one is due as soon as it is synced.
    kept: Option<(Head, Instant)>,
}

impl Writer {
    async fn run(mut self, mut spill: Spill, mut queue: RecorderQueue, found: &Found) {
        let at_ms = unix_ms();
        for piece in &found.pieces {
            tracing::warn!(
                file = piece.file,
                bytes = piece.bytes,
                "a file of the audit log ends in the middle of a line; the next one says so"
            );
            let (file, bytes, hash) = (&piece.file, piece.bytes, piece.hash.to_hex());
            self.log.add(&format!(
                r#""at_ms":{at_ms},"event":"cut","file":"{file}","bytes":{bytes},"piece":"{hash}""#
            ));
        }
        let (version, clean) = (env!("CARGO_PKG_VERSION"), found.clean);
        self.log.add(&format!(r#""at_ms":{at_ms},"event":"started","version":"{version}","clean":{clean}"#));
        self.write().await;
        let mut sync_at = None;
        loop {
            if !self.log.is_synced() {
                sync_at.get_or_insert_with(|| Instant::now() + SYNC);
            }
            let due = [sync_at, self.head_at()].into_iter().flatten().min();
            tokio::select! {
                // What is told first is written first.
                biased;
                Some(change) = queue.next() => {
                    self.add_change(&change, &queue);
                    self.write().await;
                }
                batch = spill.next() => match batch {
                    Some(batch) => {
                        self.take_in(batch.events, batch.lost);
                        self.write().await;
                    }
                    None => break,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            if due.is_some_and(|at| at <= Instant::now()) {
                self.sync().await;
                sync_at = None;
            }
        }
        while let Some(change) = queue.left() {
            self.add_change(&change, &queue);
        }
        self.add_missing(queue.take_missing());
        self.log.add(&format!(r#""at_ms":{},"event":"stopped""#, unix_ms()));
        self.write().await;
        self.kept = None;
        self.sync().await;
    }

    /// Adds what an operator changed, and how many such changes are missing.
    fn add_change(&mut self, change: &str, queue: &RecorderQueue) {
        self.add_missing(queue.take_missing());
        self.log.add(change);
    }

    fn add_missing(&mut self, lost: u64) {
        if lost > 0 {
            tracing::error!(
                lost,
                "the audit log could not keep up: events are missing, and it says how many"
            );
            self.log.add(&format!(r#""at_ms":{},"event":"missing","count":{lost}"#, unix_ms()));
        }
    }

    fn take_in(&mut self, events: &[Event], lost: u64) {
        let at_ms = unix_ms();
        self.add_missing(lost);
        let mut of_policies = lost > 0;
        for event in events {
            let (zone, policy) = match *event {
                Event::ZoneAdded(added) => (added.zone, Some(added.policy)),
                Event::PolicyChanged(changed) => (changed.zone, Some(changed.policy)),
                Event::ZoneRemoved(removed) => (removed.zone, None),
                ref other => {
                    if let Some(fields) = self.fields(at_ms, other) {
                        self.log.add(&fields);
                    }
                    continue;
                }
            };
            of_policies = true;
            if let Some(zone) = self.names.zone_id(zone) {
                self.policy(at_ms, zone, policy);
            }
        }
        // Events of several threads are in no order, and some may be missing: what is in force has the last word.
        if of_policies && let Some(in_force) = (self.policies)() {
            let served: HashSet<_> = in_force.iter().map(|(zone, _)| zone).collect();
            let gone: Vec<_> = self.known.keys().filter(|zone| !served.contains(zone)).cloned().collect();
            gone.into_iter().for_each(|zone| self.policy(at_ms, zone, None));
            in_force.into_iter().for_each(|(zone, policy)| self.policy(at_ms, zone, Some(policy)));
        }
    }

    /// Adds that a zone has this policy now, or is not served any more, if that is news.
    fn policy(&mut self, at_ms: u64, zone: ZoneId, after: Option<Policy>) {
        let before = self.known.get(&zone).copied();
        if before == after {
            return;
        }
        let (old, new) = (json(before.as_ref()), json(after.as_ref()));
        self.log.add(&format!(
            r#""at_ms":{at_ms},"event":"policy","zone":"{zone}","before":{old},"after":{new}"#
        ));
        match after {
            Some(policy) => self.known.insert(zone, policy),
            None => self.known.remove(&zone),
        };
    }

    /// The fields of the line for an event that is no policy's; none for one that was not asked for.
    fn fields(&self, at_ms: u64, event: &Event) -> Option<String> {
        let (word, zone) = match event {
            Event::Admitted(e) => ("entered", Some(e.zone)),
            Event::Evicted(e) => ("evicted", Some(e.zone)),
            Event::StoreLost(e) => ("store_lost", Some(e.zone)),
            Event::StoreBack(e) => ("store_back", Some(e.zone)),
            Event::Reloaded(_) => ("reloaded", None),
            _ => return None,
        };
        let mut fields = format!(r#""at_ms":{at_ms},"event":"{word}""#);
        if let Some(zone) = zone {
            // Of more zones than the bus has names for.
            let name = self.names.zone_id(zone).map_or("null".to_owned(), |zone| format!(r#""{zone}""#));
            fields.push_str(&format!(r#","zone":{name}"#));
        }
        let more = match event {
            Event::Admitted(e) => format!(
                r#","epoch":{},"seq":{},"entered_unix_s":{},"store_ms":{},"policy":{}"#,
                e.epoch,
                e.seq,
                e.entered_unix_s,
                e.at_ms,
                json(Some(&e.policy))
            ),
            Event::Evicted(e) => format!(r#","count":{},"store_ms":{}"#, e.count, e.at_ms),
            Event::StoreBack(e) => format!(r#","away_ms":{}"#, e.away_ms),
            Event::Reloaded(e) => format!(r#","ok":{}"#, e.ok),
            _ => String::new(),
        };
        fields.push_str(&more);
        Some(fields)
    }

    /// Writes what was added, and does not return before that is done.
    async fn write(&mut self) {
        loop {
            match self.log.write() {
                Ok(begun) => {
                    if begun {
                        self.kept = None;
                    }
                    break self.is_well();
                }
                Err(fault) => self.is_ill(&fault).await,
            }
        }
    }

    /// When the head is to be logged; never where the last line is in the server's log already.
    fn head_at(&self) -> Option<Instant> {
        match self.kept {
            None => Some(Instant::now()),
            Some((head, _)) if head == self.log.head() => None,
            Some((_, at)) => Some(at + HEAD_EVERY),
        }
    }

    /// Syncs, and does not return before that is done; then logs the head, if that is due.
    async fn sync(&mut self) {
        while let Err(fault) = self.log.sync() {
            self.is_ill(&fault).await;
        }
        self.is_well();
        if self.head_at().is_some_and(|at| at <= Instant::now()) {
            let head = self.log.head();
            self.kept = Some((head, Instant::now()));
            tracing::info!(file = %self.log.path().display(), %head, "the audit log's head");
        }
    }

    async fn is_ill(&mut self, fault: &LogFault) {
        if !self.failing {
            self.failing = true;
            tracing::error!(
                "{fault}: the audit log can't be written; events wait for it, up to {SPILL_EVENTS}"
            );
        }
        tokio::time::sleep(AGAIN).await;
    }

    fn is_well(&mut self) {
        if self.failing {
            self.failing = false;
            tracing::info!("the audit log is written again");
        }
    }
}

/// A policy as a value in a line.
fn json(policy: Option<&Policy>) -> String {
    policy.map_or_else(|| "null".to_owned(), policy_json)
}

#[cfg(test)]
mod tests;
