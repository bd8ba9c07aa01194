//! A visit: the stay of somebody who entered, as the visitor carries it.
//!
//! A server that checks a request needs nothing else to know that its visitor may go on. Activity moves [`Visit::seen_s`]: the
//! server that sees it gives out the visit anew, with the same beginning. How the store counts visits, and ends one by idleness,
//! is in `inside.rs`.
//!
//! Invariants: a visit ends at the latest `visit_ttl_s` after its beginning, however often it was given out. A clock that was set
//! back ends no visit early, and makes none longer than that.

use crate::Policy;

/// The stay of somebody who entered a zone. [`crate::VisitSealer`] seals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The epoch of the line whose ticket entered.
    pub epoch: u32,
    /// The number of that ticket. Below 2^48.
    pub seq: u64,
    /// When its holder entered, in seconds since 1970. Below 2^40.
    pub began_s: u64,
    /// The last activity that is in the visit, in seconds since 1970. Below 2^40.
    pub seen_s: u64,
    /// A digest of the only client address that may use the visit; 0 where any may.
    pub address: u64,
}

/// What a visit is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitState {
    /// The visitor may go on.
    Open,
    /// The visitor may go on, and should get the visit as it is now: [`Visit::seen_at`].
    Renew,
    /// The visit has ended.
    Ended,
}

impl Visit {
    /// Bytes of a visit inside its seal.
    pub(crate) const LEN: usize = 28;

    /// A part of the idle time: a visit is given out anew when its last activity is older than this, so not at each request.
    const RENEWALS: u64 = 8;

    /// The state at `unix_s`, in seconds since 1970.
    ///
    /// A visit that is open was last given out up to an eighth of the idle time before its visitor's last activity. So it stays open
    /// for nine eighths of that time: at least `visit_idle_s` after the last activity.
    #[must_use]
    pub fn state(&self, policy: &Policy, unix_s: u64) -> VisitState {
        let idle_s = u64::from(policy.visit_idle_s);
        let step_s = idle_s / Self::RENEWALS;
        let silent_s = unix_s.saturating_sub(self.seen_s);
        if unix_s.saturating_sub(self.began_s) >= u64::from(policy.visit_ttl_s) || silent_s >= idle_s + step_s
        {
            VisitState::Ended
        } else if silent_s >= step_s {
            VisitState::Renew
        } else {
            VisitState::Open
        }
    }

    /// The same visit, with activity at `unix_s`. The activity never goes back.
    #[must_use]
    pub fn seen_at(self, unix_s: u64) -> Self {
        Self { seen_s: self.seen_s.max(unix_s), ..self }
    }

    /// The bytes, big-endian: epoch 4, seq 6, began 5, seen 5, address 8.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[4..10].copy_from_slice(&self.seq.to_be_bytes()[2..]);
        bytes[10..15].copy_from_slice(&self.began_s.to_be_bytes()[3..]);
        bytes[15..20].copy_from_slice(&self.seen_s.to_be_bytes()[3..]);
        bytes[20..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let number =
            |range: std::ops::Range<usize>| bytes[range].iter().fold(0, |n, &b| n << 8 | u64::from(b));
        Self {
            epoch: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            seq: number(4..10),
            began_s: number(10..15),
            seen_s: number(15..20),
            address: number(20..28),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN_S: u64 = 1_790_000_000;

    fn policy() -> Policy {
        Policy { visit_ttl_s: 3_600, visit_idle_s: 800, ..Policy::default() }
    }

    fn visit() -> Visit {
        Visit { epoch: 1, seq: 2, began_s: BEGAN_S, seen_s: BEGAN_S, address: 0 }
    }

    /// When a visitor who is active every `every_s` seconds, and last at `last_s` or before, is not let on any more.
    fn ends_s(every_s: u64, last_s: u64) -> u64 {
        let mut visit = visit();
        let mut at_s = BEGAN_S;
        while at_s - BEGAN_S <= last_s {
            match visit.state(&policy(), at_s) {
                VisitState::Ended => return at_s - BEGAN_S,
                VisitState::Renew => visit = visit.seen_at(at_s),
                VisitState::Open => {}
            }
            at_s += every_s;
        }
        (last_s..).find(|s| visit.state(&policy(), BEGAN_S + s) == VisitState::Ended).expect("it ends")
    }

    #[test]
    fn a_visit_ends_after_the_idle_time_and_at_most_an_eighth_later() {
        for every_s in [1, 7, 60, 99, 101, 350, 799] {
            let last_s = 2_000 / every_s * every_s;
            let ends = ends_s(every_s, last_s) - last_s;
            assert!((800..=900).contains(&ends), "active every {every_s} s: ends {ends} s after the last");
        }
    }

    #[test]
    fn activity_makes_no_visit_longer_than_its_limit() {
        for every_s in [1, 60, 300] {
            let ends = ends_s(every_s, 100_000);
            assert!((3_600..3_600 + every_s).contains(&ends), "{ends} s");
        }
    }

    #[test]
    fn a_clock_that_goes_back_ends_nothing_and_renews_nothing() {
        let visit = visit().seen_at(BEGAN_S + 100);
        for back_s in [0, 50, 100, 10_000] {
            let at_s = BEGAN_S + 100 - back_s;
            assert_eq!(visit.state(&policy(), at_s), VisitState::Open);
            assert_eq!(visit.seen_at(at_s), visit);
        }
        assert_eq!(visit.state(&policy(), BEGAN_S + 3_600), VisitState::Ended);
    }
}
