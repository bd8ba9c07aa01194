//! The seed: one value that follows from the checkpoint and the randomness.
//!
//! SHA-256 over three parts, each behind its length in 8 bytes, big-endian: the domain `weir-draw-1/seed`, the text of the
//! checkpoint, the randomness. Invariant: no secret goes in, so nobody could have tried seeds before the randomness was
//! there, and everybody can compute the seed afterwards.

use sha2::{Digest as _, Sha256};

use crate::{checkpoint::Checkpoint, spelling::to_hex};

/// The domain, so that no other use of SHA-256 gives the same value.
const DOMAIN: &[u8] = b"weir-draw-1/seed";

/// What the order follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// The seed of a draw.
    #[must_use]
    pub fn new(checkpoint: &Checkpoint, randomness: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [DOMAIN, checkpoint.text().as_bytes(), randomness] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// 64 digits of lower-case hex.
impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}
