//! Loom tries everything that memory may do to the rings and the bell, with few threads and short rings.
//!
//! The two modules are the crate's, compiled with loom's atomics.
#![allow(dead_code, reason = "the crate uses more of the modules")]

#[path = "../src/bell.rs"]
mod bell;
#[path = "../src/ring.rs"]
mod ring;

/// Loom's atomics, with full sequential consistency. Loom treats sequentially consistent accesses as acquire and release
/// only, but it supports the fence that makes up for it after each write. (This does not show that the loads must be
/// sequentially consistent too.)
mod sync {
    /// Reads the thread's own value without an access that loom sees. Otherwise loom would not try what may happen between
    /// two accesses of the other thread while this thread reads its own value.
    pub(crate) fn own(count: &atomic::AtomicU64) -> u64 {
        count.own()
    }

    pub(crate) mod atomic {
        use std::sync::atomic::AtomicU64 as Plain;

        pub(crate) use loom::sync::atomic::{Ordering, fence};

        /// A loom atomic, and the value last stored.
        pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64, Plain);

        impl AtomicU64 {
            pub(crate) fn new(value: u64) -> Self {
                Self(loom::sync::atomic::AtomicU64::new(value), Plain::new(value))
            }

            pub(crate) fn own(&self) -> u64 {
                self.1.load(Ordering::Relaxed)
            }

            pub(crate) fn load(&self, order: Ordering) -> u64 {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: u64, order: Ordering) {
                self.1.store(value, Ordering::Relaxed);
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
use ring::{Copied, Ring, Rings};
use sync::atomic::Ordering;

/// An event of two words: its number, and a value derived from it. Any other pair is torn.
fn check(words: [u64; 2], number: u64) {
    assert_eq!(words, [number, 100 + number], "torn, or not the expected event");
}

/// Reads the available events, and checks that they are whole and in order.
fn read(ring: &Ring<2>, cursor: &mut u64, max: usize) {
    let range = ring.readable(*cursor, max);
    let words: Vec<_> = (range.first..range.end)
        .map(|event| ring.slot(event).each_ref().map(|word| word.load(Ordering::Relaxed)))
        .collect();
    let overwritten = ring.overwritten(range);
    for (words, event) in words.into_iter().zip(range.first..).skip(overwritten) {
        check(words, event);
    }
    *cursor = range.end;
}

#[test]
fn events_are_read_whole_in_order_and_once() {
    loom::model(|| {
        let ring = Arc::new(Ring::<2>::new(2));
        let writer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || (0..3_u64).for_each(|number| ring.push([number, 100 + number]))
        });
        let mut cursor = 0;
        read(&ring, &mut cursor, 2);
        writer.join().expect("the writer");
        // Of three events a ring of two slots still has the last one. The cursor counts all three.
        read(&ring, &mut cursor, 2);
        assert_eq!(cursor, 3);
    });
}

#[test]
fn several_rings_are_read_in_the_order_of_their_writer() {
    loom::model(|| {
        let rings = Arc::new(Rings::<2>::new([4, 2]));
        let writer = thread::spawn({
            let rings = Arc::clone(&rings);
            move || (0..3_u64).for_each(|number| rings.publish(usize::from(number == 1), [0, 100 + number]))
        });
        // Copy one event at a time, so that more events remain than were copied.
        let mut copied: [Copied<2, 1>; 2] = Default::default();
        let (mut cursors, mut next) = ([0; 2], 0);
        let mut take = || {
            rings.take_in_order(0..2, &mut cursors, &mut copied, |which, event| {
                check(*event, next);
                assert_eq!(which, usize::from(next == 1));
                next += 1;
            })
        };
        assert_eq!(take(), 0);
        writer.join().expect("the writer");
        (0..3).for_each(|_| assert_eq!(take(), 0));
        assert_eq!(next, 3);
    });
}

#[test]
fn a_waiting_subscriber_is_rung_for() {
    loom::model(|| {
        let shared = Arc::new((Rings::<2>::new([2]), Bell::new()));
        let publisher = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.publish(0, [0, 100]);
                shared.1.strike(1)
            }
        });
        let (rings, bell) = &*shared;
        // A subscriber looks, arms, looks again, and then waits.
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
