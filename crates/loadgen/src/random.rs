//! Repeatable random numbers: SplitMix64 (Steele, Lea, Flood 2014), seeded by run, worker and user.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of one user.
    #[must_use]
    pub fn new(seed: u64, worker: u16, user: u32) -> Self {
        let mut random =
            Self(seed ^ (u64::from(worker) << 32 | u64::from(user)).wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    #[allow(clippy::cast_precision_loss)]
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform between `from` and `to` seconds, in microseconds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn between_us(&mut self, (from, to): (f64, f64)) -> u64 {
        ((from + (to - from) * self.part()) * 1e6) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_users_have_different_ones() {
        let draw = |seed, worker, user| Random::new(seed, worker, user).next();
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        let mut drawn: Vec<_> = (0..1000).map(|user| draw(1, 0, user)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1000);
    }

    #[test]
    fn numbers_are_uniform_between_their_bounds() {
        let mut random = Random::new(7, 0, 0);
        let drawn: Vec<_> = (0..10_000).map(|_| random.between_us((1.0, 3.0))).collect();
        assert!(drawn.iter().all(|us| (1_000_000..3_000_000).contains(us)));
        let mean = drawn.iter().sum::<u64>() / 10_000;
        assert!((1_970_000..2_030_000).contains(&mean), "{mean}");
    }
}
