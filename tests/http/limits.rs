//! Client limits: who is refused, who is not, and what a refusal costs.
//!
//! Each client is an address of the loopback network. Buckets refill while a test runs, so counts are compared with
//! the elapsed time.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::process::Signal;

use crate::{
    app::{self, Answer, App, body},
    client::{Client, Reply, post},
    clock::{DEADLINE, eventually, now},
    metrics::value,
    redis::Standalone,
    sse::request,
    weir::{Setup, Weir, zone},
};

const FLOODER: u8 = 2;

fn client(weir: &Weir, address: u8) -> Client {
    Client::connect_from(Ipv4Addr::new(127, 0, 0, address), weir.public).expect("the server accepts")
}

fn wait(client: &mut Client, zone: &str) -> Reply {
    client.post("/traffic/wait", &body(zone, None)).expect("a reply")
}

/// Asserts that the reply is a complete refusal. Returns its `Retry-After` in seconds.
fn refused(reply: &Reply, policy: &str) -> u64 {
    assert_eq!((reply.status, reply.problem().as_str()), (429, "too_many_requests"), "{reply:?}");
    let in_s = reply.header("retry-after").and_then(|s| s.parse().ok()).expect("a whole number");
    assert!((1..=60).contains(&in_s), "{reply:?}");
    assert!(reply.header("ratelimit-policy").is_some_and(|told| told.starts_with(policy)), "{reply:?}");
    assert_eq!(reply.header("ratelimit"), Some(&*format!("{policy};r=0;t={in_s}")), "{reply:?}");
    in_s
}

/// The value of a counter; 0 if the series does not exist yet.
pub(crate) fn counted(weir: &Weir, series: &str) -> u64 {
    let number = value(weir.admin_get("/metrics").text(), series).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    return number as u64;
}

/// One client floods `wait`; others join and poll without noticing. The line holds exactly the joins that were
/// allowed.
pub(crate) fn a_flood_from_one_address_takes_its_share_and_nobody_elses() {
    const PER_MINUTE: u64 = 6;
    let more = format!("mode = \"hold\"\nwaits_per_minute_per_client = {PER_MINUTE}");
    let weir = Setup::zone(60, &more).start();
    let (over, begun) = (AtomicBool::new(false), now());
    let (allowed, denied) = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut client = client(&weir, FLOODER);
            let (mut allowed, mut denied) = (0, 0);
            while !over.load(Ordering::Relaxed) || denied < 1_000 {
                let reply = wait(&mut client, "Z");
                if reply.status == 200 {
                    allowed += 1;
                } else {
                    refused(&reply, "\"wait\"");
                    denied += 1;
                }
            }
            (allowed, denied)
        });
        for address in 10..30 {
            let mut client = client(&weir, address);
            for _ in 0..2 {
                let reply = wait(&mut client, "Z");
                let answer = Answer::of(&reply);
                let told = reply.header("ratelimit").unwrap_or_default();
                assert!(told.starts_with("\"wait\";r="), "{reply:?}");
                for _ in 0..5 {
                    let polled = client.post("/traffic/entry", &body("Z", Some(&answer.token)));
                    let polled = polled.expect("a reply");
                    assert!(Answer::of(&polled).waiting().rank >= 1);
                    assert_eq!(polled.header("ratelimit-policy"), None, "polls are not limited here");
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        flood.join().expect("the flooder does not panic")
    });
    let refilled = begun.elapsed().as_secs() * PER_MINUTE / 60 + 1;
    assert!((PER_MINUTE..=PER_MINUTE + refilled).contains(&allowed), "{allowed} were allowed");
    eventually("the line is what was allowed", || {
        (counted(&weir, "weir_zone_joined_total{zone=\"Z\"}") == allowed + 40).then_some(())
    });
    eventually("each refusal is counted, or its event is among the lost", || {
        let limited = counted(&weir, "weir_zone_limited_total{route=\"wait\",zone=\"Z\"}");
        let lost = counted(&weir, "weir_events_lost_total{subscriber=\"metrics\"}");
        (limited <= denied && limited + lost >= denied).then_some(())
    });
    assert_eq!(counted(&weir, "weir_zone_limited_total{route=\"entry\",zone=\"Z\"}"), 0);
    assert_eq!(counted(&weir, "weir_requests_total{route=\"wait\",status=\"429\"}"), denied);
    assert_eq!(counted(&weir, "weir_limits_unknown_total"), 0);
}

/// Clients are told apart by their address, which only trusted proxies may forward, and addresses behind a carrier's
/// NAT are not limited. Joins and polls have separate limits, and a token in `wait` counts as a poll. A zone without
/// limits sends no limit headers. A reload changes the limits.
pub(crate) fn clients_are_told_apart_and_what_they_do() {
    let settings = "trusted_proxies = [\"127.0.0.9\"]\n[limit]\ncarrier_nats = [\"127.0.0.8\"]\n";
    let limited = "mode = \"hold\"\nwaits_per_minute_per_client = 1\nentries_per_minute_per_client = 20";
    let config = |waits: u32| {
        let limited = limited.replace("client = 1", &format!("client = {waits}"));
        format!("{settings}{}{}", zone("Z", 60, &limited), zone("FREE", 60, ""))
    };
    let weir = Setup::new(&config(1)).start();
    let mut one = client(&weir, 2);
    let joined = wait(&mut one, "Z");
    assert_eq!(joined.header("ratelimit-policy"), Some("\"wait\";q=1;w=60"));
    assert_eq!(joined.header("ratelimit"), Some("\"wait\";r=0;t=60"));
    let answer = Answer::of(&joined);
    refused(&wait(&mut one, "Z"), "\"wait\"");
    // Tokens that the zone did not give out are no polls.
    for path in ["/traffic/wait", "/traffic/entry"].into_iter().cycle().take(40) {
        let junk = one.post(path, &body("Z", Some("x"))).expect("a reply");
        assert_eq!((junk.status, junk.header("ratelimit-policy")), (401, None), "{junk:?}");
    }
    let (polls, begun) = (["/traffic/wait", "/traffic/entry"].into_iter().cycle(), now());
    let mut passed = 0;
    for path in polls {
        let reply = one.post(path, &body("Z", Some(&answer.token))).expect("a reply");
        if reply.status != 200 {
            assert!(refused(&reply, "\"entry\"") <= 3, "a token comes back every 3 s");
            break;
        }
        assert_eq!(reply.header("ratelimit-policy"), Some("\"entry\";q=20;w=60"));
        passed += 1;
    }
    assert!((20..=21 + begun.elapsed().as_secs() / 3).contains(&passed), "{passed} polls were answered");

    for _ in 0..3 {
        let free = wait(&mut one, "FREE");
        assert_eq!(
            (free.status, free.header("ratelimit-policy")),
            (200, None),
            "another zone, without limits"
        );
        let nat = wait(&mut client(&weir, 8), "Z");
        assert_eq!(
            (nat.status, nat.header("ratelimit-policy")),
            (200, None),
            "many people share that address"
        );
    }
    let forwarded = |from: u8, client_address: &str| {
        let mut proxy = client(&weir, from);
        let head = format!("X-Forwarded-For: {client_address}\r\nHost");
        proxy.send(post("/traffic/wait", &body("Z", None)).replacen("Host", &head, 1)).expect("taken");
        proxy.reply().expect("a reply").status
    };
    assert_eq!([1, 1, 2].map(|n| forwarded(9, &format!("6.6.6.6, 198.51.100.{n}"))), [200, 429, 200]);
    assert_eq!(
        [1, 2, 3].map(|n| forwarded(3, &format!("198.51.101.{n}"))),
        [200, 429, 429],
        "a stranger's word"
    );
    assert_eq!(
        ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|ip| forwarded(9, ip)),
        [200, 429, 200],
        "one /64 is one client"
    );

    weir.setup().write_config(&config(4));
    weir.signal(Signal::HUP);
    eventually("a raise is to be had at once", || (wait(&mut one, "Z").status == 200).then_some(()));
}

/// One client holds the first fifteen places and one more. It polls with the last one until its polls are refused, so that it
/// never claims for the others. Others enter all the same, and nobody loses a place.
pub(crate) fn who_never_claims_holds_nobody_up() {
    let zone = |mode: &str| {
        let more = format!("mode = \"{mode}\"\npolling_period_ms = 1000\nentries_per_minute_per_client = 60");
        // The apps have one address, which is not limited.
        format!("[limit]\ncarrier_nats = [\"127.0.0.1\"]\n{}", zone("Z", 60, &more))
    };
    let weir = Setup::new(&zone("hold")).start();
    let mut greedy = client(&weir, FLOODER);
    let first: Vec<String> = (0..15).map(|_| Answer::of(&wait(&mut greedy, "Z")).token).collect();
    let mut apps: Vec<App> = (0..12).map(|_| App::new("Z")).collect();
    for app in &mut apps {
        assert!(app.step(weir.public).expect("an answer").waiting().rank > 15);
    }
    let last = Answer::of(&wait(&mut greedy, "Z")).token;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let mut poll =
                |token| greedy.post("/traffic/entry", &body("Z", Some(token))).expect("a reply").status;
            let mut refused = 0;
            while !over.load(Ordering::Relaxed) {
                for token in &first {
                    while poll(&last) != 429 {}
                    refused += u32::from(poll(token) == 429);
                }
            }
            refused
        });
        weir.setup().write_config(&zone("auto"));
        weir.signal(Signal::HUP);
        app::run(&mut apps, || weir.public, |apps| apps.iter().all(|app| app.entered.is_some()), DEADLINE);
        over.store(true, Ordering::Relaxed);
        assert!(attack.join().expect("does not panic") > 100, "polls were refused");
    });
    for token in &first {
        assert_eq!(weir.post("/traffic/entry", &body("Z", Some(token))).status, 200, "the place is kept");
    }
}

/// Servers with one Redis count joins together. Refused calls cost Redis nothing. While Redis is away, nobody is
/// refused with 429.
pub(crate) fn joins_are_counted_over_all_servers() {
    let mut redis = Standalone::start();
    let config = zone("shop:Z", 60, "mode = \"hold\"\nwaits_per_minute_per_client = 5");
    let start = || Setup::new(&config).arg("--store").arg(redis.url()).start();
    let servers = [start(), start()];
    for weir in &servers {
        eventually("the buckets are connected to", || {
            let mut warm = client(weir, 7);
            wait(&mut warm, "shop:Z").header("ratelimit").map(|_| ())
        });
    }
    let mut clients = servers.each_ref().map(|weir| client(weir, FLOODER));
    let (mut allowed, begun) = (0, now());
    for n in 0..20 {
        let reply = wait(&mut clients[n % 2], "shop:Z");
        if reply.status == 200 {
            allowed += 1;
        } else {
            refused(&reply, "\"wait\"");
        }
    }
    let refilled = begun.elapsed().as_secs() / 12 + 1;
    assert!((5..=5 + refilled).contains(&allowed), "{allowed} were allowed by two servers together");

    // Each server reads the register twice a second and beats once; a token comes back every 12 s.
    let calls = || {
        let told = redis.info("commandstats", "cmdstat_evalsha");
        let calls = told.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        calls.unwrap_or_else(|| panic!("no count: {told}"))
    };
    let (before, begun, mut denied) = (calls(), now(), 0);
    for n in 0..2_000 {
        let reply = wait(&mut clients[n % 2], "shop:Z");
        denied += u64::from(reply.status == 429);
    }
    let spent = calls() - before;
    let own = 10 * (begun.elapsed().as_secs() + 2);
    assert!(denied > 1_900 && spent <= own, "{spent} calls for {denied} refusals in {:?}", begun.elapsed());

    redis.kill();
    for (weir, address) in servers.iter().zip([20, 21]) {
        eventually("a Redis that is away is said to be, and nothing else", || {
            let reply = wait(&mut client(weir, address), "shop:Z");
            assert_ne!(reply.status, 429, "{reply:?}");
            (reply.status == 503 && reply.problem() == "store_away").then_some(())
        });
    }
}

/// One client opens many connections: it keeps its share, and gets 429 for the others. Other clients, proxies and
/// carriers' addresses are served meanwhile.
pub(crate) fn connections_of_a_client_are_capped() {
    const SHARE: usize = 5;
    let settings = format!("max_connections_per_client = {SHARE}\ntrusted_proxies = [\"127.0.0.9\"]\n");
    let carriers = "[limit]\ncarrier_nats = [\"127.0.0.8\"]\n";
    let weir = Setup::new(&format!("{settings}{carriers}{}", zone("Z", 60, "mode = \"hold\""))).start();
    let served = |client: &mut Client| client.get("/healthz").is_ok_and(|reply| reply.status == 200);
    let mut greedy: Vec<Client> = (0..SHARE).map(|_| client(&weir, FLOODER)).collect();
    assert!(greedy.iter_mut().all(served));
    for _ in 0..20 {
        let mut refused = client(&weir, FLOODER);
        let reply = refused.reply().expect("a polite refusal");
        assert_eq!((reply.status, reply.problem().as_str()), (429, "too_many_connections"));
        assert!(reply.closes() && refused.ends());
    }
    assert!(greedy.iter_mut().all(served), "open connections are still served");
    assert!(served(&mut client(&weir, 3)), "another client");
    for uncounted in [1, 8, 9] {
        let mut many: Vec<Client> = (0..3 * SHARE).map(|_| client(&weir, uncounted)).collect();
        assert!(many.iter_mut().all(served), "127.0.0.{uncounted}");
    }
    assert_eq!(counted(&weir, "weir_client_connections_refused_total"), 20);
    assert_eq!(counted(&weir, "weir_connections_refused_total"), 0, "the cap of all connections is far away");
    weir.logs("client=127.0.0.2");
    greedy.pop();
    eventually("a share that is left is free", || served(&mut client(&weir, FLOODER)).then_some(()));
}

/// However many connections a crowd opens, a share of them is for the trusted proxies, whose checks are answered.
pub(crate) fn a_crowd_leaves_room_for_the_proxies() {
    const MOST: usize = 32;
    let settings = format!(
        "max_connections = {MOST}\nmax_connections_per_client = 0\ntrusted_proxies = [\"127.0.0.9\"]\n"
    );
    let route = "[[route]]\nzone = \"Z\"\n";
    let weir = Setup::new(&format!("{settings}{}{route}", zone("Z", 60, ""))).start();
    let served = |client: &mut Client| client.get("/healthz").is_ok_and(|reply| reply.status == 200);
    let mut crowd: Vec<Client> = (0..2 * MOST).map(|_| client(&weir, FLOODER)).collect();
    let inside = crowd.iter_mut().filter_map(|client| served(client).then_some(())).count();
    assert_eq!(inside, MOST - MOST / 8, "all but the reserve");
    let check = "GET /gate/check HTTP/1.1\r\nHost: weir\r\nX-Forwarded-Host: shop.example\r\n\
                 X-Forwarded-Uri: /style.css\r\nX-Forwarded-Method: GET\r\n\r\n";
    let mut proxies: Vec<Client> = (0..MOST / 8).map(|_| client(&weir, 9)).collect();
    for proxy in &mut proxies {
        proxy.send(check).expect("taken");
        assert_eq!(proxy.reply().expect("a reply").status, 200, "a check is answered");
    }
    let mut late = client(&weir, 9);
    assert_eq!(
        late.reply().expect("a polite refusal").problem(),
        "overloaded",
        "the cap holds for proxies, too"
    );
    // Proxies use what the crowd leaves, and the crowd never uses the reserve.
    drop(crowd);
    let mut many = Vec::new();
    eventually("the proxies have all connections", || {
        let mut proxy = client(&weir, 9);
        if served(&mut proxy) {
            many.push(proxy);
        }
        (many.len() + proxies.len() == MOST).then_some(())
    });
    assert_eq!(client(&weir, 3).reply().expect("a polite refusal").problem(), "overloaded");
    many.truncate(MOST / 2);
    drop(proxies);
    eventually("others are served again", || served(&mut client(&weir, 3)).then_some(()));
}

/// Streams are counted by the address that a trusted proxy names. A client whose streams are refused can poll.
pub(crate) fn streams_of_a_client_are_capped() {
    let settings =
        "max_streams_per_client = 2\nmax_connections_per_client = 2\ntrusted_proxies = [\"127.0.0.9\"]\n";
    let weir = Setup::new(&format!("{settings}{}", zone("Z", 60, "mode = \"hold\""))).start();
    let token = Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token;
    let stream = |of: &str| {
        let mut proxy = client(&weir, 9);
        let forwarded =
            request("Z", &token, None).replacen("Host", &format!("X-Forwarded-For: {of}\r\nHost"), 1);
        proxy.send(forwarded).expect("taken");
        let head = proxy.head().expect("a head");
        (proxy, head.status)
    };
    let mut open = Vec::new();
    for _ in 0..2 {
        let (kept, status) = stream("198.51.100.1");
        assert_eq!(status, 200);
        open.push(kept);
    }
    assert_eq!(stream("198.51.100.1").1, 429);
    open.push(stream("198.51.100.2").0);
    for (address, status) in
        [("2001:db8::1", 200), ("2001:db8::2", 200), ("2001:db8::3", 429), ("2001:db8:0:1::1", 200)]
    {
        let (kept, got) = stream(address);
        assert_eq!(got, status, "{address}: one /64 is one client");
        open.push(kept);
    }
    assert_eq!(counted(&weir, "weir_client_streams_refused_total"), 2);
    let forwarded = post("/traffic/entry", &body("Z", Some(&token)));
    let mut proxy = client(&weir, 9);
    proxy.send(forwarded.replacen("Host", "X-Forwarded-For: 198.51.100.1\r\nHost", 1)).expect("taken");
    assert_eq!(proxy.reply().expect("a reply").status, 200, "polls are not counted");
    drop(open);
    eventually("the shares of ended streams are free", || (stream("198.51.100.1").1 == 200).then_some(()));
}

/// A line takes `max_waiting` people. Others get 503 with `Retry-After`, and nobody who waits notices. When people have
/// entered, there is room again.
pub(crate) fn a_full_line_refuses_newcomers_and_keeps_everybody() {
    let config = |mode: &str| zone("Z", 600, &format!("mode = \"{mode}\"\nmax_waiting = 3"));
    let weir = Setup::new(&config("hold")).start();
    let mut clients: Vec<_> = (0..3).map(|_| weir.connect()).collect();
    let places: Vec<_> = clients.iter_mut().map(|client| Answer::of(&wait(client, "Z"))).collect();
    for _ in 0..5 {
        let refused = wait(&mut weir.connect(), "Z");
        assert_eq!((refused.status, refused.problem().as_str()), (503, "zone_full"), "{refused:?}");
        assert_eq!(refused.header("retry-after"), Some("30"), "{refused:?}");
    }
    let polled = |place: &Answer| weir.post("/traffic/entry", &body("Z", Some(&place.token)));
    for (place, rank) in places.iter().zip(1..) {
        assert_eq!(Answer::of(&polled(place)).waiting().rank, rank);
    }
    eventually("each refusal is counted", || {
        (counted(&weir, "weir_zone_full_total{zone=\"Z\"}") == 5).then_some(())
    });

    weir.setup().write_config(&config("auto"));
    weir.signal(Signal::HUP);
    for place in &places {
        eventually("those who wait enter", || Answer::of(&polled(place)).can_enter.then_some(()));
    }
    eventually("there is room again", || (wait(&mut weir.connect(), "Z").status == 200).then_some(()));
    eventually("a refused join took no number", || {
        (counted(&weir, "weir_zone_joined_total{zone=\"Z\"}") == 4).then_some(())
    });
}
