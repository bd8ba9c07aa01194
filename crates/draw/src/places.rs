//! The list of places: how many there are, and which of them are in line.
//!
//! Place `i` is bit `i % 8` of byte `i / 8`, the lowest bit first. Invariant: bits beyond the last place are zero, so a list
//! has one spelling.

use std::sync::Arc;

use crate::{PLACES_MAX, fault::Fault};

/// After so many bytes of the bitmap the number of people before is remembered.
const STRIDE: usize = 64;

/// Places numbered from 0 in order of arrival, each with whether it is still in line. A clone shares the list.
#[derive(Clone, PartialEq, Eq)]
pub struct Places {
    count: u32,
    bits: Arc<[u8]>,
    /// The number of people in line before each stride.
    before: Arc<[u32]>,
    in_line: u32,
}

impl Places {
    /// The list of `count` places in this bitmap.
    ///
    /// # Errors
    /// [`Fault::Format`] if there are too many places, if the bitmap has another length than `count / 8`, rounded up, or if a
    /// bit beyond the last place is set.
    pub fn from_bytes(count: u32, bits: impl Into<Arc<[u8]>>) -> Result<Self, Fault> {
        let (bits, what) = (bits.into(), "the list of places");
        if count > PLACES_MAX {
            return Err(Fault::format(
                what,
                format!("it has {count} places; at most {PLACES_MAX} are drawn"),
            ));
        }
        let expected = count.div_ceil(8) as usize;
        if bits.len() != expected {
            let why = format!("it has {} bytes; {count} places take {expected}", bits.len());
            return Err(Fault::format(what, why));
        }
        let used_bits = count % 8;
        if used_bits > 0 && bits.last().is_some_and(|last| last >> used_bits != 0) {
            return Err(Fault::format(what, format!("a bit beyond its {count} places is set")));
        }
        Ok(Self::index(count, bits))
    }

    fn index(count: u32, bits: Arc<[u8]>) -> Self {
        let mut in_line = 0;
        let before = bits
            .chunks(STRIDE)
            .map(|stride| {
                let before = in_line;
                in_line += ones(stride);
                before
            })
            .collect();
        Self { count, bits, before, in_line }
    }

    /// The number of places.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of places that are in line.
    #[must_use]
    pub fn in_line(&self) -> u32 {
        self.in_line
    }

    /// The bitmap.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// Whether this place is in line; not if it does not exist.
    #[must_use]
    pub fn is_in_line(&self, place: u32) -> bool {
        self.bits.get(place as usize / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1)
    }

    /// How many places before this one are in line: its rank from 0. `None` if the place is not in line.
    #[must_use]
    pub fn rank(&self, place: u32) -> Option<u32> {
        if !self.is_in_line(place) {
            return None;
        }
        let byte = place as usize / 8;
        let stride = byte / STRIDE;
        let lower_bits = self.bits[byte] & ((1 << (place % 8)) - 1);
        Some(self.before[stride] + ones(&self.bits[stride * STRIDE..byte]) + lower_bits.count_ones())
    }

    /// The places that are in line, in their order. The place at index `r` has rank `r`.
    pub fn in_line_places(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).filter(|place| self.is_in_line(*place))
    }
}

fn ones(bytes: &[u8]) -> u32 {
    bytes.iter().map(|byte| byte.count_ones()).sum()
}

/// The list of these places, in order of arrival: `true` is in line.
///
/// # Panics
/// If there are more than [`PLACES_MAX`] places.
impl FromIterator<bool> for Places {
    fn from_iter<I: IntoIterator<Item = bool>>(places: I) -> Self {
        let (mut count, mut bits) = (0, Vec::new());
        for is_in_line in places {
            assert!(count < PLACES_MAX, "at most {PLACES_MAX} places are drawn");
            if count % 8 == 0 {
                bits.push(0);
            }
            if let Some(last) = bits.last_mut() {
                *last |= u8::from(is_in_line) << (count % 8);
            }
            count += 1;
        }
        Self::index(count, bits.into())
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Places({} of {} in line)", self.in_line, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_those_in_line_before() {
        let is_in_line = |place: u32| place % 3 != 1 && place % 7 != 2;
        let places: Places = (0..5_000).map(is_in_line).collect();
        let mut rank = 0;
        for place in 0..5_001 {
            let expected = (place < 5_000 && is_in_line(place)).then_some(rank);
            assert_eq!(places.rank(place), expected, "place {place}");
            rank += u32::from(expected.is_some());
        }
        assert_eq!(places.in_line(), rank);
        assert!(places.in_line_places().eq((0..5_000).filter(|place| is_in_line(*place))));
        assert_eq!(places.rank(u32::MAX), None);
    }

    #[test]
    fn a_list_has_one_spelling() {
        let places: Places = [true, false, true].into_iter().collect();
        assert_eq!(places.as_bytes(), [0b101]);
        assert_eq!(Places::from_bytes(3, [0b101]), Ok(places));
        assert!(Places::from_bytes(3, [0b1101]).is_err(), "a bit beyond the last place");
        assert!(Places::from_bytes(3, []).is_err() && Places::from_bytes(3, [5, 0]).is_err());
        assert!(Places::from_bytes(PLACES_MAX + 1, vec![0; 2_500_001]).is_err());
        assert_eq!(Places::from_bytes(0, []).map(|none| (none.count(), none.in_line())), Ok((0, 0)));
    }
}
