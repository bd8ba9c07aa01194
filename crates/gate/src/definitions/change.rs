//! A change of a definition: who made it, what it did, and why it was refused.

use std::net::IpAddr;

use admission::{Definition, PolicyFault, ScheduleFault, ZoneId};
use store::StoreError;

use super::{ZONES_MAX, overrides::OverridesFault};

/// The person or program that makes a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name of the token or certificate.
    pub name: String,
    /// The role in which the author acts.
    pub role: String,
    /// The address of the request; none where the change did not come over the network.
    pub from: Option<IpAddr>,
}

/// What a change did to a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChange {
    /// The definition before; none where the zone did not exist.
    pub before: Option<Definition>,
    /// The definition after; none where the zone is deleted.
    pub after: Option<Definition>,
}

/// Called with each change right after it was made, before its author has the answer; not if nothing differs. Must not block.
pub type OnChange = dyn Fn(&Author, &ZoneId, &DefinitionChange) + Send + Sync;

/// Why a zone was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// The zone has another definition than expected: this one.
    #[error("the zone was changed meanwhile")]
    Conflict(Definition),
    /// The zone should not exist, and has this definition.
    #[error("there is such a zone already")]
    Exists(Definition),
    /// The zone should exist, and does not.
    #[error("there is no such zone")]
    UnknownZone,
    /// No store keeps zones of its tenant.
    #[error("no cell is for zones of this name; name its tenant in the configuration of one")]
    NoCell,
    /// The number of zones is at its limit.
    #[error("there are {ZONES_MAX} zones, which are the most")]
    TooMany,
    /// A number of the new policy is out of its range.
    #[error(transparent)]
    OutOfRange(#[from] PolicyFault),
    /// The events do not fit each other, or the policy.
    #[error(transparent)]
    Schedule(ScheduleFault),
    /// The store did not answer. It may have made the change nevertheless.
    #[error("the store is away: {0}")]
    Away(String),
    /// The store has too much to do, or others change the zone all the time.
    #[error("too many calls at once")]
    Busy,
    /// The change cannot be written to disk.
    #[error("the change can't be kept: {0}")]
    Disk(String),
}

impl From<StoreError> for DefineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Away(why) => Self::Away(why),
            StoreError::Unreadable(_) => Self::Away(error.to_string()),
            // No change of a definition takes a ticket.
            StoreError::Busy | StoreError::Full => Self::Busy,
            StoreError::UnknownZone => Self::NoCell,
        }
    }
}

impl From<OverridesFault> for DefineError {
    fn from(fault: OverridesFault) -> Self {
        Self::Disk(fault.to_string())
    }
}
