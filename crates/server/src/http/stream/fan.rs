//! The streams of waiting users: one task for each zone that has any, and one view for all of them.
//!
//! Once a second, when the zone's view is news, the task goes over its followers: rank and wait are read from that one
//! view, what is the zone's is formatted once, and each is sent what is its own. Nothing is sent that was said already.
//! The front's followers have appointments, as polls have: the task makes their claims when they are due, and the lane
//! gathers them. So a follower costs no timer, no task and no call to the store of its own.
//!
//! Invariants: a follower is told what a poll of its ticket would be answered; it counts as present only while what it
//! was sent is out, so that who does not read, or is gone, neither holds nor takes a slot; it is in one of three places:
//! behind, in the front, or with a claim.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use admission::{Ticket, ZoneId};
use bytes::Bytes;
use edge::{Outlet, Takeover};
use events::{Bus, Event, Kind, Kinds, Scope, SubscribeError, Subscription};
use gate::{FollowerView, Refusal, Reply, Token, WaitStatus};
use http_body_util::Full;
use hyper::{Response, header::HeaderMap};
use metrics::Gauge;
use store::Store;
use tokio::{
    sync::{Notify, watch},
    task::{JoinSet, yield_now},
    time::{Instant, sleep_until},
};

use super::{HEARTBEAT, RECONNECT, SILENCE, event, head, stop};
use crate::http::{
    App,
    problem::{Problem, UNKNOWN_ZONE},
    token_text, write_waiting, zone_part,
};

/// After so long without a new view, a zone is looked at all the same: time has passed, and the store may be away.
const QUIET: Duration = Duration::from_millis(1_500);

/// How soon a follower is looked at again that is due and has not read what it was sent.
const AGAIN: Duration = Duration::from_secs(1);

/// Followers that are told between two turns of the scheduler: others' requests wait for no more.
const AT_ONCE: usize = 64;

/// What the system keeps for a follower who does not read, in bytes: some ten messages. Older ones are worth nothing.
const UNREAD: usize = 4_096;

/// A user whose system takes nothing for so long is gone: without a word, and in no time that TCP would notice by itself.
const LOST_AFTER: Duration = Duration::from_secs(6);

/// A browser comes back after a time between these, by its ticket, in milliseconds: not all of them at once.
const RETRY_MS: std::ops::Range<u64> = 1_000..3_000;

/// All streams of waiting users.
pub struct Streams {
    fans: Mutex<HashMap<ZoneId, Arc<Fan>>>,
    stop: watch::Sender<bool>,
    open: Gauge,
}

/// What others tell a zone's task.
#[derive(Default)]
struct Fan {
    arrivals: Mutex<Vec<Arrival>>,
    /// There is a new view.
    shown: AtomicBool,
    bell: Notify,
}

/// Somebody who was told just now, and when to ask the store next.
type Arrival = (Follower, Instant);

/// One stream.
struct Follower {
    outlet: Outlet,
    /// As its last token has it.
    ticket: Ticket,
    last: Option<WaitStatus>,
    /// When `last` was sent.
    told_at: Instant,
    /// When anything was.
    sent_at: Instant,
    _counted: Counted,
}

/// A stream in the gauge.
struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// What is guarded here is a list or a map, whole at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// None yet; `open` counts them.
    #[must_use]
    pub fn new(open: Gauge) -> Self {
        Self { fans: Mutex::default(), stop: watch::Sender::new(false), open }
    }

    /// Ends them all, those of operators too, with the advice to come back.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(in crate::http) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// A subscription to what waiting users may hear of.
    ///
    /// # Errors
    /// Where the bus has no room.
    pub fn subscribe(bus: &Bus) -> Result<Subscription, SubscribeError> {
        bus.subscribe("streams", Scope::Public, Kinds::of(&[Kind::ViewShown]))
    }

    /// Wakes a zone's streams when it has a new view. A word that is lost is made good by the next.
    pub async fn follow(&self, mut told: Subscription, bus: &Bus) {
        while let Some(batch) = told.next().await {
            for event in batch.events {
                if let Event::ViewShown(shown) = event
                    && let Some(zone) = bus.zone_id(shown.zone)
                    && let Some(fan) = lock(&self.fans).get(&zone)
                {
                    fan.shown.store(true, Ordering::Relaxed);
                    fan.bell.notify_one();
                }
            }
        }
    }
}

/// A stream for the holder of `ticket`, who is to hear `reply` first. `said` are further fields of its head.
pub(in crate::http) fn open<S: Store>(
    app: Arc<App<S>>,
    zone: ZoneId,
    (reply, ticket): (Reply, Ticket),
    said: HeaderMap,
) -> Response<Full<Bytes>> {
    Takeover::response(move |mut outlet| {
        outlet.limit(UNREAD, LOST_AFTER);
        let now = Instant::now();
        let counted = Counted::new(&app.streams.open);
        let follower = Follower { outlet, ticket, last: None, told_at: now, sent_at: now, _counted: counted };
        let mut text = head(&said);
        let written = writeln!(text, "retry: {}", retry_ms(&ticket));
        debug_assert!(written.is_ok(), "a String takes all");
        if let Some(arrival) = follower.answer(&app, &zone, (reply, ticket), &mut text) {
            arrive(app, zone, arrival);
        }
    })
}

fn retry_ms(ticket: &Ticket) -> u64 {
    // Neighbours come back far apart: the multiplier is that of Fibonacci hashing.
    let spread = ticket.seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    RETRY_MS.start + spread % (RETRY_MS.end - RETRY_MS.start)
}

/// A zone's task as others know it. Where it ends by a fault, they know of none, and the next stream begins another.
struct Known {
    streams: Arc<Streams>,
    zone: ZoneId,
    fan: Arc<Fan>,
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut fans = lock(&self.streams.fans);
        if fans.get(&self.zone).is_some_and(|known| Arc::ptr_eq(known, &self.fan)) {
            fans.remove(&self.zone);
        }
    }
}

/// Hands a stream to its zone's task, which is begun where there is none.
fn arrive<S: Store>(app: Arc<App<S>>, zone: ZoneId, arrival: Arrival) {
    let mut begun = None;
    let mut fans = lock(&app.streams.fans);
    let fan = Arc::clone(fans.entry(zone.clone()).or_insert_with(|| {
        let fan = Arc::default();
        begun = Some(Known { streams: Arc::clone(&app.streams), zone, fan: Arc::clone(&fan) });
        fan
    }));
    // A task ends under this lock only, and with no arrivals left.
    lock(&fan.arrivals).push(arrival);
    drop(fans);
    fan.bell.notify_one();
    // Not under the lock: a runtime that is about to end drops the task at once.
    if let Some(known) = begun {
        tokio::spawn(Round::new(app, known).run());
    }
}

impl Follower {
    /// Sends `text`, and with it what the store or a view answered; tells when to ask next, where the stream goes on.
    fn answer<S: Store>(
        mut self,
        app: &App<S>,
        zone: &ZoneId,
        (reply, ticket): (Reply, Ticket),
        text: &mut String,
    ) -> Option<Arrival> {
        match reply {
            Reply::Entered { token, .. } => {
                write_id(text, &token);
                event(text, "enter", &app.write(zone.as_str(), &reply));
                self.outlet.send(text.as_bytes());
                self.finish();
                None
            }
            Reply::Waiting { token, rank, eta, reason, polling_period_ms, stale } => {
                let wait = WaitStatus { rank, eta, reason, polling_period_ms, stale };
                write_wait(text, &wait, &zone_part(polling_period_ms, stale), Some(&token));
                self.tell(wait, ticket, text);
                let due = Instant::now() + Duration::from_millis(polling_period_ms.into());
                Some((self, due))
            }
        }
    }

    /// Says why there is nothing more to say.
    fn refuse(mut self, problem: &Problem, text: &mut String) {
        text.clear();
        event(text, "problem", &problem.body());
        self.outlet.send(text.as_bytes());
        self.finish();
    }

    /// The server is about to stop: another one goes on.
    fn send_away(mut self, text: &mut String) {
        text.clear();
        event(text, RECONNECT, "{}");
        self.outlet.send(text.as_bytes());
        self.finish();
    }

    /// Ends the stream when all is out.
    fn finish(mut self) {
        if !self.outlet.flush() {
            tokio::spawn(async move { self.outlet.flushed().await });
        }
    }

    fn tell(&mut self, wait: WaitStatus, ticket: Ticket, text: &str) {
        if self.outlet.send(text.as_bytes()) {
            let now = Instant::now();
            (self.last, self.ticket) = (Some(wait), ticket);
            (self.told_at, self.sent_at) = (now, now);
        }
    }

    /// Whether `wait` is worth a message: more than that time passed, or all the time that was told.
    fn is_news(&self, wait: &WaitStatus, ticket: &Ticket, now: Instant) -> bool {
        let Some(last) = &self.last else { return true };
        let shape = |wait: &WaitStatus| (wait.rank, wait.reason, wait.stale, wait.eta.is_some());
        let period = Duration::from_millis(last.polling_period_ms.into());
        shape(last) != shape(wait)
            || self.ticket.told_s != ticket.told_s
            || now.saturating_duration_since(self.told_at) >= period
    }

    /// Says that the connection is alive, where nothing was said for long.
    fn breathe(&mut self, now: Instant) {
        if now.saturating_duration_since(self.sent_at) >= SILENCE && self.outlet.send(HEARTBEAT.as_bytes()) {
            self.sent_at = now;
        }
    }
}

/// The next event's id: the newest token, with which a browser comes back.
fn write_id(text: &mut String, token: &Token) {
    let written = writeln!(text, "id: {}", token_text(token));
    debug_assert!(written.is_ok(), "a String takes all");
}

/// `zone` is what [`zone_part`] made. A token that is no news is left out: browsers keep the last one.
fn write_wait(text: &mut String, wait: &WaitStatus, zone: &str, token: Option<&Token>) {
    if let Some(token) = token {
        write_id(text, token);
    }
    text.push_str("event: wait\ndata: ");
    write_waiting(text, wait.rank, wait.eta, wait.reason, zone);
    text.push_str("\n\n");
}

/// What became of a claim.
type Claimed = (Follower, Result<(Reply, Ticket), Refusal>);

/// A zone's task.
struct Round<S> {
    app: Arc<App<S>>,
    known: Known,
    /// Those who are told from the view.
    behind: Vec<Follower>,
    /// Those whom the store has to be asked about, by when; the number tells those of one instant apart.
    front: BTreeMap<(Instant, u64), Follower>,
    number: u64,
    claims: JoinSet<Claimed>,
    text: String,
}

impl<S: Store> Round<S> {
    fn new(app: Arc<App<S>>, known: Known) -> Self {
        Self {
            app,
            known,
            behind: Vec::new(),
            front: BTreeMap::new(),
            number: 0,
            claims: JoinSet::new(),
            text: String::with_capacity(512),
        }
    }

    /// Until the last stream has ended.
    async fn run(mut self) {
        let mut stopped = self.app.streams.stopped();
        let mut look_at = Instant::now() + QUIET;
        loop {
            let due = self.front.first_key_value().map_or(look_at, |(&(due, _), _)| due.min(look_at));
            let mut claimed = None;
            tokio::select! {
                biased;
                () = stop(&mut stopped) => self.send_away().await,
                Some(done) = self.claims.join_next() => claimed = done.ok(),
                () = self.known.fan.bell.notified() => {}
                () = sleep_until(due) => {}
            }
            if let Some(claimed) = claimed {
                self.settle(claimed);
            }
            self.take_in();
            if self.known.fan.shown.swap(false, Ordering::Relaxed) || look_at <= Instant::now() {
                self.tell_all().await;
                look_at = Instant::now() + QUIET;
            }
            self.claim_due();
            if self.is_over() {
                return;
            }
        }
    }

    /// Whether the task is no more needed; it is not known then any more.
    fn is_over(&self) -> bool {
        if !(self.behind.is_empty() && self.front.is_empty() && self.claims.is_empty()) {
            return false;
        }
        let mut fans = lock(&self.app.streams.fans);
        let over = lock(&self.known.fan.arrivals).is_empty();
        if over {
            fans.remove(&self.known.zone);
        }
        over
    }

    fn take_in(&mut self) {
        let arrivals = mem::take(&mut *lock(&self.known.fan.arrivals));
        for (follower, due) in arrivals {
            self.seat(follower, due);
        }
    }

    /// Gives a follower its place: behind, where a view answers, or in the front.
    fn seat(&mut self, follower: Follower, due: Instant) {
        let view = self.app.gate.follower_view(self.known.zone.as_str());
        if view.is_some_and(|view| view.look(follower.ticket).is_some()) {
            self.behind.push(follower);
        } else {
            self.number += 1;
            self.front.insert((due, self.number), follower);
        }
    }

    /// Tells everybody what the view has of them.
    async fn tell_all(&mut self) {
        let now = Instant::now();
        let Some(view) = self.app.gate.follower_view(self.known.zone.as_str()) else {
            return self.refuse_all();
        };
        let zone = zone_part(view.polling_period_ms(), view.is_stale());
        let mut at = 0;
        while at < self.behind.len() {
            if at % AT_ONCE == AT_ONCE - 1 {
                yield_now().await;
            }
            let follower = &mut self.behind[at];
            if !follower.outlet.flush() {
                // Who has not read what was said is not here.
                if follower.outlet.is_open() {
                    at += 1;
                } else {
                    self.behind.swap_remove(at);
                }
            } else if self.tell_one(at, &view, &zone, now) {
                at += 1;
            } else {
                let follower = self.behind.swap_remove(at);
                self.claim(follower);
            }
        }
        self.front.retain(|_, follower| {
            follower.breathe(now);
            follower.outlet.is_open()
        });
    }

    /// Tells one of those behind; false where the store has to be asked.
    fn tell_one(&mut self, at: usize, view: &FollowerView, zone: &str, now: Instant) -> bool {
        let follower = &mut self.behind[at];
        let Some((wait, ticket)) = view.look(follower.ticket) else { return false };
        if follower.is_news(&wait, &ticket, now) {
            let token = (follower.ticket != ticket).then(|| view.seal(&ticket));
            let period_ms = wait.polling_period_ms;
            let own = (period_ms != view.polling_period_ms()).then(|| zone_part(period_ms, wait.stale));
            self.text.clear();
            write_wait(&mut self.text, &wait, own.as_deref().unwrap_or(zone), token.as_ref());
            follower.tell(wait, ticket, &self.text);
        } else {
            follower.breathe(now);
        }
        true
    }

    /// Asks the store for those whose time has come.
    fn claim_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.front.first_entry()
            && first.key().0 <= now
        {
            let mut follower = first.remove();
            let view = self.app.gate.follower_view(self.known.zone.as_str());
            if follower.outlet.flush() {
                if view.is_some_and(|view| view.look(follower.ticket).is_some()) {
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
        let (app, zone) = (Arc::clone(&self.app), self.known.zone.clone());
        self.claims.spawn(async move {
            let claimed = app.gate.claim(zone.as_str(), follower.ticket).await;
            (follower, claimed)
        });
    }

    fn settle(&mut self, (follower, claimed): Claimed) {
        match claimed {
            Ok(told) => {
                self.text.clear();
                if let Some((follower, due)) =
                    follower.answer(&self.app, &self.known.zone, told, &mut self.text)
                {
                    self.seat(follower, due);
                }
            }
            // The place is kept, and nothing is known of it just now.
            Err(
                Refusal::StoreAway { retry_after_s }
                | Refusal::Busy { retry_after_s }
                | Refusal::Closed { retry_after_s },
            ) => self.seat(follower, Instant::now() + Duration::from_secs(retry_after_s.into())),
            Err(refusal @ (Refusal::UnknownZone | Refusal::BadToken | Refusal::Gone)) => {
                follower.refuse(&refusal.into(), &mut self.text);
            }
        }
    }

    /// The zone is not served any more.
    fn refuse_all(&mut self) {
        let problem = UNKNOWN_ZONE.into();
        for follower in self.behind.drain(..).chain(mem::take(&mut self.front).into_values()) {
            follower.refuse(&problem, &mut self.text);
        }
    }

    /// Ends all streams. Claims that are under way are waited for: who is in hears it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_ends_by_a_fault_is_not_waited_for() {
        let streams = Arc::new(Streams::new(Gauge::noop()));
        let zone = ZoneId::parse("Z").expect("a name");
        let known = |fan: &Arc<Fan>| {
            lock(&streams.fans).insert(zone.clone(), Arc::clone(fan));
            Known { streams: Arc::clone(&streams), zone: zone.clone(), fan: Arc::clone(fan) }
        };
        let [one, two] = [Arc::default(), Arc::default()];
        drop(known(&one));
        assert!(lock(&streams.fans).is_empty());
        let (first, second) = (known(&one), known(&two));
        drop(first);
        assert_eq!(lock(&streams.fans).len(), 1, "the zone's next task is another's");
        drop(second);
        assert!(lock(&streams.fans).is_empty());
    }
}
