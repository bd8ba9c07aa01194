//! What is answered to an ask.
//!
//! Invariant: a refusal says when to come back, and that is never now.

/// What is left of the bandwidth that is nearest to refusing (of a refusal: that makes wait longest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Its capacity, in tokens.
    pub limit: u64,
    /// Whole tokens that are left after this decision.
    pub remaining: u64,
    /// In how many microseconds it is full again if nothing more is taken; 0 where it is.
    pub reset_after_us: u64,
}

/// The answer to an ask. A refusal is a value, no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// The cost was taken.
    Allowed(Budget),
    /// Not now; nothing was taken.
    Denied {
        /// In how many microseconds this very ask is allowed if nobody else takes anything; 1 or more.
        retry_after_us: u64,
        /// What is left.
        budget: Budget,
    },
    /// Not ever: the cost is over a capacity. Nothing was taken, and asking again changes nothing.
    Never(Budget),
    /// Whoever keeps the bucket did not say, or has no room for it: the configuration decided. What was asked for may
    /// have been taken.
    Unknown {
        /// Whether it lets through.
        allowed: bool,
    },
}

impl Decision {
    /// Whether whoever asked may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_) | Self::Unknown { allowed: true })
    }

    /// What is left, where that is known.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        match self {
            Self::Allowed(budget) | Self::Denied { budget, .. } | Self::Never(budget) => Some(*budget),
            Self::Unknown { .. } => None,
        }
    }

    /// For `Retry-After`, in whole seconds rounded up, 1 or more; nothing where coming back is not refused for the time
    /// being alone.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Denied { retry_after_us, .. } => Some(retry_after_us.div_ceil(1_000_000)),
            _ => None,
        }
    }
}
