//! The keys of the last joins of one zone, for the embedded store: a repeated join with the same key gets the ticket of the first one. In
//! Redis, `lua/join.lua` keeps the keys and `lua/find.lua` reads them.
//!
//! Keys are in two generations of [`JoinKey::KEPT_MS`], so that a generation is dropped as a whole. Invariants: a key is kept for one
//! generation at least and two at most; a generation has at most [`JoinKey::MOST_A_MINUTE`] keys for each of its minutes.

use std::{collections::HashMap, mem};

use admission::{JoinKey, Joined, Ticket};

use crate::JoinedOnce;

/// The keys of one generation and their tickets: epoch, number, and when it was issued.
type Keys = HashMap<JoinKey, (u32, u64, u64)>;

/// The most keys of a generation.
const MOST: u64 = JoinKey::MOST_A_MINUTE as u64 * JoinKey::KEPT_MS / 60_000;

/// The joins with a key.
#[derive(Debug, Default)]
pub(crate) struct RecentJoins {
    /// When the younger generation began, in milliseconds on the store's clock.
    begun_ms: u64,
    young: Keys,
    old: Keys,
}

impl RecentJoins {
    /// Joins as many people as `keys` has. `join` gives out new tickets: so many, perhaps none.
    ///
    /// # Errors
    /// Those of `join`. No key is noted then.
    pub(crate) fn join<E>(
        &mut self,
        keys: &[Option<JoinKey>],
        now_ms: u64,
        join: impl FnOnce(u32) -> Result<Joined, E>,
    ) -> Result<JoinedOnce, E> {
        self.forget_old(now_ms);
        let mut earlier = vec![None; keys.len()];
        // Who gets a new ticket under which key: of the new ones, the first has number 0. And who came together with one of these.
        let (mut new, mut with, mut twins) = (0, HashMap::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            earlier[at] = key.and_then(|key| self.ticket(key));
            if earlier[at].is_some() {
                continue;
            }
            let number = key.map_or(new, |key| *with.entry(key).or_insert(new));
            if number < new {
                twins.push((at, number));
            } else {
                new += 1;
            }
        }
        let joined = join(new)?;
        let seq = |number: u32| joined.first + u64::from(number);
        for (key, number) in with {
            self.note(key, (joined.epoch, seq(number), joined.at_ms));
        }
        for (at, number) in twins {
            earlier[at] = Some(Ticket::new(joined.epoch, seq(number), joined.at_ms));
        }
        Ok(JoinedOnce { earlier, joined })
    }

    /// The tickets of those who joined with these keys.
    pub(crate) fn find(&mut self, keys: &[JoinKey], now_ms: u64) -> Vec<Option<Ticket>> {
        self.forget_old(now_ms);
        keys.iter().map(|key| self.ticket(*key)).collect()
    }

    /// Drops the keys that are too old at `now_ms`.
    fn forget_old(&mut self, now_ms: u64) {
        let age_ms = now_ms.saturating_sub(self.begun_ms);
        if age_ms >= JoinKey::KEPT_MS {
            self.old = if age_ms < 2 * JoinKey::KEPT_MS { mem::take(&mut self.young) } else { Keys::new() };
            self.young = Keys::new();
            self.begun_ms = now_ms;
        }
    }

    /// The ticket of whoever joined with this key.
    fn ticket(&self, key: JoinKey) -> Option<Ticket> {
        let &(epoch, seq, issued_ms) = self.young.get(&key).or_else(|| self.old.get(&key))?;
        Some(Ticket::new(epoch, seq, issued_ms))
    }

    /// Somebody joined with this key.
    fn note(&mut self, key: JoinKey, ticket: (u32, u64, u64)) {
        if (self.young.len() as u64) < MOST {
            self.young.insert(key, ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_for_a_generation_and_for_two_at_most() {
        let (one, other) = (JoinKey([1; 16]), JoinKey([2; 16]));
        let mut joins = RecentJoins::default();
        joins.forget_old(1_000_000);
        joins.note(one, (7, 70, 1_000_000));
        let after = |joins: &mut RecentJoins, ms: u64| {
            joins.forget_old(1_000_000 + ms);
            (joins.ticket(one).map(|ticket| ticket.seq), joins.ticket(other).map(|ticket| ticket.seq))
        };
        assert_eq!(after(&mut joins, 119_999), (Some(70), None));
        joins.note(other, (7, 71, 1_119_999));
        assert_eq!(after(&mut joins, 120_000), (Some(70), Some(71)));
        assert_eq!(after(&mut joins, 239_999), (Some(70), Some(71)));
        assert_eq!(after(&mut joins, 240_000), (None, None));
        // Whoever comes after a long time finds nothing of before.
        joins.note(one, (7, 72, 1_240_000));
        assert_eq!(after(&mut joins, 480_000), (None, None));
    }
}
