//! Statistics by minute outlive the server that counted them, and the report of an event has all of them.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use store::unix_ms;

use crate::{
    admin::weir as command,
    app::{self, Answer, App, body},
    clock::{eventually, now, obey_polling_period},
    events::{in_s, patch},
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

/// The minutes around now.
fn minutes(weir: &Weir) -> Vec<Value> {
    let now_s = unix_ms() / 1_000;
    let path = format!("/admin/v1/zones/Z/minutes?from={}&to={}", now_s - 3_600, now_s + 120);
    let reply = weir.admin_ask("GET", &path, &[], None);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["minutes"].as_array().expect("a list").clone()
}

fn sum(minutes: &[Value], field: &str) -> u64 {
    minutes.iter().map(|minute| minute[field].as_u64().expect("a number")).sum()
}

/// Waits until the minutes add up to these numbers, and so does what the console's charts show.
fn adds_up(weir: &Weir, joined: u64, entered: u64) {
    let wanted = (joined, entered);
    eventually("the minutes add up", || {
        let shown = weir.admin_ask("GET", "/admin/v1/zones/Z/stats?minutes=360", &[], None).json();
        let shown = shown["minutes"].as_array().expect("a list").clone();
        let of = |minutes: &[Value]| (sum(minutes, "joined"), sum(minutes, "entered"));
        let (kept, shown) = (of(&minutes(weir)), of(&shown));
        assert!(kept.0 <= joined && shown.0 <= joined, "nobody counts twice: {kept:?} {shown:?}");
        (kept == wanted && shown == wanted).then_some(())
    });
}

/// A restart in a later minute counts nobody twice: what was before the start is no news.
pub(crate) fn a_restart_in_a_later_minute_counts_nobody_twice() {
    let mut weir = Setup::zone(2, "").start();
    for _ in 0..3 {
        drop(Answer::of(&weir.post("/traffic/wait", &body("Z", None))));
    }
    adds_up(&weir, 3, 2);
    for _ in 0..2 {
        let next_s = (unix_ms() / 60_000 + 1) * 60;
        obey_polling_period(now() + Duration::from_millis(next_s * 1_000 - unix_ms()));
        weir = weir.stop().start();
        eventually("the server has this minute", || {
            let shown = weir.admin_ask("GET", "/admin/v1/zones/Z/stats?minutes=1", &[], None).json();
            (shown["minutes"][0]["at"].as_u64() >= Some(next_s)).then_some(())
        });
        adds_up(&weir, 3, 2);
    }
}

/// A server is killed during an event. The report has everybody who came and entered, before and after that.
pub(crate) fn an_event_is_reported_after_a_kill() {
    let setup = Setup::zone(600, "polling_period_ms = 500");
    let log = setup.dir().join("audit");
    let mut weir = setup.arg("--audit-dir").arg(&log).start();
    let event = json!({
        "id": "sale", "prequeue_from": in_s(-120).0, "begins": in_s(2).0, "ends": in_s(600).0,
        "before": "closed", "after": "closed", "admit_per_minute": 60, "notice": { "en": "<b>Soon.</b>" },
    });
    let (status, changed) = patch(&weir, &json!({ "events": [event] }));
    assert_eq!(status, 200, "{changed}");
    let stock = json!({ "tiers": [{ "id": "floor", "label": {"en": "Floor"}, "remaining": 7 }] });
    let set = weir.admin_ask("PUT", "/admin/v1/zones/Z/stock", &[], Some(&stock.to_string()));
    assert_eq!(set.status, 200, "{set:?}");

    let mut apps: Vec<App> = (0..8).map(|_| App::new("Z")).collect();
    let all_in = |apps: &[App]| apps.iter().all(|app| app.entered.is_some());
    app::run(&mut apps, || weir.public, all_in, Duration::from_secs(40));
    let last = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    let entered = 8 + u64::from(last.can_enter);
    adds_up(&weir, 9, entered);

    weir.kill_and_restart();
    adds_up(&weir, 9, entered);
    let mut more: Vec<App> = (0..5).map(|_| App::new("Z")).collect();
    app::run(&mut more, || weir.public, all_in, Duration::from_secs(40));
    adds_up(&weir, 14, entered + 5);

    let file = |name: &str| weir.setup().dir().join(name).to_str().expect("UTF-8").to_owned();
    let (html, json) = (file("sale.html"), file("sale.json"));
    let audit = log.to_str().expect("UTF-8");
    let files = ["--out", &html, "--json", &json, "--audit-dir", audit];
    let one_file = ["event", "report", "Z", "sale", "--out", &html, "--json", &html];
    let (code, _, complaint) = command(&one_file, Some(&weir));
    assert!(code == Some(64) && complaint.contains("name two files"), "{complaint}");
    // To standard output: nothing else goes there, and no file of that name is made.
    let to_output =
        |files: &[&str]| command(&[&["event", "report", "Z", "sale"], files].concat(), Some(&weir));
    let (code, printed, said) = to_output(&["--json", "-"]);
    assert_eq!(code, Some(0), "{said}");
    let printed: Value = serde_json::from_str(&printed).expect("JSON alone");
    assert_eq!(printed["sums"]["joined"], 14);
    assert!(said.contains("missing: The event is not over"), "{said}");
    let other = file("other.json");
    let (code, printed, said) = to_output(&["--out", "-", "--json", &other]);
    assert!(
        code == Some(0) && printed.starts_with("<!doctype html>") && printed.ends_with("</html>\n"),
        "{said}"
    );
    assert!(
        said.starts_with(&format!("{other}\n")) && fs::exists(&other).expect("our own directory"),
        "{said}"
    );
    assert!(!fs::exists("-").expect("our own directory"));
    let (code, _, complaint) = to_output(&["--out", "-", "--json", "-"]);
    assert!(
        code == Some(64) && complaint.contains("--out and --json are both -: name two files"),
        "{complaint}"
    );
    for option in ["--out", "--json"] {
        let (code, _, complaint) = to_output(&[option, "/nosuch/report"]);
        assert!(
            code == Some(73) && complaint.contains(&format!("{option} /nosuch/report: cannot be written: ")),
            "{complaint}"
        );
    }
    let report = |event: &str| {
        let args: Vec<&str> = ["event", "report", "Z", event].into_iter().chain(files).collect();
        command(&args, Some(&weir))
    };
    let (code, said, complaint) = report("sale");
    assert_eq!(code, Some(0), "{said}{complaint}");
    assert!(said.contains(&html) && said.contains("missing: The event is not over"), "{said}");
    let read = |name: &str| fs::read_to_string(name).expect("it was written");
    let told: Value = serde_json::from_str(&read(&json)).expect("JSON");
    let sums = &told["sums"];
    assert_eq!((&sums["joined"], &sums["entered"]), (&14.into(), &(entered + 5).into()), "{told}");
    let of = told["minutes"].as_array().expect("a list");
    assert_eq!((sum(of, "joined"), sum(of, "entered")), (14, entered + 5));
    assert_eq!(of.last().expect("some")["left"], json!({ "floor": 7 }));
    let change = &told["changes"]["list"][0];
    assert_eq!((&change["who"], &change["role"]), (&"local".into(), &"admin".into()), "{change}");
    assert!(
        change["line"].is_u64() && change["fields"].to_string().contains("events.sale.begins"),
        "{change}"
    );
    // The server says the same, and can leave the minutes out.
    let ask = |path: &str| weir.admin_ask("GET", &format!("/admin/v1/zones/Z/events{path}"), &[], None);
    let reply = ask("/sale/report").json();
    for part in ["version", "zone", "from", "event", "sums", "draw"] {
        assert_eq!(reply[part], told[part], "{part}");
    }
    assert_eq!(reply["minutes"].as_array().map(Vec::len), Some(of.len()));
    let brief = ask("/sale/report?minutes=false").json();
    assert!(brief.get("minutes").is_none() && brief["sums"] == told["sums"], "{brief}");
    assert_eq!(ask("/sale/report?minutes=no").json()["code"], "wrong_type");
    let listed = |at: usize| {
        let event = &ask("").json()["events"][at];
        (event["event"]["id"].clone(), event["is"].clone(), event["deleted_at"].is_u64())
    };
    assert_eq!(listed(0), ("sale".into(), "open".into(), false));

    let page = read(&html);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("&lt;b&gt;Soon.") && !page.contains("<b>Soon."), "texts are escaped");
    assert!(page.contains("이벤트 보고서") && page.contains("Report of an event"));

    // An event that is deleted is reported as it was, and one that never was is refused. So is one that has not begun.
    let later = json!({ "id": "later", "prequeue_from": in_s(900).0, "begins": in_s(1_000).0, "ends": in_s(1_100).0 });
    let (status, changed) = patch(&weir, &json!({ "events": [later] }));
    assert_eq!(status, 200, "{changed}");
    assert_eq!(listed(0), ("sale".into(), "over".into(), true));
    assert_eq!(listed(1), ("later".into(), "before".into(), false));
    assert_eq!(ask("/later/report").json()["code"], "not_begun");
    let unknown = ask("/other/report").json();
    assert_eq!(unknown["code"], "unknown_event");
    let detail = unknown["detail"].as_str().expect("a text");
    assert!(detail.starts_with("the zone has no event other: its events are later, sale;"), "{detail}");
    let (code, said, complaint) = report("sale");
    assert_eq!(code, Some(0), "{said}{complaint}");
    assert!(said.contains("missing: The event was deleted"), "{said}");
    // Its name is used again. Both are listed, and the beginning says which one is meant.
    let again = json!({ "id": "sale", "prequeue_from": in_s(1_300).0, "begins": in_s(1_400).0, "ends": in_s(1_500).0 });
    let (status, changed) = patch(&weir, &json!({ "events": [later, again] }));
    assert_eq!(status, 200, "{changed}");
    assert_eq!(listed(0), ("sale".into(), "over".into(), true));
    assert_eq!(listed(2), ("sale".into(), "before".into(), false));
    let begins = told["event"]["begins"].as_str().expect("an instant");
    let refused = ask("/sale/report").json();
    assert_eq!(refused["code"], "not_begun");
    let detail = refused["detail"].as_str().expect("a text");
    assert!(detail.contains(&format!("ask for it with begins={begins}")), "{detail}");
    let earlier = ask(&format!("/sale/report?begins={begins}")).json();
    assert_eq!((&earlier["event"]["begins"], &earlier["sums"]["joined"]), (&begins.into(), &14.into()));
    assert_eq!(ask("/sale/report?begins=2020-01-01T00:00:00Z").json()["code"], "unknown_event");
    let refused = ask("/sale/report?begins=noon").json();
    assert_eq!(refused["code"], "wrong_type");
    let detail = refused["detail"].as_str().expect("a text");
    assert!(detail.starts_with("`begins`, in the address: \"noon\" is not an instant: write"), "{detail}");
    let args: Vec<&str> =
        ["event", "report", "Z", "sale", "--begins", begins].into_iter().chain(files).collect();
    let (code, said, complaint) = command(&args, Some(&weir));
    assert_eq!(code, Some(0), "{said}{complaint}");
    assert!(said.contains("missing: The event was deleted"), "{said}");
    let (code, _, complaint) = report("other");
    assert_eq!(code, Some(65), "{complaint}");
    assert!(complaint.contains("the zone has no event other"), "{complaint}");

    let page = |query: &str| {
        let reply = weir.admin_ask("GET", &format!("/admin/v1/zones/Z/minutes{query}"), &[], None);
        (reply.status, reply.json()["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(page("?from=60&to=86460").0, 200, "a day is a page");
    assert_eq!(page("?from=60&to=86461").1, "out_of_range");
    assert_eq!(page("?from=60&to=59").1, "out_of_range");
    assert_eq!(page("?from=60").1, "missing_field");
    assert_eq!(page("?from=60&to=x").1, "wrong_type");
}

/// Two servers count the people of one store. Nobody counts twice, and a third one knows all of them when both have stopped.
pub(crate) fn servers_of_a_store_count_together() {
    let redis = Standalone::start();
    let text = zone("Z", 60, "mode = \"hold\"\npolling_period_ms = 500\nidle_timeout_s = 600");
    let start = || Setup::new(&text).arg("--store").arg(redis.url()).start();
    let (one, two) = (start(), start());
    let join = |weir: &Weir| Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    for _ in 0..10 {
        join(&one);
        join(&two);
    }
    let add_up = |weir: &Weir, joined: u64| {
        eventually("the minutes add up", || {
            let shown = sum(&minutes(weir), "joined");
            assert!(shown <= joined, "{shown} of {joined}: somebody counts twice");
            (shown == joined).then_some(())
        });
    };
    add_up(&one, 20);
    add_up(&two, 20);
    drop(one.stop());
    add_up(&two, 20);
    join(&two);
    add_up(&two, 21);
    drop(two.stop());
    let day = unix_ms() / 86_400_000;
    let life = |day: u64| redis.command(&["TTL", &format!("weir:v1:{{Z}}:minutes:{day}")]).int();
    assert!((399 * 86_400..=400 * 86_400).contains(&life(day).max(life(day - 1))), "400 days");
    let three = start();
    add_up(&three, 21);
    adds_up(&three, 21, 0);
}
