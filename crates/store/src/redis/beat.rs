//! The beat: reports polls, lets the scripts do what is due, and makes the snapshot.
//!
//! Invariant: a snapshot is made from one reply's counts; segments that are older here than those counts are fetched before.

use std::{collections::BTreeMap, ops::Range, sync::atomic::Ordering};

use admission::{Definition, Mode, PAGE_TICKETS, PagePolls, Snapshot};
use tokio::time::Instant;

use super::{
    PAGE_BYTES, Redis, Result, Zone,
    call::{ATTEMPTS, Answer},
    client::Client,
    lock, scripts, text,
    wire::{self, Counts, Garbled, Header, SEGMENT},
    zone_memory::{ZoneMemory, split},
};
use crate::StoreError;

/// The polls of a beat: by segment, then by page within the segment.
pub(super) type Polls<'a> = BTreeMap<u64, BTreeMap<usize, &'a PagePolls>>;

/// What a call of a beat returned.
struct Beaten {
    header: Header,
    /// Whether as many replicas have the change as answers wait for.
    is_confirmed: bool,
    /// The ends of the front and of its approach, and the counts of all segments, if they were asked for.
    counts: Option<((u64, u64), Vec<Counts>)>,
}

impl<C: Client> Redis<C> {
    /// Beats the whole line, some segments a call, and makes the snapshot. If another epoch begins between two calls, all of it is beaten
    /// again.
    pub(super) async fn beat(
        &self,
        zone: &Zone,
        polls: &[PagePolls],
        longest_period_ms: u32,
    ) -> Result<Snapshot> {
        for _ in 0..ATTEMPTS {
            if let Some(snapshot) = self.beat_once(zone, polls, longest_period_ms).await? {
                return Ok(snapshot);
            }
        }
        Err(StoreError::Away(format!("the state of zone {} is begun anew again and again", zone.id)))
    }

    /// Nothing if another epoch began meanwhile, or the line was dealt: the counts are those of before.
    async fn beat_once(
        &self,
        zone: &Zone,
        polls: &[PagePolls],
        longest_period_ms: u32,
    ) -> Result<Option<Snapshot>> {
        let by_segment = by_segment(polls);
        let all: Vec<u64> = {
            let memory = lock(&zone.memory);
            let memory = memory.as_ref().ok_or(StoreError::UnknownZone)?;
            let last = split(memory.header.next).0;
            let line =
                (memory.header.base..=last).filter(|segment| *segment == last || !memory.is_unused(*segment));
            memory.left_behind().chain(line).collect()
        };
        // The segments of the front come last: the counts are asked for with them.
        let mut slices = all.chunks(self.max_segments).rev().peekable();
        while let Some(slice) = slices.next() {
            let with_counts = slices.peek().is_none();
            let beaten = self.beat_slice(zone, slice, &by_segment, with_counts, longest_period_ms).await?;
            let Some((ends, counts)) = &beaten.counts else { continue };
            let front = self.front(&beaten.header, ends.0, counts);
            if front.iter().all(|segment| slice.contains(segment)) {
                return self.complete(zone, beaten).await;
            }
            // The line begins with many segments in which nobody is present.
            let beaten = self.beat_slice(zone, &front, &Polls::new(), true, longest_period_ms).await?;
            return self.complete(zone, beaten).await;
        }
        Err(Garbled("a beat").into())
    }

    /// The last segments of the front in which anybody waits, as many as one call passes. There is a front only where people
    /// enter by slots.
    fn front(&self, of: &Header, front_end: u64, counts: &[Counts]) -> Vec<u64> {
        if of.policy.mode != Mode::Auto {
            return Vec::new();
        }
        let waits = |(segment, counts): (u64, &Counts)| {
            (counts.live > 0 && segment * SEGMENT < front_end).then_some(segment)
        };
        let mut front: Vec<u64> = (of.base..).zip(counts).filter_map(waits).collect();
        front.drain(..front.len().saturating_sub(self.max_segments));
        front
    }

    /// Fetches the segments that the snapshot lacks, and makes it; or nothing, as [`Self::beat_once`].
    async fn complete(&self, zone: &Zone, beaten: Beaten) -> Result<Option<Snapshot>> {
        let Beaten { header: of, is_confirmed, counts } = beaten;
        let (ends, counts) = counts.ok_or(Garbled("a beat"))?;
        let outdated = {
            let memory = lock(&zone.memory);
            memory.as_ref().map(|memory| memory.outdated(of.base, &counts)).unwrap_or_default()
        };
        for slice in outdated.chunks(self.max_segments) {
            self.beat_slice(zone, slice, &Polls::new(), false, 0).await?;
        }
        let mut snapshot = {
            let mut memory = lock(&zone.memory);
            let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
            if (memory.header.epoch, memory.header.drawn) != (of.epoch, of.drawn) {
                return Ok(None);
            }
            memory.make_snapshot(of.base, ends, &counts)
        };
        snapshot.is_confirmed = is_confirmed;
        // The zone's state has only what the rules read. The limits that servers check come from the register.
        if let Some(Definition { policy, .. }) = lock(&self.register).zones.get(&zone.id) {
            snapshot.policy = snapshot.policy.with_limits_of(policy);
        }
        Ok(Some(snapshot))
    }

    /// Puts this server on the zone's list of servers before its first decision there: every server that may have been told of an entry
    /// is on the list.
    pub(super) async fn join_server_list(&self, zone: &Zone) -> Result<()> {
        let join = || async {
            // A zone that was not opened here has no list.
            if lock(&zone.memory).is_none() {
                return Err(StoreError::UnknownZone);
            }
            zone.decides.store(true, Ordering::Relaxed);
            self.beat_slice(zone, &[], &Polls::new(), false, 0).await.map(drop)
        };
        // Boxed, because the compiler limits how deeply futures are nested.
        Box::pin(zone.is_listed.get_or_try_init(join)).await.copied()
    }

    /// Beats some segments. With `with_counts`, also returns the ends of the front and of its approach, and the counts
    /// of all segments.
    async fn beat_slice(
        &self,
        zone: &Zone,
        slice: &[u64],
        polls: &Polls<'_>,
        with_counts: bool,
        longest_period_ms: u32,
    ) -> Result<Beaten> {
        let wanted: Vec<Range<usize>> = {
            let memory = lock(&zone.memory);
            let memory = memory.as_ref().ok_or(StoreError::UnknownZone)?;
            slice.iter().map(|segment| memory.entries_wanted(*segment)).collect()
        };
        let own = |memory: &ZoneMemory| {
            let mut args = Vec::with_capacity(slice.len() * 5 + 2);
            for (segment, wanted) in slice.iter().zip(&wanted) {
                let (at, bytes) = polls.get(segment).map_or((0, Vec::new()), poll_bytes);
                args.extend([text(memory.rev_of(*segment)), text(at), bytes.into()]);
                args.extend([text(wanted.len()), text(wanted.start)]);
            }
            args.extend([text(u32::from(with_counts)), text(longest_period_ms)]);
            args
        };
        let asked = Instant::now();
        let answer = self.run(zone, &scripts::BEAT, (slice, &[]), own).await;
        let answer = answer.map_err(|refused| refused.without("a beat's reply"))?;
        let Answer { header, is_confirmed, mut rest } = answer;
        let ends = (rest.number()?, rest.number()?);
        let mut rows = rest.list()?;
        let mut counts = Vec::with_capacity(rows.len());
        while !rows.is_empty() {
            counts.push(Counts::parse(&rows.bytes()?)?);
        }
        let (mut revs, mut bits, mut ended, mut entries, mut names) =
            (rest.list()?, rest.list()?, rest.list()?, rest.list()?, rest.list()?);
        let mut servers = Vec::with_capacity(names.len());
        while !names.is_empty() {
            servers.push(String::from_utf8_lossy(&names.bytes()?).into_owned());
        }
        let mut memory = lock(&zone.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        for (segment, wanted) in slice.iter().zip(wanted) {
            let (rev, bits, ended, entries) =
                (revs.number()?, bits.bytes()?, ended.bytes()?, entries.bytes()?);
            if memory.header.epoch != header.epoch {
                continue;
            }
            // An entry that no replica has is asked for again.
            if *segment < header.base {
                if is_confirmed {
                    memory.take_last(*segment, &ended, wanted, &entries)?;
                }
                continue;
            }
            if !bits.is_empty() {
                memory.take_bits(*segment, rev, &bits, &ended)?;
            }
            if is_confirmed {
                memory.take_entries(*segment, rev, wanted, &entries);
            }
        }
        if with_counts {
            memory.list(servers, asked);
        }
        Ok(Beaten { header, is_confirmed, counts: with_counts.then_some((ends, counts)) })
    }
}

/// The polls of pages, by segment.
pub(super) fn by_segment(polls: &[PagePolls]) -> Polls<'_> {
    let mut segments = Polls::new();
    for page in polls {
        let (segment, ticket) = split(page.page * PAGE_TICKETS as u64);
        segments.entry(segment).or_default().insert(ticket / PAGE_TICKETS, page);
    }
    segments
}

/// The polls of a segment: the offset in its bitmap, and the bytes from there.
pub(super) fn poll_bytes(pages: &BTreeMap<usize, &PagePolls>) -> (usize, Vec<u8>) {
    let (Some(first), Some(last)) = (pages.keys().next(), pages.keys().next_back()) else {
        return (0, Vec::new());
    };
    let mut bytes = Vec::with_capacity((last - first + 1) * PAGE_BYTES);
    for number in *first..=*last {
        match pages.get(&number) {
            Some(page) => bytes.extend(wire::bitmap_of(&*page.words)),
            None => bytes.resize(bytes.len() + PAGE_BYTES, 0),
        }
    }
    (first * PAGE_BYTES, bytes)
}
