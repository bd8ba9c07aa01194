//! A zone at one instant, for those who are told of many places at once.
//!
//! The view is looked up once for all of them, which is what a message for each zone and second comes down to: what a
//! place is told is made of the view and its own number, and of nothing else. Invariant: a look counts as a poll of the
//! ticket's holder and answers what a poll would hear.

use std::sync::Arc;

use admission::{Lookup, Ticket};

use super::{
    Token,
    room::{Room, Shown},
    tell::Wait,
};

/// A zone at one instant.
pub struct Glance {
    room: Arc<Room>,
    shown: Arc<Shown>,
    now_ms: u64,
    stale: bool,
    /// Nobody waits: everybody who asks is let in without the store.
    opens: bool,
}

impl Glance {
    pub(super) fn of(room: Arc<Room>) -> Self {
        let shown = room.shown();
        let (now_ms, stale) = (shown.now_ms(), room.is_shown_stale(&shown));
        let opens = room.opens_unseen();
        Self { room, shown, now_ms, stale, opens }
    }

    /// Whether the store is away, and this is what was last known.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// When somebody behind the front is to ask again, in milliseconds, where that is the same for all: where the period is
    /// no long one.
    #[must_use]
    pub fn polling_period_ms(&self) -> u32 {
        self.shown.view.policy.polling_period_ms
    }

    /// What the holder of `ticket` is told, and the ticket with that in mind; none where the store has to be asked (see
    /// [`Gate::claim`](super::Gate::claim)). Counts as a poll. No allocation, no call.
    #[must_use]
    pub fn look(&self, mut ticket: Ticket) -> Option<(Wait, Ticket)> {
        if self.opens {
            return None;
        }
        match self.shown.view.lookup(ticket.epoch, ticket.seq, self.now_ms) {
            Lookup::Waiting(place) => {
                self.shown.note(ticket.seq);
                let policy = &self.shown.view.policy;
                let wait = Wait::tell(&mut ticket, &place, policy, self.now_ms, self.stale);
                Some((wait, ticket))
            }
            Lookup::Ask => None,
        }
    }

    /// The token of a ticket of this zone.
    #[must_use]
    pub fn seal(&self, ticket: &Ticket) -> Token {
        self.room.sealer.seal(ticket)
    }
}
