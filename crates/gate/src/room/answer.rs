//! Replies from the view, and from the store's verdicts.

use std::sync::atomic::Ordering;

use admission::{Entry, Position, Ticket, Verdict};
use tokio::time::Instant;
use wait::Lookup;

use super::{Room, WaitStatus, causes::NO_EPOCH, current_view::CurrentView};
use crate::reply::{PassClaims, Refusal, Reply};

impl Room {
    /// The answer to a poll, where the view has it. Nearly every call ends here: no lock, no allocation. The clock
    /// is read once.
    pub(crate) fn look(&self, ticket: Ticket) -> Option<Reply> {
        let (current, now) = (self.current.load(), Instant::now());
        let now_ms = current.ms_at(now);
        match current.view.lookup(ticket.epoch, ticket.seq, now_ms) {
            Lookup::Waiting(position) => {
                current.note(ticket.seq);
                let stale = self.is_view_stale(&current, now);
                Some(self.waiting(ticket, position, &current, (now, now_ms), stale))
            }
            Lookup::Ask => None,
        }
    }

    /// Notes that a ticket's holder polled, though the poll gets no answer.
    ///
    /// A ticket of an earlier epoch is taken for one of this epoch, which it is unless its line no longer exists. In
    /// that case somebody who left may count as present for a while; a ticket that is gone stays gone.
    pub(crate) fn note(&self, ticket: &Ticket) {
        self.current.load().note(ticket.seq);
    }

    /// The last known position of a ticket that only the store could decide about. A ticket of an earlier epoch is taken
    /// for one of this epoch, as in [`Self::note`], and for one that waits: after a loss only the store can know better.
    pub(crate) fn look_stale(&self, ticket: Ticket) -> Option<Reply> {
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
    pub(crate) fn reply(&self, ticket: Ticket, verdict: Verdict, at_ms: u64) -> Result<Reply, Refusal> {
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
    fn waiting(
        &self,
        mut ticket: Ticket,
        position: Position,
        current: &CurrentView,
        (now, now_ms): (Instant, u64),
        stale: bool,
    ) -> Reply {
        let WaitStatus { rank, eta, reason, polling_period_ms, stale } =
            WaitStatus::new(&mut ticket, &position, current, now_ms, stale, Some((&self.pace, now)));
        self.note_told(polling_period_ms, &current.view);
        Reply::Waiting { token: self.seal(&ticket), rank, eta, reason, polling_period_ms, stale }
    }
}
