//! The bytes of a connection, as the HTTP engine reads and writes them. Reads and writes move the connection's phase.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    connection::{Connection, Phase},
    read::{READ_LEN, read_once},
    stream::Stream,
};

pub(crate) struct ConnectionIo {
    connection: Arc<Connection>,
    /// Bytes that an earlier engine had read and not parsed.
    unparsed: Bytes,
}

impl ConnectionIo {
    pub(crate) fn new(connection: Arc<Connection>, unparsed: Bytes) -> Self {
        Self { connection, unparsed }
    }
}

impl AsyncRead for ConnectionIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unparsed.is_empty() {
            let n = buf.remaining().min(self.unparsed.len());
            buf.put_slice(&self.unparsed.split_to(n));
            self.connection.set(Phase::Head);
            return Poll::Ready(Ok(()));
        }
        let connection = &*self.connection;
        let n = ready!(poll_read_some(&connection.stream, cx, buf, READ_LEN))?;
        if n > 0 && matches!(connection.phase().0, Phase::Fresh | Phase::Idle) {
            connection.set(Phase::Head);
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads up to `most` bytes. Returns how many there were; 0 at the end.
pub(crate) fn poll_read_some(
    stream: &Stream,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<usize>> {
    let room = buf.remaining().min(most);
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let space = buf.initialize_unfilled_to(room);
        let n = match read_once(stream, room, || Ok(rustix::io::read(stream, &mut *space)?)) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Poll::Ready(Err(e)),
        };
        buf.advance(n);
        return Poll::Ready(Ok(n));
    }
}

impl AsyncWrite for ConnectionIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let connection = &*self.connection;
        if !matches!(connection.phase().0, Phase::Busy | Phase::Reply) {
            // There is no request, so this is the engine's own reply to a head that it cannot parse.
            connection.keep_engine_reply(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        loop {
            ready!(connection.stream.poll_write_ready(cx))?;
            match connection.stream.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(n) => {
                    // Progress: the deadline starts again.
                    if connection.phase().0 == Phase::Reply {
                        connection.set(Phase::Reply);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Called when the whole reply is out.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.phase().0 == Phase::Reply {
            self.connection.set(Phase::Idle);
        }
        Poll::Ready(Ok(()))
    }

    /// Does nothing: the edge closes the socket, after the engine has ended.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
