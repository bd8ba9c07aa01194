//! The story of one user, as the user saw it. A story is small enough to keep one for each of a million users, and the
//! verdict is made from stories alone.
//!
//! Times are milliseconds since the agreed start of the run, which is the same for all workers and machines. A call has
//! the time at which it was sent and the time at which its reply arrived; the server decided in between.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// A user who is silent for longer than two polling periods and this time may be taken for absent, milliseconds.
pub const LAPSE_MS: u32 = 500;

/// A call: when it was sent, and when its reply arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// When it was sent.
    pub sent_ms: u32,
    /// When its reply arrived; not before it was sent.
    pub heard_ms: u32,
}

/// The wait that a user was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldWait {
    /// The expected wait, seconds.
    pub eta_s: u32,
    /// Its range, seconds; both ends belong to it.
    pub range_s: (u32, u32),
    /// The rank in the same reply.
    pub rank: u64,
    /// When that reply arrived. The actual wait is counted from this time.
    pub at_ms: u32,
}

/// When the zone opens, as a user was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldOpening {
    /// The call whose reply said it.
    pub told: Call,
    /// The time until the opening, milliseconds.
    pub in_ms: u32,
}

impl ToldOpening {
    /// The earliest opening that the reply may mean: the server counted from an instant after the call was sent.
    #[must_use]
    pub fn earliest_ms(&self) -> u32 {
        self.told.sent_ms.saturating_add(self.in_ms)
    }

    /// The latest opening that the reply may mean.
    #[must_use]
    pub fn latest_ms(&self) -> u32 {
        self.told.heard_ms.saturating_add(self.in_ms)
    }
}

/// The place that a user was told after a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The rank: one more than the people ahead who are still in line.
    pub rank: u32,
    /// The call whose reply said it.
    pub told: Call,
}

/// A rank that was higher than the rank before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rise {
    /// The rank before.
    pub from: u64,
    /// The higher rank.
    pub to: u64,
    /// When it arrived.
    pub at_ms: u32,
}

/// A silence after which the server may have taken the user for absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// When the last call was sent before it that shows that the user waited.
    pub kept_ms: u32,
    /// From when to when the server may have noted that the user is there again: from the sending of the first call of which the
    /// user knows nothing, to the reply of the call that ended the silence.
    pub ended: Call,
}

/// A time in which a user asked as told, and was answered by replies that were stale or late. They excuse that others entered meanwhile,
/// because the server may have taken the user for absent; but not for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excused {
    /// When the last call was sent before it by which the user was certainly present.
    pub from_ms: u32,
    /// When its last call was sent.
    pub to_ms: u32,
}

/// A story has at most so many silences. More are put together with the last one, as if the user had been silent in between.
const MOST_SILENCES: usize = 8;

/// How a user's story ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The user entered.
    Entered,
    /// The user left the line, as the profile asks.
    Left,
    /// The server replied that the place is gone (410).
    Gone,
    /// The user still waited when the run ended.
    Waiting,
    /// The user never received a place, and the last calls failed.
    Outside,
    /// The user never received a place: the zone said to the end that it gives none, because it is closed or its line is full.
    NoPlace,
}

/// One user. A user who starts again after the end of a story is another user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Story {
    /// The call of `wait` that was answered with a place or a pass, if there was one.
    pub arrived: Option<Call>,
    /// The last call that was answered "not yet" by a reply that was not marked stale. It is the latest proof that
    /// everybody who had entered by then came first. The last message of a stream that never had the answer that it owed counts, too:
    /// the user was present, and was not let in.
    pub last_waiting: Option<Call>,
    /// The first call that was answered "enter".
    pub entered: Option<Call>,
    /// The first expected wait that the user was told.
    pub first_told: Option<ToldWait>,
    /// When the zone opens, as the last reply said that named a time until then. Replies marked stale do not count.
    pub opens: Option<ToldOpening>,
    /// When the last reply arrived that said that the order is still to be drawn. Replies marked stale do not count.
    pub undrawn_ms: Option<u32>,
    /// The first rank that the user was told after the draw; none if the run is not one of a draw.
    pub placed: Option<Placed>,
    /// The longest silence between the place and "enter" or the end, milliseconds. A silence runs from the sending of an
    /// answered call to the reply of the next answered call, so the server cannot have seen a longer one. Refusals and
    /// replies marked stale are not answers here, because they do not show that the server noted the call.
    pub longest_silence_ms: u32,
    /// How often a silence was longer than two of the current polling periods and [`LAPSE_MS`]. A user without a lapse
    /// was present all the time.
    pub lapses: u16,
    /// These silences. Files of earlier versions do not have them.
    pub silences: Vec<Silence>,
    /// The longest time that the user was excused. Files of earlier versions do not have it.
    pub excused: Option<Excused>,
    /// The longest time after which the user was told to ask again while it had a place, milliseconds: a polling period, a `Retry-After`,
    /// or the `retry` of a stream. None if the user never had to wait, and in files of earlier versions.
    pub told_period_ms: Option<u32>,
    /// How often a rank was higher than the rank before it. Replies marked stale, and ranks before a draw, do not count.
    pub rises: u16,
    /// The largest rise.
    pub worst_rise: Option<Rise>,
    /// A digest of the pass, by which two users with the same pass are found; none if the user did not enter, or in a file of an earlier
    /// version. It is the digest of the `jti`, if the pass has one.
    pub pass: Option<NonZeroU64>,
    /// The user asked again after entering, and received another pass or none.
    pub second_pass: bool,
    /// The user asked again after entering, and was answered.
    pub asked_again: bool,
    /// When the first of the last calls was sent that all failed; none if the last call was answered. Refusals are not
    /// answers here, unless the zone says that it gives no places. Of a stream only a `wait` or an `enter` that can be read is an answer.
    pub unanswered_since_ms: Option<u32>,
    /// The number of the worker, and the number of the user in it.
    pub who: (u16, u32),
    /// The end.
    pub end: End,
    /// The time of the end.
    pub ended_ms: u32,
}

impl Story {
    /// The story of a user to whom nothing has happened yet.
    #[must_use]
    pub fn new(who: (u16, u32)) -> Self {
        Self {
            arrived: None,
            last_waiting: None,
            entered: None,
            first_told: None,
            opens: None,
            undrawn_ms: None,
            placed: None,
            longest_silence_ms: 0,
            lapses: 0,
            silences: Vec::new(),
            excused: None,
            told_period_ms: None,
            rises: 0,
            worst_rise: None,
            pass: None,
            second_pass: false,
            asked_again: false,
            unanswered_since_ms: None,
            who,
            end: End::Outside,
            ended_ms: 0,
        }
    }

    /// Notes that the user was told to ask again after this time.
    pub fn told_period(&mut self, period_ms: u32) {
        self.told_period_ms = self.told_period_ms.max(Some(period_ms));
    }

    /// Notes a time that excuses that others entered.
    pub fn excuse(&mut self, time: Excused) {
        let length_ms = |time: Excused| time.to_ms.saturating_sub(time.from_ms);
        if self.excused.map_or(0, length_ms) < length_ms(time) {
            self.excused = Some(time);
        }
    }

    /// Notes a silence that was so long that the server may have taken the user for absent.
    pub fn lapse(&mut self, ended: Call) {
        self.lapses = self.lapses.saturating_add(1);
        let is_full = self.silences.len() >= MOST_SILENCES;
        match self.silences.last_mut() {
            Some(last) if is_full => last.ended.heard_ms = ended.heard_ms,
            _ => {
                let kept_ms = self.last_waiting.or(self.arrived).map_or(0, |call| call.sent_ms);
                self.silences.push(Silence { kept_ms, ended });
            }
        }
    }
}
