//! Begins a state anew that lacks a part, or whose scripts fail by what they find in it. The servers then write back what they
//! remember, as after a loss.
//!
//! Redis can lose one key of a zone and keep the others: by a hand, or by a slot that was being moved when a node died.
//!
//! Invariant: a state that cannot be mended is not begun anew by a server more often than [`MOST`] times in each [`WITHIN`].

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Redis, Result, Zone,
    call::{self, Refused, Torn, common_args},
    client::Client,
    lock, scripts, text,
    zone_memory::split,
};
use crate::StoreError;

/// How often a server begins a state anew within [`WITHIN`].
const MOST: u32 = 3;
const WITHIN: Duration = Duration::from_secs(10);

/// How many segments are looked through for values of a wrong type. A longer line has that many at its beginning and its end.
const LOOKED_THROUGH: usize = 64;

/// Since when a server counts how often it began a state anew, and how often that was.
#[derive(Default)]
pub(super) struct Mended {
    since: Option<Instant>,
    times: u32,
}

impl Mended {
    /// Whether the state may be begun anew now. Counts it if so.
    fn may(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now - since > WITHIN) {
            (self.since, self.times) = (Some(now), 0);
        }
        self.times += 1;
        self.times <= MOST
    }
}

impl<C: Client> Redis<C> {
    /// Begins the state anew. The caller repeats its call then.
    pub(super) async fn mend(&self, zone: &Zone, torn: Torn) -> Result<()> {
        let Torn { epoch, why, segment } = torn;
        let now = Instant::now();
        if let Some(memory) = &mut *lock(&zone.memory) {
            memory.losses.check(now)?;
        }
        if !lock(&zone.mended).may(now) {
            return Err(StoreError::Away(why));
        }
        let (known, clock, segments) = {
            let memory = lock(&zone.memory);
            let header = memory.as_ref().map(|memory| memory.header);
            let line = header.map_or(0..0, |of| of.base..split(of.next).0 + 1);
            let inside = header.map_or(0..0, |of| of.inside.from..of.inside.end);
            let mut segments: Vec<u64> = line.chain(inside).collect();
            segments.sort_unstable();
            segments.dedup();
            if segments.len() > LOOKED_THROUGH {
                segments.drain(LOOKED_THROUGH / 2..segments.len() - LOOKED_THROUGH / 2);
            }
            if let Some(segment) = segment {
                segments.retain(|other| *other != segment);
                segments.insert(0, segment);
            }
            let of_epoch = header.filter(|of| epoch.is_none_or(|epoch| epoch == of.epoch));
            // The bounds of another epoch's clock say nothing here.
            let clock = memory.as_ref().filter(|_| of_epoch.is_some()).map(super::ZoneMemory::bounds);
            (header, clock, segments)
        };
        let epoch = epoch.or(known.map(|of| of.epoch)).unwrap_or(0);
        let next = known.filter(|of| of.epoch == epoch).map_or(0, |of| of.next);
        tracing::warn!(
            zone = %zone.id, epoch, %why,
            "the zone's state in Redis cannot be used as it is; it is begun anew, with what is whole and with what the servers \
             remember"
        );
        let mut chunks = segments.chunks(self.max_segments);
        let first = chunks.next().unwrap_or_default();
        for (i, slice) in std::iter::once(first).chain(chunks).enumerate() {
            let mut args = common_args(None, self.held_clock_ms(), &self.name_at(zone), &[]);
            if let (0, Some((lo, hi))) = (self.held_clock_ms(), clock) {
                (args[2], args[3]) = (text(lo), text(hi));
            }
            // The first call ends the epoch. The others drop what is of a wrong type.
            args.push(if i == 0 { text(epoch) } else { text(u32::MAX) });
            args.push(text(next));
            args.extend(slice.iter().map(text));
            let mut keys = call::keys(&zone.prefix, slice);
            keys.extend(call::keys_of(&zone.prefix, slice, &["i0", "i1", "i2", "i3", "left", "bound"]));
            match self.call(zone, &scripts::MEND, keys, args).await {
                // The header was dropped, or is not there.
                Err(Refused::Other(StoreError::UnknownZone)) => return Ok(()),
                Err(Refused::Other(error)) => return Err(error),
                Err(refused) => return Err(StoreError::Away(refused.to_string())),
                Ok(_) => {}
            }
        }
        Ok(())
    }
}
