//! Cells: several independent stores, and which zone is in which.
//!
//! A tenant is the part of a zone's name before the first `:`, and all zones of a tenant are in one cell. The routes that operators
//! set are in the cell of the zones without a tenant. Invariants: a
//! failing cell does not affect another cell; a cell that cannot be reached at the start is treated like one that fails
//! later; however many callers ask for the zones, a cell gets one such call at a time, and at most one per 150 ms unless a
//! change was reported.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::{
    Census, Claim, Deal, Dealt, Decided, Definition, Departure, JoinKey, Leaver, PagePolls, Policy, Snapshot,
    Ticket, ZoneId,
};
use cache::{Cache, LoadError, Settings};
use store::{
    Defined, Expected, JoinedOnce, LeftVisits, Line, MayKeep, RegisterContents, RememberedEntry,
    RoutesDefined, Store, StoreError,
    minutes::{KeptMinute, OfferedMinute},
};
use tokio::{sync::SetOnce, time::timeout};

/// How long the list of a cell's zones is reused. Callers learn of a change at most this much later.
const LIFE: Duration = Duration::from_millis(150);

/// For how long a store that got its first zone may have lost what it had before, and a server that has started cannot know it: until then it
/// takes a zone that it does not know for lost, if a token proves that there was one, or the store may have lost all. The other servers write it
/// back within a second, or when they run again.
pub(crate) const LOST_ZONE_GRACE: Duration = Duration::from_secs(60);

/// How long a cell may take to list its zones. The store's own timeouts are shorter.
const LIST_TIMEOUT: Duration = Duration::from_secs(6);

/// Stands for all tenants that no cell names.
pub const REST: &str = "*";

type Result<T> = std::result::Result<T, StoreError>;
type Connecting<S> = Pin<Box<dyn Future<Output = Result<S>> + Send>>;
type Connect<S> = dyn Fn() -> Connecting<S> + Send + Sync;

/// The tenant of a zone: the empty one for a name without `:`.
#[must_use]
pub fn tenant(zone: &str) -> &str {
    zone.split_once(':').map_or("", |(tenant, _)| tenant)
}

/// Whether a cell answers, for metrics and readiness.
#[derive(Debug)]
pub struct Health {
    /// The cell's name.
    pub name: String,
    /// The cell answered when it was last asked for its zones.
    up: AtomicBool,
}

impl Health {
    /// Whether the cell answered when it was last asked for its zones.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Notes whether the cell answered; returns whether that changed.
    pub(crate) fn set_up(&self, up: bool) -> bool {
        self.up.swap(up, Ordering::Relaxed) != up
    }
}

/// One of the stores, connected or not yet.
pub struct Cell<S> {
    health: Arc<Health>,
    tenants: Vec<String>,
    store: SetOnce<Arc<S>>,
    /// It has listed its zones at least once.
    answered: AtomicBool,
    connect: Box<Connect<S>>,
    /// The last list of its zones, or why there is none.
    listed: Cache<(), Arc<RegisterContents>, StoreError>,
}

impl<S: Store> Cell<S> {
    /// A cell. The connection is made when it is first asked for its zones. No two cells may share a tenant; [`REST`]
    /// stands for all tenants that no cell names.
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
            // Nothing stale is returned, so that a watcher notices a failing cell.
            listed: Cache::new(Settings {
                life: LIFE,
                refresh_at: 1.0,
                stale_for: Duration::ZERO,
                pause: LIFE,
                capacity: 1,
            }),
        }
    }

    /// Whether it answers.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Whether there ever was a connection. A connection reconnects by itself.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.store.get().is_some()
    }

    /// Its store, once there is a connection.
    pub async fn connected(&self) -> &Arc<S> {
        self.store.wait().await
    }

    /// Whether it has listed its zones since the server started.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// The zones that it keeps, in the order of their names, at most 150 ms old. Connects first if there is no connection
    /// yet.
    ///
    /// # Errors
    /// The store's error.
    pub async fn zones(self: &Arc<Self>) -> Result<Arc<RegisterContents>> {
        let cell = Arc::clone(self);
        let ask = async move |()| {
            let late = Err(cell.named(StoreError::Away("no answer in time".to_owned())));
            timeout(LIST_TIMEOUT, cell.ask()).await.unwrap_or(late)
        };
        self.listed.get(&(), ask).await.map_err(|error| match error {
            LoadError::Failed(error) => StoreError::clone(&error),
            LoadError::Busy => StoreError::Busy,
            broken @ (LoadError::Panicked | LoadError::Cancelled) => {
                self.named(StoreError::Away(format!("asking for its zones: {broken}")))
            }
        })
    }

    /// Like [`Cell::zones`], read after this call began: for callers that know of a change.
    pub(crate) async fn zones_now(self: &Arc<Self>) -> Result<Arc<RegisterContents>> {
        self.listed.invalidate(&());
        self.zones().await
    }

    /// The zones that it keeps now, not shared with other callers: for callers that are about to change them.
    pub(crate) async fn ask(&self) -> Result<Arc<RegisterContents>> {
        let store = match self.store.get() {
            Some(store) => store,
            None => {
                let connected = (self.connect)().await.map_err(|error| self.named(error))?;
                // Another task may have connected first.
                let _ = self.store.set(Arc::new(connected));
                self.store.wait().await
            }
        };
        let zones = store.zones().await.map_err(|error| self.named(error))?;
        self.answered.store(true, Ordering::Relaxed);
        Ok(zones.unwrap_or_default().into())
    }

    /// Puts these zones into the store if it never kept any; returns what it keeps then.
    pub(crate) async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<RegisterContents> {
        self.store()?.begin(zones).await.map_err(|error| self.named(error))
    }

    /// Its store.
    ///
    /// # Errors
    /// [`StoreError::Away`] before the first connection.
    pub fn store(&self) -> Result<&Arc<S>> {
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
    /// The cells, in the order of the configuration.
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

    /// The index of the cell that keeps a zone of this name; none where no cell is for its tenant.
    #[must_use]
    pub fn place_of(&self, zone: &str) -> Option<usize> {
        self.by_tenant.get(tenant(zone)).or_else(|| self.by_tenant.get(REST)).copied()
    }

    /// The index of the cell that keeps the routes; none where no cell is for zones without a tenant.
    #[must_use]
    pub fn place_of_routes(&self) -> Option<usize> {
        self.place_of("")
    }

    fn cell(&self, zone: &ZoneId) -> Result<&Arc<Cell<S>>> {
        self.place_of(zone.as_str()).map(|at| &self.cells[at]).ok_or(StoreError::UnknownZone)
    }
}

impl<S: Store> Store for Cells<S> {
    type Line = CellLine<S>;

    /// The zones of the cells that answer; an error if none answers.
    async fn zones(&self) -> Result<Option<RegisterContents>> {
        let (mut zones, mut routes, mut is_new, mut silent) = (Vec::new(), None, true, Vec::new());
        let (mut unix_ms, mut began_ms) = (0, 0);
        for (at, cell) in self.cells.iter().enumerate() {
            match cell.zones().await {
                Ok(of_cell) => {
                    is_new &= of_cell.is_new;
                    unix_ms = unix_ms.max(of_cell.unix_ms);
                    began_ms = began_ms.max(of_cell.began_ms);
                    if self.place_of_routes() == Some(at) {
                        routes.clone_from(&of_cell.routes);
                    }
                    zones.extend(of_cell.zones.iter().cloned());
                }
                Err(error) => silent.push(error),
            }
        }
        match silent.pop() {
            Some(error) if silent.len() + 1 == self.cells.len() => Err(error),
            _ => {
                zones.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                Ok(Some(RegisterContents { zones, routes, is_new, unix_ms, began_ms }))
            }
        }
    }

    /// Puts into each cell that never kept a zone its part of the zones.
    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<RegisterContents> {
        let mut all = RegisterContents { is_new: true, ..RegisterContents::default() };
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

    async fn define_routes(&self, expected: Option<&str>, new: &str) -> Result<RoutesDefined> {
        let cell = &self.cells[self.place_of_routes().ok_or(StoreError::UnknownZone)?];
        cell.store()?.define_routes(expected, new).await.map_err(|error| cell.named(error))
    }

    async fn may_keep(&self, zone: &str) -> MayKeep {
        let Some(at) = self.place_of(zone) else { return MayKeep::No };
        let cell = &self.cells[at];
        if !cell.has_answered() {
            return MayKeep::Yes;
        }
        let Ok(kept) = cell.zones().await else { return MayKeep::Yes };
        if kept.zones.binary_search_by(|(kept, _)| kept.as_str().cmp(zone)).is_ok() {
            return MayKeep::Yes;
        }
        let age = Duration::from_millis(kept.unix_ms.saturating_sub(kept.began_ms));
        let is_young = kept.began_ms > 0 && age < LOST_ZONE_GRACE;
        if kept.is_new || is_young { MayKeep::Lost } else { MayKeep::No }
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> CellLine<S> {
        CellLine { cell: self.cell(zone).ok().cloned(), zone: zone.clone(), line: OnceLock::new() }
    }
}

/// The line of one zone in its cell.
pub struct CellLine<S: Store> {
    /// `None` where no cell is for the zone's tenant.
    cell: Option<Arc<Cell<S>>>,
    zone: ZoneId,
    /// The line in the cell's store. The first call after the store is connected makes it.
    line: OnceLock<S::Line>,
}

impl<S: Store> CellLine<S> {
    /// Makes a call. Its error names the cell.
    async fn call<'a, T, F>(&'a self, call: impl FnOnce(&'a S::Line) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let cell = self.cell.as_ref().ok_or(StoreError::UnknownZone)?;
        let line = match self.line.get() {
            Some(line) => line,
            None => {
                let store = cell.store()?;
                self.line.get_or_init(|| store.line(&self.zone))
            }
        };
        call(line).await.map_err(|error| cell.named(error))
    }
}

impl<S: Store> Line for CellLine<S> {
    async fn open(&self, policy: Policy) -> Result<Snapshot> {
        self.call(|line| line.open(policy)).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot> {
        self.call(|line| line.put(policy)).await
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce> {
        self.call(|line| line.join_once(keys)).await
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>> {
        self.call(|line| line.joined_before(keys)).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided> {
        self.call(|line| line.enter(claims)).await
    }

    async fn beat(&self, polls: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot> {
        self.call(|line| line.beat(polls, longest_period_ms)).await
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits> {
        self.call(|line| line.visits(seen)).await
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        self.call(|line| line.leave(leavers)).await
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64> {
        self.call(|line| line.bind(claim, address)).await
    }

    fn remembered_entry(&self, claim: Claim) -> Option<RememberedEntry> {
        self.line.get()?.remembered_entry(claim)
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.call(|line| line.exchange_learned(new)).await
    }

    async fn census(&self) -> Result<Census> {
        self.call(Line::census).await
    }

    async fn deal(&self, deal: Deal, anyway: bool) -> Result<Dealt> {
        self.call(|line| line.deal(deal, anyway)).await
    }

    async fn keep_draw(&self, draw: u32, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.call(|line| line.keep_draw(draw, new)).await
    }

    async fn keep_minutes(&self, server: u64, offered: Vec<OfferedMinute>) -> Result<()> {
        self.call(|line| line.keep_minutes(server, offered)).await
    }

    async fn minutes(&self, from: u32, to: u32) -> Result<Vec<KeptMinute>> {
        self.call(|line| line.minutes(from, to)).await
    }

    async fn retire(&self) -> Result<()> {
        self.call(Line::retire).await
    }
}
