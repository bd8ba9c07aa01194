//! The connections that have no task of their own: those which wait for a request, and for nothing else.
//!
//! A task of the runtime for each connection costs memory while the connection is idle, and processor time for each of its
//! requests: the runtime's own notes about the socket and about the task are touched twice, and with thousands of connections
//! they are in no cache. So one task watches many sockets, by an epoll of its own, which the runtime in turn watches.
//!
//! A connection whose reply is not ready at once is *lent* to a task: the set still knows the socket, so that it need not be registered
//! anew for the next request, and only notes that something came meanwhile.
//!
//! Invariant: one at a time reads a connection: the set, or the task that it is lent to, or the task that took it out of the set.

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
    members: Mutex<Slab<Member>>,
}

struct Member {
    connection: Arc<Connection>,
    is_lent: bool,
    /// Something that nobody has read came before it was lent or meanwhile. No event tells of it again.
    has_news: bool,
}

/// A connection that a task has for one request. If it is dropped, the set forgets the connection.
pub(crate) struct Loan {
    set: Arc<Watched>,
    key: usize,
    is_returned: bool,
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
        Ok((Arc::new(Self { registry, members: Mutex::default() }), watch))
    }

    /// Watches a connection. What it has sent already counts as new.
    pub(crate) fn add(&self, connection: Arc<Connection>) -> io::Result<()> {
        let socket = connection.stream.as_raw_fd();
        let mut members = self.members();
        let entry = members.vacant_entry();
        self.registry.register(&mut SourceFd(&socket), Token(entry.key()), Interest::READABLE)?;
        entry.insert(Member { connection, is_lent: false, has_news: false });
        Ok(())
    }

    /// A connection that is in the set, and not lent.
    pub(crate) fn get(&self, ready: Ready) -> Option<Arc<Connection>> {
        let mut members = self.members();
        let member = members.get_mut(ready.key)?;
        member.has_news |= member.is_lent;
        (!member.is_lent).then(|| Arc::clone(&member.connection))
    }

    /// Takes a connection out of the set.
    pub(crate) fn remove(&self, ready: Ready) {
        self.forget(ready.key);
    }

    /// Lends a connection to a task. `is_all`: it has sent nothing that was not read.
    pub(crate) fn lend(self: &Arc<Self>, ready: Ready, is_all: bool) -> Loan {
        if let Some(member) = self.members().get_mut(ready.key) {
            (member.is_lent, member.has_news) = (true, !is_all || ready.is_closed);
        }
        Loan { set: Arc::clone(self), key: ready.key, is_returned: false }
    }

    fn forget(&self, key: usize) {
        let member = self.members().try_remove(key);
        if let Some(Member { connection, .. }) = member {
            let _ = self.registry.deregister(&mut SourceFd(&connection.stream.as_raw_fd()));
        }
    }

    fn members(&self) -> MutexGuard<'_, Slab<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan {
    /// Gives the connection back to the set.
    pub(crate) fn give_back(mut self) -> io::Result<()> {
        let mut members = self.set.members();
        if let Some(member) = members.get_mut(self.key) {
            if member.has_news {
                let socket = member.connection.stream.as_raw_fd();
                // What is there counts as new then.
                self.set.registry.reregister(&mut SourceFd(&socket), Token(self.key), Interest::READABLE)?;
            }
            (member.is_lent, member.has_news) = (false, false);
        }
        self.is_returned = true;
        Ok(())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if !self.is_returned {
            self.set.forget(self.key);
        }
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
