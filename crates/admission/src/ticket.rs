//! A place in a zone's line, as its holder carries it.
//!
//! The holder's token is also the only record of what this holder was told: the store keeps nothing per person
//! but a few bits. That is how a told wait can be kept from growing without a reason.

/// One user's place in one zone's line. Sealed into a token, see [`crate::Sealer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Which life of the zone's line gave it out; another epoch's tickets mean nothing to this line.
    pub epoch: u32,
    /// The number, given out in order of arrival. Below 2^48.
    pub seq: u64,
    /// When it was given out, on the store's clock ([`crate::Now::ms`]). Below 2^48.
    pub issued_ms: u64,
    /// The wait told when it was given out, in seconds; none where none could be told. Below [`Ticket::NEVER_S`].
    pub first_told_s: Option<u32>,
    /// When entry was last told to come, in seconds after `issued_ms`; none where none could be told. Below
    /// [`Ticket::NEVER_S`].
    pub told_s: Option<u32>,
}

impl Ticket {
    /// The first number of seconds too large to be told (194 days).
    pub const NEVER_S: u32 = 0xFF_FFFF;

    /// Bytes of a ticket inside a token.
    pub(crate) const LEN: usize = 22;

    /// The bytes, big-endian: epoch 4, seq 6, issued 6, first told 3, told 3.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let told = |s: Option<u32>| s.unwrap_or(Self::NEVER_S).min(Self::NEVER_S).to_be_bytes();
        bytes[..4].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[4..10].copy_from_slice(&self.seq.to_be_bytes()[2..]);
        bytes[10..16].copy_from_slice(&self.issued_ms.to_be_bytes()[2..]);
        bytes[16..19].copy_from_slice(&told(self.first_told_s)[1..]);
        bytes[19..].copy_from_slice(&told(self.told_s)[1..]);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let number =
            |range: std::ops::Range<usize>| bytes[range].iter().fold(0, |n, &b| n << 8 | u64::from(b));
        let told = |range| u32::try_from(number(range)).ok().filter(|&s| s < Self::NEVER_S);
        Self {
            epoch: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            seq: number(4..10),
            issued_ms: number(10..16),
            first_told_s: told(16..19),
            told_s: told(19..22),
        }
    }
}
