//! A zone's whole state, for tests that compare another implementation of the rules with this one.
//!
//! Invariant: two zones with equal dumps give the same replies to the same later calls.

use super::{Entry, Zone};
use crate::{DumpInside, LastDeal, LongestPeriod, Tally, segment::SEGMENT};

/// Everything that a zone's replies depend on, sorted by ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The line's epoch.
    pub epoch: u32,
    /// The next ticket to be issued.
    pub next: u64,
    /// The first ticket of the first segment.
    pub base: u64,
    /// The latest instant of any call.
    pub now_ms: u64,
    /// How late holders come after they were asked to, in milliseconds.
    pub lateness_ms: i64,
    /// The sum of all pauses that postponed appointments, in milliseconds.
    pub paused_ms: u64,
    /// How often all holders were treated as just heard.
    pub seen_all: u64,
    /// Nobody enters before this instant; 0 for none.
    pub opens_ms: u64,
    /// The longest polling period that people may keep to beside the policy's.
    pub longest_period: LongestPeriod,
    /// Totals. `waiting` and `present` are sums over the segments.
    pub tally: Tally,
    /// The entries of the last minute: instant and count.
    pub window: Vec<(u64, u32)>,
    /// The segments.
    pub segments: Vec<DumpSegment>,
    /// The live tickets.
    pub tickets: Vec<DumpTicket>,
    /// The appointments: ticket, due instant (less the pauses before it was made), and the period asked for (0 for none).
    pub appointments: Vec<(u64, u64, u64)>,
    /// The remembered entries.
    pub entries: Vec<(u64, Entry)>,
    /// The people inside.
    pub inside: DumpInside,
    /// By which draw the line was dealt last.
    pub drawn: LastDeal,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpSegment {
    /// The segment's number: `seq / 65,536`.
    pub index: u64,
    /// Live tickets.
    pub live: u32,
    /// Present tickets.
    pub present: u32,
    /// The number of the first ticket behind the front, within the segment.
    pub front: usize,
    /// The number of the first ticket whose holder need not have been told the near period, within the segment.
    pub near: usize,
    /// The generation up to which the segment was updated.
    pub generation: u64,
    /// The [`Dump::seen_all`] up to which the segment was updated.
    pub seen_all: u64,
}

/// One live ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpTicket {
    /// Its number.
    pub seq: u64,
    /// Generations since the holder was last heard, when the segment was last updated.
    pub age: u8,
    /// Whether the holder is present.
    pub here: bool,
}

impl Zone {
    /// The zone's whole state. Slow; for tests.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let segments = self.segments.iter().zip(self.base..);
        let tickets = segments.clone().flat_map(|(segment, index)| {
            let live = (0..segment.issued).filter(|&ticket| segment.is_live(ticket));
            live.map(move |ticket| DumpTicket {
                seq: index * SEGMENT + ticket as u64,
                age: segment.age(ticket),
                here: segment.is_here(ticket),
            })
        });
        let mut appointments: Vec<_> = (self.appointments.iter())
            .map(|(&seq, appointment)| (seq, appointment.due_ms, appointment.poll_in_ms))
            .collect();
        appointments.sort_unstable();
        let mut entries: Vec<_> = (self.entries.iter())
            .filter(|(_, entry)| self.is_remembered(entry))
            .map(|(&seq, &entry)| (seq, entry))
            .collect();
        entries.sort_unstable_by_key(|&(seq, _)| seq);
        Dump {
            epoch: self.epoch,
            next: self.next,
            base: self.base * SEGMENT,
            now_ms: self.now_ms,
            lateness_ms: self.lateness_ms,
            paused_ms: self.paused_ms,
            seen_all: self.seen_all,
            opens_ms: self.window.opens_ms(),
            longest_period: self.longest_period,
            tally: self.tally(),
            window: self.window.log().collect(),
            tickets: tickets.collect(),
            segments: segments
                .map(|(segment, index)| DumpSegment {
                    index,
                    live: segment.live,
                    present: segment.present,
                    front: segment.front,
                    near: segment.near,
                    generation: segment.generation,
                    seen_all: segment.seen_all,
                })
                .collect(),
            appointments,
            entries,
            inside: self.inside.dump(),
            drawn: self.drawn,
        }
    }
}
