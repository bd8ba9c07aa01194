//! Publishing does not allocate. A test program by itself, so that nothing else allocates meanwhile.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use events::{Bus, Joined, Kind, Kinds, Scope, ZoneNumber};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system allocator. The only addition is a counter of this thread.
#[expect(unsafe_code, reason = "an allocator cannot be written without unsafe code")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[test]
fn publishing_allocates_nothing() {
    let bus = Bus::new().expect("a bus");
    let mut subscription =
        bus.subscribe("one", Scope::Private, Kinds::of(&[Kind::Joined])).expect("its right");
    let reader = std::thread::spawn(move || while subscription.next_blocking().is_some() {});
    let joined = |first| Joined { zone: ZoneNumber::NONE, epoch: 1, first, count: 1, entered: 0, at_ms: 0 };
    assert!(bus.enlist());
    let before = ALLOCATIONS.get();
    bus.publish(joined(0));
    assert!(ALLOCATIONS.get() > before, "making the ring allocates, and is counted");

    let before = ALLOCATIONS.get();
    for first in 1..100_000 {
        bus.publish(joined(first));
    }
    assert_eq!(ALLOCATIONS.get(), before);
    drop(bus);
    reader.join().expect("the subscriber");
}
