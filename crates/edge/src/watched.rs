//! The connections that have no task of their own: those which wait for a request, and for nothing else.
//!
//! A task of the runtime for each connection costs memory while the connection is idle, and processor time for each of its
//! requests: the runtime's own notes about the socket and about the task are touched twice, and with thousands of connections
//! they are in no cache. So one task watches many sockets, by an epoll of its own, which the runtime in turn watches.
//!
//! Invariant: a connection is in one of these sets, or has a task; never both. Whoever takes it out of the set decides.

use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mio::{Events, Interest, Poll, Registry, Token, unix::SourceFd};
use slab::Slab;
use tokio::{io::unix::AsyncFd, task::yield_now};

use crate::connection::Connection;

/// The most connections that are served before other tasks get a turn.
const TURN: usize = 64;

/// A set of connections.
pub(crate) struct Watched {
    registry: Registry,
    connections: Mutex<Slab<Arc<Connection>>>,
}

/// A connection of the set that has something to read.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    key: usize,
    /// The client has closed its side, or the connection is broken.
    pub(crate) is_closed: bool,
}

/// Tells which connections of a set have something to read.
pub(crate) struct Watch {
    /// It watches the descriptor of `poll`. Declared before it, so that it ends first.
    registered: AsyncFd<RawFd>,
    poll: Poll,
    events: Events,
}

impl Watched {
    /// An empty set, and what watches it.
    pub(crate) fn new() -> io::Result<(Arc<Self>, Watch)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        // SAFETY: the descriptor is that of `poll`, which lives longer than the registration: see `Watch`.
        #[expect(unsafe_code, reason = "the runtime cannot know how long a descriptor lives")]
        let registered =
            unsafe { AsyncFd::register_with_interest(poll.as_raw_fd(), tokio::io::Interest::READABLE)? };
        let watch = Watch { registered, poll, events: Events::with_capacity(TURN) };
        Ok((Arc::new(Self { registry, connections: Mutex::default() }), watch))
    }

    /// Watches a connection. What it has sent already counts as new.
    pub(crate) fn add(&self, connection: Arc<Connection>) -> io::Result<()> {
        let socket = connection.stream.as_raw_fd();
        let mut connections = self.connections();
        let entry = connections.vacant_entry();
        self.registry.register(&mut SourceFd(&socket), Token(entry.key()), Interest::READABLE)?;
        entry.insert(connection);
        Ok(())
    }

    /// A connection that is in the set.
    pub(crate) fn get(&self, ready: Ready) -> Option<Arc<Connection>> {
        self.connections().get(ready.key).cloned()
    }

    /// Takes a connection out of the set.
    pub(crate) fn remove(&self, ready: Ready) {
        let connection = self.connections().try_remove(ready.key);
        if let Some(connection) = connection {
            let _ = self.registry.deregister(&mut SourceFd(&connection.stream.as_raw_fd()));
        }
    }

    fn connections(&self) -> MutexGuard<'_, Slab<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits until there are some, and calls `serve` for each of them. Then other tasks get a turn.
    pub(crate) async fn next(&mut self, mut serve: impl FnMut(Ready)) -> io::Result<()> {
        let mut guard = self.registered.readable().await?;
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        let mut served = 0;
        for event in &self.events {
            let is_closed = event.is_read_closed() || event.is_error();
            serve(Ready { key: event.token().0, is_closed });
            served += 1;
        }
        if served < TURN {
            // Those that came meanwhile make it ready again.
            guard.clear_ready();
        } else {
            drop(guard);
            yield_now().await;
        }
        Ok(())
    }
}
