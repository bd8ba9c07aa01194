//! Whether the zone's store answers, and since when it does not.

use std::sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering};

use admission::Snapshot;
use events::{StoreBack, StoreLost};
use store::{Line, StoreError};
use tokio::time::Instant;

use super::{Keeper, Room};
use crate::trouble::{Trouble, may_log};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Line> Room<L> {
    /// Notes whether the store answered a call that began at `asked`.
    pub(super) fn note_answer<T>(&self, asked: Instant, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) if self.is_away() => {
                let away_ms = self.away_ms();
                if self.away_since.swap(0, Ordering::Relaxed) != 0 {
                    let ended = lock(&self.trouble).take();
                    if let Some(ended) = ended.filter(|_| may_log()) {
                        tracing::info!(zone = %self.zone, kind = ended.kind.name(), away_ms, "the zone's store answers again");
                    }
                    self.bus.publish(StoreBack { zone: self.id, away_ms });
                }
            }
            Ok(_) => {}
            // The store is there. It has too much to do, or the line is full.
            Err(StoreError::Busy | StoreError::Full) => {}
            Err(error @ (StoreError::Away(_) | StoreError::Unreadable(_))) => {
                self.note_failure(asked);
                self.note_trouble(error);
            }
            Err(StoreError::UnknownZone) => {
                self.note_failure(asked);
                if self.keeper == Keeper::Store {
                    self.open.store(false, Ordering::Relaxed);
                }
            }
        }
    }

    /// Notes whether the store answered a call that decides nothing. A store without a replica does, and lets nobody in.
    pub(super) fn note_read<T>(&self, asked: Instant, answer: &Result<T, StoreError>) {
        if answer.is_err() || !self.is_away() {
            self.note_answer(asked, answer);
        }
    }

    /// Notes whether the store answered a beat, and lets people in.
    pub(super) fn note_snapshot(&self, asked: Instant, answer: &Result<Snapshot, StoreError>) {
        match answer {
            Ok(snapshot) if !snapshot.is_confirmed => {
                self.note_failure(asked);
                self.note_trouble(&StoreError::Away("no replica has the last changes".to_owned()));
            }
            _ => self.note_answer(asked, answer),
        }
    }

    /// Notes why the store is away. The first error is logged, and one of another kind.
    pub(super) fn note_trouble(&self, error: &StoreError) {
        self.set_away();
        // Calls that were not even made say nothing about the store.
        if *error == super::calls::away() {
            return;
        }
        if let Some(Trouble { kind, why, .. }) = self.set_trouble(error).filter(|_| may_log()) {
            tracing::warn!(
                zone = %self.zone, kind = kind.name(),
                "the zone is away, and nobody joins or enters by its store: {why}. What to do: {}", kind.advice()
            );
        }
    }

    /// Replaces the record of why the store is away. Returns it if there was none, or one of another kind.
    pub(crate) fn set_trouble(&self, error: &StoreError) -> Option<Trouble> {
        let mut trouble = lock(&self.trouble);
        let before = trouble.as_ref();
        let now = Trouble::new(error, before.map_or_else(Instant::now, |before| before.since));
        let is_new = before.is_none_or(|before| before.kind != now.kind);
        *trouble = Some(now.clone());
        is_new.then_some(now)
    }

    /// Why the store is away, if it is and has said so.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        lock(&self.trouble).clone().filter(|_| self.is_away())
    }

    fn note_failure(&self, asked: Instant) {
        self.set_away();
        self.failed_at.fetch_max(1 + self.ms_at(asked), Ordering::Relaxed);
    }

    /// Counts the store as away, if it is not already.
    pub(crate) fn set_away(&self) {
        let now = 1 + self.since_start_ms();
        if self.away_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // It may come back with an older state.
            self.gone.forget();
            self.leavers.forget();
            self.bus.publish(StoreLost { zone: self.id });
        }
    }

    /// Whether the last call to the store failed.
    pub(crate) fn is_away(&self) -> bool {
        self.away_since.load(Ordering::Relaxed) != 0
    }

    /// For how long the store has been away, in milliseconds; 0 while it answers.
    pub(super) fn away_ms(&self) -> u64 {
        match self.away_since.load(Ordering::Relaxed) {
            0 => 0,
            since => (1 + self.since_start_ms()).saturating_sub(since),
        }
    }

    /// How long after the store was away the last call began that failed, in milliseconds. A server that stood still has asked
    /// nothing meanwhile, so that time does not count.
    pub(super) fn shown_away_ms(&self) -> u64 {
        match self.away_since.load(Ordering::Relaxed) {
            0 => 0,
            since => self.failed_at.load(Ordering::Relaxed).saturating_sub(since),
        }
    }

    pub(super) fn since_start_ms(&self) -> u64 {
        self.ms_at(Instant::now())
    }

    fn ms_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started_at).as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// Whether the store knows the zone, as far as this server knows.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}
