//! A subscriber's side of the bus: its cursors in every publisher's rings, its batches, and its sleep.
//!
//! Invariants: a waiting subscriber has armed the bell with its kinds and found no event after that, or the ringer has
//! taken its waker. Its state is locked by itself while it copies, by the ringer, and by requests for figures; each takes
//! microseconds. It is never locked while an event is handled.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use super::{Core, Subscriber, lock};
use crate::{
    Event, Kind, Kinds, Scope,
    ring::{Copied, Rings},
    slot::SLOT_WORDS,
};

/// The most events of a batch.
pub(crate) const BATCH_MAX: usize = 256;

/// The events copied from each ring at a time if several rings must be put in order.
const COPIED_MAX: usize = 64;

/// A subscriber as the bus knows it.
pub(crate) struct Member {
    name: Arc<str>,
    right: Scope,
    kinds: Box<[Kind]>,
    set: Kinds,
    state: Mutex<State>,
}

struct State {
    /// One reader per publisher, in the order of the bus's list.
    readers: Vec<Reader>,
    /// The index of the reader that is read first next time.
    turn: usize,
    waker: Option<Waker>,
    ended: bool,
    taken: u64,
    lost: u64,
    spilled: u64,
    /// One buffer per kind; empty if there is only one kind.
    copied: Box<[Copied<SLOT_WORDS, COPIED_MAX>]>,
}

/// The cursors in one publisher's rings.
struct Reader {
    rings: Arc<Rings<SLOT_WORDS>>,
    /// The next event of each kind, in the order of the subscription's kinds.
    cursors: Box<[u64]>,
}

impl Member {
    pub(crate) fn new(
        name: Arc<str>,
        right: Scope,
        set: Kinds,
        publishers: &[Arc<Rings<SLOT_WORDS>>],
    ) -> Self {
        let kinds: Box<[Kind]> = set.iter().collect();
        let reader = |rings: &Arc<Rings<SLOT_WORDS>>| Reader {
            rings: Arc::clone(rings),
            cursors: kinds.iter().map(|&kind| rings.ring(kind as usize).pushed()).collect(),
        };
        let state = State {
            readers: publishers.iter().map(reader).collect(),
            turn: 0,
            waker: None,
            ended: false,
            taken: 0,
            lost: 0,
            spilled: 0,
            copied: kinds.iter().filter(|_| kinds.len() > 1).map(|_| Copied::default()).collect(),
        };
        Self { name, right, set, state: Mutex::new(state), kinds }
    }

    /// Takes the available events, up to a batch. Returns how many were lost before them.
    fn take(&self, core: &Core, into: &mut Vec<Event>) -> u64 {
        let state = &mut *lock(&self.state);
        self.take_from(state, core, into)
    }

    fn take_from(&self, state: &mut State, core: &Core, into: &mut Vec<Event>) -> u64 {
        self.add_new_publishers(state, core);
        let (readers, before) = (state.readers.len(), into.len());
        let mut lost = 0;
        for n in 0..readers {
            let reader = &mut state.readers[(state.turn + n) % readers];
            lost += reader.take(&self.kinds, &mut state.copied, into);
            if into.len() >= BATCH_MAX {
                break;
            }
        }
        state.turn = state.turn.wrapping_add(1) % readers.max(1);
        state.taken += (into.len() - before) as u64;
        state.lost += lost;
        lost
    }

    /// Adds a reader for each publisher that came since the last call.
    fn add_new_publishers(&self, state: &mut State, core: &Core) {
        let known = state.readers.len();
        if core.enlisted.load(Ordering::SeqCst) > known {
            let reader = |rings| Reader { rings, cursors: vec![0; self.kinds.len()].into() };
            state.readers.extend(core.publishers_after(known).into_iter().map(reader));
        }
    }

    /// Takes the available events. If there are none, registers `waker`.
    fn take_or_wait(&self, core: &Core, into: &mut Vec<Event>, waker: &Waker) -> Poll<Option<u64>> {
        let state = &mut *lock(&self.state);
        state.waker = None;
        let mut armed = false;
        loop {
            // Read this before taking: if the bus is closed, one more `take_from` returns everything published before.
            let closed = core.is_closed() || state.ended;
            let lost = self.take_from(state, core, into);
            if !into.is_empty() || lost > 0 {
                state.waker = None;
                return Poll::Ready(Some(lost));
            }
            if closed {
                return Poll::Ready(None);
            }
            if !armed {
                core.bell.arm(self.set.bits());
                armed = true;
                continue;
            }
            // The ringer's last act is to wake all waiting subscribers. One that waits later finds the bus closed.
            state.waker = Some(waker.clone());
            if !core.is_closed() {
                return Poll::Pending;
            }
        }
    }

    /// Takes the waker if the subscriber waits and should wake up. Otherwise makes sure that the bell is armed.
    pub(crate) fn waker_if_due(&self, core: &Core) -> Option<Waker> {
        let state = &mut *lock(&self.state);
        state.waker.as_ref()?;
        self.add_new_publishers(state, core);
        let news = |state: &State| state.readers.iter().any(|reader| reader.has_news(&self.kinds));
        if !(core.is_closed() || state.ended || news(state)) {
            core.bell.arm(self.set.bits());
            self.add_new_publishers(state, core);
            if !news(state) {
                return None;
            }
        }
        state.waker.take()
    }

    /// Ends the subscription: it returns the available events, and then `None`.
    pub(crate) fn end(&self) {
        let waker = {
            let mut state = lock(&self.state);
            state.ended = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn set_spilled(&self, spilled: u64) {
        lock(&self.state).spilled = spilled;
    }

    pub(crate) fn figures(&self, core: &Core) -> Subscriber {
        let state = &mut *lock(&self.state);
        self.add_new_publishers(state, core);
        let (mut lag, mut lost) = (0, state.lost);
        for reader in &state.readers {
            for (&kind, &cursor) in self.kinds.iter().zip(&reader.cursors) {
                let ring = reader.rings.ring(kind as usize);
                let pushed = ring.pushed();
                let gone = ring.gone(cursor, pushed);
                lost += gone;
                lag += pushed - cursor - gone;
            }
        }
        let (name, right, kinds) = (Arc::clone(&self.name), self.right, self.set);
        Subscriber { name, right, kinds, taken: state.taken, lag, lost, spilled: state.spilled }
    }
}

impl Reader {
    fn has_news(&self, kinds: &[Kind]) -> bool {
        // This load makes everything visible that was published before the bell was armed, including the rings.
        let _ = self.rings.published();
        kinds
            .iter()
            .zip(&self.cursors)
            .any(|(&kind, &cursor)| self.rings.ring(kind as usize).pushed() > cursor)
    }

    /// Takes this publisher's events in its order, until there are no more or the batch is full.
    fn take(
        &mut self,
        kinds: &[Kind],
        copied: &mut [Copied<SLOT_WORDS, COPIED_MAX>],
        into: &mut Vec<Event>,
    ) -> u64 {
        if let ([kind], [cursor]) = (kinds, &mut *self.cursors) {
            return take_one(&self.rings, *kind, cursor, into);
        }
        let mut lost = 0;
        loop {
            let before = into.len();
            let rings = kinds.iter().map(|&kind| kind as usize);
            lost += self.rings.take_in_order(rings, &mut self.cursors, copied, |which, event| {
                Event::unpack(kinds[which], std::iter::once(event), into);
            });
            if into.len() == before || into.len() >= BATCH_MAX {
                return lost;
            }
        }
    }
}

/// Takes events of a single kind. They are in order already.
fn take_one(rings: &Rings<SLOT_WORDS>, kind: Kind, cursor: &mut u64, into: &mut Vec<Event>) -> u64 {
    // This load makes everything visible that was published before the bell was armed, including the ring.
    let _ = rings.published();
    let ring = rings.ring(kind as usize);
    let before = into.len();
    let range = ring.readable(*cursor, BATCH_MAX.saturating_sub(before));
    Event::unpack(kind, (range.first..range.end).map(|event| ring.slot(event)), into);
    let overwritten = ring.overwritten(range);
    into.drain(before..before + overwritten);
    let lost = range.first - *cursor + overwritten as u64;
    *cursor = range.end;
    lost
}

/// Some events, as a subscriber receives them.
#[derive(Debug)]
pub struct Batch<'a> {
    /// At most a few hundred events. Those of one thread are in the order in which it published them.
    pub events: &'a [Event],
    /// How many events were lost since the last batch, before these events or between them.
    pub lost: u64,
}

/// A subscriber's side of the bus. Dropping it unsubscribes.
pub struct Subscription {
    core: Arc<Core>,
    member: Arc<Member>,
    batch: Vec<Event>,
}

impl Subscription {
    pub(crate) fn new(core: Arc<Core>, member: Arc<Member>) -> Self {
        let batch = Vec::with_capacity(BATCH_MAX + COPIED_MAX * member.kinds.len());
        Self { core, member, batch }
    }

    /// Waits for events and returns them. `None` after the bus is gone and all events were taken. Dropping the future
    /// takes no events.
    pub async fn next(&mut self) -> Option<Batch<'_>> {
        let lost = std::future::poll_fn(|context| self.poll(context)).await?;
        Some(Batch { events: &self.batch, lost })
    }

    /// Like [`Subscription::next`], but blocks the thread.
    pub fn next_blocking(&mut self) -> Option<Batch<'_>> {
        let waker = unparker();
        let mut context = Context::from_waker(&waker);
        loop {
            match self.poll(&mut context) {
                Poll::Ready(lost) => return lost.map(|lost| Batch { events: &self.batch, lost }),
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Returns the events since the last batch, if there are any now. Does not wait.
    pub fn try_next(&mut self) -> Option<Batch<'_>> {
        self.batch.clear();
        let lost = self.member.take(&self.core, &mut self.batch);
        (!self.batch.is_empty() || lost > 0).then_some(Batch { events: &self.batch, lost })
    }

    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<u64>> {
        self.batch.clear();
        self.member.take_or_wait(&self.core, &mut self.batch, context.waker())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.core.leave(&self.member);
    }
}

struct Unparker(Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static UNPARKER: Waker = Waker::from(Arc::new(Unparker(thread::current())));
}

/// A waker that unparks this thread.
pub(crate) fn unparker() -> Waker {
    UNPARKER.with(Waker::clone)
}
