//! Which entries were told of: one bit a ticket.
//!
//! A store tells an entry as often as it is asked, and what it tells first may be lost on the way; so whether an entry
//! is news can't be read off its answer. Invariant: of one entry, `note` says once that it is news, for as long as
//! anybody can be told of it.

use std::collections::HashMap;

use admission::{PAGE_TICKETS, PAGE_WORDS, Words};

/// For how long an entry can be told again, in milliseconds: the longest time that a pass is good, and some.
const TOLD_FOR_MS: u64 = 3_700_000;

/// The entries of a stretch of the line.
struct Stretch {
    bits: Box<Words>,
    /// When one was noted last.
    noted_ms: u64,
}

/// The entries of a zone that were told of.
#[derive(Default)]
pub(super) struct Given {
    stretches: HashMap<(u32, u64), Stretch>,
}

impl Given {
    /// Notes an entry, told at `now_ms` on any clock that only goes forward, and tells whether it is news.
    pub(super) fn note(&mut self, epoch: u32, seq: u64, now_ms: u64) -> bool {
        let per_stretch = PAGE_TICKETS as u64;
        let at = (epoch, seq / per_stretch);
        if !self.stretches.contains_key(&at) {
            self.stretches.retain(|_, stretch| stretch.noted_ms + TOLD_FOR_MS >= now_ms);
        }
        let stretch = self
            .stretches
            .entry(at)
            .or_insert_with(|| Stretch { bits: Box::new([0; PAGE_WORDS]), noted_ms: now_ms });
        stretch.noted_ms = stretch.noted_ms.max(now_ms);
        let word = &mut stretch.bits[(seq % per_stretch / 64) as usize];
        let bit = 1 << (seq % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_news_once_and_what_nobody_can_be_told_is_forgotten() {
        let mut given = Given::default();
        assert!(given.note(1, 7, 1_000) && given.note(1, 8, 1_000) && given.note(2, 7, 1_000));
        assert!(!given.note(1, 7, 1_000) && !given.note(1, 8, 3_000_000) && !given.note(2, 7, 1_000));
        assert!(given.note(2, 100_000, 3_000_000 + TOLD_FOR_MS));
        assert_eq!(given.stretches.len(), 2, "the stretch of the second line is old");
        assert!(!given.note(1, 7, 3_000_000));
    }
}
