//! The narrow seam between whoever decides by scripts and Redis: "run this script with these keys and arguments".
//!
//! [`address`] says where a Redis is and how it is spoken to, [`client`] runs scripts there, by either of two libraries
//! under one map of the cluster. Nothing here knows what a script decides.

pub mod address;
pub mod client;

pub use address::{Address, Library, Settings, Topology};
pub use client::{AnyClient, Client, ClientError, Confirm, Script, Value};
