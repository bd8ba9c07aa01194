//! The answer to an ask.
//!
//! Invariant: a refusal says when to come back, which is at least 1 us later.

/// What is left of one bandwidth: the one with the fewest tokens left, or, for a refusal, the one with the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Its capacity, in tokens.
    pub limit: u64,
    /// Whole tokens left after this decision.
    pub remaining: u64,
    /// In how many microseconds the bandwidth is full again if nothing more is taken; 0 if it is full.
    pub reset_after_us: u64,
}

/// The answer to an ask. A refusal is a value, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// The cost was taken.
    Allowed(Budget),
    /// Not now; nothing was taken.
    Denied {
        /// In how many microseconds the same ask is allowed if nothing else is taken; 1 or more.
        retry_after_us: u64,
        /// What is left.
        budget: Budget,
    },
    /// Never: the cost is higher than a capacity. Nothing was taken, and asking again does not help.
    Never(Budget),
    /// The back end did not answer, or has no room for the bucket, so the configuration decided. The cost may have been
    /// taken.
    Unknown {
        /// Whether the configuration allows it.
        allowed: bool,
    },
}

impl Decision {
    /// Whether the caller may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_) | Self::Unknown { allowed: true })
    }

    /// What is left, if it is known.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        match self {
            Self::Allowed(budget) | Self::Denied { budget, .. } | Self::Never(budget) => Some(*budget),
            Self::Unknown { .. } => None,
        }
    }

    /// The seconds for `Retry-After`, rounded up, 1 or more; only for [`Decision::Denied`].
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Denied { retry_after_us, .. } => Some(retry_after_us.div_ceil(1_000_000)),
            _ => None,
        }
    }
}
