//! How many polls are expected in each quarter of a second to come.
//!
//! Invariants: a slot before the longest allowed period gets a poll that could come earlier only if all slots between are full. A poll
//! comes before the wished period only if the slot there is full, and only as far as the wish allows.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The length of a slot, in milliseconds.
const SLOT_MS: u64 = 250;

/// The slots of the ring: more than two minutes, so that an update that comes a minute late still finds every count where it belongs.
/// The longest period is one minute.
const SLOTS: u64 = 512;

/// No slot is ever full.
const NO_LIMIT: u32 = u32::MAX;

/// When a holder should ask again, in milliseconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The shortest period that may be told.
    pub earliest_ms: u32,
    /// The period if there is room then.
    pub period_ms: u32,
    /// The longest period that may be told now.
    pub allowed_ms: u32,
    /// The longest period that may be told once the line knows of it.
    pub longest_ms: u32,
}

impl Wish {
    /// A poll that comes at this instant, even if there is no room.
    #[must_use]
    pub fn exactly(period_ms: u32) -> Self {
        Self { earliest_ms: period_ms, ..Self::at_most(period_ms) }
    }

    /// A poll that comes after this time, or up to a quarter of it sooner if there is no room.
    #[must_use]
    pub fn at_most(period_ms: u32) -> Self {
        Self {
            earliest_ms: period_ms - period_ms / 4,
            period_ms,
            allowed_ms: period_ms,
            longest_ms: period_ms,
        }
    }

    /// Whether no later instant is allowed.
    pub(super) fn is_fixed(&self) -> bool {
        self.longest_ms <= self.period_ms
    }
}

/// A booked poll.
pub(super) struct Booked {
    /// When it comes, in milliseconds from now.
    pub(super) in_ms: u32,
    /// There was no room at the instant that was wished for.
    pub(super) is_stretched: bool,
    /// There was no room before the longest period that is allowed now, and a longer one would be allowed once the line knows of it.
    pub(super) is_full: bool,
}

/// The expected polls.
pub(super) struct Calendar {
    /// Of each slot, those that could have another one.
    free: Box<[AtomicU32]>,
    /// Of each slot, those that have to come then.
    fixed: Box<[AtomicU32]>,
    /// How many of the first kind a slot takes.
    room: AtomicU32,
    /// The first slot that has not been taken off the calendar.
    next: AtomicU64,
}

impl Calendar {
    pub(super) fn new() -> Self {
        Self {
            free: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            fixed: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            room: AtomicU32::new(NO_LIMIT),
            next: AtomicU64::new(0),
        }
    }

    /// Allows so many polls a second. Before the first call, there is no limit.
    pub(super) fn set_room(&self, per_s: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of f64 saturate")]
        let of_slot = (per_s * (SLOT_MS as f64 / 1_000.0)).ceil() as u32;
        self.room.store(of_slot.max(1), Relaxed);
    }

    /// Books a poll that is asked for at `now_ms`.
    pub(super) fn book(&self, now_ms: u64, wish: Wish, scatter: u32) -> Booked {
        let room = self.room.load(Relaxed);
        let Wish { earliest_ms, period_ms, allowed_ms, longest_ms } = wish;
        let first = (now_ms + u64::from(period_ms)) / SLOT_MS;
        let as_wished = Booked { in_ms: period_ms, is_stretched: false, is_full: false };
        // The instant within a slot is anybody's. It counts before the slot is chosen: cutting it at the longest period instead would move
        // people to the beginnings of slots, a little more each time.
        let within_ms = (SLOT_MS * u64::from(scatter)) >> 32;
        if wish.is_fixed() {
            let expected = |slot: u64| at(&self.fixed, slot).load(Relaxed);
            let soonest = (now_ms + u64::from(earliest_ms)).div_ceil(SLOT_MS);
            let slot = match expected(first) < room {
                true => first,
                // A crowd that came at once, and may not come later, at least does not come back at once.
                false => emptiest(&self.fixed, soonest, first),
            };
            at(&self.fixed, slot).fetch_add(1, Relaxed);
            if slot == first {
                return as_wished;
            }
            let in_ms = u32::try_from(slot * SLOT_MS + within_ms - now_ms).unwrap_or(period_ms);
            return Booked { in_ms, ..as_wished };
        }
        let is_free = |slot: &u64| at(&self.free, *slot).load(Relaxed) < room;
        if is_free(&first) {
            at(&self.free, first).fetch_add(1, Relaxed);
            return as_wished;
        }
        // Slots whose instant is at most the allowed period away.
        let last = ((now_ms + u64::from(allowed_ms)).saturating_sub(within_ms) / SLOT_MS).max(first);
        let free = (first + 1..=last).find(is_free);
        // There are more people than polls, even with the longest period: the slots of its last quarter are filled evenly. The last one is
        // nearly always the emptiest, so people are told nearly the longest period.
        let soonest = (now_ms + u64::from(allowed_ms - allowed_ms / 4)).div_ceil(SLOT_MS);
        let slot = free.unwrap_or_else(|| emptiest(&self.free, soonest.clamp(first, last), last));
        at(&self.free, slot).fetch_add(1, Relaxed);
        let in_ms = u32::try_from((slot * SLOT_MS + within_ms).saturating_sub(now_ms)).unwrap_or(u32::MAX);
        let in_ms = in_ms.clamp(period_ms, allowed_ms.max(period_ms));
        Booked { in_ms, is_stretched: true, is_full: free.is_none() && allowed_ms < longest_ms }
    }

    /// Takes the slots that are over off the calendar. Returns how many polls were expected in them. One caller at a time.
    pub(super) fn pass(&self, now_ms: u64) -> u64 {
        let end = now_ms / SLOT_MS;
        let begin = self.next.swap(end, Relaxed);
        (begin.max(end.saturating_sub(SLOTS))..end)
            .flat_map(|slot| {
                [&self.free, &self.fixed].map(|slots| u64::from(at(slots, slot).swap(0, Relaxed)))
            })
            .sum()
    }
}

/// The slot from `first` to `last` in which the fewest polls are expected; the last one of several.
fn emptiest(slots: &[AtomicU32], first: u64, last: u64) -> u64 {
    (first..=last).rev().min_by_key(|slot| at(slots, *slot).load(Relaxed)).unwrap_or(last)
}

fn at(slots: &[AtomicU32], number: u64) -> &AtomicU32 {
    &slots[usize::try_from(number % SLOTS).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish { earliest_ms: 3_000, period_ms: 3_000, allowed_ms: 20_000, longest_ms: 20_000 };

    #[test]
    fn a_crowd_that_comes_at_once_is_spread_evenly() {
        let calendar = Calendar::new();
        calendar.set_room(400.0);
        let told: Vec<_> =
            (0..4_000_u32).map(|i| calendar.book(0, WISH, i.wrapping_mul(0x9E37_79B9)).in_ms).collect();
        assert_eq!(
            told.iter().max().map(|told_ms| told_ms / 1_000),
            Some(12),
            "4,000 polls take ten seconds from the third on"
        );
        for slot in 12..52 {
            let count = told.iter().filter(|&&told_ms| u64::from(told_ms) / SLOT_MS == slot).count();
            assert_eq!(count, 100, "slot {slot}");
        }
    }

    #[test]
    fn more_people_than_polls_are_told_the_longest_period() {
        let calendar = Calendar::new();
        calendar.set_room(4.0);
        let told: Vec<_> =
            (0..10_000_u32).map(|i| calendar.book(7, WISH, i.wrapping_mul(0x9E37_79B9)).in_ms).collect();
        assert!(told.iter().all(|told_ms| (3_000..=20_000).contains(told_ms)));
        let full = told.iter().filter(|told_ms| **told_ms >= 15_000).count();
        assert!(full > 9_900, "{full}");
    }

    /// Whoever asks again when told does not come nearer to the beginning of a slot each time.
    #[test]
    fn polls_stay_spread_within_slots() {
        const PEOPLE: u32 = 20_000;
        const PARTS: usize = 5;
        let calendar = Calendar::new();
        calendar.set_room(100.0);
        let mut due: Vec<u64> = (0..u64::from(PEOPLE)).collect();
        let mut scatter = 1_u32;
        for _ in 0..10 {
            due.sort_unstable();
            for due_ms in &mut due {
                calendar.pass(*due_ms);
                scatter = scatter.wrapping_mul(0x9E37_79B1).wrapping_add(0x7F4A_7C15);
                *due_ms += u64::from(calendar.book(*due_ms, WISH, scatter).in_ms);
            }
        }
        let mut parts = [0; PARTS];
        for due_ms in due {
            parts[usize::try_from(due_ms % SLOT_MS).expect("small") * PARTS / 250] += 1;
        }
        assert!(parts.iter().all(|count| (3_600..=4_400).contains(count)), "{parts:?} of {PEOPLE}");
    }

    #[test]
    fn an_appointment_stands_and_is_expected() {
        let calendar = Calendar::new();
        calendar.set_room(4.0);
        for _ in 0..10 {
            assert_eq!(calendar.book(0, Wish::exactly(3_000), 0).in_ms, 3_000);
        }
        assert_eq!(calendar.book(0, WISH, 0).in_ms, 3_000);
        let later = calendar.book(0, WISH, 0);
        assert_eq!((later.in_ms, later.is_stretched, later.is_full), (3_250, true, false));
        let not_yet = calendar.book(0, Wish { allowed_ms: 3_000, ..WISH }, 0);
        assert_eq!((not_yet.in_ms, not_yet.is_full), (3_000, true), "the line has to know first");
        assert_eq!(calendar.pass(4_000), 13);
    }

    #[test]
    fn a_crowd_that_may_not_come_later_is_spread_over_the_quarter_before() {
        let calendar = Calendar::new();
        calendar.set_room(400.0);
        let mut counts = [0; 13];
        for i in 0..1_000_u32 {
            let told_ms = calendar.book(0, Wish::at_most(3_000), i.wrapping_mul(0x9E37_79B9)).in_ms;
            assert!((2_250..=3_000).contains(&told_ms), "{told_ms}");
            counts[usize::try_from(u64::from(told_ms) / SLOT_MS).expect("small")] += 1;
        }
        assert_eq!(counts[9..], [250; 4]);
        calendar.set_room(4_000_000.0);
        assert_eq!(calendar.book(0, Wish::at_most(3_000), 1).in_ms, 3_000, "there is room");
        assert_eq!(calendar.book(0, Wish::exactly(3_000), 1).in_ms, 3_000);
    }

    #[test]
    fn without_a_limit_everybody_gets_the_period_and_is_counted() {
        let calendar = Calendar::new();
        for _ in 0..1_000 {
            assert_eq!(calendar.book(100, WISH, 5).in_ms, 3_000);
        }
        assert_eq!(calendar.pass(3_000), 0);
        assert_eq!(calendar.pass(3_250), 1_000);
        assert_eq!(calendar.pass(10_000_000), 0);
    }
}
