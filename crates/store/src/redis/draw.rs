//! Draws: lists who waits, deals a line anew, and keeps the record of a draw.
//!
//! Invariant: a list is made by one call, and so is a deal. The record is no part of the zone's state: the servers that know it give it
//! back if it is lost.

use std::collections::BTreeSet;

use admission::{Census, CensusSegment, Deal, Dealt};
use bytes::Bytes;

use super::{
    Redis, Result, Zone,
    call::{ATTEMPTS, Answer, Refused},
    client::{Client, Script},
    lock, scripts, text,
    wire::{self, Garbled, Reply, SEGMENT_BYTES},
    zone_memory::split,
};
use crate::StoreError;

/// How long the record of a draw is kept after it was written last, in milliseconds: 400 days.
const KEPT_MS: u64 = 400 * 86_400_000;

impl<C: Client> Redis<C> {
    /// Lists who waits.
    pub(super) async fn census(&self, zone: &Zone) -> Result<Census> {
        let Answer { header, mut rest, .. } =
            self.run_on_line(zone, &scripts::CENSUS, |used| used, Vec::new).await?;
        let (settled_ms, recovers) = (rest.number()?, rest.number()?);
        let (mut names, mut live, mut here) = (rest.list()?, rest.list()?, rest.list()?);
        let (mut ended_names, mut bits) = (rest.list()?, rest.list()?);
        let mut ended = Vec::new();
        while !ended_names.is_empty() {
            ended.push((ended_names.number()?, words(&mut bits)?));
        }
        let mut listed = Vec::with_capacity(names.len());
        while !names.is_empty() {
            listed.push(CensusSegment {
                index: names.number()?,
                live: words(&mut live)?,
                here: words(&mut here)?,
            });
        }
        Ok(Census {
            now_ms: header.now,
            unix_ms: header.unix_ms,
            next: header.next,
            drawn: header.drawn,
            settled_ms,
            is_recovering: recovers == 1,
            segments: listed,
            ended,
        })
    }

    /// Deals the line anew.
    pub(super) async fn deal(&self, zone: &Zone, deal: &Deal, anyway: bool) -> Result<Dealt> {
        let Deal { drawn, frozen, later, .. } = *deal;
        let segments = |mut segments: BTreeSet<u64>| {
            let moves = split(later).0 - split(frozen).0;
            let moved: Vec<u64> = (segments.range(split(frozen).0..split(drawn.from).0))
                .map(|segment| segment + moves)
                .collect();
            segments.extend(moved);
            segments.extend(deal.segments.iter().map(|dealt| dealt.index));
            segments.insert(split(drawn.end).0);
            segments
        };
        let own = || {
            let mut args: Vec<Bytes> = [
                u64::from(drawn.draw),
                frozen,
                later,
                drawn.from,
                drawn.end,
                deal.people(),
                u64::from(anyway),
            ]
            .map(text)
            .into();
            for (dealt, ended) in deal.segments.iter().zip(&deal.ended) {
                for words in [&dealt.live, &dealt.here, ended] {
                    args.push(wire::bitmap_of(words).collect::<Vec<u8>>().into());
                }
            }
            args
        };
        match self.run_on_line(zone, &scripts::DEAL, segments, own).await?.rest.number()? {
            0 => Ok(Dealt::NotNow),
            1 => Ok(Dealt::Done),
            2 => Ok(Dealt::Changed),
            _ => Err(Garbled("a deal's reply").into()),
        }
    }

    /// Runs a script with the keys of the line's segments, which `segments` may add to. Asks which ones the line has, and tries again, if
    /// this server does not know them all.
    async fn run_on_line(
        &self,
        zone: &Zone,
        script: &'static Script,
        segments: impl Fn(BTreeSet<u64>) -> BTreeSet<u64>,
        own: impl Fn() -> Vec<Bytes>,
    ) -> Result<Answer> {
        for _ in 0..ATTEMPTS {
            let segments: Vec<u64> = segments(self.used_segments(zone)?).into_iter().collect();
            match self.run(zone, script, (&segments, &[]), |_| own()).await {
                Err(Refused::Keys(_)) => self.learn_segments(zone).await?,
                Err(refused) => return Err(refused.without("the reply to a draw")),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(StoreError::Away("the line changes faster than this server can follow".to_owned()))
    }

    /// The segments of the line that may have tickets, as far as this server knows.
    fn used_segments(&self, zone: &Zone) -> Result<BTreeSet<u64>> {
        let memory = lock(&zone.memory);
        let memory = memory.as_ref().ok_or(StoreError::UnknownZone)?;
        let line = memory.header.base..=split(memory.header.next).0;
        Ok(line.filter(|segment| !memory.is_unused(*segment)).collect())
    }

    /// Asks which segments the line has.
    async fn learn_segments(&self, zone: &Zone) -> Result<()> {
        // Boxed, because the compiler limits how deeply futures are nested.
        Box::pin(self.beat(zone, &[], 0)).await.map(drop)
    }

    /// Keeps the record of draw `draw`, unless one of its stage is kept. Returns what is kept.
    pub(super) async fn keep_draw(
        &self,
        zone: &Zone,
        draw: u32,
        new: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let kept = self.exchange_record(zone, draw, new.unwrap_or_default().into()).await?;
        if kept.is_empty() {
            return Ok(None);
        }
        let dealt = lock(&zone.memory).as_ref().map(|memory| memory.header.drawn.draw);
        let mut records = lock(&zone.records);
        records.retain(|other, _| Some(*other) == dealt);
        records.insert(draw, kept.clone());
        Ok(Some(kept.to_vec()))
    }

    /// Gives back the record of a draw by which a line is dealt. A state that is dealt and whose record is lost lets nobody in: only the
    /// record says who has which number. So it is there before the state is.
    pub(super) async fn give_record(&self, zone: &Zone, draw: u32) -> Result<()> {
        let record = lock(&zone.records).get(&draw).cloned();
        match record {
            Some(record) => self.exchange_record(zone, draw, record).await.map(drop),
            None => Ok(()),
        }
    }

    /// Offers a record, or nothing, and returns what is kept; nothing if there is none.
    async fn exchange_record(&self, zone: &Zone, draw: u32, offered: Bytes) -> Result<Bytes> {
        let keys = vec![Bytes::from(format!("{}draw:{draw}", zone.prefix))];
        let reply = self.client.run(&scripts::DRAW, keys, vec![offered, text(KEPT_MS)], None).await;
        Ok(Reply::new(reply.map_err(StoreError::from)?)?.bytes()?)
    }
}

/// The bits of a segment, which may be cut at the end.
fn words(bits: &mut Reply) -> std::result::Result<Vec<u64>, Garbled> {
    let bits = bits.bytes()?;
    if bits.len() > SEGMENT_BYTES {
        return Err(Garbled("a segment's bits"));
    }
    let mut whole = bits.to_vec();
    whole.resize(SEGMENT_BYTES, 0);
    Ok(wire::words_of(&whole).collect())
}
