//! The room's part in a draw: which number a ticket has after it, and the store's calls for it.
//!
//! A ticket that was given out before the draw keeps its token. Once the line is dealt anew, this room reads the ticket as the one with
//! the number that it drew, and answers with a token of that. Invariants: a ticket whose number this server does not know yet is told to
//! wait, never that it is gone; the rules of the line see only numbers of the line.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use admission::{Census, Deal, Dealt, LastDeal, Lots, Position, Ticket};
use store::{Line, StoreError};
use tokio::time::{Instant, sleep};

use super::Room;
use crate::reply::{Reason, Refusal, Reply, WaitStatus};

/// When whoever waits for the own number should ask again, in milliseconds.
const ASK_AGAIN_MS: u32 = 1_000;

/// How long a server that reaches the store takes to learn a draw by which the line is dealt, and how often to look whether it has.
const LEARNT_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a ticket is in the line as it is dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lot {
    /// This ticket.
    Ticket(Ticket),
    /// This server does not know the draw yet.
    NotYet,
}

impl<L: Line> Room<L> {
    /// What `ticket` is in a line that was dealt last by `drawn`. Whoever was not in line at the freeze keeps the number: perhaps
    /// the ticket entered before.
    pub(super) fn lot_of(&self, ticket: Ticket, drawn: LastDeal) -> Lot {
        if ticket.seq >= drawn.from {
            return Lot::Ticket(ticket);
        }
        let lots = self.lots.load();
        let known = lots.partition_point(|lots| lots.drawn().from <= drawn.from);
        if !lots[..known].last().is_some_and(|last| last.drawn() == drawn) {
            return Lot::NotYet;
        }
        let number = lots[..known].iter().try_fold(ticket.seq, |seq, lots| lots.number(seq));
        Lot::Ticket(Ticket { seq: number.unwrap_or(ticket.seq), ..ticket })
    }

    /// The ticket in the line of a holder who leaves. A server learns the draw about a second after the one that dealt the line: who closes a
    /// page asks only once.
    ///
    /// # Errors
    /// [`Refusal::StoreAway`] if this server does not learn the number soon.
    pub(super) async fn ticket_to_leave(&self, ticket: Ticket) -> Result<Ticket, Refusal> {
        let until = Instant::now() + LEARNT_WITHIN;
        loop {
            match self.lot_of(ticket, self.drawn()) {
                Lot::Ticket(ticket) => return Ok(ticket),
                Lot::NotYet if Instant::now() < until => sleep(LOOK_AGAIN).await,
                Lot::NotYet => return Err(Refusal::StoreAway { retry_after_s: 1 }),
            }
        }
    }

    /// The draw by which the line was dealt last, as of the view in use.
    pub(crate) fn drawn(&self) -> LastDeal {
        self.current.load().view.drawn
    }

    /// The epoch of the view in use.
    pub(crate) fn epoch(&self) -> u32 {
        self.current.load().view.epoch
    }

    /// The reply to a holder whose number this server does not know yet.
    pub(super) fn reply_without_number(&self, ticket: Ticket) -> Reply {
        let current = self.current.load();
        let tally = &current.view.tally;
        let position = Position {
            rank: tally.waiting.max(1),
            present_ahead: tally.present,
            estimate: None,
            poll_in_ms: ASK_AGAIN_MS,
            slot_in_ms: Some(ASK_AGAIN_MS),
        };
        let now = Instant::now();
        self.unreported.store(true, Ordering::Relaxed);
        let reply = self.waiting(ticket, position, &current, (now, current.ms_at(now)), false);
        match reply {
            // The view may know that the line is dealt. To this holder the draw is still to come.
            Reply::Waiting { token, status } => {
                Reply::Waiting { token, status: WaitStatus { reason: Some(Reason::Draw), ..status } }
            }
            entered @ Reply::Entered { .. } => entered,
        }
    }

    /// Reads tickets by these lots, too, from now on.
    pub(crate) fn add_lots(&self, lots: Arc<Lots>) {
        self.lots.rcu(|known| {
            let mut all: Vec<Arc<Lots>> =
                known.iter().filter(|known| known.drawn() != lots.drawn()).cloned().collect();
            all.push(Arc::clone(&lots));
            all.sort_by_key(|lots| lots.drawn().from);
            all
        });
    }

    /// The lots of a draw, if this server knows them.
    pub(crate) fn lots(&self, draw: u32) -> Option<Arc<Lots>> {
        self.lots.load().iter().find(|lots| lots.drawn().draw == draw).cloned()
    }

    /// The lots of later draws, in the order of their numbers.
    pub(crate) fn lots_after(&self, lots: &Lots) -> Vec<Arc<Lots>> {
        let from = lots.drawn().from;
        self.lots.load().iter().filter(|other| other.drawn().from > from).cloned().collect()
    }

    /// Lists who waits.
    pub(crate) async fn census(&self) -> Result<Census, StoreError> {
        self.line.census().await
    }

    /// Deals the line anew, and takes a view of it into use.
    pub(crate) async fn deal(&self, deal: Deal, anyway: bool) -> Result<Dealt, StoreError> {
        let dealt = self.line.deal(deal, anyway).await?;
        if dealt == Dealt::Done {
            self.order_renewal();
        }
        Ok(dealt)
    }

    /// Keeps the record of a draw beside the line; see [`Line::keep_draw`].
    pub(crate) async fn keep_draw(
        &self,
        draw: u32,
        new: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.line.keep_draw(draw, new).await
    }
}
