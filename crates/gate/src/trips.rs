//! A call's way through its zone's lane to the store and back, for a caller who wants to see it.
//!
//! Invariant: for a caller who does not watch, nothing is kept, no clock is read and nothing is allocated.

use events::StoreCall;
use tokio::time::Instant;

/// One call that a lane was given.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    /// What the store was asked for.
    pub call: StoreCall,
    /// When the lane got it.
    pub queued: Instant,
    /// The batch that it went into; none if the lane refused it, or did not answer in time.
    pub batch: Option<Sent>,
    /// When the caller had the answer, or stopped waiting for it.
    pub ended: Instant,
}

/// A batch of calls that went to the store together.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its number among the batches of this lane. Calls of one batch have the same.
    pub number: u64,
    /// The calls in it; at least 1.
    pub calls: u32,
    /// When it was sent.
    pub at: Instant,
    /// When the store answered, or its client gave up.
    pub answered: Instant,
    /// Whether the store answered.
    pub ok: bool,
}

/// The trips of one call of a client. A poll from the view makes none; one at the front may make three.
#[derive(Debug, Default)]
pub struct Trips(Option<Vec<Trip>>);

impl Trips {
    /// Keeps every trip.
    #[must_use]
    pub fn watched() -> Self {
        Self(Some(Vec::new()))
    }

    /// Keeps none.
    #[must_use]
    pub fn unwatched() -> Self {
        Self(None)
    }

    /// The trips, in their order.
    #[must_use]
    pub fn all(&self) -> &[Trip] {
        self.0.as_deref().unwrap_or_default()
    }

    /// When a trip begins; none if nobody watches.
    pub(crate) fn begin(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    /// A trip that began at `queued` has ended.
    pub(crate) fn end(&mut self, call: StoreCall, queued: Option<Instant>, batch: Option<Sent>) {
        if let (Some(trips), Some(queued)) = (&mut self.0, queued) {
            trips.push(Trip { call, queued, batch, ended: Instant::now() });
        }
    }
}
