//! The list of the servers that share one Redis. Each server registers itself.
//!
//! Invariant: a server that has not registered for longer than [`SILENCE`], by Redis's clock, is not listed.

use std::time::Duration;

use bytes::Bytes;

use super::{Redis, Result, client::Client, scripts, text, wire::Reply};

/// How long a server stays listed without registering again.
pub const SILENCE: Duration = Duration::from_secs(30);

/// How many servers are listed at most.
pub const SERVERS_MAX: usize = 256;

/// The longest description of a server, in bytes.
pub const ABOUT_MAX: usize = 1_024;

const KEY: Bytes = Bytes::from_static(b"weir:v1:{zones}:servers");

/// A server that registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredServer {
    /// Its unique name.
    pub id: String,
    /// How long ago it registered.
    pub ago: Duration,
    /// Its description: at most [`ABOUT_MAX`] bytes. Another version may write it in another way.
    pub about: String,
}

impl<C: Client> Redis<C> {
    /// Registers the server `id` with its description. Returns up to [`SERVERS_MAX`] servers, this one included.
    ///
    /// # Errors
    /// [`StoreError::Away`](crate::StoreError::Away) and [`StoreError::Busy`](crate::StoreError::Busy).
    ///
    /// # Panics
    /// If `about` is longer than [`ABOUT_MAX`].
    pub async fn say_here(&self, id: &str, about: &str) -> Result<Vec<RegisteredServer>> {
        assert!(about.len() <= ABOUT_MAX, "a description of {} bytes", about.len());
        self.list(id, about, SERVERS_MAX).await
    }

    /// The servers that registered lately. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Away`](crate::StoreError::Away) and [`StoreError::Busy`](crate::StoreError::Busy).
    pub async fn who_is_here(&self) -> Result<Vec<RegisteredServer>> {
        let mut heard = self.list("", "", 0).await?;
        heard.retain(|server| !server.id.is_empty());
        Ok(heard)
    }

    async fn list(&self, id: &str, about: &str, most: usize) -> Result<Vec<RegisteredServer>> {
        let args = vec![
            Bytes::copy_from_slice(id.as_bytes()),
            Bytes::copy_from_slice(about.as_bytes()),
            text(SILENCE.as_millis()),
            text(most),
        ];
        let mut reply = Reply::new(self.client.run(&scripts::SERVERS, vec![KEY], args, None).await?)?;
        let now_ms = reply.number()?;
        let mut heard = Vec::with_capacity(reply.len() / 2);
        while !reply.is_empty() {
            let (id, entry) = (reply.bytes()?, reply.bytes()?);
            heard.extend(one(now_ms, &id, &entry));
        }
        Ok(heard)
    }
}

/// Parses a server's entry; `None` if no version of Weir can have written it.
fn one(now_ms: u64, id: &[u8], entry: &[u8]) -> Option<RegisteredServer> {
    let (seen_ms, about) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
    let ago = Duration::from_millis(now_ms.saturating_sub(seen_ms.parse().ok()?));
    let id = std::str::from_utf8(id).ok().filter(|id| id.len() <= ABOUT_MAX)?;
    (about.len() <= ABOUT_MAX).then(|| RegisteredServer { id: id.to_owned(), ago, about: about.to_owned() })
}
