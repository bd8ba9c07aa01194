//! The rounds of drand, a public source of randomness (<https://docs.drand.love>): when a round comes, and whether a
//! signature is that of a round.
//!
//! A round is the BLS signature of a group of operators on the round's number. Nobody knows it before enough of them have
//! signed, and there is only one signature for a round. Invariant: [`Chain::verify`] returns the randomness of exactly this
//! round of this chain, or nothing.

use blst::{
    BLST_ERROR,
    min_sig::{PublicKey, Signature},
};
use sha2::{Digest as _, Sha256};

/// The last round that is announced. It comes after the year 9000, and fits exactly into a number of JSON.
pub(crate) const ROUND_MAX: u64 = 80_000_000_000;

/// The longest time from the announced round to the later one that replaces it, in seconds: a week.
pub(crate) const LATER_MAX_S: u64 = 604_800;

/// A chain of rounds: a group of operators with one public key.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    /// The chain's hash, in lower-case hex.
    pub hash: &'static str,
    /// The public key: a point of G2, compressed.
    public_key: [u8; 96],
    /// When round 1 came, in seconds since 1970.
    pub genesis_unix_s: u64,
    /// The seconds between rounds.
    pub period_s: u64,
}

/// The chain `quicknet` of the League of Entropy, scheme `bls-unchained-g1-rfc9380`. Its values are those that each of its
/// servers publishes at `/CHAIN/info`.
pub const QUICKNET: Chain = Chain {
    hash: "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
    public_key:
        *b"\x83\xcf\x0f\x28\x96\xad\xee\x7e\xb8\xb5\xf0\x1f\xca\xd3\x91\x22\x12\xc4\x37\xe0\x07\x3e\x91\x1f\
        \xb9\x00\x22\xd3\xe7\x60\x18\x3c\x8c\x4b\x45\x0b\x6a\x0a\x6c\x3a\xc6\xa5\x77\x6a\x2d\x10\x64\x51\
        \x0d\x1f\xec\x75\x8c\x92\x1c\xc2\x2b\x0e\x17\xe6\x3a\xaf\x4b\xcb\x5e\xd6\x63\x04\xde\x9c\xf8\x09\
        \xbd\x27\x4c\xa7\x3b\xab\x4a\xf5\xa6\xe9\xc7\x6a\x4b\xc0\x9e\x76\xea\xe8\x99\x1e\xf5\xec\xe4\x5a",
    genesis_unix_s: 1_692_803_367,
    period_s: 3,
};

/// The domain of the chain's signatures.
const DOMAIN: &[u8] = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_";

impl Chain {
    /// When a round comes, in seconds since 1970.
    ///
    /// # Panics
    /// If the round is 0, or more than a week after round 80,000,000,000: no checkpoint and no fallback has it.
    #[must_use]
    pub fn round_unix_s(&self, round: u64) -> u64 {
        assert!((1..=ROUND_MAX + LATER_MAX_S / self.period_s).contains(&round), "round {round}");
        self.genesis_unix_s + (round - 1) * self.period_s
    }

    /// The first round that comes at this instant (seconds since 1970) or later. A draw should take one that comes some
    /// seconds after the freeze, so that everybody can have the checkpoint before it.
    #[must_use]
    pub fn first_round_from(&self, unix_s: u64) -> u64 {
        unix_s.saturating_sub(self.genesis_unix_s).div_ceil(self.period_s) + 1
    }

    /// The randomness of a round, if this is its signature.
    #[must_use]
    pub fn verify(&self, round: u64, signature: &[u8; 48]) -> Option<[u8; 32]> {
        let key = PublicKey::key_validate(&self.public_key).expect("the chain's key is a point of its group");
        let point = Signature::uncompress(signature).ok()?;
        let message = Sha256::digest(round.to_be_bytes());
        let verified = point.verify(true, &message, DOMAIN, &[], &key, false);
        (verified == BLST_ERROR::BLST_SUCCESS).then(|| Sha256::digest(signature).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::{from_hex, to_hex};

    /// Round 1000, as the chain's servers publish it.
    const ROUND_1000: &str =
        "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39";

    #[test]
    fn a_published_round_is_verified() {
        let signature = from_hex(ROUND_1000).expect("hex");
        let randomness = QUICKNET.verify(1_000, &signature).map(|bytes| to_hex(&bytes));
        let published = "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd";
        assert_eq!(randomness.as_deref(), Some(published));
        assert_eq!(QUICKNET.verify(1_001, &signature), None);
        assert!(to_hex(&QUICKNET.public_key).ends_with("eae8991ef5ece45a"));
    }

    #[test]
    fn each_bit_of_a_signature_matters() {
        let signature: [u8; 48] = from_hex(ROUND_1000).expect("hex");
        for bit in 0..8 * signature.len() {
            let mut changed = signature;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(QUICKNET.verify(1_000, &changed), None, "bit {bit}");
        }
        // The point at infinity, in its only spelling.
        let mut infinity = [0; 48];
        infinity[0] = 0xc0;
        assert_eq!(QUICKNET.verify(1_000, &infinity), None);
    }

    /// The signature of round 1000 plus a point outside of the group. The pairing alone accepts it, so without the check of the
    /// group a round would have many signatures, and whoever publishes it could choose among their hashes.
    #[test]
    fn a_signature_outside_of_its_group_is_refused() {
        let outside = "94385d48ab9d338824a523ff7d310fbeeac0184598d56b49f27857bcd3ef91f6ead1c7ef99c9beee47784ebba5c635de";
        let signature = from_hex(outside).expect("hex");
        assert_eq!(QUICKNET.verify(1_000, &signature), None);
        let point = Signature::uncompress(&signature).expect("a point of the curve");
        let key = PublicKey::key_validate(&QUICKNET.public_key).expect("the chain's key");
        let message = Sha256::digest(1_000_u64.to_be_bytes());
        let unchecked = point.verify(false, &message, DOMAIN, &[], &key, false);
        assert_eq!(unchecked, BLST_ERROR::BLST_SUCCESS, "only the check of the group refuses it");
    }

    #[test]
    fn rounds_come_every_three_seconds() {
        assert_eq!(QUICKNET.round_unix_s(1), QUICKNET.genesis_unix_s);
        assert_eq!(QUICKNET.round_unix_s(1_000), 1_692_806_364);
        // The last announced round, and the last one that a fallback can name.
        let (announced, later) = (ROUND_MAX, ROUND_MAX + LATER_MAX_S.div_ceil(QUICKNET.period_s));
        assert_eq!(QUICKNET.round_unix_s(later) - QUICKNET.round_unix_s(announced), LATER_MAX_S);
        assert_eq!((QUICKNET.first_round_from(0), QUICKNET.first_round_from(1_692_803_367)), (1, 1));
        for unix_s in 1_700_000_000..1_700_000_020 {
            let round = QUICKNET.first_round_from(unix_s);
            assert!(QUICKNET.round_unix_s(round) >= unix_s && QUICKNET.round_unix_s(round - 1) < unix_s);
        }
    }
}
