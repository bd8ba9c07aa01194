//! Follows a cell's register: all servers serve the zones that one server, or `weir zones apply`, puts there.
//!
//! The store is the truth. The zones of the configuration file are put into it only if it never had zones, as on the
//! first start. A store that lost everything is given the zones that were served last. The watcher refreshes twice a
//! second, and at once when it is notified of a change. Invariants: a change is in force within a second, whether or not
//! a notification arrives; a cell that does not answer changes nothing about what is served.

use std::{sync::Arc, time::Duration};

use admission::{Definition, ZoneId};
use store::{Store, StoreError};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    cells::{Cell, Cells},
    definitions::differences,
    gate::{Gate, Listing},
    refresh::Refresh,
    trouble::TroubleKind,
};

/// The time between two refreshes without a notification.
const EVERY: Duration = Duration::from_millis(500);

/// The least time between two refreshes, however many notifications arrive: at 100 a second, a flood of messages costs
/// a store less than a thousandth of its time for each server.
const GAP: Duration = Duration::from_millis(10);

/// The longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(2);

type Zones = Vec<(ZoneId, Definition)>;

/// How a refresh ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The cell listed its zones, and they are taken in.
    Listed,
    /// The cell has too much to do.
    Busy,
    /// The cell did not answer.
    Away,
}

/// Watches one cell for one gate.
pub struct Watcher<S: Store, C> {
    gate: Arc<Gate<S>>,
    cells: Arc<Cells<C>>,
    at: usize,
    /// What the cell should keep: at first the file's zones, later what it listed last.
    known: Zones,
    /// Whether an operator wrote the first `known` into a file.
    has_file: bool,
    every: Duration,
    pause: Duration,
    refresh: Arc<Refresh>,
    /// Whether the log says whether the cell answers.
    logged: bool,
    /// The last refresh changed something.
    changing: bool,
    /// What is served differs from what it was when `changed` was last notified.
    changed: bool,
}

impl<S: Store, C: Store> Watcher<S, C> {
    /// For the cell with index `at`. `file` has the zones of the configuration, those of other cells too.
    pub fn new(gate: Arc<Gate<S>>, cells: Arc<Cells<C>>, at: usize, file: &[(ZoneId, Definition)]) -> Self {
        let known =
            file.iter().filter(|(zone, _)| cells.place_of(zone.as_str()) == Some(at)).cloned().collect();
        Self {
            gate,
            cells,
            at,
            known,
            has_file: true,
            every: EVERY,
            pause: EVERY,
            refresh: Arc::new(Refresh::new()),
            logged: false,
            changing: false,
            changed: false,
        }
    }

    /// Changes the time between two refreshes without a notification: for tests of notifications.
    #[must_use]
    pub fn asking_every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// The zones are those that a server has without a configuration file: a store that keeps others is as it should be.
    #[must_use]
    pub fn without_file(self) -> Self {
        Self { has_file: false, ..self }
    }

    /// Notify this, and the watcher refreshes at once.
    #[must_use]
    pub fn news(&self) -> Arc<Notify> {
        Arc::clone(self.refresh.news())
    }

    /// Its refreshes.
    #[must_use]
    pub fn refresh(&self) -> Arc<Refresh> {
        Arc::clone(&self.refresh)
    }

    /// Runs for ever. Reports the end of the first refresh to `first`, and notifies `changed` when the zones or policies
    /// that are served changed.
    pub async fn run(mut self, first: oneshot::Sender<()>, changed: Arc<Notify>) {
        let mut first = Some(first);
        let mut requested = false;
        loop {
            let number = requested.then(|| self.refresh.begin());
            let outcome = self.refresh_once(requested).await;
            if let (Some(number), Outcome::Listed) = (number, outcome) {
                self.refresh.end(number);
            }
            if std::mem::take(&mut self.changed) {
                changed.notify_one();
            }
            if let Some(first) = first.take() {
                let _ = first.send(());
            }
            let next = Instant::now() + self.pause;
            sleep(GAP).await;
            requested = tokio::select! {
                () = sleep_until(next) => false,
                // Notifications do not make the watcher ask a cell that is away more often.
                () = self.refresh.news().notified(), if outcome != Outcome::Away => true,
            };
        }
    }

    /// Refreshes once. A list that is up to 150 ms old is good enough, unless the refresh was `requested`.
    async fn refresh_once(&mut self, requested: bool) -> Outcome {
        let cell = &self.cells.all()[self.at];
        let (connected, answered) = (cell.is_connected(), cell.has_answered());
        let asked = Instant::now();
        let mut kept = if requested { cell.zones_now().await } else { cell.zones().await };
        if kept.as_ref().is_ok_and(|kept| kept.is_new) && !self.known.is_empty() {
            let (cell, zones) = (&cell.health().name, self.known.len());
            tracing::warn!(
                cell,
                zones,
                "the store has no register of zones, and is given the zones known here; it may have been emptied, so nobody enters \
                 for up to a minute, in which servers say what they remember; `weir zones apply FILE` opens the zones of a new store at \
                 once, if it runs before the servers"
            );
            kept = self.cell().begin(&self.known).await.map(Arc::new);
        }
        match kept {
            Ok(kept) => {
                if cell.health().set_up(true) && self.logged {
                    tracing::info!(cell = cell.health().name, "the store is back");
                }
                self.logged = true;
                self.pause = self.every;
                if self.cells.place_of_routes() == Some(self.at) {
                    take_in_routes(&self.gate, kept.routes.clone());
                }
                self.take_in(kept.zones.clone(), !answered, (kept.unix_ms, asked)).await;
                Outcome::Listed
            }
            Err(error) => {
                self.pause = if connected { self.every } else { (self.pause * 2).min(MAX_PAUSE) };
                if matches!(error, StoreError::Busy) {
                    return Outcome::Busy;
                }
                if cell.health().set_up(false) || !self.logged {
                    let kind = TroubleKind::of(&error);
                    tracing::error!(
                        kind = kind.name(),
                        "{error}; polls are answered from the last view, and nobody enters unless a zone's policy says so. What to \
                         do: {}",
                        kind.advice()
                    );
                }
                self.logged = true;
                if answered {
                    self.gate.doubt(|zone| self.is_mine(zone));
                } else {
                    let unknown = self
                        .known
                        .iter()
                        .map(|(zone, known)| (zone.clone(), known.clone(), Listing::Unknown));
                    let zones = unknown.collect();
                    self.changed = self
                        .gate
                        .follow_zones(|zone| self.is_mine(zone), zones, (store::unix_ms(), asked))
                        .await;
                    self.gate.note_never_listed(|zone| self.is_mine(zone), &error);
                }
                Outcome::Away
            }
        }
    }

    async fn take_in(&mut self, mut listed: Zones, is_first: bool, time: (u64, Instant)) {
        listed.retain(|(zone, _)| self.is_mine(zone));
        if is_first {
            let differ = if self.has_file { differences(&self.known, &listed) } else { Vec::new() };
            if !differ.is_empty() {
                warn_of_differences(&differ);
            }
        } else {
            let gone = |zone: &ZoneId| listed.binary_search_by(|(kept, _)| kept.cmp(zone)).is_err();
            for (zone, _) in self.known.iter().filter(|(zone, _)| gone(zone)) {
                let cell = &self.cell().health().name;
                tracing::info!(cell, %zone, "the zone was removed from the store, and is no longer served");
            }
        }
        let serve = listed.iter().map(|(zone, kept)| (zone.clone(), kept.clone(), Listing::Listed)).collect();
        self.known = listed;
        let changed = self.gate.follow_zones(|zone| self.is_mine(zone), serve, time).await;
        // A new policy comes into force a moment after the lane was asked. So the refresh after a change counts as a
        // change too.
        self.changed = std::mem::replace(&mut self.changing, changed) || changed;
    }

    fn cell(&self) -> &Arc<Cell<C>> {
        &self.cells.all()[self.at]
    }

    fn is_mine(&self, zone: &ZoneId) -> bool {
        self.cells.place_of(zone.as_str()) == Some(self.at)
    }
}

/// Takes in the routes as the cell lists them. Whoever follows them is notified only if they changed.
fn take_in_routes<S: Store>(gate: &Gate<S>, listed: Option<Arc<str>>) {
    gate.routes().send_if_modified(|known| {
        let changed = *known != listed;
        *known = listed;
        changed
    });
}

/// Logs that the zones of the file are not the zones that are served.
pub fn warn_of_differences(differ: &[String]) {
    const SHOWN: usize = 10;
    let more =
        if differ.len() > SHOWN { format!(" and {} more", differ.len() - SHOWN) } else { String::new() };
    tracing::warn!(
        "the store keeps the zones, and the file differs: {}{more}; `weir zones apply FILE` changes the store",
        differ[..differ.len().min(SHOWN)].join("; ")
    );
}
