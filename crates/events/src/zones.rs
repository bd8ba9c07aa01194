//! Small numbers for zone names, so that an event can name its zone without holding text.
//!
//! Invariant: a number stands for the same name during the bus's life. A name that comes back has its old number.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use admission::ZoneId;

/// The most names that get a number; far more than there are zones.
const NAMES_MAX: usize = 65_536;

/// A zone's number in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneNumber(u32);

impl ZoneNumber {
    /// No zone, or a zone that came after the first 65,536 names.
    pub const NONE: Self = Self(u32::MAX);

    pub(crate) fn index(self) -> u32 {
        self.0
    }

    pub(crate) fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// The names of a bus's zones, for code that runs after the bus is gone.
#[derive(Clone)]
pub struct ZoneNames(pub(crate) Arc<Zones>);

impl ZoneNames {
    /// The name of a zone; `None` for [`ZoneNumber::NONE`].
    #[must_use]
    pub fn zone_id(&self, zone: ZoneNumber) -> Option<ZoneId> {
        self.0.name(zone)
    }
}

#[derive(Default)]
pub(crate) struct Zones(RwLock<Names>);

#[derive(Default)]
struct Names {
    by_name: HashMap<ZoneId, ZoneNumber>,
    by_number: Vec<ZoneId>,
}

impl Zones {
    pub(crate) fn number(&self, zone: &ZoneId) -> ZoneNumber {
        // A panic cannot leave the names half changed: the list grows first, and lookups by name use the map only.
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).by_name.get(zone) {
            return *known;
        }
        let names = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner);
        let next = names.by_number.len();
        if let Some(known) = names.by_name.get(zone) {
            return *known;
        }
        if next == NAMES_MAX {
            return ZoneNumber::NONE;
        }
        let number = ZoneNumber(u32::try_from(next).expect("below the limit"));
        names.by_number.push(zone.clone());
        names.by_name.insert(zone.clone(), number);
        number
    }

    pub(crate) fn name(&self, zone: ZoneNumber) -> Option<ZoneId> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.by_number.get(usize::try_from(zone.0).ok()?).cloned()
    }
}
