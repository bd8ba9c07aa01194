//! What is left in zones that the configuration defines: `stock.json` in the data directory.
//!
//! Invariants: the file is always whole. A file that cannot be read is refused by its name, and never taken for empty.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use admission::{Stock, ZoneId};
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, task::spawn_blocking};

use super::{Board, StockChange, json};
use crate::{
    problem::{Problem, STORE_AWAY},
    whole_file,
};

const NAME: &str = "stock.json";

const VERSION: u32 = 1;

/// The longest file that is read, in bytes: the longest text of each of the zones that there may be.
const MAX_LEN: u64 = 64 << 20;

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}; restore it from a copy, or move it away: then nothing is told about what is left", path.display())]
pub struct StockFileFault {
    path: PathBuf,
    what: String,
}

/// The file, with what it has.
pub(super) struct StockFile {
    path: PathBuf,
    /// Held while the file is written, so that each change is based on the one before it.
    kept: Mutex<BTreeMap<ZoneId, Stock>>,
}

impl StockFile {
    /// Reads the file of a data directory, if there is one.
    pub(super) fn read(dir: &Path) -> Result<(Self, Vec<(ZoneId, Stock)>), StockFileFault> {
        let path = dir.join(NAME);
        let fault = |what: String| StockFileFault { path: path.clone(), what };
        let text =
            whole_file::read(&path, MAX_LEN).map_err(|error| fault(format!("cannot be read: {error}")))?;
        let kept = text.map_or(Ok(BTreeMap::new()), |text| parse(&text)).map_err(fault)?;
        let shown = kept.iter().map(|(zone, stock)| (zone.clone(), stock.clone())).collect();
        Ok((Self { path, kept: Mutex::new(kept) }, shown))
    }

    pub(super) async fn change(
        &self,
        board: &Board,
        zone: &ZoneId,
        change: impl Fn(&Stock) -> Result<Stock, Problem>,
    ) -> Result<StockChange, Problem> {
        let mut kept = self.kept.lock().await;
        let before = kept.get(zone).cloned().unwrap_or_default();
        let after = change(&before)?;
        if before != after {
            let mut next = kept.clone();
            match after.is_empty() {
                true => drop(next.remove(zone)),
                false => drop(next.insert(zone.clone(), after.clone())),
            }
            let (path, text) = (self.path.clone(), whole_text(&next));
            let written = spawn_blocking(move || whole_file::write(&path, &text)).await;
            let away = |why: String| Problem::new(STORE_AWAY, format!("{NAME}: {why}")).retry_after(3);
            written.map_err(|why| away(why.to_string()))?.map_err(|why| away(why.to_string()))?;
            *kept = next;
            board.show(vec![(zone.clone(), after.clone())]);
        }
        Ok(StockChange { before, after })
    }
}

fn whole_text(kept: &BTreeMap<ZoneId, Stock>) -> String {
    let zones: Map<_, _> =
        kept.iter().map(|(zone, stock)| (zone.to_string(), json!({ "tiers": json::tiers(stock) }))).collect();
    format!("{:#}\n", json!({ "version": VERSION, "zones": zones }))
}

fn parse(text: &str) -> Result<BTreeMap<ZoneId, Stock>, String> {
    let mut whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if whole["version"] != json!(VERSION) {
        return Err(format!("is of version {}, and this server reads {VERSION}", whole["version"]));
    }
    let Value::Object(zones) = whole["zones"].take() else { return Err("has no zones".to_owned()) };
    let one = |(zone, stock): (String, Value)| {
        let in_zone = |what: String| format!("zone {zone}: {what}");
        let id = ZoneId::parse(&zone).map_err(|fault| in_zone(fault.to_string()))?;
        let stock = json::stock(stock).map_err(|problem| in_zone(problem.detail.into_owned()))?;
        Ok((id, stock))
    };
    zones.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_set_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let zone = ZoneId::parse("Z").expect("an id");
        let floor = json!({"tiers": [{"id": "floor", "label": {"en": "Floor"}, "remaining": 7}]});
        let stock = json::stock(floor).expect("a stock");
        let (file, shown) = StockFile::read(dir.path()).expect("no file");
        assert!(shown.is_empty());
        let board = Board::default();
        let set = file.change(&board, &zone, |_| Ok(stock.clone())).await.expect("set");
        assert_eq!((&set.before, &set.after), (&Stock::default(), &stock));
        assert_eq!(board.shown.load()[&zone].stock, stock);
        let (_, shown) = StockFile::read(dir.path()).expect("a file");
        assert_eq!(shown, [(zone.clone(), stock)]);
        file.change(&board, &zone, |_| Ok(Stock::default())).await.expect("set");
        assert!(StockFile::read(dir.path()).expect("a file").1.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        for wrong in ["", "{}", r#"{"version": 2, "zones": {}}"#, r#"{"version": 1, "zones": {"Z": {}}}"#] {
            std::fs::write(dir.path().join(NAME), wrong).expect("written");
            let fault = StockFile::read(dir.path()).err().expect(wrong).to_string();
            assert!(fault.contains(NAME), "{fault}");
        }
    }
}
