//! The connections of a worker. Many users share few connections, as behind a load balancer. `Multiplex` has those for HTTP/2.
//!
//! Invariants: at most N connections are open. Users wait for a free one in the order in which they asked. A connection
//! returns to the pool only after its whole reply was read, so no reply reaches the wrong user.

use std::{
    error::Error,
    io,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{Request, Response, StatusCode, body::Incoming, header};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    connect::{Connection, Connector},
    events::Events,
    multiplex::Multiplex,
    target::Target,
};

/// The time limit of a reply, from the sending of the call.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How the type of a stream of events begins.
const EVENT_STREAM: &[u8] = b"text/event-stream";
/// The largest reply that is read. A waiting room's reply has a few hundred bytes.
const REPLY_BYTES: usize = 64 * 1024;

/// What is said of a head that hyper does not read. It has room for 100 fields without asking for memory, and a higher
/// limit would take some for each reply.
const HEAD_TOO_LARGE: &str = "the head of the reply has more than 8 KB or 100 fields";

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// How the server answered the request for a stream.
#[derive(Debug)]
pub enum Listening {
    /// With a stream.
    Open(Events),
    /// With another status than 200.
    Refused(Reply),
}

/// The connections.
#[derive(Debug)]
pub struct Pool {
    connector: Connector,
    /// The connections for HTTP/2; with them, the others are not used for calls.
    http2: Option<Multiplex>,
    // A stack: the connection used last is used next, so that no more are opened than are needed at once.
    idle: Mutex<Vec<Connection>>,
    free: Semaphore,
}

impl Pool {
    /// A pool of at most `connections` to `target`. It uses each of `sources` in turn, or any address if there are none.
    ///
    /// # Errors
    /// If the target's name can have no certificate, or there are no certificates to trust.
    pub fn new(target: &Target, connections: usize, sources: Vec<IpAddr>) -> Result<Self, String> {
        Ok(Self {
            connector: Connector::new(target, sources)?,
            http2: target.http2.then(|| Multiplex::new(target.origin(), connections)),
            idle: Mutex::default(),
            free: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
        })
    }

    /// Sends `request` as soon as a connection is free. It calls `sending` just before.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub async fn call(
        &self,
        mut request: Request<Full<Bytes>>,
        mut sending: impl FnMut(),
    ) -> Result<Reply, String> {
        if let Some(http2) = &self.http2 {
            // Boxed, like the opening of a connection below, so that each call does not move the state of what it seldom does.
            let sent = Box::pin(async { whole(http2.send(&self.connector, request, sending).await?).await });
            return timeout(REPLY_TIMEOUT, sent).await.unwrap_or_else(|_| Err(no_reply()));
        }
        let _permit = self.free.acquire().await.map_err(|_| "the pool is closed")?;
        loop {
            let (mut connection, fresh) = match self.idle_one().await {
                Some(connection) => (connection, false),
                None => (Box::pin(self.connector.open()).await?, true),
            };
            sending();
            match timeout(REPLY_TIMEOUT, connection.call(request, whole)).await {
                Err(_) => return Err(no_reply()),
                Ok(Ok(reply)) => {
                    let reply = reply?;
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                    return Ok(reply);
                }
                // hyper returns the request if it was not sent, because the server had closed an idle connection.
                // After any other failure the server may have handled the call; a retry could take a second place.
                Ok(Err(mut error)) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(http_failure(error.error())),
                },
            }
        }
    }

    /// Opens a stream of events, always with HTTP/1.1, on a connection of its own, which does not count towards the `connections` of the pool. It calls
    /// `sending` just before the request is sent.
    ///
    /// # Errors
    /// A short text, the same for each failure of a kind.
    pub async fn listen(
        &self,
        request: Request<Full<Bytes>>,
        sending: impl FnOnce(),
    ) -> Result<Listening, String> {
        let mut sender = self.connector.open().await?.detached();
        sending();
        let opened = async {
            let response = sender.send_request(request).await.map_err(|error| http_failure(&error))?;
            let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_owned());
            if response.status() != StatusCode::OK {
                return Ok(Listening::Refused(whole(response).await?));
            }
            if !kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
                return Err("the reply is not a stream of events".to_owned());
            }
            Ok(Listening::Open(Events::new(response.into_body())))
        };
        timeout(REPLY_TIMEOUT, opened).await.unwrap_or_else(|_| Err(no_reply()))
    }

    async fn idle_one(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if connection.is_ready().await {
                return Some(connection);
            }
        }
    }
}

/// Reads the whole reply.
async fn whole(response: Response<Incoming>) -> Result<Reply, String> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = Limited::new(response.into_body(), REPLY_BYTES).collect().await;
    let body = body.map_err(|error| body_failure(&*error))?.to_bytes();
    Ok(Reply { status, retry_after, body })
}

/// Why the body of a reply could not be read.
fn body_failure(error: &(dyn Error + Send + Sync + 'static)) -> String {
    if error.is::<LengthLimitError>() {
        return format!("the reply is larger than {} KB", REPLY_BYTES / 1024);
    }
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionReset) => "connection reset during a reply".to_owned(),
        // What hyper makes of a chunk whose size it cannot read.
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            "the reply has a chunk whose size cannot be read".to_owned()
        }
        // The library for HTTP/2 has no public kinds here. It says this of a body that is longer or shorter than its length.
        _ if causes(error).any(|cause| cause.to_string().contains("protocol error")) => {
            "the reply breaks the rules of HTTP/2".to_owned()
        }
        _ => "the reply ended early".to_owned(),
    }
}

/// The failure and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What the system said, or what hyper says in its words.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}

fn no_reply() -> String {
    format!("no reply within {} s", REPLY_TIMEOUT.as_secs())
}

fn http_failure(error: &hyper::Error) -> String {
    if io_kind(error) == Some(io::ErrorKind::ConnectionReset) {
        "connection reset without a reply".to_owned()
    } else if error.is_parse_too_large() {
        HEAD_TOO_LARGE.to_owned()
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "connection closed without a reply".to_owned()
    } else if error.is_parse() {
        "the reply is not HTTP/1.1".to_owned()
    } else {
        format!("no reply: {error}")
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::target::{Way, parse};

    /// What is said of a server that answers a call with these bytes, and then closes or resets the connection.
    async fn said_of(reply: Vec<u8>, resets: bool) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                socket.read_buf(&mut request).await.expect("a request");
            }
            // The caller may have given up the reply.
            drop(socket.write_all(&reply).await);
            if resets {
                socket.set_zero_linger().expect("a socket");
            }
        });
        let target = parse(&url, &Way::default()).expect("a target");
        let pool = Pool::new(&target, 1, Vec::new()).expect("a pool");
        let request = target.post("/traffic/wait", "{}".into()).expect("a request");
        pool.call(request, || {}).await.expect_err("a faulty reply")
    }

    #[tokio::test]
    async fn each_fault_of_a_reply_has_its_own_text() {
        let ok = |head: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").into_bytes();
        let large = " ".repeat(REPLY_BYTES + 1);
        let length = format!("content-length: {}", large.len());
        for (reply, resets, said) in [
            (ok("content-length: 9", "{}"), false, "the reply ended early"),
            (ok("transfer-encoding: chunked", "2\r\n{}\r\n"), false, "the reply ended early"),
            (ok(&length, &large), false, "the reply is larger than 64 KB"),
            (
                ok("transfer-encoding: chunked", "zz\r\n{}"),
                false,
                "the reply has a chunk whose size cannot be read",
            ),
            (
                ok(&format!("x: {}", "x".repeat(9_000)), ""),
                false,
                "the head of the reply has more than 8 KB or 100 fields",
            ),
            (
                ok(&"x: y\r\n".repeat(101), ""),
                false,
                "the head of the reply has more than 8 KB or 100 fields",
            ),
            (b"\0\x01hello\r\n\r\n".to_vec(), false, "the reply is not HTTP/1.1"),
            (Vec::new(), false, "connection closed without a reply"),
            (Vec::new(), true, "connection reset without a reply"),
        ] {
            assert_eq!(said_of(reply, resets).await, said);
        }
    }

    /// HTTP/2 counts 32 bytes more for each field.
    #[tokio::test]
    async fn a_long_head_over_http2_has_its_own_text() {
        for (bytes, said) in [
            (9_000, None),
            (
                17_000,
                Some("the reply breaks the rules of HTTP/2, or its head has more than 16 KB".to_owned()),
            ),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            let url = format!("http://{}", listener.local_addr().expect("bound"));
            tokio::spawn(async move {
                let (socket, _) = listener.accept().await.expect("a connection");
                let reply = service_fn(move |_: Request<Incoming>| async move {
                    Response::builder().header("x", "x".repeat(bytes)).body(Full::<Bytes>::default())
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                drop(server.serve_connection(TokioIo::new(socket), reply).await);
            });
            let target = parse(&url, &Way { http2: true, ..Way::default() }).expect("a target");
            let pool = Pool::new(&target, 1, Vec::new()).expect("a pool");
            let request = target.post("/traffic/wait", "{}".into()).expect("a request");
            assert_eq!(pool.call(request, || {}).await.err(), said, "{bytes}");
        }
    }
}
