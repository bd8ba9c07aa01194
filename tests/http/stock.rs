//! What is left, as people who wait are told: from the order of an operator or a shop to polls, streams and pages of every server.

use serde_json::{Value, json};

use crate::{
    admin::{new_token, weir as command},
    app::{Answer, body},
    audit::told,
    client::Reply,
    clock::eventually,
    events::in_s,
    redis::Standalone,
    sse::Stream,
    weir::{Setup, Weir, zone},
};

const PATH: &str = "/admin/v1/zones/Z/stock";

/// The key in Redis.
const KEY: &str = "weir:v1:{zones}:stock";

const HELD: &str = "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 10";

fn tiers(floor: Value, balcony: Value) -> Value {
    json!({ "tiers": [
        { "id": "floor", "label": {"en": "Floor", "ko": "스탠딩"}, "remaining": floor,
          "price": {"currency": "GBP", "from": "40.00", "to": "95.00"} },
        { "id": "balcony", "label": {"en": "Balcony"}, "remaining": balcony },
    ] })
}

fn ask(weir: &Weir, method: &str, body: &Value) -> Reply {
    weir.admin_ask(method, PATH, &[], Some(&body.to_string()))
}

fn set(weir: &Weir, body: &Value) -> Value {
    let method = if body["tiers"].is_null() { "PATCH" } else { "PUT" };
    let reply = ask(weir, method, body);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn join(weir: &Weir) -> String {
    Answer::of(&weir.post("/traffic/wait", &body("Z", None))).token
}

fn poll(weir: &Weir, token: &str) -> Answer {
    Answer::of(&weir.post("/traffic/entry", &body("Z", Some(token))))
}

/// Whether the holder is told that everything may be sold out before.
fn is_beyond(weir: &Weir, token: &str) -> bool {
    poll(weir, token).waiting().beyond_stock.unwrap_or(false)
}

/// Operators see how many people are told, by a view of the line that is up to a second old.
fn beyond_is(weir: &Weir, wanted: u64) {
    eventually("operators see it", || {
        let reply = weir.admin_ask("GET", PATH, &[], None);
        (reply.json()["beyond"] == wanted).then_some(())
    });
}

fn document(weir: &Weir) -> Value {
    let reply = weir.get("/traffic/stock?zone=Z&texts=whatever");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("public, max-age=1"));
    reply.json()
}

/// Three people wait. They are told what is left as soon as it is set, and that it may not reach them for as long as that is so. Without
/// tiers, replies are what they were before.
pub(crate) fn people_are_told_what_is_left() {
    let weir = Setup::zone(60, HELD).start();
    let tokens: Vec<String> = (0..3).map(|_| join(&weir)).collect();
    let plain = |token: &str| {
        let reply = weir.post("/traffic/entry", &body("Z", Some(token))).text().to_owned();
        let from = reply.find("\"waiting\"").expect("waits");
        reply[from..].to_owned()
    };
    let before = plain(&tokens[2]);
    assert_eq!(document(&weir), json!({ "texts": "", "tiers": [], "remaining": null }));

    let shown = set(&weir, &tiers(2.into(), 0.into()));
    assert_eq!((&shown["remaining"], &shown["dry_run"]), (&2.into(), &false.into()));
    beyond_is(&weir, 1);
    let told: Vec<bool> = tokens.iter().map(|token| is_beyond(&weir, token)).collect();
    assert_eq!(told, [false, false, true], "two pieces are left");
    let said = poll(&weir, &tokens[0]).waiting().stock.clone().expect("it is told");
    assert_eq!(said["remaining"], json!({ "floor": 2, "balcony": 0 }));
    let known = document(&weir);
    assert_eq!((&known["texts"], &known["tiers"]), (&said["texts"], &tiers(2.into(), 0.into())["tiers"]));
    assert!(Answer::of(&weir.post("/traffic/wait", &body("Z", None))).waiting().beyond_stock == Some(true));

    // More comes back: the texts stay, so nobody fetches them again.
    set(&weir, &json!({ "remaining": {"balcony": 1} }));
    assert!(!is_beyond(&weir, &tokens[2]));
    assert_eq!(poll(&weir, &tokens[2]).waiting().stock.as_ref().expect("told")["texts"], said["texts"]);
    // Nobody knows how many are left of a tier: nobody is told that nothing is left.
    set(&weir, &json!({ "remaining": {"floor": null, "balcony": 0} }));
    assert!(!is_beyond(&weir, &tokens[2]));
    // Everything is sold out.
    set(&weir, &json!({ "remaining": {"floor": 0} }));
    assert!(tokens.iter().all(|token| is_beyond(&weir, token)));
    // Whoever gives up the place ahead makes room for the next.
    set(&weir, &json!({ "remaining": {"floor": 2} }));
    assert!(is_beyond(&weir, &tokens[2]));
    assert_eq!(weir.post("/traffic/leave", &body("Z", Some(&tokens[0]))).status, 204);
    eventually("the third one moves up", || (!is_beyond(&weir, &tokens[2])).then_some(()));

    set(&weir, &json!({ "tiers": [] }));
    assert_eq!(plain(&tokens[2]).replace("\"rank\":2", "\"rank\":3"), before, "byte for byte");
}

/// The told wait counts down without a reason and people enter in their order, whatever is said to be left.
pub(crate) fn nothing_of_the_line_depends_on_it() {
    // The zone opens soon and admits one person a second.
    let opens = format!("opens_at = \"{}\"\nsub_windows = 60", in_s(4).0);
    let weir = Setup::zone(60, &format!("{opens}\npolling_period_ms = 500\nidle_timeout_s = 10")).start();
    let tokens: Vec<String> = (0..4).map(|_| join(&weir)).collect();
    set(&weir, &tiers(0.into(), 0.into()));
    let mut last_s = [u64::MAX; 4];
    let mut entered = Vec::new();
    eventually("all of them enter", || {
        for (at, token) in tokens.iter().enumerate() {
            if entered.contains(&at) {
                continue;
            }
            let answer = poll(&weir, token);
            let Some(waiting) = &answer.waiting else {
                // Whoever asked before the slot was free, and has not asked since, has a slot, too.
                for before in (0..at).filter(|before| !entered.contains(before)).collect::<Vec<_>>() {
                    assert!(poll(&weir, &tokens[before]).waiting.is_none(), "in the order of the line");
                    entered.push(before);
                }
                entered.push(at);
                continue;
            };
            assert_eq!((waiting.beyond_stock, &waiting.reason), (Some(true), &None));
            let eta_s = waiting.eta_seconds.expect("it is told");
            assert!(eta_s <= last_s[at], "{eta_s} s after {} s", last_s[at]);
            last_s[at] = eta_s;
        }
        (entered.len() == 4).then_some(())
    });
}

/// A stream hears of a change without asking.
pub(crate) fn a_stream_says_what_is_left() {
    let weir = Setup::zone(60, HELD).start();
    let mut streams: Vec<Stream> = (0..2).map(|_| Stream::open(&weir, "Z", &join(&weir))).collect();
    for stream in &mut streams {
        assert_eq!(stream.wait().stock, None);
    }
    set(&weir, &tiers(1.into(), 0.into()));
    for (stream, is_told) in streams.iter_mut().zip([None, Some(true)]) {
        let waiting = eventually("the stream says it", || {
            let waiting = stream.wait();
            waiting.stock.is_some().then_some(waiting)
        });
        assert_eq!(waiting.stock.expect("told")["remaining"], json!({ "floor": 1, "balcony": 0 }));
        assert_eq!(waiting.beyond_stock, is_told);
    }
    set(&weir, &json!({ "tiers": [] }));
    for stream in &mut streams {
        eventually("the stream says nothing of it any more", || stream.wait().stock.is_none().then_some(()));
    }
}

/// What cannot be read changes nothing, and says which field is wrong.
pub(crate) fn wrong_stocks_are_refused() {
    let weir = Setup::zone(60, HELD).start();
    set(&weir, &tiers(7.into(), 8.into()));
    let many: Vec<_> = (0..17).map(|at| json!({ "id": format!("t{at}"), "label": {"en": "T"} })).collect();
    let one = |tier: Value| json!({ "tiers": [tier] });
    let labelled = |more: Value| {
        let mut tier = json!({ "id": "a", "label": {"en": "A"} });
        tier.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        one(tier)
    };
    let longest = json!({ "en": "\u{1f39f}".repeat(80), "ko": "가".repeat(80), "ja": "あ".repeat(80), "de": "ß".repeat(80) });
    let huge: Vec<_> = (0..16).map(|at| json!({ "id": format!("t{at}"), "label": longest })).collect();
    for (method, body, status, code) in [
        ("PUT", json!({ "tiers": many }), 422, "out_of_range"),
        ("PUT", json!({ "tiers": huge }), 422, "out_of_range"),
        ("PUT", labelled(json!({ "remaining": -1 })), 422, "out_of_range"),
        ("PUT", labelled(json!({ "remaining": 18_446_744_073_709_551_615_u64 })), 422, "out_of_range"),
        ("PUT", labelled(json!({ "remaining": 0.5 })), 400, "wrong_type"),
        ("PUT", labelled(json!({ "label": {"en": "a\u{7}"} })), 400, "wrong_type"),
        ("PUT", labelled(json!({ "id": "</script>" })), 400, "wrong_type"),
        ("PUT", labelled(json!({ "sold": true })), 400, "unknown_field"),
        ("PUT", one(json!({ "id": "a" })), 400, "missing_field"),
        ("PUT", json!({}), 400, "wrong_type"),
        ("PUT", json!([]), 400, "wrong_type"),
        ("PATCH", json!({ "remaining": {"stalls": 1} }), 400, "unknown_field"),
        ("PATCH", json!({ "remaining": {"floor": -5} }), 422, "out_of_range"),
        ("PATCH", json!({ "remaining": {"floor": 1, "stalls": 1} }), 400, "unknown_field"),
        ("PATCH", json!({ "tiers": [] }), 400, "missing_field"),
    ] {
        let reply = ask(&weir, method, &body);
        assert_eq!((reply.status, reply.problem().as_str()), (status, code), "{method} {body}: {reply:?}");
    }
    let twice = r#"{"remaining":{"floor":1,"floor":2}}"#;
    assert_eq!(weir.admin_ask("PATCH", PATH, &[], Some(twice)).problem(), "malformed_json");
    let number = format!("{{\"remaining\":{{\"floor\":{}}}}}", "9".repeat(400));
    assert!(matches!(weir.admin_ask("PATCH", PATH, &[], Some(&number)).status, 400 | 422));
    let long = format!("{{\"tiers\":[{}]}}", " ".repeat(1 << 20));
    assert_eq!(weir.admin_ask("PUT", PATH, &[], Some(&long)).problem(), "too_large");
    let deep = format!("{}{}", "{\"tiers\":[".repeat(5_000), "]}".repeat(5_000));
    assert_eq!(weir.admin_ask("PUT", PATH, &[], Some(&deep)).problem(), "malformed_json");
    let nowhere = PATH.replace('Z', "NOWHERE");
    assert_eq!(weir.admin_ask("PUT", &nowhere, &[], Some("{\"tiers\":[]}")).problem(), "unknown_zone");
    assert_eq!(weir.get("/traffic/stock?zone=NOWHERE").problem(), "unknown_zone");
    assert_eq!(weir.get("/traffic/stock").problem(), "missing_field");
    let dry =
        weir.admin_ask("PATCH", &format!("{PATH}?dry_run=true"), &[], Some("{\"remaining\":{\"floor\":0}}"));
    assert_eq!((&dry.json()["remaining"], &dry.json()["dry_run"]), (&8.into(), &true.into()));
    assert_eq!(document(&weir)["tiers"], tiers(7.into(), 8.into())["tiers"], "nothing was changed");
}

/// A shop that sets a number each second writes no line for each. The log says when tiers change, and when one is sold out or back.
pub(crate) fn numbers_do_not_fill_the_log() {
    let setup = Setup::zone(60, HELD);
    let log = setup.dir().join("audit");
    let weir = setup.arg("--audit-dir").arg(&log).start();
    set(&weir, &tiers(100.into(), 1.into()));
    for left in (0..100).rev() {
        set(&weir, &json!({ "remaining": {"floor": left} }));
    }
    set(&weir, &json!({ "remaining": {"floor": 5} }));
    let lines = eventually("they are written", || {
        let lines = told(&log, "stock");
        (lines.len() >= 3).then_some(lines)
    });
    let left = |line: &Value, side: &str| line[side]["tiers"][0]["remaining"].clone();
    let both: Vec<_> = lines.iter().map(|line| (left(line, "before"), left(line, "after"))).collect();
    let number = |n: u64| Value::from(n);
    assert_eq!(both, [(Value::Null, number(100)), (number(1), number(0)), (number(0), number(5))]);
    assert_eq!((&lines[0]["zone"], &lines[0]["role"]), (&"Z".into(), &"admin".into()));
}

/// A token of the role `shop` reads and sets what is left; the roles of operators are tested with all endpoints.
pub(crate) fn a_shop_sets_what_is_left() {
    let (token, lines) = new_token("till@shop", "shop");
    let weir = Setup::new(&(lines + &zone("Z", 60, HELD))).start();
    let bearer = format!("Bearer {token}");
    let ask = |method: &str, path: &str, body: Option<&str>| {
        weir.admin_ask(method, path, &[("Authorization", &bearer), ("If-Match", "*")], body)
    };
    assert_eq!(ask("PUT", PATH, Some(&tiers(1.into(), 2.into()).to_string())).status, 200);
    assert_eq!(ask("PATCH", PATH, Some("{\"remaining\":{\"floor\":0}}")).json()["remaining"], 2);
    assert_eq!(ask("GET", PATH, None).json()["tiers"], tiers(0.into(), 2.into())["tiers"]);
    for (method, path, body) in [
        ("GET", "/admin/v1/zones", None),
        ("GET", "/admin/v1/zones/Z", None),
        ("PATCH", "/admin/v1/zones/Z", Some("{}")),
        ("GET", "/admin/v1/events", None),
        ("GET", "/admin/v1/whoami", None),
    ] {
        assert_eq!(ask(method, path, body).problem(), "forbidden", "{method} {path}");
    }
}

/// What was set is told again after a crash. A file that cannot be read ends the start.
pub(crate) fn it_survives_a_crash() {
    let mut weir = Setup::zone(60, HELD).start();
    let token = join(&weir);
    set(&weir, &tiers(0.into(), 0.into()));
    weir.kill_and_restart();
    assert!(is_beyond(&weir, &token));
    assert_eq!(document(&weir)["tiers"], tiers(0.into(), 0.into())["tiers"]);
    let setup = weir.stop();
    std::fs::write(setup.data().join("stock.json"), "{").expect("written");
    let ended = setup.fail();
    assert!(ended.log.contains("stock.json"), "{}", ended.log);
}

/// All servers of a store tell the same, also one that starts later, and after the store lost everything. A zone that is created with the
/// name of a deleted one tells nothing.
pub(crate) fn all_servers_of_a_store_tell_it() {
    let redis = Standalone::start();
    let text = zone("Z", 60, HELD);
    let start = || Setup::new(&text).arg("--store").arg(redis.url()).start();
    let (one, two) = (start(), start());
    set(&one, &tiers(1.into(), 2.into()));
    let is_told = |weir: &Weir, floor: u64, balcony: u64| {
        let wanted = tiers(floor.into(), balcony.into());
        eventually("the server tells it", || (document(weir)["tiers"] == wanted["tiers"]).then_some(()));
    };
    is_told(&two, 1, 2);
    // Each of two servers sets the number of another tier, at once and many times: no number is lost.
    std::thread::scope(|scope| {
        for (weir, tier) in [(&one, "floor"), (&two, "balcony")] {
            scope.spawn(move || {
                for n in 0..30 {
                    set(weir, &json!({ "remaining": {tier: 10 + n} }));
                }
            });
        }
    });
    is_told(&one, 39, 39);
    is_told(&two, 39, 39);
    let registered = redis.command(&["HGET", "weir:v1:{zones}", "#rev"]).text();

    redis.command(&["FLUSHALL"]);
    eventually("it is back in Redis", || {
        let entry = redis.command(&["HEXISTS", KEY, "Z"]).int();
        (entry == 1).then_some(())
    });
    let three = start();
    for weir in [&one, &two, &three] {
        is_told(weir, 39, 39);
    }
    // The store lost it, and a server hears of a change before it has noticed.
    redis.command(&["DEL", KEY]);
    set(&two, &json!({ "remaining": {"floor": 3} }));
    for weir in [&one, &two, &three] {
        is_told(weir, 3, 39);
    }
    // A value of another type, and entries that no server writes.
    redis.command(&["SET", KEY, "x"]);
    set(&one, &json!({ "remaining": {"floor": 4} }));
    let later = u64::MAX / 2;
    for (field, entry) in [("no zone", "1 x"), ("Y", "x"), ("Z:spoilt", &format!("{} [", later / 2_000))] {
        redis.command(&["HSET", KEY, field, entry]);
    }
    set(&two, &json!({ "remaining": {"balcony": 0} }));
    for weir in [&one, &two, &three] {
        is_told(weir, 4, 0);
    }
    let token = join(&two);
    assert_eq!(poll(&two, &token).waiting().stock.as_ref().expect("told")["remaining"]["floor"], 4);
    assert!(!registered.is_empty(), "the numbers are not in the register of zones: {registered}");
    assert_eq!(redis.command(&["HEXISTS", "weir:v1:{zones}", "Z"]).int(), 1);

    let any = [("If-Match", "*")];
    assert_eq!(one.admin_ask("DELETE", "/admin/v1/zones/Z", &any, None).status, 200);
    let created = one.admin_ask("POST", "/admin/v1/zones", &[], Some(r#"{"id":"Z"}"#));
    assert_eq!(created.status, 201, "{created:?}");
    for weir in [&one, &two, &three] {
        eventually("nothing is told", || {
            let reply = weir.get("/traffic/stock?zone=Z");
            (reply.status == 200 && reply.json()["tiers"] == json!([])).then_some(())
        });
    }
}

/// The command line shows and sets it.
pub(crate) fn the_command_line_shows_and_sets_it() {
    let weir = Setup::zone(60, HELD).start();
    let (first, second) = (join(&weir), join(&weir));
    let file = weir.setup().dir().join("tiers.json");
    std::fs::write(&file, tiers(1.into(), 0.into()).to_string()).expect("written");
    let file = file.to_str().expect("a path");
    let run = |args: &[&str]| command(&[&["stock"], args].concat(), Some(&weir));
    assert_eq!(
        run(&["show", "Z"]),
        (Some(0), "nothing is told about what is left\n".to_owned(), String::new())
    );
    let (code, _, fault) = run(&["apply", "Z", file]);
    assert_eq!((code, fault.as_str()), (Some(0), ""));
    assert!(is_beyond(&weir, &second) && !is_beyond(&weir, &first));
    beyond_is(&weir, 1);
    let (_, said, _) = run(&["show", "Z"]);
    assert_eq!(
        said,
        "TIER\tLEFT\tPRICE\tLABEL\nfloor\t1\tGBP 40.00 to 95.00\ten: Floor, ko: 스탠딩\nbalcony\t0\t-\ten: Balcony\ntold that \
         everything may be sold out before their turn: 1 waiting\n"
    );
    let (code, said, _) = run(&["set", "--dry-run", "Z", "floor=unknown"]);
    assert!(
        code == Some(0) && said.starts_with("nothing was changed") && said.contains("floor\tunknown"),
        "{said}"
    );
    let (code, said, _) = run(&["set", "Z", "floor=0"]);
    assert!(code == Some(0) && said.contains("floor\t0\t"), "{said}");
    assert!(is_beyond(&weir, &first));
    for (wrong, code, part) in [
        (&["set", "Z", "stalls=1"][..], 65, "`remaining.stalls`: the zone has the tiers floor, balcony"),
        (&["set", "Z", "floor=-1"], 65, "`remaining.floor` is -1"),
        (&["set", "Z", "floor=few"], 64, "write a whole number"),
        (&["apply", "Z", "/nowhere.json"], 64, "/nowhere.json"),
        (&["show", "NOWHERE"], 65, "unknown_zone"),
    ] {
        let (exit, _, fault) = run(wrong);
        assert!(exit == Some(code) && fault.contains(part), "{wrong:?}: {exit:?} {fault}");
    }
}
