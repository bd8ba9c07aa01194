//! Sends what waits to the collector, over HTTP, one message at a time for each signal.
//!
//! Invariants: a call takes at most [`WITHIN`], and reads at most [`MOST_REPLY`] bytes. A message that fails is dropped and counted, and
//! never sent again: what is worth more than that belongs into the audit log. A trouble of the collector is named in the log once, and so is
//! its end; troubles that come and go are named once in [`QUIET`].

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    HeaderMap, Request,
    header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT},
};
use prost::Message as _;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use super::message::{ExportReply, PartialSuccess};
use crate::{
    metrics::{Deliveries, Dropped, Signal},
    outgoing::{Address, Link},
};

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The longest reply, in bytes.
const MOST_REPLY: usize = 64 << 10;

/// The longest text of the collector that the log shows, in characters.
const MOST_SHOWN: usize = 200;

/// How long items gather before they are sent, unless there are enough for a message, which is looked at so often.
const GATHER: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);

/// The most items of a message.
const BATCH: usize = 256;

/// How long after a failure the next message waits.
const PAUSE: Duration = Duration::from_secs(5);

/// How often metrics are sent.
pub(super) const EVERY: Duration = Duration::from_secs(15);

/// For how long after a line about a trouble no other one is written.
const QUIET: Duration = Duration::from_secs(60);

/// Where everything goes.
pub(super) struct Collector {
    address: Address,
    headers: HeaderMap,
    pub(super) deliveries: Arc<Deliveries>,
    troubles: Mutex<Troubles>,
}

#[derive(Default)]
struct Troubles {
    /// By signal.
    now: [Option<Trouble>; Signal::ALL.len()],
    /// When the log last named one.
    named_at: Option<Instant>,
}

struct Trouble {
    cause: String,
    is_named: bool,
}

impl Collector {
    pub(super) fn new(address: Address, headers: HeaderMap, deliveries: Arc<Deliveries>) -> Arc<Self> {
        Arc::new(Self { address, headers, deliveries, troubles: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the collector does not take a signal. A trouble that several signals share is named for the first of them.
    fn note_trouble(&self, signal: Signal, cause: String) {
        let mut troubles = self.lock();
        if troubles.now[signal as usize].is_some() {
            return;
        }
        let is_shared = troubles.now.iter().flatten().any(|other| other.is_named && other.cause == cause);
        let is_quiet = troubles.named_at.is_some_and(|at| at.elapsed() < QUIET);
        let is_named = is_shared || !is_quiet;
        if is_named && !is_shared {
            troubles.named_at = Some(Instant::now());
            tracing::warn!(
                collector = %self.address,
                "the collector of OpenTelemetry does not take {}: {cause}; what it does not take is lost, and counted in \
                 weir_otlp_dropped_total; polls and entries are not affected",
                signal.as_str()
            );
        }
        troubles.now[signal as usize] = Some(Trouble { cause, is_named });
    }

    /// The first signal that is taken again is named for those that share its trouble: of some, there may be nothing to send for long.
    fn note_taken(&self, signal: Signal) {
        let mut troubles = self.lock();
        let Some(Trouble { cause, is_named: true }) = troubles.now[signal as usize].take() else { return };
        for other in troubles.now.iter_mut().flatten().filter(|other| other.cause == cause) {
            other.is_named = false;
        }
        tracing::info!(collector = %self.address, "the collector of OpenTelemetry takes {} again", signal.as_str());
    }
}

/// Sends one signal.
pub(super) struct Delivery {
    collector: Arc<Collector>,
    signal: Signal,
    link: Option<Link<Full<Bytes>>>,
}

impl Delivery {
    pub(super) fn new(collector: &Arc<Collector>, signal: Signal) -> Self {
        Self { collector: Arc::clone(collector), signal, link: None }
    }

    /// Sends items in messages until `stop` is true, and then those that still wait.
    pub(super) async fn run<T>(
        mut self,
        mut waiting: mpsc::Receiver<T>,
        mut stop: watch::Receiver<bool>,
        encode: impl Fn(Vec<T>) -> Vec<u8>,
    ) {
        let mut items = Vec::new();
        'serving: loop {
            tokio::select! {
                count = waiting.recv_many(&mut items, BATCH) => if count == 0 { return },
                () = stopped(&mut stop) => break,
            }
            let until = Instant::now() + GATHER;
            while items.len() + waiting.len() < BATCH && Instant::now() < until {
                tokio::select! {
                    () = sleep(LOOK) => {}
                    () = stopped(&mut stop) => break 'serving,
                }
            }
            while items.len() < BATCH
                && let Ok(item) = waiting.try_recv()
            {
                items.push(item);
            }
            if !self.send_items(&mut items, &encode).await {
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    () = stopped(&mut stop) => {}
                }
            }
        }
        waiting.close();
        while !items.is_empty() || waiting.recv_many(&mut items, BATCH).await > 0 {
            if !self.send_items(&mut items, &encode).await {
                // The collector is away, and this server stops.
                let rest = std::iter::from_fn(|| waiting.try_recv().ok()).count() as u64;
                self.collector.deliveries.dropped(self.signal, Dropped::Failed, rest);
                return;
            }
        }
    }

    async fn send_items<T>(&mut self, items: &mut Vec<T>, encode: impl Fn(Vec<T>) -> Vec<u8>) -> bool {
        let count = items.len() as u64;
        self.send(encode(std::mem::take(items)), count).await
    }

    /// Sends a report regularly, and once more when `stop` is true.
    pub(super) async fn report(mut self, mut stop: watch::Receiver<bool>, read: impl Fn() -> Vec<Vec<u8>>) {
        let mut every = interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_last = false;
        while !is_last {
            tokio::select! {
                _ = every.tick() => {}
                () = stopped(&mut stop) => is_last = true,
            }
            for message in read() {
                if !self.send(message, 1).await {
                    break;
                }
            }
        }
    }

    /// Sends a message with `count` items; returns whether the collector took it.
    async fn send(&mut self, message: Vec<u8>, count: u64) -> bool {
        let posted = timeout(WITHIN, self.post(message)).await;
        let posted = posted.unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())));
        let deliveries = &self.collector.deliveries;
        match posted {
            Ok(None) => {
                deliveries.sent(self.signal, count);
                self.collector.note_taken(self.signal);
                true
            }
            Ok(Some(PartialSuccess { rejected, error_message })) => {
                deliveries.sent(self.signal, count);
                // A collector cannot refuse more than it got.
                let rejected = u64::try_from(rejected).unwrap_or(0).min(count);
                deliveries.dropped(self.signal, Dropped::Refused, rejected);
                let said: String = error_message.chars().take(MOST_SHOWN).collect();
                self.collector.note_trouble(self.signal, format!("it refuses a part, and says {said:?}"));
                true
            }
            Err(cause) => {
                // What is left of the connection may belong to this message.
                self.link = None;
                deliveries.dropped(self.signal, Dropped::Failed, count);
                self.collector.note_trouble(self.signal, cause);
                false
            }
        }
    }

    /// Posts a message. Returns what the collector refused of it.
    async fn post(&mut self, message: Vec<u8>) -> Result<Option<PartialSuccess>, String> {
        let Collector { address, headers, .. } = &*self.collector;
        let path = format!("{}/v1/{}", address.path(), self.signal.as_str());
        let mut request =
            Request::post(path).body(Full::new(Bytes::from(message))).map_err(|why| why.to_string())?;
        request.headers_mut().extend(headers.clone());
        let set = [
            (HOST, HeaderValue::try_from(address.authority()).map_err(|why| why.to_string())?),
            (USER_AGENT, HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")))),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf")),
        ];
        request.headers_mut().extend(set.map(|(name, value)| (Some(name), value)));
        let link = match self.link.take().filter(|link| !link.sender.is_closed()) {
            Some(link) => link,
            None => address.open().await?,
        };
        let link = self.link.insert(link);
        link.sender.ready().await.map_err(|why| why.to_string())?;
        let response = link.sender.send_request(request).await.map_err(|why| why.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_REPLY).collect().await;
        let body = body.map_err(|why| format!("its reply cannot be read: {why}"))?.to_bytes();
        if !status.is_success() {
            return Err(format!("it answers with status {}", status.as_u16()));
        }
        // A reply that is none of OTLP's says nothing.
        let reply = ExportReply::decode(body).unwrap_or_default();
        Ok(reply.partial_success.filter(|part| part.rejected > 0))
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender is gone only with the server.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
