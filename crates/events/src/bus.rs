//! The bus itself: who publishes, who subscribes, and the thread that wakes those who wait.
//!
//! Invariants: the lists of publishers and subscribers are locked by those who come and go, by the ringer and by who asks
//! for figures, never by who publishes; a subscriber's waker is run by the ringer alone, so that foreign code neither
//! slows a publisher down nor panics there.

use std::{
    collections::HashMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use admission::ZoneId;
use thread_local::ThreadLocal;

use crate::{
    Kind, Kinds, Scope, Subscription, Zone,
    bell::Bell,
    ring::Rings,
    slot::{EVENT_WORDS, Packed, SLOT_WORDS},
    subscription::Member,
    zones::{ZoneNames, Zones},
};

/// Threads that can publish. Threads that ended give their rings to later ones.
pub const PUBLISHERS_MAX: usize = 256;

/// Subscribers at one time.
pub const SUBSCRIBERS_MAX: usize = 256;

/// For how long after waking subscribers the bus wakes none: so long an event may lie, and so seldom does a
/// publisher make a system call.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// Why there is no subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// It asks for more than the subscriber's right allows.
    #[error("{} is for {} alone, and the subscriber is {}", kind.as_str(), kind.scope().as_str(), right.as_str())]
    Refused {
        /// The first such kind.
        kind: Kind,
        /// The subscriber's right.
        right: Scope,
    },
    /// It asks for nothing.
    #[error("a subscription needs at least one kind of event")]
    Nothing,
    /// There are [`SUBSCRIBERS_MAX`] subscribers.
    #[error("there are {SUBSCRIBERS_MAX} subscribers already")]
    TooMany,
}

/// A subscriber, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// What it calls itself.
    pub name: Arc<str>,
    /// What it may hear of.
    pub right: Scope,
    /// What it asked for.
    pub kinds: Kinds,
    /// Events it took.
    pub taken: u64,
    /// Events that are there for it, and that it has not taken.
    pub lag: u64,
    /// Events it lost, those included that it has not come to miss yet.
    pub lost: u64,
    /// Events that lie in its [`Spill`](crate::Spill).
    pub spilled: u64,
}

/// All subscribers of one name, as an operator sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OfName {
    /// Events that they lost, ever.
    pub lost: u64,
    /// Events that they have not taken, or not dealt with.
    pub waiting: u64,
}

/// The event bus. Dropping it lets its subscribers have what is left, and then ends them.
pub struct Bus {
    core: Arc<Core>,
}

/// What the bus, its subscribers and the ringer share.
pub(crate) struct Core {
    threads: ThreadLocal<Arc<Rings<SLOT_WORDS>>>,
    pub(crate) bell: Bell,
    ringer: Thread,
    ring_len: Box<dyn Fn(Kind) -> usize + Send + Sync>,
    publishers: Mutex<Vec<Arc<Rings<SLOT_WORDS>>>>,
    /// How many publishers there are.
    pub(crate) enlisted: AtomicUsize,
    unheard: AtomicU64,
    members: Mutex<Members>,
    closed: AtomicBool,
    zones: Arc<Zones>,
}

#[derive(Default)]
struct Members {
    here: Vec<Arc<Member>>,
    /// What those who left had lost, by name.
    left: HashMap<Arc<str>, u64>,
}

/// A lock that no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bus {
    /// A bus with rings as long as [`Kind::ring_len`] says: 1.9 MB for each thread that publishes.
    ///
    /// # Errors
    /// If no thread can be started; the bus has one, which wakes subscribers.
    pub fn new() -> io::Result<Self> {
        Self::with_rings(Kind::ring_len)
    }

    /// A bus with rings as long as `ring_len` says: powers of two from 2 on, in events of 64 bytes.
    ///
    /// # Errors
    /// If no thread can be started; the bus has one, which wakes subscribers.
    ///
    /// # Panics
    /// If a length is no power of two from 2 on.
    pub fn with_rings(ring_len: impl Fn(Kind) -> usize + Send + Sync + 'static) -> io::Result<Self> {
        for &kind in Kind::ALL {
            let len = ring_len(kind);
            assert!(len.is_power_of_two() && len >= 2, "the ring of {} is {len} long", kind.as_str());
        }
        let (give, take) = std::sync::mpsc::sync_channel::<Arc<Core>>(1);
        let ringer = thread::Builder::new().name("events".to_owned()).spawn(move || {
            if let Ok(core) = take.recv() {
                core.ring();
            }
        })?;
        let core = Arc::new(Core {
            threads: ThreadLocal::new(),
            bell: Bell::new(),
            ringer: ringer.thread().clone(),
            ring_len: Box::new(ring_len),
            publishers: Mutex::default(),
            enlisted: AtomicUsize::new(0),
            unheard: AtomicU64::new(0),
            members: Mutex::default(),
            closed: AtomicBool::new(false),
            zones: Arc::default(),
        });
        give.send(Arc::clone(&core)).expect("the ringer waits for it");
        Ok(Self { core })
    }

    /// Tells what happened. No lock, no allocation, no waiting; see the crate for a thread's first event.
    #[inline]
    pub fn publish<E: Packed>(&self, event: E) {
        let Some(rings) = self.core.threads.get() else { return self.core.publish_first(event) };
        self.core.publish(rings, event);
    }

    /// Makes this thread's rings, so that its first event need not. Tells whether the thread can publish: there are at
    /// most [`PUBLISHERS_MAX`] that do.
    pub fn enlist(&self) -> bool {
        self.core.enlist().is_some()
    }

    /// Has `name` told of these kinds of events, from now on, if `right` allows all of them.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn subscribe(&self, name: &str, right: Scope, kinds: Kinds) -> Result<Subscription, SubscribeError> {
        if let Some(kind) = kinds.iter().find(|kind| kind.scope() > right) {
            return Err(SubscribeError::Refused { kind, right });
        }
        if kinds == Kinds::default() {
            return Err(SubscribeError::Nothing);
        }
        let mut members = lock(&self.core.members);
        if members.here.len() == SUBSCRIBERS_MAX {
            return Err(SubscribeError::TooMany);
        }
        let member = Arc::new(Member::new(name.into(), right, kinds, &lock(&self.core.publishers)));
        members.here.push(Arc::clone(&member));
        drop(members);
        Ok(Subscription::new(Arc::clone(&self.core), member))
    }

    /// The number by which events name this zone. Takes a lock: to be asked for when the zone is taken into use.
    #[must_use]
    pub fn zone(&self, zone: &ZoneId) -> Zone {
        self.core.zones.number(zone)
    }

    /// The name of a zone; none for [`Zone::NONE`].
    #[must_use]
    pub fn zone_id(&self, zone: Zone) -> Option<ZoneId> {
        self.core.zones.name(zone)
    }

    /// The names of its zones, also for after the bus.
    #[must_use]
    pub fn names(&self) -> ZoneNames {
        ZoneNames(Arc::clone(&self.core.zones))
    }

    /// All subscribers, in the order in which they came.
    #[must_use]
    pub fn subscribers(&self) -> Vec<Subscriber> {
        let members = lock(&self.core.members).here.clone();
        members.iter().map(|member| member.show(&self.core)).collect()
    }

    /// All that subscribers of a name ever lost, those that left included, and what those that are here have yet to take
    /// or deal with; by name. A name is remembered for good: there should be few of them.
    #[must_use]
    pub fn by_name(&self) -> HashMap<Arc<str>, OfName> {
        let members = lock(&self.core.members);
        let of_left = |(name, &lost): (&Arc<str>, &u64)| (Arc::clone(name), OfName { lost, waiting: 0 });
        let mut by_name: HashMap<_, _> = members.left.iter().map(of_left).collect();
        for Subscriber { name, lost, lag, spilled, .. } in members.here.iter().map(|one| one.show(&self.core))
        {
            let of_name = by_name.entry(name).or_default();
            of_name.lost += lost;
            of_name.waiting += lag + spilled;
        }
        by_name
    }

    /// Events published so far, of one kind, by all threads.
    #[must_use]
    pub fn published(&self, kind: Kind) -> u64 {
        lock(&self.core.publishers).iter().map(|rings| rings.ring(kind as usize).pushed()).sum()
    }

    /// Events that nobody can hear of, because more than [`PUBLISHERS_MAX`] threads published.
    #[must_use]
    pub fn unheard(&self) -> u64 {
        self.core.unheard.load(Ordering::Relaxed)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.core.closed.store(true, Ordering::Release);
        self.core.ringer.unpark();
    }
}

impl Core {
    #[inline]
    fn publish<E: Packed>(&self, rings: &Rings<SLOT_WORDS>, event: E) {
        let mut words = [0; EVENT_WORDS];
        event.pack(&mut words);
        let [a, b, c, d, e, f, g] = words;
        rings.publish(E::KIND as usize, [0, a, b, c, d, e, f, g]);
        if self.bell.strike(E::KIND.bit()) {
            self.ringer.unpark();
        }
    }

    #[cold]
    fn publish_first<E: Packed>(&self, event: E) {
        match self.enlist() {
            Some(rings) => self.publish(rings, event),
            None => {
                self.unheard.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn enlist(&self) -> Option<&Rings<SLOT_WORDS>> {
        // Who comes too late does not wait at the lock with each event.
        if self.threads.get().is_none() && self.enlisted.load(Ordering::Acquire) == PUBLISHERS_MAX {
            return None;
        }
        let made = self.threads.get_or_try(|| {
            let mut publishers = lock(&self.publishers);
            if publishers.len() == PUBLISHERS_MAX {
                return Err(());
            }
            let rings = Arc::new(Rings::new(Kind::ALL.iter().map(|&kind| (self.ring_len)(kind))));
            publishers.push(Arc::clone(&rings));
            self.enlisted.store(publishers.len(), Ordering::SeqCst);
            Ok(rings)
        });
        made.ok().map(Arc::as_ref)
    }

    /// The publishers beyond the first `known`.
    pub(crate) fn publishers_after(&self, known: usize) -> Vec<Arc<Rings<SLOT_WORDS>>> {
        lock(&self.publishers)[known..].to_vec()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn leave(&self, member: &Arc<Member>) {
        let mut members = lock(&self.members);
        members.here.retain(|other| !Arc::ptr_eq(other, member));
        let Subscriber { name, lost, .. } = member.show(self);
        *members.left.entry(name).or_default() += lost;
    }

    /// What the bus's own thread does.
    fn ring(&self) {
        while !self.is_closed() {
            thread::park();
            self.wake();
            // Strikes go to a thread that is not parked meanwhile, and so cost no system call.
            thread::sleep(INTERVAL);
        }
        // Nobody is left who could close a second time; who waits from now on finds the bus closed.
        self.wake();
    }

    fn wake(&self) {
        let members = lock(&self.members).here.clone();
        for waker in members.iter().filter_map(|member| member.ready(self)) {
            // It is the subscriber's code; whatever it does, the others are woken.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}
