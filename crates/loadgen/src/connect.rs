//! Opens connections to the target, and begins HTTP on them.
//!
//! Invariant: the source addresses are used in turn.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{AlertDescription, ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    target::Target,
    tls::{self, Tls},
};

/// The time limit of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The read buffer of a connection, the smallest that hyper allows.
const BUFFER_BYTES: usize = 8 * 1024;

/// The failure if nobody listens.
pub(crate) const REFUSED: &str = "connection refused";
/// The name of HTTP/2 in the handshake of TLS.
const HTTP2: &[u8] = b"h2";

/// Sends requests over a connection.
type Sender = http1::SendRequest<Full<Bytes>>;

/// Sends requests over a connection for HTTP/2; a clone sends over the same one.
pub(crate) type Http2Sender = http2::SendRequest<Full<Bytes>>;

/// Moves the bytes of a connection until it ends.
type Mover = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection for HTTP/1.1. Its caller moves the bytes, so no other task has to run between a call and its reply.
pub(crate) struct Connection {
    sender: Sender,
    /// None when the connection has ended.
    mover: Option<Mover>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("has_ended", &self.mover.is_none()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Whether it takes another request, as far as is known here: the server may have closed it.
    pub(crate) async fn is_ready(&mut self) -> bool {
        let Self { sender, mover } = self;
        moved(mover, pin!(sender.ready())).await.is_ok()
    }

    /// Sends `request`, and awaits what `read` makes of the response.
    ///
    /// # Errors
    /// What hyper says. It returns the request if it was not sent.
    pub(crate) fn call<T, F: Future<Output = T>>(
        &mut self,
        request: Request<Full<Bytes>>,
        read: impl FnOnce(Response<Incoming>) -> F,
    ) -> impl Future<Output = Result<T, TrySendError<Request<Full<Bytes>>>>> {
        // No future has the request: those of hundreds of thousands of users would move it again and again.
        let (sent, mover) = (self.sender.try_send_request(request), &mut self.mover);
        async move {
            let response = moved(mover, pin!(sent)).await?;
            Ok(moved(mover, pin!(read(response))).await)
        }
    }

    /// Gives the connection a task of its own, which ends with it, for a response that is read later.
    pub(crate) fn detached(self) -> Sender {
        if let Some(mover) = self.mover {
            tokio::spawn(mover);
        }
        self.sender
    }
}

/// Awaits `outcome`, and moves the bytes of a connection meanwhile.
async fn moved<T>(mover: &mut Option<Mover>, mut outcome: Pin<&mut impl Future<Output = T>>) -> T {
    poll_fn(|context| {
        // The first round sends what `outcome` asks for. A head that was read makes it ask for the body, which the second round reads.
        for _ in 0..2 {
            if let Poll::Ready(outcome) = outcome.as_mut().poll(context) {
                return Poll::Ready(outcome);
            }
            if mover.as_mut().is_some_and(|mover| mover.as_mut().poll(context).is_ready()) {
                *mover = None;
            }
        }
        outcome.as_mut().poll(context)
    })
    .await
}

/// The way to the target.
#[derive(Debug)]
pub(crate) struct Connector {
    address: SocketAddr,
    /// How connections are encrypted, and the name that the certificate must have; none without encryption.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The same for HTTP/2.
    tls_http2: Option<Arc<ClientConfig>>,
    sources: Vec<IpAddr>,
    turn: AtomicUsize,
}

impl Connector {
    /// A way to `target` from each of `sources` in turn, or from any address if there are none.
    ///
    /// # Errors
    /// If the target's name can have no certificate, or there are no certificates to trust.
    pub(crate) fn new(target: &Target, sources: Vec<IpAddr>) -> Result<Self, String> {
        let tls = target.tls.as_ref().map(Tls::client).transpose()?;
        let tls_http2 = tls.as_ref().map(|(client, _)| {
            let mut client = ClientConfig::clone(client);
            client.alpn_protocols = vec![HTTP2.to_vec()];
            Arc::new(client)
        });
        Ok(Self { address: target.address, tls, tls_http2, sources, turn: AtomicUsize::new(0) })
    }

    /// Opens a connection for HTTP/1.1.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub(crate) async fn open(&self) -> Result<Connection, String> {
        within(self.connect()).await
    }

    /// Opens a connection for HTTP/2. Without encryption the server is expected to know (RFC 9113, 3.3).
    ///
    /// # Errors
    /// As [`Self::open`]; also if an encrypted server does not choose HTTP/2.
    pub(crate) async fn open_http2(&self) -> Result<Http2Sender, String> {
        within(self.connect_http2()).await
    }

    async fn connect_http2(&self) -> io::Result<Http2Sender> {
        let stream = self.tcp().await?;
        match self.tls.as_ref().zip(self.tls_http2.as_ref()) {
            None => speak_http2(stream).await,
            Some(((_, name), client)) => {
                let encrypted = TlsConnector::from(Arc::clone(client)).connect(name.clone(), stream).await?;
                if encrypted.get_ref().1.alpn_protocol() != Some(HTTP2) {
                    let other = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
                    return Err(io::Error::other(other));
                }
                speak_http2(encrypted).await
            }
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let stream = self.tcp().await?;
        match &self.tls {
            None => speak(stream).await,
            Some((client, name)) => {
                let encrypted = TlsConnector::from(Arc::clone(client)).connect(name.clone(), stream).await?;
                speak(encrypted).await
            }
        }
    }

    async fn tcp(&self) -> io::Result<TcpStream> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if !self.sources.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            socket.bind(SocketAddr::new(self.sources[turn % self.sources.len()], 0))?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Gives up opening a connection after some time.
async fn within<T>(opening: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match timeout(CONNECT_TIMEOUT, opening).await {
        Ok(opened) => opened.map_err(|error| failure(&error)),
        Err(_) => Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

/// Begins HTTP/2 on an open connection.
async fn speak_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Http2Sender> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Begins HTTP/1.1 on an open connection.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Connection> {
    let (sender, mover) = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // The sender shows why the connection ended.
    let mover = Box::pin(async move { drop(mover.await) });
    Ok(Connection { sender, mover: Some(mover) })
}

fn failure(error: &io::Error) -> String {
    if let Some(error) = tls::failure(error) {
        return error;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => REFUSED.to_owned(),
        io::ErrorKind::AddrNotAvailable => "no free source address or port".to_owned(),
        _ => format!("no connection: {error}"),
    }
}
