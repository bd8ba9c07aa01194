//! Where zones are defined: the one place that changes them while a server runs.
//!
//! With a store that keeps the zones, a change is one of the store's, made where the zone is as expected, and then looked
//! for here. Without, it is kept beside the configuration's file ([`super::overlay`]). Invariants: of changes that expect
//! the same of a zone, one succeeds; what is made is in force here when [`Desk::define`] returns, and is told to the
//! audit, whoever waits for it; what fails changes nothing.

use std::{path::Path, sync::Arc, time::Duration};

use admission::{Definition, PolicyFault, ZoneId};
use store::{Defined, Expected, Store, StoreError};
use tokio::{
    sync::{Mutex, Notify},
    task::spawn_blocking,
    time::timeout,
};

use super::{
    ZONES_MAX,
    overlay::{Overlay, OverlayFault},
};
use crate::{
    audit::{Author, Recorder},
    gate::Gate,
    watch::Looks,
};

/// How long a change that the store has made is waited for here. It comes into force also later.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it was; none where it was not there.
    pub before: Option<Definition>,
    /// What it is; none where it is deleted.
    pub after: Option<Definition>,
}

/// Why a zone was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// It is another one than expected: this one.
    #[error("the zone was changed meanwhile")]
    Conflict(Definition),
    /// It was not to be there, and is: this one.
    #[error("there is such a zone already")]
    Exists(Definition),
    /// It was to be there, and is not.
    #[error("there is no such zone")]
    UnknownZone,
    /// No store keeps zones of its tenant.
    #[error("no cell is for zones of this name; name its tenant in the configuration of one")]
    NoCell,
    /// There are so many that one more is refused.
    #[error("there are {ZONES_MAX} zones, which are the most")]
    TooMany,
    /// A number of the new policy is out of its range.
    #[error(transparent)]
    OutOfRange(#[from] PolicyFault),
    /// The store did not answer. It may have made the change all the same.
    #[error("the store is away: {0}")]
    Away(String),
    /// The store has too much to do, or the zone is changed by others all the time.
    #[error("too many calls at once")]
    Busy,
    /// The change can't be kept on disk.
    #[error("the change can't be kept: {0}")]
    Disk(String),
}

impl From<StoreError> for DefineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Away(why) => Self::Away(why),
            StoreError::Busy => Self::Busy,
            StoreError::UnknownZone => Self::NoCell,
        }
    }
}

impl From<OverlayFault> for DefineError {
    fn from(fault: OverlayFault) -> Self {
        Self::Disk(fault.to_string())
    }
}

/// Who looks at a zone's store, if any does.
pub type LooksOf = dyn Fn(&str) -> Option<Arc<Looks>> + Send + Sync;

/// Who keeps the zones.
enum Keeper {
    Configuration(Mutex<Overlay>),
    Store(Box<LooksOf>),
}

/// The desk.
pub struct Desk<S> {
    gate: Arc<Gate<S>>,
    keeper: Keeper,
    recorder: Recorder,
    /// Told when what is kept beside the file has changed.
    changed: Notify,
}

impl<S: Store> Desk<S> {
    /// For zones of the configuration's file: serves them, with what was changed before, as kept in `dir`. Must be called
    /// on a tokio runtime.
    ///
    /// # Errors
    /// [`DefineError::Disk`] where what was changed can't be read; the store's, where it does not take the zones.
    pub async fn over_file(
        gate: Arc<Gate<S>>,
        dir: &Path,
        file: Vec<(ZoneId, Definition)>,
        recorder: Recorder,
    ) -> Result<Self, DefineError> {
        let (overlay, dropped) = Overlay::read(dir, file)?;
        take_up(&gate, &overlay, &dropped).await?;
        if overlay.kept() > 0 {
            tracing::info!(zones = overlay.kept(), "operators' changes win over the configuration's file");
        }
        let keeper = Keeper::Configuration(Mutex::new(overlay));
        Ok(Self { gate, keeper, recorder, changed: Notify::new() })
    }

    /// For zones that a store keeps, each followed by whom `looks_of` names.
    pub fn over_store(gate: Arc<Gate<S>>, looks_of: Box<LooksOf>, recorder: Recorder) -> Self {
        Self { gate, keeper: Keeper::Store(looks_of), recorder, changed: Notify::new() }
    }

    /// The zones as they are defined, in the order of their names; those of a store as last told.
    #[must_use]
    pub fn list(&self) -> Vec<(ZoneId, Definition)> {
        self.gate.definitions()
    }

    /// One zone as it is defined; of a store, as last told.
    #[must_use]
    pub fn get(&self, zone: &str) -> Option<Definition> {
        self.gate.definition(zone)
    }

    /// Waits until a zone was changed since this was last waited for; of a store's zones, their watchers tell. For one who
    /// waits at a time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Has a zone defined anew, or, with none, deleted: where it is as expected. It is in force here on return, or as soon
    /// as the zone's store answers. What was begun is ended and written down also where the caller goes away.
    ///
    /// # Errors
    /// See [`DefineError`]; but for [`DefineError::Away`], nothing is changed then.
    pub async fn define(
        self: &Arc<Self>,
        by: Author,
        zone: &ZoneId,
        expected: Expected,
        new: Option<Definition>,
    ) -> Result<Change, DefineError> {
        match &new {
            Some(definition) => drop(definition.policy.check()?),
            None if expected == Expected::Absent => return Err(DefineError::UnknownZone),
            None => {}
        }
        let (desk, zone) = (Arc::clone(self), zone.clone());
        let change = tokio::spawn(async move {
            match &desk.keeper {
                Keeper::Configuration(overlay) => desk.keep(overlay, &by, &zone, &expected, new).await,
                Keeper::Store(looks_of) => desk.pass_on(looks_of, &by, &zone, &expected, new).await,
            }
        });
        change.await.unwrap_or_else(|failed| Err(DefineError::Away(format!("the change failed: {failed}"))))
    }

    /// Takes up the configuration's file as it is now; nothing to do where a store keeps the zones.
    ///
    /// # Errors
    /// As [`Desk::over_file`]. Where the store failed, some zones may be as in the file already.
    pub async fn reload(&self, file: Vec<(ZoneId, Definition)>) -> Result<(), DefineError> {
        let Keeper::Configuration(overlay) = &self.keeper else { return Ok(()) };
        let mut overlay = overlay.lock().await;
        let (next, dropped) = overlay.with_file(file);
        take_up(&self.gate, &next, &dropped).await?;
        *overlay = next;
        Ok(())
    }

    async fn keep(
        &self,
        overlay: &Mutex<Overlay>,
        by: &Author,
        zone: &ZoneId,
        expected: &Expected,
        new: Option<Definition>,
    ) -> Result<Change, DefineError> {
        let mut overlay = overlay.lock().await;
        let before = overlay.get(zone).cloned();
        if !expected.holds(before.as_ref()) {
            return Err(otherwise(expected, before));
        }
        if before.is_none() && overlay.zones().len() >= ZONES_MAX {
            return Err(DefineError::TooMany);
        }
        let next = overlay.with(zone, new.clone());
        // Written first, since that is what fails; taken into use last, since it can't be taken back.
        let staging = next.clone();
        let staged = on_disk(move || staging.stage()).await?;
        self.gate.serve_zone(zone, new.as_ref()).await?;
        if let Err(fault) = on_disk(move || staged.commit()).await {
            if let Err(error) = self.gate.serve_zone(zone, before.as_ref()).await {
                tracing::error!(%zone, %error, "the zone can't be served again as it was; send SIGHUP");
            }
            return Err(fault);
        }
        *overlay = next;
        self.changed.notify_one();
        let change = Change { before, after: new };
        self.recorder.write(by, zone, &change);
        Ok(change)
    }

    async fn pass_on(
        &self,
        looks_of: &LooksOf,
        by: &Author,
        zone: &ZoneId,
        expected: &Expected,
        new: Option<Definition>,
    ) -> Result<Change, DefineError> {
        let looks = looks_of(zone.as_str()).ok_or(DefineError::NoCell)?;
        let served = self.gate.definitions();
        if new.is_some() && served.len() >= ZONES_MAX && self.get(zone.as_str()).is_none() {
            return Err(DefineError::TooMany);
        }
        let before = match self.gate.store().define(zone, expected, new.as_ref()).await? {
            Defined::Done(before) => before,
            Defined::Otherwise(now) => return Err(otherwise(expected, now)),
        };
        let change = Change { before, after: new };
        self.recorder.write(by, zone, &change);
        let in_force = async {
            looks.fresh().await;
            self.gate.settled(zone.as_str()).await;
        };
        if timeout(PATIENCE, in_force).await.is_err() {
            tracing::warn!(%zone, "the change is kept, and not in force here yet: the zone's store does not answer");
        }
        Ok(change)
    }
}

/// The error for a zone that is not as expected, but like this.
fn otherwise(expected: &Expected, now: Option<Definition>) -> DefineError {
    match (expected, now) {
        (_, None) => DefineError::UnknownZone,
        (Expected::Absent, Some(now)) => DefineError::Exists(now),
        (_, Some(now)) => DefineError::Conflict(now),
    }
}

/// Serves the zones, and forgets for good the changes that don't count any more.
async fn take_up<S: Store>(gate: &Gate<S>, overlay: &Overlay, dropped: &[ZoneId]) -> Result<(), DefineError> {
    let staged = match dropped {
        [] => None,
        _ => {
            let staging = overlay.clone();
            Some(on_disk(move || staging.stage()).await?)
        }
    };
    gate.serve_zones(overlay.zones()).await?;
    if let Some(staged) = staged {
        on_disk(move || staged.commit()).await?;
    }
    for zone in dropped {
        tracing::warn!(%zone, "the configuration's file was edited since an operator changed the zone: the file counts");
    }
    Ok(())
}

/// Runs what blocks elsewhere.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OverlayFault> + Send + 'static,
) -> Result<T, DefineError> {
    let done = spawn_blocking(work).await;
    Ok(done.map_err(|failed| DefineError::Disk(format!("the work failed: {failed}")))??)
}

#[cfg(test)]
mod tests;
