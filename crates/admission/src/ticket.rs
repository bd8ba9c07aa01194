//! A ticket: one user's number in a zone's line, as its holder carries it.
//!
//! The token is also the only record of the wait that its holder was told, because the store keeps only a few bits per
//! person. Servers use that record to keep the told wait from growing without a reason.
//!
//! Invariant: `from_bytes` reverses `to_bytes` for every ticket within the limits of its fields.

use crate::FirstTold;

/// One user's number in one zone's line. [`crate::Sealer`] seals it into a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The epoch of the line that issued the ticket. Other lines of the zone do not accept it.
    pub epoch: u32,
    /// The number, in the order of arrival. Below 2^48.
    pub seq: u64,
    /// When it was issued, in milliseconds on the store's clock ([`crate::Now::ms`]). Below 2^48.
    pub issued_ms: u64,
    /// The wait that was told first, from that instant on, and its range: at the join, or at the first poll that could be told one. `None`
    /// if there was none yet.
    pub first_told: Option<FirstTold>,
    /// The last told instant of entry, in seconds after `issued_ms`; `None` if there was no estimate. Below
    /// [`Ticket::NEVER_S`].
    pub told_s: Option<u32>,
}

impl Ticket {
    /// The smallest number of seconds that cannot be told (194 days). In the bytes it stands for `None`.
    pub const NEVER_S: u32 = 0xFF_FFFF;

    /// A ticket whose holder was told nothing yet.
    #[must_use]
    pub const fn new(epoch: u32, seq: u64, issued_ms: u64) -> Self {
        Self { epoch, seq, issued_ms, first_told: None, told_s: None }
    }

    /// Bytes of a ticket inside a token.
    pub(crate) const LEN: usize = 22;

    /// The bytes, big-endian: epoch 4, seq 6, issued 6, first told 3, told 3.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let told = |s: Option<u32>| s.unwrap_or(Self::NEVER_S).min(Self::NEVER_S).to_be_bytes();
        bytes[..4].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[4..10].copy_from_slice(&self.seq.to_be_bytes()[2..]);
        bytes[10..16].copy_from_slice(&self.issued_ms.to_be_bytes()[2..]);
        bytes[16..19].copy_from_slice(&FirstTold::to_bits(self.first_told).to_be_bytes()[1..]);
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
            first_told: u32::try_from(number(16..19)).ok().and_then(FirstTold::from_bits),
            told_s: told(19..22),
        }
    }
}
