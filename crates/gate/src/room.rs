//! One zone as this server serves it: the last view, the polls noted beside it, and the way to the store.
//!
//! | file | concern |
//! |---|---|
//! | `current_view` | the view in use, and its replacement by a newer one |
//! | `polls` | one bit per ticket: its holder polled since the last report |
//! | `answer` | replies to polls and joins, from the view and from the store's verdicts |
//! | `wait_status` | fills in what a waiting holder is told: rank, wait, reason, next poll |
//! | `causes` | why waits became longer |
//! | `lane` | the task that sends calls to the store, one batch at a time |
//! | `calls`, `orders` | what the lane is asked to do: calls of holders, and the rest |
//! | `availability` | whether the store answers |
//! | `fail_open` | admission without the store |
//! | `line_limit` | whether another person may join |
//! | `gone` | tickets that the store recently reported as gone |
//! | `leavers` | lets holders leave; who may begin the visit of an entry |
//! | `draw` | which number a ticket has after a draw |
//! | `minutes` | statistics by minute |
//! | `published` | which entries were published already |
//! | `publish` | events on the bus |
//! | `visitors` | who is active inside, and who left |
//! | `announced_periods` | the polling periods that this server tells, and their announcement to the store |
//! | `follower_view`, `operator_view` | the zone at one instant, for streams and for operators |

mod announced_periods;
mod answer;
mod availability;
mod calls;
mod causes;
mod current_view;
mod draw;
mod fail_open;
mod follower_view;
mod gone;
mod lane;
mod leavers;
mod line_limit;
mod minutes;
mod operator_view;
mod orders;
mod polls;
mod publish;
mod published;
mod visitors;
mod wait_status;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use admission::{
    BadSeal, Definition, Lots, Mode, Notice, Policy, Sealer, Seals, Ticket, VISIT_LEN, Visit, VisitSealer,
    ZoneId,
};
use arc_swap::ArcSwap;
use events::{Bus, DefinitionChanged, LimitedCall, NoticeChanged, StoreCall};
use store::{Line, Store, StoreError};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc},
    time::Instant,
};
use wait::View;

use crate::{limits::ZoneLimits, pace::Pace, reply::Token, trouble::Trouble, zone_forecast::ZoneForecast};
use announced_periods::AnnouncedPeriods;
use calls::Call;
use causes::Causes;
use current_view::CurrentView;
pub use current_view::ZoneTotals;
pub use follower_view::FollowerView;
use gone::GoneTickets;
use leavers::Leavers;
use line_limit::LineEnd;
pub use operator_view::{OperatorView, SamplePlace};
use orders::Orders;
use polls::PollMap;
use published::PublishedEntries;
use visitors::Visitors;

/// How many calls of one zone may wait for the store; more are refused. At a thousand batches a second this is far
/// more than a client waits for.
const MOST_QUEUED_CALLS: usize = 16_384;

/// How many tickets may have been issued since the view in use was made.
const MAX_TICKETS_BEYOND_VIEW: u64 = 1 << 20;

/// Who decides which zones exist, and with what policies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// The configuration. If the store does not know the zone, the lane puts it there again.
    Configuration,
    /// The store. If the store does not know the zone, the lane waits for [`Room::order_open`].
    Store,
}

/// By how much the clocks of a zone and of its register may be apart until the zone's own one says when the register was read.
const CLOCKS_APART: Duration = Duration::from_secs(5);

/// When to ask again for a place in a closed zone of which nobody knows when it opens, in seconds.
const ASK_WHEN_CLOSED_S: u32 = 60;

/// A zone as its keeper defines it. The policy in force is the view's.
struct Defined {
    definition: Definition,
    /// The notice in force by the schedule.
    notice: Arc<Notice>,
}

impl Defined {
    fn by(definition: &Definition, unix_s: u64) -> Self {
        Self { definition: definition.clone(), notice: Arc::new(definition.notice_at(unix_s).clone()) }
    }
}

/// The sealers of one zone. Deriving their keys takes as long as checking a seal, so it is done once for each rotation.
pub(crate) struct RoomSealers {
    places: Sealer,
    visits: VisitSealer,
}

impl RoomSealers {
    /// Those of a zone.
    pub(crate) fn of(seals: &Seals, zone: &ZoneId) -> Self {
        Self { places: seals.sealer(zone), visits: seals.visit_sealer(zone) }
    }
}

/// One zone.
pub(crate) struct Room<L> {
    pub(crate) zone: ZoneId,
    /// The zone's line in the store.
    line: L,
    /// A rotation of the keys replaces them.
    sealers: ArcSwap<RoomSealers>,
    bus: Arc<Bus>,
    /// The zone's number in events.
    pub(crate) id: events::ZoneNumber,
    published: Mutex<PublishedEntries>,
    gone: GoneTickets,
    leavers: Leavers,
    /// The joins that wait for the store's answer.
    joining: AtomicU32,
    /// How many people entered without the store.
    without_store: AtomicU64,
    current: ArcSwap<CurrentView>,
    /// Makes the views, and the waits that people are told.
    forecast: ZoneForecast,
    /// What the draws of the zone gave to whom, in the order of their numbers.
    lots: ArcSwap<Vec<Arc<Lots>>>,
    /// Held from asking the store for a view until that view is in use, so that an older view never replaces a newer
    /// one.
    replacing: AsyncMutex<()>,
    defined: ArcSwap<Defined>,
    /// Until when the definition is sure to have been this one, by the store's clock in milliseconds since 1970: when its register was read.
    listed_ms: AtomicU64,
    keeper: Keeper,
    /// The store knows the zone, as far as this server knows.
    open: AtomicBool,
    started_at: Instant,
    /// Since when the store has failed, in milliseconds after `started_at`, plus 1; 0 while it answers.
    away_since: AtomicU64,
    /// Why; `None` while it answers.
    trouble: Mutex<Option<Trouble>>,
    /// When the last call began that the store failed, in the same way.
    failed_at: AtomicU64,
    /// Somebody at the front polled, and the store has not heard of it.
    unreported: AtomicBool,
    /// How long the store must have been away before the zone may open without it, in milliseconds.
    open_after_ms: u64,
    /// When holders should ask again.
    pace: Arc<Pace>,
    announced: AnnouncedPeriods,
    visitors: Visitors,
    calls: mpsc::Sender<Call>,
    orders: Arc<Orders>,
}

/// What all rooms of a gate share.
pub(crate) struct Shared<S> {
    pub(crate) store: Arc<S>,
    pub(crate) bus: Arc<Bus>,
    pub(crate) pace: Arc<Pace>,
    /// How long the store must have been away before a zone may open without it, in milliseconds.
    pub(crate) open_after_ms: u64,
}

impl<L: Line> Room<L> {
    /// Puts the zone into the store and starts its lane, which ends with the room. If the store cannot use its state of the
    /// zone, the zone counts as away, and no others do.
    pub(crate) async fn open<S: Store<Line = L>>(
        shared: &Shared<S>,
        zone: ZoneId,
        definition: &Definition,
        sealers: RoomSealers,
    ) -> Result<Arc<Self>, StoreError> {
        let (bus, line) = (&shared.bus, shared.store.line(&zone));
        let id = bus.zone(&zone);
        let policy = definition.policy_at(store::unix_ms() / 1_000);
        let forecast = ZoneForecast::new(&policy);
        let put = publish::timed(bus, id, StoreCall::Put, 1, line.put(policy));
        let (put, ()) = tokio::join!(put, forecast.exchange(&line, &zone, 0));
        let (view, trouble) = match put {
            Ok(snapshot) => (forecast.observe(snapshot), None),
            Err(error @ StoreError::Unreadable(_)) => {
                tracing::error!(%zone, %error, "the zone is not available; the others are served");
                (current_view::before_the_first(policy), Some(error))
            }
            Err(error) => return Err(error),
        };
        let room =
            Self::start(shared, (zone, line), (view, forecast), definition, sealers, Keeper::Configuration);
        if let Some(error) = trouble {
            room.note_trouble(&error);
        }
        Ok(room)
    }

    /// A room for a zone that the store keeps. The store is still to be asked about it.
    pub(crate) fn unopened<S: Store<Line = L>>(
        shared: &Shared<S>,
        zone: ZoneId,
        definition: &Definition,
        sealers: RoomSealers,
    ) -> Arc<Self> {
        let view = current_view::before_the_first(definition.policy);
        let forecast = ZoneForecast::new(&definition.policy);
        let line = shared.store.line(&zone);
        Self::start(shared, (zone, line), (view, forecast), definition, sealers, Keeper::Store)
    }

    fn start<S: Store<Line = L>>(
        shared: &Shared<S>,
        (zone, line): (ZoneId, L),
        (view, forecast): (View, ZoneForecast),
        definition: &Definition,
        sealers: RoomSealers,
        keeper: Keeper,
    ) -> Arc<Self> {
        let (calls, called) = mpsc::channel(MOST_QUEUED_CALLS);
        let orders = Arc::<Orders>::default();
        let polls = PollMap::default().for_view(&view);
        let limits = ZoneLimits::new(&zone, &view.policy, None);
        let end = LineEnd::of(&view);
        let (now, open) = (Instant::now(), causes::is_of_store(&view));
        let room = Arc::new(Self {
            id: shared.bus.zone(&zone),
            zone,
            line,
            sealers: ArcSwap::from_pointee(sealers),
            bus: Arc::clone(&shared.bus),
            published: Mutex::default(),
            gone: GoneTickets::default(),
            leavers: Leavers::default(),
            joining: AtomicU32::new(0),
            replacing: AsyncMutex::default(),
            without_store: AtomicU64::new(0),
            current: ArcSwap::from_pointee(CurrentView {
                first_tally: view.tally,
                view,
                polls,
                limits,
                end,
                causes: Causes::default(),
                taken_at: now,
                asked_at: now,
            }),
            forecast,
            lots: ArcSwap::default(),
            defined: ArcSwap::from_pointee(Defined::by(definition, store::unix_ms() / 1_000)),
            // Without a register, a change comes into force here before anybody else knows of it.
            listed_ms: AtomicU64::new(if keeper == Keeper::Store { 0 } else { u64::MAX }),
            keeper,
            open: AtomicBool::new(open),
            started_at: now,
            away_since: AtomicU64::new(0),
            trouble: Mutex::default(),
            failed_at: AtomicU64::new(0),
            unreported: AtomicBool::new(false),
            open_after_ms: shared.open_after_ms,
            pace: Arc::clone(&shared.pace),
            announced: AnnouncedPeriods::default(),
            visitors: Visitors::default(),
            calls,
            orders: Arc::clone(&orders),
        });
        tokio::spawn(lane::run(Arc::downgrade(&room), called, orders, open));
        room
    }

    /// The limits of the zone's clients, if the policy in force limits calls of this kind.
    pub(crate) fn limits_of(&self, call: LimitedCall) -> Option<Arc<ZoneLimits>> {
        let current = self.current.load();
        current.limits.limits(call).then(|| Arc::clone(&current.limits))
    }

    /// The ticket of a token of this zone.
    pub(crate) fn open_token(&self, token: &[u8]) -> Result<Ticket, BadSeal> {
        self.sealers.load().places.open(token)
    }

    /// The token of a ticket of this zone.
    fn seal(&self, ticket: &Ticket) -> Token {
        self.sealers.load().places.seal(ticket)
    }

    /// Whether the key in force sealed this token, which must be one of this zone.
    fn is_sealed_now(&self, token: &Token) -> bool {
        self.sealers.load().places.is_current(token)
    }

    /// The visit of this zone that `sealed` holds.
    pub(crate) fn open_visit(&self, sealed: &[u8]) -> Result<Visit, BadSeal> {
        self.sealers.load().visits.open(sealed)
    }

    /// Seals a visit of this zone.
    pub(crate) fn seal_visit(&self, visit: &Visit) -> [u8; VISIT_LEN] {
        self.sealers.load().visits.seal(visit)
    }

    /// Seals and opens with other keys from now on.
    pub(crate) fn set_sealers(&self, sealers: RoomSealers) {
        self.sealers.store(Arc::new(sealers));
    }

    /// Puts another policy into the store, and takes the view under that policy into use.
    pub(crate) async fn set_policy(&self, policy: Policy) -> Result<(), StoreError> {
        let put = self.timed(StoreCall::Put, 1, self.line.put(policy));
        let replaced = self.replace_view(put).await;
        if replaced.is_err() {
            // An idle lane would not notice when the store is back.
            self.order_renewal();
        }
        replaced
    }

    /// Puts the policy of `definition` for `unix_s` into the store, and notes how the zone is defined from now on.
    pub(crate) async fn redefine(&self, definition: &Definition, unix_s: u64) -> Result<(), StoreError> {
        match self.set_policy(definition.policy_at(unix_s)).await {
            // The zone stays unavailable. That must not keep others from being served as they are defined now.
            Err(StoreError::Unreadable(_)) => {}
            set => set?,
        }
        self.set_definition(definition, unix_s);
        Ok(())
    }

    /// Notes how the zone is defined from now on, and what its schedule says at `unix_s` (seconds since 1970 by the store's clock). The
    /// policy comes into force by the store.
    pub(crate) fn set_definition(&self, definition: &Definition, unix_s: u64) {
        let before = self.defined.load();
        let new_notice = *before.notice != *definition.notice_at(unix_s);
        let is_redefined = before.definition != *definition;
        if new_notice || is_redefined {
            self.defined.store(Arc::new(Defined::by(definition, unix_s)));
        }
        if is_redefined {
            self.bus.publish(DefinitionChanged { zone: self.id });
        }
        if new_notice {
            self.bus.publish(NoticeChanged { zone: self.id });
        }
    }

    /// Notes that the store's register had the definition in use when its clock showed `unix_ms`; it was asked `ago` before now. If that clock
    /// is behind the zone's, the zone's counts after a while.
    pub(crate) fn note_listed(&self, unix_ms: u64, ago: Duration) {
        let ago_ms = u64::try_from(ago.saturating_add(CLOCKS_APART).as_millis()).unwrap_or(u64::MAX);
        let by_zone_ms = self.unix_ms_now().unwrap_or(0).saturating_sub(ago_ms);
        self.listed_ms.store(unix_ms.max(by_zone_ms), Ordering::Release);
    }

    /// Until when the definition is sure to have been the one in use, or a later one: read this first.
    pub(crate) fn listed_ms(&self) -> u64 {
        self.listed_ms.load(Ordering::Acquire)
    }

    /// The zone's own clock now, in milliseconds since 1970; `None` before the store has told it.
    pub(crate) fn unix_ms_now(&self) -> Option<u64> {
        self.current.load().unix_ms_at(Instant::now())
    }

    /// Whether the zone has events.
    pub(crate) fn has_schedule(&self) -> bool {
        !self.defined.load().definition.schedule.is_empty()
    }

    /// The time that counts for the schedule, in seconds since 1970. While the zone has an opening, that is the zone's own clock, which
    /// nobody sets; otherwise `unix_ms`, the clock of its store.
    pub(crate) fn schedule_s(&self, unix_ms: u64) -> u64 {
        let current = self.current.load();
        let of_zone = current.unix_ms_at(Instant::now()).filter(|_| current.view.plan.opens_ms() > 0);
        of_zone.unwrap_or(unix_ms) / 1_000
    }

    /// When to ask again for a place in a closed zone, in seconds. If people take places for an event soon, early enough to ask once more
    /// before: whoever waits for that should not come a minute after the others. Clients add up to a quarter to what they are told.
    pub(crate) fn ask_when_closed_s(&self) -> u32 {
        let now_s = self.unix_ms_now().unwrap_or_else(store::unix_ms) / 1_000;
        let defined = self.defined.load();
        if defined.definition.policy_at(now_s).mode != Mode::Closed {
            // It is due to open, and comes into force in a moment.
            return 1;
        }
        let next_s = defined.definition.schedule.next_prequeue_s(now_s);
        let soon_s = next_s.and_then(|next_s| u32::try_from(next_s - now_s).ok()).unwrap_or(u32::MAX);
        (soon_s.saturating_mul(4) / 5).clamp(1, ASK_WHEN_CLOSED_S)
    }

    /// How the zone is defined.
    pub(crate) fn definition(&self) -> Definition {
        self.defined.load().definition.clone()
    }

    /// The notice in force.
    pub(crate) fn notice(&self) -> Arc<Notice> {
        Arc::clone(&self.defined.load().notice)
    }
}
