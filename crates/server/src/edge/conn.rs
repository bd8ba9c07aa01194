//! One connection: what it is doing, and its bytes.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::Shared;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing yet.
    Fresh,
    /// Sends a request's head.
    Head,
    /// Its request is being answered, or its body read; whoever does that minds the time.
    Busy,
    /// Its reply is on its way out.
    Reply,
    /// Between requests.
    Idle,
    /// Has its last reply; what it still sends is thrown away.
    Linger,
    /// Is sent a stream, and all of that is out; see [`Outlet`](super::Outlet).
    Stream,
    /// Its stream has ended under the sender.
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

/// How much is read at a time. Requests are a few hundred bytes.
const READ_LEN: usize = 2_048;

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    /// Whether it is one of those under the cap.
    counted: bool,
    shared: Arc<Shared>,
    /// Phase in the upper half, the tick it began (or last moved) at in the lower.
    state: AtomicU64,
    /// The status that the engine wanted to say by itself.
    engine_said: AtomicU16,
    late: AtomicBool,
    early: AtomicBool,
    parking: AtomicU8,
    /// The connection's task; the same for as long as it lives.
    waker: OnceLock<Waker>,
}

/// The engine runs; is to go; is gone; is gone for good, since the connection is a stream.
const AWAKE: u8 = 0;
const ASKED: u8 = 1;
const PARKED: u8 = 2;
const TAKEN: u8 = 3;

impl Conn {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>, counted: bool) -> Self {
        if counted {
            shared.open.fetch_add(1, Relaxed);
            if let Some(count) = &shared.count {
                count.open.inc();
            }
        }
        let conn = Self {
            stream,
            peer,
            counted,
            shared,
            state: AtomicU64::new(0),
            engine_said: AtomicU16::new(0),
            late: AtomicBool::new(false),
            early: AtomicBool::new(false),
            parking: AtomicU8::new(PARKED),
            waker: OnceLock::new(),
        };
        conn.set(Phase::Fresh);
        conn
    }

    pub(super) fn set(&self, phase: Phase) {
        self.state.store((phase as u64) << 32 | u64::from(self.shared.tick.load(Relaxed)), Relaxed);
    }

    pub(super) fn phase(&self) -> (Phase, u32) {
        let state = self.state.load(Relaxed);
        let phase = usize::try_from(state >> 32).ok().and_then(|index| PHASES.get(index).copied());
        let since = u32::try_from(state & u64::from(u32::MAX)).expect("masked to 32 bits");
        (phase.expect("only `set` writes, and it writes a phase"), since)
    }

    /// Ends the connection under the engine, which finds it closed by the peer.
    pub(super) fn cut(&self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Both);
    }

    /// Ends the reading only: there is something to say.
    pub(super) fn give_up_head(&self) {
        self.late.store(true, Relaxed);
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Read);
    }

    /// Asks the connection's task to give up its engine, if it has one and nothing to do.
    pub(super) fn ask_to_park(&self) {
        if self.parking.compare_exchange(AWAKE, ASKED, Relaxed, Relaxed).is_ok()
            && let Some(task) = self.waker.get()
        {
            task.wake_by_ref();
        }
    }

    /// Whether `task`, with nothing more to do just now, is to give up its engine.
    pub(super) fn parks(&self, task: &Waker) -> bool {
        if self.parking.load(Relaxed) == AWAKE {
            self.waker.get_or_init(|| task.clone());
            return false;
        }
        // It may have begun another request since it was asked.
        let parks = self.phase().0 == Phase::Idle;
        self.parking.store(if parks { PARKED } else { AWAKE }, Relaxed);
        parks
    }

    pub(super) fn unpark(&self) {
        self.parking.store(AWAKE, Relaxed);
    }

    /// From now on the connection is an outlet's.
    pub(super) fn take(&self) {
        self.parking.store(TAKEN, Relaxed);
        self.set(Phase::Stream);
    }

    pub(super) fn is_stream(&self) -> bool {
        self.parking.load(Relaxed) == TAKEN
    }

    pub(super) fn is_late(&self) -> bool {
        self.late.load(Relaxed)
    }

    /// The reply says that the connection ends, whatever the client had in mind.
    pub(super) fn closes_early(&self) {
        self.early.store(true, Relaxed);
    }

    pub(super) fn closed_early(&self) -> bool {
        self.early.load(Relaxed)
    }

    pub(super) fn engine_said(&self) -> Option<u16> {
        Some(self.engine_said.load(Relaxed)).filter(|&status| status != 0)
    }

    pub(super) fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.stream).is_ok_and(|n| n > 0)
    }

    pub(super) fn end_writing(&self) {
        let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
    }

    /// Throws away what the client still sends, as [`Conn::read_away`] does, for as long as the keeper lets it: closing a
    /// socket with unread bytes resets it, and a reset can overtake the last reply.
    pub(super) async fn linger(&self, most: usize) {
        self.set(Phase::Linger);
        self.read_away(most).await;
    }

    /// Throws away what the client sends, until it closes, or has sent `most` bytes, or the connection is cut.
    pub(super) async fn read_away(&self, most: usize) {
        let mut left = most;
        while left > 0 && self.stream.readable().await.is_ok() {
            match self.stream.try_read(&mut [0; 1_024]) {
                Ok(0) => return,
                Ok(n) => left = left.saturating_sub(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Throws away what is there.
    pub(super) fn discard(&self) {
        let mut bytes = [0; 1_024];
        while matches!(rustix::net::recv(&self.stream, &mut bytes, rustix::net::RecvFlags::DONTWAIT), Ok((n, _)) if n > 0)
        {
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        if let Some(count) = &self.shared.count {
            count.open.dec();
        }
        if self.shared.open.fetch_sub(1, Relaxed) == 1 {
            self.shared.closed.notify_waiters();
        }
    }
}

/// A connection's bytes, as the engine sees them.
pub(super) struct Io {
    conn: Arc<Conn>,
    /// What an earlier engine had read already.
    left: Bytes,
}

impl Io {
    pub(super) fn new(conn: Arc<Conn>, left: Bytes) -> Self {
        Self { conn, left }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.left.is_empty() {
            let n = buf.remaining().min(self.left.len());
            buf.put_slice(&self.left.split_to(n));
            self.conn.set(Phase::Head);
            return Poll::Ready(Ok(()));
        }
        let conn = &*self.conn;
        let room = buf.remaining().min(READ_LEN);
        loop {
            ready!(conn.stream.poll_read_ready(cx))?;
            let space = buf.initialize_unfilled_to(room);
            // A short read has emptied the socket. Saying so (by "would block") spares the engine's next look a
            // system call, and it must be said inside, where news that come in between are not lost.
            let mut short = None;
            let read = conn.stream.try_io(Interest::READABLE, || {
                let n = rustix::io::read(&conn.stream, &mut *space)?;
                if n == 0 || n == room {
                    return Ok(n);
                }
                short = Some(n);
                Err(io::ErrorKind::WouldBlock.into())
            });
            let n = match (read, short) {
                (Ok(n), _) | (Err(_), Some(n)) => n,
                (Err(e), None) if e.kind() == io::ErrorKind::WouldBlock => continue,
                (Err(e), None) => return Poll::Ready(Err(e)),
            };
            buf.advance(n);
            if n > 0 && matches!(conn.phase().0, Phase::Fresh | Phase::Idle) {
                conn.set(Phase::Head);
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let conn = &*self.conn;
        match conn.phase().0 {
            Phase::Busy | Phase::Reply => {}
            // Nobody asked anything, so these are the engine's own words about a head it can't read.
            _ => {
                let status =
                    bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
                if conn.engine_said().is_none() {
                    conn.engine_said.store(status.unwrap_or(400), Relaxed);
                }
                return Poll::Ready(Ok(bytes.len()));
            }
        }
        loop {
            ready!(conn.stream.poll_write_ready(cx))?;
            match conn.stream.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(n) => {
                    // It moves: the time begins anew.
                    if conn.phase().0 == Phase::Reply {
                        conn.set(Phase::Reply);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// All that there was to say is out.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.conn.phase().0 == Phase::Reply {
            self.conn.set(Phase::Idle);
        }
        Poll::Ready(Ok(()))
    }

    /// The edge closes, after the engine.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
