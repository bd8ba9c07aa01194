//! A simulated cluster of Redis that runs the real scripts.

#[allow(dead_code, reason = "the simulation uses it")]
mod redis;
