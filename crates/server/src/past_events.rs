//! The last rare events: stores that were lost and came back, and reloads. For operators who look after something happened.
//!
//! Changes of zones are in [`change_log`](crate::change_log), with their authors. Invariant: at most [`MOST`] events are remembered,
//! each with the zone's name of its time.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription, Zone};

use crate::clock::unix_ms;

/// The most events that are remembered.
pub const MOST: usize = 200;

const KINDS: Kinds = Kinds::of(&[Kind::StoreLost, Kind::StoreBack, Kind::Reloaded]);

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct PastEvent {
    /// When it was heard, in milliseconds since 1970.
    pub at_ms: u64,
    /// The zone, if it is about one.
    pub zone: Option<String>,
    /// The event.
    pub event: Event,
}

/// The last events.
#[derive(Default)]
pub struct PastEvents(Mutex<VecDeque<PastEvent>>);

impl PastEvents {
    /// Subscribes for [`PastEvents::follow`]. Call it before any event is published.
    ///
    /// # Errors
    /// [`SubscribeError::TooMany`].
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("past", Scope::Private, KINDS)
    }

    /// Remembers what happens, until the bus ends.
    pub async fn follow(self: Arc<Self>, mut subscription: Subscription, bus: Arc<Bus>) {
        while let Some(batch) = subscription.next().await {
            for event in batch.events {
                self.note(*event, |zone| bus.zone_id(zone).map(|id| id.to_string()));
            }
        }
    }

    fn note(&self, event: Event, name: impl Fn(Zone) -> Option<String>) {
        let zone = match &event {
            Event::StoreLost(lost) => name(lost.zone),
            Event::StoreBack(back) => name(back.zone),
            _ => None,
        };
        let mut all = self.lock();
        all.truncate(MOST - 1);
        all.push_front(PastEvent { at_ms: unix_ms(), zone, event });
    }

    /// The events, the newest first.
    #[must_use]
    pub fn all(&self) -> Vec<PastEvent> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<PastEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use admission::ZoneId;
    use events::{Reloaded, StoreBack, StoreLost};

    use super::*;

    #[test]
    fn the_last_events_are_remembered_with_their_zones() {
        let bus = Bus::with_rings(|_| 2).expect("a thread");
        let zone = bus.zone(&ZoneId::parse("A").expect("a name"));
        let past = PastEvents::default();
        let name = |zone| bus.zone_id(zone).map(|id| id.to_string());
        for _ in 0..MOST {
            past.note(Reloaded { ok: true }.into(), name);
        }
        past.note(StoreLost { zone }.into(), name);
        past.note(StoreBack { zone, away_ms: 7 }.into(), name);
        let all = past.all();
        assert_eq!(all.len(), MOST);
        let kinds: Vec<_> =
            all.iter().take(3).map(|past| (past.event.kind(), past.zone.as_deref())).collect();
        assert_eq!(
            kinds,
            [(Kind::StoreBack, Some("A")), (Kind::StoreLost, Some("A")), (Kind::Reloaded, None)]
        );
    }
}
