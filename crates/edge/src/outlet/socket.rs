//! The outlet of a plain connection: messages go straight to the socket.

use std::{fmt, io, mem, sync::Arc, time::Duration};

use hyper::{Response, StatusCode};
use socket2::SockRef;

use crate::{
    connection::{Connection, Phase},
    direct::begin,
};

/// The outlet of a plain connection, which the HTTP engine has left.
pub(crate) struct Socket {
    connection: Arc<Connection>,
    /// The head of the reply, until the first message takes it along.
    head: Vec<u8>,
    /// The part of the last message that is not out yet.
    rest: Vec<u8>,
}

impl Socket {
    /// Takes over a connection whose reply begins with the head of `response`.
    pub(crate) fn new<B>(connection: Arc<Connection>, response: &Response<B>) -> Self {
        connection.take_over();
        Self { connection, head: head(response), rest: Vec::new() }
    }

    /// See [`Outlet::limit`](super::Outlet::limit).
    pub(super) fn limit(&self, unread: usize, lost_after: Duration) {
        let socket = SockRef::from(&self.connection.stream);
        let _ = socket.set_send_buffer_size(unread);
        let _ = socket.set_tcp_user_timeout(Some(lost_after));
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.phase().0 != Phase::Over
    }

    pub(super) fn send(&mut self, message: &[u8]) -> bool {
        if !self.flush() {
            return false;
        }
        let with_head;
        let message = if self.head.is_empty() {
            message
        } else {
            with_head = [&mem::take(&mut self.head), message].concat();
            &with_head
        };
        let sent = self.write(message);
        if sent < message.len() && self.is_open() {
            self.rest.extend_from_slice(&message[sent..]);
            // From now on the deadline of a reply applies.
            self.connection.set(Phase::Reply);
        }
        true
    }

    pub(super) fn flush(&mut self) -> bool {
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

    pub(super) async fn flushed(&mut self) {
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

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("phase", &self.connection.phase()).finish_non_exhaustive()
    }
}

impl Drop for Socket {
    /// Ends the connection. Where the client does not close, a deadline does.
    fn drop(&mut self) {
        if self.is_open() {
            self.connection.end_writing();
            self.connection.set(Phase::Linger);
        }
    }
}

/// The head of a reply that lasts until the connection closes.
fn head<B>(response: &Response<B>) -> Vec<u8> {
    debug_assert_eq!(response.status(), StatusCode::OK, "a stream is a success");
    let mut head = begin(response.status(), response.headers(), 0);
    head.extend_from_slice(b"connection: close\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::TcpStream};

    use super::*;
    use crate::connection::accepted;

    /// An outlet and its client.
    async fn pair() -> (Socket, TcpStream) {
        let (connection, _shared, client) = accepted().await;
        let mut outlet = Socket::new(connection, &Response::new(()));
        outlet.head.clear();
        (outlet, client)
    }

    #[tokio::test]
    async fn limit_sets_the_time_after_which_a_client_is_lost() {
        let (outlet, _client) = pair().await;
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
