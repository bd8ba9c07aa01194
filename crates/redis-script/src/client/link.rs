//! What is asked of a library: one connection to one server.
//!
//! Invariant: a connection never comes back by itself. What is sent over it in one call arrives together and in order,
//! or, with an error, perhaps not at all; nothing is sent twice.

use std::future::Future;

use bytes::Bytes;

use super::Value;
use crate::address::{Address, Settings};

/// A command for a server.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) args: Vec<Bytes>,
}

impl Command {
    pub(super) fn new<const N: usize>(name: &'static str, args: [&'static str; N]) -> Self {
        Self { name, args: args.map(|arg| Bytes::from_static(arg.as_bytes())).to_vec() }
    }
}

/// A server's answer to a command: a value, or the text of its error reply.
pub(super) type Answer = Result<Value, String>;

/// One connection to one server; calls may be under way together, and go out pipelined.
pub(super) trait Link: Send + Sync + Sized + 'static {
    /// Connects and authenticates. Has no time limit of its own; when dropped half-way, nothing is left behind.
    ///
    /// # Errors
    /// What the library, or the server, says.
    fn open(
        host: &str,
        port: u16,
        address: &Address,
        settings: &Settings,
    ) -> impl Future<Output = Result<Self, String>> + Send;

    /// Sends commands, one or more, next to each other, and gives an answer for each. Has no time limit of its own.
    ///
    /// # Errors
    /// The connection is lost; the commands may or may not have been executed.
    fn send(&self, commands: Vec<Command>) -> impl Future<Output = Result<Vec<Answer>, String>> + Send;
}
