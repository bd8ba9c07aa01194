//! The wait and the range that somebody was told first, in 24 bits of a token.
//!
//! When the holder enters, the server compares them with the wait that was had. So the token is the only record, as of the told
//! wait.
//!
//! With a range, the 24 bits of the token's field are: 1, the wait (11 bits), and how far the two ends are from it (6 bits each). The
//! numbers are rounded to the nearest that a few bits can say: the wait to 0.4 %, the distances to 11 %. Without a range, the
//! bits are the seconds. Tokens of servers that knew no range are so; no wait of theirs reached 97 days, so the first bit is 0.
//!
//! Invariant: each value is the same after it was written and read.

/// Says that there is a range.
const RANGED: u32 = 1 << 23;
/// The bits behind the leading one of a wait, and of a distance.
const WAIT_DIGITS: u32 = 7;
const SIDE_DIGITS: u32 = 2;
const WAIT_BITS: u32 = 11;
const SIDE_BITS: u32 = 6;

/// A wait that was told, and its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTold {
    bits: u32,
}

impl FirstTold {
    /// A wait without a range, in seconds.
    #[must_use]
    pub fn exactly(wait_s: u32) -> Self {
        Self { bits: wait_s.min(RANGED - 1) }
    }

    /// A wait and its range, in seconds from the join. They are rounded: see above.
    #[must_use]
    pub fn rounded(wait_s: u32, low_s: u32, high_s: u32) -> Self {
        let wait = short(wait_s, WAIT_DIGITS, WAIT_BITS);
        let early = short(wait_s.saturating_sub(low_s), SIDE_DIGITS, SIDE_BITS);
        let late = short(high_s.saturating_sub(wait_s), SIDE_DIGITS, SIDE_BITS);
        let bits = RANGED | wait << (2 * SIDE_BITS) | early << SIDE_BITS | late;
        // The highest number stands for "nothing was told".
        Self { bits: bits.min(Self::NONE - 1) }
    }

    /// The wait, in seconds from the join.
    #[must_use]
    pub fn wait_s(self) -> u32 {
        if self.bits & RANGED == 0 {
            self.bits
        } else {
            long(self.field(2 * SIDE_BITS, WAIT_BITS), WAIT_DIGITS)
        }
    }

    /// The ends of the range, in seconds from the join, if they are known.
    #[must_use]
    pub fn range_s(self) -> Option<(u32, u32)> {
        let side = |from| long(self.field(from, SIDE_BITS), SIDE_DIGITS);
        let wait_s = self.wait_s();
        (self.bits & RANGED != 0).then(|| (wait_s.saturating_sub(side(SIDE_BITS)), wait_s + side(0)))
    }

    fn field(self, from: u32, bits: u32) -> u32 {
        self.bits >> from & ((1 << bits) - 1)
    }

    const NONE: u32 = 0xFF_FFFF;

    /// As 24 bits.
    pub(crate) fn to_bits(told: Option<Self>) -> u32 {
        told.map_or(Self::NONE, |told| told.bits)
    }

    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        (bits < Self::NONE).then_some(Self { bits })
    }
}

/// The nearest number that can be said with `digits` bits behind the leading one, as `bits` bits: exponent and digits.
fn short(number: u32, digits: u32, bits: u32) -> u32 {
    let most = (1 << bits) - 1;
    let number = number.min(long(most, digits));
    let exponent = (u32::BITS - number.leading_zeros()).saturating_sub(digits + 1);
    // Numbers below the leading digits are exact. Rounding up may need one digit more, which is the next exponent.
    let half = if exponent == 0 { 0 } else { 1 << (exponent - 1) };
    (((number + half) >> exponent) + (exponent << digits)).min(most)
}

/// The number that [`short`] wrote.
fn long(short: u32, digits: u32) -> u32 {
    let exponent = (short >> digits).saturating_sub(1);
    (short - (exponent << digits)) << exponent
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_are_exact_and_the_largest_stays_in_its_bits() {
        for number in 0..8 {
            assert_eq!(long(short(number, SIDE_DIGITS, SIDE_BITS), SIDE_DIGITS), number);
        }
        for number in 0..256 {
            assert_eq!(long(short(number, WAIT_DIGITS, WAIT_BITS), WAIT_DIGITS), number);
        }
        let told = FirstTold::rounded(u32::MAX, 0, u32::MAX);
        assert_eq!(FirstTold::from_bits(FirstTold::to_bits(Some(told))), Some(told));
        assert!(told.wait_s() > 40 * 86_400);
    }

    #[test]
    fn numbers_are_in_order_and_come_back() {
        for (digits, bits) in [(WAIT_DIGITS, WAIT_BITS), (SIDE_DIGITS, SIDE_BITS)] {
            let all: Vec<_> = (0..1 << bits).map(|code| long(code, digits)).collect();
            assert!(all.is_sorted_by(|a, b| a < b), "{digits} digits");
            assert!((0..).zip(&all).all(|(code, &number)| short(number, digits, bits) == code));
        }
    }

    proptest! {
        #[test]
        fn the_range_is_near_the_one_that_was_told(wait_s in 1_u32..100_000, early in 0_u32..100_000, late in 0_u32..100_000) {
            let early = early.min(wait_s);
            let told = FirstTold::rounded(wait_s, wait_s - early, wait_s + late);
            let near = |found: u32, is: u32, part: f64| (f64::from(found) - f64::from(is)).abs() <= part * f64::from(is) + 1.0;
            prop_assert!(near(told.wait_s(), wait_s, 0.004), "{told:?}");
            let (low_s, high_s) = told.range_s().expect("there is a range");
            prop_assert!(near(told.wait_s() - low_s, early, 0.112) && near(high_s - told.wait_s(), late, 0.112), "{told:?}");
            prop_assert_eq!(FirstTold::from_bits(FirstTold::to_bits(Some(told))), Some(told));
        }

        #[test]
        fn seconds_without_a_range_are_exact(wait_s in 0_u32..RANGED) {
            let told = FirstTold::exactly(wait_s);
            prop_assert_eq!((told.wait_s(), told.range_s()), (wait_s, None));
            prop_assert_eq!(FirstTold::to_bits(Some(told)), wait_s, "as servers wrote it that knew no range");
        }
    }
}
