//! Proxies that ask about their visitors. The proxy is played here, so that each reply is seen as it is; `tests/proxies` runs real
//! ones.

use std::{collections::HashMap, process::Command};

use admission::{SealKey, Seals, Visit, ZoneId};
use rustix::process::Signal;
use server::{clock::unix_ms, keys::IfMissing};

use crate::{
    client::{Client, Reply},
    clock::eventually,
    keys::keys_in,
    weir::{Setup, Weir, binary, zone},
};

const HELD: &str = "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 10";
const PROXY: &str = "trusted_proxies = [\"127.0.0.1\"]\n";
const SITE: &str = "[[route]]\nzone = \"Z\"\n";
const POLL: (&str, &str) = ("Weir-Poll", "page; given=Z");
const PAGE: (&str, &str) = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");

pub(crate) fn config(zones: &str, routes: &str) -> String {
    format!("{PROXY}{zones}{routes}")
}

/// A browser behind a proxy.
pub(crate) struct Visitor {
    pub(crate) proxy: Client,
    pub(crate) cookies: HashMap<String, String>,
    host: &'static str,
    pub(crate) proto: &'static str,
    pub(crate) address: &'static str,
}

impl Visitor {
    pub(crate) fn of(weir: &Weir) -> Self {
        let (proxy, cookies) = (weir.connect(), HashMap::new());
        Self { proxy, cookies, host: "shop.example", proto: "http", address: "203.0.113.7" }
    }

    fn ask_at(&mut self, call: &str, line: &str, headers: &[(&str, &str)]) -> Reply {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let mut request = format!(
            "GET {call} HTTP/1.1\r\nHost: weir\r\nX-Forwarded-Method: {method}\r\nX-Forwarded-Uri: {target}\r\n\
             X-Forwarded-Host: {}\r\nX-Forwarded-Proto: {}\r\nX-Forwarded-For: {}\r\n",
            self.host, self.proto, self.address
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request.push_str(&format!("Cookie: {}\r\n", cookies.join("; ")));
        }
        self.proxy.send(request + "\r\n").expect("the server reads");
        let reply = self.proxy.reply().expect("the server replies");
        if let Some(line) = reply.header("set-cookie") {
            // Forms of other sites bring the cookie along.
            let end = if self.proto == "https" { "; HttpOnly; SameSite=None; Secure" } else { "; HttpOnly" };
            assert!(line.ends_with(end) || line.contains("weir.token="), "{line}");
            let (name, value) = line.split(';').next().expect("a pair").split_once('=').expect("a pair");
            assert_eq!(name.starts_with("__Host-"), self.proto == "https", "{line}");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        reply
    }

    pub(crate) fn ask(&mut self, line: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask_at("/gate/check", line, headers)
    }

    pub(crate) fn get(&mut self, target: &str) -> Reply {
        self.ask(&format!("GET {target}"), &[])
    }

    /// The place as a script hears it.
    fn rank(&mut self) -> u64 {
        let reply = self.get("/");
        assert_eq!(reply.problem(), "waiting");
        reply.json()["waiting"]["rank"].as_u64().expect("a rank")
    }

    /// The only cookie.
    fn cookie(&self) -> (&str, &str) {
        assert_eq!(self.cookies.len(), 1, "{:?}", self.cookies);
        let (name, value) = self.cookies.iter().next().expect("one");
        (name, value)
    }
}

fn moves(weir: &Weir) {
    weir.setup()
        .write_config(&config(&zone("Z", 60_000, "polling_period_ms = 500\nidle_timeout_s = 10"), SITE));
    weir.signal(Signal::HUP);
}

/// The waiting page in a browser: it says which cookies it was given, as its script does.
struct Page {
    visitor: Visitor,
    given: Vec<String>,
    target: &'static str,
}

impl Page {
    fn open(mut visitor: Visitor, line: &str, headers: &[(&str, &str)]) -> Self {
        let (_, target) = line.split_once(' ').expect("a method and a target");
        let target = target.to_owned().leak();
        let headers = [&[PAGE], headers].concat();
        let reply = visitor.ask(line, &headers);
        let settings = reply.text().split_once("id=\"weir\">").expect("the page").1;
        let settings = settings.split_once("</script>").expect("an end").0;
        let settings: serde_json::Value = serde_json::from_str(settings).expect("JSON");
        let mut page = Self { visitor, given: Vec::new(), target };
        page.hear(&settings["given"]);
        page
    }

    fn hear(&mut self, given: &serde_json::Value) {
        if let Some(given) = given.as_array() {
            self.given = given.iter().map(|zone| zone.as_str().expect("a zone").to_owned()).collect();
        }
    }

    /// What the script is told, as code.
    fn poll(&mut self) -> String {
        let said = format!("page; given={}", self.given.join(" "));
        let line = format!("GET {}", self.target);
        let reply = self.visitor.ask(&line, &[("Accept", "application/json"), ("Weir-Poll", &said)]);
        self.hear(&reply.json()["shown"]["given"]);
        reply.problem()
    }

    /// The same in a browser that keeps no cookies.
    fn poll_without_cookies(&mut self) -> String {
        self.visitor.cookies.clear();
        self.poll()
    }
}

fn joined(weir: &Weir) -> u64 {
    let metrics = weir.admin_get("/metrics");
    let line =
        metrics.text().lines().find_map(|line| line.strip_prefix("weir_zone_joined_total{zone=\"Z\"} "));
    line.map_or(0, |n| n.parse().expect("a number"))
}

/// A page whose visitor has no place yet takes one as soon as there is one. A browser that keeps no cookies takes one and no more.
pub(crate) fn a_page_without_a_place_takes_one() {
    let at = |more: &str| config(&zone("Z", 60_000, &format!("{HELD}\n{more}")), SITE);
    let closed = HELD.replace("hold", "closed");
    let weir = Setup::new(&config(&zone("Z", 60_000, &closed), SITE)).start();
    let mut ada = Page::open(Visitor::of(&weir), "GET /a", &[]);
    let mut eve = Page::open(Visitor::of(&weir), "GET /a", &[]);
    // The page that stands in place of the reply to a form of another site.
    let mut ben = Page::open(Visitor::of(&weir), "POST /a", &[("Origin", "http://pay.example")]);
    for page in [&mut ada, &mut ben, &mut eve] {
        assert_eq!((page.poll().as_str(), page.visitor.cookies.len()), ("zone_closed", 0));
    }
    weir.setup().write_config(&at("max_waiting = 2"));
    weir.signal(Signal::HUP);
    let opens = |page: &mut Page| (page.poll() == "waiting").then_some(());
    eventually("the zone opens", || opens(&mut ada));
    assert_eq!(ada.poll(), "waiting");
    assert_eq!((ben.poll().as_str(), ben.poll().as_str()), ("waiting", "waiting"));
    assert_eq!(
        (eve.poll_without_cookies().as_str(), eve.poll_without_cookies().as_str()),
        ("zone_full", "zone_full")
    );
    let mut full = Page::open(Visitor::of(&weir), "GET /a", &[]);
    assert_eq!(full.poll(), "zone_full");
    weir.setup().write_config(&at("max_waiting = 100"));
    weir.signal(Signal::HUP);
    eventually("there is room", || opens(&mut full));

    // The cookie was sent back before, and is gone now: an hour has passed, or another tab has left.
    ada.visitor.cookies.clear();
    assert_eq!((ada.poll().as_str(), ada.poll().as_str()), ("waiting", "waiting"));
    // The key of the place is forgotten.
    ben.visitor.cookies.insert("weir-Z".to_owned(), format!("p{}", "A".repeat(52)));
    assert_eq!((ben.poll().as_str(), ben.poll().as_str()), ("waiting", "waiting"));

    eventually("five have joined", || (joined(&weir) == 5).then_some(()));
    assert_eq!(eve.poll_without_cookies(), "waiting", "it could keep the cookie");
    for _ in 0..5 {
        assert_eq!(eve.poll_without_cookies(), "no_cookie");
    }
    let mut new = Page::open(Visitor::of(&weir), "GET /a", &[]);
    for _ in 0..5 {
        assert_eq!(new.poll_without_cookies(), "no_cookie");
    }
    eventually("two more have joined", || (joined(&weir) == 7).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(joined(&weir), 7, "and no more");
}

/// A page waits on while its address goes to another zone, is denied, and is no address of a rule.
pub(crate) fn a_page_follows_the_routes() {
    let zones = zone("Z", 60_000, HELD) + &zone("Y", 60_000, HELD) + &zone("OPEN", 60_000, "mode = \"open\"");
    let weir = Setup::new(&config(&zones, SITE)).start();
    let (mut ada, mut new) =
        (Page::open(Visitor::of(&weir), "GET /a", &[]), Page::open(Visitor::of(&weir), "GET /a", &[]));
    let mut eve = Page::open(Visitor::of(&weir), "GET /a", &[]);
    assert_eq!((ada.poll().as_str(), ada.given.len()), ("waiting", 0));
    let goes = |routes: &str, said: &str, page: &mut Page| {
        weir.setup().write_config(&config(&zones, routes));
        weir.signal(Signal::HUP);
        eventually(said, || {
            let reply = Visitor::of(&weir).ask("GET /a", &[("Weir-Poll", "page; given=")]);
            (reply.problem() == said && (said != "waiting" || reply.text().contains("[\"Y\"]"))).then_some(())
        });
        page.poll()
    };
    assert_eq!(goes("[[route]]\nzone = \"Y\"\n", "waiting", &mut ada), "waiting");
    assert!(ada.visitor.cookies.contains_key("weir-Y"), "{:?}", ada.visitor.cookies);
    assert_eq!(
        (new.poll().as_str(), new.poll().as_str(), ada.poll().as_str()),
        ("waiting", "waiting", "waiting")
    );
    assert_eq!(eve.poll_without_cookies(), "waiting", "it could keep this cookie");
    assert_eq!(
        (eve.poll_without_cookies().as_str(), eve.poll_without_cookies().as_str()),
        ("no_cookie", "no_cookie")
    );

    assert_eq!(goes("[[route]]\ndeny = true\n", "denied", &mut ada), "denied");
    let reply = ada.visitor.ask("GET /a", &[POLL, ("Accept-Language", "ko")]);
    assert_eq!((reply.status, &reply.json()["canEnter"]), (403, &false.into()));
    assert_eq!(reply.json()["shown"]["heading"], "여기서는 계속할 수 없습니다");
    // At 403 nginx would not ask for the words.
    assert_eq!(ada.visitor.ask_at("/gate/check?answer=status", "GET /a", &[POLL]).status, 401);
    assert_eq!(ada.visitor.ask_at("/gate/check?answer=status", "GET /a", &[]).status, 403);
    let reply = ada.visitor.ask_at("/gate/check?answer=page", "GET /a", &[POLL]);
    assert_eq!((reply.status, reply.problem().as_str()), (403, "denied"));
    assert_eq!(
        goes("[[route]]\nzone = \"Z\"\nhost = \"other.example\"\n", "misdirected", &mut ada),
        "misdirected"
    );
    let reply = ada.visitor.ask("GET /a", &[POLL]);
    assert!(reply.json()["shown"]["explanation"].is_string(), "{reply:?}");

    // An address that is readable as two zones: the first one lets the visitor in, and then there is a place in the next one.
    let both = "[[route]]\nzone = \"Z\"\npath = \"/a/*\"\n[[route]]\nzone = \"Y\"\npath = \"/b/*\"\n";
    let open = zones.replacen("mode = \"hold\"", "mode = \"open\"", 1);
    weir.setup().write_config(&config(&zones, both));
    weir.signal(Signal::HUP);
    let mut ada = eventually("both are in force", || {
        let mut visitor = Visitor::of(&weir);
        (visitor.get("/a/..%2fb/1").problem() == "waiting" && visitor.get("/").status == 200).then(|| {
            visitor.cookies.clear();
            Page::open(visitor, "GET /a/..%2fb/1", &[])
        })
    });
    assert_eq!((ada.poll().as_str(), ada.visitor.cookies.len()), ("waiting", 1));
    weir.setup().write_config(&config(&open, both));
    weir.signal(Signal::HUP);
    eventually("the place in the next zone", || {
        assert_eq!(ada.poll(), "waiting");
        ada.visitor.cookies.contains_key("weir-Y").then_some(())
    });
    assert_eq!(ada.poll(), "waiting");
    // A browser without cookies takes one of each.
    let mut eve = Page::open(Visitor::of(&weir), "GET /a/..%2fb/1", &[]);
    assert_eq!(eve.given, ["Y", "Z"]);
    assert_eq!(
        (eve.poll_without_cookies().as_str(), eve.poll_without_cookies().as_str()),
        ("no_cookie", "no_cookie")
    );
}

/// The whole way of a visitor: the page at the address that was asked for, the place, the turn, and the visit.
pub(crate) fn a_visitor_waits_enters_and_stays() {
    let weir = Setup::new(&config(&zone("Z", 60_000, HELD), SITE)).start();
    let (mut ada, mut ben) = (Visitor::of(&weir), Visitor::of(&weir));
    let page = ada.ask("GET /sale?x=1", &[PAGE, ("Accept-Language", "ko")]);
    assert_eq!((page.status, page.header("content-type")), (503, Some("text/html; charset=utf-8")));
    assert_eq!(
        (page.header("cache-control"), page.header("content-language")),
        (Some("no-store"), Some("ko"))
    );
    assert_eq!(page.header("retry-after"), Some("1"));
    assert!(page.text().contains("<dd data-weir=\"rank\">1</dd>"), "{}", page.text());
    assert_eq!((ben.rank(), ada.rank(), ben.rank()), (2, 1, 2), "each has a place, and keeps it");
    let (name, place) = ada.cookie();
    assert!(name.starts_with("weir-") && place.starts_with('p'), "{name}={place}");

    moves(&weir);
    let poll = POLL;
    let turn = eventually("the turn comes", || {
        let reply = ada.ask("GET /sale?x=1", &[poll]);
        (reply.problem() == "admitted").then_some(reply)
    });
    assert_eq!((turn.status, &turn.json()["canEnter"]), (409, &true.into()), "a poll never reaches the site");
    assert!(ada.cookie().1.starts_with('v'));
    let inside = ada.ask("POST /order", &[]);
    assert_eq!((inside.status, inside.body.len(), inside.header("set-cookie")), (200, 0, None), "{inside:?}");
    eventually("the next turn comes", || (ben.get("/").status == 200).then_some(()));
    // Nobody waits any more. Who comes now enters at once, with the first request.
    let mut cho = Visitor::of(&weir);
    let first = cho.get("/");
    assert_eq!(first.status, 200, "{first:?}");
    let cookie = first.header("set-cookie").expect("a visit");
    assert!(cookie.contains("=v") && cookie.contains("; Max-Age=3600;"), "{cookie}");
    let said = |said: &str| format!("weir_checks_total{{route=\"route 1\",said=\"{said}\"}}");
    let metrics = weir.admin_get("/metrics");
    for (what, at_least) in [("waits", 4), ("visit", 1), ("entered", 2)] {
        let line = metrics.text().lines().find_map(|line| line.strip_prefix(&format!("{} ", said(what))));
        assert!(line.and_then(|n| n.parse().ok()) >= Some(at_least), "{what}: {line:?}");
    }
}

/// Of the people inside there are as many as may be. Whoever leaves makes room, and does not come back with the old cookie.
pub(crate) fn places_inside_are_limited_and_freed() {
    const ONE: &str = "polling_period_ms = 500\nidle_timeout_s = 10\nmax_active = 1";
    let weir = Setup::new(&config(&zone("Z", 60_000, ONE), SITE)).start();
    let (mut ada, mut ben) = (Visitor::of(&weir), Visitor::of(&weir));
    assert_eq!(ada.get("/").status, 200);
    assert_eq!((ben.rank(), ada.get("/").status), (1, 200), "one is inside");
    eventually("the limit is shown", || {
        let metrics = weir.admin_get("/metrics");
        let shown = |line: &str| metrics.text().lines().any(|of| of == line);
        (shown("weir_zone_inside{zone=\"Z\"} 1") && shown("weir_zone_max_active{zone=\"Z\"} 1")).then_some(())
    });
    assert_eq!(ada.get("/.weir/leave").status, 200, "only a POST leaves: a link or an image does not");
    let before = ada.cookies.clone();
    // Pages of the site may have planted cookies of the same name.
    let planted: Vec<_> = (0..9).map(|n| format!("weir-Z=v{}", n.to_string().repeat(60))).collect();
    let left = ada.ask("POST /.weir/leave", &[("Cookie", &planted.join("; "))]);
    assert_eq!((left.status, left.problem().as_str()), (410, "left"));
    let cookie = left.header("set-cookie").expect("the visit is removed");
    assert!(cookie.contains("=v; Path=/; Max-Age=0;"), "{cookie}");
    eventually("the place is used", || (ben.get("/").status == 200).then_some(()));
    ada.cookies = before;
    assert_eq!(ada.rank(), 1, "the visit has ended, although its cookie has not");

    // An app that has a pass leaves with its token.
    ben.ask("POST /.weir/leave", &[]);
    eventually("the place is used", || (ada.get("/").status == 200).then_some(()));
    let mut app = weir.connect();
    let mut call = |path: &str, token: &str| {
        let body = if token.is_empty() {
            r#"{"zoneId":"Z"}"#.into()
        } else {
            format!(r#"{{"zoneId":"Z","token":"{token}"}}"#)
        };
        app.post(path, &body).expect("a reply")
    };
    let token = call("/traffic/wait", "").json()["token"].as_str().expect("a token").to_owned();
    ada.ask("POST /.weir/leave", &[]);
    eventually("the app enters", || {
        (call("/traffic/entry", &token).json()["canEnter"] == true).then_some(())
    });
    assert_eq!(ben.rank(), 1);
    let left = call("/traffic/leave", &token);
    assert_eq!((left.status, left.body.len()), (204, 0), "{left:?}");
    eventually("the place is used", || (ben.get("/").status == 200).then_some(()));
    assert_eq!(call("/traffic/leave", "junk").problem(), "bad_token");
}

/// A page of another site, or a browser that loads a page ahead, makes requests for a visitor who does not see their replies.
pub(crate) fn what_nobody_asked_for_takes_no_place() {
    let listed = "cors_origins = [\"https://app.example\"]\n";
    let weir = Setup::new(&format!("{listed}{}", config(&zone("Z", 60_000, HELD), SITE))).start();
    let image =
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "image")];
    let frame =
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")];
    let call = [("Origin", "https://evil.example")];
    for (line, headers, code) in [
        ("GET /", &image[..], "foreign_origin"),
        ("GET /", &frame, "foreign_origin"),
        ("GET /", &call, "foreign_origin"),
        ("POST /", &call, "foreign_origin"),
        ("GET /", &[("Sec-Purpose", "prefetch;prerender")], "no_place"),
        ("GET /", &[POLL], "no_cookie"),
    ] {
        for _ in 0..5 {
            let mut eve = Visitor::of(&weir);
            let reply = eve.ask(line, headers);
            assert_eq!((reply.problem().as_str(), reply.header("set-cookie")), (code, None), "{headers:?}");
        }
    }
    let mut ada = Visitor::of(&weir);
    assert_eq!(ada.rank(), 1);
    // A cookie whose place is over gives them no right to another one.
    for headers in [&image[..], &call] {
        let mut eve = Visitor::of(&weir);
        eve.cookies.insert("weir-Z".to_owned(), format!("p{}", "A".repeat(52)));
        let reply = eve.ask("GET /", headers);
        assert_eq!((reply.problem().as_str(), reply.header("set-cookie")), ("foreign_origin", None));
    }
    // Whoever has a place keeps it, whoever asks.
    for headers in [&image[..], &call, &[POLL]] {
        assert_eq!(ada.ask("GET /", headers).json()["waiting"]["rank"], 1, "{headers:?}");
    }
    // A page of an origin that is listed may call, and reads the reply.
    let mut ben = Visitor::of(&weir);
    let app =
        [("Origin", "https://app.example"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")];
    let reply = ben.ask("GET /", &app);
    assert_eq!((reply.problem().as_str(), &reply.json()["waiting"]["rank"]), ("waiting", &2.into()));
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(ada.ask("GET /", &call).header("access-control-allow-origin"), None);

    let place = ada.cookies.clone();
    let refused = ada.ask("POST /.weir/leave", &[("Origin", "http://evil.shop.example")]);
    assert_eq!((refused.status, refused.problem().as_str()), (403, "foreign_origin"));
    assert_eq!((ada.rank(), &ada.cookies), (1, &place));
    assert_eq!(ada.ask("POST /.weir/leave", &[("Origin", "http://shop.example:8000")]).problem(), "left");
}

/// A payment provider sends the visitor back with a form. Without HTTPS the browser leaves the cookie out. The reply does not replace it.
pub(crate) fn a_return_from_another_site_keeps_the_visit() {
    let weir =
        Setup::new(&config(&zone("Z", 60_000, "polling_period_ms = 500\nidle_timeout_s = 10"), SITE)).start();
    let back = [("Origin", "http://pay.example"), PAGE];
    let mut ada = Visitor::of(&weir);
    assert_eq!(ada.get("/").status, 200);
    let visit = std::mem::take(&mut ada.cookies);
    let page = ada.ask("POST /paid", &back);
    assert_eq!((page.status, page.header("set-cookie")), (503, None), "{page:?}");
    assert!(page.text().contains("What you sent was not delivered"), "{}", page.text());
    assert!(page.text().contains("\"first\":true"), "{}", page.text());
    // The page asks from the site itself, with the cookie. Then its sender sends the form again.
    ada.cookies = visit;
    assert_eq!(
        ada.ask("GET /paid", &[("Weir-Poll", "first"), ("Sec-Fetch-Site", "same-origin")]).problem(),
        "admitted"
    );
    let sent = ada.ask("POST /paid", &back);
    assert_eq!((sent.status, sent.header("set-cookie")), (200, None), "the same visit");

    // Somebody new takes a place with the page's first question.
    weir.setup().write_config(&config(&zone("Z", 60_000, HELD), SITE));
    weir.signal(Signal::HUP);
    let mut ben = Visitor::of(&weir);
    eventually("the zone is held", || {
        let reply = Visitor::of(&weir).get("/");
        (reply.status == 503 && reply.problem() == "waiting").then_some(())
    });
    assert_eq!(ben.ask("POST /paid", &back).header("set-cookie"), None);
    let first = ben.ask("GET /paid", &[("Weir-Poll", "first")]);
    assert_eq!(first.problem(), "waiting");
    let said = ben.ask("GET /paid", &[("Weir-Poll", "form")]).json();
    assert_eq!(said["waiting"]["rank"], first.json()["waiting"]["rank"]);
    assert!(
        said["shown"]["explanation"].as_str().is_some_and(|text| text.starts_with("What you sent was not")),
        "{said}"
    );
}

/// A browser that keeps no cookies is not sent round and round by nginx, which can only pass the second reply on; it takes one entry a page.
pub(crate) fn a_browser_without_cookies_is_not_sent_round() {
    let weir =
        Setup::new(&config(&zone("Z", 60_000, "polling_period_ms = 500\nidle_timeout_s = 10"), SITE)).start();
    let mut eve = Visitor::of(&weir);
    for _ in 0..5 {
        let page = eve.ask_at("/gate/check?answer=page", "GET /", &[PAGE]);
        assert_eq!((page.status, page.header("location")), (503, None), "{page:?}");
        assert!(page.text().contains("<dd data-weir=\"rank\">1</dd>"), "{}", page.text());
        // The page's script finds that the cookie did not come back, and takes no further entry.
        eve.cookies.clear();
        let poll = eve.ask_at("/gate/check?answer=page", "GET /", &[POLL]);
        assert_eq!((poll.problem().as_str(), poll.header("set-cookie")), ("no_cookie", None));
    }
    eventually("five have entered", || {
        let metrics = weir.admin_get("/metrics");
        metrics.text().lines().any(|line| line == "weir_zone_entered_total{zone=\"Z\"} 5").then_some(())
    });
}

/// A proxy passes on what its visitors send. Their cookies may be long, and their header fields many.
pub(crate) fn a_visitor_with_a_long_head_is_not_shut_out() {
    let weir = Setup::new(&config(&zone("Z", 60_000, HELD), SITE)).start();
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("X-{n}"), "y".repeat(200))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let mut ada = Visitor::of(&weir);
    ada.cookies.insert("big".to_owned(), "x".repeat(20_000));
    assert_eq!((ada.rank(), ada.ask("GET /", &many).json()["waiting"]["rank"].as_u64()), (1, Some(1)));
    ada.cookies.insert("bigger".to_owned(), "x".repeat(60_000));
    let refused = ada.get("/");
    assert_eq!((refused.status, refused.problem().as_str()), (431, "head_too_large"));
    // Visitors themselves may not.
    let config = config(&zone("Z", 60_000, HELD), SITE).replace("127.0.0.1", "127.0.0.2");
    let weir = Setup::new(&config).start();
    let mut eve = Visitor::of(&weir);
    eve.cookies.insert("big".to_owned(), "x".repeat(9_000));
    assert_eq!(eve.get("/").problem(), "head_too_large");
}

/// Requests without cookies begin a visit each, which nobody uses. One client has few of them.
pub(crate) fn one_client_does_not_fill_a_zone_with_visits_that_nobody_uses() {
    let limited = "polling_period_ms = 500\nidle_timeout_s = 10\nmax_active = 40";
    let weir = Setup::new(&config(&zone("Z", 60_000, limited), SITE)).start();
    let mut eve: Vec<_> = (0..50).map(|_| Visitor::of(&weir)).collect();
    let entered = eve.iter_mut().filter_map(|eve| (eve.get("/").status == 200).then_some(())).count();
    assert_eq!(entered, 5, "an eighth of the places");
    let refused = Visitor::of(&weir).get("/");
    assert_eq!((refused.problem().as_str(), refused.header("set-cookie")), ("too_many_requests", None));
    // Cookies that are none of the zone's are no use of a visit.
    for value in [format!("p{}", "A".repeat(52)), format!("v{}", "A".repeat(60)), "v".to_owned()] {
        let mut eve = Visitor::of(&weir);
        eve.cookies.insert("weir-Z".to_owned(), value);
        assert_eq!(eve.get("/").problem(), "too_many_requests");
    }
    let mut ada = Visitor { address: "203.0.113.8", ..Visitor::of(&weir) };
    assert_eq!(ada.get("/").status, 200);
    // A file of the site that a visitor loads shows that the browser keeps the cookie.
    let inside = eve.iter_mut().find(|eve| !eve.cookies.is_empty()).expect("one that entered");
    assert_eq!(inside.get("/x.css").status, 200);
    assert_eq!(Visitor::of(&weir).get("/").status, 200);
    assert_eq!(Visitor::of(&weir).get("/").problem(), "too_many_requests");
    // Of people behind one router each uses the visit, and makes room for the next one.
    let mut people: Vec<_> =
        (0..20).map(|_| Visitor { address: "203.0.113.9", ..Visitor::of(&weir) }).collect();
    for one in &mut people {
        assert_eq!((one.get("/").status, one.get("/").status), (200, 200));
    }
    // The addresses of a private network may all be a proxy's.
    for _ in 0..10 {
        let mut one = Visitor { address: "10.0.0.1", ..Visitor::of(&weir) };
        assert_eq!(one.get("/").status, 200);
    }
}

/// The same if all of them come at once.
pub(crate) fn one_client_does_not_fill_a_zone_with_requests_at_the_same_time() {
    let limited = "polling_period_ms = 500\nidle_timeout_s = 10\nmax_active = 40";
    let weir = Setup::new(&config(&zone("Z", 60_000, limited), SITE)).start();
    let mut eve: Vec<_> = (0..40).map(|_| weir.connect()).collect();
    let request = "GET /gate/check HTTP/1.1\r\nHost: weir\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Host: shop.example\r\n\
                   X-Forwarded-For: 203.0.113.7\r\n\r\n";
    for one in &mut eve {
        one.send(request).expect("the server reads");
    }
    let entered = eve.iter_mut().filter_map(|one| (one.reply().ok()?.status == 200).then_some(())).count();
    assert_eq!(entered, 5, "an eighth of the places");
}

/// A ticket begins one visit. Twelve people enter one after the other, each leaves, and all show their places again.
pub(crate) fn a_place_begins_one_visit() {
    const THREE: &str = "polling_period_ms = 500\nidle_timeout_s = 10\nmax_active = 3";
    for most in ["max_active = 3", "max_active = 0"] {
        let config = config(&zone("Z", 60_000, &THREE.replace("max_active = 3", most)), SITE);
        let weir = Setup::new(&config).start();
        let mut app = weir.connect();
        let mut tokens = Vec::new();
        for _ in 0..12 {
            let joined = app.post("/traffic/wait", r#"{"zoneId":"Z"}"#).expect("a reply").json();
            assert_eq!(joined["canEnter"], true, "{joined}");
            let token = joined["token"].as_str().expect("a token").to_owned();
            let mut visitor = Visitor::of(&weir);
            visitor.cookies.insert("weir-Z".to_owned(), format!("p{token}"));
            assert_eq!(visitor.get("/").status, 200);
            visitor.cookies.insert("weir-Z".to_owned(), format!("p{token}"));
            assert_eq!(visitor.get("/").status, 200, "asking again is safe");
            let left = visitor.ask("POST /.weir/leave", &[]);
            assert_eq!(left.problem(), "left", "{left:?}");
            tokens.push(token);
        }
        for (i, token) in tokens.iter().enumerate() {
            let body = format!(r#"{{"zoneId":"Z","token":"{token}"}}"#);
            assert_eq!(app.post("/traffic/entry", &body).expect("a reply").problem(), "gone", "{i}");
        }
        if most == "max_active = 0" {
            continue;
        }
        let mut inside = 0;
        for token in &tokens {
            let mut visitor = Visitor::of(&weir);
            visitor.cookies.insert("weir-Z".to_owned(), format!("p{token}"));
            inside += u32::from(visitor.get("/").status == 200);
        }
        assert_eq!(inside, 3, "each of them got a new place");
    }
}

/// A visit of a route with `bind_address` is that of the first address, however often its place is copied.
pub(crate) fn a_bound_place_begins_one_visit() {
    const ROUTES: &str =
        "[[route]]\nzone = \"Z\"\npath = \"/pay/*\"\nbind_address = true\n[[route]]\nzone = \"Z\"\n";
    let limited = "polling_period_ms = 500\nidle_timeout_s = 10\nmax_active = 1";
    let weir = Setup::new(&config(&zone("Z", 60_000, limited), ROUTES)).start();
    let mut app = weir.connect();
    let joined = app.post("/traffic/wait", r#"{"zoneId":"Z"}"#).expect("a reply").json();
    let place = format!("p{}", joined["token"].as_str().expect("a token"));
    let mut ada = Visitor::of(&weir);
    ada.cookies.insert("weir-Z".to_owned(), place.clone());
    assert_eq!(ada.get("/pay/1").status, 200);
    for (address, path) in [("203.0.113.8", "/pay/1"), ("203.0.113.9", "/"), ("203.0.113.10", "/pay/2")] {
        let mut other = Visitor { address, ..Visitor::of(&weir) };
        other.cookies.insert("weir-Z".to_owned(), place.clone());
        assert_ne!(other.get(path).status, 200, "{address} {path}");
    }
    let mut thief = Visitor { address: "203.0.113.8", ..Visitor::of(&weir) };
    thief.cookies = ada.cookies.clone();
    let refused = thief.ask("POST /.weir/leave", &[]);
    assert_eq!((refused.status, refused.problem().as_str()), (403, "other_address"));
    assert_eq!((ada.get("/pay/1").status, ada.get("/").status), (200, 200), "the visit goes on");

    // A visit that began on the other route counts here for the same address only.
    assert_eq!(ada.ask("POST /.weir/leave", &[]).problem(), "left");
    let mut ben = Visitor { address: "203.0.113.20", ..Visitor::of(&weir) };
    eventually("the place is used", || (ben.get("/").status == 200).then_some(()));
    assert_eq!(ben.get("/pay/1").status, 200);
    let mut copy = Visitor { address: "203.0.113.21", ..Visitor::of(&weir) };
    copy.cookies = ben.cookies.clone();
    assert_ne!(copy.get("/pay/1").status, 200);
}

/// Whoever leaves the line has no place at once. Only what entered leaves as a visit, and repeats cost the store nothing.
pub(crate) fn a_place_in_line_is_given_up() {
    let limited = "polling_period_ms = 500\nidle_timeout_s = 10\nmax_active = 1";
    let weir = Setup::new(&config(&zone("Z", 60_000, limited), SITE)).start();
    let mut ada = Visitor::of(&weir);
    assert_eq!(ada.get("/").status, 200);
    let mut app = weir.connect();
    let mut call = |path: &str, token: &str| {
        app.post(path, &format!(r#"{{"zoneId":"Z","token":"{token}"}}"#)).expect("a reply")
    };
    let mut other = weir.connect();
    let joined = other.post("/traffic/wait", r#"{"zoneId":"Z"}"#).expect("a reply").json();
    let token = joined["token"].as_str().expect("a token").to_owned();
    let (mut ben, mut cleo) = (Visitor::of(&weir), Visitor::of(&weir));
    assert_eq!((ben.rank(), cleo.rank()), (2, 3));
    assert_eq!(call("/traffic/leave", &token).status, 204);
    assert_eq!(call("/traffic/entry", &token).problem(), "gone");
    assert_eq!((ben.rank(), cleo.rank()), (1, 2), "those behind move up at once");
    let left = ben.ask("POST /.weir/leave", &[]);
    assert_eq!((left.status, left.problem().as_str()), (410, "left"));
    assert_eq!(cleo.rank(), 1);
    assert_eq!(ben.ask("POST /.weir/leave", &[]).problem(), "nothing_to_leave");

    let calls = || {
        let metrics = weir.admin_get("/metrics");
        let counted = metrics.text().lines().find_map(|line| {
            let (name, count) = line.split_once(' ')?;
            let is_of_leave = name.contains("call=\"leave\"") && name.contains("_count");
            is_of_leave.then(|| count.parse::<u64>().expect("a number"))
        });
        counted.expect("the calls are counted")
    };
    eventually("both calls are counted", || (calls() == 2).then_some(()));
    for _ in 0..200 {
        assert_eq!(call("/traffic/leave", &token).status, 204, "leaving again is safe");
    }
    // Counts come a moment later, those of earlier calls first.
    let mut dora = Visitor::of(&weir);
    assert_eq!(dora.rank(), 2);
    assert_eq!(dora.ask("POST /.weir/leave", &[]).problem(), "left");
    eventually("the next call is counted", || (calls() > 2).then_some(()));
    assert_eq!(calls(), 3, "the repeats cost the store nothing");
    for jti in ["Z/deadbeef/0", "Z/00000001/99999"] {
        let path = "/admin/v1/zones/Z/leave";
        let refused = weir.admin_ask("POST", path, &[], Some(&format!(r#"{{"jti":"{jti}"}}"#)));
        assert_eq!(refused.problem(), "nothing_to_leave", "{jti}");
    }
    let beacon = "POST /traffic/leave HTTP/1.1\r\nHost: weir\r\nContent-Type: text/plain;charset=UTF-8\r\n";
    let body = format!(r#"{{"zoneId":"Z","token":"{token}"}}"#);
    other.send(format!("{beacon}Content-Length: {}\r\n\r\n{body}", body.len())).expect("the server reads");
    assert_eq!(other.reply().expect("a reply").status, 204);
    assert_eq!(ada.get("/").status, 200, "nobody else's visit ended");
}

/// Neither a visitor nor another site can make a visit.
pub(crate) fn forged_foreign_and_ended_visits_wait() {
    let zones = zone("Z", 60, HELD) + &zone("OPEN", 60, "mode = \"open\"");
    let routes = "[[route]]\nzone = \"OPEN\"\npath = \"/open/*\"\n[[route]]\nzone = \"Z\"\n";
    let weir = Setup::new(&config(&zones, routes)).start();
    let mut ada = Visitor::of(&weir);
    assert_eq!(ada.get("/open/").status, 200);
    let open = ada.cookie().1.to_owned();
    assert_eq!(ada.rank(), 1);
    let name = ada.cookies.iter().find(|(_, value)| value.starts_with('p')).expect("a place").0.clone();
    let place = ada.cookies[&name].clone();

    // The server's keys, as an operator has them.
    let keys = keys_in(&weir.setup().data(), IfMissing::Refuse);
    let SealKey { id, secret } = keys.seals.current;
    let zone = ZoneId::parse("Z").expect("a zone");
    let sealed = |secret, began_ago_s: u64, seen_ago_s: u64, address: u64| {
        let now_s = unix_ms() / 1_000;
        let visit =
            Visit { epoch: 1, seq: 1, began_s: now_s - began_ago_s, seen_s: now_s - seen_ago_s, address };
        let text = Seals::only(SealKey { id, secret }).visit_sealer(&zone).seal(&visit);
        format!("v{}", std::str::from_utf8(&text).expect("base64"))
    };
    let mut with = |value: &str| {
        ada.cookies.insert(name.clone(), value.to_owned());
        let status = ada.get("/").status;
        ada.cookies.insert(name.clone(), place.clone());
        status
    };
    assert_eq!(
        with(&sealed(secret, 0, 0, 0)),
        200,
        "the key makes visits, so the others below fail for their own reason"
    );
    for (value, why) in [
        (sealed([7; 32], 0, 0, 0), "sealed by another key"),
        (open.clone(), "of another zone"),
        (sealed(secret, 3_600, 0, 0), "older than a visit may be"),
        (sealed(secret, 2_000, 1_013, 0), "idle for too long"),
        (format!("v{}", &place[1..]), "a place"),
        ("v".to_owned(), "empty"),
        ("v".repeat(61), "no seal"),
    ] {
        assert_eq!(with(&value), 503, "{why}");
    }
    let mut renewed = Visitor::of(&weir);
    renewed.cookies.insert(name.clone(), sealed(secret, 500, 200, 0));
    let reply = renewed.get("/");
    assert_eq!(reply.status, 200);
    let cookie = reply.header("set-cookie").expect("the visit, with this activity");
    let left: u64 =
        cookie.split("Max-Age=").nth(1).and_then(|s| s.split(';').next()?.parse().ok()).expect("an age");
    assert!((3_095..=3_100).contains(&left), "a visit is not made longer: {left}");
    assert_eq!(ada.rank(), 1, "the place is kept meanwhile");
}

/// The first route that fits decides; files, health checks and preflights do not wait; other spellings do.
pub(crate) fn routes_say_who_waits() {
    let routes = r#"
[[route]]
name = "abuse"
deny = true
address = ["198.51.100.0/24"]
[[route]]
name = "monitor"
bypass = true
header = { x-monitor = "s3cret" }
[[route]]
name = "sale"
zone = "Z"
host = "*.example"
path = ["/sale/*", "/checkout"]
"#;
    let weir = Setup::new(&config(&zone("Z", 60, HELD), routes)).start();
    let mut visitor = Visitor::of(&weir);
    let preflight = &[("Origin", "https://a"), ("Access-Control-Request-Method", "POST")][..];
    for (line, headers, status) in [
        ("GET /", &[][..], 200),
        ("GET /sale/1", &[], 503),
        ("GET /sale", &[], 503),
        ("GET /%73ale/1", &[], 503),
        ("GET /x/..//sale/1;a", &[], 503),
        ("GET http://shop.example/sale/1", &[], 503),
        ("POST /checkout", &[], 503),
        ("HEAD /checkout", &[], 503),
        ("GET /sale/app.js", &[], 200),
        ("GET /sale/app%2ejs", &[], 503),
        ("POST /sale/app.js", &[], 503),
        ("OPTIONS /checkout", preflight, 200),
        ("OPTIONS /checkout", &[], 503),
        ("GET /sale/1", &[("X-Monitor", "s3cret")], 200),
        ("GET /sale/1", &[("X-Monitor", "s3cre")], 503),
    ] {
        assert_eq!(visitor.ask(line, headers).status, status, "{line} {headers:?}");
    }
    visitor.host = "SHOP.example:8443";
    assert_eq!(visitor.get("/sale/1").status, 503);
    visitor.host = "shop.other";
    assert_eq!(visitor.get("/sale/1").status, 200);
    visitor.address = "198.51.100.9";
    let denied = visitor.get("/");
    assert_eq!((denied.problem().as_str(), denied.status), ("denied", 403));

    let explain = |args: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["route", "explain", "--config"]).arg(weir.setup().config_path()).args(args);
        let ran = command.output().expect("it runs");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).expect("UTF-8")
    };
    let said = explain(&["https://shop.example/x/../checkout?a=1", "--method", "POST"]);
    assert_eq!(
        said,
        "read as /checkout: 1. abuse: does not fit: not its address 198.51.100.0/24\n\
         read as /checkout: 2. monitor: does not fit: not its header x-monitor\n\
         read as /checkout: 3. sale: fits: host *.example, path /sale/* or /checkout: waits in Z\n"
    );
    let said = explain(&["https://shop.example/", "-H", "X-Monitor: s3cret"]);
    assert!(
        said.ends_with("2. monitor: fits: header x-monitor: let through\n") && !said.contains("s3cret"),
        "{said}"
    );
    assert!(!weir.log().contains("s3cret"), "{}", weir.log());
    // A reload takes other routes over.
    weir.setup().write_config(&config(&zone("Z", 60, HELD), SITE));
    weir.signal(Signal::HUP);
    visitor.address = "203.0.113.8";
    eventually("the new routes are in force", || (visitor.get("/").status == 503).then_some(()));
}

/// An app or a proxy may read another path in a target than Weir does.
pub(crate) fn restricted_paths_hold_in_every_spelling() {
    let routes =
        "[[route]]\nzone = \"Z\"\npath = \"/checkout/*\"\n[[route]]\ndeny = true\npath = \"/admin/*\"\n";
    let weir = Setup::new(&config(&zone("Z", 60, HELD), routes)).start();
    let mut visitor = Visitor::of(&weir);
    for (target, status) in [
        ("//x/checkout/1", 503),
        ("/\\x/checkout/1", 503),
        ("/checkout/..%2fx", 503),
        ("/checkout/../x", 503),
        ("/checkout/..;/x", 503),
        ("/checkout/1%2f..%2f..%2f", 503),
        ("/checkout%5c1", 503),
        ("/%2563heckout/1", 503),
        ("/Checkout/", 503),
        ("//x/admin/1", 403),
        ("/checkout/..%2fadmin", 403),
        ("/ADMIN/", 403),
        ("/checkout/x%2ecss", 503),
        ("/checkout/x.css", 200),
        ("/checkout./1", 503),
        ("/admin::$DATA", 403),
        ("/admin%20/1", 403),
        ("/other", 200),
        ("/other/%2e%2e", 200),
    ] {
        assert_eq!(visitor.get(target).status, status, "{target}");
    }
    assert_eq!(visitor.ask("GET /checkout/x.css", &[("Sec-WebSocket-Key", "a")]).status, 503);
}

/// A target that servers read as paths of two zones needs a visit of both. The visitor waits in the first one that is not open.
pub(crate) fn every_zone_of_any_reading_is_asked() {
    let open = |id| zone(id, 60, "mode = \"open\"");
    let zones = open("A") + &open("B") + &zone("C", 60, HELD);
    let routes = ["a", "b", "c"].map(|name| {
        let id = name.to_uppercase();
        format!("[[route]]\nname = \"{name}\"\nzone = \"{id}\"\npath = \"/{name}/*\"\n")
    });
    let weir = Setup::new(&config(&zones, &routes.concat())).start();
    let cookies = |reply: &Reply| {
        let given = reply.headers.iter().filter(|(name, _)| name == "set-cookie");
        let name = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
        given.map(|(_, line)| name(line)).collect::<Vec<_>>()
    };
    let both = Visitor::of(&weir).get("/a/..%2fb/1");
    assert_eq!((both.status, cookies(&both).len()), (200, 2), "{both:?}");
    let mut visitor = Visitor::of(&weir);
    assert_eq!(visitor.get("/a/1").status, 200);
    let second = visitor.get("/a/..%2fb/1");
    assert_eq!((second.status, cookies(&second)), (200, vec!["weir-B".to_owned()]), "the visit of A is open");
    assert_eq!(cookies(&visitor.get("/a/..%2fb/1")), [""; 0], "both are open");
    let held = visitor.get("/a/..%2fc/1");
    assert_eq!((held.status, cookies(&held)), (503, vec!["weir-C".to_owned()]), "{held:?}");
    let metrics = weir.admin_get("/metrics");
    for count in ["{route=\"c\",said=\"waits\"} 1", "{route=\"b\",said=\"entered\"} 2"] {
        assert!(metrics.text().contains(&format!("weir_checks_total{count}")), "{count}: {}", metrics.text());
    }
}

/// A proxy that understands 200, 401 and 403 only asks twice: what to do, and for the page.
pub(crate) fn nginx_asks_for_a_status_and_then_for_the_page() {
    let zones = zone("Z", 60_000, HELD);
    let weir = Setup::new(&config(&zones, SITE)).start();
    let mut ada = Visitor::of(&weir);
    let (status, page) = ("/gate/check?answer=status", "/gate/check?answer=page");
    let first = ada.ask_at(status, "GET /a?b=c", &[PAGE]);
    assert_eq!((first.status, first.body.len()), (401, 0), "{first:?}");
    let given = first.header("set-cookie").expect("a place").to_owned();
    // The browser does not have it yet, so the proxy repeats it.
    ada.cookies.clear();
    let second = ada.ask_at(page, "GET /a?b=c", &[PAGE, ("Weir-Cookie", &given)]);
    assert_eq!(second.status, 503);
    assert!(second.text().contains("<dd data-weir=\"rank\">1</dd>"), "one place, not two: {}", second.text());
    assert_eq!(ada.rank(), 1);

    moves(&weir);
    let inside = eventually("the turn comes", || {
        let reply = ada.ask_at(status, "GET /a?b=c", &[PAGE]);
        (reply.status == 200).then_some(reply)
    });
    assert!(inside.header("set-cookie").is_some_and(|cookie| cookie.contains("=v")), "{inside:?}");
    // It was the turn between the two questions: only the same address is left to go to.
    for (line, status, location) in [
        ("GET /a?b=c", 303, "/a?b=c"),
        ("POST /a", 307, "/a"),
        ("GET //evil.example/x", 303, "/evil.example/x"),
        ("GET /\\evil.example", 303, "/evil.example"),
        ("GET http://evil.example/x", 303, "/x"),
    ] {
        let reply = ada.ask_at(page, line, &[PAGE]);
        assert_eq!((reply.status, reply.header("location")), (status, Some(location)), "{line}");
    }
    let poll = ada.ask_at(page, "GET /a", &[POLL]);
    assert_eq!(poll.problem(), "admitted");
    assert_eq!(ada.ask_at(status, "GET /a", &[POLL]).status, 401);
}

/// A proxy that repeats the whole request behind the path of the check.
pub(crate) fn envoy_sends_the_request_itself() {
    let routes = "[[route]]\nzone = \"Z\"\nhost = \"shop.example\"\npath = \"/sale/*\"\nmethod = \"POST\"\n";
    let weir = Setup::new(&config(&zone("Z", 60, HELD), routes)).start();
    let mut proxy = weir.connect();
    let mut ask = |line: &str, more: &str| {
        proxy
            .send(format!("{line} HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n{more}\r\n"))
            .expect("taken");
        let reply = if line.starts_with("HEAD") { proxy.head() } else { proxy.reply() };
        reply.expect("a reply").status
    };
    assert_eq!(ask("POST /gate/check/sale/1?answer=status", ""), 429, "it takes 503 for a failure of Weir");
    assert_eq!(ask("GET /gate/check/sale/1", ""), 200);
    assert_eq!(ask("HEAD /gate/check/sale/1", ""), 200);
    assert_eq!(ask("POST /gate/check/", ""), 200);
    let spoofed = "X-Forwarded-Uri: /free\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: other\r\n";
    assert_eq!(ask("POST /gate/check/sale/1", spoofed), 429, "the visitor's headers do not count");
    assert_eq!(ask("POST /gate/checks", ""), 404);
}

/// What was sent with a form is not lost silently, and a refused join is explained.
pub(crate) fn a_form_is_not_lost_silently() {
    let weir = Setup::new(&config(&zone("Z", 60, HELD), SITE)).start();
    let mut ada = Visitor::of(&weir);
    let page = ada.ask("POST /order", &[PAGE]);
    assert_eq!(page.status, 503);
    assert!(
        page.text().contains("What you sent was not delivered") && page.text().contains("\"resend\":true")
    );
    let no_script =
        "<noscript><p >Without JavaScript this page does not ask by itself. Reload it now and then";
    assert!(page.text().contains(no_script), "{}", page.text());
    assert!(!page.text().contains("http-equiv=\"refresh\""), "{}", page.text());
    let page = ada.ask("GET /order", &[PAGE]);
    assert!(page.text().contains("http-equiv=\"refresh\""), "{}", page.text());
    assert!(!page.text().contains(no_script), "{}", page.text());

    weir.setup().write_config(&config(&zone("Z", 60, "mode = \"closed\""), SITE));
    weir.signal(Signal::HUP);
    eventually("the zone is closed", || {
        let page = Visitor::of(&weir).ask("GET /", &[PAGE]);
        (page.status == 503 && page.text().contains("Closed at the moment")).then_some(())
    });
    let mut late = Visitor::of(&weir);
    let refused = late.get("/");
    assert_eq!(refused.problem(), "zone_closed");
    assert!(refused.json()["shown"]["explanation"].is_string() && late.cookies.is_empty(), "{refused:?}");
}

/// What counts for a page is the request that it stands for: the question of its script is another one, and never reaches the site.
pub(crate) fn a_page_asks_for_the_request_that_it_stands_for() {
    let zones = zone("Z", 60_000, HELD) + &zone("OPEN", 60_000, "mode = \"open\"");
    let forms = "[[route]]\nzone = \"Z\"\npath = \"/order\"\nmethod = \"POST\"\n[[route]]\nzone = \"OPEN\"\n";
    let weir = Setup::new(&config(&zones, forms)).start();
    let mut ada = Visitor::of(&weir);
    assert_eq!(ada.get("/").status, 200, "she has a visit elsewhere");
    assert_eq!(ada.ask("POST /order", &[PAGE]).status, 503);
    let of_form: &[_] = &[("Accept", "application/json"), ("Weir-Poll", "form; given=")];
    assert_eq!(ada.ask("GET /order", of_form).problem(), "waiting", "the form waits, whatever a GET does");
    assert_eq!(ada.ask("GET /order", &[]).status, 200);

    let of_pages = "[[route]]\nzone = \"Z\"\npath = \"/page\"\nheader = { accept = \"*text/html*\", sec-fetch-dest = \"document\" }\n\
                    [[route]]\nbypass = true\npath = \"/other\"\n";
    let routes = |weir: &Weir, routes: &str| {
        weir.setup().write_config(&config(&zones, routes));
        weir.signal(Signal::HUP);
    };
    routes(&weir, of_pages);
    let page = [PAGE, ("Sec-Fetch-Dest", "document"), ("Sec-Fetch-Mode", "navigate")];
    let mut ben = Visitor::of(&weir);
    eventually("pages wait", || (ben.ask("GET /page", &page).status == 503).then_some(()));
    let by_script =
        [POLL, ("Accept", "application/json"), ("Sec-Fetch-Dest", "empty"), ("Sec-Fetch-Mode", "cors")];
    assert_eq!(
        ben.ask("GET /page", &by_script).problem(),
        "waiting",
        "the page waits, whatever a script does"
    );
    // What waits no more hears so, from Weir: the site might refuse the question.
    for target in ["GET /other", "GET /other?x=1"] {
        let told = ben.ask(target, &by_script);
        assert_eq!((told.problem().as_str(), &told.json()["canEnter"]), ("admitted", &true.into()));
        assert_eq!(ben.ask_at("/gate/check?answer=status", target, &by_script).status, 401);
        assert_eq!(ben.ask_at("/gate/check?answer=page", target, &by_script).problem(), "admitted");
    }
    routes(&weir, "[[route]]\nzone = \"Z\"\npath = \"/page\"\n");
    eventually("no rule is for it", || (ben.get("/other").status == 200).then_some(()));
    assert_eq!(ben.ask("GET /other", &by_script).problem(), "admitted");
    assert_eq!(ben.ask("GET /other", of_form).problem(), "admitted");
}

/// Places and visits survive a crash, over HTTPS too; a visit that is bound to an address is worth nothing elsewhere.
pub(crate) fn places_and_visits_survive_a_crash() {
    let zones = zone("Z", 60_000, HELD) + &zone("OPEN", 60, "mode = \"open\"");
    let routes =
        "[[route]]\nzone = \"OPEN\"\npath = \"/open/*\"\nbind_address = true\n[[route]]\nzone = \"Z\"\n";
    let mut weir = Setup::new(&config(&zones, routes)).start();
    let mut ada = Visitor::of(&weir);
    ada.proto = "https";
    assert_eq!(ada.rank(), 1);
    assert_eq!(ada.get("/open/x").status, 200);
    weir.kill_and_restart();
    ada.proxy = weir.connect();
    assert_eq!(ada.rank(), 1);
    let visit = ada.cookies.clone();
    let again = ada.get("/open/x");
    assert_eq!((again.status, again.header("set-cookie")), (200, None), "the same visit");
    ada.address = "203.0.113.8";
    let elsewhere = ada.get("/open/x");
    assert!(elsewhere.header("set-cookie").is_some(), "another visit begins: {elsewhere:?}");
    // A cookie of plain HTTP is worth nothing over HTTPS.
    ada.cookies = visit.into_iter().map(|(name, value)| (name.replace("__Host-", ""), value)).collect();
    assert_eq!(ada.rank(), 2);
}

/// The codes that only a proxy meets, in the order `untrusted_proxy`, `denied`, `waiting`, `admitted`.
pub(crate) fn problem_of(code: &str) -> Reply {
    let routes = "[[route]]\ndeny = true\npath = \"/no\"\n[[route]]\nzone = \"OPEN\"\npath = \"/open\"\n[[route]]\nzone = \"BOUND\"\npath = \"/bound\"\nbind_address = true\n[[route]]\nzone = \"Z\"\n";
    let open = |id| zone(id, 60, "mode = \"open\"");
    let zones = zone("Z", 60, HELD) + &open("OPEN") + &open("BOUND");
    let weir = Setup::new(&config(&zones, routes)).start();
    let mut visitor = Visitor::of(&weir);
    match code {
        "untrusted_proxy" => {
            let here = std::net::Ipv4Addr::new(127, 0, 0, 9);
            visitor.proxy = Client::connect_from(here, weir.public).expect("accepted");
            visitor.get("/")
        }
        "denied" => visitor.get("/no"),
        "odd_target" => visitor.get(&format!("/%{}2e", "25".repeat(500))),
        "misdirected" => {
            let routes = "[[route]]\nzone = \"Z\"\nhost = \"other.example\"\n";
            let weir = Setup::new(&config(&zone("Z", 60, HELD), routes)).start();
            Visitor::of(&weir).get("/")
        }
        "waiting" => visitor.get("/"),
        "nothing_to_leave" => visitor.ask("POST /.weir/leave", &[]),
        "left" => {
            visitor.get("/");
            visitor.ask("POST /.weir/leave", &[])
        }
        "other_address" => {
            visitor.get("/bound");
            visitor.address = "203.0.113.99";
            visitor.ask("POST /.weir/leave", &[])
        }
        "no_cookie" => visitor.ask("GET /open", &[("Weir-Poll", "page; given=OPEN")]),
        "no_place" => visitor.ask("GET /open", &[("Sec-Purpose", "prefetch")]),
        _ => {
            visitor.get("/open");
            visitor.ask("GET /open", &[POLL])
        }
    }
}
