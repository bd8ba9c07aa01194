//! Traces, metrics and logs for a collector of OpenTelemetry, by OTLP over HTTP with protobuf.
//!
//! | file | concern |
//! |---|---|
//! | `parent` | the header `traceparent` |
//! | `sampler` | which requests are traced |
//! | `trace` | the spans of one request |
//! | `figures` | metrics, from what `/metrics` says |
//! | `logs` | the log |
//! | `hidden` | what a collector must not see in texts |
//! | `queue` | what waits to be sent |
//! | `delivery` | sends it |
//! | `message` | the messages |
//!
//! Invariants: without `otlp.endpoint` nothing of this exists, and a request does no more than to find none. Requests never wait for a
//! collector: what does not fit is dropped and counted. No token, address or e-mail address leaves in a span, a metric or a record.

mod delivery;
mod figures;
mod hidden;
mod logs;
pub mod message;
mod parent;
mod queue;
mod sampler;
mod trace;

use std::{path::PathBuf, sync::Arc, time::Duration};

use aws_lc_rs::rand;
use hyper::{
    HeaderMap,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use percent_encoding::percent_decode_str;
use prost::Message as _;
use rustix::system::uname;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

pub use crate::outgoing::Address;
use crate::{
    clock::unix_ns,
    failure::{self, Failure},
    keys::{KeyFault, read_key},
    metrics::{Deliveries, Metrics, Signal},
    secret::Secret,
};
use delivery::{Collector, Delivery};
use figures::Times;
pub use logs::LogLayer;
use message::{LogRecord, LogsRequest, MetricsRequest, Resource, Scope, Span, TracesRequest, attribute};
use queue::Queue;
use sampler::Sampler;
pub use sampler::WHOLE;
pub use trace::{Trace, Traced, Tracer, Watch};

/// The most traces and the most log records that wait. A trace has 2 KB or less, a record usually less than 1 KB.
const MOST_TRACES: usize = 2_048;
const MOST_RECORDS: usize = 2_048;

/// The most headers that are sent along.
const MOST_HEADERS: usize = 16;

/// How long a stopping server may take to send what waits.
const FLUSH: Duration = Duration::from_secs(2);

/// What is sent where.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// The collector. `/v1/traces` and the like are added to its path.
    pub endpoint: Address,
    /// The share of requests that are traced, in parts of [`WHOLE`].
    pub sample: u32,
    /// The most traces a second: of those that begin here, and of those that callers began.
    pub max_traces_per_s: u32,
    /// The headers that are sent along, as they are written.
    pub headers: Option<Secret>,
    /// A file with them.
    pub headers_file: Option<PathBuf>,
}

impl OtlpSettings {
    /// The headers that are sent along.
    ///
    /// # Errors
    /// A [`KeyFault`] that names the file.
    pub fn read_headers(&self) -> Result<HeaderMap, KeyFault> {
        match (&self.headers, &self.headers_file) {
            (Some(text), _) => Ok(headers(text.reveal()).expect("they were checked with the settings")),
            (None, Some(path)) => {
                headers(&read_key(path)?).map_err(|what| KeyFault::Wrong { path: path.clone(), what })
            }
            (None, None) => Ok(HeaderMap::new()),
        }
    }
}

/// Reads `NAME=VALUE` pairs, separated by commas or line ends, with `%XX` for other characters in values: the form of
/// `OTEL_EXPORTER_OTLP_HEADERS`.
///
/// # Errors
/// What is wrong, without any value.
pub fn headers(text: &str) -> Result<HeaderMap, String> {
    let own = [HOST, CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION];
    let mut found = HeaderMap::new();
    let pairs = text.split([',', '\n']).map(str::trim).filter(|pair| !pair.is_empty());
    for (pair, number) in pairs.zip(1..) {
        let wrong = |what: &str| {
            format!("header {number} {what}; write NAME=VALUE, each on a line of its own or behind a comma")
        };
        if number > MOST_HEADERS {
            return Err(format!("has more than {MOST_HEADERS} headers; leave some out"));
        }
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong("has a name that no header has"))?;
        if own.contains(&name) {
            return Err(wrong("is one that Weir sets itself"));
        }
        let is_escape =
            |rest: &str| rest.get(..2).is_some_and(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        if !value.split('%').skip(1).all(is_escape) {
            return Err(wrong(
                "has a `%` in its value without two hexadecimal digits behind it; write %25 for `%`",
            ));
        }
        let value: Vec<u8> = percent_decode_str(value.trim()).collect();
        let mut value =
            HeaderValue::try_from(value).map_err(|_| wrong("has a value with control characters"))?;
        value.set_sensitive(true);
        found.append(name, value);
    }
    if found.is_empty() {
        return Err("has no header; write NAME=VALUE".to_owned());
    }
    Ok(found)
}

/// What gathers for a collector before the server runs.
pub struct Otlp {
    collector: Arc<Collector>,
    tracer: Arc<Tracer>,
    traces: mpsc::Receiver<Vec<Span>>,
    records: mpsc::Receiver<LogRecord>,
    resource: Resource,
    start_ns: u64,
}

/// What is being sent.
pub struct Sending {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Otlp {
    /// Prepares everything. Nothing is sent yet; the log is taken in by the layer. `is_redis` says whether the store is in Redis.
    ///
    /// # Errors
    /// The file with the headers cannot be used, or the system gives no random numbers.
    pub fn new(settings: &OtlpSettings, is_redis: bool) -> Result<(Self, LogLayer), Failure> {
        let deliveries = Arc::new(Deliveries::default());
        let (queue, traces) = Queue::new(MOST_TRACES, Signal::Traces, &deliveries);
        let (log, records) = Queue::new(MOST_RECORDS, Signal::Logs, &deliveries);
        let mut id = [0; 16];
        rand::fill(&mut id)
            .map_err(|_| Failure::new(failure::UNAVAILABLE, "the system gives no random numbers"))?;
        let sampler = Sampler::new(settings.sample, settings.max_traces_per_s);
        let otlp = Self {
            collector: Collector::new(settings.endpoint.clone(), settings.read_headers()?, deliveries),
            tracer: Tracer::new(sampler, queue, is_redis),
            traces,
            records,
            resource: resource(u128::from_be_bytes(id)),
            start_ns: unix_ns(),
        };
        Ok((otlp, LogLayer::new(log)))
    }

    /// Begins the traces of requests.
    #[must_use]
    pub fn tracer(&self) -> Arc<Tracer> {
        Arc::clone(&self.tracer)
    }

    /// Sends from now on. `metrics` are sent, too, and show what became of what was sent.
    #[must_use]
    pub fn start(self, metrics: Arc<Metrics>) -> Sending {
        let Self { collector, tracer: _, traces, records, resource, start_ns } = self;
        metrics.watch_deliveries(Arc::clone(&collector.deliveries));
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let of = |signal| Delivery::new(&collector, signal);
        let who = resource.clone();
        tasks.spawn(of(Signal::Traces).run(traces, stopped.clone(), move |traces: Vec<Vec<Span>>| {
            let spans = traces.into_iter().flatten().collect();
            TracesRequest::of(who.clone(), scope(), spans).encode_to_vec()
        }));
        let who = resource.clone();
        tasks.spawn(of(Signal::Logs).run(records, stopped.clone(), move |records| {
            LogsRequest::of(who.clone(), scope(), records).encode_to_vec()
        }));
        tasks.spawn(of(Signal::Metrics).report(stopped, move || {
            let text = metrics.render();
            let times = Times { start_ns, now_ns: unix_ns() };
            let messages = figures::read(&String::from_utf8_lossy(&text), times).into_iter();
            messages
                .map(|metrics| MetricsRequest::of(resource.clone(), scope(), metrics).encode_to_vec())
                .collect()
        }));
        Sending { stop, tasks }
    }
}

impl Sending {
    /// Sends what waits, for at most two seconds.
    pub async fn finish(mut self) {
        let _ = self.stop.send(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // What is not sent by then is lost with the server.
        let _ = timeout(FLUSH, all).await;
    }
}

/// This server, as the collector sees it.
fn resource(id: u128) -> Resource {
    let host = uname().nodename().to_string_lossy().into_owned();
    // A random UUID of version 4.
    let id = id & !(0xf << 76 | 0x3 << 62) | 4 << 76 | 0x2 << 62;
    let [a, b, c, d, e] =
        [id >> 96, id >> 80 & 0xffff, id >> 64 & 0xffff, id >> 48 & 0xffff, id & 0xffff_ffff_ffff];
    Resource {
        attributes: vec![
            attribute("service.name", "weir"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")),
            attribute("host.name", host),
        ],
    }
}

fn scope() -> Scope {
    Scope { name: "weir".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_values_are_not_shown() {
        let read = headers("Authorization=Basic%20YTpi,\n x-tenant = shop=1 \n").expect("right");
        assert_eq!(read["authorization"], "Basic YTpi");
        assert_eq!(read["x-tenant"], "shop=1");
        assert!(read.values().all(HeaderValue::is_sensitive));
        assert!(!format!("{read:?}").contains("YTpi"));
        let many = "a=s3cret,".repeat(MOST_HEADERS + 1);
        for wrong in [
            "",
            "s3cret",
            "na me=s3cret",
            "host=s3cret",
            "a=s3cret%0d%0aX: y",
            "a=s3cret%",
            "a=s3cret%Z0",
            &many,
        ] {
            let fault = headers(wrong).expect_err(wrong);
            assert!(!fault.contains("s3cret"), "{fault}");
        }
    }

    #[test]
    fn a_server_has_a_name_of_its_own() {
        let id = &resource(u128::MAX).attributes[2];
        assert_eq!(*id, attribute("service.instance.id", "ffffffff-ffff-4fff-bfff-ffffffffffff"));
    }
}
