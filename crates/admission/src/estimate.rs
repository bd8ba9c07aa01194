//! A wait that is told. The crate `wait` computes it; here it is a part of a position, and follows from the instant of a slot.
//!
//! Invariant: an estimate exists in the modes `auto` and `open` only, and `low_ms <= wait_ms <= high_ms`.

use crate::Policy;

/// The expected wait from now, with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The expected wait, in milliseconds.
    pub wait_ms: u64,
    /// Nineteen of twenty people wait at least about this long, in milliseconds.
    pub low_ms: u64,
    /// Nineteen of twenty people wait at most about this long, in milliseconds.
    pub high_ms: u64,
}

impl Estimate {
    /// No wait at all.
    pub const NONE: Self = Self { wait_ms: 0, low_ms: 0, high_ms: 0 };

    /// The wait of a person of the front whose slot becomes free in `wait_ms`. The person comes for it within a near period.
    #[must_use]
    pub fn at_the_front(wait_ms: u32, policy: &Policy) -> Self {
        let wait_ms = u64::from(wait_ms);
        Self { wait_ms, low_ms: wait_ms, high_ms: wait_ms + u64::from(policy.near_period_ms()) }
    }

    /// The same for somebody who waits at most as long as `exact` says.
    #[must_use]
    pub fn at_most(self, exact: Self) -> Self {
        Self {
            wait_ms: self.wait_ms.min(exact.wait_ms),
            low_ms: self.low_ms.min(exact.low_ms),
            high_ms: self.high_ms.min(exact.high_ms),
        }
    }
}
