//! What this server knows of keys that are empty.
//!
//! A refusal says from when on its cost can be allowed at the earliest: tokens come back no faster, whoever asks. Until then
//! the server refuses it, and any higher cost, by itself. Invariants: nothing is refused here that the store would have
//! allowed; but for a key that another server made as new, or a store that lost its buckets, which is noticed
//! [`LIFE_US`] later at most. Who comes back when told is allowed, if no other server gave anything away meanwhile.

use crate::{
    Budget, Decision, Limit,
    key::Shortened,
    table::{Kept, Table},
};

/// For how long a hint is believed, in microseconds: 10 s.
const LIFE_US: u64 = 10_000_000;

/// What is known of one key.
#[derive(Debug, Default)]
struct Hint {
    /// This cost and any higher one is refused,
    cost: u64,
    /// up to here,
    until_us: u64,
    /// and may be allowed from here on.
    retry_at_us: u64,
    remaining: u64,
    limit: u64,
    full_at_us: u64,
}

impl Kept for Hint {
    fn is_idle(&self, _: &Limit, now_us: u64) -> bool {
        now_us >= self.until_us
    }

    fn limit_changed(&mut self) {
        *self = Self::default();
    }
}

/// Hints on keys.
#[derive(Debug)]
pub(super) struct Hints(Table<Hint>);

impl Hints {
    pub(super) fn new(max_keys: usize) -> Self {
        Self(Table::new(max_keys))
    }

    /// The refusal, where it is known.
    pub(super) fn refusal(
        &self,
        limit: &Limit,
        key: &Shortened<'_>,
        cost: u64,
        now_us: u64,
    ) -> Option<Decision> {
        let known = self.0.with(limit, key, now_us, |_| None, |hint, _| hint.refusal(limit, cost, now_us));
        known.flatten()
    }

    /// Takes in what came of a call that was sent at `sent_us`.
    pub(super) fn note(
        &self,
        limit: &Limit,
        key: &Shortened<'_>,
        cost: u64,
        decision: &Decision,
        sent_us: u64,
    ) {
        let (retry_after_us, budget) = match decision {
            Decision::Denied { retry_after_us, budget } => (retry_after_us, budget),
            // There is less now than when something was refused before: its time to come is no longer right.
            Decision::Allowed(_) if cost > 0 => return self.forget(limit, key),
            _ => return,
        };
        // The store decided when or after the call was sent, so this ends no later than the truth.
        let retry_at_us = sent_us.saturating_add(*retry_after_us);
        let Budget { remaining, limit: capacity, reset_after_us } = *budget;
        let noted = Hint {
            cost,
            until_us: retry_at_us.min(sent_us + LIFE_US),
            retry_at_us,
            remaining,
            limit: capacity,
            full_at_us: sent_us.saturating_add(reset_after_us),
        };
        // Where there is no room, the store is asked.
        let _ = self.0.with(
            limit,
            key,
            sent_us,
            |_| Some(Hint::default()),
            |hint, now_us| {
                // One about a lower cost that still holds says this, too.
                if cost <= hint.cost || now_us >= hint.until_us {
                    *hint = noted;
                }
            },
        );
    }

    /// Forgets a key.
    pub(super) fn forget(&self, limit: &Limit, key: &Shortened<'_>) {
        self.0.with(limit, key, 0, |_| None, |hint, _| *hint = Hint::default());
    }
}

impl Hint {
    fn refusal(&self, limit: &Limit, cost: u64, now_us: u64) -> Option<Decision> {
        if now_us >= self.until_us || cost < self.cost {
            return None;
        }
        // Where it costs more than what was refused, it takes as much longer as that is in coming back, at most.
        let mut longer_us = limit.counted().iter().map(|counted| {
            let known = cost <= counted.capacity;
            known.then(|| counted.steps_us((cost - self.cost) * counted.token.get()))
        });
        let longer_us = longer_us.try_fold(0, |longest, us| Some(longest.max(us?)))?;
        let reset_after_us = self.full_at_us.saturating_sub(now_us);
        let budget = Budget { limit: self.limit, remaining: self.remaining, reset_after_us };
        Some(Decision::Denied { retry_after_us: self.retry_at_us - now_us + longer_us, budget })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bandwidth;

    const K: Shortened<'_> = Shortened::Plain(b"k");

    fn denied(retry_after_us: u64) -> Decision {
        Decision::Denied { retry_after_us, budget: Budget { limit: 9, remaining: 1, reset_after_us: 900 } }
    }

    fn limit(tokens: u64) -> Limit {
        Limit::new("a", [Bandwidth::per_second(tokens)]).expect("a limit")
    }

    #[test]
    fn refused_until_then_and_what_costs_no_less() {
        let (hints, limit) = (Hints::new(100), limit(9));
        let asked = |cost, now_us| {
            hints.refusal(&limit, &K, cost, now_us).map(|it| match it {
                Decision::Denied { retry_after_us, .. } => retry_after_us,
                other => panic!("a refusal, not {other:?}"),
            })
        };
        assert_eq!(asked(3, 1_000), None);
        hints.note(&limit, &K, 3, &denied(100), 1_000);
        assert_eq!(
            [asked(3, 1_000), asked(9, 1_099), asked(2, 1_050), asked(3, 1_100)],
            [Some(100), Some(1 + 666_667), None, None]
        );
        // A lower cost that is refused as well takes its place; a higher one does not while that holds.
        hints.note(&limit, &K, 3, &denied(100), 2_000);
        hints.note(&limit, &K, 2, &denied(50), 2_000);
        hints.note(&limit, &K, 5, &denied(500), 2_010);
        assert_eq!([asked(2, 2_049), asked(5, 2_050)], [Some(1), None]);
        // What can never be is not for now, and is another answer.
        hints.note(&limit, &K, 3, &denied(100), 3_000);
        assert_eq!([asked(10, 3_000), asked(3, 3_000)], [None, Some(100)]);
        // Once something was given away, what was told is not right any more; a look gives nothing away.
        let budget = Budget { limit: 9, remaining: 0, reset_after_us: 900 };
        hints.note(&limit, &K, 0, &Decision::Allowed(budget), 3_010);
        assert_eq!(asked(3, 3_010), Some(90));
        hints.note(&limit, &K, 1, &Decision::Allowed(budget), 3_010);
        assert_eq!(asked(3, 3_010), None);
        hints.note(&limit, &K, 1, &Decision::Unknown { allowed: false }, 3_020);
        assert_eq!(asked(1, 3_020), None);
    }

    #[test]
    fn not_believed_for_long_nor_for_another_limit() {
        let (hints, old) = (Hints::new(100), limit(9));
        hints.note(&old, &K, 1, &denied(60_000_000), 0);
        assert!(hints.refusal(&old, &K, 1, LIFE_US - 1).is_some());
        assert!(hints.refusal(&old, &K, 1, LIFE_US).is_none());
        hints.note(&old, &K, 1, &denied(1_000), LIFE_US);
        // The same once more is no other limit.
        assert!(hints.refusal(&limit(9), &K, 1, LIFE_US).is_some());
        assert!(hints.refusal(&limit(10), &K, 1, LIFE_US).is_none());
        hints.note(&old, &K, 1, &denied(1_000), LIFE_US);
        hints.forget(&old, &K);
        assert!(hints.refusal(&old, &K, 1, LIFE_US).is_none());
    }
}
