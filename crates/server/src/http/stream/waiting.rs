//! The streams of waiting users (followers). Each zone that has followers has one task, and the task uses one view for all.
//!
//! When the zone has a new view, about once a second, the task goes over its followers. It reads rank and wait of each from
//! that view, and formats the zone's common part once. A follower gets a message if something besides the passing of time
//! changed, or if the period that it was told is over. Followers at the front have appointments, as polls have: a task
//! claims for each of them when it is due, and the lane batches the claims. So a follower behind the front needs no separate
//! timer, task or store call.
//!
//! Invariants: a follower gets the same data as a poll of its ticket. It counts as present only while everything sent to it
//! has left the server, so a client that does not read, or is gone, neither holds nor takes a slot. It is in one of three
//! places: behind, in the front, or in a claim.

mod follower;
mod task;

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::{Ticket, ZoneId};
use arc_swap::ArcSwap;
use axum::response::Response;
use edge::{Held, PerAddress, PerClient};
use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{AnyStore, Gate, Reply};
use metrics::Gauge;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::response;
use crate::{http::counted_addresses::Uncounted, passes::Passes, stock::Stocks};
use follower::Follower;
use task::ZoneTask;

/// What the system buffers for a follower that does not read, in bytes: about ten messages. Older messages are useless.
const UNREAD: usize = 4_096;

/// If a user's system accepts no bytes for this long, the user counts as gone. TCP would notice much later.
const LOST_AFTER: Duration = Duration::from_secs(6);

/// A browser reconnects after a time in this range, in milliseconds. It depends on the ticket, to spread the crowd.
const RETRY_MS: std::ops::Range<u64> = 1_000..3_000;

/// All streams of waiting users.
pub struct Streams {
    gate: Arc<Gate<AnyStore>>,
    passes: Arc<ArcSwap<Passes>>,
    stock: Arc<Stocks>,
    mailboxes: Arc<Mailboxes>,
    stop: watch::Sender<bool>,
    open: Gauge,
    /// Counts the streams of each client; none without a cap.
    of_clients: Option<Arc<PerAddress>>,
    uncounted: Uncounted,
}

/// What a stream holds of its client's share. Nothing, where the client is not counted.
pub(in crate::http) struct Share(#[expect(dead_code, reason = "it counts until it is dropped")] Option<Held>);

/// The mailboxes of the zones that have a task.
type Mailboxes = Mutex<HashMap<ZoneId, Arc<Mailbox>>>;

/// Messages to a zone's task.
#[derive(Default)]
struct Mailbox {
    arrivals: Mutex<Vec<Arrival>>,
    /// There is a new view.
    has_view: AtomicBool,
    wake: Notify,
}

/// A new follower that has its first event, and when to ask the store next.
type Arrival = (Follower, Instant);

/// A panic cannot leave these lists and maps half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// No streams yet. `passes` signs the passes of those who enter, and `stock` says what is left. `open` is the gauge of open
    /// streams; a client has no more than `per_client` says, unless it is `uncounted`.
    #[must_use]
    pub fn new(
        (gate, passes, stock): (Arc<Gate<AnyStore>>, Arc<ArcSwap<Passes>>, Arc<Stocks>),
        open: Gauge,
        per_client: Option<PerClient>,
        uncounted: Uncounted,
    ) -> Self {
        let (of_clients, stop) = (per_client.map(PerAddress::new), watch::Sender::new(false));
        Self { gate, passes, stock, mailboxes: Arc::default(), stop, open, of_clients, uncounted }
    }

    /// Takes a share for one more stream of the client at this address. None if it has too many.
    pub(in crate::http) fn share(&self, client: IpAddr) -> Option<Share> {
        match &self.of_clients {
            Some(of_clients) if !self.uncounted.has(client) => {
                of_clients.hold(client).map(|held| Share(Some(held)))
            }
            _ => Some(Share(None)),
        }
    }

    /// A stream for the holder of the ticket. `first` is what it gets first.
    pub(in crate::http) fn open(
        self: &Arc<Self>,
        zone: ZoneId,
        first: (Reply, Ticket),
        share: Share,
    ) -> Response {
        let streams = Arc::clone(self);
        response(move |mut outlet| {
            outlet.limit(UNREAD, LOST_AFTER);
            let follower = Follower::new(outlet, &first, &streams.open, share);
            let mut text = String::new();
            let written = writeln!(text, "retry: {}", retry_ms(&first.1));
            debug_assert!(written.is_ok(), "writing to a String does not fail");
            if let Some(arrival) = follower.answer(&streams, &zone, first, &mut text) {
                arrive(streams, zone, arrival);
            }
        })
    }

    /// Ends all streams, also those of operators, with the event `reconnect`.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(in crate::http) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Subscribes to the events that waiting users may see.
    ///
    /// # Errors
    /// If the bus has too many subscribers.
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("streams", Scope::Public, Kinds::of(&[Kind::ViewShown]))
    }

    /// Wakes a zone's task when the zone has a new view. If an event is lost, the next one has the same effect.
    pub async fn follow(&self, mut subscription: Subscription, bus: &Bus) {
        while let Some(batch) = subscription.next().await {
            for event in batch.events {
                if let Event::ViewShown(shown) = event
                    && let Some(zone) = bus.zone_id(shown.zone)
                    && let Some(mailbox) = lock(&self.mailboxes).get(&zone)
                {
                    mailbox.has_view.store(true, Ordering::Relaxed);
                    mailbox.wake.notify_one();
                }
            }
        }
    }
}

fn retry_ms(ticket: &Ticket) -> u64 {
    // Neighbours in the line reconnect far apart. The multiplier is that of Fibonacci hashing.
    let spread = ticket.seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    RETRY_MS.start + spread % (RETRY_MS.end - RETRY_MS.start)
}

/// The entry of a zone's task in [`Mailboxes`]. If the task panics, the entry goes with it, and the next stream starts
/// another task.
struct Registration {
    mailboxes: Arc<Mailboxes>,
    zone: ZoneId,
    mailbox: Arc<Mailbox>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut mailboxes = lock(&self.mailboxes);
        if mailboxes.get(&self.zone).is_some_and(|current| Arc::ptr_eq(current, &self.mailbox)) {
            mailboxes.remove(&self.zone);
        }
    }
}

/// Hands a stream to its zone's task. Starts the task if there is none.
fn arrive(streams: Arc<Streams>, zone: ZoneId, arrival: Arrival) {
    let mut started = None;
    let mut mailboxes = lock(&streams.mailboxes);
    let mailbox = Arc::clone(mailboxes.entry(zone.clone()).or_insert_with(|| {
        let mailbox = Arc::default();
        let mailboxes = Arc::clone(&streams.mailboxes);
        started = Some(Registration { mailboxes, zone, mailbox: Arc::clone(&mailbox) });
        mailbox
    }));
    // A task ends only under this lock, and only without arrivals.
    lock(&mailbox.arrivals).push(arrival);
    drop(mailboxes);
    mailbox.wake.notify_one();
    // Not under the lock: a runtime that is shutting down drops the task at once, and that takes the lock.
    if let Some(registration) = started {
        tokio::spawn(ZoneTask::new(streams, registration).run());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_panics_is_not_registered_any_more() {
        let mailboxes = Arc::new(Mailboxes::default());
        let zone = ZoneId::parse("Z").expect("a name");
        let register = |mailbox: &Arc<Mailbox>| {
            lock(&mailboxes).insert(zone.clone(), Arc::clone(mailbox));
            Registration {
                mailboxes: Arc::clone(&mailboxes),
                zone: zone.clone(),
                mailbox: Arc::clone(mailbox),
            }
        };
        let [one, two] = [Arc::default(), Arc::default()];
        drop(register(&one));
        assert!(lock(&mailboxes).is_empty());
        let (first, second) = (register(&one), register(&two));
        drop(first);
        assert_eq!(lock(&mailboxes).len(), 1, "the other task stays registered");
        drop(second);
        assert!(lock(&mailboxes).is_empty());
    }
}
