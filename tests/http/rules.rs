//! The published rule of a zone: what everybody may read, when it changed, and that the audit log has each change.

use serde_json::{Value, json};

use crate::{
    audit::{told, verify},
    check::Visitor,
    client::Reply,
    clock::eventually,
    redis::Standalone,
    weir::{Setup, Weir, zone},
};

const PATH: &str = "/zones/Z/rules";

fn reply(weir: &Weir) -> Reply {
    let reply = weir.get(PATH);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
    reply
}

fn rules(weir: &Weir) -> Value {
    reply(weir).json()
}

/// The rule, once the server has seen it.
fn seen(weir: &Weir) -> Value {
    eventually("the server has seen it", || Some(rules(weir)).filter(|rules| rules["changed"].is_string()))
}

/// The rule, once the audit log has it.
fn recorded(weir: &Weir) -> Value {
    eventually("it is recorded", || Some(rules(weir)).filter(|rules| rules["auditRecord"].is_object()))
}

fn patch(weir: &Weir, change: &Value) {
    let path = "/admin/v1/zones/Z";
    let reply = weir.admin_ask("PATCH", path, &[("If-Match", "*")], Some(&change.to_string()));
    assert_eq!(reply.status, 200, "{reply:?}");
}

fn words(rules: &Value, language: &str) -> String {
    let all = rules["words"][language].as_array().expect("sentences").iter();
    all.map(|said| said.as_str().expect("a text")).collect::<Vec<_>>().join("\n")
}

/// A change of the rule is in the chain, and the reply names its line. A notice is no change, and neither is a restart.
pub(crate) fn a_change_is_in_the_audit_chain() {
    let setup = Setup::zone(60, "");
    let log = setup.dir().join("audit");
    let mut weir = setup.arg("--audit-dir").arg(&log).start();
    let is_recorded = |rules: &Value| {
        let n = &rules["auditRecord"]["n"];
        let line = told(&log, "rule").into_iter().find(|line| line["n"] == *n).expect("there is such a line");
        for part in ["digest", "rule", "zone"] {
            assert_eq!(line[part], rules[part], "{part}");
        }
        assert_eq!(line["hash"], rules["auditRecord"]["hash"]);
        line
    };
    let first = recorded(&weir);
    assert_eq!(is_recorded(&first)["before"], Value::Null);
    assert!(words(&first, "en").contains("At most 60 people enter in any 60 seconds"), "{first}");
    assert!(words(&first, "ko").contains("최대 60명이 입장합니다"), "{first}");
    assert_eq!((&first["rule"]["order"], &first["modeInForce"]), (&"arrival".into(), &"auto".into()));

    patch(&weir, &json!({ "notice": {"en": "Soon."} }));
    assert_eq!(rules(&weir)["digest"], first["digest"], "a notice is not part of the rule");
    patch(&weir, &json!({ "policy": {"admit_per_minute": 7, "mode": "hold"} }));
    let second = recorded(&weir);
    assert_eq!((&second["rule"]["admitPerMinute"], &second["modeInForce"]), (&7.into(), &"hold".into()));
    assert_ne!(second["digest"], first["digest"]);
    assert_eq!(is_recorded(&second)["before"], first["digest"]);
    assert!(words(&second, "en").contains("At the moment nobody enters."), "{second}");

    weir.kill_and_restart();
    let again = seen(&weir);
    for part in ["digest", "changed", "auditRecord", "rule"] {
        assert_eq!(again[part], second[part], "{part}");
    }
    assert_eq!(told(&log, "rule").len(), 2);
    let _setup = weir.stop();
    assert_eq!(verify(&[&log]).0, Some(0));
}

/// What lets requests past the line is counted, and not named.
pub(crate) fn who_is_let_past_is_counted() {
    let routes = "[[route]]\nname = \"inner-secret\"\nbypass = true\npath = \"/press/*\"\n[[route]]\nname = \"guests\"\nbypass = true\n\
                  token = \"vip\"\n[[route]]\nname = \"site\"\nzone = \"Z\"\n";
    let config =
        format!("trusted_proxies = [\"127.0.0.1\"]\n{}{}{routes}", zone("Z", 60, ""), zone("OTHER", 60, ""));
    let weir = Setup::new(&config).start();
    let first = rules(&weir);
    assert_eq!(
        (&first["rule"]["bypassRoutes"], &first["rule"]["bypassRoutesByToken"]),
        (&2.into(), &1.into())
    );
    let mut visitor = Visitor::of(&weir);
    for _ in 0..3 {
        assert_eq!(visitor.get("/press/kit").status, 200);
    }
    let now = rules(&weir);
    assert_eq!(now["counted"]["through"], 3);
    assert_eq!(now["digest"], first["digest"], "a count is not part of the rule");
    assert!(words(&now, "en").contains("2, of which 1 need a token"), "{now}");
    let text = now.to_string();
    assert!(["inner-secret", "guests", "vip", "press"].iter().all(|name| !text.contains(name)), "{text}");
    let other = weir.get("/zones/OTHER/rules").json();
    assert_eq!(other["rule"]["bypassRoutes"], 0, "no route leads to it: {other}");

    // The rule knows routes that operators set, too.
    let change = json!({ "routes": [{"name": "more", "bypass": true, "path": "/more"}] }).to_string();
    let set = weir.admin_ask("PUT", "/admin/v1/routes", &[("If-Match", "*")], Some(&change));
    assert_eq!(set.status, 200, "{set:?}");
    eventually("it is published", || (rules(&weir)["rule"]["bypassRoutes"] == 3).then_some(()));
}

/// Everybody may read it, and caches may keep it for a moment. Without an audit log it names no line.
pub(crate) fn everybody_may_read_it() {
    let events: Vec<_> = (0..32)
        .map(|at| {
            let day =
                |hour: u32| format!("2099-{:02}-{:02}T{hour:02}:00[Europe/Berlin]", 1 + at / 28, 1 + at % 28);
            json!({ "id": format!("{at:0>64}"), "prequeue_from": day(8), "begins": day(9), "ends": day(10) })
        })
        .collect();
    let weir = Setup::zone(60, "opens_at = \"2098-01-01T00:00:00Z\"").start();
    let known = reply(&weir);
    assert_eq!(known.header("cache-control"), Some("public, max-age=5"));
    assert_eq!(known.header("access-control-allow-origin"), Some("*"));
    assert!(words(&known.json(), "en").contains("Nobody enters before 2098-01-01T00:00:00Z"), "{known:?}");
    assert_eq!(seen(&weir)["auditRecord"], Value::Null);
    let tag = reply(&weir).header("etag").expect("a tag").to_owned();
    let again = weir.connect().ask("GET", PATH, &[("If-None-Match", &tag)], None).expect("a reply");
    assert_eq!((again.status, again.body.len()), (304, 0));
    patch(&weir, &json!({ "events": events, "policy": {"opens_at": null} }));
    let most = reply(&weir);
    assert!(most.body.len() < 32_000, "{} bytes", most.body.len());
    assert!(words(&most.json(), "ko").contains("2099-01-01T08:00[Europe/Berlin]부터 순서를 받습니다"));
    for (path, status, code) in [
        ("/zones/NOWHERE/rules", 404, "unknown_zone"),
        ("/zones/no%20name/rules", 404, "not_found"),
        ("/zones/%2e%2e/rules", 404, "not_found"),
        ("/zones/Z", 404, "not_found"),
        ("/zones/Z/rules/", 404, "not_found"),
    ] {
        let reply = weir.get(path);
        assert_eq!((reply.status, reply.problem().as_str()), (status, code), "{path}");
    }
    assert_eq!(weir.post(PATH, "{}").problem(), "method_not_allowed");

    // A log that is begun later has the rule, which is as old as before.
    let changed = seen(&weir)["changed"].clone();
    let setup = weir.stop();
    let log = setup.dir().join("audit");
    let weir = setup.arg("--audit-dir").arg(&log).start();
    assert_eq!(recorded(&weir)["changed"], changed);
}

/// Servers of a store publish the same, with the same digest.
pub(crate) fn all_servers_of_a_store_publish_the_same() {
    let redis = Standalone::start();
    let start = || Setup::new(&zone("Z", 60, "")).arg("--store").arg(redis.url()).start();
    let (one, two) = (start(), start());
    let first = seen(&one);
    assert_eq!(seen(&two)["digest"], first["digest"]);
    patch(&one, &json!({ "policy": {"max_active": 9} }));
    eventually("the other server publishes it", || {
        let [one, two] = [&one, &two].map(rules);
        (one["digest"] == two["digest"] && two["rule"]["insideAtMost"] == 9 && two["changed"].is_string())
            .then_some(())
    });
    assert_ne!(rules(&one)["digest"], first["digest"]);
}
