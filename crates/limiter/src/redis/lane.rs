//! A lane to Redis: one call at a time for all who ask meanwhile.
//!
//! What comes in while a call is under way goes out together as the next one; no timer, so an idle lane adds no delay.
//! Invariants: each ask is answered within the patience; at most [`WAITING`] wait; who has gone is not asked for. After a
//! call that found nobody, asks are answered at once for [`PAUSE`], so that a Redis that is away costs one of them its
//! patience and not all.

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

/// Asks in one call, at most: it takes Redis about 0.2 ms.
const TOGETHER: usize = 128;

/// Asks that wait in a lane, at most.
const WAITING: usize = 8_192;

/// For how long nobody is asked who was found away.
const PAUSE: Duration = Duration::from_millis(100);

/// Whoever keeps the buckets does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away;

/// Hears of each answer before whoever asked does: also where nobody waits for it any more.
pub(super) trait Listener: Send + Sync + 'static {
    /// What came of an ask; the call was sent at `sent`.
    fn heard(&self, ask: &Ask, answer: Result<&Answer, Away>, sent: Instant);
}

/// The lanes of a Redis: one, or in a cluster one for each hash tag.
pub(super) struct Lanes<C, L> {
    all: Box<[Arc<Lane>]>,
    shared: Arc<Shared<C, L>>,
    patience: Duration,
}

struct Shared<C, L> {
    calls: Calls<C>,
    listener: L,
    made: AtomicU64,
}

#[derive(Default)]
struct Lane(Mutex<Line>);

#[derive(Default)]
struct Line {
    waiting: VecDeque<(Ask, oneshot::Sender<Result<Answer, Away>>)>,
    /// Somebody drives.
    driven: bool,
    away_until: Option<Instant>,
}

impl<C: Client, L: Listener> Lanes<C, L> {
    pub(super) fn new(count: usize, calls: Calls<C>, listener: L, patience: Duration) -> Self {
        let all = (0..count).map(|_| Arc::default()).collect();
        Self { all, shared: Arc::new(Shared { calls, listener, made: AtomicU64::new(0) }), patience }
    }

    pub(super) fn listener(&self) -> &L {
        &self.shared.listener
    }

    /// Calls made so far.
    pub(super) fn made(&self) -> u64 {
        self.shared.made.load(Ordering::Relaxed)
    }

    /// Has an ask decided.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, Away> {
        let lane = &self.all[ask.tag() % self.all.len()];
        let (answer, answered) = oneshot::channel();
        let drives = {
            let mut line = lane.line();
            let away = line.away_until.is_some_and(|until| Instant::now() < until);
            if away || line.waiting.len() >= WAITING {
                drop(line);
                self.shared.listener.heard(&ask, Err(Away), Instant::now());
                return Err(Away);
            }
            line.waiting.push_back((ask, answer));
            !mem::replace(&mut line.driven, true)
        };
        if drives {
            let turn = Turn { lane: Arc::clone(lane), shared: Arc::clone(&self.shared), over: false };
            tokio::spawn(turn.drive());
        }
        match timeout(self.patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Away),
        }
    }
}

impl Lane {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever drives a lane. However that ends, somebody else may.
struct Turn<C, L> {
    lane: Arc<Lane>,
    shared: Arc<Shared<C, L>>,
    /// It ended in order, and what came in since is somebody else's.
    over: bool,
}

impl<C, L> Drop for Turn<C, L> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut line = self.lane.line();
        line.driven = false;
        // Nobody would take them: whoever waits hears that at once.
        line.waiting.clear();
    }
}

impl<C: Client, L: Listener> Turn<C, L> {
    /// Makes calls until nobody waits.
    async fn drive(mut self) {
        let mut taken = Vec::new();
        loop {
            {
                let mut line = self.lane.line();
                let line = &mut *line;
                while taken.len() < TOGETHER
                    && let Some(next) = line.waiting.pop_front()
                {
                    if !next.1.is_closed() {
                        taken.push(next);
                    }
                }
                if taken.is_empty() {
                    // Under the lock, so that nobody comes in between who believes this goes on.
                    line.driven = false;
                    self.over = true;
                    return;
                }
            }
            let sent = Instant::now();
            self.shared.made.fetch_add(1, Ordering::Relaxed);
            let decided = self.shared.calls.decide(taken.iter().map(|(ask, _)| ask)).await;
            match decided {
                Ok(answers) => {
                    for ((ask, answer), decided) in taken.drain(..).zip(answers) {
                        self.shared.listener.heard(&ask, Ok(&decided), sent);
                        let _ = answer.send(Ok(decided));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "Redis did not decide about a limit");
                    if matches!(error, ClientError::Away(_)) {
                        let mut line = self.lane.line();
                        line.away_until = Some(Instant::now() + PAUSE);
                        taken.extend(line.waiting.drain(..));
                    }
                    for (ask, answer) in taken.drain(..) {
                        self.shared.listener.heard(&ask, Err(Away), sent);
                        let _ = answer.send(Err(Away));
                    }
                }
            }
        }
    }
}
