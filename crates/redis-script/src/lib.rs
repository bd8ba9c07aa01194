//! Runs Lua scripts in Redis: "run this script with these keys and arguments".
//!
//! [`address`] parses the address of a Redis and holds the connection settings. [`client`] runs scripts there. It uses
//! fred or redis-rs, and its own map of the cluster's slots for both.
//!
//! Invariant: nothing here knows what a script decides.

pub mod address;
pub mod client;
mod password;

pub use address::{Address, Library, Settings, Topology};
pub use client::{AnyClient, Client, ClientError, Confirm, Script, Value};
