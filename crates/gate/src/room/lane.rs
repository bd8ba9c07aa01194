//! A zone's lane to the store: one task that sends the calls of all holders.
//!
//! Calls that arrive while a call is in flight go out together as the next one. A beat goes out every second, or more often, while
//! anybody waits or is known to be inside, while the store is away, and until a minute after the last entry; a zone that nobody
//! uses costs nothing. Orders come before joins and claims, however many wait.
//!
//! Invariants: every call is answered, with the store's answer or its error; a call whose caller has gone is not sent; while the
//! store is away, only beats and orders are sent to it.

use std::sync::{Arc, Weak};

use admission::{Claim, Departure, JoinKey, Leaver, Policy, Ticket, Verdict};
use events::{Joined, StoreCall};
use store::{JoinedOnce, Line, MAX_BATCH, StoreError};
use tokio::{
    sync::mpsc,
    time::{Duration, Instant, sleep, sleep_until},
};

use super::{
    Room,
    calls::{Answer, Answered, Call, ClaimOutcome, JoinOutcome, NewTicket, away},
    orders::Orders,
    publish::saturating,
};
use crate::{caught::caught, trips::Sent};

/// How old a view becomes before it is renewed, at most. Its age adds to the time that a holder may be silent. It is also the
/// time between two attempts at a store that is away.
const BEAT: Duration = Duration::from_secs(1);

/// When to renew a view that was asked for at `began` and has come, or not, now. Where people ask often, a view is renewed twice in the
/// shortest period that they are told, so that also one that comes from far away is newer than what they heard before
/// ([`CurrentView::is_behind`]). A store that takes long to answer gets half of that time between two beats.
///
/// [`CurrentView::is_behind`]: super::current_view::CurrentView::is_behind
fn next_beat(began: Instant, policy: &Policy, is_away: bool) -> Instant {
    let now = Instant::now();
    if is_away {
        return now + BEAT;
    }
    let pause = BEAT.min(Duration::from_millis(policy.near_period_ms().into()) / 2);
    (began + pause).max(now + pause / 2)
}

/// What goes out with the next calls.
#[derive(Default)]
struct Batch {
    joins: Vec<(Option<JoinKey>, Answer<JoinOutcome>)>,
    finds: Vec<(JoinKey, Answer<Option<Ticket>>)>,
    claims: Vec<(Claim, Answer<ClaimOutcome>)>,
    leavers: Vec<(Leaver, Answer<Departure>)>,
    /// How many batches went to the store.
    sent: u64,
}

impl Batch {
    fn add(&mut self, call: Call) {
        match call {
            Call::Join(key, answer) => self.joins.push((key, answer)),
            Call::Find(key, answer) => self.finds.push((key, answer)),
            Call::Claim(claim, answer) => self.claims.push((claim, answer)),
            Call::Leave(leaver, answer) => self.leavers.push((leaver, answer)),
        }
    }

    fn is_empty(&self) -> bool {
        [self.joins.len(), self.finds.len(), self.claims.len(), self.leavers.len()] == [0; 4]
    }

    fn is_full(&self) -> bool {
        [self.joins.len(), self.finds.len(), self.claims.len(), self.leavers.len()].contains(&MAX_BATCH)
    }

    /// Refuses all calls, none of which was sent.
    fn refuse(&mut self, error: &StoreError) {
        self.refuse_joins(error, None);
        refuse(self.finds.drain(..).map(|(_, answer)| answer), error, None);
        refuse(self.claims.drain(..).map(|(_, answer)| answer), error, None);
        refuse(self.leavers.drain(..).map(|(_, answer)| answer), error, None);
    }

    fn refuse_joins(&mut self, error: &StoreError, batch: Option<Sent>) {
        refuse(self.joins.drain(..).map(|(_, answer)| answer), error, batch);
    }

    /// The store has answered a batch of so many calls, which was sent at `at`.
    fn answered(&mut self, calls: usize, at: Instant, ok: bool) -> Sent {
        self.sent += 1;
        Sent { number: self.sent, calls: saturating(calls as u64), at, answered: Instant::now(), ok }
    }
}

fn refuse<T>(answers: impl Iterator<Item = Answer<T>>, error: &StoreError, batch: Option<Sent>) {
    for answer in answers {
        let _ = answer.send(Answered { answer: Err(error.clone()), batch });
    }
}

/// Runs until the room is gone or the server stops. A lane that panics begins again: its zone counts as away until the next beat,
/// and nobody loses anything but an answer.
pub(super) async fn run<L: Line>(
    room: Weak<Room<L>>,
    mut calls: mpsc::Receiver<Call>,
    orders: Arc<Orders>,
    mut opened: bool,
) {
    while let Err(panic) = caught(serve(&room, &mut calls, &orders, opened)).await {
        let Some(lives) = room.upgrade() else { return };
        tracing::error!(zone = %lives.zone, panic, "the task of a zone panicked, which is a fault of this server; it begins again");
        lives.note_trouble(&StoreError::Away(format!("the server's task of the zone panicked: {panic}")));
        drop(lives);
        sleep(BEAT).await;
        opened = true;
    }
}

async fn serve<L: Line>(
    room: &Weak<Room<L>>,
    calls: &mut mpsc::Receiver<Call>,
    orders: &Orders,
    opened: bool,
) {
    let mut beat_at = Instant::now() + BEAT;
    let mut batch = Batch::default();
    let mut idle = !opened;
    loop {
        let call = tokio::select! {
            biased;
            call = calls.recv() => match call {
                Some(call) => Some(call),
                None => return,
            },
            () = orders.given() => None,
            () = sleep_until(beat_at), if !idle => None,
        };
        if let Some(call) = call {
            batch.add(call);
        }
        while !batch.is_full()
            && let Ok(call) = calls.try_recv()
        {
            batch.add(call);
        }
        // This also counts a call that came in beside the timer: its ticket has to be watched.
        let used = !batch.is_empty();
        let Some(room) = room.upgrade() else { return };
        if idle && used {
            idle = false;
            beat_at = beat_at.max(Instant::now());
        }
        let orders = orders.take();
        let departed = leave(&room, &mut batch).await;
        // The beat goes first. It reports who polled while the store was slow, before the store decides about others.
        let (began, mut beaten) = (Instant::now(), true);
        if let Some(policy) = orders.open {
            open(&room, policy).await;
        } else if room.is_open()
            && (room.take_unreported()
                || orders.renew
                || departed.iter().any(|(_, departure, _)| *departure == Departure::Place)
                || orders.verify_policy.is_some()
                || orders.retire.is_some()
                || (!idle && beat_at <= Instant::now()))
        {
            beat(&room).await;
            // Another server that opened the zone during the change may have put the old policy there last.
            if let Some(policy) = orders.verify_policy
                && !room.is_away()
                && room.policy() != policy
            {
                open(&room, policy).await;
            }
        } else {
            beaten = false;
        }
        // Whoever gave up a place has none in the view either, once that is answered.
        for (answer, departure, batch) in departed {
            let _ = answer.send(Answered { answer: Ok(departure), batch: Some(batch) });
        }
        for done in orders.completion_waiters {
            // The caller may have gone.
            let _ = done.send(());
        }
        if beaten {
            let view = &room.current().view;
            beat_at = next_beat(began, &view.policy, room.is_away());
            let is_empty = view.occupancy.is_none_or(|people| people.most == 0);
            // A state that is lost within a minute of an entry is rebuilt by those who were told of it.
            let is_quiet = view.tally.waiting == 0 && is_empty && !view.has_entries();
            idle = !used && !room.is_stale() && is_quiet;
        }
        if room.is_away() {
            batch.refuse(&away());
        } else {
            find(&room, &mut batch).await;
            join(&room, &mut batch).await;
            enter(&room, &mut batch).await;
            if room.is_away() {
                // A beat at once shows whether the call or the store failed.
                (idle, beat_at) = (false, Instant::now());
            }
        }
        if let Some(done) = orders.retire {
            // What was not reported may still be somebody's, so this server stays one that may have heard it.
            let is_told = !room.is_open() || (!room.is_stale() && retire(&room).await);
            let _ = done.send(is_told);
            return;
        }
        // The zone's keeper says when to open it. Until then there is nothing to beat.
        idle |= !room.is_open();
    }
}

async fn join<L: Line>(room: &Room<L>, batch: &mut Batch) {
    batch.joins.retain(|(_, answer)| !answer.is_closed());
    if batch.joins.is_empty() {
        return;
    }
    let keys = batch.joins.iter().map(|(key, _)| *key).collect();
    let asked = Instant::now();
    let joined = room.timed(StoreCall::Join, batch.joins.len(), room.line.join_once(keys)).await;
    room.note_answer(asked, &joined);
    let sent = batch.answered(batch.joins.len(), asked, joined.is_ok());
    match joined {
        Ok(JoinedOnce { earlier, mut joined }) => {
            debug_assert_eq!(earlier.len(), batch.joins.len(), "each caller is answered");
            room.forecast.estimate(&mut joined.verdicts, &joined.slots, joined.at_ms);
            let (epoch, first, at_ms, policy) = (joined.epoch, joined.first, joined.at_ms, joined.policy);
            let count = saturating(joined.verdicts.len() as u64);
            let mut entered = 0;
            for (seq, verdict) in (first..).zip(&joined.verdicts) {
                if let Verdict::Entered(entry) = verdict {
                    entered += 1;
                    room.note_admitted(epoch, seq, *entry, at_ms, policy);
                }
            }
            if count > 0 {
                room.bus.publish(Joined { zone: room.id, epoch, first, count, entered, at_ms });
            }
            let mut new = (first..).zip(joined.verdicts);
            for ((_, answer), earlier) in batch.joins.drain(..).zip(earlier) {
                let outcome = match earlier {
                    Some(ticket) => JoinOutcome::Earlier(ticket),
                    None => {
                        let (seq, verdict) = new.next().expect("who has no earlier ticket has a new one");
                        JoinOutcome::New(NewTicket { ticket: Ticket::new(epoch, seq, at_ms), verdict })
                    }
                };
                let _ = answer.send(Answered { answer: Ok(outcome), batch: Some(sent) });
            }
        }
        // A full line concerns no claim.
        Err(StoreError::Full) => batch.refuse_joins(&StoreError::Full, Some(sent)),
        // The claims are refused too, instead of waiting for another failure.
        Err(error) => {
            batch.refuse_joins(&error, Some(sent));
            batch.refuse(&error);
        }
    }
}

/// Finds the tickets of earlier joins.
async fn find<L: Line>(room: &Room<L>, batch: &mut Batch) {
    batch.finds.retain(|(_, answer)| !answer.is_closed());
    if batch.finds.is_empty() {
        return;
    }
    let keys = batch.finds.iter().map(|(key, _)| *key).collect();
    let asked = Instant::now();
    let found = room.timed(StoreCall::Find, batch.finds.len(), room.line.joined_before(keys)).await;
    room.note_read(asked, &found);
    let sent = batch.answered(batch.finds.len(), asked, found.is_ok());
    match found {
        Ok(tickets) => {
            for ((_, answer), ticket) in batch.finds.drain(..).zip(tickets) {
                let _ = answer.send(Answered { answer: Ok(ticket), batch: Some(sent) });
            }
        }
        Err(error) => {
            refuse(batch.finds.drain(..).map(|(_, answer)| answer), &error, Some(sent));
            batch.refuse(&error);
        }
    }
}

async fn enter<L: Line>(room: &Room<L>, batch: &mut Batch) {
    batch.claims.retain(|(_, answer)| !answer.is_closed());
    if batch.claims.is_empty() {
        return;
    }
    let claims = batch.claims.iter().map(|&(claim, _)| claim).collect();
    let asked = Instant::now();
    let decided = room.timed(StoreCall::Enter, batch.claims.len(), room.line.enter(claims)).await;
    room.note_answer(asked, &decided);
    let sent = batch.answered(batch.claims.len(), asked, decided.is_ok());
    match decided {
        Ok(mut decided) => {
            debug_assert_eq!(decided.verdicts.len(), batch.claims.len(), "each caller is answered");
            room.forecast.estimate(&mut decided.verdicts, &decided.slots, decided.at_ms);
            for ((claim, answer), verdict) in batch.claims.drain(..).zip(decided.verdicts) {
                if let Verdict::Entered(entry) = verdict {
                    room.note_admitted(claim.epoch, claim.seq, entry, decided.at_ms, decided.policy);
                }
                let outcome = ClaimOutcome { verdict, at_ms: decided.at_ms, drawn: decided.drawn };
                let _ = answer.send(Answered { answer: Ok(outcome), batch: Some(sent) });
            }
        }
        Err(error) => {
            refuse(batch.claims.drain(..).map(|(_, answer)| answer), &error, Some(sent));
            batch.refuse(&error);
        }
    }
}

/// Lets holders leave. Returns what to answer.
async fn leave<L: Line>(room: &Room<L>, batch: &mut Batch) -> Vec<(Answer<Departure>, Departure, Sent)> {
    batch.leavers.retain(|(_, answer)| !answer.is_closed());
    if batch.leavers.is_empty() || room.is_away() {
        return Vec::new();
    }
    // Each once, however many callers ask for it.
    let mut leavers: Vec<Leaver> = batch.leavers.iter().map(|(leaver, _)| *leaver).collect();
    leavers.sort_unstable();
    leavers.dedup();
    let asked = Instant::now();
    let call = room.line.leave(leavers.clone());
    let departures = room.timed(StoreCall::Leave, leavers.len(), call).await;
    room.note_answer(asked, &departures);
    let sent = batch.answered(leavers.len(), asked, departures.is_ok());
    match departures {
        Ok(departures) => {
            let departed = batch.leavers.drain(..).filter_map(|(leaver, answer)| {
                let found = leavers.binary_search(&leaver).ok()?;
                let departure = *departures.get(found)?;
                if departure == Departure::Visit {
                    room.visitors.leave(leaver.claim.seq);
                }
                Some((answer, departure, sent))
            });
            departed.collect()
        }
        Err(error) => {
            refuse(batch.leavers.drain(..).map(|(_, answer)| answer), &error, Some(sent));
            Vec::new()
        }
    }
}

/// Reports who is active inside.
async fn report_visits<L: Line>(room: &Room<L>) {
    let seen = room.visitors.take();
    let asked = Instant::now();
    let call = room.line.visits(seen.clone());
    let reported = room.timed(StoreCall::Visits, seen.len(), call).await;
    room.note_read(asked, &reported);
    match reported {
        Ok(left) => room.visitors.set_left(left),
        // It is made again with the next one.
        Err(_) => room.visitors.give_back(&seen),
    }
}

async fn beat<L: Line>(room: &Room<L>) {
    let current = room.current();
    // The view after it counts who left.
    if !room.is_away() && room.visitors.is_due(current.view.policy.max_active > 0) {
        report_visits(room).await;
    }
    let polls = current.polls.drain();
    let polled = polls
        .iter()
        .map(|page| page.words.iter().map(|word| word.count_ones() as usize).sum::<usize>())
        .sum();
    // A failed report is made again with the next beat.
    let again = polls.clone();
    let longest_period_ms = room.period_to_announce(&current.view);
    let beat = room.timed(StoreCall::Beat, polled, room.line.beat(polls, longest_period_ms));
    let beaten = room.replace_view(beat).await;
    if beaten.is_err() {
        current.polls.give_back(again);
        room.restore_unannounced(longest_period_ms);
    }
    if matches!(beaten, Err(StoreError::UnknownZone)) && room.is_open() {
        open(room, current.view.policy).await;
    }
}

/// Whether the store was told that this server stops.
async fn retire<L: Line>(room: &Room<L>) -> bool {
    let asked = Instant::now();
    let retired = room.timed(StoreCall::Retire, 1, room.line.retire()).await;
    room.note_answer(asked, &retired);
    retired.is_ok()
}

async fn open<L: Line>(room: &Room<L>, policy: Policy) {
    let opened = room.timed(StoreCall::Open, 1, room.line.open(policy));
    // The room notes what went wrong.
    let _ = room.replace_view(opened).await;
}
