//! Binds an entry to the first address that asks, so that whoever copies its token begins no second visit elsewhere.

use super::{Claim, Zone};
use crate::Now;

impl Zone {
    /// Binds the entry of a ticket to `address` (not 0), unless it is bound already. Returns the address that it is bound to; 0 if the
    /// ticket has no entry that a claim would return.
    pub fn bind(&mut self, claim: Claim, address: u64, now: Now) -> u64 {
        self.advance(now.ms);
        let is_in = self.is_of_line(claim)
            && self.entries.get(&claim.seq).is_some_and(|entry| self.is_remembered(entry));
        if !is_in {
            return 0;
        }
        *self.bound.entry(claim.seq).or_insert_with(|| {
            self.unsaved.bound.push((claim.seq, address));
            address
        })
    }
}
