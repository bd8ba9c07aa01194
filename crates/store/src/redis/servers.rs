//! The servers that share one Redis, as they say of themselves.
//!
//! Invariant: who has been silent for longer than [`SILENCE`], by Redis's own clock, is not told of.

use std::time::Duration;

use bytes::Bytes;

use super::{Redis, Result, client::Client, scripts, text, wire::Reply};

/// After how long a silence a server is forgotten.
pub const SILENCE: Duration = Duration::from_secs(30);

/// The most servers that are kept.
pub const SERVERS_MAX: usize = 256;

/// The longest that a server may say of itself, in bytes.
pub const ABOUT_MAX: usize = 1_024;

const KEY: Bytes = Bytes::from_static(b"weir:v1:{zones}:servers");

/// A server that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Its name among the servers.
    pub id: String,
    /// How long ago it was heard.
    pub ago: Duration,
    /// What it said of itself: at most [`ABOUT_MAX`] bytes, of whatever version it is.
    pub about: String,
}

impl<C: Client> Redis<C> {
    /// Says that the server `id` is there, and what of it; tells of all that were heard lately, this one too.
    ///
    /// # Errors
    /// [`StoreError::Away`](crate::StoreError::Away) and [`StoreError::Busy`](crate::StoreError::Busy).
    ///
    /// # Panics
    /// If `about` is longer than [`ABOUT_MAX`].
    pub async fn say_here(&self, id: &str, about: &str) -> Result<Vec<Heard>> {
        assert!(about.len() <= ABOUT_MAX, "a server says {} bytes of itself", about.len());
        let args = vec![
            Bytes::copy_from_slice(id.as_bytes()),
            Bytes::copy_from_slice(about.as_bytes()),
            text(SILENCE.as_millis()),
            text(SERVERS_MAX),
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

/// A server by its entry; none where it is not as a server of ours would write it.
fn one(now_ms: u64, id: &[u8], entry: &[u8]) -> Option<Heard> {
    let (seen_ms, about) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
    let ago = Duration::from_millis(now_ms.saturating_sub(seen_ms.parse().ok()?));
    let id = std::str::from_utf8(id).ok().filter(|id| id.len() <= ABOUT_MAX)?;
    (about.len() <= ABOUT_MAX).then(|| Heard { id: id.to_owned(), ago, about: about.to_owned() })
}
