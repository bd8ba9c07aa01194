//! The last rare events: stores that were lost and came back, reloads, and what operators did to this server and its routes. For
//! operators who look after something happened.
//!
//! Changes of zones are in [`change_log`](crate::change_log), with their authors. Invariants: at most [`MOST`] events are remembered,
//! each with the zone's name of its time; an act of an operator has its author.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription, ZoneNumber};

use crate::{access::Caller, clock::unix_ms};

/// The most events that are remembered.
pub const MOST: usize = 200;

const KINDS: Kinds = Kinds::of(&[Kind::StoreLost, Kind::StoreBack, Kind::Reloaded]);

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Took this server out of service.
    Drained,
    /// Put it back.
    Undrained,
    /// Replaced the routes of the API.
    RoutesChanged,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An event of the bus.
    Event(Event),
    /// An operator's act.
    Act(Act, Caller),
}

impl What {
    /// Its name in the admin API.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Event(event) => event.kind().as_str(),
            Self::Act(Act::Drained, _) => "Drained",
            Self::Act(Act::Undrained, _) => "Undrained",
            Self::Act(Act::RoutesChanged, _) => "RoutesChanged",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct PastEvent {
    /// When it was heard, in milliseconds since 1970.
    pub at_ms: u64,
    /// The zone, if it is about one.
    pub zone: Option<String>,
    /// What it is.
    pub what: What,
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

    fn note(&self, event: Event, name: impl Fn(ZoneNumber) -> Option<String>) {
        let zone = match &event {
            Event::StoreLost(lost) => name(lost.zone),
            Event::StoreBack(back) => name(back.zone),
            _ => None,
        };
        self.push(zone, What::Event(event));
    }

    /// Remembers what an operator did.
    pub fn note_act(&self, act: Act, by: Caller) {
        self.push(None, What::Act(act, by));
    }

    fn push(&self, zone: Option<String>, what: What) {
        let mut all = self.lock();
        all.truncate(MOST - 1);
        all.push_front(PastEvent { at_ms: unix_ms(), zone, what });
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
    use crate::access::Role;

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
        let by = Caller { name: "otto".into(), role: Role::Admin, authenticated: true };
        past.note_act(Act::Drained, by);
        let mut all = past.all();
        assert_eq!((all.len(), all.remove(0).what.kind()), (MOST, "Drained"));
        let kinds: Vec<_> = all.iter().take(3).map(|past| (past.what.kind(), past.zone.as_deref())).collect();
        assert_eq!(kinds, [("StoreBack", Some("A")), ("StoreLost", Some("A")), ("Reloaded", None)]);
    }
}
