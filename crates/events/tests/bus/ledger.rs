//! Events that carry their publisher and number, and a ledger that checks them.

use std::{sync::Barrier, thread};

use admission::Policy;
use events::{Admitted, AdmittedEntry, Bus, Entered, Event, Evicted, Joined, Kind, ViewShown, ZoneNumber};

/// Kinds with room for a publisher and a number.
pub(crate) const MARKED: [Kind; 5] =
    [Kind::ViewShown, Kind::Joined, Kind::Entered, Kind::Evicted, Kind::Admitted];

/// A bus whose rings all have `len` slots.
pub(crate) fn bus(len: usize) -> Bus {
    Bus::with_rings(move |_| len).expect("a bus")
}

/// Publishes the `n`th event of `publisher` as one of the marked kinds.
pub(crate) fn publish(bus: &Bus, kind: Kind, publisher: u32, n: u64) {
    let zone = ZoneNumber::NONE;
    match kind {
        Kind::ViewShown => bus.publish(ViewShown { zone, epoch: publisher, at_ms: n }),
        Kind::Joined => {
            bus.publish(Joined { zone, epoch: publisher, first: n, count: 1, entered: 0, at_ms: !n });
        }
        Kind::Entered => {
            bus.publish(Entered {
                zone,
                waited_ms: publisher,
                told_s: 0,
                told_low_s: 0,
                told_high_s: 0,
                at_ms: n,
            });
        }
        Kind::Evicted => bus.publish(Evicted { zone, count: publisher, at_ms: n }),
        Kind::Admitted => bus.publish(Admitted {
            zone,
            epoch: publisher,
            entry: AdmittedEntry { seq: n, entered_unix_s: !n & 0xFFFF_FFFF, at_ms: n },
            policy: Policy::default(),
        }),
        _ => unreachable!("not one of the marked kinds"),
    }
}

/// The publisher and the number of an event.
pub(crate) fn mark(event: &Event) -> (u32, u64) {
    match *event {
        Event::ViewShown(event) => (event.epoch, event.at_ms),
        Event::Joined(event) => {
            assert_eq!(event.at_ms, !event.first, "torn");
            (event.epoch, event.first)
        }
        Event::Entered(event) => (event.waited_ms, event.at_ms),
        Event::Evicted(event) => (event.count, event.at_ms),
        Event::Admitted(event) => {
            let AdmittedEntry { seq, entered_unix_s, at_ms } = event.entry;
            assert_eq!((entered_unix_s, at_ms), (!seq & 0xFFFF_FFFF, seq), "torn");
            assert_eq!(event.policy, Policy::default(), "torn");
            (event.epoch, event.entry.seq)
        }
        _ => unreachable!("not one of the marked kinds"),
    }
}

/// Checks a subscriber's events against the published ones.
#[derive(Default)]
pub(crate) struct Ledger {
    next: Vec<u64>,
    /// Events received.
    pub(crate) had: u64,
    /// Events missing between the received ones.
    pub(crate) missing: u64,
}

impl Ledger {
    /// Adds events. Each must have a greater number than the one before from the same publisher.
    pub(crate) fn note(&mut self, events: &[Event]) {
        for event in events {
            let (publisher, n) = mark(event);
            let publisher = usize::try_from(publisher).expect("a small number");
            if publisher >= self.next.len() {
                self.next.resize(publisher + 1, 0);
            }
            let next = &mut self.next[publisher];
            assert!(n >= *next, "event {n} of {publisher} after {next} was due: repeated, or out of order");
            self.missing += n - *next;
            *next = n + 1;
            self.had += 1;
        }
    }
}

/// Runs `publish(publisher, n)` for each `n` below `count`, in one thread per publisher.
pub(crate) fn from_threads(publishers: u32, count: u64, publish: impl Fn(u32, u64) + Sync) {
    // All threads begin together, and none ends before all have begun: a thread that ends leaves its rings to another one.
    let together = Barrier::new(publishers as usize);
    thread::scope(|scope| {
        for publisher in 0..publishers {
            let (together, publish) = (&together, &publish);
            scope.spawn(move || {
                together.wait();
                (0..count).for_each(|n| publish(publisher, n));
                together.wait();
            });
        }
    });
}
