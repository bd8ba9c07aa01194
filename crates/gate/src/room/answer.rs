//! Replies to polls and joins: from the view, and from the store's verdicts.
//!
//! A poll is answered by the first of these that can: a ticket that entered without the store, a draw that this server does not know yet,
//! fail-open, the view, the memory of gone tickets, the store. While the store is away, a remembered entry counts before fail-open, and in
//! place of the store's answer. Invariant: while the store answers, nothing up to the view takes a lock, allocates or waits.

use std::{sync::atomic::Ordering, time::Duration};

use admission::{Claim, Entry, JoinKey, Mode, Position, Ticket, Verdict};
use store::{Line, RememberedEntry};
use tokio::time::{Instant, sleep};
use wait::Lookup;

use super::{
    Room,
    calls::{ClaimOutcome, JoinOutcome, NewTicket},
    causes::NO_EPOCH,
    current_view::CurrentView,
    draw::Lot,
};
use crate::{
    reply::{PassClaims, Refusal, Reply, WaitStatus},
    trips::Trips,
};

/// A poll whose slot becomes free within this time is held until then, in milliseconds. This is how early apps and
/// networks usually are. A longer time would use hardly more slots, and would show in the latencies.
const HOLD_MS: u32 = 150;

impl<L: Line> Room<L> {
    /// Whether the ticket's holder may enter now.
    pub(crate) async fn poll(&self, ticket: Ticket, trips: &mut Trips) -> Result<Reply, Refusal> {
        if let Some(reply) = self.reply_to_fail_open_ticket(&ticket) {
            return reply;
        }
        let given = ticket;
        let Lot::Ticket(ticket) = self.lot_of(given, self.drawn()) else {
            return Ok(self.reply_without_number(given));
        };
        if self.fails_open()
            && let Some(reply) = self.remembered_reply(ticket)
        {
            return reply;
        }
        if let Some(reply) =
            self.admit_without_store(Some(ticket), None).or_else(|| self.poll_from_view(ticket))
        {
            return Ok(reply);
        }
        if self.is_known_gone(&ticket) {
            return Err(Refusal::Gone);
        }
        // Boxed: otherwise every poll would reserve the space for it, and move it.
        Box::pin(self.poll_store(given, ticket, trips)).await
    }

    /// The answer to a poll that only the store can give. `given` is the holder's ticket, and `ticket` the same one with the number that it
    /// has since the draw.
    async fn poll_store(&self, given: Ticket, ticket: Ticket, trips: &mut Trips) -> Result<Reply, Refusal> {
        let generation = self.gone_generation();
        let mut asked = ticket;
        let mut decided = self.ask_to_enter(asked, trips).await;
        // The line is not dealt as the view says: it was dealt since, or the deal was lost with the state that made it.
        if let Ok(ClaimOutcome { verdict: Verdict::Gone, drawn, .. }) = decided
            && let lot = self.lot_of(given, drawn)
            && lot != Lot::Ticket(asked)
        {
            self.order_renewal();
            let Lot::Ticket(ticket) = lot else {
                return Ok(self.reply_without_number(given));
            };
            asked = ticket;
            decided = self.ask_to_enter(asked, trips).await;
        }
        // The call waits for an appointment this near, so the slot is used when it becomes free, and not one network
        // round trip later.
        if let Ok(ClaimOutcome { verdict: Verdict::Waiting(position), .. }) = &decided
            && let Some(slot_in_ms @ 0..=HOLD_MS) = position.slot_in_ms
        {
            sleep(Duration::from_millis(slot_in_ms.into())).await;
            decided = self.ask_to_enter(asked, trips).await;
        }
        match decided {
            // Between the freeze and the draw, an operator may have let people in by the numbers that they had.
            Ok(ClaimOutcome { verdict: Verdict::Gone, .. })
                if asked != given
                    && let Ok(ClaimOutcome { verdict: verdict @ Verdict::Entered(_), at_ms, .. }) =
                        self.ask_to_enter(given, trips).await =>
            {
                self.reply(given, verdict, at_ms)
            }
            Ok(ClaimOutcome { verdict, at_ms, .. }) => {
                if verdict == Verdict::Gone {
                    self.note_gone(&asked, generation);
                }
                self.reply(asked, verdict, at_ms)
            }
            // Without the store's answer, holders at the front keep their tickets and hear what was last known.
            Err(refusal) => match self.remembered_reply(asked) {
                Some(reply) => reply,
                None => self.last_known_reply(asked).ok_or(refusal),
            },
        }
    }

    /// Takes a ticket for a newcomer. Whoever joined with the same key before gets the answer to a poll with that ticket.
    pub(crate) async fn join(&self, key: Option<JoinKey>, trips: &mut Trips) -> Result<Reply, Refusal> {
        self.pace.note_join();
        if self.policy().mode == Mode::Closed {
            let closed = Refusal::Closed { retry_after_s: self.ask_when_closed_s() };
            return self.poll_by_key(key, closed, trips).await;
        }
        if let Some(reply) = self.admit_without_store(None, key) {
            return Ok(reply);
        }
        let joining = match self.begin_join() {
            Ok(joining) => joining,
            Err(full) => return self.poll_by_key(key, full, trips).await,
        };
        let joined = match self.ask_to_join(key, trips).await? {
            JoinOutcome::New(joined) => joined,
            JoinOutcome::Earlier(ticket) => {
                drop(joining);
                return self.poll(ticket, trips).await;
            }
        };
        self.note_joined(&joined);
        drop(joining);
        let NewTicket { ticket, verdict } = joined;
        self.reply(ticket, verdict, ticket.issued_ms)
    }

    /// The answer where nobody gets a new ticket: `refusal`, or that to a poll, for whoever joined with the same key before.
    async fn poll_by_key(
        &self,
        key: Option<JoinKey>,
        refusal: Refusal,
        trips: &mut Trips,
    ) -> Result<Reply, Refusal> {
        let Some(key) = key else { return Err(refusal) };
        match self.ask_for_ticket(key, trips).await {
            Ok(Some(ticket)) => self.poll(ticket, trips).await,
            // What is refused anyway needs no store.
            Ok(None) | Err(_) => Err(refusal),
        }
    }

    /// The reply to a poll, where the view has it. Nearly every poll ends here: no lock, no allocation. The clock
    /// is read once.
    fn poll_from_view(&self, ticket: Ticket) -> Option<Reply> {
        let (current, now) = (self.current.load(), Instant::now());
        let now_ms = current.ms_at(now);
        match current.view.lookup(ticket.epoch, ticket.seq, now_ms) {
            Lookup::Waiting(position) => {
                current.note(ticket.seq);
                let stale = self.is_view_stale(&current, now) || current.is_behind(now);
                Some(self.waiting(ticket, position, &current, (now, now_ms), stale))
            }
            Lookup::Ask => None,
        }
    }

    /// Notes that a ticket's holder polled, though the poll gets no answer.
    ///
    /// A ticket of an earlier epoch is taken for one of this epoch, which it is unless its line no longer exists. In
    /// that case somebody who left may count as present for a while; a ticket that is gone stays gone.
    pub(crate) fn note_poll(&self, ticket: &Ticket) {
        self.current.load().note(ticket.seq);
    }

    /// The reply to a holder whose entry this server remembers, while the store does not answer: the same pass as before, or none if it has
    /// ended. Otherwise a pass whose reply was lost could not be had again, and a zone that opens without its store would give a longer one.
    fn remembered_reply(&self, ticket: Ticket) -> Option<Result<Reply, Refusal>> {
        let claim = Claim { epoch: ticket.epoch, seq: ticket.seq };
        let RememberedEntry { entry, has_left, expires_ms } = self.line.remembered_entry(claim)?;
        let now_ms = self.current.load().ms_at(Instant::now());
        if !has_left && now_ms <= expires_ms {
            return Some(Ok(self.entered(&ticket, entry, now_ms)));
        }
        // Only the store's clock ends a pass. But where the zone opens without the store, nobody gets a second one.
        (has_left || self.fails_open()).then_some(Err(Refusal::Gone))
    }

    /// The reply for a ticket that only the store could decide about, from its last known position. A ticket of an earlier epoch is taken
    /// for one of this epoch, as in [`Self::note_poll`], and for one that waits: after a loss only the store can know better.
    fn last_known_reply(&self, ticket: Ticket) -> Option<Reply> {
        let (current, now) = (self.current.load(), Instant::now());
        let now_ms = current.ms_at(now);
        let view = &current.view;
        if [ticket.epoch, view.epoch].contains(&NO_EPOCH) {
            return None;
        }
        let position = match ticket.epoch == view.epoch {
            true => view.position(ticket.seq, now_ms)?,
            false => view.position_if_waiting(ticket.seq, now_ms),
        };
        current.note(ticket.seq);
        self.unreported.store(true, Ordering::Relaxed);
        Some(self.waiting(ticket, position, &current, (now, now_ms), true))
    }

    /// The answer to a call that the store decided at `at_ms`.
    fn reply(&self, ticket: Ticket, verdict: Verdict, at_ms: u64) -> Result<Reply, Refusal> {
        match verdict {
            Verdict::Waiting(position) => {
                let current = self.current.load();
                Ok(self.waiting(ticket, position, &current, (Instant::now(), at_ms), false))
            }
            Verdict::Gone => Err(Refusal::Gone),
            Verdict::Entered(entry) => {
                if entry.at_ms == at_ms {
                    self.publish_entered(&ticket, at_ms);
                }
                Ok(self.entered(&ticket, entry, at_ms))
            }
        }
    }

    /// The reply to a holder who entered. `now_ms` is on the clock of the entry.
    pub(super) fn entered(&self, ticket: &Ticket, entry: Entry, now_ms: u64) -> Reply {
        let Entry { unix_s: entered_unix_s, life_s: ttl_s, .. } = entry;
        let pass = PassClaims { epoch: ticket.epoch, seq: ticket.seq, entered_unix_s, ttl_s };
        let age_s = now_ms.saturating_sub(entry.at_ms) / 1_000;
        Reply::Entered { token: self.seal(ticket), pass, age_s }
    }

    /// The reply to a holder who waits, at `now` here and `now_ms` on the store's clock.
    pub(super) fn waiting(
        &self,
        mut ticket: Ticket,
        position: Position,
        current: &CurrentView,
        (now, now_ms): (Instant, u64),
        stale: bool,
    ) -> Reply {
        let status = WaitStatus::new(&mut ticket, &position, current, now_ms, stale, Some((&self.pace, now)));
        self.note_told(status.polling_period_ms, &current.view);
        Reply::Waiting { token: self.seal(&ticket), status }
    }
}
