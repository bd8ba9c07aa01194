//! A waiting room that admits nobody. A function sets the delay of each call, and the server measures it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

/// The server. It ends with the runtime.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// How long each call was held, from its arrival to its reply.
    pub(crate) held: Arc<Mutex<Vec<Duration>>>,
    /// How many calls arrived.
    heard: Arc<AtomicU64>,
    /// The listener and its connections.
    serving: JoinHandle<()>,
}

impl Server {
    /// `delay` receives the number of the call, from 0, and the time since the first call.
    pub(crate) async fn start(delay: impl Fn(u64, Duration) -> Duration + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the server");
        let address = listener.local_addr().expect("the server");
        let held = Arc::<Mutex<Vec<Duration>>>::default();
        let (delay, calls, first) =
            (Arc::new(delay), Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let (room, heard) = (Arc::clone(&held), Arc::clone(&calls));
        let serving = tokio::spawn(async move {
            // They end with this task.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("the server");
                stream.set_nodelay(true).expect("the server");
                let (delay, calls, first, held) = (delay.clone(), calls.clone(), first.clone(), room.clone());
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let (delay, calls, first, held) =
                        (delay.clone(), calls.clone(), first.clone(), held.clone());
                    async move {
                        let arrived = Instant::now();
                        // The generator asks for the published rule before the run. This server has none.
                        if request.uri().path().starts_with("/zones/") {
                            let nothing = Response::builder().status(404).body(Full::default());
                            return Ok(nothing.expect("the server"));
                        }
                        let asks = request.uri().path() == "/traffic/entry";
                        let body = request.into_body().collect().await.expect("the server").to_bytes();
                        // The first call comes from the generator itself, not from a user.
                        if asks && body.windows(13).any(|part| part == b"loadgen-asks-") {
                            let problem = Full::new(Bytes::from_static(br#"{"code":"bad_token"}"#));
                            return Ok::<_, Infallible>(
                                Response::builder().status(401).body(problem).expect("the server"),
                            );
                        }
                        let since = arrived - *first.lock().expect("unpoisoned").get_or_insert(arrived);
                        tokio::time::sleep(delay(calls.fetch_add(1, Ordering::Relaxed), since)).await;
                        held.lock().expect("unpoisoned").push(arrived.elapsed());
                        let waiting = r#"{"rank":1,"etaSeconds":9,"etaRange":[8,10],"pollingPeriod":200,"stale":false}"#;
                        let reply = format!(r#"{{"canEnter":false,"token":"t","waiting":{waiting}}}"#);
                        Ok(Response::new(Full::new(Bytes::from(reply))))
                    }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, held, heard, serving }
    }

    /// Closes the port and all connections. No reply follows.
    pub(crate) fn die(&self) {
        self.serving.abort();
    }

    /// Waits until a user has called.
    pub(crate) async fn called(&self) {
        self.has_answered(1).await;
    }

    /// Waits until so many calls arrived.
    pub(crate) async fn has_heard(&self, calls: u64) {
        while self.heard.load(Ordering::Relaxed) < calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many calls were answered.
    pub(crate) async fn has_answered(&self, calls: usize) {
        while self.held.lock().expect("unpoisoned").len() < calls {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
