//! When this server saw the rule of a zone change, and which record of its audit log has the change.
//!
//! The file `rules.json` keeps both over a restart, so that a restart is no change. It is beside the log whose lines it names, because
//! servers may share a data directory, and may be given another log; without a log it is in the data directory. Invariants: a change is
//! recorded once, or again if the server ended before it knew the line. A file that cannot be read is reported and replaced: then every
//! rule counts as changed now.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admission::{Definition, ZoneId};
use arc_swap::ArcSwap;
use audit::Head;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::oneshot, task::spawn_blocking, time::sleep};

use super::{Bypasses, Followed, digest, rule};
use crate::{clock::unix_ms, whole_file};

const NAME: &str = "rules.json";

const VERSION: u32 = 1;

/// The longest file that is read, in bytes: some hundred for each of the zones that there may be.
const MAX_LEN: u64 = 8 << 20;

/// How often the rules are compared with those seen before.
const EVERY: Duration = Duration::from_millis(500);

/// A rule as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SeenRule {
    /// What differs where the rule differs.
    pub digest: String,
    /// When this server saw it first, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number and hash of the line of this server's audit log that has it, if there is one.
    pub record: Option<(u64, String)>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}; every rule counts as changed now", path = path.display())]
pub struct SeenFault {
    path: PathBuf,
    what: String,
}

#[derive(Deserialize)]
struct Whole {
    version: u32,
    zones: BTreeMap<String, SeenRule>,
}

type Rules = HashMap<ZoneId, SeenRule>;

/// The rules as this server saw them.
pub struct SeenRules {
    path: PathBuf,
    seen: ArcSwap<Rules>,
    /// When this server started, in milliseconds since 1970.
    pub started_ms: u64,
}

/// What a rule was made of, so that it is made again only if one of them changes.
type Made = (Definition, Bypasses);

impl SeenRules {
    /// Reads what was seen before the server started, with a log in `audit_dir` if there is one. A file that cannot be used is logged.
    #[must_use]
    pub fn read(data_dir: &Path, audit_dir: Option<&Path>) -> Arc<Self> {
        let path = audit_dir.unwrap_or(data_dir).join(NAME);
        let seen = seen_before(&path, &data_dir.join(NAME)).unwrap_or_else(|fault| {
            tracing::warn!("{fault}");
            Rules::new()
        });
        Arc::new(Self { path, seen: ArcSwap::from_pointee(seen), started_ms: unix_ms() })
    }

    /// The rule of a zone, as it was seen last.
    pub(super) fn of(&self, zone: &ZoneId) -> Option<SeenRule> {
        self.seen.load().get(zone).cloned()
    }

    /// Notes changes of the rules, for ever. One caller.
    pub async fn follow(self: Arc<Self>, followed: Followed) {
        let mut made: HashMap<ZoneId, Made> = HashMap::new();
        let mut recorded: Vec<(ZoneId, String, oneshot::Receiver<Head>)> = Vec::new();
        loop {
            let mut next = Rules::clone(&self.seen.load());
            let before = next.clone();
            let answers: HashMap<_, _> = followed.gate.zones().into_iter().collect();
            next.retain(|zone, _| answers.contains_key(zone));
            made.retain(|zone, _| answers.contains_key(zone));
            for (zone, definition) in followed.gate.definitions() {
                // Before its store answers, a zone has the definition that the server knew at its start.
                if answers.get(&zone) != Some(&true) {
                    continue;
                }
                let (bypasses, _) = Bypasses::of(&zone, &followed.routes);
                let now = (definition, bypasses);
                if made.get(&zone) == Some(&now) {
                    continue;
                }
                let rule = rule(&now.0, now.1);
                let digest = digest(&rule);
                made.insert(zone.clone(), now);
                let known = next.get(&zone);
                let is_same = known.is_some_and(|known| known.digest == digest);
                // Without a record, the server ended before it knew the line, or had no log yet.
                let has_record = known.is_some_and(|known| known.record.is_some());
                if is_same && (has_record || !followed.recorder.has_log()) {
                    continue;
                }
                let old = known.map(|known| known.digest.as_str());
                if let Some(receipt) = followed.recorder.write_rule(&zone, old, &digest, rule.to_string()) {
                    recorded.push((zone.clone(), digest.clone(), receipt));
                }
                let at_ms = known.filter(|_| is_same).map_or_else(unix_ms, |known| known.at_ms);
                next.insert(zone, SeenRule { digest, at_ms, record: None });
            }
            // The log may be behind, or its disk full.
            recorded.retain_mut(|(zone, digest, receipt)| match receipt.try_recv() {
                Ok(head) => {
                    if let Some(known) = next.get_mut(zone).filter(|known| known.digest == *digest) {
                        known.record = Some((head.n, head.hash.to_hex().to_string()));
                    }
                    false
                }
                Err(oneshot::error::TryRecvError::Empty) => true,
                Err(oneshot::error::TryRecvError::Closed) => false,
            });
            if next != before {
                let (path, text) = (self.path.clone(), text(&next));
                // Kept first: what somebody has read is the same after a crash.
                let written = spawn_blocking(move || whole_file::write(&path, &text)).await;
                if let Ok(Err(why)) = written {
                    let file = self.path.display();
                    tracing::warn!(%file, %why, "the rules that were seen are not kept: after a restart they count as changed then");
                }
                self.seen.store(Arc::new(next));
            }
            sleep(EVERY).await;
        }
    }
}

/// What the file has. A log that is new has no file: then it is what was seen without it, and the new log has no line of that.
fn seen_before(path: &Path, without_log: &Path) -> Result<Rules, SeenFault> {
    if let Some(rules) = read(path)? {
        return Ok(rules);
    }
    let mut rules = read(without_log)?.unwrap_or_default();
    rules.values_mut().for_each(|seen| seen.record = None);
    Ok(rules)
}

fn read(path: &Path) -> Result<Option<Rules>, SeenFault> {
    let fault = |what: String| SeenFault { path: path.to_owned(), what };
    let text = whole_file::read(path, MAX_LEN).map_err(|why| fault(why.to_string()))?;
    let Some(text) = text else { return Ok(None) };
    let whole: Whole = serde_json::from_str(&text).map_err(|why| fault(why.to_string()))?;
    if whole.version != VERSION {
        return Err(fault(format!("is of version {}", whole.version)));
    }
    let zone = |(zone, seen): (String, SeenRule)| {
        let zone = ZoneId::parse(&zone).map_err(|why| fault(format!("{zone}: {why}")))?;
        Ok((zone, seen))
    };
    whole.zones.into_iter().map(zone).collect::<Result<_, _>>().map(Some)
}

fn text(rules: &Rules) -> String {
    let zones: BTreeMap<&str, &SeenRule> = rules.iter().map(|(zone, seen)| (zone.as_str(), seen)).collect();
    format!("{:#}\n", json!({ "version": VERSION, "zones": zones }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_read_again_and_what_cannot_be_read_is_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(NAME);
        assert_eq!(read(&path).expect("no file"), None);
        let zone = ZoneId::parse("Z").expect("an id");
        let seen = SeenRule { digest: "ab".to_owned(), at_ms: 7, record: Some((3, "cd".to_owned())) };
        let rules = Rules::from([(zone, seen)]);
        whole_file::write(&path, &text(&rules)).expect("written");
        assert_eq!(read(&path).expect("a file").as_ref(), Some(&rules));
        let of_log = dir.path().join("log").join(NAME);
        let seen = seen_before(&of_log, &path).expect("a file");
        assert!(
            seen.values().all(|seen| seen.at_ms == 7 && seen.record.is_none()),
            "the new log has no line of it"
        );
        std::fs::create_dir(dir.path().join("log")).expect("made");
        whole_file::write(&of_log, &text(&rules)).expect("written");
        assert_eq!(seen_before(&of_log, &path).expect("a file"), rules);
        for wrong in ["", "{}", r#"{"version": 2, "zones": {}}"#] {
            std::fs::write(&path, wrong).expect("written");
            assert!(read(&path).expect_err(wrong).to_string().contains(NAME), "{wrong}");
        }
    }
}
