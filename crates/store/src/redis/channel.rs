//! The channel on which the servers of one Redis tell each other that something changed.
//!
//! A sharded one, in the slot of the zones' register: in a cluster, its messages go to the servers of one shard alone.
//! Invariant: nothing depends on a message; what is said here can be had by asking for the register.

use bytes::Bytes;

use redis_script::client::{AnyClient, ClientError, Listener};

use super::Redis;

const CHANNEL: Bytes = Bytes::from_static(b"weir:v1:{zones}:changed");

impl Redis<AnyClient> {
    /// Tells all servers of this Redis that listen now, this one too.
    ///
    /// # Errors
    /// See [`AnyClient::publish`].
    pub async fn publish(&self, message: Bytes) -> Result<(), ClientError> {
        self.client.publish(CHANNEL, message).await
    }

    /// Listens to what the servers tell each other. Of longer messages than `max_len` bytes, one byte more is kept.
    pub fn listen(&self, max_len: usize) -> Listener {
        self.client.listen(CHANNEL, max_len)
    }
}
