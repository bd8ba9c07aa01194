//! Follows the zones that a cell keeps: what one server, or `weir zones apply`, puts there, all servers serve.
//!
//! The store is the truth. The file's zones are put into it only where it has none at all, as on the first start; and
//! what was served last is put back where it has lost everything. The store is asked twice a second, and at once when
//! another server says that something changed (see [`crate::fanout`]). Invariants: a change is in force within a second
//! of being made, whatever is heard or not; a cell that does not answer changes nothing about what is served.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use admission::{Policy, ZoneId};
use store::{Store, StoreError};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    cells::{Cell, Cells},
    gate::{Gate, Word},
    zones::differences,
};

/// How often a cell is asked for its zones.
const EVERY: Duration = Duration::from_millis(500);

/// The least time between two questions, however much is heard: at 100 a second, a flood of messages costs a store
/// less than a thousandth of its time for each server.
const GAP: Duration = Duration::from_millis(10);

/// How soon it is asked again when a zone is missing: perhaps it is just being put back by somebody.
/// Later than [`crate::cells`] keeps an answer, so that it is another one.
const DOUBTFUL: Duration = Duration::from_millis(200);

/// The longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(2);

type Zones = Vec<(ZoneId, Policy)>;

/// Watches one cell for one gate.
pub struct Watcher<S, C> {
    gate: Arc<Gate<S>>,
    cells: Arc<Cells<C>>,
    at: usize,
    /// What the cell is to keep: the file's zones at first, what it told last from then on.
    known: Zones,
    /// Zones that it was asked to keep, and has not told of yet.
    put: BTreeSet<ZoneId>,
    /// Zones that it did not tell of when last asked, and had told of before.
    missing: BTreeSet<ZoneId>,
    every: Duration,
    pause: Duration,
    /// Told when something is said to have changed.
    news: Arc<Notify>,
    /// Whether anybody was told how the cell is.
    told: bool,
    /// The last round changed something.
    changing: bool,
    /// What is served is not what it was when somebody was last told.
    changed: bool,
}

impl<S: Store, C: Store> Watcher<S, C> {
    /// For the cell `at` of `cells`; `file` has the zones of the configuration, its own and those of others.
    pub fn new(gate: Arc<Gate<S>>, cells: Arc<Cells<C>>, at: usize, file: &[(ZoneId, Policy)]) -> Self {
        let known =
            file.iter().filter(|(zone, _)| cells.place_of(zone.as_str()) == Some(at)).cloned().collect();
        let (put, missing) = Default::default();
        Self {
            gate,
            cells,
            at,
            known,
            put,
            missing,
            every: EVERY,
            pause: EVERY,
            news: Arc::default(),
            told: false,
            changing: false,
            changed: false,
        }
    }

    /// The same, asking as seldom as this where nothing is heard: for tests of what is heard.
    #[must_use]
    pub fn asking_every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Tell it, and the cell is asked at once.
    #[must_use]
    pub fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.news)
    }

    /// Runs for ever. `first` hears when the cell was asked once, `changed` when other zones or policies are served.
    pub async fn run(mut self, first: oneshot::Sender<()>, changed: Arc<Notify>) {
        let mut first = Some(first);
        let mut told = false;
        loop {
            let up = self.ask(told).await;
            if std::mem::take(&mut self.changed) {
                changed.notify_one();
            }
            if let Some(first) = first.take() {
                let _ = first.send(());
            }
            let next = Instant::now() + self.pause;
            sleep(GAP).await;
            told = tokio::select! {
                () = sleep_until(next) => false,
                // A cell that is away is not asked more often for being talked of.
                () = self.news.notified(), if up => true,
            };
        }
    }

    /// Asks once. What the cell told a moment ago is good enough, unless it is `told` that there is news. Says whether it
    /// answered.
    async fn ask(&mut self, told: bool) -> bool {
        let cell = &self.cells.all()[self.at];
        let (connected, answered) = (cell.is_connected(), cell.has_answered());
        let zones = if told { cell.zones_now().await } else { cell.zones().await };
        match zones {
            Ok(zones) => {
                if cell.health().set_up(true) && self.told {
                    tracing::info!(cell = cell.health().name, "the store is back");
                }
                self.told = true;
                self.pause = self.every;
                self.take_in(zones.to_vec(), !answered).await;
                true
            }
            Err(error) => {
                self.pause = if connected { self.every } else { (self.pause * 2).min(MAX_PAUSE) };
                if matches!(error, StoreError::Busy) {
                    return true;
                }
                if cell.health().set_up(false) || !self.told {
                    tracing::error!(
                        "{error}; polls are answered with what is known, and nobody is let in, unless a zone's \
                         policy says so"
                    );
                }
                self.told = true;
                if answered {
                    self.gate.doubt(|zone| self.is_mine(zone));
                } else {
                    let unknown =
                        self.known.iter().map(|(zone, policy)| (zone.clone(), *policy, Word::Nothing));
                    self.changed = self.gate.follow_zones(|zone| self.is_mine(zone), unknown.collect()).await;
                }
                false
            }
        }
    }

    async fn take_in(&mut self, mut told: Zones, is_first: bool) {
        told.retain(|(zone, _)| self.is_mine(zone));
        let cell = self.cell().health().name.clone();
        if told.is_empty() {
            if !self.known.is_empty() && self.put.is_empty() {
                tracing::warn!(
                    cell,
                    zones = self.known.len(),
                    "the store has no zones, and is given those known here"
                );
            }
            self.put = self.known.iter().map(|(zone, _)| zone.clone()).collect();
        } else if is_first {
            let differ = differences(&self.known, &told);
            if !differ.is_empty() {
                warn_of_differences(&differ);
            }
            self.known.clear();
        }
        let names: BTreeSet<&ZoneId> = told.iter().map(|(zone, _)| zone).collect();
        self.put.retain(|zone| !names.contains(zone));
        let mut serve: Vec<_> =
            told.iter().map(|(zone, policy)| (zone.clone(), *policy, Word::Kept)).collect();
        let mut missing = BTreeSet::new();
        for (zone, policy) in self.known.iter().filter(|(zone, _)| !names.contains(zone)) {
            if self.put.contains(zone) {
                serve.push((zone.clone(), *policy, Word::Missing));
            } else if !self.missing.contains(zone) {
                missing.insert(zone.clone());
                serve.push((zone.clone(), *policy, Word::Nothing));
            } else {
                tracing::info!(cell, %zone, "the zone is gone from the store, and not served any more");
            }
        }
        if !missing.is_empty() {
            self.pause = DOUBTFUL;
        }
        self.missing = missing;
        self.known = serve.iter().map(|(zone, policy, _)| (zone.clone(), *policy)).collect();
        let changed = self.gate.follow_zones(|zone| self.is_mine(zone), serve).await;
        // A new policy is in force once the zone was asked for it: the round after a change counts as one too.
        self.changed = std::mem::replace(&mut self.changing, changed) || changed;
    }

    fn cell(&self) -> &Arc<Cell<C>> {
        &self.cells.all()[self.at]
    }

    fn is_mine(&self, zone: &ZoneId) -> bool {
        self.cells.place_of(zone.as_str()) == Some(self.at)
    }
}

/// Says that the file's zones are not those that are served.
pub fn warn_of_differences(differ: &[String]) {
    const SHOWN: usize = 10;
    let more =
        if differ.len() > SHOWN { format!(" and {} more", differ.len() - SHOWN) } else { String::new() };
    tracing::warn!(
        "the store keeps the zones, and the file says otherwise: {}{more}; `weir zones apply FILE` changes the store",
        differ[..differ.len().min(SHOWN)].join("; ")
    );
}
