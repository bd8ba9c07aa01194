//! Everything that memory may do to the rings and the bell, with few threads and short rings.
//!
//! The two modules are those of the crate, over loom's atomics instead of the processor's.
#![allow(dead_code, reason = "the crate uses more of the modules")]

#[path = "../src/bell.rs"]
mod bell;
#[path = "../src/ring.rs"]
mod ring;

/// Loom's atomics, where sequentially consistent accesses are what they are elsewhere: loom takes them for acquire and
/// release only, but knows the fence that makes up for it.
mod sync {
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{Ordering, fence};

        pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

        impl AtomicU64 {
            pub(crate) fn new(value: u64) -> Self {
                Self(loom::sync::atomic::AtomicU64::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> u64 {
                if order == Ordering::SeqCst {
                    fence(order);
                }
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, order);
                if order == Ordering::SeqCst {
                    fence(order);
                }
            }

            pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
                let before = self.0.swap(value, order);
                fence(order);
                before
            }

            pub(crate) fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
                let before = self.0.fetch_or(value, order);
                fence(order);
                before
            }
        }
    }
}

use loom::{sync::Arc, thread};

use bell::Bell;
use ring::Rings;

/// An event of two words: its number, and what is derived from it. Anything else is torn.
fn check(words: [u64; 2], number: u64) {
    assert_eq!(words, [number, 100 + number], "torn, or not the event that was due");
}

/// Reads what is there, and holds it against what was pushed: whole, in order, at most once, the rest counted.
fn read(rings: &Rings<2>, cursor: &mut u64, len: usize) {
    let mut words = [[0; 2]; 3];
    let read = rings.ring(0).read(*cursor, &mut words[..len]);
    *cursor += read.lost;
    for words in &words[read.spoiled..read.copied] {
        check(*words, *cursor);
        *cursor += 1;
    }
}

#[test]
fn what_is_read_is_whole_in_order_and_once() {
    loom::model(|| {
        let rings = Arc::new(Rings::<2>::new([2]));
        let writer = thread::spawn({
            let rings = Arc::clone(&rings);
            move || (0..3).for_each(|number| rings.publish(0, [0, 100 + number]))
        });
        let mut cursor = 0;
        read(&rings, &mut cursor, 2);
        writer.join().expect("the writer");
        // Of three, a ring of two has the last one, and the cursor knows of all.
        read(&rings, &mut cursor, 2);
        assert_eq!(cursor, 3);
    });
}

#[test]
fn below_the_count_of_the_published_all_rings_have_everything() {
    loom::model(|| {
        let rings = Arc::new(Rings::<2>::new([4, 4]));
        let writer = thread::spawn({
            let rings = Arc::clone(&rings);
            move || (0..3).for_each(|number| rings.publish(usize::from(number == 1), [0, 100 + number]))
        });
        let known = rings.published();
        let pushed = rings.ring(0).pushed() + rings.ring(1).pushed();
        assert!(pushed >= known);
        let of = |n: u64| (n.div_ceil(2).min(2), u64::from(n > 1));
        assert!(rings.ring(0).pushed() >= of(known).0 && rings.ring(1).pushed() >= of(known).1);
        writer.join().expect("the writer");
    });
}

#[test]
fn who_waits_is_rung_for() {
    loom::model(|| {
        let shared = Arc::new((Rings::<2>::new([2]), Bell::new()));
        let publisher = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let publish = |number| {
                    shared.0.publish(0, [0, 100 + number]);
                    shared.1.strike(1)
                };
                [publish(0), publish(1)].contains(&true)
            }
        });
        let (rings, bell) = &*shared;
        // As a subscriber does: look, arm, look again, wait.
        let look = || {
            let _ = rings.published();
            rings.ring(0).pushed()
        };
        let mut seen = look();
        if seen == 0 {
            bell.arm(1);
            seen = look();
        }
        let rung = publisher.join().expect("the publisher");
        assert!(seen > 0 || rung, "it waits, and nobody rings");
    });
}
