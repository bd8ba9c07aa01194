//! Names of events whose draws were held: what was published of a draw stays, so an event of the same name would have none.
//!
//! Invariant: the admin API and `weir zones apply` ask the store before they define an event by lot that is still to begin. A server that
//! reads its own file, over the embedded store, asks nothing: its log warns.

use admission::{Event, Schedule, ZoneId};
use store::{Line, StoreError};

/// The first event of `new` that is another one than in `now` and is still to begin at `unix_s` (seconds since 1970), and of whose name a
/// draw has a record already. `line` is that of the zone, which need not be served.
pub(crate) async fn event_of_held_draw<L: Line>(
    line: &L,
    now: &Schedule,
    new: &Schedule,
    unix_s: u64,
) -> Result<Option<ZoneId>, StoreError> {
    let is_new = |event: &&Event| {
        event.draw.is_some()
            && u64::from(event.begins.unix_s()) > unix_s
            && now.get(event.id.as_str()) != Some(*event)
    };
    for event in new.events().iter().filter(is_new) {
        match line.keep_draw(event.draw_number(), None).await {
            Ok(None) | Err(StoreError::UnknownZone) => {}
            Ok(Some(_)) => return Ok(Some(event.id.clone())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Says that an event cannot have this name, and what to do.
#[must_use]
pub fn is_of_a_held_draw(event: &ZoneId) -> String {
    format!(
        "`events.{event}`: an event of this name had a draw, and what was published of it stays; give this event another name"
    )
}
