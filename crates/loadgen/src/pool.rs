//! The connections of a worker: few, shared by many users, as behind a load balancer.
//!
//! Invariants: at most N are open; users who find none free wait in the order in which they came; a connection is given
//! back only after its reply was read whole, so no reply can reach the wrong user.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, client::conn::http1::SendRequest, header};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpSocket, sync::Semaphore, time::timeout};

/// How long a reply may take from sending on.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The greatest reply that is read; a waiting room's has a few hundred bytes.
const REPLY_BYTES: usize = 64 * 1024;
/// How much a connection reads at most at once: hyper's smallest.
const BUFFER_BYTES: usize = 8 * 1024;

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

type Sender = SendRequest<Full<Bytes>>;

/// The connections.
#[derive(Debug)]
pub struct Pool {
    address: SocketAddr,
    sources: Vec<IpAddr>,
    turn: AtomicUsize,
    // The one used last goes first, so that no more are open than are needed at once.
    idle: Mutex<Vec<Sender>>,
    free: Semaphore,
}

impl Pool {
    /// At most `connections` to `address`, from each of `sources` in turn (from any if there are none).
    #[must_use]
    pub fn new(address: SocketAddr, connections: usize, sources: Vec<IpAddr>) -> Self {
        Self {
            address,
            sources,
            turn: AtomicUsize::new(0),
            idle: Mutex::default(),
            free: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
        }
    }

    /// Sends `request` as soon as a connection is free, calling `sending` just before.
    ///
    /// # Errors
    /// In a few words, the same for the same kind of failure.
    pub async fn call(
        &self,
        request: Request<Full<Bytes>>,
        mut sending: impl FnMut(),
    ) -> Result<Reply, String> {
        let _permit = self.free.acquire().await.map_err(|_| "the pool is closed")?;
        let mut request = request;
        loop {
            let (mut sender, fresh) = match self.idle_one().await {
                Some(sender) => (sender, false),
                None => match timeout(CONNECT_TIMEOUT, self.connect()).await {
                    Ok(connected) => (connected.map_err(|error| connect_failure(&error))?, true),
                    Err(_) => return Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
                },
            };
            sending();
            let sent = async {
                let response = match sender.try_send_request(request).await {
                    Ok(response) => response,
                    // Given back unsent: an idle connection that the server had closed. Any other failure may have
                    // reached the server, and a place taken twice would be our doing.
                    Err(mut error) => {
                        return match error.take_message() {
                            Some(unsent) if !fresh => Ok(Err(unsent)),
                            _ => Err(http_failure(error.error())),
                        };
                    }
                };
                let status = response.status().as_u16();
                let retry_after = response.headers().get(header::RETRY_AFTER);
                let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
                let body = Limited::new(response.into_body(), REPLY_BYTES).collect().await;
                let body = body.map_err(|_| "the reply broke off".to_owned())?.to_bytes();
                Ok(Ok(Reply { status, retry_after, body }))
            };
            match timeout(REPLY_TIMEOUT, sent).await {
                Err(_) => return Err(format!("no reply within {} s", REPLY_TIMEOUT.as_secs())),
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(Err(unsent))) => request = unsent,
                Ok(Ok(Ok(reply))) => {
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
                    return Ok(reply);
                }
            }
        }
    }

    async fn idle_one(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if !sender.is_closed() && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> io::Result<Sender> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if !self.sources.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            socket.bind(SocketAddr::new(self.sources[turn % self.sources.len()], 0))?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // Its end shows at the sender.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

fn connect_failure(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no source address or port free".to_owned(),
        _ => format!("no connection: {error}"),
    }
}

fn http_failure(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "connection closed without a reply".to_owned()
    } else if error.is_parse() {
        "the reply is no HTTP/1.1".to_owned()
    } else {
        format!("no reply: {error}")
    }
}
