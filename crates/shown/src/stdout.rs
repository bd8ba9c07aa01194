//! Standard output that was closed before the process began.
//!
//! The standard library opens /dev/null in its place before `main`, and nothing tells that one from a /dev/null that the caller gave. So a
//! function looks before the standard library starts, in each program that has this crate.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::{
    io::{Errno, fcntl_getfd},
    stdio::stdout,
};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the standard library starts. It takes part in nothing else.
#[used]
#[expect(unsafe_code, reason = "only a function in this section runs before the standard library")]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look;

/// Uses nothing of the standard library that has to be started.
extern "C" fn look() {
    WAS_CLOSED.store(fcntl_getfd(stdout()) == Err(Errno::BADF), Ordering::Relaxed);
}

/// Whether standard output was closed when the process began. What is written there is lost, and counts as written.
#[must_use]
pub fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
