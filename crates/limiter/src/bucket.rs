//! The rules: the bucket of one key.
//!
//! A bucket stores, for each bandwidth, an instant and how much was *spent* by then. A full bucket equals a new one, so it
//! may be forgotten.
//!
//! Invariants: tokens come back in whole parts per step, so nothing is rounded and no remainder is lost. A refused ask
//! takes nothing and does not delay the refill. The refill is bounded by how far the clock advanced.
//!
//! `lua/limit.lua` has the same rules; a test compares the two.

use std::num::NonZeroU64;

use crate::{
    Budget, Decision, Limit, MAX_BANDWIDTHS,
    limit::{Counted, Kind},
};

/// The stored state of one bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// When it was last updated, in microseconds; for refill by interval, the end of the last period.
    pub(crate) at_us: u64,
    /// What was spent at that instant, in parts.
    pub(crate) spent: u64,
    /// The parts of a token at that time.
    pub(crate) token: NonZeroU64,
}

/// The levels of a bucket. Nearly all buckets have one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Levels {
    One(Level),
    More(Box<[Level]>),
}

/// A bucket: what one key has left under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket(Levels);

impl Level {
    /// The refusal of an ask, if this level of a [`Bucket::sole_level`] refuses it for now.
    pub(crate) fn refusal(self, limit: &Limit, cost: u64, now_us: u64) -> Option<Decision> {
        let [only] = limit.counted() else { return None };
        let level = only.advance(only.converted(self), now_us);
        if cost > only.capacity {
            return None;
        }
        let (retry_after_us, budget) = only.refused(level, cost, now_us)?;
        Some(Decision::Denied { retry_after_us, budget })
    }
}

/// Levels at the present instant.
struct Updated {
    levels: [Level; MAX_BANDWIDTHS],
    /// The clock went back, so the levels must be stored although nothing was taken.
    clock_went_back: bool,
    /// Some levels are new and not full. A refusal stores them; otherwise each refusal would restart their time.
    is_new: bool,
}

impl Bucket {
    /// The bucket of a key that was never used, created at `now_us`.
    #[must_use]
    pub fn new(limit: &Limit, now_us: u64) -> Self {
        Self(match limit.counted() {
            [only] => Levels::One(only.first(now_us)),
            several => Levels::More(several.iter().map(|counted| counted.first(now_us)).collect()),
        })
    }

    /// Asks for `cost` tokens at `now_us`, in microseconds of the caller's clock. If a bandwidth is aligned to the epoch,
    /// the clock must count from the epoch.
    ///
    /// A cost of 0 takes nothing and is allowed; see [`Bucket::peek`].
    ///
    /// If the clock goes back, nothing is refilled, and time counts on from there. The caller must not switch between
    /// clocks: the difference between two clocks would be refilled again and again.
    ///
    /// If the limit's bandwidths have changed, what was spent stays spent, up to the new capacity: a raise and a cut work at
    /// once, and an unused key has all of the new capacity. If tokens are counted in other parts, a partly spent token
    /// counts as spent. The time since the last ask counts at the new rate. Bandwidths are matched by their position; one
    /// that did not exist before is new.
    pub fn ask(&mut self, limit: &Limit, cost: u64, now_us: u64) -> Decision {
        let counted = limit.counted();
        // The usual case: one bandwidth, and a full bucket equals a new one.
        if let (Levels::One(level), [only], 0) = (&mut self.0, counted, limit.grace_us()) {
            let then = only.converted(*level);
            let mut now = [only.advance(then, now_us)];
            let decision = decide(counted, &mut now, cost, now_us);
            if cost > 0 && matches!(decision, Decision::Allowed(_)) || now[0].at_us < then.at_us {
                *level = now[0];
            }
            return decision;
        }
        let mut updated = self.updated(limit, now_us);
        let levels = &mut updated.levels[..counted.len()];
        let decision = decide(counted, levels, cost, now_us);
        let kept = match decision {
            Decision::Allowed(_) => cost > 0,
            Decision::Denied { .. } => updated.is_new,
            Decision::Never(_) | Decision::Unknown { .. } => false,
        };
        if kept || updated.clock_went_back {
            self.keep(&updated.levels[..counted.len()]);
        }
        decision
    }

    /// What is left at `now_us`. Changes nothing.
    #[must_use]
    pub fn peek(&self, limit: &Limit, now_us: u64) -> Budget {
        let counted = limit.counted();
        let updated = self.updated(limit, now_us);
        tightest(counted, &updated.levels[..counted.len()], now_us)
    }

    /// The instant, in microseconds, from which on this bucket equals a new one and may be forgotten.
    #[must_use]
    pub fn forget_at_us(&self, limit: &Limit) -> u64 {
        let levels = self.levels().iter().zip(limit.counted());
        let full = levels.map(|(level, counted)| counted.full_at_us(counted.converted(*level)));
        full.fold(0, u64::max).saturating_add(limit.grace_us())
    }

    /// The only level, if the next ask under this limit depends on nothing else: one bandwidth, the same parts of a token,
    /// and a full bucket equals a new one.
    pub(crate) fn sole_level(&self, limit: &Limit) -> Option<Level> {
        match (&self.0, limit.counted()) {
            (Levels::One(level), [only]) if level.token == only.token && limit.grace_us() == 0 => {
                Some(*level)
            }
            _ => None,
        }
    }

    fn levels(&self) -> &[Level] {
        match &self.0 {
            Levels::One(level) => std::slice::from_ref(level),
            Levels::More(levels) => levels,
        }
    }

    fn keep(&mut self, levels: &[Level]) {
        match (&mut self.0, levels) {
            (Levels::One(kept), [level]) => *kept = *level,
            (Levels::More(kept), levels) if kept.len() == levels.len() => kept.copy_from_slice(levels),
            (kept, [level]) => *kept = Levels::One(*level),
            (kept, levels) => *kept = Levels::More(levels.into()),
        }
    }

    fn updated(&self, limit: &Limit, now_us: u64) -> Updated {
        let none = Level { at_us: 0, spent: 0, token: NonZeroU64::MIN };
        let mut updated = Updated { levels: [none; MAX_BANDWIDTHS], clock_went_back: false, is_new: false };
        // A bucket that equals a new one must be replaced only if a new one is not full.
        let renewed = limit.grace_us() > 0 && now_us >= self.forget_at_us(limit);
        let kept = self.levels();
        for (index, (level, counted)) in updated.levels.iter_mut().zip(limit.counted()).enumerate() {
            *level = match kept.get(index) {
                Some(kept) if !renewed => {
                    let then = counted.converted(*kept);
                    let now = counted.advance(then, now_us);
                    updated.clock_went_back |= now.at_us < then.at_us;
                    now
                }
                _ => {
                    updated.is_new |= counted.spent_at_first > 0;
                    counted.first(now_us)
                }
            };
        }
        updated
    }
}

/// Takes the cost if all bandwidths allow it.
fn decide(counted: &[Counted], levels: &mut [Level], cost: u64, now_us: u64) -> Decision {
    let mut wait: Option<(u64, Budget)> = None;
    for (counted, level) in counted.iter().zip(&*levels) {
        if cost > counted.capacity {
            return Decision::Never(counted.budget(*level, now_us));
        }
        if let Some(refused) = counted.refused(*level, cost, now_us)
            && wait.is_none_or(|(longest, _)| refused.0 > longest)
        {
            wait = Some(refused);
        }
    }
    if let Some((retry_after_us, budget)) = wait {
        return Decision::Denied { retry_after_us, budget };
    }
    for (counted, level) in counted.iter().zip(&mut *levels) {
        level.spent += cost * counted.token.get();
    }
    Decision::Allowed(tightest(counted, levels, now_us))
}

/// What is left of the bandwidth with the fewest tokens.
fn tightest(counted: &[Counted], levels: &[Level], now_us: u64) -> Budget {
    let of = |index: usize| counted[index].budget(levels[index], now_us);
    (1..counted.len()).map(of).fold(
        of(0),
        |least, budget| {
            if budget.remaining < least.remaining { budget } else { least }
        },
    )
}

impl Counted {
    /// The level of a new key.
    fn first(&self, now_us: u64) -> Level {
        let at_us = if self.kind == Kind::Aligned { now_us - now_us % self.period_us } else { now_us };
        Level { at_us, spent: self.spent_at_first, token: self.token }
    }

    /// Converts a level that may have been stored under other bandwidths.
    fn converted(&self, mut level: Level) -> Level {
        if level.token != self.token {
            let tokens = level.spent.div_ceil(level.token.get()).min(self.capacity);
            level.spent = tokens * self.token.get();
            level.token = self.token;
        }
        level.spent = level.spent.min(self.full);
        if self.kind == Kind::Aligned {
            level.at_us -= level.at_us % self.period_us;
        }
        level
    }

    /// A level at another instant: refills it.
    fn advance(&self, level: Level, now_us: u64) -> Level {
        if now_us < level.at_us {
            return match self.kind {
                Kind::Greedy | Kind::Unaligned => Level { at_us: now_us, ..level },
                // If the clock went back a little behind the end of a counted period, the period is not counted again.
                Kind::Aligned if level.at_us - now_us <= self.period_us => level,
                Kind::Aligned => Level { at_us: now_us - now_us % self.period_us, ..level },
            };
        }
        let passed_us = now_us - level.at_us;
        let (steps, at_us) = match self.kind {
            Kind::Greedy => (passed_us, now_us),
            Kind::Unaligned | Kind::Aligned if passed_us < self.period_us => (0, level.at_us),
            Kind::Unaligned | Kind::Aligned => {
                (passed_us / self.period_us, now_us - passed_us % self.period_us)
            }
        };
        let spent = level.spent.saturating_sub(steps.saturating_mul(self.gain));
        // The periods of a full bucket start with its next use.
        let at_us = if spent == 0 && self.kind == Kind::Unaligned { now_us } else { at_us };
        Level { at_us, spent, ..level }
    }

    /// If a cost within the capacity can't be taken now: in how many microseconds it can, and what is left.
    fn refused(&self, level: Level, cost: u64, now_us: u64) -> Option<(u64, Budget)> {
        let wanted = level.spent + cost * self.token.get();
        if cost == 0 || wanted <= self.full {
            return None;
        }
        Some((self.back_after_us(level, wanted - self.full, now_us), self.budget(level, now_us)))
    }

    /// In how many microseconds so many parts have come back; 1 or more.
    fn back_after_us(&self, level: Level, parts: u64, now_us: u64) -> u64 {
        level.at_us.saturating_add(self.steps_us(parts)).saturating_sub(now_us).max(1)
    }

    /// How long the refill of so many parts takes, in microseconds.
    pub(crate) fn steps_us(&self, parts: u64) -> u64 {
        // Many rates gain 1 part per step, and a division costs more than the rest of a decision.
        let steps = if self.gain == 1 { parts } else { parts.div_ceil(self.gain) };
        steps * self.period_us
    }

    fn full_at_us(&self, level: Level) -> u64 {
        level.at_us.saturating_add(self.steps_us(level.spent))
    }

    fn budget(&self, level: Level, now_us: u64) -> Budget {
        Budget {
            limit: self.capacity,
            remaining: (self.full - level.spent) / self.token,
            reset_after_us: self.full_at_us(level).saturating_sub(now_us),
        }
    }
}
