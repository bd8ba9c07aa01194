//! The connections of a worker. Many users share few connections, as behind a load balancer. `Multiplex` has those for HTTP/2.
//!
//! Invariants: at most N connections are open. Users wait for a free one in the order in which they asked. A connection
//! returns to the pool only after its whole reply was read, so no reply reaches the wrong user.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response, StatusCode, body::Incoming, header};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    connect::{Connection, Connector},
    events::Events,
    multiplex::Multiplex,
    target::Target,
};

/// The time limit of a reply, from the sending of the call.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How the type of a stream of events begins.
const EVENT_STREAM: &[u8] = b"text/event-stream";
/// The largest reply that is read. A waiting room's reply has a few hundred bytes.
const REPLY_BYTES: usize = 64 * 1024;

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// How the server answered the request for a stream.
#[derive(Debug)]
pub enum Listening {
    /// With a stream.
    Open(Events),
    /// With another status than 200.
    Refused(Reply),
}

/// The connections.
#[derive(Debug)]
pub struct Pool {
    connector: Connector,
    /// The connections for HTTP/2; with them, the others are not used for calls.
    http2: Option<Multiplex>,
    // A stack: the connection used last is used next, so that no more are opened than are needed at once.
    idle: Mutex<Vec<Connection>>,
    free: Semaphore,
}

impl Pool {
    /// A pool of at most `connections` to `target`. It uses each of `sources` in turn, or any address if there are none.
    ///
    /// # Errors
    /// If the target's name can have no certificate, or there are no certificates to trust.
    pub fn new(target: &Target, connections: usize, sources: Vec<IpAddr>) -> Result<Self, String> {
        Ok(Self {
            connector: Connector::new(target, sources)?,
            http2: target.http2.then(|| Multiplex::new(target.origin(), connections)),
            idle: Mutex::default(),
            free: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
        })
    }

    /// Sends `request` as soon as a connection is free. It calls `sending` just before.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub async fn call(
        &self,
        mut request: Request<Full<Bytes>>,
        mut sending: impl FnMut(),
    ) -> Result<Reply, String> {
        if let Some(http2) = &self.http2 {
            // Boxed, like the opening of a connection below, so that each call does not move the state of what it seldom does.
            let sent = Box::pin(async { whole(http2.send(&self.connector, request, sending).await?).await });
            return timeout(REPLY_TIMEOUT, sent).await.unwrap_or_else(|_| Err(no_reply()));
        }
        let _permit = self.free.acquire().await.map_err(|_| "the pool is closed")?;
        loop {
            let (mut connection, fresh) = match self.idle_one().await {
                Some(connection) => (connection, false),
                None => (Box::pin(self.connector.open()).await?, true),
            };
            sending();
            match timeout(REPLY_TIMEOUT, connection.call(request, whole)).await {
                Err(_) => return Err(no_reply()),
                Ok(Ok(reply)) => {
                    let reply = reply?;
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                    return Ok(reply);
                }
                // hyper returns the request if it was not sent, because the server had closed an idle connection.
                // After any other failure the server may have handled the call; a retry could take a second place.
                Ok(Err(mut error)) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(http_failure(error.error())),
                },
            }
        }
    }

    /// Opens a stream of events, always with HTTP/1.1, on a connection of its own, which does not count towards the `connections` of the pool. It calls
    /// `sending` just before the request is sent.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub async fn listen(
        &self,
        request: Request<Full<Bytes>>,
        sending: impl FnOnce(),
    ) -> Result<Listening, String> {
        let mut sender = self.connector.open().await?.detached();
        sending();
        let opened = async {
            let response = sender.send_request(request).await.map_err(|error| http_failure(&error))?;
            let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_owned());
            if response.status() != StatusCode::OK {
                return Ok(Listening::Refused(whole(response).await?));
            }
            if !kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
                return Err("the reply is not a stream of events".to_owned());
            }
            Ok(Listening::Open(Events::new(response.into_body())))
        };
        timeout(REPLY_TIMEOUT, opened).await.unwrap_or_else(|_| Err(no_reply()))
    }

    async fn idle_one(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if connection.is_ready().await {
                return Some(connection);
            }
        }
    }
}

/// Reads the whole reply.
async fn whole(response: Response<Incoming>) -> Result<Reply, String> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = Limited::new(response.into_body(), REPLY_BYTES).collect().await;
    let body = body.map_err(|_| "the reply ended early".to_owned())?.to_bytes();
    Ok(Reply { status, retry_after, body })
}

fn no_reply() -> String {
    format!("no reply within {} s", REPLY_TIMEOUT.as_secs())
}

fn http_failure(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "connection closed without a reply".to_owned()
    } else if error.is_parse() {
        "the reply is not HTTP/1.1".to_owned()
    } else {
        format!("no reply: {error}")
    }
}
