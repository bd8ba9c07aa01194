//! Follows the zones that a cell keeps: what one server, or `weir zones apply`, puts there, all servers serve.
//!
//! The store is the truth. The file's zones are put into it only where it never had any, as on the first start, or has
//! lost everything: then it is what was served last. The store is asked twice a second, and at once when
//! another server says that something changed (see [`crate::fanout`]). Invariants: a change is in force within a second
//! of being made, whatever is heard or not; a cell that does not answer changes nothing about what is served.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admission::{Definition, ZoneId};
use store::{Store, StoreError};
use tokio::{
    sync::{Notify, oneshot, watch},
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

/// The longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(2);

type Zones = Vec<(ZoneId, Definition)>;

/// What a cell answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Its zones, which are taken in.
    Told,
    /// That it has too much to do.
    Busy,
    /// Nothing.
    Away,
}

/// A watcher's looks at its cell, for who needs one that is not of before.
pub struct Looks {
    /// Told when something is said to have changed.
    news: Arc<Notify>,
    /// Looks begun on being told.
    begun: AtomicU64,
    /// The last of those that ended.
    ended: watch::Sender<u64>,
}

impl Looks {
    /// Has the cell looked at now, and waits until what it tells is taken in. Takes as long as the cell is away.
    pub async fn fresh(&self) {
        let next = self.begun.load(Ordering::SeqCst) + 1;
        self.news.notify_one();
        // The watcher has the sender too: an error is the server's end.
        let _ = self.ended.subscribe().wait_for(|ended| *ended >= next).await;
    }
}

/// Watches one cell for one gate.
pub struct Watcher<S, C> {
    gate: Arc<Gate<S>>,
    cells: Arc<Cells<C>>,
    at: usize,
    /// What the cell is to keep: the file's zones at first, what it told last from then on.
    known: Zones,
    every: Duration,
    pause: Duration,
    looks: Arc<Looks>,
    /// Whether anybody was told how the cell is.
    told: bool,
    /// The last round changed something.
    changing: bool,
    /// What is served is not what it was when somebody was last told.
    changed: bool,
}

impl<S: Store, C: Store> Watcher<S, C> {
    /// For the cell `at` of `cells`; `file` has the zones of the configuration, its own and those of others.
    pub fn new(gate: Arc<Gate<S>>, cells: Arc<Cells<C>>, at: usize, file: &[(ZoneId, Definition)]) -> Self {
        let known =
            file.iter().filter(|(zone, _)| cells.place_of(zone.as_str()) == Some(at)).cloned().collect();
        Self {
            gate,
            cells,
            at,
            known,
            every: EVERY,
            pause: EVERY,
            looks: Arc::new(Looks {
                news: Arc::default(),
                begun: AtomicU64::new(0),
                ended: watch::Sender::new(0),
            }),
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
        Arc::clone(&self.looks.news)
    }

    /// Its looks at the cell.
    #[must_use]
    pub fn looks(&self) -> Arc<Looks> {
        Arc::clone(&self.looks)
    }

    /// Runs for ever. `first` hears when the cell was asked once, `changed` when other zones or policies are served.
    pub async fn run(mut self, first: oneshot::Sender<()>, changed: Arc<Notify>) {
        let mut first = Some(first);
        let mut told = false;
        loop {
            let look = told.then(|| 1 + self.looks.begun.fetch_add(1, Ordering::SeqCst));
            let asked = self.ask(told).await;
            if let (Some(look), Asked::Told) = (look, asked) {
                self.looks.ended.send_replace(look);
            }
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
                () = self.looks.news.notified(), if asked != Asked::Away => true,
            };
        }
    }

    /// Asks once. What the cell told a moment ago is good enough, unless it is `told` that there is news.
    async fn ask(&mut self, told: bool) -> Asked {
        let cell = &self.cells.all()[self.at];
        let (connected, answered) = (cell.is_connected(), cell.has_answered());
        let mut kept = if told { cell.zones_now().await } else { cell.zones().await };
        if kept.as_ref().is_ok_and(|kept| kept.is_new) && !self.known.is_empty() {
            let (cell, zones) = (&cell.health().name, self.known.len());
            tracing::warn!(cell, zones, "the store never had zones, and is given those known here");
            kept = self.cell().begin(&self.known).await.map(Arc::new);
        }
        match kept {
            Ok(kept) => {
                if cell.health().set_up(true) && self.told {
                    tracing::info!(cell = cell.health().name, "the store is back");
                }
                self.told = true;
                self.pause = self.every;
                self.take_in(kept.zones.clone(), !answered).await;
                Asked::Told
            }
            Err(error) => {
                self.pause = if connected { self.every } else { (self.pause * 2).min(MAX_PAUSE) };
                if matches!(error, StoreError::Busy) {
                    return Asked::Busy;
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
                        self.known.iter().map(|(zone, known)| (zone.clone(), known.clone(), Word::Nothing));
                    self.changed = self.gate.follow_zones(|zone| self.is_mine(zone), unknown.collect()).await;
                }
                Asked::Away
            }
        }
    }

    async fn take_in(&mut self, mut told: Zones, is_first: bool) {
        told.retain(|(zone, _)| self.is_mine(zone));
        if is_first {
            let differ = differences(&self.known, &told);
            if !differ.is_empty() {
                warn_of_differences(&differ);
            }
        } else {
            let gone = |zone: &ZoneId| told.binary_search_by(|(kept, _)| kept.cmp(zone)).is_err();
            for (zone, _) in self.known.iter().filter(|(zone, _)| gone(zone)) {
                let cell = &self.cell().health().name;
                tracing::info!(cell, %zone, "the zone is gone from the store, and not served any more");
            }
        }
        let serve = told.iter().map(|(zone, kept)| (zone.clone(), kept.clone(), Word::Kept)).collect();
        self.known = told;
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
