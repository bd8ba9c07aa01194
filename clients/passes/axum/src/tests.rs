//! The verifier, with the vectors that all verifiers share, and in axum.

use std::{
    collections::HashMap,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    response::Response,
    routing::post,
};
use http::{
    Request, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::Instant,
};
use tower::ServiceExt as _;

use crate::{Code, Memory, Pass, PassLayer, Passes, Refusal, SetupError, Spend, clock::Clock};

#[derive(Deserialize)]
struct Vectors {
    audience: String,
    zone: String,
    epoch: i64,
    sets: HashMap<String, Value>,
    cases: Vec<Case>,
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    jwks: String,
    now: i64,
    pass: String,
    expect: String,
    claims: Option<Claims>,
}

#[derive(Deserialize)]
struct Claims {
    zone: String,
    jti: String,
    exp: u64,
}

#[derive(Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    serve: Option<Served>,
    #[serde(default)]
    at: i64,
    pass: Option<String>,
    expect: Option<String>,
    /// When to come again, in seconds.
    retry_after: Option<u64>,
    fetches: Option<usize>,
}

/// How the keys are published.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Served {
    set: Option<String>,
    body: Option<String>,
    redirect: Option<String>,
    status: Option<u16>,
    padding: usize,
    hang: bool,
    trickle: bool,
    endless: bool,
    cut: bool,
    hints: bool,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors.json")).expect("the vectors are right")
}

/// A Weir that publishes keys as a scenario says, on a free port, for as long as the runtime of the test.
struct Publisher {
    address: String,
    what: Arc<Mutex<Served>>,
    fetches: Arc<AtomicUsize>,
    /// What may be answered.
    may: Arc<Semaphore>,
}

impl Publisher {
    async fn start(sets: &HashMap<String, Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let may = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let at = Self { address, what: Arc::default(), fetches: Arc::default(), may };
        let (what, fetches, may, sets) =
            (Arc::clone(&at.what), Arc::clone(&at.fetches), Arc::clone(&at.may), sets.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (what, fetches, may, sets) =
                    (Arc::clone(&what), Arc::clone(&fetches), Arc::clone(&may), sets.clone());
                // It fails when the verifier does not read any more.
                tokio::spawn(async move {
                    let _ = answer(stream, &what, &fetches, &may, &sets).await;
                });
            }
        });
        at
    }

    fn serve(&self, what: Served) {
        *self.what.lock().expect("no holder panics") = what;
    }

    fn serve_set(&self, set: &str) {
        self.serve(Served { set: Some(set.to_owned()), ..Served::default() });
    }
}

async fn answer(
    mut stream: TcpStream,
    what: &Mutex<Served>,
    fetches: &AtomicUsize,
    may: &Semaphore,
    sets: &HashMap<String, Value>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    if head.starts_with(b"GET /elsewhere ") {
        return whole(&mut stream, 200, &sets["a"].to_string()).await;
    }
    assert!(head.starts_with(b"GET /.well-known/jwks.json "));
    fetches.fetch_add(1, Ordering::SeqCst);
    if !String::from_utf8_lossy(&head).to_ascii_lowercase().contains("cache-control: no-cache\r\n") {
        // As a cache does that has older keys.
        return whole(&mut stream, 200, r#"{"keys":[]}"#).await;
    }
    may.acquire().await.expect("it is never closed").forget();
    let what = what.lock().expect("no holder panics").clone();
    if what.hang {
        std::future::pending::<()>().await;
    }
    if what.redirect.is_some() {
        return stream
            .write_all(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
            .await;
    }
    if what.trickle || what.endless {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            if what.trickle {
                tick.tick().await;
            }
            stream.write_all(if what.trickle { b" " } else { &[b' '; 16_384] }).await?;
        }
    }
    let set = what.set.map_or_else(String::new, |set| sets[&set].to_string());
    let text = what.body.unwrap_or(set) + &" ".repeat(what.padding);
    if what.cut {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len() + 1);
        return stream.write_all((head + &text).as_bytes()).await;
    }
    if what.hints {
        stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await?;
        stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n").await?;
    }
    whole(&mut stream, what.status.unwrap_or(200), &text).await
}

async fn whole(stream: &mut TcpStream, status: u16, text: &str) -> std::io::Result<()> {
    let head =
        format!("HTTP/1.1 {status} Some\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    stream.write_all((head + text).as_bytes()).await
}

/// A verifier whose clocks show `now`, in seconds since 1970.
fn passes(vectors: &Vectors, at: &Publisher, now: &Arc<AtomicI64>) -> Passes {
    let passes = Passes::on(&at.address, &vectors.zone, Clock::Set(Arc::clone(now))).expect("right");
    // Short only where nothing comes.
    passes.keys.limit(Duration::from_secs(20));
    passes.with_audience(&vectors.audience).expect("right")
}

/// Vectors, and a verifier of the first pass of them.
async fn ready() -> (Vectors, Publisher, Passes) {
    let vectors = vectors();
    let at = Publisher::start(&vectors.sets).await;
    at.serve_set("all");
    let now = Arc::new(AtomicI64::new(vectors.cases[0].now));
    let passes = passes(&vectors, &at, &now);
    (vectors, at, passes)
}

fn said(result: &Result<Pass, Refusal>) -> &'static str {
    result.as_ref().map_or_else(|refusal| refusal.code().as_str(), |_| "ok")
}

#[tokio::test]
async fn every_pass_is_judged_as_the_vectors_say() {
    let vectors = vectors();
    let at = Publisher::start(&vectors.sets).await;
    for case in &vectors.cases {
        at.serve_set(&case.jwks);
        let now = Arc::new(AtomicI64::new(case.now));
        let result = passes(&vectors, &at, &now).accept(&case.pass).await;
        assert_eq!(said(&result), case.expect, "{}", case.name);
        if let Some(Claims { zone, jti, exp }) = &case.claims {
            let expires = UNIX_EPOCH + Duration::from_secs(*exp);
            assert_eq!(result.expect("ok"), Pass { zone: zone.clone(), jti: jti.clone(), expires });
        }
    }
}

#[tokio::test]
async fn every_scenario_of_the_vectors() {
    let vectors = vectors();
    for Scenario { name, steps } in &vectors.scenarios {
        let at = Publisher::start(&vectors.sets).await;
        let now = Arc::new(AtomicI64::new(vectors.epoch));
        let passes = passes(&vectors, &at, &now);
        for (i, step) in steps.iter().enumerate() {
            if let Some(what) = &step.serve {
                at.serve(what.clone());
                let comes_never = what.hang || what.trickle;
                passes.keys.limit(Duration::from_millis(if comes_never { 500 } else { 20_000 }));
            }
            if let Some(fetches) = step.fetches {
                assert_eq!(at.fetches.load(Ordering::SeqCst), fetches, "{name}: fetches at step {i}");
            }
            if let Some(pass) = &step.pass {
                now.store(vectors.epoch + step.at, Ordering::SeqCst);
                let result = passes.accept(pass).await;
                assert_eq!(Some(said(&result)), step.expect.as_deref(), "{name}: step {i}, at {} s", step.at);
                if let Some(after) = step.retry_after {
                    let reply = result.expect_err("a refusal").response::<String>();
                    assert_eq!(reply.headers()[RETRY_AFTER], after.to_string(), "{name}: step {i}");
                }
            }
        }
    }
}

/// How many of a hundred callers enter who show the pass at once, in turn to each of the verifiers.
async fn enter_at_once<S: Spend>(pass: &str, verifiers: &[Arc<Passes<S>>]) -> usize {
    let mut callers = JoinSet::new();
    for i in 0..100 {
        let (passes, pass) = (Arc::clone(&verifiers[i % verifiers.len()]), pass.to_owned());
        callers.spawn(async move { passes.accept(&pass).await.is_ok() });
    }
    callers.join_all().await.into_iter().filter(|entered| *entered).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_who_show_one_pass_at_once_one_enters() {
    let (vectors, at, passes) = ready().await;
    assert_eq!(enter_at_once(&vectors.cases[0].pass, &[Arc::new(passes)]).await, 1);
    assert_eq!(at.fetches.load(Ordering::SeqCst), 1, "the keys are fetched once");
}

#[tokio::test]
async fn a_caller_who_goes_away_takes_the_keys_from_nobody() {
    let (vectors, at, passes) = ready().await;
    at.may.forget_permits(Semaphore::MAX_PERMITS);
    let (passes, pass) = (Arc::new(passes), vectors.cases[0].pass.clone());
    let call = || {
        let (passes, pass) = (Arc::clone(&passes), pass.clone());
        tokio::spawn(async move { passes.accept(&pass).await })
    };
    let first = call();
    while at.fetches.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.expect_err("it was aborted").is_cancelled());
    let second = call();
    at.may.add_permits(1);
    assert_eq!(said(&second.await.expect("it runs")), "ok");
    assert_eq!(at.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_fetch_that_began_before_a_key_was_asked_for_does_not_make_it_unknown() {
    let (vectors, at, passes) = ready().await;
    at.may.forget_permits(Semaphore::MAX_PERMITS);
    let pass = |name| &vectors.cases.iter().find(|case| case.name == name).expect("a case").pass;
    // They are polled in this order, so the first one begins the fetch, and the second one comes before the reply.
    let (known, unknown, ()) = tokio::join!(
        passes.accept(pass("a good pass")),
        passes.accept(pass("a key that is not published")),
        async { at.may.add_permits(1) }
    );
    assert_eq!((said(&known), said(&unknown)), ("ok", "keys_away"));
    assert_eq!(at.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nobody_waits_long_for_a_weir_that_hangs_where_the_key_is_known() {
    let vectors = vectors();
    let at = Publisher::start(&vectors.sets).await;
    at.serve_set("all");
    let now = Arc::new(AtomicI64::new(vectors.cases[0].now));
    let passes = passes(&vectors, &at, &now);
    passes.keys.limit(Duration::from_secs(10));
    assert_eq!(said(&passes.accept(&vectors.cases[0].pass).await), "ok");
    at.serve(Served { hang: true, ..Served::default() });
    now.fetch_add(61, Ordering::SeqCst);
    let begun = Instant::now();
    for _ in 0..4 {
        assert_eq!(said(&passes.accept(&vectors.cases[0].pass).await), "spent");
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(7_500), "it waits for a fifth of the limit, and once: {took:?}");
    assert_eq!(at.fetches.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_memory_has_a_limit_and_forgets_what_has_expired() {
    let now = Arc::new(AtomicI64::new(0));
    let memory = Memory::new(Clock::Set(Arc::clone(&now)), 2);
    let spend = |key: &str, until_s| memory.spend(key.to_owned(), until_s);
    assert!(spend("a", 10).await.expect("room"));
    assert!(!spend("a", 10).await.expect("room"));
    assert!(spend("b", 20).await.expect("room"));
    assert!(spend("c", 30).await.is_err());
    now.store(11, Ordering::SeqCst);
    assert!(spend("c", 30).await.expect("room"));
    assert!(!spend("b", 20).await.expect("room"));
}

#[tokio::test]
async fn a_full_memory_looks_for_what_has_expired_once_in_a_second_at_most() {
    let now = Arc::new(AtomicI64::new(0));
    let memory = Memory::new(Clock::Set(Arc::clone(&now)), 2);
    let spend = |key: &str, until_s| memory.spend(key.to_owned(), until_s);
    assert!(spend("a", 10).await.expect("room") && spend("b", 11).await.expect("room"));
    now.store(11, Ordering::SeqCst);
    assert!(spend("c", 30).await.expect("room"));
    now.store(12, Ordering::SeqCst);
    assert!(spend("d", 30).await.is_err());
    now.store(13, Ordering::SeqCst);
    assert!(spend("d", 30).await.expect("room"));
}

#[tokio::test]
async fn nobody_enters_without_the_shared_record() {
    let (vectors, _at, passes) = ready().await;
    let asked = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&asked);
    let passes = passes.with_record(move |key: String, until_s: u64| {
        *seen.lock().expect("no holder panics") = Some((key, until_s));
        async { Err("no Redis".into()) }
    });
    let refusal = passes.accept(&vectors.cases[0].pass).await.expect_err("the record is away");
    assert_eq!((refusal.code(), refusal.status()), (Code::RecordAway, StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(refusal.source().expect("a cause").to_string(), "no Redis");
    let asked = asked.lock().expect("no holder panics").take();
    assert_eq!(asked, Some(("weir:spent:TEST_ZONE/0000002a/1".to_owned(), 1_900_000_365)));
}

#[tokio::test]
async fn a_record_that_does_not_answer_is_away() {
    let (vectors, _at, passes) = ready().await;
    let mut passes = passes.with_record(|_: String, _: u64| std::future::pending());
    passes.spend_limit = Duration::from_millis(50);
    assert_eq!(said(&passes.accept(&vectors.cases[0].pass).await), "record_away");
}

/// A record in Redis, as docs/app/clients.md says it, with a prefix: the tests of other languages use this Redis, too. `now_s` is the clock
/// of the service.
fn record(connection: &redis::aio::MultiplexedConnection, prefix: &'static str, now_s: u64) -> impl Spend {
    let connection = connection.clone();
    move |key: String, until_s: u64| {
        let mut connection = connection.clone();
        async move {
            let mut mine = [0; 16];
            aws_lc_rs::rand::fill(&mut mine).expect("the system has random numbers");
            let mut set = redis::cmd("SET");
            let life_s = until_s.saturating_sub(now_s);
            set.arg(format!("{prefix}{key}")).arg(&mine).arg("NX").arg("GET").arg("EX").arg(life_s);
            let found: Option<Vec<u8>> = set.query_async(&mut connection).await?;
            Ok(found.is_none_or(|found| found == mine))
        }
    }
}

#[tokio::test]
async fn a_redis_whose_clock_is_ahead_does_not_forget_a_spent_pass() {
    let Ok(address) = std::env::var("PASSES_REDIS") else { return };
    let client = redis::Client::open(address).expect("an address");
    let connection = client.get_multiplexed_async_connection().await.expect("a Redis");
    let behind_s = Clock::Machine { since: Instant::now() }.now_s() - 3_600.0;
    let now_s = Duration::from_secs_f64(behind_s).as_secs();
    let spend = record(&connection, "rust-ahead:", now_s);
    assert!(spend.spend("a".to_owned(), now_s + 365).await.expect("a Redis"));
    assert!(!spend.spend("a".to_owned(), now_s + 365).await.expect("a Redis"));
}

/// `clients/passes/run` starts a Redis and names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_share_a_redis_accept_a_pass_once() {
    let Ok(address) = std::env::var("PASSES_REDIS") else { return };
    let client = redis::Client::open(address).expect("an address");
    let mut services = Vec::new();
    let mut pass = String::new();
    for _ in 0..2 {
        let connection = client.get_multiplexed_async_connection().await.expect("a Redis");
        let (vectors, _at, passes) = ready().await;
        pass.clone_from(&vectors.cases[0].pass);
        let now_s = vectors.cases[0].now.unsigned_abs();
        services.push(Arc::new(passes.with_record(record(&connection, "rust:", now_s))));
    }
    assert_eq!(enter_at_once(&pass, &services).await, 1);
}

#[test]
fn a_setup_that_cannot_be_right_is_refused() {
    for weir in ["weir.example", "ftp://w", "http://", "http://a b", ""] {
        assert!(matches!(Passes::new(weir, "Z"), Err(SetupError::Address(_))), "{weir}");
    }
    assert!(matches!(Passes::new("http://w", ""), Err(SetupError::Empty)));
    assert!(Passes::new("http://w", "Z").is_ok_and(|passes| passes.with_audience("").is_err()));
}

async fn ask<'a>(
    app: &Router,
    authorizations: impl IntoIterator<Item = &'a str>,
) -> (StatusCode, Response<Vec<u8>>) {
    let mut request = Request::post("/enter");
    for authorization in authorizations {
        request = request.header(AUTHORIZATION, authorization);
    }
    let reply = app.clone().oneshot(request.body(Body::empty()).expect("right")).await.expect("infallible");
    let (head, body) = reply.into_parts();
    let body = to_bytes(body, 8_192).await.expect("short").to_vec();
    (head.status, Response::from_parts(head, body))
}

fn header<'a>(reply: &'a Response<Vec<u8>>, name: &str) -> &'a str {
    reply.headers().get(name).map_or("", |value| value.to_str().expect("ASCII"))
}

#[tokio::test]
async fn a_pass_leads_to_the_handler_and_a_refusal_is_clear() {
    let (vectors, at, passes) = ready().await;
    let enter = |Extension(pass): Extension<Pass>| async move { pass.jti };
    let app =
        |passes| Router::new().route("/enter", post(enter)).route_layer(PassLayer::new(Arc::new(passes)));
    let open = app(passes);
    let good = format!("Bearer {}", vectors.cases[0].pass);
    assert_eq!(ask(&open, [good.as_str(), "Bearer hello"]).await.0, StatusCode::UNAUTHORIZED);
    let (status, entered) = ask(&open, [good.as_str()]).await;
    assert_eq!((status, entered.body().as_slice()), (StatusCode::OK, b"TEST_ZONE/0000002a/1".as_slice()));
    for (authorization, code, more) in [
        (None, "no_pass", ""),
        (Some("Basic YTpi"), "no_pass", ""),
        (Some("Bearer"), "no_pass", ""),
        (Some("Bearer a b"), "no_pass", ""),
        (Some(good.as_str()), "spent", "The pass was used already"),
        (Some("bearer  hello"), "unreadable", "This is not a pass"),
    ] {
        let (status, reply) = ask(&open, authorization).await;
        let problem: Value = serde_json::from_slice(reply.body()).expect("JSON");
        assert_eq!(
            (status, &problem["code"], &problem["status"]),
            (StatusCode::UNAUTHORIZED, &code.into(), &401.into())
        );
        let more = match more {
            "" => String::new(),
            more => format!(", error=\"invalid_token\", error_description=\"{more}\""),
        };
        assert_eq!(header(&reply, "www-authenticate"), format!("Bearer realm=\"weir\"{more}"));
        assert_eq!(header(&reply, "content-type"), "application/problem+json");
        assert_eq!(header(&reply, "cache-control"), "no-store");
    }
    at.serve(Served { status: Some(500), ..Served::default() });
    let now = Arc::new(AtomicI64::new(vectors.cases[0].now));
    let away = app(self::passes(&vectors, &at, &now));
    let (status, reply) = ask(&away, [good.as_str()]).await;
    assert_eq!((status, header(&reply, "retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "10"));
    let forgotten = Router::new().route("/enter", post(enter));
    assert_eq!(ask(&forgotten, [good.as_str()]).await.0, StatusCode::INTERNAL_SERVER_ERROR);
}
