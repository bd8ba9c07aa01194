//! Zones as an operator sees them, and what `weir zones` does with those that a store keeps.
//!
//! Invariant: `apply` only ever adds and changes; zones that are not named stay.

use std::fmt::{self, Write as _};

use admission::{Mode, OnStoreFailure, Policy, ZoneId};
use store::{Store, StoreError};

use crate::cells::Cells;

/// A policy's fields by their names in the file.
#[must_use]
pub fn fields(policy: &Policy) -> [(&'static str, String); 9] {
    let Policy {
        mode,
        admit_per_minute,
        sub_windows,
        polling_period_ms,
        idle_timeout_s,
        pass_ttl_s,
        on_store_failure,
        waits_per_minute_per_client,
        entries_per_minute_per_client,
    } = policy;
    let mode = Mode::ALL.iter().find(|(known, _)| known == mode).map_or("", |(_, word)| word);
    let failure = OnStoreFailure::ALL.iter().find(|(known, _)| known == on_store_failure);
    [
        ("mode", mode.to_owned()),
        ("admit_per_minute", admit_per_minute.to_string()),
        ("sub_windows", sub_windows.to_string()),
        ("polling_period_ms", polling_period_ms.to_string()),
        ("idle_timeout_s", idle_timeout_s.to_string()),
        ("pass_ttl_s", pass_ttl_s.to_string()),
        ("on_store_failure", failure.map_or("", |(_, word)| word).to_owned()),
        ("waits_per_minute_per_client", waits_per_minute_per_client.to_string()),
        ("entries_per_minute_per_client", entries_per_minute_per_client.to_string()),
    ]
}

/// A policy as a JSON object: [`fields`], numbers as numbers.
#[must_use]
pub fn json(policy: &Policy) -> String {
    let mut out = String::with_capacity(256);
    for (field, value) in fields(policy) {
        let quote = if value.parse::<u32>().is_ok() { "" } else { "\"" };
        let comma = if out.is_empty() { '{' } else { ',' };
        let _ = write!(out, r#"{comma}"{field}":{quote}{value}{quote}"#);
    }
    out.push('}');
    out
}

/// A policy in a sentence.
#[must_use]
pub fn sentence(policy: &Policy) -> String {
    let [mode, admit, sub_windows, polling_ms, idle_s, ttl_s, failure, waits, entries] =
        fields(policy).map(|(_, value)| value);
    let limits = [("waits", waits), ("entries", entries)].map(|(what, limit)| {
        if limit == "0" { String::new() } else { format!(", {limit} {what} a minute a client") }
    });
    format!(
        "{mode}, {admit} a minute in {sub_windows} sub-windows, asked every {polling_ms} ms, idle after {idle_s} s, \
         passes for {ttl_s} s, {failure} without a store{}",
        limits.concat()
    )
}

/// What differs from `old` in `new`, as in `mode auto -> hold`; empty where nothing does.
#[must_use]
pub fn changes(old: &Policy, new: &Policy) -> Vec<String> {
    let pairs = fields(old).into_iter().zip(fields(new));
    pairs
        .filter(|(old, new)| old != new)
        .map(|((name, old), (_, new))| format!("{name} {old} -> {new}"))
        .collect()
}

/// In what the zones of a file differ from those that are kept.
#[must_use]
pub fn differences(file: &[(ZoneId, Policy)], kept: &[(ZoneId, Policy)]) -> Vec<String> {
    let differs = |(zone, policy): &(ZoneId, Policy)| match kept.iter().find(|(other, _)| other == zone) {
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
    Created(Policy),
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
    wanted: &[(ZoneId, Policy)],
    mut tell: impl AsyncFnMut(usize, &ZoneId, &Policy),
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
            applied.others += kept.iter().filter(|(zone, _)| is_other(zone)).count();
        }
        for (zone, policy) in of_cell {
            let before = kept.as_ref().map(|kept| kept.iter().find(|(other, _)| other == zone));
            let outcome = match before {
                Err(error) => Outcome::Failed(error.clone()),
                Ok(Some((_, old))) if old == policy => Outcome::Unchanged,
                Ok(old) => match cells.put_zone(zone, *policy).await {
                    Err(error) => Outcome::Failed(error),
                    Ok(_) => {
                        tell(at, zone, policy).await;
                        old.map_or(Outcome::Created(*policy), |(_, old)| {
                            Outcome::Changed(changes(old, policy))
                        })
                    }
                },
            };
            applied.zones.push((zone.clone(), outcome));
        }
    }
    applied
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
                Outcome::Created(policy) => (0, sentence(policy)),
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
