//! What is left in the zones of one cell, which several servers share.
//!
//! The cell keeps one entry for each zone. A server asks twice a second for those later than what it has, and now and then for all of
//! them. Invariants: of two entries of a zone the later one is shown. Entries that the cell lost are written back by a server that
//! remembers them. A cell that does not answer changes nothing about what is shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admission::{Stock, ZoneId};
use gate::cells::Cell;
use store::{
    StoreError,
    redis::{
        Redis,
        stock::{Entry, StockNews, StockSet},
    },
};
use tokio::{sync::Mutex as AsyncMutex, time::timeout};

use super::{Board, StockChange, json};
use crate::problem::{BUSY, Problem, TOO_MANY_ZONES};

/// One look in so many asks for all entries: a cell that lost some and got later ones since has the latest instant that the server knows.
/// With two looks a second, that is found within 10 s.
const WHOLE_EVERY: u32 = 20;

/// How long a change waits for its turn, where the calls before it take long.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a change is tried while others change the same zone, as in the register of zones: a slow server may lose many times in a row to one
/// that is fast.
const MAX_TRIES: usize = 32;

/// What is left in the zones of one cell.
pub(super) struct SharedStock {
    cell: Arc<Cell<Redis>>,
    board: Arc<Board>,
    /// Held while the cell is asked, so that answers are taken in in their order.
    asking: AsyncMutex<()>,
    known: Mutex<LastSeen>,
}

/// The entries as last seen.
#[derive(Default)]
struct LastSeen {
    latest_us: u64,
    by_zone: BTreeMap<String, Entry>,
    looks: u32,
    /// The zones whose entry cannot be read, as the log said.
    unreadable: BTreeSet<String>,
}

impl SharedStock {
    pub(super) fn new(cell: Arc<Cell<Redis>>, board: Arc<Board>) -> Self {
        Self { cell, board, asking: AsyncMutex::default(), known: Mutex::default() }
    }

    /// Takes in what other servers were told, and writes back what the cell lost.
    pub(super) async fn look(&self) {
        // The watcher of the cell says when it answers again.
        if !self.cell.health().is_up() {
            return;
        }
        let Ok(store) = self.cell.store() else { return };
        let _asking = self.asking.lock().await;
        let is_whole = {
            let mut known = self.known();
            known.looks = known.looks.wrapping_add(1);
            known.looks.is_multiple_of(WHOLE_EVERY)
        };
        if let Err(error) = self.look_at(store, is_whole).await {
            tracing::debug!(cell = self.cell.health().name, %error, "what is left is not known anew");
        }
    }

    async fn look_at(&self, store: &Redis, is_whole: bool) -> Result<(), StoreError> {
        let mut has_us = if is_whole { 0 } else { self.known().latest_us };
        let mut news = store.stock(has_us).await?;
        if news.latest_us < has_us {
            has_us = 0;
            news = store.stock(0).await?;
        }
        let lost = if has_us == 0 { self.lost_from(&news) } else { Vec::new() };
        self.take_in(&news);
        if !lost.is_empty() {
            let cell = &self.cell.health().name;
            tracing::warn!(
                cell,
                zones = lost.len(),
                "the store lost what is left in zones; it is written back"
            );
            self.take_in(&store.restore_stock(&lost).await?);
        }
        Ok(())
    }

    /// The entries that the server knows and that are not in `all`. Those that tell nothing are forgotten.
    fn lost_from(&self, all: &StockNews) -> Vec<Entry> {
        let kept: BTreeMap<&str, u64> =
            all.entries.iter().map(|entry| (entry.zone.as_str(), entry.at_us)).collect();
        let mut known = self.known();
        known.latest_us = all.latest_us;
        known.by_zone.retain(|zone, entry| !entry.text.is_empty() || kept.contains_key(zone.as_str()));
        let is_lost = |entry: &&Entry| kept.get(entry.zone.as_str()).is_none_or(|at_us| *at_us < entry.at_us);
        known.by_zone.values().filter(is_lost).cloned().collect()
    }

    /// Shows the entries that are later than what is known.
    fn take_in(&self, news: &StockNews) {
        let mut known = self.known();
        known.latest_us = known.latest_us.max(news.latest_us);
        let mut shown = Vec::new();
        for entry in &news.entries {
            let is_later = known.by_zone.get(&entry.zone).is_none_or(|now| now.at_us < entry.at_us);
            let Ok(zone) = ZoneId::parse(&entry.zone) else { continue };
            if !is_later {
                continue;
            }
            known.by_zone.insert(entry.zone.clone(), entry.clone());
            let stock = stock_of(Some(entry));
            if stock.is_ok() {
                known.unreadable.remove(&entry.zone);
            } else if known.unreadable.insert(entry.zone.clone()) {
                tracing::error!(%zone, "what is left cannot be read, and is not told; a newer server wrote it: upgrade this one");
            }
            shown.push((zone, stock.unwrap_or_default()));
        }
        // Under the lock, so that of two answers the later one is shown.
        if !shown.is_empty() {
            self.board.show(shown);
        }
    }

    pub(super) async fn change(
        &self,
        zone: &ZoneId,
        change: impl Fn(&Stock) -> Result<Stock, Problem>,
    ) -> Result<StockChange, Problem> {
        let away = |error: StoreError| match error {
            StoreError::Busy => Problem::from(BUSY).retry_after(1),
            error => Problem::of_unanswered(&error),
        };
        let store = self.cell.store().map_err(away)?;
        let Ok(_asking) = timeout(TURN_TIMEOUT, self.asking.lock()).await else {
            return Err(Problem::from(BUSY).retry_after(1));
        };
        let mut sent: Option<StockChange> = None;
        for _ in 0..MAX_TRIES {
            let (has_us, entry) = {
                let known = self.known();
                (known.latest_us, known.by_zone.get(zone.as_str()).cloned())
            };
            let read = stock_of(entry.as_ref());
            // What cannot be read counts as nothing: otherwise nobody could replace it.
            let before = read.clone().unwrap_or_default();
            let after = change(&before)?;
            match sent {
                // The answer to it was lost, and the client sent it again.
                Some(sent) if before == sent.after => return Ok(sent),
                _ if read.as_ref() == Ok(&after) => return Ok(StockChange { before, after }),
                _ => {}
            }
            let text = if after.is_empty() { String::new() } else { json::text(&after) };
            let at_us = entry.map_or(0, |entry| entry.at_us);
            let news = store.set_stock(has_us, zone.as_str(), at_us, &text).await.map_err(away)?;
            self.take_in(&news);
            let made = StockChange { before, after };
            match news.set {
                StockSet::Done => return Ok(made),
                StockSet::TooMany => return Err(TOO_MANY_ZONES.into()),
                StockSet::Otherwise => sent = Some(made),
            }
            // An entry that vanished from the cell is none that comes along.
            if !news.entries.iter().any(|entry| entry.zone == zone.as_str()) {
                self.look_at(store, true).await.map_err(away)?;
            }
        }
        Err(Problem::from(BUSY).retry_after(1))
    }

    fn known(&self) -> MutexGuard<'_, LastSeen> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stock of an entry.
fn stock_of(entry: Option<&Entry>) -> Result<Stock, ()> {
    match entry.map(|entry| entry.text.as_str()).unwrap_or_default() {
        "" => Ok(Stock::default()),
        text => json::stock(serde_json::from_str(text).map_err(|_| ())?).map_err(|_| ()),
    }
}
