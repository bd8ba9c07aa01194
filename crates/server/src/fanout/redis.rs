//! Messages by the cell's own Redis: a sharded channel.

use std::sync::Arc;

use bytes::Bytes;
use gate::cells::Cell;
use store::redis::{Redis, client::ChannelEvent};
use tokio::sync::mpsc;

use super::message::MAX_LEN;

/// Says a message, if the cell is connected to.
pub(super) async fn say(cell: &Cell<Redis>, message: Bytes) -> Result<(), String> {
    let store = cell.store().map_err(|error| error.to_string())?;
    store.publish(message).await.map_err(|error| error.to_string())
}

/// Listens from the moment on that the cell is connected to.
pub(super) async fn listen(cell: &Arc<Cell<Redis>>, hears: mpsc::Sender<ChannelEvent>) {
    let mut listener = cell.connected().await.listen(MAX_LEN);
    while let Some(heard) = listener.next().await {
        if hears.send(heard).await.is_err() {
            return;
        }
    }
}
