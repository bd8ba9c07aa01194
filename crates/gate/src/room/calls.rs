//! The requests of a room to its lane: the calls of holders, and how long each waits for the store's answer.
//!
//! The functions that begin with `order_` give the lane an order (`orders`). Invariant: while the store is away, no call is queued.

use std::{sync::atomic::Ordering, time::Duration};

use admission::{Claim, Departure, JoinKey, LastDeal, Leaver, Policy, Ticket, Verdict};
use events::StoreCall;
use store::{Line, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::Room;
use crate::{
    reply::Refusal,
    trips::{Sent, Trips},
};

/// How long the store may take for a claim. After that the holder is answered from the view.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the store may take for a join. After that the caller is asked to try again. A ticket that was given out
/// meanwhile has no holder, and is evicted, unless the caller tries again with the same key.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the store may take for a leaver. After that the caller is asked to try again.
pub(super) const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the lane sends the store's answer.
pub(super) type Answer<T> = oneshot::Sender<Answered<T>>;

/// The store's answer to one call, and the batch that the call went into.
pub(super) struct Answered<T> {
    pub(super) answer: Result<T, StoreError>,
    /// None if the lane did not send it.
    pub(super) batch: Option<Sent>,
}

/// What the store decided about one join.
pub(super) enum JoinOutcome {
    /// A new ticket.
    New(NewTicket),
    /// The ticket of an earlier join with the same key.
    Earlier(Ticket),
}

/// A ticket that a join took, and what the store decided about it in the same call.
pub(super) struct NewTicket {
    pub(super) ticket: Ticket,
    pub(super) verdict: Verdict,
}

/// What the store decided about one claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimOutcome {
    pub(super) verdict: Verdict,
    pub(super) at_ms: u64,
    /// By which draw the line was dealt last when it decided.
    pub(super) drawn: LastDeal,
}

/// A holder's call that waits for the store.
pub(super) enum Call {
    /// Take a ticket, or the one that a join with this key took.
    Join(Option<JoinKey>, Answer<JoinOutcome>),
    /// Find the ticket that a join with this key took.
    Find(JoinKey, Answer<Option<Ticket>>),
    /// Decide about a ticket.
    Claim(Claim, Answer<ClaimOutcome>),
    /// Let a holder leave.
    Leave(Leaver, Answer<Departure>),
}

impl<L: Line> Room<L> {
    /// Makes the lane open the zone in the store, which keeps it or is to keep it with this policy.
    pub(crate) fn order_open(&self, policy: Policy) {
        self.orders.give(|pending| pending.open = Some(policy));
    }

    /// Makes the lane fetch a view.
    pub(crate) fn order_renewal(&self) {
        self.orders.give(|pending| pending.renew = true);
    }

    /// Fetches a view, and waits for it for so long. If it does not come, the store is away or slow.
    pub(crate) async fn renewed(&self, within: Duration) {
        self.order_renewal();
        let _ = tokio::time::timeout(within, self.settled()).await;
    }

    /// Makes the lane fetch a view. If that has another policy than this one, which the store keeps, the lane opens the
    /// zone with this one.
    pub(crate) fn order_policy(&self, policy: Policy) {
        self.orders.give(|pending| pending.verify_policy = Some(policy));
    }

    /// Lets the lane report everything, say that this server stops, and end. The receiver hears whether
    /// the store was told.
    pub(crate) fn order_retirement(&self) -> oneshot::Receiver<bool> {
        let (done, retired) = oneshot::channel();
        self.orders.give(|pending| pending.retire = Some(done));
        retired
    }

    /// Waits until the lane has done what was ordered so far, or has failed to.
    pub(crate) async fn settled(&self) {
        let (done, settled) = oneshot::channel();
        self.orders.notify_when_done(done);
        // An error means that the lane has ended.
        let _ = settled.await;
    }

    /// Whether the store has to hear of polls before it decides about anybody. The next call returns false.
    pub(super) fn take_unreported(&self) -> bool {
        self.unreported.swap(false, Ordering::Relaxed)
    }

    pub(super) async fn ask_to_join(
        &self,
        key: Option<JoinKey>,
        trips: &mut Trips,
    ) -> Result<JoinOutcome, Refusal> {
        let ((answer, answered), queued) = (oneshot::channel(), trips.begin());
        self.call(Call::Join(key, answer))?;
        let (answer, batch) = within(JOIN_TIMEOUT, answered).await;
        trips.end(StoreCall::Join, queued, batch);
        Ok(answer?)
    }

    pub(super) async fn ask_for_ticket(
        &self,
        key: JoinKey,
        trips: &mut Trips,
    ) -> Result<Option<Ticket>, Refusal> {
        let ((answer, answered), queued) = (oneshot::channel(), trips.begin());
        self.call(Call::Find(key, answer))?;
        let (answer, batch) = within(CLAIM_TIMEOUT, answered).await;
        trips.end(StoreCall::Find, queued, batch);
        Ok(answer?)
    }

    pub(super) async fn ask_to_enter(
        &self,
        ticket: Ticket,
        trips: &mut Trips,
    ) -> Result<ClaimOutcome, Refusal> {
        let ((answer, answered), queued) = (oneshot::channel(), trips.begin());
        self.call(Call::Claim(Claim { epoch: ticket.epoch, seq: ticket.seq }, answer))?;
        let (answer, batch) = within(CLAIM_TIMEOUT, answered).await;
        trips.end(StoreCall::Enter, queued, batch);
        Ok(answer?)
    }

    pub(super) async fn ask_to_leave(&self, leaver: Leaver, trips: &mut Trips) -> Result<Departure, Refusal> {
        let ((answer, answered), queued) = (oneshot::channel(), trips.begin());
        self.call(Call::Leave(leaver, answer))?;
        let (answer, batch) = within(LEAVE_TIMEOUT, answered).await;
        trips.end(StoreCall::Leave, queued, batch);
        Ok(answer?)
    }

    fn call(&self, call: Call) -> Result<(), Refusal> {
        if self.is_away() {
            return Err(away().into());
        }
        Ok(self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => ended(),
        })?)
    }
}

/// The error of calls that are not even made.
pub(super) fn away() -> StoreError {
    StoreError::Away("it did not answer the last call".to_owned())
}

/// Awaits the lane's answer for a limited time. The batch is none if there is no answer.
async fn within<T>(
    limit: Duration,
    answered: oneshot::Receiver<Answered<T>>,
) -> (Result<T, StoreError>, Option<Sent>) {
    match tokio::time::timeout(limit, answered).await {
        Ok(Ok(Answered { answer, batch })) => (answer, batch),
        Ok(Err(_)) => (Err(ended()), None),
        Err(_) => (Err(StoreError::Away("no answer in time".to_owned())), None),
    }
}

fn ended() -> StoreError {
    StoreError::Away("the zone's lane has ended".to_owned())
}
