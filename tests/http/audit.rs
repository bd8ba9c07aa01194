//! The audit log contains every pass, and reveals later changes of the log.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    admin::new_token,
    app::{Answer, body},
    clock::eventually,
    passes::jti,
    redis::Standalone,
    weir::{Setup, Weir, binary, zone},
};

const FIRST: &str = "audit-0000000001.jsonl";

/// A server with an audit log, and a zone that admits everybody.
pub(crate) fn audited(config: &str) -> (Weir, PathBuf) {
    let setup = Setup::new(config);
    let log = setup.dir().join("audit");
    (setup.arg("--audit-dir").arg(&log).start(), log)
}

/// Runs `weir audit verify` with these arguments. Returns exit code and output.
pub(crate) fn verify(args: &[&Path]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(binary()).args(["audit", "verify"]).args(args).output().expect("the binary runs");
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

fn passes_verification(log: &Path) -> String {
    let (code, said) = verify(&[log]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains('\x1b'), "no colours in a pipe: {said:?}");
    said
}

/// The lines of an event in the first file of the log.
pub(crate) fn told(log: &Path, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(log.join(FIRST)).expect("there is a log");
    // The last line may be incomplete while the server writes.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let lines = whole.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["event"] == event).collect()
}

/// The ids of the passes in the log, as the passes spell them.
fn entered(log: &Path) -> Vec<String> {
    let name = |line: &Value| {
        let epoch = line["epoch"].as_u64().expect("a number");
        format!("{}/{epoch:08x}/{}", line["zone"].as_str().expect("a name"), line["seq"])
    };
    let mut names: Vec<_> = told(log, "entered").iter().map(name).collect();
    names.sort_unstable();
    names
}

fn wait(weir: &Weir, zone: &str) -> Answer {
    Answer::of(&weir.post("/traffic/wait", &body(zone, None)))
}

/// The log contains each entry once, with the policy at that time. Asking again adds nothing. `weir audit verify`
/// accepts the log, and refuses it after one byte was changed.
pub(crate) fn every_pass_is_in_it_once() {
    let auto = zone("Z", 600, "") + &zone("LINE", 20, "");
    let (weir, log) = audited(&auto);
    let mut names = Vec::new();
    for zone in ["Z", "LINE"] {
        for _ in 0..40 {
            let mut answer = wait(&weir, zone);
            if answer.can_enter {
                // A repeated call, as after a lost reply, returns the same pass.
                answer = Answer::of(&weir.post("/traffic/entry", &body(zone, Some(&answer.token))));
                names.push(jti(answer.pass()));
            }
        }
    }
    // A higher limit lets the rest of the line enter.
    weir.setup().write_config(&auto.replace("\"LINE\"\n", "\"LINE\"\nmode = \"open\"\n"));
    weir.signal(Signal::HUP);
    eventually("the line is open", || {
        let answer = wait(&weir, "LINE");
        answer.can_enter.then(|| names.push(jti(answer.pass())))
    });
    names.push(jti(wait(&weir, "LINE").pass()));
    names.sort_unstable();
    assert_eq!(names.len(), 62);
    eventually("all are in the log", || (entered(&log).len() == names.len()).then_some(()));
    assert_eq!(entered(&log), names);
    let _setup = weir.stop();

    assert_eq!(entered(&log), names, "once, and nothing came with the stop");
    let changes: Vec<_> = told(&log, "policy").into_iter().filter(|line| line["zone"] == "LINE").collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!([&changes[1]["before"]["mode"], &changes[1]["after"]["mode"]], ["auto", "open"]);
    let last = told(&log, "entered").pop().expect("lines");
    assert_eq!((&last["policy"]["mode"], &last["policy"]["admit_per_minute"]), (&"open".into(), &20.into()));

    let said = passes_verification(&log);
    let head = said.trim_end().rsplit(' ').next().expect("a head").to_owned();
    let kept = format!("--head={head}");
    assert_eq!(verify(&[Path::new(&kept), &log]).0, Some(0));
    let file = log.join(FIRST);
    let text = fs::read_to_string(&file).expect("there is a log");
    fs::write(&file, text.replacen("\"mode\":\"auto\"", "\"mode\":\"open\"", 1)).expect("writable");
    let (code, said) = verify(&[&log]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{}:2: edited: ", file.display())), "{said}");
    let cut: Vec<_> = text.lines().take(10).collect();
    fs::write(&file, cut.join("\n") + "\n").expect("writable");
    let (code, said) = verify(&[Path::new(&kept), &log]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{}:10: cut tail: ", file.display())), "{said}");
    let rest: Vec<_> = text.lines().skip(3).collect();
    fs::write(&file, rest.join("\n") + "\n").expect("writable");
    let (code, said) = verify(&[&log]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{}:1: gap: lines 1 to 3 are missing", file.display())), "{said}");
    assert_eq!(verify(&[&log.join("elsewhere")]).0, Some(2));
}

/// After a kill the server continues the chain, and the log shows that the server was not stopped in order.
pub(crate) fn a_killed_server_goes_on_with_it() {
    let (mut weir, log) = audited(&zone("Z", 600, ""));
    for life in 1..=3 {
        let name = jti(wait(&weir, "Z").pass());
        eventually("the pass is in the log", || entered(&log).contains(&name).then_some(()));
        assert_eq!(told(&log, "started").len(), life);
        weir.kill_and_restart();
    }
    let _setup = weir.stop();
    let said = passes_verification(&log);
    assert_eq!(said.matches("did not stop in order").count(), 3, "{said}");
}

/// If the log cannot be opened, the server exits with a line that gives the reason.
pub(crate) fn a_log_that_cannot_be_opened_ends_the_start() {
    let setup = Setup::zone(60, "");
    let log = setup.dir().join("file");
    fs::write(&log, "").expect("writable");
    let setup = setup.arg("--audit-dir").arg(&log);
    let ended = setup.fail();
    assert_eq!(ended.status.code(), Some(73), "{}", ended.log);
    assert!(ended.log.contains("audit") && ended.log.contains("file"), "{}", ended.log);
}

/// The endpoints of the admin API that are not `GET` and change nothing.
const QUESTIONS: &[(&str, &str)] = &[("POST", "/admin/v1/routes/explain")];

/// Each endpoint that changes something: its request, and the event with which the log records it. They are done in this order.
const ACTS: &[(&str, &str, Option<&str>, &str)] = &[
    ("POST", "/admin/v1/zones/{id}/leave", Some("(jti)"), "left"),
    ("POST", "/admin/v1/zones", Some(r#"{"id":"NEW"}"#), "change"),
    ("PATCH", "/admin/v1/zones/{id}", Some(r#"{"policy":{"admit_per_minute":7}}"#), "change"),
    ("PUT", "/admin/v1/zones/{id}", Some(r#"{"policy":{"admit_per_minute":8}}"#), "change"),
    (
        "PUT",
        "/admin/v1/zones/{id}/stock",
        Some(r#"{"tiers":[{"id":"a","label":{"en":"A"},"remaining":1}]}"#),
        "stock",
    ),
    ("PATCH", "/admin/v1/zones/{id}/stock", Some(r#"{"remaining":{"a":0}}"#), "stock"),
    ("PUT", "/admin/v1/routes", Some(r#"{"routes":[{"name":"abuse","deny":true,"path":"/x"}]}"#), "routes"),
    ("PUT", "/admin/v1/drain", Some(r#"{"draining":true}"#), "drain"),
    ("DELETE", "/admin/v1/zones/{id}", None, "change"),
];

/// What the store did not answer may have been done: the log says who wanted what, as if it had been.
pub(crate) fn an_act_that_the_store_did_not_answer_is_in_it() {
    let (token, lines) = new_token("ada", "admin");
    let redis = Standalone::start();
    let store = format!("store = {:?}\ntrusted_proxies = [\"127.0.0.1\"]\n", redis.url());
    let setup = Setup::new(&format!("{store}{lines}\n{}", zone("OTHER", 1, "")));
    let log = setup.dir().join("audit");
    let weir = setup.arg("--audit-dir").arg(&log).start();
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("If-Match", "*")];
    // A zone of the file would admit nobody for a minute.
    let new = r#"{"id":"Z","policy":{"admit_per_minute":600,"max_active":5}}"#;
    assert_eq!(weir.admin_ask("POST", "/admin/v1/zones", &headers, Some(new)).status, 201);
    let entry = eventually("somebody enters", || {
        let reply = weir.post("/traffic/wait", &body("Z", None));
        (reply.status == 200).then(|| Answer::of(&reply)).filter(|answer| answer.can_enter)
    });
    let leaver = format!(r#"{{"jti":"{}"}}"#, jti(entry.pass()));
    redis.stop();
    // A drain asks no store, and only what is there can be sold.
    let acts = ACTS.iter().filter(|(method, path, ..)| {
        !path.ends_with("/drain") && (*method, *path) != ("PATCH", "/admin/v1/zones/{id}/stock")
    });
    let mut wanted = Vec::new();
    for &(method, path, body, event) in acts {
        let body = body.map(|body| if body == "(jti)" { leaver.as_str() } else { body });
        let zone = if body.is_some_and(|body| body.contains("NEW")) { "NEW" } else { "Z" };
        let reply = weir.admin_ask(method, &path.replace("{id}", "Z"), &headers, body);
        assert_eq!((reply.status, reply.problem().as_str()), (503, "store_away"), "{method} {path}");
        let doubt = if event == "left" { "leave again" } else { "may be made nevertheless" };
        assert!(reply.text().contains(doubt), "{method} {path}: {}", reply.text());
        wanted.push((event, Some(zone).filter(|_| event != "routes")));
    }
    let lines = eventually("the orders are in the log", || {
        Some(told(&log, "unanswered")).filter(|lines| lines.len() >= wanted.len())
    });
    let of =
        |line: &Value| (line["order"].as_str().map(str::to_owned), line["zone"].as_str().map(str::to_owned));
    let expected: Vec<_> =
        wanted.iter().map(|(event, zone)| (Some((*event).to_owned()), zone.map(str::to_owned))).collect();
    assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected);
    assert!(lines.iter().all(|line| line["name"] == "ada" && line["role"] == "admin"), "{lines:?}");
    assert_eq!(lines[0]["wanted"], serde_json::from_str::<Value>(&leaver).expect("JSON"));
    assert_eq!(lines.last().expect("some")["wanted"], Value::Null, "the zone was to be deleted");
    redis.cont();
    let _setup = weir.stop();
    passes_verification(&log);
}

/// An endpoint whose act is tried with the draws, because the list of a draw must be frozen first.
const DRAW: (&str, &str) = ("POST", "/admin/v1/zones/{id}/draws/{event}");

/// Every act of an operator is in the log with its author and address. An endpoint that is new must be named here.
pub(crate) fn every_act_of_an_operator_is_in_it() {
    let asked: BTreeSet<_> = ACTS.iter().map(|(method, path, ..)| (*method, *path)).collect();
    let asked = asked.into_iter().chain(QUESTIONS.iter().copied()).chain([DRAW]);
    let listed = server::http::admin::listed();
    let changing: BTreeSet<_> = listed
        .iter()
        .filter(|listed| listed.method != "GET")
        .map(|listed| (listed.method.as_str(), listed.path.as_str()))
        .collect();
    assert_eq!(changing, asked.collect(), "every endpoint that may change something is tried here");

    let (token, lines) = new_token("ada", "admin");
    let config = format!("trusted_proxies = [\"127.0.0.1\"]\n{lines}\n{}", zone("Z", 600, "max_active = 5"));
    let (weir, log) = audited(&config);
    let entry = jti(wait(&weir, "Z").pass());
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("If-Match", "*"), ("X-Forwarded-For", "203.0.113.5")];
    for (method, path, body, event) in ACTS {
        let before = told(&log, event).len();
        let leaver = format!(r#"{{"jti":"{entry}"}}"#);
        let body = body.map(|body| if body == "(jti)" { leaver.as_str() } else { body });
        let path = path.replace("{id}", "Z");
        let reply = weir.admin_ask(method, &path, &headers, body);
        assert!(matches!(reply.status, 200 | 201), "{method} {path}: {reply:?}");
        let line = eventually("the act is in the log", || told(&log, event).get(before).cloned());
        let author = ["name", "role", "from"].map(|field| line[field].as_str().unwrap_or_default());
        assert_eq!(author, ["ada", "admin", "203.0.113.5"], "{method} {path}: {line}");
        match *event {
            "left" => {
                let of = |line: &Value| [&line["zone"], &line["epoch"], &line["seq"]].map(Value::clone);
                // Entries come by the event bus, so their lines may be behind those of operators.
                let entered =
                    eventually("the entry is in the log", || told(&log, "entered").first().cloned());
                assert_eq!(of(&line), of(&entered), "the entry that ends");
            }
            "drain" => assert_eq!(line["draining"], true),
            _ => assert_ne!(line["before"], line["after"]),
        }
    }
    // What changes nothing is no act: the same again, a question, a dry run, and refused calls.
    let count =
        || fs::read_to_string(log.join(FIRST)).expect("there is a log").matches(r#""name":"ada""#).count();
    let before = count();
    for (method, path, body, status) in [
        ("PUT", "/admin/v1/drain", r#"{"draining":true}"#, 200),
        ("PUT", "/admin/v1/routes", r#"{"routes":[{"name":"abuse","deny":true,"path":"/x"}]}"#, 200),
        ("PATCH", "/admin/v1/zones/NEW", r#"{"policy":{"mode":"auto"}}"#, 200),
        ("PATCH", "/admin/v1/zones/NEW", "{}", 200),
        ("PUT", "/admin/v1/zones/NEW", r#"{"policy":{}}"#, 200),
        ("PUT", "/admin/v1/zones/NEW/stock", r#"{"tiers":[]}"#, 200),
        ("POST", "/admin/v1/routes/explain", r#"{"url":"https://shop.example/"}"#, 200),
        ("PUT", "/admin/v1/routes?dry_run=true", r#"{"routes":[]}"#, 200),
        ("POST", "/admin/v1/zones?dry_run=true", r#"{"id":"OTHER"}"#, 200),
        ("POST", "/admin/v1/zones", r#"{"id":"NEW"}"#, 409),
        ("POST", "/admin/v1/zones/NEW/leave", r#"{"jti":"nonsense"}"#, 400),
    ] {
        let reply = weir.admin_ask(method, path, &headers, Some(body));
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
    }
    let back = weir.admin_ask("PUT", "/admin/v1/drain", &headers, Some(r#"{"draining":false}"#));
    assert_eq!(back.status, 200);
    eventually("the end of the drain is in the log", || (told(&log, "drain").len() == 2).then_some(()));
    assert_eq!(count(), before + 1);
    for told in [
        "the routes were changed",
        "an operator ended a visit",
        "an operator took this server out of service",
    ] {
        weir.logs(told);
    }
    let said = weir.log();
    assert_eq!(said.matches("a zone was changed").count(), 4, "{said}");
    assert_eq!(said.matches("the routes were changed").count(), 1, "{said}");
    for told in ["an operator ended a visit", "an operator took this server out of service"] {
        let line = said.lines().find(|line| line.contains(told)).unwrap_or_else(|| panic!("{told}: {said}"));
        assert!(line.contains("ada") && line.contains("203.0.113.5"), "{line}");
    }
    let _setup = weir.stop();
    passes_verification(&log);
}
