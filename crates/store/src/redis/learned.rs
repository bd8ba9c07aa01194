//! What servers learnt about a zone's people, kept beside the zone for servers that did not see them.
//!
//! Invariant: this is no part of the zone's state, so it works before the zone is opened, and its loss costs the zone nothing.

use bytes::Bytes;

use super::{Redis, Result, Zone, client::Client, scripts, text, wire::Reply};
use crate::StoreError;

/// How long it is kept after the last writing, in milliseconds: 90 days, so that a zone that is used once a month keeps it.
const KEPT_MS: u64 = 90 * 86_400_000;

impl<C: Client> Redis<C> {
    /// Replaces what is kept with `new`, if there is any. Returns what was kept.
    pub(super) async fn exchange_learned(
        &self,
        zone: &Zone,
        new: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let keys = vec![Bytes::from(format!("{}learned", zone.prefix))];
        // No words replace nothing.
        let args = vec![new.unwrap_or_default().into(), text(KEPT_MS)];
        let reply = self.client.run(&scripts::LEARNED, keys, args, None).await;
        let kept = Reply::new(reply.map_err(StoreError::from)?)?.bytes()?;
        Ok((!kept.is_empty()).then(|| kept.to_vec()))
    }
}
