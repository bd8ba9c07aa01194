//! Rebuilds a zone's state in Redis from what this server remembers.
//!
//! Invariant: the server gives its newest memory of each epoch that Redis lost, until Redis has taken it. The script
//! merges the memories of several servers; giving the same twice changes nothing.

use std::{collections::BTreeSet, sync::Arc};

use admission::Entry;
use bytes::Bytes;
use tokio::time::Instant;

#[cfg(feature = "sabotage")]
use super::sabotage;
use super::{
    Counts, Redis, Result, Zone,
    call::{Refused, Seen, common_args, keys, keys_of, refused, warn_of_presumed},
    client::{Client, ClientError, Script},
    lock, scripts, text, wire,
    zone_memory::{Witness, split},
};
use crate::StoreError;

/// How many entries one call gives at most: each takes up to 3 us of Redis.
const MAX_ENTRIES: usize = 4_096;

/// What one call gives: entries of some segments, and the first call for them also their bits.
struct Part<'a> {
    segments: &'a [u64],
    with_bits: bool,
    entries: Vec<(u64, Entry)>,
}

/// All that a witness knows of these segments, so many at a time.
fn parts<'a>(witness: &Witness, segments: &'a [u64], at_once: usize) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for segments in segments.chunks(at_once) {
        let is_there = |(seq, _): &&(u64, Entry)| segments.contains(&split(*seq).0);
        let entries: Vec<(u64, Entry)> = witness.entries.iter().filter(is_there).copied().collect();
        let (first, rest) = entries.split_at(entries.len().min(MAX_ENTRIES));
        parts.push(Part { segments, with_bits: true, entries: first.to_vec() });
        let rest = rest.chunks(MAX_ENTRIES);
        parts.extend(rest.map(|some| Part { segments, with_bits: false, entries: some.to_vec() }));
    }
    if parts.is_empty() {
        parts.push(Part { segments, with_bits: true, entries: Vec::new() });
    }
    parts
}

/// Whether Redis took what it was given.
type Gave = std::result::Result<(), Refused>;

impl<C: Client> Redis<C> {
    /// Rebuilds a lost state. If what is there instead lacks a part, too, that is begun anew, and the caller comes back.
    pub(super) async fn recover(&self, zone: &Zone) -> Result<()> {
        match self.restore(zone).await {
            Ok(()) => Ok(()),
            Err(Refused::Torn(torn)) => self.mend(zone, torn).await,
            Err(refused) => Err(refused.without("the reply to a memory")),
        }
    }

    async fn restore(&self, zone: &Zone) -> Gave {
        {
            let mut memory = lock(&zone.memory);
            let memory = memory.as_mut().ok_or(StoreError::UnknownZone)?;
            memory.losses.check(Instant::now())?;
            tracing::warn!(
                zone = %zone.id, epoch = memory.header.epoch, revision = memory.header.rev,
                "the state in Redis is older than what this server has seen; it is rebuilt"
            );
            memory.keep_witness(Instant::now());
        }
        self.give_witnesses(zone).await?;
        // An operator's last change may be lost with the state.
        let policy = self.policy_of(zone);
        match policy {
            Some(policy) => {
                self.give_policy(zone, &policy, Counts::Always).await.or_else(|refused| match refused {
                    // The state was lost again, and the caller comes back.
                    Refused::Other(error) if error != StoreError::UnknownZone => Err(error.into()),
                    _ => Ok(()),
                })
            }
            None => Ok(()),
        }
    }

    /// Gives Redis all witnesses that it has not taken yet.
    pub(super) async fn give_witnesses(&self, zone: &Zone) -> Gave {
        loop {
            let first = lock(&zone.memory).as_ref().and_then(|memory| {
                memory.witnesses.front().map(|first| (Arc::clone(first), memory.witnesses.len() == 1))
            });
            let Some((witness, is_last)) = first else { return Ok(()) };
            self.give_record(zone, witness.drawn.draw).await?;
            self.give(zone, &witness, is_last).await?;
            if let Some(memory) = &mut *lock(&zone.memory) {
                memory.witnesses.retain(|kept| !Arc::ptr_eq(kept, &witness));
            }
        }
    }

    /// Gives Redis one witness, some segments a call. `is_last` says that this server remembers nothing else.
    async fn give(&self, zone: &Zone, witness: &Witness, is_last: bool) -> Gave {
        #[cfg(feature = "sabotage")]
        let emptied = sabotage::emptied(witness);
        #[cfg(feature = "sabotage")]
        let witness = &emptied;
        let entries: BTreeSet<u64> = witness.entries.iter().map(|(seq, _)| split(*seq).0).collect();
        let with_bits: BTreeSet<u64> = witness.segments.keys().copied().collect();
        let mut all = &with_bits | &entries;
        all.extend(witness.left.keys());
        let all: Vec<u64> = all.into_iter().collect();
        // Another line may have segments that this one has left behind.
        let has_tickets = |segment: &&u64| {
            **segment >= witness.base || entries.contains(segment) || witness.left.contains_key(segment)
        };
        let names = all.iter().filter(has_tickets).map(u64::to_string).collect::<Vec<_>>().join(" ");
        let parts = parts(witness, &all, self.max_segments);
        let count = parts.len();
        for (i, Part { segments: slice, with_bits, entries }) in parts.into_iter().enumerate() {
            let mut args = common_args(None, self.held_clock_ms(), &self.name_at(zone), slice);
            if self.held_clock_ms() == 0 {
                let (lo, hi) = witness.clock.bounds();
                (args[2], args[3]) = (text(lo), text(hi));
            }
            args.extend([text(witness.epoch), text(witness.rev), text(witness.next), text(witness.base)]);
            args.extend([text(witness.start), text(witness.born), text(witness.floor)]);
            args.push(text(u32::from(is_last && i + 1 == count)));
            args.push(witness.inside.map_or_else(|| text(-1), text));
            args.push(text(u32::from(witness.watched)));
            args.extend([text(witness.entered), text(witness.opens_ms)]);
            args.extend([text(witness.drawn.draw), text(witness.drawn.from), text(witness.drawn.end)]);
            args.extend(witness.leaps.map(text));
            args.push(witness.servers.join(" ").into());
            args.push(names.clone().into());
            args.push(witness.past.clone());
            args.push(if i == 0 { log_bytes(&witness.log) } else { Bytes::new() });
            let mut out = Vec::new();
            for (seq, entry) in entries {
                out.extend_from_slice(&seq.to_be_bytes()[2..]);
                out.extend_from_slice(&entry.at_ms.to_be_bytes()[2..]);
                out.extend_from_slice(&u32::try_from(entry.unix_s).unwrap_or(u32::MAX).to_be_bytes());
                out.extend_from_slice(&u16::try_from(entry.life_s).unwrap_or(u16::MAX).to_be_bytes());
            }
            args.push(out.into());
            args.extend(wire::policy_numbers(&witness.policy).map(text));
            for segment in slice {
                let bits = witness.segments.get(segment).filter(|_| with_bits);
                let bits = bits.map_or([&[][..]; 3], |bits| [&bits.live, &bits.gone, &bits.entered]);
                args.extend(bits.map(Bytes::copy_from_slice));
                args.push(witness.left.get(segment).filter(|_| with_bits).cloned().unwrap_or_default());
            }
            let script: &'static Script = &scripts::RESTORE;
            #[cfg(feature = "sabotage")]
            let script = sabotage::script(script);
            let sent = Instant::now();
            let mut keys = keys(&zone.prefix, slice);
            keys.extend(keys_of(&zone.prefix, slice, &["i0", "i1", "i2", "i3", "left"]));
            let value = match self.client.run(script, keys, args, None).await {
                Ok(value) => value,
                Err(ClientError::Script(text)) => return Err(refused(&text)),
                Err(error) => return Err(StoreError::from(error).into()),
            };
            let Seen { header, past, first, log, mut rest } = Seen::of(value)?;
            let taken = rest.bytes()?;
            warn_of_presumed(zone, &header);
            if i == 0 {
                // See `lua/restore.lua`.
                let taken = match &*taken {
                    b"1" => "yes",
                    b"0" => "it has all of it already",
                    _ => "no, another line has its numbers",
                };
                tracing::warn!(
                    zone = %zone.id, of_epoch = witness.epoch, epoch = header.epoch, taken,
                    entries = witness.entries.len(), next = witness.next, "gave Redis what this server remembers"
                );
            }
            if let Some(memory) = &mut *lock(&zone.memory) {
                memory.take(header, past, first, &log, sent)?;
            }
        }
        Ok(())
    }
}

/// The log, as `lua/restore.lua` takes it.
fn log_bytes(log: &[(u64, u32)]) -> Bytes {
    let mut bytes = Vec::with_capacity(log.len() * 10);
    for (at_ms, count) in log {
        bytes.extend_from_slice(&at_ms.to_be_bytes()[2..]);
        bytes.extend_from_slice(&count.to_be_bytes());
    }
    bytes.into()
}
