//! Draws of the running server, and `weir draw verify`. What it verifies is tested in `crates/draw`.

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    admin::weir as command,
    app::body,
    audit::{self, audited},
    client::Reply,
    clock::eventually,
    events::{in_s, patch},
    keys::{KeyFiles, reload},
    metrics::gauge,
    redis::{Cluster, Standalone},
    weir::{Setup, Weir, binary, without_variables, zone},
};

/// The vectors of a draw: a record, and receipts.
fn vector(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/draw/tests/vectors").join(name);
    serde_json::from_slice(&fs::read(path).expect("a vector")).expect("JSON")
}

/// Runs `weir draw verify` in `dir`. Returns exit code, output and error.
fn verify(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let ended = Command::new(binary()).args(["draw", "verify"]).args(args).current_dir(dir).output();
    let ended = ended.expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

pub(crate) fn a_record_and_receipts_are_verified() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let draw = vector("drand.json");
    let write = |name: &str, json: &Value| fs::write(dir.join(name), json.to_string()).expect("written");
    write("record", &draw["record"]);
    write("mine", &draw["receipts"][0]);
    write("gone", &draw["receipts"][1]);
    let mut forged = draw["receipts"][0].clone();
    forged["position"] = 1.into();
    assert_ne!(draw["receipts"][0]["position"], forged["position"]);
    write("forged", &forged);

    let key = draw["record"]["key"].as_str().expect("text");
    let (exit, out, err) = verify(dir, &["record", "mine", "gone", "--key", key]);
    assert_eq!((exit, err.as_str()), (Some(0), ""), "{out}");
    for expected in [
        "record: ok: the key is the one that you gave",
        "record: ok: the randomness is round 1000 of drand's quicknet",
        "mine: ok: place 0 has position",
        "gone: ok: place 2 has no position",
        "\neverything that was checked is right\n",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }

    let (exit, out, _) = verify(dir, &["record", "mine", "forged"]);
    assert_eq!(exit, Some(1));
    assert!(out.contains("forged: WRONG: ") && out.ends_with("\na receipt is wrong\n"), "{out}");
    assert!(out.contains("compare it with the key that the operator published"), "{out}");

    let (exit, out, _) = verify(dir, &["-o", "json", "record", "forged"]);
    let found: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((exit, &found[0]["right"], &found[1]["right"]), (Some(1), &true.into(), &false.into()));
    assert_eq!(found[1]["file"], "forged");

    let mut changed = draw["record"].clone();
    changed["places"] = "/x8=".into();
    write("changed", &changed);
    let (exit, out, _) = verify(dir, &["changed"]);
    assert!(
        exit == Some(1)
            && out.contains("not the list that was frozen")
            && out.ends_with("\nthe record is wrong\n"),
        "{out}"
    );

    let (exit, out, err) = verify(dir, &["record", "missing"]);
    assert!(exit == Some(2) && out.is_empty() && err.starts_with("weir: missing: "), "{err}");
    let (exit, _, err) = verify(dir, &["record", "--key", "x"]);
    assert!(exit == Some(64) && err.contains("it is not NAME+ID+KEY"), "{err}");
    fs::write(dir.join("hello"), "hello").expect("written");
    let (exit, out, _) = verify(dir, &["hello"]);
    assert!(exit == Some(1) && out.starts_with("hello: WRONG: the record: "), "{out}");

    // A source that would look like another line, or turn the writing around.
    let right = vector("right.json");
    let of_source =
        right.as_array().expect("files").iter().find(|file| file["about"].to_string().contains("U+202E"));
    write("source", &of_source.expect("a vector")["record"]);
    for args in [&["source"][..], &["-o", "json", "source"]] {
        let (exit, out, _) = verify(dir, args);
        assert!(exit == Some(0) && !out.contains(['\u{2028}', '\u{202e}']), "{out}");
        assert!(out.contains("few possible values"), "{out}");
    }

    fs::write(dir.join("long"), vec![b' '; 4_000_001]).expect("written");
    let (exit, out, _) = verify(dir, &["long"]);
    assert!(exit == Some(1) && out.contains("at most 4000000 are read"), "{out}");
}

/// An event of zone Z whose order is drawn. Its pre-queue has begun, and it begins so many seconds from now.
fn drawn(begins_s: i64) -> Value {
    json!({
        "id": "sale", "prequeue_from": in_s(-120).0, "begins": in_s(begins_s).0, "ends": in_s(600).0,
        "order": "draw", "randomness": "stated: six dice, thrown on stage", "fallback": "wait",
    })
}

/// The code of a problem, or the status of another reply.
fn said(reply: &Reply) -> String {
    if reply.status < 400 { reply.status.to_string() } else { reply.problem() }
}

fn state_value(weir: &Weir, body: &Value) -> String {
    said(&weir.admin_ask("POST", "/admin/v1/zones/Z/draws/sale", &[], Some(&body.to_string())))
}

/// Polls for these people, each at one of the servers, until all have entered. Returns who entered, in the order of the entries.
fn enter_all<'a>(servers: &[&Weir], tokens: impl Iterator<Item = &'a String>) -> Vec<usize> {
    let mut people: Vec<(usize, String)> = tokens.cloned().enumerate().collect();
    let mut entered = Vec::new();
    let mut step = |entered: &mut Vec<usize>| {
        people.retain_mut(|(person, token)| {
            let weir = servers[*person % servers.len()];
            let reply = weir.post("/traffic/entry", &body("Z", Some(token)));
            // The store may be away for a moment, and keeps all places.
            if reply.status == 503 {
                return true;
            }
            let answer = reply.json();
            if answer["canEnter"] == true {
                entered.push(*person);
                return false;
            }
            answer["token"].as_str().expect("a token").clone_into(token);
            true
        });
        people.is_empty()
    };
    eventually("somebody enters", || {
        step(&mut entered);
        (!entered.is_empty()).then_some(())
    });
    eventually("everybody has entered", || step(&mut entered).then_some(()));
    entered
}

/// Checks that the first 30 people entered in the order of their receipts, 15 in a sub-window, and the others after them.
fn assert_order_of(entered: &[usize], receipts: &[Value]) {
    let position = |person: &usize| receipts[*person]["position"].as_u64().expect("a position");
    let sorted = |people: &[usize]| {
        let mut positions: Vec<u64> = people.iter().map(position).collect();
        positions.sort_unstable();
        positions
    };
    assert_eq!(
        sorted(&entered[..15]),
        (1..=15).collect::<Vec<_>>(),
        "those who drew the first positions enter first"
    );
    assert_eq!(sorted(&entered[15..30]), (16..=30).collect::<Vec<_>>());
    assert!(entered[30..].iter().all(|person| *person >= 30), "whoever came later enters last: {entered:?}");
}

/// The zone's deletion, and a file that would drop the event, change nothing about a draw whose list is frozen.
fn assert_kept_by_file_and_zone(weir: &Weir) {
    let checkpoint = || weir.get("/draws/Z/sale").json()["checkpoint"].clone();
    let before = checkpoint();
    assert!(before.is_string(), "the list is frozen");
    let deleted = weir.admin_ask("DELETE", "/admin/v1/zones/Z", &[("If-Match", "*")], None);
    assert_eq!(said(&deleted), "out_of_range", "{deleted:?}");
    let path = weir.setup().config_path();
    let file = fs::read_to_string(&path).expect("the configuration");
    weir.setup().write_config(&file.replace("admit_per_minute = 150", "admit_per_minute = 151"));
    weir.signal(Signal::HUP);
    let told = eventually("the file is refused", || {
        weir.log().lines().find(|line| line.contains("its list is that of its start")).map(str::to_owned)
    });
    assert!(told.contains("zone=Z"), "{told}");
    weir.setup().write_config(&file);
    assert_eq!(checkpoint(), before);
}

/// Everybody who waits at the start gets a position by lot, and people enter in that order. Whoever came later stands behind, and whoever
/// left has no position. A kill of the server changes nothing, and anybody can verify the record and each receipt.
pub(crate) fn the_order_of_a_pre_queue_is_drawn() {
    let (mut weir, log) = audited(&zone("Z", 150, ""));
    let (status, changed) = patch(&weir, &json!({ "events": [drawn(5)] }));
    assert_eq!(status, 200, "{changed}");
    let join = |weir: &Weir| weir.post("/traffic/wait", &body("Z", None)).json();
    let token = |answer: &Value| answer["token"].as_str().expect("a token").to_owned();
    let first = eventually("places are taken", || {
        Some(join(&weir)).filter(|answer| answer["waiting"]["opensInMs"].is_u64())
    });
    let mut tokens: Vec<String> = (0..30).map(|_| token(&join(&weir))).collect();
    tokens.push(token(&first));
    assert_eq!(first["waiting"]["reason"], "draw");
    assert_eq!(first["waiting"]["etaSeconds"], Value::Null, "nobody has a rank before the draw");
    let left = tokens.swap_remove(7);
    assert_eq!(weir.post("/traffic/leave", &body("Z", Some(&left))).status, 204);

    assert_eq!(said(&weir.get("/draws/Z/other")), "no_draw");
    assert_eq!(said(&weir.get("/draws/Z/sale/record")), "no_draw");
    let receipt = |weir: &Weir, token: &str| weir.post("/draws/Z/sale/receipt", &body("Z", Some(token)));
    assert_eq!(said(&receipt(&weir, &tokens[0])), "no_draw");
    assert_eq!(state_value(&weir, &json!({ "value": "6" })), "no_draw", "nothing is frozen yet");
    let frozen = eventually("the list is frozen", || {
        Some(weir.get("/draws/Z/sale").json()).filter(|draw| draw["stage"] == "frozen")
    });
    let checkpoint = frozen["checkpoint"].as_str().expect("a checkpoint");
    assert!(
        checkpoint.starts_with("weir/sale/Z\n31\n") && checkpoint.contains("\nin-line 30\n"),
        "{checkpoint}"
    );
    let late: Vec<String> = (0..3).map(|_| token(&join(&weir))).collect();
    assert_eq!(state_value(&weir, &json!({ "value": "two\nlines" })), "out_of_range");
    assert_eq!(state_value(&weir, &json!({ "missing": true })), "draw_decided", "the fallback is to wait");
    // Of several at the same time, one counts, and only that one is told so.
    let values = ["3 1 6", "6 6 6", "1 2 3", "5 5 5"];
    let mut told: Vec<String> = std::thread::scope(|scope| {
        let ask = |value: &&str| {
            let body = json!({ "value": *value });
            let weir = &weir;
            scope.spawn(move || state_value(weir, &body))
        };
        let asked: Vec<_> = values.iter().map(ask).collect();
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    told.sort_unstable();
    assert_eq!(told, ["200", "draw_decided", "draw_decided", "draw_decided"], "there is one draw");
    let statements = eventually("the statement is in the audit log", || {
        Some(audit::told(&log, "stated")).filter(|lines| !lines.is_empty())
    });
    let published = eventually("the value is published", || {
        Some(weir.get("/draws/Z/sale/record")).filter(|reply| reply.status == 200)
    });
    let published = published.json()["randomness"]["statement"].as_str().expect("a statement").to_owned();
    let statement = &statements[0];
    assert_eq!(statements.len(), 1, "{statements:?}");
    let value = statement["value"].as_str().expect("a value");
    assert!(published.contains(&format!("\nvalue {value}\n")), "{published}: {statement}");
    let about = ["zone", "draw", "name", "role", "from"].map(|field| statement[field].as_str());
    assert_eq!(about, ["Z", "sale", "local", "admin", "127.0.0.1"].map(Some));
    for change in [json!({ "events": [drawn(300)] }), json!({ "events": null })] {
        let (status, problem) = patch(&weir, &change);
        assert_eq!((status, &problem["code"]), (422, &"out_of_range".into()), "{problem}");
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains("its list is that of its start")),
            "{problem}"
        );
    }
    assert_kept_by_file_and_zone(&weir);
    weir.kill_and_restart();

    let entered = enter_all(&[&weir], tokens.iter().chain(&late));
    let record = eventually("the record is there again", || {
        Some(weir.get("/draws/Z/sale/record")).filter(|reply| reply.status == 200)
    });
    let receipts: Vec<Value> = tokens.iter().map(|token| receipt(&weir, token).json()).collect();
    assert_order_of(&entered, &receipts);
    assert_eq!(said(&receipt(&weir, &late[0])), "no_draw", "whoever came later is not on the list");
    let of_left = receipt(&weir, &left).json();
    assert_eq!((&of_left["inLine"], &of_left["position"]), (&false.into(), &Value::Null));

    let dir = tempfile::tempdir().expect("a directory");
    let write =
        |name: &str, json: &Value| fs::write(dir.path().join(name), json.to_string()).expect("written");
    write("record", &record.json());
    write("left", &of_left);
    receipts.iter().enumerate().for_each(|(person, receipt)| write(&format!("r{person}"), receipt));
    let names: Vec<String> = (0..receipts.len()).map(|person| format!("r{person}")).collect();
    let key = frozen["key"].as_str().expect("a key");
    let mut args = vec!["record", "left", "--key", key];
    args.extend(names.iter().map(String::as_str));
    let (exit, out, err) = verify(dir.path(), &args);
    assert_eq!((exit, err.as_str()), (Some(0), ""), "{out}");
}

/// A draw is made after its event has begun. The change says what happens, and that happens: the list is frozen at once, and nobody enters
/// until an operator states the value, which operators are told. The seal is changed meanwhile: the key that signed the list signs the value.
pub(crate) fn a_draw_that_is_made_late_is_said_to_wait_for_its_value() {
    let weir = Setup::zone(600, "mode = \"hold\"").start();
    let (old, new) = (KeyFiles::old(), KeyFiles::new());
    let zones = fs::read_to_string(weir.setup().config_path()).expect("the configuration");
    let with_keys = |keys: &str| reload(&weir, &(keys.to_owned() + &zones));
    with_keys(&old.named("key_file"));
    let join = || weir.post("/traffic/wait", &body("Z", None)).json()["token"].as_str().map(str::to_owned);
    let tokens: Vec<String> = (0..3).filter_map(|_| join()).collect();
    assert_eq!(tokens.len(), 3);
    let change = json!({ "policy": { "mode": "auto" }, "events": [drawn(-40)] });
    let path = "/admin/v1/zones/Z?dry_run=true";
    let dry = weir.admin_ask("PATCH", path, &[("If-Match", "*")], Some(&change.to_string())).json();
    let (status, changed) = patch(&weir, &change);
    assert_eq!(status, 200, "{changed}");
    for reply in [dry, changed] {
        let warning = reply["warnings"][0].as_str().expect("a warning");
        assert!(warning.starts_with("event sale: its draw began at "), "{warning}");
        let eta = reply["etas"].as_array().and_then(|etas| etas.last()).expect("a wait");
        let told = (&eta["place"], &eta["after_s"]);
        assert_eq!(told, (&"last".into(), &Value::Null), "no wait is promised before the draw: {reply}");
    }
    let progress = || weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json()["draw"].clone();
    let overdue = |waits_for: &str| gauge(&weir, &format!("weir_draws_overdue{{waits_for=\"{waits_for}\"}}"));
    let waiting = eventually("it is overdue", || {
        Some(progress()).filter(|draw| draw["waits_for"] == "value" && draw["overdue_s"].as_u64() > Some(0))
    });
    let about = ["event", "stage", "source", "round"].map(|field| &waiting[field]);
    assert_eq!(about, [&json!("sale"), &json!("frozen"), &json!("six dice, thrown on stage"), &Value::Null]);
    eventually("the metric says so", || (overdue("value") == 1).then_some(()));
    let told = eventually("the trouble is told", || progress()["trouble"].as_str().map(str::to_owned));
    assert!(told.starts_with("no operator has stated the value yet"), "{told}");
    let (code, said, complaint) = command(&["zones", "show", "Z"], Some(&weir));
    assert_eq!(code, Some(0), "{complaint}");
    assert!(
        said.contains(
            "waits for the value that an operator states (six dice, thrown on stage); OVERDUE for "
        ),
        "{said}"
    );

    let late = join().expect("a place");
    let state = || state_value(&weir, &json!({ "value": "3 1 6" }));
    with_keys(&new.named("key_file"));
    assert_eq!(state(), "out_of_range", "the key that signed the list is not here");
    with_keys(&(new.named("key_file") + &old.named("previous_key_file")));
    assert_eq!(state(), "200");
    let everybody: Vec<&String> = tokens.iter().chain([&late]).collect();
    assert_eq!(enter_all(&[&weir], everybody.into_iter()).len(), 4);
    eventually("the draw waits for nothing", || {
        let draw = progress();
        (draw["stage"] == "drawn" && draw["waits_for"].is_null() && draw["overdue_s"] == 0).then_some(())
    });
    eventually("the metric says so", || (overdue("value") == 0).then_some(()));
    let receipt = |token: &str| weir.post("/draws/Z/sale/receipt", &body("Z", Some(token)));
    assert!(tokens.iter().all(|token| receipt(token).json()["position"].is_u64()), "they were in line");
    assert_eq!(self::said(&receipt(&late)), "no_draw", "whoever came later takes no part");

    let [from, begins, ends] = [-120, -40, 600].map(|second| in_s(second).0);
    let event = format!(
        "[[zone.event]]\nid = \"sale\"\nprequeue_from = \"{from}\"\nbegins = \"{begins}\"\nends = \"{ends}\"\norder = \"draw\"\n"
    );
    let setup = Setup::new(&zone("Z", 600, &event));
    let checked = Command::new(binary()).arg("check-config").arg(setup.config_path()).output();
    let checked = checked.expect("the binary runs");
    let warnings = String::from_utf8(checked.stderr).expect("text");
    assert!(checked.status.success(), "{warnings}");
    assert!(warnings.contains("weir: warning: zone Z: event sale: its draw began at "), "{warnings}");
}

/// A draw that did not take place before its event ended is not decided later: people enter by arrival then, so an order would be false. What
/// was published stays, so no other event by lot may have the name.
pub(crate) fn a_draw_that_misses_its_event_is_not_decided() {
    let weir = Setup::zone(600, "mode = \"hold\"").start();
    let join = || weir.post("/traffic/wait", &body("Z", None)).json()["token"].as_str().map(str::to_owned);
    let tokens: Vec<String> = (0..3).filter_map(|_| join()).collect();
    assert_eq!(tokens.len(), 3);
    let change = |events: &Value| patch(&weir, &json!({ "policy": { "mode": "auto" }, "events": events }));
    let mut sale = drawn(-40);
    assert_eq!(change(&json!([sale])).0, 200);
    let stage = || weir.get("/draws/Z/sale").json()["stage"].clone();
    eventually("the list is frozen", || (stage() == "frozen").then_some(()));
    sale["ends"] = in_s(-1).0.into();
    assert_eq!(change(&json!([sale])).0, 200);
    assert_eq!(enter_all(&[&weir], tokens.iter()), [0, 1, 2], "by arrival");
    assert_eq!(state_value(&weir, &json!({ "value": "3 1 6" })), "draw_decided");
    assert_eq!(stage(), "frozen");

    assert_eq!(change(&json!([])).0, 200);
    let again = |name: &str| {
        let mut event = drawn(300);
        event["id"] = name.into();
        change(&json!([event]))
    };
    let (status, refused) = again("sale");
    let detail = refused["detail"].as_str().expect("a reason");
    assert!(status == 422 && detail.ends_with("give this event another name"), "{refused}");
    assert_eq!(again("other").0, 200);
    // Nor by a zone of the same name that is made anew.
    let anew = json!({ "id": "Z", "events": [drawn(300)] }).to_string();
    let refused = weir.admin_ask("POST", "/admin/v1/zones", &[], Some(&anew));
    assert!(refused.status == 422 && refused.text().contains("give this event another name"), "{refused:?}");
}

/// Before a draw nobody has a rank: also while an operator holds the zone, and nobody is told that everything may be sold out before.
pub(crate) fn nobody_has_a_rank_before_the_draw() {
    let weir = Setup::zone(600, "").start();
    let stock = json!({ "tiers": [{ "id": "floor", "label": {"en": "Floor"}, "remaining": 1 }] });
    let set = || weir.admin_ask("PUT", "/admin/v1/zones/Z/stock", &[], Some(&stock.to_string())).json();
    assert_eq!(patch(&weir, &json!({ "events": [drawn(300)] })).0, 200);
    let join = || weir.post("/traffic/wait", &body("Z", None)).json();
    eventually("places are taken", || join()["waiting"]["opensInMs"].is_u64().then_some(()));
    let [_, _, last] = [join(), join(), join()];
    let token = last["token"].as_str().expect("a token");
    for mode in ["auto", "hold", "closed"] {
        assert_eq!(patch(&weir, &json!({ "policy": { "mode": mode } })).0, 200);
        assert_eq!(set()["beyond"], 0, "{mode}");
        let first = eventually(mode, || {
            let told = weir.post("/traffic/entry", &body("Z", Some(token))).json()["waiting"].clone();
            (told["opensInMs"].is_u64() == (mode == "auto") && told["stock"].is_object()).then_some(told)
        });
        assert_eq!(
            (&first["reason"], &first["etaSeconds"]),
            (&"draw".into(), &Value::Null),
            "{mode}: {first}"
        );
        assert_eq!(first["beyondStock"], Value::Null, "{mode}: {first}");
        assert!(first["rank"].as_u64() >= Some(4), "so many people wait: {first}");
    }
}

/// A server stands still while an event is moved through another one, and goes on after the old start: it freezes no list of that.
pub(crate) fn an_event_that_was_moved_is_not_frozen_at_its_old_start() {
    let (redis, keys) = (Standalone::start(), KeyFiles::old());
    let start = || {
        let file = keys.named("key_file") + &zone("A", 600, "");
        Setup::new(&file).arg("--store").arg(redis.url()).start()
    };
    let (one, two) = (start(), start());
    // Of a zone of the file, nobody knows whether it had a line before, so no list would be frozen soon.
    let make = |zone: &str, event: &Value| {
        let new = json!({ "id": zone, "events": [event] }).to_string();
        assert_eq!(said(&one.admin_ask("POST", "/admin/v1/zones", &[], Some(&new))), "201");
    };
    let (mut sale, (_, old_ms)) = (drawn(4), in_s(4));
    make("Z", &sale);
    make("ZZ", &drawn(7));
    let shown = |zone: &str| two.get(&format!("/draws/{zone}/sale")).json();
    eventually("both know the event, and its pre-queue is in force", || {
        let waits = two.post("/traffic/wait", &body("Z", None)).json()["waiting"]["opensInMs"].is_u64();
        (waits && shown("ZZ")["stage"] == "announced").then_some(())
    });
    two.freeze();
    let (begins, begins_ms) = in_s(300);
    sale["begins"] = begins.into();
    let (status, changed) = patch(&one, &json!({ "events": [sale] }));
    assert_eq!(status, 200, "{changed}");
    eventually("the old start passes", || (store::unix_ms() > old_ms + 500).then_some(()));
    two.signal(Signal::CONT);
    // A server looks at its draws in this order.
    eventually("it freezes the list of the other zone", || (shown("ZZ")["stage"] == "frozen").then_some(()));
    let draw = shown("Z");
    assert_eq!(
        (&draw["begins"], &draw["stage"], &draw["checkpoint"]),
        (&(begins_ms / 1_000).into(), &"announced".into(), &Value::Null),
        "{draw}"
    );
    // It would be refused if a list had been kept under this name.
    sale["ends"] = in_s(900).0.into();
    let (status, changed) = patch(&one, &json!({ "events": [sale] }));
    assert_eq!(status, 200, "{changed}");
}

/// Two servers share a Redis that loses everything after the freeze, and again after the line was dealt. They give it back, and the
/// order stays.
pub(crate) fn a_wiped_store_changes_no_draw() {
    let redis = Standalone::start();
    two_servers_hold_a_draw(&redis.url(), || {
        redis.command(&["FLUSHALL"]);
    });
}

/// The primary dies after the freeze, and the one that follows it after the line was dealt.
pub(crate) fn a_failover_changes_no_draw() {
    let mut cluster = Cluster::start(3, 1);
    let slot = cluster.slot("weir:v1:{Z}:z");
    let url = cluster.url();
    let mut dead: Option<usize> = None;
    two_servers_hold_a_draw(&url, || {
        let primary = cluster.primary_of(slot);
        if let Some(dead) = dead {
            cluster.restart(dead);
            cluster.wait_replicas(primary, 1);
        }
        cluster.kill(primary);
        dead = Some(primary);
        cluster.wait_failover(slot, primary);
    });
}

/// Holds a draw, and calls `lose` after the freeze and after the deal.
fn two_servers_hold_a_draw(store: &str, mut lose: impl FnMut()) {
    let keys = KeyFiles::old();
    let zones = zone("Z", 150, "polling_period_ms = 1000\nidle_timeout_s = 12");
    let start = || Setup::new(&(keys.named("key_file") + &zones)).arg("--store").arg(store).start();
    let (one, two) = (start(), start());
    let servers = [&one, &two];
    // The first servers of an empty store cannot know that there was no line before.
    let tokens: Vec<String> = (0..30)
        .map(|person| {
            let joined = eventually("there is a line", || {
                Some(servers[person % 2].post("/traffic/wait", &body("Z", None)))
                    .filter(|reply| reply.status == 200)
            });
            joined.json()["token"].as_str().expect("a token").to_owned()
        })
        .collect();
    // Nobody is told apart from those who wait: the zone admits nobody in its first minute, so the event begins within that.
    let (status, changed) = patch(&one, &json!({ "events": [drawn(5)] }));
    assert_eq!(status, 200, "{changed}");
    let keep = || {
        for (person, token) in tokens.iter().enumerate() {
            let reply = servers[person % 2].post("/traffic/entry", &body("Z", Some(token)));
            assert!([200, 503].contains(&reply.status), "nobody loses the place: {reply:?}");
            assert!(
                reply.status == 503 || reply.json()["canEnter"] == false,
                "nobody enters before the draw"
            );
        }
    };
    let stage_of = |weir: &Weir, stage: &str| weir.get("/draws/Z/sale").json()["stage"] == *stage;
    eventually("the list is frozen, and both servers know it", || {
        keep();
        servers.iter().all(|weir| stage_of(weir, "frozen")).then_some(())
    });
    let checkpoint = one.get("/draws/Z/sale").json()["checkpoint"].clone();
    let applied = without_variables(&mut Command::new(binary()))
        .args(["zones", "apply", "--store", store])
        .arg(one.setup().config_path())
        .output()
        .expect("the binary runs");
    let printed = String::from_utf8_lossy(&applied.stdout);
    assert_eq!(applied.status.code(), Some(65), "{applied:?}");
    assert!(
        printed.contains("refused    Z") && printed.contains("its list is that of its start"),
        "{printed}"
    );
    lose();
    let late: Vec<String> = (0..3)
        .map(|_| {
            let joined = eventually("places are taken again", || {
                Some(two.post("/traffic/wait", &body("Z", None))).filter(|reply| reply.status == 200)
            });
            joined.json()["token"].as_str().expect("a token").to_owned()
        })
        .collect();
    eventually("the value is stated", || {
        (state_value(&one, &json!({ "value": "3 1 6" })) == "200").then_some(())
    });
    eventually("the line is dealt", || {
        keep();
        let told = one.post("/traffic/entry", &body("Z", Some(&tokens[0])));
        (told.status == 200 && told.json()["waiting"]["reason"] != "draw").then_some(())
    });
    lose();
    let entered = enter_all(&servers, tokens.iter().chain(&late));
    let receipts: Vec<Value> = (tokens.iter())
        .map(|token| two.post("/draws/Z/sale/receipt", &body("Z", Some(token))).json())
        .collect();
    assert_order_of(&entered, &receipts);
    for weir in servers {
        assert_eq!(weir.get("/draws/Z/sale").json()["checkpoint"], checkpoint, "there is one list");
    }
    // What the store lost is given back, so servers that start later know it: also for somebody who still has the first token.
    let record = one.get("/draws/Z/sale/record").json();
    for weir in [one, two] {
        drop(weir.stop());
        let next = start();
        eventually("it knows the draw", || (next.get("/draws/Z/sale/record").json() == record).then_some(()));
    }
}
