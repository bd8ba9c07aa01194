//! A zone as operators look at it: its totals, and the waits that would be told, now or under another policy.
//!
//! Everything is of one instant. Invariant: looking counts as nobody's poll, and asks no store.

use std::sync::Arc;

use admission::{Estimate, Policy, Tally};

use super::room::{Room, Shown};

/// A zone at one instant.
pub struct Outlook {
    shown: Arc<Shown>,
    now_ms: u64,
    stale: bool,
}

/// Where somebody stands whose wait is foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the middle of the line.
    Middle,
    /// Behind everybody: who joins now.
    Last,
}

impl Outlook {
    pub(super) fn of(room: &Room) -> Self {
        let shown = room.shown();
        let (now_ms, stale) = (shown.now_ms(), room.is_shown_stale(&shown));
        Self { shown, now_ms, stale }
    }

    /// Whether the store is away, and this is what was last known.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.shown.view.policy
    }

    /// Its totals, as the store last showed them.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.shown.view.tally
    }

    /// The rank of who stands there.
    #[must_use]
    pub fn rank(&self, standing: Standing) -> u64 {
        match standing {
            Standing::Middle => 1 + self.tally().waiting / 2,
            Standing::Last => 1 + self.tally().waiting,
        }
    }

    /// The wait of who stands there, were `policy` in force from now on; none where nobody is let in.
    #[must_use]
    pub fn wait(&self, standing: Standing, policy: &Policy) -> Option<Estimate> {
        let present_ahead = match standing {
            Standing::Middle => self.tally().present / 2,
            Standing::Last => self.tally().present,
        };
        self.shown.view.estimate_under(policy, present_ahead, self.now_ms)
    }
}
