//! What was learnt about the patience of a zone's people, kept beside the zone for servers that did not see them.
//!
//! All servers that watch a line learn nearly the same of it. Once a minute, a server compares what it knows with what is kept: it
//! takes that over if it has learnt less, and replaces it if it has news.
//!
//! Invariants: nothing here delays a beat by more than one call, or lets it fail. What no server can have written is not used, and
//! the next news replace it.

use bytes::Bytes;
use wait::Learned;

use super::{Redis, Zone, client::Client, lock, scripts, text, wire::Reply};

/// How long it is kept after the last writing, in milliseconds: 90 days, so that a zone that is used once a month keeps it.
const KEPT_MS: u64 = 90 * 86_400_000;

/// Servers that saw the same line know so nearly the same.
const ABOUT: f64 = 0.95;

impl<C: Client> Redis<C> {
    /// Compares what this server knows with what Redis keeps, if it is time. The zone works without it, so a failure is not one of the
    /// caller's.
    pub(super) async fn compare_learned(&self, zone: &Zone) {
        let held_ms = self.held_clock_ms();
        let Some(known) = lock(&zone.memory).as_mut().and_then(|memory| memory.look(held_ms)) else { return };
        let kept = self.exchange_learned(zone, Bytes::new()).await;
        let has_news = {
            let mut memory = lock(&zone.memory);
            let Some(memory) = memory.as_mut() else { return };
            match kept {
                Err(()) => return memory.look_again_soon(),
                // Redis lost it, or never had it.
                Ok(None) => known.has_news(&Learned::default()),
                // Both saw the same.
                Ok(Some(kept)) if !known.has_news(&kept) => return memory.keeper.note(kept),
                Ok(Some(kept)) => {
                    let has_news = memory.keeper.is_news(&known);
                    let knows_less = !has_news || known.weight() < ABOUT * kept.weight();
                    if knows_less && memory.keeper.is_news(&kept) {
                        return memory.relearn(kept);
                    }
                    has_news
                }
            }
        };
        if has_news && self.exchange_learned(zone, Bytes::copy_from_slice(&known.to_bytes())).await.is_ok() {
            let mut memory = lock(&zone.memory);
            if let Some(memory) = memory.as_mut() {
                memory.keeper.note(known);
            }
        }
    }

    /// Replaces what is kept, unless `by` is empty. Returns what was kept, if it can be used.
    async fn exchange_learned(&self, zone: &Zone, by: Bytes) -> Result<Option<Learned>, ()> {
        let keys = vec![Bytes::from(format!("{}learned", zone.prefix))];
        let reply = self.client.run(&scripts::LEARNED, keys, vec![by, text(KEPT_MS)], None).await;
        let reply = reply.map_err(crate::StoreError::from);
        let bytes = reply.and_then(|reply| Ok(Reply::new(reply)?.bytes()?)).map_err(|error| {
            tracing::debug!(zone = %zone.id, %error, "what was learnt about the zone's people could not be compared");
        })?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let kept = Learned::from_bytes(&bytes);
        Ok(kept.inspect_err(|error| tracing::warn!(zone = %zone.id, "{error}")).ok())
    }
}
