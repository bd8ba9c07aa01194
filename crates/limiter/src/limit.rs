//! How much a key may use.
//!
//! A bandwidth counts in *parts*, so that each microsecond refills a whole number of them: a token of a bandwidth that
//! refills 5 tokens in 1,000 us is 200 parts, and 1 part comes in each microsecond. Invariant: with a [`Limit`] that
//! exists, no number in [`crate::Bucket`] or in the script passes 2^53, so that both count exactly.

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How many bandwidths a limit has, at most.
pub const MAX_BANDWIDTHS: usize = 4;

/// How long a limit's name is, at most.
pub const MAX_NAME_BYTES: usize = 80;

/// The capacity of a bandwidth in parts, at most: half of what a double counts exactly, since a cost comes on top.
const MAX_PARTS: u64 = 1 << 52;

/// How long a bandwidth takes to fill, at most: 100 years.
const MAX_FILL_US: u64 = 100 * 366 * 86_400 * 1_000_000;

/// From where the stretches of a bandwidth are counted that refills by interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// From the Unix epoch: the same for all keys, as in "a day, by UTC".
    Epoch,
    /// From the key's first use when its bucket is full.
    FirstUse,
}

/// How tokens come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// Evenly, each as soon as its share of the period has passed.
    Greedy,
    /// All of a period's at its end.
    Interval(Align),
}

/// One rate: so many tokens at most, so many back in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    capacity: u64,
    tokens: u64,
    period: Duration,
    refill: Refill,
    initial: Option<u64>,
}

impl Bandwidth {
    /// `capacity` tokens at most, of which `tokens` come back in each `period`, evenly. A new key has all of them.
    #[must_use]
    pub const fn greedy(capacity: u64, tokens: u64, period: Duration) -> Self {
        Self { capacity, tokens, period, refill: Refill::Greedy, initial: None }
    }

    /// `capacity` tokens at most, of which `tokens` come back at the end of each `period`. A new key has all of them.
    #[must_use]
    pub const fn interval(capacity: u64, tokens: u64, period: Duration, align: Align) -> Self {
        Self { capacity, tokens, period, refill: Refill::Interval(align), initial: None }
    }

    /// As many a second as the bucket holds: `greedy(tokens, tokens, 1 s)`.
    #[must_use]
    pub const fn per_second(tokens: u64) -> Self {
        Self::greedy(tokens, tokens, Duration::from_secs(1))
    }

    /// As many a minute as the bucket holds: `greedy(tokens, tokens, 60 s)`.
    #[must_use]
    pub const fn per_minute(tokens: u64) -> Self {
        Self::greedy(tokens, tokens, Duration::from_secs(60))
    }

    /// What a new key has in place of the whole capacity. A key that was full for as long as this takes to become full
    /// counts as new.
    #[must_use]
    pub const fn with_initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Tokens at most.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Tokens that come back in a period.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// In what time.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How they come back.
    #[must_use]
    pub const fn refill(&self) -> Refill {
        self.refill
    }

    /// What a new key has.
    #[must_use]
    pub fn initial(&self) -> u64 {
        self.initial.unwrap_or(self.capacity)
    }

    /// What it comes down to.
    fn measure(&self) -> Result<Measure, String> {
        let Self { capacity, tokens, period, refill, .. } = *self;
        if capacity == 0 || tokens == 0 {
            return Err("the capacity and the tokens of a period are 1 or more".to_owned());
        }
        if self.initial() > capacity {
            return Err(format!(
                "{} initial tokens are more than the capacity of {capacity}",
                self.initial()
            ));
        }
        let period_us = match u64::try_from(period.as_micros()) {
            Ok(us @ 1..=MAX_FILL_US) if u128::from(us) * 1_000 == period.as_nanos() => us,
            _ => return Err("the period is a whole number of microseconds, from 1 to 100 years".to_owned()),
        };
        let measure = match refill {
            Refill::Greedy => {
                let common = gcd(tokens, period_us);
                let token = NonZeroU64::new(period_us / common).expect("a divisor of it is no more than it");
                Measure { token, gain: tokens / common, period_us: 1, kind: Kind::Greedy }
            }
            Refill::Interval(align) => {
                let kind = match align {
                    Align::Epoch => Kind::Aligned,
                    Align::FirstUse => Kind::Unaligned,
                };
                Measure { token: NonZeroU64::MIN, gain: tokens, period_us, kind }
            }
        };
        let full = capacity.checked_mul(measure.token.get()).filter(|parts| *parts <= MAX_PARTS);
        let Some(full) = full.filter(|_| measure.gain <= MAX_PARTS) else {
            let most = MAX_PARTS / measure.token;
            return Err(format!(
                "{tokens} tokens in {period:?} can be counted exactly up to a capacity of {most}, and {MAX_PARTS} tokens \
                 a period; choose a lower capacity, or a rate with a rounder ratio"
            ));
        };
        match full.div_ceil(measure.gain).checked_mul(measure.period_us) {
            Some(..=MAX_FILL_US) => Ok(measure),
            _ => Err("it would take more than 100 years to fill".to_owned()),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How a bandwidth counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measure {
    token: NonZeroU64,
    gain: u64,
    period_us: u64,
    kind: Kind,
}

/// Of the three ways to refill, which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Greedy = 0,
    Unaligned = 1,
    Aligned = 2,
}

/// A bandwidth as it is counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) kind: Kind,
    /// Tokens at most.
    pub(crate) capacity: u64,
    /// The same, in parts.
    pub(crate) full: u64,
    /// Parts of a token.
    pub(crate) token: NonZeroU64,
    /// Parts that come back at each step.
    pub(crate) gain: u64,
    /// A step: 1 us where refilled evenly.
    pub(crate) period_us: u64,
    /// Parts that a new key has spent already.
    pub(crate) spent_at_first: u64,
}

/// Why a limit is refused: one line, with what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit {name:?}: {reason}")]
pub struct LimitFault {
    name: String,
    reason: String,
}

/// A named limit: what each of its keys may use. Cheap to clone.
///
/// The name and the key are what a bucket is known by. A limit of the same name with other bandwidths goes on with the
/// same buckets, and that is how a limit is changed while it runs; see [`crate::Bucket::ask`] for what happens to the tokens
/// held. Servers that share buckets should change together: each ask is decided by the limit it brings.
#[derive(Clone)]
pub struct Limit(Arc<Inner>);

struct Inner {
    /// No other limit of this process has it, or had it.
    id: u64,
    name: Box<str>,
    /// A digest of the name, for tables in memory.
    salt: u64,
    bandwidths: Box<[Bandwidth]>,
    counted: Box<[Counted]>,
    grace_us: u64,
    lease: Option<Lease>,
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        // The rest follows from these.
        let (left, right) = (&*self.0, &*other.0);
        let equal =
            || left.name == right.name && left.bandwidths == right.bandwidths && left.lease == right.lease;
        self.is_same(other) || equal()
    }
}

impl Eq for Limit {}

/// From 1 on.
fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// What a server takes ahead for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Tokens at most.
    pub(crate) tokens: u64,
    /// For how long they are good.
    pub(crate) life_us: u64,
}

impl Limit {
    /// A limit; with several bandwidths, all of them must allow an ask, or nothing is taken from any.
    ///
    /// The name is of 1 to [`MAX_NAME_BYTES`] visible ASCII characters, without `:`, `{` and `}`.
    ///
    /// # Errors
    /// A [`LimitFault`] that says what is wrong: the name, the number of bandwidths (1 to [`MAX_BANDWIDTHS`]), a number
    /// out of range.
    pub fn new(name: &str, bandwidths: impl IntoIterator<Item = Bandwidth>) -> Result<Self, LimitFault> {
        let fault = |reason: String| Err(LimitFault { name: name.to_owned(), reason });
        let odd = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b':' | b'{' | b'}');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.bytes().any(odd) {
            return fault(format!(
                "the name is of 1 to {MAX_NAME_BYTES} visible ASCII characters without : {{ and }}"
            ));
        }
        let bandwidths: Box<[Bandwidth]> = bandwidths.into_iter().take(MAX_BANDWIDTHS + 1).collect();
        if bandwidths.is_empty() || bandwidths.len() > MAX_BANDWIDTHS {
            return fault(format!("it has 1 to {MAX_BANDWIDTHS} bandwidths"));
        }
        let mut counted = Vec::with_capacity(bandwidths.len());
        let mut grace_us = 0;
        for (place, bandwidth) in bandwidths.iter().enumerate() {
            let Measure { token, gain, period_us, kind } = match bandwidth.measure() {
                Ok(measure) => measure,
                Err(reason) => return fault(format!("bandwidth {}: {reason}", place + 1)),
            };
            let (full, initial) = (bandwidth.capacity * token.get(), bandwidth.initial() * token.get());
            let spent_at_first = full - initial;
            grace_us = grace_us.max(spent_at_first.div_ceil(gain) * period_us);
            let capacity = bandwidth.capacity;
            counted.push(Counted { kind, capacity, full, token, gain, period_us, spent_at_first });
        }
        let digest = blake3::hash(name.as_bytes());
        let salt = digest.as_bytes().first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
        let counted = counted.into();
        let (id, name, lease) = (next_id(), name.into(), None);
        Ok(Self(Arc::new(Inner { id, name, salt, bandwidths, counted, grace_us, lease })))
    }

    /// Lets each server take up to `tokens` at once for a key that is asked for more than once in a `life`, and give them
    /// out by itself for that long: where buckets are in Redis, most asks of a hot key then cost no call.
    ///
    /// The price: over any stretch of time, all servers together may allow `tokens` more for each server than the
    /// bandwidths say, since what was taken before is used in it; and what a server does not use, or takes along when it
    /// dies, is lost to the key. Without leases nothing is allowed beyond the bandwidths.
    ///
    /// # Errors
    /// A [`LimitFault`] where the tokens are not from 1 to the least capacity, or the life is not from 1 ms to 60 s.
    pub fn with_lease(self, tokens: u64, life: Duration) -> Result<Self, LimitFault> {
        let fault = |reason: String| Err(LimitFault { name: self.0.name.to_string(), reason });
        let least = self.0.counted.iter().map(|counted| counted.capacity).min().unwrap_or(0);
        if !(1..=least).contains(&tokens) {
            return fault(format!("a lease is of 1 token to the least capacity, {least}"));
        }
        let Ok(life_us @ 1_000..=60_000_000) = u64::try_from(life.as_micros()) else {
            return fault("a lease lives from 1 ms to 60 s".to_owned());
        };
        let Inner { name, salt, bandwidths, counted, grace_us, .. } = &*self.0;
        let lease = Some(Lease { tokens, life_us });
        Ok(Self(Arc::new(Inner {
            id: next_id(),
            name: name.clone(),
            salt: *salt,
            bandwidths: bandwidths.clone(),
            counted: counted.clone(),
            grace_us: *grace_us,
            lease,
        })))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it is made of.
    #[must_use]
    pub fn bandwidths(&self) -> &[Bandwidth] {
        &self.0.bandwidths
    }

    /// 1 or more; each limit that was ever made has its own.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn counted(&self) -> &[Counted] {
        &self.0.counted
    }

    /// For how long a full bucket is to be kept: not at all, where a new one is full, too.
    pub(crate) fn grace_us(&self) -> u64 {
        self.0.grace_us
    }

    #[cfg(feature = "redis")]
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.0.lease
    }

    pub(crate) fn salt(&self) -> u64 {
        self.0.salt
    }

    /// Whether this is the very same value.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it is, or one of the same name.
    pub(crate) fn is_namesake(&self, other: &Self) -> bool {
        self.is_same(other) || self.0.name == other.0.name
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("name", &self.0.name).field("bandwidths", &self.0.bandwidths).finish()
    }
}
