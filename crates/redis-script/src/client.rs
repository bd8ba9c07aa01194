//! The narrow seam: "run this script with these keys and arguments".
//!
//! Everything above it is shared by the clients; everything about connections, topology, TLS and timeouts is below.
//! Invariant: each run ends, with an answer or an error, within the configured timeout; at most
//! [`Settings::max_in_flight`] are under way, and one more is refused at once.

use std::future::Future;

use aws_lc_rs::digest;
use bytes::Bytes;

use crate::address::{Address, Library, Settings};

mod fred;
mod link;
mod listener;
mod redis_rs;
mod routes;
mod server;

pub use listener::{Heard, Listener};
use routes::Routes;

/// A Lua script, and the name that Redis keeps it by.
#[derive(Debug)]
pub struct Script {
    /// What it decides, for messages.
    pub name: &'static str,
    /// The whole text.
    pub text: String,
    /// SHA-1 of the text, 40 hexadecimal digits.
    pub sha1: String,
}

impl Script {
    /// A script of this text.
    #[must_use]
    pub fn new(name: &'static str, text: &str) -> Self {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha1 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name, text: text.to_owned(), sha1 }
    }
}

/// What a script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `false`, or nothing.
    Nil,
    /// A number.
    Int(i64),
    /// A string, or a status.
    Bytes(Bytes),
    /// A table.
    Array(Vec<Value>),
}

/// Why there is no answer. Unless it says otherwise, the script may or may not have run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Redis can't be reached, did not answer in time, is loading, or its cluster is down.
    #[error("{0}")]
    Away(String),
    /// As many calls as allowed are under way; this one was not sent.
    #[error("too many calls are under way")]
    Busy,
    /// The script refused, or failed: its error's text as Redis passes it on. Nothing else of it is known here.
    #[error("{0}")]
    Script(String),
    /// Fewer replicas than asked for confirmed in time; the script ran.
    #[error("{confirmed} of {asked} replicas confirmed in time")]
    Unconfirmed {
        /// How many did.
        confirmed: u32,
        /// How many were to.
        asked: u32,
    },
}

/// That so many replicas have to confirm what a call wrote before its answer is good: `WAIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// 1 or more.
    pub replicas: u32,
    /// For how long they are waited for, in milliseconds.
    pub timeout_ms: u32,
}

/// A client of one Redis: standalone, of a cluster, or behind Sentinel.
pub trait Client: Send + Sync + 'static {
    /// Runs `script` where `keys` live (all in one slot). By its SHA-1; where Redis does not know that, it is loaded and
    /// run again. With `confirm`, `WAIT` follows on the connection that the script ran on.
    ///
    /// Runs of one caller may be under way together and go out pipelined; no order is kept between them.
    fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> impl Future<Output = Result<Value, ClientError>> + Send;
}

/// A client on [fred](https://docs.rs/fred).
pub struct Fred(Routes<fred::Connection>);

/// A client on [redis-rs](https://docs.rs/redis).
pub struct RedisRs(Routes<redis_rs::Connection>);

impl Fred {
    /// Connects, within [`Settings::connect_timeout`]. From then on it reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] where no server answers, or none lets us in.
    pub async fn connect(address: &Address, settings: &Settings) -> Result<Self, ClientError> {
        Routes::connect(address, settings).await.map(Self)
    }
}

impl RedisRs {
    /// Connects, within [`Settings::connect_timeout`]. From then on it reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] where no server answers, or none lets us in.
    pub async fn connect(address: &Address, settings: &Settings) -> Result<Self, ClientError> {
        Routes::connect(address, settings).await.map(Self)
    }
}

impl Client for Fred {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        self.0.run(script, keys, args, confirm).await
    }
}

impl Client for RedisRs {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        self.0.run(script, keys, args, confirm).await
    }
}

/// A client on the library that the settings name.
pub enum AnyClient {
    /// On fred.
    Fred(Fred),
    /// On redis-rs.
    RedisRs(RedisRs),
}

impl AnyClient {
    /// Connects, within [`Settings::connect_timeout`]. From then on it reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] where no server answers, or none lets us in.
    pub async fn connect(address: &Address, settings: &Settings) -> Result<Self, ClientError> {
        Ok(match settings.library {
            Library::Fred => Self::Fred(Fred::connect(address, settings).await?),
            Library::RedisRs => Self::RedisRs(RedisRs::connect(address, settings).await?),
        })
    }

    /// Says `message` to all who listen to a sharded channel at this moment; whether anybody does is not known.
    ///
    /// # Errors
    /// [`ClientError::Away`], [`ClientError::Busy`], or [`ClientError::Script`] where the server is older than Redis 7.
    /// It may have been said all the same, and more than once.
    pub async fn publish(&self, channel: Bytes, message: Bytes) -> Result<(), ClientError> {
        match self {
            Self::Fred(client) => client.0.publish(channel, message).await,
            Self::RedisRs(client) => client.0.publish(channel, message).await,
        }
    }

    /// Listens to a sharded channel from now on, over a connection of its own, by redis-rs whatever library the client
    /// is on. Of longer messages than `max_len` bytes, one byte more than that is kept.
    pub fn listen(&self, channel: Bytes, max_len: usize) -> Listener {
        match self {
            Self::Fred(client) => client.0.listen(channel, max_len),
            Self::RedisRs(client) => client.0.listen(channel, max_len),
        }
    }
}

impl Client for AnyClient {
    async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Bytes>,
        args: Vec<Bytes>,
        confirm: Option<Confirm>,
    ) -> Result<Value, ClientError> {
        match self {
            Self::Fred(client) => client.run(script, keys, args, confirm).await,
            Self::RedisRs(client) => client.run(script, keys, args, confirm).await,
        }
    }
}
