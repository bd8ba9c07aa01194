//! A draw in a line: who waits is listed, and later the line is dealt anew.
//!
//! A policy may name a draw ([`Opening::draw`](crate::Opening)). Until the line has been dealt by it, the zone is held: nobody enters,
//! and there is no front. [`Zone::census`] lists who waits. [`Zone::deal`] gives them the numbers of [`Lots`](crate::Lots), in one step.
//! The numbers before are not given out again, and nobody waits there any more.
//!
//! Invariant: a line is dealt at most once by a draw, and nobody enters between the beginning of the policy and the deal.

use super::{Claim, Zone};
use crate::{
    Census, CensusSegment, Deal, Dealt, Mode, Now, Position,
    segment::{SEGMENT, Segment, split},
};

impl Zone {
    /// The mode in force: a zone whose policy names a draw is held until the line is dealt by it.
    pub(super) fn mode(&self) -> Mode {
        self.policy.mode_after(self.drawn)
    }

    /// Whether a claim is for a number of this line.
    pub(super) fn is_of_line(&self, claim: Claim) -> bool {
        (claim.epoch == self.epoch || self.drawn.has(claim.seq)) && claim.seq < self.next
    }

    /// Whether a number that is not of this line may be one of a deal that was lost with the state that made it. Nobody is told that
    /// it is gone.
    pub(super) fn may_be_dealt(&self, claim: Claim) -> bool {
        self.policy.mode == Mode::Auto && self.mode() == Mode::Hold && !self.is_of_line(claim)
    }

    /// What the holder of such a number is told.
    pub(super) fn not_yet(&self) -> Position {
        Position {
            rank: 1,
            present_ahead: 0,
            estimate: None,
            poll_in_ms: self.policy.polling_period_ms,
            slot_in_ms: None,
        }
    }

    /// Lists who waits.
    pub fn census(&mut self, now: Now) -> Census {
        self.advance(now.ms);
        (0..self.segments.len()).for_each(|segment| self.touch(segment));
        let with_people = self.segments.iter().zip(self.base..).filter(|(segment, _)| segment.live > 0);
        let segments = with_people.map(|(segment, index)| {
            let (live, here) = segment.bits();
            CensusSegment { index, live, here }
        });
        let segments = segments.collect();
        self.check();
        Census {
            now_ms: self.now_ms,
            unix_ms: self.policy.opens_at.unix_ms(self.window.opens_ms(), self.now_ms).unwrap_or(now.unix_ms),
            next: self.next,
            drawn: self.drawn,
            settled_ms: 0,
            is_recovering: false,
            segments,
            ended: Vec::new(),
        }
    }

    /// Deals the line anew. With `anyway`, also if people left since the census: they keep a place until they are idle.
    pub fn deal(&mut self, deal: &Deal, anyway: bool, now: Now) -> Dealt {
        self.advance(now.ms);
        let Deal { drawn, frozen, later, .. } = *deal;
        if self.drawn.draw == drawn.draw {
            return Dealt::Done;
        }
        if self.policy.opens_at.draw != drawn.draw {
            return Dealt::NotNow;
        }
        (0..self.segments.len()).for_each(|segment| self.touch(segment));
        let mut moved: Vec<(u64, Segment)> = Vec::new();
        let mut left = 0;
        let (first_later, from) = (split(frozen).0, split(drawn.from).0);
        for (segment, index) in self.segments.iter().zip(self.base..).filter(|(_, index)| *index < from) {
            left += u64::from(segment.live);
            if index >= first_later && segment.live > 0 {
                let below = if index == first_later { split(frozen).1 } else { 0 };
                let segment = segment.behind(below, self.clock());
                left -= u64::from(segment.live);
                moved.push((index + split(later).0 - first_later, segment));
            }
        }
        if left != deal.people() && !anyway {
            return Dealt::Changed;
        }
        self.segments.clear();
        let clock = self.clock();
        let dealt = deal.segments.iter().map(|dealt| (dealt.index, Segment::dealt(dealt, clock)));
        let mut with_people = dealt.chain(moved).peekable();
        for index in from..split(drawn.end).0 {
            let segment = with_people.next_if(|(of, _)| *of == index).map(|(_, segment)| segment);
            let nobody = || Segment::dealt(&CensusSegment::empty(index), clock);
            self.segments.push_back(segment.unwrap_or_else(nobody));
        }
        (self.base, self.next) = (from, drawn.end);
        self.drawn = drawn;
        self.appointments.clear();
        self.dues.clear();
        self.marks.clear();
        self.check();
        debug_assert_eq!(self.next, (self.base + self.segments.len() as u64) * SEGMENT);
        Dealt::Done
    }
}
