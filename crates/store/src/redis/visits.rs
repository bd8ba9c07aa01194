//! The visits: reports who is active inside a zone, and to whom an entry is bound.
//!
//! Invariant: every segment in which anybody is inside, or left lately, is passed to each report, so that time passes for all visits
//! and this server knows who left.

use std::collections::BTreeSet;

use admission::{Claim, PagePolls};
use bytes::Bytes;

use super::{
    Redis, Result, Zone,
    beat::{Polls, by_segment, poll_bytes},
    call::{Answer, keys_of},
    client::Client,
    lock, scripts, text,
    wire::{Garbled, Reply},
    zone_memory::{ZoneMemory, split},
};
use crate::{LeftVisits, StoreError};

/// The longest life of a pass, in milliseconds: a zone's policy takes no longer one. An entry is bound for no less.
const LONGEST_PASS_MS: u64 = 3_600_000;

impl<C: Client> Redis<C> {
    pub(super) async fn report_visits(&self, zone: &Zone, seen: &[PagePolls]) -> Result<LeftVisits> {
        let seen = by_segment(seen);
        let range = self.inside_of(zone)?;
        let mut due: BTreeSet<u64> = seen.keys().copied().collect();
        // Between two lines that began without each other there may be a thousand segments without visitors. Each call says which have
        // some.
        let is_wide = range.end.saturating_sub(range.start) > self.max_segments as u64;
        if !is_wide {
            due.extend(range);
        }
        let mut reported = BTreeSet::new();
        let mut is_complete = due.is_empty() && !is_wide;
        while !is_complete {
            let slice: Vec<u64> = due.difference(&reported).copied().take(self.max_segments).collect();
            due.extend(self.report_slice(zone, &slice, &seen).await?);
            reported.extend(slice);
            is_complete = due.is_subset(&reported);
        }
        let mut memory = lock(&zone.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        Ok(LeftVisits { pages: memory.left_pages(&reported), epochs: memory.past_epochs() })
    }

    /// Binds an entry to an address, unless it is bound already. Returns the address that it is bound to.
    pub(super) async fn bind(&self, zone: &Zone, claim: Claim, address: u64) -> Result<u64> {
        if lock(&zone.memory).is_none() {
            return Err(StoreError::UnknownZone);
        }
        let keys = vec![Bytes::from(format!("{}{}:bound", zone.prefix, split(claim.seq).0))];
        let field = text(format_args!("{}:{}", claim.epoch, claim.seq));
        let args = vec![field, Bytes::copy_from_slice(&address.to_be_bytes()), text(LONGEST_PASS_MS)];
        let reply = self.client.run(&scripts::BIND, keys, args, self.durability.confirm()).await;
        let bound = Reply::new(reply.map_err(StoreError::from)?)?.bytes()?;
        let bound = <[u8; 8]>::try_from(&bound[..]).map_err(|_| Garbled("an address"))?;
        Ok(u64::from_be_bytes(bound))
    }

    /// The segments in which anybody is inside, or left lately, as far as this server knows.
    fn inside_of(&self, zone: &Zone) -> Result<std::ops::Range<u64>> {
        let memory = lock(&zone.memory);
        let inside = memory.as_ref().ok_or(StoreError::UnknownZone)?.header.inside;
        Ok(inside.from..inside.end)
    }

    /// Reports some segments. Returns all in which anybody is inside or left lately.
    async fn report_slice(&self, zone: &Zone, slice: &[u64], seen: &Polls<'_>) -> Result<Vec<u64>> {
        let own = |memory: &ZoneMemory| {
            let mut args = vec![text(slice.len())];
            for segment in slice {
                args.extend([text(segment), text(memory.left_rev_of(*segment))]);
                let (at, bits) = seen.get(segment).map_or((0, Vec::new()), poll_bytes);
                args.extend([text(at), Bytes::from(bits)]);
            }
            args
        };
        let more = keys_of(&zone.prefix, slice, &["in", "i0", "i1", "i2", "i3", "left"]);
        let more: Vec<Bytes> = more.collect();
        let answer = self.run(zone, &scripts::VISITS, (&[], &more), own).await;
        let answer = answer.map_err(|refused| refused.without("a report's reply"))?;
        let Answer { header, mut rest, .. } = answer;
        let (mut revs, mut bits, mut visited) = (rest.list()?, rest.list()?, rest.list()?);
        let mut segments = Vec::with_capacity(visited.len());
        while !visited.is_empty() {
            segments.push(visited.number()?);
        }
        let mut memory = lock(&zone.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        for segment in slice {
            let (rev, bits) = (revs.number()?, bits.bytes()?);
            if memory.header.epoch == header.epoch {
                memory.take_left(*segment, rev, bits)?;
            }
        }
        Ok(segments)
    }
}
