//! The view in use, and its replacement by a newer one.
//!
//! Invariant: an older view never replaces a newer one.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use admission::{LastDeal, Mode, Occupancy, Policy, Snapshot, Tally, Window, ZoneId};
use events::{Evicted, ModeChanged, PolicyChanged, Tallied, ViewShown};
use store::{Line, StoreError};
use tokio::time::Instant;
use wait::{Outlook, Plan, View};

use super::{
    Room,
    causes::{Causes, NO_EPOCH},
    line_limit::LineEnd,
    polls::PollMap,
    publish::saturating,
};
use crate::limits::ZoneLimits;

/// A view older than this, while people wait, is one that the store did not renew.
const STALE_AFTER: Duration = Duration::from_secs(3);

/// A view that arrives within this time of being asked for tells the time at the store now. A later one only tells
/// the time at the store when it was made.
const PROMPT: Duration = Duration::from_millis(250);

/// A zone's totals, as its store last reported them.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneTotals {
    /// The zone.
    pub zone: ZoneId,
    /// The totals; all 0 where no store has reported them yet.
    pub tallied: Tallied,
    /// Those of the first view that this server had of the zone: what is more was counted since.
    pub first: Tally,
    /// When they were reported.
    pub at: Instant,
    /// When they were right, in milliseconds of the store's clock.
    pub store_ms: u64,
    /// The mode in force.
    pub mode: Mode,
    /// Whether a store has reported them.
    pub known: bool,
    /// The people inside, if the zone limits them.
    pub occupancy: Option<Occupancy>,
}

/// A view, and what goes with it.
pub(super) struct CurrentView {
    pub(super) view: View,
    pub(super) polls: PollMap,
    pub(super) limits: Arc<ZoneLimits>,
    /// What this server heard of the line's end since.
    pub(super) end: LineEnd,
    /// Why waits became longer lately.
    pub(super) causes: Causes,
    /// When it was taken, on this server's clock, as far as that is known.
    pub(super) taken_at: Instant,
    /// When it was asked for. It is not older.
    pub(super) asked_at: Instant,
    /// The totals of the first view of the store.
    pub(super) first_tally: Tally,
}

impl CurrentView {
    /// The instant on the store's clock when it is `now` here, as far as this server can tell.
    pub(super) fn ms_at(&self, now: Instant) -> u64 {
        self.view.now_ms + self.age_ms(now)
    }

    /// The zone's own clock when it is `now` here, in milliseconds since 1970; `None` before the store has told it.
    pub(super) fn unix_ms_at(&self, now: Instant) -> Option<u64> {
        (self.view.unix_ms > 0).then(|| self.view.unix_ms + self.age_ms(now))
    }

    fn age_ms(&self, now: Instant) -> u64 {
        u64::try_from((now - self.taken_at).as_millis()).unwrap_or(0)
    }

    /// Whether a holder who asks as told may have heard something newer before, from the store or from another server: the view is older than
    /// the shortest period that a view tells. A rank of it may be one that has already fallen.
    pub(super) fn is_behind(&self, now: Instant) -> bool {
        now - self.asked_at > Duration::from_millis(self.view.policy.near_period_ms().into())
    }

    /// Notes that the holder of `seq` polled.
    pub(super) fn note(&self, seq: u64) {
        #[cfg(feature = "sabotage")]
        if admission::sabotage::on(admission::sabotage::Rule::Silence) {
            return;
        }
        self.polls.note(seq);
    }
}

/// The view of a zone before the store reports one.
pub(super) fn before_the_first(policy: Policy) -> View {
    let snapshot = Snapshot {
        now_ms: 0,
        unix_ms: 0,
        policy,
        epoch: NO_EPOCH,
        base: 0,
        next: 0,
        front_end: 0,
        approach_end: 0,
        longest_period_ms: policy.polling_period_ms,
        pages: Vec::new(),
        tally: Tally::default(),
        occupancy: None,
        window: Arc::new(Window::new(&policy)),
        drawn: LastDeal::default(),
        earlier: None,
        is_confirmed: true,
    };
    let plan = Plan::new(&snapshot.window, &policy, 0);
    View { snapshot, outlook: Arc::new(Outlook::unknown()), plan: Arc::new(plan) }
}

impl<L: Line> Room<L> {
    pub(super) fn current(&self) -> Arc<CurrentView> {
        self.current.load_full()
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Policy {
        self.current.load().view.policy
    }

    /// The totals of the view in use.
    pub(crate) fn totals(&self) -> ZoneTotals {
        let current = self.current.load();
        let tally = &current.view.tally;
        let tallied = Tallied {
            zone: self.id,
            admit_per_minute: current.view.policy.admit_per_minute,
            waiting: saturating(tally.waiting),
            present: saturating(tally.present),
            joined: tally.joined,
            entered: tally.entered,
            evicted: tally.evicted,
            slots_offered: tally.slots_offered,
            slots_used: tally.slots_used,
        };
        ZoneTotals {
            zone: self.zone.clone(),
            tallied,
            first: current.first_tally,
            at: current.taken_at,
            store_ms: current.view.now_ms,
            mode: current.view.policy.mode,
            known: current.view.epoch != NO_EPOCH,
            occupancy: current.view.occupancy,
        }
    }

    /// Whether polls are answered from a view that the store did not renew.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_view_stale(&self.current.load(), Instant::now())
    }

    /// Whether nobody asks for this zone here, so that the view in use is old, though the store answers.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.is_open() && !self.is_away() && self.current.load().taken_at.elapsed() > STALE_AFTER
    }

    pub(super) fn is_view_stale(&self, current: &CurrentView, now: Instant) -> bool {
        self.is_away() || (current.view.tally.waiting > 0 && now - current.taken_at > STALE_AFTER)
    }

    /// Awaits `snapshot`, which asks the store, and takes the view of it into use. At the same time, what this server learnt is compared
    /// with what the store keeps, if it is due. One caller at a time.
    pub(super) async fn replace_view(
        &self,
        snapshot: impl Future<Output = Result<Snapshot, StoreError>>,
    ) -> Result<(), StoreError> {
        let _replacing = self.replacing.lock().await;
        let asked_at = Instant::now();
        let exchange = self.forecast.exchange(&self.line, &self.zone, self.since_start_ms());
        let (snapshot, ()) = tokio::join!(snapshot, exchange);
        let was_stale = self.is_stale();
        self.note_snapshot(asked_at, &snapshot);
        let view = self.forecast.observe(snapshot?);
        let before = self.current.load();
        let mut taken_at = Instant::now();
        if taken_at - asked_at > PROMPT {
            let later = view.now_ms.saturating_sub(before.view.now_ms);
            taken_at = taken_at.min(before.taken_at + Duration::from_millis(later));
        }
        let polls = before.polls.for_view(&view);
        let limits = ZoneLimits::new(&self.zone, &view.policy, Some(&before.limits));
        let end = LineEnd::of(&view);
        let causes = before.causes.next(&before.view, &view, was_stale);
        let first_tally = if before.view.epoch == NO_EPOCH { view.tally } else { before.first_tally };
        let current = CurrentView { view, polls, limits, end, causes, taken_at, asked_at, first_tally };
        let before = self.current.swap(Arc::new(current));
        let now = self.current.load();
        if before.view.epoch != now.view.epoch || before.view.policy != now.view.policy {
            self.gone.forget();
            self.leavers.forget();
        }
        self.open.store(true, Ordering::Relaxed);
        self.publish_differences(&before.view);
        self.publish_view();
        Ok(())
    }

    /// Publishes in what the view in use differs from the one before.
    fn publish_differences(&self, before: &View) {
        let (zone, current) = (self.id, self.current.load());
        let view = &current.view;
        if view.policy.mode != before.policy.mode {
            self.bus.publish(ModeChanged { zone, mode: view.policy.mode });
        }
        if view.policy != before.policy {
            self.bus.publish(PolicyChanged { zone, policy: view.policy });
        }
        // A total below the last one comes from a store that started anew. What was before the first view is no news.
        let (old, new) = (before.tally.evicted, view.tally.evicted);
        let count = if new < old { new } else { new - old };
        if count > 0 && before.epoch != NO_EPOCH {
            self.bus.publish(Evicted { zone, count: saturating(count), at_ms: view.now_ms });
        }
    }

    /// Publishes that the view in use is there, and its totals.
    pub(crate) fn publish_view(&self) {
        let current = self.current.load();
        let view = &current.view;
        if view.epoch != NO_EPOCH {
            self.bus.publish(ViewShown { zone: self.id, epoch: view.epoch, at_ms: view.now_ms });
            self.bus.publish(self.totals().tallied);
        }
    }
}
