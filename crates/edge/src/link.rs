//! What a connection with TLS or with HTTP/2 is doing: its phase, from what its requests and its socket do.
//!
//! With HTTP/1.1 there is one request at a time, and its steps are the phases, as on a plain connection. With HTTP/2 there are
//! several. Then the connection is in the phase of the one that is furthest: `Reply` while a reply or a message waits for
//! the client, so that the deadline of a reply applies; else `Busy` while there is a request; else `Idle`. Invariants:
//!
//! - An exchange is counted from its request until its reply is written or dropped, however it ends.
//! - `Reply` begins when the reply that has waited longest last made progress. Only its own bytes are its progress: with a
//!   closed window a client still gets other replies, and answers to its pings.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::{Buf, Bytes};

use crate::connection::{Connection, Phase};

/// A connection with TLS or with HTTP/2.
pub(crate) struct Link {
    pub(crate) connection: Arc<Connection>,
    /// The socket takes no bytes now.
    stalled: AtomicBool,
    /// With HTTP/1.1: the body of the reply is a stream.
    streams: AtomicBool,
    /// With HTTP/2.
    exchanges: Mutex<Exchanges>,
}

/// The exchanges of a connection with HTTP/2.
#[derive(Default)]
struct Exchanges {
    /// Requests whose replies are not complete.
    open: usize,
    /// Those of them with something that waits for the client, and the tick since which it does so without progress.
    waiting: Vec<Waiting>,
    /// How many there were so far.
    begun: u32,
}

struct Waiting {
    exchange: u32,
    since: u32,
}

impl Exchanges {
    fn waits(&self, exchange: u32) -> bool {
        self.waiting.iter().any(|waiting| waiting.exchange == exchange)
    }

    fn end_waiting(&mut self, exchange: u32) {
        self.waiting.retain(|waiting| waiting.exchange != exchange);
    }
}

impl Link {
    pub(crate) fn new(connection: Arc<Connection>) -> Arc<Self> {
        connection.enable_end_signal();
        Arc::new(Self {
            connection,
            stalled: AtomicBool::new(false),
            streams: AtomicBool::new(false),
            exchanges: Mutex::default(),
        })
    }

    pub(crate) fn is_multiplexed(&self) -> bool {
        self.connection.is_multiplexed()
    }

    /// Whether the socket takes no bytes now, although there are some for it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// The socket took no bytes.
    pub(crate) fn stall(&self) {
        if self.stalled.swap(true, Relaxed) {
            return;
        }
        if self.is_multiplexed() {
            self.change(|_, _| {});
        } else if self.connection.phase().0 == Phase::Stream {
            self.connection.set(Phase::Reply);
        }
    }

    /// The socket took some bytes.
    pub(crate) fn progress(&self) {
        let was_stalled = self.stalled.load(Relaxed) && self.stalled.swap(false, Relaxed);
        if self.is_multiplexed() {
            // The bytes may be those of something else than the replies that wait.
            if was_stalled {
                self.change(|_, _| {});
            }
        } else if self.connection.phase().0 == Phase::Reply {
            // The deadline starts again.
            self.connection.set(Phase::Reply);
        }
    }

    /// With HTTP/1.1: everything is out.
    pub(crate) fn flushed(&self) {
        if self.connection.phase().0 == Phase::Reply {
            let streams = self.streams.load(Relaxed);
            self.connection.set(if streams { Phase::Stream } else { Phase::Idle });
        }
    }

    /// Changes the exchanges, given the tick of now, and then the phase.
    fn change<T>(&self, change: impl FnOnce(&mut Exchanges, u32) -> T) -> T {
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.connection.now();
        let changed = change(&mut exchanges, now);
        // The one that has waited longest. Ticks wrap.
        let waiting = exchanges.waiting.iter().map(|waiting| waiting.since);
        let longest = waiting.max_by_key(|&since| now.wrapping_sub(since));
        let phase = match exchanges.open {
            _ if longest.is_some() || self.is_stalled() => Phase::Reply,
            1.. => Phase::Busy,
            0 => Phase::Idle,
        };
        if let Some(since) = longest {
            self.connection.set_since(phase, since);
        } else if self.connection.phase().0 != phase {
            self.connection.set(phase);
        }
        changed
    }
}

/// A request and its reply.
pub(crate) struct Exchange {
    pub(crate) link: Arc<Link>,
    /// Its number, with HTTP/2.
    number: u32,
    /// With HTTP/2, guarded by the lock of [`Link::change`].
    over: AtomicBool,
}

impl Exchange {
    /// A request has come.
    pub(crate) fn begin(link: Arc<Link>) -> Arc<Self> {
        let number = if link.is_multiplexed() {
            link.change(|exchanges, _| {
                exchanges.open += 1;
                exchanges.begun = exchanges.begun.wrapping_add(1);
                exchanges.begun
            })
        } else {
            link.connection.set(Phase::Busy);
            0
        };
        Arc::new(Self { link, number, over: AtomicBool::new(false) })
    }

    /// A reply or a message waits for the client from now on.
    pub(crate) fn wait(&self) {
        if !self.link.is_multiplexed() {
            return self.link.connection.set(Phase::Reply);
        }
        self.link.change(|exchanges, now| {
            if !self.over.load(Relaxed) && !exchanges.waits(self.number) {
                exchanges.waiting.push(Waiting { exchange: self.number, since: now });
            }
        });
    }

    /// Whether something waits for the client. With HTTP/1.1, the connection's phase tells.
    pub(crate) fn waits(&self) -> bool {
        self.link.is_multiplexed() && self.link.change(|exchanges, _| exchanges.waits(self.number))
    }

    /// The body of the reply is a stream, which is not a reply that waits.
    pub(crate) fn stream(&self) {
        self.link.streams.store(true, Relaxed);
    }

    /// With HTTP/2: a part of what waits is written.
    fn progress(&self) {
        self.link.change(|exchanges, now| {
            for waiting in exchanges.waiting.iter_mut().filter(|waiting| waiting.exchange == self.number) {
                waiting.since = now;
            }
        });
    }

    /// With HTTP/2: the message is written.
    fn taken(&self) {
        self.link.change(|exchanges, _| exchanges.end_waiting(self.number));
    }

    /// The reply is written, or the request is gone.
    fn end(&self) {
        if !self.link.is_multiplexed() {
            if !self.over.swap(true, Relaxed) && self.link.streams.swap(false, Relaxed) {
                // The end of the stream is on its way.
                self.link.connection.set(Phase::Reply);
            }
            return;
        }
        self.link.change(|exchanges, _| {
            if !self.over.swap(true, Relaxed) {
                exchanges.open -= 1;
                exchanges.end_waiting(self.number);
            }
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end();
    }
}

/// The reply of an exchange: its body, and each part of it that the HTTP engine still has. The exchange ends with the last.
pub(crate) struct Replying(Arc<Exchange>);

impl Replying {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Arc<Self> {
        Arc::new(Self(exchange))
    }

    /// A part of the body, for the engine.
    pub(crate) fn part(self: &Arc<Self>, bytes: Bytes, is_message: bool) -> Part {
        // With HTTP/1.1 the engine copies a part at once, and the socket tells.
        let of = self.0.link.is_multiplexed().then(|| Arc::clone(self));
        Part { bytes, is_message, of }
    }
}

impl Drop for Replying {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A part of a reply's body. The engine of HTTP/2 takes it from the body before the client's window has room, and advances
/// when it writes it.
pub(crate) struct Part {
    bytes: Bytes,
    /// Nothing more waits when it is written, although the body goes on.
    is_message: bool,
    of: Option<Arc<Replying>>,
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, written: usize) {
        self.bytes.advance(written);
        let Some(Replying(exchange)) = self.of.as_deref() else { return };
        if self.is_message && self.bytes.is_empty() {
            exchange.taken();
        } else if written > 0 {
            exchange.progress();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::connection::{Shared, accepted};

    /// A connection with HTTP/2, its clock and its client.
    async fn link() -> (Arc<Link>, Arc<Shared>, TcpStream) {
        let (connection, shared, client) = accepted().await;
        let link = Link::new(Arc::clone(&connection));
        connection.multiplex();
        (link, shared, client)
    }

    /// The phase is that of the request that is furthest, and only its progress starts the deadline of a reply again.
    #[tokio::test]
    async fn the_phase_of_several_requests() {
        let (link, shared, _client) = link().await;
        let begin = || Exchange::begin(Arc::clone(&link));
        let phase = || link.connection.phase();

        let (one, two) = (begin(), begin());
        assert_eq!(phase().0, Phase::Busy);
        one.wait();
        shared.tick.store(7, Relaxed);
        two.wait();
        one.wait();
        let three = begin();
        assert_eq!(phase(), (Phase::Reply, 0), "a further request is no progress");
        link.progress();
        assert_eq!(phase(), (Phase::Reply, 0), "the bytes may be those of another reply");
        two.progress();
        assert_eq!(phase(), (Phase::Reply, 0), "the other one has waited longer");
        one.progress();
        assert_eq!(phase(), (Phase::Reply, 7));
        one.end();
        one.end();
        assert_eq!(phase().0, Phase::Reply, "the other one still waits");
        two.taken();
        two.taken();
        assert_eq!(phase().0, Phase::Busy);
        link.stall();
        assert_eq!(phase().0, Phase::Reply, "the socket takes nothing");
        link.progress();
        assert_eq!(phase().0, Phase::Busy);
        drop((two, three));
        assert_eq!(phase().0, Phase::Idle);
        one.wait();
        assert_eq!(phase().0, Phase::Idle, "it is over");
    }

    /// A reply waits until the engine has written it, and not only until the engine has taken it from the body.
    #[tokio::test]
    async fn a_reply_waits_until_it_is_written() {
        let (link, shared, _client) = link().await;
        let exchange = Exchange::begin(Arc::clone(&link));
        exchange.wait();
        let reply = Replying::new(exchange);
        let mut part = reply.part(Bytes::from_static(b"reply"), false);
        drop(reply);
        shared.tick.store(7, Relaxed);
        assert_eq!(link.connection.phase(), (Phase::Reply, 0));
        part.advance(1);
        assert_eq!(link.connection.phase(), (Phase::Reply, 7));
        drop(part);
        assert_eq!(link.connection.phase().0, Phase::Idle);

        let exchange = Exchange::begin(Arc::clone(&link));
        let stream = Replying::new(Arc::clone(&exchange));
        exchange.wait();
        let mut part = stream.part(Bytes::from_static(b"message"), true);
        part.advance(3);
        assert!(exchange.waits());
        part.advance(4);
        assert!(!exchange.waits());
        assert_eq!(link.connection.phase().0, Phase::Busy, "the stream goes on");
    }
}
