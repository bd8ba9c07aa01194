//! Opens connections to the target, and begins HTTP on them.
//!
//! Invariant: the source addresses are used in turn.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
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
pub(crate) type Sender = http1::SendRequest<Full<Bytes>>;

/// Sends requests over a connection for HTTP/2; a clone sends over the same one.
pub(crate) type Http2Sender = http2::SendRequest<Full<Bytes>>;

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
    pub(crate) async fn open(&self) -> Result<Sender, String> {
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

    async fn connect(&self) -> io::Result<Sender> {
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
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // The sender shows when the connection ends.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
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
