//! One call of the script: converts asks to arguments, and the reply to answers.
//!
//! Invariant: the keys of a call are those of its asks, and each ask gets the answer to itself.

use std::{
    fmt::Write as _,
    sync::LazyLock,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use redis_script::{Client, ClientError, Script, Value};

use crate::{Budget, Decision, Limit, key::Shortened};

/// The script that decides.
pub static LIMIT: LazyLock<Script> =
    LazyLock::new(|| Script::new("limit", include_str!("../../../../lua/limit.lua")));

/// A cost that is higher than any capacity.
const OVER_ALL: u64 = 1 << 53;

/// How many hash tags the keys are spread over. In a cluster, each tag may have one call in flight. The tag is part of the
/// key, so servers that share buckets must agree on this number.
pub(crate) const TAGS: usize = 256;

/// One ask about one key.
#[derive(Clone, Debug)]
pub struct Ask {
    limit: Limit,
    key: Bytes,
    tag: usize,
    what: What,
    more: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Take(u64),
    Reset,
}

impl Ask {
    /// Asks for `cost` tokens; 0 only reads.
    #[must_use]
    pub fn take(limit: &Limit, key: &[u8], cost: u64) -> Self {
        Self::new(limit, key, What::Take(cost.min(OVER_ALL)))
    }

    /// Resets the key to a new bucket.
    #[must_use]
    pub fn reset(limit: &Limit, key: &[u8]) -> Self {
        Self::new(limit, key, What::Reset)
    }

    fn new(limit: &Limit, key: &[u8], what: What) -> Self {
        let key = Bytes::copy_from_slice(&Shortened::new(key));
        let tag = tag(limit.name().as_bytes(), &key);
        Self { limit: limit.clone(), key, tag, what, more: 0 }
    }

    /// Also asks for up to `tokens` tokens beyond the cost, as far as they are left.
    #[must_use]
    pub fn and_more(self, tokens: u64) -> Self {
        Self { more: tokens, ..self }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn key(&self) -> Shortened<'_> {
        Shortened::Plain(&self.key)
    }

    /// The cost; 0 for a reset.
    pub(crate) fn cost(&self) -> u64 {
        match self.what {
            What::Take(cost) => cost,
            What::Reset => 0,
        }
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.more > 0
    }

    /// The number of the key's hash tag.
    pub(crate) fn tag(&self) -> usize {
        self.tag
    }
}

/// The script's answer to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Tokens that were taken beyond the cost.
    pub more: u64,
}

/// Calls the script.
#[derive(Debug)]
pub struct Calls<C> {
    client: C,
    prefix: String,
    held_clock_us: AtomicU64,
}

impl<C: Client> Calls<C> {
    /// Calls over `client`. All keys begin with `prefix`.
    #[must_use]
    pub fn new(client: C, prefix: &str) -> Self {
        Self { client, prefix: prefix.to_owned(), held_clock_us: AtomicU64::new(0) }
    }

    /// Holds the clock at an instant, in microseconds since the Unix epoch, and lets no bucket expire: for tests.
    pub fn hold_clock(&self, now_us: u64) {
        self.held_clock_us.store(now_us, Ordering::Relaxed);
    }

    /// The client.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// The Redis key of an ask's bucket. The `1` is the version of the layout.
    #[must_use]
    pub fn key(&self, ask: &Ask) -> Bytes {
        let mut key = String::with_capacity(self.prefix.len() + 8 + ask.limit.name().len() + ask.key.len());
        write!(key, "{}1:{{{}}}:{}:", self.prefix, ask.tag, ask.limit.name()).expect("a text takes all");
        let mut key = key.into_bytes();
        key.extend_from_slice(&ask.key);
        key.into()
    }

    /// Decides asks in their order, with one call. In a cluster, all must have the same hash tag.
    ///
    /// After an error the call may have run. If a connection broke, it may have run twice.
    ///
    /// # Errors
    /// The client's error, or [`ClientError::Script`] if the reply does not parse.
    pub async fn decide<'a>(
        &self,
        asks: impl Iterator<Item = &'a Ask> + Clone,
    ) -> Result<Vec<Answer>, ClientError> {
        let keys: Vec<Bytes> = asks.clone().map(|ask| self.key(ask)).collect();
        let args = arguments(asks.clone(), self.held_clock_us.load(Ordering::Relaxed));
        let Value::Array(values) = self.client.run(&LIMIT, keys, args, None).await? else {
            return Err(garbled());
        };
        let (answers, []) = values.as_chunks::<6>() else { return Err(garbled()) };
        let answers = asks.clone().zip(answers).map(|(ask, values)| answer(&ask.limit, values));
        let answers = answers.collect::<Option<Vec<_>>>().ok_or_else(garbled)?;
        if answers.len() == asks.count() { Ok(answers) } else { Err(garbled()) }
    }
}

fn garbled() -> ClientError {
    ClientError::Script("the script did not answer with decisions".to_owned())
}

fn number(number: u64) -> Bytes {
    // Most costs and indices are small, and need no allocation.
    const SMALL: [&[u8]; 4] = [b"0", b"1", b"2", b"3"];
    match usize::try_from(number).ok().and_then(|index| SMALL.get(index)) {
        Some(digit) => Bytes::from_static(digit),
        None => Bytes::from(number.to_string()),
    }
}

fn arguments<'a>(asks: impl Iterator<Item = &'a Ask>, held_us: u64) -> Vec<Bytes> {
    let mut limits: Vec<&Limit> = Vec::new();
    let mut own = Vec::new();
    for ask in asks {
        let index = limits.iter().position(|limit| limit.is_same(&ask.limit)).unwrap_or_else(|| {
            limits.push(&ask.limit);
            limits.len() - 1
        });
        own.push(number(index as u64 + 1));
        own.push(match ask.what {
            What::Take(cost) => number(cost),
            What::Reset => Bytes::from_static(b"-1"),
        });
        own.push(number(ask.more));
    }
    let mut args = vec![number(held_us), number(limits.len() as u64)];
    for limit in limits {
        args.extend([limit.counted().len() as u64, limit.grace_us()].map(number));
        for counted in limit.counted() {
            let numbers = [
                counted.kind as u64,
                counted.capacity,
                counted.full,
                counted.token.get(),
                counted.gain,
                counted.period_us,
                counted.spent_at_first,
            ];
            args.extend(numbers.map(number));
        }
    }
    args.append(&mut own);
    args
}

fn answer(limit: &Limit, values: &[Value; 6]) -> Option<Answer> {
    let mut numbers = [0; 6];
    for (number, value) in numbers.iter_mut().zip(values) {
        let Value::Int(value) = value else { return None };
        *number = u64::try_from(*value).ok()?;
    }
    let [code, which, remaining, retry_after_us, reset_after_us, more] = numbers;
    let bandwidth = limit.bandwidths().get(usize::try_from(which).ok()?.checked_sub(1)?)?;
    let budget = Budget { limit: bandwidth.capacity(), remaining, reset_after_us };
    let decision = match code {
        0 => Decision::Allowed(budget),
        1 => Decision::Denied { retry_after_us, budget },
        2 => Decision::Never(budget),
        _ => return None,
    };
    Some(Answer { decision, more })
}

/// The number of a key's hash tag, the same on every server: FNV-1a, with the high bits folded into the low ones.
fn tag(name: &[u8], key: &[u8]) -> usize {
    let hash = name.iter().chain(b":").chain(key).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from((hash ^ hash >> 32) % TAGS as u64).expect("below the number of tags")
}
