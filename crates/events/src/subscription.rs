//! A subscriber's side: its place in every publisher's rings, its batches, its sleep.
//!
//! Invariants: a subscriber that waits has armed the bell with its kinds and found nothing after that, or has its waker
//! taken by the ringer; its state is locked by itself while it copies, by the ringer and by who asks for figures, each
//! for microseconds, and never while an event is handled.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crate::{
    Event, Kind, Kinds, Scope, Spill,
    bus::{Core, Subscriber, lock},
    ring::{Copied, Rings},
    slot::SLOT_WORDS,
};

/// Events of a batch at most.
pub(crate) const BATCH_MAX: usize = 256;

/// Events copied from each ring at a time, where those of several rings are to be put in order.
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
    /// A place in each publisher's rings, in the order of the bus's list.
    seats: Vec<Seat>,
    /// Whose turn it is to be read first.
    turn: usize,
    waker: Option<Waker>,
    ended: bool,
    taken: u64,
    lost: u64,
    spilled: u64,
    /// A stretch for each kind, of several.
    copied: Box<[Copied<SLOT_WORDS, COPIED_MAX>]>,
}

/// A place in one publisher's rings.
struct Seat {
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
        let seat = |rings: &Arc<Rings<SLOT_WORDS>>| Seat {
            rings: Arc::clone(rings),
            cursors: kinds.iter().map(|&kind| rings.ring(kind as usize).pushed()).collect(),
        };
        let state = State {
            seats: publishers.iter().map(seat).collect(),
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

    /// Takes what is there, up to a batch. Gives how many were lost before.
    fn take(&self, core: &Core, into: &mut Vec<Event>) -> u64 {
        let state = &mut *lock(&self.state);
        self.take_from(state, core, into)
    }

    fn take_from(&self, state: &mut State, core: &Core, into: &mut Vec<Event>) -> u64 {
        self.meet(state, core);
        let (seats, before) = (state.seats.len(), into.len());
        let mut lost = 0;
        for place in 0..seats {
            let seat = &mut state.seats[(state.turn + place) % seats];
            lost += seat.take(&self.kinds, &mut state.copied, into);
            if into.len() >= BATCH_MAX {
                break;
            }
        }
        state.turn = state.turn.wrapping_add(1) % seats.max(1);
        state.taken += (into.len() - before) as u64;
        state.lost += lost;
        lost
    }

    /// Takes a seat with every publisher that came since.
    fn meet(&self, state: &mut State, core: &Core) {
        let known = state.seats.len();
        if core.enlisted.load(Ordering::SeqCst) > known {
            let seat = |rings| Seat { rings, cursors: vec![0; self.kinds.len()].into() };
            state.seats.extend(core.publishers_after(known).into_iter().map(seat));
        }
    }

    /// Takes, or has itself woken when there is something to take.
    fn take_or_wait(&self, core: &Core, into: &mut Vec<Event>, waker: &Waker) -> Poll<Option<u64>> {
        let state = &mut *lock(&self.state);
        state.waker = None;
        let mut armed = false;
        loop {
            // Asked before the look: who finds the bus closed looks once more at what was told until then.
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
            // The ringer, ending, wakes those it finds waiting; who comes after that finds the bus closed.
            state.waker = Some(waker.clone());
            if !core.is_closed() {
                return Poll::Pending;
            }
        }
    }

    /// The waker, where this subscriber waits and should not any more. Where it should, the bell is armed.
    pub(crate) fn ready(&self, core: &Core) -> Option<Waker> {
        let state = &mut *lock(&self.state);
        state.waker.as_ref()?;
        self.meet(state, core);
        let news = |state: &State| state.seats.iter().any(|seat| seat.has_news(&self.kinds));
        if !(core.is_closed() || state.ended || news(state)) {
            core.bell.arm(self.set.bits());
            self.meet(state, core);
            if !news(state) {
                return None;
            }
        }
        state.waker.take()
    }

    /// Ends the subscription: it gives what is there, and then no more.
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

    pub(crate) fn show(&self, core: &Core) -> Subscriber {
        let state = &mut *lock(&self.state);
        self.meet(state, core);
        let (mut lag, mut lost) = (0, state.lost);
        for seat in &state.seats {
            for (&kind, &cursor) in self.kinds.iter().zip(&seat.cursors) {
                let ring = seat.rings.ring(kind as usize);
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

impl Seat {
    fn has_news(&self, kinds: &[Kind]) -> bool {
        // What was published before the bell was armed is seen by this, and so are the rings.
        let _ = self.rings.published();
        kinds
            .iter()
            .zip(&self.cursors)
            .any(|(&kind, &cursor)| self.rings.ring(kind as usize).pushed() > cursor)
    }

    /// Takes what this publisher has, in its order, until there is no more or the batch is full.
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
            let places = kinds.iter().map(|&kind| kind as usize);
            lost += self.rings.take_in_order(places, &mut self.cursors, copied, |which, event| {
                Event::unpack(kinds[which], std::iter::once(event), into);
            });
            if into.len() == before || into.len() >= BATCH_MAX {
                return lost;
            }
        }
    }
}

/// One kind needs no order but its ring's.
fn take_one(rings: &Rings<SLOT_WORDS>, kind: Kind, cursor: &mut u64, into: &mut Vec<Event>) -> u64 {
    // What was published before the bell was armed is seen by this, and so is the ring.
    let _ = rings.published();
    let ring = rings.ring(kind as usize);
    let before = into.len();
    let look = ring.look(*cursor, BATCH_MAX.saturating_sub(before));
    Event::unpack(kind, (look.first..look.end).map(|event| ring.slot(event)), into);
    let spoiled = ring.spoiled(look);
    into.drain(before..before + spoiled);
    let lost = look.first - *cursor + spoiled as u64;
    *cursor = look.end;
    lost
}

/// Events, as a subscriber has them.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Some hundreds at most; those of one thread are in the order in which it published them.
    pub events: &'a [Event],
    /// How many were lost since the batch before: before these events, or between them.
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

    /// The events since the last batch, as soon as there are any; none once the bus is gone and all was taken. A future
    /// that is dropped has taken nothing.
    pub async fn next(&mut self) -> Option<Batch<'_>> {
        let lost = std::future::poll_fn(|context| self.poll(context)).await?;
        Some(Batch { events: &self.batch, lost })
    }

    /// The same, for a thread of the subscriber's own.
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

    /// The events since the last batch, if there are any now.
    pub fn try_next(&mut self) -> Option<Batch<'_>> {
        self.batch.clear();
        let lost = self.member.take(&self.core, &mut self.batch);
        (!self.batch.is_empty() || lost > 0).then_some(Batch { events: &self.batch, lost })
    }

    /// Has a thread of its own take the events as they come, and keep up to `events_max` of them, or one batch where that
    /// is more, for a subscriber that is slow at times and must not lose any. An event takes 64 bytes.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn spill(self, events_max: usize) -> std::io::Result<Spill> {
        Spill::new(self, events_max)
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

/// What wakes this thread where it is parked.
pub(crate) fn unparker() -> Waker {
    UNPARKER.with(Waker::clone)
}
