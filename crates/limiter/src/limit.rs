//! How much a key may use.
//!
//! A bandwidth counts in *parts* of tokens, so that each microsecond refills a whole number of parts. For example, with 5
//! tokens in 1,000 us, a token has 200 parts, and each microsecond refills 1 part.
//!
//! Invariant: for every valid [`Limit`], no number in [`crate::Bucket`] or in the script exceeds 2^53, so both count
//! exactly.

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The largest number of bandwidths of a limit.
pub const MAX_BANDWIDTHS: usize = 4;

/// The longest name of a limit, in bytes.
pub const MAX_NAME_BYTES: usize = 80;

/// The largest capacity in parts: half of what a double counts exactly, because a cost is added to it.
const MAX_PARTS: u64 = 1 << 52;

/// The longest time that a bandwidth may take to fill: 100 years.
const MAX_FILL_US: u64 = 100 * 366 * 86_400 * 1_000_000;

/// Where the periods of a bandwidth start that refills by interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the Unix epoch: the same for all keys, as in "a day in UTC".
    Epoch,
    /// At the key's first use while its bucket is full.
    FirstUse,
}

/// How tokens come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// Evenly: each token as soon as its share of the period has passed.
    Greedy,
    /// All tokens of a period at its end.
    Interval(Align),
}

/// One rate: a capacity, and how many tokens come back in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    capacity: u64,
    tokens: u64,
    period: Duration,
    refill: Refill,
    initial: Option<u64>,
}

impl Bandwidth {
    /// At most `capacity` tokens; `tokens` come back evenly in each `period`. A new key is full.
    #[must_use]
    pub const fn greedy(capacity: u64, tokens: u64, period: Duration) -> Self {
        Self { capacity, tokens, period, refill: Refill::Greedy, initial: None }
    }

    /// At most `capacity` tokens; `tokens` come back at the end of each `period`. A new key is full.
    #[must_use]
    pub const fn interval(capacity: u64, tokens: u64, period: Duration, align: Align) -> Self {
        Self { capacity, tokens, period, refill: Refill::Interval(align), initial: None }
    }

    /// The same as `greedy(tokens, tokens, 1 s)`.
    #[must_use]
    pub const fn per_second(tokens: u64) -> Self {
        Self::greedy(tokens, tokens, Duration::from_secs(1))
    }

    /// The same as `greedy(tokens, tokens, 60 s)`.
    #[must_use]
    pub const fn per_minute(tokens: u64) -> Self {
        Self::greedy(tokens, tokens, Duration::from_secs(60))
    }

    /// Sets how many tokens a new key has, in place of the whole capacity. A key counts as new again after it was full
    /// for as long as a new key takes to become full.
    #[must_use]
    pub const fn with_initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// The capacity, in tokens.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many tokens come back in a period.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How tokens come back.
    #[must_use]
    pub const fn refill(&self) -> Refill {
        self.refill
    }

    /// How many tokens a new key has.
    #[must_use]
    pub fn initial(&self) -> u64 {
        self.initial.unwrap_or(self.capacity)
    }

    /// Converts the rate to whole parts per step.
    fn measure(&self) -> Result<Measure, String> {
        let Self { capacity, tokens, period, refill, .. } = *self;
        if capacity == 0 || tokens == 0 {
            return Err("the capacity and the tokens of a period must be 1 or more".to_owned());
        }
        if self.initial() > capacity {
            return Err(format!(
                "{} initial tokens are more than the capacity of {capacity}",
                self.initial()
            ));
        }
        let period_us = match u64::try_from(period.as_micros()) {
            Ok(us @ 1..=MAX_FILL_US) if u128::from(us) * 1_000 == period.as_nanos() => us,
            _ => {
                return Err(
                    "the period must be a whole number of microseconds, from 1 us to 100 years".to_owned()
                );
            }
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

/// The parts and steps of a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measure {
    token: NonZeroU64,
    gain: u64,
    period_us: u64,
    kind: Kind,
}

/// The way to refill. The numbers are those of `lua/limit.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Greedy = 0,
    Unaligned = 1,
    Aligned = 2,
}

/// A bandwidth in parts and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) kind: Kind,
    /// The capacity, in tokens.
    pub(crate) capacity: u64,
    /// The capacity, in parts.
    pub(crate) full: u64,
    /// The parts of one token.
    pub(crate) token: NonZeroU64,
    /// The parts that come back at each step.
    pub(crate) gain: u64,
    /// The length of a step, in microseconds; 1 for an even refill.
    pub(crate) period_us: u64,
    /// The parts that a new key lacks.
    pub(crate) spent_at_first: u64,
}

/// Why a limit is invalid: one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit {name:?}: {reason}")]
pub struct LimitFault {
    name: String,
    reason: String,
}

/// A named limit: what each of its keys may use. Cheap to clone.
///
/// Name and key identify a bucket. A limit with the same name and other bandwidths uses the same buckets: this is how a
/// running limit is changed. [`crate::Bucket::ask`] says what happens to the tokens. Servers that share buckets should
/// change together, because each ask is decided by the limit that comes with it.
#[derive(Clone)]
pub struct Limit(Arc<Inner>);

struct Inner {
    /// Unique in this process, and never used again.
    id: u64,
    name: Box<str>,
    /// A digest of the name, for the hashes of tables in memory.
    salt: u64,
    bandwidths: Box<[Bandwidth]>,
    counted: Box<[Counted]>,
    grace_us: u64,
    lease: Option<Lease>,
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        // The other fields follow from these.
        let (left, right) = (&*self.0, &*other.0);
        let equal =
            || left.name == right.name && left.bandwidths == right.bandwidths && left.lease == right.lease;
        self.is_same(other) || equal()
    }
}

impl Eq for Limit {}

/// The next id; the first is 1.
fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The terms of a lease: tokens that a server takes ahead for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The largest number of tokens.
    pub(crate) tokens: u64,
    /// How long they may be used, in microseconds.
    pub(crate) life_us: u64,
}

impl Limit {
    /// Makes a limit. An ask is allowed if all bandwidths allow it; otherwise nothing is taken from any.
    ///
    /// The name has 1 to [`MAX_NAME_BYTES`] visible ASCII characters, without `:`, `{` and `}`.
    ///
    /// # Errors
    /// [`LimitFault`]: the name, the number of bandwidths (1 to [`MAX_BANDWIDTHS`]) or another number is not valid.
    pub fn new(name: &str, bandwidths: impl IntoIterator<Item = Bandwidth>) -> Result<Self, LimitFault> {
        let fault = |reason: String| Err(LimitFault { name: name.to_owned(), reason });
        let odd = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b':' | b'{' | b'}');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.bytes().any(odd) {
            return fault(format!(
                "the name must have 1 to {MAX_NAME_BYTES} visible ASCII characters without : {{ and }}"
            ));
        }
        let bandwidths: Box<[Bandwidth]> = bandwidths.into_iter().take(MAX_BANDWIDTHS + 1).collect();
        if bandwidths.is_empty() || bandwidths.len() > MAX_BANDWIDTHS {
            return fault(format!("it must have 1 to {MAX_BANDWIDTHS} bandwidths"));
        }
        let mut counted = Vec::with_capacity(bandwidths.len());
        let mut grace_us = 0;
        for (index, bandwidth) in bandwidths.iter().enumerate() {
            let Measure { token, gain, period_us, kind } = match bandwidth.measure() {
                Ok(measure) => measure,
                Err(reason) => return fault(format!("bandwidth {}: {reason}", index + 1)),
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

    /// Lets each server take up to `tokens` ahead for a key that is asked for more than once in a `life`, and use them
    /// without a call for that long. With buckets in Redis, most asks of a hot key then need no call.
    ///
    /// The price: in any interval, each server may allow up to `tokens` more than the bandwidths, because it may use tokens
    /// that it took before. Tokens that a server does not use, or holds when it dies, are lost to the key. Without leases,
    /// nothing is allowed beyond the bandwidths.
    ///
    /// # Errors
    /// [`LimitFault`] if `tokens` is not from 1 to the smallest capacity, or `life` not from 1 ms to 60 s.
    pub fn with_lease(self, tokens: u64, life: Duration) -> Result<Self, LimitFault> {
        let fault = |reason: String| Err(LimitFault { name: self.0.name.to_string(), reason });
        let least = self.0.counted.iter().map(|counted| counted.capacity).min().unwrap_or(0);
        if !(1..=least).contains(&tokens) {
            return fault(format!("a lease must have from 1 token to the smallest capacity, {least}"));
        }
        let Ok(life_us @ 1_000..=60_000_000) = u64::try_from(life.as_micros()) else {
            return fault("the life of a lease must be from 1 ms to 60 s".to_owned());
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

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The bandwidths.
    #[must_use]
    pub fn bandwidths(&self) -> &[Bandwidth] {
        &self.0.bandwidths
    }

    /// The limit's id, 1 or more: unique in this process.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn counted(&self) -> &[Counted] {
        &self.0.counted
    }

    /// How long a full bucket must still be stored, in microseconds; 0 if a new bucket is full, too.
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

    /// Whether this is a clone of the same value.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether both have the same name.
    pub(crate) fn is_namesake(&self, other: &Self) -> bool {
        self.is_same(other) || self.0.name == other.0.name
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("name", &self.0.name).field("bandwidths", &self.0.bandwidths).finish()
    }
}
