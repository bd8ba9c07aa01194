//! A user who listens to a stream of events instead of polling.
//!
//! Like a browser, it reconnects after the time that the server told, with the newest token. If the server refuses the stream, the
//! user polls. A nap closes the stream and opens it again.
//!
//! Only a `wait` or an `enter` that can be read is an answer. A stream owes one when it is opened, and after each `wait` when the polling
//! period that it told is over. If the answer does not come within [`GRACE_US`], the user opens another stream at once, as it would poll
//! again. Comments and other messages only show that the stream is open, so that the user was present.
//!
//! Invariant: [`Told::message`] gives each message an interval in which the server decided it, as a call has one between `sent`
//! and `heard`. A message was written after the one before it, which took no longer on its way than the stream took to open.
//! Messages that are heard close together may have been held up together, so they share the beginning of the first one.

use std::sync::Arc;

use http_body_util::Full;
use hyper::{
    Request,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use tokio::sync::Mutex;

use super::{LEAST_MS, Phase, REST, RETRY_US, User};
use crate::{
    clock::ms,
    events::{Event, Events, Message},
    pool::Listening,
    story::Call,
    wire::{self, Answer, Waiting},
};

/// Messages that are heard within this time may have been held up together, milliseconds.
const TOGETHER_MS: u32 = 500;
/// A stream that says nothing for this long is given up. Servers send a comment every few seconds.
const SILENT_US: u64 = 30_000_000;
/// An answer that a stream owes may be this late. Servers send it with the next view of the line, which takes a second or two.
const GRACE_US: u64 = 10_000_000;
/// If a message came within this time, the server still counts the user as present: it sends a comment every 5 s, and takes 6 s to
/// notice that a connection is broken.
const PRESENT_MS: u32 = 6_000;

/// An open stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    events: Arc<Mutex<Events>>,
    told: Told,
    /// Since when it owes an answer, or from when on it will owe one.
    owes_from_us: u64,
    /// It had an answer.
    answered: bool,
}

impl Stream {
    /// When the answer that it owes is too late.
    fn overdue_us(&self) -> u64 {
        self.owes_from_us.saturating_add(GRACE_US)
    }
}

/// When the messages of a stream were heard, milliseconds.
#[derive(Clone, Copy, Debug)]
struct Told {
    asked_ms: u32,
    /// How long the first message took.
    delay_ms: u32,
    /// The last message.
    last: Option<Call>,
}

impl Told {
    fn new(asked_ms: u32) -> Self {
        Self { asked_ms, delay_ms: 0, last: None }
    }

    /// The interval in which the server decided the message that is heard now.
    fn message(&mut self, heard_ms: u32) -> Call {
        let sent_ms = match self.last {
            None => {
                self.delay_ms = heard_ms.saturating_sub(self.asked_ms);
                self.asked_ms
            }
            Some(last) if heard_ms.saturating_sub(last.heard_ms) < TOGETHER_MS => last.sent_ms,
            Some(last) => last.heard_ms.saturating_sub(self.delay_ms).max(self.asked_ms),
        };
        *self.last.insert(Call { sent_ms, heard_ms })
    }
}

impl User {
    /// Whether the user opens a stream next, instead of polling.
    pub(super) fn listens_next(&self) -> bool {
        self.listens && !self.refused && self.phase == Phase::Waiting
    }

    /// Opens the stream.
    pub(super) async fn open(&mut self) {
        let crowd = Arc::clone(&self.crowd);
        let token = self.token.as_deref().unwrap_or_default();
        let mut request = Request::get(wire::stream(&crowd.stream_path, &crowd.zone, token))
            .body(Full::default())
            .unwrap_or_default();
        let headers = request.headers_mut();
        headers.clone_from(&crowd.headers);
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if self.listened {
            headers.extend(HeaderValue::from_str(token).ok().map(|token| (wire::LAST_EVENT_ID, token)));
        }
        let mut sent_us = crowd.clock.now_us();
        let opened = crowd.pool.listen(request, || sent_us = crowd.clock.now_us()).await;
        let heard_us = crowd.clock.now_us();
        let call = Call { sent_ms: ms(sent_us), heard_ms: ms(heard_us) };
        match opened {
            Ok(Listening::Open(events)) => {
                crowd.tally.stream_opened(self.listened);
                self.listened = true;
                // The server gives a stream only for a place that it knows, so it noted the request.
                self.count_silence(call);
                self.noted = self.noted.map(|(_, period_ms)| (call.sent_ms, period_ms));
                self.stream = Some(Stream {
                    events: Arc::new(Mutex::new(events)),
                    told: Told::new(call.sent_ms),
                    owes_from_us: sent_us,
                    answered: false,
                });
            }
            Ok(Listening::Refused(reply)) => {
                let answer = wire::read(reply.status, reply.retry_after.as_deref(), &reply.body);
                crowd.tally.stream_refused();
                self.refused = true;
                self.no_stream(call, heard_us, answer, 0);
            }
            Err(what) => {
                crowd.tally.failed(&format!("stream: {what}"), call.heard_ms);
                self.note_answer(call.sent_ms, false);
                self.plan(heard_us, RETRY_US);
            }
        }
    }

    /// The server gives no stream. Unless the place is lost, the user goes on after `gap_us`, or when the server said.
    fn no_stream(&mut self, call: Call, heard_us: u64, answer: Answer, gap_us: u64) {
        self.ideal_us = heard_us;
        match answer {
            Answer::Gone | Answer::Refused { status: 401, .. } => {
                self.count_silence(call);
                self.lost(call, heard_us);
            }
            answer => {
                let (mut gap_us, mut what) = (gap_us, "an unexpected reply".to_owned());
                if let Answer::Refused { status, code, retry_after_ms, .. } = answer {
                    gap_us = retry_after_ms.map_or(gap_us, |after| u64::from(after.max(LEAST_MS)) * 1000);
                    what = format!("{status} {code}");
                }
                self.crowd.tally.failed(format!("stream: {what}").trim_end(), call.heard_ms);
                self.note_answer(call.sent_ms, false);
                self.plan(heard_us, gap_us);
            }
        }
    }

    /// Waits for the next message of the stream.
    pub(super) async fn listen(&mut self, mut stream: Stream) {
        let crowd = Arc::clone(&self.crowd);
        let now_us = crowd.clock.now_us();
        let (leaves_us, silent_us) = (self.leaves_us.unwrap_or(u64::MAX), now_us + SILENT_US);
        let until_us = leaves_us.min(silent_us).min(stream.overdue_us());
        // Messages that never end must not keep the user from it.
        let is_past = now_us >= leaves_us.min(stream.overdue_us().saturating_add(GRACE_US));
        let (heard, id, retry_ms) = {
            let mut events = stream.events.lock().await;
            // What has arrived is read first, even if this user was held up until now.
            let heard = tokio::select! {
                biased;
                () = std::future::ready(()), if is_past => Err(true),
                message = events.next() => Ok(message),
                awake = crowd.sleep_until(until_us) => Err(awake),
            };
            (heard, events.id().map(Box::from), events.retry_ms())
        };
        if let Some(retry_ms) = retry_ms {
            self.story.told_period(retry_ms);
        }
        let retry_us = retry_ms.map_or(RETRY_US, |retry_ms| u64::from(retry_ms.max(LEAST_MS)) * 1000);
        let now_us = crowd.clock.now_us();
        self.ideal_us = now_us;
        match heard {
            Err(false) => {
                self.stream = Some(stream);
                tokio::time::sleep(REST).await;
            }
            Err(true) if until_us == stream.overdue_us() => {
                self.unanswered(&stream, now_us);
                self.close(stream);
                self.plan(now_us, 0);
            }
            Err(true) => {
                if until_us == silent_us {
                    self.crowd.tally.failed("stream: silent for 30 s", ms(now_us));
                    self.note_answer(ms(now_us.saturating_sub(SILENT_US)), false);
                }
                self.close(stream);
                // If it is time to leave, this plans it.
                self.plan(now_us, retry_us);
            }
            Ok(Ok(Some(message))) => {
                let call = stream.told.message(ms(now_us));
                self.noted = self.noted.map(|(_, period_ms)| (call.sent_ms, period_ms));
                let Message::Event(event) = message else {
                    self.stream = Some(stream);
                    return;
                };
                crowd.tally.stream_event();
                self.happened(call, now_us, (&event, id, retry_us), stream);
            }
            Ok(ended) => {
                let what = ended.err().unwrap_or_else(|| "it ended without a reason".to_owned());
                crowd.tally.failed(&format!("stream: {what}"), ms(now_us));
                self.note_answer(ms(if stream.answered { now_us } else { stream.owes_from_us }), false);
                self.close(stream);
                self.plan(now_us, retry_us);
            }
        }
    }

    /// The stream was open and told nothing that can be read, although it owed an answer.
    fn unanswered(&mut self, stream: &Stream, now_us: u64) {
        self.crowd
            .tally
            .failed("stream: no `wait` or `enter` that can be read, 10 s after it was due", ms(now_us));
        self.note_answer(ms(stream.owes_from_us), false);
        let Some(last) = stream.told.last else { return };
        if ms(now_us).saturating_sub(last.heard_ms) <= PRESENT_MS {
            self.noted = self.noted.map(|(_, period_ms)| (ms(now_us), period_ms));
        }
        // A server that opens a stream has just decided, and says first what. If that is not "enter", the user still waited when the last
        // message was written. After an answer, the server may have lost its store meanwhile, and known nothing.
        if !stream.answered {
            self.story.last_waiting = Some(last);
        }
    }

    fn happened(
        &mut self,
        call: Call,
        now_us: u64,
        (event, id, retry_us): (&Event, Option<Box<str>>, u64),
        mut stream: Stream,
    ) {
        let known = match event.name.as_str() {
            "wait" => match (id.or_else(|| self.token.clone()), serde_json::from_str::<Waiting>(&event.data))
            {
                (Some(token), Ok(waiting)) => {
                    self.note_answer(call.sent_ms, true);
                    if !waiting.stale {
                        self.note_presence(call, true);
                    }
                    self.wait(call, now_us, token, waiting);
                    (stream.owes_from_us, stream.answered) = (now_us + self.period_us, true);
                    if self.phase == Phase::Waiting && self.due_us == now_us {
                        self.stream = Some(stream);
                    } else {
                        self.close(stream);
                    }
                    return;
                }
                _ => false,
            },
            "enter" => match wire::read(200, None, event.data.as_bytes()) {
                Answer::Enter { token, pass } => {
                    self.close(stream);
                    self.note_answer(call.sent_ms, true);
                    self.enter(call, now_us, token, pass);
                    return;
                }
                _ => false,
            },
            "problem" => {
                self.close(stream);
                self.no_stream(call, now_us, wire::problem(event.data.as_bytes()), retry_us);
                return;
            }
            "reconnect" => {
                if !stream.answered {
                    self.note_answer(ms(stream.owes_from_us), false);
                }
                self.close(stream);
                self.plan(now_us, retry_us);
                return;
            }
            // New events may be added.
            _ => true,
        };
        if !known {
            self.crowd.tally.failed("stream: an event that cannot be read", call.heard_ms);
            self.note_answer(call.sent_ms, false);
        }
        self.stream = Some(stream);
    }

    /// Closes the stream.
    pub(super) fn close(&mut self, stream: Stream) {
        drop(stream);
        self.crowd.tally.stream_closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_was_decided_after_the_one_before_it_was_written() {
        let mut told = Told::new(1_000);
        let mut hears = |heard_ms| told.message(heard_ms).sent_ms;
        assert_eq!(hears(1_040), 1_000, "after the request");
        assert_eq!(hears(2_000), 1_000, "40 ms before the last one, but not before the request");
        assert_eq!(hears(9_000), 1_960, "held up with all that was written since");
        assert_eq!(hears(9_001), 1_960);
        assert_eq!(hears(9_400), 1_960);
        assert_eq!(hears(10_000), 9_360);
    }
}
