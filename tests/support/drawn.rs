//! An event whose order is drawn.

use admission::{DrawFallback, DrawTerms, Event, Moment, Notice, Outside, RandomnessSource, ZoneId};

/// The event of this name. It lasts by the clock of the machine, and by those of simulations.
pub(crate) fn drawn_event(id: &str) -> Event {
    let moment = |text| Moment::parse(text).expect("an instant");
    Event {
        id: ZoneId::parse(id).expect("a name"),
        prequeue_from: moment("2026-01-01T00:00:00Z"),
        begins: moment("2026-01-02T00:00:00Z"),
        ends: moment("2100-01-01T00:00:00Z"),
        before: Outside::Usual,
        after: Outside::Usual,
        before_page: None,
        after_page: None,
        admit_per_minute: None,
        max_active: None,
        draw: Some(DrawTerms { randomness: RandomnessSource::Drand, fallback: DrawFallback::Wait }),
        notice: Notice::default(),
    }
}
