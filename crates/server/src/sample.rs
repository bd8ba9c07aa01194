//! Events and zones for tests, written as operators write them.

use admission::{Definition, Event, Policy, Schedule};
use gate::definitions::EventJson;
use serde_json::Value;

/// The event of this JSON.
pub(crate) fn event(json: Value) -> Event {
    serde_json::from_value::<EventJson>(json).expect("an event").event().expect("an event")
}

/// A zone with the usual policy and these events.
pub(crate) fn zone_with(events: Vec<Event>) -> Definition {
    let policy = Policy::default();
    Definition { schedule: Schedule::new(events, &policy).expect("a schedule"), ..policy.into() }
}
