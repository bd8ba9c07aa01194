//! The draw of an event, as `weir serve` holds it: `crates/server/src/draws.rs` does the same with a signature and drand.
//!
//! The randomness is a number that follows from the frozen list, and is there a few seconds after it. Invariant: what is kept follows
//! from a census alone, so that a server that reads it gets the same lots.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use admission::{Census, Dealt, Lots, SEGMENT, SEGMENT_WORDS, ZoneId};
use gate::{Gate, ZoneDraw, cells::Cells};
use store::{StoreError, redis::Redis};
use tokio::time::{Instant, sleep};

use crate::{
    client::{SimClient, lock},
    seed::Random,
};

type SimGate = Gate<Cells<Redis<SimClient>>>;

/// When the randomness is there, after the freeze.
const ROUND_AFTER_MS: u64 = 4_000;

/// How often a server looks at the draw, looks for what is kept of it, and does so while it is not due.
const TICK: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_FOR_OLD: Duration = Duration::from_secs(5);

/// How often what took place is given to the store again.
const KEEP_AGAIN: Duration = Duration::from_secs(60);

/// How often a list is taken again because people left meanwhile.
const CENSUSES: u32 = 3;

/// A list that is frozen, and perhaps drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    is_drawn: bool,
    at_ms: u64,
    /// The first number that is not on the list.
    frozen: u64,
    listed: Vec<u64>,
}

impl Kept {
    fn frozen(at_ms: u64, census: &Census) -> Self {
        let bits = census.segments.iter().flat_map(|segment| {
            let tickets = (0..SEGMENT).filter(|at| {
                let at = usize::try_from(*at).expect("small");
                segment.live[at / 64] >> (at % 64) & 1 == 1
            });
            tickets.map(|at| segment.index * SEGMENT + at)
        });
        Self { is_drawn: false, at_ms, frozen: census.next, listed: bits.collect() }
    }

    /// The stage is the first byte.
    fn written(&self) -> Vec<u8> {
        let listed: Vec<_> = self.listed.iter().map(u64::to_string).collect();
        let stage = if self.is_drawn { 2 } else { 1 };
        format!("{stage} {} {} {}", self.at_ms, self.frozen, listed.join(" ")).into_bytes()
    }

    fn read(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("it is text");
        let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
        let mut next = || numbers.next().expect("three numbers at least");
        let (stage, at_ms, frozen) = (next(), next(), next());
        Self { is_drawn: stage == 2, at_ms, frozen, listed: numbers.collect() }
    }

    fn lots(&self, draw: u32) -> Lots {
        let mut segments: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for seq in &self.listed {
            let at = usize::try_from(seq % SEGMENT).expect("small");
            segments.entry(seq / SEGMENT).or_insert_with(|| vec![0; SEGMENT_WORDS])[at / 64] |=
                1 << (at % 64);
        }
        let mut random = Random::of(
            self.at_ms ^ self.listed.iter().fold(self.frozen, |sum, seq| sum * 31 % 1_000_003 + seq),
        );
        let mut positions: Vec<u32> = (0..u32::try_from(self.listed.len()).expect("few")).collect();
        for last in (1..positions.len()).rev() {
            positions.swap(last, random.below(last + 1));
        }
        let list: Vec<_> = segments.into_iter().collect();
        Lots::new(draw, self.frozen, &list, &positions).expect("they fit")
    }
}

/// What a server knows of the draw.
#[derive(Default)]
struct Known {
    kept: Option<Kept>,
    asked: Option<Instant>,
    given_in: Option<u32>,
    censuses: u32,
}

/// Holds the draw at one server, until its process ends.
pub(super) async fn follow(gate: Weak<SimGate>, client: SimClient, zone: ZoneId) {
    let mut known = Known::default();
    loop {
        sleep(TICK).await;
        client.runs().await;
        let Some(gate) = gate.upgrade() else { return };
        for draw in gate.draws() {
            if !draw.is_known || draw.is_due || !known.is_kept(&draw) {
                // It is tried again.
                drop(known.step(&gate, &client, &zone, &draw).await);
            }
        }
    }
}

impl Known {
    fn is_kept(&self, draw: &ZoneDraw) -> bool {
        self.given_in == Some(draw.epoch) && self.asked.is_some_and(|at| at.elapsed() < KEEP_AGAIN)
    }

    async fn step(
        &mut self,
        gate: &SimGate,
        client: &SimClient,
        zone: &ZoneId,
        draw: &ZoneDraw,
    ) -> Result<(), StoreError> {
        let number = draw.event.draw_number();
        let Some(kept) = self.look(gate, client, zone, draw).await? else { return Ok(()) };
        if !kept.is_drawn {
            if lock(&client.net).now() >= kept.at_ms + ROUND_AFTER_MS {
                self.keep(gate, zone, number, Some(Kept { is_drawn: true, ..kept })).await?;
            }
            return Ok(());
        }
        let lots = match gate.lots(zone, number) {
            Some(lots) => lots,
            None => {
                let lots = Arc::new(kept.lots(number));
                lock(&client.net).draws(client.server, &lots);
                gate.add_lots(zone, Arc::clone(&lots));
                lots
            }
        };
        if draw.is_due {
            let census = gate.census(zone).await?;
            if !census.is_recovering && census.drawn.draw != number {
                self.censuses += 1;
                let dealt = gate.deal(zone, lots.deal(&census), self.censuses >= CENSUSES).await?;
                if dealt == Dealt::Done {
                    let mut net = lock(&client.net);
                    let now = net.now();
                    net.cluster.tell(now, format!("server {} has the line dealt", client.server));
                }
            }
        }
        Ok(())
    }

    /// What is kept of the draw. If nothing is and the draw is due, the list is frozen.
    async fn look(
        &mut self,
        gate: &SimGate,
        client: &SimClient,
        zone: &ZoneId,
        draw: &ZoneDraw,
    ) -> Result<Option<Kept>, StoreError> {
        let number = draw.event.draw_number();
        let asked_within = |time| self.asked.is_some_and(|at| at.elapsed() < time);
        match &self.kept {
            Some(kept) if asked_within(LOOK_AGAIN) && self.given_in == Some(draw.epoch) => {
                return Ok(Some(kept.clone()));
            }
            None if !draw.is_due && asked_within(LOOK_FOR_OLD) => return Ok(None),
            _ => {}
        }
        let was_known = self.kept.is_some();
        if let Some(kept) = self.keep(gate, zone, number, self.kept.clone()).await? {
            if was_known {
                self.given_in = Some(draw.epoch);
            }
            return Ok(Some(kept));
        }
        if !draw.is_due {
            self.asked = Some(Instant::now());
            return Ok(None);
        }
        if !draw.is_fixed {
            return Ok(None);
        }
        let census = gate.census(zone).await?;
        if census.settled_ms > census.now_ms || census.is_recovering {
            return Ok(None);
        }
        let at_ms = lock(&client.net).now();
        let frozen = Kept::frozen(at_ms, &census);
        {
            let mut net = lock(&client.net);
            let line = format!(
                "server {} freezes the list at {}, with {} people",
                client.server,
                frozen.frozen,
                frozen.listed.len()
            );
            net.cluster.tell(at_ms, line);
        }
        self.keep(gate, zone, number, Some(frozen)).await
    }

    /// Keeps it in the store, and takes in what is kept there then.
    async fn keep(
        &mut self,
        gate: &SimGate,
        zone: &ZoneId,
        draw: u32,
        new: Option<Kept>,
    ) -> Result<Option<Kept>, StoreError> {
        let bytes = gate.keep_draw(zone, draw, new.as_ref().map(Kept::written)).await?;
        let Some(bytes) = bytes else { return Ok(None) };
        let kept = Kept::read(&bytes);
        self.asked = Some(Instant::now());
        if self.kept.as_ref().is_none_or(|had| had.is_drawn <= kept.is_drawn) {
            self.kept = Some(kept.clone());
        }
        Ok(Some(kept))
    }
}
