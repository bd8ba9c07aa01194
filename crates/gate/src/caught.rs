//! Panics of a task that must go on.
//!
//! Invariant: what a future panicked with is returned, and the future is not polled again.

use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

/// Runs a future to its end, or to its panic.
///
/// # Errors
/// What it panicked with.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    // After a panic the future is dropped. What it shares with others is behind locks whose users bear a poisoned one.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(text(&*panic))),
    })
    .await
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_returned_and_a_result_too() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let fails = |number: usize| async move {
            tokio::task::yield_now().await;
            [1_u8, 2][number]
        };
        assert_eq!(caught(fails(1)).await, Ok(2));
        let panicked = caught(fails(2)).await.expect_err("out of bounds");
        assert!(panicked.contains("out of bounds"), "{panicked}");
    }
}
