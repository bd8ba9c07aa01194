//! What `weir zones apply` does: puts zones into the cells that keep them.
//!
//! Invariants: `apply` only adds and changes zones; zones that are not named stay. Each zone is changed from the definition that was
//! compared, so nothing that comes meanwhile ends unseen.

use std::{fmt, sync::Arc};

use admission::{Definition, Schedule, ScheduleFault, ZoneId};
use store::{Defined, Expected, RegisterContents, Store, StoreError};

use super::{ZONES_MAX, sentence};
use crate::{
    cells::Cells,
    held_draw::{event_of_held_draw, is_of_a_held_draw},
};

/// How zones are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Changes nothing, and says what would be changed.
    pub dry_run: bool,
    /// Also ends what [`Definition::ended_by`] names. Without it, such a zone stays as it is.
    pub replace: bool,
}

/// What happened to a zone that was applied, or would happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneApplied {
    /// The store did not have it, and has it now.
    Created(Definition),
    /// The store had another definition: these fields changed.
    Changed(Vec<String>),
    /// The store had it already.
    Unchanged,
    /// The store has a draw whose list is frozen, and the file would make another event of it. Nothing was changed.
    Frozen(ScheduleFault),
    /// The store has a hold or events that the file would end: these. Nothing was changed.
    Ended(Vec<String>),
    /// The stores have as many zones as there may be. Nothing was changed.
    TooMany,
    /// An event by lot of the file has the name of one that had a draw. Nothing was changed.
    HeldDraw(ZoneId),
    /// The store did not say what it has, or others changed the zone again and again. Nothing was changed.
    Failed(StoreError),
    /// The store did not answer to the change, which may be made nevertheless.
    Unanswered(StoreError),
}

impl ZoneApplied {
    /// Whether the zone becomes another one.
    const fn is_change(&self) -> bool {
        matches!(self, Self::Created(_) | Self::Changed(_))
    }
}

/// The result of `weir zones apply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Each zone of the file, grouped by cell.
    pub zones: Vec<(ZoneId, ZoneApplied)>,
    /// Zones of the store that are not in the file.
    pub others: usize,
    /// The cells that did not list their zones, and why.
    pub uncounted: Vec<(String, StoreError)>,
}

/// Puts zones into the cells that keep them. Calls `tell` with the cell's index for each zone that was created or
/// changed.
pub async fn apply<S: Store>(
    cells: &Arc<Cells<S>>,
    wanted: &[(ZoneId, Definition)],
    options: ApplyOptions,
    mut tell: impl AsyncFnMut(usize, &ZoneId, &Definition),
) -> Applied {
    let mut applied = Applied { zones: Vec::new(), others: 0, uncounted: Vec::new() };
    let mut found = Vec::new();
    for cell in cells.all() {
        found.push(cell.ask().await);
    }
    let mut count: usize = found.iter().flatten().map(|kept| kept.zones.len()).sum();
    for (at, (cell, kept)) in cells.all().iter().zip(found).enumerate() {
        let of_cell: Vec<_> =
            wanted.iter().filter(|(zone, _)| cells.place_of(zone.as_str()) == Some(at)).collect();
        match &kept {
            Ok(kept) => {
                let is_other = |zone: &ZoneId| !of_cell.iter().any(|(wanted, _)| wanted == zone);
                applied.others += kept.zones.iter().filter(|(zone, _)| is_other(zone)).count();
            }
            Err(why) => applied.uncounted.push((cell.health().name.clone(), why.clone())),
        }
        for (zone, wanted) in of_cell {
            let is_new = |kept: &RegisterContents| !kept.zones.iter().any(|(of, _)| of == zone);
            let outcome = match &kept {
                Err(error) => ZoneApplied::Failed(error.clone()),
                Ok(kept) if count >= ZONES_MAX && is_new(kept) => ZoneApplied::TooMany,
                Ok(kept) => put(cells, kept, zone, wanted, options).await,
            };
            count += usize::from(matches!(outcome, ZoneApplied::Created(_)));
            if !options.dry_run && outcome.is_change() {
                tell(at, zone, wanted).await;
            }
            applied.zones.push((zone.clone(), outcome));
        }
    }
    applied
}

/// Defines a zone, whether or not it exists, unless that is refused or only tried.
async fn put<S: Store>(
    cells: &Arc<Cells<S>>,
    kept: &RegisterContents,
    zone: &ZoneId,
    wanted: &Definition,
    options: ApplyOptions,
) -> ZoneApplied {
    let (unix_s, line, no_events) = (kept.unix_ms / 1_000, cells.line(zone), Schedule::default());
    let mut now = kept.zones.iter().find(|(of, _)| of == zone).map(|(_, now)| now.clone());
    // Others may change it meanwhile, so the number of attempts is limited.
    for _ in 0..8 {
        let outcome = outcome(now.as_ref(), wanted, unix_s, options.replace);
        if !outcome.is_change() {
            return outcome;
        }
        let before = now.as_ref().map_or(&no_events, |now| &now.schedule);
        match event_of_held_draw(&line, before, &wanted.schedule, unix_s).await {
            Ok(None) => {}
            Ok(Some(event)) => return ZoneApplied::HeldDraw(event),
            Err(error) => return ZoneApplied::Failed(error),
        }
        if options.dry_run {
            return outcome;
        }
        let expected = now.as_ref().map_or(Expected::Absent, |now| Expected::Tag(now.etag()));
        now = match cells.define(zone, &expected, Some(wanted)).await {
            Err(error) => return ZoneApplied::Unanswered(error),
            Ok(Defined::Done(_)) => return outcome,
            Ok(Defined::Frozen(event)) => return ZoneApplied::Frozen(ScheduleFault::Frozen(event)),
            Ok(Defined::Otherwise(found)) => found,
        };
    }
    ZoneApplied::Failed(StoreError::Busy)
}

/// What happens to a zone that is so now, at `unix_s` (seconds since 1970).
fn outcome(now: Option<&Definition>, wanted: &Definition, unix_s: u64, replace: bool) -> ZoneApplied {
    let Some(now) = now else { return ZoneApplied::Created(wanted.clone()) };
    if now == wanted {
        return ZoneApplied::Unchanged;
    }
    if let Err(fault) = now.schedule.check_frozen(&wanted.schedule, unix_s) {
        return ZoneApplied::Frozen(fault);
    }
    match now.ended_by(wanted, unix_s) {
        ended if replace || ended.is_empty() => ZoneApplied::Changed(now.changes(wanted)),
        ended => ZoneApplied::Ended(ended),
    }
}

impl Applied {
    /// The first failure. Without zones, it is that of the first cell that did not answer: nothing else shows that the store is away.
    #[must_use]
    pub fn failure(&self) -> Option<&StoreError> {
        let mut failed = self.zones.iter().filter_map(|(_, outcome)| match outcome {
            ZoneApplied::Failed(error) | ZoneApplied::Unanswered(error) => Some(error),
            _ => None,
        });
        let mut away = self.uncounted.iter().filter(|_| self.zones.is_empty());
        failed.next().or_else(|| away.next().map(|(_, why)| why))
    }

    /// Whether a zone stays as it is, because a draw of it has begun or was held, or the file would end something.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let refused = |outcome: &ZoneApplied| {
            use ZoneApplied::{Ended, Frozen, HeldDraw, TooMany};
            matches!(outcome, Frozen(_) | Ended(_) | HeldDraw(_) | TooMany)
        };
        self.zones.iter().any(|(_, outcome)| refused(outcome))
    }
}

/// One line for each zone, and a summary.
impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = [("created", 0), ("changed", 0), ("unchanged", 0), ("refused", 0), ("failed", 0)];
        let width = self.zones.iter().map(|(zone, _)| zone.as_str().len()).max().unwrap_or(0);
        for (zone, outcome) in &self.zones {
            let (kind, more) = match outcome {
                ZoneApplied::Created(definition) => (0, sentence(definition)),
                ZoneApplied::Changed(changes) => (1, changes.join(", ")),
                ZoneApplied::Unchanged => (2, String::new()),
                ZoneApplied::Frozen(fault) => (3, fault.to_string()),
                ZoneApplied::Ended(ended) => (
                    3,
                    format!(
                        "the file would end {}; correct the file, or do as it says with --replace",
                        ended.join("; ")
                    ),
                ),
                ZoneApplied::HeldDraw(event) => (3, is_of_a_held_draw(event)),
                ZoneApplied::TooMany => {
                    (3, format!("the store has {ZONES_MAX} zones, which are the most; delete one first"))
                }
                ZoneApplied::Failed(error) => (4, error.to_string()),
                ZoneApplied::Unanswered(error) => {
                    (4, format!("{error}; the change may be made nevertheless"))
                }
            };
            let (word, count) = &mut counts[kind];
            *count += 1;
            let line = format!("{word:<9}  {:<width$}  {more}", zone.as_str());
            writeln!(f, "{}", line.trim_end())?;
        }
        let counts = counts.map(|(word, count)| format!("{count} {word}")).join(", ");
        write!(f, "{counts}; {} more in the store stay as they are", self.others)?;
        match &self.uncounted[..] {
            [] => writeln!(f),
            cells => {
                let names: Vec<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
                writeln!(f, "; not counted, because it does not answer: {}", names.join(", "))
            }
        }
    }
}
