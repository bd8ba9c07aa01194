//! The shuffle of `weir-draw-1`: Fisher-Yates in the form of Durstenfeld (Communications of the ACM 7, 1964, algorithm 235),
//! with words of `ChaCha20` (RFC 8439, the seed as key, nonce 0, counter from 0).
//!
//! Invariants: if the words are uniform, each of the `m!` orders comes with exactly the same probability. The same seed gives
//! the same order in each implementation. It takes 4 bytes a person.

use chacha20::{
    ChaCha20Rng,
    rand_core::{Rng as _, SeedableRng as _},
};

use crate::seed::Seed;

/// The position of each person, from 1: index `r` has that of the person of rank `r` among those in line.
#[must_use]
pub fn positions(seed: &Seed, people: u32) -> Box<[u32]> {
    let mut words = ChaCha20Rng::from_seed(seed.0);
    shuffled(people, || words.next_u32())
}

/// The inverse of [`positions`]: index `p` has the rank of the person at position `p + 1`.
///
/// # Panics
/// If `positions` is not a permutation of 1 to its length.
#[must_use]
pub fn order(positions: &[u32]) -> Box<[u32]> {
    let mut order = vec![u32::MAX; positions.len()];
    for (rank, position) in (0..).zip(positions) {
        let slot = &mut order[*position as usize - 1];
        assert_eq!(*slot, u32::MAX, "position {position} is there twice");
        *slot = rank;
    }
    order.into()
}

/// The numbers 1 to `people`, shuffled by these words.
pub(crate) fn shuffled(people: u32, mut word: impl FnMut() -> u32) -> Box<[u32]> {
    let mut positions: Box<[u32]> = (1..=people).collect();
    for last in (1..people).rev() {
        let other = below(last + 1, &mut word);
        positions.swap(last as usize, other as usize);
    }
    positions
}

/// A number below `bound`, exactly uniform: words at or above the largest multiple of the bound are dropped.
fn below(bound: u32, word: &mut impl FnMut() -> u32) -> u32 {
    // 2^32 mod bound words are too many.
    let excess = (u32::MAX % bound + 1) % bound;
    loop {
        let word = word();
        if word <= u32::MAX - excess {
            return word % bound;
        }
    }
}

#[cfg(test)]
mod tests;
