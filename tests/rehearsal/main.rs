//! Runs `loadgen` against the running `weir`: a burst with people who leave, pause and ask again. Half of them listen to streams.
//! No check may fail. The run is shorter than a minute, so the limit per minute stays open and the exit code is that of an open verdict.

#[path = "../support/client.rs"]
#[expect(dead_code, reason = "loadgen makes the calls")]
mod client;
#[path = "../support/clock.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod clock;
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
use weir::Setup;

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

/// Killed if the test fails; its workers end with it.
struct Running(Option<Child>);

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
    let loadgen = weir::build("loadgen");
    let setup = Setup::zone(u32::try_from(PER_MINUTE).expect("small"), "polling_period_ms = 1000");
    let audit = setup.dir().join("audit");
    let server = setup.arg("--audit-dir").arg(&audit).start();
    let path = |name: &str| server.setup().dir().join(name);
    fs::write(path("profile.toml"), PROFILE).expect("the directory takes files");
    let child = Command::new(loadgen)
        .args(["run", "--zone", "Z", "--target", &format!("http://{}", server.public)])
        .args(["--admit-per-minute", &PER_MINUTE.to_string(), "--slo", "errors=0%", "--profile"])
        .arg(path("profile.toml"))
        .arg("--json")
        .arg(path("run.json"))
        .arg("--html")
        .arg(path("run.html"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("loadgen starts");
    let mut running = Running(Some(child));
    eventually("the rehearsal ends", || running.0.as_mut()?.try_wait().expect("our own child"));
    let ended = running.0.take().expect("it ran").wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");

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
