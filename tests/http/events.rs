//! Zones that open at a set instant, and events that begin and end by themselves.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use store::unix_ms;

use crate::{
    app::{self, Answer, App, body},
    clock::eventually,
    metrics::gauge,
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

/// An instant so many seconds from now, as operators write it, and in milliseconds.
pub(crate) fn in_s(seconds: i64) -> (String, u64) {
    let second = i64::try_from(unix_ms() / 1_000).expect("fits") + seconds;
    let text = admission::instant_text(u32::try_from(second).expect("before 2106"));
    (text, u64::try_from(second).expect("after 1970") * 1_000)
}

pub(crate) fn patch(weir: &Weir, change: &Value) -> (u16, Value) {
    let tag = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).header("etag").expect("a tag").to_owned();
    let reply =
        weir.admin_ask("PATCH", "/admin/v1/zones/Z", &[("If-Match", &tag)], Some(&change.to_string()));
    (reply.status, reply.json())
}

/// An event whose pre-queue has begun, and that begins and ends so many seconds from now.
fn event(begins_s: i64, ends_s: i64) -> (Value, u64) {
    let (begins, at_ms) = in_s(begins_s);
    let event = json!({
        "id": "sale", "prequeue_from": in_s(-120).0, "begins": begins, "ends": in_s(ends_s).0,
        "before": "closed", "after": "closed", "admit_per_minute": 60, "notice": { "en": "Soon." },
    });
    (event, at_ms)
}

/// Nobody enters before the instant. People are told how long it is, and the first enter within a tenth of a second, because they were
/// asked to come at the instant.
pub(crate) fn a_zone_opens_at_its_instant() {
    let (opens, at_ms) = in_s(4);
    let weir = Setup::zone(600, &format!("opens_at = \"{opens}\"")).start();
    let mut apps: Vec<App> = (0..20).map(|_| App::new("Z")).collect();
    for app in &mut apps {
        let asked_ms = unix_ms();
        let answer = app.step(weir.public).expect("a reply").clone();
        let told = answer.waiting().opens_in_ms.expect("it is to come");
        let (most, least) = (at_ms - asked_ms, at_ms.saturating_sub(unix_ms()));
        assert!((least.saturating_sub(50)..=most + 50).contains(&told), "{told}, not {least} to {most}");
    }
    let mut first_ms = None;
    let all_in = |apps: &[App]| {
        if apps.iter().any(|app| app.entered.is_some()) {
            first_ms.get_or_insert_with(unix_ms);
        }
        apps.iter().all(|app| app.entered.is_some())
    };
    let mut all_in = all_in;
    app::run(&mut apps, || weir.public, &mut all_in, Duration::from_secs(40));
    let first_ms = first_ms.expect("somebody entered");
    assert!(first_ms >= at_ms, "{} ms early", at_ms - first_ms);
    app::assert_each_in_once(&apps);
    let shown = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
    assert_eq!(shown["policy"]["opens_at"], Value::from(opens));
}

/// An event begins and ends by itself, with its own rate and notice, and the zone's own definition stays as it is.
pub(crate) fn an_event_begins_and_ends_by_itself() {
    let weir = Setup::zone(600, "").start();
    let (event, begins_ms) = event(4, 9);
    let (status, changed) = patch(&weir, &json!({ "events": [event] }));
    assert_eq!(status, 200, "{changed}");
    let join = || weir.post("/traffic/wait", &body("Z", None));
    let first = eventually("places are taken", || {
        let answer = Answer::of(&join());
        answer.waiting.as_ref().is_some_and(|waiting| waiting.opens_in_ms.is_some()).then_some(answer)
    });
    let notice = || weir.get("/traffic/notice?zone=Z").json()["notice"]["en"].clone();
    assert_eq!(notice(), "Soon.");
    let shown = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
    assert_eq!(
        (&shown["policy"]["admit_per_minute"], &shown["policy"]["opens_at"]),
        (&600.into(), &Value::Null)
    );
    assert_eq!(shown["events"][0]["id"], "sale");
    eventually("the first one enters", || {
        Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&first.token)))).pass
    });
    assert!(unix_ms() >= begins_ms, "{} ms early", begins_ms - unix_ms());
    let closed = eventually("it is over", || Some(join()).filter(|reply| reply.status != 200));
    assert_eq!(closed.problem(), "zone_closed", "{closed:?}");
    assert_eq!(notice(), Value::Null);
    assert_eq!(patch(&weir, &json!({ "events": null })).0, 200);
    eventually("it is open as usual", || (join().status == 200).then_some(()));
}

/// The server is killed during the pre-queue. Nobody loses the place or enters early, and the event begins on time.
pub(crate) fn a_restart_does_not_move_an_event() {
    let mut weir = Setup::zone(600, "").start();
    let (event, begins_ms) = event(6, 60);
    assert_eq!(patch(&weir, &json!({ "events": [event] })).0, 200);
    let join = |weir: &Weir| Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let opens = |answer: &Answer| answer.waiting.as_ref().and_then(|waiting| waiting.opens_in_ms);
    let first = eventually("places are taken", || Some(join(&weir)).filter(|answer| opens(answer).is_some()));
    weir.kill_and_restart();
    let entry = || Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&first.token))));
    if unix_ms() + 500 < begins_ms {
        let again = entry();
        assert!(opens(&again).is_some() || unix_ms() >= begins_ms, "{again:?}");
    }
    eventually("the first one enters", || entry().pass);
    assert!(unix_ms() >= begins_ms, "{} ms early", begins_ms - unix_ms());
}

/// Events are read from the file, and a file whose events do not fit is refused with the place.
pub(crate) fn events_of_a_file() {
    let (_, begins_ms) = in_s(0);
    let with = |more: &str| {
        let (from, begins, ends) = (in_s(-90).0, in_s(3).0, in_s(60).0);
        let event = format!(
            "[[zone.event]]\nid = \"sale\"\nprequeue_from = \"{from}\"\nbegins = \"{begins}\"\nends = \"{ends}\"\n{more}\n"
        );
        zone("Z", 600, &event)
    };
    let weir = Setup::new(&with("")).start();
    let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    assert!(answer.can_enter || answer.waiting().opens_in_ms.is_some(), "{answer:?}");
    eventually("it begins", || {
        Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&answer.token)))).pass
    });
    assert!(unix_ms() >= begins_ms + 2_000);
    for (more, why) in [
        (
            "before = \"shut\"",
            "weir.toml:9: zone.event.before (event sale): \"shut\" is not one of usual, hold, closed",
        ),
        ("colour = \"red\"", "unknown field `colour`"),
        ("admit_per_minute = 0", "event sale: admit_per_minute is 0, and must be 1 to 600000"),
        ("max_active = -1", "zone.event"),
    ] {
        let ended = Setup::new(&with(more)).fail();
        assert_eq!(ended.status.code(), Some(64), "{more}: {}", ended.log);
        assert!(ended.log.contains(why), "{more}: {}", ended.log);
    }
}

/// Until the pre-queue, whoever comes is told of the page that the event names. A zone without one says that it is closed.
pub(crate) fn a_closed_zone_leads_to_the_page_of_its_event() {
    let weir = Setup::zone(600, "").start();
    let (mut soon, _) = event(600, 1_200);
    soon["prequeue_from"] = in_s(500).0.into();
    assert_eq!(patch(&weir, &json!({ "events": [soon] })).0, 200);
    let refused = eventually("the zone is closed", || {
        let reply = weir.post("/traffic/wait", &body("Z", None));
        (reply.status == 503).then_some(reply)
    });
    assert!(refused.json()["page"].is_null(), "{refused:?}");
    assert_eq!(weir.get("/wait/Z").status, 200);

    soon["before_page"] = "https://shop.example/soon?sale=1".into();
    assert_eq!(patch(&weir, &json!({ "events": [soon] })).0, 200);
    let refused = eventually("apps are told where people can go on", || {
        let refused = weir.post("/traffic/wait", &body("Z", None));
        refused.json()["page"].is_string().then_some(refused)
    });
    assert_eq!((refused.status, &refused.json()["page"]), (503, &"https://shop.example/soon?sale=1".into()));
    assert_eq!(
        weir.get("/wait/Z").status,
        200,
        "the page asks before it leads on: whoever has a place stays"
    );
    let shown = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
    assert_eq!(shown["events"][0]["before_page"], "https://shop.example/soon?sale=1");
}

/// Told waits are those of a line that goes on. Whoever would end an event sooner is told how many then do not enter.
pub(crate) fn the_preview_names_those_who_wait_beyond_the_end() {
    let weir = Setup::zone(600, "").start();
    // Nobody enters yet, so that the line stays as it is.
    let (event, _) = event(600, 3_600);
    assert_eq!(patch(&weir, &json!({ "events": [event] })).0, 200);
    eventually("places are taken", || {
        let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
        answer.waiting.is_some_and(|waiting| waiting.opens_in_ms.is_some()).then_some(())
    });
    let already = || {
        let shown = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
        shown["now"]["waiting"].as_u64().expect("a number")
    };
    while already() < 150 {
        assert_eq!(weir.post("/traffic/wait", &body("Z", None)).status, 200);
    }
    let warnings = |ends_s: i64, after: &str| {
        let mut event = event.clone();
        (event["ends"], event["after"]) = (in_s(ends_s).0.into(), after.into());
        let tag =
            weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).header("etag").expect("a tag").to_owned();
        let change = json!({ "events": [event] }).to_string();
        let path = "/admin/v1/zones/Z?dry_run=true";
        let reply = weir.admin_ask("PATCH", path, &[("If-Match", &tag)], Some(&change)).json();
        reply["warnings"].as_array().expect("a list").clone()
    };
    assert_eq!(warnings(3_600, "closed"), [Value::Null; 0], "all enter");
    assert_eq!(warnings(660, "usual"), [Value::Null; 0], "they enter afterwards");
    // One enters in a second, from the beginning on. More places come up, because people are expected to leave.
    for after in ["closed", "hold"] {
        let said = warnings(660, after);
        let [said] = &said[..] else { panic!("one warning: {said:?}") };
        let said = said.as_str().expect("a text");
        let late: u64 = said
            .split_once(": about ")
            .and_then(|(_, rest)| rest.split_once(" of the "))
            .and_then(|(late, _)| late.parse().ok())
            .unwrap_or_else(|| panic!("{said}"));
        assert!(said.starts_with("event sale ends at ") && said.contains("do not enter before"), "{said}");
        let waiting = already();
        assert!((45..=100).contains(&waiting.saturating_sub(late)), "{late} of {waiting}: {said}");
    }
}

/// While an event lasts, the waiting page is that of its template.
pub(crate) fn an_event_has_its_own_page() {
    let setup = Setup::zone(600, "");
    let pages = setup.dir().join("pages");
    fs::create_dir(&pages).expect("takes directories");
    for (name, text) in [("Z.html", "the zone's page"), ("Z@sale.html", "the page of the sale")] {
        fs::write(pages.join(name), text).expect("takes files");
    }
    let weir = setup.arg("--wait-templates-dir").arg(&pages).start();
    let shows = |text: &str| {
        eventually(text, || (weir.get("/wait/Z").body == text.as_bytes()).then_some(()));
    };
    shows("the zone's page");
    let sale = |from: i64, ends: i64| json!({ "events": [{ "id": "sale", "prequeue_from": in_s(from).0, "begins": in_s(from + 60).0, "ends": in_s(ends).0 }] });
    assert_eq!(patch(&weir, &sale(600, 900)).0, 200);
    assert_eq!(weir.get("/wait/Z").body, b"the zone's page", "it comes later");
    assert_eq!(patch(&weir, &sale(-30, 300)).0, 200);
    shows("the page of the sale");
    assert_eq!(patch(&weir, &sale(-90, 300)).0, 200);
    shows("the page of the sale");
    assert_eq!(patch(&weir, &sale(-90, -1)).0, 200);
    shows("the zone's page");
}

/// Each server of a store says which events it has read. One that has not is named to operators, and the public side goes on as before.
pub(crate) fn servers_say_which_events_they_have_read() {
    let redis = Standalone::start();
    let start = || Setup::new(&zone("Z", 600, "")).arg("--store").arg(redis.url()).start();
    let (one, two) = (start(), start());
    let (from, begins, ends) = (in_s(-10).0, in_s(300).0, in_s(400).0);
    let sale = json!({ "id": "sale", "prequeue_from": from, "begins": begins, "ends": ends });
    assert_eq!(patch(&one, &json!({ "events": [sale] })).0, 200);
    let armed = |weir: &Weir| {
        let listed = weir.admin_ask("GET", "/admin/v1/zones/Z/events", &[], None).json();
        listed["events"][0]["armed"].clone()
    };
    for weir in [&one, &two] {
        eventually("both have read it", || {
            (armed(weir) == json!({ "servers": 2, "with": 2, "without": [], "unknown": [] })).then_some(())
        });
    }
    // A change of events that changes nothing now is in the list of the other server, too.
    let later =
        json!({ "id": "later", "prequeue_from": in_s(900).0, "begins": in_s(960).0, "ends": in_s(990).0 });
    assert_eq!(patch(&one, &json!({ "events": [sale, later] })).0, 200);
    eventually("the other server lists the change", || {
        let listed = two.admin_ask("GET", "/admin/v1/changes?zone=Z", &[], None).json();
        let change = &listed["changes"][0];
        (change["after"]["events"][1]["id"] == "later" && change["made"] == "store").then_some(())
    });
    // A third one runs, and reads nothing: it is frozen, or cannot read the definition.
    let about = json!({
        "name": "stale", "version": "9", "address": "a:1", "started_at_ms": 5, "draining": false, "zones": 1, "connections": 0, "marks": "",
    });
    let register = || {
        let entry = format!("{} {about}", unix_ms());
        redis.command(&["HSET", "weir:v1:{zones}:servers", "stale", &entry]);
    };
    eventually("it is named", || {
        register();
        (armed(&one)["without"] == json!(["stale (a:1)"])).then_some(())
    });
    assert_eq!(armed(&one)["with"], 2);
    eventually("it is trouble", || {
        register();
        (gauge(&one, "weir_unarmed_servers") == 1).then_some(())
    });
    let ready = one.admin_get("/readyz");
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("Z: stale (a:1) has not read the event sale"), "{ready:?}");
    one.logs("has not read this event");
    // People are told of the event nevertheless.
    let answer = Answer::of(&one.post("/traffic/wait", &body("Z", None)));
    assert!(answer.waiting().opens_in_ms.is_some(), "{answer:?}");
    redis.command(&["HDEL", "weir:v1:{zones}:servers", "stale"]);
    eventually("it is over", || (gauge(&one, "weir_unarmed_servers") == 0).then_some(()));
}

/// What is wrong with an event is said, with the field, and changes nothing.
pub(crate) fn wrong_events_are_refused() {
    let weir = Setup::zone(600, "").start();
    let with = |field: &str, value: Value| {
        let (mut event, _) = event(600, 1_200);
        event[field] = value;
        json!({ "events": [event] })
    };
    let with_page = |before: &str, page: &str| {
        let (mut event, _) = event(600, 1_200);
        (event["before"], event["before_page"]) = (before.into(), page.into());
        json!({ "events": [event] })
    };
    let closed_with = |page: &str| with_page("closed", page);
    let two = |more: i64| {
        let (mut other, one) = (event(600 + more, 3_000 + more).0, event(600, 1_200).0);
        other["id"] = "other".into();
        other["prequeue_from"] = in_s(more).0.into();
        json!({ "events": [one, other] })
    };
    for (change, status, code, why) in [
        (json!({ "events": {} }), 400, "wrong_type", "`events` must be an array of events, or null"),
        (json!({ "events": [1] }), 400, "wrong_type", "`events[0]` must be an object"),
        (json!({ "events": [{ "id": "a" }] }), 400, "missing_field", "missing field `prequeue_from`"),
        (with("colour", "red".into()), 400, "unknown_field", "unknown field `colour`"),
        (with("id", "a b".into()), 400, "wrong_type", "`events[0].id`: \"a b\" is no name of an event"),
        (with("max_active", (-1).into()), 400, "wrong_type", "`events.sale.max_active`: invalid value"),
        (
            with("begins", "tomorrow".into()),
            400,
            "wrong_type",
            "`events.sale.begins`: \"tomorrow\" is not an instant: write",
        ),
        (with("begins", "".into()), 400, "wrong_type", "`events.sale.begins`: \"\" is not an instant: write"),
        (with("begins", 5.into()), 400, "wrong_type", "`events.sale.begins`: invalid type: integer `5`"),
        (
            with("ends", "2026-03-29T02:30[Europe/Berlin]".into()),
            400,
            "wrong_type",
            "the clocks of this time zone skip",
        ),
        (with("begins", in_s(-119).0.into()), 422, "out_of_range", "at least 60 s before begins"),
        (with("ends", in_s(600).0.into()), 422, "out_of_range", "ends must be after begins"),
        (with("admit_per_minute", 0.into()), 422, "out_of_range", "admit_per_minute is 0"),
        (with("notice", json!({ "EN": "x" })), 400, "wrong_type", "`events.sale.notice`"),
        (with("order", "lot".into()), 400, "wrong_type", "\"lot\" is not one of arrival, draw"),
        (
            with("randomness", "drand".into()),
            400,
            "wrong_type",
            "`events.sale.randomness`: belongs to a draw",
        ),
        (
            with_page("hold", "/soon"),
            400,
            "wrong_type",
            "`events.sale.before_page`: belongs to a closed zone",
        ),
        (
            closed_with("javascript:alert(1)"),
            400,
            "wrong_type",
            "`events.sale.before_page`: \"javascript:alert(1)\" is no address",
        ),
        (closed_with("//elsewhere.example"), 400, "wrong_type", "is no address of a page"),
        (closed_with("https://user:SECRET@elsewhere.example/"), 400, "wrong_type", "is no address of a page"),
        (closed_with("/a b"), 400, "wrong_type", "is no address of a page"),
        (
            closed_with("https://shop..example/"),
            400,
            "wrong_type",
            "`events.sale.before_page`: \"https://shop..example/\" names no host",
        ),
        (closed_with("https://shop.example:70000/"), 400, "wrong_type", "has no port behind the colon"),
        (two(1_100), 422, "out_of_range", "has its pre-queue from"),
        (json!({ "policy": { "opens_at": "soon" } }), 400, "wrong_type", "`policy.opens_at`"),
        (json!({ "policy": { "opens_at": 5 } }), 400, "wrong_type", "`policy.opens_at` must be an instant"),
    ] {
        let (refused, problem) = patch(&weir, &change);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!((refused, problem["code"].as_str()), (status, Some(code)), "{change}: {problem}");
        assert!(detail.contains(why), "{change}: {detail}");
        assert!(!detail.contains("SECRET"), "{detail}");
    }
    assert_eq!(weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json()["events"], json!([]));
    assert_eq!(patch(&weir, &two(1_300)).0, 200, "they meet, and do not overlap");
}
