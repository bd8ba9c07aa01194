//! The gate: what stands between HTTP and the store.
//!
//! A poll from behind the front is answered here, from the zone's last view: the seal is checked, a bit is set, rank
//! and wait are read; no lock, no allocation, no round trip. Joins, and claims of the front, go to the store through
//! the zone's lane, which gathers what comes in while its previous call is in flight: no timer, so an idle server
//! adds no delay and a busy one pays by the batch.
//!
//! What happens is published on the bus, at most once for each call to the store, each entry and each refusal; a poll
//! publishes nothing.
//!
//! Invariants: nobody is admitted but by the store's word (or, where a zone's policy says so, for want of a store, see
//! `unseen`); a failing store changes nothing for those who wait but
//! the mark `stale`; a told wait only grows together with a [`Reason`].

mod given;
mod glance;
mod lane;
mod outlook;
mod room;
mod seen;
mod tell;
mod unseen;

use std::{collections::HashMap, sync::Arc, time::Duration};

use admission::{BadSeal, Definition, Mode, Notice, Policy, SEALED_LEN, Seals, Ticket, Verdict, ZoneId};
use arc_swap::ArcSwap;
use events::{Bus, Limited, LimitedCall, RefusalReason, Refused, Tallied, ZoneAdded, ZoneRemoved};
use store::{Store, StoreError};
use tokio::{sync::Mutex, time::Instant};

use crate::limits::ZoneLimits;
pub use glance::Glance;
pub use outlook::{Outlook, Standing};
use room::{Ask, Room};
pub use tell::Wait;

/// How long a poll is held back whose slot is about to fall free, in milliseconds: what apps and networks are usually
/// early by. Longer would use hardly more slots, and be felt in the latencies.
const HOLD_MS: u32 = 150;

/// How long the store may take for a claim before the holder is told what is known without it.
const CLAIM_PATIENCE: Duration = Duration::from_secs(1);

/// How long the store may take for a join. Past it the caller is asked to come again, and the place, if it was given
/// out, is nobody's.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// A token as text (ASCII).
pub type Token = [u8; SEALED_LEN];

/// What a pass says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassClaims {
    /// The line's epoch: with the zone and `seq` it names this entry for ever (`jti`).
    pub epoch: u32,
    /// The ticket's number.
    pub seq: u64,
    /// When the holder entered, in seconds since 1970 (`iat`, `nbf`).
    pub entered_unix_s: u64,
    /// How long the pass is good, in seconds.
    pub ttl_s: u32,
}

/// A wait as told, in seconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The wait. At least 1: who waits is not in yet.
    pub seconds: u32,
    /// Nine of ten wait at least about this long.
    pub low_s: u32,
    /// Nine of ten wait at most about this long.
    pub high_s: u32,
}

/// Why a wait is not told, or is longer than the one told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody is let in at present, and nobody knows until when.
    Held,
    /// The line moves slower than it did when the wait was told before, or people ahead came back.
    Slower,
}

impl Reason {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Slower => "slower",
        }
    }
}

/// What a holder is told. `wait` and `entry` answer alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Not yet.
    Waiting {
        /// To ask with next time. It remembers what was told; older tokens of the same place stay good.
        token: Token,
        /// 1 + the live tickets ahead.
        rank: u64,
        /// The wait; none while nobody knows.
        told: Option<Told>,
        /// Where the wait is missing, or longer than before.
        reason: Option<Reason>,
        /// When to ask again, in milliseconds from now.
        polling_period_ms: u32,
        /// The store is away, and this is what was last known.
        stale: bool,
    },
    /// The holder is in.
    Entered {
        /// Asked with again, it gives the same pass for as long as that is good.
        token: Token,
        /// For the pass to be signed.
        pass: PassClaims,
    },
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The zone is not served here.
    #[error("there is no such zone")]
    UnknownZone,
    /// The token is forged, altered, of another zone, or sealed by a key long gone.
    #[error("the token was not given out for this zone")]
    BadToken,
    /// The ticket was evicted, or its pass has expired, or its line is no more.
    #[error("the place is gone")]
    Gone,
    /// The zone takes nobody.
    #[error("the zone is closed")]
    Closed {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
    /// The store does not answer, and this needs it.
    #[error("the store is away")]
    StoreAway {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
    /// Too many calls wait for the store already.
    #[error("too many calls at once")]
    Busy {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Away(_) => Self::StoreAway { retry_after_s: 3 },
            StoreError::Busy => Self::Busy { retry_after_s: 1 },
            // The lane puts a zone again that the store does not know; until then it is as good as away.
            StoreError::UnknownZone => Self::StoreAway { retry_after_s: 1 },
        }
    }
}

impl From<BadSeal> for Refusal {
    fn from(BadSeal: BadSeal) -> Self {
        Self::BadToken
    }
}

impl From<Refusal> for RefusalReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownZone => Self::UnknownZone,
            Refusal::BadToken => Self::BadToken,
            Refusal::Gone => Self::Gone,
            Refusal::Closed { .. } => Self::Closed,
            Refusal::StoreAway { .. } => Self::StoreAway,
            Refusal::Busy { .. } => Self::Busy,
        }
    }
}

/// What the store that keeps the zones says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It keeps the zone.
    Kept,
    /// Nothing: it did not answer yet.
    Nothing,
}

/// A zone as its store last showed it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// Its totals; all 0 where no store has shown it yet.
    pub tallied: Tallied,
    /// When that was.
    pub at: Instant,
    /// Whether a store has shown it.
    pub known: bool,
}

type Rooms = HashMap<ZoneId, Arc<Room>>;

/// All zones that are served, over one store.
pub struct Gate<S> {
    store: Arc<S>,
    seals: Seals,
    bus: Arc<Bus>,
    rooms: ArcSwap<Rooms>,
    /// Held while the zones change.
    changing: Mutex<()>,
}

impl<S: Store> Gate<S> {
    /// A gate that serves no zone yet, and publishes on `bus`.
    pub fn new(store: S, seals: Seals, bus: Arc<Bus>) -> Self {
        Self { store: Arc::new(store), seals, bus, rooms: ArcSwap::default(), changing: Mutex::default() }
    }

    /// Serves exactly these zones from now on. A zone that stays keeps its places; one that is left out is not
    /// served any more, and its places stay in the store. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// What the store said to the first zone it did not take; zones put before have their new policy already.
    pub async fn serve_zones(&self, zones: Vec<(ZoneId, Definition)>) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let before = self.rooms.load_full();
        let mut rooms = Rooms::with_capacity(zones.len());
        for (zone, definition) in zones {
            let room = self.put(before.get(&zone), &zone, &definition).await?;
            rooms.insert(zone, room);
        }
        self.serve(&before, rooms);
        Ok(())
    }

    /// Serves one zone as it is defined from now on, or not any more; all others as before. Must be called on a tokio
    /// runtime.
    ///
    /// # Errors
    /// What the store said, where it did not take the zone: nothing is changed then.
    pub async fn serve_zone(&self, zone: &ZoneId, new: Option<&Definition>) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let before = self.rooms.load_full();
        let mut rooms = Rooms::clone(&before);
        match (before.get(zone), new) {
            // Another notice alone is none of the line's business.
            (Some(room), Some(definition)) if room.policy() == definition.policy => room.keep(definition),
            (room, Some(definition)) => {
                let room = self.put(room, zone, definition).await?;
                rooms.insert(zone.clone(), room);
            }
            (_, None) => drop(rooms.remove(zone)),
        }
        self.serve(&before, rooms);
        Ok(())
    }

    async fn put(
        &self,
        room: Option<&Arc<Room>>,
        zone: &ZoneId,
        definition: &Definition,
    ) -> Result<Arc<Room>, StoreError> {
        if let Some(room) = room {
            room.set_policy(&*self.store, definition.policy).await?;
            room.keep(definition);
            return Ok(Arc::clone(room));
        }
        let (sealer, bus) = (self.seals.sealer(zone), Arc::clone(&self.bus));
        Room::open(Arc::clone(&self.store), zone.clone(), definition, sealer, bus).await
    }

    /// Serves, of the zones that are `mine`, exactly these from now on, as the store says that keeps them. Waits for no
    /// call: each zone's lane sees to it that the store and this server know of one another, and a zone is away until
    /// then. Tells whether anything is otherwise than before. Must be called on a tokio runtime.
    pub async fn follow_zones(
        &self,
        mine: impl Fn(&ZoneId) -> bool,
        zones: Vec<(ZoneId, Definition, Word)>,
    ) -> bool {
        let _changing = self.changing.lock().await;
        let before = self.rooms.load_full();
        let mut changed = false;
        let mut rooms: Rooms = before
            .iter()
            .filter(|(zone, _)| !mine(zone))
            .map(|(zone, room)| (zone.clone(), Arc::clone(room)))
            .collect();
        for (zone, definition, word) in zones {
            let policy = definition.policy;
            let room = before.get(&zone).map_or_else(
                || {
                    changed = true;
                    let (sealer, bus) = (self.seals.sealer(&zone), Arc::clone(&self.bus));
                    let room = Room::follow(Arc::clone(&self.store), zone.clone(), &definition, sealer, bus);
                    if word == Word::Nothing {
                        room.set_away();
                    }
                    room
                },
                Arc::clone,
            );
            room.keep(&definition);
            match word {
                Word::Nothing => {}
                Word::Kept if room.is_open() => {
                    if room.policy() != policy {
                        changed = true;
                        room.tell(Ask::Follow(policy));
                    }
                }
                Word::Kept => room.tell(Ask::Open(policy)),
            }
            rooms.insert(zone, room);
        }
        changed |= rooms.len() != before.len();
        if changed {
            self.serve(&before, rooms);
        }
        changed
    }

    /// Takes these rooms into use, and then tells which are new and which are gone: who hears of it finds the gate as
    /// told, or newer.
    fn serve(&self, before: &Rooms, rooms: Rooms) {
        let rooms = Arc::new(rooms);
        self.rooms.store(Arc::clone(&rooms));
        for room in before.iter().filter_map(|(zone, room)| (!rooms.contains_key(zone)).then_some(room)) {
            self.bus.publish(ZoneRemoved { zone: room.id });
        }
        for room in rooms.iter().filter_map(|(zone, room)| (!before.contains_key(zone)).then_some(room)) {
            self.bus.publish(ZoneAdded { zone: room.id, policy: room.policy() });
            room.tell_view();
        }
    }

    /// Has the zones that are `mine` look for themselves whether the store answers.
    pub fn doubt(&self, mine: impl Fn(&ZoneId) -> bool) {
        for (_, room) in self.rooms.load().iter().filter(|(zone, _)| mine(zone)) {
            if room.is_open() && !room.is_away() {
                room.tell(Ask::Renew);
            }
        }
    }

    /// Takes a place in a zone's line, or resumes the token's.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn wait(&self, zone: &str, token: Option<&[u8]>) -> Result<Reply, Refusal> {
        if let Some(token) = token {
            return self.entry(zone, token).await;
        }
        let room = self.room(zone).await?;
        self.join(&room).await.inspect_err(|refusal| self.refused(room.id, *refusal))
    }

    async fn join(&self, room: &Room) -> Result<Reply, Refusal> {
        if room.policy().mode == Mode::Closed {
            return Err(Refusal::Closed { retry_after_s: 60 });
        }
        if let Some(reply) = room.admit_unseen(None) {
            return Ok(reply);
        }
        let joined = room.join().await?;
        let ticket = Ticket {
            epoch: joined.epoch,
            seq: joined.seq,
            issued_ms: joined.at_ms,
            first_told_s: None,
            told_s: None,
        };
        room.reply(ticket, joined.verdict, joined.at_ms)
    }

    /// Asks for a token's place: whether its holder may enter now.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn entry(&self, zone: &str, token: &[u8]) -> Result<Reply, Refusal> {
        let room = self.room(zone).await?;
        self.ask(&room, token).await.inspect_err(|refusal| self.refused(room.id, *refusal))
    }

    /// [`Gate::entry`] for those who go on being told, with their ticket as the reply's token has it.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn follow(&self, zone: &str, token: &[u8]) -> Result<(Reply, Ticket), Refusal> {
        let room = self.room(zone).await?;
        let ticket = room.sealer.open(token).map_err(Refusal::from);
        let ticket = ticket.inspect_err(|refusal| self.refused(room.id, *refusal))?;
        self.claim_of(&room, ticket).await
    }

    /// [`Gate::follow`] with a ticket.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn claim(&self, zone: &str, ticket: Ticket) -> Result<(Reply, Ticket), Refusal> {
        let room = self.room(zone).await?;
        self.claim_of(&room, ticket).await
    }

    async fn claim_of(&self, room: &Room, ticket: Ticket) -> Result<(Reply, Ticket), Refusal> {
        let reply = self.decide(room, ticket).await.inspect_err(|refusal| self.refused(room.id, *refusal))?;
        let (Reply::Waiting { token, .. } | Reply::Entered { token, .. }) = &reply;
        let newer = room.sealer.open(token).expect("this zone's own seal");
        Ok((reply, newer))
    }

    /// A zone at this instant, if it is served.
    #[must_use]
    pub fn glance(&self, zone: &str) -> Option<Glance> {
        self.rooms.load().get(zone).map(|room| Glance::of(Arc::clone(room)))
    }

    /// A zone as operators look at it, if it is served.
    #[must_use]
    pub fn outlook(&self, zone: &str) -> Option<Outlook> {
        self.rooms.load().get(zone).map(|room| Outlook::of(room))
    }

    async fn ask(&self, room: &Room, token: &[u8]) -> Result<Reply, Refusal> {
        self.decide(room, room.sealer.open(token)?).await
    }

    async fn decide(&self, room: &Room, ticket: Ticket) -> Result<Reply, Refusal> {
        if let Some(reply) = room.look_unseen(&ticket) {
            return reply;
        }
        if let Some(reply) = room.admit_unseen(Some(ticket)).or_else(|| room.look(ticket)) {
            return Ok(reply);
        }
        let mut claimed = room.claim(ticket).await;
        // An appointment this near is kept for the caller: the slot is used when it falls free, not a network's way
        // later.
        if let Ok((Verdict::Waiting(place), _)) = &claimed
            && let Some(slot_in_ms @ 0..=HOLD_MS) = place.slot_in_ms
        {
            tokio::time::sleep(Duration::from_millis(slot_in_ms.into())).await;
            claimed = room.claim(ticket).await;
        }
        match claimed {
            Ok((verdict, at_ms)) => room.reply(ticket, verdict, at_ms),
            // The front waits for the store's word; without it, everybody keeps the place and hears what is known.
            Err(refusal) => room.look_stale(ticket).ok_or(refusal),
        }
    }

    /// The limits of a zone's clients, where it has any.
    #[must_use]
    pub fn limits(&self, zone: &str) -> Option<Arc<ZoneLimits>> {
        self.rooms.load().get(zone)?.limits()
    }

    /// Notes that a call is refused since its client asks too often, and that the token's holder, if there is one, is
    /// present all the same. No store is asked, now or because of it.
    pub fn limited(&self, zone: &str, call: LimitedCall, retry_after_s: u32, token: Option<&[u8]>) {
        let Some(room) = self.rooms.load().get(zone).cloned() else { return };
        self.bus.publish(Limited { zone: room.id, call, count: 1, retry_after_s });
        if let Some(Ok(ticket)) = token.map(|token| room.sealer.open(token)) {
            room.note(&ticket);
        }
    }

    /// The zones served, in the order of their names, and whether the store answers for each.
    #[must_use]
    pub fn zones(&self) -> Vec<(ZoneId, bool)> {
        let mut zones: Vec<_> =
            self.rooms.load().iter().map(|(zone, room)| (zone.clone(), !room.is_stale())).collect();
        zones.sort_unstable();
        zones
    }

    /// The zones served with the policies in force, in the order of their names.
    #[must_use]
    pub fn policies(&self) -> Vec<(ZoneId, Policy)> {
        let mut zones: Vec<_> =
            self.rooms.load().iter().map(|(zone, room)| (zone.clone(), room.policy())).collect();
        zones.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        zones
    }

    /// The zones served as they are defined, in the order of their names. Where the store keeps them, a policy may be
    /// defined a moment before it is in force.
    #[must_use]
    pub fn definitions(&self) -> Vec<(ZoneId, Definition)> {
        let mut zones: Vec<_> =
            self.rooms.load().iter().map(|(zone, room)| (zone.clone(), room.definition())).collect();
        zones.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        zones
    }

    /// One zone as it is defined, if it is served; see [`Gate::definitions`].
    #[must_use]
    pub fn definition(&self, zone: &str) -> Option<Definition> {
        self.rooms.load().get(zone).map(|room| room.definition())
    }

    /// What those who wait in a zone are told, if it is served; perhaps nothing.
    #[must_use]
    pub fn notice(&self, zone: &str) -> Option<Arc<Notice>> {
        self.rooms.load().get(zone).map(|room| room.notice())
    }

    /// Waits until what is asked of a zone's store so far is done, for better or worse; not at all for one that is not
    /// served.
    pub(crate) async fn settled(&self, zone: &str) {
        let room = self.rooms.load().get(zone).cloned();
        if let Some(room) = room {
            room.settled().await;
        }
    }

    /// The store under it.
    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// The zones served, as the store last showed them.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        self.rooms.load().values().map(|room| room.last_shown()).collect()
    }

    /// One zone as the store last showed it, if it is served.
    #[must_use]
    pub fn zone_shown(&self, zone: &str) -> Option<Shown> {
        self.rooms.load().get(zone).map(|room| room.last_shown())
    }

    /// The policy in force of a zone, if it is served.
    #[must_use]
    pub fn policy(&self, zone: &str) -> Option<Policy> {
        self.rooms.load().get(zone).map(|room| room.policy())
    }

    /// Whether the store may keep a zone that is not served here (yet).
    pub async fn may_keep(&self, zone: &str) -> bool {
        self.store.may_keep(zone).await
    }

    async fn room(&self, zone: &str) -> Result<Arc<Room>, Refusal> {
        if let Some(room) = self.rooms.load().get(zone) {
            return Ok(Arc::clone(room));
        }
        // Put there by another server a moment ago, perhaps: it will be served here, too.
        let refusal = match self.may_keep(zone).await {
            true => Refusal::StoreAway { retry_after_s: 3 },
            false => Refusal::UnknownZone,
        };
        self.refused(events::Zone::NONE, refusal);
        Err(refusal)
    }

    fn refused(&self, zone: events::Zone, refusal: Refusal) {
        self.bus.publish(Refused { zone, why: refusal.into(), count: 1 });
    }
}

/// What became of one join.
struct JoinedOne {
    epoch: u32,
    seq: u64,
    at_ms: u64,
    verdict: Verdict,
}
