//! A zone's lane to the store: one task that asks for everybody.
//!
//! What comes in while a call is in flight goes out together as the next one. A beat goes out every second while
//! anybody waits, the store is away, or the zone was used within the last; a zone that nobody uses costs nothing.
//! Invariants: every ask is answered, by the store's word or its error; one whose caller has gone is not sent; while
//! the store is away, beats alone are sent to it.

use std::{
    mem,
    sync::{Arc, Weak},
};

use admission::{Claim, Policy, Verdict};
use events::{Joined, StoreCall};
use store::{MAX_BATCH, Store, StoreError};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Duration, Instant, sleep_until},
};

use super::{
    JoinedOne,
    room::{Answer, Ask, Room},
};

/// How old a view becomes before it is renewed. Its age adds to what the rules allow a ticket's holder to be silent;
/// it is also the time between two attempts at a store that is away.
const BEAT: Duration = Duration::from_secs(1);

/// What goes out with the next calls.
#[derive(Default)]
struct Batch {
    joins: Vec<Answer<JoinedOne>>,
    claims: Vec<(Claim, Answer<(Verdict, u64)>)>,
    open: Option<Policy>,
    renew: bool,
    kept: Option<Policy>,
    settle: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn take_in(&mut self, ask: Ask) {
        match ask {
            Ask::Join(answer) => self.joins.push(answer),
            Ask::Claim(claim, answer) => self.claims.push((claim, answer)),
            Ask::Open(policy) => self.open = Some(policy),
            Ask::Renew => self.renew = true,
            Ask::Follow(policy) => self.kept = Some(policy),
            Ask::Settle(told) => self.settle.push(told),
        }
    }

    fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.claims.is_empty()
    }

    fn is_full(&self) -> bool {
        self.joins.len() == MAX_BATCH || self.claims.len() == MAX_BATCH
    }

    fn refuse(&mut self, error: &StoreError) {
        refuse(self.joins.drain(..), error);
        refuse(self.claims.drain(..).map(|(_, answer)| answer), error);
    }
}

fn refuse<T>(answers: impl Iterator<Item = Answer<T>>, error: &StoreError) {
    for answer in answers {
        let _ = answer.send(Err(error.clone()));
    }
}

/// Runs until the room is gone.
pub(super) async fn run<S: Store>(
    store: Arc<S>,
    room: Weak<Room>,
    mut asks: mpsc::Receiver<Ask>,
    opened: bool,
) {
    let mut beat_at = Instant::now() + BEAT;
    let mut batch = Batch::default();
    let mut idle = !opened;
    loop {
        let ask = tokio::select! {
            biased;
            ask = asks.recv() => match ask {
                Some(ask) => Some(ask),
                None => return,
            },
            () = sleep_until(beat_at), if !idle => None,
        };
        if let Some(ask) = ask {
            batch.take_in(ask);
        }
        while !batch.is_full()
            && let Ok(ask) = asks.try_recv()
        {
            batch.take_in(ask);
        }
        // Also where the timer woke this up and an ask came in beside it: its ticket has to be watched.
        let used = !batch.is_empty();
        let Some(room) = room.upgrade() else { return };
        if idle && used {
            idle = false;
            beat_at = beat_at.max(Instant::now());
        }
        let (renew, kept) = (mem::take(&mut batch.renew), batch.kept.take());
        // The beat goes first: it tells of those who polled while the store was slow, before others are decided about.
        let mut beaten = true;
        if let Some(policy) = batch.open.take() {
            open(&*store, &room, policy).await;
        } else if room.is_open()
            && (room.take_unheard() || renew || kept.is_some() || (!idle && beat_at <= Instant::now()))
        {
            beat(&*store, &room).await;
            // A server that opened the zone just when it was changed may have told it the policy from before, last.
            if let Some(policy) = kept
                && !room.is_away()
                && room.policy() != policy
            {
                open(&*store, &room, policy).await;
            }
        } else {
            beaten = false;
        }
        for told in batch.settle.drain(..) {
            // Who asked may have gone.
            let _ = told.send(());
        }
        if beaten {
            beat_at = Instant::now() + BEAT;
            idle = !used && !room.is_stale() && room.shown().view.tally.waiting == 0;
        }
        if room.is_away() {
            batch.refuse(&away());
        } else {
            join(&*store, &room, &mut batch).await;
            enter(&*store, &room, &mut batch).await;
            if room.is_away() {
                // A beat tells at once whether it was the call or the store that failed.
                (idle, beat_at) = (false, Instant::now());
            }
        }
        // Whoever keeps the zone says when to open it; until then there is nothing to beat.
        idle |= !room.is_open();
    }
}

/// The error of calls that are not even made.
pub(super) fn away() -> StoreError {
    StoreError::Away("it did not answer the last call".to_owned())
}

async fn join<S: Store>(store: &S, room: &Room, batch: &mut Batch) {
    batch.joins.retain(|answer| !answer.is_closed());
    let Ok(count @ 1..) = u32::try_from(batch.joins.len()) else { return };
    let joined = room.timed(StoreCall::Join, batch.joins.len(), store.join(&room.zone, count)).await;
    room.heard(&joined);
    match joined {
        Ok(joined) => {
            let (epoch, first, at_ms) = (joined.epoch, joined.first, joined.at_ms);
            let mut entered = 0;
            for (seq, verdict) in (first..).zip(&joined.verdicts) {
                if let Verdict::Entered(entry) = verdict {
                    entered += 1;
                    room.note_admitted(epoch, seq, *entry, at_ms);
                }
            }
            room.bus.publish(Joined { zone: room.id, epoch, first, count, entered, at_ms });
            for ((answer, seq), verdict) in batch.joins.drain(..).zip(first..).zip(joined.verdicts) {
                let _ = answer.send(Ok(JoinedOne { epoch, seq, at_ms, verdict }));
            }
        }
        // The claims don't wait for another failure.
        Err(error) => batch.refuse(&error),
    }
}

async fn enter<S: Store>(store: &S, room: &Room, batch: &mut Batch) {
    batch.claims.retain(|(_, answer)| !answer.is_closed());
    if batch.claims.is_empty() {
        return;
    }
    let claims = batch.claims.iter().map(|&(claim, _)| claim).collect();
    let decided = room.timed(StoreCall::Enter, batch.claims.len(), store.enter(&room.zone, claims)).await;
    room.heard(&decided);
    match decided {
        Ok(decided) => {
            for ((claim, answer), verdict) in batch.claims.drain(..).zip(decided.verdicts) {
                if let Verdict::Entered(entry) = verdict {
                    room.note_admitted(claim.epoch, claim.seq, entry, decided.at_ms);
                }
                let _ = answer.send(Ok((verdict, decided.at_ms)));
            }
        }
        Err(error) => batch.refuse(&error),
    }
}

async fn beat<S: Store>(store: &S, room: &Room) {
    let shown = room.shown();
    let marks = shown.seen.drain();
    let polled = marks
        .iter()
        .map(|mark| mark.words.iter().map(|word| word.count_ones() as usize).sum::<usize>())
        .sum();
    // A report that fails is made again with the next beat.
    let kept = marks.clone();
    let beat = room.timed(StoreCall::Beat, polled, store.beat(&room.zone, marks));
    let told = room.show(beat).await;
    if told.is_err() {
        shown.seen.give_back(kept);
    }
    if matches!(told, Err(StoreError::UnknownZone)) && room.is_open() {
        open(store, room, shown.view.policy).await;
    }
}

async fn open<S: Store>(store: &S, room: &Room, policy: Policy) {
    let opened = room.timed(StoreCall::Open, 1, store.open_zone(&room.zone, policy));
    // What went wrong is noted with the room.
    let _ = room.show(opened).await;
}
