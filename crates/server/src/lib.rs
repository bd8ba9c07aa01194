//! `weir`, the admission server, as a library for its binary, its benches and its tests.

pub mod config;
pub mod edge;
pub mod gate;
pub mod http;
pub mod keys;
pub mod metrics;
pub mod passes;
pub mod serve;
