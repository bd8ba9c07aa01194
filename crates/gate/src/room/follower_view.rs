//! A zone at one instant as streams use it, which tell many holders at once.
//!
//! The view is looked up once for all holders. What a holder is told depends on the view and the ticket only. Invariant:
//! this counts as a poll of the ticket's holder and answers what a poll would answer, but for the period of a busy server: streams ask
//! nothing.

use std::sync::Arc;

use admission::Ticket;
use store::Line;
use tokio::time::Instant;
use wait::Lookup;

use super::{CurrentView, Room};
use crate::reply::{Token, WaitStatus};

/// A zone at one instant.
pub struct FollowerView<L> {
    room: Arc<Room<L>>,
    current: Arc<CurrentView>,
    now_ms: u64,
    stale: bool,
    /// The zone admits everybody without the store now.
    fails_open: bool,
}

impl<L: Line> FollowerView<L> {
    pub(crate) fn of(room: Arc<Room<L>>) -> Self {
        let current = room.current();
        let now = Instant::now();
        let (now_ms, stale) = (current.ms_at(now), room.is_view_stale(&current, now));
        let fails_open = room.fails_open();
        Self { room, current, now_ms, stale, fails_open }
    }

    /// Whether the store is away, and this is what was last known.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// When the view was taken, at the earliest. An answer of the store after that may know more.
    #[must_use]
    pub fn taken_at(&self) -> Instant {
        self.current.taken_at
    }

    /// When a holder behind the front should ask again, in milliseconds. Holders are told other periods near the front,
    /// and where the period is longer than 3 s.
    #[must_use]
    pub fn polling_period_ms(&self) -> u32 {
        self.current.view.policy.polling_period_ms
    }

    /// How long it is until the zone opens, in milliseconds; 0 if it is open, or opens when an operator says so.
    #[must_use]
    pub fn opens_in_ms(&self) -> u32 {
        self.current.view.opens_in_ms(self.now_ms)
    }

    /// What the holder of `ticket` is told, and the ticket that remembers it; none where the store has to be asked (see
    /// [`Gate::poll_for_stream`](crate::Gate::poll_for_stream)). Counts as a poll. No allocation, no call.
    #[must_use]
    pub fn poll(&self, mut ticket: Ticket) -> Option<(WaitStatus, Ticket)> {
        if self.fails_open {
            return None;
        }
        match self.current.view.lookup(ticket.epoch, ticket.seq, self.now_ms) {
            Lookup::Waiting(position) => {
                self.current.note(ticket.seq);
                let current = &self.current;
                let status = WaitStatus::new(&mut ticket, &position, current, self.now_ms, self.stale, None);
                Some((status, ticket))
            }
            Lookup::Ask => None,
        }
    }

    /// The token of a ticket of this zone.
    #[must_use]
    pub fn seal(&self, ticket: &Ticket) -> Token {
        self.room.seal(ticket)
    }

    /// Whether the current key sealed this token, which must be one of this zone. If not, its holder needs a new one before
    /// the key is forgotten.
    #[must_use]
    pub fn is_current(&self, token: &Token) -> bool {
        self.room.is_sealed_now(token)
    }
}
