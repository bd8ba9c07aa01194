//! Records what operators do in the audit log: their changes, and their orders.
//!
//! A [`Recorder`] hands each act to the log's thread and does not wait. It also writes the act to the server's log,
//! with or without an audit log. Invariant: each act, and each order that the store may have carried out, is in the audit log or, if [`QUEUE`]
//! acts wait already, it is in the server's log and counted by a `missing` line.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use admission::ZoneId;
use gate::definitions::{self, Author, definition_json};
use serde_json::Value;
use store::unix_ms;
use tokio::sync::{mpsc, oneshot};

use super::record::{
    ChangeRecord, DrainRecord, LeftRecord, RoutesRecord, RuleRecord, StatedRecord, StockRecord,
    UnansweredRecord, raw,
};
use crate::chain::Head;

/// The most changes that wait for the log, for example while its disk is full. Operators make a few changes a minute; one
/// change has at most 57 KB.
const QUEUE: usize = 1_024;

/// Records operators' changes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Sender>);

#[derive(Clone, Debug)]
struct Sender {
    changes: mpsc::Sender<Change>,
    missing: Arc<AtomicU64>,
}

/// A change on its way to the log.
#[derive(Debug)]
pub(super) struct Change {
    /// When it was made, in milliseconds since 1970 by the wall clock.
    pub(super) at_ms: u64,
    pub(super) record: Changed,
}

/// What was changed.
#[derive(Debug)]
pub(super) enum Changed {
    Zone(ChangeRecord),
    Routes(RoutesRecord),
    Stock(StockRecord),
    /// Whoever wrote it is told which line has it.
    Rule(RuleRecord, oneshot::Sender<Head>),
    Left(LeftRecord),
    Stated(StatedRecord),
    Drain(DrainRecord),
    Unanswered(UnansweredRecord),
}

/// What an operator ordered of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Another definition of a zone, or none.
    Change,
    /// Another list of routes.
    Routes,
    /// Other numbers of what is left in a zone.
    Stock,
    /// The end of a visit.
    Left,
    /// What decides a draw.
    Stated,
}

impl Order {
    /// The event of the line that has it.
    const fn event(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Routes => "routes",
            Self::Stock => "stock",
            Self::Left => "left",
            Self::Stated => "stated",
        }
    }
}

/// The changes that wait to be written to the log.
pub(super) struct RecorderQueue {
    changes: mpsc::Receiver<Change>,
    missing: Arc<AtomicU64>,
}

impl Recorder {
    /// A recorder that writes to the server's log only.
    #[must_use]
    pub fn without_log() -> Self {
        Self(None)
    }

    /// Whether acts are written into an audit log, and not only into the server's log.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn with_log() -> (Self, RecorderQueue) {
        let (sender, changes) = mpsc::channel(QUEUE);
        let missing = Arc::new(AtomicU64::new(0));
        let queue = RecorderQueue { changes, missing: Arc::clone(&missing) };
        (Self(Some(Sender { changes: sender, missing })), queue)
    }

    /// Records a change that was made. Does not wait.
    pub fn write(&self, author: &Author, zone: &ZoneId, change: &definitions::DefinitionChange) {
        let [before, after] = [&change.before, &change.after].map(|of| of.as_ref().map(definition_json));
        let null = || "null".to_owned();
        let (name, role) = (&author.name, &author.role);
        tracing::info!(
            target: "audit",
            %zone,
            name,
            role,
            from = address_of(author),
            before = before.clone().unwrap_or_else(null),
            after = after.clone().unwrap_or_else(null),
            "a zone was changed"
        );
        self.send(Changed::Zone(ChangeRecord {
            zone: zone.clone(),
            name: name.clone(),
            role: role.clone(),
            from: author.from,
            before: before.map(raw),
            after: after.map(raw),
        }));
    }

    /// Records a change of the routes that was made. The lists have no secrets. Does not wait.
    pub fn write_routes(&self, author: &Author, before: &[Value], after: &[Value]) {
        let Author { name, role, from } = author;
        let text = |list: &[Value]| Value::from(list).to_string();
        tracing::info!(
            target: "audit",
            name,
            role,
            from = address_of(author),
            before = text(before),
            after = text(after),
            "the routes were changed"
        );
        let (name, role, from) = (name.clone(), role.clone(), *from);
        let (before, after) = (before.to_vec(), after.to_vec());
        self.send(Changed::Routes(RoutesRecord { name, role, from, before, after }));
    }

    /// Records a change of what people are told is left in a zone. Both texts are JSON. Does not wait.
    ///
    /// # Panics
    /// If a text is not JSON.
    pub fn write_stock(&self, author: &Author, zone: &ZoneId, before: String, after: String) {
        let Author { name, role, from } = author;
        tracing::info!(target: "audit", %zone, name, role, from = address_of(author), before, after, "what is left was changed");
        let (zone, name, role, from) = (zone.clone(), name.clone(), role.clone(), *from);
        let (before, after) = (raw(before), raw(after));
        self.send(Changed::Stock(StockRecord { zone, name, role, from, before, after }));
    }

    /// Records that the published rule of a zone is another one: `rule` as JSON, and the digests of the rule before and of this one. Does
    /// not wait. Returns what tells the line that has it, when it is written; none where there is no audit log.
    ///
    /// # Panics
    /// If `rule` is not JSON.
    pub fn write_rule(
        &self,
        zone: &ZoneId,
        before: Option<&str>,
        digest: &str,
        rule: String,
    ) -> Option<oneshot::Receiver<Head>> {
        tracing::info!(target: "audit", %zone, digest, rule, "the rule of a zone is another one");
        self.0.as_ref()?;
        let (told, receipt) = oneshot::channel();
        let (zone, before, digest) = (zone.clone(), before.map(str::to_owned), digest.to_owned());
        self.send(Changed::Rule(RuleRecord { zone, before, digest, rule: raw(rule) }, told));
        Some(receipt)
    }

    /// Records that an operator ended the visit of ticket `seq`. Does not wait.
    pub fn write_left(&self, author: &Author, zone: &ZoneId, epoch: u32, seq: u64) {
        let Author { name, role, from } = author;
        tracing::info!(target: "audit", %zone, epoch, seq, name, role, from = address_of(author), "an operator ended a visit");
        let (zone, name, role, from) = (zone.clone(), name.clone(), role.clone(), *from);
        self.send(Changed::Left(LeftRecord { zone, epoch, seq, name, role, from }));
    }

    /// Records that an operator stated what decides the draw of event `draw`: the value, or none if the announced source gave none. Does
    /// not wait.
    pub fn write_stated(&self, author: &Author, zone: &ZoneId, draw: &str, value: Option<&str>) {
        let Author { name, role, from } = author;
        tracing::info!(
            target: "audit",
            %zone,
            draw,
            value,
            name,
            role,
            from = address_of(author),
            "an operator stated what decides a draw"
        );
        let (draw, value) = (draw.to_owned(), value.map(str::to_owned));
        let (zone, name, role, from) = (zone.clone(), name.clone(), role.clone(), *from);
        self.send(Changed::Stated(StatedRecord { zone, draw, value, name, role, from }));
    }

    /// Records that an operator took this server out of service, or put it back. Does not wait.
    pub fn write_drain(&self, author: &Author, draining: bool) {
        let Author { name, role, from } = author;
        let what = if draining { "out of service" } else { "back in service" };
        tracing::info!(target: "audit", name, role, from = address_of(author), "an operator took this server {what}");
        let (name, role, from) = (name.clone(), role.clone(), *from);
        self.send(Changed::Drain(DrainRecord { draining, name, role, from }));
    }

    /// Records that the store did not answer what an operator ordered, so that it may have been done. `wanted` is the order as JSON, without
    /// secrets. Does not wait.
    ///
    /// # Panics
    /// If `wanted` is not JSON.
    pub fn write_unanswered(&self, author: &Author, order: Order, zone: Option<&ZoneId>, wanted: String) {
        let Author { name, role, from } = author;
        let zone = zone.map(|zone| zone.as_str().to_owned());
        tracing::warn!(
            target: "audit",
            order = order.event(),
            zone,
            name,
            role,
            from = address_of(author),
            wanted,
            "the store did not answer what an operator ordered: it may have been done"
        );
        let (name, role, from, wanted) = (name.clone(), role.clone(), *from, raw(wanted));
        self.send(Changed::Unanswered(UnansweredRecord {
            order: order.event(),
            zone,
            name,
            role,
            from,
            wanted,
        }));
    }

    fn send(&self, record: Changed) {
        let Some(Sender { changes, missing }) = &self.0 else { return };
        if changes.try_send(Change { at_ms: unix_ms(), record }).is_err() {
            missing.fetch_add(1, Ordering::Relaxed);
            tracing::error!("the audit log is too far behind: the act above is missing from it");
        }
    }
}

/// The address of an author, for the server's log; empty if the act did not come over the network.
fn address_of(author: &Author) -> String {
    author.from.map_or_else(String::new, |from| from.to_string())
}

impl RecorderQueue {
    /// Waits for the next change. `None` after the last [`Recorder`] is dropped.
    pub(super) async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }

    /// The next change, if one waits.
    pub(super) fn try_next(&mut self) -> Option<Change> {
        self.changes.try_recv().ok()
    }

    /// Returns how many changes did not fit since the last call.
    pub(super) fn take_missing(&self) -> u64 {
        self.missing.swap(0, Ordering::Relaxed)
    }
}
