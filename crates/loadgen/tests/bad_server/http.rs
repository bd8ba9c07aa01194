//! Serves the room over HTTP, in process and on a free port, with the wire format of the real server.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep_until},
};

use super::room::{Answer, Fault, Policy, Room};

/// The only zone.
pub(crate) const ZONE: &str = "TEST_ZONE";

/// With `Fault::Stalls` each answer is this late.
const LATE: Duration = Duration::from_secs(1);
/// With `Fault::Stalls` a stall comes once in this time.
const STALL_EVERY: Duration = Duration::from_secs(20);
/// During a stall nothing is answered for this time.
const STALL: Duration = Duration::from_secs(3);

struct Server {
    room: Mutex<Room>,
    fault: Fault,
    began: Instant,
}

/// Serves until the runtime ends; the address is bound when this returns.
pub(crate) async fn spawn(policy: Policy, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server =
        Arc::new(Server { room: Mutex::new(Room::new(policy, fault)), fault, began: Instant::now() });
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
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
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
        let (ticket, answer) = {
            let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            // Read under the lock: the room's time must not go back.
            let now_ms = u32::try_from(self.began.elapsed().as_millis()).unwrap_or(u32::MAX);
            match (path.as_str(), ticket) {
                ("/traffic/wait", None) => room.wait(now_ms),
                ("/traffic/wait" | "/traffic/entry", Some(ticket)) => (ticket, room.entry(ticket, now_ms)),
                ("/traffic/entry", None) => return problem(StatusCode::UNAUTHORIZED, "bad_token"),
                _ => return problem(StatusCode::NOT_FOUND, "not_found"),
            }
        };
        let token = ticket.to_string();
        match answer {
            Answer::Enter { pass } => json_reply(
                StatusCode::OK,
                &json!({"canEnter": true, "token": token, "pass": format!("pass.{pass}.x")}),
            ),
            Answer::Wait { rank, eta_s, range_s, period_ms } => json_reply(
                StatusCode::OK,
                &json!({"canEnter": false, "token": token, "waiting": {
                    "rank": rank, "etaSeconds": eta_s, "etaRange": [range_s.0, range_s.1],
                    "pollingPeriod": period_ms, "stale": false,
                }}),
            ),
            Answer::Gone => problem(StatusCode::GONE, "gone"),
        }
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

fn problem(status: StatusCode, code: &str) -> Response<Full<Bytes>> {
    json_reply(status, &json!({"status": status.as_u16(), "code": code}))
}

fn json_reply(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response
}
