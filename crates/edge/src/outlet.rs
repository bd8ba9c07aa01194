//! The sending side of a connection after a takeover: what the messages of a stream are written to.
//!
//! The owner of an outlet writes whole messages straight to the socket, from any task: no task is woken and nothing is
//! queued. Invariants:
//!
//! - At most the rest of one message is kept for a client that reads slowly. The next message is refused until it is out.
//! - The connection ends when a rest makes no progress for [`Limits::write`](crate::Limits::write), when the client's
//!   system takes no bytes for the time of [`Outlet::limit`], and when the outlet is dropped.

use std::{
    fmt, io, mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::Response;
use socket2::SockRef;

use crate::connection::{Connection, Phase};

type TakeOver = Box<dyn FnOnce(Outlet) + Send>;

/// An extension of a response: the service takes the connection over from HTTP.
///
/// The response itself is not sent. The function given gets the connection's outlet, and writes the head of the reply
/// itself. The connection serves no further request.
#[derive(Clone)]
pub struct Takeover(Arc<Mutex<Option<TakeOver>>>);

impl Takeover {
    /// A response that hands the connection to `take_over`.
    pub fn response<B: Default>(take_over: impl FnOnce(Outlet) + Send + 'static) -> Response<B> {
        let mut response = Response::new(B::default());
        let take_over: TakeOver = Box::new(take_over);
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(take_over)))));
        response
    }

    pub(crate) fn into_inner(self) -> Option<TakeOver> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Takeover")
    }
}

/// Where the messages of a stream are written to.
pub struct Outlet {
    connection: Arc<Connection>,
    /// The part of the last message that is not out yet.
    rest: Vec<u8>,
}

impl Outlet {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        connection.take_over();
        Self { connection, rest: Vec::new() }
    }

    /// Limits what a client that does not read costs. The system keeps about `unread` bytes of what the client has not
    /// read (Linux doubles the number and counts its own overhead in). It ends the connection when the client's system
    /// takes none of it for `lost_after`, because it acknowledges nothing or its own buffer is full. A system that does
    /// not know these limits keeps its own.
    pub fn limit(&mut self, unread: usize, lost_after: Duration) {
        let socket = SockRef::from(&self.connection.stream);
        let _ = socket.set_send_buffer_size(unread);
        let _ = socket.set_tcp_user_timeout(Some(lost_after));
    }

    /// Whether the client is there, as far as is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.connection.phase().0 != Phase::Over
    }

    /// Sends `message`, or as much of it as the system takes now, and keeps the rest. Returns false, and sends nothing,
    /// while the message before is not out yet or when the client is gone.
    pub fn send(&mut self, message: &[u8]) -> bool {
        if !self.flush() {
            return false;
        }
        let sent = self.write(message);
        if sent < message.len() && self.is_open() {
            self.rest.extend_from_slice(&message[sent..]);
            // From now on the deadline of a reply applies.
            self.connection.set(Phase::Reply);
        }
        true
    }

    /// Tries to send the rest. Returns whether everything is out, as far as this system is concerned.
    pub fn flush(&mut self) -> bool {
        if self.rest.is_empty() {
            return self.is_open();
        }
        let rest = mem::take(&mut self.rest);
        let sent = self.write(&rest);
        if !self.is_open() {
            return false;
        }
        if sent < rest.len() {
            self.rest = rest;
            self.rest.drain(..sent);
            if sent > 0 {
                self.connection.set(Phase::Reply);
            }
            return false;
        }
        self.connection.set(Phase::Stream);
        true
    }

    /// Waits until everything is out or the client is gone.
    pub async fn flushed(&mut self) {
        while !self.flush() && self.is_open() {
            if self.connection.stream.writable().await.is_err() {
                self.connection.set(Phase::Over);
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> usize {
        match self.connection.stream.try_write(bytes) {
            Ok(sent) => sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.connection.cut();
                self.connection.set(Phase::Over);
                0
            }
        }
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("phase", &self.connection.phase()).finish_non_exhaustive()
    }
}

impl Drop for Outlet {
    /// Ends the connection. Where the client does not close, a deadline does.
    fn drop(&mut self) {
        if self.is_open() {
            self.connection.end_writing();
            self.connection.set(Phase::Linger);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncReadExt as _,
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{Observer, Refusal, connection::Shared};

    struct NoObserver;

    impl Observer for NoObserver {
        fn refused(&self, _: Refusal) -> Vec<u8> {
            Vec::new()
        }
    }

    /// An outlet and its client.
    async fn pair() -> (Outlet, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, peer) = listener.accept().await.expect("accepted");
        let shared = Arc::new(Shared::new(Arc::new(NoObserver)));
        (Outlet::new(Arc::new(Connection::new(stream, peer, shared, false, None))), client)
    }

    #[tokio::test]
    async fn limit_sets_the_time_after_which_a_client_is_lost() {
        let (mut outlet, _client) = pair().await;
        outlet.limit(4_096, Duration::from_secs(6));
        let socket = SockRef::from(&outlet.connection.stream);
        assert_eq!(socket.tcp_user_timeout().expect("a socket"), Some(Duration::from_secs(6)));
    }

    /// Accepted messages arrive whole and in order. For a client that does not read, the rest of one message is kept.
    #[tokio::test]
    async fn a_slow_client_gets_accepted_messages_whole_and_in_order() {
        let (mut outlet, mut client) = pair().await;
        outlet.limit(4_096, Duration::from_secs(60));
        let message = |n: u32| format!("{n:0>1000}");
        let (mut taken, mut last) = (Vec::new(), 0);
        while outlet.rest.is_empty() {
            assert!(outlet.send(message(last).as_bytes()));
            taken.push(last);
            last += 1;
            tokio::task::yield_now().await;
        }
        assert_eq!(outlet.connection.phase().0, Phase::Reply, "the deadline of a reply applies");
        for _ in 0..100 {
            if outlet.send(message(last).as_bytes()) {
                taken.push(last);
            }
            last += 1;
            assert!(outlet.rest.len() <= 1_000);
        }
        let reading = tokio::spawn(async move {
            let mut text = String::new();
            client.read_to_string(&mut text).await.expect("text");
            text
        });
        outlet.flushed().await;
        assert_eq!(outlet.connection.phase().0, Phase::Stream);
        assert!(outlet.send(b"end"));
        outlet.flushed().await;
        drop(outlet);
        let wanted: String = taken.into_iter().map(message).collect();
        assert!(reading.await.expect("read") == wanted + "end");
    }

    #[tokio::test]
    async fn sending_notices_a_client_that_is_gone() {
        let (mut outlet, client) = pair().await;
        drop(client);
        while outlet.send(b"anybody?") {
            tokio::task::yield_now().await;
        }
        assert!(!outlet.is_open() && !outlet.flush());
    }
}
