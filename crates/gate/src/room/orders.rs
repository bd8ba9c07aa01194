//! The orders of a room to its lane: what the lane has to do beside the calls of holders.
//!
//! Orders are not queued: a newer one replaces an older one of its kind, so there is always room for one. Invariant: an
//! order is never lost, however many calls wait for the lane.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use admission::Policy;
use tokio::sync::{Notify, oneshot};

/// Orders that the lane has not taken yet.
#[derive(Default)]
pub(super) struct Pending {
    /// Make the zone known to the store, which keeps it or is to keep it with this policy.
    pub(super) open: Option<Policy>,
    /// Fetch a view now.
    pub(super) renew: bool,
    /// Fetch a view now. If it has another policy than this one, which the store keeps, open the zone with this one.
    pub(super) verify_policy: Option<Policy>,
    /// Are told when the orders given before are done. There is one for each change of the zone that is being made.
    pub(super) completion_waiters: Vec<oneshot::Sender<()>>,
    /// Report everything, say that this server stops, report that it is done, and end.
    pub(super) retire: Option<oneshot::Sender<bool>>,
}

/// The orders of one lane.
#[derive(Default)]
pub(super) struct Orders {
    pending: Mutex<Pending>,
    given: Notify,
}

impl Orders {
    /// Gives an order, and wakes the lane.
    pub(super) fn give(&self, order: impl FnOnce(&mut Pending)) {
        order(&mut self.lock());
        self.given.notify_one();
    }

    /// Reports to `done` when the orders given before are done.
    pub(super) fn notify_when_done(&self, done: oneshot::Sender<()>) {
        self.give(|pending| {
            // Callers that gave up are dropped here, so the list is as long as callers wait.
            pending.completion_waiters.retain(|waiting| !waiting.is_closed());
            pending.completion_waiters.push(done);
        });
    }

    /// Waits for an order that was given since this returned last.
    pub(super) async fn given(&self) {
        self.given.notified().await;
    }

    /// Takes the orders given so far.
    pub(super) fn take(&self) -> Pending {
        mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
