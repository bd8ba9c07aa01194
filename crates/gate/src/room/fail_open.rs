//! Admission without the store, for zones whose policy opens them while the store is away.
//!
//! A newcomer's ticket gets epoch 0, which no line has, and a random number. The pass is valid like any other, and the
//! token alone shows that its holder entered, when, and how long the pass is valid. A waiting holder's pass has the ticket's own name, so a later
//! entry by the store is the same entry. Invariant: nobody enters this way before the store has been away for as long as
//! [`Gate::open_after`](crate::Gate::open_after) says, and a call that began then has failed. A failover is shorter than that, and opens nothing.

use std::sync::atomic::Ordering;

use admission::{Entry, FirstTold, JoinKey, OnStoreFailure, Policy, Ticket};
use events::AdmittedWithoutStore;
use store::{Line, unix_ms};
use tokio::time::Instant;

use super::Room;
use crate::{
    reply::{Refusal, Reply},
    trouble::TroubleKind,
};

/// The epoch of newcomers who entered without the store.
const EPOCH: u32 = 0;

impl<L: Line> Room<L> {
    /// Admits the ticket's holder, or a newcomer, without the store, if the policy says so now. Two calls of newcomers with one key are the
    /// same entry, at whichever server.
    pub(super) fn admit_without_store(&self, ticket: Option<Ticket>, key: Option<JoinKey>) -> Option<Reply> {
        if !self.fails_open() {
            return None;
        }
        let (now_ms, life_s) = (unix_ms(), self.policy().pass_ttl_s);
        let ticket = match ticket {
            Some(ticket) => ticket,
            None => Ticket {
                epoch: EPOCH,
                seq: key.map_or_else(random_48, |key| Some(number_of(key)))?,
                issued_ms: now_ms,
                // Nobody is told a wait here. The field keeps the life of the pass.
                first_told: Some(FirstTold::exactly(life_s)),
                told_s: None,
            },
        };
        let total = 1 + self.without_store.fetch_add(1, Ordering::Relaxed);
        self.bus.publish(AdmittedWithoutStore { zone: self.id, total });
        let entry = Entry { at_ms: now_ms, unix_s: now_ms / 1_000, life_s };
        if ticket.epoch == EPOCH || self.is_new_entry(ticket.epoch, ticket.seq) {
            self.publish_admitted(ticket.epoch, ticket.seq, entry, now_ms, self.policy());
        }
        Some(self.entered(&ticket, entry, now_ms))
    }

    /// Whether the zone admits everybody without the store now.
    pub(super) fn fails_open(&self) -> bool {
        // An answering store is away for 0 ms.
        if !self.is_away() || self.shown_away_ms() < self.open_after_ms {
            return false;
        }
        let current = self.current.load();
        let view = &current.view;
        let unix_s = self.schedule_s(unix_ms());
        let of_schedule = self.defined.load().definition.policy_at(unix_s);
        let lets_in = |policy: &Policy| {
            policy.on_store_failure == OnStoreFailure::Open && !policy.mode_after(view.drawn).keeps_out()
        };
        // A line that is held, also until its order is drawn, or a zone that is closed or not yet open, stays so. No store says any more that
        // an event begins or ends, so the schedule has to let people in, too.
        lets_in(&view.policy)
            && lets_in(&of_schedule)
            && view.opens_in_ms(current.ms_at(Instant::now())) == 0
            && u64::from(of_schedule.opens_at.unix_s) <= unix_s
            // A store with the state of a newer version is there, and the newer servers let people in. Asked last, because it takes a lock.
            && self.trouble().is_none_or(|trouble| trouble.kind != TroubleKind::Newer)
    }

    /// The answer for a ticket that entered without the store; none for an ordinary ticket.
    pub(super) fn reply_to_fail_open_ticket(&self, ticket: &Ticket) -> Option<Result<Reply, Refusal>> {
        if !entered_without_store(ticket) {
            return None;
        }
        let at_ms = ticket.issued_ms;
        let life_s = ticket.first_told.map_or(0, FirstTold::wait_s);
        let entry = Entry { at_ms, unix_s: at_ms / 1_000, life_s };
        let now_ms = unix_ms();
        let is_good = now_ms <= entry.expires_ms();
        Some(if is_good { Ok(self.entered(ticket, entry, now_ms)) } else { Err(Refusal::Gone) })
    }
}

/// Whether a newcomer got this ticket by entering without the store. It is in no line, so there is nothing to leave.
pub(super) fn entered_without_store(ticket: &Ticket) -> bool {
    ticket.epoch == EPOCH
}

/// 48 bits of a key's digest, which is as good as random.
fn number_of(JoinKey(digest): JoinKey) -> u64 {
    digest[..6].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// 48 random bits; none where the system has no random numbers.
fn random_48() -> Option<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes[2..]).ok()?;
    Some(u64::from_be_bytes(bytes))
}
