//! What earlier lines of a zone taught, as a value of fixed size that a store can keep.
//!
//! Invariant: `from_bytes` accepts only bytes that `to_bytes` can write, so that damaged bytes cannot make waits absurd. What is
//! read back equals what was written to seven digits.

use crate::{
    calibration::{AT_FIRST, Factors, KINDS, LEAST, MOST},
    patience::{AGES, Count, Counts, TOLD},
};

/// The form of the bytes.
const VERSION: u8 = 1;
/// What is kept is replaced if at least this share of it, and so many person-seconds, are other ones.
const NEWS: f64 = 0.02;
const LEAST_NEWS_S: f64 = 60.0;
/// No line counts more people or seconds.
const MOST_COUNTED: f32 = 1e12;

/// What earlier lines of a zone taught about the patience of its people, and about the ranges that were told.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    pub(crate) counts: Counts,
    pub(crate) factors: [Factors; KINDS],
}

/// The bytes are not those of a [`Learned`] of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes do not say what was learnt about a zone; forget them")]
pub struct NotLearned;

impl Default for Learned {
    /// What is known before the first line.
    fn default() -> Self {
        Self { counts: Counts::default(), factors: AT_FIRST }
    }
}

impl Learned {
    /// The number of bytes.
    pub const LEN: usize = 1 + 4 * 2 * (AGES + TOLD + KINDS);

    /// How much it rests on, in people who left. A time in which hardly anybody left counts as if so many had left as usual.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.counts.weight()
    }

    /// Whether this is worth keeping in place of `kept`: some part of it rests on other people.
    #[must_use]
    pub fn has_news(&self, kept: &Self) -> bool {
        let (mut all, mut other) = (0.0, 0.0);
        for (count, before) in self.counts.ages.iter().zip(&kept.counts.ages) {
            all += count.exposed;
            other += (count.exposed - before.exposed).abs();
        }
        other > LEAST_NEWS_S && other > NEWS * all
    }

    /// The bytes: a version, and numbers of four bytes each, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let counts = self.counts.ages.iter().chain(&self.counts.first_5s_by_told_wait);
        let counts = counts.flat_map(|count| [count.left, count.exposed]);
        let numbers = counts.chain(self.factors.iter().flat_map(|of| [of.early, of.late]));
        let mut bytes = [VERSION; Self::LEN];
        for (bytes, number) in bytes[1..].chunks_exact_mut(4).zip(numbers) {
            #[expect(clippy::cast_possible_truncation, reason = "seven digits are enough")]
            bytes.copy_from_slice(&(number as f32).to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Learned::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`NotLearned`] for other lengths, versions, and numbers out of range.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotLearned> {
        let numbers = match bytes {
            [VERSION, numbers @ ..] if bytes.len() == Self::LEN => numbers,
            _ => return Err(NotLearned),
        };
        let (numbers, _) = numbers.as_chunks();
        let numbers: Vec<f32> = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let (counted, factors) = numbers.split_at(2 * (AGES + TOLD));
        #[expect(clippy::cast_possible_truncation, reason = "of a few digits")]
        let factor_range = LEAST as f32..=MOST as f32;
        if counted.iter().any(|number| !(0.0..=MOST_COUNTED).contains(number))
            || factors.iter().any(|number| !factor_range.contains(number))
        {
            return Err(NotLearned);
        }
        let count = |i: usize| Count { left: counted[2 * i].into(), exposed: counted[2 * i + 1].into() };
        let factor = |i: usize| Factors { early: factors[2 * i].into(), late: factors[2 * i + 1].into() };
        Ok(Self {
            counts: Counts {
                ages: std::array::from_fn(count),
                first_5s_by_told_wait: std::array::from_fn(|i| count(AGES + i)),
            },
            factors: std::array::from_fn(factor),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn learned(numbers: &[f32]) -> Learned {
        let mut counts = Counts::default();
        let all = counts.ages.iter_mut().chain(&mut counts.first_5s_by_told_wait);
        for (count, pair) in all.zip(numbers.chunks(2)) {
            *count = Count { left: pair[0].into(), exposed: pair[1].into() };
        }
        Learned { counts, factors: [Factors { early: LEAST, late: MOST }; KINDS] }
    }

    proptest! {
        #[test]
        fn what_was_learnt_is_read_back(numbers in proptest::collection::vec(0.0..MOST_COUNTED, 2 * (AGES + TOLD))) {
            let bytes = learned(&numbers).to_bytes();
            let read = Learned::from_bytes(&bytes).expect("written by this version");
            prop_assert_eq!(read.to_bytes(), bytes);
            prop_assert_eq!(read.counts, learned(&numbers).counts);
        }

        #[test]
        fn damaged_bytes_are_refused_or_harmless(at in 0..Learned::LEN, to: u8) {
            let mut bytes = learned(&[5.0; 2 * (AGES + TOLD)]).to_bytes();
            bytes[at] = to;
            if let Ok(read) = Learned::from_bytes(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn only_news_are_worth_keeping() {
        let kept = learned(&[500.0; 2 * (AGES + TOLD)]);
        let nearly = learned(&[505.0; 2 * (AGES + TOLD)]);
        let news = learned(&[520.0; 2 * (AGES + TOLD)]);
        assert!(!kept.has_news(&kept) && !nearly.has_news(&kept) && news.has_news(&kept));
        let nothing = Learned::default();
        assert!(!learned(&[1.0; 2 * (AGES + TOLD)]).has_news(&nothing), "one person is no news");
        assert!(kept.has_news(&nothing));
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = learned(&[5.0; 2 * (AGES + TOLD)]).to_bytes();
        assert_eq!(Learned::from_bytes(&bytes[1..]), Err(NotLearned));
        assert_eq!(Learned::from_bytes(&[]), Err(NotLearned));
        let with = |at: usize, number: f32| {
            let mut bytes = bytes;
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            Learned::from_bytes(&bytes).is_err()
        };
        assert!(with(1, -1.0) && with(1, f32::NAN) && with(1, f32::INFINITY) && with(Learned::LEN - 4, 0.0));
    }
}
