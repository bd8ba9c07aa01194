//! Proxies that ask over gRPC. The proxy is played here; `tests/proxies` runs the real one.

use std::{collections::HashMap, future::Future, net::Ipv4Addr};

use http_body_util::Full;
use server::http::public::check::envoy::messages::{
    Address, AttributeContext, CheckRequest, CheckResponse, HeaderValueOption, HttpRequest, HttpResponse,
    Peer, Request, SocketAddress,
};
use tonic::{Code, Status, transport::Channel};
use tonic_prost::ProstCodec;

use crate::{
    check::{Visitor, config},
    client::Client,
    https::{Root, Secure, runtime},
    metrics::value,
    weir::{Setup, Weir, zone},
};

const HELD: &str = "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 10";
const GRPC: &str = "gate_grpc_listen = \"127.0.0.1:0\"\nheader_timeout_s = 1\n";
const ROUTES: &str = "[[route]]\nname = \"attack\"\ndeny = true\naddress = \"203.0.113.66\"\n\
                      [[route]]\ndeny = true\npath = \"/internal/*\"\n\
                      [[route]]\nbypass = true\nheader = { x-monitor = { secret = \"0123456789abcdef\" } }\n\
                      [[route]]\nzone = \"Z\"\nhost = \"shop.example\"\n";

fn start(more: &str) -> Weir {
    Setup::new(&config(&format!("{GRPC}{}", zone("Z", 60_000, more)), ROUTES)).start()
}

fn run(test: impl Future<Output = ()>) {
    runtime().block_on(test);
}

/// A proxy's connection.
struct Proxy(tonic::client::Grpc<Channel>);

impl Proxy {
    async fn check(&mut self, request: CheckRequest) -> Result<tonic::Response<CheckResponse>, Status> {
        self.call("/envoy.service.auth.v3.Authorization/Check", request).await
    }

    async fn call(
        &mut self,
        path: &'static str,
        request: CheckRequest,
    ) -> Result<tonic::Response<CheckResponse>, Status> {
        self.0.ready().await.map_err(|lost| Status::unavailable(lost.to_string()))?;
        let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
        self.0.unary(tonic::Request::new(request), path.parse().expect("a path"), codec).await
    }
}

async fn proxy(weir: &Weir) -> Proxy {
    let at = weir.grpc.expect("it listens");
    let channel = Channel::from_shared(format!("http://{at}")).expect("right").connect().await;
    Proxy(tonic::client::Grpc::new(channel.expect("the server accepts")))
}

/// A request of a visitor from this address.
fn request(line: &str, headers: &[(&str, &str)], from: &str) -> CheckRequest {
    let (method, path) = line.split_once(' ').expect("a method and a target");
    let headers: HashMap<_, _> =
        headers.iter().map(|&(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let http = HttpRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        host: "shop.example".to_owned(),
        scheme: "http".to_owned(),
        headers,
        ..Default::default()
    };
    let address = Address { socket_address: Some(SocketAddress { address: from.to_owned() }) };
    let attributes = AttributeContext {
        source: Some(Peer { address: Some(address) }),
        request: Some(Request { http: Some(http) }),
    };
    CheckRequest { attributes: Some(attributes) }
}

/// What the visitor gets: status, header fields, body. 200 means that the request goes on to the site.
struct Said {
    status: i32,
    fields: Vec<(String, String)>,
    body: String,
}

impl Said {
    fn of(reply: CheckResponse) -> Self {
        let code = reply.status.expect("a status").code;
        let pairs = |fields: Vec<HeaderValueOption>| {
            let pairs = fields.into_iter().map(|field| field.header.expect("a pair"));
            pairs.map(|pair| (pair.key, pair.value)).collect()
        };
        match reply.http_response.expect("a response") {
            HttpResponse::OkResponse(ok) => {
                assert_eq!(code, Code::Ok as i32);
                Self { status: 200, fields: pairs(ok.response_headers_to_add), body: String::new() }
            }
            HttpResponse::DeniedResponse(no) => {
                assert_eq!(code, Code::PermissionDenied as i32);
                let status = no.status.expect("a status").code;
                Self { status, fields: pairs(no.headers), body: no.body }
            }
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }
}

async fn ask(proxy: &mut Proxy, request: CheckRequest) -> Said {
    Said::of(proxy.check(request).await.expect("a reply").into_inner())
}

/// The same questions over HTTP and over gRPC, from a visitor with the same place.
pub(crate) fn the_decision_is_that_of_http() {
    run(async {
        let weir = start(HELD);
        let (mut proxy, mut visitor) = (proxy(&weir).await, Visitor::of(&weir));
        assert_eq!(visitor.get("/").status, 503);
        let cookie = format!("weir-Z={}", visitor.cookies["weir-Z"]);
        let html = ("Accept", "text/html");
        for (line, header) in [
            ("GET /", html),
            ("GET /deep/link?a=b", html),
            ("GET /", ("Accept", "application/json")),
            ("GET /", ("Weir-Poll", "1")),
            ("GET /", ("Accept-Language", "ko")),
            ("POST /form", html),
            ("DELETE /thing", html),
            ("GET /app.js", html),
            ("GET /internal/x", html),
            ("GET /%69nternal/x", html),
            ("GET /", ("X-Monitor", "0123456789abcdef")),
            ("GET /", ("X-Monitor", "0123456789abcdeX")),
            ("GET /", ("Weir-Token", "nonsense")),
            ("POST /.weir/leave", html),
        ] {
            let over_http = visitor.ask(line, &[header]);
            let headers = [header, ("cookie", &cookie)];
            let said = ask(&mut proxy, request(line, &headers, "203.0.113.7")).await;
            assert_eq!(said.status, i32::from(over_http.status), "{line} {header:?}");
            assert_eq!(said.body, over_http.text(), "{line} {header:?}");
            if said.status != 200 {
                for name in ["content-type", "content-language", "cache-control", "retry-after", "vary"] {
                    assert_eq!(said.field(name), over_http.header(name), "{line} {header:?}: {name}");
                }
            }
            let place = |line: Option<&str>| line.and_then(|line| Some(line.split_once('=')?.0.to_owned()));
            assert_eq!(place(said.field("set-cookie")), place(over_http.header("set-cookie")), "{line}");
        }
        let metrics = weir.admin_get("/metrics");
        let denied = value(metrics.text(), "weir_checks_total{route=\"route 2\",said=\"denied\"}");
        assert_eq!(denied, Some(4.0), "both are counted");
    });
}

/// A visitor is let in, and the browser gets the visit beside what the site sends.
pub(crate) fn a_yes_brings_the_visit() {
    run(async {
        let weir = start("");
        let mut proxy = proxy(&weir).await;
        let said = ask(&mut proxy, request("GET /", &[], "203.0.113.7")).await;
        assert_eq!((said.status, said.fields.len()), (200, 1), "{:?}", said.fields);
        let visit = said.field("set-cookie").expect("a visit").to_owned();
        assert!(visit.starts_with("weir-Z=v"), "{visit}");
        let cookie = visit.split(';').next().expect("a pair");
        let again = ask(&mut proxy, request("GET /2", &[("cookie", cookie)], "203.0.113.7")).await;
        assert_eq!((again.status, again.fields), (200, vec![]));
        // Over HTTPS it has another name.
        let https = request("GET /", &[("x-forwarded-proto", "https")], "203.0.113.7");
        let said = ask(&mut proxy, https).await;
        assert!(
            said.field("set-cookie").expect("a visit").starts_with("__Host-weir-Z=v"),
            "{:?}",
            said.fields
        );
    });
}

/// What a visitor writes into `X-Forwarded-For` changes nothing, unless a listed proxy sent it.
pub(crate) fn a_visitor_cannot_choose_an_address() {
    run(async {
        let weir = start("");
        let mut proxy = proxy(&weir).await;
        for (forwarded, from, status) in [
            (None, "203.0.113.66", 403),
            (Some("192.0.2.1"), "203.0.113.66", 403),
            (Some("192.0.2.1, 127.0.0.1"), "203.0.113.66", 403),
            (Some("203.0.113.66"), "192.0.2.1", 200),
            (Some("192.0.2.1, 203.0.113.66"), "127.0.0.1", 403),
            (Some("203.0.113.66, 192.0.2.1"), "127.0.0.1", 200),
        ] {
            let headers: Vec<_> = forwarded.iter().map(|value| ("x-forwarded-for", *value)).collect();
            let said = ask(&mut proxy, request("GET /", &headers, from)).await;
            assert_eq!(said.status, status, "{forwarded:?} from {from}");
        }
    });
}

/// Others get a no, and their messages are not read.
pub(crate) fn only_trusted_proxies_are_answered() {
    run(async {
        let zones = format!("{GRPC}{}", zone("Z", 60_000, ""));
        let text = config(&zones, ROUTES).replace("\"127.0.0.1\"]", "\"127.0.0.2\"]");
        let weir = Setup::new(&text).start();
        let mut proxy = proxy(&weir).await;
        let long = "x".repeat(1 << 20);
        for header in ["short", &long] {
            let said = ask(&mut proxy, request("GET /app.js", &[("x-long", header)], "127.0.0.2")).await;
            assert_eq!(said.status, 403);
            assert!(said.body.contains("untrusted_proxy"), "{}", said.body);
        }
    });
}

/// A proxy may be set to let requests through whose call failed. So nothing that a visitor sends makes one fail.
pub(crate) fn a_visitor_cannot_make_a_call_fail() {
    run(async {
        let weir = start(HELD);
        let mut proxy = proxy(&weir).await;
        let long = "x".repeat(100 << 10);
        let said = ask(&mut proxy, request("GET /", &[("cookie", &long)], "203.0.113.7")).await;
        assert_eq!(said.status, 503, "a long head is read");
        let long = "x".repeat(1 << 20);
        let said = ask(&mut proxy, request("GET /", &[("cookie", &long)], "203.0.113.7")).await;
        assert_eq!(said.status, 431, "{}", said.body);
        let odd = [("cookie", "\u{1}\n"), ("bad name", "x"), ("accept", "\u{fffd}")];
        assert_eq!(ask(&mut proxy, request("GET /", &odd, "203.0.113.7")).await.status, 503);
        for line in ["GET *", "GET http://evil.example/x", "GET //", "OPTIONS *", "\u{1} /\u{1}?%"] {
            let said = ask(&mut proxy, request(line, &[], "nonsense")).await;
            assert_eq!(said.status, 503, "{line}");
        }
        assert_eq!(ask(&mut proxy, CheckRequest::default()).await.status, 400, "no request at all");
    });
}

/// A server with a certificate, and a connection to its listener.
async fn encrypted() -> (Weir, Secure) {
    let root = Root::new();
    let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
    let setup = Setup::new(&config(&format!("{GRPC}{tls}{}", zone("Z", 60_000, "")), ROUTES));
    root.certify(2_100).write(setup.dir());
    let weir = setup.start();
    let at = weir.grpc.expect("it listens");
    let proxy = Secure::connect(at, root.client(&["h2"])).await.expect("a connection");
    (weir, proxy)
}

/// A call with this message, as it is on the wire.
fn call(message: &[u8]) -> hyper::Request<Full<bytes::Bytes>> {
    let len = u32::try_from(message.len()).expect("short").to_be_bytes();
    hyper::Request::post("/envoy.service.auth.v3.Authorization/Check")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::from([&[0][..], &len, message].concat()))
        .expect("a call")
}

/// With a certificate for the public listener, this one has it, too.
pub(crate) fn it_is_encrypted_as_the_address_for_apps_is() {
    run(async {
        let (weir, mut proxy) = encrypted().await;
        // A message without content, which describes no request.
        let reply = proxy.ask(call(&[])).await.expect("a reply");
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("application/grpc")),
            "{reply:?}"
        );
        assert!(String::from_utf8_lossy(&reply.body).contains("missing_field"), "{reply:?}");
        let mut plain = Client::connect(weir.grpc.expect("it listens")).expect("the server accepts");
        assert_eq!(plain.get("/").expect("a reply").status, 400, "nothing is plain");
    });
}

/// A message that the protocol does not allow, because a visitor's target has bytes that are no text, is not a call that fails.
pub(crate) fn bytes_that_are_no_text_get_a_no() {
    run(async {
        let (_weir, mut proxy) = encrypted().await;
        // A field of the wire format: its number and its bytes.
        let field = |number: u8, bytes: &[u8]| {
            let len = u8::try_from(bytes.len()).expect("short");
            [&[number << 3 | 2, len][..], bytes].concat()
        };
        for (path, status) in [
            (&b"/checkout/\xff"[..], "odd_target"),
            (b"/checkout/\xff\xfe", "odd_target"),
            (b"/internal/x", "denied"),
        ] {
            let http = [field(2, b"GET"), field(4, path), field(5, b"shop.example")].concat();
            let message = field(1, &field(4, &field(2, &http)));
            let reply = proxy.ask(call(&message)).await.expect("a reply");
            assert_eq!((reply.status, reply.header("grpc-status")), (200, None), "{reply:?}");
            assert!(String::from_utf8_lossy(&reply.body).contains(status), "{reply:?}");
        }
    });
}

/// The listener has its own limits, and a drain ends its connections.
pub(crate) fn the_listener_is_bounded() {
    run(async {
        let weir = start(HELD);
        let at = weir.grpc.expect("it listens");
        // Another protocol, and a client that is silent.
        let mut other = Client::connect(at).expect("the server accepts");
        let reply = other.get("/gate/check").expect("a reply");
        assert_eq!((reply.status, reply.problem()), (400, "malformed_http".to_owned()));
        let mut silent = Client::connect_from(Ipv4Addr::LOCALHOST, at).expect("the server accepts");
        silent.send("PRI * HTTP/2.0\r\n").expect("the server reads");
        assert!(silent.ends(), "a connection without a request is let go");
        let mut proxy = proxy(&weir).await;
        assert_eq!(ask(&mut proxy, request("GET /", &[], "203.0.113.7")).await.status, 503);
        let status = proxy.call("/grpc.health.v1.Health/Check", CheckRequest::default()).await;
        assert_eq!(status.expect_err("there is nothing else").code(), Code::Unimplemented);
        weir.stop();
        assert!(proxy.check(request("GET /", &[], "203.0.113.7")).await.is_err());
    });
}

/// Strangers may hold connections, with and without requests. A proxy connects, and its check is answered.
pub(crate) fn strangers_keep_no_proxy_out() {
    run(async {
        let weir = start(HELD);
        let at = weir.grpc.expect("it listens");
        let mut old = proxy(&weir).await;
        assert_eq!(ask(&mut old, request("GET /", &[], "203.0.113.7")).await.status, 503);
        // More addresses than the listener has connections, so that no address has many.
        let strangers: Vec<Client> = (0..600_u16)
            .map(|n| {
                let [high, low] = n.to_be_bytes();
                let mut stranger =
                    Client::connect_from(Ipv4Addr::new(127, 7, high, low), at).expect("the system accepts");
                drop(stranger.send("PRI * HTTP/2.0\r\n"));
                stranger
            })
            .collect();
        assert_eq!(
            ask(&mut old, request("GET /", &[], "203.0.113.7")).await.status,
            503,
            "an old connection"
        );
        for _ in 0..100 {
            let mut new = proxy(&weir).await;
            assert_eq!(ask(&mut new, request("GET /", &[], "203.0.113.7")).await.status, 503, "a new one");
        }
        drop(strangers);
    });
}
