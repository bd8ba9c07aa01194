//! What a server remembers of a zone: what its views are made of, and what it can give back when the state is lost.
//!
//! Every reply carries the header and the log's new records, a beat the bits of the segments that changed; the places
//! and entries that this server itself was told of are added at once. Invariants: the memory never goes back to an
//! older revision of one epoch; a ticket it was told is gone is never remembered as waiting.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use admission::{
    Entry, Forecast, PAGE_TICKETS, PAGE_WORDS, Policy, Position, Snapshot, SnapshotPage, Tally, Verdict,
    View, Window, Words,
};
use tokio::time::Instant;

use super::wire::{self, Counts, Garbled, Header, SEGMENT, SEGMENT_BYTES};

/// What the network may add to a call's way before the zone's clock is held back, in milliseconds.
const SLACK_MS: u64 = 250;

/// Pages of a segment.
const PAGES: usize = SEGMENT_BYTES * 8 / PAGE_TICKETS;

/// One segment's bits, as last sent.
#[derive(Clone)]
struct Bits {
    /// The revision they are of.
    rev: u64,
    /// How many of the segment's tickets were given out then; of the others is known what this server was told.
    given: usize,
    /// Which tickets wait, in the order of Redis's bits.
    live: Box<[u8; SEGMENT_BYTES]>,
}

impl Bits {
    fn new() -> Self {
        Self { rev: 0, given: 0, live: Box::new([0; SEGMENT_BYTES]) }
    }

    fn set(&mut self, ticket: usize, live: bool) {
        let mask = 0x80 >> (ticket % 8);
        if live {
            self.live[ticket / 8] |= mask;
        } else {
            self.live[ticket / 8] &= !mask;
        }
    }

    /// The bits of the tickets that are gone, of the first `given`; the others' are 0.
    fn gone(&self, given: usize) -> Vec<u8> {
        let mut gone: Vec<u8> = self.live.iter().map(|live| !live).collect();
        let (whole, rest) = (given / 8, given % 8);
        if whole < gone.len() {
            gone[whole] &= !(0xFF_u8.checked_shr(u32::try_from(rest).unwrap_or(0)).unwrap_or(0));
            gone[whole + 1..].fill(0);
        }
        gone
    }
}

/// When the zone's clock was read, by this server's.
#[derive(Clone, Copy)]
struct Read {
    now_ms: u64,
    sent: Instant,
    received: Instant,
}

/// One zone as this server knows it.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) header: Header,
    read: Read,
    window: Window,
    /// The log's record after the last that is in `window`, and that one's instant and running total.
    next_record: u64,
    last_record: (u64, u64),
    segments: BTreeMap<u64, Bits>,
    /// Who entered by this server's calls, the oldest first.
    entries: VecDeque<(u64, Entry)>,
    forecast: Forecast,
    /// What the store has still to be told of earlier epochs.
    pub(super) untold: VecDeque<Arc<Witness>>,
}

/// Epochs that are remembered until the store was told; more of them follow one another only where nothing can be told.
const MAX_UNTOLD: usize = 4;

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The segment a ticket is in, and its number there.
pub(super) fn split(seq: u64) -> (u64, usize) {
    (seq / SEGMENT, (seq % SEGMENT) as usize)
}

/// How many of a segment's tickets were given out, where `next` is the next number.
fn given_of(segment: u64, next: u64) -> usize {
    usize::try_from(next.saturating_sub(segment * SEGMENT).min(SEGMENT)).unwrap_or(0)
}

impl Memory {
    /// What a first reply says.
    pub(super) fn new(header: Header, log: &[u8], sent: Instant) -> Result<Self, Garbled> {
        let mut memory = Self {
            header,
            read: Read { now_ms: header.now, sent, received: Instant::now() },
            window: Window::new(&header.policy),
            next_record: 0,
            last_record: (0, 0),
            segments: BTreeMap::new(),
            entries: VecDeque::new(),
            forecast: Forecast::new(&header.policy, header.now),
            untold: VecDeque::new(),
        };
        memory.take_log(header.first, log)?;
        Ok(memory)
    }

    /// Between which the zone's clock is now, as far as this server's tells.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let Read { now_ms, sent, received } = self.read;
        (now_ms + ms(received.elapsed()), now_ms + ms(sent.elapsed()) + SLACK_MS)
    }

    /// The first record of the log that this server needs: the last it has may have grown.
    pub(super) fn known_record(&self) -> u64 {
        self.next_record.saturating_sub(1)
    }

    /// The revision of a segment's bits; 0 for none.
    pub(super) fn rev_of(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |bits| bits.rev)
    }

    /// Takes in a reply's header and records, and says whether the window changed. A reply that was overtaken by a newer
    /// one changes nothing.
    pub(super) fn take(
        &mut self,
        header: Header,
        first: u64,
        log: &[u8],
        sent: Instant,
    ) -> Result<bool, Garbled> {
        if (header.epoch, header.rev) <= (self.header.epoch, self.header.rev) {
            return Ok(false);
        }
        let changed = header.total != self.header.total || header.policy != self.header.policy;
        let same_epoch = header.epoch == self.header.epoch;
        if !same_epoch {
            // Revisions and records of one epoch say nothing of another's.
            for bits in self.segments.values_mut() {
                bits.rev = 0;
            }
            self.next_record = 0;
            self.window = Window::new(&header.policy);
        }
        if header.policy != self.header.policy {
            self.window.set_policy(&header.policy, header.now);
        }
        self.header = header;
        self.read = Read { now_ms: header.now, sent, received: Instant::now() };
        // A log that does not begin where the store's does is fetched whole by the next call.
        if same_epoch || first == header.first {
            self.take_log(first, log)?;
        }
        Ok(changed)
    }

    fn take_log(&mut self, first: u64, log: &[u8]) -> Result<(), Garbled> {
        let records = wire::records(log)?;
        if first >= self.next_record || self.header.first >= self.next_record {
            // Nothing of what is known here is in the log any more, or it was made anew.
            self.window = Window::new(&self.header.policy);
            self.last_record = (0, self.header.total_first);
        }
        for (record, &(at_ms, total)) in (first..).zip(&records) {
            if record + 1 < self.next_record || total <= self.last_record.1 {
                continue;
            }
            let count = u32::try_from(total - self.last_record.1).map_err(|_| Garbled("the log"))?;
            if at_ms < self.last_record.0 {
                return Err(Garbled("the log"));
            }
            self.window.record(at_ms, count);
            self.last_record = (at_ms, total);
        }
        self.next_record = first + records.len() as u64;
        self.window.advance(self.header.now);
        Ok(())
    }

    /// Takes in a segment's bits, as of a reply with this revision and next number.
    pub(super) fn take_bits(
        &mut self,
        segment: u64,
        rev: u64,
        next: u64,
        live: &[u8],
    ) -> Result<(), Garbled> {
        if live.len() > SEGMENT_BYTES {
            return Err(Garbled("a segment's bits"));
        }
        let bits = self.segments.entry(segment).or_insert_with(Bits::new);
        if rev > bits.rev {
            bits.rev = rev;
            bits.given = given_of(segment, next);
            bits.live[..live.len()].copy_from_slice(live);
            bits.live[live.len()..].fill(0);
        }
        Ok(())
    }

    /// Notes places given out, and entries, as this server was told of them.
    /// `now_ms` is the instant of the decision.
    pub(super) fn note(&mut self, now_ms: u64, tickets: impl IntoIterator<Item = (u64, Verdict)>) {
        for (seq, verdict) in tickets {
            let (segment, ticket) = split(seq);
            let bits = self.segments.entry(segment).or_insert_with(Bits::new);
            match verdict {
                Verdict::Waiting(_) => bits.set(ticket, true),
                Verdict::Gone => {}
                Verdict::Entered(entry) => {
                    bits.set(ticket, false);
                    if entry.at_ms == now_ms {
                        self.entries.push_back((seq, entry));
                    }
                }
            }
        }
        let ttl_ms = u64::from(self.header.policy.pass_ttl_s) * 1_000;
        while self.entries.front().is_some_and(|(_, entry)| entry.at_ms + ttl_ms < self.header.now) {
            self.entries.pop_front();
        }
    }

    /// Fills in the waits of verdicts that the last reply brought.
    pub(super) fn estimate(&mut self, verdicts: &mut [Verdict], window_changed: bool) {
        self.forecast.estimate(verdicts, &self.window, window_changed, self.header.now);
        let held_ms = self.header.hold_until.saturating_sub(self.header.now);
        for verdict in verdicts {
            if let Verdict::Waiting(Position { estimate: Some(told), .. }) = verdict {
                told.wait_ms = told.wait_ms.max(held_ms);
                told.high_ms = told.high_ms.max(told.wait_ms);
            }
        }
    }

    /// Which of the line's segments are newer in the store than here, given all counts from the first on.
    pub(super) fn outdated(&self, base: u64, counts: &[Counts]) -> Vec<u64> {
        let newer = (base..).zip(counts).filter(|(segment, counts)| counts.rev > self.rev_of(*segment));
        newer.map(|(segment, _)| segment).collect()
    }

    /// The view as of the last reply, given the counts of all segments from `base` on.
    pub(super) fn show(&mut self, base: u64, front_end: u64, counts: &[Counts]) -> View {
        let header = Header { base, ..self.header };
        self.segments = self.segments.split_off(&header.base);
        let mut pages = Vec::with_capacity(counts.len() * PAGES);
        let nobody = Bits::new();
        for (segment, counts) in (header.base..).zip(counts) {
            let given = given_of(segment, header.next);
            let bits = self.segments.get(&segment).unwrap_or(&nobody);
            let gone = bits.gone(given);
            let gone: Vec<Arc<Words>> = gone
                .chunks_exact(PAGE_WORDS * 8)
                .map(|page| {
                    let mut words = [0; PAGE_WORDS];
                    for (word, bits) in words.iter_mut().zip(wire::turn(page)) {
                        *word = bits;
                    }
                    Arc::new(words)
                })
                .collect();
            pages.extend(SnapshotPage::spread(&gone, given, counts.present));
        }
        let sight = Snapshot {
            now_ms: header.now,
            policy: header.policy,
            epoch: header.epoch,
            base: header.base * SEGMENT,
            next: header.next,
            front_end,
            pages,
            tally: Tally {
                waiting: header.live,
                present: header.present,
                joined: header.joined,
                entered: header.entered,
                evicted: header.evicted,
                slots_offered: 0,
                slots_used: header.used,
            },
        };
        self.forecast.observe(sight, &self.window)
    }

    /// Keeps what is remembered now until the store was told.
    pub(super) fn keep_witness(&mut self) {
        let newest = (self.header.epoch, self.header.rev);
        if self.untold.iter().all(|untold| (untold.epoch, untold.rev) != newest) {
            self.untold.truncate(MAX_UNTOLD - 1);
            self.untold.push_back(Arc::new(self.witness()));
        }
    }

    /// What a state that was lost may be rebuilt from.
    fn witness(&self) -> Witness {
        let last = self.header.next.div_ceil(SEGMENT).max(self.header.base + 1);
        let mut segments: BTreeMap<u64, (Vec<u8>, Vec<u8>)> = (self.header.base..last)
            .filter_map(|segment| {
                let bits = self.segments.get(&segment)?;
                Some((segment, (bits.live.to_vec(), bits.gone(bits.given))))
            })
            .collect();
        for &(seq, _) in &self.entries {
            let (segment, ticket) = split(seq);
            let (_, gone) =
                segments.entry(segment).or_insert_with(|| (vec![0; SEGMENT_BYTES], vec![0; SEGMENT_BYTES]));
            gone[ticket / 8] |= 0x80 >> (ticket % 8);
        }
        Witness {
            epoch: self.header.epoch,
            rev: self.header.rev,
            next: self.header.next,
            base: self.header.base,
            policy: self.header.policy,
            log: self.window.log().collect(),
            entries: self.entries.iter().copied().collect(),
            segments: segments.into_iter().map(|(segment, (live, gone))| (segment, live, gone)).collect(),
        }
    }
}

/// A zone as it was last seen.
#[derive(Clone)]
pub(super) struct Witness {
    pub(super) epoch: u32,
    pub(super) rev: u64,
    pub(super) next: u64,
    pub(super) base: u64,
    pub(super) policy: Policy,
    pub(super) log: Vec<(u64, u32)>,
    pub(super) entries: Vec<(u64, Entry)>,
    /// Segment, live bits, gone bits.
    pub(super) segments: Vec<(u64, Vec<u8>, Vec<u8>)>,
}
