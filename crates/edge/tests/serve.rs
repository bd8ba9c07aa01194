//! The edge in front of a small service: what it serves, what it refuses by itself, and what its observer hears.

use std::{
    convert::Infallible,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use edge::{Edge, KnownClient, Limits, Observer, PerClient, Protocol, Received, Refusal, Takeover, listen};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode};
use socket2::{Domain, Socket, Type};
use tokio::{
    sync::{Notify, watch},
    task::spawn_blocking,
};
use tower::service_fn;

const LIMITS: Limits = Limits {
    connections: 2,
    reserved: 0,
    per_client: None,
    unknown_client: None,
    header: Duration::from_secs(1),
    write: Duration::from_secs(1),
    idle: Duration::from_secs(60),
};

/// A client whose connections are not counted.
const EXEMPT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

#[derive(Default)]
struct Heard {
    open: AtomicI32,
    accepted: AtomicI32,
}

impl Observer for Heard {
    fn opened(&self) {
        self.open.fetch_add(1, SeqCst);
        self.accepted.fetch_add(1, SeqCst);
    }

    fn closed(&self) {
        self.open.fetch_sub(1, SeqCst);
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        address == EXEMPT
    }

    fn refused(&self, refusal: Refusal) -> Response<Bytes> {
        let mut reply = Response::new(format!("{refusal:?}").into());
        *reply.status_mut() = StatusCode::BAD_REQUEST;
        reply
    }
}

/// `/go-on?N` ends one `/waits?N` or `/waits-and-panics?N`. Each test has a number of its own: they run side by side.
static GO_ON: [Notify; 3] = [const { Notify::const_new() }; 3];

/// Replies with the path, the peer's port and the body. The client is known after `/known` and `/held-stream`. `/stream` takes
/// the connection over, and `/held-stream` keeps it until the client closes.
async fn answer(request: Request<Received>, peer: SocketAddr) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    if path == "/stream" {
        return Ok(Takeover::response(|mut outlet| {
            assert!(outlet.send(b"stre") && outlet.send(b"amed"));
        }));
    }
    if path == "/held-stream" {
        let mut response = Takeover::response(|mut outlet| {
            tokio::spawn(async move {
                outlet.send(b"held");
                while outlet.is_open() {
                    tokio::task::yield_now().await;
                }
            });
        });
        response.extensions_mut().insert(KnownClient);
        return Ok(response);
    }
    assert_ne!(path, "/panic", "this is what the test asks for");
    let go_on = || &GO_ON[request.uri().query().and_then(|test| test.parse::<usize>().ok()).expect("a test")];
    match path.as_str() {
        "/waits" => go_on().notified().await,
        "/waits-and-panics" => {
            go_on().notified().await;
            panic!("this is what the test asks for");
        }
        "/go-on" => go_on().notify_one(),
        _ => {}
    }
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let text = format!("{path} {} {}", peer.port(), body.escape_ascii());
    let mut response = Response::new(Full::new(text.into()));
    if path == "/known" {
        response.extensions_mut().insert(KnownClient);
    }
    Ok(response)
}

/// Runs `clients` against a server, then stops it. The server must end, with all connections closed.
async fn with_server(clients: impl FnOnce(SocketAddr) + Send + 'static) -> Arc<Heard> {
    with_limits(LIMITS, clients).await
}

async fn with_limits(limits: Limits, clients: impl FnOnce(SocketAddr) + Send + 'static) -> Arc<Heard> {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 64).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let heard = Arc::new(Heard::default());
    let make_service = |peer| service_fn(move |request| answer(request, peer));
    let edge = Edge::new(make_service, Arc::<Heard>::clone(&heard), limits, Protocol::Http1);
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(edge.serve(listener, stopped, Duration::from_secs(60)));
    spawn_blocking(move || clients(address)).await.expect("the clients succeed");
    stop.send(true).expect("the server runs");
    serving.await.expect("the server ends");
    assert_eq!(heard.open.load(SeqCst), 0, "every connection that opened has closed");
    heard
}

/// Connects, sends `bytes` and reads until the server closes.
fn exchange(server: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(server).expect("connected");
    client.write_all(bytes).expect("sent");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("text");
    reply
}

#[tokio::test]
async fn requests_reach_the_service_with_their_peer_and_body() {
    let heard = with_server(|server| {
        let mut client = TcpStream::connect(server).expect("connected");
        let own = client.local_addr().expect("bound").port();
        client.write_all(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody").expect("sent");
        client.write_all(b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        client.shutdown(Shutdown::Write).expect("half closed");
        let mut replies = String::new();
        client.read_to_string(&mut replies).expect("text");
        let (first, second) = (format!("/a {own} body"), format!("/b {own} "));
        let at = |text: &str| replies.find(text).unwrap_or_else(|| panic!("{text:?} is missing: {replies}"));
        assert!(at(&first) < at(&second));
    });
    assert_eq!(heard.await.accepted.load(SeqCst), 1);
}

#[tokio::test]
async fn a_service_can_take_the_connection_over() {
    with_server(|server| {
        let reply = exchange(server, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(reply, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nstreamed");
    })
    .await;
}

#[tokio::test]
async fn refusals_without_a_request_are_worded_by_the_observer() {
    let heard = with_server(|server| {
        for (bytes, refusal) in [
            (&b"nonsense\r\n\r\n"[..], "Malformed"),
            (&[&b"GET /"[..], &[b'a'; 10_000], b" HTTP/1.1\r\n\r\n"].concat(), "HeadTooLarge"),
            (b"GET / HTTP/1.1\r\nHost:", "SlowHead"),
        ] {
            let reply = exchange(server, bytes);
            assert!(reply.ends_with(&format!("\r\n\r\n{refusal}")), "{refusal}: {reply}");
        }
        // These two fill the listener; the third is refused before it sends anything.
        let held = [(); 2].map(|()| {
            let mut client = TcpStream::connect(server).expect("connected");
            client.write_all(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            assert!(client.read(&mut [0; 16]).expect("a reply") > 0);
            client
        });
        assert!(exchange(server, b"").ends_with("Overloaded"));
        drop(held);
    });
    assert_eq!(heard.await.accepted.load(SeqCst), 5, "a refused connection does not count as accepted");
}

#[tokio::test]
async fn requests_that_two_readers_may_understand_differently_are_refused() {
    with_server(|server| {
        let one = "Host: x\r\n";
        for (head, is_served) in [
            ("GET /a HTTP/1.1\r\n".to_owned(), false),
            (format!("GET /a HTTP/1.1\r\n{one}{one}"), false),
            (format!("GET /a HTTP/1.0\r\n{one}{one}"), false),
            ("GET http://x/a HTTP/1.1\r\n".to_owned(), false),
            (format!("GET /a HTTP/1.1\r\n{one}"), true),
            ("GET /a HTTP/1.1\r\nhost:\r\n".to_owned(), true),
            ("GET /a HTTP/1.0\r\n".to_owned(), true),
            (format!("GET /a HTTP/1.0\r\n{one}"), true),
        ] {
            let reply = exchange(server, format!("{head}Connection: close\r\n\r\n").as_bytes());
            assert_eq!(reply.contains("/a "), is_served, "{head:?}: {reply}");
            assert!(is_served || reply.ends_with("\r\n\r\nMalformed"), "{head:?}: {reply}");
        }
        for (codings, is_served) in [
            ("Transfer-Encoding: chunked\r\n", true),
            ("transfer-encoding:  Chunked \r\n", true),
            ("Transfer-Encoding: gzip, chunked\r\n", false),
            ("Transfer-Encoding: chunked, chunked\r\n", false),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", false),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", false),
            ("Transfer-Encoding: chunked, gzip\r\n", false),
        ] {
            let head = format!("POST /a HTTP/1.1\r\n{one}{codings}Connection: close\r\n\r\n");
            let reply = exchange(server, format!("{head}4\r\nbody\r\n0\r\n\r\n").as_bytes());
            assert_eq!(reply.contains(" body"), is_served, "{codings:?}: {reply}");
            assert!(is_served || reply.ends_with("\r\n\r\nMalformed"), "{codings:?}: {reply}");
        }
        // The requests before it have their replies, and those after it are not read.
        let batch = ["/a", "/b"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let reply = exchange(server, [&batch[0], "GET /c HTTP/1.1\r\n\r\n", &batch[1]].concat().as_bytes());
        assert!(reply.contains("/a ") && reply.ends_with("\r\n\r\nMalformed"), "{reply}");
    })
    .await;
}

fn connect_from(source: [u8; 4], server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((source, 0)).into()).expect("an own address");
    socket.connect(&server.into()).expect("connected");
    socket.into()
}

/// A connection from this address that was served once. None if it was refused; the reply must say why.
fn held_from(source: [u8; 4], server: SocketAddr) -> Option<TcpStream> {
    let mut client = connect_from(source, server);
    // A refused connection may be closed already. Its reply can be read all the same.
    drop(client.write_all(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"));
    let mut reply = [0; 256];
    let n = client.read(&mut reply).expect("a reply");
    let reply = String::from_utf8_lossy(&reply[..n]);
    if reply.contains("/held") {
        return Some(client);
    }
    let refusal = Refusal::TooManyOfClient(IpAddr::from(source));
    assert!(reply.ends_with(&format!("{refusal:?}")), "{reply}");
    None
}

#[tokio::test]
async fn a_client_holds_its_share_and_others_keep_theirs() {
    let per_client = Some(PerClient { most: 3, ipv6_prefix: 64 });
    with_limits(Limits { connections: 50, per_client, ..LIMITS }, |server| {
        let mut greedy: Vec<_> = (0..20).filter_map(|_| held_from([127, 0, 0, 2], server)).collect();
        assert_eq!(greedy.len(), 3);
        let others = [3, 4, 5].map(|last| held_from([127, 0, 0, last], server));
        assert!(others.iter().all(Option::is_some), "other clients are served");
        let exempt: Vec<_> = (0..10).filter_map(|_| held_from([127, 0, 0, 9], server)).collect();
        assert_eq!(exempt.len(), 10);
        greedy.pop();
        // The server notices the end of a connection a moment later.
        assert!(
            (0..10_000).any(|_| held_from([127, 0, 0, 2], server).is_some()),
            "a share that is left is free"
        );
    })
    .await;
}

/// Sends a request on an open connection. Whether the service answers, and not the edge.
fn is_served(client: &mut TcpStream, path: &str) -> bool {
    let sent = client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let mut reply = [0; 256];
    let read = sent.and_then(|()| client.read(&mut reply));
    let served = path.split('?').next().unwrap_or(path);
    read.is_ok_and(|n| String::from_utf8_lossy(&reply[..n]).contains(served))
}

#[tokio::test]
async fn unknown_clients_make_room_and_known_ones_stay() {
    let limits = Limits { connections: 8, unknown_client: Some(Duration::from_secs(60)), ..LIMITS };
    with_limits(limits, |server| {
        let mut known = connect_from([127, 0, 0, 1], server);
        assert!(is_served(&mut known, "/known"));
        let mut visitor = connect_from([127, 0, 0, 3], server);
        assert!(is_served(&mut visitor, "/visit"));
        // Idle ones, ones that send half a head, and ones that asked for something.
        let flood: Vec<TcpStream> = (0..100)
            .map(|n| {
                let mut one = connect_from([127, 0, 0, 2], server);
                match n % 3 {
                    0 => {}
                    1 => drop(one.write_all(b"GET / HTTP/1.1\r\nHo")),
                    _ => drop(is_served(&mut one, "/other")),
                }
                one
            })
            .collect();
        assert!(is_served(&mut visitor, "/visit"), "the address with most connections loses its own");
        let mut late = connect_from([127, 0, 0, 1], server);
        assert!(is_served(&mut late, "/known"), "a full listener serves a newcomer");
        assert!(is_served(&mut known, "/known"), "a known client keeps its connection");
        drop(flood);
    })
    .await;
}

#[tokio::test]
async fn known_clients_make_room_only_while_they_have_no_request() {
    let limits = Limits { connections: 4, unknown_client: Some(Duration::from_secs(60)), ..LIMITS };
    with_limits(limits, |server| {
        let known = |last| {
            let mut client = connect_from([127, 0, 0, last], server);
            assert!(is_served(&mut client, "/known"));
            client
        };
        let mut greedy = [(); 3].map(|()| known(2));
        let mut other = known(3);
        assert!(is_served(&mut connect_from([127, 0, 0, 4], server), "/late"), "a newcomer is served");
        assert!(is_served(&mut other, "/known"), "the address with most connections loses one");
        assert_eq!(
            greedy.iter_mut().filter_map(|client| is_served(client, "/known").then_some(())).count(),
            2
        );
        drop((greedy, other));
    })
    .await;
    // The services of these have the connection, so there is no room to make.
    with_limits(limits, |server| {
        let streams = [(); 4].map(|()| {
            let mut client = connect_from([127, 0, 0, 2], server);
            client.write_all(b"GET /held-stream HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            assert!(client.read(&mut [0; 64]).expect("a reply") > 0);
            client
        });
        assert!(exchange(server, b"").ends_with("Overloaded"));
        drop(streams);
    })
    .await;
}

#[tokio::test]
async fn unknown_clients_have_less_time() {
    let limits =
        Limits { header: Duration::from_secs(3_600), unknown_client: Some(Duration::from_secs(1)), ..LIMITS };
    with_limits(Limits { connections: 8, ..limits }, |server| {
        let mut known = connect_from([127, 0, 0, 1], server);
        assert!(is_served(&mut known, "/known"));
        for bytes in [&b""[..], b"GET / HTTP/1.1\r\nHo", b"GET /visit HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut client = TcpStream::connect(server).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
            client.write_all(bytes).expect("sent");
            client
                .read_to_string(&mut String::new())
                .expect("the server closes, long before the other deadlines");
        }
        assert!(is_served(&mut known, "/known"), "three deadlines later");
    })
    .await;
}

const MANY: Limits = Limits { connections: 200, ..LIMITS };

/// A client that fails where no reply comes.
fn connect(server: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(server).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    // Otherwise what follows a request waits for the reply to that request.
    client.set_nodelay(true).expect("a socket");
    client
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into()
}

/// Reads until all these texts have come, in this order.
fn read_replies(client: &mut TcpStream, texts: &[&str]) {
    let (mut replies, mut part) = (String::new(), [0; 4_096]);
    loop {
        let mut rest = replies.as_str();
        let has_all = texts.iter().all(|text| match rest.split_once(text) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        });
        if has_all {
            return;
        }
        let read = client.read(&mut part).expect("replies");
        assert!(read > 0, "{texts:?} are expected, the server closed after {replies:?}");
        replies.push_str(std::str::from_utf8(&part[..read]).expect("text"));
    }
}

/// All connections of this server are in one set, because it has one processor.
#[tokio::test]
async fn a_request_that_waits_delays_no_other_connection() {
    with_limits(MANY, |server| {
        let (mut waiting, mut other) = (connect(server), connect(server));
        for round in 0..3 {
            waiting.write_all(&get("/waits?0")).expect("sent");
            for _ in 0..5 {
                assert!(is_served(&mut other, "/at-once"));
            }
            if round > 0 {
                // This arrives while the reply to the one before is not ready.
                waiting.write_all(&get("/behind")).expect("sent");
            }
            assert!(is_served(&mut other, "/go-on?0"));
            let replies: &[&str] = if round > 0 { &["/waits ", "/behind "] } else { &["/waits "] };
            read_replies(&mut waiting, replies);
            assert!(is_served(&mut waiting, "/again"), "the connection goes on");
        }
    })
    .await;
}

#[tokio::test]
async fn a_panic_of_the_service_ends_one_connection() {
    with_limits(MANY, |server| {
        let mut other = connect(server);
        assert!(is_served(&mut other, "/before"));
        assert_eq!(exchange(server, &get("/panic")), "");
        assert!(is_served(&mut other, "/after"));
        // After the reply was not ready at once.
        let mut late = connect(server);
        assert!(is_served(&mut late, "/before"), "otherwise `/go-on` may come first");
        late.write_all(&get("/waits-and-panics?1")).expect("sent");
        assert!(is_served(&mut other, "/go-on?1"));
        let mut reply = String::new();
        late.read_to_string(&mut reply).expect("the server closes");
        assert_eq!(reply, "");
        assert!(is_served(&mut other, "/after"));
    })
    .await;
}

#[tokio::test]
async fn many_connections_that_send_at_once_are_all_served() {
    with_limits(MANY, |server| {
        let served_once = |_| {
            let mut client = connect(server);
            assert!(is_served(&mut client, "/first"));
            client
        };
        let mut clients: Vec<_> = (0..150).map(served_once).collect();
        for round in 0..20 {
            let path = format!("/{round}");
            for client in &mut clients {
                client.write_all(&get(&path)).expect("sent");
            }
            for client in &mut clients {
                read_replies(client, &[&format!("{path} ")]);
            }
        }
    })
    .await;
}

/// The same for a request whose reply is not ready at once: what came with it, and what comes meanwhile.
#[tokio::test]
async fn what_arrives_while_a_reply_is_not_ready_is_seen() {
    with_limits(MANY, |server| {
        let mut other = connect(server);
        let mut goes_on = || assert!(is_served(&mut other, "/go-on?2"));
        // The end of the connection, before the reply is ready, and after the server has seen the request.
        for is_together in [true, false] {
            let mut client = connect(server);
            assert!(is_served(&mut client, "/before"), "otherwise `/go-on` may come first");
            client.write_all(&get("/waits?2")).expect("sent");
            if !is_together {
                assert!(is_served(&mut connect(server), "/meanwhile"));
            }
            client.shutdown(Shutdown::Write).expect("half closed");
            goes_on();
            let mut reply = String::new();
            client.read_to_string(&mut reply).expect("text");
            assert!(reply.contains("/waits "), "{reply}");
        }
        // Another request: it is read when its turn comes. Others are served meanwhile, so the server has seen both.
        let mut client = connect(server);
        assert!(is_served(&mut client, "/before"));
        for path in ["/waits?2", "/behind"] {
            client.write_all(&get(path)).expect("sent");
            assert!(is_served(&mut connect(server), "/meanwhile"));
        }
        goes_on();
        read_replies(&mut client, &["/waits ", "/behind "]);
        // Another request, behind one that fills the server's buffer, for each size of the buffer that may be.
        for len in [1_024, 2_048, 4_096] {
            let mut client = connect(server);
            assert!(is_served(&mut client, "/before"));
            let head =
                |body| format!("POST /waits?2 HTTP/1.1\r\nHost: x\r\nContent-Length: {body:04}\r\n\r\n");
            let body = len - head(0).len();
            client
                .write_all(&[head(body).as_bytes(), "b".repeat(body).as_bytes(), &get("/behind")].concat())
                .expect("sent");
            goes_on();
            read_replies(&mut client, &["/waits ", "/behind "]);
            assert!(is_served(&mut client, "/again"));
        }
    })
    .await;
}

/// The system tells only once that bytes have arrived, so what comes with a request must not be forgotten.
#[tokio::test]
async fn what_arrives_together_with_a_request_is_seen() {
    with_limits(MANY, |server| {
        // The end of the connection.
        for _ in 0..20 {
            let mut client = connect(server);
            client.write_all(&get("/last")).expect("sent");
            client.shutdown(Shutdown::Write).expect("half closed");
            let mut reply = String::new();
            client.read_to_string(&mut reply).expect("text");
            assert!(reply.contains("/last "), "{reply}");
        }
        // Another request, behind one that fills the server's buffer, for each size of the buffer that may be.
        for len in [1_024, 2_048, 4_096] {
            let mut client = connect(server);
            let head = |body| format!("POST /full HTTP/1.1\r\nHost: x\r\nContent-Length: {body:04}\r\n\r\n");
            let body = len - head(0).len();
            let full = head(body) + &"b".repeat(body);
            assert_eq!(full.len(), len);
            client.write_all(&[full.as_bytes(), &get("/behind")].concat()).expect("sent");
            read_replies(&mut client, &["/full ", "/behind "]);
            assert!(is_served(&mut client, "/again"));
        }
    })
    .await;
}
