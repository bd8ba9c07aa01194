//! Keeps the zone's statistics by minute in the store, and reads them. The store keeps them beside the line.

use store::{
    Line, StoreError,
    minutes::{KeptMinute, OfferedMinute},
};

use super::Room;

impl<L: Line> Room<L> {
    /// Keeps what `server` counted; see [`Line::keep_minutes`].
    pub(crate) async fn keep_minutes(
        &self,
        server: u64,
        offered: Vec<OfferedMinute>,
    ) -> Result<(), StoreError> {
        self.line.keep_minutes(server, offered).await
    }

    /// What is kept; see [`Line::minutes`].
    pub(crate) async fn minutes(&self, from: u32, to: u32) -> Result<Vec<KeptMinute>, StoreError> {
        self.line.minutes(from, to).await
    }
}
