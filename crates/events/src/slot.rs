//! The layout of an event in a ring's slot: its fields one after the other, in half words, each aligned to its length.
//!
//! Invariant: `unpack` reverses `pack`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a slot: the event's number among its publisher's events, then the event.
pub(crate) const SLOT_WORDS: usize = 8;
/// The words of an event.
pub(crate) const EVENT_WORDS: usize = SLOT_WORDS - 1;
/// An event as words.
pub(crate) type EventWords = [u64; EVENT_WORDS];

/// A source of an event's words. Reads a word only if it is needed.
pub trait Words {
    /// The event's word at this index.
    fn word(&self, at: usize) -> u64;
}

/// A copied slot.
impl Words for [u64; SLOT_WORDS] {
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self[1 + at]
    }
}

/// A slot in its ring. The writer may overwrite it meanwhile, so that a word may have any value.
impl Words for [AtomicU64; SLOT_WORDS] {
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self[1 + at].load(Ordering::Relaxed)
    }
}

/// A field of an event.
pub(crate) trait Field: Copy {
    /// The field's length in half words; 1, or an even number.
    const HALVES: usize;
    fn put(self, words: &mut EventWords, at: usize);
    fn get(words: &impl Words, at: usize) -> Self;
}

/// The first half word of a field of `halves` half words that follows `at` half words.
pub(crate) const fn aligned(at: usize, halves: usize) -> usize {
    if halves == 1 { at } else { at.next_multiple_of(2) }
}

impl Field for u32 {
    const HALVES: usize = 1;

    #[inline]
    fn put(self, words: &mut EventWords, at: usize) {
        words[at / 2] |= u64::from(self) << (32 * (at % 2));
    }

    #[inline]
    fn get(words: &impl Words, at: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "half of the word is meant")]
        let half = (words.word(at / 2) >> (32 * (at % 2))) as u32;
        half
    }
}

impl Field for u64 {
    const HALVES: usize = 2;

    #[inline]
    fn put(self, words: &mut EventWords, at: usize) {
        words[at / 2] = self;
    }

    #[inline]
    fn get(words: &impl Words, at: usize) -> Self {
        words.word(at / 2)
    }
}
