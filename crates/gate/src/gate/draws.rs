//! The draws of the zones served: what a server needs to hold them.

use std::sync::Arc;

use admission::{Census, Deal, Dealt, Event, Lots, Schedule, ZoneId};
use store::{Line, Store, StoreError};

use super::Gate;
use crate::{held_draw::event_of_held_draw, room::Room};

/// A draw of a zone that is due, or was held.
#[derive(Clone, Debug)]
pub struct ZoneDraw {
    /// The zone.
    pub zone: ZoneId,
    /// The event.
    pub event: Event,
    /// Whether the event has begun, and the policy in force waits for this draw.
    pub is_due: bool,
    /// Whether the store had the event as it is here when it had begun. Nobody can move it any more, so its list may be frozen.
    pub is_fixed: bool,
    /// Whether this server reads tickets by it.
    pub is_known: bool,
    /// The epoch of the zone, as this server saw it last. In another epoch the store may have lost what it kept.
    pub epoch: u32,
    /// The zone's own clock, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// The draw that decides who enters first in a zone.
#[derive(Clone, Debug)]
pub struct DecidingDraw {
    /// The event. It lasts or comes next; or it is over, and no event comes.
    pub event: Event,
    /// Whether its pre-queue has begun.
    pub has_begun: bool,
    /// Whether the line is dealt by it.
    pub is_dealt: bool,
}

impl<S: Store> Gate<S> {
    /// The draw that decides who enters first in a zone; none where that is the order of arrival.
    #[must_use]
    pub fn deciding_draw(&self, zone: &str) -> Option<DecidingDraw> {
        let rooms = self.rooms.load();
        let room = rooms.get(zone)?;
        let (definition, now_s) = (room.definition(), room.schedule_s(store::unix_ms()));
        let last = definition.schedule.last_begun(now_s);
        let event = definition.schedule.now_or_next(now_s).or(last).filter(|event| event.draw.is_some())?;
        Some(DecidingDraw {
            event: event.clone(),
            has_begun: last.is_some_and(|last| last.id == event.id),
            is_dealt: room.drawn().draw == event.draw_number(),
        })
    }

    /// The event of a zone of whose draw people ask for receipts: its pre-queue began last, and its order is drawn. It may be over.
    #[must_use]
    pub fn draw_of_now(&self, zone: &str) -> Option<ZoneId> {
        let rooms = self.rooms.load();
        let room = rooms.get(zone)?;
        let definition = room.definition();
        let last = definition.schedule.last_begun(room.schedule_s(store::unix_ms()));
        last.filter(|event| event.draw.is_some()).map(|event| event.id.clone())
    }

    /// The draws of all events, due or not.
    #[must_use]
    pub fn draws(&self) -> Vec<ZoneDraw> {
        let rooms = self.rooms.load();
        let mut all = Vec::new();
        for room in rooms.values().filter(|room| room.has_schedule()) {
            let listed_ms = room.listed_ms();
            let definition = room.definition();
            all.extend(
                definition.schedule.events().iter().filter_map(|event| draw_of(room, listed_ms, event)),
            );
        }
        all.sort_by(|a, b| (&a.zone, &a.event.id).cmp(&(&b.zone, &b.event.id)));
        all
    }

    /// The draw that decides who enters first in a zone, as [`Gate::draws`] has it; none where that is the order of arrival.
    #[must_use]
    pub fn draw_that_decides(&self, zone: &str) -> Option<ZoneDraw> {
        let rooms = self.rooms.load();
        let room = rooms.get(zone)?;
        let listed_ms = room.listed_ms();
        let event = self.deciding_draw(zone)?.event;
        draw_of(room, listed_ms, &event)
    }

    /// Lists who waits in a zone.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::UnknownZone`] if the zone is not served.
    pub async fn census(&self, zone: &ZoneId) -> Result<Census, StoreError> {
        self.served(zone)?.census().await
    }

    /// Deals a zone's line anew; see [`Line::deal`](store::Line::deal).
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::UnknownZone`] if the zone is not served.
    pub async fn deal(&self, zone: &ZoneId, deal: Deal, anyway: bool) -> Result<Dealt, StoreError> {
        self.served(zone)?.deal(deal, anyway).await
    }

    /// Keeps the record of a draw; see [`Line::keep_draw`](store::Line::keep_draw).
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::UnknownZone`] if the zone is not served.
    pub async fn keep_draw(
        &self,
        zone: &ZoneId,
        draw: u32,
        new: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.served(zone)?.keep_draw(draw, new).await
    }

    /// The first event of `new` that is another one than in `now` and is still to begin, and of whose name a draw has a record already: what
    /// was published stays, so there would be no draw. The zone need not be served.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn event_of_held_draw(
        &self,
        zone: &ZoneId,
        now: &Schedule,
        new: &Schedule,
    ) -> Result<Option<ZoneId>, StoreError> {
        let line = self.shared.store.line(zone);
        event_of_held_draw(&line, now, new, store::unix_ms() / 1_000).await
    }

    /// Reads the tickets of a zone by these lots, too, from now on.
    pub fn add_lots(&self, zone: &ZoneId, lots: Arc<Lots>) {
        if let Some(room) = self.rooms.load().get(zone) {
            room.add_lots(lots);
        }
    }

    /// The lots of a draw of a zone, if this server knows them.
    #[must_use]
    pub fn lots(&self, zone: &ZoneId, draw: u32) -> Option<Arc<Lots>> {
        self.rooms.load().get(zone)?.lots(draw)
    }

    /// The number that a ticket had when this draw's list was frozen: later draws gave it others.
    #[must_use]
    pub fn number_before(&self, zone: &ZoneId, lots: &Lots, seq: u64) -> u64 {
        let rooms = self.rooms.load();
        let later = rooms.get(zone).map(|room| room.lots_after(lots)).unwrap_or_default();
        later.iter().rev().fold(seq, |seq, later| later.origin(seq).unwrap_or(seq))
    }

    /// The room of a zone that is served.
    pub(super) fn served(&self, zone: &ZoneId) -> Result<Arc<Room<S::Line>>, StoreError> {
        self.rooms.load().get(zone).cloned().ok_or(StoreError::UnknownZone)
    }
}

/// The draw of an event of this room, as it was listed until `listed_ms`; none if its order is that of arrival.
fn draw_of<L: Line>(room: &Room<L>, listed_ms: u64, event: &Event) -> Option<ZoneDraw> {
    let draw = event.draw_number();
    let unix_ms = room.unix_ms_now().unwrap_or_else(store::unix_ms);
    let begins_ms = u64::from(event.begins.unix_s()) * 1_000;
    let has_begun = unix_ms >= begins_ms;
    (draw != 0).then(|| ZoneDraw {
        zone: room.zone.clone(),
        event: event.clone(),
        is_due: has_begun && room.policy().opens_at.draw == draw && room.drawn().draw != draw,
        is_fixed: listed_ms >= begins_ms,
        is_known: room.lots(draw).is_some(),
        epoch: room.epoch(),
        unix_ms,
    })
}
