//! A queue for subscribers that must not lose events. A thread moves events from the rings into it as they come.
//!
//! The rings keep publishers from waiting; the queue's limit bounds memory. An event is lost only if the queue is full
//! *and* a publisher goes a whole ring ahead, or if the thread gets no processor time while a publisher fills a ring.
//! Invariant: each such event is counted as the subscription's loss. No event is lost between ring and queue.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Poll, Waker},
    thread,
};

use super::{
    lock,
    subscription::{BATCH_MAX, Batch, Member, Subscription, unparker},
};
use crate::Event;

/// A subscription with a queue. Dropping it unsubscribes.
pub struct Spill {
    shared: Arc<Shared>,
    member: Arc<Member>,
    batch: Vec<Event>,
}

struct Shared {
    queue: Mutex<Queue>,
    room: Condvar,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    lost: u64,
    /// The bus is gone, and the queue holds all remaining events.
    finished: bool,
    /// The subscriber dropped its `Spill`.
    abandoned: bool,
    waker: Option<Waker>,
}

impl Subscription {
    /// Adds a queue for a subscriber that is slow at times and must not lose events. A thread fills it with up to
    /// `events_max` events, or one batch if that is more. An event takes 64 bytes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn spill(self, events_max: usize) -> io::Result<Spill> {
        Spill::new(self, events_max)
    }
}

impl Spill {
    pub(crate) fn new(subscription: Subscription, events_max: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), room: Condvar::new() });
        let member = Arc::clone(subscription.member());
        thread::Builder::new().name("events-spill".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || fill(&shared, subscription, events_max)
        })?;
        Ok(Self { shared, member, batch: Vec::with_capacity(BATCH_MAX) })
    }

    /// Waits for events and returns them. `None` after the bus is gone and all events were taken. Dropping the future
    /// takes no events.
    pub async fn next(&mut self) -> Option<Batch<'_>> {
        let lost = poll_fn(|context| self.poll(context.waker())).await?;
        Some(Batch { events: &self.batch, lost })
    }

    /// Like [`Spill::next`], but blocks the thread.
    pub fn next_blocking(&mut self) -> Option<Batch<'_>> {
        let waker = unparker();
        loop {
            match self.poll(&waker) {
                Poll::Ready(lost) => return lost.map(|lost| Batch { events: &self.batch, lost }),
                Poll::Pending => thread::park(),
            }
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Option<u64>> {
        self.batch.clear();
        let mut queue = lock(&self.shared.queue);
        let count = queue.events.len().min(BATCH_MAX);
        self.batch.extend(queue.events.drain(..count));
        let lost = std::mem::take(&mut queue.lost);
        if count > 0 || lost > 0 {
            self.member.set_spilled(queue.events.len() as u64);
            self.shared.room.notify_one();
            return Poll::Ready(Some(lost));
        }
        if queue.finished {
            return Poll::Ready(None);
        }
        queue.waker = Some(waker.clone());
        Poll::Pending
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        lock(&self.shared.queue).abandoned = true;
        self.shared.room.notify_one();
        self.member.end();
    }
}

/// Runs on the spill's thread.
fn fill(shared: &Shared, mut subscription: Subscription, events_max: usize) {
    let member = Arc::clone(subscription.member());
    while let Some(batch) = subscription.next_blocking() {
        let mut queue = lock(&shared.queue);
        while !queue.events.is_empty()
            && queue.events.len() + batch.events.len() > events_max
            && !queue.abandoned
        {
            queue = shared.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.abandoned {
            return;
        }
        queue.events.extend(batch.events);
        queue.lost += batch.lost;
        member.set_spilled(queue.events.len() as u64);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    let waker = {
        let mut queue = lock(&shared.queue);
        queue.finished = true;
        queue.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}
