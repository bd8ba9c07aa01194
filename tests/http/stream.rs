//! Event streams of waiting users: what they are told, that a slow reader is cut off, and that no place is lost
//! however a stream ends.

use std::{
    collections::{BTreeSet, HashSet},
    process::Command,
    sync::Barrier,
    thread,
};

use rustix::process::Signal;

use crate::{
    admin::new_token,
    app::{Answer, body},
    client::{Client, Reply, post},
    clock::{eventually, now},
    limits::counted,
    metrics::gauge,
    passes::JwkSet,
    redis::Standalone,
    sse::{Stream, StreamEvent, request},
    weir::{Setup, Weir, binary, zone},
};

const HELD: &str = "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 10";
const MOVING: &str = "polling_period_ms = 500\nidle_timeout_s = 10";

fn join(weir: &Weir) -> String {
    Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token
}

fn ask(weir: &Weir, request: &str) -> Reply {
    let mut client = weir.connect();
    client.send(request).expect("taken");
    client.reply().expect("a reply")
}

/// A zone that admits people.
fn let_go(weir: &Weir, per_minute: u32) {
    weir.setup().write_config(&zone("Z", per_minute, MOVING));
    weir.signal(Signal::HUP);
}

/// Twelve users hear that they wait and why, then that they move, and enter with different passes: six first, and the
/// others six seconds later. A poll with the last id of the stream returns the same pass.
pub(crate) fn ranks_move_and_all_are_called_in() {
    let weir = Setup::zone(60, HELD).start();
    let mut streams: Vec<Stream> = (0..12).map(|_| Stream::open(&weir, "Z", &join(&weir))).collect();
    for (stream, rank) in streams.iter_mut().zip(1..) {
        let waiting = stream.wait();
        assert_eq!((waiting.rank, waiting.eta_seconds), (rank, None));
        assert_eq!((waiting.reason.as_deref(), waiting.polling_period), (Some("held"), 500));
        assert!(stream.reader.retry_ms.is_some_and(|ms| (1_000..3_000).contains(&ms)));
    }
    assert_eq!(gauge(&weir, "weir_streams_open"), 12);
    let all_open = Barrier::new(13);
    let entered: Vec<_> = thread::scope(|scope| {
        let follow = |(mut stream, rank): (Stream, u64)| {
            let all_open = &all_open;
            scope.spawn(move || {
                // While the line is held, the wait is sent again each period.
                assert_eq!(stream.wait().rank, rank);
                all_open.wait();
                let answer = stream.enter(rank);
                let at = now();
                assert!(stream.client.is_ended(), "the stream ends");
                assert_eq!(stream.token(), answer.token, "the last id is the last token");
                (at, answer)
            })
        };
        let followed: Vec<_> = streams.into_iter().zip(1..).map(follow).collect();
        all_open.wait();
        let_go(&weir, 60);
        followed.into_iter().map(|one| one.join().expect("a stream saw a fault")).collect()
    });
    // Each of the first six entered before each of the others.
    let first = entered[..6].iter().map(|(at, _)| *at).max();
    let others = entered[6..].iter().map(|(at, _)| *at).min();
    assert!(first < others, "overtaken");
    let keys = JwkSet::of(&weir);
    let mut entries: Vec<_> = entered.iter().map(|(_, answer)| keys.verify(answer.pass()).jti).collect();
    entries.sort_unstable();
    entries.dedup();
    assert_eq!(entries.len(), 12, "two holders have the same entry");
    let answer = &entered[3].1;
    let again = Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&answer.token))));
    assert_eq!(again.pass, answer.pass);
    // A user who entered and reconnects with the last id receives the same answer.
    let mut back = Stream::over(weir.connect(), &request("Z", "old", Some(&answer.token)));
    assert!(matches!(back.next(), Ok(StreamEvent::Enter(same)) if same.pass == answer.pass));
    eventually("all streams have ended", || (gauge(&weir, "weir_streams_open") == 0).then_some(()));
}

/// A user who is admitted while the connection is about to die has entered once, and receives the pass when it
/// reconnects with its last id.
pub(crate) fn a_call_that_nobody_heard_is_heard_again() {
    let weir = Setup::zone(60, HELD).start();
    let mut stream = Stream::open(&weir, "Z", &join(&weir));
    assert_eq!(stream.wait().rank, 1);
    let last = stream.token().to_owned();
    let_go(&weir, 60);
    let entered = || counted(&weir, "weir_zone_entered_total{zone=\"Z\"}");
    eventually("the server calls", || (entered() == 1).then_some(()));
    // The connection ends with unread bytes.
    drop(stream);
    let mut passes: Vec<String> = (0..2)
        .map(|_| Stream::over(weir.connect(), &request("Z", "old", Some(&last))).enter(1).pass().to_owned())
        .collect();
    passes.push(Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&last)))).pass().to_owned());
    passes.dedup();
    assert_eq!(passes.len(), 1, "{passes:?}");
    JwkSet::of(&weir).verify(&passes[0]);
    assert!(Answer::of(&weir.post("/traffic/wait", &body("Z", None))).can_enter);
    let joined = || counted(&weir, "weir_zone_joined_total{zone=\"Z\"}");
    eventually("the next one is counted", || (joined() == 2).then_some(()));
    assert_eq!(entered(), 2, "one each");
}

/// Opening a stream counts as a poll for the client limits. One too many is refused as a poll would be, and still
/// counts as presence.
pub(crate) fn opening_a_stream_counts_as_a_poll() {
    let weir = Setup::zone(60, &format!("{HELD}\nentries_per_minute_per_client = 120")).start();
    let (token, other) = (join(&weir), join(&weir));
    let stream = Stream::open(&weir, "Z", &token);
    assert_eq!(stream.head.header("ratelimit-policy"), Some("\"entry\";q=120;w=60"));
    assert!(stream.head.header("ratelimit").is_some_and(|told| told.starts_with("\"entry\";r=119;")));
    drop(stream);
    let present = || counted(&weir, "weir_zone_present_tickets{zone=\"Z\"}");
    eventually("somebody is present", || (present() > 0).then_some(()));
    let refused = loop {
        eventually("the holders are taken for absent", || (present() == 0).then_some(()));
        let mut client = weir.connect();
        while client.post("/traffic/entry", &body("Z", Some(&other))).expect("a reply").status != 429 {}
        let reply = ask(&weir, &request("Z", &token, None));
        // Two calls a second may pass the limit, and this may be one of them.
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!((refused.status, refused.problem().as_str()), (429, "too_many_requests"));
    assert_eq!(refused.header("ratelimit"), Some("\"entry\";r=0;t=1"));
    eventually("both holders are present all the same", || (present() == 2).then_some(()));
    assert_eq!(gauge(&weir, "weir_requests_total{route=\"stream\",status=\"429\"}"), 1);
}

/// A stream counts as presence: its holder stays longer than a silent one. After it is closed, the holder is silent.
pub(crate) fn a_stream_is_presence_and_its_end_is_silence() {
    let weir = Setup::zone(60, HELD).start();
    let (stays, leaves, silent) = (join(&weir), join(&weir), join(&weir));
    let mut stream = Stream::open(&weir, "Z", &stays);
    let leaving = Stream::open(&weir, "Z", &leaves);
    let evicted = || counted(&weir, "weir_zone_evicted_total{zone=\"Z\"}");
    let mut read_until = |count: u64| {
        eventually("the silent are evicted", || {
            // Every event meanwhile is a wait.
            assert_eq!(stream.wait().rank, 1);
            (evicted() == count).then_some(())
        });
    };
    read_until(1);
    assert_eq!(weir.post("/traffic/entry", &body("Z", Some(&silent))).problem(), "gone");
    drop(leaving);
    read_until(2);
    assert_eq!(gauge(&weir, "weir_zone_present_tickets{zone=\"Z\"}"), 1);
    assert_eq!(ask(&weir, &request("Z", &leaves, None)).problem(), "gone");
}

/// A user who opens a stream and does not read it is cut off and does not count as present. Others are not affected.
pub(crate) fn who_does_not_read_is_cut_off() {
    let config = format!("write_timeout_s = 1\n{}", zone("Z", 60, HELD));
    let weir = Setup::new(&config).start();
    let (deaf, reads) = (join(&weir), join(&weir));
    let mut client = weir.connect();
    client.read_little();
    client.send(request("Z", &deaf, None)).expect("taken");
    let mut stream = Stream::open(&weir, "Z", &reads);
    assert_eq!(stream.wait().rank, 2);
    eventually("the deaf one is let go", || {
        stream.wait();
        (gauge(&weir, "weir_streams_open") == 1).then_some(())
    });
    eventually("the deaf one is evicted", || (stream.wait().rank == 1).then_some(()));
}

/// A stopping server ends its streams with `reconnect`, however long its deadline is. Streams opened later are
/// refused.
pub(crate) fn a_drain_sends_streams_away() {
    let mut weir = Setup::new(&format!("drain_deadline_s = 600\n{}", zone("Z", 60, HELD))).start();
    let mut streams: Vec<Stream> = (0..3).map(|_| Stream::open(&weir, "Z", &join(&weir))).collect();
    let mut operator = operator(&weir, "");
    for stream in &mut streams {
        stream.wait();
    }
    weir.signal(Signal::TERM);
    for stream in &mut streams {
        let told = eventually("the stream ends", || {
            Some(stream.next()).filter(|told| !matches!(told, Ok(StreamEvent::Wait(_))))
        });
        assert_eq!(told.expect("a last event"), StreamEvent::Reconnect);
        assert!(stream.client.is_ended());
    }
    while operator.client.block().expect("a last event") != "event: reconnect\ndata: {}" {}
    assert!(weir.wait_for_end().success());
    let weir = weir.take_setup().start();
    let last = streams[2].token();
    assert_eq!(Stream::over(weir.connect(), &request("Z", "old", Some(last))).wait().rank, 3);
}

/// A zone that is removed ends its streams with the reason, both for users who are told from views and for those who
/// have just come.
pub(crate) fn a_zone_that_goes_ends_its_streams() {
    let weir = Setup::new(&(zone("Z", 60, HELD) + &zone("OTHER", 60, ""))).start();
    let mut told = Stream::open(&weir, "Z", &join(&weir));
    // The first wait comes with the head.
    for _ in 0..3 {
        told.wait();
    }
    let mut new = Stream::open(&weir, "Z", &join(&weir));
    new.wait();
    weir.setup().write_config(&zone("OTHER", 60, ""));
    weir.signal(Signal::HUP);
    for stream in [&mut told, &mut new] {
        let last = eventually("the stream ends", || {
            Some(stream.next()).filter(|told| !matches!(told, Ok(StreamEvent::Wait(_))))
        });
        assert_eq!(last.expect("a last event"), StreamEvent::Problem("unknown_zone".to_owned()));
        assert!(stream.client.is_ended());
    }
}

/// With the last id a browser continues at any server of the same store.
pub(crate) fn a_stream_goes_on_at_another_server() {
    let redis = Standalone::start();
    // The keys that both servers share.
    let keys = Setup::new("").start().stop();
    let server = || {
        let setup = Setup::zone(60, HELD).arg("--store").arg(redis.url());
        let key = |name: &str| keys.data().join(name);
        setup
            .arg("--seal-key-file")
            .arg(key("seal.key"))
            .arg("--pass-key-file")
            .arg(key("pass-es256.pem"))
            .start()
    };
    let (mut one, two) = (server(), server());
    let first = join(&one);
    let mut ahead = Stream::open(&two, "Z", &first);
    let mut stream = Stream::open(&one, "Z", &join(&one));
    assert_eq!((ahead.wait().rank, stream.wait().rank), (1, 2));
    one.signal(Signal::KILL);
    one.wait_for_end();
    while stream.next().is_ok() {}
    let mut stream = Stream::over(two.connect(), &request("Z", "old", Some(stream.token())));
    assert_eq!(stream.wait().rank, 2);
    drop(ahead);
    eventually("the one ahead is gone", || (stream.wait().rank == 1).then_some(()));
    two.setup().write_config(&zone("Z", 60, MOVING));
    let applied = Command::new(binary())
        .args(["zones", "apply", "--replace"])
        .arg(two.setup().config_path())
        .args(["--store", &redis.url()])
        .output()
        .expect("it runs");
    assert!(applied.status.success(), "{applied:?}");
    stream.enter(1);
}

/// Pages of listed origins may call and read, others may not. Without a list there are no CORS headers.
pub(crate) fn pages_of_listed_origins_may_call() {
    let config = format!("cors_origins = [\"https://shop.example\"]\n{}", zone("Z", 60, HELD));
    let weir = Setup::new(&config).start();
    let preflight = |path: &str, origin: &str, method: &str| {
        format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: test\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: {method}\r\n\r\n"
        )
    };
    let asks_for = |headers: &str| {
        let request = preflight("/traffic/wait", "https://shop.example", "POST");
        let line = format!("Access-Control-Request-Headers: {headers}\r\n\r\n");
        let reply = ask(&weir, &request.replacen("\r\n\r\n", &format!("\r\n{line}"), 1));
        reply.header("access-control-allow-headers").expect("it may call").to_owned()
    };
    // Tools for traces add headers to every call of a page.
    let tools = "authorization,baggage,content-type,sentry-trace,traceparent";
    assert_eq!(asks_for(tools), tools);
    assert_eq!(asks_for(&"x".repeat(2_000)), "content-type, last-event-id");
    for (path, method) in [("/traffic/wait", "POST"), ("/traffic/entry", "POST"), ("/traffic/stream", "GET")]
    {
        let reply = ask(&weir, &preflight(path, "https://shop.example", method));
        assert_eq!(reply.status, 204, "{reply:?}");
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://shop.example"));
        assert_eq!(reply.header("access-control-allow-methods"), Some(method));
        assert_eq!(reply.header("access-control-allow-headers"), Some("content-type, last-event-id"));
        let reply = ask(&weir, &preflight(path, "https://other.example", method));
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
        assert_eq!(reply.problem(), "foreign_origin");
    }
    let from =
        |origin: &str, request: String| request.replacen("Host", &format!("Origin: {origin}\r\nHost"), 1);
    let wait = post("/traffic/wait", &body("Z", None));
    let reply = ask(&weir, &from("https://shop.example", wait.clone()));
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://shop.example"));
    let token = Answer::of(&reply).token;
    assert_eq!(ask(&weir, &from("https://other.example", wait)).header("access-control-allow-origin"), None);
    let stream = Stream::over(weir.connect(), &from("https://shop.example", request("Z", &token, None)));
    assert_eq!(stream.head.header("access-control-allow-origin"), Some("https://shop.example"));
    assert_eq!(stream.head.header("vary"), Some("Origin"));
    let readable = stream.head.header("access-control-expose-headers");
    assert_eq!(readable, Some("Retry-After, RateLimit, RateLimit-Policy"));
    let refused = ask(&weir, &from("https://shop.example", request("Z", "x", None)));
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("https://shop.example"),
        "a page reads why"
    );
    assert_eq!(refused.problem(), "bad_token");
}

/// The stream of an operator.
fn operator(weir: &Weir, query: &str) -> Stream {
    operator_with(weir, query, "x")
}

/// The same with this token.
fn operator_with(weir: &Weir, query: &str, token: &str) -> Stream {
    let client = Client::connect(weir.admin).expect("the admin listener accepts");
    let fields = format!("Host: localhost\r\nAuthorization: Bearer {token}");
    Stream::over(client, &format!("GET /admin/v1/events{query} HTTP/1.1\r\n{fields}\r\n\r\n"))
}

fn next_event(stream: &mut Stream) -> (String, serde_json::Value) {
    loop {
        let block = stream.client.block().expect("the stream goes on");
        if let Some((name, data)) = stream.reader.event(&block) {
            return (name.to_owned(), serde_json::from_str(data).expect("JSON"));
        }
    }
}

/// Operators receive the kinds of events that they select; the audit's events are not available.
pub(crate) fn operators_hear_what_happens() {
    let weir = Setup::new(&format!("worker_threads = 1\n{}", zone("Z", 60, MOVING))).start();
    let mut all = operator(&weir, "");
    let mut some = operator(&weir, "?kinds=Joined,Refused");
    weir.post("/traffic/wait", &body("Z", None));
    weir.post("/traffic/entry", &body("Z", Some("x")));
    let (name, joined) = next_event(&mut some);
    assert_eq!(name, "message");
    let at_ms = joined["at_ms"].as_u64().expect("an instant");
    let wanted = serde_json::json!({
        "kind": "Joined", "zone": "Z", "epoch": joined["epoch"], "first": joined["first"], "count": 1, "entered": 1, "at_ms": at_ms,
    });
    assert_eq!(joined, wanted);
    let refused = serde_json::json!({"kind": "Refused", "zone": "Z", "why": "bad_token", "count": 1});
    assert_eq!(next_event(&mut some).1, refused);
    let mut seen = BTreeSet::new();
    while !["Joined", "Entered", "Refused", "StoreCalled"].iter().all(|kind| seen.contains(*kind)) {
        seen.insert(next_event(&mut all).1["kind"].as_str().expect("a kind").to_owned());
    }
    for (query, says) in [("?kinds=Admitted", "Admitted"), ("?kinds=", "``"), ("?kind=Joined", "`kind`")] {
        let request = format!("GET /admin/v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut client = Client::connect(weir.admin).expect("accepted");
        client.send(request).expect("taken");
        let reply = client.reply().expect("a reply");
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.text().contains(says), "{reply:?}");
    }
    let public = weir.get("/admin/v1/events");
    assert_eq!(
        (public.status, public.problem().as_str()),
        (404, "not_found"),
        "the public listener does not have it"
    );
}

/// A token that is withdrawn, or gets a role that may not listen, hears nothing more of a stream that it opened before.
pub(crate) fn a_withdrawn_token_ends_its_stream() {
    let [(stays, of_stays), (gone, of_gone), (lowered, of_lowered)] =
        ["ada", "vera", "sam"].map(|name| new_token(name, "viewer"));
    let zones = zone("Z", 60, HELD);
    let weir = Setup::new(&format!("{zones}{of_stays}{of_gone}{of_lowered}")).start();
    let [mut stays, mut gone, mut lowered] =
        [stays, gone, lowered].map(|token| operator_with(&weir, "?kinds=Joined,Reloaded", &token));
    let kind = |stream: &mut Stream| next_event(stream).1["kind"].clone();
    join(&weir);
    for stream in [&mut stays, &mut gone, &mut lowered] {
        assert_eq!(kind(stream), "Joined");
    }
    let of_lowered = of_lowered.replace("\"viewer\"", "\"shop\"");
    weir.setup().write_config(&format!("{zones}{of_stays}{of_lowered}"));
    weir.signal(Signal::HUP);
    assert_eq!(kind(&mut stays), "Reloaded");
    join(&weir);
    assert_eq!(kind(&mut stays), "Joined");
    for stream in [&mut gone, &mut lowered] {
        while let Ok(block) = stream.client.block() {
            assert_eq!(stream.reader.event(&block), None, "it hears nothing");
        }
    }
}

/// An operator who does not read loses events and is told how many. The numbers add up, and nobody waits for the
/// operator.
pub(crate) fn a_slow_operator_is_told_what_it_lost() {
    const CALLS: u64 = 16_000;
    let weir =
        Setup::new(&format!("worker_threads = 1\nwrite_timeout_s = 60\n{}", zone("Z", 60, MOVING))).start();
    let mut slow = operator(&weir, "?kinds=Refused");
    let mut client = weir.connect();
    let many = post("/traffic/entry", &body("Z", Some("x"))).repeat(100);
    for _ in 0..CALLS / 100 {
        client.send(&many).expect("taken");
        for _ in 0..100 {
            assert_eq!(client.reply().expect("a reply").status, 401);
        }
    }
    let (mut heard, mut lost) = (0, 0);
    while heard + lost < CALLS {
        match next_event(&mut slow) {
            (name, data) if name == "lost" => lost += data["count"].as_u64().expect("a count"),
            (_, data) => heard += data["count"].as_u64().expect("a count"),
        }
    }
    assert_eq!(heard + lost, CALLS);
    assert!(lost > 0, "no event was lost, so this test shows nothing");
}

/// 5,000 streams from one process. Each user hears the rank, and the new rank after the first 3,000 were admitted,
/// and each enters once.
pub(crate) fn five_thousand_streams() {
    const FIRST: usize = 3_000;
    const STREAMS: usize = 5_000;
    // Nobody is dropped for silence while this one process makes 10,000 calls, on however busy a machine.
    const PATIENT: &str = "sub_windows = 1\nidle_timeout_s = 600";
    let weir = Setup::zone(60, &format!("{PATIENT}\nmode = \"hold\"")).start();
    let mut joins = weir.connect();
    let tokens: Vec<String> = (0..STREAMS)
        .map(|_| Answer::of(&joins.post("/traffic/wait", &body("Z", None)).expect("a reply")).token)
        .collect();
    let mut streams: Vec<Stream> = tokens.iter().map(|token| Stream::open(&weir, "Z", token)).collect();
    for (stream, rank) in streams.iter_mut().zip(1..) {
        assert_eq!(stream.wait().rank, rank);
    }
    assert_eq!(gauge(&weir, "weir_streams_open"), 5_000);
    let mut passes = HashSet::new();
    let mut enter = |streams: &mut [Stream]| {
        for (stream, rank) in streams.iter_mut().zip(1..) {
            let answer = stream.enter(rank);
            assert!(stream.client.is_ended(), "{rank}");
            assert!(passes.insert(answer.pass().to_owned()), "rank {rank} has another user's pass");
        }
    };
    let admit = |per_minute| {
        weir.setup().write_config(&zone("Z", per_minute, PATIENT));
        weir.signal(Signal::HUP);
    };
    let (first, others) = streams.split_at_mut(FIRST);
    admit(3_000);
    enter(first);
    for (stream, rank) in others.iter_mut().zip(1..) {
        // The client has not read for a while.
        assert!((0..100).any(|_| stream.wait().rank == rank), "{rank} never heard that it moved up");
    }
    admit(60_000);
    enter(others);
    assert_eq!(passes.len(), STREAMS);
    eventually("all streams have ended", || (gauge(&weir, "weir_streams_open") == 0).then_some(()));
}
