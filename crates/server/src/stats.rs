//! Statistics of the last hours for operators: each zone's line by minute, and the waits of the people that this server
//! admitted.
//!
//! Totals are read from the gate once a second; waits come from the bus. Invariants: a served zone has at most [`MINUTES`]
//! minutes, another zone has none. A total that decreased belongs to a store that started again, and counts from 0. Entries
//! before this server first saw a zone are in no minute.

mod last_hour;
mod minutes;
mod waits;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription, Tallied, Zone};
use gate::{Gate, ZoneTotals};
use store::Store;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::{clock::unix_ms, told_waits::ToldWaits};

pub use minutes::{LastMinute, Minute};
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
    zones: Mutex<HashMap<Zone, OfZone>>,
}

struct OfZone {
    minutes: minutes::Minutes,
    here: waits::Here,
    last_hour: last_hour::LastHour,
}

/// The waits of the people that this server admitted to a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Here {
    /// The start of the count, in milliseconds since 1970.
    pub since_ms: u64,
    /// Their waits.
    pub waits: Waits,
    /// The waits divided by the waits told at the join. People who entered at once were told none.
    pub told: Ratio,
    /// The told waits of those who entered in the last hour.
    pub last_hour: ToldWaits,
}

impl Stats {
    /// Statistics without zones.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { zones: Mutex::default() })
    }

    /// Subscribes to the events for [`Stats::follow`]. Call it before any event is published.
    ///
    /// # Errors
    /// [`SubscribeError::TooMany`].
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("stats", Scope::Private, KINDS)
    }

    /// Follows the gate and the bus until the bus ends.
    pub async fn follow<S: Store>(self: Arc<Self>, mut subscription: Subscription, gate: Arc<Gate<S>>) {
        let read_totals = async {
            let mut steps = interval(EVERY);
            steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut is_told = false;
            loop {
                steps.tick().await;
                let totals = gate.totals();
                self.take_totals(&totals, unix_ms());
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
        }
    }

    /// Takes in the totals of the served zones at `unix_ms`.
    fn take_totals(&self, served: &[ZoneTotals], unix_ms: u64) {
        let mut zones = self.zones();
        let still: HashSet<Zone> = served.iter().map(|shown| shown.tallied.zone).collect();
        zones.retain(|zone, _| still.contains(zone));
        for shown in served.iter().filter(|shown| shown.known) {
            let of_zone = zones.entry(shown.tallied.zone).or_insert_with(|| OfZone::new(unix_ms));
            of_zone.minutes.take(&shown.tallied, unix_ms / 1_000, (shown.store_ms, shown.at));
        }
    }

    fn take_events(&self, events: &[Event]) {
        let (mut zones, now) = (self.zones(), Instant::now());
        for event in events {
            if let Event::Entered(entered) = event {
                let of_zone = zones.entry(entered.zone).or_insert_with(|| OfZone::new(unix_ms()));
                of_zone.here.note(entered.waited_ms, entered.told_s);
                of_zone.last_hour.note(entered, now);
            }
        }
    }

    /// The last `count` minutes of a zone, oldest first. The last one is the current minute.
    #[must_use]
    pub fn minutes(&self, zone: Zone, count: usize) -> Vec<Minute> {
        self.zones().get(&zone).map_or_else(Vec::new, |of_zone| of_zone.minutes.last(count))
    }

    /// The entries of a zone in the last 60 s.
    #[must_use]
    pub fn last_minute(&self, zone: Zone) -> LastMinute {
        let zones = self.zones();
        zones
            .get(&zone)
            .map_or_else(LastMinute::default, |of_zone| of_zone.minutes.last_minute(Instant::now()))
    }

    /// The waits of the people that this server admitted to a zone.
    #[must_use]
    pub fn here(&self, zone: Zone) -> Here {
        let read = |of_zone: &OfZone| of_zone.here.read(of_zone.last_hour.read(Instant::now()));
        self.zones().get(&zone).map_or_else(|| read(&OfZone::new(unix_ms())), &read)
    }

    fn zones(&self) -> MutexGuard<'_, HashMap<Zone, OfZone>> {
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
            minutes: minutes::Minutes::default(),
            here: waits::Here::new(unix_ms),
            last_hour: last_hour::LastHour::new(Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::ZoneId;
    use events::Entered;

    use super::*;

    fn shown(zone: Zone, entered: u64) -> ZoneTotals {
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
        ZoneTotals { tallied, at, store_ms: 1_000 + entered, mode, known: true, occupancy: None }
    }

    #[test]
    fn zones_appear_and_disappear_with_their_figures() {
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let zone = |name| bus.zone(&ZoneId::parse(name).expect("a name"));
        let (a, b) = (zone("A"), zone("B"));
        let stats = Stats::new();
        stats.take_totals(&[shown(a, 100), ZoneTotals { known: false, ..shown(b, 0) }], 60_000);
        stats.take_totals(&[shown(a, 107), shown(b, 900)], 61_000);
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
        stats.take_totals(&[shown(b, 901)], 62_000);
        assert!(stats.minutes(a, MINUTES).is_empty() && stats.here(a).waits.count == 0, "not served");
        assert_eq!(stats.minutes(b, MINUTES)[0].entered, 1);
    }
}
