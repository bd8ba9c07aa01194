//! How a value's fields lie in the words of a ring's slot: one after the other, in halves of words, each aligned to its
//! own length.

use crate::Kind;

/// Words of a slot: the event's number among all of its publisher's, and the event.
pub(crate) const SLOT_WORDS: usize = 8;
/// Words of an event.
pub(crate) const EVENT_WORDS: usize = SLOT_WORDS - 1;
/// An event as words.
pub(crate) type EventWords = [u64; EVENT_WORDS];

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
    /// Reads what `pack` wrote.
    #[doc(hidden)]
    fn unpack(words: &EventWords) -> Self;
}

/// A part of an event.
pub(crate) trait Field: Copy {
    /// Half words; 1, or an even number.
    const HALVES: usize;
    fn put(self, words: &mut EventWords, at: usize);
    fn get(words: &EventWords, at: usize) -> Self;
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
    fn get(words: &EventWords, at: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "half of the word is meant")]
        let half = (words[at / 2] >> (32 * (at % 2))) as u32;
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
    fn get(words: &EventWords, at: usize) -> Self {
        words[at / 2]
    }
}
