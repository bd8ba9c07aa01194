//! Secrets that are kept as their digest.
//!
//! A plain digest suffices for secrets that cannot be guessed. Invariants: digests are compared in constant time; `Debug` does not
//! show one.

use std::fmt;

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, SHA256_OUTPUT_LEN, digest},
};

/// The SHA-256 of a token or another secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest([u8; SHA256_OUTPUT_LEN]);

impl SecretDigest {
    /// The digest of a secret.
    #[must_use]
    pub fn of(secret: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, secret).as_ref());
        Self(bytes)
    }

    /// Whether this is the digest of `shown`. Takes the same time wherever they differ.
    #[must_use]
    pub fn is_of(&self, shown: &[u8]) -> bool {
        self.is_same(&Self::of(shown))
    }

    /// Whether both are the same. Takes the same time wherever they differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    /// Reads 64 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a digest)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_knows_its_secret() {
        let digest = SecretDigest::of(b"0123456789abcdef");
        assert_eq!(SecretDigest::parse(&digest.to_string()), Some(digest));
        assert!(digest.is_of(b"0123456789abcdef") && !digest.is_of(b"0123456789abcdeF"));
        assert_eq!((SecretDigest::parse("12"), SecretDigest::parse(&"x".repeat(64))), (None, None));
        assert!(!format!("{digest:?}").contains(&digest.to_string()));
    }
}
