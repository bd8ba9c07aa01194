//! A simulated cluster of Redis that runs the real scripts.

mod against_redis;
#[path = "../support/plain.rs"]
mod plain;
#[allow(dead_code, reason = "the simulation uses it")]
mod redis;
#[path = "../support/seed.rs"]
mod seed;
