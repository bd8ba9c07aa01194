//! `loadgen run` against servers whose delays are known.

mod server;

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use loadgen::{
    file::{self, Run},
    frame::unpack,
    report::Judgement,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use server::Server;

fn run(server: &Server, dir: &Path, profile: &str, more: &[&str]) -> Command {
    command("run", server, dir, profile, more)
}

fn command(what: &str, server: &Server, dir: &Path, profile: &str, more: &[&str]) -> Command {
    let toml = dir.join("profile.toml");
    std::fs::write(&toml, profile).expect("the run");
    // Under `nohup` the tests, too, would run with an ignored SIGHUP, which a child inherits.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_loadgen")])
        .args([what, "--zone", "Z", "--target", &format!("http://{}", server.address)])
        .args(["--profile", toml.to_str().expect("the run")])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn start(server: &Server, dir: &Path, profile: &str, more: &[&str]) -> Child {
    let json = dir.join("run.json");
    let more = [more, &["--json", json.to_str().expect("the run")]].concat();
    run(server, dir, profile, &more).spawn().expect("the run")
}

/// The exit code, and the run that it wrote.
async fn end(child: Child, dir: &Path) -> (i32, Run) {
    let (code, _, run) = end_with_output(child, dir).await;
    (code, run)
}

/// What was printed, and the exit code. It must end within so many seconds.
async fn output(child: Child, most_s: u64) -> Output {
    let ended = tokio::time::timeout(Duration::from_secs(most_s), child.wait_with_output());
    ended.await.expect("it ends in time").expect("the run")
}

/// The exit code, what was printed, and the run that it wrote.
async fn end_with_output(child: Child, dir: &Path) -> (i32, String, Run) {
    let ended = output(child, 60).await;
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    let run = file::read(&dir.join("run.json")).unwrap_or_else(|error| panic!("{error}: {said}"));
    (ended.status.code().expect("the run"), said.into_owned(), run)
}

#[tokio::test(flavor = "multi_thread")]
async fn percentiles_are_those_of_the_server() {
    // 90 % take 40 ms, 9 % 160 ms, 1 % 400 ms.
    let server = Server::start(|call, _| {
        Duration::from_millis(match call % 100 {
            0 => 400,
            1..10 => 160,
            _ => 40,
        })
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let profile = "users = 200\nsteps = [[1, 1.0], [5, 1.0], [1, 0.0]]\nfirst_sleep_s = [0, 0.2]";
    let (code, run) = end(start(&server, dir.path(), profile, &["--workers", "2"]), dir.path()).await;
    assert_eq!(code, 3, "nobody enters, so the verdict is open");
    let report = run.report;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let mut held = server.held.lock().expect("unpoisoned").clone();
    held.sort_unstable();
    assert_eq!(report.all.count, held.len() as u64, "each call is counted once");
    assert_eq!(report.wait.count, 200);
    for (percent, told_us) in [50, 90, 95, 99].into_iter().zip(report.all.percentiles_us) {
        let rank = (percent * held.len()).div_ceil(100) - 1;
        let ratio = told_us as f64 / held[rank].as_micros() as f64;
        // Lower only by rounding to three digits; higher by the network and the timers of both sides.
        assert!((0.999..1.5).contains(&ratio), "p{percent}: told {told_us} us, held {:?}", held[rank]);
    }
    // The seconds count the same calls.
    let of_seconds: u64 = run.second_latencies.iter().map(|text| unpack(text).expect("the run").len()).sum();
    assert_eq!(of_seconds, report.all.count);
    // Each user has a story, and nobody entered.
    let stories = run.stories.stories().expect("the run");
    assert_eq!(stories.len(), 200);
    assert!(stories.iter().all(|story| story.entered.is_none() && story.arrived.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_shows_in_the_latency_of_all_calls_that_were_due_in_it() {
    // Nothing is answered from 2 s to 4 s after the first call.
    let server = Server::start(|_, since| match since.as_millis() {
        2000..4000 => Duration::from_secs(4) - since,
        _ => Duration::ZERO,
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let profile = "users = 50\nsteps = [[1, 1.0], [6, 1.0], [1, 0.0]]\nfirst_sleep_s = [0, 0.2]";
    let more = ["--workers", "1", "--connections", "2"];
    let (_, run) = end(start(&server, dir.path(), profile, &more), dir.path()).await;
    let slow_there =
        server.held.lock().expect("unpoisoned").iter().filter(|held| held.as_secs() >= 1).count();
    assert!(slow_there <= 2, "the server held at most one call per connection for long");
    let all = unpack(&run.report.all.histogram).expect("the run");
    let slow_here = all.count_between(1_000_000, u64::MAX);
    assert!(
        slow_here >= 40,
        "every user had to wait, and latency from the intended start shows it: {slow_here}"
    );
    let due: u64 = run.report.seconds.iter().map(|second| u64::from(second.due)).sum();
    // 50 users could not ask for 2 s: 500 calls at 200 ms.
    assert!(due >= run.report.all.count + 300, "{due} were due, {} made", run.report.all.count);
}

const LONG: &str = "users = 20\nsteps = [[1, 1.0], [600, 1.0]]\nfirst_sleep_s = [0, 0.2]";

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().expect("the run").try_into().expect("the run")).expect("the run")
}

/// Whatever the run showed until then: its verdict is open, the code is not 0, and the JSON, the page and the terminal say why.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_ends_with_a_report_that_says_so() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let server = Server::start(|_, _| Duration::ZERO).await;
        let dir = tempfile::tempdir().expect("a directory");
        let page = dir.path().join("run.html");
        let html = page.to_str().expect("the run");
        let child = start(&server, dir.path(), LONG, &["--workers", "2", "--html", html]);
        server.called().await;
        kill_process(pid(&child), signal).expect("the run");
        let (code, said, run) = end_with_output(child, dir.path()).await;
        assert_eq!((code, run.verdict.exit_code), (4, 4), "{said}");
        assert!(run.report.interrupted && run.verdict.interrupted);
        assert_eq!(run.verdict.outcome, Judgement::Open);
        assert!(run.verdict.sentence.contains("interrupted after"), "{:?}", run.verdict);
        assert!(run.report.all.count > 0);
        assert!(said.contains("verdict: open, interrupted ("), "{said}");
        let page = std::fs::read_to_string(page).expect("the run");
        assert!(page.contains("class=\"verdict open\"") && page.contains("the run was interrupted after"));
    }
}

/// Before the run there is a first call. A run that is stopped there says so, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_interrupted_during_its_first_call() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let target = format!("http://{}", silent.local_addr().expect("bound"));
    for command in ["run", "find"] {
        let child = Command::new(env!("CARGO_BIN_EXE_loadgen"))
            .args([command, "--zone", "Z", "--target", &target, "--users", "1000", "--connections", "10"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the run");
        let (_called, _) = silent.accept().await.expect("a call");
        kill_process(pid(&child), Signal::INT).expect("the run");
        let ended = output(child, 20).await;
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(4), "{said}");
        assert!(said.contains("was stopped before it began"), "{said}");
    }
}

/// The report waits for the calls in flight. Whoever does not want to wait for them interrupts the run once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_interrupted_twice_ends_at_once() {
    let server = Server::start(|call, _| Duration::from_secs(if call < 20 { 0 } else { 300 })).await;
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = start(&server, dir.path(), LONG, &["--workers", "2"]);
    // Each user has a place, and asks again.
    server.has_heard(40).await;
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    kill_process(pid(&child), Signal::INT).expect("the run");
    let told = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            if line.contains("stopping the run") {
                return line;
            }
        }
        panic!("it does not say that it stops");
    };
    let told = tokio::time::timeout(Duration::from_secs(20), told).await.expect("the run");
    assert!(told.contains("may take 30 s") && told.contains("a second time"), "{told}");
    kill_process(pid(&child), Signal::INT).expect("the run");
    let ended = tokio::time::timeout(Duration::from_secs(20), child.wait()).await;
    assert_eq!(ended.expect("at once").expect("the run").code(), Some(4));
    let mut last = String::new();
    while let Some(line) = lines.next_line().await.expect("text") {
        last = line;
    }
    assert!(!dir.path().join("run.json").exists(), "there is no report");
    assert!(last.contains("stopped at once") && last.contains("no report"), "{last}");
}

/// A run that waits for its start ends at once, and says that it was interrupted. No user of it called.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_its_start_can_be_interrupted() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dir = tempfile::tempdir().expect("a directory");
    // An hour ahead, in seconds since 1970.
    let start_at = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs() + 3_600;
    let more = ["--workers", "2", "--start-at", &start_at.to_string()];
    let mut child = start(&server, dir.path(), LONG, &more);
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let wait = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            if line.contains("the run begins in") {
                return line;
            }
        }
        panic!("it does not say that it waits");
    };
    let said = tokio::time::timeout(Duration::from_secs(60), wait).await.expect("the run");
    assert!(said.starts_with("all users are ready; the run begins in 35"), "{said}");
    let before = server.held.lock().expect("unpoisoned").len();
    kill_process(pid(&child), Signal::INT).expect("the run");
    let (code, said, run) = end_with_output(child, dir.path()).await;
    assert_eq!((code, run.verdict.exit_code, run.report.interrupted), (4, 4, true), "{said}");
    assert_eq!(server.held.lock().expect("unpoisoned").len(), before, "no user called");
}

/// The server dies when its users have waited for two polls, and the run goes on for 7 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_run_is_bad() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dir = tempfile::tempdir().expect("a directory");
    let profile = "users = 50\nsteps = [[1, 1.0], [8, 1.0], [1, 0.0]]\nfirst_sleep_s = [0, 0.2]";
    let page = dir.path().join("run.html");
    let html = page.to_str().expect("the run");
    let more = ["--workers", "1", "--admit-per-minute", "60", "--html", html];
    let child = start(&server, dir.path(), profile, &more);
    server.has_answered(150).await;
    server.die();
    let (code, said, run) = end_with_output(child, dir.path()).await;
    assert_eq!((code, run.verdict.exit_code, run.verdict.outcome), (1, 1, Judgement::Bad), "{said}");
    let check = |name: &str| run.report.checks.iter().find(|check| check.name == name).expect("made");
    let errors = check("errors");
    assert_eq!(errors.judgement, Judgement::Bad, "{errors:?}");
    assert!(errors.count >= 40, "nobody was answered any more: {errors:?}");
    assert!(errors.note.contains(" failed (streams included)"), "it counts the calls, too: {errors:?}");
    // What was not observed is not good.
    for name in ["over_admission_60s", "over_admission_sub_window", "order", "slot_use", "entered_once"] {
        assert_eq!(check(name).judgement, Judgement::Open, "{:?}", check(name));
    }
    assert!(said.contains("verdict: BAD ("), "{said}");
    assert!(said.contains("this run lasts 10 s, so its verdict cannot be good"), "{said}");
    let page = std::fs::read_to_string(page).expect("the run");
    assert!(page.contains("class=\"verdict bad\"") && !page.contains("class=\"verdict good\""));
}

/// With `--json -` standard output has the JSON alone, and people read standard error.
#[tokio::test(flavor = "multi_thread")]
async fn the_json_may_go_to_standard_output() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dir = tempfile::tempdir().expect("a directory");
    let profile = "users = 20\nsteps = [[1, 1.0], [1, 1.0], [1, 0.0]]\nfirst_sleep_s = [0, 0.2]";
    let slos = ["--slo", "wait:max=30s", "--slo", "entry:p50=1us", "--json", "-"];
    let ended =
        tokio::time::timeout(Duration::from_secs(60), run(&server, dir.path(), profile, &slos).output());
    let ended = ended.await.expect("the run").expect("the run");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("verdict: BAD ("), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("only JSON");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let verdict = &json["verdict"];
    assert_eq!((&verdict["outcome"], &verdict["exit_code"]), (&"bad".into(), &1.into()));
    assert_eq!(verdict["interrupted"], false);
    assert!(verdict["sentence"].is_string() && verdict["sentence_ko"].is_string());
    let checks = json["report"]["checks"].as_array().expect("checks");
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).expect("made");
    assert_eq!(check("order")["judgement"], "open");
    assert!(check("order")["note"].as_str().is_some_and(|note| note.contains("--users")));
    let wait = check("slo:wait:max");
    assert_eq!((&wait["judgement"], &wait["limit"]["at_most"]), (&"good".into(), &30.0.into()));
    assert_eq!(wait["limit"]["unit"], "seconds");
    let entry = check("slo:entry:p50");
    assert_eq!(entry["judgement"], "bad");
    assert!(entry["figure"].as_f64().is_some_and(|figure| figure > 1e-6), "{entry}");
}

/// A load may hold although its run leaves checks open. The line and the exit code say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_says_what_its_best_load_left_open() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dir = tempfile::tempdir().expect("a directory");
    let profile = "users = 5\nsteps = [[1, 1.0], [1, 1.0], [1, 0.0]]\nfirst_sleep_s = [0, 0.2]";
    let more = ["--from", "5", "--workers", "1", "--slo", "entry:max=30s"];
    let ended = command("find", &server, dir.path(), profile, &more).output();
    let ended =
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the run").expect("the run");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("held; ") && said.contains("nothing gave way up to 5 users"), "{said}");
}

/// A search has no report of its own, but the same exit code.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_search_says_so() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dir = tempfile::tempdir().expect("a directory");
    let mut search = command("find", &server, dir.path(), LONG, &["--from", "5", "--workers", "1"]);
    let child = search.spawn().expect("the run");
    server.called().await;
    kill_process(pid(&child), Signal::INT).expect("the run");
    let ended = output(child, 60).await;
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(4), "{said}");
    assert!(said.contains("loadgen: the search was stopped"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_fails_the_run_and_the_report_says_so() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dir = tempfile::tempdir().expect("a directory");
    let child = start(&server, dir.path(), LONG, &["--workers", "2"]);
    server.called().await;
    let pid = child.id().expect("the run");
    let children = std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("the run")
        .flat_map(|task| std::fs::read_to_string(task.expect("the run").path().join("children")))
        .collect::<String>();
    let worker: i32 = children.split_whitespace().next().expect("the run").parse().expect("the run");
    kill_process(Pid::from_raw(worker).expect("the run"), Signal::KILL).expect("the run");
    let (code, run) = end(child, dir.path()).await;
    // What the users of the other worker saw says little, so nobody is to blame.
    assert_eq!((code, run.verdict.exit_code, run.verdict.outcome), (2, 2, Judgement::Open));
    let check = run.report.checks.iter().find(|check| check.name == "generator").expect("the run");
    assert_eq!(check.judgement, Judgement::Open);
    assert!(check.note.contains("died"), "{}", check.note);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_two_machines_merge_exactly() {
    let server = Server::start(|_, _| Duration::ZERO).await;
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let profile = "users = 30\nsteps = [[1, 1.0], [2, 1.0], [1, 0.0]]";
    let soon = (loadgen::clock::unix_ms() / 1000 + 3).to_string();
    let children = dirs.each_ref().map(|dir| start(&server, dir.path(), profile, &["--start-at", &soon]));
    let mut runs = Vec::new();
    for (child, dir) in children.into_iter().zip(&dirs) {
        runs.push((dir.path().display().to_string(), end(child, dir.path()).await.1));
    }
    let calls: u64 = runs.iter().map(|(_, run)| run.report.all.count).sum();
    let (plan, merged) = file::merge(runs.clone()).expect("the run");
    let report = merged.report(plan, &[]);
    assert_eq!((report.plan.users, report.all.count), (60, calls));
    let mut whos: Vec<_> = merged.stories.iter().map(|story| story.who).collect();
    whos.sort_unstable();
    whos.dedup();
    assert_eq!(whos.len(), 60, "users of both machines have different numbers");
    runs[1].1.report.plan.start_unix_ms += 5000;
    assert!(file::merge(runs).expect_err("refused").to_string().contains("--start-at"));
}
