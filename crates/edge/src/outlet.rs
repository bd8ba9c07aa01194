//! The sending side of a stream: what its messages are written to.
//!
//! The owner of an outlet writes whole messages, from any task. On a plain connection (`socket`) they go straight to the
//! socket: no task is woken and nothing is queued. On an encrypted one (`pipe`) they go to the HTTP engine, which has the
//! encryption and, in HTTP/2, the other requests of the connection. Invariants:
//!
//! - At most one message, or the rest of one, is kept for a client that reads slowly. The next message is refused until it
//!   is out.
//! - The connection ends when what is kept makes no progress for [`Limits::write`](crate::Limits::write), and when the
//!   client's system takes no bytes for the time of [`Outlet::limit`]. The stream ends when the outlet is dropped.

mod pipe;
mod socket;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{
    Response,
    header::{CONNECTION, CONTENT_LENGTH},
};

pub(crate) use pipe::{Pipe, Piped, pipe};
pub(crate) use socket::Socket;

type TakeOver = Box<dyn FnOnce(Outlet) + Send>;

/// An extension of a response: its body is a stream, which the service writes to an [`Outlet`].
///
/// The body of the response itself is not sent. The function given gets the outlet. A connection without HTTP/2 is then the
/// stream's: it serves no further request while the stream lasts.
#[derive(Clone)]
pub struct Takeover(Arc<Mutex<Option<TakeOver>>>);

impl Takeover {
    /// A response whose body is what `take_over` writes. Its status and header fields are sent before the first message.
    pub fn response<B: Default>(take_over: impl FnOnce(Outlet) + Send + 'static) -> Response<B> {
        let mut response = Response::new(B::default());
        let take_over: TakeOver = Box::new(take_over);
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(take_over)))));
        response
    }

    /// The function, if this response is a stream's. What its header says about the body that is not sent is removed.
    pub(crate) fn of<B>(response: &mut Response<B>) -> Option<TakeOver> {
        let Self(take_over) = response.extensions_mut().remove()?;
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().remove(CONNECTION);
        take_over.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Takeover")
    }
}

/// Where the messages of a stream are written to.
#[derive(Debug)]
pub struct Outlet(Kind);

#[derive(Debug)]
enum Kind {
    Socket(Socket),
    Pipe(Pipe),
}

impl From<Socket> for Outlet {
    fn from(socket: Socket) -> Self {
        Self(Kind::Socket(socket))
    }
}

impl From<Pipe> for Outlet {
    fn from(pipe: Pipe) -> Self {
        Self(Kind::Pipe(pipe))
    }
}

impl Outlet {
    /// Limits what a client that does not read costs. The system keeps about `unread` bytes of what the client has not
    /// read (Linux doubles the number and counts its own overhead in); on a connection with HTTP/2, which other requests
    /// share, at least 16 KiB. It ends the connection when the client's system takes none of it for `lost_after`, because
    /// it acknowledges nothing or its own buffer is full. A system that does not know these limits keeps its own.
    pub fn limit(&mut self, unread: usize, lost_after: Duration) {
        match &self.0 {
            Kind::Socket(socket) => socket.limit(unread, lost_after),
            Kind::Pipe(pipe) => pipe.limit(unread, lost_after),
        }
    }

    /// Whether the client is there, as far as is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.0 {
            Kind::Socket(socket) => socket.is_open(),
            Kind::Pipe(pipe) => pipe.is_open(),
        }
    }

    /// Sends `message`, or as much of it as the system takes now, and keeps the rest. Returns false, and sends nothing,
    /// while the message before is not out yet or when the client is gone.
    pub fn send(&mut self, message: &[u8]) -> bool {
        match &mut self.0 {
            Kind::Socket(socket) => socket.send(message),
            Kind::Pipe(pipe) => pipe.send(message),
        }
    }

    /// Tries to send the rest. Returns whether everything is out, as far as this server is concerned.
    pub fn flush(&mut self) -> bool {
        match &mut self.0 {
            Kind::Socket(socket) => socket.flush(),
            Kind::Pipe(pipe) => pipe.flush(),
        }
    }

    /// Waits until everything is out or the client is gone.
    pub async fn flushed(&mut self) {
        match &mut self.0 {
            Kind::Socket(socket) => socket.flushed().await,
            Kind::Pipe(pipe) => pipe.flushed().await,
        }
    }
}
