//! What the HTTP/1.1 engine reads and writes, above the encryption.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::{connection::Phase, link::Link, wire::Wire};

/// What the HTTP/1.1 engine reads and writes. Both move the phase of the connection.
pub(super) struct Plaintext {
    pub(super) stream: TlsStream<Wire>,
    link: Arc<Link>,
    /// Bytes that an earlier engine had read and not parsed.
    unparsed: Bytes,
}

impl Plaintext {
    pub(super) fn new(stream: TlsStream<Wire>, link: Arc<Link>, unparsed: Bytes) -> Self {
        Self { stream, link, unparsed }
    }
}

impl AsyncRead for Plaintext {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unparsed.is_empty() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            if buf.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
        } else {
            let n = buf.remaining().min(self.unparsed.len());
            buf.put_slice(&self.unparsed.split_to(n));
        }
        let connection = &self.link.connection;
        if matches!(connection.phase().0, Phase::Fresh | Phase::Idle) {
            connection.set(Phase::Head);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Plaintext {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let connection = &self.link.connection;
        if !matches!(connection.phase().0, Phase::Busy | Phase::Reply | Phase::Stream) {
            // There is no request, so this is the engine's own reply to a head that it cannot parse.
            connection.keep_engine_reply(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// Called when the engine has written the whole reply.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.link.flushed();
        Poll::Ready(Ok(()))
    }

    /// Does nothing: the edge ends the encryption and closes the socket, after the engine has ended.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
