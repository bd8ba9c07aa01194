//! What this server knows about empty keys.
//!
//! A refusal says when its cost can be allowed at the earliest. Until then the server refuses this cost and any higher one
//! without a call.
//!
//! Invariants: a hint refuses nothing that Redis would allow, with one exception: if another server reset the key, or
//! Redis lost its buckets, this is noticed after [`LIFE_US`] at most. A client that comes back at the time it was given is
//! allowed, unless another ask took tokens meanwhile.

use crate::{
    Budget, Decision, Limit,
    key::Shortened,
    table::{Kept, Table},
};

/// How long a hint is valid at most, in microseconds: 10 s.
const LIFE_US: u64 = 10_000_000;

/// What is known about one key.
#[derive(Debug, Default)]
struct Hint {
    /// This cost and any higher one is refused
    cost: u64,
    /// until this instant. Redis allows nothing before it.
    until_us: u64,
    /// At this instant Redis allows the cost, unless tokens are taken meanwhile. Never before `until_us`.
    retry_at_us: u64,
    remaining: u64,
    limit: u64,
    /// At this instant the bucket is full, unless tokens are taken meanwhile.
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

/// The hints of all keys.
#[derive(Debug)]
pub(super) struct Hints(Table<Hint>);

impl Hints {
    pub(super) fn new(max_keys: usize) -> Self {
        Self(Table::new(max_keys))
    }

    /// The refusal of an ask, if a hint proves it.
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

    /// Notes the decision of a call that was sent and answered at these instants, in microseconds.
    pub(super) fn note(
        &self,
        limit: &Limit,
        key: &Shortened<'_>,
        cost: u64,
        decision: &Decision,
        (sent_us, answered_us): (u64, u64),
    ) {
        let (retry_after_us, budget) = match decision {
            Decision::Denied { retry_after_us, budget } => (retry_after_us, budget),
            // Tokens were taken, so the time of an earlier refusal is too early now.
            Decision::Allowed(_) if cost > 0 => return self.forget(limit, key),
            _ => return,
        };
        // Redis decided at an unknown instant between sending and answering. The refusal counts from the earlier end, so
        // that it does not last too long. The times that clients are told count from the later end, so that they are not
        // too early.
        let Budget { remaining, limit: capacity, reset_after_us } = *budget;
        let noted = Hint {
            cost,
            until_us: sent_us + LIFE_US.min(*retry_after_us),
            retry_at_us: answered_us.saturating_add(*retry_after_us),
            remaining,
            limit: capacity,
            full_at_us: answered_us.saturating_add(reset_after_us),
        };
        // Without room for a hint, later asks go to Redis.
        let _ = self.0.with(
            limit,
            key,
            sent_us,
            |_| Some(Hint::default()),
            |hint, now_us| {
                // A valid hint about a lower cost covers this one, too.
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
        // A higher cost needs longer: at most the time in which the difference comes back.
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

    /// A call that was answered at once.
    fn at(us: u64) -> (u64, u64) {
        (us, us)
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
        hints.note(&limit, &K, 3, &denied(100), at(1_000));
        assert_eq!(
            [asked(3, 1_000), asked(9, 1_099), asked(2, 1_050), asked(3, 1_100)],
            [Some(100), Some(1 + 666_667), None, None]
        );
        // A refused lower cost replaces the hint; a higher one does not while the hint is valid.
        hints.note(&limit, &K, 3, &denied(100), at(2_000));
        hints.note(&limit, &K, 2, &denied(50), at(2_000));
        hints.note(&limit, &K, 5, &denied(500), at(2_010));
        assert_eq!([asked(2, 2_049), asked(5, 2_050)], [Some(1), None]);
        // A cost above the capacity needs another answer than a hint can give.
        hints.note(&limit, &K, 3, &denied(100), at(3_000));
        assert_eq!([asked(10, 3_000), asked(3, 3_000)], [None, Some(100)]);
        // A take makes the hint wrong; a read does not.
        let budget = Budget { limit: 9, remaining: 0, reset_after_us: 900 };
        hints.note(&limit, &K, 0, &Decision::Allowed(budget), at(3_010));
        assert_eq!(asked(3, 3_010), Some(90));
        hints.note(&limit, &K, 1, &Decision::Allowed(budget), at(3_010));
        assert_eq!(asked(3, 3_010), None);
        hints.note(&limit, &K, 1, &Decision::Unknown { allowed: false }, at(3_020));
        assert_eq!(asked(1, 3_020), None);
    }

    /// Redis decided while the call was on its way, at 1,000, at 1,400 or in between.
    #[test]
    fn a_slow_call_makes_the_refusal_end_early_and_the_told_times_late() {
        let (hints, limit) = (Hints::new(100), limit(9));
        let asked = |now_us| {
            hints.refusal(&limit, &K, 3, now_us).map(|it| match it {
                Decision::Denied { retry_after_us, budget } => {
                    (now_us + retry_after_us, now_us + budget.reset_after_us)
                }
                other => panic!("a refusal, not {other:?}"),
            })
        };
        hints.note(&limit, &K, 3, &denied(500), (1_000, 1_400));
        let told = Some((1_400 + 500, 1_400 + 900));
        assert_eq!([asked(1_400), asked(1_499), asked(1_500)], [told, told, None]);
        // The call took longer than the wait: there is nothing to refuse.
        hints.note(&limit, &K, 3, &denied(100), (2_000, 2_400));
        assert_eq!(asked(2_400), None);
    }

    #[test]
    fn a_hint_expires_and_is_for_one_limit_only() {
        let (hints, old) = (Hints::new(100), limit(9));
        hints.note(&old, &K, 1, &denied(60_000_000), at(0));
        assert!(hints.refusal(&old, &K, 1, LIFE_US - 1).is_some());
        assert!(hints.refusal(&old, &K, 1, LIFE_US).is_none());
        hints.note(&old, &K, 1, &denied(1_000), at(LIFE_US));
        // An equal limit counts as the same limit.
        assert!(hints.refusal(&limit(9), &K, 1, LIFE_US).is_some());
        assert!(hints.refusal(&limit(10), &K, 1, LIFE_US).is_none());
        hints.note(&old, &K, 1, &denied(1_000), at(LIFE_US));
        hints.forget(&old, &K);
        assert!(hints.refusal(&old, &K, 1, LIFE_US).is_none());
    }
}
