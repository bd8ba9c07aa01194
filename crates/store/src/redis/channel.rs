//! The channel on which the servers of one Redis announce changes to each other.
//!
//! It is a sharded channel in the slot of the register, so a cluster sends its messages to the servers of one shard only.
//!
//! Invariant: nothing depends on a message. Reading the register gives the same information.

use bytes::Bytes;

use redis_script::client::{AnyClient, ClientError, Listener};

use super::Redis;

const CHANNEL: Bytes = Bytes::from_static(b"weir:v1:{zones}:changed");

impl Redis<AnyClient> {
    /// Sends a message to all servers that listen now, this one included.
    ///
    /// # Errors
    /// See [`AnyClient::publish`].
    pub async fn publish(&self, message: Bytes) -> Result<(), ClientError> {
        self.client.publish(CHANNEL, message).await
    }

    /// Subscribes to the channel. Messages longer than `max_len` bytes are cut to `max_len + 1` bytes.
    pub fn listen(&self, max_len: usize) -> Listener {
        self.client.listen(CHANNEL, max_len)
    }
}
