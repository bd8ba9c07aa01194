//! What is left in the zones, as people who wait are told it: `docs/operate/stock.md` says what operators can set.
//!
//! Each change makes the bytes that polls get, once. A poll finds its zone's bytes without a lock, and copies them. With a store in
//! Redis, its cell keeps what was set, beside the register (`shared`); otherwise it is a file in the data directory (`file`).
//! Invariants: nothing here decides who enters, when, or which wait is told. A zone without stock costs a poll one look into a map. Of
//! changes that are made at the same time, each is based on the one before it.

mod file;
pub mod json;
mod shared;

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admission::{Stock, ZoneId};
use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use gate::{Reason, cells::Cells};
use store::redis::Redis;
use tokio::{sync::Semaphore, time::sleep};

use crate::problem::{BUSY, NO_CELL, Problem};
use file::StockFile;
pub use file::StockFileFault;
use shared::SharedStock;

/// How often a server asks what other servers were told.
const EVERY: Duration = Duration::from_millis(500);

/// The most changes that wait at once for one store, or for the disk.
const MAX_WAITING: usize = 64;

/// What one zone has in stock, and how people are told.
#[derive(Debug)]
pub struct InStock {
    /// What was set.
    pub stock: Stock,
    /// Another one than that of the stock before it, if more than a number differs, or a tier is sold out or back. Never 0.
    pub news: u64,
    /// What the object `waiting` of a poll has beside its other fields, with a comma before it.
    pub in_polls: Box<str>,
    /// What [`json::document`] wrote.
    pub document: Bytes,
    /// How many pieces are left of everything, if that is known.
    total: Option<u64>,
}

impl InStock {
    /// Makes the bytes of a stock.
    pub(crate) fn new(stock: Stock, news: u64) -> Self {
        let texts = json::texts_tag(&stock);
        let in_polls = format!(r#","stock":{}"#, json::in_polls(&stock, &texts)).into();
        let document = json::document(&stock, &texts).into();
        Self { total: stock.total(), news, in_polls, document, stock }
    }

    /// Whether as many people are ahead of somebody who is told this rank as pieces are left, or more. Each of them may take one. Before a
    /// draw nobody has a rank, and everybody may be the first.
    #[must_use]
    pub fn is_beyond(&self, rank: u64, reason: Option<Reason>) -> bool {
        reason != Some(Reason::Draw) && self.total.is_some_and(|total| rank > total)
    }
}

/// A change that was made, or that would be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockChange {
    /// The stock before.
    pub before: Stock,
    /// The stock after it.
    pub after: Stock,
}

/// What all zones have in stock.
type Shown = HashMap<ZoneId, Arc<InStock>>;

/// What this server shows, for polls and for the [`StockHome`] that changes it.
#[derive(Default)]
struct Board {
    shown: ArcSwap<Shown>,
    /// Held while `shown` is replaced.
    replacing: Mutex<()>,
    news: AtomicU64,
}

impl Board {
    /// Shows these stocks from now on. An empty one is not shown.
    fn show(&self, changed: Vec<(ZoneId, Stock)>) {
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = Shown::clone(&self.shown.load());
        for (zone, stock) in changed {
            if stock.is_empty() {
                shown.remove(&zone);
            } else {
                let before = shown.get(&zone).filter(|before| !before.stock.differs_notably(&stock));
                let news = before
                    .map_or_else(|| 1 + self.news.fetch_add(1, Ordering::Relaxed), |before| before.news);
                shown.insert(zone, Arc::new(InStock::new(stock, news)));
            }
        }
        self.shown.store(Arc::new(shown));
    }
}

/// Where what was set is kept.
enum StockHome {
    File(StockFile),
    /// One for each cell.
    Cells(Arc<Cells<Redis>>, Vec<SharedStock>),
}

/// What is left in all zones.
pub struct Stocks {
    board: Arc<Board>,
    home: StockHome,
    waiting: Semaphore,
}

impl Stocks {
    /// Of zones that the configuration defines: what was set is kept in the directory `dir`.
    ///
    /// # Errors
    /// A [`StockFileFault`] if there is such a file that cannot be read.
    pub fn in_dir(dir: &Path) -> Result<Self, StockFileFault> {
        let (file, kept) = StockFile::read(dir)?;
        let board = Arc::<Board>::default();
        board.show(kept);
        Ok(Self::over(board, StockHome::File(file)))
    }

    /// Of zones that `cells` keep. [`Stocks::follow`] reads what was set.
    #[must_use]
    pub fn in_cells(cells: Arc<Cells<Redis>>) -> Self {
        let board = Arc::<Board>::default();
        let of = |cell| SharedStock::new(Arc::clone(cell), Arc::clone(&board));
        let shared = cells.all().iter().map(of).collect();
        Self::over(board, StockHome::Cells(cells, shared))
    }

    fn over(board: Arc<Board>, home: StockHome) -> Self {
        Self { board, home, waiting: Semaphore::new(MAX_WAITING) }
    }

    /// What all zones have in stock now, for a look without a lock. Do not keep it over an `await`.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Shown>> {
        self.board.shown.load()
    }

    /// What a zone has in stock, if anything is told about it.
    #[must_use]
    pub fn of(&self, zone: &str) -> Option<Arc<InStock>> {
        self.load().get(zone).cloned()
    }

    /// What was set for a zone; nothing if nothing was.
    #[must_use]
    pub fn stock_of(&self, zone: &ZoneId) -> Stock {
        self.load().get(zone).map(|known| known.stock.clone()).unwrap_or_default()
    }

    /// Takes in what all cells have that answer, before the first poll is answered: otherwise a server that has just started would tell
    /// nothing for a moment.
    pub async fn look(&self) {
        if let StockHome::Cells(_, shared) = &self.home {
            for cell in shared {
                cell.look().await;
            }
        }
    }

    /// Takes in what other servers of the cell with this index are told, for ever. Returns at once if there is no such cell: no other
    /// server shares the zones then.
    pub async fn follow(self: Arc<Self>, cell: usize) {
        let StockHome::Cells(_, shared) = &self.home else { return };
        let Some(cell) = shared.get(cell) else { return };
        loop {
            cell.look().await;
            sleep(EVERY).await;
        }
    }

    /// Changes what a zone has in stock to the result of `change`, which may be asked again if somebody else made a change meanwhile.
    /// This server shows it on return, others within a second. Finish it even if the caller goes away.
    ///
    /// # Errors
    /// Those of `change`, and those of the store or the disk.
    pub async fn change(
        &self,
        zone: &ZoneId,
        change: impl Fn(&Stock) -> Result<Stock, Problem>,
    ) -> Result<StockChange, Problem> {
        let Ok(_waiting) = self.waiting.try_acquire() else { return Err(Problem::from(BUSY).retry_after(1)) };
        match &self.home {
            StockHome::File(file) => file.change(&self.board, zone, change).await,
            StockHome::Cells(cells, shared) => {
                let at = cells.place_of(zone.as_str());
                let Some(cell) = at.map(|at| &shared[at]) else { return Err(NO_CELL.into()) };
                cell.change(zone, change).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::Tier;
    use serde_json::{Value, json};

    use super::*;

    fn stock(tiers: &Value) -> Stock {
        json::stock(json!({ "tiers": tiers })).expect("a stock")
    }

    #[test]
    fn a_rank_is_beyond_if_as_many_are_ahead_as_pieces_are_left() {
        let of = |tiers: &Value| InStock::new(stock(tiers), 1);
        let tier =
            |id: &str, remaining: Value| json!({"id": id, "label": {"en": id}, "remaining": remaining});
        let some = of(&json!([tier("a", 2.into()), tier("b", 3.into())]));
        assert!(!some.is_beyond(5, None), "four are ahead, and five pieces are left");
        assert!(some.is_beyond(6, None) && some.is_beyond(6, Some(Reason::Held)));
        assert!(!some.is_beyond(6, Some(Reason::Draw)), "nobody has a rank before the draw");
        assert!(of(&json!([tier("a", 0.into())])).is_beyond(1, None), "nothing is left");
        let unknown = of(&json!([tier("a", 0.into()), tier("b", Value::Null)]));
        assert!(!unknown.is_beyond(u64::MAX, None), "nobody knows how many are left of b");
    }

    #[test]
    fn a_change_makes_the_bytes_of_polls_once() {
        let board = Board::default();
        let zone = |id: &str| ZoneId::parse(id).expect("an id");
        let floor = json!([{"id": "floor", "label": {"en": "A \"b\""}, "remaining": 7}, {"id": "x", "label": {"en": "X"}}]);
        board.show(vec![(zone("Z"), stock(&floor))]);
        let first = board.shown.load().get("Z").cloned().expect("shown");
        let tag = json::texts_tag(&first.stock);
        assert_eq!(
            &*first.in_polls,
            format!(r#","stock":{{"texts":"{tag}","remaining":{{"floor":7,"x":null}}}}"#)
        );
        board.show(vec![(zone("Y"), stock(&floor))]);
        let now = board.shown.load();
        assert!(Arc::ptr_eq(&first, &now["Z"]), "another zone's change makes nothing anew");
        assert_ne!(now["Y"].news, first.news);
        let fewer = json!([{"id": "floor", "label": {"en": "A \"b\""}, "remaining": 6}, {"id": "x", "label": {"en": "X"}}]);
        board.show(vec![(zone("Z"), stock(&fewer))]);
        assert_eq!(board.shown.load()["Z"].news, first.news, "one piece less is no news for a stream");
        board.show(vec![
            (zone("Z"), stock(&floor)),
            (zone("Z"), stock(&json!([{"id": "floor", "label": {"en": "B"}}]))),
        ]);
        assert_ne!(board.shown.load()["Z"].news, first.news, "another label is");
        board.show(vec![(zone("Z"), Stock::default())]);
        assert!(!board.shown.load().contains_key("Z"));
    }

    #[test]
    fn the_bytes_of_polls_are_bounded() {
        let id = |at: usize| format!("{at:0>32}");
        let most = u64::from(Tier::REMAINING_MAX);
        let tiers: Vec<_> = (0..Stock::TIERS_MAX)
            .map(|at| json!({"id": id(at), "label": {"en": "x".repeat(80)}, "remaining": most}))
            .collect();
        let stock = InStock::new(stock(&tiers.into()), 1);
        assert!(stock.in_polls.len() < 800, "{}", stock.in_polls.len());
    }
}
