//! The accept loop, the requests of each connection, and the deadlines.
//!
//! Each connection holds one word: its phase, and the tick at which that began. One task (`watch_deadlines`) reads
//! these words once a second, and shuts down the sockets of connections that took too long. So a deadline costs a
//! request one store of a word, and no timer.

use std::{
    collections::HashMap,
    convert::Infallible,
    error::Error,
    future::{Future, pending, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request, Response, Version,
    body::{Body, Incoming},
    header::{CONNECTION, EXPECT},
    server::conn::{self, http1},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tower_service::Service;

use crate::{
    KnownClient, Limits, MAX_HEAD, Observer, PerClient, Protocol, Refusal,
    check::{Malformed, call, check, close_if_last, refusal},
    connection::{Connection, LINGER_BYTES, Phase, Shared},
    direct, http2,
    io::ConnectionIo,
    outlet::{Outlet, Socket, Takeover},
    per_address::PerAddress,
    received::Received,
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

/// Which addresses are the same client, where room is made.
const SAME_CLIENT: PerClient = PerClient { most: 0, ipv6_prefix: 64 };

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

/// What follows a request, or some requests.
enum After {
    /// The connection waits for another request.
    Idle,
    /// It ends, for this reason if the engine failed.
    End(Option<hyper::Error>),
    /// An outlet has it.
    TakenOver,
    /// It is broken.
    Lost,
}

/// The connections of one listener.
///
/// `M` makes the service of a connection from the address of its peer. The service is cloned for each request, and is
/// called without waiting for `poll_ready`: it must always be ready. The cap on connections is the backpressure. The body of a
/// reply must end: it may be sent only when it is complete.
pub struct Edge<M> {
    make_service: M,
    engine: http1::Builder,
    max_open: usize,
    per_client: Option<Arc<PerAddress>>,
    unknown_ticks: Option<u32>,
    header_ticks: u32,
    write_ticks: u32,
    idle_ticks: AtomicU32,
    shared: Arc<Shared>,
    connections: Mutex<Vec<Weak<Connection>>>,
    protocol: Protocol,
    http2: conn::http2::Builder<TokioExecutor>,
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
        let mut engine = http1::Builder::new();
        // `watch_deadlines` keeps the deadlines. A client may close its sending side and still wait for the reply.
        engine.header_read_timeout(None).half_close(true);
        // Replies are small: one buffer and one write cost less than a list of buffers.
        engine.max_buf_size(MAX_HEAD).writev(false);
        Arc::new(Self {
            make_service,
            engine,
            max_open: limits.connections,
            per_client: limits.per_client.map(PerAddress::new),
            unknown_ticks: limits.unknown_client.map(ticks),
            header_ticks: ticks(limits.header),
            write_ticks: ticks(limits.write),
            idle_ticks: ticks(limits.idle).into(),
            shared: Arc::new(Shared::new(observer)),
            connections: Mutex::default(),
            protocol,
            http2: http2::engine(),
        })
    }

    /// Changes how long a connection may be idle. Applies to open connections, too.
    pub fn set_idle(&self, idle: Duration) {
        self.idle_ticks.store(ticks(idle), Relaxed);
    }

    /// Serves `listener` until `stop` becomes true or its sender is dropped. Then accepts what is already in the accept
    /// queue, stops listening, and closes every connection after its current request. Returns when all connections are
    /// closed, at the latest `deadline` after the stop.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        deadline: Duration,
    ) {
        let deadlines = tokio::spawn(Arc::clone(&self).watch_deadlines());
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            biased;
            () = stopped => {}
            () = self.accept(&listener) => {}
        }
        self.shared.draining.store(true, Relaxed);
        self.accept_queued(listener);
        if timeout(deadline, self.shared.all_closed()).await.is_err() {
            let open = self.shared.open.load(Relaxed);
            tracing::warn!(open, "the drain deadline has passed: the remaining connections are cut");
        }
        deadlines.abort();
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut warned: Option<Instant> = None;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer),
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
    fn accept_queued(self: &Arc<Self>, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        loop {
            let accepted = listener.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, peer))
            });
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(e) if concerns_one_connection(&e) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        // Only the accept loop increases the number, so it cannot pass the cap between these lines.
        let full = self.shared.open.load(Relaxed) >= self.max_open && !self.make_room();
        let mut held = None;
        let refusal = if full {
            Some(Refusal::Overloaded)
        } else if let Some(per_client) = &self.per_client
            && !self.shared.observer.is_exempt(peer.ip())
        {
            held = per_client.hold(peer.ip());
            held.is_none().then(|| Refusal::TooManyOfClient(peer.ip()))
        } else {
            None
        };
        let shared = Arc::clone(&self.shared);
        let connection = Arc::new(Connection::new(stream, peer, shared, refusal.is_none(), held));
        if let Some(refusal) = refusal {
            return self.refuse(connection, refusal);
        }
        self.connections().push(Arc::downgrade(&connection));
        let service = || (Arc::clone(&self.shared.observer), (self.make_service)(peer));
        match &self.protocol {
            Protocol::Http1 => drop(tokio::spawn(Arc::clone(self).run(connection))),
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

    /// Ends a connection whose client is not known, if that is how this listener makes room. If there is none, ends one of a
    /// known client that serves nothing: a client may have to connect again, but cannot keep others out by holding
    /// connections. It takes one of the address that has most of them, so that an address with many loses its own: one that
    /// serves no request now, if there is one, and the oldest of these.
    fn make_room(&self) -> bool {
        if self.unknown_ticks.is_none() {
            return false;
        }
        let connections = self.connections();
        let of_clients = |ends: fn(&Connection) -> bool| -> Vec<_> {
            let ending = connections.iter().filter_map(Weak::upgrade).filter(|connection| ends(connection));
            ending.map(|connection| (SAME_CLIENT.client(connection.peer.ip()), connection)).collect()
        };
        let mut ending = of_clients(Connection::is_stranger);
        if ending.is_empty() {
            ending = of_clients(Connection::is_unused);
        }
        let mut of_client = HashMap::<_, usize>::new();
        for (client, _) in &ending {
            *of_client.entry(*client).or_default() += 1;
        }
        // The list is in the order of arrival, and `max_by_key` takes the last of equals.
        let serves = |connection: &Connection| matches!(connection.phase().0, Phase::Busy | Phase::Reply);
        let worst = ending
            .iter()
            .rev()
            .max_by_key(|(client, connection)| (of_client.get(client).copied(), !serves(connection)));
        if let Some((_, connection)) = worst {
            connection.give_way();
        }
        worst.is_some()
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

    async fn run(self: Arc<Self>, connection: Arc<Connection>) {
        let service = (self.make_service)(connection.peer);
        // A connection that sends nothing gets no engine and no buffers.
        while let Some(received) = connection.receive().await {
            let after = match direct::parse(&received) {
                Some(request) => {
                    drop(received);
                    self.answer(&connection, &service, request).await
                }
                // Boxed: otherwise each connection would reserve the space for an engine.
                None => Box::pin(self.run_engine(&connection, &service, received)).await,
            };
            match after {
                After::Idle => {}
                // The following steps are boxed for the reason given above.
                After::End(failure) => return Box::pin(self.finish(&connection, failure)).await,
                After::TakenOver => {
                    // Until the client or the outlet ends it.
                    Box::pin(connection.discard_until_closed(LINGER_BYTES)).await;
                    connection.cut();
                    return connection.set(Phase::Over);
                }
                After::Lost => return,
            }
        }
    }

    /// Answers one request that arrived whole.
    async fn answer(&self, connection: &Arc<Connection>, service: &S, request: Request<Received>) -> After {
        let mut replying = pin!(reply_to(connection, service, request, false));
        let reply = poll_fn(|cx| match replying.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending if connection.is_taken_over() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let Some(reply) = reply.await else { return After::TakenOver };
        let (head, body) = reply.into_parts();
        let Ok(body) = whole(body).await else { return After::Lost };
        let closes = head.headers.contains_key(CONNECTION);
        let bytes = direct::encode(&head, &body, self.shared.tick.load(Relaxed));
        if connection.send(&bytes).await.is_err() {
            return After::Lost;
        }
        if closes {
            return After::End(None);
        }
        connection.set(Phase::Idle);
        After::Idle
    }

    /// Answers requests by the HTTP engine until the connection ends, is taken over, or has been idle for a while.
    async fn run_engine(&self, connection: &Arc<Connection>, service: &S, mut unparsed: Bytes) -> After {
        loop {
            connection.unpark();
            let service = service_fn(|request| respond(connection, service, request));
            let io = TokioIo::new(ConnectionIo::new(Arc::clone(connection), unparsed));
            let mut engine = self.engine.serve_connection(io, service);
            let served = poll_fn(|cx| match Pin::new(&mut engine).poll(cx) {
                Poll::Ready(served) => Poll::Ready(Some(served)),
                Poll::Pending if connection.is_taken_over() => Poll::Ready(None),
                Poll::Pending if connection.parks(cx.waker()) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            match served.await {
                Some(served) => return After::End(served.err()),
                None if connection.is_taken_over() => return After::TakenOver,
                None => unparsed = engine.into_parts().read_buf,
            }
            if unparsed.is_empty() {
                return After::Idle;
            }
        }
    }

    /// Ends a connection whose engine has finished. Replaces what the engine wanted to reply by the observer's reply.
    async fn finish(&self, connection: &Connection, failure: Option<hyper::Error>) {
        let refusal = refusal(connection, failure.as_ref());
        if let Some(refusal) = refusal {
            let _ = connection.stream.try_write(&connection.refusal(refusal));
        }
        connection.end_writing();
        if refusal.is_some() || connection.service_closes() || connection.has_unread() {
            connection.linger(LINGER_BYTES).await;
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
        if draining && connection.is_multiplexed() {
            // It hears at once that it gets no more requests. Those that are on their way are still answered.
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
    if connection.is_told() && age <= most.saturating_add(LINGER_TICKS) {
        connection.ask_to_end();
    } else {
        connection.cut();
    }
}

/// Gives one request of the engine to `service`. A malformed request ends the connection, and the edge words the refusal.
///
/// Not an `async fn`: the service is called at once, before the engine decodes the body. See [`decode_body_early`].
fn respond<S, B>(
    connection: &Arc<Connection>,
    service: &S,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<B>, Malformed>> + use<S, B>
where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
{
    // Only a client that sends requests without reading replies has an earlier reply that is not out yet.
    let is_behind = connection.phase().0 == Phase::Reply;
    let reply =
        check(&request).map(|()| reply_to(connection, service, request.map(Received::Engine), is_behind));
    async move { Ok(reply?.await) }
}

/// Gives one request to `service`, and returns its reply; or hands the connection over to the service, and then never
/// returns. `is_behind`: an earlier reply is not out yet.
fn reply_to<S, B>(
    connection: &Arc<Connection>,
    service: &S,
    request: Request<Received>,
    is_behind: bool,
) -> impl Future<Output = Response<B>> + use<S, B>
where
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible> + Clone,
{
    connection.set(Phase::Busy);
    let reply = call(service, request);
    let connection = Arc::clone(connection);
    async move {
        let Ok(mut response) = reply.await;
        if response.extensions_mut().remove::<KnownClient>().is_some() {
            connection.make_known();
        }
        if let Some(take_over) = Takeover::of(&mut response) {
            if is_behind {
                connection.cut();
            }
            take_over(Outlet::from(Socket::new(connection, &response)));
            // The caller drops this future now.
            return pending().await;
        }
        connection.set(Phase::Reply);
        close_if_last(&connection, response.headers_mut());
        response
    }
}

/// The body of a reply, to its end.
async fn whole<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, B::Error> {
    let mut body = pin!(body);
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        // Trailers are ignored.
        let Ok(data) = frame?.into_data() else { continue };
        if first.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// Tells the HTTP engine that the body will be read, so that it decodes the bytes that it already has before it polls the
/// service's future. Otherwise each request with a body takes one more turn through the scheduler.
///
/// Only works inside [`Service::call`], before that returns. Call it only where the body will be read.
pub fn decode_body_early(request: &mut Request<Received>) {
    // A client that waits for `100 Continue` must get it only when the body is really read. The engine of HTTP/2 may have
    // the body already, and this would lose it.
    let is_decoded_later = request.version() <= Version::HTTP_11 && !request.headers().contains_key(EXPECT);
    if let Received::Engine(body) = request.body_mut()
        && is_decoded_later
        && !body.is_end_stream()
    {
        let body = Pin::new(body);
        let early = body.poll_frame(&mut Context::from_waker(Waker::noop()));
        debug_assert!(early.is_pending(), "the engine has decoded nothing yet");
    }
}

/// Whether the error is that of one connection, which failed in the accept queue. The next one may be fine.
fn concerns_one_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
