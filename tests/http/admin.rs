//! The admin API of the running binary: roles, changes that are not lost, dry runs, the record of changes, and the
//! command line that uses the API.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Command, Output},
    sync::Barrier,
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    app::{Answer, body},
    client::{Client, Reply},
    clock::eventually,
    startup::remedy,
    weir::{Setup, Weir, binary, without_variables, zone},
};

/// Runs `weir` with these arguments, against `server` if there is one. Returns exit code, output and errors.
pub(crate) fn weir(args: &[&str], server: Option<&Weir>) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.args(args).env_remove("WEIR_ADMIN_TOKEN");
    if let Some(server) = server {
        command.arg("--admin").arg(format!("http://{}", server.admin));
    }
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// A token made by `weir token new`, and its lines for the configuration.
pub(crate) fn new_token(name: &str, role: &str) -> (String, String) {
    let (code, said, complaint) = weir(&["token", "new", "--name", name, "--role", role], None);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    let token = said.lines().next().expect("the token").to_owned();
    let lines = &said[said.find("[[admin_token]]").expect("lines for the configuration")..];
    assert!(!lines.contains(&token), "the configuration does not contain the token");
    (token, lines.to_owned())
}

fn tag(reply: &Reply) -> String {
    assert!(matches!(reply.status, 200 | 201), "{reply:?}");
    reply.header("etag").unwrap_or_else(|| panic!("no tag: {reply:?}")).to_owned()
}

/// The roles. Each may do everything that the roles before it may do.
const ROLES: [&str; 3] = ["viewer", "operator", "admin"];

/// Each endpoint with the role that it needs, and a body that changes nothing.
const ROUTES: &[(&str, &str, &str, Option<&str>)] = &[
    ("GET", "/admin/v1/whoami", "viewer", None),
    ("GET", "/admin/v1/zones", "viewer", None),
    ("POST", "/admin/v1/zones", "admin", Some(r#"{"id":"NEW"}"#)),
    ("GET", "/admin/v1/zones/{id}", "viewer", None),
    ("PUT", "/admin/v1/zones/{id}", "admin", Some(r#"{"policy":{}}"#)),
    ("PATCH", "/admin/v1/zones/{id}", "operator", Some("{}")),
    ("DELETE", "/admin/v1/zones/{id}", "admin", None),
    ("GET", "/admin/v1/zones/{id}/minutes", "viewer", None),
    ("GET", "/admin/v1/zones/{id}/stats", "viewer", None),
    ("POST", "/admin/v1/zones/{id}/leave", "operator", Some(r#"{"jti":"Z/00000001/1"}"#)),
    ("GET", "/admin/v1/zones/{id}/events", "viewer", None),
    ("GET", "/admin/v1/zones/{id}/events/{event}/report", "viewer", None),
    ("GET", "/admin/v1/zones/{id}/draws/{event}", "viewer", None),
    ("POST", "/admin/v1/zones/{id}/draws/{event}", "operator", Some(r#"{"missing":true}"#)),
    ("GET", "/admin/v1/zones/{id}/stock", "viewer", None),
    ("PUT", "/admin/v1/zones/{id}/stock", "operator", Some(r#"{"tiers":[]}"#)),
    ("PATCH", "/admin/v1/zones/{id}/stock", "operator", Some(r#"{"remaining":{}}"#)),
    ("GET", "/admin/v1/changes", "viewer", None),
    ("GET", "/admin/v1/events/past", "viewer", None),
    ("GET", "/admin/v1/routes", "viewer", None),
    ("PUT", "/admin/v1/routes", "operator", Some(r#"{"routes":[]}"#)),
    ("POST", "/admin/v1/routes/explain", "viewer", Some(r#"{"url":"https://shop.example/"}"#)),
    ("GET", "/admin/v1/servers", "viewer", None),
    ("PUT", "/admin/v1/drain", "admin", Some(r#"{"draining":false}"#)),
    (STREAM.0, STREAM.1, "viewer", None),
];

/// The endpoint whose reply does not end.
const STREAM: (&str, &str) = ("GET", "/admin/v1/events");

/// The endpoints that need no token: health, metrics, the document, and the files of the console.
const OPEN: &[&str] = &[
    "/admin",
    "/admin/",
    "/admin/assets/console.css",
    "/admin/assets/console.js",
    "/admin/assets/icon.svg",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/readyz",
];

/// Calls every route with every role. No token appears in a log.
pub(crate) fn roles_and_routes() {
    let tokens: Vec<(String, String)> =
        ROLES.iter().map(|role| new_token(&format!("{role}@x"), role)).collect();
    let of_shop = new_token("shop@x", "shop");
    let lines: String = tokens.iter().chain([&of_shop]).map(|(_, lines)| lines.as_str()).collect();
    let weir = Setup::new(&format!(
        "log = \"debug\"\nadmin_hosts = [\"weir.example\"]\n{lines}{}",
        zone("Z", 60, "")
    ))
    .start();
    let forged = format!("weir_{}", "A".repeat(43));
    let shop = format!("Bearer {}", of_shop.0);
    for (method, route, needed, body) in ROUTES {
        let is_change = *method != "GET" && route.contains("zones");
        let path = route.replace("{id}", "Z").replace("{event}", "sale")
            + if is_change { "?dry_run=true" } else { "" };
        for token in [None, Some(&forged)] {
            let bearer = token.map(|token| format!("Bearer {token}"));
            let headers: Vec<_> = bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
            let reply = weir.admin_ask(method, &path, &headers, *body);
            assert_eq!((reply.status, reply.problem().as_str()), (401, "unauthorized"), "{method} {route}");
        }
        // A shop's programs may do one thing.
        let by_shop = weir.admin_ask(method, &path, &[("Authorization", &shop), ("If-Match", "*")], *body);
        let allowed = if route.ends_with("/stock") { 200 } else { 403 };
        assert_eq!(by_shop.status, allowed, "shop {method} {route}: {by_shop:?}");
        let needed = ROLES.iter().position(|role| role == needed).expect("a role");
        for (had, (token, _)) in tokens.iter().enumerate() {
            let bearer = format!("Bearer {token}");
            let headers = [("Authorization", bearer.as_str()), ("If-Match", "*")];
            let reply = weir.admin_ask(method, &path, &headers, *body);
            let what = format!("{} {method} {route}: {reply:?}", ROLES[had]);
            if had < needed {
                assert_eq!((reply.status, reply.problem().as_str()), (403, "forbidden"), "{what}");
            } else {
                // No such entry is inside, and the zone has no event.
                let allowed = match route.rsplit('/').next() {
                    Some("leave") => 409,
                    Some("{event}" | "report") => 404,
                    // It needs two instants.
                    Some("minutes") => 400,
                    _ => 200,
                };
                assert_eq!(reply.status, allowed, "{what}");
            }
            let from_elsewhere = [headers[0], headers[1], ("Origin", "http://evil.example")];
            let reply = weir.admin_ask(method, &path, &from_elsewhere, *body);
            assert_eq!((reply.status, reply.problem().as_str()), (403, "foreign_origin"), "{what}");
            let by_another_name = [headers[0], headers[1], ("Host", "evil.example")];
            let reply = weir.admin_ask(method, &path, &by_another_name, *body);
            assert_eq!((reply.status, reply.problem().as_str()), (421, "foreign_host"), "{what}");
        }
    }
    let bearer = format!("Bearer {}", tokens[1].0);
    let own =
        [("Authorization", bearer.as_str()), ("Host", "weir.example"), ("Origin", "https://weir.example")];
    let me = weir.admin_ask("GET", "/admin/v1/whoami", &own, None).json();
    assert_eq!(
        (&me["name"], &me["role"], &me["authenticated"]),
        (&"operator@x".into(), &"operator".into(), &true.into())
    );

    let document = weir.admin_get("/openapi.json");
    assert_eq!(document.header("content-type"), Some("application/json"));
    let document = document.json();
    let paths = document["paths"].as_object().expect("paths").iter();
    let documented: BTreeSet<(String, String)> = paths
        .flat_map(|(path, item)| {
            item.as_object().expect("methods").keys().map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    let tested: BTreeSet<_> =
        ROUTES.iter().map(|(m, route, ..)| ((*m).to_owned(), (*route).to_owned())).collect();
    assert_eq!(documented, tested, "the document describes what this test asks");

    // The router is made of this list, so a route that is missing here cannot be served.
    let (guarded, open): (Vec<_>, Vec<_>) =
        server::http::admin::listed().into_iter().partition(|listed| listed.role.is_some());
    let guarded: BTreeSet<_> =
        guarded.into_iter().map(|listed| (listed.method, listed.path, listed.role)).collect();
    let with_roles: BTreeSet<_> = ROUTES
        .iter()
        .map(|(method, route, role, _)| ((*method).to_owned(), (*route).to_owned(), Some(*role)))
        .collect();
    assert_eq!(guarded, with_roles, "the router's endpoints that need a role are those that this test asks");
    let open: BTreeSet<_> =
        open.iter().map(|listed| (listed.method.as_str(), listed.path.as_str())).collect();
    assert_eq!(
        open,
        OPEN.iter().map(|path| ("GET", *path)).collect(),
        "no other endpoint is open to everybody"
    );
    for path in OPEN {
        assert_eq!(weir.admin_ask("GET", path, &[], None).status, 200, "{path} needs no token");
        // Scrapers and probes use any name. The console is the API's page, and has the names that the API has.
        let foreign = weir.admin_ask("GET", path, &[("Host", "evil.example")], None);
        let is_console = path.starts_with("/admin");
        assert_eq!(foreign.status, if is_console { 421 } else { 200 }, "{path} under a foreign name");
        assert!(!is_console || foreign.problem() == "foreign_host", "{foreign:?}");
    }

    // A reload removes a token that is no longer in the file.
    weir.setup().write_config(&format!("{}{}", tokens[0].1, zone("Z", 60, "")));
    weir.signal(Signal::HUP);
    eventually("the operator's token is not known any more", || {
        (weir.admin_ask("GET", "/admin/v1/whoami", &[own[0]], None).status == 401).then_some(())
    });
    weir.logs("unauthorized");
    let said = [weir.stdout(), weir.log()].concat();
    for (token, _) in &tokens {
        assert!(!said.contains(&token[5..]), "a token appears in the log");
    }
    assert!(!said.contains(&forged), "a forged token appears in the log");
}

/// Of rival changes one succeeds and the others get 412. A dry run changes nothing. Each change is recorded with its
/// author and can be undone, and it takes effect on the line.
pub(crate) fn changes_are_made_once_and_written_down() {
    let setup = Setup::new(&zone("Z", 60, "mode = \"hold\"\n[zone.notice]\nen = \"Soon.\""));
    let audit = setup.dir().join("audit");
    let weir = setup.arg("--audit-dir").arg(&audit).start();
    let waiting = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
    assert_eq!(waiting.waiting().reason.as_deref(), Some("held"));
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>| {
        weir.admin_ask(method, &format!("/admin/v1/zones{path}"), headers, body)
    };

    let zone = ask("GET", "/Z", &[], None);
    let first = tag(&zone);
    let shown = zone.json();
    assert_eq!(
        (&shown["id"], &shown["policy"]["mode"], &shown["notice"]["en"]),
        (&"Z".into(), &"hold".into(), &"Soon.".into())
    );
    assert_eq!(format!("\"{}\"", shown["etag"].as_str().expect("a tag")), first);
    eventually("who waits is shown", || {
        (ask("GET", "/Z", &[], None).json()["now"]["waiting"] == 1).then_some(())
    });
    assert_eq!(ask("GET", "/Z", &[], None).json()["now"]["eta_s"], Value::Null, "nobody is admitted");

    // A dry run shows the result and changes nothing.
    let open = r#"{"policy":{"mode":"auto"},"notice":{"ko":"곧"}}"#;
    for (method, body) in [("PATCH", Some(open)), ("PUT", Some(r#"{"policy":{}}"#)), ("DELETE", None)] {
        let would = ask(method, "/Z?dry_run=true", &[("If-Match", &first)], body);
        let change = would.json();
        assert_eq!(
            (would.status, &change["dry_run"], would.header("etag")),
            (200, &true.into(), None),
            "{would:?}"
        );
        assert_eq!(change["before"]["policy"]["mode"], "hold");
        let last = change["etas"].as_array().expect("waits").last().expect("who joins now").clone();
        assert_eq!(
            (&last["place"], &last["rank"], &last["before_s"]),
            (&"last".into(), &2.into(), &Value::Null)
        );
        assert_eq!(last["after_s"].is_u64(), method != "DELETE", "{change}");
        assert_eq!(change["zone"].is_null(), method == "DELETE");
    }
    let would = ask("POST", "?dry_run=true", &[], Some(r#"{"id":"NEW"}"#));
    assert_eq!((would.status, &would.json()["zone"]["id"]), (200, &"NEW".into()));
    assert_eq!(ask("GET", "/NEW", &[], None).status, 404);
    assert_eq!(tag(&ask("GET", "/Z", &[], None)), first);
    let changes = || {
        weir.admin_ask("GET", "/admin/v1/changes", &[], None).json()["changes"]
            .as_array()
            .expect("a list")
            .clone()
    };
    assert_eq!(changes(), [Value::Null; 0], "nothing was changed");

    // Several rivals change the same zone at once.
    const RIVALS: u32 = 8;
    let together = Barrier::new(RIVALS as usize);
    let replies: Vec<Reply> = thread::scope(|scope| {
        let rivals: Vec<_> = (1..=RIVALS)
            .map(|n| {
                let (together, first, ask) = (&together, &first, &ask);
                scope.spawn(move || {
                    together.wait();
                    let body = format!(r#"{{"policy":{{"admit_per_minute":{n}}}}}"#);
                    ask("PATCH", "/Z", &[("If-Match", first)], Some(&body))
                })
            })
            .collect();
        rivals.into_iter().map(|rival| rival.join().expect("it asks")).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    let [won] = won[..] else { panic!("exactly one wins: {replies:?}") };
    let second = tag(won);
    for lost in lost {
        assert_eq!((lost.status, lost.problem().as_str()), (412, "changed_meanwhile"));
        assert_eq!(lost.json()["zone"]["policy"], won.json()["zone"]["policy"], "as it is now");
    }

    // The zone is opened. Putting back the previous definition undoes it.
    let change = ask("PATCH", "/Z", &[("If-Match", &second)], Some(open));
    let third = tag(&change);
    let before = change.json()["before"].clone();
    assert_eq!((&before["policy"]["mode"], &before["notice"]), (&"hold".into(), &json!({"en": "Soon."})));
    assert_eq!(change.json()["zone"]["notice"], json!({"en": "Soon.", "ko": "곧"}));
    let entered = || Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&waiting.token)))).can_enter;
    eventually("the waiting user enters", || entered().then_some(()));
    let undone = ask("PUT", "/Z", &[("If-Match", &third)], Some(&before.to_string()));
    assert_eq!(tag(&undone), second, "as it was");

    let made = ask(
        "POST",
        "",
        &[],
        Some(r#"{"id":"shop:new","policy":{"admit_per_minute":7},"notice":{"en":"New."}}"#),
    );
    assert_eq!((made.status, made.header("location")), (201, Some("/admin/v1/zones/shop:new")));
    assert_eq!(tag(&ask("GET", "/shop:new", &[], None)), tag(&made));
    assert!(Answer::of(&weir.post("/traffic/wait", &body("shop:new", None))).can_enter, "it is in force");
    let gone = ask("DELETE", "/shop:new", &[("If-Match", &tag(&made))], None);
    assert_eq!((gone.status, &gone.json()["zone"]), (200, &Value::Null));
    assert_eq!(weir.post("/traffic/wait", &body("shop:new", None)).problem(), "unknown_zone");

    let zones: Vec<_> =
        changes().iter().map(|c| (c["zone"].clone(), c["who"].clone(), c["role"].clone())).collect();
    let by = |zone: &str| (Value::from(zone), Value::from("local"), Value::from("admin"));
    assert_eq!(
        zones,
        [by("shop:new"), by("shop:new"), by("Z"), by("Z"), by("Z")],
        "the newest first, each once"
    );
    let of_one = weir.admin_ask("GET", "/admin/v1/changes?zone=shop:new", &[], None).json();
    assert_eq!(of_one["changes"].as_array().map(Vec::len), Some(2));
    assert_eq!(of_one["changes"][0]["after"], Value::Null);
    // A change of the file has no author.
    weir.setup().write_config(&crate::weir::zone("Z", 61, ""));
    weir.signal(Signal::HUP);
    eventually("a change of the file is seen", || {
        (changes()[0]["who"].is_null() && changes()[0]["zone"] == "Z").then_some(())
    });
    assert_eq!((&changes()[0]["made"], &changes()[1]["made"]), (&"file".into(), &"here".into()));

    let written = eventually("all changes are in the audit log", || {
        let text = fs::read_to_string(audit.join("audit-0000000001.jsonl")).ok()?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let changes: Vec<_> = lines.filter(|line| line["event"] == "change").collect();
        (changes.len() == 5).then_some(changes)
    });
    // The log says events only where there are any, as older versions wrote it.
    let mut before = before.clone();
    assert_eq!(
        before.as_object_mut().and_then(|fields| fields.remove("events")),
        Some(Value::Array(Vec::new()))
    );
    assert_eq!(
        (&written[1]["zone"], &written[1]["before"], &written[1]["after"]["policy"]["mode"]),
        (&"Z".into(), &before, &"auto".into())
    );
    assert!(
        written[1].to_string().contains("local") && written[1].to_string().contains("127.0.0.1"),
        "{}",
        written[1]
    );
    assert_eq!(written[3]["before"], Value::Null);
    assert_eq!(written[4]["after"], Value::Null);
}

/// An operator drains a server and puts it back into service. A stop still stops it.
pub(crate) fn a_drained_server_is_not_ready_and_can_come_back() {
    let mut weir = Setup::zone(60, "").start();
    let mut before = weir.connect();
    let token = Answer::of(&before.post("/traffic/wait", &body("Z", None)).expect("a reply")).token;
    let drain = |draining: bool| {
        let body = json!({"draining": draining}).to_string();
        let reply = weir.admin_ask("PUT", "/admin/v1/drain", &[], Some(&body));
        assert_eq!((reply.status, reply.json()), (200, json!({"draining": draining})));
    };
    let here = || weir.admin_ask("GET", "/admin/v1/servers", &[], None).json()["servers"][0].clone();
    let stream = format!("/traffic/stream?zone=Z&token={token}");
    drain(true);
    assert_eq!(
        (&here()["draining"], &here()["here"], &here()["zones"]),
        (&true.into(), &true.into(), &1.into())
    );
    for reply in [weir.get("/readyz"), weir.admin_get("/readyz"), weir.get(&stream)] {
        assert_eq!((reply.status, reply.problem().as_str()), (503, "stopping"));
    }
    assert_eq!(weir.get("/healthz").status, 200);
    assert!(
        Answer::of(&weir.post("/traffic/wait", &body("Z", None))).can_enter,
        "a user who asks anyway is served"
    );
    let watching = Client::connect(weir.admin).and_then(|mut client| {
        client.send("GET /admin/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        client.head()
    });
    assert_eq!(watching.expect("a head").status, 200, "the operator who drained it can still watch");
    drain(false);
    assert_eq!((weir.get("/readyz").status, &here()["draining"]), (200, &false.into()));
    drain(true);
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
}

/// The statistics of minutes and waits match what happened.
pub(crate) fn statistics_are_of_what_happened() {
    let weir = Setup::new(&(zone("Z", 5, "sub_windows = 1") + &zone("IDLE", 5, ""))).start();
    let mut waiting = Vec::new();
    for n in 0..8 {
        let answer = Answer::of(&weir.post("/traffic/wait", &body("Z", None)));
        assert_eq!(answer.can_enter, n < 5);
        if n >= 5 {
            waiting.push(answer.token);
        }
    }
    let ask = |path: &str| {
        let reply = weir.admin_ask("GET", path, &[], None);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let sum = |stats: &Value, name: &str| -> u64 {
        stats["minutes"]
            .as_array()
            .expect("minutes")
            .iter()
            .map(|minute| minute[name].as_u64().expect("a number"))
            .sum()
    };
    let stats = eventually("everybody is counted", || {
        let stats = ask("/admin/v1/zones/Z/stats?minutes=5");
        (sum(&stats, "joined") == 8 && sum(&stats, "entered") == 5).then_some(stats)
    });
    let last = stats["minutes"].as_array().expect("minutes").last().expect("the current one").clone();
    assert_eq!((&last["waiting"], &last["admit_per_minute"]), (&3.into(), &5.into()));
    assert_eq!(last["at"].as_u64().expect("an instant") % 60, 0);
    let here = &stats["here"];
    assert_eq!(
        (&here["waits_s"]["count"], &here["waits_s"]["p50"]),
        (&5.into(), &0.0.into()),
        "they were in at once"
    );
    assert_eq!((&here["told_ratio"]["count"], &here["told_ratio"]["p50"]), (&0.into(), &Value::Null));
    assert_eq!(
        (&here["told_last_hour"]["count"], &here["told_last_hour"]["in_range"]),
        (&0.into(), &Value::Null)
    );
    let zones = ask("/admin/v1/zones?trend=3");
    let [idle, busy] = &zones["zones"].as_array().expect("a list")[..] else { panic!("two zones: {zones}") };
    assert_eq!(
        (&idle["id"], &idle["now"]["entered_last_minute"], &idle["now"]["eta_s"]),
        (&"IDLE".into(), &0.into(), &0.into())
    );
    assert_eq!((&busy["id"], &busy["now"]["entered_last_minute"]), (&"Z".into(), &5.into()));
    // An entry slides out one millisecond after its minute, and a part of a second is told as a whole one.
    assert!(
        (50..=61).contains(&busy["now"]["eta_s"].as_u64().expect("known")),
        "until the five slide out: {busy}"
    );
    assert!(busy["trend"].as_array().is_some_and(|trend| (1..=3).contains(&trend.len())), "{busy}");
    assert_eq!(ask("/admin/v1/zones")["zones"][0]["trend"], Value::Null);
    let whom = ask("/admin/v1/whoami");
    assert_eq!(
        (&whom["name"], &whom["role"], &whom["authenticated"]),
        (&"local".into(), &"admin".into(), &false.into())
    );
    assert_eq!(whom["server"], ask("/admin/v1/servers")["servers"][0]["name"]);
    assert_eq!(ask("/admin/v1/servers")["cells"][0]["up"], true);
    // Three people were told about a minute. The rate rises, and they enter long before.
    let faster = Some(r#"{"policy":{"admit_per_minute":600}}"#);
    assert_eq!(weir.admin_ask("PATCH", "/admin/v1/zones/Z", &[("If-Match", "*")], faster).status, 200);
    for token in waiting {
        eventually("the rate is in force", || {
            Answer::of(&weir.post("/traffic/entry", &body("Z", Some(&token)))).can_enter.then_some(())
        });
    }
    let told = eventually("they are counted", || {
        let told = ask("/admin/v1/zones/Z/stats?minutes=5")["here"]["told_last_hour"].clone();
        (told["count"] == 3).then_some(told)
    });
    let number = |name: &str| told[name].as_f64().expect("a number");
    assert!((-60.0..-20.0).contains(&number("bias_s")), "told too long: {told}");
    assert_eq!((number("error_s"), number("in_range")), (-number("bias_s"), 0.0), "{told}");
    assert!(number("error_share") > 1.0 && number("range_s") > 0.0, "{told}");
}

/// The command line makes the same changes. In a pipe it prints plain lines, it reads the token from a variable or
/// file, and each kind of failure has its exit code.
pub(crate) fn the_command_line_asks_the_server() {
    let (token, lines) = new_token("otto", "operator");
    let server = Setup::new(&(lines + &zone("Z", 60, ""))).start();
    let file = server.setup().dir().join("token");
    fs::write(&file, format!("{token}\n")).expect("our own directory");
    let file = file.to_str().expect("a plain path");
    let run = |args: &[&str]| weir(&[args, &["--token-file", file]].concat(), Some(&server));
    let (code, _, complaint) = run(&["zones", "list"]);
    assert_eq!(code, Some(64), "others may read it");
    assert!(complaint.contains(&format!("run: {} '{file}'", remedy())), "{complaint}");
    let unread = weir(&["zones", "list", "--token-file", "/nosuch"], Some(&server));
    assert!(unread.2.starts_with("weir: --token-file /nosuch: cannot be read: "), "{}", unread.2);
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("our own file");
    let good = |args: &[&str]| {
        let (code, said, complaint) = run(args);
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{args:?}");
        assert!(!said.contains('\x1b'), "no colours in a pipe: {said:?}");
        said
    };
    // The server has just started, and says of how many seconds its entries are.
    let listed = good(&["zones", "list"]);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    let [heading, z] = &lines[..] else { panic!("two lines: {listed}") };
    let away = ["AWAY SINCE (UTC)", "CAUSE", "WHY"];
    assert_eq!(heading[..7], ["ZONE", "MODE", "A MINUTE", "WAITING", "ENTERED", "WAIT", "STATE"]);
    assert_eq!((&heading[7..], &z[6..]), (&away[..], &["ok", "-", "-", "-"][..]));
    assert_eq!((&z[..4], z[5]), (&["Z", "auto", "60", "0"][..], "0 s"));
    assert!(z[4].starts_with("0 in ") && z[4].ends_with(" s"), "{listed}");
    let would = good(&["zones", "set", "Z", "admit_per_minute=30", "notice.en=Soon.", "--dry-run"]);
    assert_eq!(
        would,
        "Z would be changed:\n- admit_per_minute = 60\n+ admit_per_minute = 30\n+ notice.en = Soon.\n\
         wait of a newcomer (rank 1): 0 s -> 0 s\n"
    );
    assert!(good(&["zones", "show", "Z"]).contains("\nadmit_per_minute = 60\n"));
    assert!(good(&["zones", "set", "Z", "admit_per_minute=30"]).starts_with("Z was changed:\n"));
    assert!(good(&["zones", "show", "Z"]).contains("\nadmit_per_minute = 30\n"));
    let stats = good(&["stats"]);
    assert!(
        stats.contains("\nZ\tauto\t0\t0\t0 in ") && stats.contains(" s\t30\t0 s\tok\t\t-\t-\t-\n"),
        "{stats}"
    );
    let changes = good(&["changes", "Z"]);
    assert!(changes.contains("\totto\toperator\tZ\tadmit_per_minute 60 -> 30\n"), "{changes}");
    assert!(good(&["servers"]).contains("\tok, asked\t"));
    assert!(good(&["zones", "set", "Z", "mode=hold"]).starts_with("Z was changed:\n"));
    eventually("the metrics have the mode", || {
        let text = String::from_utf8(server.admin_get("/metrics").body.clone()).expect("UTF-8");
        let has = |mode: &str, shown: u8| {
            text.lines().any(|line| line == format!("weir_zone_mode{{mode=\"{mode}\",zone=\"Z\"}} {shown}"))
        };
        let modes = [("auto", 0), ("hold", 1), ("open", 0), ("closed", 0)];
        modes.iter().all(|(mode, shown)| has(mode, *shown)).then_some(())
    });
    assert!(good(&["zones", "set", "Z", "mode=auto"]).starts_with("Z was changed:\n"));
    // Nobody enters in the first minute of a limit, because nobody knows who is inside.
    let limited = good(&["zones", "set", "Z", "max_active=5", "--dry-run"]);
    assert!(limited.contains("\nwait of a newcomer (rank 1): 0 s -> 1 min"), "{limited}");
    let tight = ["zones", "set", "Z", "max_active=1", "entries_per_minute_per_client=20", "--dry-run"];
    assert!(
        good(&tight).contains("\nwarning: entries_per_minute_per_client = 20 is too low with max_active = 1")
    );
    let json = |args: &[&str]| {
        let said = good(&[args, &["-o", "json"]].concat());
        assert_eq!(said.lines().count(), 1, "{said}");
        serde_json::from_str::<serde_json::Value>(&said).expect("JSON")
    };
    assert_eq!(json(&["zones", "show", "Z"])["policy"]["admit_per_minute"], 30);
    assert_eq!(json(&["changes"])["changes"][0]["who"], "otto");
    assert_eq!(json(&["servers"])["servers"][0]["here"], true);
    assert!(good(&["stats", "Z"]).contains(" UTC: 0; waits in seconds"));

    let bad = |args: &[&str]| {
        let (code, said, complaint) = run(args);
        assert_eq!((said.as_str(), complaint.lines().count()), ("", 1), "{args:?}: {complaint}");
        assert!(!complaint.contains(&token));
        (code, complaint)
    };
    assert_eq!(bad(&["zones", "show", "NOWHERE"]).0, Some(65));
    let (code, complaint) = bad(&["changes", "NOWHERE"]);
    assert!(code == Some(65) && complaint.contains("`NOWHERE` is no zone"), "{complaint}");
    let mut empty = Command::new(binary());
    let empty = without_variables(&mut empty).args(["zones", "list"]).env("WEIR_ADMIN_TOKEN", "").output();
    let empty = empty.expect("the binary runs");
    let complaint = String::from_utf8_lossy(&empty.stderr).into_owned();
    assert!(empty.status.code() == Some(64) && complaint.contains("the token is empty"), "{complaint}");
    let (code, complaint) = bad(&["zones", "set", "Z", "admit_per_minute=0"]);
    assert!(code == Some(65) && complaint.contains("1 to 600000"), "{complaint}");
    let sale = ["event.sale.prequeue_from=soon", "event.sale.begins=5", "event.sale.ends=5"];
    let (code, complaint) = bad(&[&["zones", "set", "Z"], &sale[..]].concat());
    assert!(
        code == Some(65) && complaint.contains("`events.sale.prequeue_from`: \"soon\" is not"),
        "{complaint}"
    );
    let (code, complaint) = bad(&["zones", "set", "Z", sale[1]]);
    assert!(
        code == Some(64) && complaint.contains("the zone has no event sale, and no other one"),
        "{complaint}"
    );
    let (code, complaint) = bad(&["drain"]);
    assert!(code == Some(77) && complaint.contains("the role admin"), "{complaint}");
    let (code, complaint) = bad(&["zones", "delete", "Z"]);
    assert!(code == Some(77) && complaint.contains("the role admin"), "{complaint}");
    assert_eq!(weir(&["zones", "list"], Some(&server)).0, Some(77), "no token");
    let nobody = weir(&["zones", "list", "--admin", "http://127.0.0.1:1"], None);
    assert!(nobody.0 == Some(69) && nobody.2.contains("--admin names another"), "{nobody:?}");
    for api in ["public", "admin"] {
        let (_, printed, _) = weir(&["openapi", api], None);
        let kept = fs::read_to_string(format!("{}/../docs/openapi-{api}.json", env!("CARGO_MANIFEST_DIR")));
        assert!(kept.is_ok_and(|kept| kept == printed), "docs/openapi-{api}.json is what is printed");
    }
}

/// Whoever tries tokens is in the log, once however often, and the tokens are not.
pub(crate) fn refused_tokens_are_in_the_log() {
    let (token, lines) = new_token("ada", "admin");
    let server = Setup::new(&(lines + &zone("Z", 60, ""))).start();
    let wrong = format!("{token}x");
    for path in ["/admin/v1/events", "/admin/v1/zones", "/admin/v1/whoami"] {
        let header = format!("Bearer {wrong}");
        let reply = server.admin_ask("GET", path, &[("Authorization", &header)], None);
        assert_eq!((reply.status, reply.problem().as_str()), (401, "unauthorized"), "{path}");
    }
    let line = |log: &str| {
        log.lines().find(|line| line.contains("a request to the admin API was refused")).map(str::to_owned)
    };
    let line = eventually("the log says so", || line(&server.log()));
    for part in ["WARN", "from=127.0.0.1", "unauthorized"] {
        assert!(line.contains(part), "{line}");
    }
    let log = server.log();
    assert!(!log.contains(&wrong) && log.matches("was refused").count() == 1, "{log}");
}

/// Beyond the loopback interface a token is always required.
pub(crate) fn no_open_door_beyond_the_loopback() {
    let open = "admin_listen = \"0.0.0.0:0\"\n";
    let setup = Setup::new(&format!("{open}{}", zone("Z", 60, ""))).shell("unset WEIR_ADMIN_LISTEN;");
    let ended = setup.fail();
    assert_eq!(ended.status.code(), Some(64), "{}", ended.log);
    assert!(ended.log.lines().count() == 1 && ended.log.contains("weir token new"), "{}", ended.log);
    let (token, lines) = new_token("ada", "admin");
    setup.write_config(&format!("{open}{lines}{}", zone("Z", 60, "")));
    let weir = setup.start();
    let port = weir.admin.port();
    let ask = |headers: &[(&str, &str)]| {
        let mut client = Client::connect(([127, 0, 0, 1], port).into()).expect("accepted");
        client.ask("GET", "/admin/v1/whoami", headers, None).expect("a reply").status
    };
    let bearer = format!("Bearer {token}");
    assert_eq!([ask(&[]), ask(&[("Authorization", &bearer)])], [401, 200]);
    // A reload with an admin listener elsewhere does not open it either.
    weir.setup().write_config(&zone("Z", 60, ""));
    let before = weir.log().len();
    weir.signal(Signal::HUP);
    eventually("the file was read again", || weir.log()[before..].contains("was read").then_some(()));
    assert_eq!([ask(&[]), ask(&[("Authorization", &bearer)])], [401, 401]);
}

/// Whoever withdraws the last token does not open the API to the machine.
pub(crate) fn the_last_token_is_withdrawn() {
    let ((token, lines), (newer, newer_lines)) = (new_token("ada", "admin"), new_token("otto", "viewer"));
    let weir = Setup::new(&(lines + &zone("Z", 60, ""))).start();
    let ask = |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &[("Authorization", &bearer)] };
        weir.admin_ask("GET", "/admin/v1/whoami", headers, None).status
    };
    let reload = |config: &str| {
        weir.setup().write_config(config);
        let before = weir.log().len();
        weir.signal(Signal::HUP);
        eventually("the file was read again", || {
            weir.log()[before..].contains("was read again").then_some(())
        });
        weir.log()[before..].to_owned()
    };
    assert_eq!([ask(""), ask(&token)], [401, 200]);
    for _ in 0..2 {
        let log = reload(&zone("Z", 60, ""));
        let said = "the configuration has no [[admin_token]] any more: the admin API refuses everybody";
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(said)), "{log}");
        assert_eq!([ask(""), ask(&token)], [401, 401]);
    }
    let log = reload(&(newer_lines + &zone("Z", 60, "")));
    assert!(!log.contains("admin_token"), "{log}");
    assert_eq!([ask(""), ask(&token), ask(&newer)], [401, 401, 200]);
}

/// Without tokens, requests that came through a proxy are refused on every route of the API. A token that is added later
/// makes the proxy usable.
pub(crate) fn a_proxy_makes_nobody_admin() {
    let weir = Setup::new(&zone("Z", 60, "")).start();
    // What nginx sends for a bare `proxy_pass`.
    let by_nginx = |path: &str, more: &str| {
        let mut client = Client::connect(weir.admin).expect("accepted");
        let (address, head) = (weir.admin, format!("GET {path} HTTP/1.0"));
        client.send(format!("{head}\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n")).expect("taken");
        client.reply().expect("a reply")
    };
    for (method, route, _, body) in ROUTES {
        let path = route.replace("{id}", "Z");
        for header in
            ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
        {
            let reply = weir.admin_ask(method, &path, &[(header, "203.0.113.9"), ("If-Match", "*")], *body);
            assert_eq!(
                (reply.status, reply.problem().as_str()),
                (403, "proxied"),
                "{header}: {method} {route}"
            );
            assert!(reply.json()["detail"].as_str().is_some_and(|text| text.contains("weir token new")));
        }
        if *method == "GET" {
            let reply = by_nginx(&path, "");
            assert_eq!((reply.status, reply.problem().as_str()), (403, "proxied"), "{route}");
        }
    }
    assert_eq!(weir.admin_get("/metrics").status, 200);
    assert_eq!(weir.admin_ask("GET", "/admin/v1/whoami", &[], None).json()["role"], "admin");

    let (token, lines) = new_token("ada", "admin");
    weir.setup().write_config(&format!("{lines}{}", zone("Z", 60, "")));
    weir.signal(Signal::HUP);
    eventually("the file was read again", || weir.log().contains("was read").then_some(()));
    assert_eq!(by_nginx("/admin/v1/whoami", "").status, 401);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(by_nginx("/admin/v1/whoami", &bearer).json()["name"], "ada");
}

/// 500 connections without a token, idle or slow, and some that go on asking, keep neither a new operator out nor cut
/// off one who is there.
pub(crate) fn strangers_keep_no_operator_out() {
    const STRANGERS: usize = 500;
    let (token, lines) = new_token("ada", "admin");
    let weir = Setup::new(&format!("{lines}{}", zone("Z", 60, ""))).start();
    let bearer = format!("Bearer {token}");
    let whoami = |client: &mut Client| {
        client.ask("GET", "/admin/v1/whoami", &[("Authorization", &bearer)], None).map(|reply| reply.status)
    };
    let connect = || Client::connect(weir.admin).expect("accepted");
    let mut present = connect();
    assert_eq!(whoami(&mut present).expect("a reply"), 200);
    let mut stream = connect();
    let subscribe =
        format!("GET /admin/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\n\r\n");
    stream.send(subscribe).expect("taken");
    assert_eq!(stream.head().expect("a stream").status, 200);

    let mut strangers = Vec::new();
    for n in 0..STRANGERS {
        let mut one = connect();
        match n % 4 {
            0 => {}
            1 => drop(one.send("GET /admin/v1/zones HTTP/1.1\r\nHo")),
            2 => drop(
                one.send("POST /admin/v1/zones HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"),
            ),
            _ => drop(one.get("/metrics")),
        }
        strangers.push(one);
        if n % 50 == 0 {
            assert_eq!(whoami(&mut connect()).expect("a new operator gets a reply"), 200, "after {n}");
        }
    }
    for _ in 0..20 {
        assert_eq!(whoami(&mut connect()).expect("a new operator gets a reply"), 200);
    }
    assert_eq!(whoami(&mut present).expect("the operator who is there keeps the connection"), 200);
    assert!(stream.block().is_ok(), "the stream goes on");
    // Those that got no place to stay are closed.
    assert!(strangers.iter_mut().all(Client::ends));
    assert_eq!(whoami(&mut present).expect("still there"), 200);
}

/// A viewer who opens as many streams as there are connections, and then as many connections that ask again and again, keeps
/// neither an admin nor a probe out.
pub(crate) fn viewers_keep_no_admin_out() {
    const CONNECTIONS: usize = 64;
    let ((viewer, of_viewer), (admin, of_admin)) = (new_token("vic", "viewer"), new_token("ada", "admin"));
    let weir = Setup::new(&format!("{of_viewer}{of_admin}{}", zone("Z", 60, ""))).start();
    let connect = || Client::connect(weir.admin).expect("accepted");
    let whoami = |client: &mut Client, token: &str| {
        let bearer = format!("Bearer {token}");
        client.ask("GET", "/admin/v1/whoami", &[("Authorization", &bearer)], None).map(|reply| reply.status)
    };
    let nobody_is_out = || {
        assert_eq!(whoami(&mut connect(), &admin).expect("a reply"), 200);
        assert_eq!(["/healthz", "/readyz"].map(|path| weir.admin_get(path).status), [200, 200]);
    };
    let open_stream = || {
        let mut stream = connect();
        let request = "GET /admin/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
        stream.send(format!("{request} {viewer}\r\n\r\n")).expect("taken");
        let head = stream.head().expect("a reply");
        (stream, head)
    };
    let (open, refused): (Vec<_>, Vec<_>) =
        (0..CONNECTIONS).map(|_| open_stream()).partition(|(_, head)| head.status == 200);
    assert_eq!(open.len(), CONNECTIONS / 2);
    for (_, head) in &refused {
        assert_eq!((head.status, head.header("retry-after")), (503, Some("5")));
    }
    drop(refused);
    let bearer = format!("Bearer {viewer}");
    let beyond = weir.admin_ask("GET", "/admin/v1/events", &[("Authorization", &bearer)], None);
    assert_eq!(beyond.problem(), "overloaded");
    assert!(beyond.text().contains("streams of events"), "{beyond:?}");
    nobody_is_out();

    let mut asking: Vec<Client> = Vec::new();
    for _ in 0..2 * CONNECTIONS {
        let mut one = connect();
        assert_eq!(whoami(&mut one, &viewer).expect("a reply"), 200);
        asking.push(one);
    }
    nobody_is_out();
    assert!(asking.iter_mut().any(|one| whoami(one, &viewer).is_err()), "those that do not ask give way");
    nobody_is_out();

    drop(open);
    eventually("a stream that was closed makes room for another", || {
        (open_stream().1.status == 200).then_some(())
    });
}

/// Another server that speaks JSON is not taken for an admin API: a script that holds a zone hears that it did not.
pub(crate) fn another_server_is_not_taken_for_an_admin_api() {
    let commands: [&[&str]; 9] = [
        &["zones", "list"],
        &["zones", "set", "Z", "mode=hold"],
        &["zones", "delete", "Z"],
        &["stock", "set", "Z", "floor=1"],
        &["route", "list"],
        &["stats"],
        &["changes"],
        &["servers"],
        &["drain"],
    ];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let other = thread::spawn(move || {
        let mut is_change = Vec::new();
        for (number, client) in listener.incoming().take(2 * commands.len()).enumerate() {
            let (mut client, mut request) = (client.expect("a client"), [0; 4_096]);
            assert!(client.read(&mut request).is_ok_and(|read| read > 0), "a request");
            if number < commands.len() {
                client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("sent");
            } else {
                is_change.push(!request.starts_with(b"GET "));
            }
        }
        is_change
    });
    for command in commands {
        let (code, said, complaint) = weir(&[command, &["--admin", &url]].concat(), None);
        assert_eq!((code, said.as_str()), (Some(69), ""), "{command:?}");
        assert!(complaint.contains("this is not an admin API"), "{command:?}: {complaint}");
    }
    // The reply is lost. Whoever asked for a change must not take it for undone.
    let complaints = commands.map(|command| {
        let (code, _, complaint) = weir(&[command, &["--admin", &url]].concat(), None);
        assert_eq!(code, Some(69), "{command:?}");
        complaint
    });
    let is_change = other.join().expect("each command asks once");
    assert!(is_change.contains(&true) && is_change.contains(&false));
    for (complaint, is_change) in complaints.iter().zip(is_change) {
        assert_eq!(complaint.contains("the change may have been made"), is_change, "{complaint}");
    }
}

/// Who deletes a zone hears which routes lead there.
pub(crate) fn a_deletion_names_the_routes_that_lead_to_the_zone() {
    let routes = "trusted_proxies = [\"127.0.0.1\"]\n[[route]]\nbypass = true\npath = \"/about\"\n[[route]]\nzone = \"Z\"\n";
    let server = Setup::new(&(routes.to_owned() + &zone("Z", 60, "") + &zone("OTHER", 60, ""))).start();
    for (zone, is_named) in [("Z", true), ("OTHER", false)] {
        for args in [&["--dry-run"][..], &[]] {
            let (code, said, complaint) = weir(&[&["zones", "delete", zone], args].concat(), Some(&server));
            assert_eq!(code, Some(0), "{complaint}");
            assert_eq!(said.contains("warning: route 2 leads to this zone"), is_named, "{said}");
        }
    }
}

/// Who deletes a zone hears of everybody who waits there, also of those who joined a moment ago.
pub(crate) fn a_deletion_says_how_many_wait_now() {
    let server = Setup::new(&zone("Z", 60, "mode = \"hold\"")).start();
    let join = |count: usize| {
        for _ in 0..count {
            assert!(!Answer::of(&server.post("/traffic/wait", &body("Z", None))).can_enter);
        }
    };
    let waits = |waiting: u64, dry_run: &str| {
        let reply =
            server.admin_ask("DELETE", &format!("/admin/v1/zones/Z{dry_run}"), &[("If-Match", "*")], None);
        let told = reply.json();
        let last = told["etas"].as_array().expect("a list").last().expect("the last place").clone();
        assert_eq!(
            (reply.status, &last["place"], &last["rank"]),
            (200, &"last".into(), &(waiting + 1).into()),
            "{told}"
        );
        assert_eq!(told["warnings"], json!([]));
    };
    waits(0, "?dry_run=true");
    for waiting in 1..=3 {
        join(29);
        waits(waiting * 29, "?dry_run=true");
    }
    join(2);
    let (code, said, complaint) = weir(&["zones", "delete", "Z", "--dry-run"], Some(&server));
    assert!(code == Some(0) && said.contains("\n89 people wait in it; "), "{said}{complaint}");
    join(1);
    waits(90, "");
}
