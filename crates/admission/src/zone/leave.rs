//! Leaving: a holder who waits gives up the place, and a holder who entered ends the visit.
//!
//! An entry that was left keeps its record without a life: the window still counts it, and no claim returns it. Holders who are dropped for
//! silence are in `segment.rs` (`end_generation`), and visits that end by idleness are in `inside.rs`.
//!
//! Invariants: only a ticket that this line gave out leaves. A place is given up once. While visits are counted (`max_active`), a visit
//! ends once. Otherwise nobody notes who left: an open visit can be ended again, which changes nothing.

use super::{Claim, Zone};
use crate::Now;

/// What shows that somebody may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// The name of the entry, as an operator gives it. It must have entered.
    Name,
    /// The token. Its holder waits, or has entered.
    Token,
    /// The visit, which is open. So its holder has entered, whether or not that is still known.
    Visit,
}

/// A holder who leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leaver {
    /// The ticket.
    pub claim: Claim,
    /// What shows that the holder may leave.
    pub proof: Proof,
    /// A digest of the address from which the holder leaves; 0 where any may.
    pub address: u64,
}

/// What became of somebody who leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The holder waited. The place is free.
    Place,
    /// The holder had entered. The visit is over.
    Visit,
    /// Refused: the place or the visit had ended before.
    Gone,
    /// Refused: the holder waits, and only the holder gives up a place.
    Waits,
    /// Refused: the entry is bound to another address.
    Elsewhere,
    /// Refused: this line never gave out the ticket.
    Unknown,
    /// The state was lost, or a draw is due, and whether the ticket waits is not known yet.
    NotYet,
}

impl Zone {
    /// Lets holders leave, in this order. Returns what became of each.
    pub fn leave(&mut self, leavers: &[Leaver], now: Now) -> Vec<Departure> {
        self.advance(now.ms);
        let departures = leavers.iter().map(|leaver| self.leave_one(leaver)).collect();
        self.check();
        departures
    }

    fn leave_one(&mut self, leaver: &Leaver) -> Departure {
        let Claim { seq, .. } = leaver.claim;
        if self.may_be_dealt(leaver.claim) {
            return Departure::NotYet;
        }
        if !(self.is_of_line(leaver.claim) || sabotaged(Broken::Epoch) && seq < self.next) {
            return Departure::Unknown;
        }
        if let Some((segment, ticket)) = self.find(seq) {
            self.touch(segment);
            if self.segments[segment].is_live(ticket) {
                if leaver.proof != Proof::Token {
                    return Departure::Waits;
                }
                if !sabotaged(Broken::GivingUp) {
                    self.segments[segment].give_up(ticket);
                    self.appointments.remove(&seq);
                    self.tally.evicted += 1;
                }
                return Departure::Place;
            }
        }
        let entry = self.entries.get(&seq).copied().filter(|entry| self.is_remembered(entry));
        let is_counted = self.policy.max_active > 0 && self.inside.has(seq);
        let is_proven = leaver.proof == Proof::Visit && !self.inside.has_left(seq, self.now_ms);
        if entry.is_none() && !is_counted && !is_proven {
            return Departure::Gone;
        }
        let bound = self.bound.get(&seq).filter(|_| entry.is_some());
        if leaver.address != 0 && bound.is_some_and(|bound| *bound != leaver.address) {
            return Departure::Elsewhere;
        }
        if let Some(mut entry) = entry.filter(|_| !sabotaged(Broken::Replay)) {
            entry.life_s = 0;
            self.entries.insert(seq, entry);
            self.unsaved.entered.push((seq, entry));
        }
        self.inside.end_visit(seq, &self.policy, self.now_ms);
        Departure::Visit
    }
}

/// A rule of this file that tests break.
enum Broken {
    Epoch,
    GivingUp,
    Replay,
}

#[cfg(feature = "sabotage")]
fn sabotaged(rule: Broken) -> bool {
    use crate::sabotage::{Rule, on};
    on(match rule {
        Broken::Epoch => Rule::LeaveEpoch,
        Broken::GivingUp => Rule::GivingUp,
        Broken::Replay => Rule::Replay,
    })
}

#[cfg(not(feature = "sabotage"))]
const fn sabotaged(_: Broken) -> bool {
    false
}
