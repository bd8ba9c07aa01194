//! A request that arrives whole is read without an HTTP engine. It must get the same reply as from the engine, byte for byte
//! but for the date, and the connection must go on or end in the same way.
//!
//! An empty line before a request leaves it to the engine, which ignores the line (RFC 9112, 2.2). So each request is sent
//! twice: with and without one.

use std::{
    convert::Infallible,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use edge::{Edge, Limits, Observer, Protocol, Received, Refusal, listen};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, header::CONNECTION, header::HeaderValue};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use tokio::{sync::watch, task::spawn_blocking};
use tower::service_fn;

const LIMITS: Limits = Limits {
    connections: 16,
    reserved: 0,
    per_client: None,
    unknown_client: None,
    header: Duration::from_secs(5),
    write: Duration::from_secs(5),
    idle: Duration::from_secs(5),
};

struct Quiet;

impl Observer for Quiet {
    fn refused(&self, refusal: Refusal) -> Response<Bytes> {
        let mut reply = Response::new(format!("{refusal:?}").into());
        *reply.status_mut() = StatusCode::BAD_REQUEST;
        reply
    }
}

/// Which requests had their whole body at once, in the order of arrival.
type Arrived = Arc<Mutex<Vec<bool>>>;

/// Replies with everything that it received. The path asks for a status, or for the end of the connection.
async fn answer(request: Request<Received>, arrived: Arrived) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    arrived.lock().expect("not poisoned").push(matches!(body, Received::Whole(_)));
    let path = head.uri.path().trim_start_matches('/').to_owned();
    let Ok(body) = body.collect().await else { return Ok(Response::new(Full::default())) };
    let body = body.to_bytes();
    let seen = format!(
        "{} {:?} {:?} {:?} {}",
        head.method,
        head.uri,
        head.version,
        head.headers,
        body.escape_ascii()
    );
    let mut response = Response::new(Full::from(seen));
    if let Ok(status) = path.parse() {
        *response.status_mut() = status;
    }
    if matches!(path.as_str(), "204" | "304" | "empty") {
        *response.body_mut() = Full::default();
    }
    if path == "close" {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.headers_mut().append("x-two", HeaderValue::from_static("first"));
    response.headers_mut().append("x-two", HeaderValue::from_static("second"));
    Ok(response)
}

/// What comes back for `bytes`, without the dates.
fn replies(server: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(server).expect("connected");
    client.write_all(bytes).expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).expect("replies");
    let replies = replies.escape_ascii().to_string().replace("\\r\\n", "\n");
    let kept = replies.split('\n').filter(|line| !line.starts_with("date: ") || line.len() != DATE_LEN);
    kept.collect::<Vec<_>>().join("\n")
}

/// The length of `date: Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_LEN: usize = 35;

/// One of these, nine times of ten one of `usual`.
fn mostly(usual: &[&'static str], unusual: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    prop_oneof![9 => select(usual.to_vec()), 1 => select(unusual.to_vec())]
}

/// A request, which may be wrong in some way.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = mostly(&["GET", "POST"], &["HEAD", "PUT", "OPTIONS", "get", "", "CONNECT"]);
    let target = mostly(
        &["/", "/a?b=c&d", "/a/%20/..//x", "/204", "/304", "/404", "/500", "/close", "/empty"],
        &["*", "http://x/a", "x:80", "a", "/\u{e4}", "/a b", "/#", "/\u{7f}", ""],
    );
    let version = mostly(&["HTTP/1.1"], &["HTTP/1.0", "HTTP/2.0", "http/1.1", ""]);
    let end = mostly(&["\r\n"], &["\n", "\r\r\n"]);
    let host = mostly(&["Host: x"], &["Accept: */*", "Host: x\r\nhost: y", "Host:"]);
    let field = mostly(
        &[
            "Content-Type: application/json",
            "Connection: keep-alive",
            "Cookie: a=b",
            "cookie: c=d",
            "X-A: a\tb ",
            "X-A:",
            "Date: today",
        ],
        &[
            "Connection: close",
            "Connection: keep-alive, close",
            "Connection: Upgrade",
            "Upgrade: h2c",
            "Expect: 100-continue",
            "Expect: other",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: gzip",
            "X-A: \u{e4}",
            "X-A : b",
            " folded",
            ": x",
            "X-A",
            "X-\u{1}: a",
            "X-A: \u{1}",
            "Content-Length: 4",
        ],
    );
    let length = mostly(
        &["Content-Length: 4"],
        &[
            "Accept: a",
            "Content-Length: 04",
            "Content-Length: +4",
            "Content-Length: 4, 4",
            "Content-Length: 0",
            "Content-Length: 99999999999999999999",
            "Content-Length: 18446744073709551615",
            "Content-Length: -1",
            "Content-Length:",
            "Content-Length: 4 4",
            "Content-Length: 0x4",
        ],
    );
    let many = prop_oneof![9 => Just(0), 1 => select(vec![28, 40, 120])];
    let body = mostly(
        &["body"],
        &["", "bod", "bodyGET / HTTP/1.1\r\nHost: x\r\n\r\n", "4\r\nbody\r\n0\r\n\r\n", "body\r\n"],
    );
    let fields = prop::collection::vec(field, 0..4);
    (method, target, version, end, host, length, fields, many, body).prop_map(
        |(method, target, version, end, host, length, fields, many, body)| {
            let mut text = format!("{method} {target} {version}{end}{host}{end}{length}{end}");
            for field in fields {
                text += &format!("{field}{end}");
            }
            for i in 0..many {
                text += &format!("X-{i}: {i}{end}");
            }
            (text + end + body).into_bytes()
        },
    )
}

#[tokio::test]
async fn a_whole_request_gets_the_same_reply_as_from_the_engine() {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 64).expect("a free port");
    let server = listener.local_addr().expect("bound");
    let arrived = Arrived::default();
    let heard = Arc::clone(&arrived);
    let make_service = move |_| {
        let arrived = Arc::clone(&heard);
        service_fn(move |request| answer(request, Arc::clone(&arrived)))
    };
    let edge = Edge::new(make_service, Arc::new(Quiet), LIMITS, Protocol::Http1);
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(edge.serve(listener, stopped, Duration::from_secs(60)));
    let compare = move || {
        let mut runner = TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(3_000)
        });
        runner.run(&request(), |bytes| {
            let direct = replies(server, &bytes);
            let by_engine = replies(server, &[b"\r\n", &bytes[..]].concat());
            prop_assert_eq!(direct, by_engine, "{}", bytes.escape_ascii());
            Ok(())
        })
    };
    spawn_blocking(compare).await.expect("no panic").expect("no difference");
    stop.send(true).expect("the server runs");
    serving.await.expect("the server ends");
    // Otherwise the comparison would compare the engine with itself.
    let whole = arrived.lock().expect("not poisoned").iter().filter(|&&whole| whole).count();
    assert!(whole > 300, "only {whole} requests took the short way");
}
