//! What is true of a zone between two calls.
//!
//! Builds with debug assertions check it after each transition, so every unit test, simulation and fuzzer does. Each check is paired:
//! what must be there, and what must not. Of a long line only the first and the last segment are looked at bit by bit, so that a test
//! with a million people takes no longer for it.

use super::Zone;
use crate::{
    Mode, Page,
    segment::{SEGMENT, SEGMENT_TICKETS},
};

impl Zone {
    /// Checks the invariants of the zone and of its parts.
    ///
    /// # Panics
    /// One of them does not hold. Not while a test breaks a rule on purpose.
    pub(super) fn check(&self) {
        if !is_checked() {
            return;
        }
        let (first, last) = (self.segments.front(), self.segments.back());
        let (Some(first), Some(last)) = (first, last) else { panic!("a line has a segment") };
        first.check();
        if self.segments.len() > 1 {
            last.check();
        }
        let before_last = self.segments.iter().rev().skip(1);
        assert!(
            before_last.clone().all(|segment| segment.issued == SEGMENT_TICKETS),
            "numbers are given out in order"
        );
        let issued: u64 = self.segments.iter().map(|segment| segment.issued as u64).sum();
        let end = self.base * SEGMENT + issued;
        assert_eq!(end, self.next, "the segments hold the numbers up to the next one");

        let clock = self.clock();
        for segment in &self.segments {
            assert!(segment.present <= segment.live, "whoever is present waits");
            assert!(segment.seen_all <= clock.seen_all, "a segment is not ahead of the zone's time");
            assert!(
                segment.front <= SEGMENT_TICKETS && segment.near <= SEGMENT_TICKETS,
                "ends are in the segment"
            );
        }
        // Any hundred of them: there are as many as people enter within an hour.
        for (seq, entry) in self.entries.iter().take(100) {
            assert!(
                *seq < self.next && entry.at_ms <= self.now_ms,
                "who entered had a ticket, and did so before now"
            );
            assert!(!self.is_live(*seq), "nobody waits and is in");
        }
        assert!(
            self.bound.keys().take(100).all(|seq| self.entries.contains_key(seq)),
            "only entries are bound to an address"
        );
        assert!(self.expiries.len() >= self.entries.len(), "each entry expires");
        assert!(
            self.marks.iter().zip(self.marks.iter().skip(1)).all(|(one, next)| one.0 <= next.0),
            "marks are in order: {:?}",
            self.marks
        );
        self.window.check(self.now_ms);
        self.inside.check();
    }

    /// Checks that a snapshot shows all who wait, and who is present.
    pub(super) fn check_pages(&self, pages: &[Page]) {
        if !is_checked() {
            return;
        }
        let shown: (u64, u64) = pages.iter().fold((0, 0), |(live, present), page| {
            (live + u64::from(page.live), present + u64::from(page.present))
        });
        assert_eq!(shown, (self.waiting(), self.present()), "the pages show who waits, and who is present");
    }

    /// Checks that `count` people who enter now have slots. `strictly` where somebody waited.
    pub(super) fn check_slots(&self, count: u32, strictly: bool) {
        if !is_checked() {
            return;
        }
        if self.mode() == Mode::Auto {
            assert!(count <= self.window.free(strictly), "{count} enter, and fewer slots are free");
            assert!(u64::from(count) <= self.room(), "{count} enter, and fewer may be inside");
        } else {
            assert!(
                count == 0 || self.policy.mode == Mode::Open,
                "nobody enters a zone that is held or closed"
            );
        }
    }
}

/// Whether this build checks, and no test breaks a rule on purpose.
fn is_checked() -> bool {
    #[cfg(feature = "sabotage")]
    if crate::sabotage::any() {
        return false;
    }
    cfg!(debug_assertions)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use std::sync::Arc;

    use super::*;
    use crate::{Now, Policy};

    /// Each harm to a sound zone is found, and named.
    #[test]
    fn a_zone_that_is_not_sound_is_found() {
        type Harm = fn(&mut Zone);
        let harms: [(Harm, &str); 6] = [
            (|zone| zone.next += 1, "up to the next one"),
            (|zone| zone.segments[0].present -= 1, "left == right"),
            (|zone| zone.segments[0].seen_all += 1, "ahead of the zone's time"),
            (|zone| zone.inside.count += 1, "counts once"),
            (|zone| Arc::make_mut(&mut zone.window).record(zone.now_ms + 1, 1), "of the last minute"),
            (|zone| zone.bound.insert(7, 1).map_or((), drop), "bound to an address"),
        ];
        for (harm, named) in harms {
            let policy = Policy { admit_per_minute: 10, max_active: 5, ..Policy::default() };
            let mut zone = Zone::new(policy, 1, Now { ms: 1_000, unix_ms: 0 });
            zone.join(8, Now { ms: 70_000, unix_ms: 69_000 });
            zone.check();
            harm(&mut zone);
            let found = catch_unwind(AssertUnwindSafe(|| zone.check())).expect_err(named);
            let said = found
                .downcast_ref::<String>()
                .map_or_else(|| (*found.downcast_ref::<&str>().expect("a text")).to_owned(), Clone::clone);
            assert!(said.contains(named), "{named}: {said}");
        }
    }

    #[test]
    #[should_panic(expected = "fewer slots are free")]
    fn an_entry_without_a_slot_is_found() {
        let policy = Policy { admit_per_minute: 10, ..Policy::default() };
        Zone::new(policy, 1, Now { ms: 1_000, unix_ms: 0 }).check_slots(2, true);
    }
}
