//! The store that was chosen at the start.
//!
//! This is an enum and not a trait object, so each call is one jump.

use std::sync::Arc;

use admission::{Claim, Decided, Definition, Departure, Joined, Leaver, PagePolls, Policy, Snapshot, ZoneId};
use store::{Defined, Embedded, Expected, Kept, Left, RoutesDefined, Store, StoreError, redis::Redis};

use crate::cells::Cells;

type Result<T> = std::result::Result<T, StoreError>;

/// The store that was chosen.
pub enum AnyStore {
    /// In this process, over its journal.
    Embedded(Embedded),
    /// In Redis: one cell or several.
    Cells(Arc<Cells<Redis>>),
}

impl Store for AnyStore {
    async fn zones(&self) -> Result<Option<Kept>> {
        match self {
            Self::Embedded(store) => store.zones().await,
            Self::Cells(store) => store.zones().await,
        }
    }

    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<Kept> {
        match self {
            Self::Embedded(store) => store.begin(zones).await,
            Self::Cells(store) => store.begin(zones).await,
        }
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        match self {
            Self::Embedded(store) => store.define(zone, expected, new).await,
            Self::Cells(store) => store.define(zone, expected, new).await,
        }
    }

    async fn define_routes(&self, expected: Option<&str>, new: &str) -> Result<RoutesDefined> {
        match self {
            Self::Embedded(store) => store.define_routes(expected, new).await,
            Self::Cells(store) => store.define_routes(expected, new).await,
        }
    }

    async fn may_keep(&self, zone: &str) -> bool {
        match self {
            Self::Embedded(store) => store.may_keep(zone).await,
            Self::Cells(store) => store.may_keep(zone).await,
        }
    }

    async fn open_zone(&self, zone: &ZoneId, policy: Policy) -> Result<Snapshot> {
        match self {
            Self::Embedded(store) => store.open_zone(zone, policy).await,
            Self::Cells(store) => store.open_zone(zone, policy).await,
        }
    }

    async fn put_zone(&self, zone: &ZoneId, policy: Policy) -> Result<Snapshot> {
        match self {
            Self::Embedded(store) => store.put_zone(zone, policy).await,
            Self::Cells(store) => store.put_zone(zone, policy).await,
        }
    }

    async fn join(&self, zone: &ZoneId, count: u32) -> Result<Joined> {
        match self {
            Self::Embedded(store) => store.join(zone, count).await,
            Self::Cells(store) => store.join(zone, count).await,
        }
    }

    async fn enter(&self, zone: &ZoneId, claims: Vec<Claim>) -> Result<Decided> {
        match self {
            Self::Embedded(store) => store.enter(zone, claims).await,
            Self::Cells(store) => store.enter(zone, claims).await,
        }
    }

    async fn beat(&self, zone: &ZoneId, polls: Vec<PagePolls>, told_ms: u32) -> Result<Snapshot> {
        match self {
            Self::Embedded(store) => store.beat(zone, polls, told_ms).await,
            Self::Cells(store) => store.beat(zone, polls, told_ms).await,
        }
    }

    async fn visits(&self, zone: &ZoneId, seen: Vec<PagePolls>) -> Result<Left> {
        match self {
            Self::Embedded(store) => store.visits(zone, seen).await,
            Self::Cells(store) => store.visits(zone, seen).await,
        }
    }

    async fn leave(&self, zone: &ZoneId, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        match self {
            Self::Embedded(store) => store.leave(zone, leavers).await,
            Self::Cells(store) => store.leave(zone, leavers).await,
        }
    }

    async fn bind(&self, zone: &ZoneId, claim: Claim, address: u64) -> Result<u64> {
        match self {
            Self::Embedded(store) => store.bind(zone, claim, address).await,
            Self::Cells(store) => store.bind(zone, claim, address).await,
        }
    }

    async fn exchange_learned(&self, zone: &ZoneId, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Embedded(store) => store.exchange_learned(zone, new).await,
            Self::Cells(store) => store.exchange_learned(zone, new).await,
        }
    }

    async fn retire(&self, zone: &ZoneId) -> Result<()> {
        match self {
            Self::Embedded(store) => store.retire(zone).await,
            Self::Cells(store) => store.retire(zone).await,
        }
    }
}
