//! A lane to Redis: one call at a time. Asks that come meanwhile share the next call.
//!
//! There is no timer, so an idle lane adds no delay.
//!
//! Invariants: each ask is answered within the time limit. At most [`MAX_WAITING`] asks wait. An ask whose caller has left
//! is not sent. After a call that did not reach Redis, asks fail at once for [`PAUSE`], so one group of asks waits for the
//! timeout and not every group.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis_script::{Client, ClientError};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::call::{Answer, Ask, Calls};

/// The largest number of asks in one call. Redis needs about 0.2 ms for them.
const MAX_BATCH: usize = 128;

/// The largest number of asks that wait in a lane.
const MAX_WAITING: usize = 8_192;

/// How long asks fail at once after a call that did not reach Redis.
const PAUSE: Duration = Duration::from_millis(100);

/// Redis did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away;

/// Is called with each answer before the caller gets it, even if the caller has left.
pub(super) trait Observer: Send + Sync + 'static {
    /// The answer to an ask. The call was sent at `sent`.
    fn answered(&self, ask: &Ask, answer: Result<&Answer, Away>, sent: Instant);
}

/// The lanes to one Redis: one, or in a cluster one for each hash tag.
pub(super) struct Lanes<C, L> {
    all: Box<[Arc<Lane>]>,
    shared: Arc<Shared<C, L>>,
    time_limit: Duration,
}

struct Shared<C, L> {
    calls: Calls<C>,
    observer: L,
    /// How many calls were made.
    made: AtomicU64,
}

#[derive(Default)]
struct Lane(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Ask, oneshot::Sender<Result<Answer, Away>>)>,
    /// A task is making calls for this lane.
    is_driven: bool,
    /// Until then, asks fail at once.
    away_until: Option<Instant>,
}

impl<C: Client, L: Observer> Lanes<C, L> {
    pub(super) fn new(count: usize, calls: Calls<C>, observer: L, time_limit: Duration) -> Self {
        let all = (0..count).map(|_| Arc::default()).collect();
        Self { all, shared: Arc::new(Shared { calls, observer, made: AtomicU64::new(0) }), time_limit }
    }

    pub(super) fn observer(&self) -> &L {
        &self.shared.observer
    }

    /// How many calls were made.
    pub(super) fn made(&self) -> u64 {
        self.shared.made.load(Ordering::Relaxed)
    }

    /// Decides an ask.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, Away> {
        let lane = &self.all[ask.tag() % self.all.len()];
        let (answer, answered) = oneshot::channel();
        let drives = {
            let mut queue = lane.queue();
            let away = queue.away_until.is_some_and(|until| Instant::now() < until);
            if away || queue.waiting.len() >= MAX_WAITING {
                drop(queue);
                self.shared.observer.answered(&ask, Err(Away), Instant::now());
                return Err(Away);
            }
            queue.waiting.push_back((ask, answer));
            !mem::replace(&mut queue.is_driven, true)
        };
        if drives {
            let driver = Driver { lane: Arc::clone(lane), shared: Arc::clone(&self.shared), is_done: false };
            tokio::spawn(driver.drive());
        }
        match timeout(self.time_limit, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Away),
        }
    }
}

impl Lane {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that makes calls for a lane. However it ends, another one can follow.
struct Driver<C, L> {
    lane: Arc<Lane>,
    shared: Arc<Shared<C, L>>,
    /// The task has ended in order. Asks that came later belong to the next task.
    is_done: bool,
}

impl<C, L> Drop for Driver<C, L> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut queue = self.lane.queue();
        queue.is_driven = false;
        // No task would send the waiting asks, so they fail at once.
        queue.waiting.clear();
    }
}

impl<C: Client, L: Observer> Driver<C, L> {
    /// Makes calls until no ask waits.
    async fn drive(mut self) {
        let mut taken = Vec::new();
        loop {
            {
                let mut queue = self.lane.queue();
                let queue = &mut *queue;
                while taken.len() < MAX_BATCH
                    && let Some(next) = queue.waiting.pop_front()
                {
                    if !next.1.is_closed() {
                        taken.push(next);
                    }
                }
                if taken.is_empty() {
                    // Set under the lock: an ask that comes later must start a new task.
                    queue.is_driven = false;
                    self.is_done = true;
                    return;
                }
            }
            let sent = Instant::now();
            self.shared.made.fetch_add(1, Ordering::Relaxed);
            let decided = self.shared.calls.decide(taken.iter().map(|(ask, _)| ask)).await;
            match decided {
                Ok(answers) => {
                    for ((ask, answer), decided) in taken.drain(..).zip(answers) {
                        self.shared.observer.answered(&ask, Ok(&decided), sent);
                        let _ = answer.send(Ok(decided));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "Redis did not decide about a limit");
                    if matches!(error, ClientError::Away(_)) {
                        let mut queue = self.lane.queue();
                        queue.away_until = Some(Instant::now() + PAUSE);
                        taken.extend(queue.waiting.drain(..));
                    }
                    for (ask, answer) in taken.drain(..) {
                        self.shared.observer.answered(&ask, Err(Away), sent);
                        let _ = answer.send(Err(Away));
                    }
                }
            }
        }
    }
}
