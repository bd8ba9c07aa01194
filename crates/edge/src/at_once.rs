//! Futures that are nearly always ready at once, without a task.
//!
//! Invariant: a future that is not ready is given back as it is, and may go on in a task.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// Polls futures of one kind, one after the other, in the same memory: they are large.
pub(crate) struct AtOnce<F>(Option<Pin<Box<F>>>);

/// What one poll of a future gave.
pub(crate) enum Polled<F: Future> {
    Ready(F::Output),
    /// It goes on where it is awaited.
    Pending(Pin<Box<F>>),
    Panicked,
}

impl<F: Future> AtOnce<F> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    pub(crate) fn poll(&mut self, future: F) -> Polled<F> {
        let mut future = match self.0.take() {
            Some(mut space) => {
                space.set(future);
                space
            }
            None => Box::pin(future),
        };
        let mut cx = Context::from_waker(Waker::noop());
        // A future that panicked is not used again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
            Ok(Poll::Ready(output)) => {
                self.0 = Some(future);
                Polled::Ready(output)
            }
            Ok(Poll::Pending) => Polled::Pending(future),
            Err(_) => Polled::Panicked,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_future_that_is_not_ready_goes_on_elsewhere() {
        async fn double(number: oneshot::Receiver<u32>) -> u32 {
            number.await.expect("a number") * 2
        }
        let mut at_once = AtOnce::new();
        let ready = |number| {
            let (send, receive) = oneshot::channel();
            send.send(number).expect("somebody receives");
            receive
        };
        for number in 1..3 {
            assert!(matches!(at_once.poll(double(ready(number))), Polled::Ready(n) if n == number * 2));
        }
        let (send, receive) = oneshot::channel();
        let Polled::Pending(later) = at_once.poll(double(receive)) else { panic!("there is no number") };
        assert!(matches!(at_once.poll(double(ready(5))), Polled::Ready(10)), "others go on");
        send.send(7).expect("somebody receives");
        assert_eq!(later.await, 14);
    }

    #[test]
    fn a_panic_ends_one_future() {
        let divided = async |by: u32| 6_u32.checked_div(by).expect("a number that divides");
        let mut at_once = AtOnce::new();
        assert!(matches!(at_once.poll(divided(0)), Polled::Panicked));
        assert!(matches!(at_once.poll(divided(2)), Polled::Ready(3)));
    }
}
