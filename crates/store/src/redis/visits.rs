//! The visits: reports who is active inside a zone and who left.
//!
//! Invariant: every segment in which anybody is inside is passed, so that time passes for all visits.

use std::{collections::BTreeSet, sync::Arc};

use admission::{PagePolls, Words};
use bytes::Bytes;

use super::{
    Redis, Result, Zone,
    beat::{Polls, by_segment, poll_bytes},
    call::{Answer, Refused},
    client::Client,
    lock,
    memory::Memory,
    scripts, text,
    wire::Garbled,
};
use crate::StoreError;

impl<C: Client> Redis<C> {
    pub(super) async fn report_visits(
        &self,
        zone: &Zone,
        seen: &[PagePolls],
        left: &[PagePolls],
    ) -> Result<Vec<(u64, Arc<Words>)>> {
        let (seen, left) = (by_segment(seen), by_segment(left));
        let range = self.inside_of(zone)?;
        let segments: BTreeSet<u64> = range.chain(seen.keys().copied()).chain(left.keys().copied()).collect();
        let segments: Vec<u64> = segments.into_iter().collect();
        for slice in segments.chunks(self.max_segments) {
            self.report_slice(zone, slice, &seen, &left).await?;
        }
        let range = self.inside_of(zone)?;
        Ok(lock(&zone.memory).as_mut().ok_or(StoreError::UnknownZone)?.left_pages(range))
    }

    /// The segments in which anybody is inside, or left lately, as far as this server knows.
    fn inside_of(&self, zone: &Zone) -> Result<std::ops::Range<u64>> {
        let memory = lock(&zone.memory);
        let inside = memory.as_ref().ok_or(StoreError::UnknownZone)?.header.inside;
        Ok(inside.from..inside.end)
    }

    async fn report_slice(
        &self,
        zone: &Zone,
        slice: &[u64],
        seen: &Polls<'_>,
        left: &Polls<'_>,
    ) -> Result<()> {
        let own = |memory: &Memory| {
            let mut args = vec![text(slice.len())];
            for segment in slice {
                args.extend([text(segment), text(memory.left_rev_of(*segment))]);
                for of in [seen, left] {
                    let (at, bits) = of.get(segment).map_or((0, Vec::new()), poll_bytes);
                    args.extend([text(at), Bytes::from(bits)]);
                }
            }
            args
        };
        let more = slice.iter().flat_map(|segment| {
            ["in", "i0", "i1", "i2", "i3", "left"].map(|key| format!("{}{segment}:{key}", zone.prefix).into())
        });
        let more: Vec<Bytes> = more.collect();
        let answer = match self.run(zone, &scripts::VISITS, (&[], &more), own).await {
            Ok(answer) => answer,
            Err(Refused::Other(error)) => return Err(error),
            Err(Refused::Keys(_) | Refused::Torn(_)) => return Err(Garbled("a report's reply").into()),
        };
        let Answer { header, mut rest, .. } = answer;
        let (mut revs, mut bits) = (rest.list()?, rest.list()?);
        let mut memory = lock(&zone.memory);
        let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
        for segment in slice {
            let (rev, bits) = (revs.number()?, bits.bytes()?);
            if memory.header.epoch == header.epoch {
                memory.take_left(*segment, rev, bits)?;
            }
        }
        Ok(())
    }
}
