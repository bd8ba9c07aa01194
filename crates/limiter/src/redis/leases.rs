//! Leases: tokens that this server took ahead for keys that are asked for again and again.
//!
//! Invariants: a key has at most the tokens of [`Limit::lease`], for at most its life, and all were charged to the bucket
//! before. So no token is given out twice, but it may be used up to one life later: in any interval, all servers together
//! allow at most capacity, refill, and the lease's tokens once per server. Tokens that are not used in time, or that a
//! dying server holds, are lost to the key.

use crate::{
    Budget, Limit,
    key::Shortened,
    table::{Kept, Table},
};

/// The lease of one key.
#[derive(Debug, Default)]
struct Lease {
    tokens: u64,
    until_us: u64,
    /// The last ask. A key is hot if it is asked for again within a life.
    seen_us: u64,
    /// Until when a call may be in flight that brings more tokens.
    asking_until_us: u64,
    /// What was left in the bucket at the last call.
    budget: Option<Budget>,
}

impl Kept for Lease {
    fn is_idle(&self, limit: &Limit, now_us: u64) -> bool {
        let life_us = limit.lease().map_or(0, |lease| lease.life_us);
        now_us >= self.until_us.max(self.asking_until_us).max(self.seen_us + life_us)
    }
}

/// The leases of all keys.
#[derive(Debug)]
pub(super) struct Leases(Table<Lease>);

impl Leases {
    pub(super) fn new(max_keys: usize) -> Self {
        Self(Table::new(max_keys))
    }

    /// Takes the cost from the lease, if it has enough tokens.
    pub(super) fn take(&self, limit: &Limit, key: &Shortened<'_>, cost: u64, now_us: u64) -> Option<Budget> {
        limit.lease()?;
        let taken = self.0.with(
            limit,
            key,
            now_us,
            |_| None,
            |lease, now_us| {
                let budget = lease.budget.filter(|_| now_us < lease.until_us && lease.tokens >= cost)?;
                lease.seen_us = now_us;
                lease.tokens -= cost;
                let remaining = budget.remaining.saturating_add(lease.tokens).min(budget.limit);
                Some(Budget { remaining, ..budget })
            },
        );
        taken.flatten()
    }

    /// How many tokens beyond the cost to ask for in a call that is made now and ends within `patience_us`.
    pub(super) fn wanted(&self, limit: &Limit, key: &Shortened<'_>, now_us: u64, patience_us: u64) -> u64 {
        let Some(terms) = limit.lease() else { return 0 };
        let wanted = self.0.with(
            limit,
            key,
            now_us,
            |_| Some(Lease::default()),
            |lease, now_us| {
                let hot = now_us < lease.seen_us.saturating_add(terms.life_us);
                lease.seen_us = now_us;
                if !hot || now_us < lease.asking_until_us {
                    return 0;
                }
                lease.asking_until_us = now_us + patience_us;
                if now_us < lease.until_us { terms.tokens - lease.tokens } else { terms.tokens }
            },
        );
        wanted.unwrap_or(0)
    }

    /// Stores the tokens that such a call brought; `more` is 0 if it failed.
    pub(super) fn put(
        &self,
        limit: &Limit,
        key: &Shortened<'_>,
        more: u64,
        budget: Option<Budget>,
        now_us: u64,
    ) {
        let Some(terms) = limit.lease() else { return };
        self.0.with(
            limit,
            key,
            now_us,
            |_| None,
            |lease, now_us| {
                lease.asking_until_us = 0;
                if more > 0 {
                    let held = if now_us < lease.until_us { lease.tokens } else { 0 };
                    lease.tokens = held.saturating_add(more).min(terms.tokens);
                    lease.until_us = now_us + terms.life_us;
                    // The script reports what is left before it takes more.
                    lease.budget = budget
                        .map(|budget| Budget { remaining: budget.remaining.saturating_sub(more), ..budget });
                }
            },
        );
    }

    /// Drops the lease of a key.
    pub(super) fn forget(&self, limit: &Limit, key: &Shortened<'_>) {
        self.0.with(limit, key, 0, |_| None, |lease, _| *lease = Lease::default());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Bandwidth;

    const K: Shortened<'_> = Shortened::Plain(b"k");

    const LIFE: u64 = 1_000;

    fn limit() -> Limit {
        let limit = Limit::new("a", [Bandwidth::per_second(100)]).expect("a limit");
        limit.with_lease(10, Duration::from_micros(LIFE)).expect("it fits")
    }

    fn budget(remaining: u64) -> Option<Budget> {
        Some(Budget { limit: 100, remaining, reset_after_us: 7 })
    }

    #[test]
    fn hot_keys_get_a_lease_and_one_call_at_a_time_asks_for_more() {
        let (leases, limit) = (Leases::new(100), limit());
        let wanted = |now_us| leases.wanted(&limit, &K, now_us, 100);
        assert_eq!([wanted(5_000), wanted(5_010), wanted(5_020)], [0, 10, 0]);
        assert_eq!(leases.take(&limit, &K, 1, 5_020), None);
        leases.put(&limit, &K, 10, budget(50), 5_030);
        // The bucket has 40 tokens left, and this server 9, then 8.
        for left in [49, 48] {
            assert_eq!(leases.take(&limit, &K, 1, 5_040).map(|budget| budget.remaining), Some(left));
        }
        // Tokens older than a life are lost.
        assert_eq!(leases.take(&limit, &K, 1, 5_030 + LIFE), None);
        assert_eq!(wanted(5_030 + LIFE), 10);
        // A call without an answer is given up after its time, a failed one at once.
        assert_eq!([wanted(6_129), wanted(6_130)], [0, 10]);
        leases.put(&limit, &K, 0, None, 6_140);
        assert_eq!(wanted(6_141), 10);
        // A key that is asked for rarely gets no lease.
        assert_eq!(wanted(6_141 + LIFE), 0);
    }

    #[test]
    fn a_lease_never_exceeds_its_tokens() {
        let (leases, limit) = (Leases::new(100), limit());
        assert_eq!(leases.wanted(&limit, &K, 5_000, 0), 0);
        for _ in 0..5 {
            leases.put(&limit, &K, 10, budget(50), 5_000);
        }
        // A cost above the lease goes to Redis, and the call brings the missing tokens.
        assert_eq!(leases.take(&limit, &K, 11, 5_000), None);
        assert!(leases.take(&limit, &K, 7, 5_000).is_some());
        assert_eq!((leases.take(&limit, &K, 4, 5_000), leases.wanted(&limit, &K, 5_000, 0)), (None, 7));
        leases.forget(&limit, &K);
        assert_eq!(leases.take(&limit, &K, 1, 5_000), None);
    }
}
