//! What all users of a worker share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hyper::{HeaderMap, Uri};
use tokio::sync::Notify;

use crate::{clock::Clock, frame::Task, pool::Pool, profile::Profile, tally::Tally, wire};

/// About so many users look after a draw.
const PAPERS: u32 = 200;

/// The users' common plan, connections and counts.
#[derive(Debug)]
pub struct Crowd {
    /// The zone.
    pub zone: String,
    /// The profile.
    pub profile: Profile,
    /// The paths of the two calls: `wait` and `entry`.
    pub paths: [Uri; 2],
    /// The path of streams.
    pub stream_path: String,
    /// The draw of the run, if there is one.
    pub draw: Option<Sample>,
    /// The headers of each call.
    pub headers: HeaderMap,
    /// The number of the worker.
    pub worker: u16,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The clock.
    pub clock: Clock,
    /// The connections.
    pub pool: Pool,
    /// The counts.
    pub tally: Tally,
    /// The number of the next user who starts again.
    pub next: AtomicU32,
    stopping: AtomicBool,
    stopped_us: AtomicU64,
    pub(super) stop: Notify,
}

/// A draw, and which users look after it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The path of the draw.
    pub path: String,
    /// How long before the opening the list is frozen, milliseconds.
    pub frozen_before_ms: u32,
    /// Each user whose number is a multiple of this does.
    pub every: u32,
}

impl Sample {
    /// The sample of a task: [`PAPERS`] users of all workers, evenly over the run.
    fn of(task: &Task) -> Option<Self> {
        let draw = task.draw.as_ref()?;
        Some(Self {
            path: format!("{}{}", task.target.prefix, wire::draw(&task.zone, &draw.event)),
            frozen_before_ms: draw.frozen_before_ms(),
            every: task.profile.users.div_ceil(PAPERS).max(1),
        })
    }
}

impl Crowd {
    /// A crowd of `users` users, numbered from 0.
    ///
    /// # Errors
    /// If the target cannot be called: see [`Pool::new`].
    pub fn new(task: &Task, paths: [Uri; 2], users: u32) -> Result<Self, String> {
        Ok(Self {
            zone: task.zone.clone(),
            profile: task.profile.clone(),
            paths,
            stream_path: format!("{}{}", task.target.prefix, wire::STREAM),
            draw: Sample::of(task),
            headers: task.target.headers()?,
            worker: task.worker,
            seed: task.seed,
            clock: Clock::default(),
            pool: Pool::new(&task.target, task.connections, task.sources.clone())?,
            tally: Tally::default(),
            next: AtomicU32::new(users),
            stopping: AtomicBool::new(false),
            stopped_us: AtomicU64::new(u64::MAX),
            stop: Notify::new(),
        })
    }

    /// Wakes all sleeping users. No further call is made.
    pub fn stop(&self) {
        self.stopped_us.fetch_min(self.clock.now_us(), Ordering::SeqCst);
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.notify_waiters();
    }

    /// Whether [`Self::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The current time, at most the time of [`Self::stop`]: later, users only wait for their end.
    #[must_use]
    pub fn run_us(&self) -> u64 {
        self.clock.now_us().min(self.stopped_us.load(Ordering::SeqCst))
    }

    /// Sleeps until this time; false if the run ended before.
    pub(super) async fn sleep_until(&self, us: u64) -> bool {
        let stop = self.stop.notified();
        if self.is_stopping() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep_until(self.clock.at(us)) => true,
            () = stop => false,
        }
    }
}
