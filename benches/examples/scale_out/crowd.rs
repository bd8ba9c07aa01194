//! The crowd behind a gate: the store of one gate, which adds to its beats the polls of the people behind the front.
//!
//! The gates are real. A poll from behind the front costs the store nothing but its bit in the next beat, and 60 million people
//! make more polls than one machine can answer. So their bits are made here. Invariant: each ticket behind the front is
//! reported by one gate of all every [`PERIOD_S`] seconds, in its second, however late the beats are.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admission::{
    Claim, Decided, Departure, JoinKey, Leaver, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, Snapshot,
    Ticket, ZoneId,
};
use store::{
    JoinedOnce, LeftVisits, Line, RegisterContents, Store, StoreError,
    redis::{Redis, RedisLine},
};
use tokio::time::Instant;

/// The polling period of the people, in seconds: the default of a zone.
pub(crate) const PERIOD_S: u64 = 3;

const PAGE: u64 = PAGE_TICKETS as u64;

/// What one gate's beats brought.
#[derive(Clone, Default)]
pub(crate) struct Beats {
    /// How long each one took.
    pub(crate) took: Vec<Duration>,
    pub(crate) failed: u32,
    /// The polls that were reported for the people behind the front.
    pub(crate) polls: u64,
    /// The epoch, the front's end and the line's end of the last view.
    pub(crate) epoch: u32,
    pub(crate) front_end: u64,
    pub(crate) next: u64,
    /// The part of the people in line who counted as present in the last view.
    pub(crate) present: f64,
    /// The second up to which the polls are reported.
    second: u64,
}

/// The beats of one gate, as the example reads them.
#[derive(Clone, Default)]
pub(crate) struct Ear(Arc<Mutex<Beats>>);

impl Ear {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Beats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the beats brought since the last call of this function.
    pub(crate) fn take(&self) -> Beats {
        let mut beats = self.lock();
        let (took, failed, polls) = (Vec::new(), 0, 0);
        let kept = Beats { took, failed, polls, ..*beats };
        std::mem::replace(&mut *beats, kept)
    }
}

/// The store of one gate.
pub(crate) struct Crowd {
    pub(crate) redis: Arc<Redis>,
    pub(crate) ear: Ear,
    /// The number of this gate, and of all.
    pub(crate) gate: u64,
    pub(crate) gates: u64,
    /// When the first second began, for all gates.
    pub(crate) from: Instant,
}

impl Crowd {
    /// The polls of the people behind the front since the last beat.
    fn polls(&self) -> Vec<PagePolls> {
        let mut beats = self.ear.lock();
        let now = self.from.elapsed().as_secs();
        let last = std::mem::replace(&mut beats.second, now).max(now.saturating_sub(PERIOD_S));
        let (begin, end) = (beats.front_end, beats.next);
        if last == now || begin >= end {
            return Vec::new();
        }
        let first = begin / PAGE;
        let empty = |page| PagePolls { page, words: Box::new([0; PAGE_WORDS]) };
        let mut pages: Vec<PagePolls> = (first..end.div_ceil(PAGE)).map(empty).collect();
        let turns = PERIOD_S * self.gates;
        for second in last..now {
            let turn = (second % PERIOD_S) * self.gates + self.gate;
            let mut seq = begin + (turn + turns - begin % turns) % turns;
            while seq < end {
                let page = usize::try_from(seq / PAGE - first).expect("as many as there are pages");
                pages[page].words[(seq % PAGE / 64) as usize] |= 1 << (seq % 64);
                beats.polls += 1;
                seq += turns;
            }
        }
        pages
    }
}

/// Adds the polls of one report to another one, whose pages are consecutive.
fn merge(into: &mut Vec<PagePolls>, from: Vec<PagePolls>) {
    for page in from {
        match into.iter_mut().find(|known| known.page == page.page) {
            Some(known) => {
                known.words.iter_mut().zip(*page.words).for_each(|(word, bits)| *word |= bits);
            }
            None => into.push(page),
        }
    }
}

impl Store for Crowd {
    type Line = CrowdLine;

    async fn zones(&self) -> Result<Option<RegisterContents>, StoreError> {
        self.redis.zones().await
    }

    fn line(self: &Arc<Self>, zone: &ZoneId) -> CrowdLine {
        CrowdLine { crowd: Arc::clone(self), line: self.redis.line(zone) }
    }
}

/// The line of the zone.
pub(crate) struct CrowdLine {
    crowd: Arc<Crowd>,
    line: RedisLine,
}

impl Line for CrowdLine {
    async fn open(&self, policy: Policy) -> Result<Snapshot, StoreError> {
        self.line.open(policy).await
    }

    async fn put(&self, policy: Policy) -> Result<Snapshot, StoreError> {
        self.line.put(policy).await
    }

    async fn join_once(&self, keys: Vec<Option<JoinKey>>) -> Result<JoinedOnce, StoreError> {
        self.line.join_once(keys).await
    }

    async fn joined_before(&self, keys: Vec<JoinKey>) -> Result<Vec<Option<Ticket>>, StoreError> {
        self.line.joined_before(keys).await
    }

    async fn enter(&self, claims: Vec<Claim>) -> Result<Decided, StoreError> {
        self.line.enter(claims).await
    }

    async fn beat(&self, polls: Vec<PagePolls>, longest_period_ms: u32) -> Result<Snapshot, StoreError> {
        let mut all = self.crowd.polls();
        merge(&mut all, polls);
        let asked = Instant::now();
        let beat = self.line.beat(all, longest_period_ms).await;
        let mut beats = self.crowd.ear.lock();
        match &beat {
            Ok(snapshot) => {
                beats.took.push(asked.elapsed());
                (beats.epoch, beats.front_end, beats.next) =
                    (snapshot.epoch, snapshot.front_end.max(snapshot.base), snapshot.next);
                beats.present = snapshot.tally.present as f64 / snapshot.tally.waiting.max(1) as f64;
            }
            Err(_) => beats.failed += 1,
        }
        beat
    }

    async fn visits(&self, seen: Vec<PagePolls>) -> Result<LeftVisits, StoreError> {
        self.line.visits(seen).await
    }

    async fn leave(&self, leavers: Vec<Leaver>) -> Result<Vec<Departure>, StoreError> {
        self.line.leave(leavers).await
    }

    async fn bind(&self, claim: Claim, address: u64) -> Result<u64, StoreError> {
        self.line.bind(claim, address).await
    }

    async fn exchange_learned(&self, new: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        self.line.exchange_learned(new).await
    }
}
