//! Measures the cost of publishing events. The workload is that of a published benchmark of event buses: 4 threads
//! publish 250,000 events each, of 5 kinds in turn, and each kind has 4 subscribers, so 1 million events are
//! delivered 4 million times. In addition each subscriber checks every event; a missing, repeated or overtaking event
//! ends the program. The bus is compared with one channel of tokio's broadcast per kind, one crossbeam channel per
//! subscriber, and one ring of the disruptor crate per kind. All of them hold the events of a whole run and carry the
//! same values.
//!
//! It also measures the cost of one call of `publish`, and of an idle bus.
//!
//! `cargo run --profile bench -p weir-benches --example events`
#![expect(clippy::print_stdout, reason = "it prints what it found")]
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::{
    hint::black_box,
    sync::{Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

use disruptor::{BusySpinWithSpinLoopHint, Producer, Sleep, build_multi_producer};
use events::{
    Bus, Entered, Event, Evicted, Joined, Kind, Kinds, Limited, LimitedCall, Reloaded, Scope, Subscription,
    ViewShown, ZoneNumber,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{runtime::Runtime, sync::broadcast};

const PUBLISHERS: u32 = 4;
const EACH: u32 = 250_000;
const KINDS: u32 = 5;
const SUBSCRIBERS_A_KIND: u32 = 4;
const SUBSCRIBERS: u32 = KINDS * SUBSCRIBERS_A_KIND;
const DISPATCHES: u32 = PUBLISHERS * EACH * SUBSCRIBERS_A_KIND;
/// The number of events that one subscriber receives.
const DUE: u32 = DISPATCHES / SUBSCRIBERS;
/// A capacity for all events of a kind and a thread, and for all events of a kind where the threads share a ring.
const OWN_RING: usize = 1 << 16;
const SHARED_RING: usize = 1 << 18;
const ROUNDS: usize = 7;

/// The kinds of the workload.
const KIND: [Kind; KINDS as usize] =
    [Kind::ViewShown, Kind::Joined, Kind::Entered, Kind::Evicted, Kind::Limited];

/// The `n`th event of a kind from a publisher.
fn event(kind: u32, publisher: u32, n: u32) -> Event {
    let zone = ZoneNumber::NONE;
    match kind {
        0 => ViewShown { zone, epoch: publisher, at_ms: n.into() }.into(),
        1 => Joined { zone, epoch: publisher, first: n.into(), count: 1, entered: 0, at_ms: 0 }.into(),
        2 => {
            Entered { zone, waited_ms: publisher, told_s: 0, told_low_s: 0, told_high_s: 0, at_ms: n.into() }
                .into()
        }
        3 => Evicted { zone, count: publisher, at_ms: n.into() }.into(),
        _ => Limited { zone, call: LimitedCall::Join, count: publisher, retry_after_s: n }.into(),
    }
}

/// The same event in the form that is published.
#[inline]
fn publish(bus: &Bus, kind: u32, publisher: u32, n: u32) {
    let zone = ZoneNumber::NONE;
    match kind {
        0 => bus.publish(ViewShown { zone, epoch: publisher, at_ms: n.into() }),
        1 => bus.publish(Joined { zone, epoch: publisher, first: n.into(), count: 1, entered: 0, at_ms: 0 }),
        2 => bus.publish(Entered {
            zone,
            waited_ms: publisher,
            told_s: 0,
            told_low_s: 0,
            told_high_s: 0,
            at_ms: n.into(),
        }),
        3 => bus.publish(Evicted { zone, count: publisher, at_ms: n.into() }),
        _ => bus.publish(Limited { zone, call: LimitedCall::Join, count: publisher, retry_after_s: n }),
    }
}

/// The check of a subscriber: the events of each publisher arrive in order and once. It counts missing events.
#[derive(Default)]
struct Checked {
    next: [u64; PUBLISHERS as usize],
    had: u64,
    missing: u64,
}

impl Checked {
    fn note(&mut self, event: &Event) {
        let (publisher, n) = match *event {
            Event::ViewShown(event) => (event.epoch, event.at_ms),
            Event::Joined(event) => (event.epoch, event.first),
            Event::Entered(event) => (event.waited_ms, event.at_ms),
            Event::Evicted(event) => (event.count, event.at_ms),
            Event::Limited(event) => (event.count, event.retry_after_s.into()),
            _ => unreachable!("not of the workload"),
        };
        let next = &mut self.next[publisher as usize];
        assert!(n >= *next, "twice, or out of order");
        self.missing += n - *next;
        *next = n + 1;
        self.had += 1;
    }

    /// Whether the subscriber has everything. It reports missing events to the benchmark.
    fn is_complete(&self, done: &Done) -> bool {
        let complete = self.had + self.missing == DUE.into();
        if complete {
            done.send(self.missing).expect("the bench waits");
        }
        complete
    }
}

/// Where a subscriber reports its end and the number of events that it missed.
type Done = mpsc::Sender<u64>;

/// The measurements of one run.
struct Run {
    wall: Duration,
    /// CPU time of the publishing threads.
    publishing: Duration,
    /// CPU time of the program.
    cpu: Duration,
    /// Events that subscribers missed.
    missing: u64,
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("since the start");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("below a second"))
}

/// Publishes all events, each thread with its own `publish(kind, publisher, n)`, and waits until each subscriber
/// reports its end.
fn run<P>(publishers: impl Iterator<Item = P>, ready: impl Fn() + Sync, complete: &mpsc::Receiver<u64>) -> Run
where
    P: FnMut(u32, u32, u32) + Send,
{
    let start = Barrier::new(PUBLISHERS as usize + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PUBLISHERS)
            .zip(publishers)
            .map(|(publisher, mut publish)| {
                let (start, ready) = (&start, &ready);
                scope.spawn(move || {
                    ready();
                    start.wait();
                    let from = cpu(ClockId::ThreadCPUTime);
                    for n in 0..EACH / KINDS {
                        for kind in 0..KINDS {
                            publish(kind, publisher, n);
                        }
                    }
                    cpu(ClockId::ThreadCPUTime) - from
                })
            })
            .collect();
        // By then every thread that can sleep does.
        thread::sleep(Duration::from_millis(20));
        let (cpu_from, from) = (cpu(ClockId::ProcessCPUTime), Instant::now());
        start.wait();
        let missing = (0..SUBSCRIBERS).map(|_| complete.recv().expect("every subscriber gets through")).sum();
        let (wall, cpu) = (from.elapsed(), cpu(ClockId::ProcessCPUTime) - cpu_from);
        let publishing = threads.into_iter().map(|thread| thread.join().expect("a publisher")).sum();
        Run { wall, publishing, cpu, missing }
    })
}

/// The bus with rings that hold a whole run: 84 MB.
fn large_bus() -> Bus {
    Bus::with_rings(|kind| if KIND.contains(&kind) { OWN_RING } else { 2 }).expect("a bus")
}

fn subscribe(bus: &Bus) -> impl Iterator<Item = Subscription> {
    (0..SUBSCRIBERS).map(|n| {
        let kinds = Kinds::of(&[KIND[(n % KINDS) as usize]]);
        bus.subscribe("bench", Scope::Private, kinds).expect("its right")
    })
}

fn publish_all(bus: &Bus, complete: &mpsc::Receiver<u64>) -> Run {
    // Each ring is created when a server thread starts, which is not measured.
    let ready = || assert!(bus.enlist());
    run((0..PUBLISHERS).map(|_| |kind, publisher, n| publish(bus, kind, publisher, n)), ready, complete)
}

/// The bus with one thread per subscriber.
fn on_threads() -> Run {
    let bus = large_bus();
    let (done, complete) = mpsc::channel();
    for mut subscription in subscribe(&bus) {
        let done = done.clone();
        thread::spawn(move || {
            let (mut checked, mut lost) = (Checked::default(), 0);
            while !checked.is_complete(&done) {
                let batch = subscription.next_blocking().expect("the bus is there");
                lost += batch.lost;
                batch.events.iter().for_each(|event| checked.note(event));
            }
            assert_eq!(checked.missing, lost);
        });
    }
    publish_all(&bus, &complete)
}

/// The bus with one task per subscriber.
fn on_tokio() -> Run {
    on_tokio_with(&large_bus())
}

fn on_tokio_with(bus: &Bus) -> Run {
    let runtime = runtime();
    let (done, complete) = mpsc::channel();
    for mut subscription in subscribe(bus) {
        let done = done.clone();
        runtime.spawn(async move {
            let (mut checked, mut lost) = (Checked::default(), 0);
            while !checked.is_complete(&done) {
                let batch = subscription.next().await.expect("the bus is there");
                lost += batch.lost;
                batch.events.iter().for_each(|event| checked.note(event));
            }
            assert_eq!(checked.missing, lost);
        });
    }
    publish_all(bus, &complete)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

fn tokio_broadcast() -> Run {
    let runtime = runtime();
    let (done, complete) = mpsc::channel();
    let senders: Vec<_> = (0..KINDS).map(|_| broadcast::channel::<Event>(SHARED_RING).0).collect();
    for n in 0..SUBSCRIBERS {
        let (mut receiver, done) = (senders[(n % KINDS) as usize].subscribe(), done.clone());
        runtime.spawn(async move {
            let mut checked = Checked::default();
            while !checked.is_complete(&done) {
                checked.note(&receiver.recv().await.expect("nothing lags"));
            }
        });
    }
    let publisher = |_| {
        let senders = senders.clone();
        move |kind, publisher, n| {
            senders[kind as usize].send(event(kind, publisher, n)).expect("there are receivers");
        }
    };
    run((0..PUBLISHERS).map(publisher), || (), &complete)
}

fn crossbeam_channels() -> Run {
    let (done, complete) = mpsc::channel();
    let mut senders: Vec<Vec<crossbeam_channel::Sender<Event>>> = vec![Vec::new(); KINDS as usize];
    for n in 0..SUBSCRIBERS {
        let (sender, receiver) = crossbeam_channel::bounded(SHARED_RING);
        senders[(n % KINDS) as usize].push(sender);
        let done = done.clone();
        thread::spawn(move || {
            let mut checked = Checked::default();
            while !checked.is_complete(&done) {
                checked.note(&receiver.recv().expect("the senders are there"));
            }
        });
    }
    let publisher = |_| {
        let senders = senders.clone();
        move |kind, publisher, n| {
            let event = event(kind, publisher, n);
            for sender in &senders[kind as usize] {
                sender.send(event).expect("there are receivers");
            }
        }
    };
    run((0..PUBLISHERS).map(publisher), || (), &complete)
}

/// A ring of the disruptor crate with four handlers. Its wait strategies have no common trait.
macro_rules! disruptor_ring {
    ($wait:expr, $handler:expr) => {
        build_multi_producer(SHARED_RING, || Reloaded { ok: true }.into(), $wait)
            .handle_events_with($handler())
            .handle_events_with($handler())
            .handle_events_with($handler())
            .handle_events_with($handler())
            .build()
    };
}

fn disruptor_spinning() -> Run {
    let (done, complete) = mpsc::channel();
    let ring = |_| disruptor_ring!(BusySpinWithSpinLoopHint, || handler(&done));
    disruptor((0..KINDS).map(ring).collect(), &complete)
}

fn disruptor_sleeping() -> Run {
    let (done, complete) = mpsc::channel();
    let ring = |_| disruptor_ring!(Sleep::new(Duration::from_millis(1)), || handler(&done));
    disruptor((0..KINDS).map(ring).collect(), &complete)
}

fn handler(done: &Done) -> impl FnMut(&Event, i64, bool) + Send + use<> {
    let (done, mut checked) = (done.clone(), Checked::default());
    move |event, _, _| {
        checked.note(event);
        checked.is_complete(&done);
    }
}

fn disruptor<P: Producer<Event> + Clone + Send>(producers: Vec<P>, complete: &mpsc::Receiver<u64>) -> Run {
    let publisher = |_| {
        let mut producers = producers.clone();
        move |kind, publisher, n| {
            let producer: &mut P = &mut producers[kind as usize];
            producer.publish(|slot| *slot = event(kind, publisher, n));
        }
    };
    run((0..PUBLISHERS).map(publisher), || (), complete)
}

type Contender = (&'static str, usize, fn() -> Run);

fn workload() {
    let contenders: [Contender; 6] = [
        ("the bus, a thread a subscriber", ROUNDS, on_threads),
        ("the bus, a tokio task a subscriber", ROUNDS, on_tokio),
        ("tokio broadcast, a task a subscriber", ROUNDS, tokio_broadcast),
        ("crossbeam channels, one thread per subscriber", ROUNDS, crossbeam_channels),
        ("disruptor, sleeping 1 ms", ROUNDS, disruptor_sleeping),
        ("disruptor, spinning", 1, disruptor_spinning),
    ];
    let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for ((_, rounds, contender), runs) in contenders.iter().zip(&mut runs) {
            if round < *rounds {
                runs.push(contender());
            }
        }
    }
    println!("\n{DISPATCHES} dispatches, all received and checked; medians of {ROUNDS} (spinning: 1)\n");
    println!("| | wall, ms | million dispatches/s | publishing, ns per event | CPU time, ms |");
    println!("|---|---|---|---|---|");
    for ((name, _, _), runs) in contenders.iter().zip(runs) {
        assert!(runs.iter().all(|run| run.missing == 0), "everybody has everything");
        let median = |of: fn(&Run) -> Duration| {
            let mut of: Vec<_> = runs.iter().map(of).collect();
            of.sort_unstable();
            of[of.len() / 2].as_secs_f64()
        };
        let (wall, publishing, cpu) =
            (median(|run| run.wall), median(|run| run.publishing), median(|run| run.cpu));
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} |",
            wall * 1e3,
            f64::from(DISPATCHES) / wall / 1e6,
            publishing / f64::from(PUBLISHERS * EACH) * 1e9,
            cpu * 1e3,
        );
    }
}

/// The same workload with rings of the default size, which are not made for a million events within milliseconds.
/// Lost events are counted.
fn default_rings() {
    let run = on_tokio_with(&Bus::new().expect("a bus"));
    println!(
        "\nrings of the default size: {} of {DISPATCHES} lost, each counted; {:.1} ns per publish",
        run.missing,
        run.publishing.as_secs_f64() * 1e9 / f64::from(PUBLISHERS * EACH)
    );
}

/// The CPU time that one thread spends on publishing an event, for different subscribers.
fn publishing() {
    const EVENTS: u32 = 5_000_000;
    println!("\n| one thread publishes {EVENTS} events, in rings of the default size | ns per event |");
    println!("|---|---|");
    for (listening, subscribers) in
        [("nobody listens", 0), ("one subscriber", 1), ("20 subscribers, 4 of them to this kind", 20)]
    {
        let bus = Bus::new().expect("a bus");
        let threads: Vec<_> = subscribe(&bus)
            .skip(1)
            .chain(subscribe(&bus).take(1))
            .take(subscribers)
            .map(|mut subscription| {
                thread::spawn(move || {
                    let mut told = 0;
                    while let Some(batch) = subscription.next_blocking() {
                        told += batch.events.len() as u64 + batch.lost;
                    }
                    told
                })
            })
            .collect();
        bus.enlist();
        thread::sleep(Duration::from_millis(20));
        let from = cpu(ClockId::ThreadCPUTime);
        for n in 0..EVENTS {
            publish(black_box(&bus), 1, 0, n);
        }
        let took = cpu(ClockId::ThreadCPUTime) - from;
        drop(bus);
        for thread in threads {
            let told = thread.join().expect("a subscriber");
            assert!([0, EVENTS.into()].contains(&told), "had or lost, each is counted");
        }
        println!("| {listening} | {:.1} |", took.as_secs_f64() * 1e9 / f64::from(EVENTS));
    }
}

/// The CPU time of idle subscribers.
fn idle() {
    const WHILE: Duration = Duration::from_secs(5);
    let told = |name: &str| {
        thread::sleep(Duration::from_millis(100));
        let from = cpu(ClockId::ProcessCPUTime);
        thread::sleep(WHILE);
        let took = cpu(ClockId::ProcessCPUTime) - from;
        println!("idle for {WHILE:?}, {SUBSCRIBERS} subscribers: {took:?} of CPU time by {name}");
    };
    println!();
    let (bus, runtime) = (Bus::new().expect("a bus"), runtime());
    for (n, mut subscription) in subscribe(&bus).enumerate() {
        if n % 2 == 0 {
            thread::spawn(move || while subscription.next_blocking().is_some() {});
        } else {
            runtime.spawn(async move { while subscription.next().await.is_some() {} });
        }
    }
    publish(&bus, 0, 0, 0);
    told("the bus");
    drop(bus);
    let (done, _complete) = mpsc::channel();
    let ring = |_| disruptor_ring!(Sleep::new(Duration::from_millis(1)), || handler(&done));
    let _producers: Vec<_> = (0..KINDS).map(ring).collect();
    told("disruptor, sleeping 1 ms");
}

fn main() {
    workload();
    default_rings();
    publishing();
    idle();
}
