//! Which zones are served: put by the configuration, or followed from a store's register.

use std::sync::Arc;

use admission::{Definition, ZoneId};
use events::{ZoneAdded, ZoneRemoved};
use store::{Store, StoreError};
use tokio::time::Instant;

use super::{Gate, Rooms};
use crate::room::{Room, RoomSealers};

/// What a register says about a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The zone is in the register.
    Listed,
    /// The store has not answered yet.
    Unknown,
}

impl<S: Store> Gate<S> {
    /// Serves exactly these zones from now on. A zone that stays keeps its line. A zone that is left out is no longer
    /// served, and its line stays in the store. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// The store's error about the first zone that it did not take. Zones put before that have their new policy already.
    pub async fn serve_zones(&self, zones: Vec<(ZoneId, Definition)>) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let before = self.rooms.load_full();
        let mut rooms = Rooms::with_capacity(zones.len());
        for (zone, definition) in zones {
            let room = match before.get(&zone) {
                Some(room) => {
                    room.redefine(&definition, room.schedule_s(store::unix_ms())).await?;
                    Arc::clone(room)
                }
                None => self.open(&zone, &definition).await?,
            };
            rooms.insert(zone, room);
        }
        self.serve(&before, rooms);
        Ok(())
    }

    /// Serves one zone as defined from now on, or no longer where `new` is none. Other zones stay as they are. Must be
    /// called on a tokio runtime.
    ///
    /// # Errors
    /// The store's error if it did not take the zone. Nothing is changed then.
    pub async fn serve_zone(&self, zone: &ZoneId, new: Option<&Definition>) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let before = self.rooms.load_full();
        let mut rooms = Rooms::clone(&before);
        match (before.get(zone), new) {
            (Some(room), Some(definition)) => {
                let unix_s = room.schedule_s(store::unix_ms());
                if room.policy() == definition.policy_at(unix_s) {
                    // A changed notice does not affect the line.
                    room.set_definition(definition, unix_s);
                } else {
                    room.redefine(definition, unix_s).await?;
                }
            }
            (None, Some(definition)) => {
                rooms.insert(zone.clone(), self.open(zone, definition).await?);
            }
            (_, None) => drop(rooms.remove(zone)),
        }
        self.serve(&before, rooms);
        Ok(())
    }

    /// A room for a zone that the configuration has, and this gate does not serve yet.
    async fn open(&self, zone: &ZoneId, definition: &Definition) -> Result<Arc<Room<S::Line>>, StoreError> {
        Room::open(&self.shared, zone.clone(), definition, RoomSealers::of(&self.keys.load().seals, zone))
            .await
    }

    /// Of the zones that are `mine`, serves exactly these from now on, as a store's register lists them. Waits for no
    /// store call: each zone's lane opens the zone in the store, and the zone counts as away until then. `unix_ms` is the time by
    /// the store's clock, in milliseconds since 1970, when the register was as it was read, and `asked` is when this server asked for it: it
    /// says where the zones are in their schedules, and which draws nobody can move any more. Returns whether anything changed.
    /// Must be called on a tokio runtime.
    pub async fn follow_zones(
        &self,
        mine: impl Fn(&ZoneId) -> bool,
        zones: Vec<(ZoneId, Definition, Listing)>,
        (unix_ms, asked): (u64, Instant),
    ) -> bool {
        let _changing = self.changing.lock().await;
        let before = self.rooms.load_full();
        let mut changed = false;
        let mut rooms: Rooms<S::Line> = before
            .iter()
            .filter(|(zone, _)| !mine(zone))
            .map(|(zone, room)| (zone.clone(), Arc::clone(room)))
            .collect();
        for (zone, definition, listing) in zones {
            let unix_s = before.get(&zone).map_or(unix_ms / 1_000, |room| room.schedule_s(unix_ms));
            let policy = definition.policy_at(unix_s);
            let room = before.get(&zone).map_or_else(
                || {
                    changed = true;
                    let sealers = RoomSealers::of(&self.keys.load().seals, &zone);
                    let room = Room::unopened(&self.shared, zone.clone(), &definition, sealers);
                    if listing == Listing::Unknown {
                        room.set_away();
                    }
                    room
                },
                Arc::clone,
            );
            room.set_definition(&definition, unix_s);
            if listing == Listing::Listed {
                room.note_listed(unix_ms, asked.elapsed());
            }
            match listing {
                Listing::Unknown => {}
                Listing::Listed if room.is_open() => {
                    if room.policy() != policy {
                        changed = true;
                        room.order_policy(policy);
                    }
                }
                Listing::Listed => room.order_open(policy),
            }
            rooms.insert(zone, room);
        }
        changed |= rooms.len() != before.len();
        if changed {
            self.serve(&before, rooms);
        }
        changed
    }

    /// Brings the policies and notices into force that the schedules of the configuration's zones say for now.
    pub async fn follow_schedules(&self) {
        let rooms = self.rooms.load_full();
        for room in rooms.values().filter(|room| room.has_schedule()) {
            let _changing = self.changing.lock().await;
            let (definition, unix_s) = (room.definition(), room.schedule_s(store::unix_ms()));
            let policy = definition.policy_at(unix_s);
            room.set_definition(&definition, unix_s);
            if room.policy() != policy {
                // The next call tries again.
                let _ = room.set_policy(policy).await;
            }
        }
    }

    /// Takes these rooms into use, then publishes which are new and which are gone. A subscriber that hears of it finds
    /// the gate in that state, or in a newer one.
    fn serve(&self, before: &Rooms<S::Line>, rooms: Rooms<S::Line>) {
        let rooms = Arc::new(rooms);
        self.rooms.store(Arc::clone(&rooms));
        for room in before.iter().filter_map(|(zone, room)| (!rooms.contains_key(zone)).then_some(room)) {
            self.removed().insert(room.zone.clone());
            self.shared.bus.publish(ZoneRemoved { zone: room.id });
        }
        for room in rooms.iter().filter_map(|(zone, room)| (!before.contains_key(zone)).then_some(room)) {
            self.removed().remove(&room.zone);
            self.shared.bus.publish(ZoneAdded { zone: room.id, policy: room.policy() });
            room.publish_view();
        }
    }

    /// Notes why the zones that are `mine` are away: their store has listed none since the server started, so no call of theirs
    /// could say it. Writes no log, because one line about the store is enough.
    pub fn note_never_listed(&self, mine: impl Fn(&ZoneId) -> bool, error: &StoreError) {
        for (_, room) in self.rooms.load().iter().filter(|(zone, _)| mine(zone)) {
            room.set_trouble(error);
        }
    }

    /// Makes the zones that are `mine` check whether the store answers.
    pub fn doubt(&self, mine: impl Fn(&ZoneId) -> bool) {
        for (_, room) in self.rooms.load().iter().filter(|(zone, _)| mine(zone)) {
            if room.is_open() && !room.is_away() {
                room.order_renewal();
            }
        }
    }
}
