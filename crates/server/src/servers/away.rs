//! The zones whose store is away, as a server says it of itself in its registration.
//!
//! It is the same record that the log, the metric and `/readyz` read ([`Trouble`]), so that the doctor needs no token to read it.
//! Invariant: a few short entries, because a registration has at most `ABOUT_MAX` bytes. The rest is counted.

use admission::ZoneId;
use gate::Trouble;
use serde::{Deserialize, Serialize};
use store::redis::servers::{RegisteredServer, SILENCE};

use super::About;
use crate::clock::unix_ms_of;

/// The most zones that a registration names.
const MAX_ZONES: usize = 4;

/// The longest text of a store in a registration, in bytes.
const MAX_WHY: usize = 160;

/// A zone whose store is away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneAway {
    /// The zone.
    pub zone: String,
    /// When its store failed first, in milliseconds since 1970 by that server's clock.
    pub since_ms: u64,
    /// The kind, as [`gate::TroubleKind::name`] says it. A server of another version may have other kinds.
    pub cause: String,
    /// The store's own words, or their beginning.
    pub why: String,
}

/// All of a server's zones whose store is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllAway {
    /// The first ones.
    pub zones: Vec<ZoneAway>,
    /// The number of further ones.
    pub more: u64,
}

impl AllAway {
    /// Those of `troubles`.
    #[must_use]
    pub fn of(troubles: &[(ZoneId, Trouble)]) -> Self {
        let one = |(zone, Trouble { kind, why, since }): &(ZoneId, Trouble)| ZoneAway {
            zone: zone.to_string(),
            since_ms: unix_ms_of(*since),
            cause: kind.name().to_owned(),
            why: why[..why.floor_char_boundary(MAX_WHY)].to_owned(),
        };
        let zones: Vec<_> = troubles.iter().take(MAX_ZONES).map(one).collect();
        let more = troubles.len().saturating_sub(zones.len()) as u64;
        Self { zones, more }
    }

    /// The number of zones.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.zones.len() as u64 + self.more
    }
}

/// The servers of a register that say that zones are away, each by its name and address.
#[must_use]
pub fn away(heard: &[RegisteredServer]) -> Vec<(String, AllAway)> {
    let fresh = heard.iter().filter(|heard| heard.ago <= SILENCE);
    let said = fresh.filter_map(|heard| serde_json::from_str::<About>(&heard.about).ok());
    let said = said.map(|said| {
        let away = AllAway { zones: said.away, more: said.more_away };
        (format!("{} ({})", said.name, said.address), away)
    });
    said.filter(|(_, away)| away.count() > 0).collect()
}
