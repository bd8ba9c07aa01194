//! The sending side of a connection that no HTTP engine drives any more: what a stream is written to.
//!
//! Whoever has the outlet writes whole messages straight to the socket, from wherever it is: no task is woken, nothing
//! is queued. Invariants: at most the rest of one message is kept for a client that reads slowly, and the next is not
//! taken before it is out; a rest that does not move for the time replies have, or bytes that the client's
//! system does not take for the time of [`Outlet::limit`], end the connection; a dropped outlet does, too.

use std::{io, mem, sync::Arc, time::Duration};

use socket2::SockRef;

use super::conn::{Conn, Phase};

/// Takes a connection's stream.
pub type Opening = Box<dyn FnOnce(Outlet) + Send>;

/// Where a stream's messages go.
#[derive(Debug)]
pub struct Outlet {
    conn: Arc<Conn>,
    /// What is not out yet of the last message.
    rest: Vec<u8>,
}

impl Outlet {
    pub(super) fn new(conn: Arc<Conn>) -> Self {
        conn.take();
        Self { conn, rest: Vec::new() }
    }

    /// Has the system keep about `unread` bytes at most of what the client has not read (it takes twice that, and counts its
    /// own overhead in), and end the connection where the client's takes none of it for `lost_after`: it acknowledges nothing,
    /// or its own buffer is full. Where the system knows no such limits, its own hold.
    pub fn limit(&mut self, unread: usize, lost_after: Duration) {
        let socket = SockRef::from(&self.conn.stream);
        let _ = socket.set_send_buffer_size(unread);
        let _ = socket.set_tcp_user_timeout(Some(lost_after));
    }

    /// Whether the client is there, as far as is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.conn.phase().0 != Phase::Over
    }

    /// Sends `message`, or as much of it as the system takes now. Not taken, and false, where the one before is not out
    /// yet, or the client is gone.
    pub fn send(&mut self, message: &[u8]) -> bool {
        if !self.flush() {
            return false;
        }
        let sent = self.write(message);
        if sent < message.len() && self.is_open() {
            self.rest.extend_from_slice(&message[sent..]);
            // From now on the keeper minds the time.
            self.conn.set(Phase::Reply);
        }
        true
    }

    /// Whether all that was taken is out, as far as the system is concerned; tries.
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
                self.conn.set(Phase::Reply);
            }
            return false;
        }
        self.conn.set(Phase::Stream);
        true
    }

    /// Waits until all is out, or the client is gone.
    pub async fn flushed(&mut self) {
        while !self.flush() && self.is_open() {
            if self.conn.stream.writable().await.is_err() {
                self.conn.set(Phase::Over);
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> usize {
        match self.conn.stream.try_write(bytes) {
            Ok(sent) => sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.conn.cut();
                self.conn.set(Phase::Over);
                0
            }
        }
    }
}

impl Drop for Outlet {
    /// The keeper ends a connection whose client does not.
    fn drop(&mut self) {
        if self.is_open() {
            self.conn.end_writing();
            self.conn.set(Phase::Linger);
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

    /// An outlet, and the client's side of it.
    async fn pair() -> (Outlet, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, peer) = listener.accept().await.expect("accepted");
        (Outlet::new(Arc::new(Conn::new(stream, peer, Arc::default(), false))), client)
    }

    #[tokio::test]
    async fn a_vanished_client_is_noticed() {
        let (mut outlet, _client) = pair().await;
        outlet.limit(4_096, Duration::from_secs(6));
        let socket = SockRef::from(&outlet.conn.stream);
        assert_eq!(socket.tcp_user_timeout().expect("a socket"), Some(Duration::from_secs(6)));
    }

    /// Messages arrive whole and in their order, but for those that were not taken; the rest of one is kept.
    #[tokio::test]
    async fn who_does_not_read_is_kept_the_rest_of_one_message() {
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
        assert_eq!(outlet.conn.phase().0, Phase::Reply, "the keeper minds the time");
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
        assert_eq!(outlet.conn.phase().0, Phase::Stream);
        assert!(outlet.send(b"end"));
        outlet.flushed().await;
        drop(outlet);
        let wanted: String = taken.into_iter().map(message).collect();
        assert!(reading.await.expect("read") == wanted + "end");
    }

    #[tokio::test]
    async fn a_client_that_is_gone_is_noticed_by_what_is_sent() {
        let (mut outlet, client) = pair().await;
        drop(client);
        while outlet.send(b"anybody?") {
            tokio::task::yield_now().await;
        }
        assert!(!outlet.is_open() && !outlet.flush());
    }
}
