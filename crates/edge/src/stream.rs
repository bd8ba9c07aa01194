//! The socket of a connection, which the runtime watches only for a connection with a task of its own.
//!
//! Invariant: what waits for the socket registers it first; what does not wait needs no registration.

use std::{
    io::{self, IoSlice},
    net::TcpStream,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::OnceLock,
    task::{Context, Poll, ready},
};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{Interest, unix::AsyncFd};

/// A socket that does not block.
pub(crate) struct Stream {
    /// The runtime's registration. Declared before `stream`, so that it ends before the descriptor closes.
    registered: OnceLock<AsyncFd<RawFd>>,
    stream: TcpStream,
}

impl Stream {
    /// The socket of `stream`, which must not block.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { registered: OnceLock::new(), stream }
    }

    #[cfg(test)]
    pub(crate) fn accepted(stream: tokio::net::TcpStream) -> Self {
        let stream = Self::new(stream.into_std().expect("it can leave the runtime"));
        stream.register().expect("it can be watched");
        stream
    }

    /// From now on the runtime tells the tasks that wait for it. Only the task that serves the connection may call this.
    pub(crate) fn register(&self) -> io::Result<()> {
        if !self.is_registered() {
            // SAFETY: the descriptor is that of `stream`, which lives longer than the registration: see `Stream`.
            #[expect(unsafe_code, reason = "the runtime cannot know how long a descriptor lives")]
            let registered = unsafe { AsyncFd::register(self.stream.as_raw_fd())? };
            assert!(self.registered.set(registered).is_ok(), "only one task registers a socket");
        }
        Ok(())
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.get().is_some()
    }

    fn registered(&self) -> io::Result<&AsyncFd<RawFd>> {
        self.registered.get().ok_or_else(|| io::Error::other("nothing watches this socket"))
    }

    /// Runs `io` if the socket is ready for it, as far as is known. After [`io::ErrorKind::WouldBlock`] it is not ready.
    pub(crate) fn try_io<T>(&self, interest: Interest, io: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.registered.get() {
            Some(registered) => registered.try_io(interest, |_| io()),
            None => io(),
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _still_ready = ready!(self.registered()?.poll_read_ready(cx))?;
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _still_ready = ready!(self.registered()?.poll_write_ready(cx))?;
        Poll::Ready(Ok(()))
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.registered()?.readable().await.map(drop)
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.registered()?.writable().await.map(drop)
    }

    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.try_io(Interest::READABLE, || Ok(rustix::io::read(self, bytes)?))
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_writing(|| Ok(send(self, bytes, SendFlags::NOSIGNAL)?))
    }

    pub(crate) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_writing(|| Ok(rustix::io::writev(self, parts)?))
    }

    /// The runtime does not know at first that a socket which it begins to watch takes bytes, so this asks the system.
    fn try_writing(&self, write: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
        match write() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.try_io(Interest::WRITABLE, write),
            written => written,
        }
    }

    /// The first bytes that the client sends. They stay unread.
    pub(crate) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_io(Interest::READABLE, || Ok(recv(self, &mut *bytes, RecvFlags::PEEK)?.0)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                peeked => return peeked,
            }
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
