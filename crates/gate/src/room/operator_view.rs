//! A zone at one instant as operators see it: its totals, and the waits that would be told, now or under another policy.
//!
//! Invariant: to look at it counts as no poll, and calls no store.

use std::sync::Arc;

use admission::{Estimate, Mode, Occupancy, Policy, Tally};
use store::Line;
use tokio::time::Instant;

use super::{CurrentView, Room};

/// A zone at one instant.
pub struct OperatorView {
    current: Arc<CurrentView>,
    now_ms: u64,
    stale: bool,
}

/// A position in line whose wait is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplePlace {
    /// In the middle of the line.
    Middle,
    /// At the end of the line, where a newcomer joins.
    Last,
}

impl OperatorView {
    pub(crate) fn of<L: Line>(room: &Room<L>) -> Self {
        let current = room.current();
        let now = Instant::now();
        let (now_ms, stale) = (current.ms_at(now), room.is_view_stale(&current, now));
        Self { current, now_ms, stale }
    }

    /// As [`Self::of`], if the store was asked for it at `asked` or later.
    pub(crate) fn since<L: Line>(room: &Room<L>, asked: Instant) -> Option<Self> {
        Some(Self::of(room)).filter(|view| view.current.asked_at >= asked && !view.stale)
    }

    /// Whether the store is away, and this is what was last known.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.current.view.policy
    }

    /// The zone's totals, as the store last reported them.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.current.view.tally
    }

    /// The people inside, if the zone limits them.
    #[must_use]
    pub fn occupancy(&self) -> Option<Occupancy> {
        self.current.view.occupancy
    }

    /// Whether a draw is to decide the order, and has not yet.
    #[must_use]
    pub fn is_undrawn(&self) -> bool {
        self.current.view.is_undrawn()
    }

    /// The rank at this position.
    #[must_use]
    pub fn rank(&self, standing: SamplePlace) -> u64 {
        match standing {
            SamplePlace::Middle => 1 + self.tally().waiting / 2,
            SamplePlace::Last => 1 + self.tally().waiting,
        }
    }

    /// The wait at this position if `policy` were in force from now on; none where the zone admits nobody, or the order is still to be
    /// drawn.
    #[must_use]
    pub fn wait(&self, standing: SamplePlace, policy: &Policy) -> Option<Estimate> {
        if policy.mode_after(self.current.view.drawn) == Mode::Hold {
            return None;
        }
        let present_ahead = match standing {
            SamplePlace::Middle => self.tally().present / 2,
            SamplePlace::Last => self.tally().present,
        };
        self.current.view.estimate_under(policy, present_ahead, self.now_ms)
    }

    /// About how many of those who wait would still wait in `within_ms` milliseconds, if `policy` were in force until then. None where no
    /// wait is known.
    #[must_use]
    pub fn waiting_beyond(&self, within_ms: u64, policy: &Policy) -> Option<u64> {
        if policy.mode_after(self.current.view.drawn) == Mode::Hold {
            return None;
        }
        let wait_ms = |ahead| {
            let estimate = self.current.view.estimate_under(policy, ahead, self.now_ms);
            estimate.map(|estimate| estimate.wait_ms)
        };
        let Tally { waiting, present, .. } = *self.tally();
        // The places from 0 to `in_time` have a wait that ends in time, and those from `beyond` on have not.
        let (mut in_time, mut beyond) = (0, present);
        while in_time < beyond {
            let middle = in_time + (beyond - in_time) / 2;
            if wait_ms(middle)? <= within_ms { in_time = middle + 1 } else { beyond = middle }
        }
        Some(if in_time < present { waiting.saturating_sub(in_time) } else { 0 })
    }
}
