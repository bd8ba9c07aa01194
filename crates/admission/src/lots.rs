//! The result of a draw: which number each place of a frozen line gets.
//!
//! At the freeze a line is listed. A draw gives everybody on the list a position, and the line is dealt anew: who is on the list gets
//! the number of the position, and who came later a number behind them, in the order of arrival.
//!
//! ```text
//! before       ... frozen ........ from
//! after        from ... from + listed ... later ........ end ...
//!              by position                by arrival     newcomers
//! ```
//!
//! Invariant: the numbers follow from the list and the positions alone. So a deal that was lost with the state that made it is made
//! again, by any server, with the same numbers.

use crate::{
    Census, CensusSegment, Deal, LastDeal,
    segment::{SEGMENT, SEGMENT_TICKETS, SEGMENT_WORDS, split},
};

/// How many numbers after the freeze people may get until the line is dealt anew: 4 million.
const LATER: u64 = 64 * SEGMENT;

/// The position of a place that is not in line.
const NONE: u32 = u32::MAX;

/// What a draw gave to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lots {
    draw: u32,
    /// The first number that is not on the list.
    frozen: u64,
    /// The first number that is dealt.
    from: u64,
    /// How many people are on the list.
    listed: u32,
    /// The numbers of the listed segments, in ascending order.
    segments: Vec<u64>,
    /// The position of each ticket of these segments.
    positions: Vec<u32>,
}

/// Why lists and positions do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LotsFault {
    /// The segments are not in ascending order, have another length, or hold numbers beyond the freeze.
    #[error("the list is not one of a line that was frozen at {0}")]
    List(u64),
    /// There are too few or too many positions, or they are not those from 0 on, each once.
    #[error("{0} positions are not those of {1} people")]
    Positions(usize, usize),
}

fn round_up(number: u64) -> u64 {
    number.next_multiple_of(SEGMENT)
}

/// The tickets of a segment whose bits are set.
fn tickets(index: u64, words: &[u64]) -> impl Iterator<Item = u64> {
    words.iter().zip((index * SEGMENT..).step_by(64)).flat_map(|(word, first)| {
        let some = |left: u64| (left != 0).then_some(left);
        let left = std::iter::successors(some(*word), move |left| some(left & (left - 1)));
        left.map(move |left| first + u64::from(left.trailing_zeros()))
    })
}

/// Sets the bit of a ticket of a segment.
fn set(words: &mut [u64], ticket: usize) {
    words[ticket / 64] |= 1 << (ticket % 64);
}

impl CensusSegment {
    /// A segment in which nobody waits.
    #[must_use]
    pub fn empty(index: u64) -> Self {
        Self { index, live: vec![0; SEGMENT_WORDS], here: vec![0; SEGMENT_WORDS] }
    }
}

impl Lots {
    /// The lots of draw `draw` (not 0) over a line whose next number was `frozen`. `list` has the segments with the bits of who
    /// waits, `positions` the position of each of them, from 0, in the order of the list.
    ///
    /// # Errors
    /// [`LotsFault`] if they do not fit each other.
    pub fn new(
        draw: u32,
        frozen: u64,
        list: &[(u64, Vec<u64>)],
        positions: &[u32],
    ) -> Result<Self, LotsFault> {
        let ascends = list.iter().zip(list.iter().skip(1)).all(|(one, next)| one.0 < next.0);
        let fits =
            |(index, words): &(u64, Vec<u64>)| words.len() == SEGMENT_WORDS && *index <= split(frozen).0;
        let mut dealt = Vec::with_capacity(list.len() * SEGMENT_TICKETS);
        let mut next = positions.iter();
        let mut taken = vec![false; positions.len()];
        if !ascends || !list.iter().all(fits) {
            return Err(LotsFault::List(frozen));
        }
        let people: usize =
            list.iter().flat_map(|(_, words)| words).map(|word| word.count_ones() as usize).sum();
        let fault = LotsFault::Positions(positions.len(), people);
        for (index, words) in list {
            for ticket in 0..SEGMENT_TICKETS {
                if words[ticket / 64] >> (ticket % 64) & 1 == 0 {
                    dealt.push(NONE);
                    continue;
                }
                if index * SEGMENT + ticket as u64 >= frozen {
                    return Err(LotsFault::List(frozen));
                }
                let position = *next.next().ok_or(fault)?;
                let is_new = taken.get_mut(position as usize).map(|taken| !std::mem::replace(taken, true));
                if is_new != Some(true) {
                    return Err(fault);
                }
                dealt.push(position);
            }
        }
        let listed = u32::try_from(people).ok().filter(|_| next.next().is_none()).ok_or(fault)?;
        let segments = list.iter().map(|(index, _)| *index).collect();
        Ok(Self { draw, frozen, from: round_up(frozen) + LATER, listed, segments, positions: dealt })
    }

    /// The numbers that the draw deals.
    #[must_use]
    pub fn drawn(&self) -> LastDeal {
        let end = round_up(self.later() + (self.from - self.frozen));
        LastDeal { draw: self.draw, from: self.from, end }
    }

    /// The number of whoever came first after the freeze.
    fn later(&self) -> u64 {
        round_up(self.from + u64::from(self.listed)) + self.frozen % SEGMENT
    }

    /// How many people are on the list.
    #[must_use]
    pub fn listed(&self) -> u32 {
        self.listed
    }

    /// The place of a ticket on the list, counted over the listed segments from 0; `None` if it is not of these segments.
    #[must_use]
    pub fn place(&self, seq: u64) -> Option<u32> {
        let (segment, ticket) = split(seq);
        let index = self.segments.binary_search(&segment).ok().filter(|_| seq < self.frozen)?;
        u32::try_from(index * SEGMENT_TICKETS + ticket).ok()
    }

    /// The position of a ticket, from 0; `None` if it was not in line at the freeze.
    #[must_use]
    pub fn position(&self, seq: u64) -> Option<u32> {
        let position = *self.positions.get(self.place(seq)? as usize)?;
        (position != NONE).then_some(position)
    }

    /// The number that a ticket has after the deal; `None` if it was not in line at the freeze. A number that was given out after the
    /// deal stays.
    #[must_use]
    pub fn number(&self, seq: u64) -> Option<u64> {
        match seq {
            _ if seq >= self.from => Some(seq),
            _ if seq >= self.frozen => Some(self.later() + (seq - self.frozen)),
            _ => self.position(seq).map(|position| self.from + u64::from(position)),
        }
    }

    /// The number that a ticket had before the deal, if this draw gave it its number.
    #[must_use]
    pub fn origin(&self, number: u64) -> Option<u64> {
        if !self.drawn().has(number) {
            return None;
        }
        if let Some(after) = number.checked_sub(self.later()) {
            return Some(self.frozen + after);
        }
        let position = u32::try_from(number - self.from).ok()?;
        let place = self.positions.iter().position(|of| *of == position)?;
        let segment = self.segments.get(place / SEGMENT_TICKETS)?;
        Some(segment * SEGMENT + (place % SEGMENT_TICKETS) as u64)
    }

    /// How a line is dealt anew in which `census` found who waits.
    #[must_use]
    pub fn deal(&self, census: &Census) -> Deal {
        let segments = u64::from(self.listed).div_ceil(SEGMENT);
        let first = split(self.from).0;
        let mut dealt: Vec<CensusSegment> = (first..first + segments).map(CensusSegment::empty).collect();
        let mut ended = vec![vec![0; SEGMENT_WORDS]; dealt.len()];
        let place = |seq| {
            let at = self.position(seq)? as usize;
            Some((at / SEGMENT_TICKETS, at % SEGMENT_TICKETS))
        };
        for (index, words) in &census.ended {
            for (segment, at) in tickets(*index, words).filter_map(place) {
                set(&mut ended[segment], at);
            }
        }
        for CensusSegment { index, live, here } in &census.segments {
            for seq in tickets(*index, live) {
                let Some((segment, at)) = place(seq) else { continue };
                let to = &mut dealt[segment];
                set(&mut to.live, at);
                let (_, ticket) = split(seq);
                if here[ticket / 64] >> (ticket % 64) & 1 == 1 {
                    set(&mut to.here, at);
                }
            }
        }
        Deal { drawn: self.drawn(), frozen: self.frozen, later: self.later(), segments: dealt, ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(seqs: impl IntoIterator<Item = usize>) -> Vec<u64> {
        let mut words = vec![0; SEGMENT_WORDS];
        for seq in seqs {
            words[seq / 64] |= 1 << (seq % 64);
        }
        words
    }

    #[test]
    fn everybody_gets_the_number_of_the_position_and_later_people_stand_behind() {
        let list = [(0, words([3, 5])), (7, words([0, 1]))];
        let lots = Lots::new(9, 7 * SEGMENT + 4, &list, &[2, 0, 3, 1]).expect("fits");
        let LastDeal { draw, from, end } = lots.drawn();
        assert_eq!((draw, from), (9, (8 + 64) * SEGMENT));
        let numbers = [3, 5, 7 * SEGMENT, 7 * SEGMENT + 1].map(|seq| lots.number(seq));
        assert_eq!(numbers, [2, 0, 3, 1].map(|position| Some(from + position)));
        assert_eq!([4, 9 * SEGMENT / 2, 7 * SEGMENT + 3].map(|seq| lots.number(seq)), [None; 3]);
        let first_later = lots.number(7 * SEGMENT + 4).expect("it came later");
        assert!(first_later >= from + 4 && first_later % SEGMENT == 4, "whole segments move");
        assert_eq!(lots.number(7 * SEGMENT + 9), Some(first_later + 5));
        assert_eq!(lots.number(from - 1).map(|last| last < end), Some(true));
        assert_eq!((lots.number(from), lots.number(end + 3)), (Some(from), Some(end + 3)), "once is enough");
        for seq in [3, 5, 7 * SEGMENT, 7 * SEGMENT + 1, 7 * SEGMENT + 4, from - 1] {
            assert_eq!(lots.number(seq).and_then(|number| lots.origin(number)), Some(seq), "and back");
        }
        assert_eq!([from - 1, from + 4, end].map(|number| lots.origin(number)), [None; 3]);
        assert_eq!((lots.place(5), lots.place(7 * SEGMENT + 1)), (Some(5), Some(65_537)));
        assert_eq!((lots.place(7 * SEGMENT + 4), lots.place(SEGMENT)), (None, None));
    }

    #[test]
    fn who_does_not_come_back_has_no_place_by_the_new_number() {
        let list = [(0, words([3, 5])), (7, words([0, 1]))];
        let lots = Lots::new(9, 7 * SEGMENT + 4, &list, &[2, 0, 3, 1]).expect("fits");
        let here = |index, seqs: [usize; 1]| CensusSegment { index, live: words(seqs), here: words(seqs) };
        let census = Census {
            now_ms: 0,
            unix_ms: 0,
            next: 7 * SEGMENT + 9,
            drawn: LastDeal::default(),
            settled_ms: 0,
            is_recovering: false,
            segments: vec![here(0, [3]), here(7, [1])],
            // 4 was not on the list, 6 came later.
            ended: vec![(0, words([4, 5])), (7, words([0, 6]))],
        };
        let deal = lots.deal(&census);
        assert_eq!(deal.segments[0].live, words([2, 1]));
        assert_eq!(deal.ended, [words([0, 3])]);
    }

    #[test]
    fn lists_and_positions_that_do_not_fit_are_refused() {
        let list = |seqs: &[usize]| [(0, words(seqs.iter().copied()))];
        let fault = |list: &[(u64, Vec<u64>)], positions: &[u32]| {
            Lots::new(1, 10, list, positions).expect_err("refused").to_string()
        };
        assert_eq!(fault(&list(&[1, 2]), &[0]), "1 positions are not those of 2 people");
        assert!(fault(&list(&[1, 2]), &[0, 0]).starts_with("2 positions"), "one twice");
        assert!(fault(&list(&[1, 2]), &[0, 2]).starts_with("2 positions"), "one beyond the last");
        assert!(fault(&list(&[1, 2]), &[0, 1, 2]).starts_with("3 positions"));
        assert!(fault(&list(&[10]), &[0]).contains("frozen at 10"), "beyond the freeze");
        assert!(fault(&[(0, vec![0])], &[]).contains("frozen at 10"), "half a segment");
        let twice = [list(&[1])[0].clone(), list(&[2])[0].clone()];
        assert!(fault(&twice, &[0, 1]).contains("frozen at 10"));
        assert_eq!(Lots::new(1, 0, &[], &[]).map(|lots| lots.listed()), Ok(0), "nobody came");
    }
}
