//! The limit of a line: whether another person may join.
//!
//! The gate decides this, so that no call to the store gets slower. It knows the view, which is at most about a second old;
//! the last tickets that this server issued since; and the joins of this server that are under way. What other servers issue
//! meanwhile is not known until this server's next join or view.
//!
//! Invariants, for a line that only this server serves: at most `max_waiting` people wait; only a burst into an empty line
//! may exceed that, by at most the slots of a minute. The line spans at most [`MOST_NUMBERS_HERE`] numbers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use admission::{Mode, Verdict};
use store::Line;
use tokio::time::Instant;
use wait::View;

use super::{Room, calls::NewTicket};
use crate::reply::Refusal;

/// The most numbers from the first kept segment to the end of the line. The embedded store takes twice as many, so that
/// several servers, which do not know of each other's last joins, stay below its limit.
const MOST_NUMBERS_HERE: u64 = 1 << 27;

/// What this server heard of the end of the line since a view.
pub(super) struct LineEnd {
    /// The number after the highest known one.
    next: AtomicU64,
    /// The most people who waited at a join, or in the view.
    waiting: AtomicU64,
}

impl LineEnd {
    pub(super) fn of(view: &View) -> Self {
        Self { next: AtomicU64::new(view.next), waiting: AtomicU64::new(view.tally.waiting) }
    }

    /// Whether the line of `view` takes these joins at `now_ms` on the store's clock.
    fn has_room_for(&self, joining: u64, view: &View, now_ms: u64) -> bool {
        let policy = &view.policy;
        let next = self.next.load(Ordering::Relaxed);
        if next + joining - view.base > MOST_NUMBERS_HERE {
            return false;
        }
        let waiting = self.waiting.load(Ordering::Relaxed);
        if policy.mode == Mode::Open || waiting + joining <= u64::from(policy.max_waiting) {
            return true;
        }
        // As long as nobody is present, and nobody has had to wait since, newcomers enter at once.
        policy.mode == Mode::Auto
            && view.tally.present == 0
            && waiting == view.tally.waiting
            && joining <= u64::from(policy.admit_per_minute)
            && view.plan.has_room(policy, now_ms)
    }
}

/// A join that is under way. It counts until this is dropped.
pub(super) struct Joining<'a>(&'a AtomicU32);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<L: Line> Room<L> {
    /// Counts a join from now on, if the line takes another person.
    ///
    /// # Errors
    /// [`Refusal::Full`].
    pub(super) fn begin_join(&self) -> Result<Joining<'_>, Refusal> {
        let joining = u64::from(self.joining.fetch_add(1, Ordering::Relaxed)) + 1;
        let counted = Joining(&self.joining);
        let current = self.current.load();
        let has_room = current.end.has_room_for(joining, &current.view, current.ms_at(Instant::now()));
        has_room.then_some(counted).ok_or(Refusal::FULL)
    }

    /// Notes what the store answered to a join.
    pub(super) fn note_joined(&self, joined: &NewTicket) {
        let current = self.current.load();
        // The numbers of another line say nothing about this one.
        if joined.ticket.epoch == current.view.epoch {
            current.end.next.fetch_max(joined.ticket.seq + 1, Ordering::Relaxed);
            if let Verdict::Waiting(position) = joined.verdict {
                current.end.waiting.fetch_max(position.rank, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::{Policy, Tally};

    use super::*;
    use crate::room::current_view::before_the_first;

    fn line(policy: Policy, waiting: u64, present: u64) -> (View, LineEnd) {
        let mut view = before_the_first(policy);
        (view.snapshot.base, view.snapshot.next) = (65_536, 65_536 + waiting);
        view.snapshot.tally = Tally { waiting, present, ..Tally::default() };
        let end = LineEnd::of(&view);
        (view, end)
    }

    /// Whether a line takes exactly this many joins.
    fn takes((view, end): &(View, LineEnd), joins: u64) -> bool {
        (joins == 0 || end.has_room_for(joins, view, 0)) && !end.has_room_for(joins + 1, view, 0)
    }

    #[test]
    fn a_line_takes_its_maximum_and_the_joins_under_way_count() {
        let of = |mode| Policy { mode, max_waiting: 10, admit_per_minute: 5, ..Policy::default() };
        let busy = line(of(Mode::Auto), 7, 7);
        assert!(takes(&busy, 3));
        busy.1.waiting.store(9, Ordering::Relaxed);
        assert!(takes(&busy, 1), "the last join's rank counts");
        let (view, end) = line(of(Mode::Open), 50, 50);
        assert!(end.has_room_for(100, &view, 0), "everybody enters at once");
        assert!(takes(&line(of(Mode::Hold), 10, 0), 0), "nobody enters at once");
    }

    #[test]
    fn a_person_who_enters_at_once_needs_no_room() {
        let policy = Policy { max_waiting: 10, admit_per_minute: 5, ..Policy::default() };
        let absent = line(policy, 10, 0);
        assert!(takes(&absent, 5), "as many as the minute has slots");
        absent.1.waiting.store(11, Ordering::Relaxed);
        assert!(takes(&absent, 0), "somebody waits since the view");
        assert!(takes(&line(policy, 10, 1), 0), "a present ticket comes first");
    }

    #[test]
    fn numbers_are_bounded_however_few_people_wait() {
        for mode in [Mode::Auto, Mode::Hold, Mode::Open] {
            let long = line(Policy { mode, ..Policy::default() }, 1, 1);
            long.1.next.store(65_536 + MOST_NUMBERS_HERE - 2, Ordering::Relaxed);
            assert!(takes(&long, 2), "{mode:?}");
        }
    }
}
