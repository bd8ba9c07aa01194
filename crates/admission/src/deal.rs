//! The data that is exchanged when a line is dealt anew: the list of who waits, the new numbers, and the result.
//!
//! [`Zone::census`](crate::Zone::census) lists who waits, [`Lots`](crate::Lots) has the new numbers, and
//! [`Zone::deal`](crate::Zone::deal) gives them. Invariant: plain data, without rules.

/// By which draw a line was dealt last, and which numbers it gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastDeal {
    /// The draw; 0 for none.
    pub draw: u32,
    /// The first number that it dealt, a multiple of a segment.
    pub from: u64,
    /// The first number behind those that it dealt.
    pub end: u64,
}

impl LastDeal {
    /// Whether the draw gave this number. Its tickets are of any epoch, because a deal that was lost is made again.
    #[must_use]
    pub fn has(&self, seq: u64) -> bool {
        (self.from..self.end).contains(&seq)
    }
}

/// Who waits, at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// The instant, in milliseconds on the store's clock.
    pub now_ms: u64,
    /// The same by the wall clock, in milliseconds since 1970; see [`Snapshot::unix_ms`](crate::Snapshot).
    pub unix_ms: u64,
    /// The next ticket to be issued.
    pub next: u64,
    /// By which draw the line was dealt last.
    pub drawn: LastDeal,
    /// Until when the list may lack people, because the state was lost; in milliseconds on the store's clock.
    pub settled_ms: u64,
    /// Whether servers may still have to say what they remember of a state that was lost.
    pub is_recovering: bool,
    /// The segments in which anybody waits, in ascending order.
    pub segments: Vec<CensusSegment>,
    /// Who does not come back, because they entered or gave up the place: segments in ascending order, with 1,024 words of bits each. None
    /// where a state is never lost.
    pub ended: Vec<(u64, Vec<u64>)>,
}

/// Who waits in a segment. Ticket `i` is bit `i % 64` of word `i / 64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CensusSegment {
    /// The segment: `seq / 65,536`.
    pub index: u64,
    /// Who waits: 1,024 words.
    pub live: Vec<u64>,
    /// Who of them is present: 1,024 words.
    pub here: Vec<u64>,
}

/// How a line is dealt anew. [`Lots::deal`](crate::Lots::deal) makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// The numbers that are dealt.
    pub drawn: LastDeal,
    /// The first number that was not on the list.
    pub frozen: u64,
    /// The number that `frozen` becomes. They are at the same place of their segments.
    pub later: u64,
    /// Who waits, by position: segments from [`LastDeal::from`] on.
    pub segments: Vec<CensusSegment>,
    /// Who of the list does not come back, by position: for each of these segments, 1,024 words of bits.
    pub ended: Vec<Vec<u64>>,
}

impl Deal {
    /// How many people the deal has.
    #[must_use]
    pub fn people(&self) -> u64 {
        self.segments.iter().flat_map(|segment| &segment.live).map(|word| u64::from(word.count_ones())).sum()
    }
}

/// What became of a deal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dealt {
    /// The line is dealt by this draw, now or before.
    Done,
    /// Refused: the policy names another draw or none, or the state was lost and is not whole yet.
    NotNow,
    /// Refused: people left since the census. Take another one.
    Changed,
}
