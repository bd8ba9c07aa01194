//! One zone as this server serves it: the last view, the polls noted beside it, and the way to the store.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use admission::{
    Claim, Definition, Entry, Lookup, Notice, Pace, Plan, Policy, Position, Sealer, Tally, Ticket, Verdict,
    View, Window, ZoneId,
};
use arc_swap::ArcSwap;
use events::{
    Admitted, Bus, Entered, Evicted, ModeChanged, NoticeChanged, PolicyChanged, StoreBack, StoreCall,
    StoreCalled, StoreLost, Tallied, ViewShown,
};
use store::{Store, StoreError};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    time::Instant,
};

use crate::limits::ZoneLimits;

use super::{
    CLAIM_PATIENCE, JOIN_PATIENCE, JoinedOne, Refusal, Reply, given::Given, lane, seen::SeenMap, tell::Wait,
};

/// Calls of one zone that may wait for the store; more are refused. At a store's thousand batches a second this is
/// far more than a client waits for.
const MAX_WAITING: usize = 16_384;

/// A view older than this, while people wait, is one the store did not renew.
const STALE_AFTER: Duration = Duration::from_secs(3);

/// A view, and what goes with it.
pub(super) struct Shown {
    pub(super) view: View,
    pub(super) seen: SeenMap,
    limits: Option<Arc<ZoneLimits>>,
    /// When it was taken, on this server's clock, as far as that is known.
    at: Instant,
}

/// An answer within this time says what time it is at the store; a later one only what time it was.
const PROMPT: Duration = Duration::from_millis(250);

impl Shown {
    /// The instant on the store's clock, as far as it can be told from here.
    pub(super) fn now_ms(&self) -> u64 {
        self.view.now_ms + u64::try_from(self.at.elapsed().as_millis()).unwrap_or(0)
    }

    /// Notes that the holder of `seq` polled.
    pub(super) fn note(&self, seq: u64) {
        #[cfg(feature = "sabotage")]
        if admission::sabotage::on(admission::sabotage::Rule::Silence) {
            return;
        }
        self.seen.note(seq);
    }
}

/// Where the store's word goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What is wanted from the store.
pub(super) enum Ask {
    Join(Answer<JoinedOne>),
    Claim(Claim, Answer<(Verdict, u64)>),
    /// To make the zone known, which the store keeps or is to keep with this policy.
    Open(Policy),
    /// A view, now.
    Renew,
    /// The same; and where it has another policy than this, which the store keeps, the zone is told of it.
    Follow(Policy),
    /// To be told when all asked before is done.
    Settle(oneshot::Sender<()>),
}

/// Who says what zones there are, and with what policies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// The configuration. A store that does not know the zone is told again.
    Configuration,
    /// The store. Who does not find the zone there waits for [`Ask::Open`].
    Store,
}

/// A zone as its keeper defines it. The policy in force is the view's.
struct Defined {
    policy: Policy,
    notice: Arc<Notice>,
}

impl Defined {
    fn by(definition: &Definition) -> Self {
        Self { policy: definition.policy, notice: Arc::new(definition.notice.clone()) }
    }
}

/// One zone.
pub(super) struct Room {
    pub(super) zone: ZoneId,
    pub(super) sealer: Sealer,
    pub(super) bus: Arc<Bus>,
    /// What events call the zone.
    pub(super) id: events::Zone,
    /// Entries that were told.
    given: Mutex<Given>,
    /// How often somebody was let in without the store.
    pub(super) unseen: AtomicU64,
    shown: ArcSwap<Shown>,
    /// Held while the store is asked for a view, until that is in use: an older one never takes a newer one's place.
    showing: AsyncMutex<()>,
    defined: ArcSwap<Defined>,
    keeper: Keeper,
    /// The store knows the zone, as far as is known.
    open: AtomicBool,
    born: Instant,
    /// Since when the store has failed, in milliseconds after `born`, plus 1; 0 while it answers.
    away_since: AtomicU64,
    /// Somebody of the front polled, and the store has not heard of it.
    unheard: AtomicBool,
    asks: mpsc::Sender<Ask>,
}

impl Room {
    /// Puts the zone into the store and starts its lane, which ends with the room.
    pub(super) async fn open<S: Store>(
        store: Arc<S>,
        zone: ZoneId,
        definition: &Definition,
        sealer: Sealer,
        bus: Arc<Bus>,
    ) -> Result<Arc<Self>, StoreError> {
        let id = bus.zone(&zone);
        let view = timed(&bus, id, StoreCall::Put, 1, store.put_zone(&zone, definition.policy)).await?;
        Ok(Self::start(store, zone, (view, definition), sealer, bus, Keeper::Configuration))
    }

    /// A room for a zone that the store keeps, and that it is still to be asked about.
    pub(super) fn follow<S: Store>(
        store: Arc<S>,
        zone: ZoneId,
        definition: &Definition,
        sealer: Sealer,
        bus: Arc<Bus>,
    ) -> Arc<Self> {
        Self::start(store, zone, (nothing(definition.policy), definition), sealer, bus, Keeper::Store)
    }

    fn start<S: Store>(
        store: Arc<S>,
        zone: ZoneId,
        (view, definition): (View, &Definition),
        sealer: Sealer,
        bus: Arc<Bus>,
        keeper: Keeper,
    ) -> Arc<Self> {
        let (asks, asked) = mpsc::channel(MAX_WAITING);
        let seen = SeenMap::default().for_view(&view);
        let limits = ZoneLimits::new(&zone, &view.policy, None);
        let (now, open) = (Instant::now(), keeper == Keeper::Configuration);
        let room = Arc::new(Self {
            id: bus.zone(&zone),
            zone,
            sealer,
            bus,
            given: Mutex::default(),
            showing: AsyncMutex::default(),
            unseen: AtomicU64::new(0),
            shown: ArcSwap::from_pointee(Shown { view, seen, limits, at: now }),
            defined: ArcSwap::from_pointee(Defined::by(definition)),
            keeper,
            open: AtomicBool::new(open),
            born: now,
            away_since: AtomicU64::new(0),
            unheard: AtomicBool::new(false),
            asks,
        });
        tokio::spawn(lane::run(store, Arc::downgrade(&room), asked, open));
        room
    }

    pub(super) async fn set_policy<S: Store>(&self, store: &S, policy: Policy) -> Result<(), StoreError> {
        let put = self.timed(StoreCall::Put, 1, store.put_zone(&self.zone, policy));
        let shown = self.show(put).await;
        if shown.is_err() {
            // An idle lane would not find out when the store is back.
            self.tell(Ask::Renew);
        }
        shown
    }

    /// Notes how the zone is defined from now on. A policy comes into force by the store.
    pub(super) fn keep(&self, definition: &Definition) {
        let before = self.defined.load();
        let new_notice = *before.notice != definition.notice;
        if new_notice || before.policy != definition.policy {
            self.defined.store(Arc::new(Defined::by(definition)));
        }
        if new_notice {
            self.bus.publish(NoticeChanged { zone: self.id });
        }
    }

    /// How the zone is defined.
    pub(super) fn definition(&self) -> Definition {
        let defined = self.defined.load();
        Definition { policy: defined.policy, notice: Notice::clone(&defined.notice) }
    }

    pub(super) fn notice(&self) -> Arc<Notice> {
        Arc::clone(&self.defined.load().notice)
    }

    /// The limits of the policy in force, where it has any.
    pub(super) fn limits(&self) -> Option<Arc<ZoneLimits>> {
        self.shown.load().limits.clone()
    }

    pub(super) fn policy(&self) -> Policy {
        self.shown.load().view.policy
    }

    /// Asks for a new view, once nobody else does, and takes it into use.
    pub(super) async fn show(
        &self,
        view: impl Future<Output = Result<View, StoreError>>,
    ) -> Result<(), StoreError> {
        let _showing = self.showing.lock().await;
        let asked = Instant::now();
        let view = view.await;
        self.heard(&view);
        let view = view?;
        let before = self.shown.load();
        let mut at = Instant::now();
        if at - asked > PROMPT {
            let later = view.now_ms.saturating_sub(before.view.now_ms);
            at = at.min(before.at + Duration::from_millis(later));
        }
        let seen = before.seen.for_view(&view);
        let limits = ZoneLimits::new(&self.zone, &view.policy, before.limits.as_ref());
        let before = self.shown.swap(Arc::new(Shown { view, seen, limits, at }));
        self.open.store(true, Ordering::Relaxed);
        self.tell_changes(&before.view);
        self.tell_view();
        Ok(())
    }

    /// Publishes in what the view in use differs from the one before.
    fn tell_changes(&self, before: &View) {
        let (zone, shown) = (self.id, self.shown.load());
        let view = &shown.view;
        if view.policy.mode != before.policy.mode {
            self.bus.publish(ModeChanged { zone, mode: view.policy.mode });
        }
        if view.policy != before.policy {
            self.bus.publish(PolicyChanged { zone, policy: view.policy });
        }
        // A total below the last one is that of a store that started anew. What was before the first view is no news.
        let (old, new) = (before.tally.evicted, view.tally.evicted);
        let count = if new < old { new } else { new - old };
        if count > 0 && before.epoch != NO_EPOCH {
            self.bus.publish(Evicted { zone, count: whole(count), at_ms: view.now_ms });
        }
    }

    /// Publishes that the view in use is there, and its totals.
    pub(super) fn tell_view(&self) {
        let shown = self.shown.load();
        let view = &shown.view;
        if view.epoch != NO_EPOCH {
            self.bus.publish(ViewShown { zone: self.id, epoch: view.epoch, at_ms: view.now_ms });
            self.bus.publish(self.last_shown().tallied);
        }
    }

    /// The totals of the view in use.
    pub(super) fn last_shown(&self) -> super::Shown {
        let shown = self.shown.load();
        let tally = &shown.view.tally;
        let tallied = Tallied {
            zone: self.id,
            admit_per_minute: shown.view.policy.admit_per_minute,
            waiting: whole(tally.waiting),
            present: whole(tally.present),
            joined: tally.joined,
            entered: tally.entered,
            evicted: tally.evicted,
            slots_offered: tally.slots_offered,
            slots_used: tally.slots_used,
        };
        super::Shown { tallied, at: shown.at, known: shown.view.epoch != NO_EPOCH }
    }

    pub(super) fn shown(&self) -> Arc<Shown> {
        self.shown.load_full()
    }

    /// Notes whether the store answered.
    pub(super) fn heard<T>(&self, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) if self.is_away() => {
                let away_ms = self.away_ms();
                if self.away_since.swap(0, Ordering::Relaxed) != 0 {
                    self.bus.publish(StoreBack { zone: self.id, away_ms });
                }
            }
            Ok(_) => {}
            // It is there, and has too much to do.
            Err(StoreError::Busy) => {}
            Err(StoreError::Away(_)) => self.set_away(),
            Err(StoreError::UnknownZone) => {
                self.set_away();
                if self.keeper == Keeper::Store {
                    self.open.store(false, Ordering::Relaxed);
                }
            }
        }
    }

    /// Takes the store to be away, if it is not away already.
    pub(super) fn set_away(&self) {
        let now = 1 + self.since_born_ms();
        if self.away_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.bus.publish(StoreLost { zone: self.id });
        }
    }

    /// Whether the last call to the store failed.
    pub(super) fn is_away(&self) -> bool {
        self.away_since.load(Ordering::Relaxed) != 0
    }

    /// For how long the store has been away, in milliseconds; 0 where it is not.
    pub(super) fn away_ms(&self) -> u64 {
        match self.away_since.load(Ordering::Relaxed) {
            0 => 0,
            since => (1 + self.since_born_ms()).saturating_sub(since),
        }
    }

    fn since_born_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// Whether the store knows the zone, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Tells the lane; a lane that has so much to do that this does not fit in will hear of it with the next round.
    pub(super) fn tell(&self, ask: Ask) {
        let _ = self.asks.try_send(ask);
    }

    /// Waits until the lane has done what it was asked so far.
    pub(super) async fn settled(&self) {
        let (done, told) = oneshot::channel();
        self.tell(Ask::Settle(done));
        let _ = told.await;
    }

    /// Whether the store has to hear of polls before it decides about anybody; asked once.
    pub(super) fn take_unheard(&self) -> bool {
        self.unheard.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_stale(&self) -> bool {
        self.is_shown_stale(&self.shown.load())
    }

    pub(super) fn is_shown_stale(&self, shown: &Shown) -> bool {
        self.is_away() || (shown.view.tally.waiting > 0 && shown.at.elapsed() > STALE_AFTER)
    }

    /// The answer to a poll, where the view has it. The way of nearly every call: no lock, no allocation.
    pub(super) fn look(&self, ticket: Ticket) -> Option<Reply> {
        let shown = self.shown.load();
        let now_ms = shown.now_ms();
        match shown.view.lookup(ticket.epoch, ticket.seq, now_ms) {
            Lookup::Waiting(place) => {
                shown.note(ticket.seq);
                Some(self.waiting(ticket, place, now_ms, self.is_shown_stale(&shown)))
            }
            Lookup::Ask => None,
        }
    }

    /// Notes that a ticket's holder asked, who gets no answer.
    ///
    /// A ticket of an earlier epoch is taken for one of this epoch, which it is unless its line is no more. Then somebody
    /// who has left counts as present meanwhile, at the worst; a number that is gone stays gone.
    pub(super) fn note(&self, ticket: &Ticket) {
        self.shown.load().note(ticket.seq);
    }

    /// What was last known of a ticket that only the store could decide about.
    pub(super) fn look_stale(&self, ticket: Ticket) -> Option<Reply> {
        let shown = self.shown.load();
        let now_ms = shown.now_ms();
        let place = shown.view.position(ticket.seq, now_ms).filter(|_| ticket.epoch == shown.view.epoch)?;
        shown.note(ticket.seq);
        self.unheard.store(true, Ordering::Relaxed);
        Some(self.waiting(ticket, place, now_ms, true))
    }

    /// The answer to a call that the store decided at `at_ms`.
    pub(super) fn reply(&self, ticket: Ticket, verdict: Verdict, at_ms: u64) -> Result<Reply, Refusal> {
        match verdict {
            Verdict::Waiting(place) => Ok(self.waiting(ticket, place, at_ms, false)),
            Verdict::Gone => Err(Refusal::Gone),
            Verdict::Entered(entry) => {
                if entry.at_ms == at_ms {
                    self.note_entry(&ticket, at_ms);
                }
                Ok(self.entered_at(&ticket, entry.unix_s))
            }
        }
    }

    fn waiting(&self, mut ticket: Ticket, place: Position, now_ms: u64, stale: bool) -> Reply {
        let Wait { rank, told, reason, polling_period_ms, stale } =
            Wait::tell(&mut ticket, &place, &self.policy(), now_ms, stale);
        Reply::Waiting { token: self.sealer.seal(&ticket), rank, told, reason, polling_period_ms, stale }
    }

    /// Publishes an entry of this very call, with the wait as its holder knew it.
    fn note_entry(&self, ticket: &Ticket, at_ms: u64) {
        self.bus.publish(Entered {
            zone: self.id,
            waited_ms: whole(at_ms.saturating_sub(ticket.issued_ms)),
            told_s: ticket.first_told_s.unwrap_or(0),
            at_ms,
        });
    }

    /// Publishes that the store let a ticket in, unless this server has told of it. By the store's word to the lane and
    /// not by the reply: an entry is one also where its holder has hung up, and where the store's first word was lost.
    pub(super) fn note_admitted(&self, epoch: u32, seq: u64, entry: Entry, at_ms: u64) {
        if self.is_news(epoch, seq) {
            self.tell_admitted(epoch, seq, entry, at_ms);
        }
    }

    /// Notes that a ticket's holder entered, and tells whether this server knew.
    pub(super) fn is_news(&self, epoch: u32, seq: u64) -> bool {
        let now_ms = self.since_born_ms();
        self.given.lock().unwrap_or_else(PoisonError::into_inner).note(epoch, seq, now_ms)
    }

    pub(super) fn tell_admitted(&self, epoch: u32, seq: u64, entry: Entry, at_ms: u64) {
        let (zone, policy) = (self.id, self.policy());
        self.bus.publish(Admitted { zone, epoch, seq, entered_unix_s: entry.unix_s, at_ms, policy });
    }

    /// Awaits a store call and publishes how it went.
    pub(super) async fn timed<T>(
        &self,
        call: StoreCall,
        tickets: usize,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timed(&self.bus, self.id, call, tickets, answer).await
    }

    pub(super) async fn join(&self) -> Result<JoinedOne, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Join(answer))?;
        patiently(JOIN_PATIENCE, answered).await
    }

    pub(super) async fn claim(&self, ticket: Ticket) -> Result<(Verdict, u64), Refusal> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Claim(Claim { epoch: ticket.epoch, seq: ticket.seq }, answer))?;
        patiently(CLAIM_PATIENCE, answered).await
    }

    fn ask(&self, ask: Ask) -> Result<(), Refusal> {
        if self.is_away() {
            return Err(lane::away().into());
        }
        Ok(self.asks.try_send(ask).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => ended(),
        })?)
    }
}

/// The epoch of a view that no store has shown; lines begin with 1.
const NO_EPOCH: u32 = 0;

/// What is known of a zone that the store has not told about.
fn nothing(policy: Policy) -> View {
    View {
        now_ms: 0,
        policy,
        epoch: NO_EPOCH,
        base: 0,
        next: 0,
        front_end: 0,
        pages: Vec::new(),
        pace: Pace { slots_used: 1.0, leaving_per_s: 0.0, known: 0.0 },
        plan: Arc::new(Plan::new(&Window::new(&policy), &policy, 0)),
        tally: Tally::default(),
    }
}

/// Awaits the lane's answer, for a time.
async fn patiently<T>(
    patience: Duration,
    answered: oneshot::Receiver<Result<T, StoreError>>,
) -> Result<T, Refusal> {
    match tokio::time::timeout(patience, answered).await {
        Ok(answer) => Ok(answer.unwrap_or_else(|_| Err(ended()))?),
        Err(_) => Err(StoreError::Away("no answer in time".to_owned()).into()),
    }
}

fn ended() -> StoreError {
    StoreError::Away("the zone's lane has ended".to_owned())
}

async fn timed<T>(
    bus: &Bus,
    zone: events::Zone,
    call: StoreCall,
    tickets: usize,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let asked = Instant::now();
    let answer = answer.await;
    let took_us = u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX);
    bus.publish(StoreCalled { zone, call, took_us, tickets: whole(tickets as u64), ok: answer.is_ok() });
    answer
}

fn whole(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
