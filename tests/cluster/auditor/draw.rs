//! What must hold where the order is drawn: one draw, whose numbers everybody has, and people enter by them.
//!
//! The auditor knows tickets by the numbers that were given out. Invariant: it takes from the lots who drew which position, and no more.

use std::sync::Arc;

use admission::Lots;
use gate::{Reason, Refusal, Reply, WaitStatus};

use super::{Auditor, Call, Life, Promise, Seen, Ticket};

impl Auditor {
    /// A server reads tickets by these lots from now on. `first` are those by which one did so first. The draw is held again only if the
    /// store lost its record while no server ran that knew it.
    pub(crate) fn draws(&mut self, now: u64, server: usize, first: &Arc<Lots>, lots: &Arc<Lots>) {
        if self.lots.is_none() {
            (self.lots, self.drawn_ms) = (Some(Arc::clone(first)), now);
        }
        let is_lost = self.is_draw_lost(now);
        self.draw_read.push((server, now));
        if first == lots || self.is_drawn_anew {
            return;
        }
        if is_lost || self.nobody_knows(self.drawn_ms, now) {
            self.is_drawn_anew = true;
            self.judged.drawn_anew += 1;
            return;
        }
        let (had, has) = (first.listed(), lots.listed());
        self.breaks(
            Promise::DrawnTwice,
            format!("{now} ms: server {server} has {has} people on the list, not {had}"),
        );
    }

    /// Whether the draw was held in a part of a divided network, and all servers have ended that knew it.
    fn is_draw_lost(&self, now: u64) -> bool {
        let knows = |&(server, read): &(usize, u64)| {
            let is_it = |life: &Life| life.server == server && life.from <= read && life.until >= now;
            self.lives.iter().any(is_it)
        };
        let is_within = |&(from, until): &(u64, u64)| from <= self.drawn_ms && self.drawn_ms <= until;
        self.divided.iter().any(is_within) && !self.draw_read.iter().any(knows)
    }

    /// Whether a state that answered a call is dealt by the draw.
    pub(crate) fn dealt(&mut self, now: u64, is_dealt: bool) {
        let last = self.undealt.last().copied();
        match last {
            Some((_, u64::MAX)) if is_dealt => self.undealt.last_mut().expect("there is one").1 = now,
            Some((_, until)) if !is_dealt && until < u64::MAX => self.undealt.push((now, u64::MAX)),
            _ => {}
        }
    }

    /// A server answered a call that showed a ticket with the token of another one.
    pub(crate) fn reads(&mut self, call: &Call, shown: Ticket, told: Ticket) {
        let is_drawn = self.lots.as_ref().is_some_and(|lots| lots.position(told.1).is_some());
        self.judged.drawn += u64::from(is_drawn);
        if shown != told {
            self.breaks(
                Promise::OtherNumber,
                format!("user {}, {call:?}: {shown:?} is told {told:?}", call.user),
            );
        }
    }

    /// Whether a server said that the draw is to come, because it has not read the draw by which the line is dealt. It says so to whoever has a
    /// number of before, also if the place was given up (what-can-go-wrong.md).
    pub(super) fn is_without_number(&self, call: &Call, answer: &Result<Reply, Refusal>) -> bool {
        let is_to_come = matches!(
            answer,
            Ok(Reply::Waiting { status: WaitStatus { reason: Some(Reason::Draw), .. }, .. })
        );
        let of = |life: &&Life| life.server == call.at.0 && life.from <= call.now;
        let began = self.lives.iter().filter(of).map(|life| life.from).max().unwrap_or(0);
        let has_read =
            |&(server, at): &(usize, u64)| server == call.at.0 && (began..call.asked).contains(&at);
        let was_undealt = |&(from, until): &(u64, u64)| from <= call.asked && call.now < until;
        is_to_come && !self.draw_read.iter().any(has_read) && !self.undealt.iter().any(was_undealt)
    }

    /// Which position a user drew.
    pub(super) fn position(&self, seen: &Seen) -> Option<u32> {
        self.lots.as_ref()?.position(seen.ticket?.1)
    }

    /// The place of a number in the order: those who were drawn by their positions, and then by arrival.
    pub(super) fn number(&self, seq: u64) -> u64 {
        let Some(lots) = &self.lots else { return seq };
        lots.position(seq).map_or_else(|| u64::from(lots.listed()) + seq, u64::from)
    }

    /// Whether one user is to enter before another one. Of two who came at about the same time, nobody knows.
    pub(super) fn is_ahead(&self, one: &Seen, other: &Seen) -> bool {
        match (self.position(one), self.position(other)) {
            (Some(one), Some(other)) => one < other,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => one.joined.1 < other.tried,
        }
    }
}
