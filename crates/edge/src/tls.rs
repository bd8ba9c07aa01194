//! TLS on a listener: the certificate, the handshake, and which HTTP follows.
//!
//! | file | concern |
//! |---|---|
//! | `certificate` | a certificate and its key, from PEM |
//! | `plaintext` | the bytes above the encryption |
//! | `http1` | HTTP/1.1; HTTP/2 is in `crate::http2` |
//!
//! Invariants: a connection that sends nothing has no TLS session; a handshake has the deadline of a head; the certificate of
//! a connection is the one that was in force when its handshake began.

mod certificate;
mod http1;
mod plaintext;

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use hyper::{Request, Response, body::Body, server::conn};
use hyper_util::rt::TokioExecutor;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs::Ticketer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

pub use certificate::{Certificate, CertificateError};

use crate::{
    Observer, Received, Refusal,
    connection::{Connection, LINGER_BYTES, Phase},
    engine::Engines,
    http2,
    link::Link,
    wire::Wire,
};

/// The most encrypted bytes that wait for the socket.
const SEND_BUFFER: usize = 16 << 10;

/// The first byte of every TLS connection: a record with a part of the handshake.
const HANDSHAKE: u8 = 22;

/// What a listener needs for TLS 1.2 and 1.3.
///
/// Clients choose between HTTP/2 and HTTP/1.1 (ALPN); those that name neither get HTTP/1.1.
pub struct Tls {
    acceptor: TlsAcceptor,
    certificate: Arc<Current>,
    http1: Engines,
    http2: conn::http2::Builder<TokioExecutor>,
}

/// The certificate in force.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    /// Serves with this certificate.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn new(certificate: &Certificate) -> Result<Arc<Self>, rustls::Error> {
        let certificate = Arc::new(Current(RwLock::new(Arc::clone(&certificate.key))));
        let mut config = ServerConfig::builder_with_provider(Arc::new(certificate::provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Current>::clone(&certificate));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Clients that come back save most of the handshake, and the server keeps nothing for them.
        config.ticketer = Ticketer::new()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        // A client that ends its side is gone: the end of the encryption is the end of the connection.
        Ok(Arc::new(Self { acceptor, certificate, http1: Engines::new(false), http2: http2::engine() }))
    }

    /// Uses another certificate for handshakes from now on. Connections stay as they are.
    pub fn replace(&self, certificate: &Certificate) {
        *self.certificate.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&certificate.key);
    }

    /// Serves a connection until it ends.
    pub(crate) async fn serve<S, B>(
        self: Arc<Self>,
        connection: Arc<Connection>,
        observer: Arc<dyn Observer>,
        service: S,
    ) where
        S: Service<Request<Received>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if connection.stream.register().is_err() {
            return;
        }
        let mut first = [0];
        if !matches!(connection.stream.peek(&mut first).await, Ok(1)) {
            return;
        }
        if first[0] != HANDSHAKE {
            if first[0].is_ascii_uppercase() {
                let _ = connection.stream.try_write(&connection.refusal(Refusal::Plaintext));
            }
            connection.end_writing();
            return Box::pin(connection.linger(LINGER_BYTES)).await;
        }
        // The handshake has the deadline of a head.
        connection.set(Phase::Head);
        let link = Link::new(Arc::clone(&connection));
        let wire = Wire(Arc::clone(&link));
        let limit = |session: &mut rustls::ServerConnection| session.set_buffer_limit(Some(SEND_BUFFER));
        // Boxed, as all that an idle connection does not need.
        let stream = match Box::pin(self.acceptor.accept_with(wire, limit)).await {
            Ok(stream) => stream,
            Err(e) => {
                observer.handshake_failed();
                tracing::debug!(client = %connection.peer.ip(), error = %e, "a TLS handshake failed");
                connection.end_writing();
                return Box::pin(connection.linger(LINGER_BYTES)).await;
            }
        };
        connection.set(Phase::Fresh);
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            Box::pin(http2::serve(&self.http2, stream, link, observer, service)).await;
        } else {
            let engine = self.http1.of(link.connection.has_reserve());
            http1::serve(engine, stream, link, observer, service).await;
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
