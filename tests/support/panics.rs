//! Panics of tasks that nobody waits for. A runtime swallows them, so that a test would pass although a part of its world has ended.
//!
//! Invariant: a panic of a thread is counted once, before the thread unwinds.

use std::{
    cell::Cell,
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
};

thread_local! {
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

static OF_PROCESS: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            OF_THREAD.set(OF_THREAD.get() + 1);
            OF_PROCESS.fetch_add(1, Ordering::Relaxed);
            say(panic);
        }));
    });
}

/// How often any thread has panicked since [`watch`].
pub(crate) fn of_process() -> u64 {
    OF_PROCESS.load(Ordering::Relaxed)
}

/// Runs `world`, whose tasks run on this thread.
///
/// # Panics
/// If any of its tasks panicked.
pub(crate) fn none_in<T>(world: impl FnOnce() -> T) -> T {
    watch();
    let before = OF_THREAD.get();
    let done = world();
    assert_eq!(OF_THREAD.get(), before, "a task of the run panicked; see above");
    done
}

#[test]
fn a_task_that_panics_is_noticed() {
    let world = |fails: bool| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        none_in(|| {
            runtime.block_on(async {
                drop(tokio::spawn(async move { assert!(!fails, "as the test wants") }));
                tokio::task::yield_now().await;
            });
        });
    };
    world(false);
    std::panic::catch_unwind(|| world(true)).expect_err("the task's panic is the test's");
}
