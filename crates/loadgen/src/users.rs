//! One virtual user: its plan, the replies that it receives, and its story.
//!
//! A user repeats one step: it sleeps until its next call is due, then makes the call ([`User::step`]). Invariants: the
//! latency of a call counts from the time at which it was due, so it includes waiting for a connection or a late timer.
//! Every life of a user ends with exactly one story.

mod crowd;
mod listen;
mod papers;

use std::{
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

pub use crowd::Crowd;
use listen::Stream;
use papers::Wants;

use http_body_util::Full;
use hyper::Request;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use crate::{
    clock::ms,
    paper::Kind as PaperKind,
    pool::Reply,
    profile::Then,
    random::Random,
    story::{Call, End, Excused, LAPSE_MS, Placed, Rise, Story, ToldOpening, ToldWait},
    tally::Kind,
    wire::{self, Answer, Waiting},
};

/// The shortest time until the next call, milliseconds: a room that tells less is not asked in a loop.
const LEAST_MS: u32 = 100;
/// The time until a retry after a failure without `Retry-After`.
const RETRY_US: u64 = 3_000_000;
/// After calls have failed for this long, a user may have been without a network, milliseconds.
const CUT_OFF_MS: u32 = 10_000;
/// How long a user that has nothing more to do rests between two checks of Goose for its end.
const REST: Duration = Duration::from_millis(500);
/// The time between entering and asking again.
const REPEAT_US: u64 = 1_000_000;
/// A user that stops polling once does so after at most this many polls.
const NAP_POLLS: f64 = 5.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes a place next.
    Arriving,
    /// Asks to enter next.
    Waiting,
    /// Leaves next.
    Leaving,
    /// Asks again after entering.
    Repeating,
    /// Has nothing more to do.
    Away,
}

/// A user. A clone shares the stream.
#[derive(Clone, Debug)]
pub struct User {
    crowd: Arc<Crowd>,
    random: Random,
    phase: Phase,
    story: Story,
    token: Option<Box<str>>,
    rank: Option<u64>,
    period_us: u64,
    /// When the next call is due.
    due_us: u64,
    /// When the next call would be due if every reply had come at once.
    ideal_us: u64,
    /// The time between calls, as planned last.
    gap_us: u64,
    /// This life made a call, which was answered or failed.
    called: bool,
    /// The last call that the server certainly noted: when it was sent, and the polling period in its reply.
    noted: Option<(u32, u32)>,
    /// When the first call was sent after which the server may have let the user in without saying so: it failed, or its reply was of
    /// before. `None` after a reply that knew.
    undecided_ms: Option<u32>,
    /// When the last call was sent by which the user was certainly present, or the first one after a time in which it did not ask.
    asks_since_ms: u32,
    /// The user did not ask as told before the next reply, because it napped or was cut off.
    paused: bool,
    leaves_us: Option<u64>,
    nap: Option<(u32, u64)>,
    /// This user listens to streams instead of polling.
    listens: bool,
    /// This life opened a stream before.
    listened: bool,
    /// This life was refused a stream, so it polls.
    refused: bool,
    stream: Option<Stream>,
    /// What this user still fetches of a draw; none if it is not in the sample.
    wants: Option<Wants>,
}

impl User {
    /// The user with this number, which starts at `starts_us`.
    #[must_use]
    pub fn new(crowd: Arc<Crowd>, number: u32, starts_us: u64) -> Self {
        let mut random = Random::new(crowd.seed, crowd.worker, number);
        let due_us = starts_us + random.between_us(crowd.profile.first_sleep_s);
        crowd.tally.user_started();
        let story = Story::new((crowd.worker, number));
        let listens = crowd.profile.streams(number + 1) > crowd.profile.streams(number);
        let mut user = Self {
            crowd,
            random,
            phase: Phase::Arriving,
            story,
            token: None,
            rank: None,
            period_us: RETRY_US,
            due_us,
            ideal_us: due_us,
            gap_us: RETRY_US,
            called: false,
            noted: None,
            undecided_ms: None,
            asks_since_ms: 0,
            paused: false,
            leaves_us: None,
            nap: None,
            listens,
            listened: false,
            refused: false,
            stream: None,
            wants: None,
        };
        user.wants =
            user.crowd.draw.as_ref().filter(|draw| number.is_multiple_of(draw.every)).map(|_| Wants::ALL);
        user.draw();
        user
    }

    /// Draws whether and when this user stops polling once.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn draw(&mut self) {
        let profile = &self.crowd.profile;
        let naps = self.random.part() < profile.naps;
        let (polls, length) = (self.random.part() * NAP_POLLS, self.random.between_us(profile.nap_s));
        self.nap = naps.then_some((polls as u32, length));
        self.leaves_us = None;
    }

    /// Sleeps until the next call is due, and makes it; or waits for the next message of the stream. Then fetches what the user wants
    /// of a draw.
    pub async fn step(&mut self) {
        self.poll().await;
        for kind in [PaperKind::Published, PaperKind::Receipt] {
            if self.wants_now(kind) && !self.crowd.is_stopping() {
                Box::pin(self.fetch(kind)).await;
            }
        }
    }

    /// Whether the run goes on, and it is before `us`.
    #[must_use]
    pub fn stays(&self, us: u64) -> bool {
        self.crowd.clock.now_us() < us && !self.crowd.is_stopping()
    }

    async fn poll(&mut self) {
        if let Some(stream) = self.stream.take() {
            Box::pin(self.listen(stream)).await;
            return;
        }
        let awake = if self.phase == Phase::Away {
            let stop = self.crowd.stop.notified();
            if !self.crowd.is_stopping() {
                stop.await;
            }
            false
        } else {
            self.crowd.sleep_until(self.due_us).await
        };
        if !awake {
            // The run ends soon. Checking for the end without rest would take CPU from users who still work.
            sleep(REST).await;
            return;
        }
        self.crowd.tally.lag(self.crowd.clock.now_us().saturating_sub(self.due_us));
        if self.phase == Phase::Leaving {
            let at = ms(self.crowd.clock.now_us());
            self.end(End::Left, at);
            self.go_away();
            return;
        }
        if self.listens_next() {
            Box::pin(self.open()).await;
            return;
        }
        self.crowd.tally.due(self.ideal_us);
        // Boxed, so that a sleeping user does not hold the state of a call.
        Box::pin(self.call()).await;
    }

    async fn call(&mut self) {
        let kind = if self.phase == Phase::Arriving { Kind::Wait } else { Kind::Entry };
        let body = wire::body(&self.crowd.zone, self.token.as_deref());
        let mut request = Request::post(self.crowd.paths[usize::from(kind == Kind::Entry)].clone())
            .body(Full::new(body))
            .unwrap_or_default();
        *request.headers_mut() = self.crowd.headers.clone();
        let mut sent_us = self.crowd.clock.now_us();
        let reply = self.crowd.pool.call(request, || sent_us = self.crowd.clock.now_us()).await;
        let heard_us = self.crowd.clock.now_us();
        self.heard(kind, sent_us, heard_us, reply);
    }

    fn heard(&mut self, kind: Kind, sent_us: u64, heard_us: u64, reply: Result<Reply, String>) {
        let call = Call { sent_ms: ms(sent_us), heard_ms: ms(heard_us) };
        self.called = true;
        let latency_us = heard_us.saturating_sub(self.due_us);
        let answer = reply.map(|reply| wire::read(reply.status, reply.retry_after.as_deref(), &reply.body));
        let failure = match &answer {
            Err(what) | Ok(Answer::Invalid(what)) => Some(what.clone()),
            Ok(Answer::Refused { status, code, .. }) => {
                Some(format!("{status} {code}").trim_end().to_owned())
            }
            Ok(_) => None,
        };
        let tally = &self.crowd.tally;
        tally.called(kind, latency_us, failure.as_deref().map_or(Ok(()), Err), call.heard_ms);
        self.note_answer(call.sent_ms, is_answer(kind, &answer));
        if self.phase == Phase::Waiting && is_noted(kind, &answer) {
            let is_certain = self.count_silence(call);
            self.note_presence(call, is_certain);
        }
        match answer {
            Ok(Answer::Enter { token, pass }) => self.enter(call, heard_us, token, pass),
            Ok(Answer::NotYet { .. } | Answer::Gone) if self.phase == Phase::Repeating => {
                (self.story.asked_again, self.story.second_pass) = (true, true);
                self.entered_for_good(heard_us);
            }
            Ok(Answer::NotYet { token, waiting }) => {
                self.crowd.tally.not_yet(waiting.stale);
                self.wait(call, heard_us, token, waiting);
            }
            Ok(Answer::Gone) => self.lost(call, heard_us),
            // If the token is refused, the place is lost too.
            Ok(Answer::Refused { status: 401, .. }) if kind == Kind::Entry => self.lost(call, heard_us),
            Ok(Answer::Refused { retry_after_ms: Some(after), is_of_weir, .. }) => {
                if self.phase == Phase::Waiting && is_of_weir {
                    self.story.told_period(after);
                }
                self.plan(heard_us, u64::from(after.max(LEAST_MS)) * 1000);
            }
            _ => self.plan(heard_us, self.period_us),
        }
    }

    /// Notes whether the server answered what was sent at this time.
    fn note_answer(&mut self, sent_ms: u32, is_answered: bool) {
        let since_ms = &mut self.story.unanswered_since_ms;
        if is_answered {
            let failed_ms = since_ms.take().map_or(0, |since_ms| sent_ms.saturating_sub(since_ms));
            self.paused |= failed_ms >= CUT_OFF_MS;
        } else {
            since_ms.get_or_insert(sent_ms);
            self.undecided_ms.get_or_insert(sent_ms);
        }
    }

    /// Counts the silence that ends with this call. Returns whether the user was certainly present meanwhile, or would have been if this
    /// generator had not asked late.
    fn count_silence(&mut self, call: Call) -> bool {
        let Some((sent_ms, period_ms)) = self.noted else { return true };
        let silence_ms = call.heard_ms.saturating_sub(sent_ms);
        let story = &mut self.story;
        story.longest_silence_ms = story.longest_silence_ms.max(silence_ms);
        let most_ms = period_ms.saturating_mul(2).saturating_add(LAPSE_MS);
        if silence_ms > most_ms {
            // The server may have noted a call whose reply was lost.
            let sent_ms = self.undecided_ms.map_or(call.sent_ms, |from_ms| from_ms.min(call.sent_ms));
            story.lapse(Call { sent_ms, ..call });
        }
        silence_ms.saturating_sub(call.sent_ms.saturating_sub(ms(self.due_us))) <= most_ms
    }

    /// Notes whether the server certainly counted the user as present until this call. If not, its replies were stale or late.
    fn note_presence(&mut self, call: Call, is_certain: bool) {
        if std::mem::take(&mut self.paused) || is_certain {
            self.asks_since_ms = call.sent_ms;
        } else {
            self.story.excuse(Excused { from_ms: self.asks_since_ms, to_ms: call.sent_ms });
        }
    }

    /// Plans the next call `gap_us` from now.
    fn plan(&mut self, now_us: u64, gap_us: u64) {
        self.gap_us = gap_us;
        self.due_us = now_us + gap_us;
        self.ideal_us += gap_us;
        if let Some(leaves_us) = self.leaves_us.filter(|leaves| *leaves < self.due_us) {
            self.phase = Phase::Leaving;
            self.due_us = leaves_us.max(now_us);
        }
    }

    fn wait(&mut self, call: Call, heard_us: u64, token: Box<str>, waiting: Waiting) {
        if self.phase == Phase::Arriving {
            self.phase = Phase::Waiting;
            self.story.arrived = Some(call);
            self.note_presence(call, true);
            self.crowd.tally.wait_started();
            let profile = &self.crowd.profile;
            let leaves = self.random.part() < profile.abandon;
            let patience_us = self.random.between_us(profile.patience_s);
            self.leaves_us = leaves.then_some(heard_us + patience_us);
        }
        self.token = Some(token);
        if !waiting.stale || self.noted.is_none() {
            self.noted = Some((call.sent_ms, waiting.polling_period));
        }
        self.story.told_period(waiting.polling_period);
        if waiting.stale {
            self.undecided_ms.get_or_insert(call.sent_ms);
            self.note_presence(call, false);
        } else {
            self.undecided_ms = None;
            self.story.last_waiting = Some(call);
            if let Some(in_ms) = waiting.opens_in_ms {
                self.story.opens = Some(ToldOpening { told: call, in_ms });
            }
            if waiting.is_undrawn() {
                self.story.undrawn_ms = Some(call.heard_ms);
                self.rank = None;
            } else {
                self.note_rank(waiting.rank, call.heard_ms);
                // A rank without a wait is told while nobody is admitted, or before the server knows the draw.
                if self.crowd.draw.is_some() && waiting.eta_seconds.is_some() {
                    let rank = u32::try_from(waiting.rank).unwrap_or(u32::MAX);
                    self.story.placed.get_or_insert(Placed { rank, told: call });
                }
            }
        }
        if let (None, Some(eta_s)) = (self.story.first_told, waiting.eta_seconds) {
            let range_s = waiting.eta_range.unwrap_or((eta_s, eta_s));
            self.story.first_told =
                Some(ToldWait { eta_s, range_s, rank: waiting.rank, at_ms: call.heard_ms });
        }
        self.period_us = u64::from(waiting.polling_period.max(LEAST_MS)) * 1000;
        // A listener opens its stream at once.
        let mut gap_us = if self.listens_next() { 0 } else { self.period_us };
        match &mut self.nap {
            Some((0, length_us)) => {
                gap_us += *length_us;
                self.nap = None;
                self.paused = true;
            }
            Some((polls, _)) => *polls -= 1,
            None => {}
        }
        self.plan(heard_us, gap_us);
    }

    fn note_rank(&mut self, rank: u64, at_ms: u32) {
        let Some(before) = self.rank.replace(rank).filter(|before| *before < rank) else { return };
        let story = &mut self.story;
        story.rises = story.rises.saturating_add(1);
        if rank - before > story.worst_rise.map_or(0, |worst| worst.to - worst.from) {
            story.worst_rise = Some(Rise { from: before, to: rank, at_ms });
        }
    }

    fn enter(&mut self, call: Call, heard_us: u64, token: Option<Box<str>>, pass: Box<str>) {
        let sent_ms = self.undecided_ms.take().map_or(call.sent_ms, |from_ms| from_ms.min(call.sent_ms));
        let call = Call { sent_ms, ..call };
        let again = self.phase == Phase::Repeating;
        self.crowd.tally.entered(!again);
        if again {
            self.story.asked_again = true;
            self.story.second_pass = self.story.pass != Some(digest(&pass));
            self.entered_for_good(heard_us);
            return;
        }
        if self.phase == Phase::Waiting {
            self.crowd.tally.wait_ended();
        }
        self.story.arrived.get_or_insert(call);
        self.story.entered = Some(call);
        if token.is_some() {
            self.token = token;
        }
        self.story.pass = Some(digest(&pass));
        self.leaves_us = None;
        if self.token.is_some() && self.random.part() < self.crowd.profile.repeat {
            self.phase = Phase::Repeating;
            self.plan(heard_us, REPEAT_US);
        } else {
            self.entered_for_good(heard_us);
        }
    }

    fn entered_for_good(&mut self, heard_us: u64) {
        self.phase = Phase::Repeating;
        let at = self.story.entered.map_or_else(|| ms(heard_us), |call| call.heard_ms);
        self.end(End::Entered, at);
        match self.crowd.profile.then {
            Then::Anew => self.begin_anew(heard_us),
            Then::Stay => self.go_away(),
        }
    }

    fn lost(&mut self, call: Call, heard_us: u64) {
        self.end(End::Gone, call.heard_ms);
        self.begin_anew(heard_us);
    }

    fn begin_anew(&mut self, now_us: u64) {
        let number = self.crowd.next.fetch_add(1, Ordering::Relaxed);
        self.story = Story::new((self.crowd.worker, number));
        self.phase = Phase::Arriving;
        (self.token, self.rank, self.noted, self.called) = (None, None, None, false);
        (self.undecided_ms, self.paused) = (None, false);
        (self.listened, self.refused, self.wants) = (false, false, None);
        self.draw();
        self.due_us = now_us + self.random.between_us(self.crowd.profile.first_sleep_s);
        self.ideal_us = self.due_us;
        self.period_us = RETRY_US;
        self.gap_us = RETRY_US;
    }

    fn go_away(&mut self) {
        self.phase = Phase::Away;
        self.crowd.tally.user_ended();
    }

    /// Ends this life and records its story.
    fn end(&mut self, end: End, at_ms: u32) {
        if matches!(self.phase, Phase::Waiting | Phase::Leaving) {
            self.crowd.tally.wait_ended();
        }
        self.story.end = end;
        self.story.ended_ms = at_ms;
        let story = std::mem::replace(&mut self.story, Story::new((self.crowd.worker, 0)));
        self.crowd.tally.story_ended(story);
    }

    /// Ends the user at the end of the run.
    pub fn finish(&mut self) {
        if self.phase == Phase::Away {
            return;
        }
        if let Some(stream) = self.stream.take() {
            self.close(stream);
        }
        let now_us = self.crowd.run_us();
        if matches!(self.phase, Phase::Waiting | Phase::Arriving) {
            // Count the calls that the user would have made by now if no reply had been slow.
            while self.gap_us > 0 && self.ideal_us < now_us {
                self.crowd.tally.due(self.ideal_us);
                self.ideal_us += self.gap_us;
            }
        }
        let (end, at_ms) = match (self.story.entered, self.story.arrived) {
            (Some(entered), _) => (End::Entered, entered.heard_ms),
            (None, Some(_)) => (End::Waiting, ms(now_us)),
            (None, None) if self.called && self.story.unanswered_since_ms.is_none() => {
                (End::NoPlace, ms(now_us))
            }
            (None, None) => (End::Outside, ms(now_us)),
        };
        // A user that made no call has no story.
        if end != End::Outside || self.called {
            self.end(end, at_ms);
        }
        self.go_away();
    }
}

/// The digest by which the passes of users are compared. It is the same in every worker, on every machine.
fn digest(pass: &str) -> NonZeroU64 {
    let digest = Sha256::digest(pass.as_bytes());
    let first = digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    NonZeroU64::new(first).unwrap_or(NonZeroU64::MAX)
}

/// Whether the user knows more after the call. A refusal only says that the user has to ask again, unless it says that there are no
/// places.
fn is_answer(kind: Kind, answer: &Result<Answer, String>) -> bool {
    let has_no_place = |answer: &Answer| kind == Kind::Wait && answer.no_place().is_some();
    is_noted(kind, answer)
        || matches!(answer, Ok(Answer::NotYet { .. }))
        || answer.as_ref().is_ok_and(has_no_place)
}

/// Whether the server noted the call: the reply is neither a refusal nor stale.
fn is_noted(kind: Kind, answer: &Result<Answer, String>) -> bool {
    match answer {
        Ok(Answer::Enter { .. } | Answer::Gone) => true,
        Ok(Answer::NotYet { waiting, .. }) => !waiting.stale,
        Ok(Answer::Refused { status, .. }) => *status == 401 && kind == Kind::Entry,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
