//! Each invalid command line gives one line on standard error and exit code 2.

use std::{fs::OpenOptions, path::Path, process::Command};

use loadgen::{file, gather::Gathered, report::Plan};
use tempfile::TempDir;

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
        (&["--start-at", "1764430000000"], "write seconds of the Unix clock, not milliseconds"),
        (&["--slo", "slot-use=101%"], "slot-use=101%: 101% is more than all"),
        (&["--slo", "errors=200%"], "errors=200%: 200% is more than all"),
        (&["--start-at", "1700000000"], "--start-at 2023-11-14T22:13:20Z: is in the past; it is 20"),
        (&["--start-at", "2023-11-14T22:13:20Z"], "is in the past"),
        (&["--idle-timeout", "0"], "--idle-timeout"),
        (&["--sources", "192.0.2.7"], "loadgen: --sources 192.0.2.7: this machine has no such address"),
        // Not only the first of them.
        (
            &["--sources", "127.255.255.255-128.0.0.1"],
            "loadgen: --sources 128.0.0.0: this machine has no such address",
        ),
        (&["--profile", "/nosuch/p.toml"], "loadgen: --profile /nosuch/p.toml: No such file"),
        (&["--json", "/nosuch/run.json"], "loadgen: --json /nosuch/run.json: No such file"),
        (&["--html", "/nosuch/run.html"], "loadgen: --html /nosuch/run.html: No such file"),
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
    assert!(said.contains(&format!("--ca {certificates}: has no certificate; it must be PEM")), "{said}");
    assert!(refusal(&["run", "--zone", "Z"]).contains("--target"));
    let find = ["find", "--zone", "Z", "--target", "http://127.0.0.1:1"];
    assert!(refusal(&[&find[..], &["--users", "10"]].concat()).contains("--from"));
    assert!(refusal(&[&find[..], &["--start-at", "1700000000"]].concat()).contains("--start-at"));
    assert!(refusal(&[&find[..], &["--profile", "sale"]].concat()).contains("an event begins once"));
    assert!(refusal(&find).contains("connection refused"));
    assert!(refusal(&["merge", "/nosuch.json"]).contains("/nosuch.json"));
    assert!(refusal(&["merge"]).contains("FILE"));
    for place in [&["run"][..], &[], &["run", "--resolve"], &["run", "--sources"]] {
        let said = refusal(&[place, &["http://u:s3cret@127.0.0.1"]].concat());
        assert!(said.contains("'http://…@127.0.0.1'") && !said.contains("s3cret"), "{place:?}: {said}");
    }
    for (arguments, why) in [
        (&["dance"][..], "the commands are run, find, profiles and merge"),
        (&["run", "--dance"], "--help` describes"),
        (&["run", "--zone", "Z", "--target", "localhost:8080"], "write http://localhost:8080"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(why) && arguments.last().is_none_or(|last| said.contains(last)), "{said}");
    }
}

/// Whatever a file holds, the error is short.
#[test]
fn no_error_prints_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let long = "a b=".repeat(5_000);
    for (name, text) in [
        ("text.json", format!("\"{long}\"")),
        ("report.json", format!("{{\"verdict\":{{\"outcome\":\"{long}\"}}}}")),
        ("key.toml", format!("\"{long}\" = 1")),
        ("word.toml", long),
    ] {
        let path = path(name);
        std::fs::write(&path, text).expect("written");
        for arguments in [
            &["run", "--zone", "Z", "--target", "http://127.0.0.1:1", "--profile", &path][..],
            &["run", "--zone", "Z", "--target", "https://127.0.0.1:1", "--ca", &path],
            &["merge", &path],
        ] {
            let said = refusal(arguments);
            assert!(said.contains(&path) && said.len() < path.len() + 500, "{} bytes: {said}", said.len());
        }
    }
    // A certificate that is not PEM, but DER.
    std::fs::write(path("der"), b"\x30\x82\xff").expect("written");
    let said = refusal(&["run", "--zone", "Z", "--target", "https://127.0.0.1:1", "--ca", &path("der")]);
    assert!(said.contains(&format!("--ca {}: has no certificate; it must be PEM", path("der"))), "{said}");
}

/// Both reports may go to standard output, one at a time, and people read on standard error then.
#[test]
fn a_report_goes_to_standard_output() {
    let (dir, path) = two_runs();
    let merge = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.args(["merge", &path("1.json"), &path("2.json")]).args(more).current_dir(dir.path());
        command.output().expect("loadgen runs")
    };
    for (option, begins) in [("--json", "{\"verdict\":"), ("--html", "<!doctype html>")] {
        let ended = merge(&[option, "-"]);
        let (out, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(3), "{said}");
        assert!(out.starts_with(begins) && said.contains("verdict: open"), "{option}: {out:.200} {said}");
        assert!(!Path::new(&path("-")).exists(), "{option}");
    }
    let ended = merge(&["--json", "-", "--html", "-"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(2), 0), "{said}");
    assert_eq!(said, "loadgen: --html -: would replace --json -; name another file\n");
    // A file of this name has another spelling.
    assert_eq!(merge(&["--html", "./-"]).status.code(), Some(3));
    assert!(Path::new(&path("-")).exists());
}

/// Writes a run without users, which began at this time and has this number, as `loadgen run --json` does.
fn write_run(path: &Path, start_unix_ms: u64, id: &str) {
    let plan = Plan {
        target: "http://127.0.0.1:1".to_owned(),
        zone: "Z".to_owned(),
        profile: "none".to_owned(),
        users: 1,
        planned_ms: 1_000,
        abandon: 0.0,
        streams: 0,
        start_unix_ms,
        is_part: false,
        admit_per_minute: None,
        sub_windows: 10,
        idle_s: 60,
        inside_at_most: None,
        opening: None,
    };
    let gathered = Gathered { runs: vec![id.to_owned()], ..Gathered::default() };
    file::write(path, &gathered.report(plan, &[]), &gathered).expect("written");
}

/// A directory with the runs of two machines, and other names of the first one: a link, another spelling, a copy, and one that was
/// written anew.
fn two_runs() -> (TempDir, impl Fn(&str) -> String) {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    let path = move |name: &str| root.join(name).to_str().expect("UTF-8").to_owned();
    write_run(Path::new(&path("1.json")), 1_700_000_000_000, "a");
    write_run(Path::new(&path("2.json")), 1_700_000_000_100, "b");
    std::os::unix::fs::symlink("1.json", path("link.json")).expect("a link");
    std::fs::copy(path("1.json"), path("copy.json")).expect("a copy");
    let run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path("1.json")).expect("a run")).expect("JSON");
    std::fs::write(path("pretty.json"), serde_json::to_vec_pretty(&run).expect("JSON")).expect("written");
    std::fs::create_dir(path("sub")).expect("a directory");
    (dir, path)
}

/// A run that is merged twice counts its users twice.
#[test]
fn a_run_is_merged_once() {
    let (_dir, path) = two_runs();
    let ended = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(["merge", &path("1.json"), &path("2.json"), "--json", &path("all.json")])
        .output()
        .expect("loadgen runs");
    assert_eq!(ended.status.code(), Some(3), "{}", String::from_utf8_lossy(&ended.stderr));
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.lines().next().is_some_and(|first| first.ends_with(", 2 runs merged")), "{said}");
    for again in ["all.json", "pretty.json"] {
        let said = refusal(&["merge", &path("1.json"), &path(again)]);
        assert!(
            said.contains(&format!("{}: has a run that {} has, too", path(again), path("1.json"))),
            "{said}"
        );
    }
    for (again, why) in [
        ("1.json", "is the same file as"),
        ("./1.json", "is the same file as"),
        ("sub/../1.json", "is the same file as"),
        ("link.json", "is the same file as"),
        ("copy.json", "has the same content as"),
    ] {
        let said = refusal(&["merge", &path("1.json"), &path("2.json"), &path(again)]);
        assert!(said.contains(&format!("{}: {why} {}", path(again), path("1.json"))), "{said}");
        assert!(said.contains("give the run of each machine once"), "{said}");
    }
}

/// Nothing that a command reads, and no other report, is replaced by a report. It is said before the run.
#[test]
fn a_report_replaces_nothing_else() {
    let (_dir, path) = two_runs();
    let before = std::fs::read(path("1.json")).expect("a run");
    std::fs::write(path("new.html"), "old").expect("written");
    for (json, html, refused, why) in [
        ("out", "out", "--html", "would replace --json"),
        ("out", "./out", "--html", "would replace --json"),
        ("sub/../new.html", "new.html", "--html", "would replace --json"),
        ("1.json", "out.html", "--json", "which is to be merged"),
        ("out.json", "sub/../1.json", "--html", "which is to be merged"),
        ("link.json", "out.html", "--json", "which is to be merged"),
    ] {
        let merge = ["merge", &path("1.json"), &path("2.json")];
        let out = ["--json", &path(json), "--html", &path(html)];
        let said = refusal(&[&merge[..], &out].concat());
        assert!(said.starts_with(&format!("loadgen: {refused} ")) && said.contains(why), "{said}");
        assert!(said.contains("name another file"), "{said}");
    }
    assert_eq!(std::fs::read(path("1.json")).expect("a run"), before);
    assert_eq!(std::fs::read_to_string(path("new.html")).expect("old"), "old");

    std::fs::write(path("profile.toml"), "users = 1\nsteps = [[1, 1.0]]\n").expect("written");
    std::fs::write(path("ca.pem"), "none").expect("written");
    let run = |more: &[&str]| {
        let run = [
            "run",
            "--zone",
            "Z",
            "--target",
            "https://127.0.0.1:1",
            "--profile",
            &path("profile.toml"),
            "--ca",
            &path("ca.pem"),
        ];
        refusal(&[&run[..], more].concat())
    };
    assert!(run(&["--json", &path("out"), "--html", &path("./out")]).contains("would replace --json"));
    assert!(run(&["--json", &path("sub/../profile.toml")]).contains("would replace --profile"));
    assert!(run(&["--html", &path("ca.pem")]).contains("would replace --ca"));
    // Nothing follows, so nothing is there; an old report stays.
    for new in ["out.json", "out.html", "out"] {
        assert!(!Path::new(&path(new)).exists(), "{new}");
    }
    std::os::unix::fs::symlink("nowhere.json", path("to.json")).expect("a link");
    run(&["--json", &path("to.json"), "--html", &path("new.html")]);
    assert!(!Path::new(&path("nowhere.json")).exists() && Path::new(&path("to.json")).is_symlink());
    assert_eq!(std::fs::read_to_string(path("new.html")).expect("old"), "old");
    // A device keeps nothing, so both may go there.
    let said = run(&["--json", "/dev/null", "--html", "/dev/null"]);
    assert!(said.contains("has no certificate"), "{said}");
}

/// A run takes minutes. Its verdict is said even if the report cannot be written.
#[test]
fn a_full_disk_does_not_cost_the_verdict() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run.json");
    write_run(&path, 1_700_000_000_000, "a");
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
    // A limit of file sizes is like a full disk.
    for flag in ["--json", "--html"] {
        let report = dir.path().join("report");
        let ended = Command::new("sh")
            .args([
                "-c",
                "ulimit -f 1; exec \"$@\"",
                "sh",
                env!("CARGO_BIN_EXE_loadgen"),
                "merge",
                path,
                flag,
            ])
            .arg(&report)
            .output()
            .expect("loadgen runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &ended.stdout), (Some(2), &verdict), "{flag}: {ended:?}");
        assert!(said.contains("report: File too large") && said.lines().count() == 1, "{said}");
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
    // Where it is closed, a report for it is refused before anything is done. The verdict alone is the exit code, too.
    let closed = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" >&-", "sh", env!("CARGO_BIN_EXE_loadgen")]).args(arguments);
        let ended = command.output().expect("loadgen runs");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("UTF-8"))
    };
    let why = "standard output is closed; leave it open, or send it to a file or /dev/null\n";
    for option in ["--json", "--html"] {
        let said = closed(&["merge", path, option, "-"]);
        assert_eq!(said, (Some(2), format!("loadgen: {option} -: {why}")));
    }
    for word in ["profiles", "--help", "--version"] {
        assert_eq!(closed(&[word]), (Some(2), format!("loadgen: {why}")), "{word}");
    }
    assert_eq!(closed(&["merge", path]), (Some(3), String::new()));
}
