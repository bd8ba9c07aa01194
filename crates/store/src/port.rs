//! The port: what a waiting room asks of its store.
//!
//! A call is a whole decision about one zone, made atomically on the store's clock. A call that fails may or may not
//! have happened; each may be repeated without harm (a repeated `join` gives out more numbers, whose tickets nobody
//! holds and the sweep takes away). What a call answers is durable.

use std::future::Future;

use admission::{Claim, Decided, Definition, Joined, PagePolls, Policy, View, ZoneId};

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

/// The zones that a store keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The zones, in the order of their names.
    pub zones: Vec<(ZoneId, Definition)>,
    /// There never was a zone, as far as the store knows: not one that was deleted since, either.
    pub is_new: bool,
}

/// What a change expects of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// That it is there, however it is defined.
    Any,
    /// That it is not there.
    Absent,
    /// That its definition has this tag ([`Definition::etag`]).
    Tag(String),
}

impl Expected {
    /// Whether a zone is as expected.
    #[must_use]
    pub fn holds(&self, zone: Option<&Definition>) -> bool {
        match self {
            Self::Any => zone.is_some(),
            Self::Absent => zone.is_none(),
            Self::Tag(tag) => zone.is_some_and(|definition| definition.etag() == *tag),
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defined {
    /// It is made. What there was before.
    Done(Option<Definition>),
    /// Nothing is changed: the zone was not as expected, but like this.
    Otherwise(Option<Definition>),
}

/// Where the zones' lines live.
pub trait Store: Send + Sync + 'static {
    /// The zones that the store keeps; none where a store leaves that to the configuration. Cheap enough to be asked
    /// every second.
    fn zones(&self) -> impl Future<Output = Result<Option<Kept>, StoreError>> + Send;

    /// Keeps these zones, where there never was a zone; tells what it keeps then.
    ///
    /// A store that leaves zones to the configuration refuses it as [`StoreError::Away`], and so it does the next.
    fn begin(
        &self,
        _zones: &[(ZoneId, Definition)],
    ) -> impl Future<Output = Result<Kept, StoreError>> + Send {
        std::future::ready(Err(keeps_no_zones()))
    }

    /// Has a zone defined anew, or, with none, deleted, if it is as expected: of several that expect the same at once, one
    /// succeeds. The line of a deleted zone stays where it is. Other servers don't hear of it by this.
    fn define(
        &self,
        _zone: &ZoneId,
        _expected: &Expected,
        _new: Option<&Definition>,
    ) -> impl Future<Output = Result<Defined, StoreError>> + Send {
        std::future::ready(Err(keeps_no_zones()))
    }

    /// Whether the store keeps a zone of this name, as far as it can say: where it can't, it may. What it says may be a
    /// moment old, and many may ask.
    fn may_keep(&self, _zone: &str) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// Makes a zone known to this server: with the policy that the store keeps for it, or, where it leaves that to the
    /// configuration, with `policy`. A store that keeps zones, and not this one, answers [`StoreError::UnknownZone`].
    fn open_zone(
        &self,
        zone: &ZoneId,
        policy: Policy,
    ) -> impl Future<Output = Result<View, StoreError>> + Send;

    /// Makes a zone known or changes its policy, whatever it was; places and the notice are kept.
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
    fn beat(
        &self,
        zone: &ZoneId,
        marks: Vec<PagePolls>,
    ) -> impl Future<Output = Result<View, StoreError>> + Send;
}

fn keeps_no_zones() -> StoreError {
    StoreError::Away("it keeps no zones: the configuration does".to_owned())
}
