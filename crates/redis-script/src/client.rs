//! Runs scripts: connections, topology, TLS and timeouts are hidden behind [`Client::run`].
//!
//! Invariant: each run ends, with an answer or an error, within the configured timeout. At most
//! [`Settings::max_in_flight`] runs are in flight; one more is refused at once.

use std::future::Future;

use aws_lc_rs::digest;
use bytes::Bytes;

use crate::address::{Address, Library, Settings};

mod driver;
mod fred;
pub mod inspect;
mod link;
mod listener;
mod redis_rs;
mod routes;
mod server;
mod stream;
mod topology;

pub use listener::{ChannelEvent, Listener};
use routes::Routes;

/// A Lua script, and the digest under which Redis caches it.
#[derive(Debug)]
pub struct Script {
    /// A short name for messages.
    pub name: &'static str,
    /// The whole text.
    pub text: String,
    /// SHA-1 of the text, 40 hexadecimal digits.
    pub sha1: String,
}

impl Script {
    /// A script with this text.
    #[must_use]
    pub fn new(name: &'static str, text: &str) -> Self {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha1 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name, text: text.to_owned(), sha1 }
    }
}

/// A script's answer.
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

/// Why there is no answer. Unless stated otherwise, the script may or may not have run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Redis can't be reached, did not answer in time, is loading, or its cluster is down. May be tried again.
    #[error("{0}")]
    Away(String),
    /// [`Settings::max_in_flight`] calls are in flight already. This one was not sent.
    #[error("too many calls are in flight")]
    Busy,
    /// The script returned an error, or failed. This is the text as Redis passes it on.
    #[error("{0}")]
    Script(String),
    /// The script ran, but fewer replicas than asked for confirmed in time.
    #[error("{confirmed} of {asked} replicas confirmed in time")]
    Unconfirmed {
        /// How many confirmed.
        confirmed: u32,
        /// How many had to.
        asked: u32,
        /// What the script answered. Redis may still lose what it wrote.
        reply: Value,
    },
}

/// Asks that replicas confirm (`WAIT`) what a call wrote before its answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// How many replicas; 1 or more.
    pub replicas: u32,
    /// How long to wait for them, in milliseconds.
    pub timeout_ms: u32,
}

/// A client of one Redis: standalone, of a cluster, or behind Sentinel.
pub trait Client: Send + Sync + 'static {
    /// Runs `script` on the server that has `keys`, which must all be in one slot. The script is called by its SHA-1;
    /// if Redis does not know it, the text is sent. With `confirm`, `WAIT` follows on the same connection.
    ///
    /// Several runs may be in flight together. They are pipelined, and their order is not kept.
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
    /// Connects, within [`Settings::connect_timeout`]. The client reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] if no server answers, or none accepts the login.
    pub async fn connect(address: &Address, settings: &Settings) -> Result<Self, ClientError> {
        Routes::connect(address, settings).await.map(Self)
    }
}

impl RedisRs {
    /// Connects, within [`Settings::connect_timeout`]. The client reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] if no server answers, or none accepts the login.
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

/// A client on the library that [`Settings::library`] selects.
pub enum AnyClient {
    /// On fred.
    Fred(Fred),
    /// On redis-rs.
    RedisRs(RedisRs),
}

impl AnyClient {
    /// Connects, within [`Settings::connect_timeout`]. The client reconnects by itself.
    ///
    /// # Errors
    /// [`ClientError::Away`] if no server answers, or none accepts the login.
    pub async fn connect(address: &Address, settings: &Settings) -> Result<Self, ClientError> {
        Ok(match settings.library {
            Library::Fred => Self::Fred(Fred::connect(address, settings).await?),
            Library::RedisRs => Self::RedisRs(RedisRs::connect(address, settings).await?),
        })
    }

    /// Publishes `message` to the current subscribers of a sharded channel. Whether there are any is not known.
    ///
    /// # Errors
    /// [`ClientError::Away`], [`ClientError::Busy`], or [`ClientError::Script`] if the server is older than Redis 7.
    /// The message may have been published all the same, and more than once.
    pub async fn publish(&self, channel: Bytes, message: Bytes) -> Result<(), ClientError> {
        match self {
            Self::Fred(client) => client.0.publish(channel, message).await,
            Self::RedisRs(client) => client.0.publish(channel, message).await,
        }
    }

    /// Subscribes to a sharded channel, over a separate connection. This always uses redis-rs, whatever library the
    /// client uses. Messages longer than `max_len` bytes are cut to `max_len + 1` bytes.
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
