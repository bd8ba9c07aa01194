//! Statistics of the last hours for operators: each zone's line by minute, and the waits of the people that this server
//! admitted.
//!
//! Totals are read from the gate once a second; waits come from the bus. The store keeps the minutes for 400 days, and a server that starts
//! reads the last hours back (`keeper`).
//!
//! Invariants: a served zone has at most [`MINUTES`] minutes, another zone has none. A total that decreased belongs to a store that started
//! again, and counts from 0. What happened before a server first saw a zone is in no minute, unless the store kept totals of before.

mod keeper;
mod last_hour;
mod minute_waits;
mod minutes;
mod record;
mod waits;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admission::{Stock, Totals, ZoneId};
use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription, Tallied, ZoneNumber};
use gate::{Gate, ZoneTotals};
use store::{Store, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::{clock::unix_ms, stock::Stocks, told_waits::ToldWaits};

use keeper::Unsent;
pub use minute_waits::MinuteWaits;
pub use minutes::{LastMinute, Minute};
use record::MinuteCounts;
pub use record::PiecesLeft;
pub use waits::{Ratio, Waits};

/// The most minutes that are kept for a zone: six hours.
pub const MINUTES: usize = 360;

/// How often the totals are read.
const EVERY: Duration = Duration::from_secs(1);

/// How long entries collect before they are taken. A thread's ring holds that many at 80,000 entries per second.
const GATHER: Duration = Duration::from_millis(50);

const KINDS: Kinds = Kinds::of(&[Kind::Entered]);

/// The statistics of all served zones.
pub struct Stats {
    zones: Mutex<HashMap<ZoneNumber, OfZone>>,
    /// Tells what this process offers to the stores from what others offer.
    server: u64,
}

struct OfZone {
    /// Its name, once its totals are known.
    id: Option<ZoneId>,
    /// The totals of the first view that this server had of it.
    first: Totals,
    minutes: minutes::Minutes,
    /// The entries of the current minute.
    of_minute: Option<minute_waits::OfMinute>,
    /// What is left now, and what was left at the end of the minute before.
    left: [PiecesLeft; 2],
    unsent: Unsent,
    here: waits::HereMeter,
    last_hour: last_hour::LastHour,
}

/// The waits of the people that this server admitted to a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Here {
    /// The start of the count, in milliseconds since 1970.
    pub since_ms: u64,
    /// Their waits.
    pub waits: Waits,
    /// The waits divided by the waits told first. People who entered at once were told none.
    pub told: Ratio,
    /// The told waits of those who entered in the last hour.
    pub last_hour: ToldWaits,
}

/// A minute of a zone, with what all its servers know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PastMinute {
    /// What happened.
    pub minute: Minute,
    /// The waits of those who entered.
    pub waits: MinuteWaits,
    /// What was left at its end; empty if nobody was told.
    pub left: PiecesLeft,
}

impl Stats {
    /// Statistics without zones.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { zones: Mutex::default(), server: RandomState::new().hash_one(0) })
    }

    /// Subscribes to the events for [`Stats::follow`]. Call it before any event is published.
    ///
    /// # Errors
    /// [`SubscribeError::TooMany`].
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("stats", Scope::Private, KINDS)
    }

    /// Follows the gate and the bus until the bus ends.
    pub async fn follow<S: Store>(
        self: Arc<Self>,
        mut subscription: Subscription,
        gate: Arc<Gate<S>>,
        stocks: Arc<Stocks>,
    ) {
        let read_totals = async {
            let mut steps = interval(EVERY);
            steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut is_told = false;
            loop {
                steps.tick().await;
                let totals = gate.totals();
                self.take_totals(&totals, unix_ms(), |zone| {
                    stocks.load().get(zone).map(|known| left_of(&known.stock))
                });
                if !is_told && !totals.is_empty() && totals.iter().all(|shown| shown.known) {
                    is_told = true;
                    say_who_waits(&totals);
                }
            }
        };
        let read_events = async {
            while let Some(batch) = subscription.next().await {
                self.take_events(batch.events);
                sleep(GATHER).await;
                while let Some(batch) = subscription.try_next() {
                    self.take_events(batch.events);
                }
            }
        };
        tokio::select! {
            () = read_totals => {}
            () = read_events => {}
            () = self.keep(&gate) => {}
        }
    }

    /// Takes in the totals of the served zones at `unix_ms`, and what is left in them.
    fn take_totals(&self, served: &[ZoneTotals], unix_ms: u64, left: impl Fn(&ZoneId) -> Option<PiecesLeft>) {
        let mut zones = self.zones();
        let still: HashSet<ZoneNumber> = served.iter().map(|shown| shown.tallied.zone).collect();
        zones.retain(|zone, _| still.contains(zone));
        for shown in served.iter().filter(|shown| shown.known) {
            let of_zone = zones.entry(shown.tallied.zone).or_insert_with(|| OfZone::new(unix_ms));
            of_zone.take(shown, unix_ms / 1_000, &left);
        }
    }

    fn take_events(&self, events: &[Event]) {
        let (mut zones, now) = (self.zones(), Instant::now());
        for event in events {
            if let Event::Entered(entered) = event {
                let of_zone = zones.entry(entered.zone).or_insert_with(|| OfZone::new(unix_ms()));
                of_zone.here.note(entered.waited_ms, entered.told_s);
                of_zone.last_hour.note(entered, now);
                of_zone.of_minute.get_or_insert_with(minute_waits::OfMinute::new).note(entered);
            }
        }
    }

    /// The last `count` minutes of a zone, oldest first. The last one is the current minute.
    #[must_use]
    pub fn minutes(&self, zone: ZoneNumber, count: usize) -> Vec<Minute> {
        self.zones().get(&zone).map_or_else(Vec::new, |of_zone| of_zone.minutes.last(count))
    }

    /// The minutes of a zone from minute `from` on and before `to` (minutes since 1970), as its store keeps them, and those that this
    /// server has not offered yet. The oldest first.
    ///
    /// # Errors
    /// The store does not answer, or the zone is not served.
    pub async fn kept<S: Store>(
        &self,
        gate: &Gate<S>,
        (id, zone): (&ZoneId, ZoneNumber),
        (from, to): (u32, u32),
    ) -> Result<Vec<PastMinute>, StoreError> {
        // What happened in the first minute is told by the one before it.
        let kept = keeper::read_kept(gate, id, from.saturating_sub(1), to).await?;
        let mut all: BTreeMap<u64, _> = kept.into_iter().map(|kept| (kept.0.minute.at_s, kept)).collect();
        if let Some(of_zone) = self.zones().get(&zone) {
            let current = of_zone.current().filter(|_| of_zone.unsent.is_read_back());
            for (counted, waits) in of_zone.unsent.known().cloned().chain(current) {
                let (known, parts) =
                    all.entry(counted.minute.at_s).or_insert_with(|| (counted.clone(), Vec::new()));
                if counted.is_later_than(known) {
                    *known = counted;
                }
                parts.retain(|(server, _)| *server != self.server);
                parts.push((self.server, waits));
            }
        }
        let (mut minutes, mut before) = (Vec::with_capacity(all.len()), None);
        for (at_s, (counted, parts)) in &all {
            let minute = counted.since(before);
            before = Some(counted);
            if (u64::from(from)..u64::from(to)).contains(&(at_s / 60)) {
                let waits = parts.iter().fold(MinuteWaits::default(), |sum, (_, waits)| sum.with(waits));
                minutes.push(PastMinute { minute, waits, left: counted.left.clone() });
            }
        }
        Ok(minutes)
    }

    /// The entries of a zone in the last 60 s.
    #[must_use]
    pub fn last_minute(&self, zone: ZoneNumber) -> LastMinute {
        let zones = self.zones();
        zones
            .get(&zone)
            .map_or_else(LastMinute::default, |of_zone| of_zone.minutes.last_minute(Instant::now()))
    }

    /// The waits of the people that this server admitted to a zone.
    #[must_use]
    pub fn here(&self, zone: ZoneNumber) -> Here {
        let read = |of_zone: &OfZone| of_zone.here.read(of_zone.last_hour.read(Instant::now()));
        self.zones().get(&zone).map_or_else(|| read(&OfZone::new(unix_ms())), &read)
    }

    fn zones(&self) -> MutexGuard<'_, HashMap<ZoneNumber, OfZone>> {
        // A panic leaves at most one count incomplete, which does no harm.
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs whom the store knew when this server started.
fn say_who_waits(totals: &[ZoneTotals]) {
    let people =
        |of: fn(&Tallied) -> u32| totals.iter().map(|shown| u64::from(of(&shown.tallied))).sum::<u64>();
    tracing::info!(
        zones = totals.len(),
        waiting = people(|tallied| tallied.waiting),
        present = people(|tallied| tallied.present),
        "the store has these zones, with these people in line; those who go on polling keep their places"
    );
}

impl OfZone {
    fn new(unix_ms: u64) -> Self {
        Self {
            id: None,
            first: Totals::default(),
            of_minute: None,
            left: [PiecesLeft::new(), PiecesLeft::new()],
            unsent: Unsent::default(),
            minutes: minutes::Minutes::default(),
            here: waits::HereMeter::new(unix_ms),
            last_hour: last_hour::LastHour::new(Instant::now()),
        }
    }

    /// Takes in the totals and what is left now. If a minute is over in which anything happened, it is to be offered.
    fn take(&mut self, shown: &ZoneTotals, unix_s: u64, left: impl Fn(&ZoneId) -> Option<PiecesLeft>) {
        if self.id.is_none() {
            (self.id, self.first) = (Some(shown.zone.clone()), Totals::from(&shown.first));
        }
        let at = (shown.store_ms, shown.at);
        if let Some(over) = self.minutes.take(&shown.tallied, &shown.first, unix_s, at) {
            if let Some((counted, waits)) = self.counted(over) {
                self.left[1].clone_from(&counted.left);
                self.unsent.push(counted, waits);
            }
            self.of_minute = None;
        }
        self.left[0] = left(&shown.zone).unwrap_or_default();
    }

    /// The minute that is not over, if anything happened in it.
    fn current(&self) -> Option<(MinuteCounts, MinuteWaits)> {
        self.counted(self.minutes.current()?)
    }

    /// A minute with the waits and the pieces of now, if anything happened in it.
    fn counted(&self, (minute, totals): (Minute, Totals)) -> Option<(MinuteCounts, MinuteWaits)> {
        let waits = self.of_minute.as_ref().map(minute_waits::OfMinute::read).unwrap_or_default();
        let [left, left_before] = &self.left;
        let has_anything = minute.has_anything() || waits.people > 0 || left != left_before;
        has_anything.then(|| (MinuteCounts { minute, totals, left: left.clone() }, waits))
    }
}

/// How many pieces of each tier are left.
fn left_of(stock: &Stock) -> PiecesLeft {
    stock.tiers().iter().map(|tier| (tier.id.clone(), tier.remaining)).collect()
}

#[cfg(test)]
mod tests {
    use admission::Tally;
    use events::Entered;

    use super::*;

    fn shown(zone: ZoneNumber, entered: u64) -> ZoneTotals {
        // What was before the first total is known to nobody.
        let first = Tally { joined: entered + 5, entered, slots_used: entered, ..Tally::default() };
        let id = ZoneId::parse("Z").expect("a name");
        let tallied = Tallied {
            zone,
            admit_per_minute: 60,
            waiting: 5,
            present: 4,
            joined: entered + 5,
            entered,
            evicted: 0,
            slots_offered: entered,
            slots_used: entered,
        };
        let (at, mode) = (Instant::now(), admission::Mode::Auto);
        ZoneTotals {
            zone: id,
            first,
            tallied,
            at,
            store_ms: 1_000 + entered,
            mode,
            known: true,
            occupancy: None,
        }
    }

    #[test]
    fn zones_appear_and_disappear_with_their_figures() {
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let zone = |name| bus.zone(&ZoneId::parse(name).expect("a name"));
        let (a, b) = (zone("A"), zone("B"));
        let stats = Stats::new();
        stats.take_totals(&[shown(a, 100), ZoneTotals { known: false, ..shown(b, 0) }], 60_000, |_| None);
        stats.take_totals(&[shown(a, 107), shown(b, 900)], 61_000, |_| None);
        stats.take_events(&[
            Entered { zone: a, waited_ms: 2_000, told_s: 1, told_low_s: 1, told_high_s: 2, at_ms: 0 }.into(),
            Entered { zone: a, waited_ms: 0, told_s: 0, told_low_s: 0, told_high_s: 0, at_ms: 0 }.into(),
        ]);
        let [minute] = stats.minutes(a, MINUTES)[..] else { panic!("one minute") };
        assert_eq!(
            (minute.at_s, minute.entered, minute.waiting),
            (60, 7, 5),
            "earlier entries are in no minute"
        );
        assert_eq!(stats.minutes(b, MINUTES)[0].entered, 0, "the first total of a store counts no entries");
        assert_eq!(stats.last_minute(a).entered, 7);
        let here = stats.here(a);
        assert_eq!((here.waits.count, here.told.count), (2, 1));
        let last_hour = here.last_hour;
        assert_eq!((last_hour.people, last_hour.in_range, last_hour.too_short_ms), (1, 1, 1_000));
        stats.take_totals(&[shown(b, 901)], 62_000, |_| None);
        assert!(stats.minutes(a, MINUTES).is_empty() && stats.here(a).waits.count == 0, "not served");
        assert_eq!(stats.minutes(b, MINUTES)[0].entered, 1);
    }
}
