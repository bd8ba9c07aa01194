//! The bus: its publishers, its subscribers, and the ringer thread that wakes them.
//!
//! Invariants: publishing never takes the locks of the lists of publishers and subscribers. Only threads that come or go,
//! the ringer, and requests for figures take them. Only the ringer runs a subscriber's waker, so that foreign code neither
//! slows a publisher down nor panics in it.

mod spill;
mod subscription;

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
    Kind, Kinds, Scope, ZoneNumber,
    bell::Bell,
    event::Packed,
    ring::Rings,
    slot::{EVENT_WORDS, SLOT_WORDS},
    zones::{ZoneNames, Zones},
};
pub use spill::Spill;
use subscription::Member;
pub use subscription::{Batch, Subscription};

/// The most threads that can publish. A thread that ends leaves its rings to a later one.
pub const PUBLISHERS_MAX: usize = 256;

/// The most subscribers at one time.
pub const SUBSCRIBERS_MAX: usize = 256;

/// The pause after the ringer has woken subscribers. It bounds both how long an event may wait and how often a publisher
/// makes a system call.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// Why a subscription is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The subscription asks for a kind above the subscriber's right.
    #[error("{} is for {} alone, and the subscriber is {}", kind.as_str(), kind.scope().as_str(), right.as_str())]
    Refused {
        /// The first kind above the right.
        kind: Kind,
        /// The subscriber's right.
        right: Scope,
    },
    /// The subscription asks for no kinds.
    #[error("a subscription needs at least one kind of event")]
    Nothing,
    /// There are [`SUBSCRIBERS_MAX`] subscribers already.
    #[error("there are {SUBSCRIBERS_MAX} subscribers already")]
    TooMany,
}

/// The figures of one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The name it subscribed under.
    pub name: Arc<str>,
    /// The highest scope that it may receive.
    pub right: Scope,
    /// The kinds that it receives.
    pub kinds: Kinds,
    /// Events that it took.
    pub taken: u64,
    /// Events that it can still take from the rings.
    pub lag: u64,
    /// Events that it lost, including those that it has not noticed yet.
    pub lost: u64,
    /// Events in its [`Spill`](crate::Spill).
    pub spilled: u64,
}

/// The figures of all subscribers of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OfName {
    /// Events that they lost, including subscribers that left.
    pub lost: u64,
    /// Events that they have not taken yet, or that are in their spills.
    pub waiting: u64,
}

/// The event bus. When it is dropped, its subscribers receive the remaining events and then end.
pub struct Bus {
    core: Arc<Core>,
}

/// State shared by the bus, its subscribers and the ringer.
pub(crate) struct Core {
    threads: ThreadLocal<Arc<Rings<SLOT_WORDS>>>,
    pub(crate) bell: Bell,
    ringer: Thread,
    /// The ringer has something to do. The permit of `unpark` alone does not say so: whatever the ringer parks in takes it.
    struck: AtomicBool,
    ring_len: Box<dyn Fn(Kind) -> usize + Send + Sync>,
    publishers: Mutex<Vec<Arc<Rings<SLOT_WORDS>>>>,
    /// The number of publishers.
    pub(crate) enlisted: AtomicUsize,
    unheard: AtomicU64,
    members: Mutex<Members>,
    closed: AtomicBool,
    zones: Arc<Zones>,
}

#[derive(Default)]
struct Members {
    here: Vec<Arc<Member>>,
    /// The losses of subscribers that left, by name.
    left: HashMap<Arc<str>, u64>,
}

/// Locks a mutex. A panic cannot leave its value half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bus {
    /// A bus with rings of [`Kind::ring_len`] events: 0.3 or 0.5 MB for each kind that a thread publishes.
    ///
    /// # Errors
    /// If the ringer thread cannot be started.
    pub fn new() -> io::Result<Self> {
        Self::with_rings(Kind::ring_len)
    }

    /// A bus with rings of `ring_len` events of 64 bytes each. Lengths are powers of two, at least 2.
    ///
    /// # Errors
    /// If the ringer thread cannot be started.
    ///
    /// # Panics
    /// If a length is not a power of two, or below 2.
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
            struck: AtomicBool::new(false),
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

    /// Publishes an event. Takes no lock, does not allocate and does not wait, except for a thread's first event of a kind; see the crate.
    #[inline]
    pub fn publish<E: Packed>(&self, event: E) {
        let Some(rings) = self.core.threads.get() else { return self.core.publish_first(event) };
        self.core.publish(rings, event);
    }

    /// Makes this thread a publisher now instead of at its first event. Returns whether the thread can publish: at most
    /// [`PUBLISHERS_MAX`] threads can.
    pub fn enlist(&self) -> bool {
        self.core.enlist().is_some()
    }

    /// Subscribes `name` to these kinds, from now on.
    ///
    /// # Errors
    /// A [`SubscribeError`]: a kind is above `right`, there are no kinds, or there are too many subscribers.
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

    /// The number that stands for this zone in events. Takes a lock, so ask once, when the zone comes into use.
    #[must_use]
    pub fn zone(&self, zone: &ZoneId) -> ZoneNumber {
        self.core.zones.number(zone)
    }

    /// The name of a zone; `None` for [`ZoneNumber::NONE`].
    #[must_use]
    pub fn zone_id(&self, zone: ZoneNumber) -> Option<ZoneId> {
        self.core.zones.name(zone)
    }

    /// The names of the bus's zones. They outlive the bus.
    #[must_use]
    pub fn names(&self) -> ZoneNames {
        ZoneNames(Arc::clone(&self.core.zones))
    }

    /// All subscribers, in the order in which they subscribed.
    #[must_use]
    pub fn subscribers(&self) -> Vec<Subscriber> {
        let members = lock(&self.core.members).here.clone();
        members.iter().map(|member| member.figures(&self.core)).collect()
    }

    /// The figures of all subscribers, by name, including those that left. Names are never forgotten, so there should be
    /// few.
    #[must_use]
    pub fn by_name(&self) -> HashMap<Arc<str>, OfName> {
        let members = lock(&self.core.members);
        let of_left = |(name, &lost): (&Arc<str>, &u64)| (Arc::clone(name), OfName { lost, waiting: 0 });
        let mut by_name: HashMap<_, _> = members.left.iter().map(of_left).collect();
        for Subscriber { name, lost, lag, spilled, .. } in
            members.here.iter().map(|one| one.figures(&self.core))
        {
            let of_name = by_name.entry(name).or_default();
            of_name.lost += lost;
            of_name.waiting += lag + spilled;
        }
        by_name
    }

    /// Events of one kind that all threads have published so far.
    #[must_use]
    pub fn published(&self, kind: Kind) -> u64 {
        lock(&self.core.publishers).iter().map(|rings| rings.ring(kind as usize).pushed()).sum()
    }

    /// Events that were not published, because more than [`PUBLISHERS_MAX`] threads tried.
    #[must_use]
    pub fn unheard(&self) -> u64 {
        self.core.unheard.load(Ordering::Relaxed)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.core.closed.store(true, Ordering::Release);
        self.core.strike();
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
            self.strike();
        }
    }

    fn strike(&self) {
        self.struck.store(true, Ordering::Release);
        self.ringer.unpark();
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
        // A thread beyond the limit must not take the lock at each event.
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

    /// The publishers after the first `known`.
    pub(crate) fn publishers_after(&self, known: usize) -> Vec<Arc<Rings<SLOT_WORDS>>> {
        lock(&self.publishers)[known..].to_vec()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn leave(&self, member: &Arc<Member>) {
        let mut members = lock(&self.members);
        members.here.retain(|other| !Arc::ptr_eq(other, member));
        let Subscriber { name, lost, .. } = member.figures(self);
        *members.left.entry(name).or_default() += lost;
    }

    /// The ringer thread.
    fn ring(&self) {
        while !self.is_closed() {
            while !self.struck.swap(false, Ordering::Acquire) {
                thread::park();
            }
            self.wake();
            // The ringer is not parked during this sleep, so that waking it costs no system call.
            thread::sleep(INTERVAL);
        }
        // The bus closes once. A subscriber that waits from now on finds it closed.
        self.wake();
    }

    fn wake(&self) {
        let members = lock(&self.members).here.clone();
        for waker in members.iter().filter_map(|member| member.waker_if_due(self)) {
            // A waker is the subscriber's code. If it panics, the others are still woken.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}
