//! Serves the room over HTTP, in process and on a free port, with the wire format of the real server.

use std::{
    collections::HashSet,
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    header::HeaderValue,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::room::{Answer, Fault, Mute, Policy, Room, Way};

/// The only zone.
pub(crate) const ZONE: &str = "TEST_ZONE";

/// With `Fault::Stalls` each answer is this late.
const LATE: Duration = Duration::from_secs(1);
/// With `Fault::Stalls` a stall comes once in this time.
const STALL_EVERY: Duration = Duration::from_secs(20);
/// During a stall nothing is answered for this time.
const STALL: Duration = Duration::from_secs(3);

/// With `Way::Late` the answers are this late: two of them and a polling period of a second are more than two periods and half a second.
const TOO_LATE: Duration = Duration::from_millis(2_700);

/// A stream sends this many events, and then `reconnect`.
const EVENTS: usize = 4;
/// With `Fault::Mute` a stream says something once in this time.
const MUTE_EVERY: Duration = Duration::from_millis(500);
/// Each user whose number is a multiple of this one is refused a stream.
const NO_STREAM: usize = 7;

type Reply = Response<BoxBody<Bytes, Infallible>>;

/// The body of a stream.
struct Stream(mpsc::Receiver<String>);

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event.into()))))
    }
}

struct Server {
    /// Users who had a stream.
    listened: Mutex<HashSet<usize>>,
    room: Mutex<Room>,
    fault: Fault,
    began: Instant,
}

/// Serves until the runtime ends; the address is bound when this returns.
pub(crate) async fn spawn(policy: Policy, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = Arc::new(Server {
        listened: Mutex::default(),
        room: Mutex::new(Room::new(policy, fault)),
        fault,
        began: Instant::now(),
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let server = Arc::clone(&server);
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                // A client may close the connection during a call.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let path = request.uri().path().to_owned();
        if path == "/traffic/stream" {
            return self.stream(&request);
        }
        let Ok(body) = Limited::new(request.into_body(), 4_096).collect().await else {
            return problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large");
        };
        let Ok(body) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
            return problem(StatusCode::BAD_REQUEST, "malformed_json");
        };
        if body["zoneId"] != ZONE {
            return problem(StatusCode::NOT_FOUND, "unknown_zone");
        }
        if self.fault == Fault::Stalls {
            sleep_until(self.released(Instant::now())).await;
        }
        let ticket = body["token"].as_str().and_then(|token| token.parse().ok());
        let (ticket, answer) = match (path.as_str(), ticket) {
            ("/traffic/wait", None) => self.decide(Room::wait),
            ("/traffic/wait" | "/traffic/entry", Some(ticket)) => {
                (ticket, self.decide(|room, now_ms| room.entry(ticket, now_ms)))
            }
            ("/traffic/entry", None) => return problem(StatusCode::UNAUTHORIZED, "bad_token"),
            _ => return problem(StatusCode::NOT_FOUND, "not_found"),
        };
        // The place itself comes in time.
        if path == "/traffic/entry" && self.decide(|room, _| room.forgets(ticket)) == Some(Way::Late) {
            sleep(TOO_LATE).await;
        }
        match answer {
            Answer::Enter { pass } => json_reply(StatusCode::OK, &entered(ticket, pass)),
            answer @ Answer::Wait { .. } => json_reply(
                StatusCode::OK,
                &json!({"canEnter": false, "token": ticket.to_string(), "waiting": waiting(answer)}),
            ),
            Answer::Gone => problem(StatusCode::GONE, "gone"),
        }
    }

    fn decide<T>(&self, decision: impl FnOnce(&mut Room, u32) -> T) -> T {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: the room's time must not go back.
        let now_ms = u32::try_from(self.began.elapsed().as_millis()).unwrap_or(u32::MAX);
        decision(&mut room, now_ms)
    }

    /// Asks for the holder of the stream, and tells each answer.
    fn stream(self: Arc<Self>, request: &Request<Incoming>) -> Reply {
        let query = request.uri().query().unwrap_or_default();
        let token = query.strip_prefix(&format!("zone={ZONE}&token="));
        let again = request.headers().get("last-event-id");
        let Some(ticket) = token.and_then(|token| token.parse::<usize>().ok()) else {
            return problem(StatusCode::UNAUTHORIZED, "bad_token");
        };
        if ticket.is_multiple_of(NO_STREAM) {
            return problem(StatusCode::TOO_MANY_REQUESTS, "too_many_streams");
        }
        let is_first = self.listened.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket);
        let expected = if is_first { None } else { token };
        assert_eq!(again.map(|again| again.to_str().expect("a token")), expected, "the newest token");
        let (events, body) = mpsc::channel(1);
        if let Fault::Mute(mute) = self.fault {
            tokio::spawn(say_nothing(mute, is_first, events));
            return event_stream(body);
        }
        tokio::spawn(async move {
            let mut head = "retry: 200\n";
            for _ in 0..EVENTS {
                let answer = self.decide(|room, now_ms| room.entry(ticket, now_ms));
                let (name, data) = match answer {
                    Answer::Enter { pass } => ("enter", entered(ticket, pass)),
                    Answer::Wait { .. } => ("wait", waiting(answer)),
                    Answer::Gone => ("problem", json!({"status": 410, "code": "gone"})),
                };
                // A comment follows each event.
                let event = format!("{head}id: {ticket}\nevent: {name}\ndata: {data}\n\n:\n\n");
                let Answer::Wait { period_ms, .. } = answer else {
                    drop(events.send(event).await);
                    return;
                };
                if events.send(event).await.is_err() {
                    return;
                }
                head = "";
                sleep(Duration::from_millis(period_ms.into())).await;
            }
            drop(events.send("event: reconnect\ndata: {}\n\n".to_owned()).await);
        });
        event_stream(body)
    }

    /// When a call that arrives now is answered.
    fn released(&self, now: Instant) -> Instant {
        let at = now + LATE;
        let into = Duration::from_millis(
            u64::try_from((at - self.began).as_millis() % STALL_EVERY.as_millis()).expect("below 20 s"),
        );
        // The stall is at the end of each period.
        if into + STALL >= STALL_EVERY { at + (STALL_EVERY - into) } else { at }
    }
}

/// Sends what tells a listener nothing, until the listener has gone.
async fn say_nothing(mute: Mute, is_first: bool, events: mpsc::Sender<String>) {
    let place = waiting(Answer::Wait { rank: 1, eta_s: 1, range_s: (1, 1), period_ms: 1_000, stale: false });
    let said = match mute {
        Mute::Comments | Mute::OneWait => ":\n\n".to_owned(),
        Mute::Unreadable => "event: wait\ndata: {\n\n".to_owned(),
        Mute::Unknown => format!("event: waiting\ndata: {place}\n\n"),
        Mute::Reconnect => "retry: 200\nevent: reconnect\ndata: {}\n\n".to_owned(),
    };
    if mute == Mute::OneWait && is_first {
        drop(events.send(format!("event: wait\ndata: {place}\n\n")).await);
    }
    while events.send(said.clone()).await.is_ok() && mute != Mute::Reconnect {
        sleep(MUTE_EVERY).await;
    }
}

fn event_stream(body: mpsc::Receiver<String>) -> Reply {
    let mut response = Response::new(Stream(body).boxed());
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
    response
}

fn entered(ticket: usize, pass: u64) -> Value {
    json!({"canEnter": true, "token": ticket.to_string(), "pass": format!("pass.{pass}.x")})
}

fn waiting(answer: Answer) -> Value {
    let Answer::Wait { rank, eta_s, range_s, period_ms, stale } = answer else { return Value::Null };
    json!({
        "rank": rank, "etaSeconds": eta_s, "etaRange": [range_s.0, range_s.1],
        "pollingPeriod": period_ms, "stale": stale,
    })
}

fn problem(status: StatusCode, code: &str) -> Reply {
    json_reply(status, &json!({"status": status.as_u16(), "code": code}))
}

fn json_reply(status: StatusCode, body: &Value) -> Reply {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *response.status_mut() = status;
    response
}
