//! Both sides of the encryption: the socket below it, and what the HTTP/1.1 engine reads and writes above it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::{connection::Phase, io::poll_read_some, link::Link};

/// The socket, below the encryption. Writes move the phase of the connection.
pub(super) struct Wire(pub(super) Arc<Link>);

impl Wire {
    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let stream = &self.0.connection.stream;
        loop {
            match stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    self.0.stall();
                    return Poll::Pending;
                }
            }
            match write(stream) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(n) => {
                    self.0.progress();
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = buf.remaining();
        poll_read_some(&self.0.connection.stream, cx, buf, most).map_ok(|_| ())
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.connection.end_writing();
        Poll::Ready(Ok(()))
    }
}

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
