//! Which requests are traced: head sampling, and its limit.
//!
//! A request whose caller names a parent is traced if the caller's trace is; any other one with the probability that is set. Invariant: of
//! each kind at most the set number begin in a second, whatever callers send, so an outsider who marks every request as sampled costs no
//! more than that, and takes nothing from the traces that begin here.

use std::{
    cell::Cell,
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::time::Instant;

use super::parent::Parent;

/// A share in parts of so many.
pub const WHOLE: u32 = 1_000_000;

/// What is decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampled {
    /// It is traced.
    Yes,
    /// It is not.
    No,
    /// It would be, but for the limit.
    OverLimit,
}

pub(super) struct Sampler {
    /// A random number of 63 bits below this is a yes.
    below: u64,
    /// Traces that begin here, and traces that callers began.
    limits: [PerSecond; 2],
}

impl Sampler {
    /// Samples this share (in parts of [`WHOLE`]), and at most this many traces a second of each kind.
    pub(super) fn new(share: u32, most_per_s: u32) -> Self {
        let below = (1 << 63) / u64::from(WHOLE) * u64::from(share);
        Self {
            below: if share == WHOLE { 1 << 63 } else { below },
            limits: [(); 2].map(|()| PerSecond::new(most_per_s)),
        }
    }

    pub(super) fn decide(&self, parent: Option<&Parent>, now: Instant) -> Sampled {
        let wanted = match parent {
            Some(parent) => parent.is_sampled,
            None => random() >> 1 < self.below,
        };
        match wanted {
            false => Sampled::No,
            true if self.limits[usize::from(parent.is_some())].take(now) => Sampled::Yes,
            true => Sampled::OverLimit,
        }
    }
}

/// At most so many in each second. Seconds begin at fixed instants, so at most twice as many come within any second.
struct PerSecond {
    most: u32,
    began: Instant,
    /// The second that was last counted, in the upper half, and the count.
    counted: AtomicU64,
}

impl PerSecond {
    fn new(most: u32) -> Self {
        Self { most, began: Instant::now(), counted: AtomicU64::new(0) }
    }

    fn take(&self, now: Instant) -> bool {
        let second = now.saturating_duration_since(self.began).as_secs() & u64::from(u32::MAX);
        let next = |counted: u64| {
            let count = if counted >> 32 == second { counted & u64::from(u32::MAX) } else { 0 };
            (count < u64::from(self.most)).then_some(second << 32 | (count + 1))
        };
        self.counted.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// A random number, by SplitMix64. It decides what is sampled, and is no secret.
fn random() -> u64 {
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn count(sampler: &Sampler, parent: Option<&Parent>, now: Instant, of: u32) -> (u32, u32) {
        let decided: Vec<_> = (0..of).map(|_| sampler.decide(parent, now)).collect();
        let of_kind = |kind| u32::try_from(decided.iter().filter(|is| **is == kind).count()).expect("few");
        (of_kind(Sampled::Yes), of_kind(Sampled::OverLimit))
    }

    #[test]
    fn a_share_is_sampled() {
        let now = Instant::now();
        for (share, least, most) in
            [(0, 0, 0), (10_000, 800, 1_200), (500_000, 49_000, 51_000), (WHOLE, 100_000, 100_000)]
        {
            let (yes, over) = count(&Sampler::new(share, 1_000_000), None, now, 100_000);
            assert!((least..=most).contains(&yes) && over == 0, "{share}: {yes}");
        }
    }

    #[test]
    fn the_parent_decides_and_neither_kind_passes_its_limit() {
        let parent = |is_sampled| Parent { trace_id: [1; 16], span_id: [1; 8], is_sampled };
        let (sampler, now) = (Sampler::new(WHOLE, 10), Instant::now());
        assert_eq!(count(&sampler, Some(&parent(false)), now, 100), (0, 0));
        assert_eq!(count(&sampler, Some(&parent(true)), now, 100), (10, 90));
        // Callers who mark all of their requests take nothing from the others.
        assert_eq!(count(&sampler, None, now, 100), (10, 90));
        let later = now + Duration::from_secs(1);
        assert_eq!(count(&sampler, Some(&parent(true)), later, 100), (10, 90));
        assert_eq!(count(&Sampler::new(0, 10), Some(&parent(true)), now, 100), (10, 90));
    }
}
