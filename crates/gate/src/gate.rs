//! All served zones, and where a call of a client begins.
//!
//! A poll from behind the front is answered from the zone's last view: the seal is checked, a bit is set, and rank and
//! wait are read. This takes no lock, no allocation and no round trip. Joins and claims of the front go to the store
//! through the zone's lane, which gathers what arrives while its previous call is in flight. There is no timer, so an
//! idle server adds no delay, and a busy one pays per batch.
//!
//! The gate publishes on the bus what the store was asked and decided, entries and refusals. A poll that the view answers publishes nothing.
//!
//! Invariants: only the store admits people (or, where a zone's policy says so, the gate does while the store is away,
//! see `room::fail_open`); a failing store only adds the mark `stale` to the answers of people who wait; a told wait
//! only grows together with a [`Reason`](crate::Reason).

mod draws;
mod minutes;
mod zones;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use admission::{
    BypassSealer, Definition, Departure, Leaver, Mode, Notice, PageAddress, Policy, Seals, Ticket, VISIT_LEN,
    Visit, VisitState, ZoneId,
};
use arc_swap::ArcSwap;
use events::{Bus, Refused};
use store::{Line, MayKeep, Store};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{
    caller::{Holder, Newcomer},
    cells::LOST_ZONE_GRACE,
    pace::Pace,
    reply::{PassClaims, Refusal, Reply},
    room::{FollowerView, OperatorView, Room, RoomSealers, Shared, ZoneTotals},
    trips::Trips,
    trouble::Trouble,
};
pub use draws::{DecidingDraw, ZoneDraw};
pub use zones::Listing;

/// How long a store must have been away before zones whose policy says so open without it, unless another time is set. A
/// failover takes some seconds: the time until a primary counts as dead, an election, and the next beat.
const OPEN_AFTER: Duration = Duration::from_secs(15);

/// How long operators wait for newer figures.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// How many zones are asked at the same time who waits in them. Each of them asks the store once a second anyway.
const LOOKS_AT_ONCE: usize = 256;

type Rooms<L> = HashMap<ZoneId, Arc<Room<L>>>;

/// The keys, and what is derived from them for all zones.
struct SealKeys {
    seals: Arc<Seals>,
    bypass: Arc<BypassSealer>,
}

impl SealKeys {
    fn new(seals: Seals) -> Self {
        Self { bypass: Arc::new(seals.bypass_sealer()), seals: Arc::new(seals) }
    }
}

/// All zones that are served, over one store.
pub struct Gate<S: Store> {
    shared: Shared<S>,
    keys: ArcSwap<SealKeys>,
    rooms: ArcSwap<Rooms<S::Line>>,
    /// When this server started.
    started_at: Instant,
    /// The routes that operators set, as a text that the gate does not read; none where there never were any.
    routes: watch::Sender<Option<Arc<str>>>,
    /// The zones that were served and removed.
    removed: std::sync::Mutex<HashSet<ZoneId>>,
    /// Held while zones are added, changed or removed, and while keys change.
    changing: Mutex<()>,
}

impl<S: Store> Gate<S> {
    /// A gate that serves no zone yet. It publishes on `bus`, and uses all processors of the machine.
    pub fn new(store: Arc<S>, seals: Seals, bus: Arc<Bus>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let pace = Arc::new(Pace::new(processors as f64));
        let shared = Shared { store, bus, pace, open_after_ms: 0 };
        Self {
            shared,
            keys: ArcSwap::from_pointee(SealKeys::new(seals)),
            rooms: ArcSwap::default(),
            started_at: Instant::now(),
            routes: watch::Sender::default(),
            removed: std::sync::Mutex::default(),
            changing: Mutex::default(),
        }
        .open_after(OPEN_AFTER)
    }

    /// The same gate, with another pace.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.shared.pace = Arc::new(pace);
        self
    }

    /// The routes that operators set, as last listed by their store.
    pub fn routes(&self) -> &watch::Sender<Option<Arc<str>>> {
        &self.routes
    }

    /// Paces the polls of this server. Without updates it limits nothing.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.shared.pace
    }

    /// The same gate. Zones whose policy is to open without the store do so when it has been away for longer than this. It must
    /// be longer than a failover, or each failover lets everybody in.
    #[must_use]
    pub fn open_after(mut self, away: Duration) -> Self {
        self.shared.open_after_ms = u64::try_from(away.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// The keys that seal tokens.
    #[must_use]
    pub fn seals(&self) -> Arc<Seals> {
        Arc::clone(&self.keys.load().seals)
    }

    /// Seals and opens bypass tokens, which belong to no zone.
    #[must_use]
    pub fn bypass_sealer(&self) -> Arc<BypassSealer> {
        Arc::clone(&self.keys.load().bypass)
    }

    /// Seals and opens tokens with these keys from now on. A call that is under way may still reply with a token of the keys
    /// before.
    pub async fn set_seals(&self, seals: Seals) {
        // A room that is opened meanwhile would keep the keys before.
        let _changing = self.changing.lock().await;
        for room in self.rooms.load().values() {
            room.set_sealers(RoomSealers::of(&seals, &room.zone));
        }
        self.keys.store(Arc::new(SealKeys::new(seals)));
    }

    /// The holder of a token, who polls or leaves.
    ///
    /// # Errors
    /// [`Refusal::BadToken`], or the zone is not served; see [`Refusal`].
    pub async fn holder(&self, zone: &str, token: &[u8]) -> Result<Holder<S::Line>, Refusal> {
        Holder::of_token(self.room(zone, Some(token)).await?, token)
    }

    /// Somebody without a ticket, who joins.
    ///
    /// # Errors
    /// The zone is not served; see [`Refusal`].
    pub async fn newcomer(&self, zone: &str) -> Result<Newcomer<S::Line>, Refusal> {
        Ok(Newcomer::of(self.room(zone, None).await?))
    }

    /// Asks whether the token's holder may enter now. No limit of a client is asked.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn poll(&self, zone: &str, token: &[u8]) -> Result<Reply, Refusal> {
        self.holder(zone, token).await?.poll(&mut Trips::unwatched()).await
    }

    /// Takes a ticket in a zone's line. No limit of a client is asked.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn join(&self, zone: &str) -> Result<Reply, Refusal> {
        self.newcomer(zone).await?.join(None, &mut Trips::unwatched()).await
    }

    /// The poll of a ticket that a stream keeps. Also returns the ticket that the reply's token holds.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn poll_for_stream(&self, zone: &str, ticket: Ticket) -> Result<(Reply, Ticket), Refusal> {
        let holder = Holder::of_ticket(self.room(zone, None).await?, ticket);
        holder.poll_for_stream(&mut Trips::unwatched()).await
    }

    /// The visit that `sealed` holds, and its state at `unix_s`, in seconds since 1970. `None` if the zone is not served or did not
    /// seal it.
    #[must_use]
    pub fn visit(&self, zone: &ZoneId, sealed: &[u8], unix_s: u64) -> Option<(Visit, VisitState)> {
        let rooms = self.rooms.load();
        let room = rooms.get(zone)?;
        let visit = room.open_visit(sealed).ok()?;
        let state = match room.has_left(visit.epoch, visit.seq) {
            true => VisitState::Ended,
            false => visit.state(&room.policy(), unix_s),
        };
        Some((visit, state))
    }

    /// Notes that a visitor is active. The store hears of it with the next report; this asks nobody.
    pub fn note_visit(&self, zone: &ZoneId, visit: &Visit) {
        if let Some(room) = self.rooms.load().get(zone) {
            room.note_visit(visit.epoch, visit.seq);
        }
    }

    /// The visit of an entry that is `age_s` old, at `unix_s`, in seconds since 1970. Whoever asks again gets the same visit; none if it
    /// has ended. With an `address` (a digest, not 0), the visit is that of the first address that asks.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn visit_of(
        &self,
        zone: &ZoneId,
        pass: &PassClaims,
        age_s: u64,
        address: u64,
        unix_s: u64,
    ) -> Result<Option<Visit>, Refusal> {
        let room = self.room(zone.as_str(), None).await?;
        room.visit_of(pass, age_s, address, unix_s).await
    }

    /// Somebody leaves the zone: a place in line becomes free, or a visit ends, and where the people inside are limited, somebody else
    /// may enter at once. The visit counts no more on any server, a second later. Leaving again is [`Departure::Gone`].
    ///
    /// # Errors
    /// See [`Refusal`]; [`Refusal::Gone`] if there is nothing to leave.
    pub async fn leave(&self, zone: &ZoneId, leaver: Leaver) -> Result<Departure, Refusal> {
        self.room(zone.as_str(), None).await?.leave(leaver, &mut Trips::unwatched()).await
    }

    /// Seals a visit of a zone.
    #[must_use]
    pub fn seal_visit(&self, zone: &ZoneId, visit: &Visit) -> [u8; VISIT_LEN] {
        match self.rooms.load().get(zone) {
            Some(room) => room.seal_visit(visit),
            // The zone was removed a moment ago.
            None => self.keys.load().seals.visit_sealer(zone).seal(visit),
        }
    }

    /// A zone at this instant for streams, if it is served.
    #[must_use]
    pub fn follower_view(&self, zone: &str) -> Option<FollowerView<S::Line>> {
        self.rooms.load().get(zone).map(|room| FollowerView::of(Arc::clone(room)))
    }

    /// A zone at this instant for operators, if it is served.
    #[must_use]
    pub fn operator_view(&self, zone: &str) -> Option<OperatorView> {
        self.rooms.load().get(zone).map(|room| OperatorView::of(room))
    }

    /// Whether a zone issued the token. This takes about a microsecond, and asks no store.
    #[must_use]
    pub fn issued(&self, zone: &str, token: &[u8]) -> bool {
        self.rooms.load().get(zone).is_some_and(|room| room.open_token(token).is_ok())
    }

    /// What `read` says of each zone served, in the order of their names.
    fn each_zone<T>(&self, read: impl Fn(&Room<S::Line>) -> T) -> Vec<(ZoneId, T)> {
        let mut zones: Vec<_> =
            self.rooms.load().iter().map(|(zone, room)| (zone.clone(), read(room))).collect();
        zones.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        zones
    }

    /// The zones served, in the order of their names, and whether the store answers for each.
    #[must_use]
    pub fn zones(&self) -> Vec<(ZoneId, bool)> {
        self.each_zone(|room| !room.is_stale())
    }

    /// Of the zones served whose store is away, those whose store has said why, in the order of their names.
    #[must_use]
    pub fn troubles(&self) -> Vec<(ZoneId, Trouble)> {
        let all = self.each_zone(Room::trouble);
        all.into_iter().filter_map(|(zone, trouble)| Some((zone, trouble?))).collect()
    }

    /// Why the store of one zone is away, if it is and has said so.
    #[must_use]
    pub fn trouble(&self, zone: &str) -> Option<Trouble> {
        self.rooms.load().get(zone).and_then(|room| room.trouble())
    }

    /// The zones served with the policies in force, in the order of their names.
    #[must_use]
    pub fn policies(&self) -> Vec<(ZoneId, Policy)> {
        self.each_zone(Room::policy)
    }

    /// The definitions of the zones served, in the order of their names. Where a store keeps them, a policy may be defined
    /// a moment before it is in force.
    #[must_use]
    pub fn definitions(&self) -> Vec<(ZoneId, Definition)> {
        self.each_zone(Room::definition)
    }

    /// The definition of one zone, if it is served; see [`Gate::definitions`].
    #[must_use]
    pub fn definition(&self, zone: &str) -> Option<Definition> {
        self.rooms.load().get(zone).map(|room| room.definition())
    }

    /// The time that counts for a zone's schedule, in seconds since 1970, if the zone is served.
    #[must_use]
    pub fn schedule_s(&self, zone: &str) -> Option<u64> {
        self.rooms.load().get(zone).map(|room| room.schedule_s(store::unix_ms()))
    }

    /// Where people go on who come to a zone while it is closed before or after an event.
    #[must_use]
    pub fn closed_page(&self, zone: &str) -> Option<PageAddress> {
        let rooms = self.rooms.load();
        let room = rooms.get(zone).filter(|room| room.policy().mode == Mode::Closed)?;
        room.definition().schedule.phase(room.schedule_s(store::unix_ms())).page().cloned()
    }

    /// The id of the event of a zone that lasts, from the beginning of its pre-queue to its end.
    #[must_use]
    pub fn event_now(&self, zone: &str) -> Option<ZoneId> {
        let rooms = self.rooms.load();
        let room = rooms.get(zone)?;
        let definition = room.definition();
        definition.schedule.phase(room.schedule_s(store::unix_ms())).event().map(|event| event.id.clone())
    }

    /// The notice of a zone, if it is served. It may be empty.
    #[must_use]
    pub fn notice(&self, zone: &str) -> Option<Arc<Notice>> {
        self.rooms.load().get(zone).map(|room| room.notice())
    }

    /// Waits until everything requested of a zone's lane so far is done or has failed. Returns at once for a zone that is
    /// not served.
    pub(crate) async fn settled(&self, zone: &str) {
        let room = self.rooms.load().get(zone).cloned();
        if let Some(room) = room {
            room.settled().await;
        }
    }

    /// Fetches the views anew of zones that nobody asks for here, of one zone or of all, so that what operators read is of now. Takes a
    /// second at most.
    pub async fn look_again(&self, zone: Option<&str>) {
        let rooms = self.rooms.load_full();
        let of_interest = rooms.values().filter(|room| zone.is_none_or(|zone| room.zone.as_str() == zone));
        let old: Vec<_> = of_interest.filter(|room| room.is_unwatched()).map(Arc::clone).collect();
        renew(old.iter()).await;
    }

    /// A zone for operators as it is now: what the store says of it after this call. None if the zone is not served, or the store
    /// does not say it within a second.
    pub async fn view_of_now(&self, zone: &str) -> Option<OperatorView> {
        let room = self.rooms.load().get(zone).map(Arc::clone)?;
        let asked = tokio::time::Instant::now();
        room.renewed(LOOK_WITHIN).await;
        OperatorView::since(&room, asked)
    }

    /// Zones for operators as they are now, as [`Self::view_of_now`] has each, in this order. They are asked at the same time, and take a
    /// second at most for each 256 of them.
    pub async fn views_of_now(&self, zones: &[ZoneId]) -> Vec<Option<OperatorView>> {
        let rooms = self.rooms.load_full();
        let mut views = Vec::with_capacity(zones.len());
        for some in zones.chunks(LOOKS_AT_ONCE) {
            let asked = Instant::now();
            let of_some: Vec<_> = some.iter().map(|zone| rooms.get(zone)).collect();
            renew(of_some.iter().copied().flatten()).await;
            views.extend(of_some.into_iter().map(|room| OperatorView::since(room?, asked)));
        }
        views
    }

    /// Reports what was heard in all zones, and tells the store that this server stops, so that nobody is spared any more because of
    /// what it may have heard. Takes `within` at most. No zone is served after that.
    pub async fn retire(&self, within: Duration) {
        let rooms = self.rooms.load_full();
        let retiring: Vec<_> = rooms.values().map(|room| room.order_retirement()).collect();
        let all = async {
            let mut all_told = true;
            for retired in retiring {
                // A lane that ended says nothing.
                all_told &= retired.await.unwrap_or(true);
            }
            all_told
        };
        if !matches!(tokio::time::timeout(within, all).await, Ok(true)) {
            tracing::warn!(
                "the store did not answer while this server stopped; people who fall silent keep their places for up to two idle times \
                 more, because this server may have heard them"
            );
        }
    }

    /// The store under it.
    pub(crate) fn store(&self) -> &S {
        &self.shared.store
    }

    /// The totals of the zones served, as their stores last reported them.
    #[must_use]
    pub fn totals(&self) -> Vec<ZoneTotals> {
        self.rooms.load().values().map(|room| room.totals()).collect()
    }

    /// The totals of one zone, if it is served.
    #[must_use]
    pub fn zone_totals(&self, zone: &str) -> Option<ZoneTotals> {
        self.rooms.load().get(zone).map(|room| room.totals())
    }

    /// The policy in force of a zone, if it is served.
    #[must_use]
    pub fn policy(&self, zone: &str) -> Option<Policy> {
        self.rooms.load().get(zone).map(|room| room.policy())
    }

    /// Whether the store may keep a zone that is not served here (yet), or has lost it: a server that has just started cannot tell, and the
    /// others write it back.
    pub async fn may_keep(&self, zone: &str) -> bool {
        match self.shared.store.may_keep(zone).await {
            MayKeep::Yes => true,
            MayKeep::No => false,
            MayKeep::Lost => {
                self.is_too_new() && !self.removed().iter().any(|removed| removed.as_str() == zone)
            }
        }
    }

    /// Whether this server cannot know what the store had before.
    fn is_too_new(&self) -> bool {
        self.started_at.elapsed() < LOST_ZONE_GRACE
    }

    async fn room(&self, zone: &str, token: Option<&[u8]>) -> Result<Arc<Room<S::Line>>, Refusal> {
        if let Some(room) = self.rooms.load().get(zone) {
            return Ok(Arc::clone(room));
        }
        // Another server may have defined it a moment ago. This server will serve it too. Or the store lost it, and this
        // server is too new to know: then the token proves that there was such a zone, and other servers will say so.
        let is_lost = token.is_some_and(|token| self.is_too_new() && self.proves(zone, token));
        let refusal = match is_lost || self.may_keep(zone).await {
            true => Refusal::StoreAway { retry_after_s: 3 },
            false => Refusal::UnknownZone,
        };
        self.shared.bus.publish(Refused { zone: events::ZoneNumber::NONE, why: refusal.into(), count: 1 });
        Err(refusal)
    }

    /// Whether a zone of this name gave out the token, and this server has not seen that it was removed.
    fn proves(&self, zone: &str, token: &[u8]) -> bool {
        let Ok(zone) = ZoneId::parse(zone) else { return false };
        self.keys.load().seals.sealer(&zone).open(token).is_ok() && !self.removed().contains(&zone)
    }

    fn removed(&self) -> std::sync::MutexGuard<'_, HashSet<ZoneId>> {
        self.removed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Fetches the views of zones anew, of all at the same time, and waits for them a second at most. Otherwise the store is away or slow, and
/// the figures are old.
async fn renew<'a, L: Line + 'a>(rooms: impl Iterator<Item = &'a Arc<Room<L>>> + Clone) {
    rooms.clone().for_each(|room| room.order_renewal());
    let all = async {
        for room in rooms {
            room.settled().await;
        }
    };
    let _ = tokio::time::timeout(LOOK_WITHIN, all).await;
}
