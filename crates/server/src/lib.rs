//! `weir`, the admission server, as a library for its binary, its benches and its tests.

// The futures of a call through the gate, a cell and a client lie deeper in one another than the compiler follows unasked.
#![recursion_limit = "256"]

pub mod access;
pub mod audit;
pub mod change_log;
pub mod config;
pub mod fanout;
pub mod http;
pub mod keys;
pub mod metrics;
pub mod passes;
pub mod remote;
pub mod serve;
pub mod servers;
pub mod stats;
pub mod stores;
