//! What a client library has to provide: one connection to one server.
//!
//! Invariant: a connection never reconnects by itself. The commands of one call arrive together and in order; after an
//! error they may or may not have arrived. Nothing is sent twice.

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

/// One connection to one server. Calls may be in flight together; they are pipelined.
pub(super) trait Link: Send + Sync + Sized + 'static {
    /// Begins to connect and to authenticate. If this fails later, the first command fails for that reason. The caller sets
    /// the time limit. If the future is dropped early, nothing is left behind.
    ///
    /// # Errors
    /// The message of the library or of the server.
    fn open(
        host: &str,
        port: u16,
        address: &Address,
        settings: &Settings,
    ) -> impl Future<Output = Result<Self, String>> + Send;

    /// Sends one or more commands next to each other, and returns an answer for each. The caller sets the time limit.
    ///
    /// # Errors
    /// The connection is lost. The commands may or may not have run.
    fn send(&self, commands: Vec<Command>) -> impl Future<Output = Result<Vec<Answer>, String>> + Send;
}
