//! The port: what a waiting room asks of its store.
//!
//! A call is a whole decision about one zone, made atomically on the store's clock. A call that fails may or may not
//! have happened; each may be repeated without harm (a repeated `join` gives out more numbers, whose tickets nobody
//! holds and the sweep takes away). What a call answers is durable.

use std::future::Future;

use admission::{Claim, Decided, Joined, Mark, Policy, View, ZoneId};

/// Why a store did not answer. None of these says whether the call happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store can't be reached, or can't keep anything; it may be back later.
    #[error("the store is away: {0}")]
    Away(String),
    /// Too many calls wait already.
    #[error("the store has too many calls waiting")]
    Busy,
    /// No [`Store::put_zone`] for this zone since the store started.
    #[error("the store was not told about this zone")]
    UnknownZone,
}

/// Where the zones' lines live.
pub trait Store: Send + Sync + 'static {
    /// The zones that the store keeps, with their policies, in the order of their names; none where a store leaves
    /// that to the configuration. Cheap enough to be asked every second.
    fn zones(&self) -> impl Future<Output = Result<Option<Vec<(ZoneId, Policy)>>, StoreError>> + Send;

    /// Whether the store keeps a zone of this name, as far as it can say: where it can't, it may. What it says may be a
    /// moment old, and many may ask.
    fn may_keep(&self, _zone: &str) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// Makes a zone known to this server: with the policy that the store keeps for it, or with `policy` where it keeps
    /// none, which it then does.
    fn open_zone(
        &self,
        zone: &ZoneId,
        policy: Policy,
    ) -> impl Future<Output = Result<View, StoreError>> + Send;

    /// Makes a zone known or changes its policy; places are kept.
    fn put_zone(
        &self,
        zone: &ZoneId,
        policy: Policy,
    ) -> impl Future<Output = Result<View, StoreError>> + Send;

    /// Takes `count` places (1 to [`MAX_BATCH`](crate::MAX_BATCH)) at the end of the line; where nobody waits, the
    /// holders may be in at once.
    fn join(&self, zone: &ZoneId, count: u32) -> impl Future<Output = Result<Joined, StoreError>> + Send;

    /// Asks about tickets (1 to [`MAX_BATCH`](crate::MAX_BATCH)), lets in those whose turn it is. The verdicts come
    /// in the claims' order. The holders count as present.
    fn enter(
        &self,
        zone: &ZoneId,
        claims: Vec<Claim>,
    ) -> impl Future<Output = Result<Decided, StoreError>> + Send;

    /// Reports who polled since the last report, lets the store do what is due (sweep, frontier, generation), and
    /// answers with the zone as it is. Due about once a second for a zone that is used or has anybody waiting.
    fn beat(&self, zone: &ZoneId, marks: Vec<Mark>) -> impl Future<Output = Result<View, StoreError>> + Send;
}
