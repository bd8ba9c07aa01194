//! What routes decide about requests.

use http::{HeaderMap, HeaderValue, header::HeaderName};

use super::*;
use crate::{digest::SecretDigest, pattern::Pattern, route::Matcher};

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("a pattern")
}

fn matcher(text: &str) -> Matcher {
    Matcher::Patterns(vec![pattern(text)])
}

fn route(name: &str, conditions: Vec<Condition>, action: RouteAction) -> Route {
    Route { name: name.to_owned(), conditions, action }
}

fn zone(name: &str) -> RouteAction {
    let zone = ZoneId::parse(name).expect("a zone");
    RouteAction::Zone(Gated::new(zone))
}

fn path(text: &str) -> Condition {
    Condition::Path(vec![pattern(text)])
}

fn request<'a>(method: &'a str, host: &'a str, target: &'a str, headers: &'a HeaderMap) -> Request<'a> {
    Request {
        method: method.into(),
        host: host.into(),
        target: target.as_bytes().into(),
        is_secure: false,
        headers,
        address: [192, 0, 2, 7].into(),
        tokens: &[],
    }
}

/// The name of the route that fits a request, with its reason to let it through.
fn find(routes: &Routes, line: &str, headers: &[(&'static str, &str)]) -> String {
    let (method, target) = line.split_once(' ').expect("a method and a target");
    let (host, target) = target.split_once('/').expect("a host and a path");
    let target = format!("/{target}");
    let mut fields = HeaderMap::new();
    for (name, value) in headers {
        fields.append(*name, HeaderValue::from_str(value).expect("a value"));
    }
    let name = |index: usize| routes.all()[index].name.clone();
    match routes.decide(&request(method, host, &target, &fields)) {
        Decision::Leave => "leave".to_owned(),
        Decision::Unrouted => "none".to_owned(),
        Decision::LetThrough { index, exemption: Some(why) } => format!("{}: {why:?}", name(index)),
        Decision::Misdirected => "misdirected".to_owned(),
        Decision::Unreadable => "unreadable".to_owned(),
        Decision::LetThrough { index, .. } | Decision::Denied { index } => name(index),
        Decision::Gated { index, further, .. } => {
            let all = std::iter::once(index).chain(further.iter().map(|(index, _)| *index));
            all.map(name).collect::<Vec<_>>().join(" and ")
        }
    }
}

#[test]
fn the_first_route_whose_conditions_all_hold_decides() {
    let routes = Routes::new(vec![
        route(
            "bad",
            vec![Condition::Address(vec!["192.0.2.8/32".parse().expect("a network")])],
            RouteAction::Deny,
        ),
        route("staff", vec![Condition::Cookie("staff".to_owned(), matcher("s3cret"))], RouteAction::Bypass),
        route(
            "monitor",
            vec![Condition::Header(HeaderName::from_static("x-monitor"), matcher("*"))],
            RouteAction::Bypass,
        ),
        route("open", vec![path("/help/*")], RouteAction::Bypass),
        route("sale", vec![Condition::Host(vec![pattern("*.shop.example")]), path("/sale/*")], zone("SALE")),
        route("orders", vec![path("/order"), Condition::Method(vec!["POST".to_owned()])], zone("ORDERS")),
    ]);
    let find = |line: &str, headers: &[(&'static str, &str)]| find(&routes, line, headers);
    assert_eq!(find("GET www.shop.example/sale/1", &[]), "sale");
    assert_eq!(find("GET www.shop.example/sale", &[]), "sale");
    assert_eq!(find("GET shop.example/sale/1", &[]), "none");
    assert_eq!(find("GET www.shop.example/", &[]), "none");
    assert_eq!(find("POST any/order", &[]), "orders");
    assert_eq!(find("GET any/order", &[]), "none");
    assert_eq!(find("GET www.shop.example/sale/1", &[("x-monitor", "")]), "monitor");
    assert_eq!(find("GET www.shop.example/sale/1", &[("cookie", "a=b; staff=s3cret")]), "staff");
    assert_eq!(find("GET www.shop.example/sale/1", &[("cookie", "staff=s3cre")]), "sale");
    assert_eq!(find("GET www.shop.example/help/x", &[]), "open");
}

#[test]
fn user_agents_countries_and_secrets_are_matched() {
    let secret = Matcher::Secret(SecretDigest::of(b"0123456789abcdef"));
    let header = |name, matcher| Condition::Header(HeaderName::from_static(name), matcher);
    let routes = Routes::new(vec![
        route("staff", vec![header("x-staff", secret.clone())], RouteAction::Bypass),
        route("pass", vec![Condition::Cookie("pass".to_owned(), secret)], RouteAction::Bypass),
        route(
            "bots",
            vec![header("user-agent", Matcher::Patterns(vec![pattern("*bot*"), pattern("curl/*")]))],
            RouteAction::Deny,
        ),
        route(
            "here",
            vec![header("x-country", Matcher::Patterns(vec![pattern("kr"), pattern("jp")]))],
            zone("Z"),
        ),
    ]);
    let find = |headers: &[(&'static str, &str)]| find(&routes, "GET h/", headers);
    assert_eq!(find(&[("x-staff", "0123456789abcdef")]), "staff");
    assert_eq!(find(&[("x-staff", "wrong"), ("x-staff", "0123456789abcdef")]), "staff");
    for wrong in ["", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0", "*"] {
        assert_eq!(find(&[("x-staff", wrong)]), "none", "{wrong}");
    }
    assert_eq!(find(&[("cookie", "a=b; pass=0123456789abcdef")]), "pass");
    assert_eq!(find(&[("cookie", "pass=0123456789abcdeF")]), "none");
    assert_eq!(find(&[("user-agent", "Mozilla/5.0 (compatible; SomeBot/1.0)")]), "bots");
    assert_eq!(find(&[("user-agent", "curl/8")]), "bots");
    assert_eq!(find(&[("user-agent", "Mozilla/5.0"), ("x-country", "KR")]), "here");
    assert_eq!(find(&[("x-country", "US")]), "none");
}

#[test]
fn no_spelling_of_a_path_gets_around_a_line() {
    let routes = Routes::new(vec![
        route("open", vec![path("/help/*")], RouteAction::Bypass),
        route("sale", vec![path("/sale/*")], zone("SALE")),
        route("rest", Vec::new(), zone("REST")),
    ]);
    let find = |line: &str| find(&routes, line, &[]);
    for spelling in ["/%73ale/x", "//sale/x", "/help/../sale/x", "/sale;a/x", "/a/..%2fsale/x", "/sale%5cx"] {
        assert_eq!(find(&format!("GET h{spelling}")), "sale and rest", "{spelling}");
    }
    assert_eq!(find("GET h/help/x"), "open");
    assert_eq!(find("GET h/help/%78"), "rest", "only the plain spelling is let through");
    assert_eq!(find("GET h/sale/x.css"), "sale: StaticFile");
    assert_eq!(find("GET h/sale/x;.css"), "sale");
    assert_eq!(find("GET h/sale/%ec%87%bc.png"), "sale: StaticFile", "no browser can spell it otherwise");
    assert_eq!(find("GET h/sale/x%2ecss"), "sale");
    assert_eq!(find("POST h/sale/x.css"), "sale");
}

#[test]
fn files_health_checks_and_preflights_do_not_wait_unless_everything_does() {
    let gated = |everything| {
        let zone = ZoneId::parse("Z").expect("a zone");
        let action = RouteAction::Zone(Gated { everything, ..Gated::new(zone) });
        Routes::new(vec![route("z", Vec::new(), action)])
    };
    let asks: &[(&str, &str)] = &[("origin", "https://a"), ("access-control-request-method", "POST")];
    for (line, headers, reason) in [
        ("GET h/a/b.WOFF2", &[][..], "StaticFile"),
        ("HEAD h/app.js", &[], "StaticFile"),
        ("GET h/healthz", &[], "Health"),
        ("GET h/manifest.json", &[], "Health"),
        ("HEAD h/sitemap.xml", &[], "Health"),
        ("GET h/.well-known/acme-challenge/x", &[], "Health"),
        ("OPTIONS h/api", asks, "Preflight"),
    ] {
        assert_eq!(find(&gated(false), line, headers), format!("z: {reason}"), "{line}");
        assert_eq!(find(&gated(true), line, headers), "z", "{line}");
    }
    for line in ["GET h/", "GET h/js", "GET h/a.css/b", "OPTIONS h/api", "GET h/healthz/x", "PUT h/a.css"] {
        assert_eq!(find(&gated(false), line, &[]), "z", "{line}");
    }
}

#[test]
fn an_explanation_shows_no_secret() {
    let routes = Routes::new(vec![
        route("staff", vec![Condition::Cookie("staff".to_owned(), matcher("s3cret"))], RouteAction::Bypass),
        route("open", vec![path("/help/*")], RouteAction::Bypass),
        route("site", vec![path("/*")], zone("Z")),
    ]);
    let headers = HeaderMap::new();
    let request = request("GET", "h", "/help/%78", &headers);
    assert_eq!(
        routes.explain(&request),
        [
            "1. staff: does not fit: not its cookie staff",
            "2. open: does not fit: the path is spelled in an unusual way, and this route lets people through",
            "3. site: fits: path /*: waits in Z",
        ]
        .map(|line| format!("read as /help/%78: {line}"))
    );
    assert_eq!(Routes::default().explain(&request), ["no route fits: let through"]);
}

/// A held zone, a refused part, and a bypass that must not open them.
fn shop() -> Routes {
    Routes::new(vec![
        route("help", vec![path("/help/*")], RouteAction::Bypass),
        route("checkout", vec![path("/checkout/*")], zone("SALE")),
        route("admin", vec![path("/admin/*")], RouteAction::Deny),
    ])
}

#[test]
fn a_spelling_that_some_server_reads_as_a_restricted_path_is_restricted() {
    for (target, decides) in [
        ("//x/checkout/1", "checkout"),
        ("/\\x/checkout/1", "checkout"),
        ("/checkout/..%2fx", "checkout"),
        ("/checkout/../x", "checkout"),
        ("/checkout/..;/x", "checkout"),
        ("/checkout/1%2f..%2f..%2f", "checkout"),
        ("/checkout%5c1", "checkout"),
        ("/%2563heckout/1", "checkout"),
        ("/help/..%2fcheckout/1", "checkout"),
        ("/help/..;/admin/", "admin"),
        ("/checkout/../admin/x", "admin"),
        ("/admin/..%2fhelp/x", "admin"),
        ("/admin/%ff/..%c0%af..", "admin"),
        ("/Checkout/1", "checkout"),
        ("/CHECKOUT/", "checkout"),
        ("/Admin", "admin"),
        ("/help/%2e%2e", "none"),
        ("/help/x", "help"),
        ("/HELP/x", "none"),
        ("/checkouts", "none"),
    ] {
        assert_eq!(find(&shop(), &format!("GET h{target}"), &[]), decides, "{target}");
    }
}

#[test]
fn a_pattern_that_lets_through_is_literal_and_one_that_restricts_is_not() {
    let method = |name: &str| Condition::Method(vec![name.to_owned()]);
    let of = |action: RouteAction| Routes::new(vec![route("r", vec![path("/cart"), method("GET")], action)]);
    for (line, restricted) in [
        ("GET h/cart", true),
        ("GET h/cart/", false),
        ("GET h/CART", false),
        ("HEAD h/cart", false),
        ("get h/cart", false),
        ("GET h/%63art", false),
    ] {
        for action in [RouteAction::Deny, zone("Z")] {
            assert_eq!(find(&of(action), line, &[]), "r", "{line}");
        }
        assert_eq!(find(&of(RouteAction::Bypass), line, &[]) == "r", restricted, "{line}");
    }
    assert_eq!(find(&of(RouteAction::Deny), "POST h/cart", &[]), "none");
    let head = Routes::new(vec![route("r", vec![method("HEAD")], RouteAction::Deny)]);
    assert_eq!(find(&head, "GET h/", &[]), "none", "HEAD does not stand for GET");
}

#[test]
fn a_request_for_another_protocol_is_never_exempt() {
    let routes = Routes::new(vec![route("z", Vec::new(), zone("Z"))]);
    for (line, name) in [
        ("GET h/shop/x.css", "upgrade"),
        ("GET h/shop/x.css", "sec-websocket-key"),
        ("GET h/healthz", "upgrade"),
        ("OPTIONS h/x", "sec-websocket-key"),
    ] {
        let headers =
            [(name, "websocket"), ("origin", "https://a"), ("access-control-request-method", "GET")];
        assert_eq!(find(&routes, line, &headers), "z", "{line} {name}");
        assert_ne!(find(&routes, line, &headers[1..]), "z", "{line}");
    }
}

#[test]
fn a_denied_preflight_is_denied() {
    let headers = [("origin", "https://a"), ("access-control-request-method", "GET")];
    assert_eq!(find(&shop(), "OPTIONS h/checkout/1", &headers), "checkout: Preflight");
    assert_eq!(find(&shop(), "OPTIONS h/admin/1", &headers), "admin");
    assert_eq!(find(&shop(), "OPTIONS h/checkout/..%2fadmin/1", &headers), "admin");
}

#[test]
fn every_zone_of_any_reading_has_to_be_open() {
    let gated = |name: &str, bind_address| {
        let zone = ZoneId::parse(name).expect("a zone");
        RouteAction::Zone(Gated { bind_address, ..Gated::new(zone) })
    };
    let routes = Routes::new(vec![
        route("a", vec![path("/a/*")], gated("A", false)),
        route("b", vec![path("/b/*")], gated("B", false)),
        route("a bound", vec![path("/c/*")], gated("A", true)),
    ]);
    assert_eq!(find(&routes, "GET h/b/..%2fa/x", &[]), "a and b", "in the order of the routes");
    assert_eq!(find(&routes, "GET h/a/..%2fc/x", &[]), "a bound", "one visit has to count for both");
    assert_eq!(find(&routes, "GET h/c/..%2fa/x", &[]), "a bound");
    assert_eq!(find(&routes, "GET h/a/..%2fx", &[]), "a");
}

#[test]
fn a_host_that_no_route_names_is_refused_if_all_routes_name_hosts() {
    let host = |text: &str| Condition::Host(vec![pattern(text)]);
    let mut all = vec![
        route("shop", vec![host("shop.example"), path("/sale/*")], zone("Z")),
        route("www", vec![host("*.shop.example")], zone("Z")),
    ];
    let routes = Routes::new(all.clone());
    for host in ["", "x", "other.example"] {
        for target in ["/sale/1", "/a.css", "//healthz", "/%68ealthz"] {
            assert_eq!(find(&routes, &format!("GET {host}{target}"), &[]), "misdirected", "{host}{target}");
        }
        assert_eq!(find(&routes, &format!("GET {host}/healthz"), &[]), "none", "load balancers send no host");
        assert_eq!(find(&routes, &format!("POST {host}/healthz"), &[]), "misdirected");
        let upgrade = [("upgrade", "websocket")];
        assert_eq!(find(&routes, &format!("GET {host}/healthz"), &upgrade), "misdirected");
    }
    assert_eq!(find(&routes, "GET shop.example/sale/1", &[]), "shop");
    assert_eq!(find(&routes, "GET shop.example/", &[]), "none", "a route names it");
    assert_eq!(find(&routes, "GET www.shop.example/", &[]), "www");
    // A route that only denies opens the site for nobody, and what names a host to deny a part of it opens the rest.
    for conditions in [vec![], vec![path("/x")], vec![host("*"), path("/x")]] {
        let with_deny = [vec![route("attack", conditions, RouteAction::Deny)], all.clone()].concat();
        assert_eq!(
            find(&Routes::new(with_deny.clone()), "GET other.example/y", &[]),
            "misdirected",
            "{with_deny:?}"
        );
    }
    all.insert(0, route("part", vec![host("admin.example"), path("/x")], RouteAction::Deny));
    assert_eq!(find(&Routes::new(all.clone()), "GET admin.example/y", &[]), "none");
    assert_eq!(find(&Routes::new(all.clone()), "GET other.example/x", &[]), "misdirected");
    all.push(route("rest", vec![path("/x")], RouteAction::Bypass));
    assert_eq!(find(&Routes::new(all), "GET other.example/", &[]), "none", "one route is for all hosts");
    let denies = Routes::new(vec![route("part", vec![path("/x")], RouteAction::Deny)]);
    assert_eq!(find(&denies, "GET other.example/", &[]), "none");
    assert_eq!(find(&Routes::default(), "GET x/", &[]), "none");
}

#[test]
fn a_target_with_too_many_readings_is_refused_if_a_path_decides() {
    let target = format!("h/%{}2e", "25".repeat(500));
    assert_eq!(find(&shop(), &format!("GET {target}"), &[]), "unreadable");
    let all = Routes::new(vec![
        route("all", Vec::new(), zone("Z")),
        route("never", vec![path("/x")], RouteAction::Deny),
    ]);
    assert_eq!(find(&all, &format!("GET {target}"), &[]), "all", "every reading is in the zone");
    assert_eq!(find(&Routes::default(), &format!("GET {target}"), &[]), "none");
}

#[test]
fn an_explanation_says_with_which_reading_a_route_decides() {
    let headers = HeaderMap::new();
    let explain = |routes: &Routes, target: &str| routes.explain(&request("GET", "h", target, &headers));
    assert_eq!(
        explain(&shop(), "/%63heckout/1"),
        [
            "read as /checkout/1: 1. help: does not fit: not its path /help/*",
            "read as /checkout/1: 2. checkout: fits: path /checkout/*: waits in SALE",
        ]
    );
    let last = |target: &str| explain(&shop(), target).pop().expect("a line");
    assert_eq!(last("/checkout/..%2fadmin"), "read as /admin: 3. admin: fits: path /admin/*: refused");
    assert_eq!(last("/help/%78"), "no route fits: let through");
    assert!(last(&format!("/%{}2e", "25".repeat(500))).contains("too many paths"));
    let host = Condition::Host(vec![pattern("shop.example")]);
    let routes = Routes::new(vec![route("r", vec![host], RouteAction::Deny)]);
    assert_eq!(explain(&routes, "/"), ["all routes name hosts, and none names `h`: refused"]);
}

/// How long a decision takes: `cargo test -p check -- --ignored --nocapture decisions_are_timed`.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures")]
fn decisions_are_timed() {
    let mut all = shop().all().to_vec();
    all.extend((0..20).map(|n| route("more", vec![path(&format!("/more/{n}/*"))], zone("Z"))));
    let routes = Routes::new(all);
    let headers = HeaderMap::new();
    // Long, and with almost as many readings as are allowed.
    let worst = format!("//x/{}%252e%3b/..;b\\%252fc%2500/..%2f", "segment/".repeat(20));
    for target in [
        "/products/1234?color=red",
        "/checkout/1",
        "/%EC%87%BC/1",
        "/a%20b",
        "/%63heckout/1",
        "//x/a;b/..%2fc%252e",
        &worst,
    ] {
        let request = request("GET", "shop.example", target, &headers);
        let (mut best, mut spent) = (f64::MAX, 0.0);
        while spent < 0.3 {
            let start = std::time::Instant::now();
            for _ in 0..10 {
                std::hint::black_box(routes.decide(std::hint::black_box(&request)));
            }
            let took = start.elapsed().as_secs_f64();
            (best, spent) = (best.min(took / 10.0 * 1e9), spent + took);
        }
        let count = Readings::of(target.as_bytes()).all().len();
        println!("{target}: {count} readings, {best:.0} ns");
    }
}

#[test]
fn a_header_that_chooses_the_method_opens_nothing() {
    let method = |name: &str| Condition::Method(vec![name.to_owned()]);
    let routes = Routes::new(vec![
        route("delete", vec![method("DELETE"), path("/*")], RouteAction::Deny),
        route("form", vec![method("POST"), path("/form")], zone("FORM")),
        route("checkout", vec![path("/checkout/*")], zone("SHOP")),
    ]);
    let preflight = [("origin", "https://a"), ("access-control-request-method", "POST")];
    let with = |name: &'static str, value: &'static str| [preflight[0], preflight[1], (name, value)];
    assert_eq!(find(&routes, "OPTIONS h/checkout/1", &preflight), "checkout: Preflight");
    for name in ["x-http-method-override", "x-http-method", "x-method-override", "x_http-method_override"] {
        for value in ["POST", "get", " Put ", "OPTIONS, POST"] {
            assert_eq!(
                find(&routes, "OPTIONS h/checkout/1", &with(name, value)),
                "checkout",
                "{name}: {value}"
            );
        }
        assert_eq!(find(&routes, "OPTIONS h/checkout/1", &with(name, "odd")), "checkout: Preflight");
        assert_eq!(find(&routes, "GET h/", &[(name, "DELETE")]), "delete");
        assert_eq!(find(&routes, "POST h/form", &[(name, "GET")]), "form", "the written method counts, too");
        assert_eq!(find(&routes, "GET h/form", &[(name, "POST")]), "form");
        assert_eq!(find(&routes, "GET h/x", &[(name, "POST")]), "none");
    }
    let mut headers = HeaderMap::new();
    headers.insert("x-http-method-override", HeaderValue::from_static("DELETE"));
    assert_eq!(
        routes.explain(&request("GET", "h", "/a", &headers)),
        ["read as DELETE: 1. delete: fits: method DELETE, path /*: refused"]
    );
}
