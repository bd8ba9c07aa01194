//! What is said over HTTP: the two calls of apps and their streams, the waiting page, the passes' keys, health and metrics,
//! and what happens, for operators.
//!
//! Replies are written as they stand, without a tree of values between. Invariant: every request gets exactly one
//! reply, counted under its route and status; a stream is one, counted when it begins.

pub mod admin;
mod asset;
pub mod console;
pub mod cors;
pub mod listener;
pub mod openapi;
pub mod request;
pub mod stream;
pub mod wait;

pub use crate::problem;

use std::{
    convert::Infallible,
    fmt::{Display, Write as _},
    future::{Future, poll_fn},
    net::{IpAddr, SocketAddr},
    pin::pin,
    str,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use admission::ZoneId;
use arc_swap::ArcSwap;
use bytes::Bytes;
use edge::decode_body_early;
use events::{Bus, LimitedCall, SubscribeError};
use gate::{
    Eta, Gate, Reason, Reply, Token,
    cells::Health,
    definitions::ZoneEditor,
    limits::{Asked, Limits},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::{Body as _, Incoming},
    header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use ipnet::IpNet;
use limiter::{
    Decision,
    layer::{Announced, address},
};
use store::Store;
use tokio::time::{Instant, timeout};

use crate::{
    access::Role,
    change_log::ChangeLog,
    metrics::{Metrics, Route},
    passes::Passes,
    servers::Servers,
    stats::Stats,
};
use admin::Guard;
use cors::Origins;
use openapi::Document;
use problem::{
    BUSY, HEAD_TOO_LARGE, MALFORMED_HTTP, METHOD_NOT_ALLOWED, MISSING_FIELD, NOT_FOUND, Problem, SLOW_BODY,
    STOPPING, STORE_AWAY, UNKNOWN_ZONE, UNSUPPORTED_MEDIA_TYPE,
};
use stream::Streams;
use wait::Pages;

/// The longest body of a request, in bytes.
pub const MAX_BODY: usize = 4_096;

/// The most fields of a head.
pub const MAX_FIELDS: usize = 32;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Everything that answers, assembled.
pub struct App<S> {
    /// The zones.
    pub gate: Arc<Gate<S>>,
    /// Where they are changed.
    pub editor: Arc<ZoneEditor<S>>,
    /// The cells that keep them; none for a store in this process.
    pub cells: Vec<Arc<Health>>,
    /// How often one client may ask.
    pub limits: Limits,
    /// Signs those who are in.
    pub passes: Passes,
    /// Those who are told without asking.
    pub streams: Arc<Streams>,
    /// What happens.
    pub bus: Arc<Bus>,
    /// The pages that may call.
    pub cors_origins: Origins,
    /// The waiting pages; others after the configuration was read again.
    pub pages: ArcSwap<Pages>,
    /// Counts it all.
    pub metrics: Arc<Metrics>,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// Set when the server is about to stop: no new work, please.
    pub stopping: Arc<AtomicBool>,
    /// Set while an operator has taken the server out of service.
    pub draining: Arc<AtomicBool>,
    /// Who may use the admin API.
    pub guard: ArcSwap<Guard>,
    /// The zones' last hours.
    pub stats: Arc<Stats>,
    /// The zones' last changes.
    pub changes: Arc<ChangeLog>,
    /// This server and the others.
    pub servers: Arc<Servers>,
}

type Replied = Result<Response<Full<Bytes>>, Problem>;

/// Answers a request of the public listener.
///
/// Not an `async fn`: the body of a poll is decoded before the future is polled. See [`decode_body_early`].
pub fn public<S: Store>(
    app: &Arc<App<S>>,
    mut request: Request<Incoming>,
    peer: SocketAddr,
) -> impl Future<Output = Served> + use<S> {
    let (route, method) = match request.uri().path() {
        "/traffic/entry" => (Route::Entry, Method::POST),
        "/traffic/wait" => (Route::Wait, Method::POST),
        "/traffic/stream" => (Route::Stream, Method::GET),
        "/healthz" => (Route::Health, Method::GET),
        "/readyz" => (Route::Ready, Method::GET),
        "/.well-known/jwks.json" => (Route::Jwks, Method::GET),
        "/openapi.json" => (Route::OpenApi, Method::GET),
        path => (wait::route(path), Method::GET),
    };
    if matches!(route, Route::Wait | Route::Entry) {
        decode_body_early(&mut request);
    }
    let app = Arc::clone(app);
    async move { Ok(app.counted(route, &method, request, peer, Document::Public).await) }
}

impl<S: Store> App<S> {
    async fn counted(
        self: &Arc<Self>,
        route: Route,
        method: &Method,
        request: Request<Incoming>,
        peer: SocketAddr,
        document: Document,
    ) -> Response<Full<Bytes>> {
        let start = Instant::now();
        let (head, mut body) = request.into_parts();
        let client = address::client(peer.ip(), &head.headers, &self.trusted_proxies);
        let is_stream = matches!(route, Route::Stream | Route::Events);
        let fits =
            head.method == *method || (head.method == Method::HEAD && *method == Method::GET && !is_stream);
        // What is left of a body would be taken for the next request's head.
        let mut left = !body.is_end_stream();
        let mut asked = None;
        let replied = if head.headers.len() > MAX_FIELDS {
            Err(Problem::from(HEAD_TOO_LARGE).closing())
        } else if route == Route::Other {
            Err(NOT_FOUND.into())
        } else if fits {
            match route {
                Route::Entry | Route::Wait => {
                    self.traffic(route, client, &head.headers, &mut body, &mut left, &mut asked).await
                }
                Route::Stream | Route::Events => {
                    // Boxed: few requests are for streams, and all would carry the room for it.
                    let opened = self.stream(route, client, head.uri.query(), &head.headers, &mut asked);
                    match Box::pin(opened).await {
                        Ok(takeover) => {
                            self.metrics.answered(route, 200, start.elapsed());
                            return takeover;
                        }
                        Err(problem) => Err(problem),
                    }
                }
                Route::Jwks => Ok(self.jwks()),
                Route::Page => Box::pin(self.page(&head.uri, &head.headers)).await,
                Route::Notice => Box::pin(self.notice(head.uri.query(), &head.headers)).await,
                Route::Asset => {
                    self.pages.load().asset(head.uri.path(), &head.headers).ok_or_else(|| NOT_FOUND.into())
                }
                Route::Metrics => Ok(text(self.metrics.render(), "text/plain; version=0.0.4; charset=utf-8")),
                Route::Ready => self.ready(),
                Route::OpenApi => Ok(text(document.bytes(), "application/json")),
                Route::Console => {
                    console::reply(head.uri.path(), &head.headers).ok_or_else(|| NOT_FOUND.into())
                }
                _ => Ok(text("ok", "text/plain; charset=utf-8")),
            }
        } else if route.is_traffic()
            && let Some(preflight) = self.cors_origins.preflight(&head.method, &head.headers, method)
        {
            Ok(preflight)
        } else {
            let allow = match route {
                _ if *method == Method::POST => "POST",
                Route::Stream | Route::Events => "GET",
                _ => "GET, HEAD",
            };
            Err(Problem { allow: Some(allow), ..METHOD_NOT_ALLOWED.into() })
        };
        let mut response = replied.unwrap_or_else(|problem| {
            tracing::debug!(
                %client, route = ?route, code = problem.code.name, detail = %problem.detail, "refused"
            );
            problem.into_response()
        });
        if let Some(asked) = asked {
            write_limit(&asked, response.headers_mut());
        }
        if route.is_traffic() {
            self.cors_origins.say(&head.headers, response.headers_mut());
        }
        if left {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.answered(route, response.status().as_u16(), start.elapsed());
        response
    }

    /// The takeover of a connection by a stream, if the request is right.
    async fn stream(
        self: &Arc<Self>,
        route: Route,
        client: IpAddr,
        query: Option<&str>,
        headers: &HeaderMap,
        asked: &mut Option<Asked>,
    ) -> Replied {
        // Whoever took the server out of service goes on looking at it.
        let is_over = self.stopping.load(Relaxed) || route == Route::Stream && self.draining.load(Relaxed);
        if is_over {
            return Err(Problem { retry_after_s: Some(1), ..Problem::from(STOPPING) });
        }
        if route == Route::Events {
            self.guard.load().admit(headers)?.needs(Role::Viewer)?;
            let kinds = stream::kinds(query)?;
            let told = self.bus.subscribe("operator", stream::RIGHT, kinds).map_err(|e| match e {
                SubscribeError::TooMany => {
                    Problem { retry_after_s: Some(5), ..Problem::new(BUSY, e.to_string()) }
                }
                SubscribeError::Refused { .. } | SubscribeError::Nothing => {
                    Problem::new(problem::WRONG_TYPE, e.to_string())
                }
            })?;
            return Ok(stream::open_told(Arc::clone(&self.bus), told, self.streams.stopped()));
        }
        let place = stream::place(query, headers)?;
        let zone = ZoneId::parse(&place.zone).map_err(|_| Problem::from(UNKNOWN_ZONE))?;
        let token = place.token.as_bytes();
        // However long it lasts, a stream is one call.
        self.may_ask(zone.as_str(), LimitedCall::Entry, client, Some(token), asked).await?;
        let told = self.gate.follow(zone.as_str(), token).await?;
        let mut said = HeaderMap::new();
        if let Some(asked) = asked {
            write_limit(asked, &mut said);
        }
        self.cors_origins.say(headers, &mut said);
        Ok(stream::open_place(Arc::clone(self), zone, told, said))
    }

    /// Whether new work is welcome: the server is not stopping, and the store answers, or a part of it. What does not
    /// answer is named.
    fn ready(&self) -> Replied {
        if self.stopping.load(Relaxed) || self.draining.load(Relaxed) {
            return Err(Problem { retry_after_s: Some(1), ..Problem::from(STOPPING) });
        }
        let zones = self.gate.zones();
        let down = self.cells.iter().filter(|cell| !cell.is_up()).map(|cell| cell.name.as_str());
        let silent = zones.iter().filter(|(_, answers)| !answers).map(|(zone, _)| zone.as_str());
        let answers = if zones.is_empty() {
            self.cells.iter().any(|cell| cell.is_up())
        } else {
            zones.iter().any(|(_, answers)| *answers)
        };
        let away = [some_of("cells", down), some_of("zones", silent)].concat();
        if answers {
            Ok(text(format!("ok\n{away}"), "text/plain; charset=utf-8"))
        } else {
            let problem = Problem::new(STORE_AWAY, away.trim_end().replace('\n', "; "));
            Err(Problem { retry_after_s: Some(1), ..problem })
        }
    }

    /// A zone's waiting page. Where there is no such zone, it is the page that says so.
    async fn page(&self, uri: &Uri, headers: &HeaderMap) -> Replied {
        let zone = wait::zone_of(uri.path()).ok_or_else(|| Problem::from(NOT_FOUND))?;
        let policy = self.gate.policy(zone.as_str());
        let may_be = policy.is_some() || self.gate.may_keep(zone.as_str()).await;
        let status = if may_be { StatusCode::OK } else { StatusCode::NOT_FOUND };
        Ok(self.pages.load().page(&zone, policy, status, uri.query(), headers))
    }

    /// What operators tell those who wait in a zone.
    async fn notice(&self, query: Option<&str>, headers: &HeaderMap) -> Replied {
        let [zone] = stream::fields(query, ["zone"])?;
        let zone = zone.ok_or_else(|| Problem::new(MISSING_FIELD, "`zone`, in the address"))?;
        match self.gate.notice(&zone) {
            Some(notice) => Ok(wait::notice(&notice, headers)),
            None if self.gate.may_keep(&zone).await => {
                Err(Problem { retry_after_s: Some(3), ..STORE_AWAY.into() })
            }
            None => Err(UNKNOWN_ZONE.into()),
        }
    }

    fn jwks(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.passes.jwks()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
        response
    }

    async fn traffic(
        &self,
        route: Route,
        client: IpAddr,
        headers: &HeaderMap,
        body: &mut Incoming,
        left: &mut bool,
        asked: &mut Option<Asked>,
    ) -> Replied {
        if let Some(problem) = unreadable(headers, body, MAX_BODY) {
            return Err(problem);
        }
        let body = read(body, MAX_BODY, self.body_timeout).await?;
        *left = false;
        let entry = route == Route::Entry;
        let ask = request::parse(&body, entry)?;
        let token = ask.token.as_deref().map(str::as_bytes);
        let call = if token.is_some() { LimitedCall::Entry } else { LimitedCall::Wait };
        self.may_ask(&ask.zone, call, client, token, asked).await?;
        let reply = match token {
            Some(token) if entry => self.gate.entry(&ask.zone, token).await?,
            token => self.gate.wait(&ask.zone, token).await?,
        };
        let mut response = Response::new(Full::new(Bytes::from(self.write(&ask.zone, &reply))));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        Ok(response)
    }

    /// Asks the zone's limits, and leaves in `asked` what they said. The holder of a `token` that is refused is present all
    /// the same.
    async fn may_ask(
        &self,
        zone: &str,
        call: LimitedCall,
        client: IpAddr,
        token: Option<&[u8]>,
        asked: &mut Option<Asked>,
    ) -> Result<(), Problem> {
        if let Some(limits) = self.gate.limits(zone) {
            *asked = self.limits.ask(zone, &limits, call, client).await;
        }
        match asked.as_ref().map(|asked| asked.decision) {
            Some(Decision::Unknown { .. }) => self.metrics.limits_unknown.increment(1),
            Some(refusal) if !refusal.is_allowed() => {
                let seconds = refusal.retry_after_s().unwrap_or(1);
                let retry_after_s = u32::try_from(seconds).unwrap_or(u32::MAX);
                self.gate.limited(zone, call, retry_after_s, token);
                return Err(Problem::too_many_requests(retry_after_s));
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&self, zone: &str, reply: &Reply) -> String {
        match reply {
            Reply::Entered { token, pass } => {
                let mut out = String::with_capacity(896);
                out.push_str(r#"{"canEnter":true,"token":""#);
                out.push_str(token_text(token));
                out.push_str(r#"","pass":""#);
                self.passes.write(zone, pass, &mut out);
                out.push_str("\"}");
                out
            }
            Reply::Waiting { token, rank, eta, reason, polling_period_ms, stale } => {
                let mut out = String::with_capacity(256);
                out.push_str(r#"{"canEnter":false,"token":""#);
                out.push_str(token_text(token));
                out.push_str(r#"","waiting":"#);
                let zone = format_args!(r#","pollingPeriod":{polling_period_ms},"stale":{stale}"#);
                write_waiting(&mut out, *rank, *eta, *reason, zone);
                out.push('}');
                out
            }
        }
    }
}

fn token_text(token: &Token) -> &str {
    str::from_utf8(token).expect("tokens are base64url")
}

/// Writes what the limiter decided into the headers of the reply.
fn write_limit(asked: &Asked, headers: &mut HeaderMap) {
    Announced::new(asked.limit.clone(), asked.name).write(&asked.decision, headers);
}

/// What those who wait in a zone are told alike, for [`write_waiting`].
fn zone_part(polling_period_ms: u32, stale: bool) -> String {
    format!(r#","pollingPeriod":{polling_period_ms},"stale":{stale}"#)
}

/// Writes `waiting`; `zone` is what [`zone_part`] writes.
fn write_waiting(out: &mut String, rank: u64, eta: Option<Eta>, reason: Option<Reason>, zone: impl Display) {
    let written = match eta {
        Some(Eta { seconds, low_s, high_s }) => {
            write!(out, r#"{{"rank":{rank},"etaSeconds":{seconds},"etaRange":[{low_s},{high_s}]{zone}"#)
        }
        None => write!(out, r#"{{"rank":{rank},"etaSeconds":null,"etaRange":null{zone}"#),
    };
    debug_assert!(written.is_ok(), "a String takes all");
    if let Some(reason) = reason {
        out.push_str(r#","reason":""#);
        out.push_str(reason.as_str());
        out.push('"');
    }
    out.push('}');
}

/// A line that names what is away, the first few.
fn some_of<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 10;
    let names: Vec<_> = names.collect();
    let more = names.len().saturating_sub(SHOWN);
    match names.len() {
        0 => String::new(),
        _ if more > 0 => format!("{what} away: {} and {more} more\n", names[..SHOWN].join(", ")),
        _ => format!("{what} away: {}\n", names.join(", ")),
    }
}

fn text(body: impl Into<Bytes>, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}

/// What can be refused before the body was read. A missing content type is taken for JSON.
fn unreadable(headers: &HeaderMap, body: &Incoming, most: usize) -> Option<Problem> {
    let is_json = |value: &HeaderValue| {
        let kind = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    };
    let coded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if body.size_hint().lower() > most as u64 {
        Some(Problem::too_large(most))
    } else if headers.get(CONTENT_TYPE).is_some_and(|value| !is_json(value)) {
        Some(UNSUPPORTED_MEDIA_TYPE.into())
    } else if headers.get(CONTENT_ENCODING).is_some_and(coded) {
        Some(Problem::new(UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed"))
    } else {
        None
    }
}

async fn read(body: &mut Incoming, most: usize, limit: Duration) -> Result<Bytes, Problem> {
    let mut reading = pin!(read_all(body, most));
    // Nearly every body is here already: no timer for those.
    let now = poll_fn(|cx| {
        Poll::Ready(match reading.as_mut().poll(cx) {
            Poll::Ready(read) => Some(read),
            Poll::Pending => None,
        })
    });
    match now.await {
        Some(read) => read,
        None => timeout(limit, reading).await.unwrap_or_else(|_| Err(Problem::from(SLOW_BODY).closing())),
    }
}

async fn read_all(body: &mut Incoming, most: usize) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(MALFORMED_HTTP, "the body broke off").closing())?;
        // Trailers mean nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > most {
            return Err(Problem::too_large(most));
        }
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { [&first[..], &rest].concat().into() })
}

/// What the service of a connection returns. It never fails: an error is a reply, too.
type Served = Result<Response<Full<Bytes>>, Infallible>;
