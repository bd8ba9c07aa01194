//! Zones as an operator sees them: how they are written, the [`Desk`] where they are defined, and what `weir zones` does
//! with those that a store keeps.
//!
//! Invariant: `apply` only ever adds and changes; zones that are not named stay.

mod desk;
mod overlay;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use admission::{Policy, ZoneId};
use store::{Defined, Store, StoreError};

pub use admission::{Definition, Notice, NoticeFault};
pub use desk::{Change, DefineError, Desk, LooksOf};
pub use overlay::OverlayFault;
pub use store::Expected;

use crate::cells::Cells;

/// The most zones that a file has, or operators may define.
pub const ZONES_MAX: usize = 4_096;

/// A policy as a JSON object: [`Policy::fields`], numbers as numbers.
#[must_use]
pub fn json(policy: &Policy) -> String {
    let mut out = String::with_capacity(256);
    for (field, value) in policy.fields() {
        let quote = if value.parse::<u32>().is_ok() { "" } else { "\"" };
        let comma = if out.is_empty() { '{' } else { ',' };
        let _ = write!(out, r#"{comma}"{field}":{quote}{value}{quote}"#);
    }
    out.push('}');
    out
}

/// A definition as a JSON object: `policy` as [`json`] has it, and `notice`, by language.
#[must_use]
pub fn definition_json(definition: &Definition) -> String {
    let notice: BTreeMap<_, _> = definition.notice.iter().collect();
    let notice = serde_json::to_string(&notice).expect("texts by texts are JSON");
    format!(r#"{{"policy":{},"notice":{notice}}}"#, json(&definition.policy))
}

/// A definition in a sentence.
#[must_use]
pub fn sentence(definition: &Definition) -> String {
    let [mode, admit, sub_windows, polling_ms, idle_s, ttl_s, failure, waits, entries] =
        definition.policy.fields().map(|(_, value)| value);
    let limits = [("waits", waits), ("entries", entries)].map(|(what, limit)| {
        if limit == "0" { String::new() } else { format!(", {limit} {what} a minute a client") }
    });
    format!(
        "{mode}, {admit} a minute in {sub_windows} sub-windows, asked every {polling_ms} ms, idle after {idle_s} s, \
         passes for {ttl_s} s, {failure} without a store{}{}",
        limits.concat(),
        if definition.notice.is_empty() {
            String::new()
        } else {
            format!(", {}", notice(&definition.notice))
        }
    )
}

/// What differs from `old` in `new`, as in `mode auto -> hold`; empty where nothing does.
#[must_use]
pub fn changes(old: &Definition, new: &Definition) -> Vec<String> {
    let pairs = old.policy.fields().into_iter().zip(new.policy.fields());
    let mut changes: Vec<_> = pairs
        .filter(|(old, new)| old != new)
        .map(|((name, old), (_, new))| format!("{name} {old} -> {new}"))
        .collect();
    if old.notice != new.notice {
        changes.push(format!("{} -> {}", notice(&old.notice), notice(&new.notice)));
    }
    changes
}

/// A notice in a few words: its languages.
fn notice(notice: &Notice) -> String {
    let languages: Vec<_> = notice.iter().map(|(language, _)| language).collect();
    if languages.is_empty() {
        "no notice".to_owned()
    } else {
        format!("a notice in {}", languages.join(", "))
    }
}

/// In what the zones of a file differ from those that are kept.
#[must_use]
pub fn differences(file: &[(ZoneId, Definition)], kept: &[(ZoneId, Definition)]) -> Vec<String> {
    let differs = |(zone, policy): &(ZoneId, Definition)| match kept.iter().find(|(other, _)| other == zone) {
        None => Some(format!("{zone} is not in the store")),
        Some((_, other)) if other == policy => None,
        Some((_, other)) => Some(format!("{zone} has {} in the file", changes(other, policy).join(", "))),
    };
    file.iter().filter_map(differs).collect()
}

/// What became of a zone that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store has it now.
    Created(Definition),
    /// The store had it with another policy: what is different.
    Changed(Vec<String>),
    /// The store had it like that.
    Unchanged,
    /// Nothing is known: its store did not answer.
    Failed(StoreError),
}

/// What `weir zones apply` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Each zone of the file, in its order by cells.
    pub zones: Vec<(ZoneId, Outcome)>,
    /// Zones of the store that are not in the file.
    pub others: usize,
}

/// Puts zones into the cells that keep them. Of each that is another one now, `tell` is told, with its cell's place.
pub async fn apply<S: Store>(
    cells: &Cells<S>,
    wanted: &[(ZoneId, Definition)],
    mut tell: impl AsyncFnMut(usize, &ZoneId, &Definition),
) -> Applied {
    let mut applied = Applied { zones: Vec::new(), others: 0 };
    for (at, cell) in cells.all().iter().enumerate() {
        let of_cell: Vec<_> =
            wanted.iter().filter(|(zone, _)| cells.place_of(zone.as_str()) == Some(at)).collect();
        if of_cell.is_empty() {
            continue;
        }
        let kept = cell.ask().await;
        if let Ok(kept) = &kept {
            let is_other = |zone: &ZoneId| !of_cell.iter().any(|(wanted, _)| wanted == zone);
            applied.others += kept.zones.iter().filter(|(zone, _)| is_other(zone)).count();
        }
        for (zone, wanted) in of_cell {
            let outcome = match &kept {
                Err(error) => Outcome::Failed(error.clone()),
                Ok(_) => put(cells, zone, wanted).await,
            };
            if matches!(outcome, Outcome::Created(_) | Outcome::Changed(_)) {
                tell(at, zone, wanted).await;
            }
            applied.zones.push((zone.clone(), outcome));
        }
    }
    applied
}

/// Defines a zone, whatever it was.
async fn put<S: Store>(cells: &Cells<S>, zone: &ZoneId, wanted: &Definition) -> Outcome {
    let mut expected = Expected::Any;
    // Somebody else may create and delete it meanwhile; not for ever.
    for _ in 0..8 {
        expected = match cells.define(zone, &expected, Some(wanted)).await {
            Err(error) => return Outcome::Failed(error),
            Ok(Defined::Done(None)) => return Outcome::Created(wanted.clone()),
            Ok(Defined::Done(Some(old))) if old == *wanted => return Outcome::Unchanged,
            Ok(Defined::Done(Some(old))) => return Outcome::Changed(changes(&old, wanted)),
            Ok(Defined::Otherwise(None)) => Expected::Absent,
            Ok(Defined::Otherwise(Some(_))) => Expected::Any,
        };
    }
    Outcome::Failed(StoreError::Busy)
}

impl Applied {
    /// The first failure.
    #[must_use]
    pub fn failure(&self) -> Option<&StoreError> {
        self.zones.iter().find_map(|(_, outcome)| match outcome {
            Outcome::Failed(error) => Some(error),
            _ => None,
        })
    }
}

/// One line a zone, and one for all.
impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = [("created", 0), ("changed", 0), ("unchanged", 0), ("failed", 0)];
        let width = self.zones.iter().map(|(zone, _)| zone.as_str().len()).max().unwrap_or(0);
        for (zone, outcome) in &self.zones {
            let (kind, more) = match outcome {
                Outcome::Created(definition) => (0, sentence(definition)),
                Outcome::Changed(changes) => (1, changes.join(", ")),
                Outcome::Unchanged => (2, String::new()),
                Outcome::Failed(error) => (3, error.to_string()),
            };
            let (word, count) = &mut counts[kind];
            *count += 1;
            let line = format!("{word:<9}  {:<width$}  {more}", zone.as_str());
            writeln!(f, "{}", line.trim_end())?;
        }
        let counts = counts.map(|(word, count)| format!("{count} {word}")).join(", ");
        writeln!(f, "{counts}; {} more in the store stay as they are", self.others)
    }
}
