//! Repeatable random choices. The seed is printed, and `WEIR_SEED` sets it.

use std::{
    env,
    hash::{BuildHasher as _, RandomState},
    io::{self, Write as _},
};

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub(crate) struct Random(u64);

impl Random {
    /// Starts with a fresh seed or that of `WEIR_SEED`, and prints it with the name of the test.
    pub(crate) fn seeded(test: &str) -> Self {
        let asked = env::var("WEIR_SEED").ok().map(|text| text.parse().expect("WEIR_SEED is a number"));
        let seed = asked.unwrap_or_else(|| RandomState::new().hash_one(test));
        drop(writeln!(io::stderr(), "{test}: WEIR_SEED={seed}"));
        Self::of(seed)
    }

    /// The choices that follow from a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("64 bits");
        usize::try_from(self.bits() % end).expect("below a usize")
    }

    /// Random bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits().to_le_bytes()[0]).collect()
    }
}
