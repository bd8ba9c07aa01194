//! A token bucket that servers share: at most one round trip per decision.
//!
//! A [`Limit`] says how much each of its keys may use: one or several [`Bandwidth`]s, all of which must allow. A
//! [`Limiter`] keeps the buckets, in this process or in Redis, and answers each ask with a [`Decision`]: allowed, not now
//! (and when to come back), or never. Start with `README.md`.
//!
//! The rules ([`Bucket`]) are pure: `now` is an argument, all numbers are integers, nothing is rounded in a key's favour
//! and no remainder is lost.
//!
//! Invariant, for every back end: in any interval of a bucket's clock, a key is allowed at most its capacity plus what was
//! refilled meanwhile. [`Limit::with_lease`] says what leases add to that.
//!
//! The rules and [`Memory`] need no operating system. [`Limiter`] reads a clock and does not exist on WebAssembly.
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
