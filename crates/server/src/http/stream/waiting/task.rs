//! The task of a zone that has followers.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use admission::Ticket;
use gate::{AnyLine, FollowerView, Refusal, Reply};
use tokio::{
    task::{JoinSet, yield_now},
    time::{Instant, sleep_until},
};

use super::{
    Registration, Streams,
    follower::{Follower, write_wait},
    lock,
};
use crate::{
    http::{problem::UNKNOWN_ZONE, reply::Common, stream::stop},
    stock::InStock,
};

/// After this time without a new view, the task updates its followers anyway, because the store may be away.
const QUIET: Duration = Duration::from_millis(1_500);

/// When a follower that is due, but has not read what was sent, is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Followers that are updated between two turns of the scheduler, so that other requests do not wait for longer.
const AT_ONCE: usize = 64;

/// A claim's follower and result.
type Claimed = (Follower, Result<(Reply, Ticket), Refusal>);

/// The task of a zone that has followers.
pub(super) struct ZoneTask {
    streams: Arc<Streams>,
    registration: Registration,
    /// The followers that are updated from the view.
    behind: Vec<Follower>,
    /// The followers for which the store must be asked, by the time of the question. The number separates equal times.
    front: BTreeMap<(Instant, u64), Follower>,
    number: u64,
    claims: JoinSet<Claimed>,
    text: String,
}

impl ZoneTask {
    pub(super) fn new(streams: Arc<Streams>, registration: Registration) -> Self {
        Self {
            streams,
            registration,
            behind: Vec::new(),
            front: BTreeMap::new(),
            number: 0,
            claims: JoinSet::new(),
            text: String::with_capacity(512),
        }
    }

    /// Runs until the last stream has ended.
    pub(super) async fn run(mut self) {
        let mut stopped = self.streams.stopped();
        let mut update_at = Instant::now() + QUIET;
        loop {
            let due = self.front.first_key_value().map_or(update_at, |(&(due, _), _)| due.min(update_at));
            let mut claimed = None;
            tokio::select! {
                biased;
                () = stop(&mut stopped) => self.send_away().await,
                Some(done) = self.claims.join_next() => claimed = done.ok(),
                () = self.registration.mailbox.wake.notified() => {}
                () = sleep_until(due) => {}
            }
            if let Some(claimed) = claimed {
                self.settle(claimed);
            }
            self.take_in();
            if self.registration.mailbox.has_view.swap(false, Ordering::Relaxed)
                || update_at <= Instant::now()
            {
                self.update_all().await;
                update_at = Instant::now() + QUIET;
            }
            self.claim_due();
            if self.is_over() {
                return;
            }
        }
    }

    /// Whether the task is not needed any more. If so, this also removes its registration.
    fn is_over(&self) -> bool {
        if !(self.behind.is_empty() && self.front.is_empty() && self.claims.is_empty()) {
            return false;
        }
        let mut mailboxes = lock(&self.registration.mailboxes);
        let over = lock(&self.registration.mailbox.arrivals).is_empty();
        if over {
            mailboxes.remove(&self.registration.zone);
        }
        over
    }

    fn take_in(&mut self) {
        let arrivals = mem::take(&mut *lock(&self.registration.mailbox.arrivals));
        for (follower, due) in arrivals {
            self.seat(follower, due);
        }
    }

    /// Puts a follower behind, if a view answers for it, or in the front.
    fn seat(&mut self, follower: Follower, due: Instant) {
        let view = self.streams.gate.follower_view(self.registration.zone.as_str());
        if view.is_some_and(|view| view.poll(follower.ticket).is_some()) {
            self.behind.push(follower);
        } else {
            self.number += 1;
            self.front.insert((due, self.number), follower);
        }
    }

    /// Updates the followers behind from the view.
    async fn update_all(&mut self) {
        let now = Instant::now();
        let Some(view) = self.streams.gate.follower_view(self.registration.zone.as_str()) else {
            return self.refuse_all();
        };
        let stock = self.streams.stock.of(self.registration.zone.as_str());
        let stock = stock.as_deref();
        let (polling_period_ms, stale) = (view.polling_period_ms(), view.is_stale());
        let common = Common { polling_period_ms, stale, opens_in_ms: view.opens_in_ms(), stock }.to_string();
        let mut at = 0;
        while at < self.behind.len() {
            if at % AT_ONCE == AT_ONCE - 1 {
                yield_now().await;
            }
            let follower = &mut self.behind[at];
            if !follower.outlet.flush() {
                // A follower that has not read everything does not count as present.
                if follower.outlet.is_open() {
                    at += 1;
                } else {
                    self.behind.swap_remove(at);
                }
            } else if self.update(at, &view, (&common, stock), now) {
                at += 1;
            } else {
                let follower = self.behind.swap_remove(at);
                self.claim(follower);
            }
        }
        self.front.retain(|_, follower| {
            follower.heartbeat(now);
            follower.outlet.is_open()
        });
    }

    /// Updates one follower behind. Returns false where the store must be asked.
    fn update(
        &mut self,
        at: usize,
        view: &FollowerView<AnyLine>,
        (common, stock): (&str, Option<&InStock>),
        now: Instant,
    ) -> bool {
        let follower = &mut self.behind[at];
        let Some((mut wait, ticket)) = view.poll(follower.ticket) else { return false };
        wait.rank = follower.rank(wait.rank, view.taken_at());
        if follower.is_news(&wait, &ticket, stock, now) {
            // The browser has the token already, unless it remembers an older wait, or a key that will be forgotten sealed it.
            let has_it = follower.ticket == ticket && view.is_current(&follower.token);
            let token = if has_it { follower.token } else { view.seal(&ticket) };
            let own = (wait.polling_period_ms != view.polling_period_ms())
                .then(|| Common::of(&wait, stock).to_string());
            self.text.clear();
            write_wait(&mut self.text, &wait, own.as_deref().unwrap_or(common), &token, stock);
            follower.tell(wait, ticket, token, stock, &self.text);
        } else {
            follower.heartbeat(now);
        }
        true
    }

    /// Asks the store for the followers that are due.
    fn claim_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.front.first_entry()
            && first.key().0 <= now
        {
            let mut follower = first.remove();
            let view = self.streams.gate.follower_view(self.registration.zone.as_str());
            if follower.outlet.flush() {
                if view.is_some_and(|view| view.poll(follower.ticket).is_some()) {
                    self.behind.push(follower);
                } else {
                    self.claim(follower);
                }
            } else if follower.outlet.is_open() {
                self.number += 1;
                self.front.insert((now + AGAIN, self.number), follower);
            }
        }
    }

    fn claim(&mut self, follower: Follower) {
        let (gate, zone) = (Arc::clone(&self.streams.gate), self.registration.zone.clone());
        self.claims.spawn(async move {
            let claimed = gate.poll_for_stream(zone.as_str(), follower.ticket).await;
            (follower, claimed)
        });
    }

    fn settle(&mut self, (follower, claimed): Claimed) {
        match claimed {
            Ok(told) => {
                self.text.clear();
                let zone = &self.registration.zone;
                if let Some((follower, due)) = follower.answer(&self.streams, zone, told, &mut self.text) {
                    self.seat(follower, due);
                }
            }
            // The place is kept, but its state is unknown now.
            Err(
                Refusal::StoreAway { retry_after_s }
                | Refusal::Busy { retry_after_s }
                | Refusal::Closed { retry_after_s }
                | Refusal::Full { retry_after_s },
            ) => self.seat(follower, Instant::now() + Duration::from_secs(retry_after_s.into())),
            Err(
                refusal @ (Refusal::UnknownZone | Refusal::BadToken | Refusal::Gone | Refusal::Elsewhere),
            ) => {
                follower.refuse(&refusal.into(), &mut self.text);
            }
        }
    }

    /// Ends all streams because the zone is not served any more.
    fn refuse_all(&mut self) {
        let problem = UNKNOWN_ZONE.into();
        for follower in self.behind.drain(..).chain(mem::take(&mut self.front).into_values()) {
            follower.refuse(&problem, &mut self.text);
        }
    }

    /// Ends all streams because the server stops. Waits for open claims first, so that followers who entered get their pass.
    async fn send_away(&mut self) {
        while let Some(claimed) = self.claims.join_next().await {
            if let Ok(claimed) = claimed {
                self.settle(claimed);
            }
        }
        self.take_in();
        for follower in self.behind.drain(..).chain(mem::take(&mut self.front).into_values()) {
            follower.send_away(&mut self.text);
        }
    }
}
