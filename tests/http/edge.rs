//! The edge: what slow, broken, greedy and hostile clients receive, and that other clients do not notice them.

use std::time::Duration;

use crate::{
    app::{Answer, body},
    client::{Client, Reply, post},
    clock::{DEADLINE, eventually, now},
    seed::Random,
    weir::{Setup, Weir, zone},
};

fn with(settings: &str) -> Weir {
    Setup::new(&format!("{settings}\n{}", zone("Z", 60_000, ""))).start()
}

/// Asserts that the server announced the close and closed the connection.
fn assert_closed(reply: &Reply, client: &mut Client) {
    assert!(reply.closes(), "not said: {reply:?}");
    assert!(client.is_ended(), "the close was announced and did not happen: {reply:?}");
}

/// A client that sends one byte and then nothing, and a client that sends a byte now and then, are both cut off at
/// the time limit of the head.
pub(crate) fn slow_head_is_let_go() {
    let weir = with("header_timeout_s = 1\nidle_timeout_s = 3600");
    let mut silent = weir.connect();
    silent.send("POST /traffic/wait HTTP/1.1\r\nHost:").expect("taken");
    let mut dripping = weir.connect();
    let started = now();
    dripping.send("POST /traffic/wait HTTP/1.1\r\nX-Drip: ").expect("taken");
    dripping.patience(Duration::from_millis(200)).expect("a live socket");
    while !dripping.is_ended() {
        assert!(now() - started < DEADLINE, "a connection that gets single bytes stays open");
        // The next round notices the end.
        drop(dripping.send("x"));
    }
    assert!(silent.ends(), "a head that never ends");
    assert_eq!(weir.get("/healthz").status, 200);
}

/// An idle connection is closed, whether it was used before or not.
pub(crate) fn idle_connection_is_closed() {
    let weir = with("idle_timeout_s = 4");
    let (mut used, mut unused) = (weir.connect(), weir.connect());
    let reply = used.get("/healthz").expect("a reply");
    assert!(!reply.closes());
    assert!(used.is_ended() && unused.is_ended());
}

/// A client that sends requests and never reads does not hold a connection for ever.
pub(crate) fn client_that_does_not_read_is_let_go() {
    let weir = with("write_timeout_s = 1\nidle_timeout_s = 3600");
    let mut deaf = weir.connect();
    assert_eq!(deaf.get("/healthz").expect("a reply").status, 200);
    // Long replies fill the buffers of both sides with little work: 10 MB, where a socket that nobody reads has
    // room for half of it.
    let long = "GET /openapi.json HTTP/1.1\r\nHost: test\r\n\r\n";
    deaf.send(long.repeat(100)).expect("taken");
    eventually("the connection is let go", || (open_connections(&weir) == 0).then_some(()));
    assert_eq!(weir.get("/healthz").status, 200);
}

/// The open connections of the public listener, from the server's metric.
fn open_connections(weir: &Weir) -> u64 {
    let metrics = weir.admin_get("/metrics");
    let line =
        metrics.text().lines().find(|line| line.starts_with("weir_connections_open")).expect("the gauge");
    line.rsplit_once(' ').and_then(|(_, n)| n.parse().ok()).expect("a number")
}

/// Requests over the limits are refused with the right code, and requests just within them are served.
pub(crate) fn oversized_requests() {
    let weir = with("");
    let get = |headers: &str| {
        let mut client = weir.connect();
        client.send(format!("GET /healthz HTTP/1.1\r\nHost: test\r\n{headers}\r\n")).expect("taken");
        (client.reply().expect("a reply"), client)
    };
    let lines = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    assert_eq!(get(&lines(63)).0.status, 200, "64 headers with Host");
    assert_eq!(
        get(&(lines(62) + &"Cookie: a=b\r\n".repeat(30))).0.status,
        200,
        "cookies in a field each count as one"
    );
    assert_eq!(get(&format!("X: {}\r\n", "x".repeat(7_900))).0.status, 200, "a head just under 8 KiB");
    for over in [
        lines(64),
        lines(63) + &"Cookie: a=b\r\n".repeat(2),
        lines(500),
        format!("X: {}\r\n", "x".repeat(8_200)),
        "x".repeat(100_000),
    ] {
        let (reply, mut client) = get(&over);
        assert_eq!((reply.status, reply.problem().as_str()), (431, "head_too_large"));
        assert_closed(&reply, &mut client);
    }
    let (long_target, mut client) = (format!("/{}", "a".repeat(9_000)), weir.connect());
    client.send(format!("GET {long_target} HTTP/1.1\r\nHost: test\r\n\r\n")).expect("taken");
    assert!(matches!(client.reply().expect("a reply").status, 414 | 431));

    let padded = |length: usize| {
        let body = body("Z", None);
        let padding = " ".repeat(length - body.len());
        body + &padding
    };
    assert_eq!(weir.post("/traffic/wait", &padded(4_096)).status, 200, "a body of 4 KiB");
    for length in [4_097, 1 << 20] {
        let mut client = weir.connect();
        // The server may refuse after the head and stop reading.
        drop(client.send_post("/traffic/wait", &padded(length)));
        let reply = client.reply().expect("a reply before the end");
        assert_eq!((reply.status, reply.problem().as_str()), (413, "too_large"));
        assert_closed(&reply, &mut client);
    }
}

fn chunked(parts: &[&str]) -> String {
    let head =
        "POST /traffic/wait HTTP/1.1\r\nHost: test\r\nContent-Type: application/json; charset=utf-8\r\n";
    let chunk = |part: &&str| format!("{:x}\r\n{part}\r\n", part.len());
    let chunks: String = parts.iter().map(chunk).collect();
    format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

/// A chunked body is read like any other and has the same limit.
pub(crate) fn chunked_bodies() {
    let weir = with("");
    let mut client = weir.connect();
    for parts in [&[r#"{"zone"#, r#"Id":"Z"}"#][..], &[r#"{"zoneId":"Z"}"#]] {
        client.send(chunked(parts)).expect("taken");
        assert!(Answer::of(&client.reply().expect("a reply")).can_enter);
    }
    let space = " ".repeat(1_000);
    drop(client.send(chunked(&[space.as_str(); 6])));
    let reply = client.reply().expect("a reply");
    assert_eq!((reply.status, reply.problem().as_str()), (413, "too_large"));
    assert_closed(&reply, &mut client);
    // Two lengths at once can smuggle requests past proxies. An invalid chunk size is refused too.
    let both = chunked(&["{}"]).replace("Transfer", "Content-Length: 3\r\nTransfer");
    let nonsense = chunked(&["{}"]).replace("\r\n2\r\n", "\r\nzz\r\n");
    for bad in [both, nonsense] {
        let mut client = weir.connect();
        client.send(bad).expect("taken");
        let refused = client.reply().map_or(true, |reply| reply.status == 400 && reply.closes());
        assert!(refused && client.is_ended());
    }
}

/// A client that waits for `100 Continue` before its body receives it.
pub(crate) fn expect_continue() {
    let weir = with("");
    let mut client = weir.connect();
    let request = post("/traffic/wait", &body("Z", None)).replace("Host", "Expect: 100-continue\r\nHost");
    let (head, sent_after) = request.split_once("\r\n\r\n").expect("a head and a body");
    client.send(format!("{head}\r\n\r\n")).expect("taken");
    assert_eq!(client.head().expect("the interim reply").status, 100);
    client.send(sent_after).expect("taken");
    assert!(Answer::of(&client.reply().expect("a reply")).can_enter);
}

/// Pipelined requests are answered one by one, in order.
pub(crate) fn pipelining_keeps_the_order() {
    let weir = with("");
    let mut client = weir.connect();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let join = post("/traffic/wait", &body("Z", None));
    let unknown = post("/traffic/wait", &body("X", None));
    let batch = [get("/healthz"), join, get("/nowhere"), unknown, get("/.well-known/jwks.json")].concat();
    client.send(batch.repeat(20)).expect("taken");
    for round in 0..20 {
        let replies: Vec<Reply> = (0..5).map(|_| client.reply().expect("a reply")).collect();
        let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [200, 200, 404, 404, 200], "round {round}");
        assert!(Answer::of(&replies[1]).can_enter);
        assert_eq!([&replies[2], &replies[3]].map(Reply::problem), ["not_found", "unknown_zone"]);
        assert!(replies[4].text().contains("\"keys\""));
    }
}

/// A request without `Host`, with two of them, or with a transfer coding other than `chunked` may mean another thing to a
/// proxy. Both listeners refuse it.
pub(crate) fn ambiguous_requests_are_refused() {
    let weir = with("");
    for listener in [weir.public, weir.admin] {
        for (head, body) in [
            ("GET /healthz HTTP/1.1\r\n", ""),
            ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", ""),
            ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
            (
                "GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n",
                "0\r\n\r\n",
            ),
        ] {
            let mut client = Client::connect(listener).expect("accepted");
            client.send(format!("{head}\r\n{body}")).expect("taken");
            let reply = client.reply().expect("a reply");
            assert_eq!((reply.status, reply.problem().as_str()), (400, "malformed_http"), "{head:?}");
            assert_closed(&reply, &mut client);
        }
    }
}

/// In HTTP/1.0 the end of the connection ends the reply, unless the client asks to keep it.
pub(crate) fn http_1_0() {
    let weir = with("");
    let mut client = weir.connect();
    client.send("GET /healthz HTTP/1.0\r\n\r\n").expect("taken");
    let reply = client.reply().expect("a reply");
    assert_eq!((reply.status, reply.version.as_str()), (200, "HTTP/1.0"));
    assert!(client.is_ended(), "HTTP/1.0 ends here");
    let mut client = weir.connect();
    for _ in 0..2 {
        client.send("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").expect("taken");
        assert_eq!(client.reply().expect("a reply").status, 200);
    }
    client.send("GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("taken");
    let reply = client.reply().expect("a reply");
    assert_closed(&reply, &mut client);
}

/// HEAD returns the head of GET on each route that has GET.
pub(crate) fn head_and_get() {
    let weir = with("");
    let mut client = weir.connect();
    for path in ["/healthz", "/readyz", "/.well-known/jwks.json"] {
        let got = client.get(path).expect("a reply");
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n")).expect("taken");
        let head = client.head().expect("a head");
        assert_eq!((head.status, got.status), (200, 200), "{path}");
        let of = |reply: &Reply| {
            ["content-length", "content-type"].map(|name| reply.header(name).map(str::to_owned))
        };
        assert_eq!(of(&head), of(&got), "{path}");
    }
}

/// Random bytes, and requests with a few changed bytes, lead to an error or to the end of the connection, without
/// harm to the server.
pub(crate) fn random_bytes_do_no_harm() {
    let mut random = Random::seeded("edge::random_bytes_do_no_harm");
    let weir = with("header_timeout_s = 1\nbody_timeout_s = 1");
    for _ in 0..150 {
        let length = 1 + random.below(2_000);
        let mut noise = random.bytes(length);
        noise.extend(b"\r\n\r\n");
        let mut bent = post("/traffic/entry", &body("Z", Some(&"A".repeat(52)))).into_bytes();
        for _ in 0..=random.below(4) {
            let at = random.below(bent.len());
            bent[at] = random.bytes(1)[0];
        }
        for bytes in [noise, bent] {
            let mut client = weir.connect();
            client.patience(Duration::from_millis(20)).expect("a live socket");
            // The server may refuse before everything is sent, and half a request gets no reply in this short time.
            drop(client.send(&bytes));
            if let Ok(reply) = client.reply() {
                assert!(reply.status < 500, "{reply:?} to {}", bytes.escape_ascii());
            }
        }
    }
    assert!(Answer::of(&weir.post("/traffic/wait", &body("Z", None))).can_enter);
    assert!(!weir.log().contains("panicked"), "{}", weir.log());
}

/// A connection above the cap is refused with a reply, connections below it are served, and polls on open connections
/// continue.
pub(crate) fn connection_cap_is_polite() {
    let weir = with("max_connections = 8");
    let mut kept: Vec<Client> = (0..8).map(|_| weir.connect()).collect();
    let served = |client: &mut Client| client.get("/healthz").is_ok_and(|reply| reply.status == 200);
    assert!(kept.iter_mut().all(served));
    for asks in [false, true, false, true] {
        let mut refused = weir.connect();
        if asks {
            drop(refused.send_post("/traffic/wait", &body("Z", None)));
        }
        let reply = refused.reply().expect("a polite refusal");
        assert_eq!((reply.status, reply.problem().as_str()), (503, "overloaded"));
        assert_closed(&reply, &mut refused);
        assert!(kept.iter_mut().all(served), "open connections are still served");
    }
    kept.pop();
    eventually("a place that was left is taken", || served(&mut weir.connect()).then_some(()));
    assert_eq!(weir.admin_get("/healthz").status, 200, "the admin listener has a separate limit");
}

/// The log names the client that a trusted proxy forwards, and otherwise the peer itself.
pub(crate) fn forwarded_for_is_believed_of_listed_proxies() {
    for (listed, client) in [("127.0.0.0/8", "client=198.51.100.7"), ("10.0.0.0/8", "client=127.0.0.1")] {
        let weir = with(&format!("log = \"weir=debug\"\ntrusted_proxies = [\"{listed}\"]"));
        let forwarded =
            post("/traffic/wait", "{").replace("Host", "X-Forwarded-For: 6.6.6.6, 198.51.100.7\r\nHost");
        let mut proxy = weir.connect();
        proxy.send(forwarded).expect("taken");
        assert_eq!(proxy.reply().expect("a reply").problem(), "malformed_json");
        eventually("the refusal is logged", || weir.log().contains(client).then_some(()));
        assert!(!weir.log().contains("6.6.6.6"), "hearsay is believed");
    }
}
