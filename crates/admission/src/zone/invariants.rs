//! What is true of a zone between two calls.
//!
//! Builds with debug assertions check it after each transition, so every unit test, simulation and fuzzer does. Each check is paired:
//! what must be there, and what must not. Of a long line only the first and the last segment are looked at bit by bit, so that a test
//! with a million people takes no longer for it.

use super::Zone;
use crate::{Mode, segment::SEGMENT_TICKETS};

impl Zone {
    /// Checks the invariants of the zone and of its parts.
    ///
    /// # Panics
    /// One of them does not hold. Not while a test breaks a rule on purpose.
    pub(super) fn check(&self) {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::any() {
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
        let end = self.base * SEGMENT_TICKETS as u64 + issued;
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

    /// Checks that `count` people who enter now have slots. `strictly` where somebody waited.
    pub(super) fn check_slots(&self, count: u32, strictly: bool) {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::any() {
            return;
        }
        if self.policy.mode == Mode::Auto {
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
