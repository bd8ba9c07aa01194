//! Leaving: gives up places and ends visits.
//!
//! Invariant: what became of a leaver comes from one script call; nothing is decided here. This server remembers it at once, so that a
//! state that is rebuilt from its memory does not bring the ticket back.

use std::collections::BTreeSet;

use admission::{Departure, Leaver, Proof};
use bytes::Bytes;

use super::{
    Redis, Result, Zone, call::keys_of, client::Client, lock, scripts, wire::Garbled, zone_memory::split,
};
use crate::StoreError;

/// How many leavers one call takes at most, which bounds how long it blocks Redis.
const MAX_LEAVERS: usize = 64;

impl<C: Client> Redis<C> {
    /// Lets holders leave, several calls one after the other.
    pub(super) async fn leave(&self, zone: &Zone, leavers: &[Leaver]) -> Result<Vec<Departure>> {
        self.join_server_list(zone).await?;
        let mut departures = Vec::with_capacity(leavers.len());
        while departures.len() < leavers.len() {
            let some = self.leave_some(zone, &leavers[departures.len()..]).await?;
            departures.extend(some);
        }
        Ok(departures)
    }

    /// Lets the first of `leavers` go: at most [`MAX_LEAVERS`], in as many segments as one call passes.
    async fn leave_some(&self, zone: &Zone, leavers: &[Leaver]) -> Result<Vec<Departure>> {
        let mut segments = BTreeSet::new();
        let mut count = 0;
        for leaver in &leavers[..leavers.len().min(MAX_LEAVERS)] {
            let segment = split(leaver.claim.seq).0;
            if segments.len() >= self.max_segments && !segments.contains(&segment) {
                break;
            }
            segments.insert(segment);
            count += 1;
        }
        let leavers = &leavers[..count];
        let segments: Vec<u64> = segments.into_iter().collect();
        let more = keys_of(&zone.prefix, &segments, &["i0", "i1", "i2", "i3", "left", "bound"]);
        let more: Vec<Bytes> = more.collect();
        let mut bytes = Vec::with_capacity(count * 19);
        for Leaver { claim, proof, address } in leavers {
            bytes.extend_from_slice(&claim.epoch.to_be_bytes());
            bytes.extend_from_slice(&claim.seq.to_be_bytes()[2..]);
            bytes.push(match proof {
                Proof::Name => 0,
                Proof::Token => 1,
                Proof::Visit => 2,
            });
            bytes.extend_from_slice(&address.to_be_bytes());
        }
        let bytes = Bytes::from(bytes);
        let answer = self.run(zone, &scripts::LEAVE, (&segments, &more), |_| vec![bytes.clone()]).await;
        let mut answer = answer.map_err(|refused| refused.without("the reply to leavers"))?;
        let departures = answer.rest.bytes()?;
        let departures: Option<Vec<Departure>> = departures.iter().map(|&digit| departure(digit)).collect();
        let departures = departures.filter(|of| of.len() == count).ok_or(Garbled("the departures"))?;
        let gone = leavers
            .iter()
            .zip(&departures)
            .filter(|(_, departure)| matches!(departure, Departure::Place | Departure::Visit));
        let mut memory = lock(&zone.memory);
        memory
            .as_mut()
            .ok_or(StoreError::UnknownZone)?
            .note_left(gone.map(|(leaver, departure)| (leaver.claim.seq, *departure)));
        Ok(departures)
    }
}

/// What became of a leaver, as `lua/leave.lua` writes it.
fn departure(digit: u8) -> Option<Departure> {
    Some(match digit {
        b'0' => Departure::Place,
        b'1' => Departure::Visit,
        b'2' => Departure::Gone,
        b'3' => Departure::Waits,
        b'4' => Departure::Elsewhere,
        b'5' => Departure::Unknown,
        b'6' => Departure::NotYet,
        _ => return None,
    })
}
