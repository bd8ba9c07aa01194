//! Ways around Weir, through real proxies: other hosts, other protocols, heads of odd sizes, a load balancer in front, and a store that
//! hangs. Invariant: the site is reached only by requests that Weir let through.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use crate::{
    HELD, HTML, MOVING, Site,
    client::Client,
    clock::{eventually, now},
    config,
    origin::Origin,
    proxy::{BALANCER, Kind, Proxy},
    redis::Standalone,
    weir::{Setup, zone},
};

/// The longest time in which Weir answers a check, whatever its store does.
const WEIR_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How long the recipes wait for it.
const RECIPES_WAIT: Duration = Duration::from_secs(3);

/// A configuration whose zone and `deny` name the host of the site, and in which another route names none.
fn hosts_config() -> String {
    let zones = zone("SITE", 60_000, MOVING) + &zone("SHOP", 60_000, HELD);
    let routes = "[[route]]\ndeny = true\nhost = \"shop.example\"\npath = \"/internal/*\"\n\
                  [[route]]\nzone = \"SHOP\"\nhost = \"shop.example\"\npath = \"/shop/*\"\n\
                  [[route]]\nbypass = true\npath = \"/free\"\n";
    format!("gate_grpc_listen = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.1\"]\n{zones}{routes}")
}

/// Sends these bytes, and returns the status of the reply; none if the proxy closes instead.
fn status(site: &Site, request: &str) -> Option<u16> {
    let mut client = Client::connect(site.proxy.at).expect("the proxy accepts");
    let _ = client.send(request);
    client.head().ok().map(|reply| reply.status)
}

/// A rule with `host` would decide nothing about a host that the app takes for its own.
pub(crate) fn only_the_hosts_of_the_site_reach_it(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let before = site.origin.requests();
    for request in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: other.example:8000\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: shop.example.evil.example\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \r\n\r\n",
    ] {
        let status = status(&site, request);
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{request}: {status:?}");
        assert_eq!(site.origin.requests(), before, "{request}");
    }
    // In the absolute form the target names the host. Whichever of the two counts, the rules hold.
    for request in [
        "GET http://other.example/shop/1 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        "GET http://shop.example/shop/1 HTTP/1.1\r\nHost: other.example\r\n\r\n",
    ] {
        let status = status(&site, request);
        assert!(status != Some(200) && site.origin.requests() == before, "{request}: {status:?}");
    }
    // Health checks of load balancers name no host.
    let status = status(&site, "GET /healthz HTTP/1.0\r\n\r\n");
    assert!(status.is_some_and(|status| status < 500), "{status:?}");
}

/// What is no host reaches nothing, and no name of the site hides in it. Some proxies take `a.example:x` or `x,a.example` for `a.example`.
pub(crate) fn odd_hosts_reach_nothing(kind: Kind) {
    let site = Site::start_with(kind, &hosts_config());
    let reaches = |host: &str, target: &str| {
        let before = site.origin.requests();
        let status = status(&site, &format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (site.origin.requests() > before, status)
    };
    assert!(reaches("shop.example", "/free").0);
    let (is_reached, status) = reaches("shop.example", "/shop/1");
    assert!(!is_reached && status == Some(kind.page_status()), "{status:?}");
    for host in [
        "shop.example:x",
        "shop.example:-1",
        "shop.example:+80",
        "shop.example:%38",
        "shop.example:80;x",
        "shop.example:80@x",
        "shop.example:80:80",
        "x,shop.example",
        "shop.example,x",
        "shop.example, shop.example",
        "x@shop.example",
        "shop.example/x",
        "shop%2eexample",
        "SHOP.EXAMPLE.",
        "shop.example.:8000",
    ] {
        for target in ["/shop/1", "/internal/x"] {
            let (is_reached, status) = reaches(host, target);
            assert!(!is_reached && status.is_none_or(|status| status >= 400), "{host} {target}: {status:?}");
        }
    }
}

/// To apps over CGI or WSGI `_` is `-` in names of headers. No proxy passes a header on that would choose the method, the host or the path
/// so, unless Weir decides about it.
pub(crate) fn underscores_in_names_hide_nothing(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let mut eve = site.visitor();
    let preflight = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "POST")];
    for name in ["X_HTTP_Method_Override", "X_HTTP_Method", "X_Method_Override", "x_http-method_override"] {
        for (line, more) in [("OPTIONS /shop/pay", &preflight[..]), ("GET /shop/pay.css", &[])] {
            let before = site.origin.requests();
            let reply = eve.ask(line, &[more, &[(name, "POST")]].concat(), b"");
            // It waits, or the app does not hear of the method.
            let said = reply.text().to_ascii_lowercase();
            let is_heard = site.origin.requests() > before && said.contains(&name.to_ascii_lowercase());
            assert!(!is_heard, "{line} {name}: {said}");
        }
    }
    let odd =
        [("X_Forwarded_Host", "other.example"), ("X_Original_URL", "/shop/1"), ("X_Rewrite_URL", "/shop/1")];
    let said = eve.reaches("GET /", &odd, b"");
    assert!(!said.contains("other.example") && !said.contains("/shop/1"), "{said}");
}

/// What a browser loads ahead takes no place, and an upgrade without a key of WebSocket is no file.
pub(crate) fn nothing_ahead_and_no_upgrade_in_disguise(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    for header in [("Sec-Purpose", "prefetch"), ("Purpose", "prefetch"), ("X-Moz", "prefetch")] {
        let mut eve = site.visitor();
        let before = site.origin.requests();
        let reply = eve.ask("GET /ahead", &[header], b"");
        assert!(reply.status >= 400 && site.origin.requests() == before, "{header:?}: {reply:?}");
        assert!(!eve.cookies.contains_key("weir-SITE"), "{header:?}: {reply:?}");
    }
    for head in [
        "GET /shop/app.js HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        "GET /shop/app.js HTTP/1.1\r\nHost: shop.example\r\nConnection: keep-alive, Upgrade, Sec-WebSocket-Key\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        "OPTIONS /shop/x HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n",
    ] {
        let mut client = Client::connect(site.proxy.at).expect("the proxy accepts");
        client.send(format!("{head}\r\n")).expect("it reads");
        let said = client.reply().map(|reply| reply.text().to_owned()).unwrap_or_default();
        assert!(!said.contains("\nupgrade:"), "{head}: {said}");
    }
}

/// Weir and the app hear of the same host, whatever the target, `Host` and other headers say, also behind a load balancer; and no header
/// of the visitor names another path.
pub(crate) fn weir_and_the_site_hear_of_one_host_and_path(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let odd = [
        ("Forwarded", "host=other.example;proto=https"),
        ("X-Forwarded-Host", "other.example"),
        ("X-Original-URL", "/shop/1"),
        ("X-Rewrite-URL", "/shop/1"),
    ];
    let lines: String = odd.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let balancer = kind.knows_balancers().then_some(BALANCER);
    for from in [Some("127.0.0.11".parse().expect("an address")), balancer].into_iter().flatten() {
        for (target, host) in [
            ("/", "shop.example"),
            ("/", "shop.example:8000"),
            ("/", "SHOP.example"),
            ("http://shop.example/", "shop.example"),
            ("http://shop.example/", "other.example"),
            ("http://shop.example:8000/", "other.example:9000"),
        ] {
            let mut client = Client::connect_from(from, site.proxy.at).expect("the proxy accepts");
            client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n")).expect("it reads");
            let reply = client.reply().expect("a reply");
            if target == "/" {
                assert_eq!(reply.status, 200, "{target} at {host}: {reply:?}");
            }
            // The app of the test says what it got, in small letters.
            let said = reply.text();
            if reply.status == 200 {
                assert!(said.contains("\nhost: shop.example"), "{target} at {host} from {from}: {said}");
                assert!(!said.contains("other.example"), "{target} at {host} from {from}: {said}");
                assert!(!said.contains("/shop/1"), "{target} at {host} from {from}: {said}");
            }
            // A rule with the host decides.
            let behind = target.trim_end_matches('/');
            let before = site.origin.requests();
            let mut client = Client::connect_from(from, site.proxy.at).expect("the proxy accepts");
            client
                .send(format!("GET {behind}/shop/1 HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"))
                .expect("it reads");
            let status = client.head().expect("a reply").status;
            assert!(
                status != 200 && site.origin.requests() == before,
                "{behind}/shop/1 at {host} from {from}: {status}"
            );
        }
    }
}

/// In a tunnel of another protocol Weir would not see the requests.
pub(crate) fn only_websockets_are_tunnels(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let mut eve = site.visitor();
    for upgrade in ["h2c", "H2C", "websocket, h2c", "h2c, websocket", "TLS/1.0", "foo"] {
        let headers = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", upgrade),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ];
        let reply = eve.ask("GET /shop/app.js", &headers, b"");
        let said = reply.text().to_owned();
        assert!(reply.status != 101 && !said.contains("\nupgrade:"), "{upgrade}: {reply:?}");
    }
    let before = site.origin.requests();
    for request in [
        "CONNECT shop.example:80 HTTP/1.1\r\nHost: shop.example:80\r\n\r\n",
        "CONNECT /shop/1 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let status = status(&site, request);
        assert!(status.is_none_or(|status| status >= 400), "{request}: {status:?}");
    }
    assert_eq!(site.origin.requests(), before);
}

/// The question to Weir has a bounded head, and nothing of it but the request's description is the visitor's.
pub(crate) fn a_visitor_gives_weir_no_options_and_no_long_head(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let mut ada = site.visitor();
    for query in ["answer=status", "answer=page", "answer=status&answer=page"] {
        let page = ada.waits(&format!("GET /shop/1?{query}"), &[HTML], b"");
        assert!(page.text().contains("<dd data-weir=\"rank\">"), "{query}: {page:?}");
    }
    ada.reaches("GET /", &[HTML], b"");
    let query = "q".repeat(4_500);
    ada.reaches(&format!("GET /search?{query}"), &[HTML], b"");
    // Sites keep large cookies. HAProxy reads heads of 15 KiB.
    let [one, two] = ["one", "two"].map(|name| format!("{name}={}", "x".repeat(6_000)));
    ada.reaches("GET /", &[HTML, ("Cookie", &one), ("Cookie", &two)], b"");
    // Many lines of cookies are refused or read. The proxy lives, and the place behind them is the visitor's.
    for count in [20, 60, 97, 110, 400] {
        let mut head = "GET /shop/1 HTTP/1.1\r\nHost: shop.example\r\n".to_owned();
        for n in 0..count {
            write!(head, "Cookie: c{n}=1\r\n").expect("a String");
        }
        let before = site.origin.requests();
        status(&site, &(head + "\r\n"));
        assert_eq!(site.origin.requests(), before, "{count} lines of cookies");
        ada.reaches("GET /", &[HTML], b"");
    }
    for count in [50, 90, 200] {
        let mut head = "GET /shop/1 HTTP/1.1\r\nHost: shop.example\r\n".to_owned();
        for n in 0..count {
            write!(head, "X-H{n}: 1\r\n").expect("a String");
        }
        let before = site.origin.requests();
        status(&site, &(head + "\r\n"));
        assert_eq!(site.origin.requests(), before, "{count} headers");
    }
    ada.reaches("GET /", &[HTML], b"");
}

/// What the balancer says of scheme and address reaches Weir and the site. Nobody else can say it.
pub(crate) fn a_load_balancer_in_front_says_who_asks_and_how(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let ask = |from: std::net::Ipv4Addr| {
        let mut client = Client::connect_from(from, site.proxy.at).expect("the proxy accepts");
        let forwarded = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 198.51.100.7";
        client
            .send(format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{forwarded}\r\n\r\n"))
            .expect("it reads");
        let reply = client.reply().expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        let given = reply
            .headers
            .iter()
            .any(|(name, value)| name == "set-cookie" && value.starts_with("__Host-weir-SITE="));
        (given, reply.text().to_owned())
    };
    let (is_secure, said) = ask("127.0.0.11".parse().expect("an address"));
    assert!(!is_secure && !said.contains("\nx-forwarded-proto: https"), "{said}");
    let addresses = said.lines().find(|line| line.starts_with("x-forwarded-for:")).unwrap_or_default();
    assert!(!addresses.ends_with("198.51.100.7"), "the last address is the proxy's word: {addresses}");
    if kind.knows_balancers() {
        let (is_secure, said) = ask(BALANCER);
        assert!(is_secure, "Weir hears https");
        assert!(said.contains("\nx-forwarded-proto: https\n"), "{said}");
        assert!(said.contains("\nx-forwarded-for: 198.51.100.7\n"), "{said}");
    }
}

/// Weir answers within a second, so no proxy takes it for away: a closed zone and a held one stay shut, also in front of newcomers.
pub(crate) fn a_store_that_hangs_opens_nothing(kind: Kind) {
    let redis = Standalone::start();
    let text = config(
        "mode = \"closed\"\nwaits_per_minute_per_client = 600",
        HELD,
        &format!("store = \"{}\"\n", redis.url()),
    );
    let weir = Setup::new(&text).start();
    let origin = Origin::start();
    let proxy = Proxy::start(kind, &weir, origin.at);
    let site = Site { weir, origin, proxy, kind };
    let mut ada = site.visitor();
    eventually("the zones are served", || (ada.get("/shop/1").status == 503).then_some(()));
    let (place, before) = (ada.cookies.clone(), site.origin.requests());
    redis.stop();
    for round in 0..10 {
        for target in ["/", "/shop/1", "/internal/x"] {
            for cookies in [place.clone(), Default::default()] {
                let mut visitor = site.visitor();
                visitor.cookies = cookies;
                let began = now();
                let reply = visitor.get(target);
                let took = began.elapsed();
                assert_eq!(
                    site.origin.requests(),
                    before,
                    "round {round}: {target} reached the site: {reply:?}"
                );
                assert!(reply.status >= 403, "{reply:?}");
                assert!(took < RECIPES_WAIT, "{target} took {took:?}");
            }
        }
    }
    redis.cont();
}

/// Each recipe waits for a reply for longer than Weir takes, and not much longer.
pub(crate) fn the_recipes_wait_longer_than_weir_takes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/proxies");
    assert!(RECIPES_WAIT >= 3 * WEIR_ANSWERS_WITHIN);
    for (file, all) in [
        ("Caddyfile", &["response_header_timeout 3s"][..]),
        ("envoy.yaml", &["cluster: weir, timeout: 3s"]),
        ("envoy-grpc.yaml", &["cluster_name: weir }, timeout: 3s"]),
        ("envoy-open.yaml", &["cluster_name: weir }, timeout: 3s"]),
        ("haproxy.lua", &["timeout_s = 3"]),
        ("kubernetes-gateway.yaml", &["timeout: 3s"]),
        ("nginx.conf", &["proxy_read_timeout 3s", "proxy_read_timeout 3s"]),
        ("nginx-open.conf", &["proxy_read_timeout 3s", "proxy_read_timeout 3s"]),
    ] {
        let text = fs::read_to_string(dir.join(file)).expect("a recipe");
        assert!(text.matches(all[0]).count() >= all.len(), "{file} does not wait 3 s: {}", all[0]);
    }
}
