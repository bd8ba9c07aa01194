//! What a holder hears: the reply ([`Reply`]) or why the call is refused ([`Refusal`]). `room/wait_status.rs` fills in the wait.

use admission::{BadSeal, SEALED_LEN};
use events::RefusalReason;
use store::StoreError;

/// A token as text (ASCII).
pub type Token = [u8; SEALED_LEN];

/// The answer to `wait` and `entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The holder waits.
    Waiting {
        /// The token for the next poll. It remembers the wait that was told; older tokens of the same ticket stay valid.
        token: Token,
        /// What the holder is told.
        status: WaitStatus,
    },
    /// The holder entered.
    Entered {
        /// A call with this token returns the same pass for as long as the pass is valid.
        token: Token,
        /// For the pass to be signed.
        pass: PassClaims,
        /// How long ago the holder entered, by the store's clock, in seconds.
        age_s: u64,
    },
}

/// What a waiting holder is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitStatus {
    /// 1 + the live tickets ahead. Before a draw, how many people wait: also those who came after the freeze, and do not take part.
    pub rank: u64,
    /// The wait; none while it is unknown.
    pub eta: Option<Eta>,
    /// Why the wait is missing, or longer than before.
    pub reason: Option<Reason>,
    /// When to ask again, in milliseconds from now.
    pub polling_period_ms: u32,
    /// The store is away, and this is what was last known.
    pub stale: bool,
    /// How long it is until the zone opens, in milliseconds; 0 if it is open, or opens when an operator says so.
    pub opens_in_ms: u32,
}

/// What a pass says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassClaims {
    /// The line's epoch. Zone, epoch and `seq` together name this entry for ever (`jti`).
    pub epoch: u32,
    /// The ticket's number.
    pub seq: u64,
    /// When the holder entered, in seconds since 1970 (`iat`, `nbf`).
    pub entered_unix_s: u64,
    /// How long the pass is valid, in seconds.
    pub ttl_s: u32,
}

/// The wait and its range as a person is told, in seconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eta {
    /// The wait. At least 1, because somebody who waits has not entered yet.
    pub seconds: u32,
    /// The beginning of the range that holds nine of ten waits.
    pub low_s: u32,
    /// The end of that range.
    pub high_s: u32,
}

/// Why a wait is not told, or is longer than the one told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The zone admits nobody at present, and no end is known.
    Held,
    /// The order is still to be drawn. Nobody has a rank yet, and the rank that is told says how many people wait.
    Draw,
    /// The wait is longer, because an operator lets fewer people in, or did for a while, or lets them in later.
    Slowed,
    /// The wait is longer, because the store did not answer for a while.
    Interrupted,
    /// The wait is longer, because people ahead came back who had been silent.
    Returned,
    /// The wait is longer for another cause: fewer people left the line than expected, or slots were used late.
    Slower,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Held, Self::Draw, Self::Slowed, Self::Interrupted, Self::Returned, Self::Slower];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Draw => "draw",
            Self::Slowed => "slowed",
            Self::Interrupted => "interrupted",
            Self::Returned => "returned",
            Self::Slower => "slower",
        }
    }
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The entry is bound to another client address.
    #[error("the entry belongs to another address")]
    Elsewhere,
    /// The zone is not served here.
    #[error("there is no such zone")]
    UnknownZone,
    /// The token is forged, altered, of another zone, or sealed by a key that was removed.
    #[error("the token was not given out for this zone")]
    BadToken,
    /// The ticket was evicted, or its pass has expired, or its line no longer exists.
    #[error("the place is gone")]
    Gone,
    /// The zone admits nobody and takes no new tickets.
    #[error("the zone is closed")]
    Closed {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
    /// The line takes no more people.
    #[error("the line is full")]
    Full {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
    /// The call needs the store, and the store does not answer.
    #[error("the store is away")]
    StoreAway {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
    /// Too many calls wait for the store already.
    #[error("too many calls at once")]
    Busy {
        /// When to try again, in seconds.
        retry_after_s: u32,
    },
}

impl Refusal {
    /// The line takes no more people. Room comes as people enter or leave.
    pub(crate) const FULL: Self = Self::Full { retry_after_s: 30 };
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Away(_) => Self::StoreAway { retry_after_s: 3 },
            // An operator has to do something first.
            StoreError::Unreadable(_) => Self::StoreAway { retry_after_s: 60 },
            StoreError::Busy => Self::Busy { retry_after_s: 1 },
            StoreError::Full => Self::FULL,
            // The lane restores a zone that the store does not know. Until then the store counts as away.
            StoreError::UnknownZone => Self::StoreAway { retry_after_s: 1 },
        }
    }
}

impl From<BadSeal> for Refusal {
    fn from(BadSeal: BadSeal) -> Self {
        Self::BadToken
    }
}

impl From<Refusal> for RefusalReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownZone => Self::UnknownZone,
            Refusal::BadToken => Self::BadToken,
            Refusal::Gone | Refusal::Elsewhere => Self::Gone,
            Refusal::Closed { .. } => Self::Closed,
            Refusal::Full { .. } => Self::Full,
            Refusal::StoreAway { .. } => Self::StoreAway,
            Refusal::Busy { .. } => Self::Busy,
        }
    }
}
