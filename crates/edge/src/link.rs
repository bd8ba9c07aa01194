//! What an encrypted connection is doing: its phase, from what its requests and its socket do.
//!
//! With HTTP/1.1 there is one request at a time, and its steps are the phases, as on a plain connection. With HTTP/2 there are
//! several. Then the connection is in the phase of the one that is furthest: `Reply` while a reply or a message waits for
//! the client, so that the deadline of a reply applies; else `Busy` while there is a request; else `Idle`. Invariant: an
//! exchange is counted from its request to the end of its reply's body, however it ends.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::connection::{Connection, Phase};

/// An encrypted connection.
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
    /// Those of them with something that waits for the client.
    waiting: usize,
}

impl Link {
    pub(crate) fn new(connection: Arc<Connection>) -> Arc<Self> {
        connection.make_secure();
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
            self.change(|_| {});
        } else if self.connection.phase().0 == Phase::Stream {
            self.connection.set(Phase::Reply);
        }
    }

    /// The socket took some bytes.
    pub(crate) fn progress(&self) {
        let was_stalled = self.stalled.load(Relaxed) && self.stalled.swap(false, Relaxed);
        if was_stalled && self.is_multiplexed() {
            self.change(|_| {});
        }
        // The deadline starts again.
        if self.connection.phase().0 == Phase::Reply {
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

    fn change(&self, change: impl FnOnce(&mut Exchanges)) {
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut exchanges);
        let phase = match *exchanges {
            Exchanges { waiting: 1.., .. } => Phase::Reply,
            _ if self.is_stalled() => Phase::Reply,
            Exchanges { open: 1.., .. } => Phase::Busy,
            _ => Phase::Idle,
        };
        // A further request is no progress of the replies before it.
        if self.connection.phase().0 != phase {
            self.connection.set(phase);
        }
    }
}

/// A request and its reply.
pub(crate) struct Exchange {
    pub(crate) link: Arc<Link>,
    /// Guarded by the lock of [`Link::change`], as is `over`.
    waits: AtomicBool,
    over: AtomicBool,
}

impl Exchange {
    /// A request has come.
    pub(crate) fn begin(link: Arc<Link>) -> Arc<Self> {
        if link.is_multiplexed() {
            link.change(|exchanges| exchanges.open += 1);
        } else {
            link.connection.set(Phase::Busy);
        }
        Arc::new(Self { link, waits: AtomicBool::new(false), over: AtomicBool::new(false) })
    }

    /// A reply or a message waits for the client from now on.
    pub(crate) fn wait(&self) {
        if !self.link.is_multiplexed() {
            return self.link.connection.set(Phase::Reply);
        }
        self.link.change(|exchanges| {
            if !self.over.load(Relaxed) && !self.waits.swap(true, Relaxed) {
                exchanges.waiting += 1;
            }
        });
    }

    /// The body of the reply is a stream, which is not a reply that waits.
    pub(crate) fn stream(&self) {
        self.link.streams.store(true, Relaxed);
    }

    /// The HTTP engine has taken the message. With HTTP/1.1, the flush tells.
    pub(crate) fn taken(&self) {
        if self.link.is_multiplexed() {
            self.link.change(|exchanges| {
                if self.waits.swap(false, Relaxed) {
                    exchanges.waiting -= 1;
                }
            });
        }
    }

    /// The HTTP engine has taken the whole reply, or the request is gone.
    pub(crate) fn end(&self) {
        if !self.link.is_multiplexed() {
            if !self.over.swap(true, Relaxed) && self.link.streams.swap(false, Relaxed) {
                // The end of the stream is on its way.
                self.link.connection.set(Phase::Reply);
            }
            return;
        }
        self.link.change(|exchanges| {
            if !self.over.swap(true, Relaxed) {
                exchanges.open -= 1;
                exchanges.waiting -= usize::from(self.waits.swap(false, Relaxed));
            }
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::{Observer, Refusal, connection::Shared};

    struct NoObserver;

    impl Observer for NoObserver {
        fn refused(&self, _: Refusal) -> Vec<u8> {
            Vec::new()
        }
    }

    /// The phase is that of the request that is furthest, and only progress starts the deadline of a reply again.
    #[tokio::test]
    async fn the_phase_of_several_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, peer) = listener.accept().await.expect("accepted");
        let shared = Arc::new(Shared::new(Arc::new(NoObserver)));
        let connection = Arc::new(Connection::new(stream, peer, Arc::clone(&shared), false, None));
        let link = Link::new(Arc::clone(&connection));
        connection.multiplex();
        let begin = || Exchange::begin(Arc::clone(&link));
        let phase = || connection.phase();

        let (one, two) = (begin(), begin());
        assert_eq!(phase().0, Phase::Busy);
        one.wait();
        shared.tick.store(7, Relaxed);
        two.wait();
        one.wait();
        let three = begin();
        assert_eq!(phase(), (Phase::Reply, 0), "a further request is no progress");
        link.progress();
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
}
