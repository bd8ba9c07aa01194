//! A token bucket that servers share: one round trip a decision, or none.
//!
//! A [`Limit`] says how much each of its keys may use: one or several [`Bandwidth`]s, all of which must allow. A
//! [`Limiter`] keeps the buckets, in this process or in Redis, and answers each ask with a [`Decision`]: allowed, not now
//! (and when to come back), or never. `README.md` is where to begin.
//!
//! The rules ([`Bucket`]) are pure: `now` is an argument, everything is an integer, nothing is rounded in a key's favour
//! and no remainder is lost. Invariant, whatever keeps the buckets: over any stretch of a bucket's clock, what a key is
//! allowed is at most its capacity and what was refilled meanwhile; what leases add to that is said at
//! [`Limit::with_lease`].
//!
//! The rules and [`Memory`] need no system beneath them; the front has a clock, and is not there on WebAssembly.
//! Without the feature `redis` this crate links no runtime, no client and no logger.

mod bucket;
#[cfg(not(target_family = "wasm"))]
mod clock;
mod decision;
mod key;
#[cfg(feature = "tower")]
pub mod layer;
mod limit;
#[cfg(not(target_family = "wasm"))]
mod limiter;
mod memory;
mod prefixes;
#[cfg(feature = "redis")]
pub mod redis;
mod refusals;
mod table;

pub use bucket::Bucket;
pub use decision::{Budget, Decision};
pub use limit::{Align, Bandwidth, Limit, LimitFault, MAX_BANDWIDTHS, MAX_NAME_BYTES, Refill};
#[cfg(not(target_family = "wasm"))]
pub use limiter::{Limiter, OnFailure, Stats};
pub use memory::{Memory, MemorySettings};
pub use prefixes::{AddressKey, Prefixes};
#[cfg(feature = "redis")]
pub use redis::RedisSettings;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
