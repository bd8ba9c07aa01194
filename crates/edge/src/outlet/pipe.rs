//! The outlet of an encrypted connection: messages go to the HTTP engine, as the parts of a reply's body.
//!
//! The pipe holds one message. While the engine has not taken it (with HTTP/2: has not written it), or the socket takes no
//! bytes, the next one is refused, so a client that does not read costs no more than on a plain connection.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use socket2::SockRef;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::link::{Exchange, Part, Replying};

/// The least that the system buffers for a connection with HTTP/2, in bytes. All its requests share it.
const SHARED_UNREAD: usize = 16 << 10;

/// The outlet of an encrypted connection.
pub(crate) struct Pipe {
    messages: Sender<Bytes>,
    exchange: Arc<Exchange>,
}

/// The body of a reply whose messages come from a [`Pipe`].
pub(crate) struct Piped {
    messages: Receiver<Bytes>,
    reply: Arc<Replying>,
}

/// A stream as the reply of this exchange.
pub(crate) fn pipe(exchange: &Arc<Exchange>) -> (Pipe, Piped) {
    exchange.stream();
    let (sender, receiver) = channel(1);
    let reply = Replying::new(Arc::clone(exchange));
    (Pipe { messages: sender, exchange: Arc::clone(exchange) }, Piped { messages: receiver, reply })
}

impl Pipe {
    /// See [`Outlet::limit`](super::Outlet::limit).
    pub(super) fn limit(&self, unread: usize, lost_after: Duration) {
        let link = &self.exchange.link;
        let unread = if link.is_multiplexed() { unread.max(SHARED_UNREAD) } else { unread };
        let socket = SockRef::from(&link.connection.stream);
        let _ = socket.set_send_buffer_size(unread);
        let _ = socket.set_tcp_user_timeout(Some(lost_after));
    }

    pub(super) fn is_open(&self) -> bool {
        !self.messages.is_closed()
    }

    fn is_empty(&self) -> bool {
        self.messages.capacity() == self.messages.max_capacity()
    }

    pub(super) fn send(&self, message: &[u8]) -> bool {
        if !self.flush() {
            return false;
        }
        // Before the message is there to be taken.
        self.exchange.wait();
        self.messages.try_send(Bytes::copy_from_slice(message)).is_ok()
    }

    pub(super) fn flush(&self) -> bool {
        self.is_empty() && !self.exchange.waits() && !self.exchange.link.is_stalled() && self.is_open()
    }

    pub(super) async fn flushed(&self) {
        // There is room for one message, so there is room for another one when this one is taken. An error means that the
        // client is gone.
        let _ = self.messages.reserve().await;
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Drop for Pipe {
    /// Ends the body. From now on its end waits for the client.
    fn drop(&mut self) {
        if self.is_open() {
            self.exchange.wait();
        }
    }
}

impl Body for Piped {
    type Data = Part;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, Self::Error>>> {
        let message = ready!(self.messages.poll_recv(cx));
        Poll::Ready(message.map(|message| Ok(Frame::data(self.reply.part(message, true)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
