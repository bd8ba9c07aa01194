//! For a subscriber that must not lose: a thread that takes events out of the rings as they come, into a queue.
//!
//! The rings stay what bounds the publishers, and the queue what bounds memory. An event is lost only when the queue
//! is full *and* a publisher goes a whole ring ahead, or when this thread has no processor for as long as a publisher
//! takes for a ring. Invariant: either is counted as the subscription's loss; nothing is lost between ring and queue.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Poll, Waker},
    thread,
};

use crate::{
    Batch, Event, Subscription,
    bus::lock,
    subscription::{BATCH_MAX, Member, unparker},
};

/// A subscription that has a queue before it. Dropping it unsubscribes.
pub struct Spill {
    held: Arc<Held>,
    member: Arc<Member>,
    batch: Vec<Event>,
}

struct Held {
    queue: Mutex<Queue>,
    room: Condvar,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    lost: u64,
    /// The bus is gone, and all that was left is here.
    complete: bool,
    /// The subscriber is gone.
    left: bool,
    waker: Option<Waker>,
}

impl Spill {
    pub(crate) fn new(subscription: Subscription, events_max: usize) -> io::Result<Self> {
        let held = Arc::new(Held { queue: Mutex::default(), room: Condvar::new() });
        let member = Arc::clone(subscription.member());
        thread::Builder::new().name("events-spill".to_owned()).spawn({
            let held = Arc::clone(&held);
            move || fill(&held, subscription, events_max)
        })?;
        Ok(Self { held, member, batch: Vec::with_capacity(BATCH_MAX) })
    }

    /// The events since the last batch, as soon as there are any; none once the bus is gone and all was taken. A future
    /// that is dropped has taken nothing.
    pub async fn next(&mut self) -> Option<Batch<'_>> {
        let lost = poll_fn(|context| self.poll(context.waker())).await?;
        Some(Batch { events: &self.batch, lost })
    }

    /// The same, for a thread of the subscriber's own.
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
        let mut queue = lock(&self.held.queue);
        let count = queue.events.len().min(BATCH_MAX);
        self.batch.extend(queue.events.drain(..count));
        let lost = std::mem::take(&mut queue.lost);
        if count > 0 || lost > 0 {
            self.member.set_spilled(queue.events.len() as u64);
            self.held.room.notify_one();
            return Poll::Ready(Some(lost));
        }
        if queue.complete {
            return Poll::Ready(None);
        }
        queue.waker = Some(waker.clone());
        Poll::Pending
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        lock(&self.held.queue).left = true;
        self.held.room.notify_one();
        self.member.end();
    }
}

/// What the spill's thread does.
fn fill(held: &Held, mut subscription: Subscription, events_max: usize) {
    let member = Arc::clone(subscription.member());
    while let Some(batch) = subscription.next_blocking() {
        let mut queue = lock(&held.queue);
        while !queue.events.is_empty() && queue.events.len() + batch.events.len() > events_max && !queue.left
        {
            queue = held.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.left {
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
        let mut queue = lock(&held.queue);
        queue.complete = true;
        queue.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}
