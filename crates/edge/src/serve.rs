//! The accept loop, and the deadlines.
//!
//! | file | concern |
//! |---|---|
//! | `caps` | which connections get in when there are too many, and which give way |
//! | `requests` | the requests of a connection |
//!
//! Each connection holds one word: its phase, and the tick at which that began. One task (`watch_deadlines`) reads
//! these words once a second, and shuts down the sockets of connections that took too long. So a deadline costs a
//! request one store of a word, and no timer.

mod caps;
mod requests;

use std::{
    convert::Infallible,
    error::Error,
    io,
    net::{self, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use hyper::{Request, Response, body::Body, server::conn};
use hyper_util::rt::TokioExecutor;
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::TcpListener,
    runtime::Handle,
    sync::watch,
    task::{JoinSet, coop::unconstrained},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tower_service::Service;

pub use requests::decode_body_early;

use crate::{
    Limits, Observer, Protocol, Refusal,
    connection::{Connection, LINGER_BYTES, Phase, Shared},
    engine::Engines,
    http2,
    per_address::PerAddress,
    received::Received,
    stream::Stream,
    watched::Watched,
};

/// The most refused connections that are read until the client closes. Further ones are closed at once.
const MAX_REFUSALS: usize = 96;

/// The step of the edge's clock.
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;

/// How long a closing connection is still read. Closing earlier could reset it, and lose the last reply.
const LINGER_TICKS: u32 = 2 * TICKS_PER_SECOND;

/// How long a connection is idle before its engine and buffers are freed, if it has an engine: see `direct`. They are nearly all
/// of the memory that such a connection uses, and most connections are idle most of the time.
const PARK_TICKS: u32 = TICKS_PER_SECOND / 2;

/// During a drain: how long a connection is silent before it counts as idle. The first request of a connection that was
/// never used may still be on its way.
const DRAIN_IDLE_TICKS: u32 = 3;
const DRAIN_FRESH_TICKS: u32 = TICKS_PER_SECOND;

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

/// The connections of one listener.
///
/// `M` makes the service of a connection from the address of its peer. The service is cloned for each request, and is
/// called without waiting for `poll_ready`: it must always be ready. The cap on connections is the backpressure. The body of a
/// reply must end: it may be sent only when it is complete.
pub struct Edge<M> {
    make_service: M,
    engines: Engines,
    max_open: usize,
    /// The most open connections of addresses that have no reserve.
    max_without_reserve: usize,
    per_client: Option<Arc<PerAddress>>,
    unknown_ticks: Option<u32>,
    header_ticks: u32,
    write_ticks: u32,
    idle_ticks: AtomicU32,
    shared: Arc<Shared>,
    connections: Mutex<Vec<Weak<Connection>>>,
    protocol: Protocol,
    http2: conn::http2::Builder<TokioExecutor>,
    /// How many connections were put into sets.
    admitted: AtomicUsize,
}

impl<M, S, B> Edge<M>
where
    M: Fn(SocketAddr) -> S + Send + Sync + 'static,
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// An edge without connections. All of them speak the same protocol.
    #[must_use]
    pub fn new(
        make_service: M,
        observer: Arc<dyn Observer>,
        limits: Limits,
        protocol: Protocol,
    ) -> Arc<Self> {
        Arc::new(Self {
            make_service,
            engines: Engines::new(true),
            max_open: limits.connections,
            max_without_reserve: limits.connections.saturating_sub(limits.reserved),
            per_client: limits.per_client.map(PerAddress::new),
            unknown_ticks: limits.unknown_client.map(ticks),
            header_ticks: ticks(limits.header),
            write_ticks: ticks(limits.write),
            idle_ticks: ticks(limits.idle).into(),
            shared: Arc::new(Shared::new(observer)),
            connections: Mutex::default(),
            protocol,
            http2: http2::engine(),
            admitted: AtomicUsize::new(0),
        })
    }

    /// Changes how long a connection may be idle. Applies to open connections, too.
    pub fn set_idle(&self, idle: Duration) {
        self.idle_ticks.store(ticks(idle), Relaxed);
    }

    /// Serves `listener` until `stop` becomes true or its sender is dropped. Then accepts what is already in the accept
    /// queue, stops listening, and closes every connection after its current request. Returns when all connections are
    /// closed, at the latest `deadline` after the stop.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and if the system refuses to watch sockets.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        deadline: Duration,
    ) {
        // They end with this function.
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self).watch_deadlines());
        let sets: Vec<_> = (0..self.sets())
            .map(|_| {
                let (set, watch) = Watched::new().expect("the system watches sockets");
                tasks.spawn(unconstrained(Arc::clone(&self).serve_set(Arc::clone(&set), watch)));
                set
            })
            .collect();
        let listener = listener.into_std().expect("the listener leaves the runtime");
        // SAFETY: it owns the listener, and gives it out only at its end.
        #[expect(unsafe_code, reason = "the runtime cannot know how long a descriptor lives")]
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }
            .expect("the system watches sockets");
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            biased;
            () = stopped => {}
            () = self.accept(&listener, &sets) => {}
        }
        self.shared.draining.store(true, Relaxed);
        self.accept_queued(&listener.into_inner(), &sets);
        if timeout(deadline, self.shared.all_closed()).await.is_err() {
            let open = self.shared.open.load(Relaxed);
            tracing::warn!(open, "the drain deadline has passed: the remaining connections are cut");
        }
    }

    /// How many sets of connections there are: one for each processor that the runtime uses.
    fn sets(&self) -> usize {
        if matches!(self.protocol, Protocol::Http1) { Handle::current().metrics().num_workers() } else { 0 }
    }

    async fn accept(self: &Arc<Self>, listener: &AsyncFd<net::TcpListener>, sets: &[Arc<Watched>]) {
        let mut warned: Option<Instant> = None;
        loop {
            match listener.async_io(Interest::READABLE, accept).await {
                Ok((stream, peer)) => self.admit(stream, peer, sets),
                Err(e) if concerns_one_connection(&e) => {}
                Err(e) => {
                    // Out of files or memory: accepting again at once would spin.
                    if warned.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                        tracing::warn!(error = %e, "cannot accept connections for now");
                        warned = Some(Instant::now());
                    }
                    sleep(TICK).await;
                }
            }
        }
    }

    /// Accepts what is in the queue. tokio's readiness may be stale after a stop, so this asks the kernel.
    fn accept_queued(self: &Arc<Self>, listener: &net::TcpListener, sets: &[Arc<Watched>]) {
        loop {
            match accept(listener) {
                Ok((stream, peer)) => self.admit(stream, peer, sets),
                Err(e) if concerns_one_connection(&e) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: net::TcpStream, peer: SocketAddr, sets: &[Arc<Watched>]) {
        let has_reserve = self.shared.observer.has_reserve(peer.ip());
        let (held, refusal) = match self.let_in(peer.ip(), has_reserve) {
            Ok(held) => (held, None),
            Err(refusal) => (None, Some(refusal)),
        };
        let shared = Arc::clone(&self.shared);
        let connection = Arc::new(Connection::new(
            Stream::new(stream),
            peer,
            shared,
            refusal.is_none(),
            has_reserve,
            held,
        ));
        if let Some(refusal) = refusal {
            return self.refuse(connection, refusal);
        }
        self.connections().push(Arc::downgrade(&connection));
        let service = || (Arc::clone(&self.shared.observer), (self.make_service)(peer));
        match &self.protocol {
            Protocol::Http1 => {
                let turn = self.admitted.fetch_add(1, Relaxed);
                self.watch(&sets[turn % sets.len()], connection);
            }
            Protocol::Tls(tls) => {
                let (observer, service) = service();
                tokio::spawn(Arc::clone(tls).serve(connection, observer, service));
            }
            Protocol::Http2 => {
                let ((observer, service), edge) = (service(), Arc::clone(self));
                tokio::spawn(async move {
                    http2::serve_plain(&edge.http2, connection, observer, service).await;
                });
            }
        }
    }

    fn refuse(self: &Arc<Self>, connection: Arc<Connection>, refusal: Refusal) {
        let reply = connection.refusal(refusal);
        // A handshake would cost more than the refusal saves, and a client that waits for one cannot read this. One with HTTP/2
        // cannot, either.
        if matches!(self.protocol, Protocol::Http1) {
            // The socket is new, so its buffer takes a few hundred bytes at once.
            let _ = connection.stream.try_write(&reply);
        }
        connection.end_writing();
        if self.shared.refusing.fetch_add(1, Relaxed) < MAX_REFUSALS {
            let edge = Arc::clone(self);
            self.connections().push(Arc::downgrade(&connection));
            tokio::spawn(async move {
                connection.linger(LINGER_BYTES).await;
                edge.shared.refusing.fetch_sub(1, Relaxed);
            });
        } else {
            self.shared.refusing.fetch_sub(1, Relaxed);
            connection.discard_received();
        }
    }

    async fn watch_deadlines(self: Arc<Self>) {
        let mut steps = interval(TICK);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            steps.tick().await;
            let now = self.shared.tick.fetch_add(1, Relaxed).wrapping_add(1);
            let draining = self.shared.draining.load(Relaxed);
            if draining || now.is_multiple_of(TICKS_PER_SECOND) {
                let check = |connection: Arc<Connection>| self.end_if_late(&connection, now, draining);
                self.connections().retain(|connection| connection.upgrade().map(check).is_some());
            }
        }
    }

    fn end_if_late(&self, connection: &Connection, now: u32, draining: bool) {
        let (phase, since) = connection.phase();
        let age = now.wrapping_sub(since);
        let unknown = self.unknown_ticks.filter(|_| !connection.is_known()).unwrap_or(u32::MAX);
        let idle = self.idle_ticks.load(Relaxed).min(unknown);
        let header = self.header_ticks.min(unknown);
        if phase == Phase::Idle && age >= PARK_TICKS {
            connection.ask_to_park();
        }
        if draining && connection.is_multiplexed() && phase != Phase::Fresh {
            // It hears at once that it gets no more requests. Those that are on their way are still answered. A client that
            // has not made its first one would not make it: it is told later, see below.
            connection.ask_to_end();
        }
        match phase {
            Phase::Head if age > header => connection.give_up_head(),
            Phase::Reply if age > self.write_ticks => connection.cut(),
            Phase::Linger if age > LINGER_TICKS => connection.cut(),
            Phase::Idle if !connection.has_unread() => {
                let_go(connection, age, if draining { idle.min(DRAIN_IDLE_TICKS) } else { idle });
            }
            Phase::Fresh if !connection.has_unread() => {
                let_go(connection, age, if draining { header.min(DRAIN_FRESH_TICKS) } else { header });
            }
            _ => {}
        }
    }
}

impl<M> Edge<M> {
    fn connections(&self) -> MutexGuard<'_, Vec<Weak<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a connection that has no request for more than `most` ticks. One with TLS or with HTTP/2 is told the end, and cut if
/// it does not take the news.
fn let_go(connection: &Connection, age: u32, most: u32) {
    if age <= most {
        return;
    }
    if connection.has_end_signal() && age <= most.saturating_add(LINGER_TICKS) {
        connection.ask_to_end();
    } else {
        connection.cut();
    }
}

/// The next connection of the accept queue.
fn accept(listener: &net::TcpListener) -> io::Result<(net::TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, peer))
}

/// Whether the error is that of one connection, which failed in the accept queue. The next one may be fine.
fn concerns_one_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body_util::Full;
    use tower::service_fn;

    use super::*;
    use crate::connection::accepted;

    /// During a drain, a connection with HTTP/2 whose client has made no request yet has a second for the first one.
    /// Otherwise it is told at once that it gets no more.
    #[tokio::test]
    async fn a_drain_waits_for_the_first_request_of_a_connection() {
        let (connection, shared, _client) = accepted().await;
        let five_seconds = Duration::from_secs(5);
        let limits = Limits {
            connections: 8,
            reserved: 0,
            per_client: None,
            unknown_client: None,
            header: five_seconds,
            write: five_seconds,
            idle: five_seconds,
        };
        let serve = |_| service_fn(|_| async { Ok(Response::new(Full::new(Bytes::new()))) });
        let edge = Edge::new(serve, Arc::clone(&shared.observer), limits, Protocol::Http2);
        connection.multiplex();
        connection.enable_end_signal();
        let is_told = |tick| {
            edge.end_if_late(&connection, tick, true);
            connection.is_asked_to_end(Waker::noop())
        };
        assert!(!is_told(0) && !is_told(DRAIN_FRESH_TICKS), "its first request may be on its way");
        assert!(is_told(DRAIN_FRESH_TICKS + 1), "it made none");

        let (connection, _shared, _client) = accepted().await;
        connection.multiplex();
        connection.set(Phase::Busy);
        edge.end_if_late(&connection, 0, true);
        assert!(connection.is_asked_to_end(Waker::noop()), "it has had one");
    }
}
