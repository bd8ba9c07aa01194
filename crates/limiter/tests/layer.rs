//! The layer in front of an axum service: which requests pass, how others are refused, and the header fields.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::{Request, Response, StatusCode, request::Parts};
use limiter::{
    Bandwidth, Limit, Limiter, MemorySettings, OnFailure,
    layer::{ByAddress, ByHeader, KeyOf, LimitLayer, client_address::Prefixes},
};
use tower_service::Service as _;

/// A rate so slow that nothing is refilled while a test runs.
fn per_day(tokens: u64) -> Limit {
    let day = Duration::from_secs(86_400);
    Limit::new("calls", [Bandwidth::greedy(tokens, tokens, day)]).expect("a limit")
}

struct App {
    router: Router,
    served: Arc<AtomicUsize>,
}

impl App {
    fn behind<K: KeyOf>(layer: LimitLayer<K>) -> Self {
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        let serve = move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { "served" }
        };
        Self { router: Router::new().route("/", get(serve)).layer(layer), served }
    }

    fn new(key: impl KeyOf) -> Self {
        Self::behind(LimitLayer::new(memory(1_000, OnFailure::Open), per_day(2), key))
    }

    async fn ask(&self, request: Request<Body>) -> Response<Body> {
        let before = self.served.load(Ordering::Relaxed);
        let response = self.router.clone().call(request).await.expect("axum does not fail");
        let served = self.served.load(Ordering::Relaxed) - before;
        assert_eq!(served, usize::from(response.status() == StatusCode::OK), "{response:?}");
        response
    }

    async fn status(&self, request: Request<Body>) -> u16 {
        self.ask(request).await.status().as_u16()
    }
}

fn memory(max_keys: usize, on_failure: OnFailure) -> Arc<Limiter> {
    Arc::new(Limiter::in_memory(MemorySettings { max_keys }, on_failure))
}

fn request(headers: &[(&str, &str)]) -> Request<Body> {
    let with = |request: http::request::Builder, (name, value): &(&str, &str)| request.header(*name, *value);
    headers.iter().fold(Request::get("/"), with).body(Body::empty()).expect("a request")
}

fn from(peer: &str, forwarded_for: &str) -> Request<Body> {
    let mut request = request(&[("x-forwarded-for", forwarded_for)]);
    let peer: IpAddr = peer.parse().expect("an address");
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 4_711))));
    request
}

fn peer(head: &Parts) -> Option<IpAddr> {
    head.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().expect("text"))
}

async fn text(response: Response<Body>) -> String {
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("a body");
    String::from_utf8(body.to_vec()).expect("text")
}

#[tokio::test]
async fn a_client_that_asks_too_often_is_told_when_to_come_back() {
    let app = App::new(ByAddress::new(peer));
    for left in [1, 0] {
        let response = app.ask(from("192.0.2.1", "")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit-policy"), Some("\"calls\";q=2;w=86400"));
        let told = header(&response, "ratelimit").expect("told");
        assert!(told.starts_with(&format!("\"calls\";r={left};t=")), "{told}");
        assert_eq!(header(&response, "retry-after"), None);
    }
    let refused = app.ask(from("192.0.2.1", "")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "content-type"), Some("application/problem+json"));
    let in_s: u64 = header(&refused, "retry-after").and_then(|s| s.parse().ok()).expect("a number");
    assert!((1..=43_200).contains(&in_s), "{in_s}");
    assert_eq!(header(&refused, "ratelimit"), Some(&*format!("\"calls\";r=0;t={in_s}")));
    let body = text(refused).await;
    assert!(body.contains(r#""status":429"#) && body.contains(r#""violated-policies":["calls"]"#), "{body}");
    assert_eq!(app.status(from("192.0.2.2", "")).await, 200, "others go on");
}

#[tokio::test]
async fn addresses_are_believed_and_gathered_as_configured() {
    let app = App::new(ByAddress::new(peer));
    for n in 1..=3 {
        let status = app.status(from(&format!("2001:db8::{n}"), "")).await;
        assert_eq!(status, if n <= 2 { 200 } else { 429 }, "one /64 is one client");
        let status = app.status(from("192.0.2.1", &format!("198.51.100.{n}"))).await;
        assert_eq!(status, if n <= 2 { 200 } else { 429 }, "a stranger's word");
    }
    let trusted_proxies = vec!["192.0.2.0/24".parse().expect("a network")];
    let prefixes = Prefixes { ipv4: 24, ..Prefixes::default() };
    let app = App::new(ByAddress { trusted_proxies, prefixes, ..ByAddress::new(peer) });
    for n in 1..=3 {
        for net in 1..=3 {
            let status = app.status(from("192.0.2.1", &format!("6.6.6.6, 198.51.{net}.{n}"))).await;
            assert_eq!(status, if n <= 2 { 200 } else { 429 }, "198.51.{net}.{n}");
        }
    }
    // Requests without a peer do not avoid the limit.
    let status =
        [app.status(request(&[])).await, app.status(request(&[])).await, app.status(request(&[])).await];
    assert_eq!(status, [200, 200, 429]);
}

#[tokio::test]
async fn keys_are_headers_or_what_a_function_says() {
    let app = App::new(ByHeader(http::header::AUTHORIZATION));
    for status in [200, 200, 429] {
        assert_eq!(app.status(request(&[("authorization", "a")])).await, status);
        assert_eq!(app.status(request(&[("authorization", "b")])).await, status);
        assert_eq!(app.status(request(&[])).await, status, "leaving it out lifts no limit");
    }
    let app = App::new(|head: &Parts| Some(head.headers.get("x-user")?.as_bytes().to_vec()));
    for _ in 0..5 {
        let free = app.ask(request(&[])).await;
        assert_eq!(
            (free.status(), header(&free, "ratelimit-policy")),
            (StatusCode::OK, None),
            "no key, no limit"
        );
    }
    for status in [200, 200, 429] {
        assert_eq!(app.status(request(&[("x-user", "a")])).await, status);
    }
}

#[tokio::test]
async fn what_can_never_be_is_not_told_to_come_back() {
    let cost = |head: &Parts| head.headers.get("x-cost").map_or(1, |cost| cost.as_bytes().len() as u64);
    let key = |_: &Parts| Some(Vec::new());
    let app = App::behind(LimitLayer::with_cost(memory(1_000, OnFailure::Open), per_day(3), key, cost));
    let never = app.ask(request(&[("x-cost", "xxxx")])).await;
    assert_eq!((never.status().as_u16(), header(&never, "retry-after")), (429, None));
    assert!(text(never).await.contains("does not help"));
    for (cost, status) in [("xx", 200), ("xx", 429), ("x", 200), ("x", 429)] {
        assert_eq!(app.status(request(&[("x-cost", cost)])).await, status);
    }
}

#[tokio::test]
async fn where_nobody_can_say_the_configuration_does() {
    // 64 shards with room for one key each: most keys find no room.
    for (on_failure, status) in [(OnFailure::Open, 200), (OnFailure::Closed, 503)] {
        let limiter = memory(1, on_failure);
        let app = App::behind(LimitLayer::new(Arc::clone(&limiter), per_day(2), ByAddress::new(peer)));
        for n in 0..200 {
            let before = limiter.stats().unknown;
            let response = app.ask(from(&format!("10.0.0.{n}"), "")).await;
            assert_eq!(header(&response, "ratelimit-policy"), Some("\"calls\";q=2;w=86400"));
            if limiter.stats().unknown == before {
                assert_eq!(response.status(), 200);
                continue;
            }
            assert_eq!(response.status(), status);
            assert_eq!(header(&response, "ratelimit"), None, "nothing is known");
            if status == 503 {
                assert_eq!(header(&response, "retry-after"), Some("1"));
                assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
            }
        }
        assert!(limiter.stats().unknown > 100, "{:?}", limiter.stats());
    }
}
