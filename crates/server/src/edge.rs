//! The edge: sockets, limits and deadlines, around the HTTP engine.
//!
//! Each connection carries one word that says what it is doing and since when; the keeper looks at all of them once
//! a second and ends those that take too long, by shutting the socket down under the engine. So deadlines cost the
//! request path one store of a word and no timer. A stream takes its connection away from the engine, and is written
//! straight to the socket by whoever has it to tell: see [`Outlet`]. Invariants: every connection is in a phase that ends by itself or
//! by the keeper; there are never more than the cap; whoever was in the accept queue when a stop was asked for is
//! still answered.

mod conn;
mod listen;
mod outlet;

use std::{
    future::{Future, pending, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    http::problem::{HEAD_TOO_LARGE, MALFORMED_HTTP, Problem, SLOW_HEAD},
    http::{Served, want},
    metrics::Connections,
};
use conn::{Conn, Io, Phase};

pub use listen::{ListenFault, listen};
pub use outlet::{Opening, Outlet};

/// The longest head of a request, in bytes. The engine's buffer can't be smaller.
pub const MAX_HEAD: usize = 8_192;

/// Connections that are being told "no" at the same time; more are told in passing.
const MAX_REFUSALS: usize = 96;

/// The step of the edge's clock.
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;

/// How long a closing connection is listened to, so that its last reply is not lost to a reset.
const LINGER_TICKS: u32 = 2 * TICKS_PER_SECOND;
const LINGER_BYTES: usize = 256 << 10;

/// How long a connection is idle before its engine and buffers are taken from it; they are made anew when it speaks.
/// They are nearly all the memory that a connection costs, and most connections are idle most of the time.
const PARK_TICKS: u32 = TICKS_PER_SECOND / 2;

/// While draining: how long silence lasts before a connection is taken for idle. One that was never used may have
/// its first request under way still.
const DRAIN_IDLE_TICKS: u32 = 3;
const DRAIN_FRESH_TICKS: u32 = TICKS_PER_SECOND;

/// What a request is answered with.
pub enum Answered {
    /// A reply.
    Reply(Response<Full<Bytes>>),
    /// The connection, to be written to for as long as there is something to say; it serves nothing else after that.
    Stream(Opening),
}

/// Who answers.
pub trait Answer: Send + Sync + 'static {
    /// The answer to a request of `peer`.
    fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> impl Future<Output = Answered> + Send;

    /// The edge itself said `status` to what never became a request.
    fn refused(&self, status: u16);
}

/// What a listener's connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most open at a time.
    pub connections: usize,
    /// From a request's first byte to the end of its head.
    pub header: Duration,
    /// How long a reply may be stuck on its way out.
    pub write: Duration,
    /// Between requests.
    pub idle: Duration,
}

/// What the connections of a listener share.
#[derive(Debug, Default)]
struct Shared {
    /// The edge's clock: steps of [`TICK`], counted while the process runs, so that one that was stopped for a
    /// while does not find everybody late.
    tick: AtomicU32,
    open: AtomicUsize,
    refusing: AtomicUsize,
    count: Option<Connections>,
    closed: Notify,
}

/// A listener's connections.
pub struct Edge<A> {
    answer: A,
    engine: http1::Builder,
    max_open: usize,
    header_ticks: u32,
    write_ticks: u32,
    idle_ticks: AtomicU32,
    draining: AtomicBool,
    shared: Arc<Shared>,
    all: Mutex<Vec<Weak<Conn>>>,
}

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

impl<A: Answer> Edge<A> {
    /// An edge without connections; `count` counts them.
    #[must_use]
    pub fn new(answer: A, limits: Limits, count: Option<Connections>) -> Arc<Self> {
        let mut engine = http1::Builder::new();
        // Deadlines are the keeper's. A client may end its sending side and still wait for the reply.
        engine.header_read_timeout(None).half_close(true);
        // Replies are small: one buffer and one write beat a list of them.
        engine.max_buf_size(MAX_HEAD).writev(false);
        if let Some(count) = &count {
            count.most.set(i64::try_from(limits.connections).unwrap_or(i64::MAX));
        }
        Arc::new(Self {
            answer,
            engine,
            max_open: limits.connections,
            header_ticks: ticks(limits.header),
            write_ticks: ticks(limits.write),
            idle_ticks: ticks(limits.idle).into(),
            draining: AtomicBool::new(false),
            shared: Arc::new(Shared {
                tick: AtomicU32::new(0),
                open: AtomicUsize::new(0),
                refusing: AtomicUsize::new(0),
                count,
                closed: Notify::new(),
            }),
            all: Mutex::default(),
        })
    }

    /// Changes how long a connection may be idle; for those that are open, too.
    pub fn set_idle(&self, idle: Duration) {
        self.idle_ticks.store(ticks(idle), Relaxed);
    }

    /// Serves `listener` until `stop` turns true; then takes in whoever is in its accept queue already, stops
    /// listening, and ends every connection after the request it has under way. Returns when the last one is gone,
    /// or `deadline` after the stop at the latest.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        deadline: Duration,
    ) {
        let keeper = tokio::spawn(Arc::clone(&self).keep());
        let stopped = async move {
            // A sender that is gone stops the server too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            biased;
            () = stopped => {}
            () = self.accept(&listener) => {}
        }
        self.draining.store(true, Relaxed);
        self.take_the_rest(listener);
        if timeout(deadline, self.gone()).await.is_err() {
            let open = self.shared.open.load(Relaxed);
            tracing::warn!(open, "the deadline is over: connections are cut");
        }
        keeper.abort();
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut told: Option<Instant> = None;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(e) if is_of_one_connection(&e) => {}
                Err(e) => {
                    // Out of files or memory: accepting again at once would spin.
                    if told.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                        tracing::warn!(error = %e, "connections can't be accepted for now");
                        told = Some(Instant::now());
                    }
                    sleep(TICK).await;
                }
            }
        }
    }

    /// Readiness may be stale after a stop, so the queue itself is asked.
    fn take_the_rest(self: &Arc<Self>, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        loop {
            let accepted = listener.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, peer))
            });
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(e) if is_of_one_connection(&e) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        // Only the one loop that accepts lets the number grow, so the cap can't be overrun between these lines.
        let full = self.shared.open.load(Relaxed) >= self.max_open;
        let conn = Arc::new(Conn::new(stream, peer, Arc::clone(&self.shared), !full));
        if full {
            return self.turn_away(conn);
        }
        self.all().push(Arc::downgrade(&conn));
        if let Some(count) = &self.shared.count {
            count.accepted.inc();
        }
        tokio::spawn(Arc::clone(self).run(conn));
    }

    fn turn_away(self: &Arc<Self>, conn: Arc<Conn>) {
        if let Some(count) = &self.shared.count {
            count.refused.inc();
        }
        self.answer.refused(503);
        // The socket is new, so its buffer takes a few hundred bytes at once.
        let _ = conn.stream.try_write(&Problem::overloaded().into_bytes());
        conn.end_writing();
        if self.shared.refusing.fetch_add(1, Relaxed) < MAX_REFUSALS {
            let edge = Arc::clone(self);
            self.all().push(Arc::downgrade(&conn));
            tokio::spawn(async move {
                conn.linger(LINGER_BYTES).await;
                edge.shared.refusing.fetch_sub(1, Relaxed);
            });
        } else {
            self.shared.refusing.fetch_sub(1, Relaxed);
            conn.discard();
        }
    }

    async fn run(self: Arc<Self>, conn: Arc<Conn>) {
        let mut left = Bytes::new();
        loop {
            // Who says nothing gets no engine and no buffers.
            if left.is_empty() && !matches!(conn.stream.peek(&mut [0]).await, Ok(1)) {
                return;
            }
            conn.unpark();
            let service = service_fn(|request| self.respond(&conn, request));
            let io = TokioIo::new(Io::new(Arc::clone(&conn), left));
            let mut engine = self.engine.serve_connection(io, service);
            let served = poll_fn(|cx| match Pin::new(&mut engine).poll(cx) {
                Poll::Ready(served) => Poll::Ready(Some(served)),
                Poll::Pending if conn.is_stream() => Poll::Ready(None),
                Poll::Pending if conn.parks(cx.waker()) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            match served.await {
                Some(served) => return self.finish(&conn, served.is_err_and(|e| e.is_parse())).await,
                None if conn.is_stream() => {
                    drop(engine);
                    // Until the client or the outlet ends it. Boxed as below.
                    Box::pin(conn.read_away(LINGER_BYTES)).await;
                    conn.cut();
                    return conn.set(Phase::Over);
                }
                None => {
                    // Even an empty rest would keep the whole buffer.
                    let rest = engine.into_parts().read_buf;
                    left = if rest.is_empty() { Bytes::new() } else { rest };
                }
            }
        }
    }

    fn respond(
        self: &Arc<Self>,
        conn: &Arc<Conn>,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Served> + use<A> {
        // Only somebody who asks on without reading finds a reply that is not out yet.
        let is_behind = conn.phase().0 == Phase::Reply;
        conn.set(Phase::Busy);
        want(&mut request);
        let (edge, conn) = (Arc::clone(self), Arc::clone(conn));
        async move {
            let mut response = match edge.answer.answer(request, conn.peer).await {
                Answered::Reply(response) => response,
                Answered::Stream(open) => {
                    if is_behind {
                        conn.cut();
                    }
                    open(Outlet::new(conn));
                    // The engine is taken away.
                    return pending().await;
                }
            };
            conn.set(Phase::Reply);
            if response.headers().contains_key(CONNECTION) {
                conn.closes_early();
            } else if edge.draining.load(Relaxed) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
    }

    /// The engine is done. What it wanted to say itself is said in our words.
    async fn finish(&self, conn: &Arc<Conn>, unreadable: bool) {
        let code = match conn.engine_said() {
            Some(431 | 414) => Some(HEAD_TOO_LARGE),
            Some(_) => Some(MALFORMED_HTTP),
            None if conn.is_late() => Some(SLOW_HEAD),
            None if unreadable && !conn.closed_early() => Some(MALFORMED_HTTP),
            None => None,
        };
        if let Some(code) = code {
            self.answer.refused(code.status);
            let _ = conn.stream.try_write(&Problem::from(code).into_bytes());
        }
        conn.end_writing();
        if code.is_some() || conn.closed_early() || conn.has_unread() {
            // Boxed: few connections end like this, and all would carry the room for it.
            Box::pin(conn.linger(LINGER_BYTES)).await;
        }
    }

    async fn keep(self: Arc<Self>) {
        let mut steps = interval(TICK);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            steps.tick().await;
            let now = self.shared.tick.fetch_add(1, Relaxed).wrapping_add(1);
            let draining = self.draining.load(Relaxed);
            if draining || now.is_multiple_of(TICKS_PER_SECOND) {
                let late = |conn: Arc<Conn>| self.end_if_late(&conn, now, draining);
                self.all().retain(|conn| conn.upgrade().map(late).is_some());
            }
        }
    }

    fn end_if_late(&self, conn: &Conn, now: u32, draining: bool) {
        let (phase, since) = conn.phase();
        let age = now.wrapping_sub(since);
        let idle = self.idle_ticks.load(Relaxed);
        if phase == Phase::Idle && age >= PARK_TICKS {
            conn.ask_to_park();
        }
        match phase {
            Phase::Head if age > self.header_ticks => conn.give_up_head(),
            Phase::Reply if age > self.write_ticks => conn.cut(),
            Phase::Linger if age > LINGER_TICKS => conn.cut(),
            Phase::Idle if !conn.has_unread() && (age > idle || draining && age > DRAIN_IDLE_TICKS) => {
                conn.cut();
            }
            Phase::Fresh
                if !conn.has_unread() && (age > self.header_ticks || draining && age > DRAIN_FRESH_TICKS) =>
            {
                conn.cut();
            }
            _ => {}
        }
    }

    async fn gone(&self) {
        loop {
            let closed = self.shared.closed.notified();
            if self.shared.open.load(Relaxed) == 0 {
                return;
            }
            closed.await;
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Conn>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error of a connection that died in the accept queue: the next one may be fine.
fn is_of_one_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
