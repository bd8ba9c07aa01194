//! The task by which a library serves one connection.
//!
//! Invariant: a call ends when the task does. Both libraries hand a call to their task through a queue, and never answer one that is
//! queued in the moment in which the task ends: such a call stays in the queue until the last sender is gone, and the connection is one.

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

/// What is said of a connection that ended for no reason that its library knows.
const CLOSED: &str = "the connection was closed";

/// A task that ends when its connection is lost. Dropping this ends the task, and closes the connection.
pub(super) struct Driver {
    task: AbortHandle,
    /// Why the task has ended; `None` while it runs.
    end: watch::Receiver<Option<String>>,
}

impl Driver {
    /// Watches a task. `said` makes of its result why the connection was lost, if that tells.
    pub(super) fn watch<T: Send + 'static>(
        task: JoinHandle<T>,
        said: impl FnOnce(T) -> Option<String> + Send + 'static,
    ) -> Self {
        let (sender, end) = watch::channel(None);
        let driver = Self { task: task.abort_handle(), end };
        tokio::spawn(async move {
            let reason = task.await.ok().and_then(said);
            sender.send_replace(Some(reason.unwrap_or_else(|| CLOSED.to_owned())));
        });
        driver
    }

    /// Waits until the task has ended, and returns why.
    pub(super) async fn ended(&self) -> String {
        let mut end = self.end.clone();
        let reason = end.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        // Without a reason, the runtime is shutting down.
        reason.unwrap_or_else(|| CLOSED.to_owned())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::link::{Command, Link};

    /// Asserts that calls over a connection end with its task. `open` makes a connection that never answers, with this driver.
    pub(in super::super) async fn assert_calls_end<L: Link>(open: impl AsyncFn(Driver) -> L) {
        for count in [1, 2] {
            let driver = Driver::watch(tokio::spawn(std::future::pending::<()>()), |()| None);
            let task = driver.task.clone();
            let connection = open(driver).await;
            let mut call = std::pin::pin!(connection.send(vec![Command::new("PING", []); count]));
            tokio::select! {
                biased;
                answers = &mut call => panic!("nobody answers, but there is an answer: {answers:?}"),
                () = tokio::task::yield_now() => task.abort(),
            }
            let ended = tokio::time::timeout(Duration::from_secs(10), call).await;
            assert_eq!(ended, Ok(Err(CLOSED.to_owned())), "{count} commands");
        }
    }
}
