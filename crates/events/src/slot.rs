//! How a value's fields lie in the words of a ring's slot: one after the other, in halves of words, each aligned to its
//! own length.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Kind;

/// Words of a slot: the event's number among all of its publisher's, and the event.
pub(crate) const SLOT_WORDS: usize = 8;
/// Words of an event.
pub(crate) const EVENT_WORDS: usize = SLOT_WORDS - 1;
/// An event as words.
pub(crate) type EventWords = [u64; EVENT_WORDS];

/// Where an event's words are read from, each only if it is needed.
pub trait Words {
    /// The event's word at this place.
    fn word(&self, at: usize) -> u64;
}

/// A slot as it was copied.
impl Words for [u64; SLOT_WORDS] {
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self[1 + at]
    }
}

/// A slot in its ring, which may be overwritten meanwhile: so a word may have any value.
impl Words for [AtomicU64; SLOT_WORDS] {
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self[1 + at].load(Ordering::Relaxed)
    }
}

/// An event that knows its kind and its bytes. Sealed: the kinds are those of this crate.
pub trait Packed: Copy {
    /// Its kind.
    const KIND: Kind;
    /// Half words it takes.
    #[doc(hidden)]
    const HALVES: usize;
    /// Writes it.
    #[doc(hidden)]
    fn pack(self, words: &mut EventWords);
    /// Reads what `pack` wrote, and makes something of any other words, too.
    #[doc(hidden)]
    fn unpack(words: &impl Words) -> Self;
}

/// A part of an event.
pub(crate) trait Field: Copy {
    /// Half words; 1, or an even number.
    const HALVES: usize;
    fn put(self, words: &mut EventWords, at: usize);
    fn get(words: &impl Words, at: usize) -> Self;
}

/// Where a field of `halves` begins that comes after `at` half words.
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
