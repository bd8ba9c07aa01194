//! Each invalid command line gives one line on standard error and exit code 2.

use std::{fs::OpenOptions, process::Command};

use loadgen::{file, gather::Gathered, report::Plan};

fn refusal(arguments: &[&str]) -> String {
    let ended = Command::new(env!("CARGO_BIN_EXE_loadgen")).args(arguments).output().expect("loadgen runs");
    let said = String::from_utf8(ended.stderr).expect("loadgen runs");
    assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(ended.stdout.is_empty());
    said
}

#[test]
fn no_command_gets_the_list_of_commands() {
    let ended = Command::new(env!("CARGO_BIN_EXE_loadgen")).output().expect("loadgen runs");
    let said = String::from_utf8(ended.stderr).expect("loadgen runs");
    assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(2), &b""[..]), "{said}");
    assert!(said.starts_with("loadgen: give a command\n"), "{said}");
    for command in ["run", "find", "profiles", "merge"] {
        assert!(said.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{said}");
    }
    assert!(said.lines().count() < 20 && !said.contains("Exit codes"), "a short help: {said}");
}

#[test]
fn each_mistake_is_reported_in_one_line() {
    // Nobody listens on port 1.
    let run = ["run", "--zone", "Z", "--target", "http://127.0.0.1:1"];
    let with = |more: &[&str]| refusal(&[&run[..], more].concat());
    for (more, why) in [
        (&[][..], "connection refused: nothing listens there; start the server"),
        (&["--profile", "nosuch"], "nosuch"),
        (&["--slo", "p95"], "p95=36ms"),
        (&["--slo", "errors=1"], "percentage"),
        (&["--abandon", "35"], "abandon"),
        (&["--users", "0"], "300k"),
        (&["--users", "many"], "300k"),
        (&["--users", "300k"], "connection refused"),
        (&["--scale", "0"], "--scale"),
        (&["--scale", "half"], "35%"),
        (&["--scale", "2%"], "connection refused"),
        (&["--sources", "localhost"], "such as 127.0.0.2"),
        (&["--users", "1", "--scale", "1"], "cannot be used with"),
        (&["--connections", "30000"], "--sources"),
        (&["--connections", "0"], "--connections"),
        (&["--connections", "25000", "--workers", "1"], "--workers"),
        (&["--stream-share", "2"], "stream_share"),
        (&["--stream-share", "0.5"], "300001 streams (--stream-share) need at least 11 source addresses"),
        (
            &["--users", "25000", "--stream-share", "1", "--workers", "1"],
            "25001 streams (--stream-share) need at least 2 workers",
        ),
        (&["--sources", "127.0.0.9-127.0.0.2"], "range"),
        (&["--sources", "::1"], "cannot reach"),
        (&["--start-at", "soon"], "--start-at"),
        (&["--idle-timeout", "0"], "--idle-timeout"),
        (&["--json", "/nosuch/run.json"], "/nosuch/run.json"),
        (&["--insecure"], "https://"),
        (&["--ca", "/nosuch.pem"], "/nosuch.pem"),
        (&["--ca", "a.pem", "--insecure"], "cannot be used with"),
        (&["--resolve", "127.0.0.1"], "HOST:PORT:ADDRESS"),
        (&["--header", "x"], "NAME: VALUE"),
        (&["--header", "Host: a"], "sets it itself"),
    ] {
        let said = with(more);
        assert!(said.contains(why), "{more:?}: {said}");
    }
    assert!(refusal(&["run", "--zone", "Z", "--target", "ftp://a"]).contains("http://"));
    // It has no certificate.
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let said = refusal(&["run", "--zone", "Z", "--target", "https://127.0.0.1:1", "--ca", certificates]);
    assert!(said.contains("--ca: has no certificate"), "{said}");
    assert!(refusal(&["run", "--zone", "Z"]).contains("--target"));
    let find = ["find", "--zone", "Z", "--target", "http://127.0.0.1:1"];
    assert!(refusal(&[&find[..], &["--users", "10"]].concat()).contains("--from"));
    assert!(refusal(&[&find[..], &["--start-at", "1700000000"]].concat()).contains("--start-at"));
    assert!(refusal(&[&find[..], &["--profile", "sale"]].concat()).contains("an event begins once"));
    assert!(refusal(&find).contains("connection refused"));
    assert!(refusal(&["merge", "/nosuch.json"]).contains("/nosuch.json"));
    assert!(refusal(&["merge"]).contains("FILE"));
    for (arguments, why) in [
        (&["dance"][..], "the commands are run, find, profiles and merge"),
        (&["run", "--dance"], "--help` describes"),
        (&["run", "--zone", "Z", "--target", "localhost:8080"], "write http://localhost:8080"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(why) && arguments.last().is_none_or(|last| said.contains(last)), "{said}");
    }
}

/// A run takes minutes. Its verdict is said even if the report cannot be written.
#[test]
fn a_full_disk_does_not_cost_the_verdict() {
    let plan = Plan {
        target: "http://127.0.0.1:1".to_owned(),
        zone: "Z".to_owned(),
        profile: "none".to_owned(),
        users: 1,
        planned_ms: 1_000,
        abandon: 0.0,
        streams: 0,
        start_unix_ms: 1_700_000_000_000,
        admit_per_minute: None,
        sub_windows: 10,
        idle_s: 60,
        opening: None,
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (gathered, path) = (Gathered::default(), dir.path().join("run.json"));
    file::write(&path, &gathered.report(plan, &[]), &gathered).expect("written");
    let path = path.to_str().expect("UTF-8");
    let merge = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.args(["merge", path]).args(more);
        command
    };
    let verdict = merge(&[]).output().expect("loadgen runs").stdout;
    assert!(verdict.len() > 20, "{}", String::from_utf8_lossy(&verdict));
    for flag in ["--json", "--html"] {
        let ended = merge(&[flag, "/dev/full"]).output().expect("loadgen runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert_eq!(ended.stdout, verdict, "{flag}");
        assert!(said.contains("/dev/full: No space left on device") && said.lines().count() == 1, "{said}");
    }
    // The JSON and the verdict have no room: the verdict is on standard error.
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("Linux");
    for (arguments, has_verdict) in [(&["--json", "-"][..], true), (&[], false)] {
        let ended = merge(arguments).stdout(full()).output().expect("loadgen runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert_eq!(said.contains(&*String::from_utf8_lossy(&verdict)), has_verdict, "{said}");
        assert!(said.contains("loadgen: standard output: No space left on device"), "{said}");
    }
}
