//! What the benches share: lines of a given length, and an allocator that counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

use admission::{Mark, Now, Policy, SEGMENT_TICKETS, SEGMENT_WORDS, Zone};

/// The lines that figures are given for.
pub const LINES: [(u64, &str); 2] = [(600_000, "600k"), (10_000_000, "10M")];

/// The instant the lines are at.
pub const NOW: Now = Now { ms: 1_790_000_000_000, unix_s: 1_790_000_000 };

/// 600 a minute.
#[must_use]
pub fn policy() -> Policy {
    Policy { admit_per_minute: 600, ..Policy::default() }
}

/// A zone where the minute's slots are used, and `people` wait and are present.
#[must_use]
pub fn line(people: u64) -> Zone {
    let mut zone = Zone::new(policy(), 7, NOW);
    let mut left = people + u64::from(policy().admit_per_minute);
    while left > 0 {
        let count = left.min(1_000);
        left -= count;
        zone.join(u32::try_from(count).expect("small"), NOW);
    }
    zone.beat(&[], NOW);
    zone
}

/// The report that everybody of a line polled.
#[must_use]
pub fn everybody(people: u64) -> Vec<Mark> {
    let segments = people.div_ceil(SEGMENT_TICKETS as u64);
    (0..segments).map(|segment| Mark { segment, words: Box::new([u64::MAX; SEGMENT_WORDS]) }).collect()
}

/// The system's allocator, counting.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

impl Counting {
    /// Allocations so far.
    #[must_use]
    pub fn allocations() -> u64 {
        ALLOCATIONS.load(Ordering::Relaxed)
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes() -> u64 {
        BYTES.load(Ordering::Relaxed)
    }
}

// SAFETY: everything is the system allocator's; only numbers are added up beside it.
#[expect(unsafe_code, reason = "an allocator can't be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
