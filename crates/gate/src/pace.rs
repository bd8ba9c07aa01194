//! Stretches polling periods so that this server can answer all polls: it stays below a set share of its capacity.
//!
//! | file | concern |
//! |---|---|
//! | `calendar` | how many polls are expected when, and the next slot that has room |
//! | `control` | how many polls a second there is room for, from what the server measures |
//!
//! Each reply books the poll that it asks for. A poll gets the first slot of the calendar with room, from the period on that the
//! policy wishes for. So there are no waves to smooth out: a crowd that comes at once is told different periods, and the load of the
//! next seconds is known before it comes. People near the front are asked to come when they have to, and count too.
//!
//! Invariants: nobody is told a period longer than the one allowed; a server that is not busy tells the period that is wished for.

mod calendar;
mod control;

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use tokio::time::Instant;

use calendar::Calendar;
pub use calendar::Wish;
use control::{Calls, Control};
pub use control::{Cause, Load};

/// How long a stretched period is remembered, in updates: stores hear of it once a second.
const REMEMBERED: usize = 8;

/// How a server paces polls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pacing {
    /// The longest period that was told lately because the server is busy, in milliseconds; 0 if none was.
    pub period_ms: u32,
    /// Why periods are longer than wished for; none if they are not.
    pub cause: Option<Cause>,
    /// The polls a second for which there is room; 0 before the first update.
    pub room_per_s: f64,
    /// The processors in use by this server, lately.
    pub busy: f64,
    /// How late tasks run, lately, in seconds.
    pub lag_s: f64,
}

/// Paces the polls of one server.
pub struct Pace {
    started_at: Instant,
    calendar: Calendar,
    answered: AtomicU64,
    joins: AtomicU64,
    fixed: AtomicU64,
    /// The longest period told since the last update because there was no room earlier, in milliseconds.
    stretched_ms: AtomicU32,
    /// The longest period that the line should know of since there was no room in those that it knows, in milliseconds; 0 for none.
    missing_ms: AtomicU32,
    /// The longest period that may soon be told, in milliseconds; 0 for the wished one.
    wanted_ms: AtomicU32,
    updates: Mutex<Updates>,
}

struct Updates {
    control: Control,
    answered: u64,
    joins: u64,
    fixed: u64,
    /// What the last updates found of the fields of the same names.
    stretched_ms: [u32; REMEMBERED],
    missing_ms: [u32; REMEMBERED],
    number: usize,
    pacing: Pacing,
}

impl Pace {
    /// A pace for a server with so many processors. It limits nothing before the first [`Pace::update`].
    #[must_use]
    pub fn new(processors: f64) -> Self {
        Self {
            started_at: Instant::now(),
            calendar: Calendar::new(),
            answered: AtomicU64::new(0),
            joins: AtomicU64::new(0),
            fixed: AtomicU64::new(0),
            stretched_ms: AtomicU32::new(0),
            missing_ms: AtomicU32::new(0),
            wanted_ms: AtomicU32::new(0),
            updates: Mutex::new(Updates {
                control: Control::new(processors),
                answered: 0,
                joins: 0,
                fixed: 0,
                stretched_ms: [0; REMEMBERED],
                missing_ms: [0; REMEMBERED],
                number: 0,
                pacing: Pacing::default(),
            }),
        }
    }

    /// Books the next poll of a holder, and returns when to ask, in milliseconds from `now`. `scatter` is any number that differs
    /// between holders.
    pub fn book(&self, now: Instant, wish: Wish, scatter: u32) -> u32 {
        self.answered.fetch_add(1, Relaxed);
        if wish.is_fixed() {
            self.fixed.fetch_add(1, Relaxed);
        }
        let booked = self.calendar.book(self.ms_at(now), wish, scatter);
        if booked.is_stretched {
            raise(&self.stretched_ms, booked.in_ms);
        }
        if booked.is_full {
            raise(&self.missing_ms, wish.longest_ms);
        }
        booked.in_ms
    }

    /// Counts a call that takes a place.
    pub fn note_join(&self) {
        self.joins.fetch_add(1, Relaxed);
    }

    /// The longest period that may have to be told within a second, in milliseconds; 0 for the wished one.
    #[must_use]
    pub fn wanted_ms(&self) -> u32 {
        self.wanted_ms.load(Relaxed).max(self.missing_ms.load(Relaxed))
    }

    /// The polls that were answered with a later one booked.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Takes in what was measured since the last update. Call it about four times a second.
    pub fn update(&self, load: Load) -> Pacing {
        let mut updates = self.updates();
        let answered = self.answered();
        let booked = self.calendar.pass(self.ms_at(Instant::now()));
        let (joins, fixed) = (self.joins.load(Relaxed), self.fixed.load(Relaxed));
        let calls = Calls {
            answered: answered - std::mem::replace(&mut updates.answered, answered),
            joins: joins - std::mem::replace(&mut updates.joins, joins),
            booked,
            fixed: fixed - std::mem::replace(&mut updates.fixed, fixed),
        };
        let room_per_s = updates.control.observe(load, calls);
        self.calendar.set_room(room_per_s);

        let at = updates.number % REMEMBERED;
        updates.number += 1;
        updates.stretched_ms[at] = self.stretched_ms.swap(0, Relaxed);
        let period_ms = updates.stretched_ms.into_iter().max().unwrap_or(0);
        updates.missing_ms[at] = self.missing_ms.swap(0, Relaxed);
        let missing_ms = updates.missing_ms.into_iter().max().unwrap_or(0);
        // Half as much again, so that the line knows of a period before anybody is told it.
        self.wanted_ms.store((period_ms + period_ms / 2).next_multiple_of(1_000).max(missing_ms), Relaxed);
        let control = &updates.control;
        let pacing = Pacing {
            period_ms,
            cause: (period_ms > 0).then(|| control.cause()),
            room_per_s,
            busy: control.busy(),
            lag_s: load.lag_s,
        };
        updates.pacing = pacing;
        pacing
    }

    /// What the last update found.
    #[must_use]
    pub fn pacing(&self) -> Pacing {
        self.updates().pacing
    }

    fn updates(&self) -> MutexGuard<'_, Updates> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ms_at(&self, now: Instant) -> u64 {
        u64::try_from((now - self.started_at).as_millis()).unwrap_or(0)
    }
}

/// Sets `least` to `to` if that is more. Mostly it is not, and the cache line stays shared.
fn raise(least: &AtomicU32, to: u32) {
    if least.load(Relaxed) < to {
        least.fetch_max(to, Relaxed);
    }
}
