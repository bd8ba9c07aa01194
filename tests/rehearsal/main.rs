//! Runs `loadgen` against the running `weir`: a burst with people who leave, pause and ask again, of whom half listen to streams; and a
//! sale, in the order of arrival and by lot; and a sale in three regions. No check may fail. The runs are shorter than a minute, so the limit per minute stays open
//! and the exit code is that of an open verdict.

#[path = "../support/client.rs"]
#[expect(dead_code, reason = "loadgen makes the calls")]
mod client;
#[path = "../support/clock.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod clock;
#[path = "../support/redis.rs"]
mod redis;
mod regions;
#[path = "../support/weir.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod weir;

use std::{
    collections::HashSet,
    fs,
    process::{Child, Command, Stdio},
};

use clock::eventually;
use serde_json::Value;
use store::unix_ms;
use weir::{Setup, Weir};

/// The limit per minute. A burst with nobody waiting uses all slots at once; the other users wait.
const PER_MINUTE: u64 = 300;

const PROFILE: &str = "
users = 500
steps = [[3, 0.8], [3, 1.0], [6, 1.0], [1, 0.0]]
first_sleep_s = [0, 1]
abandon = 0.35
patience_s = [1, 6]
naps = 0.2
nap_s = [4, 6]
repeat = 0.5
stream_share = 0.5
";

/// 90 % come within 12 s before the start, half of them in the last seconds, and some afterwards. Half listen to streams.
fn sale(after_s: u32) -> String {
    format!(
        "users = 150\nsteps = [[8, 0.4], [4, 0.9], [5, 1.0], [{after_s}, 1.0], [1, 0.0]]\nprequeue_s = 12\nfirst_sleep_s = [0, 0.5]\n\
         repeat = 0.5\nstream_share = 0.5\nthen = \"stay\"\n"
    )
}

/// An instant so many seconds from now, as operators write it, and in milliseconds.
fn in_s(seconds: i64) -> (String, u64) {
    let second = i64::try_from(unix_ms() / 1_000).expect("fits") + seconds;
    let text = admission::instant_text(u32::try_from(second).expect("before 2106"));
    (text, u64::try_from(second).expect("after 1970") * 1_000)
}

/// A server whose event begins in so many seconds, in milliseconds of the Unix clock.
fn event(begins_s: i64, more: &str) -> (Weir, u64) {
    let (begins, begins_ms) = in_s(begins_s);
    let (from, ends) = (in_s(-120).0, in_s(600).0);
    let event = format!(
        "polling_period_ms = 1000\n[[zone.event]]\nid = \"sale\"\nprequeue_from = \"{from}\"\nbegins = \"{begins}\"\nends = \"{ends}\"\n{more}"
    );
    (Setup::zone(150, &event).start(), begins_ms)
}

/// Starts a rehearsal with this profile, which writes `run.json` and `run.html` beside the server's files.
fn start(server: &Weir, profile: &str, more: &[&str]) -> Running {
    let path = |name: &str| server.setup().dir().join(name);
    fs::write(path("profile.toml"), profile).expect("the directory takes files");
    let child = Command::new(weir::build("loadgen"))
        .args(["run", "--zone", "Z", "--target", &format!("http://{}", server.public), "--profile"])
        .arg(path("profile.toml"))
        .arg("--json")
        .arg(path("run.json"))
        .arg("--html")
        .arg(path("run.html"))
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("loadgen starts");
    Running(Some(child))
}

/// Killed if the test fails; its workers end with it.
struct Running(Option<Child>);

impl Running {
    /// Waits for the end. Returns the exit code and what was printed.
    fn end(mut self) -> (Option<i32>, String) {
        eventually("the rehearsal ends", || self.0.as_mut()?.try_wait().expect("our own child"));
        let ended = self.0.take().expect("it ran").wait_with_output().expect("our own child");
        let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        (ended.status.code(), said.into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn a_burst_is_rehearsed_and_no_check_fails() {
    let setup = Setup::zone(u32::try_from(PER_MINUTE).expect("small"), "polling_period_ms = 1000");
    let audit = setup.dir().join("audit");
    let server = setup.arg("--audit-dir").arg(&audit).start();
    let path = |name: &str| server.setup().dir().join(name);
    let per_minute = PER_MINUTE.to_string();
    let running = start(&server, PROFILE, &["--admit-per-minute", &per_minute, "--slo", "errors=0%"]);
    let (code, said) = running.end();
    assert_eq!(code, Some(3), "{said}");

    let run: Value = serde_json::from_slice(&fs::read(path("run.json")).expect("written")).expect("JSON");
    let report = &run["report"];
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|check| check["judgement"] != "bad"), "{said}");
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).expect("each check is made");
    assert_eq!(run["verdict"]["outcome"], "open", "{said}");
    let minute = check("over_admission_60s");
    assert_eq!(minute["judgement"], "open", "{said}");
    let note = minute["note"].as_str().expect("a sentence");
    assert!(note.starts_with(&format!("At most {PER_MINUTE} entered")), "{note}");
    assert!(note.contains("must last at least"), "{note}");
    for name in ["order", "rank_rises", "entered_once", "evictions", "errors", "slo:errors"] {
        let check = check(name);
        assert_eq!(check["judgement"], "good", "{said}");
    }
    // The run is meaningful only if the whole minute was used, and some users asked again, left or paused.
    let stories = &run["stories"];
    let count = |column: &str, is: &dyn Fn(i64) -> bool| {
        let numbers = stories[column].as_array().expect("a column");
        numbers.iter().filter(|number| is(number.as_i64().expect("a number"))).count() as u64
    };
    assert_eq!(count("entered_sent_ms", &|sent| sent >= 0), PER_MINUTE, "{said}");
    assert!(report["counters"]["can_enter_true_count"].as_u64() > Some(PER_MINUTE + 50), "{said}");
    let streams = |field: &str| report["streams"][field].as_u64();
    // Each listener who waits opens one, and those who paused open another one.
    assert!(streams("opened") > Some(50) && streams("reconnected") > Some(3), "{said}");
    assert!(streams("events") > streams("opened") && streams("refused") == Some(0), "{said}");
    assert!(count("end", &|end| end == 1) > 20, "some left: {said}");
    assert!(count("lapses", &|lapses| lapses > 0) > 5, "some paused: {said}");
    let page = fs::read_to_string(path("run.html")).expect("written");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>"));

    // The audit log contains each entry once, and is unchanged.
    let setup = server.stop();
    let verify = || {
        let ended = Command::new(weir::binary()).args(["audit", "verify"]).arg(&audit).output();
        let ended = ended.expect("the binary runs");
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let (code, said) = verify();
    assert_eq!(code, Some(0), "{said}");
    let file = audit.join("audit-0000000001.jsonl");
    let log = fs::read_to_string(&file).expect("written");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let entered: Vec<_> = lines
        .filter(|line| line["event"] == "entered")
        .map(|line| (line["epoch"].to_string(), line["seq"].to_string()))
        .collect();
    assert_eq!(entered.len() as u64, PER_MINUTE);
    assert_eq!(entered.iter().collect::<HashSet<_>>().len(), entered.len(), "no entry is recorded twice");

    // After an entry is removed or changed, the verification fails.
    let at = log.lines().position(|line| line.contains(r#""event":"entered""#)).expect("somebody entered");
    let mut lines: Vec<_> = log.split_inclusive('\n').map(str::to_owned).collect();
    let (_, seq) = &entered[0];
    lines[at] = lines[at].replacen(&format!(r#""seq":{seq},"#), r#""seq":1000000,"#, 1);
    let edited = lines.concat();
    lines.remove(at);
    for (what, text) in [("edited", edited), ("gap", lines.concat())] {
        fs::write(&file, text).expect("writable");
        let (code, said) = verify();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("{}:{}: {what}: ", file.display(), at + 1)), "{said}");
    }
    drop(setup);
}

/// The judgement and the sentence of a check.
fn judged(run: &Value, name: &str) -> (String, String) {
    let checks = run["report"]["checks"].as_array().expect("checks");
    let check =
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {checks:?}"));
    let text = |field: &str| check[field].as_str().expect("a text").to_owned();
    (text("judgement"), text("note"))
}

/// The run of a sale, of which these checks are good and none is bad.
fn assert_good(server: &Weir, running: Running, names: &[&str]) -> Value {
    let (code, said) = running.end();
    let path = |name: &str| server.setup().dir().join(name);
    let json = fs::read(path("run.json")).unwrap_or_else(|error| panic!("{error}: {said}"));
    let run: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((code, &run["verdict"]["outcome"]), (Some(3), &"open".into()), "{said}");
    for name in names {
        assert_eq!(judged(&run, name).0, "good", "{said}");
    }
    let page = fs::read_to_string(path("run.html")).expect("written");
    assert!(page.contains("안내된 개시 시각 전에는") && page.contains("Nobody enters before the start"));
    run
}

/// The slots of the pre-queue are none, so the rehearsal is not bad.
#[test]
fn a_sale_in_the_order_of_arrival_is_rehearsed() {
    let (server, begins_ms) = event(20, "");
    let running = start(&server, &sale(20), &["--admit-per-minute", "150"]);
    eventually("it begins", || (unix_ms() >= begins_ms).then_some(()));
    let names =
        ["opening", "order", "rank_rises", "evictions", "errors", "over_admission_sub_window", "slot_use"];
    let run = assert_good(&server, running, &names);
    let opens_ms = run["report"]["plan"]["opening"]["at_ms"].as_u64().expect("planned");
    assert!((10_000..12_500).contains(&opens_ms), "{opens_ms}");
    assert!(run["report"]["plan"]["opening"]["draw"].is_null());
}

/// The users see that the draw was right: those who save its checkpoint at the freeze, and all by their ranks, entries and receipts.
#[test]
fn a_sale_by_lot_is_rehearsed() {
    let (server, begins_ms) =
        event(20, "order = \"draw\"\nrandomness = \"stated: six dice\"\nfallback = \"wait\"");
    let running = start(&server, &sale(35), &["--admit-per-minute", "150"]);
    // The value comes some seconds after the freeze, as a round of drand does.
    eventually("the value is there", || (unix_ms() >= begins_ms + 5_000).then_some(()));
    let stated = server.admin_ask("POST", "/admin/v1/zones/Z/draws/sale", &[], Some(r#"{"value":"3 1 6"}"#));
    assert_eq!(stated.status, 200, "{stated:?}");
    let names = [
        "opening",
        "order",
        "draw_order",
        "draw_fairness",
        "draw_receipts",
        "rank_rises",
        "evictions",
        "errors",
    ];
    let run = assert_good(&server, running, &names);
    assert_eq!(run["report"]["plan"]["opening"]["draw"]["event"], "sale");
    let (_, note) = judged(&run, "draw_receipts");
    assert!(!note.contains(" 0 users had saved it"), "{note}");
    let receipts =
        run["papers"].as_array().expect("papers").iter().filter(|paper| paper["kind"] == "receipt");
    assert!(receipts.count() > 100);
}

/// Without an event ahead there is nothing to rehearse, and the command that helps is named.
#[test]
fn a_zone_without_an_event_is_named_before_the_run() {
    for (more, why, command) in [
        ("", "zone Z has no event ahead", "weir zones set Z event."),
        // An event of a closed zone opens nothing, so another one would not help.
        ("mode = \"closed\"", "zone Z has mode = closed", "weir zones set Z mode=auto"),
    ] {
        let server = Setup::zone(150, more).start();
        let (code, said) = start(&server, &sale(20), &[]).end();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(why) && said.contains(command) && said.lines().count() == 1, "{said}");
    }
}
