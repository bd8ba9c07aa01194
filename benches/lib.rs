//! What the benches share: lines of a given length, and an allocator that counts; and a server, for the
//! examples that measure over HTTP.

mod served;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

use admission::{Forecast, Now, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, View, Zone};

pub use served::Served;

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

/// What a server knows of a zone after a beat.
pub fn view(zone: &mut Zone) -> View {
    let sight = zone.beat(&[], NOW);
    Forecast::new(&policy(), NOW.ms).observe(sight, zone.window())
}

/// The report that everybody of a line polled.
#[must_use]
pub fn everybody(people: u64) -> Vec<PagePolls> {
    let segments = people.div_ceil(PAGE_TICKETS as u64);
    (0..segments)
        .map(|segment| PagePolls { page: segment, words: Box::new([u64::MAX; PAGE_WORDS]) })
        .collect()
}

/// The report of a second in which every third ticket from `base` to `next` polled; the other thirds poll in the
/// next two.
#[must_use]
pub fn third(base: u64, next: u64, second: u64) -> Vec<PagePolls> {
    let pages = base / PAGE_TICKETS as u64..next.div_ceil(PAGE_TICKETS as u64);
    let bits = [0, 1, 2].map(|from| (from..64).step_by(3).fold(0_u64, |bits, bit| bits | 1 << bit));
    let page = |segment: u64| {
        let mut words = Box::new([0; PAGE_WORDS]);
        for (word, first) in words.iter_mut().zip((segment * PAGE_TICKETS as u64..).step_by(64)) {
            *word = bits[usize::try_from((second + 2 * first) % 3).expect("below 3")];
        }
        PagePolls { page: segment, words }
    };
    pages.map(page).collect()
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
