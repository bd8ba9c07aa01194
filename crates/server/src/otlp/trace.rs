//! The trace of one request: what is kept while it runs, and the spans that it becomes.
//!
//! A request that is not traced has no [`Trace`]; it reads no clock more, allocates nothing and takes no lock for this. Names are those of
//! the semantic conventions of OpenTelemetry for HTTP servers and databases; `weir.…` are Weir's. Invariants: nothing that a client
//! sends becomes a part of a span, except a method that HTTP defines and the name of a zone that is served; a trace has at most
//! [`MOST_SPANS`] spans; a trace is sent once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::rand;
use events::StoreCall;
use gate::{Trip, Trips};
use hyper::{HeaderMap, Method};
use tokio::time::Instant;

use super::{
    message::{KeyValue, Span, SpanKind, Status, StatusCode, attribute},
    parent::Parent,
    queue::Queue,
    sampler::{Sampled, Sampler},
};
use crate::{
    clock::unix_ns,
    metrics::{Dropped, Signal},
};

/// The most spans of a trace. A join has five; a check of several zones has more.
const MOST_SPANS: usize = 32;

/// The flags of a span: sampled; it is known whether the parent is elsewhere; the parent is elsewhere.
const SAMPLED: u32 = 1;
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;

/// Begins traces.
pub struct Tracer {
    sampler: Sampler,
    queue: Queue<Vec<Span>>,
    /// Whether the store is in Redis.
    is_redis: bool,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The path of its route, with `{…}` for what differs; empty for an unknown path.
    pub route: &'a str,
    /// The path of the request, which a span has only if it is that of the route; empty if it is a visitor's.
    pub path: &'a str,
    /// Where a caller's `traceparent` may be.
    pub headers: &'a HeaderMap,
}

/// A request that is traced.
pub struct Trace {
    tracer: Arc<Tracer>,
    trace_id: [u8; 16],
    span_id: u64,
    parent: Option<[u8; 8]>,
    began: Instant,
    began_ns: u64,
    name: String,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Of the request.
    attributes: Vec<KeyValue>,
    /// Within the request.
    spans: Vec<Span>,
    is_sent: bool,
}

impl Tracer {
    pub(super) fn new(sampler: Sampler, queue: Queue<Vec<Span>>, is_redis: bool) -> Arc<Self> {
        Arc::new(Self { sampler, queue, is_redis })
    }

    /// The trace of a request that began at `now`, if it is traced. `scheme` is `http` or `https`.
    #[must_use]
    pub fn begin(
        self: &Arc<Self>,
        asked: Traced<'_>,
        scheme: &'static str,
        now: Instant,
    ) -> Option<Box<Trace>> {
        let parent = Parent::of(asked.headers);
        match self.sampler.decide(parent.as_ref(), now) {
            Sampled::Yes => Trace::new(self, (asked, scheme), parent, now).map(Box::new),
            Sampled::No => None,
            Sampled::OverLimit => {
                self.queue.deliveries.dropped(Signal::Traces, Dropped::Limit, 1);
                None
            }
        }
    }
}

/// The method as spans have it. Others are a client's own words.
fn method_name(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::CONNECT
        | Method::TRACE => method.as_str(),
        _ => "_OTHER",
    }
}

impl Trace {
    /// None if the system gives no random numbers.
    fn new(
        tracer: &Arc<Tracer>,
        (asked, scheme): (Traced<'_>, &'static str),
        parent: Option<Parent>,
        now: Instant,
    ) -> Option<Self> {
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        rand::fill(&mut span_id).ok()?;
        match parent {
            Some(parent) => trace_id = parent.trace_id,
            None => rand::fill(&mut trace_id).ok()?,
        }
        let method = method_name(asked.method);
        let mut attributes = vec![attribute("http.request.method", method), attribute("url.scheme", scheme)];
        let name = match asked.route {
            "" => if method == "_OTHER" { "HTTP" } else { method }.to_owned(),
            route => {
                attributes.push(attribute("http.route", route));
                if asked.path == route {
                    attributes.push(attribute("url.path", route));
                }
                format!("{method} {route}")
            }
        };
        Some(Self {
            tracer: Arc::clone(tracer),
            trace_id,
            // Not 0, which is no span, and with room for those of the steps.
            span_id: u64::from_be_bytes(span_id) >> 1 | 1 << 62,
            parent: parent.map(|parent| parent.span_id),
            began: now,
            began_ns: unix_ns().saturating_sub(nanos(now.elapsed())),
            name,
            inner: Mutex::new(Inner { attributes, ..Inner::default() }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something about the request.
    pub fn note(&self, key: &str, value: &str) {
        let mut inner = self.lock();
        if inner.attributes.iter().all(|known| known.key != key) {
            inner.attributes.push(attribute(key, value));
        }
    }

    /// Watches what the gate does for the request in a zone that is served. `call` is `join`, `poll` or `leave`.
    #[must_use]
    pub fn watch<'a>(&'a self, call: &'static str, zone: &'a str) -> Watch<'a> {
        self.note("weir.zone", zone);
        let watched = Watched { trace: self, call, zone, since: Instant::now(), limits: None };
        Watch { watched: Some(watched), trips: Trips::watched() }
    }

    /// The reply has this status. Sends the trace.
    pub fn finish(&self, status: u16) {
        let failed = (status >= 500).then(|| status.to_string());
        self.send(|attributes| {
            attributes.push(attribute("http.response.status_code", i64::from(status)));
            if let Some(status) = &failed {
                attributes.push(attribute("error.type", status.as_str()));
            }
            failed.is_some()
        });
    }

    /// `end` completes the attributes, and says whether the request failed.
    fn send(&self, end: impl FnOnce(&mut Vec<KeyValue>) -> bool) {
        let mut inner = self.lock();
        if std::mem::replace(&mut inner.is_sent, true) {
            return;
        }
        let (mut attributes, mut spans) =
            (std::mem::take(&mut inner.attributes), std::mem::take(&mut inner.spans));
        drop(inner);
        let has_failed = end(&mut attributes);
        let remote = if self.parent.is_some() { PARENT_IS_REMOTE } else { 0 };
        spans.push(Span {
            trace_id: self.trace_id.to_vec(),
            span_id: self.span_id.to_be_bytes().to_vec(),
            parent_span_id: self.parent.map_or_else(Vec::new, |id| id.to_vec()),
            name: self.name.clone(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: self.began_ns,
            end_time_unix_nano: self.unix_ns(Instant::now()),
            attributes,
            status: has_failed.then(failure),
            flags: SAMPLED | PARENT_IS_KNOWN | remote,
        });
        self.tracer.queue.offer(spans);
    }

    fn unix_ns(&self, at: Instant) -> u64 {
        self.began_ns + nanos(at.saturating_duration_since(self.began))
    }

    /// Adds a span within the request, below `parent`, and returns its id.
    fn add(
        &self,
        inner: &mut Inner,
        parent: u64,
        (name, kind): (String, SpanKind),
        (from, to): (Instant, Instant),
        attributes: Vec<KeyValue>,
    ) -> u64 {
        // Its number within the trace makes it unique.
        let id = self.span_id + 1 + inner.spans.len() as u64;
        if inner.spans.len() + 1 < MOST_SPANS {
            let start = self.unix_ns(from);
            inner.spans.push(Span {
                trace_id: self.trace_id.to_vec(),
                span_id: id.to_be_bytes().to_vec(),
                parent_span_id: parent.to_be_bytes().to_vec(),
                name,
                kind: kind.into(),
                start_time_unix_nano: start,
                end_time_unix_nano: self.unix_ns(to).max(start),
                attributes,
                status: None,
                flags: SAMPLED | PARENT_IS_KNOWN,
            });
        }
        id
    }

    /// A trip through the lane to the store: the time in the lane, and the call.
    fn add_trip(&self, inner: &mut Inner, gate: u64, zone: &str, trip: &Trip) {
        let call = StoreCall::ALL[trip.call as usize].1;
        let of_zone = || attribute("weir.zone", zone);
        let sent_at = trip.batch.map_or(trip.ended, |batch| batch.at);
        let mut of_lane = vec![of_zone(), attribute("weir.store.call", call)];
        let batch = trip.batch.map(|batch| {
            [
                attribute("weir.batch.number", i64::try_from(batch.number).unwrap_or(i64::MAX)),
                attribute("weir.batch.size", i64::from(batch.calls)),
            ]
        });
        of_lane.extend(batch.iter().flatten().cloned());
        let lane = ("lane".to_owned(), SpanKind::Internal);
        let lane = self.add(inner, gate, lane, (trip.queued, sent_at), of_lane);
        let (Some(sent), Some(batch)) = (trip.batch, batch) else {
            fail(inner, lane, "not_sent");
            return;
        };
        let mut of_store = vec![of_zone(), attribute("weir.store.call", call)];
        of_store.extend(batch);
        let kind = if self.tracer.is_redis {
            of_store
                .extend([attribute("db.system.name", "redis"), attribute("db.operation.name", "EVALSHA")]);
            SpanKind::Client
        } else {
            SpanKind::Internal
        };
        let name = (format!("store {call}"), kind);
        let store = self.add(inner, gate, name, (sent.at, sent.answered), of_store);
        if !sent.ok {
            fail(inner, store, "store");
        }
    }
}

/// Marks a span of a trace as failed.
fn fail(inner: &mut Inner, id: u64, why: &str) {
    if let Some(span) = inner.spans.iter_mut().find(|span| span.span_id == id.to_be_bytes()) {
        span.attributes.push(attribute("error.type", why));
        span.status = Some(failure());
    }
}

impl Drop for Trace {
    /// A request whose client has gone gets no reply.
    fn drop(&mut self) {
        self.send(|attributes| {
            attributes.push(attribute("error.type", "client_gone"));
            true
        });
    }
}

fn failure() -> Status {
    Status { message: String::new(), code: StatusCode::Error.into() }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What the gate does for a request, from now until this is dropped. Without a trace it keeps nothing.
#[derive(Default)]
pub struct Watch<'a> {
    watched: Option<Watched<'a>>,
    /// For the gate.
    pub trips: Trips,
}

struct Watched<'a> {
    trace: &'a Trace,
    call: &'static str,
    zone: &'a str,
    since: Instant,
    /// When the client's limit was asked and answered.
    limits: Option<(Instant, Instant)>,
}

impl Watch<'_> {
    /// Awaits the client's limit. None is an answer of a zone that has no limit.
    pub async fn limits<T>(&mut self, asked: impl Future<Output = Option<T>>) -> Option<T> {
        let began = self.watched.as_ref().map(|_| Instant::now());
        let answer = asked.await;
        if let (Some(watched), Some(began), Some(_)) = (&mut self.watched, began, &answer) {
            watched.limits = Some((began, Instant::now()));
        }
        answer
    }
}

impl Drop for Watch<'_> {
    /// The gate's span, and those below it. A poll that was answered from the view has neither.
    fn drop(&mut self) {
        let Some(Watched { trace, call, zone, since, limits }) = self.watched.take() else { return };
        let trips = self.trips.all();
        if trips.is_empty() && limits.is_none() {
            return;
        }
        let inner = &mut *trace.lock();
        let name = (format!("gate {call}"), SpanKind::Internal);
        let of_zone = vec![attribute("weir.zone", zone)];
        let gate = trace.add(inner, trace.span_id, name, (since, Instant::now()), of_zone);
        if let Some(limits) = limits {
            trace.add(inner, gate, ("limits".to_owned(), SpanKind::Internal), limits, Vec::new());
        }
        for trip in trips {
            trace.add_trip(inner, gate, zone, trip);
        }
    }
}
