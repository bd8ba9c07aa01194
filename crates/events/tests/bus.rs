//! The promises of the bus, tested from outside. Every received event is counted.

#[path = "bus/ledger.rs"]
mod ledger;

use std::{
    pin::pin,
    sync::{
        Arc, Barrier, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use admission::{Policy, ZoneId};
use events::{
    Bus, Kind, Kinds, OfName, PUBLISHERS_MAX, PolicyChanged, SUBSCRIBERS_MAX, Scope, SubscribeError,
    Subscriber, Subscription, ViewShown, ZoneAdded,
};
use ledger::{Ledger, MARKED, bus, from_threads, mark, publish};

/// Longer than any test takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn subscribe(bus: &Bus, name: &str, kinds: &[Kind]) -> Subscription {
    bus.subscribe(name, Scope::Root, Kinds::of(kinds)).expect("a subscription")
}

/// Takes events until the bus ends.
fn all(mut subscription: Subscription) -> (Ledger, u64) {
    let (mut ledger, mut lost) = (Ledger::default(), 0);
    while let Some(batch) = subscription.next_blocking() {
        ledger.note(batch.events);
        lost += batch.lost;
    }
    (ledger, lost)
}

fn figures(bus: &Bus, name: &str) -> Subscriber {
    bus.subscribers().into_iter().find(|one| &*one.name == name).expect("it is subscribed")
}

/// The published benchmark's workload, smaller: 4 publishers, 5 kinds, 4 subscribers each.
#[test]
fn each_subscriber_receives_every_event_once_and_in_order() {
    const EACH: u64 = 20_000;
    let bus = bus(1 << 12);
    let subscribers: Vec<_> = (0..20)
        .map(|n| {
            let subscription = subscribe(&bus, "one", &[MARKED[n % 5]]);
            thread::spawn(move || all(subscription))
        })
        .collect();
    // The kinds take turns, so that the numbers of each kind have no gaps.
    from_threads(4, EACH, |publisher, n| {
        publish(&bus, MARKED[usize::try_from(n % 5).expect("small")], publisher, n / 5);
    });
    drop(bus);
    for subscriber in subscribers {
        let (ledger, lost) = subscriber.join().expect("a subscriber");
        assert_eq!((ledger.had, ledger.missing, lost), (4 * EACH / 5, 0, 0));
    }
}

#[test]
fn several_kinds_arrive_in_the_order_of_their_publisher() {
    const EACH: u64 = 30_000;
    let bus = bus(1 << 15);
    let (most, few) = (subscribe(&bus, "most", &MARKED), subscribe(&bus, "few", &MARKED[1..3]));
    let most = thread::spawn(move || all(most));
    let few = thread::spawn(move || all(few));
    // Runs of many lengths: one kind is rare, another one is nearly always published.
    let kind = |n: u64| match n % 1_000 {
        0 => MARKED[0],
        1..10 => MARKED[1],
        n if n % 7 == 0 => MARKED[2],
        500..600 => MARKED[3],
        _ => MARKED[4],
    };
    from_threads(3, EACH, |publisher, n| publish(&bus, kind(n), publisher, n));
    drop(bus);
    let (ledger, lost) = most.join().expect("a subscriber");
    assert_eq!((ledger.had, ledger.missing, lost), (3 * EACH, 0, 0));
    let (ledger, lost) = few.join().expect("a subscriber");
    let had = (0..EACH).filter(|&n| [MARKED[1], MARKED[2]].contains(&kind(n))).count() as u64;
    assert_eq!((ledger.had, lost), (3 * had, 0));
}

#[test]
fn a_slow_subscriber_loses_its_oldest_events_and_others_lose_none() {
    let bus = bus(16);
    let (mut slow, mut quick) = (subscribe(&bus, "slow", &MARKED), subscribe(&bus, "quick", &[Kind::Joined]));
    let mut had = Ledger::default();
    publish(&bus, Kind::Admitted, 1, 0);
    for n in 0..100 {
        publish(&bus, Kind::Joined, 0, n);
        had.note(quick.try_next().expect("an event").events);
    }
    assert_eq!((had.had, had.missing), (100, 0));

    // The figures show the loss before the slow subscriber notices it. The rare kind was not overwritten.
    let seen = figures(&bus, "slow");
    assert_eq!((seen.taken, seen.lag, seen.lost), (0, 1 + 15, 85));
    let seen = figures(&bus, "quick");
    assert_eq!((seen.taken, seen.lag, seen.lost), (100, 0, 0));

    let batch = slow.try_next().expect("events");
    assert_eq!(batch.lost, 85);
    let marks: Vec<_> = batch.events.iter().map(mark).collect();
    assert_eq!(marks, [(1, 0)].into_iter().chain((85..100).map(|n| (0, n))).collect::<Vec<_>>());
    assert!(slow.try_next().is_none());
    let seen = figures(&bus, "slow");
    assert_eq!((seen.taken, seen.lag, seen.lost), (16, 0, 85));
    // The loss stays counted after the subscriber has left.
    drop(slow);
    assert_eq!(bus.by_name()["slow"], OfName { lost: 85, waiting: 0 });
}

/// A start publishes an event for each zone at once, before a subscriber gets the processor.
#[test]
fn an_event_of_each_zone_waits_for_a_subscriber() {
    const ZONES: usize = 4_096;
    let bus = Bus::new().expect("a thread");
    let kinds = [Kind::ZoneAdded, Kind::PolicyChanged, Kind::ViewShown];
    let mut subscription = subscribe(&bus, "one", &kinds);
    let zone = bus.zone(&ZoneId::parse("Z").expect("a name"));
    for _ in 0..ZONES {
        bus.publish(ZoneAdded { zone, policy: Policy::default() });
        bus.publish(PolicyChanged { zone, policy: Policy::default() });
        bus.publish(ViewShown { zone, epoch: 1, at_ms: 0 });
    }
    let mut had = 0;
    while let Some(batch) = subscription.try_next() {
        assert_eq!(batch.lost, 0);
        had += batch.events.len();
    }
    assert_eq!(had, kinds.len() * ZONES);
}

#[test]
fn losses_under_load_are_counted() {
    const EACH: u64 = 100_000;
    let bus = bus(8);
    let subscribers = [&MARKED[1..2], &MARKED].map(|kinds| {
        let subscription = subscribe(&bus, "hurried", kinds);
        thread::spawn(move || all(subscription))
    });
    from_threads(2, EACH, |publisher, n| publish(&bus, Kind::Joined, publisher, n));
    drop(bus);
    for subscriber in subscribers {
        let (ledger, lost) = subscriber.join().expect("a subscriber");
        assert_eq!(ledger.had + lost, 2 * EACH);
        // Each publisher's last events were never overwritten, so every missing event lies between received ones.
        assert_eq!(ledger.missing, lost);
    }
}

/// Stops the publishers when the test ends, even if it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn subscribers_come_and_go_under_load() {
    let bus = bus(1 << 10);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let publishers: Vec<_> = (0..2)
            .map(|publisher| {
                let (bus, done) = (&bus, &done);
                scope.spawn(move || {
                    let mut n = 0;
                    while !done.load(Ordering::Relaxed) {
                        publish(bus, Kind::Joined, publisher, n);
                        n += 1;
                    }
                    n
                })
            })
            .collect();
        let stop = Stop(&done);
        let mut steady = subscribe(&bus, "steady", &[Kind::Joined]);
        assert!(steady.next_blocking().is_some(), "somebody publishes by now");
        for _ in 0..10_000 {
            let mut visitor = subscribe(&bus, "visitor", &[Kind::Joined]);
            if let Some(batch) = visitor.try_next() {
                Ledger::default().note(batch.events);
            }
        }
        drop(stop);
        let published: u64 = publishers.into_iter().map(|one| one.join().expect("a publisher")).sum();
        assert_eq!(bus.published(Kind::Joined), published);
        let names: Vec<_> = bus.subscribers().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["steady".into()]);
        drop(steady);
    });
    assert!(bus.subscribers().is_empty());
}

#[test]
fn a_subscriber_that_panics_affects_no_other() {
    let bus = bus(1 << 10);
    let mut other = subscribe(&bus, "other", &[Kind::Joined]);
    let mut panicking = subscribe(&bus, "panicking", &[Kind::Joined]);
    publish(&bus, Kind::Joined, 0, 0);
    let thread = thread::spawn(move || {
        let batch = panicking.next_blocking().expect("an event");
        panic!("{} on purpose", batch.events.len());
    });
    assert!(thread.join().is_err());
    assert_eq!(bus.subscribers().len(), 1);
    publish(&bus, Kind::Joined, 0, 1);
    let mut ledger = Ledger::default();
    ledger.note(other.next_blocking().expect("events").events);
    assert_eq!((ledger.had, ledger.missing), (2, 0));
}

/// A waker that calls a function.
struct Then<F>(F);

impl<F: Fn() + Send + Sync> Wake for Then<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Polls once, and expects no events.
fn wait_with(subscription: &mut Subscription, waker: &Waker) {
    assert!(pin!(subscription.next()).poll(&mut Context::from_waker(waker)).is_pending());
}

#[test]
fn a_waker_that_panics_or_hangs_delays_no_publisher() {
    let bus = Arc::new(bus(1 << 10));
    let (sender, woken) = mpsc::channel();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let mut subscriptions: Vec<_> = (0..3).map(|_| subscribe(&bus, "odd", &[Kind::Joined])).collect();
    let hanging = {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        Waker::from(Arc::new(Then(move || {
            sender.send("hangs").expect("the test listens");
            drop(gate.1.wait_while(gate.0.lock().expect("a lock"), |open| !*open));
        })))
    };
    let panicking = Waker::from(Arc::new(Then(|| panic!("on purpose"))));
    let sound = Waker::from(Arc::new(Then(move || sender.send("sound").expect("the test listens"))));
    for (subscription, waker) in subscriptions.iter_mut().zip([&panicking, &hanging, &sound]) {
        wait_with(subscription, waker);
    }
    let (done, published) = mpsc::channel();
    thread::spawn({
        let bus = Arc::clone(&bus);
        move || {
            publish(&bus, Kind::Joined, 0, 0);
            assert_eq!(woken.recv_timeout(PATIENCE), Ok("hangs"));
            // The ringer thread hangs now; publishing does not.
            (1..500).for_each(|n| publish(&bus, Kind::Joined, 0, n));
            done.send(woken).expect("the test listens");
        }
    });
    let woken = published.recv_timeout(PATIENCE).expect("publishing never waits");
    *gate.0.lock().expect("a lock") = true;
    gate.1.notify_all();
    assert_eq!(woken.recv_timeout(PATIENCE), Ok("sound"));
    for subscription in &mut subscriptions {
        let mut ledger = Ledger::default();
        while let Some(batch) = subscription.try_next() {
            ledger.note(batch.events);
        }
        assert_eq!((ledger.had, ledger.missing), (500, 0));
    }
}

/// A thread that parks takes every permit to go on, whoever gave it. So one for the ringer can be gone before the ringer parks.
#[test]
fn a_waker_that_parks_takes_no_wake_up_from_others() {
    let bus = bus(1 << 10);
    // The ringer has passed the first one when it comes to the second.
    let mut other = subscribe(&bus, "other", &[Kind::Entered]);
    let mut parks = subscribe(&bus, "parks", &[Kind::Joined]);
    let ((sender, parked), (told, woken)) = (mpsc::channel(), mpsc::channel());
    let parking = Waker::from(Arc::new(Then(move || {
        sender.send(thread::current()).expect("the test listens");
        thread::park_timeout(PATIENCE);
    })));
    let sound = Waker::from(Arc::new(Then(move || told.send(()).expect("the test listens"))));
    wait_with(&mut parks, &parking);
    publish(&bus, Kind::Joined, 0, 0);
    parked.recv_timeout(PATIENCE).expect("the ringer runs the waker");
    wait_with(&mut other, &sound);
    publish(&bus, Kind::Entered, 0, 0);
    woken.recv_timeout(PATIENCE).expect("the ringer goes on without another event");
}

#[test]
fn a_waiting_subscriber_is_woken_by_its_kinds_only() {
    let bus = bus(1 << 10);
    let woken = Arc::new(AtomicUsize::new(0));
    let (sender, told) = mpsc::channel();
    let waker = {
        let woken = Arc::clone(&woken);
        Waker::from(Arc::new(Then(move || {
            woken.fetch_add(1, Ordering::Relaxed);
            sender.send(()).expect("the test listens");
        })))
    };
    let (sender, turn) = mpsc::channel();
    let other_waker = Waker::from(Arc::new(Then(move || sender.send(()).expect("the test listens"))));
    let mut subscription = subscribe(&bus, "one", &[Kind::Joined]);
    let mut other = subscribe(&bus, "other", &[Kind::Entered]);
    for n in 0..50 {
        wait_with(&mut subscription, &waker);
        wait_with(&mut other, &other_waker);
        publish(&bus, Kind::Entered, 0, n);
        // The ringer wakes subscribers in order, so `subscription` would have been woken before `other`.
        turn.recv_timeout(PATIENCE).expect("it is woken");
        assert_eq!(woken.load(Ordering::Relaxed), usize::try_from(n).expect("small"));
        assert_eq!(other.try_next().expect("an event").events.len(), 1);
        publish(&bus, Kind::Joined, 0, n);
        told.recv_timeout(PATIENCE).expect("it is woken");
        assert_eq!(subscription.try_next().expect("an event").events.len(), 1);
    }
}

/// Two threads wait for each other's events. One missed wake-up would stop both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_missed() {
    let bus = Arc::new(bus(1 << 10));
    let mut ping = subscribe(&bus, "ping", &[Kind::Joined]);
    let mut pong = subscribe(&bus, "pong", &[Kind::Entered, Kind::Evicted]);
    let echo = {
        let bus = Arc::clone(&bus);
        thread::spawn(move || {
            for n in 0..300 {
                assert_eq!(ping.next_blocking().expect("the bus is there").events.len(), 1);
                publish(&bus, Kind::Entered, 0, n);
            }
        })
    };
    tokio::time::timeout(PATIENCE, async {
        for n in 0..300 {
            publish(&bus, Kind::Joined, 0, n);
            assert_eq!(pong.next().await.expect("the bus is there").events.len(), 1);
        }
    })
    .await
    .expect("a wake-up was missed");
    echo.join().expect("the echo");
}

#[test]
fn a_dropped_future_takes_no_events() {
    let bus = bus(1 << 4);
    let mut subscription = subscribe(&bus, "one", &[Kind::Joined]);
    wait_with(&mut subscription, Waker::noop());
    publish(&bus, Kind::Joined, 0, 0);
    let next = pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())).map(|batch| {
        let batch = batch.expect("the bus is there");
        batch.events.len()
    });
    assert_eq!(next, Poll::Ready(1));
}

#[test]
fn a_bus_that_ends_delivers_the_rest_and_wakes_all() {
    let bus = bus(1 << 4);
    let mut late = subscribe(&bus, "late", &[Kind::Joined]);
    let waiting = subscribe(&bus, "waiting", &[Kind::Entered]);
    let waiting = thread::spawn(move || all(waiting).0.had);
    publish(&bus, Kind::Joined, 0, 0);
    drop(bus);
    assert_eq!(waiting.join().expect("a subscriber"), 0);
    assert_eq!(late.next_blocking().expect("what is left").events.len(), 1);
    assert!(late.next_blocking().is_none());
}

#[test]
fn a_spill_keeps_events_while_its_subscriber_is_slow() {
    const COUNT: u64 = 10_000;
    let bus = bus(64);
    let mut spill = subscribe(&bus, "audit", &[Kind::Admitted]).spill(1 << 20).expect("a thread");
    for n in 0..COUNT {
        publish(&bus, Kind::Admitted, 0, n);
        // Nobody reads the spill. Its thread still takes the events.
        while n % 50 == 49 && figures(&bus, "audit").spilled <= n {
            thread::yield_now();
        }
    }
    let seen = figures(&bus, "audit");
    assert_eq!((seen.taken, seen.lag, seen.lost, seen.spilled), (COUNT, 0, 0, COUNT));
    drop(bus);
    let mut ledger = Ledger::default();
    while let Some(batch) = spill.next_blocking() {
        assert_eq!(batch.lost, 0);
        ledger.note(batch.events);
    }
    assert_eq!((ledger.had, ledger.missing), (COUNT, 0));
}

#[test]
fn a_full_spill_leaves_events_in_the_rings_and_counts_the_lost_ones() {
    let bus = bus(64);
    let mut spill = subscribe(&bus, "audit", &[Kind::Admitted]).spill(100).expect("a thread");
    let until = |is_so: &dyn Fn(Subscriber) -> bool| {
        while !is_so(figures(&bus, "audit")) {
            thread::yield_now();
        }
    };
    for n in 0..5 {
        (20 * n..20 * (n + 1)).for_each(|n| publish(&bus, Kind::Admitted, 0, n));
        until(&|seen| seen.spilled == 20 * (n + 1));
    }
    // The thread takes one more batch of any size, and then waits for room.
    publish(&bus, Kind::Admitted, 0, 100);
    until(&|seen| seen.taken == 101);
    (101..1_101).for_each(|n| publish(&bus, Kind::Admitted, 0, n));
    let seen = figures(&bus, "audit");
    assert_eq!((seen.taken, seen.spilled, seen.lag, seen.lost), (101, 100, 63, 937));
    drop(bus);
    let (mut ledger, mut lost) = (Ledger::default(), 0);
    while let Some(batch) = spill.next_blocking() {
        lost += batch.lost;
        ledger.note(batch.events);
    }
    assert_eq!((ledger.had, ledger.missing, lost), (164, 937, 937));
}

#[test]
fn dropping_a_spill_unsubscribes_it() {
    let bus = bus(64);
    let spill = subscribe(&bus, "audit", &[Kind::Admitted]).spill(1).expect("a thread");
    // The spill's thread waits for room or for events. It ends in both cases.
    (0..10).for_each(|n| publish(&bus, Kind::Admitted, 0, n));
    drop(spill);
    while !bus.subscribers().is_empty() {
        thread::yield_now();
    }
}

#[test]
fn a_thread_that_ends_leaves_its_rings_to_a_later_one() {
    let bus = bus(1 << 12);
    let mut subscription = subscribe(&bus, "one", &[Kind::Joined]);
    for n in 0..1_000 {
        thread::scope(|scope| {
            scope.spawn(|| publish(&bus, Kind::Joined, 0, n));
        });
    }
    let mut had: Vec<_> = Vec::new();
    while let Some(batch) = subscription.try_next() {
        had.extend(batch.events.iter().map(|event| mark(event).1));
    }
    had.sort_unstable();
    assert_eq!(had, (0..1_000).collect::<Vec<_>>());
    assert_eq!(bus.unheard(), 0);
}

#[test]
fn publishers_and_subscribers_are_limited() {
    let bus = bus(2);
    let all_there = Barrier::new(PUBLISHERS_MAX + 1);
    thread::scope(|scope| {
        for _ in 0..=PUBLISHERS_MAX {
            scope.spawn(|| {
                let enlisted = bus.enlist();
                publish(&bus, Kind::Joined, 0, 0);
                publish(&bus, Kind::Joined, 0, 1);
                all_there.wait();
                enlisted
            });
        }
    });
    assert_eq!(bus.published(Kind::Joined), 2 * PUBLISHERS_MAX as u64);
    assert_eq!(bus.unheard(), 2);

    let crowd: Vec<_> = (0..SUBSCRIBERS_MAX).map(|_| subscribe(&bus, "crowd", &[Kind::Joined])).collect();
    let one_more = || bus.subscribe("one more", Scope::Root, Kinds::of(&[Kind::Joined]));
    assert_eq!(one_more().err(), Some(SubscribeError::TooMany));
    drop(crowd);
    assert!(one_more().is_ok());
}
