//! Entries that no store has seen: for zones that are to be open while the store is away.
//!
//! A newcomer's place gets an epoch that no line has, and a random number: the pass is one of its own, and the token
//! tells by itself that its holder is in, and since when. A holder's pass has the ticket's own name, so that an entry
//! told again later, by the store, is not a second one.
//! Invariant: nobody enters this way before the store has been away for [`OPEN_AFTER_MS`]: one slow call opens nothing.

use std::{sync::atomic::Ordering, time::SystemTime};

use admission::{Entry, Mode, OnStoreFailure, Ticket};
use events::AdmittedUnseen;

use super::{PassClaims, Refusal, Reply, room::Room};

/// The epoch of those who took a place and entered without the store.
const EPOCH: u32 = 0;

/// For how long the store has to be away, in milliseconds.
const OPEN_AFTER_MS: u64 = 1_000;

impl Room {
    /// Lets somebody in without the store, where that is what the policy wants now: the ticket's holder, or a newcomer.
    pub(super) fn admit_unseen(&self, ticket: Option<Ticket>) -> Option<Reply> {
        if !self.opens_unseen() {
            return None;
        }
        let now_ms = unix_ms();
        let ticket = match ticket {
            Some(ticket) => ticket,
            None => Ticket {
                epoch: EPOCH,
                seq: random_48()?,
                issued_ms: now_ms,
                first_told_s: None,
                told_s: None,
            },
        };
        let total = 1 + self.unseen.fetch_add(1, Ordering::Relaxed);
        self.bus.publish(AdmittedUnseen { zone: self.id, total });
        let entry = Entry { at_ms: now_ms, unix_s: now_ms / 1_000 };
        if ticket.epoch == EPOCH || self.is_news(ticket.epoch, ticket.seq) {
            self.tell_admitted(ticket.epoch, ticket.seq, entry, now_ms);
        }
        Some(self.entered_at(&ticket, entry.unix_s))
    }

    /// Whether everybody who asks is let in without the store now.
    pub(super) fn opens_unseen(&self) -> bool {
        if self.away_ms() < OPEN_AFTER_MS {
            return false;
        }
        let policy = self.policy();
        // An operator who holds the line or closes the zone means it.
        policy.on_store_failure == OnStoreFailure::Open && matches!(policy.mode, Mode::Auto | Mode::Open)
    }

    /// What the holder of a place is told who entered with it, without the store; none for an ordinary ticket.
    pub(super) fn look_unseen(&self, ticket: &Ticket) -> Option<Result<Reply, Refusal>> {
        if ticket.epoch != EPOCH {
            return None;
        }
        let good_until_ms = ticket.issued_ms + u64::from(self.policy().pass_ttl_s) * 1_000;
        let is_good = unix_ms() <= good_until_ms;
        Some(if is_good { Ok(self.entered_at(ticket, ticket.issued_ms / 1_000)) } else { Err(Refusal::Gone) })
    }

    /// The reply to one who is in since `entered_unix_s`.
    pub(super) fn entered_at(&self, ticket: &Ticket, entered_unix_s: u64) -> Reply {
        let ttl_s = self.policy().pass_ttl_s;
        let pass = PassClaims { epoch: ticket.epoch, seq: ticket.seq, entered_unix_s, ttl_s };
        Reply::Entered { token: self.sealer.seal(ticket), pass }
    }
}

#[expect(clippy::disallowed_methods, reason = "without the store, nobody else dates the pass")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// None where the system gives no random numbers.
fn random_48() -> Option<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes[2..]).ok()?;
    Some(u64::from_be_bytes(bytes))
}
