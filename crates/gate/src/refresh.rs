//! Lets a caller wait for a refresh that started after its own change.
//!
//! A refresh is one reading of a cell's register. Invariant: [`Refresh::wait`] returns only after a refresh that began
//! after the call, and whose result is taken in.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{Notify, watch};

/// The refreshes of one watcher.
pub struct Refresh {
    /// Notified when somebody reports that the register changed.
    news: Arc<Notify>,
    /// How many requested refreshes have begun.
    begun: AtomicU64,
    /// The number of the last one that ended.
    ended: watch::Sender<u64>,
}

impl Refresh {
    pub(crate) fn new() -> Self {
        Self { news: Arc::default(), begun: AtomicU64::new(0), ended: watch::Sender::new(0) }
    }

    /// Requests a refresh and waits until its result is taken in. Does not return while the cell is away.
    pub async fn wait(&self) {
        let next = self.begun.load(Ordering::SeqCst) + 1;
        self.news.notify_one();
        // The watcher has the sender too: an error means that the server ends.
        let _ = self.ended.subscribe().wait_for(|ended| *ended >= next).await;
    }

    /// Notify this, and the watcher refreshes at once.
    pub(crate) fn news(&self) -> &Arc<Notify> {
        &self.news
    }

    /// Begins a refresh that was requested; returns its number.
    pub(crate) fn begin(&self) -> u64 {
        1 + self.begun.fetch_add(1, Ordering::SeqCst)
    }

    /// Ends the refresh with this number: its result is taken in.
    pub(crate) fn end(&self, number: u64) {
        self.ended.send_replace(number);
    }
}
