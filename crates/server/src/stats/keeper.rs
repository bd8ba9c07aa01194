//! The minutes of the zones that this server offers to their store, and those that it reads back.
//!
//! A zone's finished minutes are offered once a minute, at a second that differs by zone and server, so that the calls are spread. What
//! fails is offered again with the next minute, up to [`UNSENT_MAX`] minutes: a store that is away costs minutes, and polls never wait for
//! it. When a zone is served for the first time, its last six hours are read back.
//!
//! Invariants: at most one call for a zone and minute, besides those of the start; at most [`AT_ONCE`] calls at the same time; nothing is
//! offered before it is known what was kept.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use admission::{Totals, ZoneId};
use events::ZoneNumber;
use gate::Gate;
use store::{
    Store, StoreError,
    minutes::{OFFERED_MAX, OfferedMinute, READ_MAX},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    MINUTES, Minute, OfZone, Stats,
    minute_waits::MinuteWaits,
    minutes::grown,
    record::{MinuteCounts, offered, read},
};
use crate::clock::unix_ms;

/// The most minutes of a zone that wait to be offered. When there are more, the oldest ones go.
pub(super) const UNSENT_MAX: usize = OFFERED_MAX;

/// The most calls at the same time.
const AT_ONCE: usize = 8;

/// How long a call may take.
const STORE_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often reading back is tried, a second apart. After that, the server goes on with what it sees itself.
const TRIES: u8 = 30;

/// The seconds of a minute over which the calls are spread.
const SPREAD_S: u64 = 50;

/// What a zone has for its store.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// Finished minutes, the oldest first.
    minutes: VecDeque<(MinuteCounts, MinuteWaits)>,
    read_back: ReadBack,
    /// The end of the newest minute that was offered, whether or not that succeeded.
    tried_s: u64,
}

/// Whether it is known what was kept of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadBack {
    /// Not yet, after so many tries.
    Due(u8),
    /// Nothing was kept. The totals with which this server begins are offered first, so that a process that follows a killed one knows
    /// what happened in between.
    Begins,
    /// It is, or the server goes on without it.
    Over,
}

impl Default for ReadBack {
    fn default() -> Self {
        Self::Due(0)
    }
}

impl Unsent {
    /// Adds a minute that is over.
    pub(super) fn push(&mut self, counted: MinuteCounts, waits: MinuteWaits) {
        if self.minutes.len() == UNSENT_MAX {
            self.minutes.pop_front();
        }
        self.minutes.push_back((counted, waits));
    }

    /// The minutes that the store does not have yet, as far as this server knows; none before it is known what was kept.
    pub(super) fn known(&self) -> impl Iterator<Item = &(MinuteCounts, MinuteWaits)> {
        self.minutes.iter().filter(|_| self.is_read_back())
    }

    /// Whether it is known what was kept.
    pub(super) fn is_read_back(&self) -> bool {
        self.read_back == ReadBack::Over
    }

    /// What is to be offered now; nothing if it is not the zone's second, or it was tried since the newest minute ended.
    fn due(&mut self, now_s: u64, second: u64) -> Option<Vec<OfferedMinute>> {
        let end_s = self.minutes.back()?.0.minute.at_s + 60;
        match self.read_back {
            ReadBack::Begins => {}
            ReadBack::Over if self.tried_s < end_s && now_s >= end_s + second => {}
            _ => return None,
        }
        self.tried_s = end_s;
        Some(self.minutes.iter().map(|(counted, waits)| offered(counted, waits)).collect())
    }

    /// The store has the minutes up to this one, in minutes since 1970.
    fn sent(&mut self, last: u32) {
        self.minutes.retain(|(counted, _)| counted.minute.at_s / 60 > u64::from(last));
    }
}

/// What a call is about.
enum Done {
    Offered(ZoneNumber, Option<u32>),
    ReadBack(ZoneNumber, Result<Vec<MinuteCounts>, StoreError>),
}

impl Stats {
    /// Offers minutes to the stores and reads them back, for ever.
    pub(super) async fn keep<S: Store>(&self, gate: &Arc<Gate<S>>) {
        let mut steps = interval(Duration::from_secs(1));
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let spread = RandomState::new();
        loop {
            steps.tick().await;
            self.keep_what_is_due(gate, unix_ms() / 1_000, |zone| spread.hash_one(zone) % SPREAD_S).await;
        }
    }

    /// Offers what all zones have, also of the minute that is not over: the server stops.
    pub async fn finish<S: Store>(&self, gate: &Arc<Gate<S>>) {
        for of_zone in self.zones().values_mut() {
            if let Some((counted, waits)) = of_zone.current() {
                of_zone.unsent.push(counted, waits);
            }
        }
        self.keep_what_is_due(gate, u64::MAX, |_| 0).await;
    }

    async fn keep_what_is_due<S: Store>(
        &self,
        gate: &Arc<Gate<S>>,
        now_s: u64,
        second_of: impl Fn(&ZoneId) -> u64,
    ) {
        let mut calls = JoinSet::new();
        for (zone, id, first) in self.to_read() {
            self.await_calls(&mut calls, AT_ONCE).await;
            let gate = Arc::clone(gate);
            calls.spawn(async move { Done::ReadBack(zone, read_back(&gate, &id, first).await) });
        }
        self.await_calls(&mut calls, 1).await;
        for (zone, id, offered) in self.to_offer(now_s, second_of) {
            self.await_calls(&mut calls, AT_ONCE).await;
            let (gate, server) = (Arc::clone(gate), self.server);
            calls.spawn(async move {
                let last = offered.last().map(|offered| offered.minute);
                let kept = timeout(STORE_CALL_TIMEOUT, gate.keep_minutes(&id, server, offered)).await;
                Done::Offered(zone, last.filter(|_| matches!(kept, Ok(Ok(())))))
            });
        }
        self.await_calls(&mut calls, 1).await;
    }

    /// The zones of which it is not known what was kept, with the first minute that this server saw.
    fn to_read(&self) -> Vec<(ZoneNumber, ZoneId, Minute)> {
        let zones = self.zones();
        let due = zones.iter().filter(|(_, of_zone)| matches!(of_zone.unsent.read_back, ReadBack::Due(_)));
        due.filter_map(|(zone, of_zone)| Some((*zone, of_zone.id.clone()?, of_zone.minutes.first()?)))
            .collect()
    }

    fn to_offer(
        &self,
        now_s: u64,
        second_of: impl Fn(&ZoneId) -> u64,
    ) -> Vec<(ZoneNumber, ZoneId, Vec<OfferedMinute>)> {
        let due = |(zone, of_zone): (&ZoneNumber, &mut OfZone)| {
            let id = of_zone.id.clone()?;
            let offered = of_zone.unsent.due(now_s, second_of(&id))?;
            Some((*zone, id, offered))
        };
        self.zones().iter_mut().filter_map(due).collect()
    }

    /// Takes in what calls came to, until fewer than `fewer_than` are left.
    async fn await_calls(&self, calls: &mut JoinSet<Done>, fewer_than: usize) {
        while calls.len() >= fewer_than {
            let done = calls.join_next().await;
            done.into_iter().flatten().for_each(|done| self.take_done(done));
        }
    }

    fn take_done(&self, done: Done) {
        let mut zones = self.zones();
        match done {
            Done::Offered(zone, last) => {
                let Some(of_zone) = zones.get_mut(&zone) else { return };
                of_zone.unsent.read_back = ReadBack::Over;
                if let Some(last) = last {
                    of_zone.unsent.sent(last);
                }
            }
            Done::ReadBack(zone, kept) => {
                if let Some(of_zone) = zones.get_mut(&zone) {
                    of_zone.take_back(kept);
                }
            }
        }
    }
}

impl OfZone {
    /// Takes in what was kept of the hours before this server served the zone.
    fn take_back(&mut self, kept: Result<Vec<MinuteCounts>, StoreError>) {
        let (ReadBack::Due(tries), Some(first)) = (self.unsent.read_back, self.minutes.first()) else {
            return;
        };
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) if tries + 1 >= TRIES => {
                let zone = self.id.as_ref().map(ZoneId::as_str).unwrap_or_default();
                tracing::warn!(zone, %error, "the statistics of the last hours cannot be read back; they begin now");
                self.unsent.read_back = ReadBack::Over;
                return;
            }
            Err(_) => {
                self.unsent.read_back = ReadBack::Due(tries + 1);
                return;
            }
        };
        self.unsent.read_back = ReadBack::Over;
        let more = kept.last().map(|last| self.since(last, first.at_s)).unwrap_or_default();
        let mut earlier: Vec<Minute> = Vec::with_capacity(kept.len());
        let mut before = None;
        for counted in &kept {
            earlier.push(counted.since(before));
            before = Some(counted);
        }
        self.minutes.put_before(&earlier, more);
        if let Some((counted, _)) =
            self.unsent.minutes.front_mut().filter(|(counted, _)| counted.minute.at_s == first.at_s)
        {
            counted.minute = counted.minute.with(more);
        }
        if kept.is_empty() {
            self.unsent.minutes.push_front((self.begun(first), MinuteWaits::default()));
            self.unsent.minutes.truncate(UNSENT_MAX);
            self.unsent.read_back = ReadBack::Begins;
        }
    }

    /// What happened between a kept minute and the first view of this server. If it is the minute in which this server began, another
    /// process offered it: what that one saw in it counts, too.
    fn since(&self, last: &MinuteCounts, first_s: u64) -> Totals {
        let is_first = last.minute.at_s >= first_s;
        let old = |total: u64, grown: u32| if is_first { total.saturating_sub(grown.into()) } else { total };
        Totals {
            joined: grown(self.first.joined, old(last.totals.joined, last.minute.joined)),
            entered: grown(self.first.entered, old(last.totals.entered, last.minute.entered)),
            evicted: grown(self.first.evicted, old(last.totals.evicted, last.minute.evicted)),
            slots_used: grown(self.first.slots_used, old(last.totals.slots_used, last.minute.slots_used)),
        }
    }

    /// The minute before the first one, with the totals of this server's first view: nothing happened in it.
    fn begun(&self, first: Minute) -> MinuteCounts {
        let minute = Minute { at_s: first.at_s - 60, ..Minute::default() };
        MinuteCounts { minute, totals: self.first, left: Vec::new() }
    }
}

/// What was kept of the hours up to a minute, and of that one, in their order.
async fn read_back<S: Store>(
    gate: &Gate<S>,
    zone: &ZoneId,
    first: Minute,
) -> Result<Vec<MinuteCounts>, StoreError> {
    let end = u32::try_from(first.at_s / 60).unwrap_or(u32::MAX - 1) + 1;
    let from = end.saturating_sub(u32::try_from(MINUTES).expect("a few hundred") + 1);
    let kept = read_kept(gate, zone, from, end).await?;
    Ok(kept.into_iter().map(|(counted, _)| counted).collect())
}

/// What is kept from minute `from` on and before `to`, in minutes since 1970, with the waits that each server knows.
pub(super) async fn read_kept<S: Store>(
    gate: &Gate<S>,
    zone: &ZoneId,
    from: u32,
    to: u32,
) -> Result<Vec<(MinuteCounts, Vec<(u64, MinuteWaits)>)>, StoreError> {
    let mut all = Vec::new();
    let mut at = from;
    while at < to {
        let end = to.min(at.saturating_add(READ_MAX));
        let kept = timeout(STORE_CALL_TIMEOUT, gate.minutes(zone, at, end)).await;
        let kept = kept.unwrap_or_else(|_| Err(StoreError::Away("it did not answer in time".to_owned())))?;
        all.extend(kept.iter().filter_map(read));
        at = end;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(minute: u64, joined: u64, seen: u32) -> MinuteCounts {
        let at = Minute { at_s: 60 * minute, joined: seen, ..Minute::default() };
        MinuteCounts { minute: at, totals: Totals { joined, ..Totals::default() }, left: Vec::new() }
    }

    /// A store that is away is asked once for each minute, and what waits for it has a limit.
    #[test]
    fn minutes_are_offered_once_each_and_are_bounded() {
        let mut unsent = Unsent { read_back: ReadBack::Over, ..Unsent::default() };
        for minute in 100..200 {
            unsent.push(counted(minute, minute, 1), MinuteWaits::default());
            let end_s = 60 * (minute + 1);
            assert_eq!(unsent.due(end_s + 9, 10), None, "it is not this zone's second yet");
            let offered = unsent.due(end_s + 10, 10).expect("due");
            let newest = offered.last().map(|offered| u64::from(offered.minute));
            assert_eq!((offered.len(), newest), (UNSENT_MAX.min(offered.len()), Some(minute)));
            assert_eq!(unsent.due(end_s + 50, 10), None, "once for each minute");
        }
        assert_eq!(unsent.known().count(), UNSENT_MAX, "the oldest ones are gone");
        unsent.sent(198);
        assert_eq!(unsent.known().count(), 1, "the store has the others");
    }

    /// A zone of which 30 people are in line in the server's first view, and 31 now.
    fn begun() -> OfZone {
        let mut of_zone = OfZone::new(0);
        let first = admission::Tally { joined: 30, ..admission::Tally::default() };
        let tallied = events::Tallied {
            zone: ZoneNumber::NONE,
            admit_per_minute: 60,
            waiting: 31,
            present: 31,
            joined: 31,
            entered: 0,
            evicted: 0,
            slots_offered: 0,
            slots_used: 0,
        };
        of_zone.first = Totals { joined: 30, ..Totals::default() };
        of_zone.minutes.take(&tallied, &first, 6_000, (0, tokio::time::Instant::now()));
        of_zone
    }

    #[test]
    fn what_happened_before_the_start_counts_for_the_first_minute() {
        let joined = |of_zone: &OfZone| {
            let shown = of_zone.minutes.last(MINUTES);
            shown.iter().map(|minute| (minute.at_s / 60, minute.joined)).collect::<Vec<_>>()
        };
        let mut of_zone = begun();
        of_zone.take_back(Err(StoreError::Busy));
        assert!(!of_zone.unsent.is_read_back() && joined(&of_zone) == [(100, 1)], "it is tried again");
        of_zone.take_back(Ok(vec![counted(98, 20, 20), counted(99, 25, 5)]));
        assert!(of_zone.unsent.is_read_back());
        assert_eq!(joined(&of_zone), [(98, 20), (99, 5), (100, 6)], "five came after the last kept minute");

        // Another process offered the minute in which this one began: what it saw in it counts once.
        let mut of_zone = begun();
        of_zone.take_back(Ok(vec![counted(99, 25, 25), counted(100, 28, 3)]));
        assert_eq!(joined(&of_zone), [(99, 25), (100, 6)]);

        // Nothing was kept: the totals are offered at once, so that the next process has something to go on from.
        let mut of_zone = begun();
        of_zone.take_back(Ok(Vec::new()));
        let offered = of_zone.unsent.due(0, 50).expect("at once");
        assert_eq!((offered.len(), offered[0].minute), (1, 99));
        assert_eq!(joined(&of_zone), [(100, 1)]);

        let mut of_zone = begun();
        for _ in 0..TRIES {
            of_zone.take_back(Err(StoreError::Busy));
        }
        assert!(
            of_zone.unsent.is_read_back() && joined(&of_zone) == [(100, 1)],
            "it goes on with what it sees"
        );
    }
}
