//! `weir`, the admission server, as a library for its binary, its benches and its tests.
//!
//! Where a change belongs (sockets are in the crate `edge`, zones that are served in `gate`, state and Redis in `store`, what errors quote
//! in `shown`):
//!
//! | module | concern |
//! |---|---|
//! | [`clock`], [`secret`], [`problem`] | the wall clock; texts that are never printed; error replies (RFC 9457) |
//! | [`access`] | roles and tokens of the admin API |
//! | [`change_log`] | the list of the last changes |
//! | [`keys`], [`passes`] | keys on disk; signed passes |
//! | [`metrics`], [`stats`] | series for Prometheus; figures for operators, minute by minute |
//! | `load_meter` | measures how busy the server is, and paces polls |
//! | [`fanout`], [`servers`] | messages between servers; the list of servers |
//! | [`stock`] | what is left in the zones, as people are told |
//! | `outgoing` | connections to other servers over HTTP |
//! | [`otlp`] | traces, metrics and logs for a collector of OpenTelemetry |
//! | [`stores`] | opens the stores, limiters and transports that are configured |
//! | [`http`] | routes, requests, replies, streams, pages and the documents of the APIs |
//! | [`remote`] | the commands that ask a running server |
//! | [`event_report`] | the report of an event |
//! | [`config`] | settings: where they come from, how they are checked and printed |
//! | [`serve`] | the assembly of a server, reload and shutdown |
//! | `whole_file` | small files of the data directory |
//! | [`cli`], [`output`], [`failure`] | the command line; standard output; exit codes |
//!
//! Each module owns the type of its settings. [`config`] reads and checks them, and only [`serve`] and [`cli`] use `config`.
//! The modules form no circle: `scripts/check-layers` fails on one, and `scripts/check-layers weir` prints the order.

// The futures of a call through the gate, a cell and a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]

pub mod access;
pub mod change_log;
pub mod cli;
pub mod clock;
pub mod config;
pub mod draws;
pub mod event_report;
pub mod failure;
pub mod fanout;
mod fields;
mod html;
pub mod http;
pub mod keys;
mod load_meter;
pub mod metrics;
pub mod otlp;
mod outgoing;
pub mod output;
mod panics;
pub mod passes;
pub mod past_events;
pub mod problem;
pub mod remote;
#[cfg(test)]
mod sample;
pub mod secret;
pub mod serve;
pub mod servers;
pub mod stats;
pub mod stock;
pub mod stores;
pub mod tls;
pub mod told_waits;
mod whole_file;
