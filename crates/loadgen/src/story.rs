//! What became of one user, as the user saw it: small enough to keep for each of a million, and all that the verdict
//! is made from.
//!
//! Times are milliseconds since the moment at which the run was to begin, the same for all workers and machines. A
//! call is known by when it was sent and when its reply was there: what the server decided, it decided in between.

use serde::{Deserialize, Serialize};

/// The bit in "two polling periods and a bit", milliseconds: who is silent for longer may be taken for absent.
pub const LAPSE_MS: u32 = 500;

/// A call: when it was sent, and when its reply was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// When it was sent.
    pub sent_ms: u32,
    /// When its reply was there; not before it was sent.
    pub heard_ms: u32,
}

/// The wait that a user was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldWait {
    /// Seconds.
    pub eta_s: u32,
    /// The range, in seconds, ends included.
    pub range_s: (u32, u32),
    /// The rank that came with it.
    pub rank: u64,
    /// When the reply that told it was there: the wait is counted from then on.
    pub at_ms: u32,
}

/// A rank that was above the one told before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rise {
    /// The one before.
    pub from: u64,
    /// The higher one.
    pub to: u64,
    /// When it was told.
    pub at_ms: u32,
}

/// How a user's story ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Got in.
    Entered,
    /// Walked away from the line, as the profile has it.
    Left,
    /// Was told that the place is gone (410).
    Gone,
    /// Still waited when the run ended.
    Waiting,
    /// Never got a place: each call failed.
    Outside,
}

/// One user, who waited or not. A user that goes on after an end is another user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Story {
    /// The call of `wait` that was answered with a place or a pass; none if none was.
    pub arrived: Option<Call>,
    /// The last call that was answered "not yet", by a reply that was not marked stale. Its answer is the latest
    /// proof that whoever is in by then came first.
    pub last_waiting: Option<Call>,
    /// The first call that was answered "enter".
    pub entered: Option<Call>,
    /// The wait told by the first reply that told one.
    pub first_told: Option<ToldWait>,
    /// The longest silence from the first place on to "enter" or the end, milliseconds: from when a call that was answered
    /// was sent to when the reply to the next answered one was there. The server can't have found it longer. A refusal is
    /// no answer here, nor is a reply marked stale: neither shows that the call was taken note of.
    pub longest_silence_ms: u32,
    /// How often a silence, counted the same way, was longer than two of the polling periods then asked for and
    /// [`LAPSE_MS`]: whoever has none was present all the time, whatever periods were asked for.
    pub lapses: u16,
    /// How often a rank was above the one before it; replies marked stale don't count.
    pub rises: u16,
    /// The greatest of them.
    pub worst_rise: Option<Rise>,
    /// Asked again after entering, and got another pass or none.
    pub second_pass: bool,
    /// The user's number in its worker, and the worker's: to find the user again.
    pub who: (u16, u32),
    /// How it ended.
    pub end: End,
    /// When it ended.
    pub ended_ms: u32,
}
