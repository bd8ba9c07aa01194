//! One connection: its socket, its phase and its flags.

use std::{
    future::poll_fn,
    io,
    net::{Shutdown, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use bytes::Bytes;
use hyper::header::{CONNECTION, HeaderValue};
use rustix::buffer::spare_capacity;
use socket2::SockRef;
use tokio::sync::Notify;

use crate::{
    Held, Observer, Refusal, direct,
    read::{READ_LEN, read_once},
    stream::Stream,
};

/// How many bytes of a closing connection are still read.
pub(crate) const LINGER_BYTES: usize = 256 << 10;

/// The most reads, of 1 KiB each, of a connection that is closed at once.
const MAX_DISCARDS: usize = 16;

/// What the connections of a listener share.
pub(crate) struct Shared {
    /// The edge's clock, in ticks. It counts only while the process runs, so a process that was stopped for a while does
    /// not take all its connections for late.
    pub(crate) tick: AtomicU32,
    pub(crate) draining: AtomicBool,
    /// Connections under the cap that are open.
    pub(crate) open: AtomicUsize,
    /// Those of them whose address has no reserve.
    pub(crate) open_without_reserve: AtomicUsize,
    /// Refused connections that are still read.
    pub(crate) refusing: AtomicUsize,
    pub(crate) observer: Arc<dyn Observer>,
    last_closed: Notify,
}

impl Shared {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self {
            tick: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            open_without_reserve: AtomicUsize::new(0),
            refusing: AtomicUsize::new(0),
            observer,
            last_closed: Notify::new(),
        }
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_closed(&self) {
        loop {
            let closed = self.last_closed.notified();
            if self.open.load(Relaxed) == 0 {
                return;
            }
            closed.await;
        }
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has sent nothing yet.
    Fresh,
    /// It sends the head of a request.
    Head,
    /// The service reads the body or prepares the reply, and keeps the deadline for that.
    Busy,
    /// The reply is on its way out.
    Reply,
    /// It is between two requests.
    Idle,
    /// It got its last reply. What it still sends is discarded.
    Linger,
    /// An [`Outlet`](crate::Outlet) writes to it, and everything so far is out.
    Stream,
    /// Its stream has ended: the client is gone.
    Over,
}

const PHASES: [Phase; 8] = [
    Phase::Fresh,
    Phase::Head,
    Phase::Busy,
    Phase::Reply,
    Phase::Idle,
    Phase::Linger,
    Phase::Stream,
    Phase::Over,
];

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) peer: SocketAddr,
    /// Whether it is one of those under the cap.
    counted: AtomicBool,
    /// Whether its address may use the reserve of connections.
    has_reserve: bool,
    /// Whether the service knows its client.
    known: AtomicBool,
    /// Its share of what its client may hold.
    _held: Option<Held>,
    shared: Arc<Shared>,
    /// The phase in the upper half; in the lower half the tick at which it began, or last made progress.
    state: AtomicU64,
    /// The status of the reply that the engine wanted to send by itself; 0 for none.
    engine_status: AtomicU16,
    head_is_late: AtomicBool,
    service_closes: AtomicBool,
    /// Whether its task hears that it is to end: with TLS or with HTTP/2.
    end_signal: AtomicBool,
    /// Whether it has HTTP/2.
    multiplexed: AtomicBool,
    /// It is to end as soon as it has no request.
    ending: AtomicBool,
    engine: AtomicU8,
    /// Wakes the connection's task, which stays the same for the life of the connection.
    waker: OnceLock<Waker>,
}

/// What the connection's HTTP engine is doing.
mod engine {
    /// It runs.
    pub(super) const RUNNING: u8 = 0;
    /// It runs, and is asked to end while the connection is idle.
    pub(super) const ASKED_TO_PARK: u8 = 1;
    /// It is freed until the connection sends again.
    pub(super) const PARKED: u8 = 2;
    /// It is freed for good, because an outlet has the connection.
    pub(super) const TAKEN_OVER: u8 = 3;
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        peer: SocketAddr,
        shared: Arc<Shared>,
        counted: bool,
        has_reserve: bool,
        held: Option<Held>,
    ) -> Self {
        if counted {
            shared.open.fetch_add(1, Relaxed);
            if !has_reserve {
                shared.open_without_reserve.fetch_add(1, Relaxed);
            }
            shared.observer.opened();
        }
        let connection = Self {
            stream,
            peer,
            counted: AtomicBool::new(counted),
            has_reserve,
            known: AtomicBool::new(false),
            _held: held,
            shared,
            state: AtomicU64::new(0),
            engine_status: AtomicU16::new(0),
            head_is_late: AtomicBool::new(false),
            service_closes: AtomicBool::new(false),
            end_signal: AtomicBool::new(false),
            multiplexed: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            engine: AtomicU8::new(engine::PARKED),
            waker: OnceLock::new(),
        };
        connection.set(Phase::Fresh);
        connection
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.set_since(phase, self.now());
    }

    /// It is in this phase since that tick.
    pub(crate) fn set_since(&self, phase: Phase, tick: u32) {
        self.state.store((phase as u64) << 32 | u64::from(tick), Relaxed);
    }

    /// The tick of now.
    pub(crate) fn now(&self) -> u32 {
        self.shared.tick.load(Relaxed)
    }

    pub(crate) fn phase(&self) -> (Phase, u32) {
        let state = self.state.load(Relaxed);
        let phase = usize::try_from(state >> 32).ok().and_then(|index| PHASES.get(index).copied());
        let since = u32::try_from(state & u64::from(u32::MAX)).expect("masked to 32 bits");
        (phase.expect("only `set` writes, and it writes a phase"), since)
    }

    /// The last reply of a connection that is refused.
    pub(crate) fn refusal(&self, refusal: Refusal) -> Vec<u8> {
        let (mut head, body) = self.shared.observer.refused(refusal).into_parts();
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        direct::encode(&head, &body, self.now())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.draining.load(Relaxed)
    }

    /// The service knows the client.
    pub(crate) fn make_known(&self) {
        self.known.store(true, Relaxed);
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    pub(crate) fn has_reserve(&self) -> bool {
        self.has_reserve
    }

    /// Whether it is under the cap, and the service does not know its client.
    pub(crate) fn is_stranger(&self) -> bool {
        self.counted.load(Relaxed) && !self.is_known()
    }

    /// Whether it is under the cap, and has no request: it is between two of them, or sends a head.
    pub(crate) fn is_unused(&self) -> bool {
        let is_unused = match self.phase().0 {
            Phase::Idle => !self.has_unread(),
            phase => phase == Phase::Head,
        };
        self.counted.load(Relaxed) && is_unused
    }

    /// Ends the connection, and gives its place under the cap to another one at once.
    pub(crate) fn give_way(&self) {
        self.cut();
        self.leave();
    }

    /// Gives up its place under the cap, if it has one.
    fn leave(&self) {
        if !self.counted.swap(false, Relaxed) {
            return;
        }
        self.shared.observer.closed();
        if !self.has_reserve {
            self.shared.open_without_reserve.fetch_sub(1, Relaxed);
        }
        if self.shared.open.fetch_sub(1, Relaxed) == 1 {
            self.shared.last_closed.notify_waiters();
        }
    }

    /// The next bytes that the client sends, as one read returns them. None when it is gone or has closed its side.
    pub(crate) async fn receive(&self) -> Option<Bytes> {
        loop {
            poll_fn(|cx| self.stream.poll_read_ready(cx)).await.ok()?;
            let mut bytes = Vec::with_capacity(READ_LEN);
            let read = read_once(&self.stream, READ_LEN, || {
                Ok(rustix::io::read(&self.stream, spare_capacity(&mut bytes))?)
            });
            match read {
                Ok(0) => return None,
                Ok(_) => {
                    self.set(Phase::Head);
                    return Some(bytes.into());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends all of `bytes`. Each progress starts the deadline of a reply again.
    pub(crate) async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.stream.try_write(bytes) {
                Ok(n) if n == bytes.len() => return Ok(()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    self.set(Phase::Reply);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.register()?;
                    self.stream.writable().await?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Shuts the socket down. The engine sees a connection that its peer closed.
    pub(crate) fn cut(&self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Both);
    }

    /// Stops reading a head that is late. Writing stays possible, for the refusal.
    pub(crate) fn give_up_head(&self) {
        self.head_is_late.store(true, Relaxed);
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Read);
    }

    /// Asks the connection's task to free its engine, if it has one and is idle.
    pub(crate) fn ask_to_park(&self) {
        let asked =
            self.engine.compare_exchange(engine::RUNNING, engine::ASKED_TO_PARK, Relaxed, Relaxed).is_ok();
        if asked && let Some(task) = self.waker.get() {
            task.wake_by_ref();
        }
    }

    /// Whether the connection's task, which has nothing more to do just now, is to free its engine. `task` wakes it.
    pub(crate) fn parks(&self, task: &Waker) -> bool {
        if self.engine.load(Relaxed) == engine::RUNNING {
            self.waker.get_or_init(|| task.clone());
            return false;
        }
        // Another request may have begun after it was asked to park.
        let parks = self.phase().0 == Phase::Idle;
        self.engine.store(if parks { engine::PARKED } else { engine::RUNNING }, Relaxed);
        parks
    }

    /// From now on its task hears that it is to end.
    pub(crate) fn enable_end_signal(&self) {
        self.end_signal.store(true, Relaxed);
    }

    pub(crate) fn has_end_signal(&self) -> bool {
        self.end_signal.load(Relaxed)
    }

    /// From now on it has HTTP/2.
    pub(crate) fn multiplex(&self) {
        self.multiplexed.store(true, Relaxed);
    }

    pub(crate) fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Relaxed)
    }

    /// Asks the task of an encrypted connection to end it. May be called again, in case the task did not hear it.
    pub(crate) fn ask_to_end(&self) {
        self.ending.store(true, Relaxed);
        if let Some(task) = self.waker.get() {
            task.wake_by_ref();
        }
    }

    /// Whether the connection's task is asked to end it. `task` wakes it.
    pub(crate) fn is_asked_to_end(&self, task: &Waker) -> bool {
        self.waker.get_or_init(|| task.clone());
        self.ending.load(Relaxed)
    }

    /// The same, for a connection that has one request at a time: whether it has none now.
    pub(crate) fn ends(&self, task: &Waker) -> bool {
        self.is_asked_to_end(task) && matches!(self.phase().0, Phase::Fresh | Phase::Idle)
    }

    pub(crate) fn unpark(&self) {
        self.engine.store(engine::RUNNING, Relaxed);
    }

    /// Gives the connection to an outlet.
    pub(crate) fn take_over(&self) {
        self.engine.store(engine::TAKEN_OVER, Relaxed);
        self.set(Phase::Stream);
    }

    pub(crate) fn is_taken_over(&self) -> bool {
        self.engine.load(Relaxed) == engine::TAKEN_OVER
    }

    pub(crate) fn head_is_late(&self) -> bool {
        self.head_is_late.load(Relaxed)
    }

    /// The service's reply ends the connection, whatever the client intended.
    pub(crate) fn close_by_service(&self) {
        self.service_closes.store(true, Relaxed);
    }

    pub(crate) fn service_closes(&self) -> bool {
        self.service_closes.load(Relaxed)
    }

    /// Keeps the status of the first reply that the engine wants to send by itself. The edge sends another one in its place.
    pub(crate) fn keep_engine_reply(&self, reply: &[u8]) {
        let status = reply.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let status = status.unwrap_or(400);
        let _ = self.engine_status.compare_exchange(0, status, Relaxed, Relaxed);
    }

    pub(crate) fn engine_status(&self) -> Option<u16> {
        Some(self.engine_status.load(Relaxed)).filter(|&status| status != 0)
    }

    pub(crate) fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.stream).is_ok_and(|n| n > 0)
    }

    pub(crate) fn end_writing(&self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
    }

    /// Discards what the client still sends, as [`Connection::discard_until_closed`] does, until the deadline of
    /// [`Phase::Linger`]. Closing a socket with unread bytes resets it, and a reset can overtake the last reply.
    pub(crate) async fn linger(&self, most: usize) {
        self.set(Phase::Linger);
        self.discard_until_closed(most).await;
    }

    /// Discards what the client sends, until it closes, has sent `most` bytes, or the connection is cut.
    pub(crate) async fn discard_until_closed(&self, most: usize) {
        let mut left = most;
        if self.stream.register().is_err() {
            return;
        }
        while left > 0 && self.stream.readable().await.is_ok() {
            match self.stream.try_read(&mut [0; 1_024]) {
                Ok(0) => return,
                Ok(n) => left = left.saturating_sub(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Discards what has arrived so far, but no more than a request that came with the connection. The accept loop calls this: a
    /// client that sends without a pause must not hold it.
    pub(crate) fn discard_received(&self) {
        use rustix::net::{RecvFlags, recv};
        let mut bytes = [0; 1_024];
        for _ in 0..MAX_DISCARDS {
            if !matches!(recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT), Ok((n, _)) if n > 0) {
                return;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A connection that is not counted, what it shares, and its client.
#[cfg(test)]
pub(crate) async fn accepted() -> (Arc<Connection>, Arc<Shared>, tokio::net::TcpStream) {
    use bytes::Bytes;
    use hyper::Response;

    struct NoObserver;

    impl Observer for NoObserver {
        fn refused(&self, _: crate::Refusal) -> Response<Bytes> {
            Response::default()
        }
    }

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let client =
        tokio::net::TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
    let (stream, peer) = listener.accept().await.expect("accepted");
    let shared = Arc::new(Shared::new(Arc::new(NoObserver)));
    let connection = Connection::new(Stream::accepted(stream), peer, Arc::clone(&shared), false, false, None);
    (Arc::new(connection), shared, client)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The accept loop closes what it refuses, and serves everybody else meanwhile.
    #[tokio::test]
    async fn a_client_that_sends_without_a_pause_does_not_hold_whoever_discards_it() {
        let (connection, _shared, client) = accepted().await;
        let mut client = client.into_std().expect("it leaves the runtime");
        client.set_nonblocking(false).expect("it blocks");
        client.write_all(&vec![0; 1_024]).expect("sent");
        connection.stream.readable().await.expect("readable");
        connection.discard_received();
        assert!(!connection.has_unread(), "a request that came with the connection is discarded");

        // More than is read at once arrives. It fits into the buffers, so this does not wait.
        client.write_all(&vec![0; (MAX_DISCARDS + 16) << 10]).expect("sent");
        let arrived = || rustix::io::ioctl_fionread(&connection.stream).expect("a socket");
        while arrived() < (MAX_DISCARDS as u64 + 16) << 10 {
            tokio::task::yield_now().await;
        }
        connection.discard_received();
        assert_eq!(arrived(), 16 << 10);
    }
}
