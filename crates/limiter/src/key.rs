//! Keys: any bytes of any length.
//!
//! Invariant: no stored key is longer than [`STORED_BYTES`], and different keys stay different.

use std::ops::Deref;

/// The longest key that is stored as it is, in bytes.
const PLAIN_BYTES: usize = 64;

/// The longest stored key, in bytes: a `#` and a digest. It is longer than any plain key, so the two cannot be confused.
const STORED_BYTES: usize = 1 + 2 * blake3::OUT_LEN;

/// A key as it is stored: the key, or its digest.
pub(crate) enum Shortened<'a> {
    Plain(&'a [u8]),
    Digest([u8; STORED_BYTES]),
}

impl<'a> Shortened<'a> {
    pub(crate) fn new(key: &'a [u8]) -> Self {
        if key.len() <= PLAIN_BYTES {
            return Self::Plain(key);
        }
        let mut digest = [b'#'; STORED_BYTES];
        digest[1..].copy_from_slice(blake3::hash(key).to_hex().as_bytes());
        Self::Digest(digest)
    }
}

impl Deref for Shortened<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(key) => key,
            Self::Digest(digest) => digest,
        }
    }
}

/// The longest key that is stored inside a table entry, in bytes.
const INLINE_BYTES: usize = 22;

/// A key in a table. Short keys, for example addresses, need no memory outside the entry.
#[derive(Debug)]
pub(crate) enum Key {
    Inline(u8, [u8; INLINE_BYTES]),
    Boxed(Box<[u8]>),
}

impl Key {
    pub(crate) fn new(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (u8::try_from(key.len()), bytes.get_mut(..key.len())) {
            (Ok(len), Some(inline)) => {
                inline.copy_from_slice(key);
                Self::Inline(len, bytes)
            }
            _ => Self::Boxed(key.into()),
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Boxed(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_stay_different_and_short() {
        let keys: Vec<Vec<u8>> = (0..200).map(|len| vec![b'a'; len]).collect();
        let kept: std::collections::BTreeSet<Vec<u8>> =
            keys.iter().map(|key| Key::new(&Shortened::new(key)).to_vec()).collect();
        assert_eq!(kept.len(), keys.len());
        assert!(kept.iter().all(|key| key.len() <= STORED_BYTES));
        // A digest that is used as a key is another key.
        let digest = Shortened::new(&keys[100]).to_vec();
        assert_ne!(*Shortened::new(&digest), *digest);
    }
}
