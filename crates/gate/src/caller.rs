//! The calls of one client about one zone: a holder polls or leaves, a newcomer joins.
//!
//! [`Gate::holder`](crate::Gate::holder) and [`Gate::newcomer`](crate::Gate::newcomer) look the zone up and open the token. Everything
//! after that uses the same room and the same ticket, so a poll does both once. The client's limit is a step of its own, because an HTTP
//! reply shows its decision whatever follows. Invariants: only a token that the zone issued is charged to a client's limit; a holder whom
//! the limit refuses keeps the place; each refusal is published once; a poll behind the front takes no lock and allocates nothing.

use std::{net::IpAddr, sync::Arc};

use admission::{Departure, JoinKey, Ticket};
use events::LimitedCall;
use store::Line;

use crate::{
    limits::{LimitAnswer, Limits},
    reply::{Refusal, Reply},
    room::Room,
    trips::Trips,
};

/// The holder of a ticket, who calls.
pub struct Holder<L> {
    room: Arc<Room<L>>,
    ticket: Ticket,
}

/// Somebody without a ticket, who calls.
pub struct Newcomer<L> {
    room: Arc<Room<L>>,
}

impl<L: Line> Holder<L> {
    pub(crate) fn of_token(room: Arc<Room<L>>, token: &[u8]) -> Result<Self, Refusal> {
        match room.open_token(token) {
            Ok(ticket) => Ok(Self { room, ticket }),
            Err(fault) => {
                let refusal = fault.into();
                room.note_refused(refusal);
                Err(refusal)
            }
        }
    }

    pub(crate) fn of_ticket(room: Arc<Room<L>>, ticket: Ticket) -> Self {
        Self { room, ticket }
    }

    /// Asks the zone's limits whether `client` may call now. None where such calls are not limited. A holder who may not keeps the
    /// place.
    pub async fn ask_limits(&self, limits: &Limits, client: IpAddr) -> Option<LimitAnswer> {
        let asked = ask_limits(&self.room, limits, LimitedCall::Poll, client).await?;
        if let Some(retry_after_s) = asked.retry_after_s() {
            self.note_rate_limited(retry_after_s);
        }
        Some(asked)
    }

    /// Notes that a call is refused because its client calls too often. The holder keeps the place; a holder at the front loses the slot
    /// without a claim. This asks no store, now or later.
    pub fn note_rate_limited(&self, retry_after_s: u32) {
        self.room.note_rate_limited(LimitedCall::Poll, retry_after_s);
        self.room.note_poll(&self.ticket);
    }

    /// The number of the ticket, as the token has it.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.ticket.seq
    }

    /// Asks whether the holder may enter now. `trips` gets the calls to the store, if there are any.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn poll(&self, trips: &mut Trips) -> Result<Reply, Refusal> {
        self.room.poll(self.ticket, trips).await.inspect_err(|refusal| self.room.note_refused(*refusal))
    }

    /// Like [`Self::poll`]. Also returns the ticket that the reply's token holds, so that a stream opens no token.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn poll_for_stream(&self, trips: &mut Trips) -> Result<(Reply, Ticket), Refusal> {
        let reply = self.poll(trips).await?;
        let (Reply::Waiting { token, .. } | Reply::Entered { token, .. }) = &reply;
        // If the reply's key was withdrawn during the call, the ticket still counts, without the wait told last.
        let newer = self.room.open_token(token).unwrap_or(self.ticket);
        Ok((reply, newer))
    }

    /// The holder leaves; see [`Gate::leave`](crate::Gate::leave). `address` is a digest of the client's address; 0 where any may.
    /// `trips` gets the call to the store, if there is one.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn leave(&self, address: u64, trips: &mut Trips) -> Result<Departure, Refusal> {
        let left = self.room.leave_by_ticket(self.ticket, address, trips).await;
        left.inspect_err(|refusal| self.room.note_refused(*refusal))
    }
}

impl<L: Line> Newcomer<L> {
    pub(crate) fn of(room: Arc<Room<L>>) -> Self {
        Self { room }
    }

    /// Asks the zone's limits whether `client` may call now. None where such calls are not limited.
    pub async fn ask_limits(&self, limits: &Limits, client: IpAddr) -> Option<LimitAnswer> {
        let asked = ask_limits(&self.room, limits, LimitedCall::Join, client).await?;
        if let Some(retry_after_s) = asked.retry_after_s() {
            self.room.note_rate_limited(LimitedCall::Join, retry_after_s);
        }
        Some(asked)
    }

    /// Takes a ticket in the zone's line. Whoever joined with the same key before (for [`JoinKey::KEPT_MS`]) gets the answer of
    /// [`Holder::poll`] with that ticket. `trips` gets the calls to the store, if there are any.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn join(&self, key: Option<JoinKey>, trips: &mut Trips) -> Result<Reply, Refusal> {
        self.room.join(key, trips).await.inspect_err(|refusal| self.room.note_refused(*refusal))
    }
}

async fn ask_limits<L: Line>(
    room: &Room<L>,
    limits: &Limits,
    call: LimitedCall,
    client: IpAddr,
) -> Option<LimitAnswer> {
    let of_zone = room.limits_of(call)?;
    // Boxed: otherwise every call would reserve the space for it, and move it.
    Box::pin(limits.ask(room.zone.as_str(), &of_zone, call, client)).await
}
