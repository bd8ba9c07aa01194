//! One key's bucket: the rules.
//!
//! What is kept of a bandwidth is when it was looked at last and how much of it was *spent* by then. A bucket that was
//! never used and one that is full again are the same, so an idle one may be forgotten. Invariants: what is spent comes
//! back by whole parts a step, so nothing is rounded and no remainder lost; an ask that is refused takes nothing, and
//! does not hold up what comes back; what comes back is bounded by how far the clock went forward.
//!
//! `lua/limit.lua` has the same rules, and a test holds the two against each other.

use std::num::NonZeroU64;

use crate::{
    Budget, Decision, Limit, MAX_BANDWIDTHS,
    limit::{Counted, Kind},
};

/// What is kept of one bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// When it was looked at last, in microseconds; where it refills by interval, the last end of a stretch.
    pub(crate) at_us: u64,
    /// What was spent by then, in parts.
    pub(crate) spent: u64,
    /// Parts of a token as they were counted then.
    pub(crate) token: NonZeroU64,
}

/// The levels of a bucket; nearly all have one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Levels {
    One(Level),
    More(Box<[Level]>),
}

/// A bucket: what one key has left under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket(Levels);

impl Level {
    /// The refusal of an ask, if it is refused for now; of a [`Bucket::sole_level`].
    pub(crate) fn refusal(self, limit: &Limit, cost: u64, now_us: u64) -> Option<Decision> {
        let [only] = limit.counted() else { return None };
        let level = only.brought(only.taken_over(self), now_us);
        if cost > only.capacity {
            return None;
        }
        let (retry_after_us, budget) = only.refused(level, cost, now_us)?;
        Some(Decision::Denied { retry_after_us, budget })
    }
}

/// Levels brought to an instant.
struct Brought {
    levels: [Level; MAX_BANDWIDTHS],
    /// The clock went back: they have to be kept though nothing was taken.
    back: bool,
    /// Some are new and not full: a refusal keeps them, or time would begin anew with each.
    begun: bool,
}

impl Bucket {
    /// The bucket of a key that was never used, at `now_us`.
    #[must_use]
    pub fn new(limit: &Limit, now_us: u64) -> Self {
        Self(match limit.counted() {
            [only] => Levels::One(only.first(now_us)),
            several => Levels::More(several.iter().map(|counted| counted.first(now_us)).collect()),
        })
    }

    /// Asks for `cost` tokens at `now_us`, in microseconds on a clock of the caller's; where a bandwidth is aligned to
    /// the epoch, since then.
    ///
    /// A cost of 0 takes nothing and is allowed: it is a look ([`Bucket::peek`]).
    ///
    /// A clock that goes back refills nothing, and time is counted on from there. Where several clocks are read, that
    /// is to be prevented: what one is ahead of the other would be refilled again and again.
    ///
    /// A limit with other bandwidths than last time finds as much spent as there was, up to the new capacity: a raise is
    /// to be had at once, a cut is felt at once, and who has used nothing has all of the new capacity. Where tokens are
    /// counted in other parts, a part of a token that was spent counts as a whole one. Time since the last ask counts at
    /// the new rate. Bandwidths are told apart by their place; one that was not there before is new.
    pub fn ask(&mut self, limit: &Limit, cost: u64, now_us: u64) -> Decision {
        let counted = limit.counted();
        // Nearly all are of one bandwidth, and as good as new when they are full.
        if let (Levels::One(level), [only], 0) = (&mut self.0, counted, limit.grace_us()) {
            let then = only.taken_over(*level);
            let mut now = [only.brought(then, now_us)];
            let decision = decide(counted, &mut now, cost, now_us);
            if cost > 0 && matches!(decision, Decision::Allowed(_)) || now[0].at_us < then.at_us {
                *level = now[0];
            }
            return decision;
        }
        let mut brought = self.brought(limit, now_us);
        let levels = &mut brought.levels[..counted.len()];
        let decision = decide(counted, levels, cost, now_us);
        let kept = match decision {
            Decision::Allowed(_) => cost > 0,
            Decision::Denied { .. } => brought.begun,
            Decision::Never(_) | Decision::Unknown { .. } => false,
        };
        if kept || brought.back {
            self.keep(&brought.levels[..counted.len()]);
        }
        decision
    }

    /// What is left at `now_us`. Nothing is taken or changed.
    #[must_use]
    pub fn peek(&self, limit: &Limit, now_us: u64) -> Budget {
        let counted = limit.counted();
        let brought = self.brought(limit, now_us);
        tightest(counted, &brought.levels[..counted.len()], now_us)
    }

    /// From when on this bucket says no more than a new one would, in microseconds: it may be forgotten then.
    #[must_use]
    pub fn forget_at_us(&self, limit: &Limit) -> u64 {
        let levels = self.levels().iter().zip(limit.counted());
        let full = levels.map(|(level, counted)| counted.full_at_us(counted.taken_over(*level)));
        full.fold(0, u64::max).saturating_add(limit.grace_us())
    }

    /// What is kept, where the next ask under this limit has nothing else to look at: one bandwidth, counted in these
    /// parts, that is as good as new when it is full.
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

    fn brought(&self, limit: &Limit, now_us: u64) -> Brought {
        let none = Level { at_us: 0, spent: 0, token: NonZeroU64::MIN };
        let mut brought = Brought { levels: [none; MAX_BANDWIDTHS], back: false, begun: false };
        // Only where a new bucket is not full does it matter that this one is as good as new.
        let renewed = limit.grace_us() > 0 && now_us >= self.forget_at_us(limit);
        let kept = self.levels();
        for (place, (level, counted)) in brought.levels.iter_mut().zip(limit.counted()).enumerate() {
            *level = match kept.get(place) {
                Some(kept) if !renewed => {
                    let then = counted.taken_over(*kept);
                    let now = counted.brought(then, now_us);
                    brought.back |= now.at_us < then.at_us;
                    now
                }
                _ => {
                    brought.begun |= counted.spent_at_first > 0;
                    counted.first(now_us)
                }
            };
        }
        brought
    }
}

/// Takes the cost where all allow.
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

/// What is left of the bandwidth that has least.
fn tightest(counted: &[Counted], levels: &[Level], now_us: u64) -> Budget {
    let of = |place: usize| counted[place].budget(levels[place], now_us);
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

    /// A level that was perhaps kept under another limit.
    fn taken_over(&self, mut level: Level) -> Level {
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

    /// A level at another instant.
    fn brought(&self, level: Level, now_us: u64) -> Level {
        if now_us < level.at_us {
            return match self.kind {
                Kind::Greedy | Kind::Unaligned => Level { at_us: now_us, ..level },
                // A stretch that was counted is not counted again because the clock lies a little behind its end.
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
        // The stretches of a full one begin with its next use.
        let at_us = if spent == 0 && self.kind == Kind::Unaligned { now_us } else { at_us };
        Level { at_us, spent, ..level }
    }

    /// When a cost that is not over the capacity can be had, and what is left, where it can't be had now.
    fn refused(&self, level: Level, cost: u64, now_us: u64) -> Option<(u64, Budget)> {
        let wanted = level.spent + cost * self.token.get();
        if cost == 0 || wanted <= self.full {
            return None;
        }
        Some((self.back_after_us(level, wanted - self.full, now_us), self.budget(level, now_us)))
    }

    /// In how many microseconds so many parts, 1 or more, have come back.
    fn back_after_us(&self, level: Level, parts: u64, now_us: u64) -> u64 {
        level.at_us.saturating_add(self.steps_us(parts)).saturating_sub(now_us).max(1)
    }

    /// The steps, in microseconds, that bring so many parts back.
    pub(crate) fn steps_us(&self, parts: u64) -> u64 {
        // Round rates gain 1 part a step, and a division costs more than the rest of a decision.
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
