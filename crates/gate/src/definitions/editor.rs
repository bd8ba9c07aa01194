//! The one place that changes zone definitions while a server runs.
//!
//! With a store that keeps the zones, the store makes the change if the zone is as expected, and this server refreshes.
//! Without such a store, the change is kept in the data directory ([`super::overrides`]).
//!
//! Invariants: of changes that expect the same definition, one succeeds. A change that was made is reported to [`OnChange`], even
//! if its caller has gone. It is in force here when [`ZoneEditor::define`] returns, unless the zone's store did not answer
//! within `IN_FORCE_TIMEOUT`: then it comes into force later. A change that fails is not reported and changes nothing, except
//! perhaps with [`DefineError::Away`]: the store may have made it. A change that finds the zone as it would make it is not reported.

use std::{path::Path, sync::Arc, time::Duration};

use admission::{Definition, Schedule, ScheduleFault, ZoneId};
use store::{Defined, Expected, Store, unix_ms};
use tokio::{
    sync::{Mutex, Notify},
    task::spawn_blocking,
    time::timeout,
};

use super::{
    ZONES_MAX,
    change::{Author, DefineError, DefinitionChange, OnChange},
    overrides::{Dropped, Overrides, OverridesFault},
    routes_file,
};
use crate::{gate::Gate, refresh::Refresh};

/// How long to wait until a change that the store made is in force here. It comes into force later too.
pub(super) const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(2);

/// The refreshes of the cell that keeps a zone of this name; none where no cell is for its tenant.
pub type RefreshOf = dyn Fn(&str) -> Option<Arc<Refresh>> + Send + Sync;

/// Where the definitions are kept.
pub(super) enum DefinitionStore {
    Configuration(Mutex<Overrides>),
    Store(Box<RefreshOf>),
}

/// Changes zone definitions.
pub struct ZoneEditor<S: Store> {
    pub(super) gate: Arc<Gate<S>>,
    pub(super) kept_in: DefinitionStore,
    on_change: Box<OnChange>,
    /// Notified when the overrides have changed.
    changed: Notify,
}

impl<S: Store> ZoneEditor<S> {
    /// For zones of the configuration file: serves them, with the overrides and routes that are kept in `dir`. Must be called on a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`DefineError::Disk`] if the overrides cannot be read; the store's error if it does not take the zones.
    pub async fn over_file(
        gate: Arc<Gate<S>>,
        dir: &Path,
        file: Vec<(ZoneId, Definition)>,
        on_change: Box<OnChange>,
    ) -> Result<Self, DefineError> {
        let (overrides, dropped) = Overrides::read(dir, file)?;
        gate.routes().send_replace(routes_file::read(dir)?);
        take_up(&gate, &overrides, &dropped).await?;
        if overrides.kept() > 0 {
            tracing::info!(zones = overrides.kept(), "operators' changes override the configuration file");
        }
        let kept_in = DefinitionStore::Configuration(Mutex::new(overrides));
        Ok(Self { gate, kept_in, on_change, changed: Notify::new() })
    }

    /// For zones that a store keeps. `refresh_of` names the refreshes of each zone's cell.
    pub fn over_store(gate: Arc<Gate<S>>, refresh_of: Box<RefreshOf>, on_change: Box<OnChange>) -> Self {
        Self { gate, kept_in: DefinitionStore::Store(refresh_of), on_change, changed: Notify::new() }
    }

    /// The definitions of all zones, in the order of their names; those of a store as last listed.
    #[must_use]
    pub fn list(&self) -> Vec<(ZoneId, Definition)> {
        self.gate.definitions()
    }

    /// The definition of one zone; of a store, as last listed.
    #[must_use]
    pub fn get(&self, zone: &str) -> Option<Definition> {
        self.gate.definition(zone)
    }

    /// Waits until an override changed since the last call. For zones of a store, the watchers notify instead. One caller
    /// at a time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Checks a definition that is to replace that of a zone; `None` deletes the zone.
    ///
    /// # Errors
    /// [`DefineError::OutOfRange`], [`DefineError::Schedule`].
    pub fn check(&self, zone: &ZoneId, new: Option<&Definition>) -> Result<(), DefineError> {
        if let Some(definition) = new {
            definition.policy.check()?;
            // The policy may have changed under the events.
            let events = definition.schedule.events().to_vec();
            Schedule::new(events, &definition.policy).map_err(DefineError::Schedule)?;
        }
        self.get(zone.as_str()).map_or(Ok(()), |now| self.check_frozen(zone, &now, new))
    }

    /// Whether `new` leaves the draws of a zone as they are whose lists are frozen and published.
    fn check_frozen(
        &self,
        zone: &ZoneId,
        now: &Definition,
        new: Option<&Definition>,
    ) -> Result<(), DefineError> {
        let Some(unix_s) = self.gate.schedule_s(zone.as_str()) else { return Ok(()) };
        let schedule = new.map(|new| new.schedule.clone()).unwrap_or_default();
        now.schedule.check_frozen(&schedule, unix_s).map_err(DefineError::Schedule)
    }

    /// Defines a zone anew, or deletes it where `new` is none, if it is as expected. The change is in force here on
    /// return, or later if the zone's store does not answer. A change that was begun is finished and reported even if the caller
    /// goes away.
    ///
    /// # Errors
    /// See [`DefineError`]. Nothing is changed then, except perhaps with [`DefineError::Away`].
    pub async fn define(
        self: &Arc<Self>,
        author: Author,
        zone: &ZoneId,
        expected: Expected,
        new: Option<Definition>,
    ) -> Result<DefinitionChange, DefineError> {
        if new.is_none() && expected == Expected::Absent {
            return Err(DefineError::UnknownZone);
        }
        self.check(zone, new.as_ref())?;
        let (editor, zone) = (Arc::clone(self), zone.clone());
        let change = tokio::spawn(async move {
            match &editor.kept_in {
                DefinitionStore::Configuration(overrides) => {
                    editor.define_here(overrides, &author, &zone, &expected, new).await
                }
                DefinitionStore::Store(refresh_of) => {
                    editor.define_in_store(refresh_of, &author, &zone, &expected, new).await
                }
            }
        });
        change.await.unwrap_or_else(|failed| Err(DefineError::Away(format!("the change failed: {failed}"))))
    }

    /// Serves the configuration file's zones as they are now. Does nothing where a store keeps the zones.
    ///
    /// # Errors
    /// [`DefineError::Schedule`], with a message in the log that names the zone, if the file would change a draw whose list is frozen: all
    /// zones stay as they were. Or as [`ZoneEditor::over_file`]. If the store failed, some zones may be as in the file already.
    pub async fn reload(&self, file: Vec<(ZoneId, Definition)>) -> Result<(), DefineError> {
        let DefinitionStore::Configuration(overrides) = &self.kept_in else { return Ok(()) };
        let mut overrides = overrides.lock().await;
        let (next, dropped) = overrides.with_file(file);
        for (zone, now) in overrides.zones() {
            self.check_frozen(&zone, &now, next.get(&zone)).inspect_err(|error| {
                tracing::error!(%zone, "the configuration file was not taken over: {error}");
            })?;
        }
        // A line that ends is said before it ends, because nobody counts it after that.
        let zones = overrides.zones().into_iter().map(|(zone, _)| zone);
        let gone: Vec<_> = zones.filter(|zone| next.get(zone).is_none()).collect();
        let views = self.gate.views_of_now(&gone).await;
        for (zone, view) in gone.iter().zip(views) {
            let waiting = view.map_or(0, |view| view.tally().waiting);
            tracing::warn!(
                %zone, waiting,
                "the configuration file has this zone no more: whoever waits in it, or comes, is told that there is no such zone; the places \
                 are kept, and go on if the zone comes back"
            );
        }
        take_up(&self.gate, &next, &dropped).await?;
        *overrides = next;
        Ok(())
    }

    async fn define_here(
        &self,
        overrides: &Mutex<Overrides>,
        author: &Author,
        zone: &ZoneId,
        expected: &Expected,
        new: Option<Definition>,
    ) -> Result<DefinitionChange, DefineError> {
        let mut overrides = overrides.lock().await;
        let before = overrides.get(zone).cloned();
        if !expected.holds(before.as_ref()) {
            return Err(otherwise(expected, before));
        }
        if before == new {
            return Ok(DefinitionChange { before, after: new });
        }
        if before.is_none() && overrides.zones().len() >= ZONES_MAX {
            return Err(DefineError::TooMany);
        }
        let next = overrides.with(zone, new.clone());
        // Writing comes first because it may fail. Taking the file into use comes last because it cannot be undone.
        let staging = next.clone();
        let staged = on_disk(move || staging.stage()).await?;
        // The disk may have taken until an event began.
        if let Some(now) = &before {
            self.check_frozen(zone, now, new.as_ref())?;
        }
        self.gate.serve_zone(zone, new.as_ref()).await?;
        if let Err(fault) = on_disk(move || staged.commit()).await {
            if let Err(error) = self.gate.serve_zone(zone, before.as_ref()).await {
                tracing::error!(%zone, %error, "the zone cannot be served again as it was; send SIGHUP");
            }
            return Err(fault);
        }
        *overrides = next;
        self.changed.notify_one();
        let change = DefinitionChange { before, after: new };
        (self.on_change)(author, zone, &change);
        Ok(change)
    }

    async fn define_in_store(
        &self,
        refresh_of: &RefreshOf,
        author: &Author,
        zone: &ZoneId,
        expected: &Expected,
        new: Option<Definition>,
    ) -> Result<DefinitionChange, DefineError> {
        let refresh = refresh_of(zone.as_str()).ok_or(DefineError::NoCell)?;
        let served = self.gate.definitions();
        if new.is_some() && served.len() >= ZONES_MAX && self.get(zone.as_str()).is_none() {
            return Err(DefineError::TooMany);
        }
        let in_force = async {
            refresh.wait().await;
            self.gate.settled(zone.as_str()).await;
        };
        let before = match self.gate.store().define(zone, expected, new.as_ref()).await? {
            Defined::Done(before) => before,
            Defined::Otherwise(now) => {
                // Whoever is told of a zone that another server changed asks about it next, and finds it here.
                drop(timeout(IN_FORCE_TIMEOUT, in_force).await);
                return Err(otherwise(expected, now));
            }
            Defined::Frozen(event) => return Err(DefineError::Schedule(ScheduleFault::Frozen(event))),
        };
        let change = DefinitionChange { before, after: new };
        if change.before != change.after {
            (self.on_change)(author, zone, &change);
        }
        if timeout(IN_FORCE_TIMEOUT, in_force).await.is_err() {
            tracing::warn!(%zone, "the change is stored but not in force here yet: the zone's store does not answer");
        }
        Ok(change)
    }
}

/// The error for a zone that is not as expected.
fn otherwise(expected: &Expected, now: Option<Definition>) -> DefineError {
    match (expected, now) {
        (_, None) => DefineError::UnknownZone,
        (Expected::Absent, Some(now)) => DefineError::Exists(now),
        (_, Some(now)) => DefineError::Conflict(now),
    }
}

/// Serves the zones, and deletes the overrides that no longer count. Says in the log which ones, and what ends by that.
async fn take_up<S: Store>(
    gate: &Gate<S>,
    overrides: &Overrides,
    dropped: &[Dropped],
) -> Result<(), DefineError> {
    let (gone, mut ended) = (Definition::default(), Vec::new());
    for Dropped { zone, was } in dropped {
        // At the start no zone is served yet.
        let unix_s = gate.schedule_s(zone.as_str()).unwrap_or_else(|| unix_ms() / 1_000);
        let all = was.as_ref().map(|was| was.ended_by(overrides.get(zone).unwrap_or(&gone), unix_s));
        ended.extend(all.into_iter().flatten().map(|what| (zone, what)));
    }
    let staged = match dropped {
        [] => None,
        _ => {
            let staging = overrides.clone();
            Some(on_disk(move || staging.stage()).await?)
        }
    };
    gate.serve_zones(overrides.zones()).await?;
    if let Some(staged) = staged {
        on_disk(move || staged.commit()).await?;
    }
    for Dropped { zone, .. } in dropped {
        tracing::warn!(%zone, "the configuration file was edited after an operator changed the zone: the file counts");
    }
    for (zone, what) in ended {
        tracing::warn!(%zone, "the configuration file ends what an operator set up: {what}");
    }
    Ok(())
}

/// Runs blocking work on another thread.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OverridesFault> + Send + 'static,
) -> Result<T, DefineError> {
    let done = spawn_blocking(work).await;
    Ok(done.map_err(|failed| DefineError::Disk(format!("the work failed: {failed}")))??)
}

#[cfg(test)]
mod tests;
