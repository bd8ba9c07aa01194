//! What a server remembers of a zone. Its snapshots are made from this memory, and a lost state is rebuilt from it.
//!
//! Each reply carries the header and the new records of the log; a beat also carries the bits of the segments that
//! changed, and brings the entries that were made by calls of other servers. The tickets and entries of this server's own calls are added
//! at once.
//!
//! Invariants: within an epoch, the memory never goes back to an older revision. A ticket of which this server was told that it entered, or
//! left, is never remembered as waiting.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    sync::{Arc, LazyLock},
    time::Duration,
};

use admission::{
    Claim, Departure, Entry, LastDeal, PAGE_TICKETS, PAGE_WORDS, Pages, Policy, SlotState, Snapshot, Tally,
    Verdict, Window, Words,
};
use bytes::Bytes;
use tokio::time::Instant;

use super::{
    loss_limit::Losses,
    wire::{self, Counts, Garbled, Header, Leaps, SEGMENT, SEGMENT_BYTES},
};
use crate::RememberedEntry;

/// The network delay, in milliseconds, that the upper bound of the zone's clock allows for.
const SLACK_MS: u64 = 250;

/// A page in which nobody waits. The segments between two lines share it.
static NOBODY: LazyLock<Arc<Words>> = LazyLock::new(|| Arc::new([u64::MAX; PAGE_WORDS]));

/// Of how many tickets of a segment a beat asks for the entries at most: 192 KiB.
const MAX_WANTED: usize = 16_384;

/// Pages of a segment.
const PAGES: usize = SEGMENT_BYTES * 8 / PAGE_TICKETS;

/// The bits of one segment, as Redis last sent them.
#[derive(Clone)]
struct Bits {
    /// The revision of the segment that they show; 0 for none.
    rev: u64,
    /// Which tickets wait, in the bit order of Redis.
    live: Box<[u8; SEGMENT_BYTES]>,
    /// Which tickets waited at any time, as far as this server saw it. Of another one it says nothing: the state may never have given out
    /// that number, or an epoch did that was lost, and its holder has not asked yet.
    seen: Box<[u8; SEGMENT_BYTES]>,
    /// Which holders entered, or gave up the place, as far as this server was told. It outlives the pass: they do not wait again.
    entered: Box<[u8; SEGMENT_BYTES]>,
    /// Who does not come back, as Redis last sent it; nothing if `entered` has all of them. Those whom it lacks ended by calls of
    /// other servers, and this server asks whether they entered: it says nothing of an entry that it cannot give back, because the
    /// holder may not have been told of it.
    ended: Option<Box<[u8; SEGMENT_BYTES]>>,
    /// Whether the line has left the segment behind, and Redis has told the last of it.
    is_closed: bool,
}

impl Bits {
    fn new() -> Self {
        let nobody = || Box::new([0; SEGMENT_BYTES]);
        Self { rev: 0, live: nobody(), seen: nobody(), entered: nobody(), ended: None, is_closed: false }
    }

    /// Which tickets of a byte do not come back while it is not known whether their holders entered.
    fn unexplained(&self, byte: usize) -> u8 {
        self.ended.as_ref().map_or(0, |ended| ended[byte] & !self.entered[byte])
    }

    /// The tickets of which this server wants the entries: from the first one that is unexplained to the last one, or as many as one call
    /// asks for.
    fn wanted(&self) -> Range<usize> {
        // Nearly all segments of a long line: nothing is looked through.
        if self.ended.is_none() {
            return 0..0;
        }
        let of = |byte: &usize| self.unexplained(*byte) != 0;
        let (Some(first), Some(last)) = ((0..SEGMENT_BYTES).find(of), (0..SEGMENT_BYTES).rfind(of)) else {
            return 0..0;
        };
        first * 8..((last + 1) * 8).min(first * 8 + MAX_WANTED)
    }

    /// Takes in who does not come back, at most [`SEGMENT_BYTES`]. Nothing says that those here are as new.
    fn take_ended(&mut self, ended: &[u8]) {
        if !ended.is_empty() {
            let mut all = Box::new([0; SEGMENT_BYTES]);
            all[..ended.len()].copy_from_slice(ended);
            self.ended = Some(all);
        }
    }

    fn waits(&mut self, ticket: usize) {
        self.live[ticket / 8] |= mask(ticket);
        self.seen[ticket / 8] |= mask(ticket);
    }

    fn enters(&mut self, ticket: usize) {
        self.live[ticket / 8] &= !mask(ticket);
        self.entered[ticket / 8] |= mask(ticket);
    }

    /// Whether the holder entered, or gave up the place, as far as this server was told.
    fn has_ended(&self, ticket: usize) -> bool {
        self.entered[ticket / 8] & mask(ticket) != 0
    }

    fn has_any_ended(&self) -> bool {
        self.entered.iter().any(|byte| *byte != 0)
    }

    /// Forgets all but who entered or gave up the place, of a segment that the line has left behind.
    fn close(&mut self) {
        let entered = std::mem::replace(&mut self.entered, Box::new([0; SEGMENT_BYTES]));
        *self = Self { entered, is_closed: true, ..Self::new() };
    }

    /// Who does not wait any more, as far as this server knows.
    fn gone(&self) -> Vec<u8> {
        let bytes = self.seen.iter().zip(&self.live[..]).zip(&self.entered[..]);
        bytes.map(|((seen, live), entered)| seen & !live | entered).collect()
    }

    /// Of the first `given` tickets, those that do not wait. The bits of the others are 0.
    fn absent(&self, given: usize) -> Vec<u8> {
        let mut absent: Vec<u8> = self.live.iter().map(|live| !live).collect();
        if let Some(byte) = absent.get_mut(given / 8) {
            *byte &= !(0xFF >> (given % 8));
            absent[given / 8 + 1..].fill(0);
        }
        absent
    }
}

/// An entry that this server was told.
#[derive(Clone, Copy)]
struct Told {
    seq: u64,
    entry: Entry,
    /// Whether the holder has left since.
    has_left: bool,
}

/// What this server knows of the zone's clock in an epoch.
#[derive(Clone, Copy)]
pub(super) struct ClockReading {
    /// What the clock showed, and when the reply was received: of all replies the one that says most. A call that stood
    /// still on its way may have set the clock back.
    earliest: (u64, Instant),
    /// What it showed at most, and when that call was sent: of all replies the one that says least. A call that stood still on its
    /// way was sent long before it read the clock. Where a later reply shows more, the clock was moved ahead, and this reading with it,
    /// by as little as explains that reply.
    latest: (u64, Instant),
}

impl ClockReading {
    fn new(now_ms: u64, sent: Instant) -> Self {
        Self { earliest: (now_ms, Instant::now()), latest: (now_ms, sent) }
    }

    /// With the reading of a later reply.
    fn then(self, later: Self) -> Self {
        let shown_ms = |(now_ms, at): (u64, Instant)| now_ms + ms(later.earliest.1 - at);
        let earliest =
            if shown_ms(self.earliest) > later.earliest.0 { self.earliest } else { later.earliest };
        // The slack is for the ways of calls. If a clock that was moved ahead went on using it, each call would set the zone's clock
        // back by its own way, and the next server's ahead again.
        let moved_ms = later.earliest.0.saturating_sub(shown_ms(self.latest));
        let moved = (self.latest.0 + moved_ms, self.latest.1);
        let is_tighter = shown_ms(moved) < shown_ms(later.latest);
        Self { earliest, latest: if is_tighter { moved } else { later.latest } }
    }

    /// The earliest and the latest that the zone's clock may show now, judged by this server's clock. The latest is always the later one:
    /// while calls are late the zone's clock stands still, and the latest that it may have shown falls behind the earliest.
    pub(super) fn bounds(self) -> (u64, u64) {
        let ((low_ms, received), (high_ms, sent)) = (self.earliest, self.latest);
        let low_ms = low_ms + ms(received.elapsed());
        (low_ms, (high_ms + ms(sent.elapsed())).max(low_ms) + SLACK_MS)
    }

    /// The earliest that the zone's clock may have shown at an instant.
    fn earliest_at(self, at: Instant) -> u64 {
        let (low_ms, received) = self.earliest;
        low_ms + ms(at.saturating_duration_since(received))
    }
}

/// One zone as this server remembers it.
#[derive(Clone)]
pub(super) struct ZoneMemory {
    pub(super) header: Header,
    /// The line's earlier epochs, as the scripts write them.
    past: Bytes,
    clock: ClockReading,
    /// Shared with the replies.
    window: Arc<Window>,
    /// The records of the log whose slots are not free again: instants and counts. A window drops them after a minute of the clock, and what
    /// the clock leapt meanwhile does not count.
    log: VecDeque<(u64, u32)>,
    /// The number of the record after the last one in `window`.
    next_record: u64,
    /// The instant and the running total of the last record in `window`.
    last_record: (u64, u64),
    /// Of those before the base, which the line has left behind, only who entered or gave up the place is kept.
    segments: BTreeMap<u64, Bits>,
    /// Segments without any ticket, between two lines, as of the last view of this epoch.
    unused: BTreeSet<u64>,
    /// Who left, by segment: the revision, and the bits in the bit order of Redis.
    left: BTreeMap<u64, (u64, Vec<u8>)>,
    /// The entries that this server was told, sorted by instant and ticket. They are kept for as long as the pass would be valid: another
    /// server may remember the entry, and not that its holder left.
    entries: VecDeque<Told>,
    /// The servers that make decisions, as the last view listed them: the name, a space, and when the server last called.
    servers: Vec<String>,
    /// When the last call was sent that listed the servers.
    listed: Option<Instant>,
    /// When the first call was sent that has failed since the last answer.
    missed: Option<Instant>,
    /// When a call was answered or failed last.
    tried: Instant,
    /// Epochs that began after the state that answered, and when their first ticket was shown.
    ahead: BTreeMap<u32, Instant>,
    /// How often the state was lost lately.
    pub(super) losses: Losses,
    /// What Redis still has to be given of states that it lost, the oldest first.
    pub(super) witnesses: VecDeque<Arc<Witness>>,
}

/// How many witnesses are kept. There are more than one only if Redis loses its state again and again.
const MAX_WITNESSES: usize = 4;

/// Of how many segments that the line has left behind it is remembered who does not come back: more than have valid passes, except on the
/// largest days.
const MAX_LEFT_BEHIND: usize = 64;

/// Of how many epochs that began after the state it is known since when.
const MAX_AHEAD: usize = 64;

/// By how much the clock of a line may differ from the expected one because a call was slow.
const SLOW_MS: u64 = 5_000;

/// By how much the instant of an entry may differ from that of its slot in the log, after a line went on by another clock.
const MEETS_MS: u64 = 1_000;

/// A server that last saw the list of servers so long before the state was lost did not watch the zone. Views come once a second.
const WATCHED: Duration = Duration::from_millis(2_500);

/// A server that watches a zone calls again a second after each failure, and waits two seconds for an answer. If its last try ended longer
/// ago, it may have stood still.
const LONGEST_TRY: Duration = Duration::from_secs(5);

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A ticket's segment, and its number in the segment.
pub(super) fn split(seq: u64) -> (u64, usize) {
    (seq / SEGMENT, (seq % SEGMENT) as usize)
}

/// The bit of a segment's ticket in its byte, in the bit order of Redis.
fn mask(ticket: usize) -> u8 {
    0x80 >> (ticket % 8)
}

/// How many of a segment's tickets have been given out, if `next` is the next ticket number.
fn given_of(segment: u64, next: u64) -> usize {
    usize::try_from(next.saturating_sub(segment * SEGMENT).min(SEGMENT)).unwrap_or(0)
}

/// The pages of a segment's bitmap, which is in the bit order of Redis.
fn pages_of(bits: &[u8]) -> impl Iterator<Item = Arc<Words>> {
    bits.chunks_exact(PAGE_WORDS * 8).map(|page| {
        let mut words = [0; PAGE_WORDS];
        for (word, bits) in words.iter_mut().zip(wire::words_of(page)) {
            *word = bits;
        }
        Arc::new(words)
    })
}

/// Whether a ticket's visit has ended, by who left.
fn is_left(left: &BTreeMap<u64, (u64, Vec<u8>)>, seq: u64) -> bool {
    let (segment, ticket) = split(seq);
    let byte = left.get(&segment).and_then(|(_, bits)| bits.get(ticket / 8));
    byte.is_some_and(|byte| byte & mask(ticket) != 0)
}

/// A window without entries.
fn new_window(header: &Header) -> Window {
    let mut window = Window::new(&header.policy);
    window.set_opening(header.opens_ms, header.now);
    window
}

impl ZoneMemory {
    /// The memory after the first reply.
    pub(super) fn new(header: Header, past: Bytes, log: &[u8], sent: Instant) -> Result<Self, Garbled> {
        let mut memory = Self {
            header,
            past,
            clock: ClockReading::new(header.now, sent),
            window: Arc::new(new_window(&header)),
            log: VecDeque::new(),
            next_record: 0,
            last_record: (0, 0),
            segments: BTreeMap::new(),
            unused: BTreeSet::new(),
            left: BTreeMap::new(),
            entries: VecDeque::new(),
            servers: Vec::new(),
            listed: None,
            missed: None,
            tried: Instant::now(),
            ahead: BTreeMap::new(),
            losses: Losses::default(),
            witnesses: VecDeque::new(),
        };
        memory.take_log(header.first, log)?;
        Ok(memory)
    }

    /// The time by the clock that opened the zone, in milliseconds since 1970; none if the zone has no opening.
    pub(super) fn unix_ms(&self) -> Option<u64> {
        let Header { opens_ms, policy, .. } = self.header;
        policy.opens_at.unix_ms(opens_ms, self.bounds().0)
    }

    /// The bounds of the zone's clock now.
    pub(super) fn bounds(&self) -> (u64, u64) {
        self.clock.bounds()
    }

    /// The first record of the log that this server needs. It is the last one that it has, which may have grown.
    pub(super) fn known_record(&self) -> u64 {
        self.next_record.saturating_sub(1)
    }

    /// The revision of the bits of a segment; 0 for none.
    pub(super) fn rev_of(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |bits| bits.rev)
    }

    /// Takes in a reply's header and records. A reply that is older than the last one changes nothing.
    pub(super) fn take(
        &mut self,
        header: Header,
        past: Bytes,
        first: u64,
        log: &[u8],
        sent: Instant,
    ) -> Result<(), Garbled> {
        if (header.epoch, header.rev) <= (self.header.epoch, self.header.rev) {
            return Ok(());
        }
        let same_epoch = header.epoch == self.header.epoch;
        if !same_epoch {
            self.note_left_of_views();
            // Revisions and record numbers of two epochs cannot be compared.
            for bits in self.segments.values_mut() {
                (bits.rev, bits.ended) = (0, None);
            }
            self.left.values_mut().for_each(|(rev, _)| *rev = 0);
            self.unused.clear();
            self.next_record = 0;
            self.window = Arc::new(new_window(&header));
            self.log.clear();
            self.move_entries(&header, sent);
            self.losses.note(sent);
        }
        if header.policy != self.header.policy || header.opens_ms != self.header.opens_ms {
            let window = Arc::make_mut(&mut self.window);
            window.set_policy(&header.policy, header.now);
            window.set_opening(header.opens_ms, header.now);
        }
        self.header = header;
        self.past = past;
        let clock = ClockReading::new(header.now, sent);
        self.clock = if same_epoch { self.clock.then(clock) } else { clock };
        // If the log does not begin where the store's begins, the next call fetches all of it.
        if same_epoch || first == header.first {
            self.take_log(first, log)?;
        }
        Ok(())
    }

    /// Tells the instants of the entries by the clock of the line that `header` shows, as `lua/restore.lua` does. A line that
    /// was begun without this one has another clock, and goes on with it when this one is put in front.
    fn move_entries(&mut self, header: &Header, sent: Instant) {
        let expected = self.clock.earliest_at(sent);
        let ahead_ms = header.now.cast_signed() - expected.cast_signed();
        if header.born == self.header.born && ahead_ms.unsigned_abs() <= SLOW_MS {
            return;
        }
        for Told { entry, .. } in &mut self.entries {
            entry.at_ms = entry.at_ms.saturating_add_signed(ahead_ms).max(1);
        }
    }

    fn take_log(&mut self, first: u64, log: &[u8]) -> Result<(), Garbled> {
        let records = wire::records(log)?;
        if first >= self.next_record || self.header.first >= self.next_record {
            // The log has none of the known records any more, or is a new one.
            self.window = Arc::new(new_window(&self.header));
            self.log.clear();
            self.last_record = (0, self.header.total_first);
        }
        let window = Arc::make_mut(&mut self.window);
        for (record, &(at_ms, total)) in (first..).zip(&records) {
            if record + 1 < self.next_record || total <= self.last_record.1 {
                continue;
            }
            let count = u32::try_from(total - self.last_record.1).map_err(|_| Garbled("the log"))?;
            if at_ms < self.last_record.0 {
                return Err(Garbled("the log"));
            }
            window.record(at_ms, count);
            match self.log.back_mut().filter(|(last, _)| *last == at_ms) {
                Some((_, last)) => *last += count,
                None => self.log.push_back((at_ms, count)),
            }
            self.last_record = (at_ms, total);
        }
        self.next_record = first + records.len() as u64;
        window.advance(self.header.now);
        let is_free =
            |&(at_ms, _): &(u64, u32)| self.header.ends_ms(at_ms, wire::MINUTE_MS) < self.header.now;
        while self.log.front().is_some_and(is_free) {
            self.log.pop_front();
        }
        Ok(())
    }

    /// Takes in the bits of a segment, from a reply with this revision: who waits, and who does not come back. The
    /// latter are empty if those here are as new.
    pub(super) fn take_bits(
        &mut self,
        segment: u64,
        rev: u64,
        live: &[u8],
        ended: &[u8],
    ) -> Result<(), Garbled> {
        if live.len() > SEGMENT_BYTES || ended.len() > SEGMENT_BYTES {
            return Err(Garbled("a segment's bits"));
        }
        let bits = self.segments.entry(segment).or_insert_with(Bits::new);
        if rev > bits.rev {
            bits.rev = rev;
            bits.is_closed = false;
            bits.live[..live.len()].copy_from_slice(live);
            bits.live[live.len()..].fill(0);
            for (seen, live) in bits.seen.iter_mut().zip(live) {
                *seen |= live;
            }
            bits.take_ended(ended);
        }
        Ok(())
    }

    /// The segments that the line has left behind since this server last beat, or of which it still lacks entries.
    pub(super) fn left_behind(&self) -> impl Iterator<Item = u64> {
        let behind = self.segments.range(..self.header.base);
        behind.filter(|(_, bits)| !bits.is_closed).map(|(segment, _)| *segment)
    }

    /// Takes in who does not come back, of a segment that the line has left behind, and the entries of these tickets.
    pub(super) fn take_last(
        &mut self,
        segment: u64,
        ended: &[u8],
        of: Range<usize>,
        entries: &[u8],
    ) -> Result<(), Garbled> {
        if ended.len() > SEGMENT_BYTES {
            return Err(Garbled("a segment's bits"));
        }
        let Some(bits) = self.segments.get_mut(&segment) else { return Ok(()) };
        bits.rev = 0;
        bits.take_ended(ended);
        self.take_entries(segment, 0, of, entries);
        if let Some(bits) = self.segments.get_mut(&segment).filter(|bits| bits.ended.is_none()) {
            bits.close();
        }
        Ok(())
    }

    /// The tickets of a segment of which the next beat asks for the entries.
    pub(super) fn entries_wanted(&self, segment: u64) -> Range<usize> {
        self.segments.get(&segment).map_or(0..0, Bits::wanted)
    }

    /// Takes in the entries of these tickets of a segment, as they were at this revision of it. Who has none of those who do not come back
    /// gave up the place.
    pub(super) fn take_entries(&mut self, segment: u64, rev: u64, of: Range<usize>, entries: &[u8]) {
        let is_open = |bits: &&mut Bits| bits.ended.is_some() && rev >= bits.rev;
        let Some(bits) = self.segments.get_mut(&segment).filter(is_open) else { return };
        let mut entered = Vec::new();
        for (at, ticket) in of.enumerate() {
            if bits.unexplained(ticket / 8) & mask(ticket) == 0 {
                continue;
            }
            bits.enters(ticket);
            let entry = entries.get(at * 12..at * 12 + 12).map(wire::entry);
            entered.extend(
                entry.filter(|entry| entry.at_ms > 0).map(|entry| (segment * SEGMENT + ticket as u64, entry)),
            );
        }
        let ttl_s = self.header.policy.pass_ttl_s;
        for (seq, entry) in entered {
            // Without a life, its holder left.
            let has_left = entry.life_s == 0;
            let life_s = if has_left { ttl_s } else { entry.life_s };
            self.keep(Told { seq, entry: Entry { life_s, ..entry }, has_left });
        }
        if let Some(bits) = self.segments.get_mut(&segment)
            && bits.wanted().is_empty()
        {
            bits.ended = None;
        }
    }

    /// The revision of who left of a segment; 0 for none.
    pub(super) fn left_rev_of(&self, segment: u64) -> u64 {
        self.left.get(&segment).map_or(0, |(rev, _)| *rev)
    }

    /// Takes in who left of a segment. The bits are empty if those here are as new.
    pub(super) fn take_left(&mut self, segment: u64, rev: u64, bits: Bytes) -> Result<(), Garbled> {
        if bits.len() > SEGMENT_BYTES {
            return Err(Garbled("the bits of who left"));
        }
        if rev == 0 {
            // A state that lost them gets them from this memory.
            if self.witnesses.is_empty() {
                self.left.remove(&segment);
            }
        } else if !bits.is_empty() {
            self.left.insert(segment, (rev, bits.into()));
        }
        Ok(())
    }

    /// The pages of tickets whose holders left, of the segments of the last report. Others are forgotten.
    pub(super) fn left_pages(&mut self, reported: &BTreeSet<u64>) -> Vec<(u64, Arc<Words>)> {
        self.left.retain(|segment, _| reported.contains(segment));
        let mut pages = Vec::new();
        for (segment, (_, bits)) in &self.left {
            let mut whole = bits.clone();
            whole.resize(SEGMENT_BYTES, 0);
            let of_segment = (segment * PAGES as u64..).zip(pages_of(&whole));
            pages.extend(of_segment.filter(|(_, words)| **words != [0; PAGE_WORDS]));
        }
        pages
    }

    /// The line's earlier epochs, each with the number that its tickets are below.
    pub(super) fn past_epochs(&self) -> Vec<(u32, u64)> {
        wire::past_epochs(&self.past)
    }

    /// Notes that the holders of these tickets left: they neither wait nor enter again.
    pub(super) fn note_left(&mut self, left: impl IntoIterator<Item = (u64, Departure)>) {
        for (seq, departure) in left {
            let (segment, ticket) = split(seq);
            if departure == Departure::Visit && self.header.policy.max_active > 0 {
                self.mark_left(segment, ticket);
            }
            let bits = self.segments.entry(segment).or_insert_with(Bits::new);
            // Who gives up a place has no entry, and none is looked for. The bits of segments that the line has left behind are forgotten
            // before their entries.
            let may_be_in = bits.has_ended(ticket) || segment < self.header.base;
            bits.enters(ticket);
            let known = if may_be_in { self.entries.iter_mut().find(|told| told.seq == seq) } else { None };
            if let Some(told) = known {
                told.has_left = true;
                continue;
            }
            // Whoever remembers the entry knows when it was.
            let Header { now: at_ms, policy, .. } = self.header;
            let entry = Entry { at_ms, unix_s: 0, life_s: policy.pass_ttl_s };
            self.keep(Told { seq, entry, has_left: true });
        }
    }

    /// Marks a visit as ended, until the next report says who left.
    fn mark_left(&mut self, segment: u64, ticket: usize) {
        let (_, bits) = self.left.entry(segment).or_default();
        bits.resize(bits.len().max(ticket / 8 + 1), 0);
        bits[ticket / 8] |= mask(ticket);
    }

    /// Notes whose visit has ended, as the views said.
    fn note_left_of_views(&mut self) {
        let left = &self.left;
        self.entries.iter_mut().for_each(|told| told.has_left |= is_left(left, told.seq));
    }

    /// The entry of a ticket of this line, if this server was told it.
    pub(super) fn entry_of(&self, Claim { epoch, seq }: Claim) -> Option<RememberedEntry> {
        // Nearly all who ask while the store is away wait: the entries are looked through for the others only.
        let (segment, ticket) = split(seq);
        if self.segments.get(&segment).is_some_and(|bits| !bits.has_ended(ticket)) {
            return None;
        }
        let told = self.entries.iter().rev().find(|told| told.seq == seq)?;
        let is_of_line = epoch == self.header.epoch
            || self.header.drawn.has(seq)
            || wire::earlier_epochs(&self.past).iter().any(|of| of.has(epoch, seq));
        let &Told { entry, has_left, .. } = told;
        let has_left = has_left || is_left(&self.left, seq);
        is_of_line.then(|| RememberedEntry { entry, has_left, expires_ms: self.expires_ms(entry) })
    }

    /// Keeps an entry, unless it is known.
    fn keep(&mut self, told: Told) {
        let place = |of: &Told| (of.entry.at_ms, of.seq);
        let at = self.entries.partition_point(|kept| place(kept) < place(&told));
        if self.entries.get(at).is_none_or(|kept| kept.seq != told.seq) {
            self.entries.insert(at, told);
        }
    }

    /// Notes the tickets and entries of a decision.
    pub(super) fn note(&mut self, tickets: impl IntoIterator<Item = (u64, Verdict)>) {
        for (seq, verdict) in tickets {
            let (segment, ticket) = split(seq);
            let bits = self.segments.entry(segment).or_insert_with(Bits::new);
            match verdict {
                Verdict::Waiting(_) => bits.waits(ticket),
                // Whose pass is still valid has left, at another server perhaps. Without the store, this one would return the pass again.
                Verdict::Gone if bits.has_ended(ticket) => {
                    self.entries
                        .iter_mut()
                        .filter(|told| told.seq == seq)
                        .for_each(|told| told.has_left = true);
                }
                Verdict::Gone => {}
                Verdict::Entered(entry) => {
                    bits.enters(ticket);
                    // Also an entry that another server's call brought: if only this server remembers it, the ticket
                    // would be restored as gone, without its entry.
                    self.keep(Told { seq, entry, has_left: false });
                }
            }
        }
        self.forget_expired();
    }

    fn forget_expired(&mut self) {
        while self.entries.front().is_some_and(|told| self.expires_ms(told.entry) < self.header.now) {
            self.entries.pop_front();
        }
    }

    /// The last instant at which a repeated claim returns an entry, on the zone's clock.
    fn expires_ms(&self, Entry { at_ms, life_s, .. }: Entry) -> u64 {
        self.header.ends_ms(at_ms, u64::from(life_s) * 1_000)
    }

    /// Whether a ticket is of an epoch that began after the state that answered, which so must have been replaced: a process that
    /// stood still answers before it learns that another one took over. The epoch may also be one that was lost with all who
    /// knew it, so its tickets are told to wait for no longer than the idle time.
    pub(super) fn is_ahead(&mut self, epoch: u32, seq: u64, of_state: &Header) -> bool {
        // A later epoch has later numbers.
        if epoch <= of_state.epoch || seq < of_state.next {
            return false;
        }
        self.ahead.retain(|other, _| *other > of_state.epoch);
        if self.ahead.len() >= MAX_AHEAD && !self.ahead.contains_key(&epoch) {
            return false;
        }
        let first = self.ahead.entry(epoch).or_insert_with(Instant::now);
        first.elapsed() < Duration::from_secs(of_state.policy.idle_timeout_s.into())
    }

    /// The slots as of the last reply.
    pub(super) fn slots(&self) -> SlotState {
        let window = Arc::clone(&self.window);
        SlotState { window, occupancy: self.header.occupancy(), held_until_ms: self.header.hold_until }
    }

    /// Whether a segment has no tickets, and gets none in this epoch.
    pub(super) fn is_unused(&self, segment: u64) -> bool {
        self.unused.contains(&segment)
    }

    /// The segments that are newer in Redis than here. `counts` are those of all segments from `base` on.
    pub(super) fn outdated(&self, base: u64, counts: &[Counts]) -> Vec<u64> {
        let newer = (base..).zip(counts).filter(|(segment, counts)| counts.rev > self.rev_of(*segment));
        newer.map(|(segment, _)| segment).collect()
    }

    /// Makes the snapshot of the last reply: the ends of the front and of its approach, and the counts of all segments from `base` on.
    pub(super) fn make_snapshot(&mut self, base: u64, ends: (u64, u64), counts: &[Counts]) -> Snapshot {
        let (front_end, approach_end) = ends;
        let header = Header { base, ..self.header };
        self.forget_behind(base);
        self.forget_expired();
        let mut pages = Pages::with_capacity(counts.len() * PAGES);
        let unknown = Bits::new();
        let last = split(header.next).0;
        self.unused.clear();
        for (segment, counts) in (header.base..).zip(counts) {
            if counts.rev == 0 && segment < last {
                self.unused.insert(segment);
                (0..PAGES).for_each(|_| pages.add_empty(&NOBODY));
                continue;
            }
            let given = given_of(segment, header.next);
            let bits = self.segments.get(&segment).unwrap_or(&unknown);
            let gone: Vec<Arc<Words>> = pages_of(&bits.absent(given)).collect();
            pages.add_spread(&gone, given, counts.present);
        }
        Snapshot {
            now_ms: header.now,
            unix_ms: header.unix_ms,
            policy: header.policy,
            epoch: header.epoch,
            base: header.base * SEGMENT,
            next: header.next,
            front_end,
            approach_end,
            longest_period_ms: header.longest_period_ms.max(header.policy.polling_period_ms),
            pages: pages.finish(),
            tally: Tally {
                waiting: header.live,
                present: header.present,
                joined: header.joined,
                entered: header.entered,
                evicted: header.evicted,
                slots_offered: 0,
                slots_used: header.used,
            },
            occupancy: header.occupancy(),
            window: Arc::clone(&self.window),
            drawn: header.drawn,
            earlier: (header.now >= header.recover_until).then(|| wire::earlier_epochs(&self.past)),
            is_confirmed: true,
        }
    }

    /// Forgets the segments before this one of which all is known and nothing has to be remembered. A server that stood still may say that
    /// people wait there, and bring the base back to them after a loss, so it stays known who does not come back.
    fn forget_behind(&mut self, base: u64) {
        self.segments.retain(|segment, bits| *segment >= base || !bits.is_closed || bits.has_any_ended());
        while self.segments.range(..base).count() > MAX_LEFT_BEHIND {
            self.segments.pop_first();
        }
    }

    /// Notes that a call, sent at this instant, was answered or failed.
    pub(super) fn note_call(&mut self, sent: Instant, answered: bool) {
        let now = Instant::now();
        // A process that stood still does not know for how long others were answered meanwhile.
        let stood_still = now.saturating_duration_since(self.tried) > LONGEST_TRY;
        self.missed = match answered {
            true => None,
            false if stood_still => Some(now),
            false => self.missed.or(Some(sent)),
        };
        self.tried = now;
    }

    /// Notes the servers that a call listed.
    pub(super) fn list(&mut self, servers: Vec<String>, sent: Instant) {
        (self.servers, self.listed) = (servers, Some(sent));
    }

    /// Keeps a copy of this memory until Redis has taken it. `asked` is when the call was sent that showed that the state was lost.
    pub(super) fn keep_witness(&mut self, asked: Instant) {
        let newest = (self.header.epoch, self.header.rev);
        if self.witnesses.iter().all(|kept| (kept.epoch, kept.rev) != newest) {
            self.note_left_of_views();
            self.witnesses.truncate(MAX_WITNESSES - 1);
            self.witnesses.push_back(Arc::new(self.witness(asked)));
        }
    }

    /// The log of the last minute, without the slots that are only presumed to be taken: a state that was lost presumes anew.
    fn log_of_people(&self) -> Vec<(u64, u32)> {
        let Header { presumed_at, presumed, earlier, .. } = self.header;
        let presumed = [(presumed_at, presumed), earlier];
        let people = |(at_ms, count): (u64, u32)| {
            let of_nobody = presumed.iter().filter(|(at, _)| *at == at_ms).map(|(_, count)| count).sum();
            let people = u64::from(count).saturating_sub(of_nobody);
            (people > 0).then_some((at_ms, u32::try_from(people).expect("no more than there were")))
        };
        self.log.iter().copied().filter_map(people).collect()
    }

    /// What this memory can restore.
    fn witness(&self, asked: Instant) -> Witness {
        // A call that was on its way for long says nothing of when that was.
        let asked = if asked.elapsed() > LONGEST_TRY { Instant::now() } else { asked };
        // Nor do failed calls of before this process stood still: others were answered meanwhile.
        let missed = self.missed.filter(|_| self.tried.elapsed() <= LONGEST_TRY);
        let lost = missed.map_or(asked, |missed| missed.min(asked));
        let watched = self.listed.is_some_and(|listed| lost.saturating_duration_since(listed) <= WATCHED);
        let last = self.header.next.div_ceil(SEGMENT).max(self.header.base + 1);
        let mut segments: BTreeMap<u64, WitnessSegment> = (self.header.base..last)
            .filter_map(|segment| {
                let bits = self.segments.get(&segment)?;
                let (live, entered) = (bits.live.to_vec(), bits.entered.to_vec());
                Some((segment, WitnessSegment { live, gone: bits.gone(), entered }))
            })
            .collect();
        let behind = self.segments.range(..self.header.base);
        segments
            .extend(behind.map(|(segment, bits)| (*segment, WitnessSegment::of_ended(&bits.entered[..]))));
        for told in &self.entries {
            let (segment, ticket) = split(told.seq);
            let known =
                segments.entry(segment).or_insert_with(|| WitnessSegment::of_ended(&[0; SEGMENT_BYTES]));
            known.gone[ticket / 8] |= mask(ticket);
            known.entered[ticket / 8] |= mask(ticket);
        }
        let entry = |&Told { seq, entry, has_left }: &Told| {
            (seq, if has_left { Entry { life_s: 0, ..entry } } else { entry })
        };
        let log = self.log_of_people();
        let mut entries: Vec<_> = self.entries.iter().map(entry).collect();
        meet_slots(&mut entries, &log);
        Witness {
            epoch: self.header.epoch,
            rev: self.header.rev,
            next: self.header.next,
            base: self.header.base,
            start: self.header.start,
            born: self.header.born,
            floor: self.header.floor,
            inside: self.header.known_inside().filter(|_| watched),
            watched,
            clock: self.clock,
            past: self.past.clone(),
            servers: self.servers.clone(),
            policy: self.header.policy,
            log,
            entered: self.header.entered,
            opens_ms: self.header.opens_ms,
            drawn: self.header.drawn,
            leaps: self.header.leaps,
            entries,
            segments,
            left: self.left.iter().map(|(segment, (_, bits))| (*segment, bits.clone().into())).collect(),
        }
    }
}

/// Moves each entry of which the log has no slot to the nearest slot that nobody else took. Where a line went on by another clock, the log
/// tells the instants by that clock, and this server has moved its entries by what it knows of it ([`ZoneMemory::move_entries`]), which
/// may be some milliseconds less or more. The slot would be one of nobody, and would count beside the entry.
fn meet_slots(entries: &mut [(u64, Entry)], log: &[(u64, u32)]) {
    let mut free: BTreeMap<u64, u32> = log.iter().copied().collect();
    let take = |free: &mut BTreeMap<u64, u32>, at_ms: u64| {
        let Some(count) = free.get_mut(&at_ms) else { return false };
        *count -= 1;
        if *count == 0 {
            free.remove(&at_ms);
        }
        true
    };
    let without: Vec<_> = entries.iter_mut().filter(|(_, entry)| !take(&mut free, entry.at_ms)).collect();
    for (_, entry) in without {
        let near = entry.at_ms.saturating_sub(MEETS_MS)..=entry.at_ms + MEETS_MS;
        let instants = free.range(near).map(|(at_ms, _)| *at_ms);
        if let Some(nearest) = instants.min_by_key(|at_ms| at_ms.abs_diff(entry.at_ms)) {
            entry.at_ms = nearest;
            take(&mut free, nearest);
        }
    }
}

/// A zone as this server last saw it: what a lost state is rebuilt from.
#[derive(Clone)]
pub(super) struct Witness {
    pub(super) epoch: u32,
    pub(super) rev: u64,
    pub(super) next: u64,
    pub(super) base: u64,
    pub(super) start: u64,
    pub(super) born: u64,
    pub(super) floor: u64,
    /// How many people may be inside; nothing if this server does not know.
    pub(super) inside: Option<u64>,
    /// Whether this server watched the zone until it was lost, and so knows which servers made decisions.
    pub(super) watched: bool,
    pub(super) clock: ClockReading,
    pub(super) past: Bytes,
    pub(super) servers: Vec<String>,
    pub(super) policy: Policy,
    pub(super) log: Vec<(u64, u32)>,
    /// How many people had entered.
    pub(super) entered: u64,
    /// When the zone opens, by its clock; 0 if it does not wait for that.
    pub(super) opens_ms: u64,
    /// By which draw the line was dealt last.
    pub(super) drawn: LastDeal,
    pub(super) leaps: Leaps,
    pub(super) entries: Vec<(u64, Entry)>,
    pub(super) segments: BTreeMap<u64, WitnessSegment>,
    /// The tickets whose visits ended lately, by segment, as the store sends them.
    pub(super) left: BTreeMap<u64, Bytes>,
}

/// The bits of one segment, in the bit order of Redis.
#[derive(Clone)]
pub(super) struct WitnessSegment {
    /// Who waits; empty if nothing is known of that.
    pub(super) live: Vec<u8>,
    /// Who does not wait any more.
    pub(super) gone: Vec<u8>,
    /// Who of those entered, or gave up the place, as far as this server was told.
    pub(super) entered: Vec<u8>,
}

impl WitnessSegment {
    /// Only who entered or gave up the place is known.
    fn of_ended(entered: &[u8]) -> Self {
        Self { live: Vec::new(), gone: entered.to_vec(), entered: entered.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_was_moved_meets_its_slot() {
        let of = |at_ms: &[u64]| {
            let entry = |(seq, at_ms): (u64, &u64)| (seq, Entry { at_ms: *at_ms, unix_s: 1, life_s: 60 });
            (0..).zip(at_ms).map(entry).collect::<Vec<_>>()
        };
        let met = |at_ms: &[u64], log: &[(u64, u32)]| {
            let mut entries = of(at_ms);
            meet_slots(&mut entries, log);
            entries.into_iter().map(|(_, entry)| entry.at_ms).collect::<Vec<_>>()
        };
        assert_eq!(met(&[5_016], &[(5_013, 1)]), [5_013]);
        assert_eq!(met(&[5_013, 5_016], &[(5_013, 1)]), [5_013, 5_016], "the slot is taken");
        assert_eq!(met(&[5_013, 5_016], &[(5_013, 2)]), [5_013, 5_013]);
        assert_eq!(met(&[5_016, 5_116], &[(5_013, 1), (5_113, 3)]), [5_013, 5_113], "each its own");
        assert_eq!(met(&[5_016], &[(6_100, 1)]), [5_016], "too far");
        assert_eq!(met(&[], &[(6_100, 1)]), [0; 0]);
    }

    /// The reply to a call that was sent and received at these instants, and read the clock as `now_ms`.
    fn reading(now_ms: u64, sent: Instant, received: Instant) -> ClockReading {
        ClockReading { earliest: (now_ms, received), latest: (now_ms, sent) }
    }

    /// How long a call waited before it read the clock is not known, so it does not raise the upper bound of one that did not wait.
    #[test]
    fn a_call_that_waited_says_little_about_the_clock() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let reading = |now_ms, sent_ms, received_ms| reading(now_ms, at(sent_ms), at(received_ms));
        let prompt = reading(1_000, 0, 2);
        let waited = prompt.then(reading(5_990, 1_000, 4_992));
        assert_eq!((waited.latest, waited.earliest), (prompt.latest, (5_990, at(4_992))));
        // A better one counts.
        assert_eq!(prompt.then(reading(5_900, 5_000, 5_001)).latest, (5_900, at(5_000)));
    }

    /// A clock that was moved ahead, by however little, moves the upper bound with it, and leaves the slack to the ways of calls.
    #[test]
    fn a_clock_that_is_moved_ahead_moves_its_bound() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let reading = |now_ms, sent_ms, received_ms| reading(now_ms, at(sent_ms), at(received_ms));
        let prompt = reading(1_000, 0, 2);
        let most_at_6 = |moved: ClockReading| moved.latest.0 + ms(at(6_000) - moved.latest.1);
        // 6,001 at most was expected when the reply came. Whether the call waited on its way or not, it says the same.
        for (shown, sent) in [(6_100, 5_000), (6_100, 500), (9_000, 5_000)] {
            assert_eq!(most_at_6(prompt.then(reading(shown, sent, 5_001))), shown + 999, "{shown}, {sent}");
        }
    }
}
