//! Publishes entries, refusals and store calls of a room on the bus.
//!
//! Invariant: an entry is published as admitted once by each server, for as long as the entry can be reported again.

use std::sync::PoisonError;

use admission::{Entry, FirstTold, Policy, Ticket};
use events::{Admitted, AdmittedEntry, Bus, Entered, Limited, LimitedCall, Refused, StoreCall, StoreCalled};
use store::{Line, StoreError};
use tokio::time::Instant;

use super::Room;
use crate::reply::Refusal;

impl<L: Line> Room<L> {
    /// Publishes an entry of this very call, with the wait as its holder was told.
    pub(super) fn publish_entered(&self, ticket: &Ticket, at_ms: u64) {
        let (told_low_s, told_high_s) = ticket.first_told.and_then(FirstTold::range_s).unwrap_or((0, 0));
        self.bus.publish(Entered {
            zone: self.id,
            waited_ms: saturating(at_ms.saturating_sub(ticket.issued_ms)),
            told_s: ticket.first_told.map_or(0, FirstTold::wait_s),
            told_low_s,
            told_high_s,
            at_ms,
        });
    }

    /// Publishes that the store admitted a ticket, unless this server did so before. This follows the store's answer
    /// to the lane and not the reply, because the holder may have hung up, and the store's first answer may be lost.
    ///
    /// The policy is the one by which the store decided. The view in use may not have it yet.
    pub(super) fn note_admitted(&self, epoch: u32, seq: u64, entry: Entry, at_ms: u64, policy: Policy) {
        if self.is_new_entry(epoch, seq) {
            self.publish_admitted(epoch, seq, entry, at_ms, policy.with_limits_of(&self.policy()));
        }
    }

    /// Notes that a ticket's holder entered; returns whether that is new to this server.
    pub(super) fn is_new_entry(&self, epoch: u32, seq: u64) -> bool {
        let now_ms = self.since_start_ms();
        self.published.lock().unwrap_or_else(PoisonError::into_inner).note(epoch, seq, now_ms)
    }

    pub(super) fn publish_admitted(&self, epoch: u32, seq: u64, entry: Entry, at_ms: u64, policy: Policy) {
        let entry = AdmittedEntry { seq, entered_unix_s: entry.unix_s, at_ms };
        self.bus.publish(Admitted { zone: self.id, epoch, entry, policy });
    }

    /// Publishes that a call is refused.
    pub(crate) fn note_refused(&self, refusal: Refusal) {
        self.bus.publish(Refused { zone: self.id, why: refusal.into(), count: 1 });
    }

    /// Publishes that a call is refused because its client calls too often.
    pub(crate) fn note_rate_limited(&self, call: LimitedCall, retry_after_s: u32) {
        self.bus.publish(Limited { zone: self.id, call, count: 1, retry_after_s });
    }

    /// Awaits a store call and publishes how it went.
    pub(super) fn timed<T>(
        &self,
        call: StoreCall,
        tickets: usize,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        timed(&self.bus, self.id, call, tickets, answer)
    }
}

/// Awaits a store call and publishes how it went.
///
/// The call is boxed: one to Redis is a future of 20 KB, and a lane, of which each zone has one, makes calls of eight kinds.
pub(super) fn timed<T>(
    bus: &Bus,
    zone: events::ZoneNumber,
    call: StoreCall,
    tickets: usize,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    let answer = Box::pin(answer);
    async move {
        let asked = Instant::now();
        let answer = answer.await;
        let took_us = u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX);
        let tickets = saturating(tickets as u64);
        bus.publish(StoreCalled { zone, call, took_us, tickets, ok: answer.is_ok() });
        answer
    }
}

/// A count that fits into an event.
pub(super) fn saturating(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
