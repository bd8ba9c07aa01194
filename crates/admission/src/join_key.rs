//! The key of a join: a repeated call with the same key returns the place of the first one.
//!
//! Invariant: a store never has the text that the client made, only its digest.

use std::ops::RangeInclusive;

/// The digest of the key that a client made for one join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinKey(pub [u8; 16]);

impl JoinKey {
    /// How long a key is, in characters. Whoever knows a key gets its place, so it must not be guessed: 22 characters hold 128 random
    /// bits.
    pub const LEN: RangeInclusive<usize> = 22..=64;

    /// How long a store remembers a key, in milliseconds.
    pub const KEPT_MS: u64 = 120_000;

    /// How many keys of a zone a store remembers in each minute. The joins of people beyond it have no keys.
    pub const MOST_A_MINUTE: u32 = 600_000;

    /// The key that a client sent: letters, digits, `-` and `_`. None if it is no key.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_key = Self::LEN.contains(&text.len()) && text.bytes().all(is_right);
        is_key.then(|| {
            let digest = blake3::derive_key("weir 2026 the key of a join", text.as_bytes());
            Self(*digest.first_chunk().expect("a digest has 32 bytes"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_long_enough_and_plain() {
        let key = "0123456789abcdefABCD-_";
        assert!(JoinKey::of(key).is_some());
        assert!(JoinKey::of("7f1d0f4e-5b1e-4f62-9e0a-3f7f3c0d1a2b").is_some(), "a UUID");
        assert_ne!(JoinKey::of(key), JoinKey::of("1123456789abcdefABCD-_"));
        let long = "a".repeat(65);
        for wrong in ["", "0123456789abcdefABCD-", &long, "0123456789abcdef ABCD-_", "0123456789abcdefABCD-é"]
        {
            assert_eq!(JoinKey::of(wrong), None, "{wrong}");
        }
    }
}
