//! Lets holders leave: a place or a visit ends. Also says who may begin the visit of an entry.
//!
//! The store decides about each leaver, once: this server remembers for a while what it answered, so that a token that is sent again
//! and again costs the store nothing. Invariants: the store hears of each ticket that leaves here; an answer is not remembered beyond
//! a change of the zone's epoch or policy, or a time in which the store was away.

use admission::{Claim, Departure, Leaver, Proof, Ticket, Visit, VisitState};
use events::StoreCall;
use store::Line;
use tokio::time::Instant;

use super::{
    Room,
    calls::LEAVE_TIMEOUT,
    fail_open::entered_without_store,
    gone::{GoneTickets, LIFE, life},
};
use crate::{
    reply::{PassClaims, Refusal},
    trips::Trips,
};

/// What the store answered lately.
#[derive(Default)]
pub(super) struct Leavers {
    /// Tickets that left by this server.
    left: GoneTickets,
    /// Tickets that could not, because they were gone or were never given out.
    refused: GoneTickets,
}

impl Leavers {
    pub(super) fn forget(&self) {
        self.left.forget();
        self.refused.forget();
    }
}

impl<L: Line> Room<L> {
    /// Lets a holder leave. Whoever left by this server before has left.
    ///
    /// # Errors
    /// [`Refusal::Gone`] if there is nothing to leave, [`Refusal::Elsewhere`], and those of the store.
    pub(crate) async fn leave(&self, leaver: Leaver, trips: &mut Trips) -> Result<Departure, Refusal> {
        let Claim { epoch, seq } = leaver.claim;
        let (key, now) = ((epoch, seq), Instant::now());
        if self.leavers.left.has(key, now) || self.has_left(epoch, seq) {
            return Ok(Departure::Gone);
        }
        if self.leavers.refused.has(key, now) {
            return Err(Refusal::Gone);
        }
        // An operator may name any number.
        let (next, of_view) = {
            let current = self.current.load();
            (current.view.next, current.view.epoch)
        };
        let (left_in, refused_in) = (self.leavers.left.generation(), self.leavers.refused.generation());
        match self.ask_to_leave(leaver, trips).await? {
            departure @ (Departure::Place | Departure::Visit) => {
                self.leavers.left.remember(key, left_in, (Instant::now(), LIFE));
                Ok(departure)
            }
            // A number that was not given out yet may be given out.
            Departure::Gone | Departure::Unknown if epoch == of_view && seq >= next => Err(Refusal::Gone),
            Departure::Gone | Departure::Unknown => {
                let life = life(epoch, of_view);
                self.leavers.refused.remember(key, refused_in, (Instant::now(), life));
                Err(Refusal::Gone)
            }
            Departure::Waits => Ok(Departure::Waits),
            Departure::Elsewhere => Err(Refusal::Elsewhere),
            Departure::NotYet => Err(Refusal::StoreAway { retry_after_s: 3 }),
        }
    }

    /// Lets the holder of a ticket leave, whatever number a draw gave it. `address` is a digest of the client's address; 0 where any may.
    ///
    /// # Errors
    /// As [`Self::leave`], also for whoever entered without the store, and [`Refusal::StoreAway`] if this server does not know the number
    /// yet.
    pub(crate) async fn leave_by_ticket(
        &self,
        ticket: Ticket,
        address: u64,
        trips: &mut Trips,
    ) -> Result<Departure, Refusal> {
        let leaver = |Ticket { epoch, seq, .. }: Ticket| Leaver {
            claim: Claim { epoch, seq },
            proof: Proof::Token,
            address,
        };
        if entered_without_store(&ticket) {
            return Err(Refusal::Gone);
        }
        let asked = self.ticket_to_leave(ticket).await?;
        let left = self.leave(leaver(asked), trips).await;
        if left != Err(Refusal::Gone) || self.policy().opens_at.draw == 0 && self.drawn().draw == 0 {
            return left;
        }
        // The line may be dealt otherwise than the view says: it was dealt since, or the deal was lost with the state that made it.
        self.renewed(LEAVE_TIMEOUT).await;
        match self.ticket_to_leave(ticket).await? {
            known if known == asked => left,
            known => self.leave(leaver(known), trips).await,
        }
    }

    /// The visit of an entry that is `age_s` old, at `unix_s`. It began and was last seen when its holder entered, so whoever asks again
    /// gets the same visit. None if it has ended. With an `address` (a digest, not 0), the visit is that of the first address that asks.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn visit_of(
        &self,
        pass: &PassClaims,
        age_s: u64,
        address: u64,
        unix_s: u64,
    ) -> Result<Option<Visit>, Refusal> {
        let began_s = unix_s.saturating_sub(if sabotaged() { 0 } else { age_s });
        let visit = Visit { epoch: pass.epoch, seq: pass.seq, began_s, seen_s: began_s, address };
        if self.has_left(visit.epoch, visit.seq) || visit.state(&self.policy(), unix_s) == VisitState::Ended {
            return Ok(None);
        }
        if address != 0 && !self.fails_open() {
            let claim = Claim { epoch: visit.epoch, seq: visit.seq };
            let bound = self.timed(StoreCall::Bind, 1, self.line.bind(claim, address)).await?;
            if bound != address {
                return Ok(None);
            }
        }
        self.note_visit(visit.epoch, visit.seq);
        Ok(Some(visit.seen_at(unix_s)))
    }
}

#[cfg(feature = "sabotage")]
fn sabotaged() -> bool {
    admission::sabotage::on(admission::sabotage::Rule::FreshVisit)
}

#[cfg(not(feature = "sabotage"))]
const fn sabotaged() -> bool {
    false
}
