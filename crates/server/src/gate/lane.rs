//! A zone's lane to the store: one task that asks for everybody.
//!
//! What comes in while a call is in flight goes out together as the next one. A beat goes out every second while
//! anybody waits or the zone was used within the last; a zone that nobody uses costs nothing.
//! Invariant: every ask is answered, by the store's word or its error; one whose caller has gone is not sent.

use std::sync::{Arc, Weak};

use admission::{Claim, Verdict};
use store::{MAX_BATCH, Store, StoreError};
use tokio::{
    sync::mpsc,
    time::{Duration, Instant, sleep_until},
};

use super::{
    Call, JoinedOne,
    room::{Answer, Ask, Room, timed},
};

/// How old a view becomes before it is renewed. Its age adds to what the rules allow a ticket's holder to be silent.
const BEAT: Duration = Duration::from_secs(1);

/// What goes out with the next calls.
#[derive(Default)]
struct Batch {
    joins: Vec<Answer<JoinedOne>>,
    claims: Vec<(Claim, Answer<(Verdict, u64)>)>,
}

impl Batch {
    fn take_in(&mut self, ask: Ask) {
        match ask {
            Ask::Join(answer) => self.joins.push(answer),
            Ask::Claim(claim, answer) => self.claims.push((claim, answer)),
        }
    }

    fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.claims.is_empty()
    }

    fn is_full(&self) -> bool {
        self.joins.len() == MAX_BATCH || self.claims.len() == MAX_BATCH
    }
}

/// Runs until the room is gone.
pub(super) async fn run<S: Store>(store: Arc<S>, room: Weak<Room>, mut asks: mpsc::Receiver<Ask>) {
    let mut beat_at = Instant::now() + BEAT;
    let mut batch = Batch::default();
    let mut idle = false;
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
        // The beat goes first: it tells of those who polled while the store was slow, before others are decided about.
        if room.take_unheard() || beat_at <= Instant::now() {
            beat(&*store, &room).await;
            beat_at = Instant::now() + BEAT;
            idle = !used && !room.is_stale() && room.shown().view.tally.waiting == 0;
        }
        join(&*store, &room, &mut batch).await;
        enter(&*store, &room, &mut batch).await;
    }
}

async fn join<S: Store>(store: &S, room: &Room, batch: &mut Batch) {
    batch.joins.retain(|answer| !answer.is_closed());
    let Ok(count @ 1..) = u32::try_from(batch.joins.len()) else { return };
    let joined = timed(&*room.meter, Call::Join, batch.joins.len(), store.join(&room.zone, count)).await;
    room.set_away(joined.is_err());
    match joined {
        Ok(joined) => {
            for ((answer, seq), verdict) in batch.joins.drain(..).zip(joined.first..).zip(joined.verdicts) {
                let _ = answer.send(Ok(JoinedOne { epoch: joined.epoch, seq, at_ms: joined.at_ms, verdict }));
            }
        }
        Err(error) => {
            for answer in batch.joins.drain(..) {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}

async fn enter<S: Store>(store: &S, room: &Room, batch: &mut Batch) {
    batch.claims.retain(|(_, answer)| !answer.is_closed());
    if batch.claims.is_empty() {
        return;
    }
    let claims = batch.claims.iter().map(|&(claim, _)| claim).collect();
    let decided = timed(&*room.meter, Call::Enter, batch.claims.len(), store.enter(&room.zone, claims)).await;
    room.set_away(decided.is_err());
    match decided {
        Ok(decided) => {
            for ((_, answer), verdict) in batch.claims.drain(..).zip(decided.verdicts) {
                let _ = answer.send(Ok((verdict, decided.at_ms)));
            }
        }
        Err(error) => {
            for (_, answer) in batch.claims.drain(..) {
                let _ = answer.send(Err(error.clone()));
            }
        }
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
    let beat = timed(&*room.meter, Call::Beat, polled, store.beat(&room.zone, marks));
    let mut told = room.show(beat).await;
    if told.is_err() {
        shown.seen.give_back(kept);
    }
    if matches!(told, Err(StoreError::UnknownZone)) {
        told = room.set_policy(store, shown.view.policy).await;
    }
    if told.is_err() {
        room.set_away(true);
    }
}
