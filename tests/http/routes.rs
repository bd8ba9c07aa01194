//! Routes that operators set through the admin API, and the tokens that routes take.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    check::{Visitor, config},
    client::Reply,
    clock::eventually,
    keys::KeyFiles,
    redis::Standalone,
    weir::{Setup, Weir, binary, zone},
};

const HELD: &str = "mode = \"hold\"\nidle_timeout_s = 10";
const SITE: &str = "[[route]]\nname = \"site\"\nzone = \"Z\"\n";
const SECRET: &str = "a-secret-of-the-staff";
const ANY: (&str, &str) = ("If-Match", "*");

fn routes(weir: &Weir) -> Reply {
    let reply = weir.admin_ask("GET", "/admin/v1/routes", &[], None);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply
}

/// The names of the routes in force, with where they come from.
fn names(weir: &Weir) -> Vec<String> {
    let reply = routes(weir).json();
    let name = |served: &Value| {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        text(&served["source"]) + " " + &text(&served["route"]["name"])
    };
    reply["routes"].as_array().expect("a list").iter().map(name).collect()
}

fn put(weir: &Weir, query: &str, if_match: (&str, &str), routes: &Value) -> Reply {
    let body = json!({ "routes": routes }).to_string();
    weir.admin_ask("PUT", &format!("/admin/v1/routes{query}"), &[if_match], Some(&body))
}

/// How often a route said something, as the API tells.
fn count(weir: &Weir, name: &str, said: &str) -> u64 {
    let reply = routes(weir).json();
    let all = reply["routes"].as_array().expect("a list");
    let served = all.iter().find(|served| served["route"]["name"] == name);
    served.and_then(|served| served["checks"][said].as_u64()).unwrap_or_else(|| panic!("{name}: {reply}"))
}

fn abuse() -> Value {
    json!({"name": "abuse", "deny": true, "address": ["198.51.100.0/24"]})
}

fn staff(secret: Value) -> Value {
    json!({"name": "staff", "bypass": true, "header": {"x-staff": {"secret": secret}}})
}

/// They come before the routes of the file, each change is made once and written down, and taking them away brings back what was.
pub(crate) fn operators_set_them_before_those_of_the_file() {
    let setup = Setup::new(&config(&zone("Z", 60, HELD), SITE));
    let audit = setup.dir().join("audit");
    // A record is written a moment after the reply.
    let written = |count: usize| {
        eventually("the changes are in the audit log", || {
            let text =
                fs::read_dir(&audit).ok()?.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
            let text: String = text.collect();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let changes: Vec<_> = lines.filter(|line| line["event"] == "routes").collect();
            (changes.len() == count).then_some((changes, text))
        })
    };
    let mut weir = setup.arg("--audit-dir").arg(&audit).start();
    let mut ada = Visitor::of(&weir);
    let staff_header = ("X-Staff", SECRET);
    assert_eq!(ada.ask("GET /", &[staff_header]).status, 503);
    let first = routes(&weir);
    let tag = first.header("etag").expect("a tag").to_owned();
    assert_eq!(format!("\"{}\"", first.json()["etag"].as_str().expect("a tag")), tag);
    assert_eq!((names(&weir), count(&weir, "site", "waits")), (vec!["file site".to_owned()], 1));

    // A dry run changes nothing; a change that names another state neither.
    let list = json!([abuse(), staff(SECRET.into())]);
    let would = put(&weir, "?dry_run=true", ("If-Match", &tag), &list);
    assert_eq!((would.status, &would.json()["dry_run"]), (200, &true.into()), "{would:?}");
    let late = put(&weir, "", ("If-Match", "\"old\""), &list);
    assert_eq!((late.status, late.problem().as_str()), (412, "changed_meanwhile"));
    assert_eq!(put(&weir, "", ("Accept", "*/*"), &list).problem(), "precondition_required");
    assert_eq!(names(&weir), ["file site"]);

    let set = put(&weir, "", ("If-Match", &tag), &list);
    assert_eq!(set.status, 200, "{set:?}");
    let tag = set.header("etag").expect("a tag").to_owned();
    assert_eq!(routes(&weir).header("etag"), Some(&*tag));
    assert_eq!(names(&weir), ["api abuse", "api staff", "file site"]);
    let shown = json!([abuse(), staff(true.into())]);
    assert_eq!((&set.json()["before"], &set.json()["after"]), (&json!([]), &shown));
    let listed = routes(&weir);
    assert!(listed.text().contains(r#"{"secret":true}"#) && !listed.text().contains(SECRET), "{listed:?}");
    assert_eq!(ada.ask("GET /", &[staff_header]).status, 200);
    assert_eq!(ada.ask("GET /", &[("X-Staff", "a-secret-of-the-stafF")]).status, 503);
    ada.address = "198.51.100.9";
    assert_eq!(ada.ask("GET /", &[staff_header]).problem(), "denied", "the first one decides");
    ada.address = "203.0.113.7";
    assert_eq!((count(&weir, "staff", "through"), count(&weir, "abuse", "denied")), (1, 1));
    assert_eq!(count(&weir, "site", "waits"), 2, "a route keeps its counts");
    let metrics = weir.admin_get("/metrics");
    assert!(metrics.text().contains("weir_checks_total{route=\"abuse\",said=\"denied\"} 1"));

    // What was shown can be sent back: the secret stays. A crash loses nothing.
    let set = put(&weir, "", ("If-Match", &tag), &json!([staff(true.into()), abuse()]));
    assert_eq!(set.status, 200, "{set:?}");
    written(2);
    weir.kill_and_restart();
    ada.proxy = weir.connect();
    assert_eq!(names(&weir), ["api staff", "api abuse", "file site"]);
    assert_eq!(ada.ask("GET /", &[staff_header]).status, 200);
    // The file may change beside them.
    weir.setup().write_config(&config(&zone("Z", 60, HELD), ""));
    weir.signal(Signal::HUP);
    eventually("the file has no routes", || (names(&weir) == ["api staff", "api abuse"]).then_some(()));
    assert_eq!(ada.get("/").status, 200, "no route fits");
    assert_eq!(routes(&weir).json()["unmatched"], 1);
    weir.setup().write_config(&config(&zone("Z", 60, HELD), SITE));
    weir.signal(Signal::HUP);
    eventually("the file has its route again", || (names(&weir).len() == 3).then_some(()));

    assert_eq!(put(&weir, "", ANY, &json!([])).status, 200);
    assert_eq!(names(&weir), ["file site"]);
    assert_eq!(ada.ask("GET /", &[staff_header]).status, 503, "as before");
    assert_eq!(routes(&weir).header("etag"), first.header("etag"), "no list and an empty one are the same");

    let (changes, text) = written(3);
    assert_eq!((&changes[0]["before"], &changes[0]["after"]), (&json!([]), &shown));
    assert_eq!((&changes[0]["name"], &changes[0]["from"]), (&"local".into(), &"127.0.0.1".into()));
    assert_eq!(changes[2]["after"], json!([]));
    assert!(!text.contains(SECRET) && !weir.log().contains(SECRET), "{text}\n{}", weir.log());
    let on_disk = fs::read_to_string(weir.setup().data().join("routes.json")).expect("the list");
    assert_eq!(on_disk, "[]");
}

/// Each fault says where it is and what to do.
pub(crate) fn faults_name_the_route_and_its_field() {
    let weir = Setup::new(&config(&zone("Z", 60, HELD), SITE)).start();
    let long: Vec<String> = (0..250).map(|n| format!("{n}{}", ".xxxxxxxxx".repeat(20))).collect();
    for (list, route, field, told) in [
        (json!([{"deny": true}]), 0, "name", "is missing"),
        (json!([abuse(), {"name": "x"}]), 1, "", "needs exactly one of"),
        (json!([{"name": "x", "deny": true, "path": "sale"}]), 0, "path", "a path begins with /"),
        (json!([{"name": "x", "zone": "OTHER"}]), 0, "zone", "there is no zone `OTHER`; create it first"),
        (json!([{"name": "site", "deny": true}]), 0, "name", "choose another name"),
        (json!([abuse(), abuse()]), 1, "", "is the name of two routes"),
        (json!([{"name": "all", "zone": "Z"}, abuse()]), 1, "", "this one never decides"),
        (json!([{"name": "x", "bypass": true}]), 0, "", "lets everybody through"),
        (json!([{"name": "x", "deny": true, "pth": "/"}]), 0, "pth", "there is no such field as `pth`"),
        (json!([staff(true.into())]), 0, "header.x-staff", "send the secret"),
        (json!([staff("short".into())]), 0, "header.x-staff", "16 to 256"),
    ] {
        let refused = put(&weir, "?dry_run=true", ANY, &list);
        assert_eq!((refused.status, refused.problem().as_str()), (422, "bad_route"), "{list}");
        let problem = refused.json();
        assert_eq!((&problem["route"], &problem["field"]), (&route.into(), &field.into()), "{problem}");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.starts_with(&format!("`routes[{route}]")) && detail.contains(told), "{detail}");
        assert_eq!(put(&weir, "", ANY, &list).text(), refused.text(), "a dry run makes the same checks");
    }
    let large = json!([{"name": "x", "deny": true, "host": long}]);
    let refused = put(&weir, "", ANY, &large);
    assert!(refused.problem() == "bad_route" && refused.text().contains("28672"), "{refused:?}");
    for (body, code) in [
        ("{", "malformed_json"),
        ("[]", "wrong_type"),
        ("{}", "missing_field"),
        (r#"{"routes":{}}"#, "wrong_type"),
        (r#"{"routes":[1]}"#, "wrong_type"),
        (r#"{"routes":[],"more":1}"#, "unknown_field"),
    ] {
        let refused = weir.admin_ask("PUT", "/admin/v1/routes", &[ANY], Some(body));
        assert_eq!(refused.problem(), code, "{body}");
    }
    let ask = |body: Value| weir.admin_ask("POST", "/admin/v1/routes/explain", &[], Some(&body.to_string()));
    let url = "https://shop.example/%61";
    let said = ask(json!({"url": url, "headers": ["User-Agent: x"], "address": "198.51.100.9"})).json();
    assert_eq!(
        (&said["path"], &said["decides"]),
        (&Value::Null, &json!({"name": "site", "source": "file", "outcome": "zone"})),
        "servers read two paths"
    );
    assert_eq!(said["lines"], json!(["read as /%61: 1. site: fits every request: waits in Z"]));
    for (body, code) in [
        (json!({}), "missing_field"),
        (json!({"url": "shop"}), "wrong_type"),
        (json!({"url": url, "address": "x"}), "wrong_type"),
        (json!({"url": url, "headers": "x"}), "wrong_type"),
        (json!({"url": url, "headers": ["x"]}), "wrong_type"),
        (json!({"url": url, "colour": 1}), "unknown_field"),
    ] {
        assert_eq!(ask(body.clone()).problem(), code, "{body}");
    }
    // Without a proxy that may ask, a route would do nothing.
    let weir = Setup::zone(60, "").start();
    let refused = put(&weir, "", ANY, &json!([abuse()]));
    assert!(refused.problem() == "bad_route" && refused.text().contains("trusted_proxies"), "{refused:?}");
    // A damaged list is refused by name.
    let setup = weir.stop();
    fs::write(setup.data().join("routes.json"), "[{\"name\":1}]").expect("written");
    let ended = setup.fail();
    assert!(ended.status.code() == Some(74) && ended.log.contains("routes.json"), "{}", ended.log);
}

/// A change at one server is in force at the others, and at one that starts later; a Redis that loses everything loses no route.
pub(crate) fn all_servers_of_a_store_have_them() {
    let redis = Standalone::start();
    let keys = KeyFiles::old();
    let text = keys.named("key_file") + &config(&zone("Z", 60, HELD), SITE);
    let start = || Setup::new(&text).arg("--store").arg(redis.url()).start();
    let (one, two) = (start(), start());
    let all = ["api abuse", "api staff", "file site"];
    let set = put(&one, "", ANY, &json!([abuse(), staff(SECRET.into())]));
    assert_eq!((set.status, names(&one)), (200, all.map(str::to_owned).to_vec()), "{set:?}");
    eventually("the other server has them", || (names(&two) == all).then_some(()));
    assert_eq!(routes(&two).header("etag"), set.header("etag"));
    let mut visitor = Visitor::of(&two);
    visitor.address = "198.51.100.9";
    assert_eq!(visitor.get("/").problem(), "denied");

    // Of two changes that expect the same list, one is made.
    let tag = set.header("etag").expect("a tag").to_owned();
    let made = put(&two, "", ("If-Match", &tag), &json!([staff(true.into())]));
    assert_eq!(made.status, 200, "the secret is known there, too: {made:?}");
    let late = put(&one, "", ("If-Match", &tag), &json!([]));
    assert_eq!((late.status, late.problem().as_str()), (412, "changed_meanwhile"));
    let all = ["api staff", "file site"];
    eventually("the first server has the change", || (names(&one) == all).then_some(()));

    // The list has no secret in Redis. A server that remembers it writes it back.
    assert!(!redis.command(&["HGET", "weir:v1:{zones}", "#routes"]).text().contains(SECRET));
    redis.command(&["FLUSHALL"]);
    eventually("the list is back in Redis", || {
        let back = redis.command(&["HEXISTS", "weir:v1:{zones}", "#routes"]).int() == 1;
        back.then_some(())
    });
    let three = start();
    for weir in [&one, &two, &three] {
        assert_eq!(names(weir), all);
    }
    let mut visitor = Visitor::of(&three);
    assert_eq!(visitor.ask("GET /", &[("X-Staff", SECRET)]).status, 200);

    // What another version wrote changes nothing, and is reported.
    let later = r##"[{"name":"x","deny":true,"later":1}]"##;
    let revision = redis.command(&["HINCRBY", "weir:v1:{zones}", "#rev", "1"]).int();
    assert!(revision > 0);
    redis.command(&["HSET", "weir:v1:{zones}", "#routes", later, "#rev", &(revision + 1).to_string()]);
    eventually("it is reported", || {
        three.log().contains("the routes of the admin API cannot be read").then_some(())
    });
    assert_eq!(names(&three), all);
    assert_eq!(put(&three, "", ANY, &json!([])).status, 200, "it can be replaced");
    eventually("the first server has the change", || (names(&one) == ["file site"]).then_some(()));
}

/// Runs `weir route` with these arguments. Returns exit code, output and errors.
fn route(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.arg("route").args(args).env_remove("WEIR_ADMIN_TOKEN");
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

pub(crate) fn the_command_line_shows_and_sets_them() {
    let weir = Setup::new(&config(&zone("Z", 60, HELD), SITE)).start();
    let admin = format!("http://{}", weir.admin);
    let file = weir.setup().dir().join("routes.toml");
    let file = file.to_str().expect("text");
    let set = |text: &str, more: &[&str]| {
        fs::write(file, text).expect("written");
        route(&[&["set", "--admin", &admin][..], more, &[file]].concat())
    };
    let text = format!(
        "[[route]]\nname = \"abuse\"\ndeny = true\naddress = \"198.51.100.9\"\n\
         [[route]]\nname = \"staff\"\nbypass = true\nheader = {{ x-staff = {{ secret = \"{SECRET}\" }} }}\n"
    );
    let (abuse, staff) =
        ("abuse: deny address=198.51.100.9/32", "staff: bypass header={\"x-staff\":{\"secret\":true}}");
    let (code, said, _) = set(&text, &["--dry-run"]);
    assert_eq!((code, said), (Some(0), format!("the routes would be changed:\n+ {abuse}\n+ {staff}\n")));
    let (code, said, _) = set(&text, &[]);
    assert_eq!((code, said), (Some(0), format!("the routes were changed:\n+ {abuse}\n+ {staff}\n")));
    let mut visitor = Visitor::of(&weir);
    assert_eq!(visitor.ask("GET /", &[("X-Staff", SECRET)]).status, 200);
    let (code, said, _) = route(&["list", "--admin", &admin]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 4), "{said}");
    assert_eq!(lines[0], "ROUTE\tFROM\tLET THROUGH\tWAITED\tDENIED\tREFUSED\tRULE");
    assert_eq!(lines[1], "abuse\tapi\t0\t0\t0\t0\tdeny address=198.51.100.9/32");
    assert!(lines[2].starts_with("staff\tapi\t1\t0\t0\t0\t"), "{said}");
    assert_eq!(lines[3], "site\tfile\t0\t0\t0\t0\tzone=Z");

    let url = "https://shop.example/";
    let (code, said, _) = route(&["explain", "--admin", &admin, "--address", "198.51.100.9", url]);
    assert_eq!((code, said.as_str()), (Some(0), "1. abuse: fits: address 198.51.100.9/32: refused\n"));
    let config = weir.setup().config_path();
    let (code, said, _) = route(&["explain", "--config", config.to_str().expect("text"), url]);
    assert_eq!((code, said.as_str()), (Some(0), "1. site: fits every request: waits in Z\n"));

    for (text, told) in [
        ("[[route]]\nname = \"x\"\npath = \"/\"\n", "routes.toml:1: route: needs exactly one of"),
        ("listen = \"127.0.0.1:0\"\n", "has more than [[route]] tables"),
        ("# a route\n[[route]]\ndeny = true\n", "routes.toml:2: route: has no name; write one"),
    ] {
        let (code, _, complaint) = set(text, &[]);
        assert!(code == Some(64) && complaint.contains(told), "{complaint}");
    }
    let (code, _, complaint) = set("[[route]]\nname = \"site\"\ndeny = true\n", &[]);
    assert!(code == Some(65) && complaint.contains("`routes[0].name`"), "{complaint}");
    let (code, said, _) = set("", &[]);
    assert_eq!((code, said), (Some(0), format!("the routes were changed:\n- {abuse}\n- {staff}\n")));
}

/// A token opens the routes that take its name, until it ends or its key is withdrawn, and appears nowhere.
pub(crate) fn bypass_tokens_open_what_they_name() {
    let routes = "[[route]]\nname = \"press\"\nbypass = true\ntoken = \"press\"\npath = \"/press/*\"\n";
    let (old, new) = (KeyFiles::old(), KeyFiles::new());
    let site = config(&zone("Z", 60, HELD), &(routes.to_owned() + SITE));
    let of = |keys: String| format!("log = \"debug\"\n{keys}{site}");
    let weir = Setup::new(&of(old.named("key_file"))).start();
    let make = |config: &Path, more: &[&str]| {
        let config = config.to_str().expect("text");
        let (code, said, complaint) =
            route(&[&["token", "--config", config, "--valid", "1h"][..], more].concat());
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
        assert!(said.contains("token = \"") && said.contains("bypass = true"), "{said}");
        said.lines().next().expect("a token").to_owned()
    };
    let path = weir.setup().config_path();
    let token = make(&path, &["--name", "press"]);
    let mut ada = Visitor::of(&weir);
    assert_eq!(ada.get("/press/1").status, 503);
    assert_eq!(ada.ask("GET /press/1", &[("Weir-Token", &token)]).status, 200);
    assert_eq!(ada.ask("GET /", &[("Weir-Token", &token)]).status, 503, "the route has a path, too");
    // In the address it becomes a cookie, for the pages that follow.
    let mut ben = Visitor::of(&weir);
    ben.proto = "https";
    let first = ben.get(&format!("/press/1?a=b&weir-token={token}"));
    let cookie = first.header("set-cookie").expect("a cookie").to_owned();
    assert!(first.status == 200 && cookie.starts_with("__Host-weir.token="), "{cookie}");
    assert_eq!(ben.get("/press/2").status, 200);
    assert_eq!(ben.get("/press/2").header("set-cookie"), None);
    assert_eq!(ben.get("/press%2f2").status, 503, "only the plain spelling");

    // Another name, another address, an altered one, a place instead of a token.
    let other = make(&path, &["--name", "staff"]);
    let bound = make(&path, &["--name", "press", "--only-from", "203.0.113.9"]);
    let altered = if token.starts_with('A') { "B" } else { "A" }.to_owned() + &token[1..];
    let place = ada.cookies.values().next().expect("a place")[1..].to_owned();
    for wrong in [&other, &bound, &altered, &place, &"x".repeat(4_000)] {
        assert_eq!(ada.ask("GET /press/1", &[("Weir-Token", wrong)]).status, 503, "{wrong}");
    }
    ada.address = "203.0.113.9";
    assert_eq!(ada.ask("GET /press/1", &[("Weir-Token", &bound)]).status, 200);
    let named = route(&[
        "explain",
        "--config",
        path.to_str().expect("text"),
        "--with-token",
        "press",
        "https://h/press/1",
    ]);
    assert!(named.1.ends_with("1. press: fits: path /press/*, token press: let through\n"), "{named:?}");

    // Its key is withdrawn in the steps of a rotation.
    let mut reload = |keys: String| {
        let done = || weir.log().matches("the configuration was read again").count();
        let before = done();
        weir.setup().write_config(&of(keys));
        weir.signal(Signal::HUP);
        eventually("the configuration is read again", || (done() > before).then_some(()));
        ada.ask("GET /press/1", &[("Weir-Token", &token)]).status
    };
    assert_eq!(reload(new.named("key_file") + &old.named("previous_key_file")), 200);
    assert_eq!(reload(new.named("key_file")), 503);
    for text in [&token, &other, &bound] {
        assert!(!weir.log().contains(text.as_str()), "{}", weir.log());
    }
    for (args, told) in [
        (&["--name", "a b", "--valid", "1h"][..], "--name: `a b` is not a valid name"),
        (&["--name", "a", "--valid", "1"], "--valid: `1` is not a time up to 400d"),
        (&["--name", "a", "--valid", "401d"], "--valid: `401d`"),
        (&["--name", "a", "--valid", "0m"], "--valid: `0m`"),
    ] {
        let (code, _, complaint) = route(&[&["token"][..], args].concat());
        assert!(code == Some(64) && complaint.contains(told), "{complaint}");
    }
}
