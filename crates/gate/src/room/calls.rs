//! Requests to the zone's lane.

use std::{sync::atomic::Ordering, time::Duration};

use admission::{Claim, Policy, Ticket, Verdict};
use store::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::{Room, lane};
use crate::reply::Refusal;

/// How long the store may take for a claim. After that the holder is answered from the view.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the store may take for a join. After that the caller is asked to try again. A ticket that was given out
/// meanwhile has no holder, and is evicted.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the lane sends the store's answer.
pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the store decided about one join.
pub(crate) struct JoinedOne {
    pub(crate) epoch: u32,
    pub(crate) seq: u64,
    pub(crate) at_ms: u64,
    pub(crate) verdict: Verdict,
}

/// What the lane is asked to do.
pub(crate) enum Request {
    /// Take a ticket.
    Join(Answer<JoinedOne>),
    /// Decide about a ticket.
    Claim(Claim, Answer<(Verdict, u64)>),
    /// Make the zone known to the store, which keeps it or is to keep it with this policy.
    Open(Policy),
    /// Fetch a view now.
    Renew,
    /// Fetch a view now. If it has another policy than this one, which the store keeps, open the zone with this one.
    Follow(Policy),
    /// Report when everything requested before is done.
    Settle(oneshot::Sender<()>),
}

impl Room {
    /// Sends a request to the lane. A lane whose queue is full drops it, and is asked again with the next refresh.
    pub(crate) fn request(&self, request: Request) {
        let _ = self.requests.try_send(request);
    }

    /// Waits until the lane has done what was requested so far.
    pub(crate) async fn settled(&self) {
        let (done, told) = oneshot::channel();
        self.request(Request::Settle(done));
        let _ = told.await;
    }

    /// Whether the store has to hear of polls before it decides about anybody. The next call returns false.
    pub(super) fn take_unreported(&self) -> bool {
        self.unreported.swap(false, Ordering::Relaxed)
    }

    pub(crate) async fn join(&self) -> Result<JoinedOne, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.call(Request::Join(answer))?;
        within(JOIN_TIMEOUT, answered).await
    }

    pub(crate) async fn claim(&self, ticket: Ticket) -> Result<(Verdict, u64), Refusal> {
        let (answer, answered) = oneshot::channel();
        self.call(Request::Claim(Claim { epoch: ticket.epoch, seq: ticket.seq }, answer))?;
        within(CLAIM_TIMEOUT, answered).await
    }

    fn call(&self, request: Request) -> Result<(), Refusal> {
        if self.is_away() {
            return Err(lane::away().into());
        }
        Ok(self.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => ended(),
        })?)
    }
}

/// Awaits the lane's answer for a limited time.
async fn within<T>(
    limit: Duration,
    answered: oneshot::Receiver<Result<T, StoreError>>,
) -> Result<T, Refusal> {
    match tokio::time::timeout(limit, answered).await {
        Ok(answer) => Ok(answer.unwrap_or_else(|_| Err(ended()))?),
        Err(_) => Err(StoreError::Away("no answer in time".to_owned()).into()),
    }
}

fn ended() -> StoreError {
    StoreError::Away("the zone's lane has ended".to_owned())
}
