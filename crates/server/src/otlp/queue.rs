//! What waits to be sent: bounded, so that a collector that is slow or away costs no more memory than this.
//!
//! Invariant: offering never waits. What finds the queue full is dropped and counted.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::metrics::{Deliveries, Dropped, Signal};

/// The end of a queue where items go in.
pub(super) struct Queue<T> {
    sender: mpsc::Sender<T>,
    signal: Signal,
    pub(super) deliveries: Arc<Deliveries>,
}

impl<T> Queue<T> {
    /// A queue of at most `most` items, and its other end.
    pub(super) fn new(
        most: usize,
        signal: Signal,
        deliveries: &Arc<Deliveries>,
    ) -> (Self, mpsc::Receiver<T>) {
        let (sender, receiver) = mpsc::channel(most);
        (Self { sender, signal, deliveries: Arc::clone(deliveries) }, receiver)
    }

    pub(super) fn offer(&self, item: T) {
        if self.sender.try_send(item).is_err() {
            self.deliveries.dropped(self.signal, Dropped::Full, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts() {
        let deliveries = Arc::new(Deliveries::default());
        let (queue, mut waiting) = Queue::new(2, Signal::Logs, &deliveries);
        (0..5).for_each(|n| queue.offer(n));
        assert_eq!(deliveries.lost(Signal::Logs, Dropped::Full), 3);
        assert_eq!([waiting.try_recv().ok(), waiting.try_recv().ok()], [Some(0), Some(1)]);
        queue.offer(5);
        assert_eq!(waiting.try_recv().ok(), Some(5));
    }
}
