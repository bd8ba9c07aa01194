//! A short memory of tickets that the store reported as gone, so that a replayed token does not cost a call each time.
//!
//! A gone ticket of this epoch stays gone. When a state was lost, a new epoch begins, and servers write back what they remember of the ones
//! before, each when it can: a ticket of an earlier epoch may come back. Invariants: nothing is remembered beyond [`LIFE`], or
//! [`LIFE_OF_EARLIER`], a change of the zone's epoch or policy, or a time in which the store was away; an answer to a call that began before
//! such a change is not remembered; at most [`CAPACITY`] tickets are.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use admission::Ticket;
use store::Line;
use tokio::time::Instant;

use super::Room;

/// The most tickets that are remembered in a zone. They take about 200 KB.
const CAPACITY: usize = 4_096;

/// How long a ticket of the zone's epoch is remembered.
pub(super) const LIFE: Duration = Duration::from_secs(30);

/// How long one of an earlier epoch is.
const LIFE_OF_EARLIER: Duration = Duration::from_secs(1);

/// How long a ticket of this epoch is remembered that the store reported as gone, by a view of an epoch.
pub(super) const fn life(epoch: u32, of_view: u32) -> Duration {
    if epoch == of_view { LIFE } else { LIFE_OF_EARLIER }
}

/// The memory is used only while the view is this fresh, because a view is what tells of a new epoch. An idle zone renews
/// none: there the first token goes to the store, and wakes the lane.
const FRESH: Duration = Duration::from_secs(2);

/// A number that grows with each [`GoneTickets::forget`]. It tells whether the memory was cleared while the store was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheGeneration(u64);

/// Epoch and number of a ticket.
type Key = (u32, u64);

#[derive(Default)]
pub(super) struct GoneTickets {
    /// How many there are, so that most calls take no lock.
    len: AtomicUsize,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    generation: u64,
    tickets: HashSet<Key>,
    /// When each of them is forgotten.
    ends: BTreeSet<(Instant, Key)>,
}

impl GoneTickets {
    /// A panic cannot leave the two lists apart by more than an entry, which ends like any other.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn generation(&self) -> CacheGeneration {
        CacheGeneration(self.memory().generation)
    }

    /// Forgets all tickets, and does not take in answers that are under way.
    pub(super) fn forget(&self) {
        let mut memory = self.memory();
        memory.generation += 1;
        memory.tickets.clear();
        memory.ends.clear();
        self.len.store(0, Ordering::Relaxed);
    }

    /// Remembers a ticket from `now` on for `life`, unless everything was forgotten since `generation`.
    pub(super) fn remember(
        &self,
        ticket: Key,
        generation: CacheGeneration,
        (now, life): (Instant, Duration),
    ) {
        let mut memory = self.memory();
        if memory.generation != generation.0 {
            return;
        }
        memory.end_old(now);
        if memory.tickets.contains(&ticket) {
            return;
        }
        if memory.tickets.len() == CAPACITY
            && let Some((_, next)) = memory.ends.pop_first()
        {
            memory.tickets.remove(&next);
        }
        memory.tickets.insert(ticket);
        memory.ends.insert((now + life, ticket));
        self.len.store(memory.tickets.len(), Ordering::Relaxed);
    }

    pub(super) fn has(&self, ticket: Key, now: Instant) -> bool {
        if self.len.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut memory = self.memory();
        memory.end_old(now);
        self.len.store(memory.tickets.len(), Ordering::Relaxed);
        memory.tickets.contains(&ticket)
    }
}

impl Memory {
    fn end_old(&mut self, now: Instant) {
        while let Some(&(end, old)) = self.ends.first()
            && end <= now
        {
            self.ends.pop_first();
            self.tickets.remove(&old);
        }
    }
}

impl<L: Line> Room<L> {
    /// Whether the store recently answered that this ticket is gone, and nothing has happened since that could bring it back.
    pub(super) fn is_known_gone(&self, ticket: &Ticket) -> bool {
        !self.is_away()
            && self.current.load().taken_at.elapsed() <= FRESH
            && self.gone.has((ticket.epoch, ticket.seq), Instant::now())
    }

    /// The generation of the memory now, for [`Room::note_gone`].
    pub(super) fn gone_generation(&self) -> CacheGeneration {
        self.gone.generation()
    }

    /// Remembers that the store answered that a ticket is gone. It was asked in this generation.
    pub(super) fn note_gone(&self, ticket: &Ticket, asked_in: CacheGeneration) {
        let current = self.current.load();
        let view = &current.view;
        // A number that was not given out yet may be given out.
        let was_given_out =
            ticket.epoch < view.epoch || (ticket.epoch == view.epoch && ticket.seq < view.next);
        if was_given_out {
            let life = life(ticket.epoch, view.epoch);
            self.gone.remember((ticket.epoch, ticket.seq), asked_in, (Instant::now(), life));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_in_count_and_time() {
        let (gone, start) = (GoneTickets::default(), Instant::now());
        let generation = gone.generation();
        let most = u64::try_from(CAPACITY).expect("small");
        for seq in 0..most + 10 {
            gone.remember((1, seq), generation, (start, LIFE));
            gone.remember((1, seq), generation, (start, LIFE));
        }
        assert_eq!(gone.memory().tickets.len(), CAPACITY);
        assert_eq!(gone.memory().ends.len(), CAPACITY);
        assert!(!gone.has((1, 9), start) && gone.has((1, 10), start) && !gone.has((2, 10), start));
        assert!(gone.has((1, 10), start + LIFE - Duration::from_millis(1)));
        assert!(!gone.has((1, 10), start + LIFE));
        assert!(gone.memory().tickets.is_empty() && gone.memory().ends.is_empty());
        gone.remember((1, 20), generation, (start, LIFE));
        gone.remember((1, 21), generation, (start, LIFE_OF_EARLIER));
        assert!(gone.has((1, 20), start + LIFE_OF_EARLIER) && !gone.has((1, 21), start + LIFE_OF_EARLIER));
    }

    #[test]
    fn an_answer_of_an_earlier_generation_is_not_remembered() {
        let (gone, now) = (GoneTickets::default(), Instant::now());
        let before = gone.generation();
        gone.remember((1, 1), before, (now, LIFE));
        gone.forget();
        assert!(!gone.has((1, 1), now));
        gone.remember((1, 1), before, (now, LIFE));
        assert!(!gone.has((1, 1), now), "the call began before");
        gone.remember((1, 1), gone.generation(), (now, LIFE));
        assert!(gone.has((1, 1), now));
    }
}
