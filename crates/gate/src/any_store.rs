//! The store that was chosen at the start.
//!
//! This is an enum and not a trait object, so each call is one jump.

use std::sync::Arc;

use admission::{
    Census, Claim, Deal, Dealt, Decided, Definition, Departure, JoinKey, Leaver, PagePolls, Policy, Snapshot,
    Ticket, ZoneId,
};
use store::{
    Defined, Embedded, EmbeddedLine, Expected, JoinedOnce, LeftVisits, Line, MayKeep, RegisterContents,
    RememberedEntry, RoutesDefined, Store, StoreError,
    minutes::{KeptMinute, OfferedMinute},
    redis::Redis,
};

use crate::cells::{CellLine, Cells};

/// Makes the call of the store, or of the line, that was chosen.
macro_rules! chosen {
    ($self:ident.$call:ident($($argument:expr),*)) => {
        match $self {
            Self::Embedded(chosen) => chosen.$call($($argument),*).await,
            Self::Cells(chosen) => chosen.$call($($argument),*).await,
        }
    };
}

type Result<T> = std::result::Result<T, StoreError>;

/// The store that was chosen.
pub enum AnyStore {
    /// In this process, over its journal.
    Embedded(Arc<Embedded>),
    /// In Redis: one cell or several.
    Cells(Arc<Cells<Redis>>),
}

impl Store for AnyStore {
    type Line = AnyLine;

    async fn zones(&self) -> Result<Option<RegisterContents>> {
        chosen!(self.zones())
    }

    async fn begin(&self, zones: &[(ZoneId, Definition)]) -> Result<RegisterContents> {
        chosen!(self.begin(zones))
    }

    async fn define(&self, zone: &ZoneId, expected: &Expected, new: Option<&Definition>) -> Result<Defined> {
        chosen!(self.define(zone, expected, new))
    }

    async fn define_routes(&self, expected: Option<&str>, new: &str) -> Result<RoutesDefined> {
        chosen!(self.define_routes(expected, new))
    }

    async fn may_keep(&self, zone: &str) -> MayKeep {
        chosen!(self.may_keep(zone))
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> AnyLine {
        match &**self {
            Self::Embedded(store) => AnyLine::Embedded(store.line(zone)),
            Self::Cells(store) => AnyLine::Cells(store.line(zone)),
        }
    }
}

/// The line of one zone in the store that was chosen.
pub enum AnyLine {
    /// In this process.
    Embedded(EmbeddedLine),
    /// In the zone's cell.
    Cells(CellLine<Redis>),
}

impl Line for AnyLine {
    async fn open(&self, policy: Policy) -> Result<Snapshot> {
        chosen!(self.open(policy))
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot> {
        chosen!(self.put(policy))
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce> {
        chosen!(self.join_once(keys))
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>> {
        chosen!(self.joined_before(keys))
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided> {
        chosen!(self.enter(claims))
    }

    async fn beat(&self, polls: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot> {
        chosen!(self.beat(polls, longest_period_ms))
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits> {
        chosen!(self.visits(seen))
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>> {
        chosen!(self.leave(leavers))
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64> {
        chosen!(self.bind(claim, address))
    }

    fn remembered_entry(&self, claim: Claim) -> Option<RememberedEntry> {
        match self {
            Self::Embedded(line) => line.remembered_entry(claim),
            Self::Cells(line) => line.remembered_entry(claim),
        }
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        chosen!(self.exchange_learned(new))
    }

    async fn census(&self) -> Result<Census> {
        chosen!(self.census())
    }

    async fn deal(&self, deal: Deal, anyway: bool) -> Result<Dealt> {
        chosen!(self.deal(deal, anyway))
    }

    async fn keep_draw(&self, draw: u32, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        chosen!(self.keep_draw(draw, new))
    }

    async fn keep_minutes(&self, server: u64, offered: Vec<OfferedMinute>) -> Result<()> {
        chosen!(self.keep_minutes(server, offered))
    }

    async fn minutes(&self, from: u32, to: u32) -> Result<Vec<KeptMinute>> {
        chosen!(self.minutes(from, to))
    }

    async fn retire(&self) -> Result<()> {
        chosen!(self.retire())
    }
}
