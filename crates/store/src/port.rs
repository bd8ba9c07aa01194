//! The port: what a waiting room needs from its store.
//!
//! A [`Store`] has the zones and their definitions. A [`Line`] has the calls about one zone.
//!
//! A call is a whole decision about one zone, made atomically on the store's clock. A failed call may or may not have
//! happened. Each call can be repeated safely; a repeated `join` without keys gives out more tickets, which have no holders and
//! are evicted later.
//!
//! Invariant: what a call answers is durable.

use std::{future::Future, sync::Arc};

use admission::{
    Census, Claim, Deal, Dealt, Decided, Definition, Departure, Entry, JoinKey, Joined, Leaver, PagePolls,
    Policy, Snapshot, Ticket, Words, ZoneId,
};

use crate::minutes::{KeptMinute, OfferedMinute};

/// Why a store did not answer. The call may or may not have happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store can't be reached, or can't write. It may work again later.
    #[error("the store is away: {0}")]
    Away(String),
    /// Too many calls are waiting.
    #[error("the store has too many calls waiting")]
    Busy,
    /// The line has no numbers left for these tickets. It has some again when people at its beginning have left.
    #[error("the line is full")]
    Full,
    /// The store has this zone, and its state cannot be used. Other zones are not affected.
    #[error(
        "what the store has of this zone cannot be used: {0}; put back a good copy of the store's files, or give the zone \
         another id, under which it starts with an empty line"
    )]
    Unreadable(String),
    /// The zone was neither put nor opened since the store started, or the store does not keep it.
    #[error("the store was not told about this zone")]
    UnknownZone,
}

/// The zones of a store, with their definitions. Two are equal if they have the same, whenever they were read.
#[derive(Clone, Debug, Default, Eq)]
pub struct RegisterContents {
    /// The zones, sorted by name.
    pub zones: Vec<(ZoneId, Definition)>,
    /// The routes that operators set while servers ran, as the text that they set. A store does not read it.
    pub routes: Option<Arc<str>>,
    /// Whether the store never had a zone, not even one that was deleted.
    pub is_new: bool,
    /// The time by the store's clock when the zones were so, in milliseconds since 1970: it says where they are in their schedules, and which
    /// draws nobody can move any more.
    pub unix_ms: u64,
    /// When the store got its first zone, in milliseconds since 1970, by its clock; 0 if it has none, or does not know.
    pub began_ms: u64,
}

/// Whether a store has a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayKeep {
    /// It has, or cannot say.
    Yes,
    /// It has none of this name.
    No,
    /// It has none of this name, and had no zone at all a minute ago: it may have lost what it kept.
    Lost,
}

impl PartialEq for RegisterContents {
    fn eq(&self, other: &Self) -> bool {
        (&self.zones, &self.routes, self.is_new) == (&other.zones, &other.routes, other.is_new)
    }
}

/// The result of a change of the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutesDefined {
    /// The change is made.
    Done,
    /// Nothing was changed, because the routes were not as expected. Holds the current ones.
    Otherwise(Option<Arc<str>>),
}

/// The state of a zone that a change expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The zone exists, with any definition.
    Any,
    /// The zone does not exist.
    Absent,
    /// The zone's definition has this tag ([`Definition::etag`]).
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

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defined {
    /// The change is made. Holds the definition before it.
    Done(Option<Definition>),
    /// Nothing was changed, because the zone was not as expected. Holds its current definition.
    Otherwise(Option<Definition>),
    /// Nothing was changed, because an event by lot, of this name, had begun by the store's clock: its list is frozen, or is about to be.
    Frozen(ZoneId),
}

/// A store of zones.
pub trait Store: Send + Sync + 'static {
    /// The calls about one zone.
    type Line: Line;

    /// The zones of the store; `None` if the configuration defines the zones. Cheap enough to be called every second.
    fn zones(&self) -> impl Future<Output = Result<Option<RegisterContents>, StoreError>> + Send;

    /// Adds these zones if the store never had one. Returns the zones of the store.
    ///
    /// # Errors
    /// [`StoreError`]; always [`StoreError::Away`] if the configuration defines the zones.
    fn begin(
        &self,
        _zones: &[(ZoneId, Definition)],
    ) -> impl Future<Output = Result<RegisterContents, StoreError>> + Send {
        std::future::ready(Err(keeps_no_zones()))
    }

    /// Changes the definition of a zone, or deletes it if `new` is `None`, if the zone is as expected. Of several concurrent
    /// changes that expect the same, one succeeds. The line of a deleted zone stays. This does not notify other servers.
    ///
    /// An event by lot is not changed once it has begun by the store's clock, however long the call took: whoever reads it as it is at a later
    /// time of that clock ([`RegisterContents::unix_ms`]) may freeze its list. See [`Schedule::check_frozen`](admission::Schedule::check_frozen).
    ///
    /// # Errors
    /// [`StoreError`]; always [`StoreError::Away`] if the configuration defines the zones.
    fn define(
        &self,
        _zone: &ZoneId,
        _expected: &Expected,
        _new: Option<&Definition>,
    ) -> impl Future<Output = Result<Defined, StoreError>> + Send {
        std::future::ready(Err(keeps_no_zones()))
    }

    /// Replaces the routes if they are as expected. Of several concurrent changes that expect the same, one succeeds. This does not
    /// notify other servers.
    ///
    /// # Errors
    /// [`StoreError`]; always [`StoreError::Away`] if the configuration defines the zones.
    fn define_routes(
        &self,
        _expected: Option<&str>,
        _new: &str,
    ) -> impl Future<Output = Result<RoutesDefined, StoreError>> + Send {
        std::future::ready(Err(keeps_no_zones()))
    }

    /// Whether the store may have a zone of this name. The answer may be a moment old. Cheap: many callers may ask.
    fn may_keep(&self, _zone: &str) -> impl Future<Output = MayKeep> + Send {
        std::future::ready(MayKeep::No)
    }

    /// The line of a zone, for the calls about it. This asks nothing: the zone is still to be opened or put. All lines of one zone share
    /// what this server knows of it.
    fn line(self: &Arc<Self>, zone: &ZoneId) -> Self::Line;
}

/// The reply to [`Line::join_once`].
#[derive(Clone, Debug, PartialEq)]
pub struct JoinedOnce {
    /// For each of the people, the ticket that they have already.
    pub earlier: Vec<Option<Ticket>>,
    /// The tickets of the others, in their order. Perhaps none.
    pub joined: Joined,
}

/// The line of one zone in a store. Make it once for each zone that is served: it holds what a call needs, so a call looks up nothing.
///
/// Until the zone was opened or put by this server, calls fail with [`StoreError::UnknownZone`].
pub trait Line: Send + Sync + 'static {
    /// Makes the zone known to this server, with the policy of the store, or with `policy` if the configuration defines the
    /// zones.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::UnknownZone`] if the store defines the zones and does not have this one.
    fn open(&self, policy: Policy) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Creates the zone or changes its policy. Tickets and the notice stay.
    fn put(&self, policy: Policy) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Gives out `count` tickets (1 to [`MAX_BATCH`](crate::MAX_BATCH)) at the end of the line. If nobody waits, the holders
    /// may enter at once.
    fn join(&self, count: u32) -> impl Future<Output = Result<Joined, StoreError>> + Send {
        async move { Ok(self.join_once(vec![None; count as usize]).await?.joined) }
    }

    /// Gives out tickets like [`Self::join`] to as many people as `keys` has, in their order, of whom some have a key. Whoever joined with
    /// the same key before gets that ticket, for [`JoinKey::KEPT_MS`]. A store may forget a key when it loses something, and it
    /// remembers at most [`JoinKey::MOST_A_MINUTE`].
    fn join_once(
        &self,
        keys: Vec<Option<JoinKey>>,
    ) -> impl Future<Output = Result<JoinedOnce, StoreError>> + Send;

    /// The tickets that [`Self::join_once`] would return for these keys (1 to [`MAX_BATCH`](crate::MAX_BATCH)) without giving out new ones.
    /// Changes nothing, and makes nobody present.
    fn joined_before(
        &self,
        keys: Vec<JoinKey>,
    ) -> impl Future<Output = Result<Vec<Option<Ticket>>, StoreError>> + Send;

    /// Decides claims (1 to [`MAX_BATCH`](crate::MAX_BATCH)), and admits those whose turn it is. The verdicts are in the
    /// order of the claims. The holders count as present.
    fn enter(&self, claims: Vec<Claim>) -> impl Future<Output = Result<Decided, StoreError>> + Send;

    /// Reports the polls since the last report, lets the store do what is due (evictions, generations), and returns the
    /// zone's snapshot. Call it about once a second for a zone that is in use or has people waiting.
    ///
    /// `longest_period_ms` is the longest polling period that this server tells, or may tell until the next call; 0 if that is the
    /// policy's. It may tell it once a snapshot says so ([`Snapshot::longest_period_ms`]).
    fn beat(
        &self,
        marks: Vec<PagePolls>,
        longest_period_ms: u32,
    ) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Reports which visitors were active since the last report, and ends the visits that are idle. Returns whose visits were left
    /// lately. Call it about once a second for a zone that limits the people inside; the next snapshot counts them.
    fn visits(&self, seen: Vec<PagePolls>) -> impl Future<Output = Result<LeftVisits, StoreError>> + Send;

    /// Lets holders leave (1 to [`MAX_BATCH`](crate::MAX_BATCH)): places become free, visits end. Returns what became of each, in the
    /// order of the leavers.
    fn leave(&self, leavers: Vec<Leaver>) -> impl Future<Output = Result<Vec<Departure>, StoreError>> + Send;

    /// Binds the entry of a ticket to an address (a digest, not 0), unless it is bound already, for as long as a claim returns it.
    /// Returns the address that it is bound to, or 0 if the ticket has no entry.
    fn bind(&self, claim: Claim, address: u64) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// The entry of a ticket, as far as this server remembers it. This asks nothing, so it can be told while the store is away. A store that
    /// remembers none returns `None`.
    fn remembered_entry(&self, _claim: Claim) -> Option<RememberedEntry> {
        None
    }

    /// Exchanges what servers learnt about the people of a zone: words that mean nothing to a store. `new` replaces what is kept.
    /// Returns what was kept before. A store that keeps nothing returns `None`.
    fn exchange_learned(
        &self,
        _new: Option<Vec<u8>>,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Lists who waits.
    fn census(&self) -> impl Future<Output = Result<Census, StoreError>> + Send {
        std::future::ready(Err(holds_no_draws()))
    }

    /// Deals the line anew by the draw that the policy names. With `anyway`, also if people left since the census: their places end when
    /// they have been silent for the idle time. Repeating it changes nothing.
    fn deal(&self, _deal: Deal, _anyway: bool) -> impl Future<Output = Result<Dealt, StoreError>> + Send {
        std::future::ready(Err(holds_no_draws()))
    }

    /// Keeps the record of draw `draw` of this zone, and returns what is kept. A record begins with its stage, one digit: a later stage
    /// replaces an earlier one, and of two of one stage the first one stays. `None` only reads.
    fn keep_draw(
        &self,
        _draw: u32,
        _new: Option<Vec<u8>>,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send {
        std::future::ready(Err(holds_no_draws()))
    }

    /// Keeps what `server` counted in some minutes of this zone: at most [`OFFERED_MAX`](crate::minutes::OFFERED_MAX), in their order, for
    /// [`MINUTES_KEPT`](crate::minutes::MINUTES_KEPT). The name of a server is its own until it ends. Repeating it changes nothing.
    fn keep_minutes(
        &self,
        _server: u64,
        _offered: Vec<OfferedMinute>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Err(keeps_no_minutes()))
    }

    /// The minutes of this zone that are kept, from minute `from` on and before `to`, in their order. They are at most
    /// [`READ_MAX`](crate::minutes::READ_MAX) apart.
    fn minutes(
        &self,
        _from: u32,
        _to: u32,
    ) -> impl Future<Output = Result<Vec<KeptMinute>, StoreError>> + Send {
        std::future::ready(Err(keeps_no_minutes()))
    }

    /// This server has reported everything that it heard in the zone, and stops. Nobody is spared any more because of what it might
    /// have heard. If it calls again, it counts as running again.
    fn retire(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// An entry that a server remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedEntry {
    /// When it was.
    pub entry: Entry,
    /// Its holder has left since then.
    pub has_left: bool,
    /// The last instant at which a repeated claim returns it, in milliseconds on the store's clock.
    pub expires_ms: u64,
}

/// The visits that were left lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftVisits {
    /// The pages of their tickets, by number.
    pub pages: Vec<(u64, Arc<Words>)>,
    /// The line's earlier epochs, each with the number that its tickets are below.
    pub epochs: Vec<(u32, u64)>,
}

fn holds_no_draws() -> StoreError {
    StoreError::Away("this store holds no draws".to_owned())
}

fn keeps_no_minutes() -> StoreError {
    StoreError::Away("this store keeps no statistics by minute".to_owned())
}

fn keeps_no_zones() -> StoreError {
    StoreError::Away("the configuration defines the zones, not the store".to_owned())
}
