//! TLS on the public listener: both versions of HTTP, streams, the certificate's files, and clients that misbehave.

use std::{
    future::Future as _,
    net::Ipv4Addr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Version,
    body::{Body, Frame},
    client::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use rustls::ClientConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::oneshot,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::{
    app::{Answer, body},
    client::Client,
    clock::{DEADLINE, eventually},
    https::{Root, Secure, exchange, get, handshake, handshake_from, over, post, runtime, write},
    limits::counted,
    metrics::gauge,
    seed::Random,
    sse::StreamEvent,
    startup::remedy,
    weir::{Setup, Weir, zone},
};

const HELD: &str = "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 10";
const MOVING: &str = "polling_period_ms = 500\nidle_timeout_s = 10";
const TLS: &str = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
const OPEN: &str = "weir_connections_open";

/// A server with TLS, and the root of its certificate.
struct Site {
    weir: Weir,
    root: Root,
}

fn config(settings: &str, per_minute: u32, more: &str) -> String {
    format!("{settings}\n{TLS}{}", zone("Z", per_minute, more))
}

impl Site {
    fn start(settings: &str, more: &str) -> Self {
        let (root, setup) = (Root::new(), Setup::new(&config(settings, 60_000, more)));
        root.certify(2_100).write(setup.dir());
        Self { weir: setup.start(), root }
    }

    fn one(&self) -> Arc<ClientConfig> {
        self.root.client(&["http/1.1"])
    }

    fn two(&self) -> Arc<ClientConfig> {
        self.root.client(&["h2", "http/1.1"])
    }

    async fn connect(&self, config: Arc<ClientConfig>) -> Secure {
        Secure::connect(self.weir.public, config).await.expect("a connection")
    }

    /// Waits until so many connections are open.
    async fn until_open(&self, connections: u64) {
        let wanted = async {
            while gauge(&self.weir, OPEN) != connections {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, wanted).await.unwrap_or_else(|_| panic!("never {connections} connections"));
    }
}

async fn join(client: &mut Secure) -> String {
    Answer::of(&client.poll(None).await.expect("a reply")).token
}

/// The request to a pair of versions: polls, and streams that are told the place, and the entry.
pub(crate) fn polls_and_streams_over_both_versions() {
    runtime().block_on(async {
        let site = Site::start("", HELD);
        assert!(site.weir.stdout().contains("https://127.0.0.1"), "{}", site.weir.stdout());
        for (config, version) in [(site.one(), Version::HTTP_11), (site.two(), Version::HTTP_2)] {
            site.weir.setup().write_config(&self::config("", 60_000, HELD));
            site.weir.signal(Signal::HUP);
            let mut client = site.connect(config.clone()).await;
            assert_eq!(client.version(), version);
            let token = loop {
                let answer = Answer::of(&client.poll(None).await.expect("a reply"));
                // The one before has let the line move.
                if !answer.can_enter {
                    break answer.token;
                }
            };
            let polled = client.poll(Some(&token)).await.expect("a reply");
            assert_eq!(polled.version, format!("{version:?}"));
            let rank = Answer::of(&polled).waiting().rank;
            assert_eq!(client.ask(get("/healthz")).await.expect("a reply").status, 200);
            assert_eq!(client.ask(get("/nothing")).await.expect("a reply").problem(), "not_found");

            let mut stream = site.connect(config).await.stream(&token).await;
            // Each period, although nothing changes.
            for _ in 0..3 {
                assert_eq!(stream.rank().await, rank);
            }
            assert!(stream.reader.id.is_some());
            site.weir.setup().write_config(&self::config("", 60_000, MOVING));
            site.weir.signal(Signal::HUP);
            let answer = loop {
                match stream.next().await.expect("the stream goes on") {
                    Some(StreamEvent::Wait(_)) => {}
                    Some(StreamEvent::Enter(answer)) => break answer,
                    other => panic!("neither wait nor enter: {other:?}"),
                }
            };
            assert_eq!(stream.next().await.expect("a clean end"), None);
            let again = Answer::of(&client.poll(Some(&answer.token)).await.expect("a reply"));
            assert_eq!(again.pass, answer.pass);
        }
        assert_eq!(counted(&site.weir, "weir_requests_total{route=\"stream\",status=\"200\"}"), 2);
    });
}

/// A browser has one connection for all its tabs: thirty streams, and polls beside them.
pub(crate) fn one_connection_holds_many_streams() {
    const STREAMS: u64 = 30;
    runtime().block_on(async {
        let site = Site::start("", HELD);
        let mut client = site.connect(site.two()).await;
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            let token = join(&mut client).await;
            streams.push((client.stream(&token).await, token));
        }
        for ((stream, _), rank) in streams.iter_mut().zip(1..) {
            assert_eq!(stream.rank().await, rank);
        }
        let (_, last) = streams.last().expect("some");
        assert_eq!(Answer::of(&client.poll(Some(last)).await.expect("a reply")).waiting().rank, STREAMS);
        assert_eq!(gauge(&site.weir, "weir_streams_open"), STREAMS);
        assert_eq!(gauge(&site.weir, OPEN), 1);
        // Closing a tab ends its stream, and no other.
        drop(streams.drain(..10));
        while gauge(&site.weir, "weir_streams_open") != STREAMS - 10 {
            for (stream, _) in &mut streams {
                stream.rank().await;
            }
        }
        assert_eq!(gauge(&site.weir, OPEN), 1);
    });
}

/// Renewed files come into force by themselves and at SIGHUP. Open connections and streams go on.
pub(crate) fn changed_files_come_into_force_and_lose_nobody() {
    runtime().block_on(async {
        let site = Site::start("", HELD);
        let mut clients = [site.connect(site.one()).await, site.connect(site.two()).await];
        let token = join(&mut clients[0]).await;
        let mut stream = clients[1].stream(&token).await;
        for (year, with_signal) in [(2_101, false), (2_102, true)] {
            let renewed = site.root.certify(year);
            renewed.write(site.weir.setup().dir());
            if with_signal {
                site.weir.signal(Signal::HUP);
            }
            let shown = async {
                while site.connect(site.two()).await.certificate != renewed.der {
                    stream.rank().await;
                }
            };
            timeout(DEADLINE, shown).await.expect("the renewed certificate is shown");
            for client in &mut clients {
                let answer = Answer::of(&client.poll(Some(&token)).await.expect("the connection goes on"));
                assert_eq!(answer.waiting().rank, 1);
            }
            assert_eq!(gauge(&site.weir, "weir_tls_certificate_expires_seconds"), first_of_january(year));
        }
        // The first was no reload of the configuration, but is counted as one.
        let is_counted = || counted(&site.weir, "weir_config_reloads_total{result=\"ok\"}") == 2;
        // A moment after the certificate is in force.
        eventually("both are counted", || is_counted().then_some(()));
        let log = site.weir.log();
        assert!(!log.contains("expires soon") && !log.contains("BEGIN"), "{log}");
    });
}

/// The first second of a year, since 1970.
fn first_of_january(year: i32) -> u64 {
    let days = i64::from(year - 1_970) * 365 + i64::from((year - 1_969) / 4 - i32::from(year > 2_100));
    u64::try_from(days * 86_400).expect("after 1970")
}

/// Files that are no pair are reported once, with their names, and change nothing. The next pair counts again.
pub(crate) fn a_bad_pair_keeps_the_one_in_force() {
    runtime().block_on(async {
        let site = Site::start("", HELD);
        let dir = site.weir.setup().dir();
        let first = site.connect(site.one()).await.certificate;
        let (good, other) = (site.root.certify(2_101), site.root.certify(2_102));
        let (expired, later) = (site.root.certify(2_000), site.root.certify_between(2_090, 2_100));
        let cut = good.chain.split("-----END").next().expect("a chain");
        let failed = || counted(&site.weir, "weir_config_reloads_total{result=\"failed\"}");
        let faults = [
            (
                &*good.chain,
                &*other.key,
                "key.pem: is not the key of the first certificate in cert.pem",
                false,
            ),
            ("nothing", &good.key, "cert.pem: has no certificate", true),
            (&good.chain, "nothing", "key.pem: has no private key", true),
            (cut, &good.key, "the line `-----END CERTIFICATE-----` is missing", false),
            (&expired.chain, &expired.key, "cert.pem: has expired", false),
            (&later.chain, &later.key, "cert.pem: is not valid yet", true),
        ];
        for ((chain, key, what, with_signal), before) in faults.into_iter().zip(0..) {
            write(dir, chain, key);
            if with_signal {
                site.weir.signal(Signal::HUP);
            }
            eventually(what, || site.weir.log().contains(what).then_some(()));
            eventually("it is counted", || (failed() > before).then_some(()));
            assert_eq!(site.connect(site.two()).await.certificate, first);
        }
        good.write(dir);
        let shown = async { while site.connect(site.two()).await.certificate != good.der {} };
        timeout(DEADLINE, shown).await.expect("the good pair is shown");
        assert!(!site.weir.log().contains("PRIVATE"), "{}", site.weir.log());
    });
}

/// A server starts with a certificate that is not valid now, because its clock may be wrong, and says so.
pub(crate) fn a_start_with_an_invalid_certificate_warns() {
    let root = Root::new();
    for (from, to, what) in [(1_990, 2_000, "has expired"), (2_090, 2_100, "is not valid yet")] {
        let setup = Setup::new(&config("", 60_000, HELD));
        root.certify_between(from, to).write(setup.dir());
        let weir = setup.start();
        eventually(what, || weir.log().contains(what).then_some(()));
        // The files did not change, so a reload does not judge them again.
        weir.signal(Signal::HUP);
        eventually("a reload", || {
            (counted(&weir, "weir_config_reloads_total{result=\"ok\"}") == 1).then_some(())
        });
    }
}

/// What is wrong is said in one line with the file's name, before anything is served.
pub(crate) fn faults_end_the_start() {
    let (root, z) = (Root::new(), zone("Z", 60, ""));
    let (pair, other) = (root.certify(2_100), root.certify(2_100));
    let setup = Setup::new(&format!("[tls]\nkey = \"key.pem\"\n{z}"));
    let fails = |exit, wanted: &[&str]| {
        let ended = setup.fail();
        assert_eq!(ended.status.code(), Some(exit), "{}", ended.log);
        for want in wanted {
            assert!(ended.log.contains(want), "{want} is not in {}", ended.log);
        }
        assert_eq!(ended.log.lines().count(), 1, "{}", ended.log);
    };
    fails(64, &["weir.toml:2", "tls.certificate is not set"]);
    setup.write_config(&format!("[tls]\ncertificate = \"cert.pem\"\n{z}"));
    fails(64, &["weir.toml:2", "tls.key is not set"]);
    setup.write_config(&format!("{TLS}{z}"));
    fails(64, &["cert.pem", "cannot be read"]);
    let write = |chain: &str, key: &str| write(setup.dir(), chain, key);
    write(&pair.chain, &other.key);
    fails(64, &["key.pem: is not the key", "cert.pem"]);
    write(&pair.key, &pair.chain);
    fails(64, &["cert.pem: has no certificate"]);
    write(&pair.chain, &pair.chain);
    fails(64, &["key.pem: has no private key"]);
    write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &pair.key);
    fails(64, &["cert.pem: has a first certificate that cannot be read"]);
    pair.write(setup.dir());
    expose(&setup);
    fails(77, &["key.pem", &format!("run: {} '", remedy())]);
}

fn expose(setup: &Setup) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(setup.dir().join("key.pem"), mode).expect("our own file");
}

/// Slow handshakes, connections that ask for nothing, slow heads and idle connections all end.
pub(crate) fn slow_clients_are_let_go() {
    runtime().block_on(async {
        let site = Site::start("header_timeout_s = 1\nidle_timeout_s = 4", "");
        let address = site.weir.public;
        let mut ending = Vec::new();
        let mut ends = |mut stream: TcpStream| {
            ending.push(tokio::spawn(async move {
                // A reset is also an end.
                drop(timeout(DEADLINE, stream.read_to_end(&mut Vec::new())).await.expect("it ends"));
            }));
        };
        let tcp = || async { TcpStream::connect(address).await.expect("accepted") };
        // Nothing, and half a handshake.
        ends(tcp().await);
        let mut half = tcp().await;
        half.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.expect("taken");
        ends(half);
        for task in ending {
            task.await.expect("it ended");
        }
        assert_eq!(counted(&site.weir, "weir_tls_handshakes_failed_total"), 1);
        for config in [site.one(), site.two()] {
            // A handshake, and then nothing, or half a head.
            for bytes in [&b""[..], b"GET / HTTP/1.1\r\nHo", b"PRI * HTTP/2.0\r\n\r\nSM"] {
                let stream = handshake(address, config.clone()).await.expect("a connection");
                exchange(stream, bytes).await;
            }
        }
        // After a request they have longer. The end is a clean one, so that a client that just sends can try again.
        for config in [site.one(), site.two()] {
            let mut client = site.connect(config).await;
            assert_eq!(client.ask(get("/healthz")).await.expect("a reply").status, 200);
            client.ended().await.expect("a clean end");
        }
        site.until_open(0).await;
    });
}

/// A client that does not take what it asked for loses its connection: with a closed window of HTTP/2, and with a full
/// socket under a stream, which then also is no presence.
pub(crate) fn a_client_that_takes_nothing_is_let_go() {
    runtime().block_on(async {
        let site = Site::start("write_timeout_s = 1\nidle_timeout_s = 3600", HELD);
        let stream = handshake(site.weir.public, site.two()).await.expect("a connection");
        let mut closed = http2::Builder::new(TokioExecutor::new());
        closed.initial_stream_window_size(0);
        let mut client = Secure::speak(stream, &closed).await;
        let reply = client.send(get("/healthz")).await.expect("a head");
        drop(client.ended().await);
        drop(reply);

        let mut reads = site.connect(site.two()).await;
        let (deaf, heard) = (join(&mut reads).await, join(&mut reads).await);
        let mut stream = reads.stream(&heard).await;
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(1).expect("a new socket");
        let tcp = socket.connect(site.weir.public).await.expect("accepted");
        let mut silent = over(tcp, site.one()).await.expect("a connection");
        let ask = format!("GET /traffic/stream?zone=Z&token={deaf} HTTP/1.1\r\nHost: test\r\n\r\n");
        silent.write_all(ask.as_bytes()).await.expect("taken");
        for open in [2, 1] {
            while gauge(&site.weir, "weir_streams_open") != open {
                stream.rank().await;
            }
        }
        drop(silent);
        while stream.rank().await != 1 {}
    });
}

/// With HTTP/2, a client with a closed window that takes the answers to its pings loses its connection as well: with replies
/// that wait, with a window of one byte, and with a stream, which is no presence.
pub(crate) fn pings_do_not_hold_replies() {
    runtime().block_on(async {
        let site = Site::start("write_timeout_s = 1\nidle_timeout_s = 3600", HELD);
        let mut reads = site.connect(site.two()).await;
        let (deaf, heard) = (join(&mut reads).await, join(&mut reads).await);
        let mut stream = reads.stream(&heard).await;
        for (path, window) in [
            ("/openapi.json".to_owned(), 0),
            ("/openapi.json".to_owned(), 1),
            (format!("/traffic/stream?zone=Z&token={deaf}"), 0),
        ] {
            let tls = handshake(site.weir.public, site.two()).await.expect("a connection");
            let mut client = Pinger::begin(tls, window, &path).await;
            client.until_it_ends().await;
        }
        while stream.rank().await != 1 {}
        site.until_open(1).await;
    });
}

/// A client of HTTP/2 that sends pings, and takes what comes.
struct Pinger(TlsStream<TcpStream>);

impl Pinger {
    /// Asks for this path, with a window for its reply.
    async fn begin(mut tls: TlsStream<TcpStream>, window: u32, path: &str) -> Self {
        let length = u8::try_from(path.len()).expect("short");
        // The path has an index of the static table, and is not compressed. HPACK writes a length from 127 in two bytes.
        let length = if length < 127 { vec![length] } else { vec![127, length - 127] };
        let head = [&[0x82, 0x87, 0x04][..], &length, path.as_bytes(), &HEAD[3..]].concat();
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let bytes = [PREFACE, &frame(SETTINGS, 0, 0, &settings), &frame(HEADERS, 5, 1, &head)].concat();
        tls.write_all(&bytes).await.expect("taken");
        Self(tls)
    }

    async fn until_it_ends(&mut self) {
        let (mut from, mut to) = tokio::io::split(&mut self.0);
        let mut reply = Vec::new();
        let pings = async {
            while to.write_all(&frame(PING, 0, 0, &[0; 8])).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // A reset is also an end.
            _ = from.read_to_end(&mut reply) => {}
            () = pings => {}
            () = tokio::time::sleep(DEADLINE) => panic!("it does not end: {} bytes", reply.len()),
        }
        assert!(!reply.is_empty(), "the head and the answers to its pings");
    }
}

/// Connections above the caps end without a handshake. Those below are served, and a place that is left is free.
pub(crate) fn connections_are_capped_before_the_handshake() {
    runtime().block_on(async {
        let site = Site::start("max_connections = 6\nmax_connections_per_client = 2", "");
        let from = |last| handshake_from(Ipv4Addr::new(127, 0, 0, last), site.weir.public, site.two());
        let mut held = Vec::new();
        for client in [2, 3] {
            for _ in 0..2 {
                held.push(from(client).await.expect("below the cap"));
            }
            assert!(from(client).await.is_err(), "a third connection of a client");
        }
        for client in [4, 5] {
            held.push(from(client).await.expect("below the cap"));
        }
        assert!(from(6).await.is_err(), "a seventh connection");
        assert_eq!(gauge(&site.weir, "weir_client_connections_refused_total"), 2);
        assert_eq!(gauge(&site.weir, "weir_connections_refused_total"), 1);
        drop(held.remove(0));
        let free = async { while from(2).await.is_err() {} };
        timeout(DEADLINE, free).await.expect("a place that was left is taken");
    });
}

/// A drain: requests under way are answered, streams are told to reconnect, and idle connections end cleanly.
pub(crate) fn a_drain_finishes_requests_and_sends_away() {
    runtime().block_on(async {
        let mut site = Site::start("drain_deadline_s = 600\nbody_timeout_s = 120", HELD);
        let mut idle = [site.connect(site.one()).await, site.connect(site.two()).await];
        for client in &mut idle {
            assert_eq!(client.ask(get("/healthz")).await.expect("a reply").status, 200);
        }
        let mut busy = site.connect(site.two()).await;
        let token = join(&mut busy).await;
        let mut streams = [busy.stream(&token).await, site.connect(site.one()).await.stream(&token).await];
        // The head of a request whose body comes after the signal.
        let (late, rest) = oneshot::channel();
        let stream = handshake(site.weir.public, site.two()).await.expect("a connection");
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .expect("a connection");
        let connection = tokio::spawn(connection);
        let entry = Request::post("https://test/traffic/entry").body(Late(Some(rest))).expect("a request");
        let entry = tokio::spawn(sender.send_request(entry));
        // The server has read that head once it answers a later request of the connection.
        let later = Request::get("https://test/healthz").body(Late(None)).expect("a request");
        assert_eq!(sender.send_request(later).await.expect("a reply").status(), 200);
        site.weir.signal(Signal::TERM);
        for client in idle {
            client.ended().await.expect("an idle connection ends cleanly");
        }
        for stream in &mut streams {
            let last = loop {
                match stream.next().await.expect("a clean end") {
                    Some(StreamEvent::Wait(_)) => {}
                    other => break other,
                }
            };
            assert_eq!(last, Some(StreamEvent::Reconnect));
            assert_eq!(stream.next().await.expect("a clean end"), None);
        }
        busy.ended().await.expect("a connection ends with its last stream");
        eventually("the listener is closed", || Client::connect(site.weir.public).is_err().then_some(()));
        late.send(body("Z", Some(&token)).into()).expect("it waits");
        let reply = timeout(DEADLINE, entry).await.expect("in time").expect("no panic").expect("a reply");
        assert_eq!(reply.status(), 200);
        let answer: Answer =
            serde_json::from_slice(&reply.into_body().collect().await.expect("a body").to_bytes())
                .expect("an answer");
        assert_eq!(answer.waiting().rank, 1);
        timeout(DEADLINE, connection).await.expect("in time").expect("no panic").expect("a clean end");
        assert!(site.weir.wait_for_end().success());
    });
}

/// Connections that were in the accept queue at the signal are encrypted and served.
pub(crate) fn the_accept_queue_is_served() {
    runtime().block_on(async {
        let mut site = Site::start("", "");
        site.weir.freeze();
        let mut replies = Vec::new();
        for n in 0..20 {
            let stream = TcpStream::connect(site.weir.public).await.expect("the kernel accepts");
            let config = if n % 2 == 0 { site.one() } else { site.two() };
            replies.push(tokio::spawn(async move {
                let stream = over(stream, config).await.expect("a handshake while draining");
                let mut client = Secure::speak(stream, &http2::Builder::new(TokioExecutor::new())).await;
                let answer = Answer::of(&client.poll(None).await.expect("a reply while draining"));
                (answer, client.ended().await)
            }));
        }
        site.weir.signal(Signal::TERM);
        site.weir.signal(Signal::CONT);
        for reply in replies {
            let (answer, end) = reply.await.expect("no panic");
            assert!(answer.can_enter);
            end.expect("a clean end");
        }
        assert!(site.weir.wait_for_end().success());
    });
}

/// A head that is too long gets the same reply over both versions, and with HTTP/2 the connection is for others still.
pub(crate) fn a_long_head_is_refused_in_words() {
    runtime().block_on(async {
        let site = Site::start("", MOVING);
        for config in [site.one(), site.two()] {
            let mut client = site.connect(config.clone()).await;
            for bytes in [8_200, 9_000, 20_000, 60_000].repeat(5) {
                let mut request = post("/traffic/wait", &body("Z", None));
                request.headers_mut().insert("x-long", "a".repeat(bytes).parse().expect("a value"));
                let refused = client.ask(request).await.expect("a reply");
                assert_eq!(
                    (refused.status, refused.problem()),
                    (431, "head_too_large".to_owned()),
                    "{bytes}"
                );
                if client.version() == Version::HTTP_11 {
                    client = site.connect(config.clone()).await;
                }
            }
            let mut largest = post("/traffic/wait", &body("Z", None));
            largest.headers_mut().insert("x-long", "a".repeat(7_000).parse().expect("a value"));
            assert_eq!(client.ask(largest).await.expect("a reply").status, 200);
        }
    });
}

/// A body that comes later, or none.
struct Late(Option<oneshot::Receiver<Bytes>>);

impl Body for Late {
    type Data = Bytes;
    type Error = oneshot::error::RecvError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(rest) = &mut self.0 else { return Poll::Ready(None) };
        let body = ready!(Pin::new(rest).poll(cx));
        self.0 = None;
        Poll::Ready(Some(body.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

/// A client that speaks plain HTTP to the port gets a reply that it can read.
pub(crate) fn plain_http_is_told_so() {
    let site = Site::start("", "");
    let mut client = site.weir.connect();
    let reply = client.get("/healthz").expect("a reply");
    assert_eq!((reply.status, reply.problem().as_str()), (400, "malformed_http"));
    assert!(reply.text().contains("https://") && reply.closes() && client.ends(), "{reply:?}");
    assert_eq!(site.weir.admin_get("/healthz").status, 200, "the admin listener stays plain");
    assert_eq!(counted(&site.weir, "weir_tls_handshakes_failed_total"), 1);
}

/// TLS 1.2 and 1.3, with and without a protocol. A client that knows other protocols only is refused, as RFC 7301 says.
pub(crate) fn versions_are_agreed_on() {
    runtime().block_on(async {
        let site = Site::start("", "");
        for (alpn, version) in [
            (&[][..], Version::HTTP_11),
            (&["http/1.1"], Version::HTTP_11),
            (&["h2"], Version::HTTP_2),
            (&["http/1.1", "h2"], Version::HTTP_2),
            (&["http/0.9", "http/1.1"], Version::HTTP_11),
        ] {
            let mut client = site.connect(site.root.client(alpn)).await;
            assert_eq!(client.version(), version, "{alpn:?}");
            assert!(Answer::of(&client.poll(None).await.expect("a reply")).can_enter, "{alpn:?}");
        }
        let older = site.root.client_of(&[&rustls::version::TLS12], &["h2"]);
        assert_eq!(site.connect(older).await.ask(get("/healthz")).await.expect("a reply").status, 200);
        assert!(handshake(site.weir.public, site.root.client(&["http/0.9"])).await.is_err());
        // A client that speaks something else than it agreed on.
        let two = handshake(site.weir.public, site.two()).await.expect("a connection");
        exchange(two, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
        let one = handshake(site.weir.public, site.one()).await.expect("a connection");
        let refused = exchange(one, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        assert!(text(&refused).contains("malformed_http"), "{}", text(&refused));
        // A handshake with a name that the server does not have is the client's business.
        assert!(handshake(site.weir.public, Root::new().client(&["h2"])).await.is_err());
    });
}

/// The limits of requests are those of plain connections.
pub(crate) fn oversized_and_ambiguous_requests() {
    runtime().block_on(async {
        let site = Site::start("", "");
        let one = || async { handshake(site.weir.public, site.one()).await.expect("a connection") };
        for (head, code) in [
            (format!("GET / HTTP/1.1\r\nHost: test\r\nX: {}\r\n\r\n", "x".repeat(9_000)), "head_too_large"),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), "malformed_http"),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), "malformed_http"),
            ("nonsense\r\n\r\n".to_owned(), "malformed_http"),
        ] {
            let reply = exchange(one().await, head.as_bytes()).await;
            assert!(text(&reply).contains(code), "{head}: {}", text(&reply));
        }
        let with = |fields: &[(&str, &str)]| {
            let request =
                fields.iter().fold(Request::get("/healthz"), |r, (name, value)| r.header(*name, *value));
            request.body(Full::default()).expect("a request")
        };
        let mut two = site.connect(site.two()).await;
        let long = "x".repeat(9_000);
        let many: Vec<String> = (0..65).map(|n| format!("x-{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "y")).collect();
        for (request, status) in [
            (with(&[("host", "test")]), 200),
            (with(&[("host", "other")]), 400),
            (with(&[("host", "test"), ("host", "other")]), 400),
            (with(&[("x", &long)]), 431),
            (with(&many), 431),
            // A browser sends a field for each cookie.
            (with(&[("cookie", "name=value"); 90]), 200),
            (post("/traffic/wait", &" ".repeat(5_000)), 413),
            (post("/traffic/wait", "{"), 400),
        ] {
            let what = format!("{request:?}");
            let reply = two.ask(request).await.unwrap_or_else(|e| panic!("{e}: {what}"));
            assert_eq!(reply.status, status, "{what}");
            assert!(![400, 413].contains(&status) || !reply.problem().is_empty(), "{what}");
        }
        assert_eq!(two.ask(get("/healthz")).await.expect("the same connection goes on").status, 200);
    });
}

fn text(reply: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(reply)
}

/// The error code of the last GOAWAY among the frames of a server.
fn goaway(mut frames: &[u8]) -> Option<u32> {
    let mut last = None;
    while let Some((head, rest)) = frames.split_first_chunk::<9>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (payload, rest) = rest.split_at_checked(length)?;
        if head[3] == GOAWAY {
            last = payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().expect("four bytes")));
        }
        frames = rest;
    }
    last
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET https://test/`, in HPACK.
const HEAD: &[u8] = &[0x82, 0x87, 0x84, 0x41, 4, b't', b'e', b's', b't'];
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Streams that are reset at once (CVE-2023-44487), a head in endless pieces, and pings in place of the first request: each
/// connection ends, and others are served.
pub(crate) fn many_resets_end_the_connection() {
    runtime().block_on(async {
        let site = Site::start("header_timeout_s = 1", "");
        let mut other = site.connect(site.two()).await;
        let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        let resets = (0..4_000).flat_map(|n| {
            let stream = 2 * n + 1;
            [frame(HEADERS, 5, stream, HEAD), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        });
        let pieces = (0..4_000).flat_map(|_| frame(CONTINUATION, 0, 1, &[]));
        for (what, ends_with, bytes) in [
            ("resets", Some(ENHANCE_YOUR_CALM), [begin.clone(), resets.collect()].concat()),
            (
                "pieces",
                Some(ENHANCE_YOUR_CALM),
                [begin.clone(), frame(HEADERS, 1, 1, HEAD), pieces.collect()].concat(),
            ),
            // The server answers them until the time for the first request is over.
            (
                "pings",
                Some(0),
                [begin, (0..4_000).flat_map(|_| frame(PING, 0, 0, &[0; 8])).collect()].concat(),
            ),
        ] {
            let stream = handshake(site.weir.public, site.two()).await.expect("a connection");
            assert_eq!(goaway(&exchange(stream, &bytes).await), ends_with, "{what}");
            assert_eq!(other.ask(get("/healthz")).await.expect(what).status, 200);
        }
        assert!(!site.weir.log().contains("h2::"), "a client writes the log: {}", site.weir.log());
    });
}

/// Random bytes in place of the handshake, and after it, do no harm.
pub(crate) fn random_bytes_do_no_harm() {
    runtime().block_on(async {
        let mut random = Random::seeded("tls::random_bytes_do_no_harm");
        let site = Site::start("header_timeout_s = 1\nbody_timeout_s = 1", "");
        let mut ends = Vec::new();
        for round in 0..60 {
            let length = 1 + random.below(2_000);
            let noise = random.bytes(length);
            if round % 3 == 0 {
                let mut stream = TcpStream::connect(site.weir.public).await.expect("accepted");
                drop(stream.write_all(&[&[22, 3, 1][..], &noise].concat()).await);
                ends.push(tokio::spawn(async move {
                    drop(timeout(DEADLINE, stream.read_to_end(&mut Vec::new())).await.expect("it ends"));
                }));
                continue;
            }
            let two = round % 3 == 1;
            let stream = handshake(site.weir.public, if two { site.two() } else { site.one() }).await;
            let stream = stream.expect("a connection");
            let bytes = if two { [PREFACE, &noise].concat() } else { noise };
            ends.push(tokio::spawn(async move { drop(exchange(stream, &bytes).await) }));
        }
        for end in ends {
            end.await.expect("it ends");
        }
        assert!(Answer::of(&site.connect(site.two()).await.poll(None).await.expect("a reply")).can_enter);
        assert!(!site.weir.log().contains("panicked"), "{}", site.weir.log());
    });
}
