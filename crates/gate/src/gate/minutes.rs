//! Statistics by minute of the zones served: the store keeps them, and does not read them.

use admission::ZoneId;
use store::{
    Store, StoreError,
    minutes::{KeptMinute, OfferedMinute},
};

use super::Gate;

impl<S: Store> Gate<S> {
    /// Keeps what `server` counted in minutes of a zone; see [`Line::keep_minutes`](store::Line::keep_minutes).
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::UnknownZone`] if the zone is not served.
    pub async fn keep_minutes(
        &self,
        zone: &ZoneId,
        server: u64,
        offered: Vec<OfferedMinute>,
    ) -> Result<(), StoreError> {
        self.served(zone)?.keep_minutes(server, offered).await
    }

    /// The minutes of a zone that are kept; see [`Line::minutes`](store::Line::minutes).
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::UnknownZone`] if the zone is not served.
    pub async fn minutes(&self, zone: &ZoneId, from: u32, to: u32) -> Result<Vec<KeptMinute>, StoreError> {
        self.served(zone)?.minutes(from, to).await
    }
}
