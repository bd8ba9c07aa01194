//! The connections of a worker. Many users share few connections, as behind a load balancer.
//!
//! Invariants: at most N connections are open. Users wait for a free one in the order in which they asked. A connection
//! returns to the pool only after its whole reply was read, so no reply reaches the wrong user.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, client::conn::http1::SendRequest, header};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpSocket,
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    target::Target,
    tls::{self, Tls},
};

/// The time limit of a reply, from the sending of the call.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest reply that is read. A waiting room's reply has a few hundred bytes.
const REPLY_BYTES: usize = 64 * 1024;
/// The read buffer of a connection, the smallest that hyper allows.
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
    /// How connections are encrypted, and the name that the certificate must have; none without encryption.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    sources: Vec<IpAddr>,
    turn: AtomicUsize,
    // A stack: the connection used last is used next, so that no more are opened than are needed at once.
    idle: Mutex<Vec<Sender>>,
    free: Semaphore,
}

impl Pool {
    /// A pool of at most `connections` to `target`. It uses each of `sources` in turn, or any address if there are none.
    ///
    /// # Errors
    /// If the target's name can have no certificate, or there are no certificates to trust.
    pub fn new(target: &Target, connections: usize, sources: Vec<IpAddr>) -> Result<Self, String> {
        Ok(Self {
            address: target.address,
            tls: target.tls.as_ref().map(Tls::client).transpose()?,
            sources,
            turn: AtomicUsize::new(0),
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
                    // hyper returns the request if it was not sent, because the server had closed an idle connection.
                    // After any other failure the server may have handled the call; a retry could take a second place.
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
                let body = body.map_err(|_| "the reply ended early".to_owned())?.to_bytes();
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
        match &self.tls {
            None => speak(stream).await,
            Some((client, name)) => {
                let encrypted = TlsConnector::from(Arc::clone(client)).connect(name.clone(), stream).await?;
                speak(encrypted).await
            }
        }
    }
}

/// Begins HTTP/1.1 on an open connection.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // The sender shows when the connection ends.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn connect_failure(error: &io::Error) -> String {
    if let Some(error) = tls::failure(error) {
        return error;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no free source address or port".to_owned(),
        _ => format!("no connection: {error}"),
    }
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
