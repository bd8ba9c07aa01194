//! A server's knowledge of a zone: enough to answer everybody behind the front without the store.
//!
//! A view is immutable, shared, and at most about a second old. Invariant: a view answers only tickets whose rank can only
//! have fallen since it was made, so that its answers are never too optimistic.

use std::{ops::Deref, sync::Arc};

use admission::{Estimate, Mode, Now, Policy, Position, Snapshot};

use crate::{Outlook, Plan};

/// A snapshot of a zone plus the forecast. The fields of the snapshot are read as if they were the view's own.
#[derive(Clone, Debug)]
pub struct View {
    /// What the store reported.
    pub snapshot: Snapshot,
    /// How many slots the people ahead will need.
    pub outlook: Arc<Outlook>,
    /// When slots become free.
    pub plan: Arc<Plan>,
}

impl Deref for View {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// The answer of a view for one ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup {
    /// The ticket waits behind the front.
    Waiting(Position),
    /// Ask the store: the ticket belongs to the front, is gone, is newer than the view, or has an epoch that the view does not know.
    Ask,
}

impl View {
    /// Looks up ticket `seq` at `now_ms` on the store's clock (shortly after the view's instant).
    #[must_use]
    pub fn lookup(&self, epoch: u32, seq: u64, now_ms: u64) -> Lookup {
        if !self.is_of_line(epoch, seq) || seq < self.front_end {
            return Lookup::Ask;
        }
        self.position(seq, now_ms).map_or(Lookup::Ask, Lookup::Waiting)
    }

    /// The position of a live ticket, in the front or behind it; `None` if the ticket is gone. A ticket newer than the view
    /// stands behind all tickets of the view.
    #[must_use]
    pub fn position(&self, seq: u64, now_ms: u64) -> Option<Position> {
        let ahead = self.ahead_of(seq)?;
        Some(self.behind(ahead, self.period_ms(seq), now_ms))
    }

    /// The position that a ticket of an earlier epoch has if it waits. A view that was made while servers still say what they
    /// remember of that epoch does not show all tickets that wait.
    #[must_use]
    pub fn position_if_waiting(&self, seq: u64, now_ms: u64) -> Position {
        // Numbers between two epochs were never given out, so a newer number says nothing about how many people are between.
        let seq = seq.min(self.next);
        match self.ahead_if_waiting(seq) {
            Some(ahead) => self.behind(ahead, self.period_ms(seq), now_ms),
            None => self.behind((0, 0), self.policy.near_period_ms(), now_ms),
        }
    }

    /// Whether anybody entered in the minute before the view was made. Until that is past, what a server knows of the zone matters.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        self.plan.has_entries()
    }

    /// The wait of a person with `present_ahead` people ahead, if `policy` came into force at `now_ms`. `None` if that
    /// policy admits nobody. A newcomer to an empty line enters at once while the minute has room.
    #[must_use]
    pub fn estimate_under(&self, policy: &Policy, present_ahead: u64, now_ms: u64) -> Option<Estimate> {
        let other = (policy.opens_at != self.policy.opens_at).then(|| {
            let unix_ms = self.unix_ms + now_ms.saturating_sub(self.now_ms);
            Plan::clone(&self.plan).opening_at(policy.opens_at.on_clock(Now { ms: now_ms, unix_ms }))
        });
        let plan = other.as_ref().unwrap_or(&self.plan);
        if policy.mode == Mode::Auto && self.tally.present == 0 && plan.has_room(policy, now_ms) {
            return Some(Estimate::NONE);
        }
        if *policy == self.policy {
            return self.outlook.estimate(present_ahead, plan, policy, now_ms);
        }
        let plan = plan.under(policy, now_ms);
        self.outlook.under(&plan, now_ms).estimate(present_ahead, &plan, policy, now_ms)
    }

    /// How long it is at `now_ms` until the zone opens, in milliseconds; 0 if no instant is set, or it has come. While the mode is not
    /// `auto`, an operator has to open it.
    #[must_use]
    pub fn opens_in_ms(&self, now_ms: u64) -> u32 {
        match self.policy.mode {
            Mode::Auto => u32::try_from(self.plan.opens_ms().saturating_sub(now_ms)).unwrap_or(u32::MAX),
            Mode::Hold | Mode::Open | Mode::Closed => 0,
        }
    }

    fn behind(&self, (ahead, present_ahead): (u64, u64), poll_in_ms: u32, now_ms: u64) -> Position {
        Position {
            rank: 1 + ahead,
            present_ahead,
            estimate: match self.is_undrawn() {
                true => None,
                false => self.outlook.estimate(present_ahead, &self.plan, &self.policy, now_ms),
            },
            poll_in_ms,
            slot_in_ms: None,
        }
    }
}
