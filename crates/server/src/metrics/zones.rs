//! The series of the zones that are served.
//!
//! Events change numbers here. At each scrape the numbers of the zones that are served are written to their handles, and
//! the exporter drops every counter and gauge that was not written since the last rendering: those of the zones that
//! are no longer served. It can't do that with histograms, because a histogram can't be written to without an
//! observation. So histograms stay with the exporter, and a rendering leaves out those of zones that are not served. A zone
//! that comes back continues its histograms. They are as few as the zone names that the bus has ever had.
//!
//! Invariants: writing, rendering and making handles exclude each other, so that no handle in use is dropped; a zone that
//! is not served has no series; each counter shows a total that never falls while its zone is served.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use admission::{Mode, ZoneId};
use events::{
    AdmittedWithoutStore, Bus, Entered, Limited, LimitedCall, RefusalReason, Refused, Tallied, ZoneNumber,
};
use gate::ZoneTotals;
use metrics::{Counter, Gauge, Histogram};

use super::{
    exposition::{Exposition, zone_of},
    names::{self, Family},
    registry::Registry,
};
use crate::told_waits::ToldWaits;

const LIMITED: [(LimitedCall, &str); 2] = LimitedCall::ALL;

/// Reads a counter of told waits.
type ToldTotal = fn(&ToldWaits) -> u64;

/// The counters of told waits. Times are in whole seconds.
const TOLD: [(Family, ToldTotal); 6] = [
    (names::ZONE_TOLD_PEOPLE, |told| told.people),
    (names::ZONE_TOLD_IN_RANGE, |told| told.in_range),
    (names::ZONE_TOLD_WAITED, |told| told.waited_ms / 1_000),
    (names::ZONE_TOLD_TOO_SHORT, |told| told.too_short_ms / 1_000),
    (names::ZONE_TOLD_TOO_LONG, |told| told.too_long_ms / 1_000),
    (names::ZONE_TOLD_RANGE, |told| told.range_ms / 1_000),
];

/// All zones that are served, and their series.
pub(super) struct Zones {
    registry: Registry,
    served: HashMap<ZoneNumber, ZoneSeries>,
}

/// One zone's numbers, and the handles that they are written to.
struct ZoneSeries {
    name: ZoneId,
    /// The totals that the store last reported.
    last: Option<ZoneTotals>,
    totals: Totals,
    handles: Handles,
    wait: Histogram,
    wait_error: Histogram,
}

/// What the counters show.
#[derive(Default)]
struct Totals {
    joined: u64,
    entered: u64,
    evicted: u64,
    slots_offered: u64,
    slots_used: u64,
    admitted_without_store: u64,
    full: u64,
    limited: [u64; LIMITED.len()],
    told: ToldWaits,
}

struct Handles {
    waiting: Gauge,
    present: Gauge,
    rate: Gauge,
    inside: Gauge,
    max_active: Gauge,
    modes: [Gauge; Mode::ALL.len()],
    view_age: Gauge,
    joined: Counter,
    entered: Counter,
    evicted: Counter,
    slots_offered: Counter,
    slots_used: Counter,
    admitted_without_store: Counter,
    full: Counter,
    limited: [Counter; LIMITED.len()],
    told: [Counter; TOLD.len()],
}

impl Zones {
    pub(super) fn new() -> Self {
        Self { registry: Registry::forgetting(names::OF_ZONES), served: HashMap::new() }
    }

    /// Whether `zone` has series.
    pub(super) fn has(&self, zone: ZoneNumber) -> bool {
        self.served.contains_key(&zone)
    }

    /// The name of a zone that has series.
    pub(super) fn name(&self, zone: ZoneNumber) -> Option<&ZoneId> {
        Some(&self.served.get(&zone)?.name)
    }

    /// From now on exactly these zones have series.
    pub(super) fn keep(&mut self, shown: &[ZoneTotals], bus: &Bus) {
        let still: HashSet<ZoneNumber> = shown.iter().map(|shown| shown.tallied.zone).collect();
        let before = self.served.len();
        self.served.retain(|zone, _| still.contains(zone));
        if self.served.len() < before {
            // The exporter drops series while it renders. Now is the time for it: a zone of the same name that comes back
            // before the next scrape must not get the old counters.
            self.write();
            self.registry.render();
        }
        for shown in shown {
            let series = match self.served.entry(shown.tallied.zone) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    // The bus has names for a limited number of zones only.
                    let Some(name) = bus.zone_id(shown.tallied.zone) else { continue };
                    place.insert(ZoneSeries::new(&self.registry, name))
                }
            };
            series.show(shown);
        }
    }

    pub(super) fn show(&mut self, shown: &ZoneTotals) {
        if let Some(series) = self.served.get_mut(&shown.tallied.zone) {
            series.show(shown);
        }
    }

    pub(super) fn entered(&mut self, entered: Entered) {
        if let Some(series) = self.served.get_mut(&entered.zone) {
            series.totals.told.add(&entered);
            let waited_s = f64::from(entered.waited_ms) / 1_000.0;
            series.wait.record(waited_s);
            if entered.told_s > 0 {
                series.wait_error.record(waited_s / f64::from(entered.told_s));
            }
        }
    }

    pub(super) fn admitted_without_store(&mut self, admitted: AdmittedWithoutStore) {
        if let Some(series) = self.served.get_mut(&admitted.zone) {
            // Events of several threads are in no order.
            let total = &mut series.totals.admitted_without_store;
            *total = admitted.total.max(*total);
        }
    }

    pub(super) fn refused(&mut self, refused: Refused) {
        if refused.why == RefusalReason::Full
            && let Some(series) = self.served.get_mut(&refused.zone)
        {
            series.totals.full += u64::from(refused.count);
        }
    }

    pub(super) fn limited(&mut self, limited: Limited) {
        if let Some(series) = self.served.get_mut(&limited.zone) {
            let at = LIMITED.iter().position(|(call, _)| *call == limited.call);
            series.totals.limited[at.expect("both are in the list")] += u64::from(limited.count);
        }
    }

    /// Adds all series to `exposition`.
    pub(super) fn render(&self, exposition: &mut Exposition) {
        self.write();
        let served: HashSet<&str> = self.served.values().map(|series| series.name.as_str()).collect();
        let is_served = |line: &str| zone_of(line).is_some_and(|zone| served.contains(zone));
        exposition.add_rendered(&self.registry.render(), is_served);
    }

    pub(super) fn run_upkeep(&self) {
        self.registry.run_upkeep();
    }

    fn write(&self) {
        self.served.values().for_each(ZoneSeries::write);
    }
}

impl ZoneSeries {
    fn new(registry: &Registry, name: ZoneId) -> Self {
        let zone = [("zone", name.as_str())];
        let histogram = |family| registry.histogram(family, &zone);
        Self {
            last: None,
            totals: Totals::default(),
            handles: Handles::new(registry, name.as_str()),
            wait: histogram(names::ZONE_WAIT),
            wait_error: histogram(names::ZONE_WAIT_ERROR),
            name,
        }
    }

    fn show(&mut self, shown: &ZoneTotals) {
        let now = &shown.tallied;
        let old = self.last.as_ref().map(|last| &last.tallied);
        let add = |shown: &mut u64, total: fn(&Tallied) -> u64| {
            let (new, old) = (total(now), old.map_or(0, total));
            // A total below the last one is that of a store that lost its data and started again, so all of it is new.
            *shown += if new < old { new } else { new - old };
        };
        let totals = &mut self.totals;
        add(&mut totals.joined, |tallied| tallied.joined);
        add(&mut totals.entered, |tallied| tallied.entered);
        add(&mut totals.evicted, |tallied| tallied.evicted);
        add(&mut totals.slots_offered, |tallied| tallied.slots_offered);
        add(&mut totals.slots_used, |tallied| tallied.slots_used);
        self.last = Some(shown.clone());
    }

    /// Writes to every counter and gauge, also where nothing changed.
    fn write(&self) {
        let Self { last, totals, handles, .. } = self;
        let last = last.as_ref();
        let number = |of: fn(&Tallied) -> u32| last.map_or(0, |shown| of(&shown.tallied));
        handles.waiting.set(number(|tallied| tallied.waiting));
        handles.present.set(number(|tallied| tallied.present));
        handles.rate.set(number(|tallied| tallied.admit_per_minute));
        let people = last.and_then(|shown| shown.occupancy);
        handles.inside.set(people.map_or(0.0, |people| people.most as f64));
        handles.max_active.set(people.map_or(0, |people| people.max_active));
        for (gauge, (mode, _)) in handles.modes.iter().zip(Mode::ALL) {
            gauge.set(f64::from(last.is_some_and(|shown| shown.mode == mode)));
        }
        handles.view_age.set(last.map_or(0.0, |shown| shown.at.elapsed().as_secs_f64()));
        handles.joined.absolute(totals.joined);
        handles.entered.absolute(totals.entered);
        handles.evicted.absolute(totals.evicted);
        handles.slots_offered.absolute(totals.slots_offered);
        handles.slots_used.absolute(totals.slots_used);
        handles.admitted_without_store.absolute(totals.admitted_without_store);
        handles.full.absolute(totals.full);
        for (counter, total) in handles.limited.iter().zip(totals.limited) {
            counter.absolute(total);
        }
        for (counter, (_, total)) in handles.told.iter().zip(TOLD) {
            counter.absolute(total(&totals.told));
        }
    }
}

impl Handles {
    fn new(registry: &Registry, zone: &str) -> Self {
        let gauge = |family| registry.gauge(family, &[("zone", zone)]);
        let mode = |(_, word)| registry.gauge(names::ZONE_MODE, &[("mode", word), ("zone", zone)]);
        let counter = |family| registry.counter(family, &[("zone", zone)]);
        let limited = |(_, route)| registry.counter(names::ZONE_LIMITED, &[("route", route), ("zone", zone)]);
        Self {
            waiting: gauge(names::ZONE_WAITING),
            present: gauge(names::ZONE_PRESENT),
            rate: gauge(names::ZONE_RATE),
            inside: gauge(names::ZONE_INSIDE),
            max_active: gauge(names::ZONE_MAX_ACTIVE),
            modes: Mode::ALL.map(mode),
            view_age: gauge(names::ZONE_VIEW_AGE),
            joined: counter(names::ZONE_JOINED),
            entered: counter(names::ZONE_ENTERED),
            evicted: counter(names::ZONE_EVICTED),
            slots_offered: counter(names::ZONE_SLOTS_OFFERED),
            slots_used: counter(names::ZONE_SLOTS_USED),
            admitted_without_store: counter(names::ZONE_ADMITTED_WITHOUT_STORE),
            full: counter(names::ZONE_FULL),
            limited: LIMITED.map(limited),
            told: TOLD.map(|(family, _)| counter(family)),
        }
    }
}
