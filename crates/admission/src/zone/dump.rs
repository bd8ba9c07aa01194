//! A zone's whole state, for tests that hold another implementation of the rules against this one.
//!
//! Invariant: two zones with equal dumps answer each later call alike.

use super::{Entry, Zone};
use crate::{Tally, segment::SEGMENT_TICKETS};

/// All that a zone's answers follow from, in the order of ticket numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Which life of the line this is.
    pub epoch: u32,
    /// The next ticket number to be given out.
    pub next: u64,
    /// The first ticket number of the first segment.
    pub base: u64,
    /// The last instant seen.
    pub now_ms: u64,
    /// How late those come who are asked to come.
    pub lateness_ms: i64,
    /// How long pauses have put off appointments, in all.
    pub paused_ms: u64,
    /// How often everybody was taken as just heard.
    pub seen_all: u64,
    /// The highest ticket that ever got an appointment.
    pub appointed_max: Option<u64>,
    /// Totals; `waiting` and `present` are those of the segments.
    pub tally: Tally,
    /// The entries of the minute: when, and how many.
    pub window: Vec<(u64, u32)>,
    /// The segments.
    pub segments: Vec<DumpSegment>,
    /// The live tickets.
    pub tickets: Vec<DumpTicket>,
    /// The appointments: ticket, when overdue (less the pauses before it was made), after how long asked to come.
    pub appointments: Vec<(u64, u64, u64)>,
    /// Who entered, and may be told so again.
    pub entries: Vec<(u64, Entry)>,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpSegment {
    /// Its number: `seq / 65,536`.
    pub index: u64,
    /// Live tickets.
    pub live: u32,
    /// Present ones among those.
    pub present: u32,
    /// The generation it was brought up to.
    pub generation: u64,
    /// The [`Dump::seen_all`] it was brought up to.
    pub seen_all: u64,
}

/// A live ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpTicket {
    /// Its number.
    pub seq: u64,
    /// How many generations ago its holder was heard, when its segment was last brought up.
    pub age: u8,
    /// Whether its holder is present.
    pub here: bool,
    /// Whether its holder polled since the last appointment.
    pub met: bool,
}

impl Zone {
    /// The whole state. For tests that hold another implementation against this one; slow.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let segments = self.segments.iter().zip(self.base..);
        let tickets = segments.clone().flat_map(|(segment, index)| {
            let live = (0..segment.given).filter(|&ticket| segment.is_live(ticket));
            live.map(move |ticket| DumpTicket {
                seq: index * SEGMENT_TICKETS as u64 + ticket as u64,
                age: segment.age(ticket),
                here: segment.is_here(ticket),
                met: segment.has_met(ticket),
            })
        });
        let mut appointments: Vec<_> =
            (self.appointments.iter()).map(|(&seq, kept)| (seq, kept.due_ms, kept.poll_in_ms)).collect();
        appointments.sort_unstable();
        let mut entries: Vec<_> = (self.entries.iter())
            .filter(|(_, entry)| self.is_remembered(entry.at_ms))
            .map(|(&seq, &entry)| (seq, entry))
            .collect();
        entries.sort_unstable_by_key(|&(seq, _)| seq);
        Dump {
            epoch: self.epoch,
            next: self.next,
            base: self.base * SEGMENT_TICKETS as u64,
            now_ms: self.now_ms,
            lateness_ms: self.lateness_ms,
            paused_ms: self.paused_ms,
            seen_all: self.seen_all,
            appointed_max: self.appointed_max,
            tally: self.tally(),
            window: self.window.log().collect(),
            tickets: tickets.collect(),
            segments: segments
                .map(|(segment, index)| DumpSegment {
                    index,
                    live: segment.live,
                    present: segment.present,
                    generation: segment.generation,
                    seen_all: segment.seen_all,
                })
                .collect(),
            appointments,
            entries,
        }
    }
}
