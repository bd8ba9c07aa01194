//! The HTTP interface of the service.
//!
//! | | |
//! |---|---|
//! | `GET /` | the protected page; without a session, a redirect to the waiting room |
//! | `POST /enter` | takes the field `pass` of a form, starts a session and redirects to `/` |
//! | `GET /session` | 204 with a session, 401 without; nginx and Envoy ask it |

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{
        CACHE_CONTROL, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, SET_COOKIE,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, time::timeout};

use crate::{
    door::{Door, Refusal, SESSION_S},
    keys::PAUSE,
};

/// The name of the cookie. It is `SameSite=Lax`, so that links from other sites find the session.
const NAME: &str = "session";

const MAX_BODY: usize = 8_192;

/// The time limit of the head, and of the body.
const PATIENCE: Duration = Duration::from_secs(10);

/// The service.
pub struct Service {
    /// The check of passes and sessions.
    pub door: Door,
    /// The page of the waiting room, as in `http://127.0.0.1:8080/wait/TEST_ZONE`.
    pub waiting_room: String,
}

impl Service {
    /// Serves for as long as the process lives.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            // The connection died in the queue, or too many files are open. The next accept may succeed.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let service = Arc::clone(&self);
            tokio::spawn(async move {
                let answer = service_fn(move |request| Arc::clone(&service).answer(request));
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                // A failed connection concerns only its client.
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let is_in = session(request.headers()).is_some_and(|session| self.door.is_in(session));
        Ok(match (request.method(), request.uri().path()) {
            (&Method::GET, "/") if is_in => page(StatusCode::OK, "You are in."),
            (&Method::GET, "/") => on_to(&self.waiting_room),
            (&Method::GET, "/session") if is_in => page(StatusCode::NO_CONTENT, ""),
            (&Method::GET, "/session") => page(StatusCode::UNAUTHORIZED, "There is no session."),
            (&Method::POST, "/enter") => self.enter(request.into_body()).await,
            _ => page(StatusCode::NOT_FOUND, "There is nothing at this path."),
        })
    }

    async fn enter(&self, body: Incoming) -> Response<Full<Bytes>> {
        let body = timeout(PATIENCE, Limited::new(body, MAX_BODY).collect()).await;
        let Ok(Ok(body)) = body else { return page(StatusCode::BAD_REQUEST, "The form cannot be read.") };
        let body = body.to_bytes();
        let pass = form_urlencoded::parse(&body).find(|(name, _)| name == "pass").map(|(_, value)| value);
        match self.door.enter(&pass.unwrap_or_default()).await {
            Ok(session) => {
                // Redirect to a GET, so that a reload posts nothing. Behind TLS, add `; Secure`.
                let mut response = on_to("/");
                let cookie = format!("{NAME}={session}; HttpOnly; SameSite=Lax; Path=/; Max-Age={SESSION_S}");
                let cookie = HeaderValue::from_str(&cookie).expect("hex digits and words");
                response.headers_mut().insert(SET_COOKIE, cookie);
                response
            }
            Err(refusal) => {
                let status = match refusal {
                    Refusal::Full | Refusal::KeysAway => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::FORBIDDEN,
                };
                let text =
                    format!("{refusal}. <a href=\"{}\">Back to the waiting room</a>", self.waiting_room);
                let mut response = page(status, &text);
                if status == StatusCode::SERVICE_UNAVAILABLE {
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(PAUSE.as_secs()));
                }
                response
            }
        }
    }
}

fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split("; ")).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == NAME).map(|(_, value)| value)
}

fn on_to(address: &str) -> Response<Full<Bytes>> {
    let mut response = page(StatusCode::SEE_OTHER, "");
    let address = HeaderValue::from_str(address).expect("checked at the start");
    response.headers_mut().insert(LOCATION, address);
    response
}

fn page(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let html = format!("<!doctype html><html lang=\"en\"><title>Protected</title><h1>{text}</h1>");
    let mut response = Response::new(if text.is_empty() { Full::default() } else { Full::new(html.into()) });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
