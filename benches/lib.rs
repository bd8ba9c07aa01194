//! Shared by the benchmarks: lines of a given length, a store in Redis, medians, a counting allocator, and a server for the examples that measure
//! over HTTP.

mod served;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use admission::{Now, PAGE_TICKETS, PAGE_WORDS, PagePolls, Policy, Zone};
use store::redis::{
    Durability, Redis,
    address::{Address, Settings},
};

pub use served::Served;

/// The middle one of some figures, or the higher one of two in the middle.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}

/// A store in the Redis at this address, with the usual settings.
///
/// # Panics
/// If the address is none, or nothing answers there.
pub async fn connect(url: &str) -> Arc<Redis> {
    let address = Address::parse(url).expect("an address");
    let store = Redis::connect(&address, &Settings::default(), Durability::Async).await;
    Arc::new(store.expect("Redis runs"))
}

/// The lengths of lines that figures are given for.
pub const LINES: [(u64, &str); 2] = [(600_000, "600k"), (10_000_000, "10M")];

/// The time of the lines.
pub const NOW: Now = Now { ms: 1_790_000_000_000, unix_ms: 1_790_000_000_000 };

/// The policy of the lines: 600 per minute.
#[must_use]
pub fn policy() -> Policy {
    Policy { admit_per_minute: 600, ..Policy::default() }
}

/// A zone whose slots of the minute are used, with `people` present people waiting.
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

/// The report of a second in which everybody in a line polled.
#[must_use]
pub fn everybody(people: u64) -> Vec<PagePolls> {
    let segments = people.div_ceil(PAGE_TICKETS as u64);
    (0..segments)
        .map(|segment| PagePolls { page: segment, words: Box::new([u64::MAX; PAGE_WORDS]) })
        .collect()
}

/// The report of a second in which every third ticket from `base` to `next` polled. The other thirds poll in the next two
/// seconds.
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

/// The system's allocator, which also counts.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

impl Counting {
    /// Allocations so far.
    #[must_use]
    pub fn allocations() -> u64 {
        ALLOCATIONS.load(Ordering::Relaxed)
    }

    /// Bytes allocated now.
    #[must_use]
    pub fn bytes() -> u64 {
        BYTES.load(Ordering::Relaxed)
    }
}

// SAFETY: all calls go to the system allocator; this only counts.
#[expect(unsafe_code, reason = "an allocator cannot be written without it")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}
