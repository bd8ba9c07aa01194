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
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
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

/// Sends requests over a connection.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// The way to the target.
#[derive(Debug)]
pub(crate) struct Connector {
    address: SocketAddr,
    /// How connections are encrypted, and the name that the certificate must have; none without encryption.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    sources: Vec<IpAddr>,
    turn: AtomicUsize,
}

impl Connector {
    /// A way to `target` from each of `sources` in turn, or from any address if there are none.
    ///
    /// # Errors
    /// If the target's name can have no certificate, or there are no certificates to trust.
    pub(crate) fn new(target: &Target, sources: Vec<IpAddr>) -> Result<Self, String> {
        Ok(Self {
            address: target.address,
            tls: target.tls.as_ref().map(Tls::client).transpose()?,
            sources,
            turn: AtomicUsize::new(0),
        })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub(crate) async fn open(&self) -> Result<Sender, String> {
        match timeout(CONNECT_TIMEOUT, self.connect()).await {
            Ok(connected) => connected.map_err(|error| failure(&error)),
            Err(_) => Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
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

/// Begins HTTP/1.1 on an open connection.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let (sender, connection) = Builder::new()
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
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no free source address or port".to_owned(),
        _ => format!("no connection: {error}"),
    }
}
