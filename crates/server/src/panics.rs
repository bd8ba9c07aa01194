//! Panics, which are faults of this server: counted, and said in the log.
//!
//! Invariant: a panic of any thread is counted once, whether its task is begun again or not.

use std::{
    panic::{self, PanicHookInfo},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on, and writes each into the log in place of standard error.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| panic::set_hook(Box::new(note)));
}

/// How often a thread of this process has panicked since [`watch`].
#[must_use]
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

fn note(panic: &PanicHookInfo<'_>) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current().name().unwrap_or("without a name").to_owned();
    let message = panic.payload_as_str().unwrap_or("no text");
    tracing::error!(
        place,
        thread,
        message,
        "a task panicked, which is a fault of this server: please report it"
    );
}
