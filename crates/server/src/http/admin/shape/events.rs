//! The events of a zone, and the report of one of them.

use gate::definitions::EventJson;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{EventShape, PastMinuteShape};
use crate::{event_report::Outline, http::public::documented::Draw, servers::Armed, stats};

/// An event of a zone, or one that was deleted, or moved to another beginning. Its name and its `begins` say which one it is.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct EventOfZone {
    #[schema(value_type = EventShape)]
    pub(in crate::http) event: EventJson,
    /// Where it is now: `before` its pre-queue, in its `prequeue`, `open`, or `over`. Of one that was deleted or moved: `over`.
    #[schema(example = "prequeue")]
    pub(in crate::http) is: &'static str,
    /// When it was deleted or moved, in milliseconds since 1970; null if it is in the zone's definition.
    #[schema(required)]
    pub(in crate::http) deleted_at: Option<u64>,
    /// Which servers have read the event as it is now; null if it is over.
    #[schema(required)]
    pub(in crate::http) armed: Option<ArmedShape>,
}

/// Which servers of the store have read an event, as each said it last, within 30 s. A server says a change within about a second, and
/// the server that is asked hears it within five more.
#[derive(Serialize, ToSchema)]
#[schema(as = Armed)]
pub(in crate::http) struct ArmedShape {
    /// How many servers there are.
    servers: usize,
    /// How many of them have read it.
    with: usize,
    /// The names and addresses of those that have not.
    without: Vec<String>,
    /// Those of which it is not known: they have another version, or 64 other events come before this one.
    unknown: Vec<String>,
}

impl From<Armed> for ArmedShape {
    fn from(Armed { with, without, unknown }: Armed) -> Self {
        Self { servers: with + without.len() + unknown.len(), with, without, unknown }
    }
}

/// The events of a zone in the order of time, with those that were deleted or moved after their pre-queues had begun, as far as the
/// server remembers that change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct EventsOfZone {
    /// The time of the zone's store, in seconds since 1970.
    pub(in crate::http) at: u64,
    pub(in crate::http) events: Vec<EventOfZone>,
}

/// The report of an event.
#[derive(Serialize, ToSchema)]
#[schema(as = EventReport)]
pub(in crate::http) struct ReportShape {
    #[serde(flatten)]
    outline: Outline,
    #[schema(value_type = EventShape)]
    event: EventJson,
    /// The oldest first; not there if they were not asked for. A minute in which nothing happened and nobody waited is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    minutes: Option<Vec<PastMinuteShape>>,
    /// The draw, as it is published; null if the order was that of arrival, or the event was deleted or moved.
    #[schema(required, value_type = Option<Draw>)]
    draw: Option<Value>,
}

impl ReportShape {
    pub(in crate::http) fn new(
        outline: Outline,
        event: EventJson,
        minutes: Option<&[stats::PastMinute]>,
        draw: Option<Value>,
    ) -> Self {
        let minutes = minutes.map(|minutes| minutes.iter().map(Into::into).collect());
        Self { outline, event, minutes, draw }
    }
}
