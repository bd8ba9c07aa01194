//! Real proxies ask Weir about each request of a small site. Each test runs over all of them, with the recipes of
//! `deploy/proxies`, a server of its own and a site that says what it got.

#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/client.rs"]
mod client;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/clock.rs"]
mod clock;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/weir.rs"]
mod weir;

#[path = "../support/redis.rs"]
mod redis;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../support/seed.rs"]
mod seed;

mod around;
mod battery;
mod origin;
mod proxy;
mod readers;
mod spellings;

use std::{collections::BTreeMap, fmt::Write as _, process::Command};

use libtest_mimic::{Arguments, Trial};
use rustix::process::Signal;
use tokio::time::Instant;

use client::{Client, Reply};
use clock::eventually;
use origin::Origin;
use proxy::{Kind, Proxy};
use weir::{Setup, Weir, zone};

const HELD: &str = "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 10";
const MOVING: &str = "polling_period_ms = 500\nidle_timeout_s = 10";
const HTML: (&str, &str) = ("Accept", "text/html");

fn main() {
    let args = Arguments::from_args();
    if !args.list {
        weir::binary();
    }
    let tests: [(&str, Test); 15] = [
        ("a_visitor_waits_enters_and_goes_on", a_visitor_waits_enters_and_goes_on),
        ("everything_of_a_site_works_during_a_visit", everything_of_a_site_works_during_a_visit),
        ("visitors_cannot_talk_their_way_in", visitors_cannot_talk_their_way_in),
        ("a_cache_shows_nobody_what_another_one_got", a_cache_shows_nobody_what_another_one_got),
        ("a_bypass_token_opens_what_its_route_names", a_bypass_token_opens_what_its_route_names),
        ("visits_that_are_left_are_over", visits_that_are_left_are_over),
        ("only_the_hosts_of_the_site_reach_it", around::only_the_hosts_of_the_site_reach_it),
        ("weir_and_the_site_hear_of_one_host_and_path", around::weir_and_the_site_hear_of_one_host_and_path),
        ("odd_hosts_reach_nothing", around::odd_hosts_reach_nothing),
        ("underscores_in_names_hide_nothing", around::underscores_in_names_hide_nothing),
        ("nothing_ahead_and_no_upgrade_in_disguise", around::nothing_ahead_and_no_upgrade_in_disguise),
        ("only_websockets_are_tunnels", around::only_websockets_are_tunnels),
        (
            "a_visitor_gives_weir_no_options_and_no_long_head",
            around::a_visitor_gives_weir_no_options_and_no_long_head,
        ),
        (
            "a_load_balancer_in_front_says_who_asks_and_how",
            around::a_load_balancer_in_front_says_who_asks_and_how,
        ),
        ("places_and_visits_go_on_after_weir_was_away", places_and_visits_go_on_after_weir_was_away),
    ];
    let trials = tests.into_iter().flat_map(|(name, test)| {
        Kind::ALL.map(|(kind, of)| {
            Trial::test(format!("{of}::{name}"), move || {
                test(kind);
                Ok(())
            })
        })
    });
    let recipe = Trial::test("the_servers_part_of_the_recipes_is_right", || {
        the_servers_part_of_the_recipes_is_right();
        Ok(())
    });
    let open = Kind::ALL.into_iter().filter(|(kind, _)| kind.limit_without_weir().is_some());
    let open = open.map(|(kind, of)| {
        Trial::test(format!("{of}::a_store_that_hangs_opens_nothing"), move || {
            around::a_store_that_hangs_opens_nothing(kind);
            Ok(())
        })
    });
    let times = Trial::test("the_recipes_wait_longer_than_weir_takes", || {
        around::the_recipes_wait_longer_than_weir_takes();
        Ok(())
    });
    // Proxies that are open while Weir is late read targets as the others of their kind do.
    let closed = Kind::ALL.into_iter().filter(|(kind, _)| kind.limit_without_weir().is_none());
    let battery = closed.flat_map(|(kind, of)| {
        battery::ALL.map(|(name, test)| {
            Trial::test(format!("{of}::{name}"), move || {
                test(kind);
                Ok(())
            })
        })
    });
    let alone = Trial::test("each_app_alone_takes_many_spellings_for_guarded", || {
        battery::each_app_alone_takes_many_spellings_for_guarded();
        Ok(())
    });
    libtest_mimic::run(&args, trials.chain(open).chain(battery).chain([recipe, times, alone]).collect())
        .exit();
}

/// The configuration that stands beside the recipes.
fn the_servers_part_of_the_recipes_is_right() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/proxies/weir.toml");
    let ran = Command::new(weir::binary()).args(["check-config", file]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("waits in SITE"), "{ran:?}");
}

/// A test, for each kind of proxy.
type Test = fn(Kind);

/// A site with a zone for everything and one for its shop, which is held.
struct Site {
    weir: Weir,
    origin: Origin,
    proxy: Proxy,
    kind: Kind,
}

fn config(site: &str, shop: &str, listen: &str) -> String {
    let routes = "[[route]]\ndeny = true\npath = \"/internal/*\"\n\
                  [[route]]\nbypass = true\nheader = { x-monitor = \"s3cret\" }\n\
                  [[route]]\nbypass = true\ntoken = \"press\"\npath = \"/shop/press/*\"\n\
                  [[route]]\nzone = \"SHOP\"\npath = \"/shop/*\"\n\
                  [[route]]\nzone = \"SITE\"\n";
    let zones = zone("SITE", 60_000, site) + &zone("SHOP", 60_000, shop);
    let listen = format!("{listen}gate_grpc_listen = \"127.0.0.1:0\"\n");
    format!("{listen}trusted_proxies = [\"127.0.0.1\"]\n{zones}{routes}")
}

impl Site {
    fn start(kind: Kind, site: &str, shop: &str) -> Self {
        Self::start_with(kind, &config(site, shop, ""))
    }

    fn start_with(kind: Kind, config: &str) -> Self {
        let (weir, origin) = (Setup::new(config).start(), Origin::start());
        let proxy = Proxy::start(kind, &weir, origin.at);
        Self { weir, origin, proxy, kind }
    }

    fn visitor(&self) -> Visitor<'_> {
        Visitor { site: self, cookies: BTreeMap::new() }
    }
}

/// A browser.
struct Visitor<'a> {
    site: &'a Site,
    cookies: BTreeMap<String, String>,
}

impl Visitor<'_> {
    fn ask(&mut self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut client = self.send(line, headers, body);
        let reply = if line.starts_with("HEAD") { client.head() } else { client.reply() };
        let reply = reply.unwrap_or_else(|e| panic!("{line}: {e}"));
        for (_, line) in reply.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, value) = line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a pair");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        reply
    }

    fn send(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Client {
        let mut client = Client::connect(self.site.proxy.at).expect("the proxy accepts");
        let mut head = format!("{line} HTTP/1.1\r\nHost: shop.example\r\n");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").expect("a String");
        }
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            write!(head, "Cookie: {}\r\n", cookies.join("; ")).expect("a String");
        }
        if !body.is_empty() {
            write!(head, "Content-Length: {}\r\n", body.len()).expect("a String");
        }
        client.send(head + "\r\n").expect("the proxy reads");
        // A proxy may answer and close before it has read everything.
        let _ = client.send(body);
        client
    }

    fn get(&mut self, target: &str) -> Reply {
        self.ask(&format!("GET {target}"), &[HTML], b"")
    }

    /// Whether the site itself answered.
    #[track_caller]
    fn reaches(&mut self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let before = self.site.origin.requests();
        let reply = self.ask(line, headers, body);
        assert_eq!((reply.status, self.site.origin.requests() - before), (200, 1), "{line}: {reply:?}");
        reply.text().to_owned()
    }

    #[track_caller]
    fn waits(&mut self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let before = self.site.origin.requests();
        let reply = self.ask(line, headers, body);
        let page = self.site.kind.page_status();
        assert_eq!((reply.status, self.site.origin.requests() - before), (page, 0), "{line}: {reply:?}");
        reply
    }
}

/// The page at the address that was asked for, the place over reloads and tabs, the turn, and the way on.
fn a_visitor_waits_enters_and_goes_on(kind: Kind) {
    let site = Site::start(kind, HELD, HELD);
    let (mut ada, mut ben) = (site.visitor(), site.visitor());
    let page = ada.waits("GET /deep/link?a=b&c=%20d", &[HTML], b"");
    assert!(page.text().contains("<dd data-weir=\"rank\">1</dd>"), "{}", page.text());
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{page:?}");
    assert_eq!(page.header("cache-control"), Some("no-store"), "no cache keeps it for others");
    assert!(
        page.header("retry-after").is_some() && page.header("content-security-policy").is_some(),
        "{page:?}"
    );
    assert!(ben.waits("GET /", &[], b"").text().contains("\"rank\":2"), "JSON for who accepts no page");
    let again = ada.waits("GET /deep/link?a=b&c=%20d", &[HTML], b"");
    assert!(again.text().contains("<dd data-weir=\"rank\">1</dd>"), "one place: {}", again.text());
    let poll = ada.waits("GET /deep/link", &[("Accept", "application/json"), ("Weir-Poll", "1")], b"");
    assert_eq!(poll.json()["shown"]["rank"], "1");

    site.weir.setup().write_config(&config(MOVING, HELD, ""));
    site.weir.signal(Signal::HUP);
    eventually("the turn comes", || {
        let before = site.origin.requests();
        let reply = ada.ask("GET /deep/link", &[("Accept", "application/json"), ("Weir-Poll", "1")], b"");
        assert_eq!(site.origin.requests(), before, "the page's questions do not reach the site");
        (reply.json()["canEnter"] == true).then_some(())
    });
    let said = ada.reaches("GET /deep/link?a=b&c=%20d", &[HTML], b"");
    assert!(said.starts_with("GET /deep/link?a=b&c=%20d 0 0\n"), "the address is kept: {said}");
    // The other zone of the same host has its own line.
    ada.waits("GET /shop/1", &[HTML], b"");
    ada.reaches("GET /", &[HTML], b"");
    // Who comes when nobody waits gets the visit with the first reply of the site.
    eventually("the second turn comes", || (ben.get("/").status == 200).then_some(()));
    let mut cho = site.visitor();
    let said = cho.reaches("GET /a", &[HTML], b"");
    assert!(said.starts_with("GET /a ") && cho.cookies["weir-SITE"].starts_with('v'), "{:?}", cho.cookies);
    assert_eq!(cho.cookies["app"], "1", "the site's cookies get through, too");
}

/// Methods, bodies, uploads, streams and WebSockets.
fn everything_of_a_site_works_during_a_visit(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let mut ada = site.visitor();
    ada.reaches("GET /", &[HTML], b"");
    let visit = ada.cookies["weir-SITE"].clone();
    let said = ada.reaches("POST /form?x", &[("Content-Type", "application/x-www-form-urlencoded")], b"a=b");
    assert!(said.starts_with("POST /form?x 3 256\n"), "{said}");
    let upload = vec![1; 1_000_000];
    let said = ada.reaches("PUT /file", &[], &upload);
    assert!(said.starts_with("PUT /file 1000000 1000000\n"), "{said}");
    assert!(ada.reaches("DELETE /thing", &[], b"").starts_with("DELETE /thing 0 0\n"));
    ada.reaches("HEAD /", &[], b"");
    ada.reaches("OPTIONS /", &[], b"");
    assert_eq!(ada.cookies["weir-SITE"], visit, "a visit is not given out anew at each request");

    let mut stream = ada.send("GET /stream", &[("Accept", "text/event-stream")], b"");
    assert_eq!(stream.head().expect("a head").status, 200);
    while !stream.block().expect("an event").contains("data: 2") {}
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    let mut socket = ada.send("GET /ws", &upgrade, b"");
    assert_eq!(socket.head().expect("a head").status, 101);
    socket.send("ping\n\n").expect("it takes bytes");
    assert_eq!(socket.block().expect("an echo"), "ping");
    // Without a visit there is neither.
    let mut stranger = site.visitor();
    stranger.waits("GET /shop/ws", &upgrade, b"");
    let page = stranger.waits("POST /shop/order", &[HTML], b"a=b");
    assert!(page.text().contains("What you sent was not delivered"), "{}", page.text());
    stranger.waits("PUT /shop/file", &[], &upload);
    stranger.waits("HEAD /shop/", &[], b"");
}

/// Forged cookies, headers that only a proxy may send, other spellings of a path, and the rules of the operators.
fn visitors_cannot_talk_their_way_in(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let mut eve = site.visitor();
    eve.reaches("GET /", &[HTML], b"");
    let visit = eve.cookies["weir-SITE"].clone();
    eve.cookies.insert("weir-SHOP".to_owned(), visit.clone());
    eve.waits("GET /shop/1", &[HTML], b"");
    let mut forged = visit.into_bytes();
    forged[20] ^= 1;
    eve.cookies.insert("weir-SHOP".to_owned(), String::from_utf8(forged).expect("ASCII"));
    eve.waits("GET /shop/1", &[HTML], b"");
    for headers in [
        [("X-Forwarded-Uri", "/"), ("X-Forwarded-Method", "OPTIONS")],
        [("X-Original-Url", "/"), ("X-Original-Method", "GET")],
        [("X-Forwarded-Host", "other"), ("X-Forwarded-For", "127.0.0.1")],
        [("X-Rewrite-Url", "/"), ("X-Forwarded-Path", "/")],
        [("Weir-Cookie", "weir-SHOP=v"), ("X-Monitor", "s3cre")],
    ] {
        eve.waits("GET /shop/1", &headers, b"");
    }
    for spelling in
        ["/%73hop/1", "/x/../shop/1", "//shop/1", "/shop%2f1", "/shop/1?/app.js", "/shop/app%2ejs"]
    {
        let before = site.origin.requests();
        let reply = eve.ask(&format!("GET {spelling}"), &[HTML], b"");
        // Some proxies refuse it, redirect to the plain spelling, or send the plain spelling to Weir and to the site.
        let is_refused = reply.status == kind.page_status() || [301, 307, 308, 400].contains(&reply.status);
        let is_plain_file = reply.text().starts_with("GET /shop/app.js ");
        assert!(is_refused && site.origin.requests() == before || is_plain_file, "{spelling}: {reply:?}");
    }
    eve.reaches("GET /shop/app.js", &[], b"");
    eve.reaches("OPTIONS /shop/1", &[("Origin", "https://a"), ("Access-Control-Request-Method", "PUT")], b"");
    let before = site.origin.requests();
    assert_eq!(eve.ask("GET /internal/x", &[HTML], b"").status, 403);
    assert_eq!(site.origin.requests(), before);
    if !kind.sends_few_headers() {
        // Their recipes send Weir a list of headers. An operator adds those of the rules.
        eve.reaches("GET /shop/1", &[("X-Monitor", "s3cret")], b"");
    }
    // A head that is too long for Weir is no reason to let it through, also not where the site is open without Weir.
    let (long, reached) = ("x".repeat(5_000), site.origin.requests());
    let reply = eve.ask("GET /shop/1", &[HTML, ("X-A", &long), ("X-B", &long), ("X-C", &long)], b"");
    assert!(reply.status >= 400 && site.origin.requests() == reached, "{reply:?}");
    // Two requests in one: what follows the first is asked about, too.
    let mut client =
        eve.send("GET /shop/1", &[("Content-Length", "0"), ("Transfer-Encoding", "chunked")], b"");
    let _ = client.send("0\r\n\r\nGET /shop/smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    let reply = client.reply().expect("a reply");
    assert!(reply.status >= 400, "{reply:?}");
    assert_eq!(site.origin.requests(), before + usize::from(!kind.sends_few_headers()));
}

/// A cache in front of the proxy, which even keeps replies with cookies. Pages, refusals and the page's questions are of one visitor.
fn a_cache_shows_nobody_what_another_one_got(kind: Kind) {
    let site = Site::start(kind, HELD, MOVING);
    let cache = Proxy::cache(site.proxy.at);
    let ask = |target: &str, headers: &str| {
        let mut client = Client::connect(cache.at).expect("the cache accepts");
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n{headers}\r\n"))
            .expect("it reads");
        let reply = client.reply().expect("a reply");
        (reply.status, reply.header("x-cache").unwrap_or_default().to_owned(), reply.text().to_owned())
    };
    for (target, said) in [("/shop/a.css", "MISS"), ("/shop/a.css", "HIT")] {
        let (status, cache, _) = ask(target, "");
        assert_eq!((status, &*cache), (200, said), "the cache works");
    }
    for rank in ["1", "2", "3"] {
        let (status, cache, text) = ask("/deep", "Accept: text/html\r\n");
        assert_eq!((status, &*cache), (kind.page_status(), "MISS"), "{text}");
        assert!(text.contains(&format!("<dd data-weir=\"rank\">{rank}</dd>")), "{text}");
    }
    for headers in ["Accept: application/json\r\n", "Accept: application/json\r\nWeir-Poll: first\r\n"] {
        let [first, second] = [(); 2].map(|()| ask("/data", headers));
        assert_eq!((&*first.1, &*second.1), ("MISS", "MISS"));
        assert_ne!(first.2, second.2, "each has its own place");
    }
    for _ in 0..2 {
        let (status, cache, _) = ask("/internal/x", "Accept: text/html\r\n");
        assert_eq!((status, &*cache), (403, "MISS"));
    }
}

/// In the header for one request; in the address for this one and those that follow.
fn a_bypass_token_opens_what_its_route_names(kind: Kind) {
    let site = Site::start(kind, MOVING, HELD);
    let made = Command::new(weir::binary())
        .args(["route", "token", "--name", "press", "--valid", "1h", "--config"])
        .arg(site.weir.setup().config_path())
        .arg("--data-dir")
        .arg(site.weir.setup().data())
        .output()
        .expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let made = String::from_utf8(made.stdout).expect("UTF-8");
    let token = made.lines().next().expect("a token");
    let mut ada = site.visitor();
    ada.reaches("GET /shop/press/1", &[HTML, ("Weir-Token", token)], b"");
    ada.waits("GET /shop/press/1", &[HTML], b"");
    ada.waits("GET /shop/1", &[HTML, ("Weir-Token", token)], b"");
    let mut ben = site.visitor();
    ben.waits("GET /shop/press/1?weir-token=x", &[HTML], b"");
    ben.reaches(&format!("GET /shop/press/1?weir-token={token}"), &[HTML], b"");
    assert_eq!(ben.cookies.get("weir.token").map(String::as_str), Some(token), "{:?}", ben.cookies);
    ben.reaches("POST /shop/press/2", &[HTML], b"a form");
    ben.waits("GET /shop/1", &[HTML], b"");
}

/// The site hears nothing of it. A visitor with visits in two zones loses both.
fn visits_that_are_left_are_over(kind: Kind) {
    let site = Site::start(kind, MOVING, MOVING);
    let mut ada = site.visitor();
    ada.reaches("GET /", &[HTML], b"");
    ada.reaches("GET /shop/1", &[HTML], b"");
    let visits = ada.cookies.keys().filter(|name| name.starts_with("weir-")).count();
    assert_eq!(visits, if kind.names_cookies() { 1 } else { 2 }, "{:?}", ada.cookies);
    let before = site.origin.requests();
    let left = ada.ask("POST /.weir/leave", &[], b"");
    assert_eq!((left.status, site.origin.requests() - before), (410, 0), "{left:?}");
    let of_weir = ada.cookies.iter().filter(|(name, _)| name.starts_with("weir-"));
    let held: Vec<_> = of_weir.filter(|(_, value)| *value != "v").collect();
    assert!(held.is_empty(), "{held:?}");
}

/// How many of a visitor's requests for the site are answered before one that is not. Several are sent at a time: one after the other, a
/// busy machine may send fewer than the limit lets through.
fn first_refused(visitor: &Visitor<'_>) -> Option<usize> {
    const TOGETHER: usize = 10;
    (0..500).find_map(|batch| {
        let sent: [Client; TOGETHER] = std::array::from_fn(|_| visitor.send("GET /", &[HTML], b""));
        let statuses = sent.map(|mut client| client.reply().expect("the proxy answers").status);
        statuses.iter().position(|status| *status != 200).map(|at| batch * TOGETHER + at)
    })
}

/// While Weir is away the site is closed, also to visits; or it is open, with a limit. Then places and visits are as before.
fn places_and_visits_go_on_after_weir_was_away(kind: Kind) {
    // A visit is given out anew after an eighth of its idle time: not even on a busy machine within this test.
    let mut site = Site::start(kind, &format!("{MOVING}\nvisit_idle_s = 3600"), HELD);
    let (mut ada, mut ben) = (site.visitor().cookies, site.visitor().cookies);
    let with = |site: &Site, cookies: &mut BTreeMap<String, String>, target: &str| {
        let mut visitor = Visitor { site, cookies: std::mem::take(cookies) };
        let reply = visitor.get(target);
        *cookies = visitor.cookies;
        reply
    };
    assert_eq!(with(&site, &mut ada, "/").status, 200);
    assert_eq!(with(&site, &mut ben, "/shop/").status, kind.page_status());
    let at = [Some(site.weir.public), site.weir.grpc].map(|at| at.expect("both listen").to_string());
    if kind.limit_without_weir().is_some() {
        site.weir.freeze();
        assert_eq!(with(&site, &mut ada.clone(), "/").status, 200, "open while Weir does not answer");
    }
    site.weir.signal(Signal::KILL);
    site.weir.wait_for_end();
    let before = site.origin.requests();
    match kind.limit_without_weir() {
        None => {
            assert_eq!(with(&site, &mut ada.clone(), "/").status, kind.status_without_weir());
            assert_eq!(site.origin.requests(), before, "closed");
        }
        Some(most) => {
            let mut stranger = site.visitor();
            let started = Instant::now();
            let refused = first_refused(&stranger).expect("there is a limit");
            let reply = stranger.get("/");
            assert!([503, 200].contains(&reply.status), "{reply:?}");
            // A full bucket, and what came in meanwhile.
            let most = most + most * usize::try_from(started.elapsed().as_secs() + 1).expect("a short time");
            assert!((1..=most).contains(&refused), "{refused} requests, and not 1 to {most}");
        }
    }

    let setup = site.weir.take_setup().arg("--listen").arg(&at[0]).arg("--gate-grpc-listen").arg(&at[1]);
    site.weir = setup.start();
    let visit = ada.clone();
    // A proxy that is open serves this visitor all the time: the one who waits tells that it found Weir again.
    let page = eventually("the proxy finds Weir again", || {
        let page = with(&site, &mut ben, "/shop/");
        (page.status == kind.page_status() && page.text().contains("data-weir")).then_some(page)
    });
    assert!(page.text().contains("<dd data-weir=\"rank\">1</dd>"), "the same place: {}", page.text());
    eventually("visits go on", || (with(&site, &mut ada, "/").status == 200).then_some(()));
    assert_eq!(ada, visit, "the same visit");
    if let Some(most) = kind.limit_without_weir() {
        for _ in 0..5 * most {
            assert_eq!(with(&site, &mut ada, "/").status, 200, "there is no limit any more");
        }
    }
}
