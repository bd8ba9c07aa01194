//! Cells: several stores that know nothing of one another, and whose zones are where.
//!
//! A tenant is the part of a zone's name before the first `:`, and all zones of a tenant are in one cell. Invariants:
//! what happens to one cell is not felt in another; a cell that can't be reached at the start is as one that fails
//! later; however many ask which zones there are, a cell is asked by one at a time, and seldom.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::{Claim, Decided, Definition, Joined, PagePolls, Policy, View, ZoneId};
use cache::{Cache, LoadError, Settings};
use store::{Defined, Expected, Kept, Store, StoreError};
use tokio::{sync::SetOnce, time::timeout};

/// How long what a cell told of its zones is good: a change is known to all who ask that much later at most.
const LIFE: Duration = Duration::from_millis(150);

/// How long a cell may take; it has limits of its own, this is beyond them.
const PATIENCE: Duration = Duration::from_secs(6);

/// The tenant that stands for all those that no cell names.
pub const REST: &str = "*";

type Result<T> = std::result::Result<T, StoreError>;
type Connecting<S> = Pin<Box<dyn Future<Output = Result<S>> + Send>>;
type Connect<S> = dyn Fn() -> Connecting<S> + Send + Sync;

/// The tenant that a zone belongs to; the empty one for a name without `:`.
#[must_use]
pub fn tenant(zone: &str) -> &str {
    zone.split_once(':').map_or("", |(tenant, _)| tenant)
}

/// How a cell is, for metrics and readiness.
#[derive(Debug)]
pub struct Health {
    /// The cell's name.
    pub name: String,
    /// It answered when it was last asked for its zones.
    up: AtomicBool,
}

impl Health {
    /// Whether it answered when it was last asked for its zones.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Notes whether it answered; tells whether that was otherwise before.
    pub(crate) fn set_up(&self, up: bool) -> bool {
        self.up.swap(up, Ordering::Relaxed) != up
    }
}

/// One of the stores, connected to or not yet.
pub struct Cell<S> {
    health: Arc<Health>,
    tenants: Vec<String>,
    store: SetOnce<S>,
    /// It has told its zones at least once.
    answered: AtomicBool,
    connect: Box<Connect<S>>,
    /// What it told of its zones, or its failure to.
    told: Cache<(), Arc<Kept>, StoreError>,
}

impl<S: Store> Cell<S> {
    /// A cell that is connected to when it is first asked for its zones. No two cells share a tenant; [`REST`] stands
    /// for those that none names.
    pub fn new<F>(name: &str, tenants: Vec<String>, connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<S>> + Send + 'static,
    {
        Self {
            health: Arc::new(Health { name: name.to_owned(), up: AtomicBool::new(false) }),
            tenants,
            store: SetOnce::new(),
            answered: AtomicBool::new(false),
            connect: Box::new(move || Box::pin(connect())),
            // Nothing stale: whoever watches a cell is to hear that it fails.
            told: Cache::new(Settings {
                life: LIFE,
                refresh_at: 1.0,
                stale_for: Duration::ZERO,
                pause: LIFE,
                capacity: 1,
            }),
        }
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Whether there ever was a connection, which then sees to itself.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.store.get().is_some()
    }

    /// Its store, once there is a connection.
    pub(crate) async fn connected(&self) -> &S {
        self.store.wait().await
    }

    /// Whether it has told its zones since the server started.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// The zones that it keeps, in the order of their names, as of 150 ms ago at most. Connects first where
    /// that is still to be done.
    ///
    /// # Errors
    /// The store's.
    pub async fn zones(self: &Arc<Self>) -> Result<Arc<Kept>> {
        let cell = Arc::clone(self);
        let ask = async move |()| {
            let late = Err(cell.named(StoreError::Away("no answer in time".to_owned())));
            timeout(PATIENCE, cell.ask()).await.unwrap_or(late)
        };
        self.told.get(&(), ask).await.map_err(|error| match error {
            LoadError::Failed(error) => StoreError::clone(&error),
            LoadError::Busy => StoreError::Busy,
            broken @ (LoadError::Panicked | LoadError::Cancelled) => {
                self.named(StoreError::Away(format!("asking for its zones: {broken}")))
            }
        })
    }

    /// The same as of now: for who was told that something changed.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn zones_now(self: &Arc<Self>) -> Result<Arc<Kept>> {
        self.told.invalidate(&());
        self.zones().await
    }

    /// The zones that it keeps now: for who is about to change them.
    pub(crate) async fn ask(&self) -> Result<Arc<Kept>> {
        let store = match self.store.get() {
            Some(store) => store,
            None => {
                let connected = (self.connect)().await.map_err(|error| self.named(error))?;
                // Another one may have been faster.
                let _ = self.store.set(connected);
                self.store.wait().await
            }
        };
        let zones = store.zones().await.map_err(|error| self.named(error))?;
        self.answered.store(true, Ordering::Relaxed);
        Ok(zones.unwrap_or_default().into())
    }

    /// Has it keep these zones, where it never kept any; tells what it keeps then.
    pub(crate) async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<Kept> {
        self.store()?.begin(zones).await.map_err(|error| self.named(error))
    }

    pub(crate) fn store(&self) -> Result<&S> {
        self.store.get().ok_or_else(|| self.named(StoreError::Away("not connected yet".to_owned())))
    }

    fn named(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Away(why) => StoreError::Away(format!("{}: {why}", self.health.name)),
            other => other,
        }
    }
}

/// All the cells.
pub struct Cells<S> {
    cells: Vec<Arc<Cell<S>>>,
    by_tenant: HashMap<String, usize>,
}

impl<S: Store> Cells<S> {
    /// These cells.
    #[must_use]
    pub fn new(cells: Vec<Cell<S>>) -> Self {
        let tenants = |(at, cell): (usize, &Cell<S>)| -> Vec<_> {
            cell.tenants.iter().map(|tenant| (tenant.clone(), at)).collect()
        };
        let by_tenant = cells.iter().enumerate().flat_map(tenants).collect();
        Self { cells: cells.into_iter().map(Arc::new).collect(), by_tenant }
    }

    /// The cells, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> &[Arc<Cell<S>>] {
        &self.cells
    }

    /// Which cell keeps a zone of this name; none where nobody named its tenant.
    #[must_use]
    pub fn place_of(&self, zone: &str) -> Option<usize> {
        self.by_tenant.get(tenant(zone)).or_else(|| self.by_tenant.get(REST)).copied()
    }

    fn cell(&self, zone: &ZoneId) -> Result<&Arc<Cell<S>>> {
        self.place_of(zone.as_str()).map(|at| &self.cells[at]).ok_or(StoreError::UnknownZone)
    }
}

impl<S: Store> Store for Cells<S> {
    /// Those of the cells that answer; an error where none does.
    async fn zones(&self) -> Result<Option<Kept>> {
        let (mut zones, mut is_new, mut silent) = (Vec::new(), true, Vec::new());
        for cell in &self.cells {
            match cell.zones().await {
                Ok(of_cell) => {
                    is_new &= of_cell.is_new;
                    zones.extend(of_cell.zones.iter().cloned());
                }
                Err(error) => silent.push(error),
            }
        }
        match silent.pop() {
            Some(error) if silent.len() + 1 == self.cells.len() => Err(error),
            _ => {
                zones.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                Ok(Some(Kept { zones, is_new }))
            }
        }
    }

    /// Each cell that never kept a zone is given its own.
    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<Kept> {
        let mut all = Kept { is_new: true, ..Kept::default() };
        for (at, cell) in self.cells.iter().enumerate() {
            let is_mine = |(zone, _): &&(ZoneId, Definition)| self.place_of(zone.as_str()) == Some(at);
            let kept = cell.begin(&zones.iter().filter(is_mine).cloned().collect::<Vec<_>>()).await?;
            all.is_new &= kept.is_new;
            all.zones.extend(kept.zones);
        }
        all.zones.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(all)
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        let cell = self.cell(zone)?;
        cell.store()?.define(zone, expected, new).await.map_err(|error| cell.named(error))
    }

    async fn may_keep(&self, zone: &str) -> bool {
        let Some(at) = self.place_of(zone) else { return false };
        let cell = &self.cells[at];
        if !cell.has_answered() {
            return true;
        }
        cell.zones()
            .await
            .map_or(true, |kept| kept.zones.binary_search_by(|(kept, _)| kept.as_str().cmp(zone)).is_ok())
    }

    async fn open_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        let cell = self.cell(zone)?;
        cell.store()?.open_zone(zone, policy).await.map_err(|error| cell.named(error))
    }

    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<View> {
        let cell = self.cell(zone)?;
        cell.store()?.put_zone(zone, policy).await.map_err(|error| cell.named(error))
    }

    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined> {
        let cell = self.cell(zone)?;
        cell.store()?.join(zone, count).await.map_err(|error| cell.named(error))
    }

    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided> {
        let cell = self.cell(zone)?;
        cell.store()?.enter(zone, claims).await.map_err(|error| cell.named(error))
    }

    async fn beat(&self, zone: &ZoneId, marks: Vec<PagePolls>) -> Result<View> {
        let cell = self.cell(zone)?;
        cell.store()?.beat(zone, marks).await.map_err(|error| cell.named(error))
    }
}
