//! The thread that writes the log.
//!
//! Invariants: a change by an operator is written before the events that follow it. A write or sync that fails is repeated
//! until it succeeds; meanwhile events wait in the queue.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use admission::{Policy, ZoneId};
use events::{Event as BusEvent, Spill, ZoneNames, ZoneNumber};
use gate::definitions::policy_json;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Policies, SPILL_EVENTS, SYNC,
    chain::Head,
    fault::LogFault,
    files::{Log, PreviousEnd},
    record::{Event, Record, raw},
    recorder::{Change, Changed, RecorderQueue},
};

/// The pause before a failed write is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// How long after a head the next one is logged, if lines followed it. A head in another log shows later whether the end
/// of this one was removed.
pub(super) const HEAD_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Writer {
    log: Log,
    names: ZoneNames,
    /// The policy last written for each zone.
    policies_written: HashMap<ZoneId, Policy>,
    policies: Box<Policies>,
    is_failing: bool,
    /// The head that was logged last, and when. `None` if the next one is due as soon as it is synced.
    logged_head: Option<(Head, Instant)>,
}

impl Writer {
    pub(super) fn new(log: Log, names: ZoneNames, policies: Box<Policies>) -> Self {
        Self { log, names, policies_written: HashMap::new(), policies, is_failing: false, logged_head: None }
    }

    /// Writes until the bus ends, and then the rest.
    pub(super) async fn run(mut self, mut spill: Spill, mut queue: RecorderQueue, found: &PreviousEnd) {
        for fragment in &found.fragments {
            tracing::warn!(
                file = fragment.file,
                bytes = fragment.bytes,
                "a file of the audit log ends in the middle of a line; the next file records that"
            );
            let (file, bytes, hash) = (&fragment.file, fragment.bytes, fragment.hash.to_hex());
            self.add(Event::Cut { file, bytes, piece: &hash });
        }
        self.add(Event::Started { version: env!("CARGO_PKG_VERSION"), clean: found.clean });
        self.write().await;
        let mut sync_at = None;
        loop {
            if !self.log.is_synced() {
                sync_at.get_or_insert_with(|| Instant::now() + SYNC);
            }
            let due = [sync_at, self.head_at()].into_iter().flatten().min();
            tokio::select! {
                // Changes come first, so that they are written before their consequences.
                biased;
                Some(change) = queue.next() => {
                    let receipt = self.add_change(change, &queue);
                    self.write().await;
                    // Nobody may wait for it any more.
                    let _ = receipt.map(|receipt| receipt.send(self.log.head()));
                }
                batch = spill.next() => match batch {
                    Some(batch) => {
                        self.add_events(batch.events, batch.lost);
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
        while let Some(change) = queue.try_next() {
            self.add_change(change, &queue);
        }
        self.add_missing(queue.take_missing());
        self.add(Event::Stopped);
        self.write().await;
        self.logged_head = None;
        self.sync().await;
    }

    fn add(&mut self, event: Event<'_>) {
        self.log.add(&Record::now(event));
    }

    /// Adds an operator's change, and before it the number of changes that are missing. Returns whom to tell the line, once it is written.
    fn add_change(&mut self, change: Change, queue: &RecorderQueue) -> Option<oneshot::Sender<Head>> {
        self.add_missing(queue.take_missing());
        let event = match &change.record {
            Changed::Zone(record) => Event::Change(record),
            Changed::Routes(record) => Event::Routes(record),
            Changed::Stock(record) => Event::Stock(record),
            Changed::Rule(record, _) => Event::Rule(record),
            Changed::Left(record) => Event::Left(record),
            Changed::Stated(record) => Event::Stated(record),
            Changed::Drain(record) => Event::Drain(record),
            Changed::Unanswered(record) => Event::Unanswered(record),
        };
        self.log.add(&Record { at_ms: change.at_ms, event });
        match change.record {
            Changed::Rule(_, receipt) => Some(receipt),
            _ => None,
        }
    }

    fn add_missing(&mut self, count: u64) {
        if count > 0 {
            tracing::error!(
                lost = count,
                "the audit log could not keep up: events are missing, and it says how many"
            );
            self.add(Event::Missing { count });
        }
    }

    fn add_events(&mut self, events: &[BusEvent], lost: u64) {
        self.add_missing(lost);
        let mut about_policies = lost > 0;
        for event in events {
            let (zone, policy) = match *event {
                BusEvent::ZoneAdded(added) => (added.zone, Some(added.policy)),
                BusEvent::PolicyChanged(changed) => (changed.zone, Some(changed.policy)),
                BusEvent::ZoneRemoved(removed) => (removed.zone, None),
                ref other => {
                    self.add_event(other);
                    continue;
                }
            };
            about_policies = true;
            if let Some(zone) = self.names.zone_id(zone) {
                self.add_policy(zone, policy);
            }
        }
        // Events of several threads have no order, and some may be missing. The policies in force decide.
        if about_policies && let Some(in_force) = (self.policies)() {
            let served: HashSet<_> = in_force.iter().map(|(zone, _)| zone).collect();
            let gone: Vec<_> =
                self.policies_written.keys().filter(|zone| !served.contains(zone)).cloned().collect();
            gone.into_iter().for_each(|zone| self.add_policy(zone, None));
            in_force.into_iter().for_each(|(zone, policy)| self.add_policy(zone, Some(policy)));
        }
    }

    /// Adds a zone's new policy, or that the zone is not served any more. Does nothing if that was written already.
    fn add_policy(&mut self, zone: ZoneId, after: Option<Policy>) {
        let before = self.policies_written.get(&zone).copied();
        if before == after {
            return;
        }
        let [old, new] =
            [&before, &after].map(|policy| policy.as_ref().map(|policy| raw(policy_json(policy))));
        self.add(Event::Policy { zone: zone.as_str(), before: old.as_deref(), after: new.as_deref() });
        match after {
            Some(policy) => self.policies_written.insert(zone, policy),
            None => self.policies_written.remove(&zone),
        };
    }

    /// Adds an event that is not about a policy.
    fn add_event(&mut self, event: &BusEvent) {
        let name = |zone: ZoneNumber| self.names.zone_id(zone);
        match event {
            BusEvent::Admitted(e) => {
                let (zone, policy) = (name(e.zone), raw(policy_json(&e.policy)));
                self.add(Event::Entered {
                    zone: zone.as_ref().map(ZoneId::as_str),
                    epoch: e.epoch,
                    seq: e.entry.seq,
                    entered_unix_s: e.entry.entered_unix_s,
                    store_ms: e.entry.at_ms,
                    policy: &policy,
                });
            }
            BusEvent::Evicted(e) => {
                let zone = name(e.zone);
                let zone = zone.as_ref().map(ZoneId::as_str);
                self.add(Event::Evicted { zone, count: e.count, store_ms: e.at_ms });
            }
            BusEvent::StoreLost(e) => {
                let zone = name(e.zone);
                self.add(Event::StoreLost { zone: zone.as_ref().map(ZoneId::as_str) });
            }
            BusEvent::StoreBack(e) => {
                let zone = name(e.zone);
                let zone = zone.as_ref().map(ZoneId::as_str);
                self.add(Event::StoreBack { zone, away_ms: e.away_ms });
            }
            BusEvent::Reloaded(e) => self.add(Event::Reloaded { ok: e.ok }),
            _ => debug_assert!(false, "not subscribed to: {event:?}"),
        }
    }

    /// Writes the added lines. Returns when that is done.
    async fn write(&mut self) {
        loop {
            match self.log.write() {
                Ok(is_new_file) => {
                    if is_new_file {
                        self.logged_head = None;
                    }
                    break self.note_success();
                }
                Err(fault) => self.note_failure(&fault).await,
            }
        }
    }

    /// When the head is to be logged. `None` if the server's log names the last line already.
    fn head_at(&self) -> Option<Instant> {
        match self.logged_head {
            None => Some(Instant::now()),
            Some((head, _)) if head == self.log.head() => None,
            Some((_, at)) => Some(at + HEAD_EVERY),
        }
    }

    /// Syncs the log. Returns when that is done; then logs the head, if that is due.
    async fn sync(&mut self) {
        while let Err(fault) = self.log.sync() {
            self.note_failure(&fault).await;
        }
        self.note_success();
        if self.head_at().is_some_and(|at| at <= Instant::now()) {
            let head = self.log.head();
            self.logged_head = Some((head, Instant::now()));
            tracing::info!(file = %self.log.path().display(), %head, "the audit log's head");
        }
    }

    /// Reports the first of several failures, and waits before the next try.
    async fn note_failure(&mut self, fault: &LogFault) {
        if !self.is_failing {
            self.is_failing = true;
            tracing::error!(
                "{fault}: the audit log cannot be written; up to {SPILL_EVENTS} events wait for it"
            );
        }
        sleep(RETRY).await;
    }

    fn note_success(&mut self) {
        if self.is_failing {
            self.is_failing = false;
            tracing::info!("the audit log can be written again");
        }
    }
}
